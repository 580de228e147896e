mod file;
mod review;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use proptest::prelude::*;

use super::super::{History, ListenerLook, Look};
use super::*;

/// What a listener shows at each look: queue, and packets dropped since the look before.
type Shown = Vec<(u32, u32)>;

/// Looks at listeners with these queues and drops, at these times.
fn looks(shown: &[(f64, Shown)]) -> Vec<Look> {
    let mut at_s = 0.0;
    let mut drops: BTreeMap<usize, u32> = BTreeMap::new();
    let mut host = 0;
    let look = |(passed_s, listeners): &(f64, Shown)| {
        at_s += passed_s;
        let listeners: Vec<ListenerLook> = listeners
            .iter()
            .enumerate()
            .map(|(number, (queue, dropped))| {
                let sum = drops.entry(number).or_default();
                *sum += dropped;
                host += i64::from(*dropped);
                ListenerLook {
                    address: SocketAddr::from(([127, 0, 0, 1], 1_000 + number as u16)),
                    inode: number as u64 + 1,
                    process: None,
                    accept_queue_len: *queue,
                    accept_queue_limit: 8,
                    syn_queue_len: None,
                    drops: Some(*sum),
                }
            })
            .collect();
        let counters = [
            "TcpActiveOpens",
            "TcpPassiveOpens",
            "TcpOutSegs",
            "TcpRetransSegs",
            "TcpExtTCPSynRetrans",
            "TcpExtListenOverflows",
            "TcpExtListenDrops",
            "TcpExtSyncookiesSent",
            "TcpExtTCPReqQFullDrop",
            "TcpEstabResets",
            "TcpExtTCPAbortOnMemory",
            "TcpExtTCPTimeWaitOverflow",
            "TcpExtTCPDeferAcceptDrop",
        ];
        Look {
            at_s,
            time: format!("2026-01-01T00:00:{at_s:09.6}Z"),
            listeners,
            counters: counters.map(|name| (name.to_owned(), host)).into(),
            ..Look::default()
        }
    };
    shown.iter().map(look).collect()
}

/// The lines of a watch of these looks.
fn recorded(looks: Vec<Look>) -> Vec<WatchLine> {
    let mut history = History::new("host", 0.0);
    let mut recording = Recording::default();
    looks.into_iter().flat_map(|look| recording.lines(history.push(look), 0.0)).collect()
}

fn intervals(lines: &[WatchLine]) -> Vec<Interval> {
    let interval = |line: &WatchLine| match line {
        WatchLine::State(interval) => Some((**interval).clone()),
        _ => None,
    };
    lines.iter().filter_map(interval).collect()
}

/// Drops, overflows in thousandths and the longest queue of each listener.
type ListenerSums = BTreeMap<u32, (u64, u64, u32)>;

/// All that joining must keep: counts by name; of each listener its drops, its overflows in thousandths, and
/// its longest queue.
fn kept(intervals: &[Interval]) -> (BTreeMap<String, u64>, ListenerSums) {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut listeners = ListenerSums::new();
    for interval in intervals {
        for (name, count) in &interval.counts {
            *counts.entry(name.clone()).or_default() += count;
        }
        for part in &interval.listeners {
            let sum = listeners.entry(part.n).or_default();
            *sum = (
                sum.0 + part.drops,
                sum.1 + (part.overflows.0 * 1e3).round() as u64,
                sum.2.max(part.queue),
            );
        }
    }
    (counts, listeners)
}

#[test]
fn a_line_is_written_and_read_and_has_nothing_that_did_not_happen() {
    let lines = recorded(looks(&[(0.0, vec![(0, 0); 3]), (1.0, vec![(0, 0); 3])]));
    let text = serde_json::to_string(&lines[1]).unwrap();
    assert_eq!(
        text,
        r#"{"line":"state","time":"2026-01-01T00:00:01.000000Z","at_s":1.0,"interval_s":1.0,"levels":{},"idle":3}"#
    );
    let lines = recorded(looks(&[(0.0, vec![(0, 0); 3]), (1.0, vec![(0, 0), (3, 2), (0, 0)])]));
    for line in &lines {
        let text = serde_json::to_string(line).unwrap();
        assert_eq!(&serde_json::from_str::<WatchLine>(&text).unwrap(), line, "{text}");
    }
    let state = serde_json::to_string(lines.last().unwrap()).unwrap();
    assert!(
        state.contains(r#""listeners":[{"n":0,"queue":3,"drops":2,"overflows":2}]"#),
        "{state}"
    );
}

#[test]
fn a_listener_is_described_once_until_its_limit_changes() {
    let mut looks = looks(&vec![(1.0, vec![(1, 0), (0, 0)]); 6]);
    for look in &mut looks[3..] {
        look.listeners[0].accept_queue_limit = 16;
    }
    let lines = recorded(looks);
    let described: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            WatchLine::Listener(line) => Some((line.n, line.port, line.accept_queue_limit)),
            _ => None,
        })
        .collect();
    assert_eq!(described.len(), 2, "{described:?}");
    assert_eq!((described[0].1, described[0].2), (1_000, 8));
    assert_eq!((described[1].1, described[1].2), (1_000, 16));
    let numbers: Vec<u32> = intervals(&lines).iter().map(|one| one.listeners[0].n).collect();
    assert_eq!(numbers[..3], [described[0].0; 3]);
    assert_eq!(numbers[3..], [described[1].0; 3]);
}

