//! Records of several points, from files to the summary.

use std::path::{Path, PathBuf};

use tcptoll_core::record::{
    Arm, Header, Line, Metric, Missing, NotMerged, Passport, RECORD_VERSION, StartAsked, Summary,
    Trial, Verdict, Warmup,
};
use tcptoll_core::stats::Histogram;
use tcptoll_core::study::Study;
use tcptoll_core::verdict::warning::Warning;

use crate::merged::MergedRecord;
use crate::record::{ReadError, Record};
use crate::runner::{MergeOptions, merge, summarise_points};

fn study() -> Study {
    let text = "question = 'longer?'\nexperiment = 'connect'\nmargin = '1%'\n[settings]\ncount = 100\n\
                [factors]\nbacklog = [4, 128]\n[rounds]\nfixed = 6\n[[compare]]\nall_pairs = true\n";
    Study::from_toml(text).unwrap()
}

/// Handshakes of one trial, ns: which they are follows from the point and the round.
fn latencies(point: u64, round: u64) -> Vec<u64> {
    (0..200).map(|at| 20_000 + (at * at * 37 + point * 1_009 + round * 503) % 90_000).collect()
}

fn trial(point: u64, round: u64, backlog: u64, ratio: f64) -> Trial {
    let mut histogram = Histogram::new();
    for ns in latencies(point, round) {
        histogram.record_ns(ns);
    }
    let off = if round.is_multiple_of(2) { 1.01 } else { 0.99 };
    let value = if backlog == 4 { 100.0 } else { 100.0 * ratio * off };
    let metric = Metric { value, unit: "us".into(), ci95: None, median: None, n: 200 };
    let arm = Arm {
        name: format!("backlog {backlog}"),
        factors: [("backlog".to_owned(), backlog.into())].into(),
        attempts: 200,
        ok: 200,
        metrics: [("connect_us_mean".to_owned(), metric)].into(),
        histograms: [("connect_us".to_owned(), histogram.summary_us())].into(),
        ..Arm::default()
    };
    Trial { round: round as u32, arm, took_s: 0.1 + 0.001 * point as f64, ..Trial::default() }
}

fn header(point: u64, study: &Study) -> Header {
    Header {
        record_version: RECORD_VERSION,
        experiment: study.experiment.clone(),
        study: study.clone(),
        command: vec!["tcptoll".into(), "study".into()],
        started_at: format!("2026-01-01T00:00:{:02}Z", point % 60),
        seed: point,
        tcptoll_version: "0.1.0".into(),
        vantage: Some(format!("p{point}")),
        start: None,
        link_tolerance: None,
        resolved: Vec::new(),
        passport: Passport { cpus: 2, ..Passport::default() },
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, lines: &[Line]) -> PathBuf {
        let path = self.0.path().join(name);
        let texts = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n");
        std::fs::write(&path, texts.collect::<String>()).unwrap();
        path
    }

    /// A whole record of this point: its summary says that its plan is complete.
    fn point(&self, point: u64, ratio: f64) -> PathBuf {
        self.point_of(point, ratio, &study(), &format!("p{point}.jsonl"))
    }

    fn point_of(&self, point: u64, ratio: f64, study: &Study, name: &str) -> PathBuf {
        let mut lines = vec![Line::Header(Box::new(header(point, study)))];
        for round in 0..6 {
            for backlog in [4, 128] {
                lines.push(Line::Trial(Box::new(trial(point, round, backlog, ratio))));
            }
        }
        lines.push(Line::Summary(Box::new(Summary { valid: true, ..Summary::default() })));
        self.write(name, &lines)
    }
}

fn merged(paths: &[PathBuf]) -> MergedRecord {
    merge(paths, MergeOptions::default()).unwrap()
}

fn reasons(not_merged: &[NotMerged]) -> Vec<&str> {
    not_merged.iter().map(|one| one.reason.as_str()).collect()
}

