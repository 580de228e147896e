//! What an experiment is to the runner: it reads the settings of an arm once and makes a [`Plan`] of
//! them. Everything that a run asks of an arm, it asks the plan. Read `runner::schedule`, which holds
//! the plans, next.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::record::{Advice, Arm, Lasting, Resolved, WarningEntry};
use tcptoll_core::study::points::Share;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;
use tcptoll_lab::lab::certification::{Certificate, Tolerance};
use tcptoll_lab::lab::{HostSource, Interrupt, LabError};
use tcptoll_lab::messages::Done;

use super::TrialError;
use super::target::Target;

/// What a trial needs besides its settings, and what trials of one run share.
pub struct Context<'a> {
    /// Set when the user asked the run to stop.
    pub interrupt: &'a Interrupt,
    /// Called with what is done and what is planned: operations, or ms.
    pub progress: &'a mut dyn FnMut(Done, u64),
    /// Seed of the trial.
    pub seed: u64,
    /// Seed of what is the same in all arms of a round.
    pub round_seed: u64,
    /// Whether to look closer with a trial of its own, where the experiment has one: once per arm
    /// is enough.
    pub witness: bool,
    /// How far a link may be from what was asked.
    pub tolerance: Tolerance,
    /// Where to write packets.
    pub pcap: Option<&'a str>,
    /// Links measured in this run.
    pub certificates: &'a mut BTreeMap<String, Certificate>,
    /// Where its hosts come from.
    pub hosts: &'a dyn HostSource,
    /// When its load begins; `None`: as soon as it can.
    pub start: Option<Start>,
}

/// The instant at which a load begins, on the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// When it is to begin.
    pub at: SystemTime,
    /// How much later it did; `None`: it has not begun.
    pub late: Option<Duration>,
}

/// How often a wait looks for a signal.
const LOOK: Duration = Duration::from_millis(50);

impl Start {
    /// Waits for the instant and `turn` after it.
    ///
    /// Errors: a signal came.
    pub(crate) fn wait(&mut self, turn: Duration, interrupt: &Interrupt) -> Result<(), LabError> {
        let at = self.at + turn;
        loop {
            match at.duration_since(SystemTime::now()) {
                Ok(left) if !left.is_zero() => std::thread::sleep(left.min(LOOK)),
                Ok(_) => {
                    self.late = Some(Duration::ZERO);
                    return Ok(());
                }
                Err(passed) => {
                    self.late = Some(passed.duration());
                    return Ok(());
                }
            }
            if interrupt.signal().is_some() {
                return Err(LabError::Interrupted);
            }
        }
    }
}

impl Context<'_> {
    /// The context of a witness trial: a shorter trial that follows the measured one. It has no witness
    /// of its own, writes no packets, and `silent` takes its progress.
    pub(crate) fn of_witness<'b>(
        &'b mut self,
        silent: &'b mut dyn FnMut(Done, u64),
    ) -> Context<'b> {
        Context {
            interrupt: self.interrupt,
            progress: silent,
            seed: self.seed,
            round_seed: self.round_seed,
            witness: false,
            tolerance: self.tolerance,
            pcap: None,
            certificates: self.certificates,
            hosts: self.hosts,
            start: None,
        }
    }
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
    /// What it is, as data.
    fn spec(&self) -> &'static Spec;
    /// Reads and checks the settings of one arm. It is a function of the settings: no name is
    /// resolved, no file and no socket opened.
    ///
    /// Errors: a setting is not what it should be, or has no effect beside another.
    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError>;
}

/// One arm of a study, its settings read and checked. Made once for a run, before its first trial.
///
/// The order of calls: [`Plan::prepare`] and [`Plan::resolved`], each once, then as many trials as
/// the run needs. Everything else may be asked at any time.
pub trait Plan {
    /// The server, if we do not control it.
    fn target(&self) -> Option<&Target> {
        None
    }
    /// Takes the addresses of names. What depends on whether a server is public follows; until then
    /// a name is taken as public.
    fn resolved(&mut self, _resolved: &[Resolved]) {}
    /// Checks and reads what depends on this machine: whether the kernel has a congestion control,
    /// what is in files. Arms of one run share the files.
    ///
    /// Errors: a setting cannot be had on this machine. The same sentence as where a setting makes
    /// no sense: it begins with `--OPTION`.
    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        Ok(())
    }
    /// Whether the programs that a trial starts are here. It is asked once, before the first trial: who only
    /// plans or checks needs none.
    ///
    /// Errors: one is missing; a sentence with its package.
    fn installed(&self) -> Result<(), TrialError> {
        Ok(())
    }
    /// Expected duration of a trial, seconds, for `--dry-run` and the time left.
    fn expected_s(&self) -> f64;
    /// What can be computed before anything is measured.
    fn computed(&self) -> Option<Advice> {
        None
    }
    /// The load of a trial for people: `50 connections, closed loop, 10 s`.
    fn load(&self) -> Option<String> {
        None
    }
    /// The load on a server with a public address; `None` if its address is not known or not public.
    fn public_load(&self) -> Option<PublicLoad> {
        None
    }
    /// Operations of a trial that ends after a number of them, and the option that says how many. `None`: it lasts
    /// a time.
    fn operations(&self) -> Option<(u64, &'static str)> {
        None
    }
    /// Of a load that several machines share: the part, and the whole. `None`: it is all of it.
    fn split(&self) -> Option<SplitPlan> {
        None
    }
    /// Runs the arm once.
    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError>;
}

/// A part of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitPlan {
    /// Which.
    pub share: Share,
    /// Operations of the whole load in each trial.
    pub operations: u64,
}

/// Load on a server that may be somebody else's; the user is informed before it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct PublicLoad {
    /// The server, as typed.
    pub target: String,
    /// How much it is, to find the arm that loads a server most: operations per second, or open
    /// connections.
    pub size: f64,
    /// What is done: `100 connections at 20 per second will be opened to it`.
    pub load: String,
    /// Which options change it: `--rate and --count set other figures`.
    pub options: &'static str,
}
