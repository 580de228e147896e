//! Whole runs in milliseconds: the runner with an experiment that measures nothing.

mod fake;
mod points;

use std::path::PathBuf;

use tcptoll_core::record::{Lasting, PlaceKind, Summary, Trial, Verdict};
use tcptoll_core::study::Study;
use tcptoll_lab::lab::certification::Tolerance;
use tempfile::TempDir;

use super::*;
use fake::{Call, CallCounts, EXPECTED_S, Fake, Gives};

/// Two arms, `level a` and `level b`, with `more` of a study file.
fn study(more: &str) -> Study {
    let text = format!(
        "question = 'what?'\nexperiment = 'connect'\n{more}\n[factors]\nlevel = ['a', 'b']\n"
    );
    Study { experiment: "fake".to_owned(), ..Study::from_toml(&text).unwrap() }
}

fn fixed(rounds: u32) -> Study {
    study(&format!("[rounds]\nfixed = {rounds}"))
}

const COMPARED: &str = "[[compare]]\nall_pairs = true";

/// A run of a study, and what was seen of it.
struct Ran {
    folder: TempDir,
    interrupt: Interrupt,
    asked: CallCounts,
    /// Time left, s, at the beginning of each trial.
    left_s: Vec<f64>,
    run: Result<Run, RunError>,
}

impl Ran {
    fn record(&self) -> PathBuf {
        self.folder.path().join("record.jsonl")
    }

    fn read(&self) -> Record {
        Record::read(&self.record()).unwrap()
    }

    fn trials(&self) -> Vec<Trial> {
        self.read().trials().cloned().collect()
    }

    fn summary(&self) -> &Summary {
        &self.run.as_ref().unwrap().summary
    }

    /// Arm, round and attempt of each trial, in order of running.
    fn order(&self) -> Vec<(String, u32, u32)> {
        let key = |trial: Trial| (trial.arm.name, trial.round, trial.attempt);
        self.trials().into_iter().map(key).collect()
    }
}

fn options(record: PathBuf) -> RunOptions {
    RunOptions {
        vantage: None,
        start: None,
        command: vec!["tcptoll".to_owned()],
        record,
        record_is_named: true,
        seed: 7,
        tolerance: Tolerance::default(),
        tolerance_text: None,
        pcap: None,
        version: "0".to_owned(),
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        after_s: 0.0,
    }
}

fn run_it(study: &Study, fake: &'static Fake) -> Ran {
    let folder = TempDir::new().unwrap();
    let interrupt = Interrupt::new();
    let mut left_s = Vec::new();
    let schedule = Schedule::with(fake, study).unwrap();
    let options = options(folder.path().join("record.jsonl"));
    let run = run(schedule, &options, &interrupt, &mut |progress| {
        if progress.total == 0 {
            left_s.push(progress.left_s);
        }
    });
    Ran { folder, interrupt, asked: fake.asked(), left_s, run }
}

/// Goes on with the record of a run.
fn resume_it(ran: &Ran, study: &Study, fake: &'static Fake) -> Result<Run, RunError> {
    let (record, recorder) = Recorder::resume(&ran.record()).unwrap();
    let schedule = Schedule::with(fake, study).unwrap();
    let options = options(ran.record());
    resume(&record, recorder, schedule, &options, &Interrupt::new(), &mut |_| {})
}

fn figure(_: &Call<'_>) -> Gives {
    Gives::Figure(10.0)
}

#[test]
fn each_arm_is_planned_and_prepared_once_however_many_trials_it_has() {
    let ran = run_it(&fixed(9), Fake::new(figure));
    assert_eq!(ran.summary().rounds.as_ref().unwrap().done, 9);
    let CallCounts { plans, prepared, resolved, trials, witness } = &ran.asked;
    assert_eq!((*plans, *prepared, *resolved, trials.len()), (2, 2, 2, 18));
    // A closer look is taken once per arm.
    assert_eq!(witness.iter().filter(|witness| **witness).count(), 2);
    assert_eq!(witness[..2], [true, true]);
}

#[test]
fn a_setting_that_makes_no_sense_is_named_with_its_arm_and_nothing_is_run() {
    let fake = Fake::new(figure);
    let text = "question = 'what?'\nexperiment = 'connect'\n[factors]\nlevel = ['a', 'wrong']\n";
    let error = Schedule::with(fake, &Study::from_toml(text).unwrap()).err().unwrap();
    assert_eq!(error.to_string(), "arm level wrong: --level wrong: write a number");
    assert_eq!((fake.asked().prepared, fake.asked().trials.len()), (0, 0));
}

