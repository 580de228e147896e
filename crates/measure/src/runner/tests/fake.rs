//! An experiment that measures nothing: what its trials give is written down before.

use std::sync::{Arc, Mutex};

use tcptoll_core::experiment::spec::{Better, MetricSpec, Noun, Spec};
use tcptoll_core::record::{Arm, Lasting, Metric, Resolved};
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;
use tcptoll_lab::lab::{Interrupt, LabError};

use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad};
use crate::kit::target::Target;

/// One trial, as the experiment sees it.
pub(super) struct Call<'a> {
    pub(super) arm: &'a str,
    /// How many trials of the arm there were before.
    pub(super) nth: usize,
    pub(super) interrupt: &'a Interrupt,
}

impl Call<'_> {
    /// A signal arrives during this trial.
    pub(super) fn signal(&self, number: usize) {
        self.interrupt.flag().store(number, std::sync::atomic::Ordering::SeqCst);
    }
}

/// What a trial gives.
pub(super) enum Gives {
    /// A figure.
    Figure(f64),
    /// A figure of a trial that is excluded, because of what may pass or not.
    Invalid(Option<Lasting>),
    /// A failure of its only operation; with so many connections opened.
    Errors(Option<u64>),
    /// Nothing.
    Failure,
    /// Nothing: its link is out of tolerance.
    OutOfTolerance,
}

type Script = Arc<dyn Fn(&Call<'_>) -> Gives + Send + Sync>;

/// How often the runner asked for what.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CallCounts {
    pub(super) plans: usize,
    pub(super) prepared: usize,
    pub(super) resolved: usize,
    /// Arms in the order of their trials, those that gave nothing too.
    pub(super) trials: Vec<String>,
    /// Whether each of them was to look closer.
    pub(super) witness: Vec<bool>,
}

/// Its only metric.
const FIGURE: MetricSpec =
    MetricSpec { name: "figure_us", unit: "us", words: "figure", better: Better::Lower };

const SPEC: Spec = Spec {
    brief: tcptoll_core::experiment::brief::Brief::NONE,
    name: "fake",
    question: "what?",
    about: "",
    examples: "",
    options: &[],
    target: Some("to"),
    complete: |_| {},
    compares: |_| true,
    metrics: &[&FIGURE],
    histograms: &[],
    primary: FIGURE.name,
    phrases: &[],
    answers: &[],
    margin: 0.01,
    operation: Noun { one: "operation", many: "operations", short: "op" },
    tables: &[],
    causes: &[],
    conclude: |summary| "the answer".clone_into(&mut summary.answer),
};

pub(super) struct Fake {
    script: Script,
    asked: Arc<Mutex<CallCounts>>,
}

/// What a trial is expected to take, s.
pub(super) const EXPECTED_S: f64 = 7.0;

impl Fake {
    /// It lives as long as the tests do, as the real ones do.
    pub(super) fn new(
        script: impl Fn(&Call<'_>) -> Gives + Send + Sync + 'static,
    ) -> &'static Self {
        Box::leak(Box::new(Self { script: Arc::new(script), asked: Arc::default() }))
    }

    pub(super) fn asked(&self) -> CallCounts {
        self.asked.lock().unwrap().clone()
    }
}

impl Experiment for Fake {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        self.asked.lock().unwrap().plans += 1;
        if settings.get("level").is_some_and(|level| level == "wrong") {
            return Err(TrialError::Setting("--level wrong: write a number".to_owned()));
        }
        let to = settings.get("to").and_then(|to| to.as_str());
        Ok(Box::new(FakePlan {
            script: Arc::clone(&self.script),
            asked: Arc::clone(&self.asked),
            to: to.map(Target::of_to).transpose()?,
            is_prepared: false,
        }))
    }
}

struct FakePlan {
    script: Script,
    asked: Arc<Mutex<CallCounts>>,
    to: Option<Target>,
    is_prepared: bool,
}

impl Plan for FakePlan {
    fn target(&self) -> Option<&Target> {
        self.to.as_ref()
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        self.asked.lock().unwrap().resolved += 1;
        if let Some(to) = &mut self.to {
            to.take(resolved);
        }
    }

    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        self.asked.lock().unwrap().prepared += 1;
        self.is_prepared = true;
        Ok(())
    }

    fn expected_s(&self) -> f64 {
        EXPECTED_S
    }

    fn public_load(&self) -> Option<PublicLoad> {
        None
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        assert!(self.is_prepared, "a trial began before its plan was prepared");
        let nth = {
            let mut asked = self.asked.lock().unwrap();
            let nth = asked.trials.iter().filter(|name| **name == arm.name).count();
            asked.trials.push(arm.name.clone());
            asked.witness.push(context.witness);
            nth
        };
        let call = Call { arm: &arm.name, nth, interrupt: context.interrupt };
        let mut errors = None;
        let (figure, invalid, lasting) = match (self.script)(&call) {
            Gives::Errors(opened) => {
                errors = Some(opened);
                (1.0, None, None)
            }
            Gives::Figure(figure) => (figure, None, None),
            Gives::Invalid(lasting) => (1.0, Some("the machine was unfit".to_owned()), lasting),
            Gives::Failure => return Err(TrialError::Target("nobody answers".to_owned())),
            Gives::OutOfTolerance => {
                return Err(LabError::OutOfTolerance("the link is too slow".to_owned()).into());
            }
        };
        (context.progress)(1.into(), 1);
        let metric =
            Metric { value: figure, unit: "us".to_owned(), ci95: None, median: None, n: 1 };
        Ok(Outcome {
            arm: Arm {
                name: arm.name.clone(),
                factors: arm.factors.clone(),
                attempts: 1,
                ok: u64::from(errors.is_none()),
                errors: errors.map(|_| ("reset".to_owned(), 1)).into_iter().collect(),
                connections_ok: errors.flatten(),
                metrics: [("figure_us".to_owned(), metric)].into(),
                ..Arm::default()
            },
            warnings: Vec::new(),
            invalid,
            lasting,
        })
    }
}
