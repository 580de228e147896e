//! A study: one experiment, fixed settings, factors with levels or named arms, published figures.
//!
//! What the command line can do with lists (`--backlog 128,4096`) and what a study file can do are
//! one mechanism: both become a [`Study`], whose [`Study::arms`] are run one after the other.
//!
//! [`error`] says where a study is wrong, [`pairs`] what it compares, [`stop`] how long it runs, `file`
//! whether all of that fits together. The arms of a round run in an order that is shuffled anew each round,
//! and the same again for the same seed, so that a resumed run goes on as it would have
//! ([`order_of_round`]). The seed is drawn anew for each run, and recorded; `--seed` repeats a run. With one
//! fixed seed every study would run in the same order, and the bad luck of that order would be in all of
//! them.

pub mod error;
pub mod file;
pub mod pairs;
pub mod points;
pub mod stop;

pub use error::{ARMS_MAX, StudyError, did_you_mean, nearest, suggestion};

use std::collections::{BTreeMap, BTreeSet};

use rand_core::Rng as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::random::generator;
use crate::stats::FIGURES;
use crate::units::{echo, parse_share};

/// Option name (as on the command line, without dashes) to value.
pub type Settings = BTreeMap<String, Value>;

/// A study as written in TOML, or as made from a command line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Kebab case; empty for a command line.
    #[serde(default)]
    pub name: String,
    /// The question, ending in a question mark.
    pub question: String,
    /// The experiment's name.
    pub experiment: String,
    /// Where the idea or the published figures are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The sentence that answers the question. What was measured fills `{ARM: METRIC}` (a value),
    /// `{A / B}` (a ratio with its interval) and `{A ? B}` (a verdict).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What each trial does before it measures: a number of operations or a time; a setting of
    /// every arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Value>,
    /// The primary metric; without it, the experiment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// The smallest effect of interest, like `1%`; without it, the experiment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<String>,
    /// The share of operations that may fail, like `5%`, or `expected` for any; without it, 1 %. A
    /// run in which more fail is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<String>,
    /// How often, and when to stop.
    #[serde(default, skip_serializing_if = "RoundsAsked::is_default")]
    pub rounds: RoundsAsked,
    /// Which arms to compare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compare: Vec<Compare>,
    /// Settings of every arm.
    #[serde(default)]
    pub settings: Settings,
    /// Option to its levels; arms are the product of all factors.
    #[serde(default)]
    pub factors: BTreeMap<String, Vec<Value>>,
    /// Named arms, each with settings of its own; multiplied by the factors, if any.
    #[serde(default, rename = "arm", skip_serializing_if = "Vec::is_empty")]
    pub named_arms: Vec<NamedArm>,
    /// Published figures to stand beside ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
}

/// How often every arm is run: a number of rounds, or a stop rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoundsAsked {
    /// Exactly so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub fixed: Option<u32>,
    /// `verdict`: until every comparison has one; `ci 1%`: until every interval reaches at most
    /// 1 % to each side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// No fewer than these, with a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub min: Option<u32>,
    /// No more than these, with a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max: Option<u32>,
    /// No round begins that would end later than this, like `2m`; the first always runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time: Option<String>,
}

impl RoundsAsked {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which arms to compare, and in what; one of three shapes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The metric; without it, the primary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Every arm with every other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_pairs: bool,
    /// Name of the arm that every other is compared against, where there are factors too: once per
    /// combination of their levels; with `factor`, the level of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Value>,
    /// The factor whose levels are compared against the level `against`, once per combination of
    /// levels of the other factors (and per named arm).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<String>,
}

/// An arm with a name of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedArm {
    /// Unique within the study.
    pub name: String,
    /// The share of operations that may fail in this arm; without it, the study's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<String>,
    /// Settings that differ from the study's.
    #[serde(flatten)]
    pub settings: Settings,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// The arm of ours it stands beside.
    pub arm: String,
    /// The metric it states.
    pub metric: String,
    /// Its value, in the unit of the metric.
    pub value: f64,
    /// Standard deviation of the batches it is the mean of, in the unit of the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
    /// Where it was published.
    pub source: String,
    /// What the source says of it, where that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An arm ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedArm {
    /// Unique within the run.
    pub name: String,
    /// Option to level, of what differs between arms.
    pub factors: Settings,
    /// Every setting of the arm.
    pub settings: Settings,
    /// The share of its operations that may fail, 0 to 1.
    pub failures_allowed: f64,
}

