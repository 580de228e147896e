//! What does it cost to know that idle connections are alive, and how soon is a death known?

pub mod conclusion;
