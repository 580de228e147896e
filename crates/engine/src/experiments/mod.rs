//! One question each, and the table of all. To add one: a file, a line in [`ALL`], a page in docs.

pub mod bench;
pub mod connect;
pub mod http;
pub mod keepalive;

use std::collections::BTreeMap;

use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::record::{Arm, Lasting, Resolved, Summary, WarningEntry};
use tcptoll_model::study::{PlannedArm, Settings, metric_names};

use self::bench::settings::check_together;
use self::bench::target::Target;
use crate::lab::certification::{Certificate, Tolerance};
use crate::lab::{Interrupt, LabError};

/// Why a trial gave no observation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// A setting is not what it should be; nothing was begun.
    #[error("{0}")]
    Setting(String),
    /// The place.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The target.
    #[error("{0}")]
    Target(String),
}

/// What a trial needs besides its settings, and what trials of one run share.
pub struct Context<'a> {
    /// Set when the user asked the run to stop.
    pub interrupt: &'a Interrupt,
    /// Called with what is done and what is planned: operations, or ms.
    pub progress: &'a mut dyn FnMut(u64, u64),
    /// Seed of the trial.
    pub seed: u64,
    /// Whether to look closer with a trial of its own, where the experiment has one: once per arm
    /// is enough.
    pub witness: bool,
    /// How far a link may be from what was asked.
    pub tolerance: Tolerance,
    /// Where to write packets.
    pub pcap: Option<&'a str>,
    /// Addresses of names, resolved before the first trial.
    pub resolved: &'a [Resolved],
    /// Links measured in this run.
    pub certificates: &'a mut BTreeMap<String, Certificate>,
}

/// What came of a trial.
#[derive(Debug)]
pub struct Outcome {
    /// The observation.
    pub arm: Arm,
    /// Doubts.
    pub warnings: Vec<WarningEntry>,
    /// Why the trial may not be used for its question, one sentence; `None`: it may.
    pub invalid: Option<String>,
    /// Whether a repetition would be excluded as well.
    pub lasting: Option<Lasting>,
}

/// A question about TCP that this tool can answer by measuring.
pub trait Experiment: Sync {
    /// The sub-command, kebab case.
    fn name(&self) -> &'static str;
    /// The question, as the user would ask it.
    fn question(&self) -> &'static str;
    /// What it is, as data: its options among others.
    fn spec(&self) -> &'static Spec;
    /// The metric that comparisons and stop rules look at, unless a study names another.
    fn primary_metric(&self) -> &'static str;
    /// Every metric a trial may have, in alphabetical order.
    fn metrics(&self) -> &'static [&'static str];
    /// Every distribution a trial may have, in alphabetical order; `NAME_p99` is a metric too.
    fn histograms(&self) -> &'static [&'static str];
    /// Every name that a metric may go by: metrics, and figures of distributions.
    fn metric_names(&self) -> Vec<String> {
        metric_names(self.metrics(), self.histograms())
    }
    /// The smallest effect of interest, relative, unless a study says other: 0.01 is 1 %.
    fn margin(&self) -> f64;
    /// Checks the settings of one arm without doing anything; no name is resolved.
    fn check(&self, settings: &Settings) -> Result<(), TrialError>;
    /// Checks the settings of all arms beside each other: whether one has no effect in any of them.
    fn check_together(&self, arms: &[PlannedArm]) -> Result<(), TrialError> {
        check_together(self.spec(), arms)
    }
    /// The server of one arm, if we do not control it.
    fn target(&self, settings: &Settings) -> Result<Option<Target>, TrialError>;
    /// Expected duration of one arm, seconds, for `--dry-run` and the time left. A name that is not
    /// in `resolved` is taken as public.
    fn expected_s(&self, settings: &Settings, resolved: &[Resolved]) -> f64;
    /// Runs one arm once.
    fn run(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError>;
    /// Fills in what follows from the arms: answer, causes, advice, next.
    fn conclude(&self, summary: &mut Summary);
}

/// Every experiment, in alphabetical order.
pub const ALL: &[&dyn Experiment] = &[&connect::Connect, &http::Http, &keepalive::Keepalive];

/// The experiment of this name.
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|experiment| experiment.name() == name)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tcptoll_model::experiments::option::{DefaultValue, Only, Opt};

    use super::*;

    /// The fewest settings beside which an option has an effect.
    fn needed(spec: &Spec, option: &Opt) -> Settings {
        let mut settings = Settings::new();
        for only in option.only {
            let (other, value) = match only {
                Only::Lab | Only::Target => continue,
                Only::When(other, values) => (*other, values[0]),
                Only::With(other @ ("pause-every" | "rate"), _) => (*other, "1"),
                Only::With(other @ "detect-within", _) => (*other, "30s"),
                Only::With(other, _) => panic!("write a value for --{other}"),
            };
            settings.insert(other.to_owned(), Value::from(value));
            settings.extend(needed(spec, spec.option(other).unwrap()));
        }
        settings
    }

    #[test]
    fn every_default_is_read_as_if_it_were_typed() {
        for experiment in ALL {
            let spec = experiment.spec();
            experiment.check(&Settings::new()).unwrap();
            for option in spec.options {
                let DefaultValue::Text(text) = option.default else { continue };
                let mut settings = needed(spec, option);
                settings.insert(option.name.to_owned(), Value::from(text));
                let read = experiment.check(&settings).map_err(|error| error.to_string());
                assert_eq!(read, Ok(()), "{}: {settings:?}", spec.name);
            }
        }
    }

    #[test]
    fn names_are_sorted_unique_and_typeable_and_questions_are_questions() {
        assert!(ALL.windows(2).all(|pair| pair[0].name() < pair[1].name()));
        for experiment in ALL {
            let name = experiment.name();
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
            assert!(experiment.question().ends_with('?'), "{name}");
            assert_eq!(experiment.spec().name, name);
        }
    }
}
