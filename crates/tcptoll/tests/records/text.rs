//! The terminal text of the records: what stands where, and that it stays text.

use std::path::Path;

use super::{HOSTILE, all, in_snapshots, load};
use tcptoll_core::record::{Comparison, Resolved, Round, Summary, Verdict, WarningEntry};
use tcptoll_measure::experiments::REPORTS;
use tcptoll_show::TextStyle;
use tcptoll_show::between::{self, Between};

const RECORD: &str = "/home/me/.local/share/tcptoll/connect-20261121-2104.jsonl";

fn plain(name: &str) -> String {
    REPORTS.text(&load(name), Some(Path::new(RECORD)), TextStyle::default())
}

#[test]
fn an_answer_is_at_most_three_sentences_and_400_characters() {
    for name in all() {
        let answer = load(name).answer;
        let starts = answer.match_indices(". ").filter(|(at, _)| {
            answer[at + 2..].starts_with(|next: char| next.is_uppercase() || next.is_ascii_digit())
        });
        assert!(starts.count() < 3, "{name}: {answer}");
        assert!(answer.chars().count() <= 400, "{name}: {} of {answer}", answer.chars().count());
    }
}

/// The first thing that people see, of all records.
#[test]
fn every_run_has_its_answer_on_one_screen() {
    let mut screens = String::new();
    for name in all() {
        let screen = REPORTS.brief(&load(name), "tcptoll report latest", TextStyle::default());
        let widest = screen.lines().map(|line| line.chars().count()).max();
        assert!(screen.lines().count() <= tcptoll_show::SCREEN, "{name}: {screen}");
        assert!(name == HOSTILE || widest.is_some_and(|columns| columns <= 80), "{name}: {screen}");
        screens += &format!("== {name}\n{screen}\n");
    }
    in_snapshots().bind(|| insta::assert_snapshot!("screens", screens));
}

#[test]
fn which_of_several_addresses_was_used_stands_above_the_answer() {
    let entry = |name: &str, addresses: &[&str]| Resolved {
        name: name.to_owned(),
        addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
        used: addresses[addresses.len() - 1].to_owned(),
    };
    let mut summary = load("connect");
    summary.resolved = vec![
        entry("db.example:5432", &["2001:db8::1", "192.0.2.2", "192.0.2.1"]),
        entry("one.example:80", &["192.0.2.9"]),
    ];
    let said = "db.example:5432 is 192.0.2.1 (1 of 3 addresses)";
    let text = REPORTS.text(&summary, Some(Path::new(RECORD)), TextStyle::default());
    let (above, _) = text.split_once(&summary.answer[..20]).unwrap();
    assert!(above.contains(said) && !text.contains("one.example"), "{text}");
    assert!(REPORTS.html(&summary).contains(said));
    assert!(REPORTS.markdown(&summary).contains(said));
}

#[test]
fn only_runs_that_checked_idle_connections_speak_of_them() {
    for name in all() {
        let mut summary = load(name);
        let words = ["detected after", "heartbeats", "wrongly closed", "packets/h"];
        let said = |text: &str| words.iter().any(|word| text.contains(word));
        assert_eq!(said(&plain(name)), name.starts_with("keepalive"), "{name}");
        summary.answer.clear();
        summary.causes.clear();
        summary.advice.clear();
        summary.next.clear();
        summary.experiment = "connect".to_owned();
        assert!(!said(&REPORTS.text(&summary, None, TextStyle::default())), "{name}");
    }
}

#[test]
fn detected_deaths_come_before_what_testing_took() {
    let text = plain("keepalive_cut");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in {text}"));
    assert!(at("detected after, s") < at("time and packets"));
    assert!(at("time and packets") < at("in the window"));
}

#[test]
fn the_ports_are_forecast_before_the_answer() {
    let summary = load("http_reuse");
    let text = REPORTS.text(&summary, None, TextStyle { colour: false, width: 300 });
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in {text}"));
    assert!(at("ports (reuse client-close): 28,232 local ports") < at("The rate is "));
}

#[test]
fn requests_have_no_column_that_says_connections() {
    for name in ["http_reuse", "http_rate", "http_study"] {
        let text = plain(name);
        assert!(text.contains("CPU µs/req") && !text.contains("µs/conn"), "{text}");
    }
}

