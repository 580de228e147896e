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

use std::collections::{BTreeSet, VecDeque};

use super::destinations::Dumps;
use super::diagnoses::{self, Held};
use super::listeners::Listeners;
use super::look::Look;
use super::rates::{Recent, host_drops, interval, rates};
use super::state::{ListenerState, State};
use super::totals::Totals;
use tcptoll_core::tcp::counters::Counters;

/// Looks that can be gone back to: 10 minutes at 1 s.
pub const LOOKS_MAX: usize = 600;
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
    /// Of the newest look, for the next.
    base: Option<(f64, Counters)>,
    listeners: Listeners,
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
            state.states = table.states;
        }
        self.held.apply(&mut state);
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

#[cfg(test)]
pub(crate) mod tests;
