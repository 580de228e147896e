//! A study becomes trials, trials become a record, and the record's arms become a summary.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tcptoll_model::record::{
    Arm, Header, Line, Place, PlaceKind, RECORD_VERSION, Summary, Trial, WarningEntry,
};
use tcptoll_model::study::{PlannedArm, Study};

use crate::experiments::{self, Context, Experiment, TrialError};
use crate::lab::certification::Tolerance;
use crate::lab::{Interrupt, LabError};
use crate::passport;
use crate::record::Recorder;

/// Settings of a run that make no difference between arms.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The command line, for the record.
    pub command: Vec<String>,
    /// Where the record goes.
    pub record: PathBuf,
    /// Seed of everything random.
    pub seed: u64,
    /// How far a link may be from what was asked.
    pub tolerance: Tolerance,
    /// Where to write packets.
    pub pcap: Option<String>,
    /// Version of the program.
    pub version: String,
    /// When the run begins, RFC 3339.
    pub started_at: String,
}

/// How far a run has come.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The arm being run.
    pub arm: &'a str,
    /// Its number, from 1.
    pub number: usize,
    /// Arms in all.
    pub arms: usize,
    /// Operations of this arm finished.
    pub done: u64,
    /// Operations of this arm planned; 0 before it has begun.
    pub total: u64,
    /// Time the whole run is expected to take, seconds.
    pub expected_s: f64,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The study.
    #[error(transparent)]
    Study(#[from] tcptoll_model::study::StudyError),
    /// No such experiment.
    #[error("experiment {0}: there is no such experiment")]
    NoSuchExperiment(String),
    /// A setting or the place, before anything was measured.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// An arm's setting, named with its arm.
    #[error("arm {arm}: {error}")]
    Arm {
        /// Which.
        arm: String,
        /// What is wrong.
        error: TrialError,
    },
    /// The record cannot be made.
    #[error("the record {path} cannot be written: {error}; choose another place with --out FILE")]
    Record {
        /// Where.
        path: String,
        /// Why.
        error: std::io::Error,
    },
}

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// The summary, which also closes the record.
    pub summary: Summary,
    /// Where the record is.
    pub record: PathBuf,
    /// Why the record is not whole, if it is not.
    pub not_stored: Option<String>,
    /// The signal that stopped the run, if one did.
    pub signal: Option<usize>,
}

/// Checks a study without running it: its experiment and every setting of every arm.
pub fn check(study: &Study) -> Result<(&'static dyn Experiment, Vec<PlannedArm>), RunError> {
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
    Ok((experiment, arms))
}

/// Runs a study: every arm once.
///
/// Errors: only if nothing was measured. A trial that fails after others succeeded is recorded as
/// failed, and the run goes on.
pub fn run(
    study: &Study,
    options: &RunOptions,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Run, RunError> {
    let (experiment, arms) = check(study)?;
    if options.pcap.is_some() && arms.len() > 1 {
        return Err(RunError::Trial(TrialError::Setting(format!(
            "--pcap writes one file, and there are {} arms: run one arm alone",
            arms.len()
        ))));
    }
    let mut recorder = Recorder::create(&options.record)
        .map_err(|error| RunError::Record { path: options.record.display().to_string(), error })?;
    let header = Header {
        record_version: RECORD_VERSION,
        experiment: experiment.name().to_owned(),
        study: study.clone(),
        command: options.command.clone(),
        started_at: options.started_at.clone(),
        seed: options.seed,
        passport: passport::read(),
    };
    recorder.write(&Line::Header(Box::new(header.clone())));
    let mut trials = Trials {
        experiment,
        options,
        interrupt,
        expected_s: arms.iter().map(|arm| experiment.expected_s(&arm.settings)).sum(),
        count: arms.len(),
        certificates: BTreeMap::new(),
        done: Vec::new(),
        warnings: Vec::new(),
        valid: true,
    };
    let stat = || std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let stat_before = stat();
    for (number, arm) in arms.iter().enumerate() {
        if interrupt.signal().is_some() {
            break;
        }
        if let Err(error) = trials.run(number, arm, &mut recorder, progress) {
            recorder.abandon();
            return Err(error.into());
        }
    }
    let steal = passport::steal_share(&stat_before, &stat());
    let summary = conclude(trials, &header, steal);
    recorder.write(&Line::Summary(Box::new(summary.clone())));
    Ok(Run {
        summary,
        record: recorder.path().to_owned(),
        not_stored: recorder.failure().map(ToString::to_string),
        signal: interrupt.signal(),
    })
}

/// The summary of a record whose run was killed: what its finished trials say.
///
/// `None` if the record has no header, or its experiment is not known here.
pub fn summarise(record: &crate::record::Record) -> Option<Summary> {
    if let Some(summary) = record.summary() {
        return Some(summary.clone());
    }
    let mut lines = record.lines.iter();
    let Some(Line::Header(header)) = lines.next() else { return None };
    let experiment = experiments::find(&header.experiment)?;
    let done: Vec<Arm> = lines
        .filter_map(|line| match line {
            Line::Trial(trial) => Some(trial.arm.clone()),
            _ => None,
        })
        .collect();
    let mut summary = outline(&header.study, header, done);
    summary.partial = true;
    experiment.conclude(&mut summary);
    Some(summary)
}

struct Trials<'a> {
    experiment: &'static dyn Experiment,
    options: &'a RunOptions,
    interrupt: &'a Interrupt,
    expected_s: f64,
    count: usize,
    certificates: BTreeMap<String, crate::lab::certification::Certificate>,
    done: Vec<Arm>,
    warnings: Vec<WarningEntry>,
    valid: bool,
}

