//! When may the next request begin, and is it measured? One thread's part of the schedule.
//!
//! A load has three parts: a ramp in which a closed loop fills its slots, a warm-up, and the
//! measured part. Time comes in as an argument.
//!
//! Latency is of requests that are begun or due in the measured part. Rates are of what completes
//! in the *window*: from the beginning of the measured part until its time is up, or until the
//! last of a number of requests begins (closed loop) or the next one would be due (open loop). All
//! slots are in use throughout it, so it is unbiased at both edges: what began before it and
//! completes in it makes up for what begins in it and completes after.

use tcptoll_model::arrivals::{Arrivals, Spread};

use crate::messages::HttpLoad;

/// Open loop: what is due and waits for a connection when the measured part is over may still be sent
/// for so long, ns. What was sent is waited for until its own time limit.
const DRAIN_NS: u64 = 1_500_000_000;

/// The schedule of one thread.
#[derive(Debug)]
pub(super) struct Pace {
    start_ns: u64,
    warmup_ns: u64,
    /// The warm-up has a length that is known before, if only 0.
    on_schedule: bool,
    /// Requests of the warm-up that are still to end.
    warmup_left: u64,
    duration_ns: Option<u64>,
    /// The same, up to when the next request of an even schedule would be due.
    window_ns: Option<u64>,
    /// Open loop: time that the schedule of a number of requests takes.
    schedule_ns: Option<u64>,
    /// Measured requests that may still begin.
    left: u64,
    drain_ns: u64,
    /// When the measured part began.
    begun_ns: Option<u64>,
    /// Closed loop: when the last of a number of requests began.
    last_begun_ns: Option<u64>,
    /// Open loop.
    arrivals: Option<Arrivals>,
    intended: u64,
}

/// `total` spread over `parts`, the first of which take what is left over.
pub(super) fn share(total: u64, part: u64, parts: u64) -> u64 {
    total / parts + u64::from(part < total % parts)
}

impl Pace {
    /// Of thread `part` of `parts`.
    pub(super) fn new(load: &HttpLoad, start_ns: u64, part: u64, parts: u64) -> Self {
        let arrivals =
            load.rate_per_s.map(|rate| Arrivals::new(load.spread, rate, load.seed, part, parts));
        let requests = load.requests.map(|requests| share(requests, part, parts));
        let schedule_ns = load.rate_per_s.zip(requests).map(|(rate, requests)| {
            (requests as f64 * parts as f64 * 1e9 / rate).min(u64::MAX as f64) as u64
        });
        // An even schedule of a time ends when the request after the last would be due: two requests
        // that are 200 ms apart are 5 a second, also if 300 ms were asked for.
        let even_ns = load.rate_per_s.zip(load.duration_ns).map(|(rate, long_ns)| {
            let gap_ns = parts as f64 * 1e9 / rate;
            ((long_ns as f64 / gap_ns).ceil() * gap_ns) as u64
        });
        let window_ns = even_ns.filter(|_| load.spread == Spread::Constant).or(load.duration_ns);
        Self {
            window_ns,
            start_ns,
            warmup_ns: load.warmup_ns + load.ramp_ns,
            on_schedule: load.warmup_requests == 0,
            warmup_left: share(load.warmup_requests, part, parts),
            duration_ns: load.duration_ns,
            schedule_ns,
            left: requests.unwrap_or(u64::MAX),
            drain_ns: DRAIN_NS.min(load.timeout_ns),
            begun_ns: None,
            last_begun_ns: None,
            arrivals,
            intended: 0,
        }
    }

    /// Goes on to the measured part if the warm-up is over; true the moment it does.
    pub(super) fn advance(&mut self, now_ns: u64) -> bool {
        let warm = self.warmup_left == 0 && now_ns >= self.start_ns + self.warmup_ns;
        if self.begun_ns.is_some() || !warm {
            return false;
        }
        // Of an open loop the measured part begins with the schedule, not with when it is noticed.
        let on_schedule = self.start_ns + self.warmup_ns;
        let keeps = self.arrivals.is_some() && self.on_schedule;
        self.begun_ns =
            Some(if keeps { on_schedule.max(self.next_due().unwrap_or(0)) } else { now_ns });
        true
    }