#[test]
fn an_arm_that_no_repetition_mends_is_repeated_in_its_first_round_only() {
    let ran = run_it(
        &fixed(3),
        Fake::new(|call| match call.arm {
            "level b" => Gives::Invalid(None),
            _ => Gives::Figure(10.0),
        }),
    );
    let of_b: Vec<(u32, u32)> = ran
        .order()
        .into_iter()
        .filter(|(arm, ..)| arm == "level b")
        .map(|(_, round, attempt)| (round, attempt))
        .collect();
    assert_eq!(of_b, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (2, 0)]);
    assert_eq!(of_b.iter().filter(|(round, _)| *round == 0).count(), ATTEMPTS_MAX as usize);
    let summary = ran.summary();
    assert!(!summary.valid && summary.rounds.as_ref().unwrap().excluded == 6);
}

#[test]
fn an_invalid_trial_is_repeated_until_one_counts_and_then_no_more() {
    let ran = run_it(
        &fixed(2),
        Fake::new(|call| match (call.arm, call.nth) {
            ("level a", 0 | 1) => Gives::Invalid(None),
            _ => Gives::Figure(10.0),
        }),
    );
    let attempts = |wanted: &str| -> Vec<(u32, u32)> {
        let order = ran.order().into_iter().filter(|(arm, ..)| arm == wanted);
        order.map(|(_, round, attempt)| (round, attempt)).collect()
    };
    assert_eq!(attempts("level a"), [(0, 0), (0, 1), (0, 2), (1, 0)]);
    assert_eq!(attempts("level b"), [(0, 0), (1, 0)]);
    let summary = ran.summary();
    assert!(summary.valid);
    assert_eq!((summary.excluded[0].trials, summary.excluded[0].of), (2, 4));
}

#[test]
fn a_reason_that_lasts_is_not_tried_again() {
    let ran = run_it(&fixed(2), Fake::new(|_| Gives::Invalid(Some(Lasting::ClientCpu))));
    assert_eq!(ran.order().len(), 4);
    assert!(ran.order().iter().all(|(.., attempt)| *attempt == 0));
    assert_eq!(ran.summary().excluded[0].lasting, Some(Lasting::ClientCpu));
}

#[test]
fn a_link_out_of_tolerance_is_measured_again_and_is_a_failure_in_the_end() {
    let ran = run_it(
        &fixed(1),
        Fake::new(|call| match call.arm {
            "level b" => Gives::OutOfTolerance,
            _ => Gives::Figure(10.0),
        }),
    );
    let of_b: Vec<Trial> = ran.trials().into_iter().filter(|t| t.arm.name == "level b").collect();
    assert_eq!(of_b.len(), ATTEMPTS_MAX as usize);
    let (last, before) = of_b.split_last().unwrap();
    assert!(before.iter().all(|trial| trial.invalid.is_some() && trial.arm.failure.is_none()));
    assert_eq!(last.arm.failure.as_deref(), Some("the link is too slow"));
    assert_eq!(last.invalid, None);
}

#[test]
fn what_failed_before_the_first_success_is_recorded_with_it_and_alone_it_is_an_error() {
    let half = run_it(
        &fixed(2),
        Fake::new(|call| match call.nth {
            0 if call.arm == "level a" => Gives::Failure,
            _ => Gives::Figure(10.0),
        }),
    );
    let failures: Vec<(String, Option<String>)> =
        half.trials().into_iter().map(|trial| (trial.arm.name, trial.arm.failure)).collect();
    assert_eq!(failures.len(), 4);
    let failed = failures.iter().filter(|(_, failure)| failure.is_some());
    assert_eq!(failed.map(|(arm, _)| arm.as_str()).collect::<Vec<_>>(), ["level a"]);
    assert_eq!(half.summary().rounds.as_ref().unwrap().failed, 1);

    let none = run_it(&fixed(2), Fake::new(|_| Gives::Failure));
    let error = none.run.as_ref().unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_interrupt()), ("nobody answers", false));
    // One round showed that nothing can be measured.
    assert_eq!(none.asked.trials.len(), 2);
    assert!(!none.record().exists(), "a record of nothing was left");
}

