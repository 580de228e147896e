//! When may the next operation begin, and is it measured? One thread's part of the schedule.
//!
//! A new load converts what it was asked for into a [`Plan`]. An open loop begins what
//! [`Pace::next_due`] says is due and counts it with [`Pace::take_due`]. A closed loop fills its
//! slots at [`Pace::slot_due`] and asks [`Pace::may_begin`] each time a slot is free. A load whose
//! slots are all alike needs only [`Pace::next`] and [`Pace::begin`], which serve both loops.
//!
//! A load has three parts: a ramp in which a closed loop fills its slots, a warm-up, and the
//! measured part. Time comes in as an argument.
//!
//! Latency is of operations that are begun or due in the measured part. Rates are of what completes
//! in the *window*: from the beginning of the measured part until its time is up, or until the
//! last of a number of operations begins (closed loop) or the next one would be due (open loop). In a
//! closed loop an operation across an edge counts by the share of its time that lies within: slots in
//! phase would else count whole batches, with the same error in each trial.

use tcptoll_core::stats::arrivals::{Arrivals, Spread};

/// Open loop: what is due and waits for a connection when the measured part is over may still be sent
/// for so long, ns. What was sent is waited for until its own time limit.
const DRAIN_NS: u64 = 1_500_000_000;

/// Operations begun between two looks at what has happened. What happens meanwhile is seen later by
/// the time that they take, so the number is small where an operation costs much and its latency is
/// measured.
pub(super) mod burst {
    /// Connections whose latency is measured: three system calls and a handshake each.
    pub(crate) const CONNECTIONS: u32 = 8;
    /// Requests, most of them on connections that are open: one system call each.
    pub(crate) const REQUESTS: u32 = 16;
    /// Messages of a connection that only writes: no latency is measured.
    pub(crate) const MESSAGES: u32 = 64;
    /// Connections that are to idle: no latency is measured to the microsecond.
    pub(crate) const IDLE: u32 = 256;
}

/// What a load is to do: all threads together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Open loop: operations per second, above 0. None: closed loop.
    pub(super) rate_per_s: Option<f64>,
    /// Open loop: how operations are spread over time, and the seed of a random spread.
    pub(super) spread: Spread,
    pub(super) seed: u64,
    /// Operations under way concurrently: a closed loop keeps this number up. At least 1.
    pub(super) slots: u64,
    /// Closed loop: the slots are filled evenly over this, ns.
    pub(super) ramp_ns: u64,
    /// The measured part begins after this number of operations, and not before this time has
    /// passed since the start, ns. A ramp that is not to be measured is part of that time.
    pub(super) warmup_operations: u64,
    pub(super) warmup_ns: u64,
    /// Operations of the measured part, at most. None: no limit.
    pub(super) operations: Option<u64>,
    /// No operation of the measured part begins later than this after its beginning, ns.
    /// None: no limit.
    pub(super) duration_ns: Option<u64>,
    /// Time limit of one operation, ns.
    pub(super) timeout_ns: u64,
    /// Pauses within the measured part; of a load on one thread.
    pub(super) pause: Option<Pause>,
}

/// Whenever a number of operations have begun, none begins for a time. The schedule of an open loop
/// waits too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    /// Operations between two pauses, above 0.
    pub(super) every: u64,
    /// Length of one, ns.
    pub(super) long_ns: u64,
}

impl Plan {
    /// A closed loop without end, ramp, warm-up and pauses.
    pub(super) const ENDLESS: Self = Self {
        rate_per_s: None,
        spread: Spread::Constant,
        seed: 0,
        slots: 1,
        ramp_ns: 0,
        warmup_operations: 0,
        warmup_ns: 0,
        operations: None,
        duration_ns: None,
        timeout_ns: u64::MAX,
        pause: None,
    };
}

/// The schedule of one thread.
#[derive(Debug)]
pub(super) struct Pace {
    start_ns: u64,
    slots: u64,
    ramp_ns: u64,
    warmup_ns: u64,
    /// The warm-up has a length that is known before, if only 0.
    on_schedule: bool,
    /// Operations of the warm-up that are still to end.
    warmup_left: u64,
    duration_ns: Option<u64>,
    /// The same, up to when the next operation of an even schedule would be due.
    window_ns: Option<u64>,
    /// Open loop: time that the schedule of a number of operations takes.
    schedule_ns: Option<u64>,
    /// Measured operations that have begun, and that may still begin.
    begun: u64,
    left: u64,
    drain_ns: u64,
    /// When the measured part began.
    begun_ns: Option<u64>,
    /// Closed loop: when the last of a number of operations began.
    last_begun_ns: Option<u64>,
    /// Open loop.
    arrivals: Option<Arrivals>,
    pause: Option<Pause>,
    /// Length of all pauses so far, also of one that is not over, ns.
    paused_ns: u64,
    /// No operation begins before this, because of a pause.
    not_before_ns: u64,
}

