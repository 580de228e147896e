//! One trial, wherever its two ends stand: the procedure of all, the place, its hosts, what is noted,
//! and the settings that experiments share. Read `procedure` first.

pub(super) mod content;
pub(super) mod hosts;
pub(super) mod no_answer;
pub(super) mod notes;
pub(super) mod opening;
pub(super) mod path;
pub mod plan;
pub(super) mod procedure;
pub(super) mod queue_load;
pub(super) mod queues;
pub(super) mod reuse_limits;
pub(super) mod roots;
pub(super) mod service;
pub(crate) mod settings;
pub mod target;
pub(super) mod transfer;
