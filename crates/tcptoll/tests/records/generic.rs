//! Experiments that have no tables, or that this build does not know: their figures are shown under
//! their own names and with their recorded units.

use std::collections::BTreeMap;

use tcptoll_core::record::{Arm, Metric, Round, Rounds, Summary};
use tcptoll_core::stats::HistogramSummary;
use tcptoll_measure::experiments::REPORTS;
use tcptoll_show::TextStyle;

fn metric(value: f64, unit: &str) -> Metric {
    Metric { value, unit: unit.to_owned(), ci95: None, median: None, n: 1_000 }
}

/// A run of a later version.
fn datagrams() -> Summary {
    let metrics = [
        ("messages_per_s", metric(12_345.0, "1/s")),
        ("goodput_bytes_per_s", metric(25e6, "bytes/s")),
        ("cpu_us_per_op", metric(7.25, "us")),
    ];
    let message = HistogramSummary {
        count: 1_000,
        p50: Some(80.0),
        p99: Some(1_500.0),
        max: Some(2_000.0),
        ..HistogramSummary::default()
    };
    let arm = Arm {
        name: "datagrams".to_owned(),
        attempts: 1_000,
        ok: 991,
        errors: [("timeout".to_owned(), 9)].into(),
        metrics: metrics.map(|(name, metric)| (name.to_owned(), metric)).into(),
        histograms: BTreeMap::from([("message_us".to_owned(), message)]),
        ..Arm::default()
    };
    Summary {
        experiment: "datagrams".to_owned(),
        question: "How much does a socket carry?".to_owned(),
        answer: "12,345 messages per second.".to_owned(),
        arms: vec![arm],
        valid: true,
        ..Summary::default()
    }
}

fn all_forms(summary: &Summary) -> [(&'static str, String); 4] {
    let at = |width| REPORTS.text(summary, None, TextStyle { colour: false, width });
    let page = REPORTS.html(summary);
    let (body, _) = page.split_once("<script").unwrap();
    [
        ("80", at(80)),
        ("150", at(150)),
        ("html", body.replace('\u{a0}', " ")),
        ("md", REPORTS.markdown(summary)),
    ]
}

#[test]
fn an_unknown_experiment_is_shown_by_its_metrics_with_their_units() {
    for (form, shown) in all_forms(&datagrams()) {
        for figure in ["messages per second", "goodput", "200 Mbit/s", "7.25 µs", "message"] {
            assert!(shown.contains(figure), "no {figure} in {form}: {shown}");
        }
        assert!(shown.contains("12,345") && shown.contains("991 of 1,000"), "{form}: {shown}");
        let longest = shown.contains("2.00 ms") || shown.contains("2,000 µs");
        assert!(shown.contains("80.0") && longest, "{form}: {shown}");
        assert!(shown.contains("9 of 1,000 operations failed"), "{form}: {shown}");
        for word in ["connect latency", "µs/conn", "connections", "requests", "detected after"] {
            assert!(!shown.contains(word), "{word} in {form}: {shown}");
        }
    }
    assert!(REPORTS.csv(&datagrams()).contains("goodput_bytes_per_s,bytes/s"));
}

#[test]
fn the_metric_of_a_run_of_an_unknown_experiment_is_not_said_twice() {
    let mut summary = datagrams();
    summary.primary_metric = Some("messages_per_s".to_owned());
    summary.rounds = Some(Rounds {
        done: 15,
        most: 30,
        stopped: "every comparison has its verdict after 15 rounds".to_owned(),
        elapsed_s: 41.0,
        ..Rounds::default()
    });
    let round = |round| Round {
        round,
        metrics: [("messages_per_s".to_owned(), 12_345.0)].into(),
        ..Round::default()
    };
    summary.arms[0].rounds = (0..15).map(round).collect();
    for (form, shown) in all_forms(&summary) {
        if form != "html" {
            let said = shown.matches("messages per second").count();
            assert!(said <= 2, "{form}: {shown}");
            let ended = "Stopped after 15 rounds (of at most 30), 41 s: every comparison has its \
                         verdict.";
            let words: Vec<&str> = shown.split_whitespace().collect();
            assert!(words.join(" ").contains(ended), "{form}: {shown}");
        }
    }
}
