//! What does it cost to open a TCP connection, and where does the time go?

pub mod conclusion;
pub mod expectation;
