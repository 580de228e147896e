//! What follows from the arms of `visitors`: the answer, causes, what to run next.

use super::{PAGE_MEAN, PAGE_P95, WORKERS_BUSY, causes};
use crate::experiments::conclusion::{explain, explanations, step, value};
use crate::record::{Arm, Summary};
use crate::units::{human_count, human_us};

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

/// Arms that the answer names; the tables have all.
const NAMED: usize = 4;

/// What each arm holds, a sentence each; the comparison is stated before, by the code that all share.
fn answer(summary: &Summary) -> String {
    let measured = summary.arms.iter().filter(|arm| value(arm, PAGE_MEAN.name).is_some());
    let held: Vec<String> = measured.take(NAMED).filter_map(held).collect();
    if held.is_empty() { "No page came whole.".to_owned() } else { held.join(" ") }
}

fn held(arm: &Arm) -> Option<String> {
    let visits = arm.own.site_visits.as_deref()?;
    let p95 = value(arm, PAGE_P95.name)
        .map(|us| format!("95 % of the pages took at most {}", human_us(us)));
    let failed = match arm.attempts - arm.ok {
        0 => String::new(),
        failed => format!("; {failed} of {} pages failed", human_count(arm.attempts)),
    };
    let all = human_count(visits.workers);
    // Workers of a server that is not ours are not known.
    let busy = value(arm, WORKERS_BUSY.name)
        .map(|busy| format!("connections hold {busy:.0} of {all} workers"));
    let clauses: Vec<String> = [busy, p95].into_iter().flatten().collect();
    Some(format!("{}: {}{failed}.", arm.name, clauses.join("; ")))
}
