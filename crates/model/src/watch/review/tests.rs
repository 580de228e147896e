use super::*;
use crate::diagnosis::Diagnosis;
use crate::watch::record::{
    Count, DestinationPart, DiagnosisLine, DiagnosisPart, Interval, ListenerLine, ListenerPart,
    WatchHeader, WatchLine, WatchSummary,
};

fn header() -> WatchLine {
    let header = WatchHeader {
        record_version: 1,
        interval_s: 1.0,
        host: "h".into(),
        ..WatchHeader::default()
    };
    WatchLine::WatchHeader(Box::new(header))
}

fn listener(n: u32, port: u16, limit: u32) -> WatchLine {
    let address = "10.0.0.7".to_owned();
    let accept_queue_limit = limit;
    WatchLine::Listener(Box::new(ListenerLine {
        n,
        address,
        port,
        accept_queue_limit,
        ..ListenerLine::default()
    }))
}

fn diagnosis(n: u32) -> WatchLine {
    diagnosed(n, Severity::Problem)
}

fn diagnosed(n: u32, severity: Severity) -> WatchLine {
    let diagnosis = Diagnosis {
        id: "accept-queue-full".into(),
        severity,
        subject: "10.0.0.7:80".into(),
        text: "first".into(),
        evidence: BTreeMap::new(),
        fix: None,
    };
    WatchLine::Diagnosis(Box::new(DiagnosisLine { n, diagnosis }))
}

fn interval(at_s: f64) -> Interval {
    Interval { at_s, interval_s: 1.0, looks: 1, time: format!("t{at_s}"), ..Interval::default() }
}

fn wrong(n: u32, at_s: f64, worst: f64) -> DiagnosisPart {
    let text = format!("{worst} drops/s");
    DiagnosisPart { n, from_s: at_s - 1.0, to_s: at_s, active_s: 1.0, worst: Some(worst), text }
}

fn state(interval: Interval) -> WatchLine {
    WatchLine::State(Box::new(interval))
}

fn review(lines: Vec<WatchLine>) -> Review {
    let mut reviewer = Reviewer::default();
    for line in lines {
        reviewer.line(line).unwrap();
    }
    reviewer.finish(false)
}

#[test]
fn an_episode_has_a_beginning_an_end_and_its_worst() {
    let at = |at_s: f64, worst: f64| {
        state(Interval { diagnoses: vec![wrong(1, at_s, worst)], ..interval(at_s) })
    };
    let quiet = |at_s: f64| state(interval(at_s));
    let seen = review(vec![
        header(),
        diagnosis(1),
        quiet(9.0),
        at(10.0, 5.0),
        at(11.0, 40.0),
        quiet(12.0),
        // Within a minute: the same one.
        at(50.0, 7.0),
        quiet(200.0),
        at(300.0, 3.0),
    ]);
    let [first, second] = &seen.episodes[..] else { panic!("{:?}", seen.episodes) };
    assert_eq!((first.from_s, first.to_s, first.active_s), (9.0, 50.0, 3.0));
    assert_eq!((first.text.as_str(), first.worst_at_s), ("40 drops/s", 11.0));
    assert!(!first.ongoing && second.ongoing);
    assert_eq!((second.from_s, second.to_s), (299.0, 300.0));
    assert!(seen.killed, "no summary");
    assert_eq!(seen.ended_at.as_deref(), Some("t300"));
}

#[test]
fn a_warning_that_becomes_a_problem_is_one_episode_and_a_problem() {
    let at = |n: u32, at_s: f64| {
        state(Interval { diagnoses: vec![wrong(n, at_s, at_s)], ..interval(at_s) })
    };
    let (warning, problem) = (diagnosed(1, Severity::Warning), diagnosed(2, Severity::Problem));
    let seen = review(vec![header(), warning, at(1, 1.0), problem, at(2, 2.0), at(1, 3.0)]);
    let [episode] = &seen.episodes[..] else { panic!("{:?}", seen.episodes) };
    assert_eq!((episode.severity, episode.active_s), (Severity::Problem, 3.0));
}

#[test]
fn sockets_of_one_address_and_port_are_one_listener_and_the_busiest_comes_first() {
    let part = |n, queue, drops| ListenerPart {
        n,
        queue,
        drops,
        overflows: Count(drops as f64),
        ..ListenerPart::default()
    };
    let seen = review(vec![
        header(),
        listener(0, 80, 5),
        listener(1, 443, 128),
        listener(2, 80, 10),
        state(Interval { listeners: vec![part(0, 6, 100), part(1, 90, 0)], ..interval(1.0) }),
        state(Interval { listeners: vec![part(2, 3, 20)], ..interval(2.0) }),
        WatchLine::WatchSummary(Box::new(WatchSummary { missed: 3, ..WatchSummary::default() })),
    ]);
    let [first, second] = &seen.listeners[..] else { panic!("{:?}", seen.listeners) };
    assert_eq!((first.port, first.drops, first.overflows, first.sockets), (80, 120, 120.0, 2));
    assert_eq!((first.accept_queue_peak, first.peak_at_s, first.accept_queue_limit), (6, 1.0, 10));
    assert_eq!(first.overflows_peak_per_s, Some(100.0));
    assert_eq!((second.port, second.accept_queue_peak), (443, 90));
    assert_eq!((seen.missed, seen.killed), (Some(3), false));
}

