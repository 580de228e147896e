//! The loop against a driver that does anything a driver may, in any order: is everything counted
//! once, and is the driver only asked what it may be asked?

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::http::status::Expected;
use tcptoll_core::stats::arrivals::Spread;
use tcptoll_kernel::socket::errno;

use super::Client;
use crate::clock::monotonic_ns;
use crate::load::LoadError;
use crate::load::control::{Part as _, Team};
use crate::load::driver::{Driver, Event, What};
use crate::load::http::tally::Tally;
use crate::load::http::{Request, Shared, plan};
use crate::load::pace::{Pace, Plan};
use crate::messages::{GROUP_LATENCY, GroupReport, GroupSlice, HttpLoad, HttpReport, Io};

/// Slots of every script.
const SLOTS: u32 = 4;

/// Every request, long enough to leave in parts.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// What a server may send for it; the first is right.
const ANSWERS: [&[u8]; 6] = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, world",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    b"\0\x16\x03",
];

/// Bytes that one answer has too many: `, world`.
const EXCESS: usize = 7;

/// What the driver saw.
#[derive(Debug, Default)]
struct DriverLog {
    opened: u64,
    made: u64,
    open: u64,
    /// Right answers whose last byte was handed over.
    answered: u64,
}

/// A slot's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Stage {
    #[default]
    Empty,
    Connecting,
    /// So many bytes of the request have left.
    Open(usize),
}

struct Script {
    random: u64,
    stages: Vec<Stage>,
    /// With the bytes of what is received, and whether a right answer ends with them.
    events: VecDeque<(Event, Vec<u8>, bool)>,
    bytes: Vec<u8>,
    /// Answers are stamped this much before now.
    early_ns: u64,
    seen: Rc<RefCell<DriverLog>>,
    /// Slots whose peer has ended the connection, and how many such have been closed.
    ended: Vec<bool>,
    after_peer: u64,
}

impl Script {
    /// The next of a sequence that the seed decides, below `most` (`SplitMix64`).
    fn below(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % most
    }

    fn tell(&mut self, slot: u32, what: What) {
        // Whether or not the loop has taken the event when it closes.
        if matches!(what, What::Closed { .. } | What::Failed(_)) {
            self.ended[slot as usize] = true;
        }
        self.events.push_back((Event { slot, what }, Vec::new(), false));
    }

    /// Bytes come in up to three pieces.
    fn answer(&mut self, slot: u32, answer: usize) {
        let mut rest = ANSWERS[answer];
        while !rest.is_empty() {
            let long = match self.below(3) {
                0 => 1 + self.below(rest.len() as u64) as usize,
                _ => rest.len(),
            };
            let (piece, after) = rest.split_at(long);
            rest = after;
            let what = What::Received { at_ns: monotonic_ns() - self.early_ns };
            // Too many bytes follow a response that was right.
            let right = match answer {
                0 => rest.is_empty(),
                3 => rest.len() <= EXCESS && rest.len() + long > EXCESS,
                _ => false,
            };
            self.events.push_back((Event { slot, what }, piece.to_vec(), right));
        }
    }

    /// What a server does with a whole request.
    fn react(&mut self, slot: u32) {
        match self.below(24) {
            0 => {}
            1 => self.tell(slot, What::Closed { at_ns: monotonic_ns() }),
            2 => self.tell(slot, What::Failed(io::Error::from_raw_os_error(errno::ECONNRESET))),
            3 => {
                self.answer(slot, 0);
                self.tell(slot, What::Closed { at_ns: monotonic_ns() });
            }
            4..9 => {
                let answer = 1 + self.below(5) as usize;
                self.answer(slot, answer);
            }
            _ => self.answer(slot, 0),
        }
    }
}

impl Driver for Script {
    const NAME: &'static str = "script";

    fn open(&mut self, slot: u32, _source: usize) -> io::Result<()> {
        self.ended[slot as usize] = false;
        assert_eq!(self.stages[slot as usize], Stage::Empty, "a slot in use was opened");
        self.seen.borrow_mut().opened += 1;
        let outcome = match self.below(16) {
            0 => return Err(io::Error::from_raw_os_error(errno::EADDRNOTAVAIL)),
            1 => Some(Err(io::Error::from_raw_os_error(errno::ECONNREFUSED))),
            2 => None,
            _ => Some(Ok(())),
        };
        self.stages[slot as usize] = Stage::Connecting;
        if let Some(outcome) = outcome {
            self.tell(slot, What::Connected { outcome, at_ns: monotonic_ns() });
        }
        Ok(())
    }

