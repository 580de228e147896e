//! What each experiment is, without a machine: a folder each.

pub mod connect;
pub mod http;
pub mod keepalive;
