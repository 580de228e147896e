//! What does it cost to send requests over connections that are kept, closed or pooled?

pub(crate) mod http;
pub(crate) mod worker_pool;
