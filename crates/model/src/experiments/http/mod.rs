//! What does it cost to reuse a connection, or not, and who pays?

pub mod conclusion;
