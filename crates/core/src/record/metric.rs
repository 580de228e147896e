//! A single figure of an arm or of a comparison.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A single figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The figure; of several rounds their mean.
    pub value: f64,
    /// Its unit: `us`, `1/s`, `bytes/s`.
    pub unit: String,
    /// 95 % interval over rounds; absent with too few rounds to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Median over rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// Observations behind the value: operations of one round, or else rounds.
    pub n: u64,
}
