//! The ways of checking, as a fleet's process carries them out: the kernel's probes, or the timers
//! of `tcp-heartbeat`.
//! And what happens on connections that idle: what is read from them, and how they are tested.

use std::io;
use std::time::Duration;

use tcp_heartbeat::frame::{ASK_FRAME, Decoder, Frame, NULL_FRAME};
use tcp_heartbeat::kernel::unacknowledged;
use tcp_heartbeat::{Fleet, Member, Order, Reaper, ReaperStep, Reaping, Stop, Timing};
use tcptoll_core::tcp::checking::{Evidence, Mechanism};
use tcptoll_kernel::epoll::Event;
use tcptoll_kernel::socket::{Probing, Tcp, error_name};

use super::{Keeper, State};
use crate::clock::monotonic_ns;
use crate::messages::Check;

/// How late the program's timers may fire where nothing else is asked: what is due within it is
/// handled together.
const TICK: Duration = Duration::from_millis(10);

/// Which of the program's timers runs.
pub(super) enum Timers {
    /// None: the kernel checks, or nobody.
    None,
    /// Each connection that was silent for a time is tested.
    Beats(Box<Fleet<u32>>),
    /// Connections are tested when room is needed.
    Lazy(Box<Reaper<u32>>),
}

/// How connections are checked.
pub(super) struct Checks {
    pub(super) timers: Timers,
    /// Settings of the kernel's probes, if it is the kernel that checks.
    pub(super) probing: Option<Probing>,
    pub(super) user_timeout: Option<Duration>,
    pub(super) evidence: Evidence,
    /// What is sent to test a peer.
    pub(super) null: Vec<u8>,
    /// Whether silence after a Null is a death; else the kernel's word is waited for.
    pub(super) judges: bool,
    /// Checks of connections are spread evenly over this.
    pub(super) spread: Duration,
    /// Connections of the first kind are left alone.
    pub(super) second_only: bool,
    /// What happens within it is handled together; 0: immediately.
    pub(super) tick: Duration,
}

impl Checks {
    /// Nothing is checked.
    pub(super) fn none() -> Self {
        Self {
            timers: Timers::None,
            probing: None,
            user_timeout: None,
            evidence: Evidence::default(),
            null: Vec::new(),
            judges: false,
            spread: Duration::ZERO,
            second_only: false,
            tick: Duration::ZERO,
        }
    }

    pub(super) fn new(check: Check) -> Self {
        let Check { checking, spread_ns, second_only, null, lazy } = check;
        let time = |seconds: Option<f64>| seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let tick = time(checking.tick_s).unwrap_or(TICK);
        let answer_within = time(checking.answer_within_s).unwrap_or(Duration::from_secs(1));
        let beats = |idle, answer_within| {
            Timers::Beats(Box::new(Fleet::new(Timing::new(idle, answer_within), tick)))
        };
        let evidence = checking.evidence.unwrap_or_default();
        let timers = match checking.mechanism {
            Mechanism::None | Mechanism::Tcp => Timers::None,
            Mechanism::Heartbeat => {
                beats(time(checking.idle_s).unwrap_or(Duration::from_secs(45)), answer_within)
            }
            // Nothing is judged, so nothing is waited for.
            Mechanism::Write => {
                beats(time(checking.interval_s).unwrap_or(Duration::from_secs(1)), tick)
            }
            Mechanism::Lazy => {
                let mut reaping = Reaping::new(lazy.most.max(1) as usize);
                reaping.answer_within = answer_within;
                reaping.unused_for = lazy.unused_for_ns.map(Duration::from_nanos);
                reaping.stop = if lazy.whole_set { Stop::WholeSet } else { Stop::BelowMost };
                reaping.order = if lazy.by_age { Order::Age } else { Order::LastUse };
                reaping.at_once = lazy.at_once.max(1) as usize;
                // A reap takes at least so long if anyone is dead.
                reaping.min_interval = answer_within;
                reaping.tick = tick;
                Timers::Lazy(Box::new(Reaper::new(reaping)))
            }
        };
        Self {
            timers,
            probing: (checking.mechanism == Mechanism::Tcp).then(|| Probing {
                idle: time(checking.idle_s),
                interval: time(checking.interval_s),
                probes: checking.probes,
            }),
            user_timeout: time(checking.user_timeout_s),
            evidence,
            null: match evidence {
                _ if !null.is_empty() => null,
                Evidence::Acknowledged => NULL_FRAME.to_vec(),
                Evidence::Answered => ASK_FRAME.to_vec(),
            },
            judges: checking.mechanism != Mechanism::Write,
            spread: Duration::from_nanos(spread_ns),
            second_only,
            tick,
        }
    }