#[test]
fn a_wide_terminal_has_verdicts_beside_the_rounds() {
    let mut summary = load("http_study");
    let baseline = summary.arms[0].name.clone();
    let comparison = |a: &str, ratio: f64, verdict| Comparison {
        metric: "requests_per_s".into(),
        a: a.into(),
        b: baseline.clone(),
        ratio: Some(ratio),
        ci95: Some([ratio * 0.9, ratio * 1.1]),
        verdict,
        ..Comparison::default()
    };
    summary.arms.truncate(3);
    summary.comparisons = vec![
        comparison(&summary.arms[1].name, 0.5, Verdict::Lower),
        comparison(&summary.arms[2].name, 3.0, Verdict::Higher),
    ];
    let text = REPORTS.text(&summary, None, TextStyle { colour: false, width: 150 });
    let of_baseline = |line: &&str| line.starts_with("  keep-alive, 1 ");
    let line = text.lines().find(of_baseline).expect("the table begins with it");
    assert!(line.ends_with('—'), "{line}");
    let line = text.lines().find(|line| line.contains("lower")).expect("a verdict");
    assert!(line.contains("×0.500") && line.contains("├●┤"), "{line}");
}

#[test]
fn more_comparisons_than_a_dozen_stand_in_a_table() {
    let mut summary = load("http_study");
    let one = Comparison {
        per: std::collections::BTreeMap::new(),
        verdict: Verdict::Lower,
        ..summary.comparisons[0].clone()
    };
    summary.comparisons = vec![one; 13];
    let text = REPORTS.text(&summary, None, TextStyle::default());
    let rows = text.lines().filter(|line| line.trim_end().ends_with("lower (worse)")).count();
    assert_eq!(rows, 13, "{text}");
}

/// The study against itself on another kernel, with its arms a little slower.
fn another_day() -> (Summary, Summary, Vec<Comparison>) {
    let (a, mut b) = (load("http_study"), load("http_study"));
    b.passport.kernel = "Linux 6.1.0".into();
    b.passport.governor = Some("powersave".into());
    b.command.push("--threads=2".into());
    b.arms.pop();
    let verdicts = [Verdict::Higher, Verdict::Lower, Verdict::NoDifference, Verdict::NotEnough];
    let compare = |(at, verdict): (usize, Verdict)| Comparison {
        metric: "requests_per_s".into(),
        a: a.arms[at].name.clone(),
        b: a.arms[at].name.clone(),
        ratio: Some([1.05, 0.95, 1.0, 1.02][at]),
        ci95: Some([[1.03, 1.07], [0.93, 0.97], [0.995, 1.005], [0.99, 1.05]][at]),
        margin: 0.01,
        rounds: 12,
        alpha: 0.0125,
        verdict,
        rank_test_p: Some([0.2, 0.0001, 0.7, 0.3][at]),
        ..Comparison::default()
    };
    let comparisons = verdicts.into_iter().enumerate().map(compare).collect();
    (a, b, comparisons)
}

#[test]
fn two_runs() {
    let (a, b, comparisons) = another_day();
    let warnings = [WarningEntry {
        about: None,
        id: "drift".into(),
        arm: None,
        text: "B ran while the machine was busy: load 3.1".into(),
    }];
    let view = Between {
        a: &REPORTS.run(a.clone()),
        b: &REPORTS.run(b.clone()),
        a_name: "keep-alive-20261121.jsonl",
        b_name: "keep-alive-20261122.jsonl",
        comparisons: &comparisons,
        warnings: &warnings,
    };
    in_snapshots()
        .bind(|| insta::assert_snapshot!("two_runs", between::text(&view, TextStyle::default())));
}

#[test]
fn a_quantile_of_two_runs_is_not_called_a_mean() {
    let run = load("connect_nine");
    let name = run.arms[0].name.clone();
    let c = Comparison {
        metric: "connect_us_p99".into(),
        a: name.clone(),
        b: name,
        ..Comparison::default()
    };
    let view = Between {
        a: &REPORTS.run(run.clone()),
        b: &REPORTS.run(run.clone()),
        a_name: "a.jsonl",
        b_name: "b.jsonl",
        comparisons: &[c],
        warnings: &[],
    };
    let text = between::text(&view, TextStyle::default());
    assert!(text.contains("A / B") && !text.contains("A mean"), "{text}");
}