#[test]
fn a_suspended_machine_and_looks_that_came_late_are_gaps() {
    let seen = review(vec![
        header(),
        state(interval(1.0)),
        state(Interval { interval_s: 3_600.0, suspended_s: 3_599.0, ..interval(3_601.0) }),
        state(Interval { interval_s: 5.0, ..interval(3_606.0) }),
        state(Interval { interval_s: 1.4, ..interval(3_607.4) }),
    ]);
    let gaps: Vec<_> = seen.gaps.iter().map(|gap| (gap.lasted_s, gap.suspended_s)).collect();
    assert_eq!(gaps, [(3_600.0, 3_599.0), (5.0, 0.0)]);
}

#[test]
fn a_line_that_no_watch_writes_is_refused() {
    let part = |n| vec![ListenerPart { n, queue: 1, ..ListenerPart::default() }];
    let strange = [
        Interval { listeners: part(7), ..interval(2.0) },
        Interval { diagnoses: vec![wrong(7, 2.0, 1.0)], ..interval(2.0) },
        Interval { interval_s: -1.0, ..interval(2.0) },
        Interval { interval_s: f64::NAN, ..interval(2.0) },
        Interval { looks: 0, ..interval(2.0) },
        interval(1e12),
        interval(0.5),
    ];
    for one in strange {
        let mut reviewer = Reviewer::default();
        reviewer.line(header()).unwrap();
        reviewer.line(state(interval(1.0))).unwrap();
        assert!(reviewer.line(state(one.clone())).is_err(), "{one:?}");
    }
}

#[test]
fn what_is_kept_has_a_bound() {
    let mut reviewer = Reviewer::default();
    reviewer.line(header()).unwrap();
    reviewer.line(diagnosis(0)).unwrap();
    for n in 0..10_000_u32 {
        let at_s = 100.0 * f64::from(n + 1);
        let to = format!("10.{}.{}.1:80", n / 256, n % 256);
        reviewer.line(listener(n + 1, (n % 60_000) as u16, 8)).unwrap();
        let one = Interval {
            diagnoses: vec![wrong(0, at_s, 1.0)],
            destinations: vec![DestinationPart { to, ..DestinationPart::default() }],
            listeners: vec![ListenerPart { n: n + 1, drops: 1, ..ListenerPart::default() }],
            interval_s: 50.0,
            ..interval(at_s)
        };
        reviewer.line(state(one)).unwrap();
    }
    let seen = reviewer.finish(false);
    assert_eq!(seen.episodes.len() as u64 + seen.episodes_left_out, 10_000);
    assert_eq!(seen.episodes.len(), EPISODES_MAX);
    assert_eq!(seen.listeners.len(), LISTENERS_STATED);
    assert_eq!(seen.destinations.len(), DESTINATIONS_STATED);
    assert_eq!(seen.gaps.len() as u64 + seen.gaps_left_out, 10_000);
    let of_stated: u64 = seen.listeners.iter().map(|one| one.drops).sum();
    assert_eq!((of_stated, seen.listeners_left_out), (64, 10_000 - 64));
}

#[test]
fn curves_have_at_most_a_thousand_points_and_keep_the_highest() {
    let line = |at_s: f64| {
        let queue = if (at_s - 43_210.0).abs() < 0.5 { 999 } else { 1 };
        let parts = vec![ListenerPart { n: 4, queue, drops: 1, ..ListenerPart::default() }];
        state(Interval { listeners: parts, ..interval(at_s) })
    };
    let lines = || {
        let head = vec![header(), listener(4, 80, 128)].into_iter();
        head.chain((1..=86_400).map(|second| line(f64::from(second))))
    };
    let mut reviewer = Reviewer::default();
    lines().for_each(|line| reviewer.line(line).unwrap());
    let mut curves = Curves::new(&reviewer.finish(false));
    lines().for_each(|line| curves.line(line));
    let series = curves.finish();
    assert!((900..=1_001).contains(&series.points.len()), "{}", series.points.len());
    let queues = series.points.iter().map(|point| point.listeners[0].queue);
    assert_eq!(queues.max(), Some(999));
    let drops: u64 = series.points.iter().map(|point| point.listeners[0].drops).sum();
    assert_eq!(drops, 86_400);
    assert_eq!(series.limits[&0], [(1.0, 128)]);
}