#[test]
fn merged_histograms_are_those_of_the_union_exactly() {
    let folder = Folder::new();
    let paths: Vec<PathBuf> = (0..4).map(|point| folder.point(point, 1.0)).collect();
    let summary = merged(&paths).summary.unwrap();
    let mut union = Histogram::new();
    for (point, round) in (0..4).flat_map(|point| (0..6).map(move |round| (point, round))) {
        for ns in latencies(point, round) {
            union.record_ns(ns);
        }
    }
    for arm in &summary.arms {
        assert_eq!(arm.histograms["connect_us"], union.summary_us());
        assert_eq!((arm.attempts, arm.ok), (4 * 6 * 200, 4 * 6 * 200));
    }
}

#[test]
fn a_doubt_of_the_merge_is_not_said_again_for_its_points() {
    let folder = Folder::new();
    let paths: Vec<PathBuf> = (0..9).map(|point| folder.point(point, 1.0)).collect();
    // The kernel clamped both backlogs to the same value, at every point and so in the merge.
    for path in &paths {
        let record = std::fs::read_to_string(path).unwrap();
        let server = r#""server":{"listeners":[{"address":"10.77.0.2","port":80,"accept_queue_peak":1,"accept_queue_limit":4}]}"#;
        let clamped = record.replace("\"attempts\":200", &format!("{server},\"attempts\":200"));
        assert_ne!(clamped, record);
        std::fs::write(path, clamped).unwrap();
    }
    let warnings = merged(&paths).summary.unwrap().warnings;
    let same: Vec<_> = warnings.iter().filter(|one| one.id == "same-effective-value").collect();
    assert!(same.len() == 1 && !same[0].text.contains("also at"), "{warnings:?}");
}

#[test]
fn fifteen_points_have_a_verdict_and_fewer_have_their_own() {
    let folder = Folder::new();
    let paths: Vec<PathBuf> = (0..15).map(|point| folder.point(point, 0.8)).collect();
    let summary = merged(&paths).summary.unwrap();
    assert_eq!(summary.comparisons[0].verdict, Verdict::Lower);
    assert!(summary.valid && !summary.partial, "{:?}", summary.warnings);
    assert_eq!(summary.arms[0].metrics["connect_us_mean"].n, 15);
    assert!(
        summary.answer.ends_with("Over 15 points, backlog 128 is lower than backlog 4."),
        "{}",
        summary.answer
    );
    let summary = merged(&paths[..14]).summary.unwrap();
    assert_eq!(summary.comparisons[0].verdict, Verdict::NotEnough);
    assert!(
        summary
            .answer
            .contains("14 points are too few for a verdict, which takes 15; single points: "),
        "{}",
        summary.answer
    );
}

#[test]
fn what_was_written_says_the_same_when_it_is_read_and_merged_again() {
    let folder = Folder::new();
    let paths: Vec<PathBuf> = (0..3).map(|point| folder.point(point, 0.8)).collect();
    let first = merged(&paths);
    let path = folder.0.path().join("all.jsonl");
    first.write(&path).unwrap();
    let read = MergedRecord::open(&path).unwrap().unwrap();
    assert_eq!(read.summary, first.summary);
    assert_eq!(summarise_points(&read), first.summary);
    let more = merged(&[path.clone(), folder.point(3, 0.8)]);
    assert_eq!(more.points.len(), 4);
    // Neither a copy of a file beside it, nor anything else is left in the folder.
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 5);
    assert!(matches!(Record::read(&path), Err(ReadError::Merged)));
}

