//! What does `messages` show of its own? Goodput and latency over the size of a message, and which way
//! of sending is the fastest at each size.

use tcptoll_show::run::{NONE, Own};

use crate::carry::pictures as throughput;

/// Its parts.
pub(crate) const OWN: Own = Own {
    picture: throughput::picture,
    leads: throughput::leads,
    sections: |summary| throughput::sections(summary, None),
    details: throughput::details,
    ..NONE
};
