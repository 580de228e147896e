//! The description of a cause, as data: its name, how it is found, what to change.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::record::{Advice, Arm, Cause, Summary};

/// A cause that may explain what an arm showed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CauseSpec {
    /// Kebab case; the section of `docs/causes.md` that explains it.
    pub id: &'static str,
    /// What the arm's evidence says of it.
    ///
    /// None: it does not explain this arm.
    #[serde(skip)]
    pub test: fn(&Arm) -> Option<Finding>,
    /// What to change where it is found.
    pub remedy: Remedy,
}

/// What the evidence of an arm says of a cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// One sentence.
    pub text: String,
    /// Counter or measurement to value.
    pub evidence: BTreeMap<String, Value>,
}

/// What to change against a cause.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// The same in every run.
    Setting {
        /// What to change, one sentence.
        change: &'static str,
        /// What it costs.
        cost: &'static str,
        /// How to undo it.
        undo: &'static str,
    },
    /// Worked out of the run's arms and causes.
    Computed(#[serde(skip)] fn(&Summary) -> Vec<Advice>),
}

impl CauseSpec {
    /// The cause with its evidence, where it explains the arm.
    pub fn explain(&self, arm: &Arm) -> Option<Cause> {
        let Finding { text, evidence } = (self.test)(arm)?;
        Some(Cause { id: self.id.to_owned(), arm: arm.name.clone(), text, evidence })
    }

    /// What to change. `proof` says what the same run measured with it changed.
    pub fn advice(&self, summary: &Summary, proof: Option<String>) -> Vec<Advice> {
        match self.remedy {
            Remedy::Setting { change, cost, undo } => vec![Advice {
                cause: self.id.to_owned(),
                change: change.to_owned(),
                cost: cost.to_owned(),
                undo: undo.to_owned(),
                proof,
            }],
            Remedy::Computed(compute) => compute(summary),
        }
    }
}
