//! Queues over many looks: healthy and busy, a burst, a lasting overload, a queue that never empties.

use super::super::look::{ListenerLook, Look};
use super::super::{History, Process};
use super::*;
use tcptoll_core::finding::Severity;

/// A machine with one listener, looked at each second.
struct Server {
    history: History,
    looks: u32,
    established: i64,
    dropped: u32,
}

impl Server {
    fn new() -> Self {
        let mut server =
            Self { history: History::new("h", 0.0), looks: 0, established: 0, dropped: 0 };
        server.look(0, 0, 0);
        server
    }

    /// The next look: this queue of 128; since the one before so many were established and dropped.
    fn look(&mut self, queue: u32, established: i64, dropped: u32) -> Vec<Finding> {
        self.established += established;
        self.dropped += dropped;
        let listener = ListenerLook {
            address: ([10, 0, 0, 7], 80).into(),
            inode: 1,
            process: Some(Process { pid: 7, name: "app".into() }),
            accept_queue_len: queue,
            accept_queue_limit: 128,
            syn_queue_len: None,
            drops: Some(self.dropped),
        };
        let counters = crate::watch::tests::counters(&[
            ("TcpPassiveOpens", self.established),
            ("TcpExtListenOverflows", self.dropped.into()),
            ("TcpExtListenDrops", self.dropped.into()),
        ]);
        let at_s = f64::from(self.looks);
        self.looks += 1;
        let time = "2026-11-23T08:42:54Z".to_owned();
        let look = Look { at_s, time, listeners: vec![listener], counters, ..Look::default() };
        self.history.push(look).diagnoses.clone()
    }
}

/// Names and texts.
fn said(found: &[Finding]) -> Vec<(&str, &str)> {
    found.iter().map(|one| (one.id.as_str(), one.text.as_str())).collect()
}

