use std::collections::BTreeMap;

use tcptoll_core::record::{Arm, Metric, Sender, Summary, Transfer, Way};
use tcptoll_core::stats::{HistogramSummary, Series};
use tcptoll_core::study::Published;
use tcptoll_core::units::parse_size;
use tcptoll_show::run::Run;

use super::*;
use crate::experiments::REPORTS;
use tcptoll_core::sheet::Part;

/// A round trip under load.
const LOADED: &str = "loaded_rtt_us";

/// Payload of 1 Gbit/s, bytes/s.
const LINK: f64 = 117.6e6;

fn metric(value: f64, unit: &str) -> Metric {
    Metric { value, unit: unit.into(), ci95: None, median: None, n: 1 }
}

/// An arm named by its levels, as a run names it.
fn arm(levels: &[(&str, &str)], goodput: f64) -> Arm {
    let name: Vec<String> =
        levels.iter().map(|(factor, level)| format!("{factor} {level}")).collect();
    let factors = levels.iter().map(|(factor, level)| ((*factor).to_owned(), (*level).into()));
    Arm {
        name: name.join(", "),
        factors: factors.collect(),
        metrics: BTreeMap::from([(GOODPUT.name.to_owned(), metric(goodput, "bytes/s"))]),
        ..Arm::default()
    }
}

/// A window of the study at 10 ms: the effective window is a little larger than asked for.
fn windowed(levels: &[(&str, &str)], window: f64) -> Arm {
    let goodput = (window / 0.01).min(LINK);
    let sender = Sender { peer_window_bytes: Some(window), ..Sender::default() };
    let transfer = Transfer {
        connections: 1,
        link_bytes_per_s: Some(LINK),
        quiet_rtt_us: Some(10_000.0),
        up: Some(Way { sender, ..Way::default() }),
        ..Transfer::default()
    };
    Arm { own: transfer.into(), ..arm(levels, goodput) }
}

fn summary_of(experiment: &str, arms: Vec<Arm>) -> Run {
    REPORTS.run(Summary { experiment: experiment.into(), arms, ..Summary::default() })
}

fn windows() -> Run {
    let arms = ["64K", "16K", "1M"]
        .map(|level| windowed(&[("window", level)], parse_size(level).unwrap() as f64 * 1.15));
    let auto = windowed(&[("window", "auto")], 6e6);
    summary_of("stream", arms.into_iter().chain([auto]).collect())
}

fn messages() -> Run {
    let goodput = |level: &str, nagle: &str| {
        let bytes = parse_size(level).unwrap() as f64;
        (bytes / if nagle == "on" { 0.5e-6 } else { 2e-6 }).min(LINK)
    };
    let levels = ["1", "64", "1K", "16K"];
    let arms = levels.iter().flat_map(|level| {
        ["on", "off"]
            .map(|nagle| arm(&[("message", level), ("nagle", nagle)], goodput(level, nagle)))
    });
    summary_of("messages", arms.collect())
}

#[test]
fn a_window_study_shows_goodput_over_the_window_with_both_limits() {
    let picture = picture(&windows()).unwrap();
    // The 1M window could carry 965 Mbit/s in a round trip, the link 941.
    assert_eq!(
        picture.caption,
        "A window of 1 MiB gives the most, 941 Mbit/s; 16 KiB gives 15.1 Mbit/s; auto gives 941 Mbit/s."
    );
    let svg = picture.svg.to_string();
    assert!(svg.contains("link: 941 Mbit/s of payload"), "{svg}");
    assert!(svg.contains("limit: receive window / RTT of 10.0 ms"), "{svg}");
    assert!(svg.contains(">auto</text>") && svg.contains(">64K</text>"), "{svg}");
    assert!(svg.contains("window 16K: 15.1 Mbit/s"), "a tooltip for each arm: {svg}");
}

