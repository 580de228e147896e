//! What follows from the arms of `visitors`: the answer, causes, what to run next.

use tcptoll_core::experiment::spec::{CauseSpec, MetricSpec};
use tcptoll_core::finding::Finding;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Summary};
use tcptoll_core::verdict::names::Names;

use super::{PAGE_MEAN, PAGE_P95, WORKERS_BUSY, WORKERS_BUSY_PEAK, WORKERS_KEPT};
use crate::kit::compared::headline;
use crate::kit::conclusion;
use crate::kit::conclusion::{answer_of, explain, explanations, in_arm, step, value};
use crate::kit::queue_causes::ACCEPT_QUEUE_FULL;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, ALL, |_, _| None);
    summary.answer = answer(summary);
    summary.next = explanations(summary);
    summary.next.push(step(
        "tcptoll page --keepalive on --next-page-after 1s,6s --keepalive-timeout 5s",
        "the time that an open connection saves a single visitor",
    ));
}

/// How long pages take, and what connections hold.
fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> =
        summary.arms.iter().filter(|arm| value(arm, PAGE_MEAN.name).is_some()).collect();
    if measured.is_empty() {
        return "No page load completed.".to_owned();
    }
    let mut sentences: Vec<String> = failed(&measured).into_iter().collect();
    let compared = headline(summary, &super::SPEC);
    let is_compared = !compared.is_empty();
    sentences.extend(compared);
    if is_compared {
        sentences.extend(workers(&measured));
    } else {
        sentences.extend(slow(&measured));
        sentences.extend(workers(&measured));
    }
    answer_of(summary, sentences)
}

/// The arms with the least and the most of a metric, with their values; of one arm it alone.
fn ends<'a>(arms: &[&'a Arm], metric: &MetricSpec) -> Vec<(&'a Arm, f64)> {
    let mut all: Vec<(&Arm, f64)> =
        arms.iter().filter_map(|arm| Some((*arm, value(arm, metric.name)?))).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    if all.len() > 2 {
        all.drain(1..all.len() - 1);
    }
    all
}

/// How many workers connections hold. Those of a server that is not ours are not known.
fn workers(arms: &[&Arm]) -> Option<String> {
    let workers_held = |arm: &Arm, held: f64| {
        let visits = arm.own.site_visits.as_deref()?;
        Some(format!("{held:.0} of {}", number::count(visits.workers)))
    };
    let names = Names::new(arms.iter().copied());
    Some(match ends(arms, &WORKERS_BUSY)[..] {
        [] => return None,
        [(arm, held)] => {
            format!("Connections hold {} workers on average.", workers_held(arm, held)?)
        }
        [(least, low), .., (most, high)] => {
            let [fewest, most_held] = [workers_held(least, low)?, workers_held(most, high)?];
            if fewest == most_held {
                return Some(format!("In each arm, connections hold {fewest} workers on average."));
            }
            format!(
                "Connections hold {fewest} ({}) to {most_held} workers ({}) on average.",
                names.arm(least),
                names.arm(most)
            )
        }
    })
}

/// How many pages failed, in the arm with the most failures.
fn failed(arms: &[&Arm]) -> Option<String> {
    let arm = arms.iter().copied().max_by_key(|arm| conclusion::failed(arm))?;
    let failed = conclusion::failed(arm);
    (failed > 0).then(|| {
        format!(
            "{}{} of {} pages failed.",
            in_arm(arms, arm),
            number::count(failed),
            number::count(arm.attempts)
        )
    })
}

/// The time that 95 % of the pages do not exceed.
fn slow(arms: &[&Arm]) -> Option<String> {
    let names = Names::new(arms.iter().copied());
    Some(match ends(arms, &PAGE_P95)[..] {
        [] => return None,
        [(_, us)] => format!("95 % of the pages took at most {}.", number::time(us)),
        [(least, low), .., (most, high)] => format!(
            "95 % of the pages took at most {} ({}) to {} ({}).",
            number::time(low),
            names.arm(least),
            number::time(high),
            names.arm(most)
        ),
    })
}

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[&MEMORY_ENDS_WORKERS, &IDLE_HOLDS_WORKERS, &QUEUE_FULL];

/// Together the processes needed more memory than they have.
const MEMORY_ENDS_WORKERS: CauseSpec = CauseSpec::new("memory-limit-kills-workers", memory_ends);