#[test]
fn a_joined_interval_has_the_longest_queue_the_sum_of_drops_and_the_highest_rate() {
    let all = intervals(&recorded(looks(&[
        (0.0, vec![(0, 0)]),
        (1.0, vec![(9, 400)]),
        (3.0, vec![(2, 0)]),
    ])));
    let joined = all.into_iter().reduce(Interval::join).unwrap();
    assert_eq!((joined.looks, joined.at_s, joined.interval_s), (3, 4.0, 4.0));
    assert_eq!(joined.longest_s, Some(3.0));
    assert_eq!(joined.counts["overflows"], 400);
    assert_eq!(joined.per_s("overflows"), Some(100.0));
    assert_eq!(joined.peak_per_s("overflows"), Some(400.0));
    let [listener] = &joined.listeners[..] else { panic!("{joined:?}") };
    assert_eq!((listener.queue, listener.drops, listener.overflows), (9, 400, Count(400.0)));
    assert_eq!(listener.overflows_peak_per_s, Some(400.0));
    let full =
        joined.diagnoses.iter().find(|part| part.text.contains("accept queue full")).unwrap();
    assert_eq!((full.from_s, full.to_s, full.active_s), (0.0, 1.0, 1.0), "until it was held only");
    assert_eq!(full.worst, Some(400.0));
}

#[test]
fn counters_that_broke_off_are_no_time_without_drops() {
    let mut looks = looks(&vec![(1.0, vec![(0, 10)]); 4]);
    looks[2].counters.clear();
    let all = intervals(&recorded(looks));
    assert!(all[2].counted_s().abs() < 1e-9);
    assert_eq!(all[2].per_s("overflows"), None, "not 0");
    let joined = all.into_iter().reduce(Interval::join).unwrap();
    assert_eq!((joined.interval_s, joined.counted_s()), (3.0, 1.0));
    assert_eq!(joined.per_s("overflows"), Some(10.0));
}

#[test]
fn of_more_listeners_than_fit_none_loses_a_drop() {
    let shown = |queue: u32| (1.0, (0..1_500).map(|n| (queue + n % 7, n)).collect());
    let all = intervals(&recorded(looks(&[(1.0, vec![(0, 0); 1_500]), shown(1), shown(2)])));
    // A state has 1,024 of them: those with a drop first, in their order.
    assert_eq!(all[1].listeners.len() as u32 + all[1].idle, 1_500);
    let part = |n: u32| ListenerPart { n, queue: n, drops: 1, ..ListenerPart::default() };
    let interval = |from: u32| Interval {
        listeners: (from..from + 1_000).map(part).collect(),
        looks: 1,
        interval_s: 1.0,
        ..Interval::default()
    };
    let joined = interval(0).join(interval(500)).join(interval(2_000));
    let drops: u64 = joined.listeners.iter().map(|part| part.drops).sum();
    let others = joined.others.unwrap();
    assert_eq!(drops + others.drops, 3_000);
    assert_eq!(joined.listeners.iter().map(|part| part.queue).max(), Some(2_999));
    assert_eq!(joined.listeners.len(), 1_024);
}

proptest! {
    #[test]
    fn joining_in_any_groups_keeps_counts_drops_and_the_longest_queue(
        shown in prop::collection::vec(
            (0.1_f64..5.0, prop::collection::vec((0_u32..12, 0_u32..500), 1..5)), 2..40),
        groups in prop::collection::vec(1_usize..9, 1..20),
    ) {
        let all = intervals(&recorded(looks(&shown)));
        let mut rest = all.clone().into_iter().peekable();
        let mut joined = Vec::new();
        let mut sizes = groups.iter().cycle();
        while rest.peek().is_some() {
            let size = *sizes.next().unwrap();
            joined.extend(rest.by_ref().take(size).reduce(Interval::join));
        }
        prop_assert_eq!(kept(&joined), kept(&all));
        let length = |all: &[Interval]| all.iter().map(|one| one.interval_s).sum::<f64>();
        prop_assert!((length(&joined) - length(&all)).abs() < 1e-4);
        let looks = |all: &[Interval]| all.iter().map(|one| one.looks).sum::<u32>();
        prop_assert_eq!(looks(&joined), looks(&all));
        // No rate of one look is above the highest that the joined interval states.
        let highest = |all: &[Interval]| {
            all.iter().filter_map(|one| one.peak_per_s("overflows")).fold(0.0, f64::max)
        };
        prop_assert!((highest(&joined) - highest(&all)).abs() < 1e-3);
        // What was counted is what the looks counted, after the first.
        let dropped: u64 =
            shown[1..].iter().flat_map(|(_, one)| one).map(|(_, drops)| u64::from(*drops)).sum();
        let counted = kept(&all).0.get("drops").copied().unwrap_or(0);
        prop_assert_eq!(counted, dropped);
    }
}