#[test]
fn levels_that_are_sizes_are_ordered_by_bytes_and_auto_stands_last() {
    let summary = windows();
    let lines = over(&summary);
    let sizes: Vec<Option<f64>> = lines[0].all[0].points.iter().map(|point| point.size).collect();
    assert_eq!(sizes, [Some(16_384.0), Some(65_536.0), Some(1_048_576.0), None]);
    assert_eq!(lines[0].all[0].label, "");
}

#[test]
fn one_level_makes_no_picture() {
    let alone = summary_of("stream", vec![windowed(&[("window", "64K")], 75e3)]);
    assert!(picture(&alone).is_none());
    assert!(sections(&alone, Some(LOADED)).iter().all(|section| section.parts.is_empty()));
    let auto = windowed(&[("window", "auto")], 6e6);
    let with_auto = summary_of("stream", vec![windowed(&[("window", "64K")], 75e3), auto]);
    assert!(picture(&with_auto).is_none());
    assert!(picture(&summary_of("stream", Vec::new())).is_none());
}

#[test]
fn several_streams_have_a_window_each() {
    let mut summary = windows();
    for arm in &mut summary.summary.arms {
        arm.own.transfer.as_mut().unwrap().connections = 4;
    }
    let lines = over(&summary);
    let rate = limits(&lines[0]).windows[0].points[0][2];
    assert!((rate / (4.0 * 16_384.0 * 1.15 * 8.0 / 0.01) - 1.0).abs() < 1e-9, "{rate}");
    assert!(picture(&summary).unwrap().svg.to_string().contains("RTT of 10.0 ms × connections"));
}

#[test]
fn a_send_buffer_is_not_held_against_the_window_of_the_receiver() {
    let arms = ["16K", "64K"]
        .map(|level| windowed(&[("send-buffer", level)], parse_size(level).unwrap() as f64));
    let summary = summary_of("stream", arms.into());
    let lines = over(&summary);
    assert!(limits(&lines[0]).windows.is_empty());
    assert_eq!(limits(&lines[0]).links.len(), 1);
}

#[test]
fn congestion_controls_are_lines_that_share_a_limit() {
    let mut arms = Vec::new();
    for (congestion, share) in [("bbr", 0.9), ("cubic", 1.0)] {
        for level in ["16K", "64K"] {
            let window = parse_size(level).unwrap() as f64;
            let mut arm = windowed(&[("congestion", congestion), ("window", level)], window);
            arm.metrics.get_mut(GOODPUT.name).unwrap().value *= share;
            arms.push(arm);
        }
    }
    let summary = summary_of("stream", arms);
    let lines = over(&summary);
    let labels: Vec<&str> = lines[0].all.iter().map(|line| line.label.as_str()).collect();
    assert_eq!(labels, ["congestion bbr", "congestion cubic"]);
    assert_eq!(limits(&lines[0]).windows.len(), 1);
    let caption = picture(&summary).unwrap().caption;
    assert!(
        caption.contains("congestion cubic has ×1.11 the goodput of congestion bbr"),
        "{caption}"
    );
}

#[test]
fn the_heat_map_has_a_cell_per_size_and_way_with_its_figure() {
    let summary = messages();
    let lines = over(&summary);
    let heat = over::cells(&lines[0]).unwrap();
    assert_eq!(heat.svg.to_string().matches("class=\"heat ").count(), 8);
    assert!(heat.svg.to_string().contains(">1.7</text>"), "1 byte with Nagle: {}", heat.svg);
    assert_eq!(
        heat.caption,
        "From 1 KiB on, the ways of sending are within 5 % of each other. Cells: percent of the \
         greatest goodput, 941 Mbit/s."
    );
    let nagle_alone =
        summary_of("messages", messages().summary.arms.into_iter().step_by(2).collect());
    assert!(over::cells(&over(&nagle_alone)[0]).is_none());
}

