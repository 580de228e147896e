//! Listeners over time: peaks, drops since the watch began, and what each did in the newest interval.
//!
//! # Which listener overflowed?
//!
//! The namespace has `TcpExtListenOverflows` and `TcpExtListenDrops`; each listener has `sk_drops`. Each drop
//! at a listener raises its `sk_drops` (`tcp_listendrop()` of include/net/tcp.h), so a listener whose count
//! did not rise had no overflow. The reverse does not hold: a RST that ends a half-open request raises
//! `sk_drops` too, as any port scan shows, and a dropped last ACK counts twice. So `sk_drops` alone is no
//! evidence of a full queue. Where one listener alone dropped, the host's `TcpExtListenOverflows` are its
//! own. Where several dropped, each has its share by `sk_drops`, marked as estimated.
//!
//! A listener with `TCP_DEFER_ACCEPT` ignores the last ACK of each handshake and waits for the data: that
//! raises its `sk_drops` and the namespace's `TcpExtTCPDeferAcceptDrop` by 1 each, and no other count.
//! [`deferred`] tells whose they were. 40 such connections raised them by 40 and 40, and `TcpExtListenDrops`
//! by 0. They are shown as deferred, and no fault is named for them.
//!
//! # Which accept queue never empties?
//!
//! A healthy server accepts within microseconds, so that nearly every look finds its queue empty. At an
//! acceptor that is busy for a part ρ of the time, a look finds *m* or more waiting with probability ρ^(m+1)
//! (M/M/1): at ρ = 0.8, ten looks in a row that find two or more have 0.8^30 = 0.1 %. So a queue that is
//! seen at each of ten looks belongs to an acceptor that is saturated.
//!
//! How long do clients wait in it? By Little's law, queue / accept rate. The kernel has no count of what a
//! listener accepted; what it established for all listeners of the namespace is an upper bound, so the time
//! is a lower one.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::look::ListenerLook;
use super::state::{ListenerState, Standing};

/// Listening sockets that are followed, at most. Those after them, in the kernel's order, are left out.
pub(super) const TRACKED_MAX: usize = 8_192;
/// A recent peak is of this time and at most as much before it, s.
const RECENT_S: f64 = 5.0;

/// A socket: one that was made anew on the same address has another inode.
type Key = (SocketAddr, u64);

/// What is kept of a socket between looks: 136 bytes with its key.
#[derive(Clone, Debug, Default)]
struct Track {
    /// `sk_drops` at the last look.
    drops_at: Option<u32>,
    /// Packets dropped since the watch began; absent once it is not known.
    total: Option<u64>,
    peak: u32,
    /// The longest queue of this part of the watch and of the one before.
    recent: [u32; 2],
    lengths: Lengths,
    /// The last look that listed it.
    look: u64,
}

/// Listening sockets that the watch follows.
#[derive(Clone, Debug, Default)]
pub(super) struct Listeners {
    tracks: BTreeMap<Key, Track>,
    looks: u64,
    /// When the current part of recent peaks began, s.
    part_s: f64,
    clock: Clock,
}

/// What one look showed.
pub(super) struct ListenerReading {
    /// All that are followed, by address, port and inode.
    pub listeners: Vec<ListenerState>,
    /// Sockets beyond [`TRACKED_MAX`].
    pub left_out: u64,
}

