//! What does `stream` show of its own? Goodput over buffer and message size beside what limits it, the
//! round trip that the load causes, and how both went over time.

use tcptoll_model::experiments::stream::LOADED_RTT;

use crate::own::{NONE, Own};

use super::throughput;

/// Its parts.
pub(super) const OWN: Own = Own {
    picture: throughput::picture,
    leads: throughput::leads,
    sections: |summary| throughput::sections(summary, Some(LOADED_RTT.name)),
    details: throughput::details,
    ..NONE
};