/// `total` spread over `parts`, the first of which take what is left over.
pub(super) fn share(total: u64, part: u64, parts: u64) -> u64 {
    total / parts + u64::from(part < total % parts)
}

impl Pace {
    /// Of thread `part` of `parts`.
    pub(super) fn new(plan: &Plan, start_ns: u64, part: u64, parts: u64) -> Self {
        let arrivals =
            plan.rate_per_s.map(|rate| Arrivals::new(plan.spread, rate, plan.seed, part, parts));
        let operations = plan.operations.map(|operations| share(operations, part, parts));
        let schedule_ns = plan.rate_per_s.zip(operations).map(|(rate, operations)| {
            (operations as f64 * parts as f64 * 1e9 / rate).min(u64::MAX as f64) as u64
        });
        // An even schedule of a time ends when the operation after the last would be due: two that
        // are 200 ms apart are 5 a second, also if 300 ms were asked for. How many are due in that
        // time is one division of exact products: a gap that was rounded before makes 30 of 29.
        let even_ns = plan.rate_per_s.zip(plan.duration_ns).map(|(rate, long_ns)| {
            let due = (long_ns as f64 * rate / (parts as f64 * 1e9)).ceil();
            (due * parts as f64 * 1e9 / rate) as u64
        });
        let window_ns = even_ns.filter(|_| plan.spread == Spread::Constant).or(plan.duration_ns);
        Self {
            start_ns,
            slots: share(plan.slots.max(1), part, parts),
            ramp_ns: plan.ramp_ns,
            warmup_ns: plan.warmup_ns,
            on_schedule: plan.warmup_operations == 0,
            warmup_left: share(plan.warmup_operations, part, parts),
            duration_ns: plan.duration_ns,
            window_ns,
            schedule_ns,
            begun: 0,
            left: operations.unwrap_or(u64::MAX),
            drain_ns: DRAIN_NS.min(plan.timeout_ns),
            begun_ns: None,
            last_begun_ns: None,
            arrivals,
            pause: plan.pause,
            paused_ns: 0,
            not_before_ns: 0,
        }
    }

    /// Of a load on one thread that is measured from its start on.
    pub(super) fn from_start(plan: &Plan, start_ns: u64) -> Self {
        let mut pace = Self::new(plan, start_ns, 0, 1);
        pace.advance(start_ns);
        pace
    }

    /// Whether this is an open loop.
    pub(super) fn is_open(&self) -> bool {
        self.arrivals.is_some()
    }

