//! What do pictures of a listener's queues show? The queues over time against their limits, when each
//! connection was served on the steps of the retry ladders, and what clients were told.
//!
//! Experiments that record [`Queues`] share this: one fills the accept queue, another the SYN queue.

mod ladder;
mod outcomes;
mod over_time;
mod text;

use tcptoll_core::record::{Arm, Queues};

use tcptoll_show::own::{Failed, Item, Picture, Section};
use tcptoll_show::run::{NONE, Own, Run};
use tcptoll_show::{figures, number};

/// The parts of an experiment about queues.
pub(crate) const OWN: Own = Own {
    failed: Some(failed),
    answer_has_failures: Some("failed"),
    text_after: text::blocks,
    picture,
    sections,
    details: over_time::sections,
    ..NONE
};

fn failed(Failed { failed, tried }: Failed) -> String {
    let [bad, all] = [failed, tried].map(number::count);
    format!("{bad} of {all} connections failed. Latencies cover only the others.")
}

/// Arms that recorded their queues, with their places.
fn recorded(summary: &Run) -> Vec<(usize, &Arm, &Queues)> {
    let arms = summary.arms.iter().enumerate();
    arms.filter_map(|(at, arm)| Some((at, arm, arm.own.queues.as_deref()?))).collect()
}

fn picture(summary: &Run) -> Option<Picture> {
    ladder::picture(summary)
}

fn sections(summary: &Run) -> Vec<Section> {
    let mut waited = vec![Item::Lead];
    waited.extend(ladder::table(summary));
    let told: Vec<Item> = outcomes::picture(summary).map(Item::Picture).into_iter().collect();
    vec![
        Section { title: "Connections that waited for a retransmission", items: waited },
        Section { title: "Outcomes for clients, by time", items: told },
    ]
}

/// What a client was told, in words.
fn told(outcome: &str) -> &str {
    match outcome {
        "ok" => "served",
        "reset" => "reset",
        "connect-refused" => "refused",
        "connect-timeout" => "timed out while connecting",
        "timeout" => "timed out before the first byte",
        other => other,
    }
}

/// The same in few letters.
fn told_shortly(outcome: &str) -> &str {
    match outcome {
        "connect-timeout" => "no connection",
        "timeout" => "no first byte",
        other => told(other),
    }
}

/// `backlog 16: ` where there are several arms.
fn before(summary: &Run, arm: &Arm) -> String {
    if summary.arms.len() > 1 { format!("{}: ", arm.name) } else { String::new() }
}

/// `1 connection`, `12 connections`.
fn connections(count: u64) -> String {
    figures::plural(count, "connection")
}

#[cfg(test)]
mod tests;