#[test]
fn what_does_not_belong_is_left_out_and_named() {
    let folder = Folder::new();
    let good = folder.point(0, 0.8);
    let copy = folder.0.path().join("copy.jsonl");
    std::fs::copy(&good, &copy).unwrap();
    let mut other = study();
    other.settings.insert("count".into(), 200.into());
    let mut named = header(7, &study());
    named.vantage = Some("p0".into());
    let hostile = Header { vantage: Some("../../etc\u{1b}[2J".into()), ..header(8, &study()) };
    let paths = [
        good,
        folder.point(1, 0.8),
        copy,
        folder.point_of(2, 0.8, &other, "other.jsonl"),
        folder.write(
            "twin.jsonl",
            &[Line::Header(Box::new(named)), Line::Trial(Box::new(trial(7, 0, 4, 1.0)))],
        ),
        folder.write(
            "hostile.jsonl",
            &[Line::Header(Box::new(hostile)), Line::Trial(Box::new(trial(8, 0, 4, 1.0)))],
        ),
        folder.write("empty.jsonl", &[Line::Header(Box::new(header(9, &study())))]),
        folder.0.path().join("missing.jsonl"),
    ];
    let damaged = folder.0.path().join("damaged.jsonl");
    let text = std::fs::read_to_string(&paths[1]).unwrap();
    std::fs::write(&damaged, text.replacen("\"attempts\":200", "\"attempts\":-1", 1)).unwrap();
    let record = merged(&[&paths[..], &[damaged]].concat());
    assert_eq!(record.points.len(), 2);
    let reasons = reasons(&record.merged.not_merged);
    let expected = [
        "No such file or directory",
        "line 2 is damaged",
        "is not a valid point name",
        "stopped before its first trial ended",
        "it is the same run as",
        "its study is not that of the other records: its option count is 200, not 100",
        "is of the same point, p0: merge one record of each point",
    ];
    for words in expected {
        assert!(reasons.iter().any(|reason| reason.contains(words)), "{words}: {reasons:?}");
    }
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    assert!(!reasons.iter().any(|reason| reason.contains('\u{1b}')));
    let summary = record.summary.unwrap();
    assert!(summary.partial && summary.valid);
    assert!(summary.warnings.iter().any(|warning| warning.id == "not-merged"));
}

#[test]
fn the_study_is_that_of_most_records_whichever_comes_first() {
    let folder = Folder::new();
    let mut other = study();
    other.settings.insert("count".into(), 200.into());
    let foreign = folder.point_of(0, 0.8, &other, "foreign.jsonl");
    let record = merged(&[foreign, folder.point(1, 0.8), folder.point(2, 0.8)]);
    assert_eq!(record.points.len(), 2);
    assert_eq!(record.merged.not_merged.len(), 1);
}

#[test]
fn points_without_a_record_make_the_result_partial() {
    let folder = Folder::new();
    let missing = |point: &str| Missing { point: point.into(), reason: "down".into() };
    let options =
        MergeOptions { missing: vec![missing("sgp1"), missing("p0")], ..MergeOptions::default() };
    let record = merge(&[folder.point(0, 0.8)], options).unwrap();
    // A point that has a record after all is not missing.
    assert_eq!(record.merged.missing, [missing("sgp1")]);
    let summary = record.summary.unwrap();
    assert!(summary.partial);
    let warning = &summary.warnings[0];
    assert_eq!(warning.id, "points-missing");
    assert!(
        warning.text.starts_with("1 of 2 points has no record: sgp1 (down)"),
        "{}",
        warning.text
    );
}

#[test]
fn nothing_to_merge_is_an_error_that_names_the_files() {
    let folder = Folder::new();
    let error = merge(&[folder.0.path().join("no.jsonl")], MergeOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("no record can be merged:\n  ") && text.contains("no.jsonl"),
        "{text}"
    );
}

