//! A study becomes rounds, rounds become trials, trials become a record and its summary.
//!
//! Every round runs every arm once, in an order shuffled anew. Each trial is on disk before the
//! next begins, so a run that was stopped or killed goes on with [`resume`]: what is to be done
//! next follows from the record alone.

mod conclusion;
mod schedule;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tcptoll_model::record::{
    Arm, Header, Line, NextStep, RECORD_VERSION, Resolved, Resumed, Summary, Trial,
};
use tcptoll_model::stop::Target;
use tcptoll_model::study::{PlannedArm, Study};
use tcptoll_model::{compare, consolidate, order, shell};

use self::conclusion::Ended;
pub use self::schedule::Schedule;
use crate::experiments::{Context, Outcome, TrialError};
use crate::lab::certification::{Certificate, Tolerance};
use crate::lab::{Interrupt, LabError};
use crate::passport;
use crate::record::{Record, Recorder};

/// An invalid trial is repeated this often, at most.
const RERUNS_MAX: u32 = 3;

/// Attempts of a trial, at most.
pub const ATTEMPTS_MAX: u32 = 1 + RERUNS_MAX;

/// Most trials of a run: its record stays readable.
const TRIALS_MAX: u64 = 100_000;

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
    /// The same as it was typed, for the record.
    pub tolerance_text: Option<String>,
    /// Where to write packets.
    pub pcap: Option<String>,
    /// Version of the program.
    pub version: String,
    /// Names that have been resolved for this run; the others are resolved before its first trial.
    pub resolved: Vec<Resolved>,
    /// When the run begins, or goes on, RFC 3339.
    pub started_at: String,
    /// Seconds since the run first began; 0 unless it is resumed.
    pub after_s: f64,
}

/// How far a run has come.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The arm being run.
    pub arm: &'a str,
    /// Its place in the round, from 1.
    pub number: usize,
    /// Arms in all.
    pub arms: usize,
    /// The round, from 1.
    pub round: u32,
    /// Rounds at most.
    pub rounds: u32,
    /// 0 the first time; an invalid trial is repeated.
    pub attempt: u32,
    /// Why it is repeated, if it is.
    pub repeated_for: Option<&'a str>,
    /// Of this trial done: operations, or ms.
    pub done: u64,
    /// Of this trial planned, in the same; 0 before it has begun.
    pub total: u64,
    /// Time the rest of the run is expected to take from the beginning of this trial, s; the most
    /// it may take where a stop rule can end it sooner.
    pub left_s: f64,
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
    /// No such metric.
    #[error(
        "metric {metric}: there is no such metric; there are {there_are}, and quantiles of distributions like connect_us_p99"
    )]
    NoSuchMetric {
        /// As written.
        metric: String,
        /// The experiment's metrics.
        there_are: String,
    },
    /// More trials than a record may hold.
    #[error(
        "{arms} arms in up to {rounds} rounds are {} trials, at most {TRIALS_MAX} are run: give fewer levels or rounds",
        u64::from(*.rounds) * *.arms as u64
    )]
    TooManyTrials {
        /// Arms.
        arms: usize,
        /// Rounds, at most.
        rounds: u32,
    },
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
    /// There is nothing to go on with.
    #[error("the record {0} has no header of a run: begin anew")]
    NothingToResume(String),
    /// Its rounds and ours would not be of the same figures.
    #[error(
        "the record {path} has format {version}, in which rates and latencies are defined differently from format {RECORD_VERSION} of this tcptoll: begin a new run, or resume it with the tcptoll that began it"
    )]
    OlderFormat {
        /// Where.
        path: String,
        /// Its version.
        version: u32,
    },
}

impl RunError {
    /// Whether a signal stopped the run before anything was measured.
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::Trial(TrialError::Lab(LabError::Interrupted)))
    }
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
    /// Why nothing was measured although the run came to its end: no operation succeeded.
    pub nothing: Option<String>,
}