/// The share of operations that may fail, unless a study or the user says other: what fails more
/// often is as a rule not what was to be measured.
pub const FAILURES_ALLOWED: f64 = 0.01;

impl Study {
    /// The smallest effect of interest, relative: 0.01 is 1 %. `None` if the study has none of its
    /// own.
    ///
    /// Range: above 0 and below 1.
    pub fn margin(&self) -> Result<Option<f64>, StudyError> {
        let Some(text) = &self.margin else { return Ok(None) };
        let problem = "write a percentage above 0% and below 100%, like \"1%\"";
        percentage(text).map(Some).ok_or_else(|| StudyError::text("margin", text, problem))
    }

    /// The values that an option has in every arm: its levels, or the one that is set.
    pub fn values(&self, option: &str) -> &[Value] {
        match (self.factors.get(option), self.settings.get(option)) {
            (Some(levels), _) => levels,
            (None, Some(value)) => std::slice::from_ref(value),
            (None, None) => &[],
        }
    }

    /// The arms: named arms times the product of the factors, in the order written; of several
    /// factors, which go by the alphabet, the last turns fastest.
    pub fn arms(&self) -> Result<Vec<PlannedArm>, StudyError> {
        self.check_values()?;
        let count = self
            .factors
            .values()
            .map(Vec::len)
            .fold(self.named_arms.len().max(1), usize::saturating_mul);
        if count > ARMS_MAX {
            let product: Vec<String> = self
                .factors
                .iter()
                .map(|(name, levels)| format!("{}: {}", echo(name), levels.len()))
                .chain(
                    Some(format!("arm: {}", self.named_arms.len()))
                        .filter(|_| !self.named_arms.is_empty()),
                )
                .collect();
            return Err(StudyError::TooManyArms { arms: count, product: product.join(" × ") });
        }
        let mut common = self.settings.clone();
        if let Some(warmup) = &self.warmup {
            common.entry("warmup".to_owned()).or_insert_with(|| warmup.clone());
        }
        let failures_allowed =
            failures("failures", self.failures.as_deref())?.unwrap_or(FAILURES_ALLOWED);
        let whole = PlannedArm {
            name: String::new(),
            factors: Settings::new(),
            settings: common,
            failures_allowed,
        };
        let mut arms: Vec<PlannedArm> = if self.named_arms.is_empty() {
            vec![whole]
        } else {
            let named = self.named_arms.iter().zip(1..);
            named.map(|(arm, number)| arm.planned(&whole, number)).collect::<Result<_, _>>()?
        };
        for (factor, levels) in &self.factors {
            arms = arms
                .iter()
                .flat_map(|arm| levels.iter().map(|level| arm.with_level(factor, level)))
                .collect();
        }
        if let [only] = arms.as_mut_slice()
            && only.name.is_empty()
        {
            only.name.clone_from(&self.experiment);
        }
        let mut seen = BTreeSet::new();
        match arms.iter().find(|arm| !seen.insert(arm.name.as_str())) {
            Some(twin) => Err(StudyError::text("arm", &twin.name, TWICE)),
            None => Ok(arms),
        }
    }

    /// Checks the question, and every name and value that arms are made of.
    fn check_values(&self) -> Result<(), StudyError> {
        if !self.question.ends_with('?') {
            let problem = "a question must end with a question mark";
            return Err(StudyError::text("question", &self.question, problem));
        }
        if let Some(warmup) = &self.warmup {
            check_value("warmup", warmup)?;
        }
        for (option, value) in &self.settings {
            check_value(&format!("settings.{option}"), value)?;
        }
        for (factor, levels) in &self.factors {
            let key = format!("factors.{factor}");
            if levels.is_empty() {
                return Err(StudyError::key(key, "no levels; write at least one"));
            }
            let mut seen = BTreeSet::new();
            for level in levels {
                check_value(&key, level)?;
                if !seen.insert(level_text(level)) {
                    return Err(StudyError::text(key, &level_text(level), TWICE));
                }
            }
        }
        let mut seen = BTreeSet::new();
        for (arm, number) in self.named_arms.iter().zip(1..) {
            let key = format!("arm[{number}]");
            if arm.name.trim().is_empty() {
                return Err(StudyError::key(format!("{key}.name"), "empty; write a name"));
            }
            if !seen.insert(arm.name.as_str()) {
                return Err(StudyError::text(format!("{key}.name"), &arm.name, TWICE));
            }
            for (option, value) in &arm.settings {
                check_value(&format!("{key}.{option}"), value)?;
            }
        }
        Ok(())
    }
}

