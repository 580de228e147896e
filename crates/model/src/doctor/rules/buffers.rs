use super::super::Machine;
use crate::diagnosis::Diagnosis;

pub(super) fn over_cap(_machine: &Machine) -> Vec<Diagnosis> {
    Vec::new()
}