impl Listeners {
    /// Takes note of the listeners of a look.
    ///
    /// `established`: `TcpPassiveOpens` of the namespace. `interval_s` is absent where there is nothing to divide by: at the first look above all.
    pub(super) fn see(
        &mut self,
        at_s: f64,
        looked: Vec<ListenerLook>,
        host: Option<HostDrops>,
        established: Option<u64>,
        interval_s: Option<f64>,
    ) -> ListenerReading {
        let first = self.looks == 0;
        self.looks += 1;
        let parts = self.parts_ended(at_s);
        let counts = self.clock.tick(at_s, established);
        // A dump that the kernel interrupts may list a socket twice: the last entry is the newest.
        let mut newest: BTreeMap<Key, ListenerLook> = BTreeMap::new();
        let mut left_out = 0;
        for one in looked {
            let key = (one.address, one.inode);
            if newest.len() < TRACKED_MAX || newest.contains_key(&key) {
                newest.insert(key, one);
            } else {
                left_out += 1;
            }
        }
        let mut sockets: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        for (address, _) in newest.keys() {
            *sockets.entry(*address).or_default() += 1;
        }
        let mut listeners = Vec::with_capacity(newest.len());
        let mut suspects = Vec::with_capacity(newest.len());
        for (key, one) in newest {
            let known = self.tracks.contains_key(&key);
            let track = self.tracks.entry(key).or_default();
            // A socket that the look before did not have was made since, so its count began at 0 then.
            let since = match (known, track.drops_at.zip(one.drops)) {
                (true, Some((before, now))) => drops_since(before, now),
                (false, _) if !first => one.drops.map(u64::from),
                _ => None,
            };
            track.total = match (known || !first, since) {
                (false, _) => one.drops.map(|_| 0),
                (true, Some(since)) if !known => Some(since),
                (true, since) => track.total.zip(since).map(|(total, since)| total + since),
            };
            track.drops_at = one.drops;
            track.look = self.looks;
            track.peak = track.peak.max(one.accept_queue_len);
            match parts {
                0 => {}
                1 => track.recent = [0, track.recent[0]],
                _ => track.recent = [0, 0],
            }
            track.recent[0] = track.recent[0].max(one.accept_queue_len);
            if counts {
                track.lengths.push(one.accept_queue_len);
            }
            let recent_peak = track.recent[0].max(track.recent[1]);
            suspects.push(Suspect { drops: since, was_full: recent_peak > one.accept_queue_limit });
            let per_s = since.filter(|_| known).zip(interval_s);
            listeners.push(ListenerState {
                address: one.address.ip().to_string(),
                port: one.address.port(),
                inode: one.inode,
                sockets: sockets.get(&one.address).copied().unwrap_or(1),
                process: one.process,
                accept_queue_len: one.accept_queue_len,
                accept_queue_peak: track.peak,
                accept_queue_recent_peak: recent_peak,
                accept_queue_limit: one.accept_queue_limit,
                syn_queue_len: one.syn_queue_len,
                overflows_per_s: None,
                overflows_estimated: false,
                drops_per_s: per_s.map(|(drops, s)| drops as f64 / s),
                drops: track.total,
                deferred_per_s: None,
                deferred_at_most: false,
                stands: track.lengths.standing(&self.clock, one.accept_queue_limit).map(Box::new),
            });
        }
        let followed = self.tracks.len();
        self.tracks.retain(|_, track| track.look == self.looks);
        let vanished = followed > self.tracks.len();
        if let Some(s) = interval_s {
            let others = vanished || left_out > 0;
            let parts = attribute(host, &suspects, others).into_iter();
            let harmless = deferred(host, &suspects, others);
            for (listener, (part, harmless)) in listeners.iter_mut().zip(parts.zip(harmless)) {
                listener.overflows_per_s = part.map(|part| part.packets / s);
                listener.overflows_estimated = part.is_some_and(|part| part.estimated);
                listener.deferred_per_s = harmless.map(|part| part.packets / s);
                listener.deferred_at_most = harmless.is_some_and(|part| part.estimated);
            }
        }
        ListenerReading { listeners, left_out }
    }

    /// Parts of recent peaks that ended since the last look: 0, 1 or more.
    fn parts_ended(&mut self, at_s: f64) -> u32 {
        let since = at_s - self.part_s;
        if !(0.0..2.0 * RECENT_S).contains(&since) {
            self.part_s = at_s;
            return 2;
        }
        if since >= RECENT_S {
            self.part_s = at_s;
            return 1;
        }
        0
    }

    /// Sockets that are followed now.
    #[cfg(test)]
    pub(super) fn followed(&self) -> usize {
        self.tracks.len()
    }
}

/// What the namespace counted over one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostDrops {
    /// Change of `TcpExtListenOverflows`.
    pub overflows: u64,
    /// Change of `TcpExtListenDrops`.
    pub drops: u64,
    /// Change of `TcpExtTCPDeferAcceptDrop`.
    pub deferred: u64,
}

/// What one listener showed over the same interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Suspect {
    /// Change of `sk_drops`; absent if it is not known.
    pub drops: Option<u64>,
    /// Whether a look of the last seconds found its queue full.
    pub was_full: bool,
}

/// A listener's part of the overflows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    /// SYNs and ACKs that met its full accept queue.
    pub packets: f64,
    /// Whether it is a share by `sk_drops` and not a count.
    pub estimated: bool,
}

impl Part {
    const NONE: Self = Self { packets: 0.0, estimated: false };

