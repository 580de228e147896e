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

use tcptoll_model::experiments::SPECS;

use crate::Reports;

/// Reports of the experiments of this build.
pub const REPORTS: Reports = Reports {
    specs: SPECS,
    own: &[
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
    ],
};