    /// When the measured part began.
    pub(super) fn begun_ns(&self) -> Option<u64> {
        self.begun_ns
    }

    /// Whether an instant is of the measured part.
    pub(super) fn measures(&self, at_ns: u64) -> bool {
        self.begun_ns.is_some_and(|begun| at_ns >= begun)
    }

    /// A request of the warm-up has ended.
    pub(super) fn warmed(&mut self) {
        self.warmup_left = self.warmup_left.saturating_sub(1);
    }

    /// No measured request begins, or is due, from here on.
    pub(super) fn ends_ns(&self) -> u64 {
        match (self.begun_ns, self.duration_ns) {
            (Some(begun), Some(long)) => begun.saturating_add(long),
            _ => u64::MAX,
        }
    }

    /// What is due and has not been sent by then is given up.
    pub(super) fn gives_up_ns(&self) -> u64 {
        self.ends_ns().saturating_add(self.drain_ns)
    }

    /// When the next part begins, after `now_ns`.
    pub(super) fn changes_ns(&self, now_ns: u64) -> u64 {
        let warm_ns = self.start_ns + self.warmup_ns;
        let changes = [warm_ns, self.ends_ns(), self.gives_up_ns(), self.window_ends_ns()];
        changes.into_iter().filter(|&at| at > now_ns).min().unwrap_or(u64::MAX)
    }

    /// Closed loop: whether a request may begin now; it is counted if it is measured.
    pub(super) fn may_begin(&mut self, now_ns: u64) -> bool {
        if !self.measures(now_ns) {
            return true;
        }
        if self.left == 0 || now_ns >= self.ends_ns() {
            return false;
        }
        self.left -= 1;
        if self.left == 0 {
            self.last_begun_ns = Some(now_ns);
        }
        true
    }

