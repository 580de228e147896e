//! What does `messages` show of its own? Goodput and latency over the size of a message, and which way
//! of sending is the fastest at each size.

use crate::own::{NONE, Own};

use super::throughput;

/// Its parts.
pub(super) const OWN: Own = Own {
    picture: throughput::picture,
    leads: throughput::leads,
    sections: |summary| throughput::sections(summary, None),
    details: throughput::details,
    ..NONE
};
