use super::super::Machine;
use crate::diagnosis::Diagnosis;

pub(super) fn beyond_nat(_machine: &Machine) -> Vec<Diagnosis> {
    Vec::new()
}
