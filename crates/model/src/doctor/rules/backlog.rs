use super::super::Machine;
use crate::diagnosis::Diagnosis;

pub(super) fn over_somaxconn(_machine: &Machine) -> Vec<Diagnosis> {
    Vec::new()
}

pub(super) fn not_in_effect(_machine: &Machine) -> Vec<Diagnosis> {
    Vec::new()
}
