//! One trial, wherever its two ends stand: the procedure of all, the place, its hosts, what is noted,
//! and the settings that experiments share. Read `procedure` first.

pub(crate) mod causes;
pub(crate) mod conclusion;
pub(crate) mod hosts;
pub(crate) mod no_answer;
pub(crate) mod notes;
pub(crate) mod opening;
pub(crate) mod path;
pub mod plan;
pub(crate) mod procedure;
pub(crate) mod reuse_limits;
pub(crate) mod roots;
pub(crate) mod settings;
pub(crate) mod target;
