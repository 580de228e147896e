//! What a study asks for, checked whole before anything is measured: its arms, each with its plan.
//!
//! Each arm becomes a plan once, without I/O. `Schedule::prepare` then checks and reads what depends on this
//! machine, and `Schedule::resolve` looks names up, each once.

use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::record::{Advice, Resolved};
use tcptoll_core::study;
use tcptoll_core::study::pairs::{Pair, pairs};
use tcptoll_core::study::stop::StopRule;
use tcptoll_core::study::{PlannedArm, Study};
use tcptoll_core::verdict::answer;
use tcptoll_lab::files::Shared;

use super::{RunError, TRIALS_MAX};
use crate::experiments;
use crate::kit::TrialError;
use crate::kit::plan::{Experiment, Plan, PublicLoad};
use crate::kit::settings::check_together;
use crate::kit::target::Target;

/// Everything a run is to do.
pub struct Schedule {
    pub spec: &'static Spec,
    /// As it was written.
    pub study: Study,
    /// Its arms, in the order of the study.
    pub arms: Vec<PlannedArm>,
    /// What follows from the settings of each arm, in the same order.
    plans: Vec<Box<dyn Plan>>,
    /// The metric that stop rules look at first.
    pub metric: String,
    /// What is compared.
    pub pairs: Vec<Pair>,
    /// The smallest effect of interest, relative.
    pub margin: f64,
    /// When to stop.
    pub rule: StopRule,
    /// Whether what depends on this machine has been checked and read.
    is_prepared: bool,
    /// Names of servers and the address of each, once they have been resolved.
    resolved: Option<Vec<Resolved>>,
}

impl Schedule {
    /// Checks a study: its experiment, every setting of every arm, comparisons, stop rule, answer.
    /// No name is resolved, no file and no socket opened.
    pub fn from_study(study: &Study) -> Result<Self, RunError> {
        let experiment = experiments::find_experiment(&study.experiment)
            .ok_or_else(|| RunError::NoSuchExperiment(study.experiment.clone()))?;
        Self::with(experiment, study)
    }

    /// As [`Schedule::from_study`], of this experiment.
    pub(super) fn with(
        experiment: &'static dyn Experiment,
        study: &Study,
    ) -> Result<Self, RunError> {
        let spec = experiment.spec();
        let arms = study.arms()?;
        let plan =
            |arm: &PlannedArm| experiment.plan(&arm.settings).map_err(|e| of_arm(&arms, arm, e));
        let plans = arms.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
        check_together(spec, &arms).map_err(RunError::Trial)?;
        let metric = study.metric.clone().unwrap_or_else(|| asked(spec, study).to_owned());
        let pairs = pairs(study, &arms, &metric)?;
        let names = spec.metric_names();
        for named in pairs.iter().map(|pair| &pair.metric).chain([&metric]) {
            if !names.iter().any(|name| name == named) {
                return Err(RunError::NoSuchMetric {
                    metric: named.clone(),
                    there_are: spec.single_metrics().join(", "),
                });
            }
        }
        // With the primary metric filled in, so that a placeholder of it is told from one of another.
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        answer::check(&Study { metric: Some(metric.clone()), ..study.clone() }, &known)?;
        let rule = StopRule::from_study(study)?;
        if u64::from(rule.max) * arms.len() as u64 > TRIALS_MAX {
            return Err(RunError::TooManyTrials { arms: arms.len(), rounds: rule.max });
        }
        Ok(Self {
            margin: study.margin()?.unwrap_or(spec.margin),
            rule,
            spec,
            study: study.clone(),
            arms,
            plans,
            metric,
            pairs,
            is_prepared: false,
            resolved: None,
        })
    }

    /// Checks and reads, once for the run, what depends on this machine: congestion control, files.
    ///
    /// Errors: a setting of an arm cannot be had here.
    pub fn prepare(&mut self) -> Result<(), RunError> {
        if self.is_prepared {
            return Ok(());
        }
        let mut files = Shared::default();
        for (arm, plan) in self.arms.iter().zip(&mut self.plans) {
            plan.prepare(&mut files).map_err(|error| of_arm(&self.arms, arm, error))?;
        }
        self.is_prepared = true;
        Ok(())
    }

    /// Whether every program that a trial starts is on this machine.
    ///
    /// Errors: one is missing.
    pub fn installed(&self) -> Result<(), RunError> {
        let mut all = self.arms.iter().zip(&self.plans);
        all.try_for_each(|(arm, plan)| {
            plan.installed().map_err(|error| of_arm(&self.arms, arm, error))
        })
    }

