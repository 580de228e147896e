//! The last minutes of a watch, in bounded memory.
//!
//! # Memory
//!
//! The newest state has up to [`LISTENERS_MAX`] listeners, 1,024 × 410 B = 0.42 MB, and 64 diagnoses,
//! 64 × 2.6 kB = 0.17 MB. Of each of the [`LOOKS_MAX`] = 600 looks before it, what has something to show is
//! kept:
//!
//! | kept of a look | at most | bytes each | sum |
//! | --- | --- | --- | --- |
//! | levels, limits, rates, counters, socket states | 1 | 2,000 | 2.0 kB |
//! | listeners with a queue, a drop or a diagnosis | 20 | 350 | 7.0 kB |
//! | destinations | 12 | 150 | 1.8 kB |
//! | diagnoses, with their fixes | 3 | 2,600 | 7.8 kB |
//!
//! That is 18 kB × 600 = 11 MB at worst, where all is busy and wrong for ten minutes, and about 2 MB where
//! nothing happens. What is followed between looks adds 8,192 sockets × 170 B = 1.4 MB at most; held
//! diagnoses, 64 × 2.6 kB = 0.17 MB. A test counts what is held.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use tcptoll_core::tcp::counters::Counters;

use super::diagnoses::{self, Held};
use super::listeners::{HostDrops, Listeners};
use super::look::{DESTINATIONS_MAX, Limits, Look, SocketDump};
use super::proc::TRACKING_DROPS;
use super::state::{DestinationState, ListenerState, Rates, Segments, State, Totals};

/// Looks that can be gone back to: 10 minutes at 1 s.
pub(super) const LOOKS_MAX: usize = 600;
/// Listeners of a state, at most.
pub const LISTENERS_MAX: usize = 1_024;
/// Listeners kept of a look that is past.
const PAST_LISTENERS: usize = 20;
/// Destinations kept of a look that is past.
const PAST_DESTINATIONS: usize = 12;
/// Diagnoses kept of a look that is past.
const PAST_DIAGNOSES: usize = 3;

/// A watch's memory: the newest state, and what the states before it had to show.
#[derive(Clone, Debug, Default)]
pub struct History {
    host: String,
    uptime_s: f64,
    /// Commands enter this network namespace; absent: it is ours.
    netns: Option<String>,
    /// Of the newest look, for the next.
    base: Option<(f64, Counters)>,
    pub(super) listeners: Listeners,
    dumps: Dumps,
    recent: Recent,
    held: Held,
    newest: Option<State>,
    /// Without the newest; the latest of them last.
    past: VecDeque<State>,
}

impl History {
    /// A watch that has not looked yet. `uptime_s`: time since boot when the watch began, s.
    pub fn new(host: impl Into<String>, uptime_s: f64) -> Self {
        Self { host: host.into(), uptime_s, ..Self::default() }
    }

    /// The network namespace that is looked at from another one: a process id or a file. Commands then enter it.
    #[must_use]
    pub fn of_namespace(self, netns: Option<String>) -> Self {
        Self { netns, ..self }
    }

