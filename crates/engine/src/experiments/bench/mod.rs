//! One trial, wherever its two ends stand: the place, its hosts, what is noted, and the settings
//! that experiments share.

pub(super) mod hosts;
pub(super) mod notes;
pub(super) mod settings;
pub mod target;
