//! What does `stream` show of its own? Goodput over buffer and message size beside what limits it, the
//! round trip that the load causes, and how both went over time.

use crate::own::{NONE, Own};

use super::throughput;

/// Its parts.
pub(super) const OWN: Own = Own {
    picture: throughput::picture,
    leads: throughput::leads,
    sections: throughput::sections,
    details: throughput::details,
    ..NONE
};
