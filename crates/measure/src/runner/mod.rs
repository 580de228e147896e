//! A study becomes rounds, rounds become trials, trials become a record and its summary.
//!
//! Every round runs every arm once, in an order shuffled anew. Each trial is on disk before the
//! next begins, so a run that was stopped or killed goes on with [`resume`]: what is to be done
//! next follows from the record alone.

mod conclusion;
mod gathered;
mod merged_summary;
mod options;
mod points;
mod schedule;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use tcptoll_core::record::{
    Arm, Header, Line, NextStep, Passport, RECORD_VERSION, Resolved, Resumed, StartAsked, Summary,
    Trial,
};
use tcptoll_core::study::PlannedArm;
use tcptoll_core::study::stop::Target;
use tcptoll_core::verdict::{compare, consolidate};
use tcptoll_core::{printable, study};
use tcptoll_lab::lab::certification::Certificate;
use tcptoll_lab::lab::{HostSource, Interrupt, LabError, Machine};
use tcptoll_lab::messages::Done;
use tcptoll_lab::passport;

use self::conclusion::RunState;
pub use self::options::{Progress, Run, RunError, RunOptions, StartAt};
pub use self::points::{MergeOptions, NothingToMerge, merge, summarise_points};
pub use self::schedule::Schedule;
use crate::kit::TrialError;
use crate::kit::plan::{Context, Outcome, Start};
use crate::record::{Record, Recorder};

/// An invalid trial is repeated this often, at most.
const RERUNS_MAX: u32 = 3;

/// Attempts of a trial, at most.
pub const ATTEMPTS_MAX: u32 = 1 + RERUNS_MAX;

/// A load that begins later than this after its time is excluded.
const START_LATE_MAX: Duration = Duration::from_millis(100);

/// Most trials of a run: its record stays readable.
const TRIALS_MAX: u64 = 100_000;

