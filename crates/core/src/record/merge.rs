//! How several rounds of a part of an arm become one.

use std::collections::BTreeMap;

use crate::tcp::handshake::Timeline;
use crate::tcp::ports::PortForecast;

/// A part of an arm that can be made of the same part of several rounds.
pub(crate) trait Merge: Sized {
    /// The part over all rounds that have it, which come in order of running.
    ///
    /// None: there are none.
    fn merge(rounds: &[&Self]) -> Option<Self>;
}

/// Large parts are boxed: an arm has few of them.
impl<Part: Merge> Merge for Box<Part> {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        Part::merge(&rounds.iter().map(|part| &***part).collect::<Vec<_>>()).map(Self::new)
    }
}

/// A part of all rounds together, of those that have it.
///
/// None: no round has it.
pub(crate) fn merged<'a, Round, Part: Merge + 'a>(
    rounds: &[&'a Round],
    part: impl Fn(&'a Round) -> Option<&'a Part>,
) -> Option<Part> {
    Part::merge(&rounds.iter().copied().filter_map(part).collect::<Vec<_>>())
}

/// The same part of each.
pub(crate) fn parts<'a, Round, Part>(
    rounds: &[&'a Round],
    part: impl Fn(&'a Round) -> &'a Part,
) -> Vec<&'a Part> {
    rounds.iter().map(|round| part(round)).collect()
}

/// The sum of counts; at the limit of its type it stays there.
pub(crate) fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The sum of a count that some rounds have.
///
/// None: no round has it.
pub(crate) fn sum_of_some<Round>(
    rounds: &[&Round],
    count: impl Fn(&Round) -> Option<u64>,
) -> Option<u64> {
    rounds.iter().copied().filter_map(count).reduce(u64::saturating_add)
}

/// The sums of counts by name.
pub(crate) fn summed(rounds: &[&BTreeMap<String, u64>]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in rounds.iter().copied().flatten() {
        let sum: &mut u64 = sums.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    sums
}

/// The sums of counts by place: the first of each, the second of each, …
pub(crate) fn summed_by_place(rounds: &[&Vec<u64>]) -> Vec<u64> {
    let longest = rounds.iter().map(|counts| counts.len()).max().unwrap_or(0);
    let at = |place| sum(rounds.iter().filter_map(|counts| counts.get(place).copied()));
    (0..longest).map(at).collect()
}

impl Merge for PortForecast {
    /// Of settings, which rounds of an arm have in common; where it rests on how the round went, the one that
    /// lets the fewest connections go on.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let per_s = |one: &Self| one.sustained_per_s.unwrap_or(f64::INFINITY);
        rounds.iter().copied().min_by(|a, b| per_s(a).total_cmp(&per_s(b))).cloned()
    }
}

impl Merge for Timeline {
    /// The first: steps of several rounds have no common median.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        rounds.first().copied().cloned()
    }
}
