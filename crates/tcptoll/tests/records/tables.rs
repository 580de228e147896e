//! The records as CSV and Markdown: read back as tables, and deaf to what is written in them.

use std::collections::BTreeMap;

use super::{all, load};
use tcptoll_measure::experiments::REPORTS;

/// Rows of a table as column to cell.
fn rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().expect("a heading").clone();
    let row = |record: csv::StringRecord| {
        heads.iter().zip(&record).map(|(head, cell)| (head.to_owned(), cell.to_owned())).collect()
    };
    reader.records().map(|record| row(record.expect("rows are equally long"))).collect()
}

fn of_kind<'a>(
    rows: &'a [BTreeMap<String, String>],
    kind: &'a str,
) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
    rows.iter().filter(move |row| row["kind"] == kind)
}

#[test]
fn both_figures_of_a_study_can_be_drawn_from_its_csv() {
    let summary = load("http_study");
    let rows = rows(&REPORTS.csv(&summary));
    let totals: Vec<_> =
        of_kind(&rows, "arm").filter(|row| row["metric"] == "requests_per_s").collect();
    assert_eq!(totals.len(), 6);
    for (row, arm) in totals.iter().zip(&summary.arms) {
        let metric = &arm.metrics["requests_per_s"];
        assert_eq!(row["factor_connections"], arm.factors["connections"].to_string());
        assert_eq!(Some(row["factor_reuse"].as_str()), arm.factors["reuse"].as_str());
        assert_eq!(row["value"], metric.value.to_string());
        assert_eq!(row["ci95_low"], metric.ci95.map_or(String::new(), |ci| ci[0].to_string()));
        assert_eq!(row["median"], metric.median.unwrap().to_string());
        assert_eq!(row["unit"], "1/s");
    }
    let ratios: Vec<_> = of_kind(&rows, "comparison").collect();
    assert_eq!(ratios.len(), summary.comparisons.len());
    for (row, c) in ratios.iter().zip(&summary.comparisons) {
        assert_eq!(row["value"], c.ratio.unwrap().to_string());
        assert_eq!(row["ci95_high"], c.ci95.map_or(String::new(), |ci| ci[1].to_string()));
        assert_eq!(row["verdict"], c.verdict.to_string());
        let level = c.per.get("connections").map_or(String::new(), ToString::to_string);
        assert_eq!(row["factor_connections"], level);
    }
    let of_published: Vec<_> = of_kind(&rows, "published").collect();
    assert_eq!(of_published[0]["value"], "13577");
    assert_eq!(of_published[0]["factor_connections"], "4");
}

#[test]
fn every_round_is_in_the_csv_and_says_if_it_does_not_count() {
    let mut summary = load("http_study");
    summary.arms[0].rounds[0].left_out = Some("late".into());
    let failed = &mut summary.arms[1].rounds[1];
    failed.metrics.clear();
    failed.left_out = Some("failed".into());
    let metrics = summary.arms[0].rounds[0].metrics.len();
    let rows = rows(&REPORTS.csv(&summary));
    let rounds: std::collections::BTreeSet<_> =
        of_kind(&rows, "round").map(|row| (&row["arm"], &row["round"])).collect();
    assert_eq!(rounds.len(), 6 * 2);
    let left_out: Vec<_> =
        of_kind(&rows, "round").filter(|row| !row["left_out"].is_empty()).collect();
    assert_eq!(left_out.len(), metrics + 1);
    let failed = left_out.iter().find(|row| row["metric"].is_empty()).expect("one has no value");
    assert_eq!((failed["round"].as_str(), failed["value"].as_str()), ("1", ""));
}

#[test]
fn quantiles_are_metrics_with_their_count() {
    let rows = rows(&REPORTS.csv(&load("connect")));
    let p50 = rows.iter().find(|row| row["metric"] == "connect_us_p50").expect("there are many");
    assert_eq!((p50["unit"].as_str(), p50["n"].as_str()), ("us", "60"));
    assert_eq!(p50["kind"], "arm_merged");
}

