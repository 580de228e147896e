use super::super::Machine;
use crate::diagnosis::Diagnosis;

pub(super) fn workers_too_few(_machine: &Machine) -> Vec<Diagnosis> {
    Vec::new()
}

pub(super) fn name_the_setting(_machine: &Machine, _of: &mut Diagnosis) {}
