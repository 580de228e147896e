//! What does an experiment show of its own? A table of those that have anything; the others are shown
//! by the tables of their description alone.

use crate::specs::SPECS;

use tcptoll_show::run::Reports;

/// Reports of the experiments of this build.
pub const REPORTS: Reports = Reports {
    specs: SPECS,
    own: &[
        ("accept-queue", &crate::open::pictures::OWN),
        ("connect", &crate::open::connect::pictures::OWN),
        ("http", &crate::requests::http::pictures::OWN),
        ("keepalive", &crate::idle::keepalive::pictures::OWN),
        ("messages", &crate::carry::messages::sheet::OWN),
        ("page", &crate::pages::page::pictures::OWN),
        ("stream", &crate::carry::stream::sheet::OWN),
        ("syn-queue", &crate::open::pictures::OWN),
        ("time-wait", &crate::open::time_wait::pictures::OWN),
        ("visitors", &crate::pages::visitors::pictures::OWN),
        ("worker-pool", &crate::requests::worker_pool::pictures::OWN),
    ],
};