#[test]
fn failures_alone_are_a_result_where_they_are_expected_and_the_server_was_reached() {
    let expected = "failures = 'expected'\n[rounds]\nfixed = 1";
    let at_target = "failures = 'expected'\n[rounds]\nfixed = 1\n[settings]\nto = '192.0.2.1:80'";
    let errors = |opened| Fake::new(move |_| Gives::Errors(opened));
    let said = |study: Study, fake| {
        let run = run_it(&study, fake).run.unwrap();
        (run.nothing, run.summary.valid)
    };
    let none = Some("nothing was measured: 2 of 2 failed with reset".to_owned());
    // Failures were not asked for.
    assert_eq!(said(fixed(1), errors(None)), (none.clone(), false));
    // In the lab the server listens before any load.
    assert_eq!(said(study(expected), errors(None)), (None, true));
    // Nobody knows whether a server outside was there, unless a connection was opened.
    assert_eq!(said(study(at_target), errors(None)).0, none);
    assert_eq!(said(study(at_target), errors(Some(0))).0, none);
    assert_eq!(said(study(at_target), errors(Some(1))), (None, true));
    // One arm that fails is no result if the other has none either, and no fault if it has.
    let one = || {
        Fake::new(|call| match call.arm {
            "level a" => Gives::Errors(None),
            _ => Gives::Figure(10.0),
        })
    };
    assert_eq!(said(fixed(1), one()), (None, false));
    assert_eq!(said(study(expected), one()), (None, true));
}

#[test]
fn a_run_ends_when_every_comparison_has_its_verdict() {
    let fake = Fake::new(|call| Gives::Figure(if call.arm == "level a" { 10.0 } else { 20.0 }));
    let ran = run_it(&study(COMPARED), fake);
    let rounds = ran.summary().rounds.as_ref().unwrap();
    assert_eq!(rounds.done, 15, "the fewest of the default rule");
    assert_eq!(rounds.stopped, "every comparison has its verdict after 15 rounds");
    assert_eq!(ran.summary().comparisons[0].verdict, Verdict::Higher);
    assert!(ran.summary().answer.ends_with("the answer"), "{}", ran.summary().answer);
}

#[test]
fn a_time_limit_ends_a_run_before_a_round_that_would_exceed_it() {
    // A trial takes no time here, but nothing is known of that before it has been run.
    let limited = "[rounds]\nmax = 5\nmax_time = '1s'\ntarget = 'ci 1%'";
    let ran = run_it(&study(limited), Fake::new(|_| Gives::Invalid(Some(Lasting::ClientCpu))));
    let rounds = ran.summary().rounds.as_ref().unwrap();
    assert_eq!(rounds.done, 1, "no trial counts, so the next round is expected to take 14 s");
    assert!(rounds.stopped.starts_with("the time limit of 1 s "), "{}", rounds.stopped);
}

#[test]
fn the_time_left_is_that_of_the_plans_until_a_trial_shows_another() {
    let ran = run_it(&fixed(3), Fake::new(figure));
    assert_eq!(ran.left_s.len(), 6);
    assert!((ran.left_s[0] - 6.0 * EXPECTED_S).abs() < 1e-9, "{:?}", ran.left_s);
    // As the first trials did, unless those took longer because each was the first of its arm.
    let took: Vec<f64> = ran.trials().iter().map(|trial| trial.took_s.min(EXPECTED_S)).collect();
    let second = 2.0 * took[0] + 3.0 * EXPECTED_S;
    assert!((ran.left_s[1] - second).abs() < 1e-9, "{:?}", ran.left_s);
    let third = 2.0 * (took[0] + took[1]);
    assert!((ran.left_s[2] - third).abs() < 1e-9, "{:?}", ran.left_s);
    let limited = "[rounds]\nfixed = 3\nmax_time = '30s'";
    let ran = run_it(&study(limited), Fake::new(figure));
    assert!((ran.left_s[0] - 30.0).abs() < 1e-9, "{:?}", ran.left_s);
}

#[test]
fn a_signal_keeps_what_was_measured_and_names_how_to_go_on() {
    let fake = Fake::new(|call| {
        if call.nth == 1 {
            call.signal(15);
        }
        Gives::Figure(10.0)
    });
    let ran = run_it(&fixed(5), fake);
    let run = ran.run.as_ref().unwrap();
    assert_eq!((run.signal, ran.interrupt.signal()), (Some(15), Some(15)));
    assert!(run.summary.partial);
    assert_eq!(ran.order().len(), 3, "the trial that the signal found running is kept");
    let next = &run.summary.next[0].command;
    assert!(next.starts_with("tcptoll study --resume ") && next.ends_with("record.jsonl"));
}

#[test]
fn a_signal_before_anything_was_measured_leaves_no_record() {
    let ran = run_it(
        &fixed(5),
        Fake::new(|call| {
            call.signal(2);
            Gives::Failure
        }),
    );
    assert!(ran.run.as_ref().unwrap_err().is_interrupt());
    assert!(!ran.record().exists());
}

