//! Workers that idle connections hold.

use tcptoll_core::number;

use super::IDLE_HOLD_WORKERS;
use super::queues::{LOOKS_MIN, SHORTEST_MIN};
use super::servers::{at, at_text, reload, seconds};
use crate::doctor::{Machine, StandingQueue};
use crate::watch::diagnoses::evidence;
use tcptoll_core::finding::{Finding, Remedy, Severity};

/// The keep-alive time that is proposed, s: long enough for what follows a page at once.
const PROPOSED_S: f64 = 2.0;

/// A queue that is never empty, in front of workers half of which, or more, wait for another request.
pub(super) fn idle_hold(machine: &Machine) -> Vec<Finding> {
    machine.standing.iter().filter_map(|queue| held(machine, queue)).collect()
}

fn held(machine: &Machine, queue: &StandingQueue) -> Option<Finding> {
    if queue.looks < LOOKS_MIN || queue.shortest < SHORTEST_MIN {
        return None;
    }
    let (server, listen) = at(machine, &queue.on)?;
    let workers = server.workers.as_ref().filter(|_| server.idle_holds_worker)?;
    let keeps = listen.keepalive_timeout_s.as_ref().or(server.keepalive_timeout_s.as_ref())?;
    let port = listen.port();
    let clients = machine.neighbours.iter().filter(|one| port.is_some() && one.local_port == port);
    let waiting = clients.map(|one| one.waiting).fold(0_u64, u64::saturating_add);
    if waiting == 0 || waiting < workers.value.div_ceil(2) || keeps.value <= PROPOSED_S {
        return None;
    }
    let program = server.program.name();
    let text = format!(
        "{} idle connections hold workers of {program} ({} in all) for {} s each; {} or more clients wait",
        number::count(waiting),
        number::count(workers.value),
        seconds(keeps.value),
        number::count(queue.shortest)
    );
    let evidence = evidence([
        ("idle_connections", Some(waiting.into())),
        ("workers", Some(workers.value.into())),
        ("workers_at", Some(at_text(workers).into())),
        ("keepalive_timeout_s", Some(keeps.value.into())),
        ("configured_at", Some(at_text(keeps).into())),
        ("accept_queue_shortest", Some(queue.shortest.into())),
        ("accept_queue_longest", Some(queue.longest.into())),
        ("looks", Some(queue.looks.into())),
        ("pid", Some(server.pid.into())),
    ]);
    let mut shorter =
        Remedy::named(IDLE_HOLD_WORKERS, "shorter").with("SECONDS", seconds(PROPOSED_S));
    shorter.commands.push(reload(server));
    Some(Finding {
        id: IDLE_HOLD_WORKERS.into(),
        severity: Severity::Problem,
        subject: queue.on.clone(),
        text,
        evidence,
        remedies: vec![shorter, Remedy::named(IDLE_HOLD_WORKERS, "event")],
    })
}
