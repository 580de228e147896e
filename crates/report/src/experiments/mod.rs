//! What does an experiment show of its own? A table of those that have anything; the others are shown
//! by the tables of their description alone.

mod connect;
mod http;
mod keepalive;
mod messages;
mod page;
mod queues;
mod stream;
mod throughput;
mod time_wait;
mod visitors;
mod worker_pool;

use tcptoll_model::record::Summary;

use crate::own::{NONE, Own};

/// Experiments with parts of their own, by name.
const ALL: &[(&str, &Own)] = &[
    ("accept-queue", &queues::OWN),
    ("connect", &connect::OWN),
    ("http", &http::OWN),
    ("keepalive", &keepalive::OWN),
    ("messages", &messages::OWN),
    ("page", &page::OWN),
    ("stream", &stream::OWN),
    ("syn-queue", &queues::OWN),
    ("time-wait", &time_wait::OWN),
    ("visitors", &visitors::OWN),
    ("worker-pool", &worker_pool::OWN),
];

/// What the experiment of a run shows of its own.
pub(crate) fn own(summary: &Summary) -> &'static Own {
    let found = ALL.iter().find(|(name, _)| *name == summary.experiment);
    found.map_or(&NONE, |(_, own)| own)
}
