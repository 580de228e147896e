use proptest::prelude::*;

use super::super::look::{Destination, ListenerLook, Look, SocketDump, Unclosed};
use super::super::state::{DestinationState, Rates, Segments, Standing};
use super::super::{History, Process};
use super::*;
use tcptoll_core::finding::Severity;

/// An address with as many characters as there can be.
const LONGEST: &str = "2001:1db8:1111:2222:3333:4444:5555:6666";

fn listener() -> ListenerState {
    ListenerState {
        address: LONGEST.into(),
        port: 65_535,
        sockets: 1,
        accept_queue_recent_peak: 65_536,
        accept_queue_limit: 65_535,
        overflows_per_s: Some(123_456.0),
        overflows_estimated: true,
        drops_per_s: Some(123_456.0),
        drops: Some(1),
        syn_queue_len: Some(9),
        ..ListenerState::default()
    }
}

fn destination(ports_in_use: u32, time_wait: u32, ports_per_s: Option<f64>) -> DestinationState {
    DestinationState {
        address: LONGEST.into(),
        port: 65_535,
        ports_in_use,
        time_wait,
        ports_per_s,
        ..DestinationState::default()
    }
}

fn limits() -> super::super::Limits {
    super::super::Limits {
        somaxconn: Some(4_096),
        max_syn_backlog: Some(1_024),
        syncookies: Some(1),
        local_ports: Some(28_232),
        tw_reuse: Some(2),
        max_tw_buckets: Some(262_144),
        max_orphans: Some(65_536),
        memory_max_bytes: Some(300_000_000),
        memory_pressure_bytes: Some(200_000_000),
        tracked_max: Some(262_144),
    }
}

/// A state in which everything is wrong, with the longest figures.
fn worst() -> State {
    let rates = Rates {
        overflows_per_s: 123_456.0,
        syns_dropped_per_s: 123_456.0,
        cookies_sent_per_s: 123_456.0,
        aborted_for_memory_per_s: 123_456.0,
        time_wait_overflows_per_s: 123_456.0,
        ..Rates::default()
    };
    let mut near = listener();
    near.port = 65_534;
    near.overflows_per_s = Some(0.0);
    near.drops = Some(0);
    let stands = Standing {
        looks: 10,
        over_s: 9.0,
        shortest: 65_535,
        longest: 65_536,
        nearly_full: 10,
        first: 65_536,
        last: 65_536,
        accepted_at_most: Some(9_000),
        long_looks: 10,
    };
    let mut lasting = listener();
    (lasting.port, lasting.stands) = (65_533, Some(Box::new(stands)));
    let mut standing = ListenerState { overflows_per_s: Some(0.0), ..lasting.clone() };
    standing.port = 65_532;
    let mut slow = destination(20_000, 15_000, Some(1.0));
    slow.port = 65_534;
    let mut state = State {
        listeners: vec![listener(), near, lasting, standing],
        destinations: vec![destination(28_231, 15_000, Some(0.001)), slow],
        rates: Some(rates),
        segments: Some(Segments { over_s: 10.0, sent: 12_345_678, retransmitted: 12_345_678 }),
        limits: limits(),
        ..State::default()
    };
    state.counted.orphans = Some(65_535);
    state.counted.memory_bytes = Some(987_654_321);
    state.counted.tracked = Some(262_144);
    state
}

