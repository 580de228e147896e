use super::super::Machine;
use crate::diagnosis::Diagnosis;

pub(super) fn range_too_small(_machine: &Machine) -> Vec<Diagnosis> {
    Vec::new()
}

pub(super) fn reuse_on_loopback_only(_machine: &Machine) -> Vec<Diagnosis> {
    Vec::new()
}