#[test]
fn a_merged_record_that_is_cut_or_changed_is_refused() {
    let folder = Folder::new();
    let record = merged(&[folder.point(0, 0.8), folder.point(1, 0.8)]);
    let path = folder.0.path().join("all.jsonl");
    record.write(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let open = |text: &str| {
        std::fs::write(&path, text).unwrap();
        MergedRecord::open(Path::new(&path))
    };
    for (what, text) in [
        ("a point is gone", lines[..10].concat()),
        ("the end of a line is gone", text[..text.len() - 5].to_owned()),
        ("only the first line is left", lines[0].to_owned()),
        ("a trial before its header", [lines[0], lines[2]].concat()),
        ("a header more", [&text, lines[1]].concat()),
        ("two first lines", [lines[0], &text].concat()),
    ] {
        assert!(matches!(open(&text), Err(ReadError::Cut)), "{what}");
    }
    let newer = text.replacen("\"record_version\":2", "\"record_version\":9", 1);
    assert!(matches!(open(&newer), Err(ReadError::TooNew(9))));
    assert!(matches!(open("{\"line\":\"merged\"}\n"), Err(ReadError::Damaged { number: 1, .. })));
    assert!(open("").unwrap().is_none());
}

/// Three machines share 100 requests a second for 1 s: 34, 33 and 33.
fn share(folder: &Folder, part: u64, attempts: u64) -> PathBuf {
    let text = format!(
        "question = 'fast?'\nexperiment = 'http'\n[settings]\nurl = 'http://127.0.0.1:80/'\nrate = 100\n\
         duration = '1s'\nshare = '{part}/3'\n[rounds]\nfixed = 2\n"
    );
    let study = Study::from_toml(&text).unwrap();
    let start = StartAsked { at: "2026-01-01T00:00:00Z".into(), every_s: 3.0, clock_ahead_s: 0.1 };
    let header = Header { seed: 7, start: Some(start), ..header(part, &study) };
    let mut lines = vec![Line::Header(Box::new(header))];
    for round in 0..2 {
        let mut histogram = Histogram::new();
        latencies(part, round)
            .into_iter()
            .take(attempts as usize)
            .for_each(|ns| histogram.record_ns(ns));
        let metric = |value: f64, unit: &str| Metric {
            value,
            unit: unit.into(),
            ci95: None,
            median: None,
            n: attempts,
        };
        let arm = Arm {
            name: "http".into(),
            attempts,
            ok: attempts,
            metrics: [
                ("requests_per_s".to_owned(), metric(33.3, "1/s")),
                ("client_cpu_us_per_op".to_owned(), metric(10.0 * part as f64, "us")),
                ("accept_queue_peak".to_owned(), metric(3.0, "connections")),
                ("latency_us_mean".to_owned(), metric(1.0, "us")),
            ]
            .into(),
            histograms: [("latency_us".to_owned(), histogram.summary_us())].into(),
            warmup: Some(Warmup { elapsed_s: part as f64, attempts: 5, ..Warmup::default() }),
            ..Arm::default()
        };
        let trial = Trial {
            round: round as u32,
            arm,
            start_late_s: Some(0.001 * part as f64),
            took_s: part as f64,
            ..Trial::default()
        };
        lines.push(Line::Trial(Box::new(trial)));
    }
    lines.push(Line::Summary(Box::new(Summary { valid: true, ..Summary::default() })));
    folder.write(&format!("share{part}.jsonl"), &lines)
}

#[test]
fn shares_of_a_load_are_added_up() {
    let folder = Folder::new();
    let paths = [share(&folder, 1, 34), share(&folder, 2, 33), share(&folder, 3, 33)];
    let options = MergeOptions { clock_bound_s: Some(0.004), ..MergeOptions::default() };
    let summary = merge(&paths, options).unwrap().summary.unwrap();
    let split = summary.points.as_ref().unwrap().split.clone().unwrap();
    assert_eq!((split.due[0].asked, split.due[0].due, split.due[0].rounds), (200, 200, 2));
    assert!((split.apart_s.unwrap() - 0.002).abs() < 1e-12);
    let arm = &summary.arms[0];
    assert_eq!((arm.attempts, arm.ok), (200, 200));
    assert!((arm.metrics["requests_per_s"].value - 99.9).abs() < 1e-9);
    // (34 · 10 + 33 · 20 + 33 · 30) / 100.
    assert!((arm.metrics["client_cpu_us_per_op"].value - 19.9).abs() < 1e-9);
    assert!(!arm.metrics.contains_key("accept_queue_peak"));
    // Of each of the two rounds, the longest warm-up: the machines did it at the same time.
    let warmup = arm.warmup.as_ref().unwrap();
    assert!((warmup.elapsed_s - 6.0).abs() < 1e-9 && warmup.attempts == 30, "{warmup:?}");
    let mut union = Histogram::new();
    for (part, count) in [(1, 34), (2, 33), (3, 33)] {
        for round in 0..2 {
            latencies(part, round).into_iter().take(count).for_each(|ns| union.record_ns(ns));
        }
    }
    assert_eq!(arm.histograms["latency_us"], union.summary_us());
    assert!(summary.valid && !summary.partial, "{:?}", summary.warnings);
}

#[test]
fn a_share_that_had_other_requests_due_than_its_part_makes_the_figures_invalid() {
    let folder = Folder::new();
    let paths = [share(&folder, 1, 34), share(&folder, 2, 33), share(&folder, 3, 32)];
    let summary = merged(&paths).summary.unwrap();
    assert!(!summary.valid);
    assert!(
        summary.warnings.iter().any(|warning| warning.id == "due-differs"),
        "{:?}",
        summary.warnings
    );
}

#[test]
fn without_one_share_there_is_no_figure_of_the_whole_load() {
    let folder = Folder::new();
    let paths = [share(&folder, 1, 34), share(&folder, 3, 33)];
    let summary = merged(&paths).summary.unwrap();
    assert!(summary.partial && !summary.valid);
    let missing = summary.warnings.iter().find(|warning| warning.id == "shares-missing").unwrap();
    assert!(missing.text.contains("share 2/3 has no trial"), "{}", missing.text);
    let split = summary.points.unwrap().split.unwrap();
    assert_eq!((split.rounds, split.due[0].rounds, split.apart_s), (2, 0, None));
    let again = folder.0.path().join("again.jsonl");
    let text = std::fs::read_to_string(&paths[1]).unwrap();
    let text = text.replace("\"p3\"", "\"p4\"").replace("\"took_s\":3.0", "\"took_s\":4.0");
    std::fs::write(&again, text).unwrap();
    let twice = merged(&[paths[0].clone(), paths[1].clone(), again]);
    assert!(reasons(&twice.merged.not_merged)[0].ends_with("has the same share of the load, 3/3"));
}

#[test]
fn shares_that_did_not_run_at_the_same_time_are_no_load() {
    let folder = Folder::new();
    let with = |from: &str, to: &str| {
        let paths = [share(&folder, 1, 34), share(&folder, 2, 33), share(&folder, 3, 33)];
        let text = std::fs::read_to_string(&paths[1]).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&paths[1], text.replacen(from, to, 1)).unwrap();
        merged(&paths).summary.unwrap()
    };
    for (from, to, says) in [
        (
            "00:00:00Z\",\"every_s",
            "00:00:22Z\",\"every_s",
            "p2 was to begin at 2026-01-01T00:00:22Z",
        ),
        ("\"every_s\":3.0", "\"every_s\":4.0", "p2 was to begin"),
        ("\"seed\":7", "\"seed\":8", "p2 and p1 have different seeds"),
    ] {
        let summary = with(from, to);
        assert!(!summary.valid, "{from}");
        let apart = summary.warnings.iter().find(|warning| warning.id == "shares-apart").unwrap();
        assert!(apart.text.contains(says), "{}", apart.text);
        assert_eq!(summary.points.unwrap().split.unwrap().apart_s, None);
    }
    // A time that nobody recorded makes it unknown, and no other figure wrong.
    let summary = with("\"start_late_s\":0.002,", "");
    assert_eq!(summary.points.unwrap().split.unwrap().apart_s, None);
}