#[test]
fn a_mark_is_a_round_up_to_twenty_and_says_if_it_is_more() {
    let mut summary = load("http_study");
    for arm in &mut summary.arms {
        let one = arm.rounds[0].clone();
        arm.rounds = (0..20).map(|round| Round { round, ..one.clone() }).collect();
    }
    let marks = |text: &str| {
        let row = text.lines().find(|line| line.starts_with("  keep-alive, 1 ")).expect("a row");
        row.chars().filter(|c| ('▁'..='█').contains(c)).count()
    };
    let wide = TextStyle { colour: false, width: 140 };
    let each = REPORTS.text(&summary, None, wide);
    assert_eq!(marks(&each), 20);
    assert!(!each.contains("each mark") && !each.contains("× an excluded"), "{each}");
    for arm in &mut summary.arms {
        arm.rounds.extend(arm.rounds.clone());
    }
    let shared = REPORTS.text(&summary, None, wide);
    assert_eq!(marks(&shared), 20);
    assert!(shared.contains("each mark: the mean of 2 rounds"), "{shared}");
}

#[test]
fn what_has_no_interval_has_a_dash_that_is_explained() {
    let mut summary = load("http_study");
    for arm in &mut summary.arms {
        for metric in arm.metrics.values_mut() {
            metric.ci95 = None;
        }
    }
    let text = REPORTS.text(&summary, None, TextStyle { colour: false, width: 140 });
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("no interval: too few rounds"), "{text}");
}

#[test]
fn two_runs_of_one_machine_say_so_and_hostile_ones_stay_text() {
    let (a, _, _) = another_day();
    let same = Between {
        a: &REPORTS.run(a.clone()),
        b: &REPORTS.run(a.clone()),
        a_name: "a",
        b_name: "b",
        comparisons: &[],
        warnings: &[],
    };
    let text = between::text(&same, TextStyle::default());
    assert!(text.contains("Same machine, kernel and version"), "{text}");
    assert!(text.contains("nothing to compare"), "{text}");
    let hostile = load("hostile");
    let view = Between {
        a: &REPORTS.run(hostile.clone()),
        b: &REPORTS.run(a.clone()),
        a_name: "\u{1b}[2J\n<img",
        comparisons: &hostile.comparisons,
        warnings: &hostile.warnings,
        ..same
    };
    let text = between::text(&view, TextStyle::default());
    let bad = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.chars().any(bad), "{text:?}");
}

#[test]
fn two_runs_against_two_addresses_of_one_name_say_so() {
    let at = |used: &str| {
        let mut summary = load("http_study");
        let (name, used) = ("db.example:80".to_owned(), used.to_owned());
        summary.resolved = vec![Resolved { name, addresses: vec![used.clone()], used }];
        summary
    };
    let [a, b] = ["192.0.2.1", "192.0.2.2"].map(at);
    let view = Between {
        a: &REPORTS.run(a.clone()),
        b: &REPORTS.run(b.clone()),
        a_name: "a",
        b_name: "b",
        comparisons: &[],
        warnings: &[],
    };
    let text = between::text(&view, TextStyle::default());
    let row = text.lines().find(|line| line.trim_start().starts_with("addresses")).unwrap();
    assert!(row.contains("is 192.0.2.1") && row.contains("is 192.0.2.2"), "{row}");
}

#[test]
fn no_string_of_a_summary_reaches_the_terminal_as_a_control() {
    let text = plain("hostile");
    let bad = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.chars().any(bad), "{text:?}");
    // A forged line would begin at the margin.
    assert!(!text.lines().any(|line| line.starts_with("<img")), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    // Faults: the views of a timeline far from whole round trips, and published figures with a
    // standard deviation.
    let known = ["connect_nine", "connect_resumed", "connect_stopped", "http_study"];
    let columns = |line: &str| unicode_width::UnicodeWidthStr::width(line);
    let mut wider = Vec::new();
    for name in all().filter(|name| *name != HOSTILE) {
        let summary = load(name);
        for width in [80, 100, 132] {
            let text = REPORTS.text(&summary, None, TextStyle { colour: false, width });
            if let Some(line) = text.lines().find(|line| columns(line) > width) {
                wider.push((name, width, line.to_owned()));
            }
        }
    }
    wider.retain(|(name, width, _)| *width > 80 || !known.contains(name));
    assert!(wider.is_empty(), "{wider:#?}");
}

#[test]
fn colour_adds_nothing_but_colour() {
    for name in all() {
        let summary = load(name);
        let coloured = REPORTS.text(&summary, None, TextStyle { colour: true, width: 80 });
        let mut without = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            without += before;
            rest = after.split_once('m').expect("a colour ends in m").1;
        }
        without += rest;
        assert_eq!(without, REPORTS.text(&summary, None, TextStyle::default()), "{name}");
    }
}
