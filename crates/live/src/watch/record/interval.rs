//! One interval of a record, and how neighbours become one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::is_zero;
use crate::watch::history::LISTENERS_MAX;
use crate::watch::look::{Counted, DESTINATIONS_MAX, Limits};

/// Diagnoses of a joined interval, at most.
const DIAGNOSES_MAX: usize = 256;

/// Segments retransmitted but SYNs and SYN-ACKs, as [`Segments`](crate::watch::Segments) counts them: a
/// count made of two others, so it is not in `counts`. Of joined looks its highest rate is in `peak_per_s`.
pub const DATA_RETRANSMITTED: &str = "data_retransmitted";

/// What happened over an interval: one look and the one before it, or several such joined.
///
/// Counts are sums, so joining keeps them. Levels are the greatest of the looks that were joined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Wall-clock time at its end, RFC 3339.
    pub time: String,
    /// Its end, s since the watch began.
    pub at_s: f64,
    /// Its length, s. The first look of a watch ends an interval of length 0.
    pub interval_s: f64,
    /// Looks that were joined; absent: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub looks: u32,
    /// The longest time between two looks, s; absent: `interval_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_s: Option<f64>,
    /// Part of it in which the machine was suspended, s.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspended_s: f64,
    /// Time that `counts` are of, s; absent: `interval_s`. Less where the counters did not continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_s: Option<f64>,
    /// Counts of the namespace by the names of its rates without `_per_s`; those of 0 are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// The highest rate of one of several looks, per second, of each of `counts`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peak_per_s: BTreeMap<String, f64>,
    pub levels: Counted,
    /// Limits at its end, in the first interval and where they changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
    /// Sockets by state; empty: no dump of all sockets was made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<String, u64>,
    /// Listeners that had a queue or a drop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerPart>,
    /// Listeners that had neither at a look, the most of any look.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle: u32,
    /// Listeners that there was no room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<Others>,
    /// Destinations with ports in use, of the dumps in the interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<DestinationPart>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnoses: Vec<DiagnosisPart>,
    /// Diagnoses that there was no room for, of any look.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub diagnoses_left_out: u64,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde hands it over like this
fn is_one(looks: &u32) -> bool {
    *looks == 1
}

/// A count of packets: whole where it was counted, with a fraction where it is a share.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
pub struct Count(pub f64);

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // 2^53: beyond it a float is no count any more.
        if self.0.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&self.0) {
            return serializer.serialize_u64(self.0 as u64);
        }
        serializer.serialize_f64(self.0)
    }
}

/// A listener over an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListenerPart {
    pub n: u32,
    /// The longest accept queue of any look.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub queue: u32,
    /// The most half-open requests of any look that counted them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub half_open: u32,
    /// Packets dropped here (`sk_drops`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drops: u64,
    /// The highest rate of drops of one of several looks, per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops_peak_per_s: Option<f64>,
    /// SYNs and last ACKs that met a full accept queue.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overflows: Count,
    /// The highest rate of overflows of one of several looks, per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflows_peak_per_s: Option<f64>,
    /// Whether a part of `overflows` is a share by `sk_drops`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub estimated: bool,
    /// Time in which its overflows cannot be told from those of others, s.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_s: f64,
}

/// Listeners that there was no room for, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Others {
    /// How many, of any look or joined interval.
    pub listeners: u64,
    /// The longest accept queue of any.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub queue: u32,
    /// Packets dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drops: u64,
    /// SYNs and last ACKs that met a full accept queue.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overflows: Count,
}

/// A destination over an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationPart {
    /// Remote address and port.
    pub to: String,
    /// The most local ports in use from one source address.
    pub ports_in_use: u32,
    /// The most of those in TIME-WAIT.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub time_wait: u32,
    /// The fewest local ports left to one source; absent where the range is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports_left: Option<u32>,
    /// The most sockets in SYN-SENT.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub syn_sent: u32,
}

/// A diagnosis over an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiagnosisPart {
    pub n: u32,
    /// Beginning of the first look that shows it, s since the watch began.
    pub from_s: f64,
    /// End of the last look that shows it.
    pub to_s: f64,
    /// Time of all looks that show it, s.
    pub active_s: f64,
    /// How bad it was at its worst: the figure of its evidence that orders it. Absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<f64>,
    /// Its sentence at its worst.
    pub text: String,
}

impl Interval {
    /// Time that counts are of, s.
    pub fn counted_s(&self) -> f64 {
        self.counted_s.unwrap_or(self.interval_s)
    }

    /// The longest time between two looks, s.
    pub fn longest_s(&self) -> f64 {
        self.longest_s.unwrap_or(self.interval_s)
    }