    fn send(&mut self, slot: u32, bytes: &[u8]) -> io::Result<usize> {
        let Stage::Open(gone) = self.stages[slot as usize] else {
            panic!("bytes for a connection that is not there");
        };
        assert_eq!(bytes, &REQUEST[gone..], "parts of requests in order, none twice");
        let sent = match self.below(8) {
            0 => return Err(io::Error::from_raw_os_error(errno::EPIPE)),
            1 => self.below(bytes.len() as u64) as usize,
            _ => bytes.len(),
        };
        if sent == bytes.len() {
            self.stages[slot as usize] = Stage::Open(0);
            self.react(slot);
        } else {
            self.stages[slot as usize] = Stage::Open(gone + sent);
            if self.below(8) == 0 {
                // An answer before its time.
                self.answer(slot, 0);
            }
        }
        Ok(sent)
    }

    fn tell_of_room(&mut self, slot: u32) {
        self.tell(slot, What::Room);
    }

    fn close(&mut self, slot: u32, made: bool) {
        let stage = std::mem::take(&mut self.stages[slot as usize]);
        assert_eq!(matches!(stage, Stage::Open(_)), made, "{stage:?}");
        if made {
            self.seen.borrow_mut().open -= 1;
            self.after_peer += u64::from(std::mem::take(&mut self.ended[slot as usize]));
        }
        self.events.retain(|(event, ..)| event.slot != slot);
    }