#[test]
fn no_two_rows_of_one_kind_and_arm_have_one_name() {
    for name in all() {
        let mut summary = load(name);
        for arm in &mut summary.arms {
            for key in ["connect_us_p99", "connect_us_mean", "latency_us_p50"] {
                let metric = serde_json::json!({"value": 1.0, "unit": "us", "n": 12});
                arm.metrics.insert(key.to_owned(), serde_json::from_value(metric).unwrap());
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        for row in rows(&REPORTS.csv(&summary)).iter().filter(|row| row["kind"].starts_with("arm"))
        {
            let key = [&row["kind"], &row["arm"], &row["metric"]].map(String::clone);
            assert!(seen.insert(key.clone()), "{name}: {key:?}");
        }
    }
}

#[test]
fn no_cell_is_a_formula_or_holds_a_control() {
    for name in all() {
        for row in rows(&REPORTS.csv(&load(name))) {
            for (head, cell) in row {
                let formula = cell.trim_start().starts_with(['=', '+', '-', '@']);
                assert!(!formula || cell.parse::<f64>().is_ok(), "{name} {head}: {cell}");
                assert!(!cell.contains(|c: char| c.is_control()), "{name} {head}: {cell:?}");
            }
        }
    }
}

#[test]
fn a_table_of_markdown_is_as_wide_in_every_row() {
    for name in all() {
        let text = REPORTS.markdown(&load(name));
        let mut width = None;
        for line in text.lines() {
            if line.starts_with('|') {
                // A pipe after an odd number of back-slashes is text.
                let plain = line.replace("\\\\", "").replace("\\|", "");
                let pipes = plain.matches('|').count();
                assert_eq!(*width.get_or_insert(pipes), pipes, "{name}: {line}");
            } else {
                width = None;
            }
        }
        assert!(text.ends_with('\n') && !text.contains('\u{1b}'), "{name}");
    }
}

#[test]
fn the_csv_of_keepalive_has_every_figure_once_and_in_its_own_unit() {
    let rows = rows(&REPORTS.csv(&load("keepalive_window")));
    let figures = |metric: &str| {
        let found = of_kind(&rows, "arm").filter(|row| row["metric"] == metric);
        found.map(|row| (row["value"].as_str(), row["unit"].as_str())).collect::<Vec<_>>()
    };
    assert_eq!(figures("keepalive_probes")[1], ("0", "probes"));
    assert_eq!(figures("checking_bytes")[1].1, "bytes");
    assert_eq!(figures("computed_packets_per_hour_per_socket")[1], ("7200", "1/h"));
    // Also a metric of the arm: it stands there with what the metric says, and not again.
    assert_eq!(figures("computed_packets_per_hour_per_socket").len(), 2);
    assert_eq!(figures("messages_per_s").len(), 2);
}

#[test]
fn the_csv_of_faults_says_in_words_what_is_no_figure() {
    let rows = rows(&REPORTS.csv(&load("keepalive_cut")));
    let cell = |arm: &str, metric: &str| {
        let found = of_kind(&rows, "arm").find(|row| row["arm"] == arm && row["metric"] == metric);
        found.map(|row| (row["value"].clone(), row["note"].clone()))
    };
    let words = |text: &str| Some((String::new(), text.to_owned()));
    assert_eq!(cell("mechanism lazy", "fault"), words("cut"));
    assert_eq!(cell("mechanism lazy", "known_by"), words("no acknowledgment (5)"));
    assert_eq!(cell("mechanism none", "dead_known"), Some(("0".to_owned(), String::new())));
    assert_eq!(cell("mechanism none", "known_after_s_max"), None);
}

#[test]
fn the_csv_of_http_has_connections_and_who_closed_them() {
    let rows = rows(&REPORTS.csv(&load("http_reuse")));
    let values = |metric: &str| {
        let found = of_kind(&rows, "arm").filter(|row| row["metric"] == metric);
        found.map(|row| row["value"].as_str()).collect::<Vec<_>>()
    };
    assert_eq!(values("connections_ok"), ["6", "148", "150"]);
    assert_eq!(values("closed_by_client"), ["0", "0", "150"]);
    assert_eq!(values("closed_by_server"), ["0", "148", "0"]);
    assert_eq!(values("client_time_wait"), ["2", "0", "50"]);
    assert_eq!(
        values("ports_sustained_per_s"),
        ["470.53333333333336"],
        "absent where ports do not limit"
    );
    let version = of_kind(&rows, "arm").find(|row| row["metric"] == "server_version");
    assert_eq!(version.map(|row| row["note"].as_str()), Some("nginx/1.22.1"));
}

#[test]
fn a_hostile_summary_opens_no_tag_in_markdown() {
    let text = REPORTS.markdown(&load("hostile"));
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        assert!(in_code || !line.contains('<'), "{line}");
    }
    assert!(!in_code);
}

#[test]
fn every_figure_of_a_real_record_is_described_by_its_experiment() {
    for name in super::NAMES {
        let summary = super::load(name);
        let spec = tcptoll_measure::experiments::find(&summary.experiment).unwrap();
        let (metrics, distributions) = (spec.metric_names(), spec.distributions());
        for arm in &summary.arms {
            for (metric, recorded) in &arm.metrics {
                assert!(metrics.contains(metric), "{name}: {metric}");
                let described = spec.metrics.iter().find(|spec| spec.name == metric);
                let unit = described.map_or("us", |spec| spec.unit);
                assert_eq!(recorded.unit, unit, "{name}: {metric}");
            }
            for distribution in arm.histograms.keys() {
                assert!(distributions.contains(&distribution.as_str()), "{name}: {distribution}");
            }
        }
    }
}
