//! Accept queues, next to the configuration of the server behind them.

use super::super::{Machine, Program, StandingQueue};
use super::WORKERS_TOO_FEW;
use super::servers::{at, at_text, process_name, restart, short};
use crate::diagnosis::{Diagnosis, Fix, Severity};
use crate::units::human_count;
use crate::watch::diagnoses::accept_queue::{FULL, NEAR, backlog_setting, longer_than};
use crate::watch::diagnoses::evidence;

/// So few looks do not tell a queue that stands from one that was seen twice.
const LOOKS_MIN: u32 = 3;
/// A queue of one is a connection that came just now.
const SHORTEST_MIN: u32 = 2;

/// A queue that is never empty, in front of a server whose workers accept one connection each.
pub(super) fn workers_too_few(machine: &Machine) -> Vec<Diagnosis> {
    let of = |queue: &StandingQueue| {
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
        let of = listen.section.as_ref().map(|name| format!(" ({})", short(name)));
        let text = format!(
            "{} to {} clients always wait for one of {} workers of {program}{}",
            human_count(queue.shortest.into()),
            human_count(queue.longest.into()),
            human_count(workers.value),
            of.unwrap_or_default()
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
            change: "Find what the workers wait for, and limit that time; or allow more workers.".to_owned(),
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
    machine.standing.iter().filter_map(of).collect()
}

/// Where the listener's server is known, a full queue names its setting and the line that has it.
pub(super) fn name_the_setting(machine: &Machine, full: &mut Diagnosis) {
    if full.id != FULL && full.id != NEAR {
        return;
    }
    let limit = full.evidence.get("accept_queue_limit").and_then(serde_json::Value::as_u64);
    let limit = limit.and_then(|limit| u32::try_from(limit).ok());
    let (Some(limit), Some((server, listen))) = (limit, at(machine, &full.subject)) else { return };
    let Some(fix) = &mut full.fix else { return };
    let program = server.program.name();
    full.evidence.insert("program".into(), program.into());
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
            "Raise the backlog of {program} from {limit} ({}); somaxconn allows {somaxconn}.",
            at_text(backlog)
        );
    }
    if server.program == Program::Nginx {
        fix.risk.push_str(
            " Only one listen line of an address may set the backlog. With reuseport each worker has a queue of its own.",
        );
    }
}
