//! What follows from the arms of `visitors`: the answer, causes, what to run next.

use super::{PAGE_MEAN, PAGE_P95, WORKERS_BUSY, WORKERS_BUSY_PEAK, causes};
use crate::experiments::conclusion::{explain, explanations, step, value};
use crate::record::{Arm, Summary};
use crate::units::human_us;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, causes::ALL, |_, _| None);
    summary.answer = answer(summary);
    summary.next = explanations(summary);
    summary.next.push(step(
        "tcptoll page --next-page-after 1s,6s --keepalive-timeout 5s",
        "what an open connection is worth to a single visitor",
    ));
}

/// At most three sentences; the comparison is stated before, by the code that all share.
fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> =
        summary.arms.iter().filter(|arm| value(arm, PAGE_MEAN.name).is_some()).collect();
    if measured.is_empty() {
        return "No page came whole.".to_owned();
    }
    let sentences: Vec<String> = measured.iter().take(3).filter_map(|arm| held(arm)).collect();
    sentences.join(" ")
}

fn held(arm: &Arm) -> Option<String> {
    let visits = arm.own.site_visits.as_deref()?;
    let busy = value(arm, WORKERS_BUSY.name)?;
    let peak = value(arm, WORKERS_BUSY_PEAK.name).unwrap_or(busy);
    let noun = match visits.worker.as_str() {
        "connection" => "connections",
        "thread" => "threads",
        _ => "processes",
    };
    let p95 = value(arm, PAGE_P95.name)
        .map_or(String::new(), |us| format!("; 95 % of the pages took at most {}", human_us(us)));
    Some(format!(
        "{}: {busy:.0} of {} {noun} on average and {peak:.0} at the peak{p95}.",
        arm.name, visits.workers
    ))
}