    /// Takes a look, and says what it and the one before it show together.
    ///
    /// The first look has no rates. Neither has one that is not later than the look before it, or whose
    /// counters do not continue those before; drops since the watch began go on over both.
    pub fn push(&mut self, look: Look) -> &State {
        let before = self.base.take();
        let interval_s = before.as_ref().and_then(|(at_s, _)| interval(*at_s, look.at_s));
        let continued = before.as_ref().zip(interval_s);
        let rates = continued.and_then(|((_, before), s)| rates(before, &look.counters, s));
        match continued {
            Some(((_, before), s)) => self.recent.push(before, &look.counters, s),
            None => self.recent.clear(),
        }
        let host = continued.and_then(|((_, before), _)| host_drops(before, &look.counters));
        let established = look.counters.get("TcpPassiveOpens").copied();
        let established = established.and_then(|count| u64::try_from(count).ok());
        let seen = self.listeners.see(look.at_s, look.listeners, host, established, interval_s);
        let mut state = State {
            time: look.time,
            at_s: look.at_s,
            interval_s: interval_s.unwrap_or(0.0),
            host: self.host.clone(),
            uptime_s: self.uptime_s + look.at_s,
            diagnoses: Vec::new(),
            diagnoses_left_out: 0,
            listeners: seen.listeners,
            listeners_left_out: seen.left_out,
            destinations: Vec::new(),
            destinations_left_out: 0,
            unclosed: Vec::new(),
            states: std::collections::BTreeMap::new(),
            table_age_s: None,
            segments: rates.as_ref().and_then(|_| self.recent.sum()),
            rates,
            totals: Totals::from_counters(&look.counters),
            counted: look.counted,
            limits: look.limits,
            cost: look.cost,
        };
        if let Some(table) = look.table {
            state.destinations = self.dumps.states(&table, &state.limits);
            let more = table.destinations.len() - state.destinations.len();
            state.destinations_left_out = table.destinations_left_out + more as u64;
            // A look that reads the table begins before the table does: that one is new.
            state.table_age_s = Some((look.at_s - table.at_s).max(0.0));
            state.unclosed = table.unclosed;
            state.states = table.states;
        }
        self.held.apply(&mut state);
        if let Some(netns) = &self.netns {
            let found = state.diagnoses.iter_mut().flat_map(|one| &mut one.remedies);
            found.for_each(|fix| fix.enter(netns));
        }
        order(&mut state);
        let more = state.listeners.len().saturating_sub(LISTENERS_MAX);
        state.listeners.truncate(LISTENERS_MAX);
        state.listeners_left_out += more as u64;
        self.base = Some((look.at_s, look.counters));
        if let Some(newest) = self.newest.take() {
            if self.past.len() == LOOKS_MAX {
                self.past.pop_front();
            }
            self.past.push_back(thinned(&newest));
        }
        self.newest.insert(state)
    }

    /// The newest state; none before the first look.
    pub fn latest(&self) -> Option<&State> {
        self.newest.as_ref()
    }

    /// The state so many looks before the newest, which is 0. Of a past state only what has something to
    /// show is there: its `listeners_left_out` and the like count the rest.
    pub fn back(&self, looks: usize) -> Option<&State> {
        match looks.checked_sub(1) {
            None => self.newest.as_ref(),
            Some(past) => self.past.iter().nth_back(past),
        }
    }

    /// All states, the newest first.
    pub fn iter_back(&self) -> impl Iterator<Item = &State> {
        self.newest.iter().chain(self.past.iter().rev())
    }

    /// States that there are, the newest included.
    pub fn len(&self) -> usize {
        self.past.len() + usize::from(self.newest.is_some())
    }

    /// Whether there was no look yet.
    pub fn is_empty(&self) -> bool {
        self.newest.is_none()
    }
}

/// Whether a listener has something to show.
fn shows(listener: &ListenerState) -> bool {
    let some = |rate: Option<f64>| rate.is_some_and(|rate| rate > 0.0);
    listener.accept_queue_len > 0
        || listener.syn_queue_len.is_some_and(|len| len > 0)
        || some(listener.drops_per_s)
        || some(listener.overflows_per_s)
}

/// Listeners with a diagnosis first, then those with something to show; among them by address. The order
/// does not follow a figure: a listener that changes its place at each look cannot be read.
fn order(state: &mut State) {
    let named: BTreeSet<&str> = state.diagnoses.iter().map(|one| one.subject.as_str()).collect();
    let rank = |listener: &ListenerState| {
        if !named.is_empty() && named.contains(diagnoses::subject(listener).as_str()) {
            0
        } else {
            2 - u8::from(shows(listener))
        }
    };
    // They come by address: the sort is stable.
    state.listeners.sort_by_cached_key(rank);
}

/// What is kept of a state that is past. Cloned strings have no spare capacity.
fn thinned(state: &State) -> State {
    let named: BTreeSet<&str> = state.diagnoses.iter().map(|one| one.subject.as_str()).collect();
    let listeners: Vec<ListenerState> = state
        .listeners
        .iter()
        .filter(|one| shows(one) || named.contains(diagnoses::subject(one).as_str()))
        .take(PAST_LISTENERS)
        .cloned()
        .collect();
    let destinations: Vec<_> = state.destinations.iter().take(PAST_DESTINATIONS).cloned().collect();
    let diagnoses: Vec<_> = state.diagnoses.iter().take(PAST_DIAGNOSES).cloned().collect();
    let left_out = |all: usize, kept: usize| (all - kept) as u64;
    State {
        time: state.time.clone(),
        host: state.host.clone(),
        listeners_left_out: state.listeners_left_out
            + left_out(state.listeners.len(), listeners.len()),
        destinations_left_out: state.destinations_left_out
            + left_out(state.destinations.len(), destinations.len()),
        diagnoses_left_out: state.diagnoses_left_out
            + left_out(state.diagnoses.len(), diagnoses.len()),
        listeners: exact(listeners.into_iter().map(without_looks).collect()),
        destinations: exact(destinations),
        diagnoses: exact(diagnoses),
        unclosed: Vec::new(),
        states: state.states.clone(),
        rates: state.rates.clone(),
        counted: state.counted.clone(),
        limits: state.limits.clone(),
        ..*state
    }
}

