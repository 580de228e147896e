//! Accept queues, next to the configuration of the server behind them.

use super::super::{Machine, Program, StandingQueue};
use super::WORKERS_TOO_FEW;
use super::servers::{at, at_text, process_name, restart, short};
use crate::diagnosis::{Diagnosis, Fix, Severity};
use crate::watch::ListenerState;
use crate::watch::diagnoses::accept_queue::{FULL, NEAR, OR_FASTER, backlog_setting, longer_than};
use crate::watch::diagnoses::syn_queue::{FULL as SYN_QUEUE_FULL, SUBJECT as SYN_QUEUES};
use crate::watch::diagnoses::{evidence, is_lasting, per_s, place, rounded, sysctl};
use tcptoll_core::units::human_count;

/// So few looks do not tell a queue that stands from one that was seen twice.
const LOOKS_MIN: u32 = 3;
/// A queue of one is a connection that came just now.
const SHORTEST_MIN: u32 = 2;

/// A queue that is never empty, in front of a server whose workers accept one connection each.
pub(super) fn workers_too_few(machine: &Machine) -> Vec<Diagnosis> {
    let diagnose = |queue: &StandingQueue| {
        if queue.looks < LOOKS_MIN || queue.shortest < SHORTEST_MIN {
            return None;
        }
        let (server, listen) = at(machine, &queue.on)?;
        let setting = match server.program {
            Program::PhpFpm => "pm.max_children =",
            Program::Apache => "MaxRequestWorkers",
            // Their processes accept without a free worker.
            Program::Nginx | Program::Redis | Program::Haproxy | Program::Mariadb => return None,
        };
        let own = listen.workers.as_ref();
        // The sum of all pools is no pool's.
        let all = server.workers.as_ref().filter(|_| server.program == Program::Apache);
        let workers = own.or(all)?;
        let program = server.program.name();
        let section = listen.section.as_ref().map(|name| format!(" ({})", short(name)));
        let (fewest, most) =
            (human_count(queue.shortest.into()), human_count(queue.longest.into()));
        let clients = if fewest == most { most } else { format!("{fewest} to {most}") };
        let busy = match workers.value {
            1 => "the one worker".to_owned(),
            many => format!("one of {} workers", human_count(many)),
        };
        let text = format!(
            "{clients} clients always wait for {busy} of {program}{}",
            section.unwrap_or_default()
        );
        let evidence = evidence([
            ("accept_queue_shortest", Some(queue.shortest.into())),
            ("accept_queue_longest", Some(queue.longest.into())),
            ("accept_queue_limit", Some(queue.limit.into())),
            ("looks", Some(queue.looks.into())),
            ("workers", Some(workers.value.into())),
            ("configured_at", Some(at_text(workers).into())),
            ("program", Some(program.into())),
            ("pid", Some(server.pid.into())),
        ]);
        let more = workers.value.saturating_mul(2).max(1);
        let fix = Fix {
            change: "Find out what the workers wait for, and limit that time. Or allow more workers.".to_owned(),
            commands: vec![format!("{setting} {more}"), restart(server)],
            effect: format!("{} requests are served concurrently.", human_count(more)),
            risk: "Each worker takes memory, and a slow backend gets more concurrent calls. A longer backlog \
                   does not help: clients only wait longer."
                .to_owned(),
            undo: format!("{setting} {}, and restart again.", workers.value),
        };
        Some(Diagnosis {
            id: WORKERS_TOO_FEW.into(),
            severity: Severity::Problem,
            subject: queue.on.clone(),
            text,
            evidence,
            fix: Some(fix),
        })
    };
    machine.standing.iter().filter_map(diagnose).collect()
}

/// Without cookies there is a second limit: three quarters of `tcp_max_syn_backlog`, for clients that the
/// kernel does not know. What it drops there rises in `ListenDrops` alone.
///
/// Source: `tcp_conn_request()` in `net/ipv4/tcp_input.c`, Linux 6.18.
pub(super) fn syn_backlog_full(machine: &Machine) -> Vec<Diagnosis> {
    let state = &machine.state;
    let (limits, rates) = (&state.limits, state.rates.as_ref());
    let Some((most, rates)) = limits.max_syn_backlog.zip(rates) else { return Vec::new() };
    // The rest of the drops: neither a full accept queue nor the first limit.
    let dropped = rates.drops_per_s - rates.overflows_per_s - rates.syns_dropped_per_s;
    let kept = most - most / 4;
    let longest = |one: &&ListenerState| one.syn_queue_len.is_some_and(|len| len >= kept);
    let Some(full) = state.listeners.iter().find(longest) else { return Vec::new() };
    if limits.syncookies != Some(0) || dropped <= 0.0 || most == 0 {
        return Vec::new();
    }
    let text = format!(
        "{} SYNs/s dropped: half-open requests reached three quarters of tcp_max_syn_backlog {}",
        per_s(dropped),
        human_count(most.into())
    );
    let evidence = evidence([
        ("syns_dropped_per_s", Some(rounded(dropped))),
        ("tcp_syncookies", Some(0.into())),
        ("tcp_max_syn_backlog", Some(most.into())),
        ("longest_syn_queue", full.syn_queue_len.map(Into::into)),
        ("longest_syn_queue_of", Some(place(&full.address, full.port).into())),
    ]);
    let fix = sysctl(
        "net.ipv4.tcp_syncookies",
        0,
        1,
        "Turn SYN cookies on; or raise net.ipv4.tcp_max_syn_backlog.".to_owned(),
        "A SYN that meets a full queue is answered, and the client connects.",
        "Without TCP timestamps, a connection opened by a cookie has no SACK and no window scaling.",
    );
    vec![Diagnosis {
        id: SYN_QUEUE_FULL.into(),
        severity: Severity::Problem,
        subject: SYN_QUEUES.into(),
        text,
        evidence,
        fix: Some(fix),
    }]
}

/// Where the listener's server is known, a full queue names its setting and the line that has it.
pub(super) fn name_the_setting(machine: &Machine, full: &mut Diagnosis) {
    if full.id != FULL && full.id != NEAR {
        return;
    }
    let limit = full.evidence.get("accept_queue_limit").and_then(serde_json::Value::as_u64);
    let limit = limit.and_then(|limit| u32::try_from(limit).ok());
    let (Some(limit), Some((server, listen))) = (limit, at(machine, &full.subject)) else { return };
    let program = server.program.name();
    full.evidence.insert("program".into(), program.into());
    // A longer queue is no remedy there.
    let lasting = is_lasting(full);
    let Some(fix) = full.fix.as_mut().filter(|_| !lasting) else { return };
    if let Some(backlog) = &listen.backlog {
        full.evidence.insert("configured_backlog".into(), backlog.value.into());
        full.evidence.insert("configured_at".into(), at_text(backlog).into());
    }
    let wanted = longer_than(limit);
    let setting = backlog_setting(process_name(server.program), &full.subject, wanted);
    if let Some(last) = fix.commands.last_mut() {
        *last = setting;
    }
    fix.commands.push(restart(server));
    let somaxconn = machine.state.limits.somaxconn;
    if let (Some(backlog), Some(somaxconn)) = (&listen.backlog, somaxconn)
        && backlog.value == u64::from(limit)
        && limit < somaxconn
    {
        fix.change = format!(
            "Raise the backlog of {program} from {limit} ({}); somaxconn allows {somaxconn}. {OR_FASTER}",
            at_text(backlog)
        );
    }
    if server.program == Program::Nginx {
        fix.risk.push_str(
            " Only one listen line of an address may set the backlog. With reuseport each worker has a queue of its own.",
        );
    }
}