#[test]
fn what_merged_records_were_merged_with_goes_on_to_hold() {
    let folder = Folder::new();
    let missing = vec![Missing { point: "sgp1".into(), reason: "down".into() }];
    let twice = [missing.clone(), missing].concat();
    let clock_bound_s = Some(0.001);
    let options = MergeOptions {
        margin: Some(0.5),
        missing: twice,
        clock_bound_s,
        ..MergeOptions::default()
    };
    let broken = folder.write("broken.jsonl", &[]);
    let paths = [folder.point(0, 0.8), folder.point(1, 0.8), broken.clone()];
    let first = merge(&paths, options.clone()).unwrap();
    let path = folder.0.path().join("all.jsonl");
    first.write(&path).unwrap();
    let again = merged(&[path.clone(), folder.point(2, 0.8)]);
    assert_eq!(again.merged.margin, Some(0.5));
    assert_eq!((again.merged.missing.len(), again.merged.not_merged.len()), (1, 1));
    // The clock of the further point was compared with no other.
    assert_eq!(again.merged.clock_bound_s, None);
    assert_eq!(merged(std::slice::from_ref(&path)).merged.clock_bound_s, Some(0.001));
    // Two merges that lack the same point, and the file that was broken.
    let other = folder.0.path().join("other.jsonl");
    merge(&[folder.point(3, 0.8)], options).unwrap().write(&other).unwrap();
    let repaired = folder.point_of(4, 0.8, &study(), "broken.jsonl");
    let all = merged(&[path, other, repaired]);
    assert_eq!((all.points.len(), all.merged.missing.len()), (4, 1));
    assert!(all.merged.not_merged.is_empty(), "{:?}", all.merged.not_merged);
}

