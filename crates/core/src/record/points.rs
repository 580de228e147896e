//! What several vantage points show together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Passport, Place};

/// The first line of a merged record. After it come, for each point, the header, trials and resumed lines of its
/// record, and at last a summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// Version of the record format.
    pub record_version: u32,
    /// Version of the program that merged.
    pub tcptoll_version: String,
    /// The exact command line, one element an argument.
    pub command: Vec<String>,
    /// When the records were merged, RFC 3339.
    pub merged_at: String,
    /// The records, in the order of the lines.
    pub points: Vec<Source>,
    /// Points that should have a record and have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// Files that were given and not merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_merged: Vec<NotMerged>,
    /// The smallest difference that matters, if it is not that of the study, relative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
    /// Within what the difference between the clocks is known by which the points of a split load began together, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_bound_s: Option<f64>,
}

/// Where a point's record was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// The vantage point.
    pub point: String,
    /// The file, as typed.
    pub record: String,
    /// Whether its run was stopped before its plan was complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// A vantage point without a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// Its name.
    pub point: String,
    /// Why, one clause.
    pub reason: String,
}

/// A file that was given and not merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotMerged {
    /// The file, as typed.
    pub record: String,
    /// Why, one clause.
    pub reason: String,
}

/// The vantage points of a merged record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Points {
    /// Those with a record, in the order given.
    pub points: Vec<Point>,
    /// Those that should have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// Files that were given and not merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_merged: Vec<NotMerged>,
    /// If the points shared one load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitLoad>,
}

/// One vantage point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Its name.
    pub name: String,
    /// The file of its record, as typed.
    pub record: String,
    /// When its run began, RFC 3339.
    pub started_at: String,
    /// Version of the program that measured.
    pub tcptoll_version: String,
    /// Seed of its run.
    pub seed: u64,
    /// Where its two ends stood.
    pub place: Place,
    /// The machine.
    pub passport: Passport,
    /// Rounds in which every arm was run.
    pub rounds: u32,
    /// Trials in all.
    pub trials: u32,
    /// Trials that were excluded.
    pub excluded: u32,
    /// Trials that failed.
    pub failed: u32,
    /// Whether its run was stopped before its plan was complete.
    pub partial: bool,
    /// Why none of its figures counts; absent: they count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Its arms.
    pub arms: Vec<PointArm>,
}

/// An arm at one vantage point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointArm {
    /// Name of the arm.
    pub name: String,
    /// Operations begun.
    pub attempts: u64,
    /// Operations that succeeded.
    pub ok: u64,
    /// Metric to its mean over the point's rounds.
    pub metrics: BTreeMap<String, f64>,
}

/// One load that several points shared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SplitLoad {
    /// Shares that the load was split into.
    pub shares: u32,
    /// Shares that have a record.
    pub present: u32,
    /// Largest difference between the clocks by which the points began together, s; absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_bound_s: Option<f64>,
    /// Largest difference between the first and the last beginning of a trial, by the points' clocks, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart_s: Option<f64>,
    /// Rounds that each point was to run.
    pub rounds: u32,
    /// Per arm, what was asked for and what was due, in the rounds with all shares.
    pub due: Vec<Due>,
}

/// What an arm of a split load was asked for, and what its points had due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Due {
    /// Name of the arm.
    pub arm: String,
    /// Rounds with all shares.
    pub rounds: u32,
    /// Requests of the whole schedule, over these rounds.
    pub asked: u64,
    /// Requests that were due at the points together.
    pub due: u64,
}
