//! What is wrong with a machine, from what was read of it and nothing else.

use super::Machine;
use crate::diagnosis::Diagnosis;

/// What is wrong with a machine, problems first: what its state shows now, and what its configuration
/// will cause.
pub fn diagnose(machine: &Machine) -> Vec<Diagnosis> {
    machine.state.diagnoses.clone()
}
