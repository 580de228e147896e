use super::super::Machine;
use crate::diagnosis::Diagnosis;

pub(super) fn close_race(_machine: &Machine) -> Vec<Diagnosis> {
    Vec::new()
}

pub(super) fn not_reused(_machine: &Machine) -> Vec<Diagnosis> {
    Vec::new()
}
