//! What `tcptoll doctor` looks at on a live machine. It only reads.

mod examination;
mod peers;
pub mod servers;

pub use examination::{Progress, examine};