#[test]
fn a_run_that_goes_on_does_what_one_that_was_not_stopped_does() {
    let whole = run_it(&fixed(6), Fake::new(figure));
    for stopped_at in [1, 2, 4] {
        let stopped = run_it(
            &fixed(6),
            Fake::new(move |call| {
                if call.nth == stopped_at {
                    call.signal(15);
                }
                Gives::Figure(10.0)
            }),
        );
        let before = stopped.order().len();
        assert!(before < 12, "{before}");
        let fake = Fake::new(figure);
        let run = resume_it(&stopped, &fixed(6), fake).unwrap();
        assert_eq!(stopped.order(), whole.order());
        assert_eq!((run.summary.partial, run.signal), (false, None));
        assert_eq!(stopped.read().resumed().count(), 1);
        let CallCounts { plans, prepared, trials, .. } = fake.asked();
        assert_eq!((plans, prepared, trials.len()), (2, 2, 12 - before));
    }
}

#[test]
fn of_a_run_that_has_ended_nothing_is_run_and_nothing_written() {
    let whole = run_it(&fixed(2), Fake::new(figure));
    let text = std::fs::read(whole.record()).unwrap();
    let fake = Fake::new(figure);
    let run = resume_it(&whole, &fixed(2), fake).unwrap();
    assert_eq!(&run.summary, whole.summary());
    assert_eq!((fake.asked().prepared, fake.asked().trials.len()), (0, 0));
    assert_eq!(std::fs::read(whole.record()).unwrap(), text);
}

#[test]
fn names_are_taken_from_the_record_and_not_looked_up() {
    // `.example` has no address: a look-up would fail.
    let to = "[settings]\nto = 'db.example:5432'\n[rounds]\nfixed = 2";
    let folder = TempDir::new().unwrap();
    let known = [Resolved {
        name: "db.example:5432".to_owned(),
        addresses: vec!["10.0.0.1".to_owned()],
        used: "10.0.0.1".to_owned(),
    }];
    let mut schedule = Schedule::with(Fake::new(figure), &study(to)).unwrap();
    assert_eq!(schedule.resolve(&known).unwrap(), known);
    let options = options(folder.path().join("record.jsonl"));
    let first = run(schedule, &options, &Interrupt::new(), &mut |_| {}).unwrap();
    assert_eq!(first.summary.resolved, known);
    // The record of a run that was killed.
    let text = std::fs::read_to_string(&options.record).unwrap();
    let killed: Vec<&str> = text.lines().take(2).collect();
    std::fs::write(&options.record, killed.join("\n") + "\n").unwrap();
    let (record, recorder) = Recorder::resume(&options.record).unwrap();
    let schedule = Schedule::with(Fake::new(figure), &study(to)).unwrap();
    let again = resume(&record, recorder, schedule, &options, &Interrupt::new(), &mut |_| {});
    let again = again.unwrap();
    assert_eq!((again.summary.resolved.as_slice(), again.summary.partial), (&known[..], false));
}

#[test]
fn one_file_of_packets_is_of_one_trial() {
    let options = RunOptions { pcap: Some("x.pcapng".to_owned()), ..options(PathBuf::new()) };
    let schedule = Schedule::with(Fake::new(figure), &fixed(2)).unwrap();
    let error = run(schedule, &options, &Interrupt::new(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().starts_with("--pcap writes one file, "), "{error}");
}

#[test]
fn the_place_is_where_the_trials_ran_however_the_study_says_it() {
    let place = |body: &str| {
        let text = format!("question = 'what?'\nexperiment = 'connect'\n{body}");
        let study = Study::from_toml(&text).unwrap();
        let ran = run_it(&Study { experiment: "fake".to_owned(), ..study }, Fake::new(figure));
        let place = ran.summary().place.clone();
        (place.kind, place.target)
    };
    let (lab, target) = (PlaceKind::Lab, PlaceKind::Target);
    let here = Some("127.0.0.1:9".to_owned());
    assert_eq!(place("[settings]\nto = '127.0.0.1:9'"), (target, here.clone()));
    let arm = |name: &str, to: &str| format!("[[arm]]\nname = '{name}'\n{to}\n");
    let (nine, ten) = ("to = '127.0.0.1:9'", "to = '127.0.0.1:10'");
    assert_eq!(place(&(arm("a", nine) + &arm("b", nine))), (target, here));
    assert_eq!(place(&(arm("a", nine) + &arm("b", ten))), (target, None));
    assert_eq!(place("[factors]\nto = ['127.0.0.1:9', '127.0.0.1:10']"), (target, None));
    assert_eq!(place(&(arm("a", nine) + &arm("b", "level = 'x'"))), (lab, None));
    assert_eq!(place(&(arm("a", "level = 'x'") + &arm("b", nine))), (lab, None));
    assert_eq!(place(""), (lab, None));
}
