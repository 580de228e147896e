//! What rounds allow one to say of two arms, and what several vantage points show together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Passport, Place};

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

/// How a run in rounds went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rounds {
    /// Rounds in which every arm was run.
    pub done: u32,
    /// Most rounds that were to be run.
    pub most: u32,
    /// The stop rule in words: `30 rounds`, `until every verdict is found`.
    pub rule: String,
    /// Why it ended, one clause: `every comparison has its verdict`.
    pub stopped: String,
    /// Time of the run so far, pauses between resumed parts left out, s.
    pub elapsed_s: f64,
    /// Trials that were excluded from verdicts.
    pub excluded: u32,
    /// Trials that failed.
    pub failed: u32,
}

/// One trial of an arm, as it counts in comparisons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Round, from 0.
    pub round: u32,
    /// When the trial began, seconds after the run did.
    pub began_s: f64,
    /// Why it is excluded or failed; absent: it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Metric to value.
    pub metrics: BTreeMap<String, f64>,
}

/// A comparison of two arms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Metric compared.
    pub metric: String,
    /// The arm of the numerator.
    pub a: String,
    /// The arm of the denominator.
    pub b: String,
    /// Factor levels that both arms share, where the study asks for a ratio per level.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per: BTreeMap<String, serde_json::Value>,
    /// a / b; absent if a value is not above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio, of all comparisons of the run together; absent with too few
    /// rounds to say, or where a round lacks the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// a − b.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Metric>,
    /// The smallest effect of interest, relative: 0.01 is 1 %.
    #[serde(default)]
    pub margin: f64,
    /// Rounds in which both arms count; in a merged record, vantage points.
    #[serde(default)]
    pub rounds: u32,
    /// Probability that this interval alone misses the truth; 0.05 divided among the comparisons.
    #[serde(default)]
    pub alpha: f64,
    /// What is said.
    pub verdict: Verdict,
    /// Each vantage point, in a merged record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<OverPoints>,
    /// p-value of the rank test (Mann and Whitney), where the arms are of two runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_test_p: Option<f64>,
}

/// What a comparison says.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Verdict {
    /// The interval lies above 1, and not within the margin.
    #[serde(rename = "higher")]
    Higher,
    /// The interval lies below 1, and not within the margin.
    #[serde(rename = "lower")]
    Lower,
    /// The interval lies within the margin, after 15 rounds at least: a difference that matters is
    /// ruled out.
    #[serde(rename = "no difference found")]
    NoDifference,
    /// The interval holds both no difference and one that matters.
    #[default]
    #[serde(rename = "not enough evidence")]
    NotEnough,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::NoDifference => "no difference found",
            Self::NotEnough => "not enough evidence",
        })
    }
}

/// What the vantage points say of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverPoints {
    /// Points from which on there is an interval and a verdict.
    pub least: u32,
    /// Standard deviation of the logarithms of the points' ratios, without the scatter of their rounds; 0: the
    /// rounds explain all of it. Absent: fewer than two points count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_log: Option<f64>,
    /// Points whose own ratio is on the other side of 1 than the ratio over all points.
    pub opposite: u32,
    /// Of these, points whose own verdict says so.
    pub opposite_verdicts: u32,
    /// Each point, in the order given. Their intervals hold together.
    pub each: Vec<PointRatio>,
}

/// A comparison at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointRatio {
    /// The point.
    pub point: String,
    /// a / b; absent if a value is not above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Interval of the ratio. The intervals of all points and comparisons hold together with 95 % confidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Rounds in which both arms count.
    pub rounds: u32,
    /// The verdict of this point.
    pub verdict: Verdict,
    /// Why the point is not among those that the ratio over points rests on; absent: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

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
