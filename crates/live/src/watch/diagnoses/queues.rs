//! Listeners of one address and port, and what the last looks at their queues say.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{evidence, rounded};
use crate::watch::state::{ListenerState, Standing, State};
use tcptoll_core::units::echo;

/// Looks and seconds without an empty queue from which on a queue says something.
pub(super) const LOOKS_MIN: u32 = 10;
pub(super) const OVER_MIN_S: f64 = 8.0;
/// The same where the wait is long, or where there are no more looks.
pub(super) const FEW_LOOKS_MIN: u32 = 5;
pub(super) const FEW_OVER_MIN_S: f64 = 3.5;

/// Sockets of one address and port.
pub(super) type Group<'a> = Vec<&'a ListenerState>;

pub(super) fn groups(state: &State) -> impl Iterator<Item = Group<'_>> {
    let mut groups: BTreeMap<(&str, u16), Group<'_>> = BTreeMap::new();
    for one in &state.listeners {
        groups.entry((one.address.as_str(), one.port)).or_default().push(one);
    }
    groups.into_values()
}

/// The looks at a queue that was nearly full at nearly all of them, for longer than a burst.
///
/// Of an examination, whose interval is all its looks together, fewer looks are enough.
pub(super) fn lasting<'l>(state: &State, listener: &'l ListenerState) -> Option<&'l Standing> {
    let stands = listener.stands.as_deref()?;
    let enough = |looks, over_s| stands.looks >= looks && stands.over_s >= over_s;
    let all_looks = state.interval_s >= stands.over_s && enough(FEW_LOOKS_MIN, FEW_OVER_MIN_S);
    let long = all_looks || enough(LOOKS_MIN, OVER_MIN_S);
    (long && stands.nearly_full * 5 >= stands.looks * 4).then_some(stands)
}

/// A time in few characters: `12 s`, `4 min`, `3 h`.
pub(super) fn lasted(s: f64) -> String {
    match s {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", (s / 60.0).floor()),
        s => format!("{:.0} h", (s / 3_600.0).floor()),
    }
}

pub(super) fn of_listener(
    state: &State,
    group: &Group<'_>,
    worst: &ListenerState,
) -> BTreeMap<String, Value> {
    let full = group.iter().filter(|one| one.accept_queue_recent_peak > one.accept_queue_limit);
    // As the overflows are: of all sockets. The queue is that of the worst.
    let drops_per_s: Option<f64> = group.iter().map(|one| one.drops_per_s).sum();
    let mut all = evidence([
        ("accept_queue_len", Some(worst.accept_queue_len.into())),
        ("accept_queue_recent_peak", Some(worst.accept_queue_recent_peak.into())),
        ("accept_queue_limit", Some(worst.accept_queue_limit.into())),
        ("somaxconn", state.limits.somaxconn.map(Value::from)),
        ("drops_per_s", drops_per_s.map(rounded)),
        ("deferred_per_s", worst.deferred_per_s.filter(|per_s| *per_s > 0.0).map(rounded)),
        ("deferred_at_most", worst.deferred_at_most.then(|| true.into())),
        ("process", worst.process.as_ref().map(|process| echo(&process.name).into())),
        ("pid", worst.process.as_ref().map(|process| process.pid.into())),
        ("sockets", (group.len() > 1).then(|| group.len().into())),
        ("sockets_full", (group.len() > 1).then(|| full.count().into())),
    ]);
    if let Some(stands) = lasting(state, worst) {
        all.insert("overload".into(), "lasting".into());
        all.insert("looks".into(), stands.looks.into());
        all.insert("looks_nearly_full".into(), stands.nearly_full.into());
    }
    all
}
