use crate::open::time_wait::IDLE_SHARE;
use tcptoll_core::record::{Arm, Cliff, Metric, PortPoint, PortUse, Summary};
use tcptoll_core::stats::Series;
use tcptoll_core::tcp::ports::PortForecast;

use super::*;
use crate::experiments::REPORTS;
use tcptoll_show::own::Block;
use tcptoll_show::run::Run;

fn point(ports: f64, connect_cpu_us: f64) -> PortPoint {
    PortPoint { ports, connections: 100, connect_cpu_us, connect_us: 90.0, failed: 0 }
}

fn arm(name: &str, step: bool) -> Arm {
    let cost = |at: u32| if step && at > 50 { 840.0 } else { 7.0 };
    let series = |from: f64, to: f64| Series {
        points: vec![[0.0, from, from, from], [7.0, to, to, to], [15.0, to, to, to]],
    };
    let used = PortUse {
        curve: (0..=100).map(|at| point(f64::from(at) * 282.0, cost(at))).collect(),
        cliff_expected: Some(if step { 14_116.0 } else { 28_232.0 }),
        lasts_expected_s: step.then_some(14.116),
        cliff: step.then_some(Cliff { at_ports: 14_241.0, below_us: 7.0, above_us: 840.0 }),
        idle_share: Some(series(0.7, if step { 0.0 } else { 0.7 })),
        busy_workers: Some(series(0.6, if step { 4.0 } else { 0.6 })),
        rate_per_s: series(2_000.0, 1_000.0),
        failed_per_s: series(0.0, 0.0),
        ports_in_use: series(0.0, 28_000.0),
        ..PortUse::default()
    };
    let metric = |value| Metric { value, unit: String::new(), ci95: None, median: None, n: 1 };
    Arm {
        name: name.into(),
        ok: 100,
        attempts: 100,
        connections_ok: Some(100),
        ports: Some(PortForecast { at_once: 28_232, sources: 1, ..PortForecast::default() }),
        metrics: [
            (IDLE_SHARE.name.to_owned(), metric(if step { 0.3 } else { 0.7 })),
            ("operations_per_s".to_owned(), metric(if step { 1_000.0 } else { 2_000.0 })),
        ]
        .into(),
        own: Box::new(used).into(),
        ..Arm::default()
    }
}

fn summary(arms: Vec<Arm>) -> Run {
    let experiment = "time-wait".to_owned();
    REPORTS.cleaned(Summary { arms, experiment, ..Summary::default() })
}

#[test]
fn the_curve_has_a_line_per_arm_and_marks_the_expected_cliff() {
    let shown = curve::picture(&summary(vec![arm("one", true), arm("two", false)])).unwrap();
    assert_eq!(shown.drawn, [0, 1]);
    assert!(
        shown.both_svg.to_string().contains("expected: 14,116")
            && shown.both_svg.to_string().contains("expected: 28,232")
    );
    assert!(shown.both_svg.to_string().contains("cliff found at 14,241 ports in use"));
    assert_eq!(
        shown.caption,
        "one: connect(2) rises from 7.00 µs to 840 µs of CPU (120 times) at 14,241 ports in use \
         (circle), 0.9 % from the expected number. Without a step: two."
    );
}

#[test]
fn over_time_failures_are_drawn_only_where_there_are_any() {
    let quiet = summary(vec![arm("one", true)]);
    let shown = time::picture(&quiet).unwrap();
    assert!(!shown.both_svg.to_string().contains("found no port"));
    assert!(shown.both_svg.to_string().contains("ports expected to last 14.1 s at this rate"));
    assert_eq!(
        shown.caption,
        "one: idle CPU falls from 70 % to 0 %. Dashed: the ports of one are expected to run out after \
         14.1 s."
    );
    let mut short = arm("one", true);
    let used = short.own.port_use.as_mut().unwrap();
    used.failed_per_s.points[2] = [15.0, 900.0, 950.0, 1_000.0];
    assert!(
        time::picture(&summary(vec![short]))
            .unwrap()
            .both_svg
            .to_string()
            .contains("found no port")
    );
}

#[test]
fn idle_cpu_by_rate_needs_two_arms() {
    assert!(idle::picture(&summary(vec![arm("one", true)])).is_none());
    let shown = idle::picture(&summary(vec![arm("one", true), arm("two", false)])).unwrap();
    let says = "Idle CPU ranges from 30 % at 1,000/s (one) to 70 % at 2,000/s (two).";
    assert_eq!(shown.caption, says);
}

#[test]
fn the_terminal_has_a_line_of_bars_within_its_width() {
    let told = summary(vec![arm("one", true), arm("two", false)]);
    for width in [60, 80, 120] {
        let blocks = spark::blocks(&told, width);
        let lines: Vec<String> = blocks
            .iter()
            .filter_map(|block| match block {
                Block::Line(pieces) => Some(pieces.iter().map(|(_, text)| text.as_str()).collect()),
                _ => None,
            })
            .collect();
        assert!(
            lines.iter().any(|line| line.contains("▁▁") && line.contains("██ 7.00 µs to 840 µs"))
        );
        assert!(lines.iter().any(|line| line.trim() == "^"), "{lines:?}");
        let widest = lines.iter().skip(1).map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{lines:?}");
    }
    assert!(spark::blocks(&summary(Vec::new()), 80).is_empty());
}

#[test]
fn forecasts_are_told_before_the_run_each_once() {
    let told = forecasts(&[arm("one", true), arm("again", true), arm("two", false)]);
    assert_eq!(
        told,
        [
            "expected, one and 1 more: connect(2) slows down beyond 14,116 ports in use; 28,232 \
             ports last 14.1 s at this rate",
            "expected, two: connect(2) slows down beyond 28,232 ports in use"
        ]
    );
}

#[test]
fn an_arm_without_a_record_of_ports_shows_nothing() {
    let told = summary(vec![Arm { name: "a".into(), ..Arm::default() }]);
    assert!(picture(&told).is_none() && counted(&told.arms[0]).is_empty());
    assert!(forecasts(&told.arms).is_empty());
}
