use std::mem::size_of;

use super::history::LOOKS_MAX;
use super::*;
use tcptoll_core::finding::Finding;
use tcptoll_core::tcp::counters::Counters;

/// Every counter that a rate needs, as far as it is not named: 0.
pub(crate) fn counters(known: &[(&str, i64)]) -> Counters {
    let names = [
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
    let mut counters: Counters = names.iter().map(|name| ((*name).to_owned(), 0)).collect();
    counters.extend(known.iter().map(|(name, value)| ((*name).to_owned(), *value)));
    counters
}

fn listener(port: u16, inode: u64, queue: u32, drops: u32) -> ListenerLook {
    ListenerLook {
        address: ([10, 0, 0, 7], port).into(),
        inode,
        process: None,
        accept_queue_len: queue,
        accept_queue_limit: 128,
        syn_queue_len: None,
        drops: Some(drops),
    }
}

fn look(at_s: f64, listeners: Vec<ListenerLook>, overflows: i64) -> Look {
    let drops = [("TcpExtListenOverflows", overflows), ("TcpExtListenDrops", overflows)];
    Look { at_s, listeners, counters: counters(&drops), ..Look::default() }
}

fn rates_of(state: &State, port: u16) -> (Option<f64>, Option<f64>, Option<u64>) {
    let is_on_port = |one: &&ListenerState| one.port == port;
    let one = state.listeners.iter().find(is_on_port).unwrap();
    (one.overflows_per_s, one.drops_per_s, one.drops)
}

fn named(state: &State) -> Vec<(&str, &str)> {
    state.diagnoses.iter().map(|one| (one.id.as_str(), one.subject.as_str())).collect()
}

#[test]
fn one_of_three_listeners_that_overflows_is_named_with_the_rate_of_the_host() {
    let mut history = History::new("web1", 1_000.0);
    let others = [listener(80, 1, 0, 4), listener(82, 3, 1, 9)];
    let with = |queue, drops| [&others[..], &[listener(81, 2, queue, drops)]].concat();
    let first = history.push(look(0.0, with(3, 100), 7_000));
    assert_eq!((first.interval_s, first.rates.clone()), (0.0, None));
    assert_eq!(rates_of(first, 81), (None, None, Some(0)), "counts since boot are no rates");
    assert_eq!(first.diagnoses, []);
    // 400 overflows, of which 50 last ACKs count twice in sk_drops.
    let second = history.push(look(2.0, with(129, 550), 7_400));
    assert_eq!(rates_of(second, 81), (Some(200.0), Some(225.0), Some(450)));
    assert_eq!(rates_of(second, 80), (Some(0.0), Some(0.0), Some(0)));
    assert_eq!(named(second), [("accept-queue-full", "10.0.0.7:81")]);
    assert_eq!(
        second.diagnoses[0].text,
        "200 overflows/s at 10.0.0.7:81: accept queue full, 129 of 128"
    );
    assert_eq!(second.listeners[0].port, 81, "what is named comes first");
    assert!((second.uptime_s - 1_002.0).abs() < 1e-9);
}

#[test]
fn a_diagnosis_stays_ten_seconds_after_its_evidence_ended() {
    let mut history = History::new("web1", 0.0);
    history.push(look(0.0, vec![listener(80, 1, 0, 0)], 0));
    history.push(look(1.0, vec![listener(80, 1, 0, 10)], 10));
    let mut texts = Vec::new();
    for second in 2..13 {
        let state = history.push(look(f64::from(second), vec![listener(80, 1, 0, 10)], 10));
        texts.push(state.diagnoses.first().map(|one| one.text.clone()));
    }
    assert_eq!(
        texts[3].as_deref().unwrap(),
        "10.0 overflows/s at 10.0.0.7:80: accept queue full between looks (limit 128); ended 4 s ago"
    );
    let shown: Vec<bool> = texts.iter().map(Option::is_some).collect();
    assert_eq!(shown, [[true; 9].as_slice(), &[false; 2]].concat());
}

#[test]
fn a_fault_that_comes_and_goes_is_named_all_the_time() {
    let mut history = History::new("web1", 0.0);
    let mut drops = 0;
    for second in 0..120_u32 {
        drops += if second % 7 == 1 { 5 } else { 0 };
        let listeners = vec![listener(80, 1, 0, drops)];
        let state = history.push(look(f64::from(second), listeners, drops.into()));
        assert_eq!(state.diagnoses.len(), usize::from(second > 0), "at {second} s");
    }
}

#[test]
fn a_listener_made_anew_begins_again() {
    let mut history = History::new("web1", 0.0);
    history.push(look(0.0, vec![listener(80, 1, 100, 900), listener(81, 9, 0, 0)], 900));
    let state = history.push(look(1.0, vec![listener(80, 2, 5, 3), listener(81, 9, 0, 0)], 903));
    assert_eq!(rates_of(state, 80), (None, None, Some(3)));
    assert_eq!(state.listeners.iter().find(|one| one.port == 80).unwrap().accept_queue_peak, 5);
    assert_eq!(rates_of(state, 81).0, Some(0.0));
    let state = history.push(look(2.0, vec![listener(80, 2, 5, 8), listener(81, 9, 0, 0)], 908));
    assert_eq!(rates_of(state, 80), (Some(5.0), Some(5.0), Some(8)));
    assert_eq!(history.listeners.followed(), 2, "one that vanished is not followed");
}

#[test]
fn sockets_of_one_port_are_entries_of_their_own_and_one_diagnosis() {
    let mut history = History::new("web1", 0.0);
    let workers = |stuck, queue| {
        vec![listener(80, 1, 0, 0), listener(80, 2, queue, stuck), listener(80, 3, 0, 0)]
    };
    history.push(look(0.0, workers(0, 0), 0));
    let state = history.push(look(1.0, workers(40, 129), 40));
    assert_eq!(state.listeners.len(), 3);
    assert!(state.listeners.iter().all(|one| one.sockets == 3));
    let rates: Vec<_> =
        state.listeners.iter().map(|one| (one.inode, one.overflows_per_s)).collect();
    assert_eq!(rates, [(1, Some(0.0)), (2, Some(40.0)), (3, Some(0.0))]);
    assert_eq!(named(state), [("accept-queue-full", "10.0.0.7:80")]);
    let evidence = &state.diagnoses[0].evidence;
    assert_eq!((&evidence["sockets"], &evidence["sockets_full"]), (&3.into(), &1.into()));
}

#[test]
fn sk_drops_wraps() {
    let mut history = History::new("web1", 0.0);
    history.push(look(0.0, vec![listener(80, 1, 0, u32::MAX - 9)], 0));
    let state = history.push(look(1.0, vec![listener(80, 1, 0, 10)], 20));
    assert_eq!(rates_of(state, 80), (Some(20.0), Some(20.0), Some(20)));
}

#[test]
fn counters_that_go_backwards_or_miss_give_no_rates_and_never_negative_ones() {
    let mut history = History::new("web1", 0.0);
    history.push(look(0.0, vec![listener(80, 1, 0, 5)], 900));
    let state = history.push(look(1.0, vec![listener(80, 1, 0, 5)], 3));
    assert_eq!((state.rates.clone(), state.segments), (None, None));
    assert_eq!(rates_of(state, 80), (None, Some(0.0), Some(0)), "sk_drops went on");
    let state = history.push(look(2.0, vec![listener(80, 1, 0, 5)], 4));
    assert!(state.rates.is_some());
    let mut without = look(3.0, vec![], 4);
    without.counters.remove("TcpRetransSegs");
    assert_eq!(history.push(without).rates, None);
}

#[test]
fn two_looks_at_one_time_give_no_rate_and_lose_no_drop() {
    let mut history = History::new("web1", 0.0);
    history.push(look(1.0, vec![listener(80, 1, 0, 0)], 0));
    for at_s in [1.0, 0.5, f64::NAN] {
        let state = history.push(look(at_s, vec![listener(80, 1, 0, 7)], 7));
        assert_eq!(rates_of(state, 80), (None, None, Some(7)), "{at_s}");
        assert_eq!((state.interval_s, state.rates.is_none()), (0.0, true));
    }
}

#[test]
fn after_a_suspension_rates_are_over_the_time_that_passed() {
    let mut history = History::new("web1", 0.0);
    history.push(look(10.0, vec![listener(80, 1, 129, 0)], 0));
    let state = history.push(look(3_610.0, vec![listener(80, 1, 0, 36)], 36));
    assert_eq!(rates_of(state, 80), (Some(0.01), Some(0.01), Some(36)));
    let one = &state.listeners[0];
    assert_eq!((one.accept_queue_recent_peak, one.accept_queue_peak), (0, 129));
}

#[test]
fn a_recent_peak_is_of_the_last_five_to_ten_seconds() {
    let mut history = History::new("web1", 0.0);
    for second in 0..30_u32 {
        let queue = if second == 11 { 110 } else { second % 2 };
        let state = history.push(look(f64::from(second), vec![listener(80, 1, queue, 0)], 0));
        let recent = state.listeners[0].accept_queue_recent_peak;
        assert_eq!(
            recent,
            if (11..20).contains(&second) { 110 } else { u32::from(second > 0) },
            "{second}"
        );
        // 10 s more by the hold.
        let warned = named(state) == [("accept-queue-near", "10.0.0.7:80")];
        assert_eq!(warned, (11..29).contains(&second), "{second}: {:?}", state.diagnoses);
    }
}

#[test]
fn past_states_are_gone_back_to_the_newest_first() {
    let mut history = History::new("web1", 0.0);
    assert!(history.is_empty() && history.latest().is_none() && history.back(0).is_none());
    for second in 0..700_u32 {
        let listeners = vec![listener(80, 1, 0, 0), listener(81, 2, second + 1, 0)];
        history.push(look(f64::from(second), listeners, 0));
    }
    assert_eq!(history.len(), LOOKS_MAX + 1);
    let at: Vec<f64> = history.iter_back().map(|state| state.at_s).collect();
    assert!(at.windows(2).all(|pair| (pair[0] - pair[1] - 1.0).abs() < 1e-9));
    assert_eq!((history.back(0).unwrap().at_s, history.back(600).unwrap().at_s), (699.0, 99.0));
    assert!(history.back(601).is_none());
    let past = history.back(3).unwrap();
    assert_eq!((past.listeners.len(), past.listeners_left_out), (1, 1));
    assert_eq!(past.listeners[0].accept_queue_len, 697);
}

#[test]
fn listeners_beyond_the_room_are_counted_and_busy_ones_have_it() {
    let mut history = History::new("web1", 0.0);
    let listeners: Vec<_> =
        (0..3_000_u16).map(|n| listener(n, n.into(), u32::from(n == 2_999), 0)).collect();
    let twice = [listeners.clone(), listeners].concat();
    let state = history.push(look(0.0, twice, 0));
    assert_eq!((state.listeners.len(), state.listeners_left_out), (LISTENERS_MAX, 3_000 - 1_024));
    assert_eq!(state.listeners[0].port, 2_999);
    let many = (0..9_000_u32).map(|n| listener(n as u16, n.into(), 0, 0)).collect();
    let state = history.push(look(1.0, many, 0));
    assert_eq!(state.listeners.len() as u64 + state.listeners_left_out, 9_000);
    assert_eq!(history.listeners.followed(), listeners::TRACKED_MAX);
}

/// Bytes that a state holds, with an allocator's share of 16 bytes a block.
fn bytes(state: &State) -> usize {
    fn text(text: &str) -> usize {
        text.len() + 16
    }
    // Nodes of a BTreeMap hold 11 entries; where there are several they may be half full.
    fn map<K, V>(len: usize) -> usize {
        let nodes = if len <= 11 { len.min(1) } else { len.div_ceil(5) };
        nodes * (11 * (size_of::<K>() + size_of::<V>()) + 32)
    }
    let listener = |one: &ListenerState| {
        text(&one.address) + one.process.as_ref().map_or(0, |process| text(&process.name))
    };
    let diagnosis = |one: &Finding| {
        let fix = one.fix().map_or(0, |fix| {
            let commands: usize =
                fix.commands.iter().map(|line| size_of::<String>() + text(line)).sum();
            text(&fix.change) + commands + text(&fix.effect) + text(&fix.cost) + text(&fix.undo)
        });
        let keys: usize = one.evidence.keys().map(|key| text(key)).sum();
        text(&one.id)
            + text(&one.subject)
            + text(&one.text)
            + map::<String, serde_json::Value>(one.evidence.len())
            + keys
            + fix
    };
    size_of::<State>()
        + text(&state.time)
        + text(&state.host)
        + state.listeners.capacity() * size_of::<ListenerState>()
        + state.listeners.iter().map(listener).sum::<usize>()
        + state.destinations.capacity() * size_of::<DestinationState>()
        + state.destinations.iter().map(|one| text(&one.address)).sum::<usize>()
        + state.diagnoses.capacity() * size_of::<Finding>()
        + state.diagnoses.iter().map(diagnosis).sum::<usize>()
        + map::<String, u64>(state.states.len())
        + state.states.keys().map(|name| text(name)).sum::<usize>()
}

/// A look at so many listeners, of which `busy` overflow, each with its longest name and address.
fn crowd(second: u32, busy: u32, count: u32) -> Look {
    let address = |n: u32| {
        std::net::Ipv6Addr::new(0xfd77, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, n as u16)
    };
    let listeners = (0..count).map(|n| ListenerLook {
        address: (address(n), 50_000 + n as u16).into(),
        // Each hour another one of them is restarted.
        inode: u64::from(n) + if n == second / 3_600 { 100_000 + u64::from(second) } else { 0 },
        process: Some(Process { pid: 4_000_000 + n, name: "a-name-of-15-by".into() }),
        accept_queue_len: if n < busy { 129 } else { 0 },
        accept_queue_limit: 128,
        syn_queue_len: Some(0),
        drops: Some(if n < busy { second } else { 0 }),
    });
    let destinations = (0..64).map(|n| Destination {
        to: (address(n), 443).into(),
        sources: 1,
        ports_in_use: 27_000,
        time_wait: 20_000,
        syn_sent: 1,
        here: false,
    });
    let states =
        ["ESTABLISHED", "TIME-WAIT", "SYN-SENT", "SYN-RECEIVED", "FIN-WAIT-1", "CLOSE-WAIT"];
    let mut look =
        look(f64::from(second), listeners.collect(), i64::from(second) * i64::from(busy));
    look.time = "2026-01-01T03:00:00.000Z".into();
    look.limits.somaxconn = Some(4_096);
    look.limits.local_ports = Some(if busy > 0 { 28_232 } else { 64_512 });
    look.limits.tw_reuse = Some(if busy > 0 { 2 } else { 1 });
    look.table = Some(SocketDump {
        at_s: f64::from(second),
        took_s: 0.04,
        states: states.map(|state| (state.to_owned(), 10_000)).into(),
        destinations: destinations.collect(),
        destinations_left_out: 5,
        unclosed: Vec::new(),
    });
    look
}

/// A look every 120 s: 720 looks, more than the history holds. 80 busy listeners are more than a state has
/// room for diagnoses of.
#[test]
fn one_day_of_a_thousand_listeners_stays_within_the_stated_memory() {
    const QUIET_HELD: usize = 3_000_000;
    const BUSY_HELD: usize = 12_000_000;
    for (busy, limit) in [(0, QUIET_HELD), (80, BUSY_HELD)] {
        let mut history = History::new("a-host-name-of-some-length", 0.0);
        let mut most = 0;
        for (number, second) in (0..86_400).step_by(120).enumerate() {
            // Of a look that is past 20 listeners are kept, so it is the newest that needs all of them.
            let newest = number % 100 == 99;
            let count = if newest { 1_000 } else { 100 };
            history.push(crowd(second, busy, count));
            assert!(history.len() <= LOOKS_MAX + 1 && history.listeners.followed() <= 1_000);
            if newest {
                let held: usize = history.iter_back().map(bytes).sum();
                most = most.max(held);
                let newest = bytes(history.latest().unwrap());
                assert!(newest < 800_000, "{newest}");
            }
        }
        assert!(most < limit, "{busy} busy listeners: {most} bytes held");
        assert!(busy == 0 || most > limit / 2, "the bound is not idle: {most}");
    }
}

#[test]
fn a_state_has_the_segments_of_the_last_ten_seconds() {
    let mut history = History::new("web1", 0.0);
    for second in 0..20_i64 {
        let counters = counters(&[("TcpOutSegs", 1_000 * second), ("TcpRetransSegs", 30 * second)]);
        history.push(Look { at_s: second as f64, counters, ..Look::default() });
    }
    let state = history.latest().unwrap();
    let expected = Segments { over_s: 10.0, sent: 10_000, retransmitted: 300 };
    assert_eq!(state.segments, Some(expected));
    assert_eq!(
        state.diagnoses[0].text,
        "2.91 % of the segments retransmitted: 300 of 10,300 in 10 s"
    );
}
