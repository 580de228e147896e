//! A simulated world for fleets and reapers: peers with round trips, uses, deaths and arrivals.
//!
//! Everything follows from a seed. A schedule is one world from its beginning until every death
//! must be known.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tcp_heartbeat::{Fleet, FleetStep, Member, Timing};

#[path = "reaper_world.rs"] // beside this file, whoever includes it
mod reaper_world;

use reaper_world::ReaperWorld;

/// What a schedule came to, or many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Worlds.
    pub(crate) schedules: u64,
    /// Nulls sent.
    pub(crate) tests: u64,
    /// Dead peers whose connection was closed.
    pub(crate) found: u64,
    /// Live peers whose connection was closed: always wrong.
    pub(crate) live_closed: u64,
    /// Dead peers closed after their deadline and one tick, or never.
    pub(crate) late: u64,
    /// Rules of the reaper broken: who is tested, how often, how many at once.
    pub(crate) faults: u64,
}

impl Outcome {
    /// Adds another.
    pub(crate) fn add(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.tests += other.tests;
        self.found += other.found;
        self.live_closed += other.live_closed;
        self.late += other.late;
        self.faults += other.faults;
    }

    /// Whether nothing was wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.live_closed == 0 && self.late == 0 && self.faults == 0
    }
}

/// Runs the schedule of a seed: a fleet's if it is even, a reaper's if it is odd.
pub(crate) fn run(seed: u64) -> Outcome {
    let mut outcome =
        if seed % 2 == 0 { FleetWorld::new(seed).run() } else { ReaperWorld::new(seed).run() };
    outcome.schedules = 1;
    outcome
}

const NEVER: Duration = Duration::MAX;
/// The busiest of a million schedules takes less than a quarter of it.
const MOST_TURNS: u32 = 50_000;