    fn exactly(packets: u64) -> Self {
        Self { packets: packets as f64, estimated: false }
    }
}

/// How many more overflows than drops the same packets can make: the host's counters are read up to some ms
/// after the listeners.
fn read_later(drops: u64) -> u64 {
    2 + drops / 20
}

/// What all listeners dropped together.
struct Dropped {
    /// Whether it is all that was dropped.
    known: bool,
    /// Listeners that dropped packets, or may have.
    risers: usize,
    sum: u64,
}

impl Dropped {
    fn by(suspects: &[Suspect], others: bool) -> Self {
        Self {
            known: !others && suspects.iter().all(|one| one.drops.is_some()),
            risers: suspects.iter().filter(|one| one.drops != Some(0)).count(),
            sum: suspects.iter().filter_map(|one| one.drops).sum(),
        }
    }
}

/// The part of each listener, in the order given. Absent: it cannot be told.
///
/// No listener has more overflows than its `sk_drops` rose by. Where the host counted more than the only
/// listener that dropped, the rest was at one that was opened and closed between two looks.
///
/// `others`: whether listeners that are not in the list may have dropped packets in the interval.
pub(super) fn attribute(
    host: Option<HostDrops>,
    suspects: &[Suspect],
    others: bool,
) -> Vec<Option<Part>> {
    let Some(host) = host else { return vec![None; suspects.len()] };
    if host.overflows == 0 {
        return vec![Some(Part::NONE); suspects.len()];
    }
    let Dropped { known, risers, sum } = Dropped::by(suspects, others);
    // Nothing but overflows was dropped, and nothing counted twice: then each count is a count of
    // overflows.
    let all_overflows = known && host.drops == host.overflows && sum == host.overflows;
    let full = |one: &Suspect| one.drops.filter(|drops| *drops > 0 && one.was_full);
    let by_full: u64 = suspects.iter().filter_map(full).sum();
    suspects
        .iter()
        .map(|one| match one.drops {
            Some(0) => Some(Part::NONE),
            None if risers == 1 && !others => Some(Part::exactly(host.overflows)),
            Some(drops)
                if risers == 1 && !others && host.overflows <= drops + read_later(drops) =>
            {
                Some(Part::exactly(host.overflows))
            }
            Some(drops) if all_overflows => Some(Part::exactly(drops)),
            // Those whose queue was seen full share the overflows. None has more than it dropped.
            _ => full(one).map(|drops| {
                let (drops, by_full) = (drops as f64, by_full as f64);
                let share = host.overflows as f64 * drops / by_full;
                Part { packets: share.min(drops), estimated: true }
            }),
        })
        .collect()
}

/// The last ACKs that `TCP_DEFER_ACCEPT` of each listener ignored, in the order given. Absent: it cannot be
/// told. `estimated`: an upper bound, as several listeners dropped packets.
///
/// `others` as in [`attribute`].
pub(super) fn deferred(
    host: Option<HostDrops>,
    suspects: &[Suspect],
    others: bool,
) -> Vec<Option<Part>> {
    let Some(host) = host else { return vec![None; suspects.len()] };
    let Dropped { known, risers, sum } = Dropped::by(suspects, others);
    // Nothing else was dropped: then each count is a count of them.
    let all_deferred = known && host.drops == 0 && sum == host.deferred;
    let deferred_part = |one: &Suspect| {
        let drops = one.drops?;
        // The host's counter is read a little later than the listener's.
        let part = Part::exactly(host.deferred.min(drops));
        let exact = drops == 0
            || host.deferred == 0
            || all_deferred
            || (known && risers == 1 && host.deferred <= drops + read_later(drops));
        Some(Part { estimated: !exact, ..part })
    };
    suspects.iter().map(deferred_part).collect()
}

/// Looks that are kept, at most.
const LOOKS: usize = 10;
/// Looks closer together than this are one, s: each second, and a bit of jitter.
const APART_S: f64 = 0.9;
/// A queue of this length or more is long.
const LONG: u32 = 10;

/// Whether a queue of this length is nearly full: more than 80 % of its limit. A queue of 1 is a connection
/// that came just now.
pub(super) fn is_nearly_full(len: u32, limit: u32) -> bool {
    limit > 0 && len > 1 && u64::from(len) * 5 > u64::from(limit) * 4
}

/// When the last looks were, the newest last, and what the kernel had established by then.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    looks: VecDeque<(f64, Option<u64>)>,
}