#[test]
fn doubts_about_other_arms_are_not_taken_for_one() {
    let entry =
        |what: &str| Warning::FailuresDiffer { what: what.into(), a: 0.25, b: 0.0 }.entry(None);
    let warned = |what: &str| Summary { warnings: vec![entry(what)], ..Summary::default() };
    let folder = Folder::new();
    let record = merged(&[folder.point(0, 0.8), folder.point(1, 0.8)]);
    let own = [warned("backlog 4 against 8"), warned("backlog 16 against 8")];
    assert_eq!(super::super::merged_summary::warnings(&record.points, &own).len(), 2);
    let own = [warned("backlog 4 against 8"), warned("backlog 4 against 8")];
    assert_eq!(super::super::merged_summary::warnings(&record.points, &own).len(), 1);
}

#[test]
fn a_damaged_histogram_is_damage_and_not_an_absent_one() {
    let folder = Folder::new();
    let path = folder.point(1, 0.8);
    let text = std::fs::read_to_string(&path).unwrap();
    let at = text.find("\"hdr\":\"").unwrap() + 7;
    let end = at + text[at..].find('"').unwrap();
    std::fs::write(&path, format!("{}AAAA{}", &text[..at], &text[end..])).unwrap();
    let record = merged(&[folder.point(0, 0.8), path]);
    let reasons = reasons(&record.merged.not_merged);
    assert_eq!(reasons, ["the histogram connect_us of backlog 4 in round 1 is damaged"]);
}

#[test]
fn a_point_with_few_rounds_or_without_an_arm_is_in_no_figure() {
    let folder = Folder::new();
    let path = folder.point(1, 0.8);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let without = |keep: &dyn Fn(&str) -> bool| {
        std::fs::write(&path, lines.iter().copied().filter(|line| keep(line)).collect::<String>())
            .unwrap();
        merged(&[folder.point(0, 0.8), path.clone()]).summary.unwrap()
    };
    let few = without(&|line| !line.contains("\"round\":4") && !line.contains("\"round\":5"));
    let absent = without(&|line| !line.contains("\"name\":\"backlog 128\""));
    for (summary, says) in
        [(few, "4 whole rounds, 5 are needed"), (absent, "its record has no trial of backlog 128")]
    {
        let points = summary.points.unwrap().points;
        assert_eq!(points[1].left_out.as_deref(), Some(says));
        assert_eq!(summary.arms[0].attempts, 6 * 200);
        assert!(summary.partial);
    }
}
