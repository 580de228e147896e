//! What does it cost to open connections, and where do they queue?

pub(crate) mod accept_queue;
pub(crate) mod connect;
mod outcomes;
pub(crate) mod pictures;
mod queues;
pub(crate) mod syn_queue;
pub(crate) mod time_wait;
