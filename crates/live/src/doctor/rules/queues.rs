//! Accept queues, next to the configuration of the server behind them; backlogs and socket buffers that are
//! configured above what the kernel grants.

use std::collections::BTreeMap;

use serde_json::Value;
use tcptoll_core::number;
use tcptoll_core::units::{host_port, text_size};

use super::servers::{at, at_text, is_chosen, known, process_name, restart, short, sockets};
use super::{BACKLOG_NOT_IN_EFFECT, BACKLOG_OVER_SOMAXCONN, BUFFERS_OVER_CAP, WORKERS_TOO_FEW};
use crate::doctor::{Buffers, Machine, Program, ServerConfig, Sourced, StandingQueue};
use crate::watch::ListenerState;
use crate::watch::diagnoses::queues::{
    FULL, NEAR, SYN_FULL, SYN_SUBJECT, backlog_setting, longer_than,
};
use crate::watch::diagnoses::{evidence, overload, rounded};
use tcptoll_core::finding::queues::Overload;
use tcptoll_core::finding::{Finding, Remedy, Severity};

/// So few looks do not tell a queue that stands from one that was seen twice.
pub(super) const LOOKS_MIN: u32 = 3;
/// A queue of one is a connection that came just now.
pub(super) const SHORTEST_MIN: u32 = 2;

/// A queue that is never empty, in front of a server whose workers accept one connection each.
pub(super) fn workers_too_few(machine: &Machine) -> Vec<Finding> {
    let diagnose = |queue: &StandingQueue| {
        if queue.looks < LOOKS_MIN || queue.shortest < SHORTEST_MIN {
            return None;
        }
        let (server, listen) = at(machine, &queue.on)?;
        let setting = match server.program {
            Program::PhpFpm => "pm.max_children =",
            Program::Apache => "MaxRequestWorkers",
            // Their processes accept without a free worker.
            Program::Nginx
            | Program::Redis
            | Program::Haproxy
            | Program::Mariadb
            | Program::App(_) => return None,
        };
        let own = listen.workers.as_ref();
        // The sum of all pools is no pool's.
        let all = server.workers.as_ref().filter(|_| server.program == Program::Apache);
        let workers = own.or(all)?;
        let program = server.program.name();
        let section = listen.section.as_ref().map(|name| format!(" ({})", short(name)));
        let (fewest, most) = (number::count(queue.shortest), number::count(queue.longest));
        let clients = if fewest == most { most } else { format!("{fewest} to {most}") };
        let busy = match workers.value {
            1 => "the one worker".to_owned(),
            many => format!("one of {} workers", number::count(many)),
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
        let fix = Remedy::named(WORKERS_TOO_FEW, "more")
            .with("SETTING", setting)
            .with("WORKERS", more)
            .with("FORMER", workers.value)
            .with("RESTART", restart(server));
        Some(Finding {
            id: WORKERS_TOO_FEW.into(),
            severity: Severity::Problem,
            subject: queue.on.clone(),
            text,
            evidence,
            remedies: vec![fix],
        })
    };
    machine.standing.iter().filter_map(diagnose).collect()
}

/// Without cookies there is a second limit: three quarters of `tcp_max_syn_backlog`, for clients that the
/// kernel does not know. What it drops there rises in `ListenDrops` alone.
///
/// Source: `tcp_conn_request()` in `net/ipv4/tcp_input.c`, Linux 6.18.
pub(super) fn syn_backlog_full(machine: &Machine) -> Vec<Finding> {
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
        number::three(dropped),
        number::count(most)
    );
    let evidence = evidence([
        ("syns_dropped_per_s", Some(rounded(dropped))),
        ("tcp_syncookies", Some(0.into())),
        ("tcp_max_syn_backlog", Some(most.into())),
        ("longest_syn_queue", full.syn_queue_len.map(Into::into)),
        ("longest_syn_queue_of", Some(host_port(&full.address, full.port).into())),
    ]);
    let fix = Remedy::named(SYN_FULL, "cookies");
    vec![Finding {
        id: SYN_FULL.into(),
        severity: Severity::Problem,
        subject: SYN_SUBJECT.into(),
        text,
        evidence,
        remedies: vec![fix],
    }]
}