impl Trials<'_> {
    /// Runs one trial. Errors: only while nothing has been measured.
    fn run(
        &mut self,
        number: usize,
        arm: &PlannedArm,
        recorder: &mut Recorder,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<(), TrialError> {
        let (arms, expected_s) = (self.count, self.expected_s);
        let mut tell = |done: u64, total: u64| {
            let name = &arm.name;
            progress(&Progress { arm: name, number: number + 1, arms, done, total, expected_s });
        };
        tell(0, 0);
        let mut context = Context {
            interrupt: self.interrupt,
            progress: &mut tell,
            seed: self.options.seed.wrapping_add(number as u64),
            tolerance: self.options.tolerance,
            pcap: self.options.pcap.as_deref(),
            certificates: &mut self.certificates,
        };
        let measured = match self.experiment.run(arm, &mut context) {
            Ok(outcome) => {
                self.valid &= outcome.valid;
                self.warnings.extend(outcome.warnings);
                outcome.arm
            }
            Err(TrialError::Lab(LabError::Interrupted)) => return Ok(()),
            Err(error) if self.done.iter().all(|arm| arm.failure.is_some()) => return Err(error),
            Err(error) => {
                self.valid = false;
                Arm {
                    name: arm.name.clone(),
                    factors: arm.factors.clone(),
                    failure: Some(error.to_string()),
                    ..Arm::default()
                }
            }
        };
        recorder.write(&Line::Trial(Box::new(Trial { round: 0, arm: measured.clone() })));
        self.done.push(measured);
        Ok(())
    }
}

fn conclude(trials: Trials<'_>, header: &Header, steal: Option<f64>) -> Summary {
    let partial = trials.done.len() < trials.count || trials.done.iter().any(|arm| arm.partial);
    let mut summary = outline(&header.study, header, trials.done);
    summary.tcptoll_version.clone_from(&trials.options.version);
    summary.passport.steal = steal;
    summary.warnings = trials.warnings;
    summary.partial = partial;
    summary.valid = trials.valid;
    say_once(&mut summary.warnings);
    trials.experiment.conclude(&mut summary);
    summary
}

/// What header and arms say by themselves.
fn outline(study: &Study, header: &Header, arms: Vec<Arm>) -> Summary {
    let links: Vec<_> = arms.iter().filter_map(|arm| arm.link.as_ref()).collect();
    let one_link = links
        .first()
        .filter(|first| links.iter().all(|link| link.asked == first.asked))
        .map(|link| link.asked.clone());
    let target = study.settings.get("to").map(|to| to.as_str().unwrap_or_default().to_owned());
    let kind = if target.is_some() { PlaceKind::Target } else { PlaceKind::Lab };
    Summary {
        record_version: RECORD_VERSION,
        tcptoll_version: String::new(),
        experiment: study.experiment.clone(),
        study: Some(study.name.clone()).filter(|name| !name.is_empty()),
        question: study.question.clone(),
        answer: String::new(),
        command: header.command.clone(),
        started_at: header.started_at.clone(),
        place: Place { kind, link: one_link, target },
        passport: header.passport.clone(),
        arms,
        comparisons: Vec::new(),
        published: study.published.clone(),
        causes: Vec::new(),
        advice: Vec::new(),
        warnings: Vec::new(),
        next: Vec::new(),
        partial: false,
        valid: true,
    }
}

/// What every arm has too little of is said once, of the whole run.
fn say_once(warnings: &mut Vec<WarningEntry>) {
    let few = |warning: &WarningEntry| warning.id == "too-few-samples";
    if warnings.iter().filter(|warning| few(warning)).count() > 1 {
        let mut seen = false;
        warnings.retain_mut(|warning| {
            let first = few(warning) && !std::mem::replace(&mut seen, true);
            if first {
                warning.arm = None;
            }
            first || !few(warning)
        });
    }
}
