//! Quantities over time, for every experiment that records some.
//!
//! `bins` makes a series coarse enough to read, `stack` draws panels on one axis of time, `strips` draws
//! with letters.

pub mod bins;
pub mod stack;
pub mod strips;