/// Where the listener's server is known, a full queue names its setting and the line that has it.
pub(super) fn name_the_setting(machine: &Machine, full: &mut Finding) {
    if full.id != FULL && full.id != NEAR {
        return;
    }
    let limit = full.evidence.get("accept_queue_limit").and_then(serde_json::Value::as_u64);
    let limit = limit.and_then(|limit| u32::try_from(limit).ok());
    let (Some(limit), Some((server, listen))) = (limit, at(machine, &full.subject)) else { return };
    let program = server.program.name();
    full.evidence.insert("program".into(), program.into());
    // Elsewhere a longer queue is no remedy.
    let bursts = overload(full) == Some(Overload::Bursts.name());
    let Some(fix) = full.remedies.first_mut().filter(|_| bursts) else { return };
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
        fix.change += &format!(" It stands in {}.", at_text(backlog));
    }
    if server.program == Program::Nginx {
        fix.cost.push_str(
            " Only one listen line of an address may set the backlog. With reuseport each worker has a queue of its own.",
        );
    }
}

/// A configured address, next to its socket in the kernel.
struct Granted<'m> {
    server: &'m ServerConfig,
    asked: &'m Sourced<u64>,
    /// Whether somebody wrote the backlog down.
    chosen: bool,
    /// Address and port of the socket with the shortest limit.
    on: String,
    limit: u64,
    peak: u64,
    somaxconn: u64,
}

/// Each configured backlog whose socket was found.
fn granted(machine: &Machine) -> Vec<Granted<'_>> {
    let somaxconn = machine.number("net.core.somaxconn");
    let Some(somaxconn) = somaxconn.or(machine.state.limits.somaxconn.map(Into::into)) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for server in known(machine) {
        for listen in &server.listens {
            let sockets = sockets(machine, server, listen);
            let least = sockets.iter().min_by_key(|one| one.accept_queue_limit);
            let (Some(asked), Some(least)) = (&listen.backlog, least) else { continue };
            let peak = sockets.iter().map(|one| one.accept_queue_peak).max().unwrap_or(0);
            all.push(Granted {
                server,
                asked,
                chosen: is_chosen(server, listen),
                on: host_port(&least.address, least.port),
                limit: least.accept_queue_limit.into(),
                peak: peak.into(),
                somaxconn,
            });
        }
    }
    all
}

/// A backlog above `somaxconn`: `listen(2)` clamps it without an error.
pub(super) fn over_somaxconn(machine: &Machine) -> Vec<Finding> {
    let exceeds = |one: &Granted<'_>| {
        // A default that is clamped harms nobody until the queue fills.
        let matters = one.chosen || one.peak * 2 > one.limit;
        one.asked.value > one.somaxconn && one.limit < one.asked.value && matters
    };
    by_setting(granted(machine).into_iter().filter(exceeds), |first, on| {
        let Granted { server, asked, limit, somaxconn, .. } = first;
        let text = format!(
            "{} asks for a backlog of {}; somaxconn {} clamps it to {}",
            server.program.name(),
            number::count(asked.value),
            number::count(*somaxconn),
            number::count(*limit)
        );
        let fix = Remedy::named(BACKLOG_OVER_SOMAXCONN, "raise")
            .with("BACKLOG", asked.value)
            .with("FORMER", somaxconn)
            .with("RESTART", restart(server));
        diagnosis(BACKLOG_OVER_SOMAXCONN, text, first, on, fix)
    })
}

/// A backlog that `somaxconn` allows and the socket does not have: the server called `listen(2)` before
/// one of the two was changed.
pub(super) fn not_in_effect(machine: &Machine) -> Vec<Finding> {
    let lacks = |one: &Granted<'_>| {
        one.chosen && one.asked.value <= one.somaxconn && one.limit < one.asked.value
    };
    by_setting(granted(machine).into_iter().filter(lacks), |first, on| {
        let Granted { server, asked, limit, .. } = first;
        let program = server.program.name();
        let text = format!(
            "{program} has a backlog of {} configured; its socket still has {}",
            number::count(asked.value),
            number::count(*limit)
        );
        let fix = Remedy::named(BACKLOG_NOT_IN_EFFECT, "restart")
            .with("FORMER", limit)
            .with("RESTART", restart(server));
        diagnosis(BACKLOG_NOT_IN_EFFECT, text, first, on, fix)
    })
}

