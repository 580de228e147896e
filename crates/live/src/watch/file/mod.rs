//! A watch's record as a file: written within a limit, read line by line.

mod join;
mod read;
mod write;

pub use read::{WatchReadError, WatchRecord};
pub use write::{LIMIT_MIN, WatchRecorder};

/// How a watch begins every record.
const HEADER: &[u8] = b"{\"line\":\"watch-header\"";

#[cfg(test)]
mod tests;