impl Clock {
    /// Takes a look. Gives whether it counts: it is late enough after the one before.
    ///
    /// `established`: `TcpPassiveOpens` of the namespace.
    pub(super) fn tick(&mut self, at_s: f64, established: Option<u64>) -> bool {
        match self.looks.back() {
            // A clock that went back begins again; so does one that is no number.
            Some((last_s, _)) if at_s - last_s >= APART_S => {}
            Some((last_s, _)) if at_s >= *last_s => return false,
            Some(_) => self.looks.clear(),
            None => {}
        }
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back((at_s, established));
        true
    }
}

/// One queue at the last looks: 48 bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    newest_first: [u32; LOOKS],
    looks: u8,
    long_looks: u32,
}

impl Lengths {
    /// Takes the length at a look that counts.
    pub(super) fn push(&mut self, len: u32) {
        self.newest_first.rotate_right(1);
        self.newest_first[0] = len;
        self.looks = self.looks.saturating_add(1).min(LOOKS as u8);
        self.long_looks = if len >= LONG { self.long_looks.saturating_add(1) } else { 0 };
    }

    /// What they show together since the queue was last seen empty; absent with less than two looks.
    pub(super) fn standing(&self, clock: &Clock, limit: u32) -> Option<Standing> {
        let known = usize::from(self.looks).min(clock.looks.len());
        let lengths = self.newest_first[..known].split(|len| *len == 0).next()?;
        let count = lengths.len();
        let (last, first) = (*lengths.first()?, *lengths.last()?);
        let shortest = lengths.iter().copied().min()?;
        let nearly_full = lengths.iter().filter(|len| is_nearly_full(**len, limit)).count();
        if count < 2 {
            return None;
        }
        let (from_s, before) = clock.looks[clock.looks.len() - count];
        let (to_s, after) = clock.looks[clock.looks.len() - 1];
        let established = before.zip(after).and_then(|(before, after)| after.checked_sub(before));
        // What came, and what waited at the beginning, was accepted or still waits. The counter is read some
        // ms after the queues.
        let came = established.map(|all| all + all / 100 + 2 + u64::from(first));
        let accepted = came.and_then(|came| came.checked_sub(last.into()));
        Some(Standing {
            looks: count as u32,
            over_s: to_s - from_s,
            shortest,
            longest: lengths.iter().copied().max()?,
            nearly_full: nearly_full as u32,
            first,
            last,
            accepted_at_most: accepted,
            long_looks: self.long_looks,
        })
    }
}

impl Standing {
    /// Whether the queue empties soon: at its pace within this time, s.
    pub(super) fn empties_within(&self, s: f64) -> bool {
        let falls_per_s = (f64::from(self.first) - f64::from(self.last)) / self.over_s;
        self.over_s > 0.0 && falls_per_s * s >= f64::from(self.last)
    }

    /// Time that each client waits in the queue, at least, s: Little's law. Absent where the counters do not
    /// say.
    pub(super) fn wait_at_least_s(&self) -> Option<f64> {
        let accepted = self.accepted_at_most? as f64;
        Some(f64::from(self.shortest) * self.over_s / accepted).filter(|s| s.is_finite())
    }
}