/// A listener of a look that is past: what its last looks said is in the diagnoses.
fn without_looks(listener: ListenerState) -> ListenerState {
    ListenerState { stands: None, ..listener }
}

/// The list without spare capacity.
fn exact<T>(mut list: Vec<T>) -> Vec<T> {
    list.shrink_to_fit();
    list
}

/// The two newest dumps' ports in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Dumps {
    /// When the newest dump began, and ports in use by destination.
    newest: Option<(f64, BTreeMap<SocketAddr, u32>)>,
    /// Change of the ports in use per second, from the dump before to the newest.
    per_s: BTreeMap<SocketAddr, f64>,
}

impl Dumps {
    /// Takes note of a dump; one that was seen before changes nothing.
    fn see(&mut self, table: &SocketDump) {
        let known = self.newest.as_ref();
        if known.is_some_and(|(at_s, _)| at_s.to_bits() == table.at_s.to_bits()) {
            return;
        }
        let ports: BTreeMap<SocketAddr, u32> = table
            .destinations
            .iter()
            .take(DESTINATIONS_MAX)
            .map(|one| (one.to, one.ports_in_use))
            .collect();
        self.per_s.clear();
        if let Some((before_s, before)) = known
            && let Some(s) = interval(*before_s, table.at_s)
        {
            // One that the dump before did not list may have been left out there: no change is known.
            let both = ports.iter().filter_map(|(to, now)| Some((to, now, before.get(to)?)));
            self.per_s = both
                .map(|(to, now, before)| (*to, (f64::from(*now) - f64::from(*before)) / s))
                .collect();
        }
        self.newest = Some((table.at_s, ports));
    }

    /// The destinations of a dump.
    ///
    /// More ports in use than connect(2) may choose means that programs chose some themselves: how many
    /// are left is not known then.
    pub(super) fn states(&mut self, table: &SocketDump, limits: &Limits) -> Vec<DestinationState> {
        self.see(table);
        let states = table.destinations.iter().take(DESTINATIONS_MAX).map(|one| {
            let reused = limits.reuses_time_wait(one.to.ip());
            let taken = one.ports_in_use.checked_sub(if reused { one.time_wait } else { 0 });
            let ports_left = limits.local_ports.zip(taken);
            let ports_left = ports_left.and_then(|(all, taken)| all.checked_sub(taken));
            let ports_per_s = self.per_s.get(&one.to).copied();
            let rising = ports_per_s.filter(|per_s| *per_s > 0.0 && !reused);
            DestinationState {
                address: one.to.ip().to_string(),
                port: one.to.port(),
                ports_in_use: one.ports_in_use,
                time_wait: one.time_wait,
                ports_left,
                syn_sent: one.syn_sent,
                here: one.here,
                ports_per_s,
                lasts_s: ports_left.zip(rising).map(|(left, per_s)| f64::from(left) / per_s),
            }
        });
        states.collect()
    }
}

/// What [`Segments`] are of, s.
const SEGMENTS_OVER_S: f64 = 10.0;
/// Intervals that [`Recent`] keeps, at most: 10 s at the shortest interval, 0.1 s, and some more.
const INTERVALS_MAX: usize = 128;

/// Time from one look to the next, s. Absent: it is no positive time, so nothing can be divided by it.
///
/// A suspended machine has a long interval, not a wrong one: rates are divided by the time that passed.
pub(super) fn interval(before_s: f64, now_s: f64) -> Option<f64> {
    let s = now_s - before_s;
    (s.is_finite() && s > 0.0).then_some(s)
}

/// Change of one counter. Absent: a reading lacks it, or it went backwards.
fn change(before: &Counters, after: &Counters, name: &str) -> Option<u64> {
    let (before, after) = (before.get(name)?, after.get(name)?);
    u64::try_from(after.checked_sub(*before)?).ok()
}