struct Chance(Xoshiro256PlusPlus);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Microseconds, from `from` on, below `end`.
    fn time(&mut self, from: Duration, end: Duration) -> Duration {
        let (from, end) = (from.as_micros() as u64, end.as_micros() as u64);
        Duration::from_micros(from + self.below(end.saturating_sub(from)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Open(usize),
    /// Bytes of the peer arrive.
    Arrive(usize),
    Close(usize),
}

/// Why the program wakes up.
enum Wake {
    Due,
    By(Event),
}

/// One connection to be.
#[derive(Clone, Debug)]
struct Peer {
    member: Option<Member>,
    dies: Duration,
    round_trip: Duration,
    opened: Duration,
    heard: Duration,
    /// When the last Null was sent.
    sent: Duration,
    /// When the evidence of it is there.
    evidence_at: Duration,
    tested: bool,
    /// When the reap began that tested it last.
    reaped: Option<Duration>,
    /// Judgements that the program put off.
    put_off: u32,
}

/// What both worlds share: peers, events to come, and a program that is sometimes late.
struct World {
    chance: Chance,
    peers: Vec<Peer>,
    events: BinaryHeap<Reverse<(Duration, Event)>>,
    now: Duration,
    /// Evidence is the peer's answer, which arrives on its own; else the kernel is asked.
    answers: bool,
    /// The program wakes up at most this much too late.
    lag: Duration,
    turns: u32,
    outcome: Outcome,
}

impl World {
    /// Peers with round trips below `answer_within`; all but a few things happen before `end`.
    fn new(seed: u64, mut chance: Chance, answer_within: Duration, end: Duration) -> Self {
        let count = 1 + chance.below(12) as usize;
        let tick = Duration::from_millis(5);
        let lag =
            if chance.one_in(4) { chance.time(Duration::ZERO, 4 * tick) } else { Duration::ZERO };
        let mut events = BinaryHeap::new();
        let peers = (0..count).map(|index| {
            let opened = chance.time(Duration::ZERO, end / 4);
            let round_trip = chance.time(Duration::from_micros(1), answer_within);
            let dies = if chance.one_in(2) { chance.time(opened, end) } else { NEVER };
            events.push(Reverse((opened, Event::Open(index))));
            for _ in 0..chance.below(4) {
                let at = chance.time(opened + round_trip, end);
                if at < dies.saturating_add(round_trip / 2) {
                    events.push(Reverse((at, Event::Arrive(index))));
                }
            }
            if chance.one_in(8) {
                events.push(Reverse((chance.time(opened, end), Event::Close(index))));
            }
            Peer {
                member: None,
                dies,
                round_trip,
                opened: NEVER,
                heard: Duration::ZERO,
                sent: Duration::ZERO,
                evidence_at: NEVER,
                tested: false,
                reaped: None,
                put_off: 0,
            }
        });
        let peers = peers.collect();
        let answers = seed & 2 == 0;
        Self {
            peers,
            events,
            now: Duration::ZERO,
            answers,
            lag,
            turns: 0,
            outcome: Outcome::default(),
            chance,
        }
    }

    /// A Null goes out.
    fn test(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        let alive = self.now + peer.round_trip / 2 < peer.dies;
        peer.evidence_at = if alive { self.now + peer.round_trip } else { NEVER };
        peer.sent = self.now;
        peer.tested = true;
        peer.put_off = 0;
        self.outcome.tests += 1;
        if self.answers && alive {
            self.events.push(Reverse((peer.evidence_at, Event::Arrive(index))));
        }
    }

    /// Counts those as late that have shown no life since before `before` and were not closed.
    fn count_overlooked(&mut self, before: Duration) {
        let overlooked =
            self.peers.iter().filter(|p| p.member.is_some() && p.dies.max(p.heard) < before);
        self.outcome.late += overlooked.count() as u64;
    }

    /// Whether the program goes round and round, which no schedule does so often: a broken rule.
    fn is_endless(&mut self) -> bool {
        self.turns += 1;
        let endless = self.turns > MOST_TURNS;
        self.outcome.faults += u64::from(endless);
        endless
    }

    fn has_evidence(&self, index: usize) -> bool {
        self.peers[index].evidence_at <= self.now
    }

    /// Closes a connection that was judged dead; `deadline` counts from what the world knows.
    fn close(&mut self, index: usize, deadline: Duration) {
        let peer = &mut self.peers[index];
        peer.member = None;
        self.outcome.found += 1;
        self.outcome.live_closed += u64::from(peer.dies > self.now);
        self.outcome.late += u64::from(self.now > deadline);
    }

    /// Time goes on to what is due or to the next event, whichever is first; `None`: past `end`.
    fn wait(&mut self, due: Option<Duration>, end: Duration) -> Option<Wake> {
        let due = due.unwrap_or(NEVER);
        let event_at = self.events.peek().map_or(NEVER, |Reverse((at, _))| *at);
        if due.min(event_at).max(self.now) > end || self.is_endless() {
            return None;
        }
        if due <= event_at {
            let lag = self.chance.time(Duration::ZERO, self.lag);
            self.now = self.now.max(due) + lag;
            return Some(Wake::Due);
        }
        let Reverse((at, event)) = self.events.pop()?;
        self.now = self.now.max(at);
        Some(Wake::By(event))
    }
}

struct FleetWorld {
    world: World,
    fleet: Fleet<usize>,
    timing: Timing,
    tick: Duration,
}

impl FleetWorld {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let ms = Duration::from_millis;
        let tick = chance.time(ms(1), ms(50));
        let idle = chance.time(tick, ms(2_000));
        let timing = Timing::new(idle, chance.time(tick, ms(1_000)));
        let world = World::new(seed, chance, timing.answer_within, ms(4_000));
        Self { world, fleet: Fleet::new(timing, tick), timing, tick }
    }

    fn run(mut self) -> Outcome {
        let slack = 3 * self.world.lag;
        let patience = self.timing.bound() + 10 * self.tick + slack;
        let end = Duration::from_secs(4) + self.timing.answer_within + patience;
        while let Some(wake) = self.world.wait(self.fleet.next_due(), end) {
            if let Wake::By(event) = wake {
                self.happens(event);
                self.look_around();
                // A program that is awake for other reasons asks more often than it must.
                if self.world.chance.one_in(2) {
                    continue;
                }
            }
            while let Some(step) = self.fleet.next(self.world.now) {
                self.step(step);
                if self.world.is_endless() {
                    break;
                }
            }
        }
        self.world.count_overlooked(end.saturating_sub(patience));
        self.world.outcome
    }

    fn happens(&mut self, event: Event) {
        let now = self.world.now;
        let (Event::Open(index) | Event::Arrive(index) | Event::Close(index)) = event;
        let peer = &mut self.world.peers[index];
        match (event, peer.member) {
            (Event::Open(_), _) => {
                let heard = self.world.chance.time(now.saturating_sub(self.timing.idle), now);
                peer.member = Some(self.fleet.insert_heard(index, heard, now));
                peer.heard = now;
            }
            (Event::Arrive(_), Some(member)) => {
                self.fleet.heard(member, now);
                peer.heard = now;
                peer.tested = false;
            }
            (Event::Close(_), Some(member)) => {
                self.world.outcome.faults += u64::from(self.fleet.remove(member) != Some(index));
                self.fleet.heard(member, now); // stale: nothing happens
                peer.member = None;
            }
            _ => {}
        }
    }

    /// A program that is awake for other reasons looks at sockets before it has to, in any order.
    fn look_around(&mut self) {
        if self.world.answers || self.world.chance.one_in(2) {
            return;
        }
        for _ in 0..self.world.peers.len() {
            let index = self.world.chance.below(self.world.peers.len() as u64) as usize;
            let evidence = self.world.has_evidence(index);
            let peer = &mut self.world.peers[index];
            let tested = peer.tested && evidence;
            if let Some(member) = peer.member.filter(|_| tested) {
                peer.tested = false;
                self.fleet.acknowledged(member, self.world.now);
            }
        }
    }

    fn step(&mut self, step: FleetStep<usize>) {
        let now = self.world.now;
        match step {
            FleetStep::Test(_, index) => self.world.test(index),
            FleetStep::Judge(member, index) if self.world.has_evidence(index) => {
                let peer = &mut self.world.peers[index];
                peer.tested = false;
                if self.world.answers {
                    peer.heard = now;
                    self.fleet.heard(member, now);
                } else {
                    self.fleet.acknowledged(member, now);
                }
            }
            FleetStep::Judge(_, index)
                if self.world.peers[index].put_off < 3 && self.world.chance.one_in(8) =>
            {
                self.world.peers[index].put_off += 1;
            }
            FleetStep::Judge(member, index) => {
                let peer = &self.world.peers[index];
                let allowed = self.timing.bound()
                    + (1 + peer.put_off) * self.tick
                    + (3 + peer.put_off) * self.world.lag;
                let deadline = peer.dies.max(peer.heard).saturating_add(allowed);
                self.fleet.remove(member);
                self.world.close(index, deadline);
            }
        }
    }
}