/// Uniform numbers from 0 to 1, the same in each run.
fn uniform(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*seed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

#[test]
fn a_healthy_busy_server_is_not_named_in_six_hours() {
    // One acceptor that is busy for a part of the time, each connection for `serves_s`: arrivals and services
    // at random (M/M/1), event by event; the queue is what waits behind the connection in service.
    let mut seed = 7;
    for (busy, serves_s, hours) in
        [(0.5, 0.05, 1), (0.7, 0.01, 1), (0.8, 0.005, 1), (0.9, 0.002, 1), (0.6, 0.1, 2)]
    {
        let mut server = Server::new();
        let exponential = |seed: &mut u64, mean: f64| -uniform(seed).ln() * mean;
        let (mut inside, mut now_s, mut free_s) = (0_u32, 0.0, f64::INFINITY);
        let mut comes_s = exponential(&mut seed, serves_s / busy);
        for second in 1..=hours * 3_600 {
            let mut came = 0;
            while now_s < f64::from(second) {
                now_s = comes_s.min(free_s);
                if comes_s <= free_s {
                    (inside, came) = (inside + 1, came + 1);
                    comes_s = now_s + exponential(&mut seed, serves_s / busy);
                    free_s =
                        if inside == 1 { now_s + exponential(&mut seed, serves_s) } else { free_s };
                } else {
                    inside -= 1;
                    free_s = if inside > 0 {
                        now_s + exponential(&mut seed, serves_s)
                    } else {
                        f64::INFINITY
                    };
                }
            }
            let found = server.look(inside.saturating_sub(1).min(100), came, 0);
            assert_eq!(said(&found), [], "busy {busy}, {serves_s} s each, second {second}");
        }
    }
}

#[test]
fn a_burst_that_drains_is_no_standing_queue_and_no_lasting_overload() {
    let mut server = Server::new();
    server.look(129, 129, 40);
    let mut last = Vec::new();
    for queue in [120, 112, 104, 96, 88, 80, 72, 64, 56, 48, 40, 32, 24, 16, 8, 0] {
        last = server.look(queue, 0, 0);
        assert!(last.iter().all(|one| one.id != "accept-queue-standing"), "{queue}: {last:?}");
        assert!(!last.iter().any(|one| one.text.contains("lasting")), "{queue}: {last:?}");
    }
    assert_eq!(last, []);
}

#[test]
fn a_queue_that_is_full_at_every_look_is_a_lasting_overload_whose_remedy_is_to_accept_faster() {
    let mut server = Server::new();
    let first = server.look(129, 139, 50);
    // One look does not tell a burst from an overload that lasts.
    assert!(
        first[0].fix().unwrap().change.starts_with("If the queue overflows in bursts"),
        "{first:?}"
    );
    let found = (0..9).map(|_| server.look(128, 10, 50)).last().unwrap();
    assert_eq!(
        said(&found),
        [(
            "accept-queue-full",
            "50.0 overflows/s at 10.0.0.7:80: lasting overload, queue > 80 % at 10/10 looks"
        )]
    );
    assert_eq!(found[0].evidence["overload"], "lasting");
    let fix = found[0].fix().unwrap();
    assert!(fix.change.starts_with("Accept faster: "), "{fix:?}");
    assert_eq!(fix.commands, ["top -H -p 7"], "no longer queue");
}

#[test]
fn a_queue_that_never_empties_is_named_with_the_time_that_clients_wait() {
    let mut server = Server::new();
    let found = (0..10).map(|_| server.look(12, 5, 0)).last().unwrap();
    assert_eq!(
        said(&found),
        [(
            "accept-queue-standing",
            "12 clients wait at 10.0.0.7:80 at each look (10 in 9 s): ≥ 2.3 s at this rate"
        )]
    );
    assert_eq!(found[0].severity, Severity::Problem);
    assert_eq!(found[0].evidence["accepted_at_most"], 47);
    // Nobody accepts at all: a few looks are enough.
    let mut stuck = Server::new();
    let found = (0..5).map(|second| stuck.look(3 + second, 1, 0)).last().unwrap();
    assert_eq!(said(&found)[0].0, "accept-queue-standing");
}

#[test]
fn a_queue_whose_wait_is_unknown_is_named_after_thirty_looks_and_a_fast_one_of_few_is_not() {
    // 10,000 connections/s of this host, most of them another listener's.
    let mut server = Server::new();
    for look in 1..=60 {
        let found = server.look(12, 10_000, 0);
        assert_eq!(found.len(), usize::from(look >= 30), "{look}: {found:?}");
        if let Some(one) = found.first() {
            assert_eq!(
                (one.id.as_str(), one.severity),
                ("accept-queue-standing", Severity::Warning)
            );
        }
    }
    let mut fast = Server::new();
    assert!((0..60).all(|_| fast.look(9, 10_000, 0).is_empty()), "9 ms");
}

#[test]
fn no_drop_is_claimed_only_for_the_time_that_was_watched() {
    let mut server = Server::new();
    server.look(0, 0, 900);
    let mut again = History::new("h", 0.0);
    std::mem::swap(&mut again, &mut server.history);
    // A watch that begins after these drops.
    let texts: Vec<String> =
        (0..3).flat_map(|_| server.look(110, 110, 0)).map(|one| one.text).collect();
    assert!(texts[0].ends_with("of its limit: 110 of 128"), "{texts:?}");
    assert!(texts[2].ends_with("110 of 128, no drop in 4 s"), "{texts:?}");
    assert!(!texts.iter().any(|text| text.contains("yet")), "{texts:?}");
}

#[test]
fn a_burst_that_becomes_a_lasting_overload_is_recorded_with_the_fix_of_the_latter() {
    use crate::watch::Recording;
    use crate::watch::record::Reviewer;
    use crate::watch::record::{WatchHeader, WatchLine};
    let (mut server, mut recording, mut reviewer) =
        (Server::new(), Recording::default(), Reviewer::default());
    let header = WatchHeader {
        record_version: 1,
        interval_s: 1.0,
        started_at: "2026-11-23T08:42:54.011Z".into(),
        ..WatchHeader::default()
    };
    reviewer.line(WatchLine::WatchHeader(Box::new(header))).unwrap();
    for _ in 0..12 {
        server.look(129, 10, 50);
        for line in recording.lines(server.history.latest().unwrap(), 0.0) {
            reviewer.line(line).unwrap();
        }
    }
    let review = reviewer.finish(false);
    let [one] = &review.episodes[..] else { panic!("{:?}", review.episodes) };
    assert_eq!(one.id, "accept-queue-full");
    assert!(one.fix.as_ref().unwrap().change.starts_with("Accept faster: "), "{one:?}");
}