fn only(state: &State) -> Finding {
    let mut found = find(state);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn every_fault_is_found_with_evidence_a_short_text_and_a_whole_fix() {
    let mut state = worst();
    state.unclosed = vec![Unclosed {
        on: "port 65535".into(),
        connections: 65_535,
        minute_old: 65_535,
        oldest_s: 86_399.0,
        ..Unclosed::default()
    }];
    let found = find(&state);
    let names: BTreeMap<&str, usize> = found.iter().map(|one| (one.id.as_str(), 1)).collect();
    assert_eq!(names.len(), RULES.len(), "{:?}", names.keys());
    assert!(found.is_sorted_by_key(|one| one.severity));
    for one in &found {
        let ended = ended(one, 9.9).text;
        assert!(ended.chars().count() <= TEXT_MAX, "{ended}: {}", ended.chars().count());
        let first = one.text.trim_start_matches('~').chars().next().unwrap();
        assert!(first.is_ascii_digit(), "{}", one.text);
        assert!(!one.evidence.is_empty() && !one.subject.is_empty());
        if let Some(fix) = one.fix() {
            let parts = [&fix.change, &fix.effect, &fix.cost, &fix.undo];
            assert!(parts.iter().all(|part| !part.is_empty()), "{fix:?}");
            assert!(!fix.commands.is_empty() && fix.commands.iter().all(|line| !line.is_empty()));
        }
    }
}

#[test]
fn the_queue_limit_tells_whose_backlog_is_to_be_raised() {
    let fix = |limit, somaxconn| {
        let mut state = worst();
        (state.destinations, state.segments, state.rates) = (vec![], None, None);
        state.counted = super::super::Counted::default();
        state.limits.somaxconn = somaxconn;
        state.listeners.truncate(1);
        state.listeners[0].accept_queue_limit = limit;
        state.listeners[0].process = Some(Process { pid: 7, name: "redis-server".into() });
        only(&state).fix().cloned().unwrap()
    };
    let application = fix(511, Some(4_096));
    assert_eq!(application.commands, ["tcp-backlog 4096"]);
    assert!(application.change.contains("Today the application's backlog limits the queue to 511"));
    assert!(application.not_if.contains("accept faster"), "{application:?}");
    let clamped = fix(128, Some(128));
    assert_eq!(clamped.commands, ["sysctl -w net.core.somaxconn=4096", "tcp-backlog 4096"]);
    assert!(clamped.change.contains("limits the queue to 128"), "{clamped:?}");
    let unknown = fix(128, None);
    assert_eq!(unknown.commands.len(), 2);
    let long = fix(40_000, Some(65_535));
    assert_eq!(long.commands, ["tcp-backlog 65535"]);
}

#[test]
fn cookies_behind_a_full_accept_queue_are_its_shadow_and_those_of_a_flood_are_not() {
    let with = |cookies_sent_per_s| {
        let full = ListenerState { overflows_per_s: Some(60.0), ..listener() };
        let rates = Rates { overflows_per_s: 60.0, cookies_sent_per_s, ..Rates::default() };
        find(&State { listeners: vec![full], rates: Some(rates), ..State::default() })
    };
    let shadow = with(5.0);
    let [one] = &shadow[..] else { panic!("{shadow:?}") };
    assert_eq!(one.id, "accept-queue-full");
    assert_eq!(one.evidence["cookies_sent_per_s"], 5.0);
    assert!(with(900.0).iter().any(|one| one.id == "syn-queue-full"));
}

#[test]
fn overflows_that_no_listener_can_be_blamed_for_are_named_without_one() {
    let blameless =
        ListenerState { overflows_per_s: None, accept_queue_recent_peak: 1, ..listener() };
    let rates = Some(Rates { overflows_per_s: 3.0, ..Rates::default() });
    let state = State { rates, listeners: vec![blameless], ..State::default() };
    let found = only(&state);
    assert_eq!(
        (found.id.as_str(), found.subject.as_str()),
        ("accept-queue-full", "a listener of this host")
    );
    assert_eq!(found.fix(), None);
}

#[test]
fn overflows_beyond_those_of_the_named_listeners_are_evidence_and_no_second_fault() {
    let elsewhere = |of_host| {
        let full = ListenerState { overflows_per_s: Some(40.0), ..listener() };
        let rates = Some(Rates { overflows_per_s: of_host, ..Rates::default() });
        let state = State { rates, listeners: vec![full], interval_s: 1.0, ..State::default() };
        only(&state).evidence.remove("overflows_elsewhere_per_s")
    };
    // Some were counted between the two readings of a look.
    assert_eq!((elsewhere(40.0), elsewhere(44.0)), (None, None));
    assert_eq!(elsewhere(140.0), Some(100.0.into()));
    // A burst after the listener was read is told at the next look.
    let listener = ListenerState { overflows_per_s: Some(0.0), ..listener() };
    let rates = Some(Rates { overflows_per_s: 9.0, ..Rates::default() });
    let found = find(&State { rates, listeners: vec![listener], ..State::default() });
    assert!(found.iter().all(|one| one.id != "accept-queue-full"), "{found:?}");
}

#[test]
fn a_queue_is_near_its_limit_above_four_fifths_of_it() {
    let near = |peak, limit| {
        let mut listener = listener();
        (listener.overflows_per_s, listener.drops) = (Some(0.0), Some(0));
        (listener.accept_queue_recent_peak, listener.accept_queue_limit) = (peak, limit);
        find(&State { listeners: vec![listener], ..State::default() })
    };
    assert_eq!(near(102, 128), []);
    assert_eq!(near(103, 128)[0].id, "accept-queue-near");
    let text = near(103, 128).remove(0).text;
    assert!(text.starts_with("accept queue of [2001:"), "{text}");
    assert!(text.ends_with(" at 80.5 % of its limit: 103 of 128"), "{text}");
    let full = near(129, 128).remove(0).text;
    assert!(full.starts_with("129 of 128 in the accept queue of [2001:"), "{full}");
    // A state without an interval is the first, which does not know what was dropped before.
    assert!(full.ends_with(":65535, which is full"), "{full}");
    assert_eq!(near(1, 1), [], "a single connection that waits is no queue");
    assert_eq!(near(1, 0), []);
}

#[test]
fn cookies_are_a_warning_and_dropped_syns_a_problem() {
    let with = |cookies, dropped, syncookies| {
        let mut state = State { limits: limits(), ..State::default() };
        state.limits.syncookies = Some(syncookies);
        state.rates = Some(Rates {
            cookies_sent_per_s: cookies,
            syns_dropped_per_s: dropped,
            ..Rates::default()
        });
        find(&state)
    };
    assert_eq!(with(5.0, 0.0, 1)[0].severity, Severity::Warning);
    assert_eq!(with(5.0, 0.0, 2), [], "cookies for all are no sign of a full queue");
    let dropped = &with(0.0, 5.0, 0)[0];
    assert_eq!(dropped.severity, Severity::Problem);
    assert_eq!(dropped.fix().unwrap().commands, ["sysctl -w net.ipv4.tcp_syncookies=1"]);
    assert_eq!(with(0.0, 0.0, 1), []);
}

#[test]
fn ports_are_scarce_below_a_tenth_or_before_a_time_wait_ends() {
    let with = |in_use, time_wait, per_s, reuse| {
        let mut state = State { limits: limits(), ..State::default() };
        state.limits.tw_reuse = Some(reuse);
        state.destinations = vec![destination(in_use, time_wait, per_s)];
        find(&state).pop().map(|one| (one.id.clone(), one.severity, one.text))
    };
    let scarce = |in_use, time_wait, per_s| {
        let (id, severity, text) = with(in_use, time_wait, per_s, 0).unwrap();
        assert_eq!(id, "local-ports-scarce");
        (severity, text)
    };
    let subject = format!("[{LONGEST}]:65535");
    assert_eq!(
        scarce(26_232, 26_000, Some(500.0)),
        (
            Severity::Problem,
            format!("2,000 of 28,232 local ports left to {subject}, exhausted in 4 s at this rate")
        )
    );
    assert_eq!(scarce(20_000, 0, Some(400.0)).0, Severity::Warning, "21 s to the end");
    assert_eq!(
        scarce(28_232, 0, None),
        (Severity::Problem, format!("0 of 28,232 local ports left to {subject}: connect(2) fails"))
    );
    assert_eq!(with(28_000, 27_000, None, 1), None, "ports in TIME-WAIT are reused");
    assert_eq!(with(9_000, 0, Some(4_000.0), 0), None, "a burst into an empty range");
    assert_eq!(with(20_000, 0, None, 0), None, "long-lived connections search for nothing");
    assert_eq!(with(20_000, 19_000, None, 0).unwrap().0, "ports-search-slow");
    assert_eq!(with(29_000, 29_000, None, 0), None, "programs chose ports themselves");
}

#[test]
fn a_loopback_destination_reuses_time_wait_by_default() {
    let mut state = State { limits: limits(), ..State::default() };
    state.destinations = vec![destination(28_000, 27_900, None)];
    state.destinations[0].address = "127.0.0.1".into();
    assert_eq!(find(&state), []);
    state.limits.tw_reuse = Some(0);
    assert_eq!(find(&state)[0].id, "local-ports-scarce");
}

#[test]
fn a_share_of_few_segments_is_no_alarm() {
    let with = |sent, retransmitted| {
        let segments = Some(Segments { over_s: 10.0, sent, retransmitted });
        find(&State { segments, ..State::default() }).pop().map(|one| one.severity)
    };
    assert_eq!(with(2, 1), None);
    assert_eq!(with(50, 49), None);
    assert_eq!(with(10_000, 100), None, "1 %");
    assert_eq!(with(2_450, 50), Some(Severity::Warning), "2 %");
    assert_eq!(with(950, 50), Some(Severity::Problem), "5 %");
}

#[test]
fn memory_orphans_and_tracking_warn_before_they_harm() {
    let with = |memory, orphans, tracked| {
        let mut state = State { limits: limits(), ..State::default() };
        state.counted.memory_bytes = Some(memory);
        state.counted.orphans = Some(orphans);
        state.counted.tracked = Some(tracked);
        let found = find(&state).into_iter().map(|one| (one.id, one.severity));
        found.collect::<Vec<(String, Severity)>>()
    };
    let one = |id: &str, severity| vec![(id.to_owned(), severity)];
    assert_eq!(with(200_000_000, 52_428, 209_715), []);
    assert_eq!(with(200_000_001, 0, 0), one("memory-pressure", Severity::Warning));
    assert_eq!(with(300_000_001, 0, 0), one("memory-pressure", Severity::Problem));
    assert_eq!(with(0, 52_429, 0), one("orphans-near-limit", Severity::Warning));
    assert_eq!(with(0, 65_536, 0), one("orphans-near-limit", Severity::Problem));
    assert_eq!(with(0, 0, 209_716), one("conntrack-near-full", Severity::Warning));
    assert_eq!(with(0, 0, 262_144), one("conntrack-near-full", Severity::Problem));
}

#[test]
fn limits_that_are_not_readable_give_no_diagnosis() {
    let mut state = worst();
    state.limits = super::super::Limits::default();
    let names: Vec<String> = find(&state).into_iter().map(|one| one.id).collect();
    for absent in
        ["local-ports-scarce", "memory-pressure", "orphans-near-limit", "conntrack-near-full"]
    {
        assert!(!names.iter().any(|name| name == absent), "{absent}");
    }
}

#[test]
fn the_name_of_a_process_is_cleaned_in_evidence() {
    let mut state = worst();
    state.listeners[0].process = Some(Process { pid: 1, name: "a\u{1b}[31m\nb".into() });
    let found = find(&state);
    let found: Vec<_> = found.iter().filter(|one| one.subject.ends_with(":65535")).collect();
    assert_eq!(found[0].evidence["process"], "a·[31m b");
}

prop_compose! {
    /// One interval of a machine where nothing is wrong: half-empty queues, no overflow, RSTs of scanners
    /// that raise `sk_drops`, connections, some loss, TIME-WAIT below half of the range.
    fn quiet()(
        after_s in 0.0_f64..5_000.0,
        queues in prop::collection::vec((0_u32..=102, 0_u32..20, 0_u64..3), 0..6),
        sent in 0_i64..100_000,
        lost in 0.0_f64..0.019,
        opened in 0_i64..10_000,
        ports in 0_u32..=14_116,
        tracked in 0_u64..200_000,
    ) -> (f64, Vec<(u32, u32, u64)>, [i64; 3], u32, u64) {
        (after_s, queues, [sent, (sent as f64 * lost) as i64, opened], ports, tracked)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_quiet_machine_has_no_diagnosis(
        looks in prop::collection::vec(quiet(), 1..30), begun in 0_i64..1_000_000,
    ) {
        let mut history = History::new("h", 0.0);
        let (mut at_s, mut sums, mut drops) = (0.0, [begun; 3], [0_u32; 6]);
        for (number, (after_s, queues, added, ports, tracked)) in looks.into_iter().enumerate() {
            at_s += after_s;
            for (sum, added) in sums.iter_mut().zip(added) {
                *sum += added;
            }
            // A healthy server's queue is empty at most looks.
            let empties = number % 3 == 0;
            let listeners = queues.into_iter().enumerate().map(|(n, (queue, rsts, inode))| {
                drops[n] = drops[n].wrapping_add(rsts);
                ListenerLook {
                    address: ([127, 0, 0, 1], 8_000 + n as u16).into(),
                    inode: 10 * n as u64 + inode,
                    process: None,
                    accept_queue_len: if empties { 0 } else { queue },
                    accept_queue_limit: 128,
                    syn_queue_len: Some(queue),
                    drops: Some(drops[n]),
                }
            });
            // What happened before the watch is no evidence, however much it was.
            let counters = crate::watch::tests::counters(&[
                ("TcpOutSegs", sums[0]),
                ("TcpRetransSegs", sums[1]),
                ("TcpActiveOpens", sums[2]),
                ("TcpExtListenOverflows", begun),
                ("TcpExtListenDrops", begun),
                ("TcpExtSyncookiesSent", begun),
                ("TcpExtTCPTimeWaitOverflow", begun),
            ]);
            let to = "10.0.0.9:443".parse().unwrap();
            let one = Destination { to, sources: 1, ports_in_use: ports, time_wait: ports, syn_sent: 1, here: false };
            let mut look = Look { at_s, listeners: listeners.collect(), counters, ..Look::default() };
            look.limits = limits();
            look.counted.tracked = Some(tracked);
            look.counted.memory_bytes = Some(100_000_000);
            look.counted.orphans = Some(1_000);
            look.table = Some(SocketDump { at_s, destinations: vec![one], ..SocketDump::default() });
            let state = history.push(look);
            prop_assert_eq!(&state.diagnoses, &[]);
        }
    }
}

#[test]
fn a_full_syn_queue_is_mended_where_it_is_or_where_the_accept_queue_overflows() {
    let named = |port: u16,
                 limit: u32,
                 syn_queue_len: Option<u32>,
                 overflows_per_s: Option<f64>| {
        let plain = listener();
        ListenerState { port, accept_queue_limit: limit, syn_queue_len, overflows_per_s, ..plain }
    };
    let commands = |listeners: Vec<ListenerState>| {
        let state = State { listeners, ..worst() };
        let mut found = find(&state);
        found.retain(|one| one.id == "syn-queue-full");
        found[0].remedies.remove(0).commands
    };
    // The longest SYN queue, then the only accept queue that overflows.
    let (long, full) = (named(1, 4_096, Some(9), None), named(2, 16, Some(0), Some(3.0)));
    assert_eq!(commands(vec![full.clone(), long])[0], "sysctl -w net.core.somaxconn=8192");
    let idle = named(3, 4_096, Some(0), None);
    assert_eq!(commands(vec![idle.clone(), full.clone()]), ["listen(fd, 4096)"]);
    // Neither is known: a backlog below somaxconn, or else somaxconn.
    let short = named(4, 128, Some(0), None);
    assert_eq!(commands(vec![idle.clone(), short]), ["listen(fd, 4096)"]);
    let raised = ["sysctl -w net.core.somaxconn=8192", "listen(fd, 8192)"];
    assert_eq!(commands(vec![idle]), raised);
    let two = vec![full.clone(), ListenerState { port: 5, ..full }];
    assert_eq!(commands(two), ["listen(fd, 4096)"]);
}

#[test]
fn a_destination_that_is_this_machine_has_the_fault_of_the_listener_that_answers() {
    let mut state = worst();
    state.diagnoses.clear();
    state.listeners.truncate(1);
    let mut to = destination(1, 0, None);
    (to.address, to.port) = ("127.0.0.1".into(), 80);
    let with = |state: &mut State, at: &str| {
        (state.listeners[0].address, state.listeners[0].port) = (at.into(), 80);
        state.diagnoses = find(state);
    };
    let found = |state: &State, to: &DestinationState| {
        of_destination(state, to).map(|one| one.subject.clone())
    };
    with(&mut state, "127.0.0.1");
    assert_eq!(found(&state, &to).as_deref(), Some("127.0.0.1:80"));
    with(&mut state, "0.0.0.0");
    assert_eq!(found(&state, &to), None, "it may be another machine");
    to.here = true;
    assert_eq!(found(&state, &to).as_deref(), Some("0.0.0.0:80"));
    with(&mut state, "::");
    assert_eq!(found(&state, &to).as_deref(), Some("[::]:80"));
    // A listener of this very address answers first, and nothing is wrong with it.
    let exact = ListenerState { address: "127.0.0.1".into(), port: 80, ..ListenerState::default() };
    state.listeners.push(exact);
    assert_eq!(found(&state, &to), None);
    to.address = "10.9.9.9".into();
    assert_eq!(found(&state, &DestinationState { here: false, ..to }), None);
}
