//! What `tcptoll doctor` looks at on a live machine. It only reads.

pub mod servers;