/// Runs a study. What of its schedule has not been prepared or resolved is so before the first trial.
///
/// Errors: only if nothing was measured. A trial that fails after others succeeded is recorded as
/// failed, and the round goes on.
pub fn run(
    mut schedule: Schedule,
    options: &RunOptions,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Run, RunError> {
    if options.pcap.is_some() && (schedule.arms.len() > 1 || schedule.rule.max > 1) {
        return Err(RunError::Trial(TrialError::Setting(format!(
            "--pcap writes one file, but there are {} arms in up to {} rounds: run one arm alone, with --rounds 1",
            schedule.arms.len(),
            schedule.rule.max
        ))));
    }
    schedule.prepare()?;
    schedule.installed()?;
    run_on(&Machine::default(), passport::read(), schedule, options, interrupt, progress)
}

/// As [`run`], with these hosts and on the machine that is described. Whether the programs that a trial starts are
/// on this machine is not asked.
fn run_on(
    hosts: &dyn HostSource,
    passport: Passport,
    mut schedule: Schedule,
    options: &RunOptions,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Run, RunError> {
    schedule.prepare()?;
    let resolved = schedule.resolve(&[])?.to_vec();
    let mut recorder = if options.record_is_named {
        Recorder::create(&options.record).map_err(|error| cannot(options, error))?
    } else {
        Recorder::create_with_folder(&options.record)
    };
    let header = Header {
        record_version: RECORD_VERSION,
        experiment: schedule.spec.name.to_owned(),
        study: schedule.study.clone(),
        command: options.command.clone(),
        started_at: options.started_at.clone(),
        seed: options.seed,
        tcptoll_version: options.version.clone(),
        vantage: options.vantage.clone(),
        start: options.start.as_ref().map(|start| StartAsked {
            at: start.at_text.clone(),
            every_s: start.every.as_secs_f64(),
            clock_ahead_s: start.clock_ahead_s,
        }),
        link_tolerance: options.tolerance_text.clone(),
        resolved,
        passport,
    };
    recorder.write(&Line::Header(Box::new(header.clone())));
    Runner::new(hosts, schedule, &header, options, interrupt, recorder).finish(progress)
}

/// Goes on with a run where it was stopped or killed: `record` is what `recorder` was opened with,
/// `schedule` that of its study. The study, the seed and the addresses of names are the record's; a trial that was not finished is
/// run again. Of a run that has come to its end nothing is run and nothing written.
///
/// Errors: as [`run`]; nothing is written before the next trial has begun.
pub fn resume(
    record: &Record,
    recorder: Recorder,
    mut schedule: Schedule,
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
    let mut known = header.resolved.clone();
    known.extend(record.resumed().flat_map(|resumed| resumed.resolved.clone()));
    schedule.take_addresses(&known);
    let options = RunOptions { seed: header.seed, ..options.clone() };
    let machine = Machine::default();
    let mut runner = Runner::new(&machine, schedule, header, &options, interrupt, recorder);
    runner.trials = record.trials().cloned().collect();
    runner.resumed = record.resumed().cloned().collect();
    let ended = runner.reached().is_some();
    if let (true, Some(summary)) = (ended, record.summary()) {
        return Ok(Run {
            summary: summary.clone(),
            record: runner.recorder.path().to_owned(),
            not_stored: None,
            signal: None,
            nothing: conclusion::nothing(summary, &runner.schedule),
        });
    }
    if !ended {
        runner.schedule.prepare()?;
        runner.schedule.installed()?;
        // A record from before addresses were recorded has none.
        let resolved = runner.schedule.resolve(&known)?;
        let is_new = |entry: &&Resolved| !known.contains(entry);
        let resolved = resolved.iter().filter(is_new).cloned().collect();
        let resumed = Resumed {
            at: options.started_at.clone(),
            after_s: options.after_s,
            command: options.command.clone(),
            resolved,
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
    let schedule = Schedule::from_study(&header.study).ok()?;
    let trials: Vec<Trial> = record.trials().cloned().collect();
    let resumed: Vec<Resumed> = record.resumed().cloned().collect();
    let stopped = if record.running { "the run is still running" } else { "the run was killed" };
    let ended =
        RunState { trials: &trials, resumed: &resumed, stopped, partial: true, steal: None };
    Some(conclusion::summary(header, &schedule, &ended))
}

fn cannot(options: &RunOptions, error: std::io::Error) -> RunError {
    RunError::Record { path: options.record.display().to_string(), error }
}

struct Runner<'a> {
    /// Where hosts come from: it keeps connections to hosts of the user's.
    hosts: &'a dyn HostSource,
    schedule: Schedule,
    header: &'a Header,
    options: &'a RunOptions,
    interrupt: &'a Interrupt,
    recorder: Recorder,
    certificates: BTreeMap<String, Certificate>,
    trials: Vec<Trial>,
    resumed: Vec<Resumed>,
    /// Trials that failed before any was measured; kept back, because a run that measures nothing
    /// leaves no record.
    held_back: Vec<Trial>,
    begun: Instant,
}

impl<'a> Runner<'a> {
    fn new(
        hosts: &'a dyn HostSource,
        schedule: Schedule,
        header: &'a Header,
        options: &'a RunOptions,
        interrupt: &'a Interrupt,
        recorder: Recorder,
    ) -> Self {
        Self {
            hosts,
            schedule,
            header,
            options,
            interrupt,
            recorder,
            certificates: BTreeMap::new(),
            trials: Vec::new(),
            resumed: Vec::new(),
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
                break ("a signal stopped the run".to_owned(), true);
            }
            if let Err(error) = self.round(self.rounds_done(), progress) {
                self.recorder.abandon();
                return Err(error.into());
            }
        };
        let steal = passport::steal_share(&stat_before, &stat());
        let ended = RunState {
            trials: &self.trials,
            resumed: &self.resumed,
            stopped: &stopped,
            partial,
            steal,
        };
        let mut summary = conclusion::summary(self.header, &self.schedule, &ended);
        if partial && !self.schedule.is_single() {
            summary.next.insert(0, go_on(self.recorder.path()));
        }
        self.recorder.write(&Line::Summary(Box::new(summary.clone())));
        Ok(Run {
            nothing: conclusion::nothing(&summary, &self.schedule),
            summary,
            record: self.recorder.path().to_owned(),
            not_stored: self.recorder.failure(),
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
        let Schedule { arms, pairs, margin, metric, rule, .. } = &self.schedule;
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
        // Each trial has a time of its own, and there is none for a repetition.
        let once = self.options.start.is_some();
        let settled = once || last.counts() || last.arm.failure.is_some() || last.lasting.is_some();
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
        let mut tell = |done: Done, total: u64| {
            progress(&Progress {
                arm: &planned.name,
                number: place as usize + 1,
                arms,
                round: round + 1,
                rounds,
                attempt,
                repeated_for: why.as_deref(),
                done: done.done,
                total,
                live: done.live,
                outstanding: done.outstanding,
                left_s,
            });
        };
        tell(Done::default(), 0);
        let began = Instant::now();
        let mut context = Context {
            interrupt: self.interrupt,
            progress: &mut tell,
            seed: study::seed_of_trial(self.header.seed, round, arm, attempt),
            round_seed: study::seed_of_round(self.header.seed, round),
            witness: self.options.start.is_none()
                && !self.trials.iter().any(|t| t.arm.name == planned.name && t.counts()),
            tolerance: self.options.tolerance,
            pcap: self.options.pcap.as_deref(),
            certificates: &mut self.certificates,
            hosts: self.hosts,
            start: self
                .options
                .start
                .as_ref()
                .map(|start| Start { at: start.of_trial(round * arms as u32 + place), late: None }),
        };
        let outcome = self.schedule.plan(arm).trial(planned, &mut context);
        let late = context.start.and_then(|start| start.late);
        let mut trial = Trial {
            start_late_s: late.map(|late| late.as_secs_f64()),
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
                if let Some(late) = late.filter(|late| *late > START_LATE_MAX) {
                    trial.invalid.get_or_insert_with(|| {
                        format!(
                            "its load began {:.1} s after its time, because the trial before ended too late: raise --every",
                            late.as_secs_f64()
                        )
                    });
                }
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
}

/// How to go on with a run that was stopped.
fn go_on(record: &Path) -> NextStep {
    NextStep {
        command: format!(
            "tcptoll study --resume {}",
            printable::shell_argument(&record.display().to_string())
        ),
        why: "continue where the run stopped".to_owned(),
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

impl Runner<'_> {
    /// What another round is expected to take, s: as the last ones did, where there are any.
    fn round_s(&self) -> f64 {
        (0..self.schedule.arms.len()).map(|arm| self.trial_s(arm)).sum()
    }

    /// As long as the last one that counts; the first one of an arm has also measured its link and
    /// looked closer.
    fn trial_s(&self, arm: usize) -> f64 {
        let name = &self.schedule.arms[arm].name;
        let last = self.trials.iter().rev().find(|t| t.arm.name == *name && t.counts());
        let expected_s = self.schedule.expected_s(arm);
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
        let of_this_round: f64 = (0..self.schedule.arms.len())
            .filter(|arm| self.next_attempt(done, *arm).is_none())
            .map(|arm| self.trial_s(arm))
            .sum();
        let all = f64::from(rule.max.saturating_sub(done)) * self.round_s() - of_this_round;
        let elapsed = conclusion::elapsed_s(&self.trials);
        rule.max_time.map_or(all, |limit| all.min(limit.as_secs_f64() - elapsed)).max(0.0)
    }
}

#[cfg(test)]
mod replay;

#[cfg(test)]
mod tests;