/// Change of `sk_drops`, which the kernel counts modulo 2^32. Absent: more than half of that in one
/// interval is no count but another socket's.
fn drops_since(before: u32, after: u32) -> Option<u64> {
    let change = after.wrapping_sub(before);
    (change <= u32::MAX / 2).then_some(u64::from(change))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(overflows: u64, drops: u64) -> HostDrops {
        HostDrops { overflows, drops, deferred: 0 }
    }

    fn dropped(drops: u64) -> Suspect {
        Suspect { drops: Some(drops), was_full: false }
    }

    fn full(drops: u64) -> Suspect {
        Suspect { was_full: true, ..dropped(drops) }
    }

    const UNKNOWN: Suspect = Suspect { drops: None, was_full: false };

    fn parts(host: HostDrops, suspects: &[Suspect], others: bool) -> Vec<Option<(f64, bool)>> {
        let parts = attribute(Some(host), suspects, others).into_iter();
        parts.map(|part| part.map(|part| (part.packets, part.estimated))).collect()
    }

    #[test]
    fn sk_drops_wraps_and_never_goes_backwards() {
        assert_eq!(drops_since(u32::MAX - 1, 3), Some(5));
        assert_eq!(drops_since(7, 7), Some(0));
        assert_eq!(drops_since(7, 6), None);
    }

    #[test]
    fn the_only_listener_that_dropped_has_all_overflows_of_the_host() {
        // 60 last ACKs count twice: 100 overflows, 160 drops of the socket.
        let seen = parts(host(100, 100), &[dropped(0), dropped(160), dropped(0)], false);
        assert_eq!(seen, [Some((0.0, false)), Some((100.0, false)), Some((0.0, false))]);
        // The counters were read a little later than the listeners.
        assert_eq!(parts(host(101, 101), &[dropped(100)], false), [Some((101.0, false))]);
        // A kernel without sk_drops, and a single listener.
        assert_eq!(parts(host(7, 7), &[UNKNOWN], false), [Some((7.0, false))]);
    }

    #[test]
    fn without_an_overflow_no_drop_is_one() {
        let seen = parts(host(0, 12), &[dropped(12), UNKNOWN], true);
        assert_eq!(seen, [Some((0.0, false)); 2]);
        assert_eq!(attribute(None, &[dropped(12)], false), [None], "the host's counters broke off");
    }

    #[test]
    fn counts_that_add_up_to_the_overflows_are_exact() {
        let seen = parts(host(30, 30), &[dropped(10), dropped(20)], false);
        assert_eq!(seen, [Some((10.0, false)), Some((20.0, false))]);
    }

    #[test]
    fn otherwise_those_seen_full_share_and_the_rest_is_not_told() {
        // The second listener is scanned: its drops are RSTs.
        let seen = parts(host(100, 100), &[full(150), dropped(40), dropped(0)], false);
        assert_eq!(seen, [Some((100.0, true)), None, Some((0.0, false))]);
        let seen = parts(host(100, 100), &[full(150), full(50)], false);
        assert_eq!(seen, [Some((75.0, true)), Some((25.0, true))]);
        let seen = parts(host(100, 100), &[dropped(150), dropped(50)], false);
        assert_eq!(seen, [None, None], "none was seen full");
    }

    #[test]
    fn overflows_of_a_listener_that_no_look_saw_are_not_put_on_another() {
        // 100 overflows at a listener that lived between two looks, and one RST at another.
        let seen = parts(host(100, 100), &[dropped(1), dropped(0)], false);
        assert_eq!(seen, [None, Some((0.0, false))]);
        let seen = parts(host(100, 100), &[full(40), dropped(0)], false);
        assert_eq!(seen, [Some((40.0, true)), Some((0.0, false))]);
        assert_eq!(parts(host(100, 100), &[dropped(0)], false), [Some((0.0, false))]);
    }

    #[test]
    fn a_listener_that_vanished_may_have_had_a_part() {
        assert_eq!(parts(host(9, 9), &[dropped(9)], true), [None]);
        assert_eq!(parts(host(9, 9), &[full(4)], true), [Some((4.0, true))]);
    }

    #[test]
    fn deferred_acks_are_exact_where_one_listener_dropped_and_else_an_upper_bound() {
        let parts = |deferred_acks: u64, drops, suspects: &[Suspect], others| -> Vec<_> {
            let host = HostDrops { overflows: 0, drops, deferred: deferred_acks };
            let parts = deferred(Some(host), suspects, others).into_iter();
            parts.map(|part| part.map(|part| (part.packets, part.estimated))).collect()
        };
        assert_eq!(
            parts(40, 0, &[dropped(40), dropped(0)], false),
            [Some((40.0, false)), Some((0.0, false))]
        );
        assert_eq!(
            parts(40, 9, &[dropped(49)], false),
            [Some((40.0, false))],
            "9 were dropped too"
        );
        let both = parts(40, 0, &[dropped(30), dropped(10)], false);
        assert_eq!(both, [Some((30.0, false)), Some((10.0, false))], "they add up");
        let scanned = parts(40, 0, &[dropped(60), dropped(10)], false);
        assert_eq!(scanned, [Some((40.0, true)), Some((10.0, true))]);
        assert_eq!(parts(40, 0, &[dropped(40)], true), [Some((40.0, true))], "another vanished");
        assert_eq!(parts(0, 0, &[dropped(7), dropped(1)], true), [Some((0.0, false)); 2]);
        assert_eq!(parts(40, 0, &[UNKNOWN], false), [None]);
        let elsewhere = parts(40, 0, &[dropped(1)], false);
        assert_eq!(elsewhere, [Some((1.0, true))], "more than it dropped: another one had them");
    }

    proptest! {
        #[test]
        fn parts_are_never_negative_and_never_more_than_the_host_counted(
            overflows in 0_u64..1_000, more in 0_u64..100, others: bool,
            suspects in prop::collection::vec((prop::option::of(0_u64..500), any::<bool>()), 0..6),
        ) {
            let suspects: Vec<Suspect> =
                suspects.into_iter().map(|(drops, was_full)| Suspect { drops, was_full }).collect();
            let parts = attribute(Some(host(overflows, overflows + more)), &suspects, others);
            prop_assert_eq!(parts.len(), suspects.len());
            let sum: f64 = parts.iter().flatten().map(|part| part.packets).sum();
            prop_assert!(sum <= overflows as f64 + 1e-6, "{} of {}", sum, overflows);
            prop_assert!(parts.iter().flatten().all(|part| part.packets >= 0.0));
        }
    }

    fn standing(lengths: &[u32], established_per_look: u64, every_s: f64) -> Option<Standing> {
        let (mut clock, mut queue) = (Clock::default(), Lengths::default());
        for (at, len) in lengths.iter().enumerate() {
            if clock.tick(at as f64 * every_s, Some(at as u64 * established_per_look)) {
                queue.push(*len);
            }
        }
        queue.standing(&clock, 100)
    }

    #[test]
    fn looks_count_since_the_queue_was_last_empty() {
        assert_eq!(standing(&[3], 1, 1.0), None, "a single look");
        assert_eq!(standing(&[3, 4, 0, 4], 1, 1.0), None);
        assert_eq!(standing(&[3, 4, 0], 1, 1.0), None);
        assert_eq!(standing(&[9, 0, 3, 4], 1, 1.0).map(|one| (one.looks, one.first)), Some((2, 3)));
        assert_eq!(
            standing(&[3, 4, 2, 4], 1, 1.0).map(|one| (one.shortest, one.longest)),
            Some((2, 4))
        );
        assert_eq!(standing(&[101, 81, 80, 101], 1, 1.0).map(|one| one.nearly_full), Some(3));
    }

    #[test]
    fn the_last_ten_looks_that_are_a_second_apart_count() {
        let lengths: Vec<u32> = (1..=30).collect();
        let one = standing(&lengths, 5, 1.0).unwrap();
        assert_eq!((one.looks, one.first, one.last, one.long_looks), (10, 21, 30, 21));
        assert!((one.over_s - 9.0).abs() < 1e-9);
        let often = standing(&lengths, 5, 0.5).unwrap();
        assert_eq!((often.looks, often.first, often.last), (10, 11, 29), "each second");
    }

    #[test]
    fn the_wait_is_the_queue_over_the_accepts_and_what_joined_the_queue_was_not_accepted() {
        let even = standing(&[12; 10], 5, 1.0).unwrap();
        assert_eq!(even.accepted_at_most, Some(45 + 2));
        assert!((even.wait_at_least_s().unwrap() - 12.0 * 9.0 / 47.0).abs() < 1e-9);
        let growing = standing(&[2, 4, 6, 8], 2, 1.0).unwrap();
        assert_eq!(
            growing.accepted_at_most,
            Some(2),
            "nobody accepts: what the counter may be late by"
        );
        assert_eq!(growing.wait_at_least_s(), Some(3.0));
        let falling = standing(&[40, 30, 20], 1, 1.0).unwrap();
        assert_eq!(falling.accepted_at_most, Some(24));
        assert!(falling.empties_within(2.0) && !falling.empties_within(1.9));
        assert!(!even.empties_within(1e9) && !growing.empties_within(1e9));
    }

    #[test]
    fn counters_and_clocks_that_break_off_give_no_accepts() {
        let (mut clock, mut queue) = (Clock::default(), Lengths::default());
        for (at_s, established) in [(0.0, Some(9)), (1.0, Some(3)), (2.0, None)] {
            assert!(clock.tick(at_s, established));
            queue.push(5);
        }
        let one = queue.standing(&clock, 100).unwrap();
        assert_eq!((one.accepted_at_most, one.wait_at_least_s()), (None, None));
        assert!(clock.tick(1.0, Some(1)) && clock.looks.len() == 1, "the clock went back");
        assert_eq!(queue.standing(&clock, 100), None);
        assert!(clock.tick(f64::NAN, None) && clock.tick(3.0, None));
        assert_eq!(clock.looks.len(), 1);
    }
}
