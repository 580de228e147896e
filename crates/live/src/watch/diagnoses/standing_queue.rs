//! An accept queue that never empties: the server accepts more slowly than clients come.
//!
//! A queue in use at nearly every look is a lasting overload, and a longer queue is no fix for it: after
//! `listen(4096)` a server that accepts 5 connections/s held 12 of 4,096, and the median first byte took
//! 2.6 s. So the only fix named is to accept faster. The diagnosis has a name of its own
//! (`accept-queue-standing`), with the wait by Little's law as a lower bound. A simulated acceptor, 50 to
//! 90 % busy, was not named in six hours.

use std::collections::BTreeMap;

use serde_json::Value;

use super::queues::{
    FEW_LOOKS_MIN, FEW_OVER_MIN_S, Group, LOOKS_MIN, OVER_MIN_S, groups, lasted, of_listener,
};
use super::{evidence, place, rounded};
use crate::diagnosis::{Diagnosis, Fix, Severity};
use crate::watch::state::{ListenerState, Standing, State};
use tcptoll_core::units::human_count;

pub(crate) const ID: &str = "accept-queue-standing";

/// A queue of one is a connection that came just now.
const SHORTEST_MIN: u32 = 2;
/// Time that clients wait, at least, s. A server that is busy for 0.6 of the time with connections of 0.1 s each
/// makes them wait for 0.2 s at ten looks in a row every few minutes, and for 1 s never in hours.
const WAIT_S: f64 = 1.0;
/// A longer wait needs fewer looks.
const LONG_WAIT_S: f64 = 2.0;
/// A queue that empties within this time at its pace was filled by a burst, s.
const DRAINS_S: f64 = 30.0;
/// Looks in a row with ten connections or more that need no time: at an acceptor that is busy for 0.97 of
/// the time they have a probability of 0.97^(30 × 11) = 4e-5.
const LONG_LOOKS_MIN: u32 = 30;

/// What makes a queue a standing one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stands {
    /// Each client waits this long, at least, s.
    WaitS(f64),
    /// It is long at all of these looks; how long clients wait is not known.
    Looks(u32),
}

fn stands(one: &Standing) -> Option<Stands> {
    if one.shortest < SHORTEST_MIN || one.empties_within(DRAINS_S) {
        return None;
    }
    let enough = |looks, over_s| one.looks >= looks && one.over_s >= over_s;
    let wait_s = one.wait_at_least_s().filter(|wait_s| {
        *wait_s >= WAIT_S && enough(LOOKS_MIN, OVER_MIN_S)
            || *wait_s >= LONG_WAIT_S && enough(FEW_LOOKS_MIN, FEW_OVER_MIN_S)
    });
    let long = (one.long_looks >= LONG_LOOKS_MIN).then_some(Stands::Looks(one.long_looks));
    wait_s.map(Stands::WaitS).or(long)
}

/// Clients wait in the queue at every look, and it does not empty.
pub(super) fn standing(state: &State) -> Vec<Diagnosis> {
    groups(state).filter_map(|group| diagnose(state, &group)).collect()
}

fn diagnose(state: &State, group: &Group<'_>) -> Option<Diagnosis> {
    let all = group.iter().filter_map(|one| {
        let queue = one.stands.as_deref()?;
        Some((one, queue, stands(queue)?))
    });
    let (worst, queue, how) = all.max_by_key(|(_, queue, _)| queue.shortest)?;
    let subject = place(&worst.address, worst.port);
    let clients = human_count(queue.shortest.into());
    let (text, severity) = match how {
        Stands::WaitS(wait_s) => (
            format!(
                "{clients} clients wait at {subject} at each look ({} in {:.0} s): ≥ {} at this rate",
                queue.looks,
                queue.over_s,
                lasted(wait_s)
            ),
            Severity::Problem,
        ),
        Stands::Looks(looks) => (
            format!(
                "{clients} clients wait at {subject} at every look ({looks} looks): accept(2) is slow"
            ),
            Severity::Warning,
        ),
    };
    let mut evidence = of_listener(state, group, worst);
    evidence.extend(evidence_of(queue));
    Some(Diagnosis { id: ID.into(), severity, subject, text, evidence, fix: Some(faster(worst)) })
}

/// What the last looks say of a queue.
fn evidence_of(stands: &Standing) -> BTreeMap<String, Value> {
    evidence([
        ("looks", Some(stands.looks.into())),
        ("looks_over_s", Some(rounded(stands.over_s))),
        ("accept_queue_shortest", Some(stands.shortest.into())),
        ("accept_queue_longest", Some(stands.longest.into())),
        ("accepted_at_most", stands.accepted_at_most.map(Into::into)),
        ("wait_at_least_s", stands.wait_at_least_s().map(rounded)),
    ])
}

/// A server that accepts faster: where the overload lasts, a longer queue is no remedy.
pub(super) fn faster(listener: &ListenerState) -> Fix {
    let process = listener.process.as_ref();
    let name = process.map_or("", |process| process.name.as_str());
    let how = match name {
        "nginx" => "raise worker_processes, or find what blocks its workers",
        "apache2" | "httpd" => "raise MaxRequestWorkers, or find what its workers wait for",
        "haproxy" => "raise nbthread",
        _ if name.starts_with("php-fpm") => {
            "raise pm.max_children, or find what its workers wait for"
        }
        _ => "more workers, or an event loop that accepts while requests are served",
    };
    Fix {
        change: format!(
            "Accept faster: {how}. The overload lasts: with a longer queue clients only wait longer. Raise the \
             limit for bursts only."
        ),
        // Whether it is short of CPU, or waits.
        commands: vec![match process {
            Some(process) => format!("top -H -p {}", process.pid),
            None => format!("ss -ltnp 'sport = :{}'", listener.port),
        }],
        effect: "The queue empties, and no client waits for accept(2).".to_owned(),
        risk: "Each worker takes memory, and a slow backend gets more concurrent calls.".to_owned(),
        undo: "Set the former number of workers, and restart the application.".to_owned(),
    }
}