/// One diagnosis for each line of a configuration: it may be about several addresses.
fn by_setting<'m>(
    all: impl Iterator<Item = Granted<'m>>,
    say: impl Fn(&Granted<'m>, &[String]) -> Finding,
) -> Vec<Finding> {
    let mut groups: BTreeMap<(String, u32), Vec<Granted<'m>>> = BTreeMap::new();
    for one in all {
        groups.entry((at_text(one.asked), one.server.pid)).or_default().push(one);
    }
    let said = |mut group: Vec<Granted<'m>>| {
        group.sort_by(|a, b| (a.limit, &a.on).cmp(&(b.limit, &b.on)));
        let on: Vec<String> = group.iter().take(16).map(|one| one.on.clone()).collect();
        group.first().map(|first| say(first, &on))
    };
    groups.into_values().filter_map(said).collect()
}

fn diagnosis(id: &str, text: String, granted: &Granted<'_>, on: &[String], fix: Remedy) -> Finding {
    let evidence = evidence([
        ("backlog", Some(granted.asked.value.into())),
        ("configured_at", Some(at_text(granted.asked).into())),
        ("accept_queue_limit", Some(granted.limit.into())),
        ("accept_queue_peak", Some(granted.peak.into())),
        ("somaxconn", Some(granted.somaxconn.into())),
        ("listeners", Some(Value::from(on.to_vec()))),
        ("program", Some(granted.server.program.name().into())),
        ("pid", Some(granted.server.pid.into())),
    ]);
    // A default stands nowhere: then it is about the listener.
    let subject =
        if granted.asked.at.line.is_some() { at_text(granted.asked) } else { granted.on.clone() };
    Finding {
        id: id.into(),
        severity: Severity::Warning,
        subject,
        text,
        evidence,
        remedies: vec![fix],
    }
}

/// `setsockopt(2)` clamps `SO_RCVBUF` to `rmem_max` and `SO_SNDBUF` to `wmem_max` without an error. The
/// kernel then doubles the value, asked or clamped, for its own overhead (socket(7)).
pub(super) fn buffers_over_cap(machine: &Machine) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for server in known(machine) {
        let of_listens = server.listens.iter().filter_map(|one| one.buffers.as_ref());
        for buffers in of_listens.chain(server.buffers.as_ref()) {
            let Buffers { receive, send } = buffers;
            let options = [
                ("SO_RCVBUF", "net.core.rmem_max", receive),
                ("SO_SNDBUF", "net.core.wmem_max", send),
            ];
            for (option, cap, asked) in options {
                let (Some(asked), Some(most)) = (asked, machine.number(cap)) else { continue };
                if asked.value <= most || asked.at.is_default() {
                    continue;
                }
                let one = over(server, asked, (option, cap, most));
                // One line may be about several addresses.
                if !found.iter().any(|known| known.subject == one.subject) {
                    found.push(one);
                }
            }
        }
    }
    found
}

fn over(
    server: &ServerConfig,
    asked: &Sourced<u64>,
    (option, cap, most): (&str, &str, u64),
) -> Finding {
    let program = server.program.name();
    let text = format!(
        "{program} asks for {option} of {}; {cap} clamps it to {}",
        text_size(asked.value),
        text_size(most)
    );
    let evidence = evidence([
        ("asked", Some(asked.value.into())),
        ("configured_at", Some(at_text(asked).into())),
        (cap, Some(most.into())),
        ("effective", Some(most.saturating_mul(2).into())),
        ("effective_if_granted", Some(asked.value.saturating_mul(2).into())),
        ("program", Some(program.into())),
        ("pid", Some(server.pid.into())),
    ]);
    let fix = Remedy::named(BUFFERS_OVER_CAP, "raise")
        .with("CAP", cap)
        .with("ASKED", asked.value)
        .with("FORMER", most)
        .with("RESTART", restart(server));
    Finding {
        id: BUFFERS_OVER_CAP.into(),
        severity: Severity::Warning,
        subject: format!("{} {option}", at_text(asked)),
        text,
        evidence,
        remedies: vec![fix],
    }
}
