//! What a study asks for, checked whole before anything is measured.

use tcptoll_model::pairs::{Pair, pairs};
use tcptoll_model::record::Resolved;
use tcptoll_model::stop::StopRule;
use tcptoll_model::study::{PlannedArm, Study};
use tcptoll_model::{answer, order};

use super::{RunError, TRIALS_MAX};
use crate::experiments::{self, Experiment};

/// Everything a run is to do.
pub struct Schedule {
    /// The experiment.
    pub experiment: &'static dyn Experiment,
    /// Its arms, in the order of the study.
    pub arms: Vec<PlannedArm>,
    /// The metric that stop rules look at first.
    pub metric: String,
    /// What is compared.
    pub pairs: Vec<Pair>,
    /// The smallest effect of interest, relative.
    pub margin: f64,
    /// When to stop.
    pub rule: StopRule,
}

impl Schedule {
    /// Checks a study: its experiment, every setting of every arm, comparisons, stop rule, answer.
    pub fn of(study: &Study) -> Result<Self, RunError> {
        let experiment = experiments::find(&study.experiment)
            .ok_or_else(|| RunError::NoSuchExperiment(study.experiment.clone()))?;
        let arms = study.arms()?;
        for arm in &arms {
            experiment.check(&arm.settings).map_err(|error| {
                if arms.len() == 1 {
                    RunError::Trial(error)
                } else {
                    RunError::Arm { arm: arm.name.clone(), error }
                }
            })?;
        }
        experiment.check_together(&arms).map_err(RunError::Trial)?;
        let metric = study.metric.clone().unwrap_or_else(|| experiment.primary_metric().to_owned());
        let pairs = pairs(study, &arms, &metric)?;
        let names = experiment.metric_names();
        for named in pairs.iter().map(|pair| &pair.metric).chain([&metric]) {
            if !names.iter().any(|name| name == named) {
                return Err(RunError::NoSuchMetric {
                    metric: named.clone(),
                    there_are: experiment.metrics().join(", "),
                });
            }
        }
        // With the primary metric filled in, so that a placeholder of it is told from one of another.
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        answer::check(&Study { metric: Some(metric.clone()), ..study.clone() }, &known)?;
        let rule = StopRule::of(study)?;
        if u64::from(rule.max) * arms.len() as u64 > TRIALS_MAX {
            return Err(RunError::TooManyTrials { arms: arms.len(), rounds: rule.max });
        }
        Ok(Self {
            margin: study.margin()?.unwrap_or(experiment.margin()),
            rule,
            experiment,
            arms,
            metric,
            pairs,
        })
    }

    /// Resolves the name of every server that we do not control, each once; those in `known` are
    /// not looked up again. In the order of the arms.
    ///
    /// Errors: a name has no address.
    pub fn resolve(&self, known: &[Resolved]) -> Result<Vec<Resolved>, RunError> {
        let mut known = known.to_vec();
        let mut resolved: Vec<Resolved> = Vec::new();
        for arm in &self.arms {
            let Some(target) = self.experiment.target(&arm.settings)? else { continue };
            let name = target.name();
            if resolved.iter().any(|entry| entry.name == name) {
                continue;
            }
            if let Some(entry) = target.resolve(&known)? {
                known.push(entry.clone());
                resolved.push(entry);
            }
        }
        Ok(resolved)
    }

    /// Whether the experiment has a metric of this name, or a distribution it is a quantile of.
    pub fn knows(&self, metric: &str) -> bool {
        self.experiment.metric_names().iter().any(|name| name == metric)
    }

    /// Whether there is one trial only.
    pub(super) fn is_single(&self) -> bool {
        self.arms.len() == 1 && self.rule.max == 1
    }

    /// What one round is expected to take, s, as far as that is known without resolving a name.
    pub fn round_s(&self) -> f64 {
        self.arms.iter().map(|arm| self.experiment.expected_s(&arm.settings, &[])).sum()
    }

    /// The order of the arms in a round. What runs once runs as it is written.
    pub(super) fn order(&self, seed: u64, round: u32) -> Vec<usize> {
        if self.rule.max == 1 {
            (0..self.arms.len()).collect()
        } else {
            order::of_round(seed, round, self.arms.len())
        }
    }
}