    /// How many operations of this thread are under way concurrently.
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    /// Goes on to the measured part if the warm-up is over; true the moment it does.
    pub(super) fn advance(&mut self, now_ns: u64) -> bool {
        let warm = self.warmup_left == 0 && now_ns >= self.start_ns + self.warmup_ns;
        if self.begun_ns.is_some() || !warm {
            return false;
        }
        // Of an open loop the measured part begins with the schedule, not with when it is noticed.
        let on_schedule = self.start_ns + self.warmup_ns;
        let keeps = self.is_open() && self.on_schedule;
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

    /// An operation of the warm-up has ended.
    pub(super) fn warmed(&mut self) {
        self.warmup_left = self.warmup_left.saturating_sub(1);
    }

    /// No measured operation begins, or is due, from here on.
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

    /// When the next operation may begin, with this number under way: an open loop goes by its
    /// schedule, a closed one begins one whenever it has a free slot. Closed loop: an instant in the
    /// past means now. None: not before one ends, or never.
    pub(super) fn next(&self, under_way: u64) -> Option<u64> {
        if self.is_open() {
            return self.next_due();
        }
        let due_ns = self.slot_due(self.begun).max(self.not_before_ns);
        let goes_on = under_way < self.slots && self.left > 0 && due_ns < self.ends_ns();
        goes_on.then_some(due_ns)
    }

    /// Counts the operation that [`Pace::next`] gave as begun.
    pub(super) fn begin(&mut self, now_ns: u64) {
        if self.is_open() {
            self.take_due(now_ns);
        } else {
            self.may_begin(now_ns);
        }
    }

    /// Closed loop: when the first operation of this slot is due, so that slots are filled evenly
    /// over the ramp. Beyond the last slot: 0.
    pub(super) fn slot_due(&self, slot: u64) -> u64 {
        if slot < self.slots { self.start_ns + self.ramp_ns * slot / self.slots } else { 0 }
    }

    /// Closed loop: whether an operation may begin now; it is counted if it is measured.
    pub(super) fn may_begin(&mut self, now_ns: u64) -> bool {
        if !self.measures(now_ns) {
            return true;
        }
        if self.left == 0 || now_ns >= self.ends_ns() || self.is_paused(now_ns) {
            return false;
        }
        self.count(now_ns);
        if self.left == 0 {
            self.last_begun_ns = Some(now_ns);
        }
        true
    }

    /// A measured operation begins.
    fn count(&mut self, now_ns: u64) {
        self.left -= 1;
        self.begun += 1;
        if let Some(Pause { every, long_ns }) = self.pause
            && self.begun.is_multiple_of(every)
            && self.left > 0
        {
            self.not_before_ns = now_ns + long_ns;
            self.paused_ns += long_ns;
        }
    }

    /// Measured operations that have begun; open loop: that were taken.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether a pause is on at this instant.
    pub(super) fn is_paused(&self, at_ns: u64) -> bool {
        at_ns < self.not_before_ns
    }

    /// Time spent in pauses until this instant, which is not before the last operation began, ns.
    pub(super) fn paused_by(&self, at_ns: u64) -> u64 {
        self.paused_ns.saturating_sub(self.not_before_ns.saturating_sub(at_ns))
    }

    /// Whether no operation will begin any more.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        if self.is_open() {
            return self.next_due().is_none();
        }
        self.measures(now_ns) && (self.left == 0 || now_ns >= self.ends_ns())
    }

    /// Open loop: when the next operation is due, ns; `None`: closed loop, or none is any more.
    pub(super) fn next_due(&self) -> Option<u64> {
        let scheduled_ns = self.arrivals.as_ref()?.peek().saturating_add(self.paused_ns);
        let due_ns = self.start_ns.saturating_add(scheduled_ns).max(self.not_before_ns);
        let goes_on = !self.measures(due_ns) || (self.left > 0 && due_ns < self.ends_ns());
        goes_on.then_some(due_ns)
    }

    /// Open loop: takes the operation that is due.
    pub(super) fn take_due(&mut self, now_ns: u64) {
        let Some(due_ns) = self.next_due() else { return };
        if self.measures(due_ns) {
            self.count(now_ns);
        }
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.take();
        }
    }

    /// Open loop: operations of the measured part that were taken.
    pub(super) fn intended(&self) -> Option<u64> {
        self.is_open().then_some(self.begun)
    }

    /// Length of the window without pauses, as far as it is known before its end, ns.
    pub(super) fn planned_ns(&self) -> Option<u64> {
        [self.window_ns, self.schedule_ns].into_iter().flatten().min()
    }

    /// When the window ends, as far as that is known before; else never.
    pub(super) fn window_ends_ns(&self) -> u64 {
        let paused_ns = if self.is_open() { self.paused_ns } else { 0 };
        let ends = self.begun_ns.zip(self.planned_ns());
        ends.map_or(u64::MAX, |(begun, long)| begun.saturating_add(long).saturating_add(paused_ns))
    }

    /// The window: from the first to the second instant. The second is `now_ns` while the window is
    /// open, and never later. None: the measured part has not begun.
    pub(super) fn window_ns(&self, now_ns: u64) -> Option<(u64, u64)> {
        let begun = self.begun_ns?;
        let ends = self.last_begun_ns.unwrap_or(u64::MAX).min(self.window_ends_ns());
        Some((begun, ends.min(now_ns.max(begun))))
    }

    /// Share of an operation, from the first to the second instant, that counts in the window: of a
    /// closed loop that of its time, of an open loop all if it completes within.
    pub(super) fn share(&self, from_ns: u64, to_ns: u64) -> f64 {
        if self.is_open() || to_ns <= from_ns {
            return f64::from(u8::from(self.window_has(to_ns)));
        }
        let Some((begun, ends)) = self.window_ns(to_ns) else { return 0.0 };
        let within = to_ns.min(ends).saturating_sub(from_ns.max(begun));
        within as f64 / (to_ns - from_ns) as f64
    }

    /// Whether what completes at this instant completes within the window.
    pub(super) fn window_has(&self, at_ns: u64) -> bool {
        // Nothing completes after now.
        self.window_ns(at_ns).is_some_and(|(from, to)| (from..=to).contains(&at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_number_adds_up_to_it() {
        assert_eq!([0, 1, 2].map(|part| share(8, part, 3)), [3, 3, 2]);
    }

    #[test]
    fn a_closed_loop_measures_so_many_after_so_many_of_warm_up() {
        let plan = Plan { warmup_operations: 2, operations: Some(3), ..Plan::ENDLESS };
        let mut pace = Pace::new(&plan, 100, 0, 1);
        assert!(pace.may_begin(100) && pace.may_begin(101));
        assert!(!pace.advance(102));
        pace.warmed();
        pace.warmed();
        assert!(pace.advance(103) && !pace.advance(104));
        assert_eq!([105, 106, 107].map(|now| pace.may_begin(now)), [true; 3]);
        assert!(!pace.may_begin(108) && pace.is_over(108));
        // From the beginning of the measured part to that of its last operation.
        assert_eq!(pace.window_ns(153), Some((103, 107)));
        assert!(!pace.window_has(102) && pace.window_has(103) && pace.window_has(107));
        assert!(!pace.window_has(108));
    }

    #[test]
    fn time_ends_the_measured_part_and_a_drain_follows() {
        let plan =
            Plan { warmup_ns: 10, duration_ns: Some(1_000), timeout_ns: 70, ..Plan::ENDLESS };
        let mut pace = Pace::new(&plan, 0, 0, 1);
        assert!(pace.may_begin(9) && !pace.advance(9) && pace.advance(12));
        assert!(pace.may_begin(1_011) && !pace.may_begin(1_012));
        assert_eq!((pace.ends_ns(), pace.gives_up_ns()), (1_012, 1_082));
        assert_eq!(
            (pace.window_ns(500), pace.window_ns(5_000)),
            (Some((12, 500)), Some((12, 1_012)))
        );
    }

    #[test]
    fn in_a_closed_loop_an_operation_across_an_edge_counts_in_part() {
        let plan =
            Plan { warmup_ns: 10, duration_ns: Some(1_000), timeout_ns: 70, ..Plan::ENDLESS };
        let mut pace = Pace::new(&plan, 0, 0, 1);
        assert!(pace.share(2, 9).abs() < 1e-12, "there is no window yet");
        assert!(pace.may_begin(9) && pace.advance(12));
        for (from, to, share) in [
            (2, 10, 0.0),
            (2, 22, 0.5),
            (500, 600, 1.0),
            (1_002, 1_022, 0.5),
            (2, 2_002, 0.5),
            (1_012, 1_020, 0.0),
            (600, 600, 1.0),
        ] {
            assert!((pace.share(from, to) - share).abs() < 1e-12, "{from} to {to}");
        }
        // Four slots in phase whose operations take 235: the sum is the rate, not whole batches.
        let begins = |slot| (0_u64..6).map(move |n| (slot + n * 235, slot + (n + 1) * 235));
        let all: f64 = (0..4).flat_map(|_| begins(5)).map(|(from, to)| pace.share(from, to)).sum();
        assert!((all / 1_000.0 - 4.0 / 235.0).abs() < 1e-9, "{all}");
    }

    #[test]
    fn an_open_loop_intends_what_is_due_within_the_measured_part() {
        // 1,000 per second: one each ms; the measured part is from 5 ms to 15 ms.
        let plan = Plan {
            rate_per_s: Some(1_000.0),
            warmup_ns: 5_000_000,
            duration_ns: Some(10_000_000),
            ..Plan::ENDLESS
        };
        let mut pace = Pace::new(&plan, 0, 0, 1);
        let mut all = 0;
        pace.advance(5_300_000);
        assert_eq!(pace.begun_ns(), Some(5_000_000));
        while pace.next_due().is_some() {
            pace.take_due(0);
            all += 1;
        }
        assert_eq!((all, pace.intended()), (15, Some(10)));
        assert!(pace.is_over(0));
        assert_eq!(pace.window_ns(u64::MAX), Some((5_000_000, 15_000_000)));
    }

    #[test]
    fn the_window_of_an_even_schedule_ends_when_the_next_operation_would_be_due() {
        let plan = Plan { rate_per_s: Some(5.0), duration_ns: Some(300_000_000), ..Plan::ENDLESS };
        let planned = |plan: &Plan| Pace::new(plan, 0, 0, 1).planned_ns();
        assert_eq!(planned(&plan), Some(400_000_000));
        let poisson = Plan { spread: Spread::Poisson, ..plan };
        assert_eq!(planned(&poisson), Some(300_000_000));
    }

    #[test]
    fn the_window_of_a_number_of_operations_lasts_as_long_as_their_schedule() {
        // Three a second apart, on one of two threads: the next would be due after three seconds.
        let plan = Plan { rate_per_s: Some(2.0), operations: Some(6), ..Plan::ENDLESS };
        let mut pace = Pace::new(&plan, 0, 0, 2);
        pace.advance(0);
        assert_eq!((pace.planned_ns(), pace.begun_ns()), (Some(3_000_000_000), Some(0)));
    }
    #[test]
    fn how_many_are_due_in_a_time_is_not_rounded_up() {
        let planned = |rate: f64, duration_ns| {
            let (rate_per_s, duration_ns) = (Some(rate), Some(duration_ns));
            Pace::new(&Plan { rate_per_s, duration_ns, ..Plan::ENDLESS }, 0, 0, 1).planned_ns()
        };
        // 55 and 29, though 1.1 × 50 and 1 ÷ (1 ÷ 29) are a little more in floating point.
        assert_eq!(planned(50.0, 1_100_000_000), Some(1_100_000_000));
        assert_eq!(planned(29.0, 1_000_000_000), Some(1_000_000_000));
        // At 0, 1/7 and 2/7 s; the next would be due at 3/7 s.
        assert_eq!(planned(7.0, 300_000_000), Some(428_571_428));
    }

    #[test]
    fn the_slots_of_a_closed_loop_are_filled_over_its_ramp_and_then_kept_full() {
        let plan = Plan { slots: 4, ramp_ns: 400, operations: Some(6), ..Plan::ENDLESS };
        let mut pace = Pace::from_start(&plan, 1_000);
        let mut due = Vec::new();
        for under_way in 0..4 {
            due.push(pace.next(under_way).unwrap());
            pace.begin(due[under_way as usize]);
        }
        assert_eq!(due, [1_000, 1_100, 1_200, 1_300]);
        assert_eq!((pace.next(4), pace.next(3)), (None, Some(0)));
        pace.begin(1_310);
        assert_eq!(pace.next(3), Some(0));
        pace.begin(1_320);
        assert_eq!((pace.next(0), pace.begun()), (None, 6));
    }

    #[test]
    fn a_pause_holds_a_closed_loop_and_does_not_follow_the_last_operation() {
        let pause = Some(Pause { every: 2, long_ns: 100 });
        let plan = Plan { operations: Some(4), pause, ..Plan::ENDLESS };
        let mut pace = Pace::from_start(&plan, 0);
        pace.begin(10);
        pace.begin(20);
        assert_eq!(
            (pace.next(0), pace.is_paused(119), pace.is_paused(120)),
            (Some(120), true, false)
        );
        assert!(!pace.may_begin(119));
        // Of a pause that was cut short only a part was spent.
        assert_eq!((pace.paused_by(50), pace.paused_by(500)), (30, 100));
        pace.begin(120);
        pace.begin(130);
        assert_eq!((pace.next(0), pace.paused_by(500)), (None, 100));
    }

    #[test]
    fn the_schedule_and_the_window_of_an_open_loop_wait_for_its_pauses() {
        let pause = Some(Pause { every: 2, long_ns: 100 });
        let plan = Plan { rate_per_s: Some(1e8), operations: Some(4), pause, ..Plan::ENDLESS };
        let mut pace = Pace::from_start(&plan, 1_000);
        let mut due = Vec::new();
        while let Some(at) = pace.next(0) {
            due.push(at);
            pace.begin(at);
        }
        assert_eq!(due, [1_000, 1_010, 1_120, 1_130]);
        // What completes after that is in progress at the end of the planned time.
        assert_eq!((pace.planned_ns(), pace.window_ends_ns()), (Some(40), 1_140));
    }
}