    /// Whether connections of this kind are checked.
    pub(super) fn concern(&self, kind: u8) -> bool {
        !self.second_only || kind == 1
    }

    /// Sets the options of a socket for the kernel's part of the checking.
    pub(super) fn set(&self, tcp: &Tcp) -> io::Result<()> {
        if let Some(limit) = self.user_timeout {
            tcp.set_user_timeout(limit)?;
        }
        self.probing.as_ref().map_or(Ok(()), |probing| tcp.probe(probing))
    }

    /// Takes a connection in, whose turn comes `phase` of the idle time before it would (0 to 1).
    pub(super) fn insert(&mut self, slot: u32, phase: f64, now: Duration) -> Option<Member> {
        match &mut self.timers {
            Timers::None => None,
            Timers::Beats(fleet) => {
                let heard = now.saturating_sub(self.spread.mul_f64(phase.clamp(0.0, 1.0)));
                Some(fleet.insert_heard(slot, heard, now))
            }
            Timers::Lazy(reaper) => Some(reaper.insert(slot, now)),
        }
    }

    pub(super) fn remove(&mut self, member: Member) {
        match &mut self.timers {
            Timers::None => {}
            Timers::Beats(fleet) => drop(fleet.remove(member)),
            Timers::Lazy(reaper) => drop(reaper.remove(member)),
        }
    }

    pub(super) fn heard(&mut self, member: Member, now: Duration) {
        match &mut self.timers {
            Timers::None => {}
            Timers::Beats(fleet) => fleet.heard(member, now),
            Timers::Lazy(reaper) => reaper.used(member, now),
        }
    }

    pub(super) fn acknowledged(&mut self, member: Member, now: Duration) {
        match &mut self.timers {
            Timers::None => {}
            Timers::Beats(fleet) => fleet.acknowledged(member, now),
            Timers::Lazy(reaper) => reaper.acknowledged(member),
        }
    }

    pub(super) fn next(&mut self, now: Duration) -> Option<ReaperStep<u32>> {
        match &mut self.timers {
            Timers::None => None,
            Timers::Beats(fleet) => fleet.next(now).map(ReaperStep::from),
            Timers::Lazy(reaper) => reaper.next(now),
        }
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        match &self.timers {
            Timers::None => None,
            Timers::Beats(fleet) => fleet.next_due(),
            Timers::Lazy(reaper) => reaper.next_due(),
        }
    }

    /// Whether there is room for one more connection.
    pub(super) fn has_room(&self) -> bool {
        match &self.timers {
            Timers::Lazy(reaper) => reaper.has_room(),
            Timers::None | Timers::Beats(_) => true,
        }
    }

    /// A connection waits in the backlog.
    pub(super) fn room_wanted(&mut self, now: Duration) {
        if let Timers::Lazy(reaper) = &mut self.timers {
            reaper.room_wanted(now);
        }
    }
}

/// The order in which slots get their turn when checks are spread over time: those next to each
/// other far apart in it, so that connections of one kind, which were accepted one after the other,
/// are not all checked together.
///
/// Shape: each slot once; two of `n` that follow each other are about 0.38 `n` turns apart.
pub(super) fn turns(slots: usize) -> Vec<u32> {
    // The golden ratio leaves the most even gaps, however many of them are looked at.
    const PART: f64 = 0.618_033_988_75;
    let common = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut stride = ((slots as f64 * PART) as usize).max(1);
    while common(stride, slots) > 1 {
        stride += 1;
    }
    let mut turns = vec![0; slots];
    for slot in 0..slots {
        turns[slot * stride % slots] = slot as u32;
    }
    turns
}

/// A message of a peer that speaks the library's framing is at most this long, bytes.
const FRAME_MAX: usize = 64 << 10;

impl Keeper {
    /// Something happened on a connection.
    pub(super) fn happened(&mut self, slot: u32, event: Event) {
        let Some(kept) = self.slots.get(slot) else { return };
        if matches!(kept.state, State::Connecting(_)) {
            match kept.tcp.take_error() {
                Ok(None) if event.writable && !event.broken => self.made(slot),
                Ok(None) if !event.broken => return,
                Ok(None) => return self.failed(slot, &io::ErrorKind::ConnectionReset.into()),
                Ok(Some(error)) | Err(error) => return self.failed(slot, &error),
            }
        }
        if event.readable || event.broken {
            self.read(slot);
        }
    }

