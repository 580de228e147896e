//! What the lab showed of a finding: the fault re-created, without and with its fix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A finding, re-created in the lab.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The finding's `id`.
    pub finding: String,
    /// The finding's `subject`.
    pub subject: String,
    /// What came of it.
    pub verdict: ProofVerdict,
    /// Fault and fix in a sentence, with their figures; or why there is no verdict.
    pub text: String,
    /// The command that repeats it, one element an argument; empty: the lab cannot hold it.
    pub command: Vec<String>,
    /// Where its record is; absent: it was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// Time it took, s.
    pub took_s: f64,
}

/// What came of a proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProofVerdict {
    /// The fault was there without the fix, and not with it.
    Shown,
    /// The lab ran, and did not show it.
    NotShown,
    /// The lab cannot hold this finding, or did not run.
    #[default]
    NotRun,
}