    /// Resolves, once for the run, the name of every server that we do not control. Those in `known`
    /// are not looked up again. In the order of the arms.
    ///
    /// Errors: a name has no address.
    pub fn resolve(&mut self, known: &[Resolved]) -> Result<&[Resolved], RunError> {
        if self.resolved.is_none() {
            let resolved = self.looked_up(known)?;
            self.take_addresses(&resolved);
            self.resolved = Some(resolved);
        }
        Ok(self.resolved.as_deref().unwrap_or_default())
    }

    fn looked_up(&self, known: &[Resolved]) -> Result<Vec<Resolved>, RunError> {
        let mut known = known.to_vec();
        let mut resolved: Vec<Resolved> = Vec::new();
        for target in self.targets().flatten() {
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

    /// Gives the plans these addresses, without looking any up.
    pub(super) fn take_addresses(&mut self, known: &[Resolved]) {
        for plan in &mut self.plans {
            plan.resolved(known);
        }
    }

    /// The server of each arm, if we do not control it.
    pub(super) fn targets(&self) -> impl Iterator<Item = Option<&Target>> {
        self.plans.iter().map(|plan| plan.target())
    }

    /// The servers that we do not control, as typed, each once.
    pub fn target_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for target in self.targets().flatten() {
            if !names.contains(&target.typed.as_str()) {
                names.push(&target.typed);
            }
        }
        names
    }

    /// Whether a server is outside the lab.
    pub fn has_target(&self) -> bool {
        self.targets().any(|target| target.is_some())
    }

    /// The plan of an arm.
    pub(super) fn plan(&self, arm: usize) -> &dyn Plan {
        &*self.plans[arm]
    }

    /// The load of a trial for people, if all arms have the same.
    pub fn load(&self) -> Option<String> {
        let mut loads = self.plans.iter().map(|plan| plan.load());
        let first = loads.next()??;
        loads.all(|load| load.as_ref() == Some(&first)).then_some(first)
    }

    /// Operations that an arm has in the whole run, at most, and the option that says how many there are in a trial;
    /// `None`: an arm lasts a time.
    pub fn operations_max(&self) -> Option<(u64, &'static str)> {
        let of_arms: Option<Vec<_>> = self.plans.iter().map(|plan| plan.operations()).collect();
        let (most, option) = of_arms?.into_iter().max()?;
        Some((most.saturating_mul(u64::from(self.rule.max)), option))
    }

    /// What can be computed of the arms before anything is measured, each thing once.
    pub fn computed(&self) -> Vec<Advice> {
        let mut all: Vec<Advice> = Vec::new();
        for advice in self.plans.iter().filter_map(|plan| plan.computed()) {
            if !all.contains(&advice) {
                all.push(advice);
            }
        }
        all
    }

    /// The load on each server with a public address, by the arm that loads it most.
    pub fn public_loads(&self) -> Vec<PublicLoad> {
        let mut loads: Vec<PublicLoad> = Vec::new();
        for load in self.plans.iter().filter_map(|plan| plan.public_load()) {
            match loads.iter_mut().find(|known| known.target == load.target) {
                Some(known) if known.size < load.size => *known = load,
                Some(_) => {}
                None => loads.push(load),
            }
        }
        loads
    }

    /// Whether the experiment has a metric of this name, or a distribution it is a quantile of.
    pub fn knows(&self, metric: &str) -> bool {
        self.spec.metric_names().iter().any(|name| name == metric)
    }

    /// Whether there is one trial only.
    pub(super) fn is_single(&self) -> bool {
        self.arms.len() == 1 && self.rule.max == 1
    }

    /// What a trial of an arm is expected to take, s.
    pub(super) fn expected_s(&self, arm: usize) -> f64 {
        self.plans[arm].expected_s()
    }

    /// What one round is expected to take, s. A name that has not been resolved is taken as public.
    pub fn round_s(&self) -> f64 {
        self.plans.iter().map(|plan| plan.expected_s()).sum()
    }

    /// The order of the arms in a round. What runs once runs as it is written.
    pub(super) fn order(&self, seed: u64, round: u32) -> Vec<usize> {
        if self.rule.max == 1 {
            (0..self.arms.len()).collect()
        } else {
            study::order_of_round(seed, round, self.arms.len())
        }
    }
}

/// The metric that a study is about which names none: that of the option that it varies, or the primary one.
fn asked(spec: &'static Spec, study: &Study) -> &'static str {
    let mut varied = study.factors.keys();
    let option = match (varied.next(), varied.next()) {
        (Some(only), None) => spec.option(only),
        _ => None,
    };
    option.and_then(|option| option.asks).unwrap_or(spec.primary)
}

/// An error of an arm, named with it where there are several.
fn of_arm(arms: &[PlannedArm], arm: &PlannedArm, error: TrialError) -> RunError {
    if arms.len() == 1 {
        RunError::Trial(error)
    } else {
        RunError::Arm { arm: arm.name.clone(), error }
    }
}