    /// Reads everything that has come.
    fn read(&mut self, slot: u32) {
        loop {
            let Some(kept) = self.slots.get_mut(slot) else { return };
            match kept.tcp.read(&mut self.buffer) {
                Ok(None) => return,
                Ok(Some(0)) => return self.ended(slot, "read returned 0".to_owned()),
                Ok(Some(length)) => {
                    self.report.bytes_read += length as u64;
                    let now_ns = monotonic_ns();
                    if let State::Arriving(began) = kept.state {
                        kept.state = State::Open;
                        self.report.arrival.record_ns(now_ns.saturating_sub(began));
                    }
                    if let Some(member) = kept.member {
                        self.checks.heard(member, Duration::from_nanos(now_ns));
                    }
                    let asks = asks(&mut kept.partial, &self.buffer[..length]);
                    for _ in 0..asks {
                        if let Ok(Some(_)) = kept.tcp.write(&NULL_FRAME) {
                            self.report.answers += 1;
                        }
                    }
                    if length < self.buffer.len() {
                        return;
                    }
                }
                Err(error) => {
                    let name = error_name(&error);
                    // What a program sees that reads on.
                    let again = said(kept.tcp.read(&mut self.buffer));
                    *self.report.read_said.entry(format!("{name}, then {again}")).or_default() += 1;
                    return self.ended(slot, name);
                }
            }
        }
    }

    pub(super) fn step(&mut self, step: ReaperStep<u32>, now: Duration) {
        match step {
            ReaperStep::Test(_, slot) => self.test(slot),
            ReaperStep::Look(member, slot) => drop(self.shows_life(member, slot, now)),
            ReaperStep::Judge(member, slot) => {
                if !self.checks.judges {
                    return self.checks.acknowledged(member, now);
                }
                if self.shows_life(member, slot, now) {
                    return;
                }
                let Some(kept) = self.slots.get(slot) else { return };
                let read = said(kept.tcp.read(&mut self.buffer));
                *self.report.read_said.entry(read).or_default() += 1;
                let how = match self.checks.evidence {
                    Evidence::Acknowledged => "no acknowledgment",
                    Evidence::Answered => "no answer",
                };
                self.ended(slot, how.to_owned());
            }
        }
    }

    /// Sends a Null.
    fn test(&mut self, slot: u32) {
        let Some(kept) = self.slots.get(slot) else { return };
        match kept.tcp.write(&self.checks.null) {
            Ok(Some(_)) => self.report.nulls += 1,
            // Its send buffer is full of what nobody acknowledges: that is a test, too.
            Ok(None) => {}
            Err(error) => self.ended(slot, error_name(&error)),
        }
    }

    /// Whether there is evidence of life since the test; notes it if there is.
    fn shows_life(&mut self, member: Member, slot: u32, now: Duration) -> bool {
        let Some(kept) = self.slots.get(slot) else { return true };
        let alive = self.checks.evidence == Evidence::Acknowledged
            && unacknowledged(&kept.tcp).is_ok_and(|bytes| bytes == 0);
        if alive {
            self.checks.acknowledged(member, now);
        }
        alive
    }
}

/// How many Null messages that want an answer are among the bytes.
///
/// A frame whose end has not come is kept; a peer that speaks another protocol asks for nothing.
fn asks(partial: &mut Option<Box<Decoder>>, bytes: &[u8]) -> usize {
    // Nearly always frames come whole, and nothing has to be remembered.
    if partial.is_none() && bytes.chunks(NULL_FRAME.len()).all(|word| word == NULL_FRAME) {
        return 0;
    }
    let decoder = partial.get_or_insert_with(|| Box::new(Decoder::new(FRAME_MAX)));
    decoder.push(bytes);
    let mut asks = 0;
    while let Ok(Some(frame)) = decoder.next_frame() {
        asks += usize::from(frame == Frame::Ask);
    }
    if !decoder.is_inside_frame() {
        *partial = None;
    }
    asks
}

/// What `read(2)` says.
fn said(read: io::Result<Option<usize>>) -> String {
    match read {
        Ok(None) => "EAGAIN".to_owned(),
        Ok(Some(0)) => "0".to_owned(),
        Ok(Some(_)) => "data".to_owned(),
        Err(error) => error_name(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_gets_one_turn_and_neighbours_are_spread_evenly() {
        for slots in [0, 1, 2, 3, 10, 200, 999, 50_000] {
            let turns = turns(slots);
            let mut places = vec![None; slots];
            for (place, &slot) in turns.iter().enumerate() {
                assert_eq!(places[slot as usize].replace(place), None, "{slots}: {slot} twice");
            }
            // A tenth of the slots, one after the other, have turns in all parts of the time.
            let mut tenth: Vec<usize> = places[..slots / 10].iter().flatten().copied().collect();
            tenth.sort_unstable();
            let widest = tenth.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(widest <= 30, "{slots}: nobody has a turn for {widest} turns");
        }
    }
}
