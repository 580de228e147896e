//! A run as reports see it: its cleaned summary, and what is known of its experiment.

use std::ops::Deref;

use tcptoll_core::experiment::spec::{Spec, Specs};
use tcptoll_core::record::Summary;

use crate::clean;
use crate::own::{NONE, Own};

/// What there is to show of which experiment; common code names none, so it is handed this.
#[derive(Clone, Copy)]
pub struct Reports {
    /// Their descriptions.
    pub specs: Specs,
    /// Experiments with parts of their own, by name.
    pub own: &'static [(&'static str, &'static Own)],
}

/// A run. What its summary has can be read from it.
#[derive(Clone)]
pub struct Run {
    pub summary: Summary,
    /// Of all experiments: two runs may be of different ones.
    pub specs: Specs,
    /// What its experiment shows of its own.
    pub own: &'static Own,
}

impl Reports {
    /// Errors: a figure that is not a number cannot be represented, so there is nothing to show.
    pub fn run(&self, summary: &Summary) -> Result<Run, serde_json::Error> {
        Ok(self.cleaned(clean::summary(summary)?))
    }

    /// The run of a summary that is clean.
    pub fn cleaned(&self, summary: Summary) -> Run {
        let own = self.own.iter().find(|(name, _)| *name == summary.experiment);
        Run { specs: self.specs, own: own.map_or(&NONE, |(_, own)| own), summary }
    }
}

impl Run {
    /// None: this build does not know its experiment.
    pub fn spec(&self) -> Option<&'static Spec> {
        self.specs.find(&self.experiment)
    }
}

impl Deref for Run {
    type Target = Summary;

    fn deref(&self) -> &Summary {
        &self.summary
    }
}

#[cfg(test)]
impl From<Summary> for Run {
    /// Of an experiment that nobody described.
    fn from(summary: Summary) -> Self {
        Reports { specs: Specs(&[]), own: &[] }.cleaned(summary)
    }
}
