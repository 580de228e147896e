//! What does it cost to keep connections that carry nothing?

pub(crate) mod keepalive;