/// All rates. Absent if one counter is missing or went backwards: the two readings are not of one
/// namespace then, and no other rate is to be trusted.
pub(super) fn rates(before: &Counters, after: &Counters, interval_s: f64) -> Option<Rates> {
    let rate = |name| Some(change(before, after, name)? as f64 / interval_s);
    Some(Rates {
        active_opens_per_s: rate("TcpActiveOpens")?,
        passive_opens_per_s: rate("TcpPassiveOpens")?,
        segments_out_per_s: rate("TcpOutSegs")?,
        retransmitted_per_s: rate("TcpRetransSegs")?,
        syns_retransmitted_per_s: rate("TcpExtTCPSynRetrans")?,
        overflows_per_s: rate("TcpExtListenOverflows")?,
        drops_per_s: rate("TcpExtListenDrops")?,
        cookies_sent_per_s: rate("TcpExtSyncookiesSent")?,
        syns_dropped_per_s: rate("TcpExtTCPReqQFullDrop")?,
        resets_per_s: rate("TcpEstabResets")?,
        aborted_for_memory_per_s: rate("TcpExtTCPAbortOnMemory")?,
        time_wait_overflows_per_s: rate("TcpExtTCPTimeWaitOverflow")?,
        deferred_per_s: rate("TcpExtTCPDeferAcceptDrop")?,
        tracking_drops_per_s: rate(TRACKING_DROPS).unwrap_or(0.0),
    })
}

/// What all listeners of the namespace dropped.
pub(super) fn host_drops(before: &Counters, after: &Counters) -> Option<HostDrops> {
    Some(HostDrops {
        overflows: change(before, after, "TcpExtListenOverflows")?,
        drops: change(before, after, "TcpExtListenDrops")?,
        deferred: change(before, after, "TcpExtTCPDeferAcceptDrop")?,
    })
}

/// Segments of the newest intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// The newest last.
    intervals: VecDeque<Segments>,
}

impl Recent {
    /// Adds an interval. What lies further back than 10 s from now goes.
    pub(super) fn push(&mut self, before: &Counters, after: &Counters, interval_s: f64) {
        let sent = change(before, after, "TcpOutSegs");
        let Some((sent, retransmitted)) = sent.zip(change(before, after, "TcpRetransSegs")) else {
            return self.intervals.clear();
        };
        // A peer that is not there, or a full queue, leaves SYNs unanswered: no path lost them. The two
        // counters are read one after the other, so that the SYNs may be ahead by some.
        let syns = change(before, after, "TcpExtTCPSynRetrans").unwrap_or(0);
        let retransmitted = retransmitted.saturating_sub(syns);
        self.intervals.push_back(Segments { over_s: interval_s, sent, retransmitted });
        // With 1 s intervals a sum of 10 s may come out as 10.000001 s.
        let over = |intervals: &VecDeque<Segments>| -> f64 {
            intervals.iter().map(|one| one.over_s).sum::<f64>() - SEGMENTS_OVER_S - 1e-3
        };
        while self.intervals.len() > 1
            && (over(&self.intervals) > 0.0 || self.intervals.len() > INTERVALS_MAX)
        {
            self.intervals.pop_front();
        }
    }

    pub(super) fn clear(&mut self) {
        self.intervals.clear();
    }

    /// Their sum; absent if there is none.
    pub(super) fn sum(&self) -> Option<Segments> {
        let add = |sum: Segments, one: &Segments| Segments {
            over_s: sum.over_s + one.over_s,
            sent: sum.sent.saturating_add(one.sent),
            retransmitted: sum.retransmitted.saturating_add(one.retransmitted),
        };
        let any = !self.intervals.is_empty();
        any.then(|| self.intervals.iter().fold(Segments::default(), add))
    }
}

#[cfg(test)]
mod tests {
    use super::super::look::Destination;
    use super::*;

    fn table(at_s: f64, ports_in_use: u32) -> SocketDump {
        let to = "10.0.0.9:80".parse().unwrap();
        let one =
            Destination { to, sources: 1, ports_in_use, time_wait: 0, syn_sent: 0, here: false };
        SocketDump { at_s, destinations: vec![one], ..SocketDump::default() }
    }

    fn range(local_ports: u32) -> Limits {
        Limits { local_ports: Some(local_ports), ..Limits::default() }
    }