    /// A count by its name; 0 where it is left out.
    pub fn count(&self, name: &str) -> u64 {
        let count = |name| self.counts.get(name).copied().unwrap_or(0);
        if name == DATA_RETRANSMITTED {
            // The two counters are read one after the other, so that the SYNs may be ahead by some.
            count("retransmitted").saturating_sub(count("syns_retransmitted"))
        } else {
            count(name)
        }
    }

    /// Each count with its name; [`DATA_RETRANSMITTED`] too, where it is not 0.
    pub(crate) fn all_counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let data = Some(self.count(DATA_RETRANSMITTED)).filter(|count| *count > 0);
        let counts = self.counts.iter().map(|(name, count)| (name.as_str(), *count));
        counts.chain(data.map(|count| (DATA_RETRANSMITTED, count)))
    }

    /// A count's mean rate per second; absent where it was not counted.
    pub fn per_s(&self, name: &str) -> Option<f64> {
        let s = self.counted_s();
        (s > 0.0).then(|| self.count(name) as f64 / s)
    }

    /// A count's highest rate of one look, per second; absent where it was not counted.
    pub fn peak_per_s(&self, name: &str) -> Option<f64> {
        self.peak_per_s.get(name).copied().or_else(|| self.per_s(name))
    }

    /// This interval and the one after it as one.
    ///
    /// Counts add up, so mean rates are weighted by time. Queues, levels and highest rates are the
    /// greatest, ports left the fewest; limits are the later ones.
    #[must_use]
    pub fn join(mut self, after: Self) -> Self {
        let counted_s = micros(self.counted_s() + after.counted_s());
        let interval_s = micros(self.interval_s + after.interval_s);
        let mut peaks = BTreeMap::new();
        for (name, _) in self.all_counts().chain(after.all_counts()) {
            let peak = most(self.peak_per_s(name), after.peak_per_s(name));
            peaks.extend(peak.map(|peak| (name.to_owned(), decimals(peak))));
        }
        let (s, after_s) = (self.counted_s(), after.counted_s());
        let longest_s = self.longest_s().max(after.longest_s());
        let looks = self.looks.saturating_add(after.looks);
        for (name, count) in after.counts {
            let sum = self.counts.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
        for (state, sockets) in after.states {
            let greatest = self.states.entry(state).or_default();
            *greatest = sockets.max(*greatest);
        }
        let (listeners, beyond) = join_listeners((self.listeners, s), (after.listeners, after_s));
        let others = [self.others, after.others, beyond].into_iter().flatten();
        Self {
            time: after.time,
            at_s: after.at_s,
            interval_s,
            looks,
            longest_s: Some(longest_s),
            suspended_s: micros(self.suspended_s + after.suspended_s),
            counted_s: (counted_s < interval_s).then_some(counted_s),
            counts: self.counts,
            peak_per_s: peaks,
            levels: greatest(&self.levels, &after.levels),
            limits: after.limits.or(self.limits),
            states: self.states,
            listeners,
            idle: self.idle.max(after.idle),
            others: others.reduce(Others::and),
            destinations: join_destinations(self.destinations, after.destinations),
            diagnoses_left_out: self.diagnoses_left_out.max(after.diagnoses_left_out),
            diagnoses: Vec::new(),
        }
        .with_diagnoses(self.diagnoses, after.diagnoses)
    }

    fn with_diagnoses(mut self, first: Vec<DiagnosisPart>, after: Vec<DiagnosisPart>) -> Self {
        let mut all: Vec<DiagnosisPart> = first;
        for one in after {
            match all.iter_mut().find(|known| known.n == one.n) {
                Some(known) => known.add(one),
                None => all.push(one),
            }
        }
        if all.len() > DIAGNOSES_MAX {
            all.sort_by(|a, b| b.active_s.total_cmp(&a.active_s));
            self.diagnoses_left_out += (all.len() - DIAGNOSES_MAX) as u64;
            all.truncate(DIAGNOSES_MAX);
        }
        self.diagnoses = all;
        self
    }
}

impl ListenerPart {
    fn rates(&self, s: f64) -> [Option<f64>; 2] {
        let per_s = |count: f64| (s > 0.0).then(|| count / s);
        [
            self.drops_peak_per_s.or_else(|| per_s(self.drops as f64)),
            self.overflows_peak_per_s.or_else(|| per_s(self.overflows.0)),
        ]
    }

    /// Highest rates in words of their own, for a part that is to be joined: of `s` seconds.
    fn with_peaks(mut self, s: f64) -> Self {
        let [drops, overflows] = self.rates(s);
        self.drops_peak_per_s = drops.filter(|_| self.drops > 0).map(decimals);
        self.overflows_peak_per_s = overflows.filter(|_| self.overflows.0 > 0.0).map(decimals);
        self
    }

