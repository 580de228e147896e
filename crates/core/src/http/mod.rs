//! HTTP/1 as far as a client that measures needs it: what a response is and when it ends, how a
//! connection is used again, which requests there are, and when each is due.
//!
//! Everything is sans-IO: bytes and instants come in as arguments.

pub mod access_log;
pub mod response;
pub mod reuse;
pub mod server;
pub mod status;
pub mod stuck;
pub mod url;