const TWICE: &str = "given twice; each arm needs its own level or name";

/// A setting is text, a number, true or false, or a list of these.
fn check_value(key: &str, value: &Value) -> Result<(), StudyError> {
    let plain = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    let right = value.as_array().map_or_else(|| plain(value), |list| list.iter().all(plain));
    // A date is a table to serde, and not a number is null.
    right.then_some(()).ok_or_else(|| {
        StudyError::key(key, "write text in quotes, a number, true or false, or a list of these")
    })
}

/// `1%` is 0.01. `None` unless above 0% and below 100%, with its sign.
pub fn percentage(text: &str) -> Option<f64> {
    let share = text.trim().ends_with('%').then(|| parse_share(text).ok())??;
    (share > 0.0 && share < 1.0).then_some(share)
}

/// A level as the name of its arm has it.
pub fn level_text(level: &Value) -> String {
    level.as_str().map_or_else(|| level.to_string(), str::to_owned)
}

/// Every name that a metric of an experiment may go by: its metrics, and of each distribution the
/// [`FIGURES`], like `connect_us_p99`.
pub fn metric_names(metrics: &[&str], histograms: &[&str]) -> Vec<String> {
    let of_histograms =
        histograms.iter().flat_map(|name| FIGURES.iter().map(|figure| figure.metric(name)));
    let mut names: Vec<String> =
        metrics.iter().map(|name| (*name).to_owned()).chain(of_histograms).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The share of operations that may fail: `5%`, or `expected`.
fn failures(key: &str, text: Option<&str>) -> Result<Option<f64>, StudyError> {
    text.map(|text| {
        failures_share(text).ok_or_else(|| {
            let problem = "write the share that may fail, like \"5%\", or \"expected\"";
            StudyError::text(key, text, problem)
        })
    })
    .transpose()
}

/// `5%` is 0.05, `expected` is 1. None: neither, or not from 0% to 100%.
pub fn failures_share(text: &str) -> Option<f64> {
    if text == "expected" {
        return Some(1.0);
    }
    let share = text.trim().ends_with('%').then(|| parse_share(text).ok())??;
    (0.0..=1.0).contains(&share).then_some(share)
}

impl NamedArm {
    fn planned(&self, whole: &PlannedArm, number: usize) -> Result<PlannedArm, StudyError> {
        let mut settings = whole.settings.clone();
        settings.extend(self.settings.clone());
        let own = failures(&format!("arm[{number}].failures"), self.failures.as_deref())?;
        Ok(PlannedArm {
            name: self.name.clone(),
            factors: self.settings.clone(),
            settings,
            failures_allowed: own.unwrap_or(whole.failures_allowed),
        })
    }
}

impl PlannedArm {
    fn with_level(&self, factor: &str, level: &Value) -> Self {
        let mut next = self.clone();
        next.factors.insert(factor.to_owned(), level.clone());
        next.settings.insert(factor.to_owned(), level.clone());
        if !next.name.is_empty() {
            next.name.push_str(", ");
        }
        next.name.push_str(&format!("{factor} {}", level_text(level)));
        next
    }
}

/// The order of `arms` arms in a round: a permutation of their indices.
pub fn order_of_round(seed: u64, round: u32, arms: usize) -> Vec<usize> {
    let mut random = generator(seed, [u64::from(round), u64::MAX, 0]);
    let mut order: Vec<usize> = (0..arms).collect();
    for last in (1..arms).rev() {
        // The bias of a remainder of 2^64 by at most 256 is below 2^-56.
        order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    order
}

/// The seed of one trial's losses and jitter.
pub fn seed_of_trial(seed: u64, round: u32, arm: usize, attempt: u32) -> u64 {
    generator(seed, [u64::from(round), arm as u64, u64::from(attempt)]).next_u64()
}

/// The seed of what is the same in all arms of a round.
pub fn seed_of_round(seed: u64, round: u32) -> u64 {
    generator(seed, [u64::from(round), u64::MAX, 1]).next_u64()
}

#[cfg(test)]
mod tests;
