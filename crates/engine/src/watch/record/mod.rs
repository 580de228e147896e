//! A watch's record as a file: written within a limit, read line by line.

mod join;
mod read;
mod write;

pub(crate) use read::is_watch;
pub use read::{WatchReadError, WatchRecord};
pub use write::{LIMIT_MIN, WatchRecorder};

/// How a watch begins every record.
const HEADER: &[u8] = b"{\"line\":\"watch-header\"";
/// `line` of the first line.
const KIND: &str = "watch-header";
/// The longest line that is read: 1,024 listeners and 256 diagnoses take less than 0.3 MB.
const LINE_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests;