/// All workers are taken, and most of them by connections that wait for another request.
const IDLE_HOLDS_WORKERS: CauseSpec = CauseSpec::new("idle-connections-hold-workers", idle_holds);

/// Nobody accepts while workers are killed, or all of them wait.
const QUEUE_FULL: CauseSpec =
    ACCEPT_QUEUE_FULL.following(&[MEMORY_ENDS_WORKERS.id, IDLE_HOLDS_WORKERS.id]);

/// Idle connections are named where they hold this share of the workers.
const SHARE: f64 = 0.5;

fn idle_holds(arm: &Arm) -> Option<Finding> {
    let visits = arm.own.site_visits.as_deref()?;
    // A connection of nginx or of Apache's `event` holds no worker while it waits.
    if visits.worker == "connection" || visits.idle_is_free {
        return None;
    }
    let peak = value(arm, WORKERS_BUSY_PEAK.name).filter(|peak| *peak >= visits.workers as f64)?;
    let busy = value(arm, WORKERS_BUSY.name).filter(|busy| *busy > 0.0)?;
    let kept = value(arm, WORKERS_KEPT.name).filter(|kept| *kept >= SHARE * busy)?;
    let text = format!(
        "All {} workers were occupied at times. On average {busy:.0} were occupied, {kept:.0} of them \
         by idle connections.",
        visits.workers
    );
    let evidence = [
        (WORKERS_BUSY.name, busy),
        (WORKERS_BUSY_PEAK.name, peak),
        (WORKERS_KEPT.name, kept),
        ("workers", visits.workers as f64),
    ];
    Some(Finding::new(text, evidence))
}

fn memory_ends(arm: &Arm) -> Option<Finding> {
    let limit = arm.own.site_visits.as_deref()?.memory_limit.as_ref()?;
    if limit.kills == 0 {
        return None;
    }
    let memory = number::bytes(limit.bytes as f64);
    let who = if limit.by == "kernel" { "The kernel" } else { "tcptoll's memory watch" };
    let processes = if limit.kills == 1 { "process" } else { "processes" };
    let text = format!(
        "{who} killed {} {processes} of the server, because all its processes together needed more \
         than {memory}.",
        limit.kills
    );
    let peak = arm.server.as_ref().and_then(|server| server.memory_bytes);
    let evidence = [
        ("memory_kills", Some(limit.kills)),
        ("memory_limit_bytes", Some(limit.bytes)),
        ("memory_peak_bytes", peak),
    ];
    let known = evidence.into_iter().filter_map(|(name, value)| Some((name, value?)));
    Some(Finding::new(text, known))
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::{MemoryLimit, Metric, SiteVisits};

    use super::*;

    fn arm(kept: f64, peak: f64, idle_is_free: bool) -> Arm {
        let visits = SiteVisits {
            workers: 20,
            worker: "process".to_owned(),
            idle_is_free,
            ..SiteVisits::default()
        };
        let metric = |value| Metric { value, ..Metric::default() };
        let metrics =
            [(WORKERS_BUSY.name, 18.0), (WORKERS_BUSY_PEAK.name, peak), (WORKERS_KEPT.name, kept)];
        Arm {
            metrics: metrics.map(|(name, value)| (name.to_owned(), metric(value))).into(),
            own: Box::new(visits).into(),
            ..Arm::default()
        }
    }

    #[test]
    fn idle_connections_are_named_where_they_take_the_last_worker_and_hold_most() {
        assert!(idle_holds(&arm(15.0, 20.0, false)).is_some());
        assert_eq!(idle_holds(&arm(2.0, 20.0, false)), None);
        assert_eq!(idle_holds(&arm(15.0, 19.0, false)), None);
        assert_eq!(idle_holds(&arm(15.0, 20.0, true)), None);
    }

    #[test]
    fn processes_that_were_killed_for_their_memory_are_named_with_the_limit() {
        let with = |kills| {
            let limit = MemoryLimit { bytes: 1 << 29, by: "kernel".to_owned(), why: None, kills };
            let visits = SiteVisits { memory_limit: Some(limit), ..SiteVisits::default() };
            Arm { own: Box::new(visits).into(), ..Arm::default() }
        };
        assert_eq!(memory_ends(&with(0)), None);
        assert_eq!(memory_ends(&Arm::default()), None);
        let found = memory_ends(&with(3)).unwrap();
        assert_eq!(found.evidence["memory_kills"], 3);
        assert!(found.text.starts_with("The kernel killed 3 processes"), "{}", found.text);
    }
}
