//! What does `connect` show of its own? Where the time of a handshake went, and what arithmetic
//! expects of it.

mod expected;
mod steps;
mod timeline;

use tcptoll_core::experiment::figures::CONNECT_OF_FAILED;
use tcptoll_core::record::Arm;

use tcptoll_show::own::Failed;
use tcptoll_show::run::{NONE, Own};
use tcptoll_show::{figures, number};

/// Its parts.
pub(crate) const OWN: Own = Own {
    failed: Some(failed),
    answer_has_failures: Some("None of "),
    trouble: handshakes_of_failed,
    lists_metrics: false,
    text_after: steps::blocks,
    details: timeline::sections,
    ..NONE
};

fn failed(Failed { failed, tried }: Failed) -> String {
    let [bad, all, good] = [failed, tried, tried - failed].map(number::count);
    format!("{bad} of {all} attempts failed. The latencies cover only the {good} that succeeded.")
}

/// How long the handshakes took of connections that failed later: no latency above has them.
fn handshakes_of_failed(arm: &Arm) -> Option<String> {
    let failed = arm.histograms.get(CONNECT_OF_FAILED.name).filter(|h| h.count > 0)?;
    let [middle, max] = [figures::middle(failed)?, failed.max?].map(number::time);
    let word = if failed.p50.is_some() { "median" } else { "mean" };
    let which = figures::plural(failed.count, "connection");
    Some(format!("client: handshakes of {which} that failed later: {word} {middle}, max {max}"))
}