    /// What another socket, or the same over a later interval, had as well.
    pub(crate) fn add(&mut self, other: &Self) {
        self.queue = self.queue.max(other.queue);
        self.half_open = self.half_open.max(other.half_open);
        self.drops = self.drops.saturating_add(other.drops);
        self.overflows = Count(self.overflows.0 + other.overflows.0);
        self.estimated |= other.estimated;
        self.unknown_s = micros(self.unknown_s + other.unknown_s);
        self.drops_peak_per_s = most(self.drops_peak_per_s, other.drops_peak_per_s);
        self.overflows_peak_per_s = most(self.overflows_peak_per_s, other.overflows_peak_per_s);
    }

    /// The same listener by another number.
    #[must_use]
    pub(crate) fn numbered(mut self, n: u32) -> Self {
        self.n = n;
        self
    }
}

impl Others {
    fn and(self, other: Self) -> Self {
        Self {
            listeners: self.listeners.max(other.listeners),
            queue: self.queue.max(other.queue),
            drops: self.drops.saturating_add(other.drops),
            overflows: Count(self.overflows.0 + other.overflows.0),
        }
    }
}

impl DiagnosisPart {
    /// The same diagnosis over a later interval.
    pub(crate) fn add(&mut self, after: Self) {
        self.from_s = self.from_s.min(after.from_s);
        self.to_s = self.to_s.max(after.to_s);
        self.active_s = micros(self.active_s + after.active_s);
        if after.worst.unwrap_or(f64::NEG_INFINITY) > self.worst.unwrap_or(f64::NEG_INFINITY) {
            self.worst = after.worst;
            self.text = after.text;
        }
    }
}

/// Listeners of two intervals with the time of each, and what there was no room for.
fn join_listeners(
    (first, first_s): (Vec<ListenerPart>, f64),
    (after, after_s): (Vec<ListenerPart>, f64),
) -> (Vec<ListenerPart>, Option<Others>) {
    let mut all: BTreeMap<u32, ListenerPart> = BTreeMap::new();
    let first = first.into_iter().map(|part| part.with_peaks(first_s));
    for part in first.chain(after.into_iter().map(|part| part.with_peaks(after_s))) {
        match all.get_mut(&part.n) {
            Some(known) => known.add(&part),
            None => drop(all.insert(part.n, part)),
        }
    }
    limited(all.into_values().collect())
}

/// The listeners that matter most, at most [`LISTENERS_MAX`], and the rest in one.
pub(super) fn limited(mut all: Vec<ListenerPart>) -> (Vec<ListenerPart>, Option<Others>) {
    if all.len() <= LISTENERS_MAX {
        return (all, None);
    }
    let matters = |part: &ListenerPart| (part.drops, part.overflows.0 as u64, part.queue);
    all.sort_by_key(|part| std::cmp::Reverse(matters(part)));
    let rest = all.split_off(LISTENERS_MAX);
    let sum = |sum: Others, part: &ListenerPart| Others {
        listeners: sum.listeners + 1,
        queue: sum.queue.max(part.queue),
        drops: sum.drops.saturating_add(part.drops),
        overflows: Count(sum.overflows.0 + part.overflows.0),
    };
    let others = rest.iter().fold(Others::default(), sum);
    all.sort_by_key(|part| part.n);
    (all, Some(others))
}

fn join_destinations(
    mut first: Vec<DestinationPart>,
    after: Vec<DestinationPart>,
) -> Vec<DestinationPart> {
    for one in after {
        match first.iter_mut().find(|known| known.to == one.to) {
            Some(known) => {
                known.ports_in_use = known.ports_in_use.max(one.ports_in_use);
                known.time_wait = known.time_wait.max(one.time_wait);
                known.syn_sent = known.syn_sent.max(one.syn_sent);
                let left = [known.ports_left, one.ports_left].into_iter().flatten().min();
                known.ports_left = left;
            }
            None => first.push(one),
        }
    }
    first.sort_by(|a, b| b.ports_in_use.cmp(&a.ports_in_use).then_with(|| a.to.cmp(&b.to)));
    first.truncate(DESTINATIONS_MAX);
    first
}

/// The greater of each level.
pub(crate) fn greatest(a: &Counted, b: &Counted) -> Counted {
    Counted {
        sockets: a.sockets.max(b.sockets),
        time_wait: a.time_wait.max(b.time_wait),
        orphans: a.orphans.max(b.orphans),
        memory_bytes: a.memory_bytes.max(b.memory_bytes),
        tracked: a.tracked.max(b.tracked),
    }
}

/// The greater of two figures, of which each may be absent.
fn most(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (one, other) => one.or(other),
    }
}

/// A rate with three decimals.
fn decimals(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// A time with six decimals: sums of times have no more.
fn micros(s: f64) -> f64 {
    (s * 1e6).round() / 1e6
}
