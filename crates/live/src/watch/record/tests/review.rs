use crate::watch::record::review::*;
use crate::watch::record::*;
use crate::watch::record::{
    Count, DestinationPart, DiagnosisLine, DiagnosisPart, Interval, ListenerLine, ListenerPart,
    WatchHeader, WatchLine, WatchSummary,
};
use tcptoll_core::finding::Finding;

fn header() -> WatchLine {
    let header = WatchHeader {
        record_version: 1,
        interval_s: 1.0,
        host: "h".into(),
        started_at: "2026-11-23T08:42:54.011Z".into(),
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
    let diagnosis = Finding {
        id: "accept-queue-full".into(),
        severity,
        subject: "10.0.0.7:80".into(),
        text: "first".into(),
        evidence: BTreeMap::new(),
        remedies: Vec::new(),
    };
    WatchLine::Diagnosis(Box::new(DiagnosisLine { n, diagnosis }))
}

/// The time of day at a moment of the watch. Its date does not matter.
fn clock(at_s: f64) -> String {
    let s = at_s.clamp(0.0, 86_399.0) as u32;
    format!("2026-11-23T{:02}:{:02}:{:02}Z", s / 3_600, s / 60 % 60, s % 60)
}

fn interval(at_s: f64) -> Interval {
    Interval { at_s, interval_s: 1.0, looks: 1, time: clock(at_s), ..Interval::default() }
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
    assert_eq!(seen.ended_at.as_deref(), Some("2026-11-23T00:05:00Z"));
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

/// What a line after an interval that ended at 1 s is refused for.
fn refused(one: &Interval) -> String {
    let mut reviewer = Reviewer::default();
    reviewer.line(header()).unwrap();
    reviewer.line(state(interval(1.0))).unwrap();
    reviewer.line(state(interval(2.0))).unwrap();
    reviewer.line(state(one.clone())).expect_err(&format!("{one:?}")).to_string()
}

#[test]
fn a_line_that_no_watch_writes_is_refused_and_its_field_is_named() {
    let part = |n| ListenerPart { n, queue: 1, ..ListenerPart::default() };
    let peak = |peak: f64| [("drops".to_owned(), peak)].into();
    let with = |part: ListenerPart| Interval { listeners: vec![part], ..interval(3.0) };
    let diagnosed = |part: DiagnosisPart| Interval { diagnoses: vec![part], ..interval(3.0) };
    let others = |overflows: f64| {
        Some(crate::watch::Others {
            overflows: Count(overflows),
            ..crate::watch::Others::default()
        })
    };
    let strange = [
        ("a listener that no line", with(part(7))),
        ("a diagnosis that no line", diagnosed(wrong(7, 3.0, 1.0))),
        ("interval_s is -1,", Interval { interval_s: -1.0, ..interval(3.0) }),
        ("interval_s is NaN,", Interval { interval_s: f64::NAN, ..interval(3.0) }),
        ("interval_s is 50,", Interval { interval_s: 50.0, ..interval(3.0) }),
        ("looks is 0,", Interval { looks: 0, ..interval(3.0) }),
        ("looks is 4e9,", Interval { looks: 4_000_000_000, ..interval(3.0) }),
        ("at_s is 1e12,", interval(1e12)),
        ("at_s is NaN,", interval(f64::NAN)),
        ("at_s is 0.5, but the line before ends at 2", interval(0.5)),
        ("time is \"\",", Interval { time: String::new(), ..interval(3.0) }),
        ("time is \"-9999-01-01T00:00:00Z\",", {
            Interval { time: "-9999-01-01T00:00:00Z".into(), ..interval(3.0) }
        }),
        ("longest_s is -3,", Interval { longest_s: Some(-3.0), ..interval(3.0) }),
        ("counted_s is -1,", Interval { counted_s: Some(-1.0), ..interval(3.0) }),
        ("counted_s is 9,", Interval { counted_s: Some(9.0), ..interval(3.0) }),
        ("suspended_s is -1,", Interval { suspended_s: -1.0, ..interval(3.0) }),
        ("peak_per_s of \"drops\" is -5,", Interval { peak_per_s: peak(-5.0), ..interval(3.0) }),
        ("peak_per_s of \"drops\" is inf,", {
            Interval { peak_per_s: peak(f64::INFINITY), ..interval(3.0) }
        }),
        ("overflows of others is -1,", Interval { others: others(-1.0), ..interval(3.0) }),
        (
            "overflows of listener 7 is -1,",
            with(ListenerPart { overflows: Count(-1.0), ..part(7) }),
        ),
        ("unknown_s of listener 7 is -1,", with(ListenerPart { unknown_s: -1.0, ..part(7) })),
        (
            "drops_peak_per_s of listener 7 is -1,",
            with(ListenerPart { drops_peak_per_s: Some(-1.0), ..part(7) }),
        ),
        (
            "overflows_peak_per_s of listener 7 is NaN,",
            with(ListenerPart { overflows_peak_per_s: Some(f64::NAN), ..part(7) }),
        ),
        (
            "from_s of diagnosis 7 is 9,",
            diagnosed(DiagnosisPart { from_s: 9.0, ..wrong(7, 3.0, 1.0) }),
        ),
        (
            "active_s of diagnosis 7 is -1,",
            diagnosed(DiagnosisPart { active_s: -1.0, ..wrong(7, 3.0, 1.0) }),
        ),
    ];
    for (field, one) in strange {
        let why = refused(&one);
        assert!(why.contains(field), "{field}: {why}");
    }
}

#[test]
fn a_machine_cannot_be_suspended_for_longer_than_the_watch_lasts() {
    let mut reviewer = Reviewer::default();
    reviewer.line(header()).unwrap();
    reviewer.line(state(Interval { suspended_s: 60.0, ..interval(1.0) })).unwrap();
    // It was suspended after the look and before the line was written.
    reviewer.line(state(Interval { interval_s: 60.0, ..interval(61.0) })).unwrap();
    reviewer.line(state(Interval { suspended_s: 1e9, ..interval(62.0) })).unwrap();
    let why = reviewer.line(state(interval(63.0))).unwrap_err().to_string();
    assert!(why.starts_with("suspended_s of the lines before is 1.00000006e9, "), "{why}");
}

#[test]
fn a_header_that_no_watch_writes_is_refused_and_its_field_is_named() {
    let with = |change: fn(&mut WatchHeader)| {
        let WatchLine::WatchHeader(mut header) = header() else { panic!("a header") };
        change(&mut header);
        Reviewer::default().line(WatchLine::WatchHeader(header)).unwrap_err().to_string()
    };
    for (field, why) in [
        ("started_at is \"-9999-", with(|one| one.started_at = "-9999-01-01T00:00:00Z".into())),
        ("started_at is \"-009999-", with(|one| one.started_at = "-009999-01-01T00:00:00Z".into())),
        ("started_at is \"\",", with(|one| one.started_at.clear())),
        ("interval_s is 0,", with(|one| one.interval_s = 0.0)),
        ("interval_s is -2,", with(|one| one.interval_s = -2.0)),
        ("interval_s is NaN,", with(|one| one.interval_s = f64::NAN)),
        ("interval_s is 1e12,", with(|one| one.interval_s = 1e12)),
        ("record_version is 0,", with(|one| one.record_version = 0)),
    ] {
        assert!(why.starts_with(field), "{field}: {why}");
    }
    let mut reviewer = Reviewer::default();
    let early = reviewer.line(state(interval(1.0))).unwrap_err().to_string();
    assert!(early.contains("the first line"), "{early}");
    reviewer.line(header()).unwrap();
    let second = reviewer.line(header()).unwrap_err().to_string();
    assert!(second.contains("a second watch-header"), "{second}");
}

#[test]
fn a_record_that_says_why_it_ends_is_of_no_killed_watch() {
    let stopped = WatchLine::WatchStopped(crate::watch::WatchStopped {
        at_s: 1.0,
        reason: "No space left on device".into(),
    });
    let seen = review(vec![header(), state(interval(1.0)), stopped]);
    assert_eq!((seen.stopped.as_deref(), seen.killed), (Some("No space left on device"), false));
}

#[test]
fn retransmitted_data_is_without_syns_and_has_its_own_highest_rate_when_looks_are_joined() {
    let one = |at_s: f64, all: u64, syns: u64| Interval {
        counts: [("retransmitted".to_owned(), all), ("syns_retransmitted".to_owned(), syns)].into(),
        ..interval(at_s)
    };
    let looks = [one(1.0, 100, 100), one(2.0, 30, 10), one(3.0, 5, 0)];
    let apart = review(std::iter::once(header()).chain(looks.clone().map(state)).collect());
    let joined = looks.into_iter().reduce(Interval::join).unwrap();
    assert_eq!(joined.counts.get("data_retransmitted"), None, "{joined:?}");
    let joined = review(vec![header(), state(joined)]);
    for seen in [apart, joined] {
        let counts = ["retransmitted", "syns_retransmitted", "data_retransmitted"];
        assert_eq!(counts.map(|name| seen.counts[name]), [135, 110, 25]);
        let peak = |name: &str| seen.peaks_per_s[name].value;
        assert_eq!((peak("retransmitted"), peak("data_retransmitted")), (100.0, 20.0));
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