    #[test]
    fn a_port_in_time_wait_is_left_where_it_is_taken_again() {
        for (to, tw_reuse, left) in [
            ("10.0.0.9:80", 0, 100),
            ("10.0.0.9:80", 1, 1_000),
            ("10.0.0.9:80", 2, 100),
            ("127.0.0.1:80", 2, 1_000),
            ("[::1]:80", 2, 1_000),
        ] {
            let mut dumps = Dumps::default();
            let limits = Limits { tw_reuse: Some(tw_reuse), ..range(1_000) };
            let mut table = table(0.0, 900);
            table.destinations[0].to = to.parse().unwrap();
            table.destinations[0].time_wait = 900;
            let first = &dumps.states(&table, &limits)[0];
            assert_eq!(first.ports_left, Some(left), "{to} {tw_reuse}");
            table.at_s = 1.0;
            table.destinations[0].ports_in_use = 950;
            let second = &dumps.states(&table, &limits)[0];
            assert_eq!(second.lasts_s.is_none(), left == 1_000, "{to} {tw_reuse}");
        }
    }

    #[test]
    fn ports_last_as_long_as_the_two_newest_dumps_say() {
        let mut dumps = Dumps::default();
        let range = &range(28_232);
        let first = &dumps.states(&table(0.0, 10_000), range)[0];
        assert_eq!(
            (first.ports_left, first.ports_per_s, first.lasts_s),
            (Some(18_232), None, None)
        );
        let second = &dumps.states(&table(2.0, 11_000), range)[0];
        assert_eq!((second.ports_per_s, second.lasts_s), (Some(500.0), Some(17_232.0 / 500.0)));
        let same = &dumps.states(&table(2.0, 11_000), range)[0];
        assert_eq!(same, second, "a dump that is shown again keeps its rate");
        let falling = &dumps.states(&table(3.0, 10_000), range)[0];
        assert_eq!((falling.ports_per_s, falling.lasts_s), (Some(-1_000.0), None));
    }

    #[test]
    fn more_ports_than_the_range_has_leave_an_unknown_number() {
        let state = &Dumps::default().states(&table(0.0, 101), &range(100))[0];
        assert_eq!((state.ports_in_use, state.ports_left), (101, None));
    }

    fn counters(sent: i64, retransmitted: i64) -> Counters {
        [("TcpOutSegs", sent), ("TcpRetransSegs", retransmitted)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    #[test]
    fn no_time_and_negative_time_are_no_interval() {
        for (before, now) in [(5.0, 5.0), (5.0, 4.0), (5.0, f64::NAN), (f64::INFINITY, 5.0)] {
            assert_eq!(interval(before, now), None);
        }
        assert_eq!(interval(5.0, 3605.0), Some(3600.0), "a suspended machine");
    }

    #[test]
    fn a_syn_that_nobody_answers_is_no_lost_segment() {
        let mut recent = Recent::default();
        let with_syns = |sent, retransmitted, syns| {
            let mut counters = counters(sent, retransmitted);
            counters.insert("TcpExtTCPSynRetrans".to_owned(), syns);
            counters
        };
        recent.push(&with_syns(0, 0, 0), &with_syns(1_000, 70, 60), 1.0);
        assert_eq!(recent.sum().map(|sum| (sum.sent, sum.retransmitted)), Some((1_000, 10)));
        recent.push(&with_syns(0, 0, 0), &with_syns(1_000, 60, 61), 1.0);
        assert_eq!(recent.sum().map(|sum| sum.retransmitted), Some(10));
    }

    #[test]
    fn segments_are_of_ten_seconds_and_begin_again_with_another_namespace() {
        let mut recent = Recent::default();
        assert_eq!(recent.sum(), None);
        for second in 0..30 {
            recent.push(
                &counters(100 * second, second),
                &counters(100 * second + 100, second + 1),
                1.0,
            );
        }
        let sum = recent.sum().unwrap();
        assert_eq!((sum.sent, sum.retransmitted), (1_000, 10));
        assert!((sum.over_s - 10.0).abs() < 1e-6);
        recent.push(&counters(0, 0), &counters(9, 1), 3_600.0);
        assert_eq!(recent.sum().unwrap().sent, 9, "one long interval stands alone");
        recent.push(&counters(9, 1), &counters(8, 1), 1.0);
        assert_eq!(recent.sum(), None);
        for _ in 0..1_000 {
            recent.push(&counters(0, 0), &counters(1, 0), 0.001);
        }
        assert_eq!(recent.intervals.len(), INTERVALS_MAX);
    }
}