/// Runs a study.
///
/// Errors: only if nothing was measured. A trial that fails after others succeeded is recorded as
/// failed, and the round goes on.
pub fn run(
    study: &Study,
    options: &RunOptions,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Run, RunError> {
    let schedule = Schedule::of(study)?;
    if options.pcap.is_some() && (schedule.arms.len() > 1 || schedule.rule.max > 1) {
        return Err(RunError::Trial(TrialError::Setting(format!(
            "--pcap writes one file, and there are {} arms in up to {} rounds: run one arm alone, with --rounds 1",
            schedule.arms.len(),
            schedule.rule.max
        ))));
    }
    let resolved = schedule.resolve(&options.resolved)?;
    let mut recorder = Recorder::create(&options.record).map_err(|error| cannot(options, error))?;
    let header = Header {
        record_version: RECORD_VERSION,
        experiment: schedule.experiment.name().to_owned(),
        study: study.clone(),
        command: options.command.clone(),
        started_at: options.started_at.clone(),
        seed: options.seed,
        tcptoll_version: options.version.clone(),
        link_tolerance: options.tolerance_text.clone(),
        resolved,
        passport: passport::read(),
    };
    recorder.write(&Line::Header(Box::new(header.clone())));
    Runner::new(&schedule, &header, options, interrupt, recorder).finish(progress)
}

/// Goes on with a run where it was stopped or killed: `record` is what `recorder` was opened with.
/// The study, the seed and the addresses of names are the record's; a trial that was not finished is
/// run again. Of a run that has come to its end nothing is run and nothing written.
///
/// Errors: as [`run`]; nothing is written before the next trial has begun.
pub fn resume(
    record: &Record,
    recorder: Recorder,
    options: &RunOptions,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Run, RunError> {
    let Some(header) = record.header() else {
        return Err(RunError::NothingToResume(options.record.display().to_string()));
    };
    if header.record_version < RECORD_VERSION {
        let path = options.record.display().to_string();
        return Err(RunError::OlderFormat { path, version: header.record_version });
    }
    let schedule = Schedule::of(&header.study)?;
    let options = RunOptions { seed: header.seed, ..options.clone() };
    let mut runner = Runner::new(&schedule, header, &options, interrupt, recorder);
    runner.trials = record.trials().cloned().collect();
    runner.resumed = record.resumed().cloned().collect();
    runner.resolved.extend(runner.resumed.iter().flat_map(|resumed| resumed.resolved.clone()));
    let ended = runner.reached().is_some();
    if let (true, Some(summary)) = (ended, record.summary()) {
        return Ok(Run {
            summary: summary.clone(),
            record: runner.recorder.path().to_owned(),
            not_stored: None,
            signal: None,
            nothing: conclusion::nothing(summary),
        });
    }
    if !ended {
        // A record from before addresses were recorded has none.
        let known = std::mem::take(&mut runner.resolved);
        runner.resolved = schedule.resolve(&known)?;
        let is_new = |entry: &&Resolved| !known.contains(entry);
        let resumed = Resumed {
            at: options.started_at.clone(),
            after_s: options.after_s,
            command: options.command.clone(),
            resolved: runner.resolved.iter().filter(is_new).cloned().collect(),
            passport: passport::read(),
        };
        runner.recorder.write(&Line::Resumed(Box::new(resumed.clone())));
        runner.resumed.push(resumed);
    }
    runner.finish(progress)
}

/// The summary of a record: the one that closes it, or what its trials say if it was killed.
///
/// `None` if the record has no header, or its study is not one of this build.
pub fn summarise(record: &Record) -> Option<Summary> {
    if let Some(summary) = record.summary() {
        return Some(summary.clone());
    }
    let header = record.header()?;
    let schedule = Schedule::of(&header.study).ok()?;
    let trials: Vec<Trial> = record.trials().cloned().collect();
    let resumed: Vec<Resumed> = record.resumed().cloned().collect();
    let stopped = "the run was killed";
    let ended = Ended { trials: &trials, resumed: &resumed, stopped, partial: true, steal: None };
    Some(conclusion::of(header, &schedule, &ended))
}

fn cannot(options: &RunOptions, error: std::io::Error) -> RunError {
    RunError::Record { path: options.record.display().to_string(), error }
}

struct Runner<'a> {
    schedule: &'a Schedule,
    header: &'a Header,
    options: &'a RunOptions,
    interrupt: &'a Interrupt,
    recorder: Recorder,
    certificates: BTreeMap<String, Certificate>,
    trials: Vec<Trial>,
    resumed: Vec<Resumed>,
    /// Names of servers, and the address of each.
    resolved: Vec<Resolved>,
    /// Trials that failed before any was measured; kept back, because a run that measures nothing
    /// leaves no record.
    held_back: Vec<Trial>,
    begun: Instant,
}

impl<'a> Runner<'a> {
    fn new(
        schedule: &'a Schedule,
        header: &'a Header,
        options: &'a RunOptions,
        interrupt: &'a Interrupt,
        recorder: Recorder,
    ) -> Self {
        Self {
            schedule,
            header,
            options,
            interrupt,
            recorder,
            certificates: BTreeMap::new(),
            trials: Vec::new(),
            resumed: Vec::new(),
            resolved: header.resolved.clone(),
            held_back: Vec::new(),
            begun: Instant::now(),
        }
    }

    /// Runs what is left to run, and concludes.
    fn finish(mut self, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Run, RunError> {
        let stat = || std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let stat_before = stat();
        let (stopped, partial) = loop {
            if let Some(why) = self.reached() {
                break (why, false);
            }
            if self.interrupt.signal().is_some() {
                break ("a signal stopped it".to_owned(), true);
            }
            if let Err(error) = self.round(self.rounds_done(), progress) {
                self.recorder.abandon();
                return Err(error.into());
            }
        };
        let steal = passport::steal_share(&stat_before, &stat());
        let ended = Ended {
            trials: &self.trials,
            resumed: &self.resumed,
            stopped: &stopped,
            partial,
            steal,
        };
        let mut summary = conclusion::of(self.header, self.schedule, &ended);
        if partial && !self.schedule.is_single() {
            summary.next.insert(0, go_on(self.recorder.path()));
        }
        self.recorder.write(&Line::Summary(Box::new(summary.clone())));
        Ok(Run {
            nothing: conclusion::nothing(&summary),
            summary,
            record: self.recorder.path().to_owned(),
            not_stored: self.recorder.failure().map(ToString::to_string),
            signal: self.interrupt.signal().filter(|_| partial),
        })
    }

    /// Rounds with nothing left to run.
    fn rounds_done(&self) -> u32 {
        // Trials stand in the order of their rounds, also where a run went on.
        let Some(last) = self.trials.last().map(|trial| trial.round) else { return 0 };
        let arms = 0..self.schedule.arms.len();
        last + u32::from(arms.into_iter().all(|arm| self.next_attempt(last, arm).is_none()))
    }

    /// Why to stop, if the stop rule says so. Looked at between whole rounds only.
    fn reached(&self) -> Option<String> {
        let Schedule { arms, pairs, margin, metric, rule, .. } = self.schedule;
        let done = self.rounds_done();
        // What costs the more the longer a run is, is done only where the rule looks at it.
        let looks = rule.target != Target::Rounds && done >= rule.min;
        let compared =
            if looks { compare::within(pairs, arms, &self.trials, *margin) } else { Vec::new() };
        let consolidated = if looks && pairs.iter().all(|pair| pair.metric != *metric) {
            consolidate::arms(arms, &self.trials)
        } else {
            Vec::new()
        };
        let elapsed_s = conclusion::elapsed_s(&self.trials);
        let elapsed = Duration::try_from_secs_f64(elapsed_s).unwrap_or(Duration::MAX);
        rule.reached(done, elapsed, self.round_s(), &consolidated, metric, &compared)
    }

    /// Runs what is left of a round.
    ///
    /// Errors: if after the first round nothing has been measured at all.
    fn round(
        &mut self,
        round: u32,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<(), TrialError> {
        let mut first_error = None;
        let order = self.schedule.order(self.header.seed, round);
        for (place, arm) in order.into_iter().enumerate() {
            while let Some(attempt) = self.next_attempt(round, arm) {
                if self.interrupt.signal().is_some() {
                    break;
                }
                if let Some(error) = self.trial([round, place as u32, attempt], arm, progress) {
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) if self.trials.is_empty() => Err(error),
            // A signal before the first trial had anything to show.
            None if self.trials.is_empty() => Err(LabError::Interrupted.into()),
            _ => Ok(()),
        }
    }

    /// Which attempt of a trial is due: `None` once it counts, has failed, was excluded for what would
    /// be the same again, or was invalid at every attempt.
    fn next_attempt(&self, round: u32, arm: usize) -> Option<u32> {
        let name = &self.schedule.arms[arm].name;
        let mut of_arm = self
            .held_back
            .iter()
            .rev()
            .chain(self.trials.iter().rev())
            .filter(|trial| !trial.arm.partial && trial.arm.name == *name)
            .peekable();
        let Some(last) = of_arm.next_if(|trial| trial.round == round) else { return Some(0) };
        let settled = last.counts() || last.arm.failure.is_some() || last.lasting.is_some();
        if settled || last.attempt >= RERUNS_MAX {
            return None;
        }
        // An arm that no repetition mended in the round before is not repeated until one counts.
        let futile = of_arm.find(|trial| trial.round < round).is_some_and(|t| t.invalid.is_some());
        (!futile).then_some(last.attempt + 1)
    }

    /// Runs one trial and records it. Returns the error of a trial that failed.
    fn trial(
        &mut self,
        [round, place, attempt]: [u32; 3],
        arm: usize,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Option<TrialError> {
        let planned = &self.schedule.arms[arm];
        let rounds = self.schedule.rule.max;
        let (arms, left_s) = (self.schedule.arms.len(), self.left_s());
        let before = self.held_back.iter().rev().chain(self.trials.iter().rev());
        let mut of_place = before.filter(|t| t.round == round && t.arm.name == planned.name);
        let why = of_place.find_map(|trial| trial.invalid.clone()).filter(|_| attempt > 0);
        let mut tell = |done: u64, total: u64| {
            progress(&Progress {
                arm: &planned.name,
                number: place as usize + 1,
                arms,
                round: round + 1,
                rounds,
                attempt,
                repeated_for: why.as_deref(),
                done,
                total,
                left_s,
            });
        };
        tell(0, 0);
        let began = Instant::now();
        let mut context = Context {
            interrupt: self.interrupt,
            progress: &mut tell,
            seed: order::seed_of_trial(self.header.seed, round, arm, attempt),
            witness: !self.trials.iter().any(|t| t.arm.name == planned.name && t.counts()),
            tolerance: self.options.tolerance,
            pcap: self.options.pcap.as_deref(),
            resolved: &self.resolved,
            certificates: &mut self.certificates,
        };
        let outcome = self.schedule.experiment.run(planned, &mut context);
        let mut trial = Trial {
            round,
            order: place,
            attempt,
            began_s: self.options.after_s + (began - self.begun).as_secs_f64(),
            took_s: began.elapsed().as_secs_f64(),
            ..Trial::default()
        };
        let mut failure = None;
        let stopped = self.interrupt.signal().is_some();
        match outcome {
            Ok(Outcome { mut arm, warnings, invalid, lasting }) => {
                // What a signal may have spoilt is run again by a run that goes on.
                arm.partial |= stopped && invalid.is_some();
                (trial.arm, trial.warnings) = (arm, warnings);
                (trial.invalid, trial.lasting) = (invalid, lasting);
                // Two thirds of a trial's line; one round of it is enough to look at.
                if round > 0 {
                    trial.arm.series.clear();
                }
            }
            Err(_) if stopped => return None,
            Err(error) => {
                trial.arm = failed(planned, &error);
                // Another measurement of the link may be within tolerance; nothing else changes.
                if let TrialError::Lab(LabError::OutOfTolerance(why)) = &error
                    && attempt < RERUNS_MAX
                {
                    trial.invalid = Some(why.clone());
                    trial.arm.failure = None;
                }
                failure = Some(error);
            }
        }
        self.keep(trial, failure.is_some());
        failure
    }

    fn keep(&mut self, trial: Trial, failed: bool) {
        if failed && self.trials.is_empty() {
            self.held_back.push(trial);
            return;
        }
        for trial in self.held_back.drain(..).chain([trial]) {
            self.recorder.write(&Line::Trial(Box::new(trial.clone())));
            self.trials.push(trial);
        }
    }

    /// What another round is expected to take, s: as the last ones did, where there are any.
    fn round_s(&self) -> f64 {
        self.schedule.arms.iter().map(|arm| self.trial_s(arm)).sum()
    }

    /// As long as the last one that counts; the first one of an arm has also measured its link and
    /// looked closer.
    fn trial_s(&self, arm: &PlannedArm) -> f64 {
        let last = self.trials.iter().rev().find(|t| t.arm.name == arm.name && t.counts());
        let expected_s = self.schedule.experiment.expected_s(&arm.settings, &self.resolved);
        match last {
            Some(trial) if trial.round == 0 => {
                trial.took_s.min(expected_s.max(trial.arm.elapsed_s))
            }
            Some(trial) => trial.took_s,
            None => expected_s,
        }
    }

    /// What is left of the plan, if nothing is run again.
    fn left_s(&self) -> f64 {
        let rule = &self.schedule.rule;
        let done = self.rounds_done();
        let of_this_round: f64 = self
            .schedule
            .arms
            .iter()
            .enumerate()
            .filter(|(arm, _)| self.next_attempt(done, *arm).is_none())
            .map(|(_, arm)| self.trial_s(arm))
            .sum();
        let all = f64::from(rule.max.saturating_sub(done)) * self.round_s() - of_this_round;
        let elapsed = conclusion::elapsed_s(&self.trials);
        rule.max_time.map_or(all, |limit| all.min(limit.as_secs_f64() - elapsed)).max(0.0)
    }
}

/// How to go on with a run that was stopped.
fn go_on(record: &Path) -> NextStep {
    NextStep {
        command: format!(
            "tcptoll study --resume {}",
            shell::argument(&record.display().to_string())
        ),
        why: "go on where it was stopped".to_owned(),
    }
}

fn failed(planned: &PlannedArm, error: &TrialError) -> Arm {
    Arm {
        name: planned.name.clone(),
        factors: planned.factors.clone(),
        failure: Some(error.to_string()),
        ..Arm::default()
    }
}