#[test]
fn exchanges_show_latency_over_size_up_to_the_99th_percentile() {
    let arms = [("1", 40.0), ("1K", 44.0)].map(|(level, median)| {
        let latency = HistogramSummary {
            count: 1_000,
            p50: Some(median),
            p99: Some(median * 2.0),
            ..HistogramSummary::default()
        };
        Arm {
            metrics: BTreeMap::new(),
            histograms: BTreeMap::from([(LATENCY.name.to_owned(), latency)]),
            ..arm(&[("message", level)], 1.0)
        }
    });
    let summary = summary_of("messages", arms.into());
    let picture = picture(&summary).unwrap();
    assert_eq!(
        picture.caption,
        "The median latency is 40.0 µs for 1 byte and 44.0 µs for 1 KiB. Bars: up to the 99th \
         percentile."
    );
    assert!(picture.svg.to_string().contains("message 1: 40.0 µs (99th percentile 80.0 µs)"));
    assert!(over::cells(&over(&summary)[0]).is_none());
}

#[test]
fn published_figures_stand_beside_the_measured_ones() {
    let mut summary = windows();
    summary.summary.published = vec![Published {
        arm: "window 64K".into(),
        metric: GOODPUT.name.into(),
        value: 116e6,
        source: "2008 <b>".into(),
        note: None,
        sd: None,
    }];
    let picture = picture(&summary).unwrap();
    assert!(picture.caption.ends_with("Hollow squares: published."), "{}", picture.caption);
    assert!(picture.svg.to_string().contains("published 928 Mbit/s (2008 &lt;b&gt;)"));
}

#[test]
fn the_picture_leads_a_run_in_rounds_only_where_it_shows_the_metric_of_the_run() {
    let about = |metric: &str, mut run: Run| {
        run.summary.primary_metric = Some(metric.into());
        run
    };
    assert!(leads(&about(GOODPUT.name, windows())));
    assert!(!leads(&about("messages_per_s", messages())));
    assert!(!leads(&about(GOODPUT.name, summary_of("stream", Vec::new()))));
}

#[test]
fn round_trips_under_load_stand_next_to_goodput() {
    let mut summary = windows();
    assert!(time::beside(&summary, LOADED).is_none());
    for (arm, us) in summary.summary.arms.iter_mut().zip([10e3, 10e3, 10.2e3, 51e3]) {
        arm.metrics.insert(LOADED.to_owned(), metric(us, "us"));
    }
    let picture = time::beside(&summary, LOADED).unwrap();
    assert_eq!(
        picture.caption,
        "window 1M carries 941 Mbit/s with a round trip of 10.2 ms under load, ×1.02 the quiet \
         link's. window auto carries 941 Mbit/s with a round trip of 51.0 ms under load, ×5.10 the \
         quiet link's."
    );
}

#[test]
fn series_are_drawn_below_each_other_with_what_was_recorded() {
    let mut summary = windows();
    assert!(time::items(&summary).is_empty());
    let points = (0..50).map(|at| [f64::from(at) * 0.1, 9e3, 10e3, 12e3]).collect();
    summary.summary.arms[0].series.insert("rtt_us".into(), Series { points });
    let items = time::items(&summary);
    let [Part::Title { .. }, Part::Picture(picture)] = &items[..] else { panic!("one picture") };
    assert_eq!(picture.caption, "In the second half: round trip 10.0\u{a0}ms.");
    assert!(picture.svg.0.contains("round trip (dashed: quiet link 10.0 ms)"));
}

#[test]
fn nothing_that_is_no_figure_is_drawn() {
    let mut summary = windows();
    summary.summary.arms[0].metrics.get_mut(GOODPUT.name).unwrap().value = 0.0;
    for transfer in summary.summary.arms.iter_mut().filter_map(|arm| arm.own.transfer.as_mut()) {
        transfer.quiet_rtt_us = Some(0.0);
        transfer.link_bytes_per_s = Some(f64::NAN);
    }
    let lines = over(&summary);
    assert_eq!(lines[0].points().count(), 3);
    assert!(limits(&lines[0]).links.is_empty() && limits(&lines[0]).windows.is_empty());
    assert!(!picture(&summary).unwrap().svg.to_string().contains("NaN"));
}
