//! What does `stream` show of its own? Goodput over buffer and message size beside what limits it, the
//! round trip that the load causes, and how both went over time.

use crate::carry::stream::LOADED_RTT;

use tcptoll_show::run::{NONE, Own};

use crate::carry::pictures as throughput;

/// Its parts.
pub(crate) const OWN: Own = Own {
    picture: throughput::picture,
    leads: throughput::leads,
    sections: |summary| throughput::sections(summary, Some(LOADED_RTT.name)),
    details: throughput::details,
    ..NONE
};
