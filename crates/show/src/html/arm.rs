//! What an arm is called and which colour it has, wherever it stands on the page.

use serde::Serialize;
use tcptoll_core::record::Arm;

use crate::run::Run;
use crate::svg::arm_class;

/// A name with its colour.
#[derive(Clone, Serialize)]
pub(super) struct ArmName {
    class: String,
    name: String,
}

impl ArmName {
    /// The name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Class of its colour.
    pub(super) fn class(&self) -> &str {
        &self.class
    }
}

/// The name of the arm at this place.
pub(super) fn name(at: usize, arm: &Arm) -> ArmName {
    ArmName { class: arm_class(at), name: arm.name.clone() }
}

/// What `make` gives for each arm with its place.
pub(super) fn each_arm<T>(summary: &Run, make: impl Fn(usize, &Arm) -> Option<T>) -> Vec<T> {
    summary.arms.iter().enumerate().filter_map(|(at, arm)| make(at, arm)).collect()
}
