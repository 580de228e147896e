//! The settings of `messages`: from what was typed to what it means, without doing anything.

use tcptoll_model::experiments::messages::SPEC;
use tcptoll_model::study::Settings;

use crate::experiments::TrialError;
use crate::experiments::bench::settings::{LabSpec, Reader};

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub struct MessagesSettings {
    /// The lab.
    pub lab: LabSpec,
}

impl MessagesSettings {
    /// Checks the settings of one arm.
    pub fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = Reader::new(&SPEC, settings)?;
        Ok(Self { lab: LabSpec::from(&reader)? })
    }
}