    fn closed_after_peer(&self) -> u64 {
        self.after_peer
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), LoadError> {
        if self.events.is_empty() {
            std::thread::sleep(timeout.unwrap_or_default().min(Duration::from_millis(1)));
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Event> {
        let (event, bytes, right) = self.events.pop_front()?;
        self.bytes = bytes;
        let mut seen = self.seen.borrow_mut();
        seen.answered += u64::from(right);
        if let What::Connected { outcome: Ok(()), .. } = event.what {
            self.stages[event.slot as usize] = Stage::Open(0);
            seen.made += 1;
            seen.open += 1;
        }
        Some(event)
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn look(&self, _slot: u32) -> Option<(Vec<u8>, String)> {
        None
    }
}

fn load() -> HttpLoad {
    HttpLoad {
        target: ([127, 0, 0, 1], 1).into(),
        tls: None,
        reuse: Reuse::KeepAlive,
        connections: 1,
        threads: 1,
        rate_per_s: None,
        spread: Spread::Constant,
        ramp_ns: 0,
        warmup_requests: 0,
        warmup_ns: 0,
        requests: None,
        duration_ns: None,
        timeout_ns: 10_000_000_000,
        connect_timeout_ns: 10_000_000_000,
        bind: Vec::new(),
        congestion: None,
        io: Io::Epoll,
        batch_ns: 0,
        expect_status: Expected::default(),
        expect_sha256: None,
        body_limit: 1 << 20,
        seed: 1,
    }
}

/// What came of a load on a driver that stamps answers so much too early.
fn played(seed: u64, load: &HttpLoad, early_ns: u64) -> (HttpReport, Rc<RefCell<DriverLog>>) {
    let (mut tally, seen) = tallied(seed, load, early_ns, &[]);
    (tally.report(), seen)
}

/// The same of requests in these groups.
fn tallied(
    seed: u64,
    load: &HttpLoad,
    early_ns: u64,
    groups: &[u8],
) -> (Tally, Rc<RefCell<DriverLog>>) {
    let seen = Rc::new(RefCell::new(DriverLog::default()));
    let driver = Script {
        random: seed,
        stages: vec![Stage::Empty; SLOTS as usize],
        events: VecDeque::new(),
        bytes: Vec::new(),
        early_ns,
        seen: Rc::clone(&seen),
        ended: vec![false; SLOTS as usize],
        after_peer: 0,
    };
    let shared = Shared {
        requests: vec![Request { bytes: REQUEST.into(), to_head: false }; groups.len().max(1)],
        groups: groups.to_vec(),
        tls: None,
        digest: None,
        team: Team::new(1),
    };
    let plan = Plan { slots: SLOTS.into(), ..plan(load) };
    let pace = Pace::new(&plan, shared.team.start_ns(), 0, 1);
    let mut client = Client::new(load, &shared, driver, pace, 0);
    client.run().unwrap();
    (client.end(), seen)
}

fn play(seed: u64, load: &HttpLoad) {
    let (report, seen) = played(seed, load, 0);
    let seen = seen.borrow();
    let told = format!("seed {seed}, {load:?}: {report:?}, {seen:?}");
    let failed: u64 = report.errors.values().sum();
    assert_eq!(report.attempts, report.ok + failed, "{told}");
    assert_eq!((report.ok, report.warmup.0), (seen.answered, 0), "{told}");
    assert_eq!(report.connections, (seen.opened, seen.made), "{told}");
    let closing = &report.closing;
    let ended = closing.by_client + closing.by_server + closing.open_at_end;
    assert_eq!((ended, seen.open), (seen.made, 0), "{told}");
    if let Some(intended) = report.intended {
        let unsent = report.errors.get("unsent").copied().unwrap_or(0);
        assert!(intended >= report.attempts - unsent, "{told}");
    }
    assert!(report.attempts > 0, "{told}");
    if load.rate_per_s.is_none() && Some(report.attempts) == load.requests {
        let rates = &report.rates;
        let counted = rates.requests_per_s * rates.window_ns as f64 / 1e9;
        assert!((counted - report.ok as f64).abs() < 1e-3, "all that were asked for: {told}");
        assert_eq!(rates.window_ns, report.elapsed_ns, "to the end of the last: {told}");
    }
}

#[test]
fn a_response_that_came_before_its_request_was_sent_is_malformed() {
    for rate_per_s in [None, Some(5_000.0)] {
        let timeout_ns = 20_000_000;
        let connect_timeout_ns = 5_000_000;
        let requests = Some(100);
        let load = HttpLoad { rate_per_s, requests, timeout_ns, connect_timeout_ns, ..load() };
        let (report, seen) = played(7, &load, 1_000_000_000);
        assert!(seen.borrow().answered > 0);
        assert_eq!((report.ok, report.attempts), (0, 100), "{report:?}");
        assert!(report.errors["malformed"] > 20, "{:?}", report.errors);
    }
}

#[test]
fn whatever_a_driver_tells_in_any_order_is_counted_once() {
    let ways = [
        Reuse::KeepAlive,
        Reuse::Requests(3),
        Reuse::Lifetime(200_000),
        Reuse::ClientClose,
        Reuse::Idle(300_000),
    ];
    for seed in 0..60 {
        let reuse = ways[seed as usize % ways.len()];
        let rate_per_s = (seed % 3 == 0 && !matches!(reuse, Reuse::Idle(_))).then_some(20_000.0);
        let load = HttpLoad {
            reuse,
            rate_per_s,
            requests: Some(150),
            duration_ns: Some(50_000_000),
            timeout_ns: 3_000_000,
            connect_timeout_ns: 2_000_000,
            body_limit: 1 << 20,
            seed,
            ..load()
        };
        play(seed, &load);
    }
}

#[test]
fn each_group_counts_its_own_requests_once_and_together_they_are_all() {
    for seed in 0..40 {
        let rate_per_s = (seed % 2 == 0).then_some(20_000.0);
        let load = HttpLoad {
            reuse: [Reuse::KeepAlive, Reuse::ClientClose][seed as usize / 2 % 2],
            rate_per_s,
            requests: Some(150),
            duration_ns: Some(50_000_000),
            timeout_ns: 3_000_000,
            connect_timeout_ns: 2_000_000,
            seed,
            ..load()
        };
        // Three of four need the second group.
        let (mut tally, _) = tallied(seed, &load, 0, &[0, 1, 1, 1]);
        let grouped = tally.groups.take().unwrap();
        let reports = grouped.reports();
        let report = tally.report();
        let told = format!("seed {seed}: {report:?}, {reports:?}");
        assert_eq!(reports.len(), 2, "{told}");
        let total = |count: fn(&GroupReport) -> u64| reports.iter().map(count).sum::<u64>();
        assert_eq!(total(|group| group.attempts), report.attempts, "{told}");
        assert_eq!(total(|group| group.ok), report.ok, "{told}");
        for (class, count) in &report.errors {
            assert_eq!(
                total(|group| group.errors.values().sum()),
                report.errors.values().sum::<u64>()
            );
            let all = reports.iter().filter_map(|group| group.errors.get(class)).sum::<u64>();
            assert_eq!(all, *count, "{class}: {told}");
        }
        for group in &reports {
            let failed: u64 = group.errors.values().sum();
            assert_eq!(group.attempts, group.ok + failed, "{told}");
            let total = |count: fn(&GroupSlice) -> u64| group.slices.iter().map(count).sum::<u64>();
            assert!(total(|slice| slice.due) <= group.attempts, "{told}");
            assert_eq!(total(|slice| slice.due), total(|slice| slice.ok + slice.failed), "{told}");
        }
        // Requests are sent in the order of the lines, those given up unsent among them.
        let quarter = report.attempts / 4;
        assert!(reports[0].attempts.abs_diff(quarter) <= 1, "{told}");
        for (name, histogram) in grouped.into_histograms() {
            let group = reports.iter().find(|group| GROUP_LATENCY[group.group as usize] == name);
            assert_eq!(histogram.count(), group.unwrap().ok, "{told}");
        }
    }
}
