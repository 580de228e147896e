//! One trial, wherever its two ends stand: the procedure of all, the place, its hosts, what is noted,
//! and the settings that experiments share. Read `procedure` first.

pub(crate) mod conclusion;
pub(crate) mod hosts;
pub(crate) mod notes;
pub(crate) mod opening;
pub(crate) mod path;
pub mod plan;
pub(crate) mod port_causes;
pub(crate) mod procedure;
pub(crate) mod queue_causes;
pub(crate) mod settings;
pub(crate) mod target;