    /// Whether no request will begin any more.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        if self.arrivals.is_some() {
            return self.next_due().is_none();
        }
        self.measures(now_ns) && (self.left == 0 || now_ns >= self.ends_ns())
    }

    /// Open loop: when the next request is due, ns; `None`: closed loop, or none is any more.
    pub(super) fn next_due(&self) -> Option<u64> {
        let due_ns = self.start_ns.saturating_add(self.arrivals.as_ref()?.peek());
        let goes_on = !self.measures(due_ns) || (self.left > 0 && due_ns < self.ends_ns());
        goes_on.then_some(due_ns)
    }

    /// Open loop: takes the request that is due.
    pub(super) fn take_due(&mut self) {
        let Some(due_ns) = self.next_due() else { return };
        if self.measures(due_ns) {
            self.left -= 1;
            self.intended += 1;
        }
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.take();
        }
    }

    /// Open loop: requests of the measured part that were taken.
    pub(super) fn intended(&self) -> Option<u64> {
        self.arrivals.as_ref().map(|_| self.intended)
    }

    /// Length of the window, as far as it is known before its end, ns.
    pub(super) fn planned_ns(&self) -> Option<u64> {
        [self.window_ns, self.schedule_ns].into_iter().flatten().min()
    }

    /// When the window ends, as far as that is known before; else never.
    pub(super) fn window_ends_ns(&self) -> u64 {
        let ends = self.begun_ns.zip(self.planned_ns());
        ends.map_or(u64::MAX, |(begun, long)| begun.saturating_add(long))
    }

    /// The window: from the first to the second instant. The second is `now_ns` while the window is
    /// open, and never later. None: the measured part has not begun.
    pub(super) fn window_ns(&self, now_ns: u64) -> Option<(u64, u64)> {
        let begun = self.begun_ns?;
        let ends = self.last_begun_ns.unwrap_or(u64::MAX).min(self.window_ends_ns());
        Some((begun, ends.min(now_ns.max(begun))))
    }

    /// Whether what completes at this instant completes within the window.
    pub(super) fn window_has(&self, at_ns: u64) -> bool {
        // Nothing completes after now.
        self.window_ns(at_ns).is_some_and(|(from, to)| (from..=to).contains(&at_ns))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tcptoll_model::http::reuse::Reuse;
    use tcptoll_model::http::status::Expected;

    use super::*;
    use crate::messages::Io;

    pub(in crate::load) fn load() -> HttpLoad {
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

    #[test]
    fn a_share_of_a_number_adds_up_to_it() {
        assert_eq!([0, 1, 2].map(|part| share(8, part, 3)), [3, 3, 2]);
    }

    #[test]
    fn a_closed_loop_measures_so_many_after_so_many_of_warm_up() {
        let load = HttpLoad { warmup_requests: 2, requests: Some(3), ..load() };
        let mut pace = Pace::new(&load, 100, 0, 1);
        assert!(pace.may_begin(100) && pace.may_begin(101));
        assert!(!pace.advance(102));
        pace.warmed();
        pace.warmed();
        assert!(pace.advance(103) && !pace.advance(104));
        assert_eq!([105, 106, 107].map(|now| pace.may_begin(now)), [true; 3]);
        assert!(!pace.may_begin(108) && pace.is_over(108));
        // From the beginning of the measured part to that of its last request.
        assert_eq!(pace.window_ns(153), Some((103, 107)));
        assert!(!pace.window_has(102) && pace.window_has(103) && pace.window_has(107));
        assert!(!pace.window_has(108));
    }

    #[test]
    fn time_ends_the_measured_part_and_a_drain_follows() {
        let load = HttpLoad { warmup_ns: 10, duration_ns: Some(1_000), timeout_ns: 70, ..load() };
        let mut pace = Pace::new(&load, 0, 0, 1);
        assert!(pace.may_begin(9) && !pace.advance(9) && pace.advance(12));
        assert!(pace.may_begin(1_011) && !pace.may_begin(1_012));
        assert_eq!((pace.ends_ns(), pace.gives_up_ns()), (1_012, 1_082));
        assert_eq!(
            (pace.window_ns(500), pace.window_ns(5_000)),
            (Some((12, 500)), Some((12, 1_012)))
        );
    }

    #[test]
    fn an_open_loop_intends_what_is_due_within_the_measured_part() {
        // 1,000 per second: one each ms; the measured part is from 5 ms to 15 ms.
        let load = HttpLoad {
            rate_per_s: Some(1_000.0),
            warmup_ns: 5_000_000,
            duration_ns: Some(10_000_000),
            ..load()
        };
        let mut pace = Pace::new(&load, 0, 0, 1);
        let mut all = 0;
        pace.advance(5_300_000);
        assert_eq!(pace.begun_ns(), Some(5_000_000));
        while pace.next_due().is_some() {
            pace.take_due();
            all += 1;
        }
        assert_eq!((all, pace.intended()), (15, Some(10)));
        assert!(pace.is_over(0));
        assert_eq!(pace.window_ns(u64::MAX), Some((5_000_000, 15_000_000)));
    }

    #[test]
    fn the_window_of_an_even_schedule_ends_when_the_next_request_would_be_due() {
        let load = HttpLoad { rate_per_s: Some(5.0), duration_ns: Some(300_000_000), ..load() };
        let planned = |load: &HttpLoad| Pace::new(load, 0, 0, 1).planned_ns();
        assert_eq!(planned(&load), Some(400_000_000));
        let poisson = HttpLoad { spread: Spread::Poisson, ..load };
        assert_eq!(planned(&poisson), Some(300_000_000));
    }

    #[test]
    fn the_window_of_a_number_of_requests_lasts_as_long_as_their_schedule() {
        // Three a second apart, on one of two threads: the next would be due after three seconds.
        let load = HttpLoad { rate_per_s: Some(2.0), requests: Some(6), ..load() };
        let mut pace = Pace::new(&load, 0, 0, 2);
        pace.advance(0);
        assert_eq!((pace.planned_ns(), pace.begun_ns()), (Some(3_000_000_000), Some(0)));
    }
}
