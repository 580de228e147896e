//! What all looks of an examination show together.

use std::collections::BTreeMap;

use super::{Opening, StandingQueue};
use crate::diagnosis::Diagnosis;
use crate::watch::diagnoses::accept_queue::{FULL, UNKNOWN};
use crate::watch::diagnoses::{self, DIAGNOSES_MAX, place};
use crate::watch::{Standing, State};

/// Sockets that are followed: eight times what a state has.
const SOCKETS_MAX: usize = 8_192;

/// Sums up the states of an examination, one after the other, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct StateSums {
    looks: u32,
    found: BTreeMap<(String, String), Diagnosis>,
    /// By inode: a socket that is made anew is another.
    queues: BTreeMap<u64, Queue>,
    /// Ports in use and in TIME-WAIT by destination, of each dump of all sockets.
    dumps: Vec<(f64, Ports)>,
    tracked: Vec<(f64, u64)>,
}

/// Ports in use and in TIME-WAIT, by destination.
type Ports = BTreeMap<String, (u32, u32)>;

/// The queue of one socket.
#[derive(Debug)]
struct Queue {
    lengths: StandingQueue,
    peak: u32,
    drops: Option<u64>,
    /// Of all looks so far: the state of the first and the last knows two.
    stands: Option<Box<Standing>>,
}

impl StateSums {
    /// None yet.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Looks so far.
    pub(super) fn looks(&self) -> u32 {
        self.looks
    }

    /// Diagnoses so far.
    pub(super) fn diagnoses(&self) -> usize {
        self.found.len()
    }

    /// Takes one state.
    pub(super) fn see(&mut self, state: &State) {
        self.looks = self.looks.saturating_add(1);
        let active = state.diagnoses.iter().filter(|one| !one.evidence.contains_key("ended_s_ago"));
        for one in active {
            self.name(one);
        }
        for one in &state.listeners {
            let length = one.accept_queue_len;
            if self.queues.len() >= SOCKETS_MAX && !self.queues.contains_key(&one.inode) {
                continue;
            }
            let entry = self.queues.entry(one.inode).or_insert_with(|| Queue {
                lengths: StandingQueue {
                    on: place(&one.address, one.port),
                    shortest: length,
                    ..StandingQueue::default()
                },
                peak: 0,
                drops: None,
                stands: None,
            });
            let queue = &mut entry.lengths;
            queue.shortest = queue.shortest.min(length);
            queue.longest = queue.longest.max(length);
            queue.limit = one.accept_queue_limit;
            queue.looks = queue.looks.saturating_add(1);
            entry.peak = entry.peak.max(one.accept_queue_peak).max(length);
            entry.drops = one.drops.or(entry.drops);
            entry.stands.clone_from(&one.stands);
        }
    }

    /// Takes the dump of all sockets in a state whose look made one, and what is tracked then.
    pub(super) fn dump(&mut self, state: &State) {
        let used = state
            .destinations
            .iter()
            .map(|one| (place(&one.address, one.port), (one.ports_in_use, one.time_wait)));
        self.dumps.push((state.at_s, used.collect()));
        if let Some(tracked) = state.counted.tracked {
            self.tracked.push((state.at_s, tracked));
        }
    }

    /// The stronger of two of the same name and subject stays; of equals the later.
    fn name(&mut self, one: &Diagnosis) {
        let key = (one.id.clone(), one.subject.clone());
        match self.found.get(&key) {
            Some(known) if known.severity < one.severity => {}
            None if self.found.len() >= DIAGNOSES_MAX => {}
            _ => {
                self.found.insert(key, one.clone());
            }
        }
    }

    /// Completes the state that the first and the last look make together: peaks and diagnoses of all
    /// looks between them are put into it.
    pub(super) fn finish(mut self, mut whole: State) -> Summary {
        for one in &mut whole.listeners {
            let Some(seen) = self.queues.get(&one.inode) else { continue };
            one.accept_queue_peak = one.accept_queue_peak.max(seen.peak);
            one.accept_queue_recent_peak = one.accept_queue_recent_peak.max(seen.peak);
            one.drops = one.drops.or(seen.drops);
            one.stands.clone_from(&seen.stands);
        }
        // With its rates over all looks and the peaks it says the same as the single looks, and better.
        let of_whole = diagnoses::find(&whole);
        for one in &of_whole {
            self.name(one);
        }
        let mut found: Vec<Diagnosis> = std::mem::take(&mut self.found).into_values().collect();
        // One look may tell which listener it was where another one does not.
        if found.iter().any(|one| one.id == FULL && one.subject != UNKNOWN) {
            found.retain(|one| one.id != FULL || one.subject != UNKNOWN);
        }
        diagnoses::sort(&mut found);
        whole.diagnoses_left_out = found.len().saturating_sub(DIAGNOSES_MAX) as u64;
        found.truncate(DIAGNOSES_MAX);
        whole.diagnoses = found;
        let looks = self.looks;
        let stands = |queue: &StandingQueue| queue.shortest > 0 && queue.looks == looks;
        let standing =
            self.queues.values().map(|one| &one.lengths).filter(|queue| stands(queue)).cloned();
        Summary {
            standing: standing.collect(),
            openings: self.openings(),
            tracked_per_s: self.tracked_per_s(),
            state: whole,
        }
    }

    /// Destinations whose ports in use rose in both halves.
    fn openings(&self) -> Vec<Opening> {
        let [(from_s, from), (mid_s, mid), (to_s, to)] = &self.dumps[..] else { return Vec::new() };
        let none = (0, 0);
        let opening = |(name, last): (&String, &(u32, u32))| {
            let first = from.get(name).unwrap_or(&none);
            let middle = mid.get(name).unwrap_or(&none);
            let ports = lesser([(*from_s, first.0), (*mid_s, middle.0), (*to_s, last.0)])?;
            let time_wait = lesser([(*from_s, first.1), (*mid_s, middle.1), (*to_s, last.1)])?;
            Some(Opening { to: name.clone(), ports_per_s: ports, time_wait_per_s: time_wait })
        };
        to.iter().filter_map(opening).collect()
    }

    fn tracked_per_s(&self) -> Option<f64> {
        let [from, mid, to] = self.tracked[..] else { return None };
        lesser([from, mid, to])
    }
}

/// The lesser of the rates of both halves; none unless it rose in both.
fn lesser<T: Into<u64> + Copy>(marks: [(f64, T); 3]) -> Option<f64> {
    let [from, mid, to] = marks.map(|(at_s, level)| (at_s, level.into()));
    let rate = |(from_s, from): (f64, u64), (to_s, to): (f64, u64)| {
        let rise = to.checked_sub(from).filter(|rise| *rise > 0)?;
        let s = to_s - from_s;
        (s > 0.0).then(|| rise as f64 / s)
    };
    Some(rate(from, mid)?.min(rate(mid, to)?))
}

/// What an examination's looks come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Summary {
    /// See [`Machine::state`](super::Machine::state).
    pub state: State,
    /// See [`Machine::standing`](super::Machine::standing).
    pub standing: Vec<StandingQueue>,
    /// See [`Machine::openings`](super::Machine::openings).
    pub openings: Vec<Opening>,
    /// See [`Machine::tracked_per_s`](super::Machine::tracked_per_s).
    pub tracked_per_s: Option<f64>,
}

#[cfg(test)]
mod tests;
