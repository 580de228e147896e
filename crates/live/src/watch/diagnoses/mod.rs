//! What is wrong with a state, from what it shows and nothing else.
//!
//! One function a fault, from a [`State`] to what is wrong in it; `doctor` uses the same ones. `Held` keeps a
//! diagnosis for `HOLD_S` after its evidence ended, so that it does not flap. A client whose SYN was
//! dropped tries again after 1 s and 2 s; without the hold each retry would be a fault of its own.

pub(crate) mod host;
pub(crate) mod leaks;
pub(crate) mod ports;
pub(crate) mod queues;

use std::collections::BTreeMap;
use tcptoll_core::units::host_port;

use serde_json::Value;

use super::state::{DestinationState, ListenerState, State};
use tcptoll_core::finding::Finding;
use tcptoll_core::finding::queues::Overload;

/// How long a diagnosis stays after its evidence ended, s.
///
/// Longer than the wait of a client whose SYN was dropped twice (1 s and 2 s, or 1 s and 3 s before Linux
/// 6.5): a retry that overflows again is the same fault. Short enough that a fix is seen to work.
const HOLD_S: f64 = 10.0;
/// Diagnoses of a state, at most.
pub(crate) const DIAGNOSES_MAX: usize = 64;
/// Characters of a diagnosis' text, at most.
pub(crate) const TEXT_MAX: usize = 120;

/// What is wrong with one state.
type Rule = fn(&State) -> Vec<Finding>;

/// Every fault that a state can show, the most pressing first: name and function.
const RULES: &[(&str, Rule)] = &[
    (queues::FULL, queues::full),
    (queues::STANDING, queues::standing),
    (ports::SCARCE, ports::scarce),
    (host::TRACKED, host::tracked),
    (host::PRESSURE, host::pressure),
    (queues::SYN_FULL, queues::syn_full),
    (host::ORPHANS, host::orphans),
    (leaks::LEAK, leaks::close_wait),
    (host::RETRANSMISSIONS, host::retransmissions),
    (queues::NEAR, queues::near),
    (ports::SLOW, ports::slow),
    (host::TIME_WAIT, host::time_wait),
];

/// Of the same subject the first says all that the second does.
const SUPERSEDES: &[(&str, &str)] = &[
    (queues::FULL, queues::STANDING),
    (queues::FULL, queues::NEAR),
    (queues::STANDING, queues::NEAR),
    (ports::SCARCE, ports::SLOW),
];

/// Whether a diagnosis by this name says all that one of the same subject by the other name does: where
/// both hold, only the first is stated, so that one becomes the other.
pub fn says_too(id: &str, other: &str) -> bool {
    SUPERSEDES.contains(&(id, other))
}

/// Whether it is an overload in `bursts` or a `lasting` one, which have different fixes. None: not known, or no overload.
pub fn overload(one: &Finding) -> Option<&str> {
    one.evidence.get("overload")?.as_str()
}

/// Whether it is an overload that lasts.
pub fn is_lasting(one: &Finding) -> bool {
    overload(one) == Some(Overload::Lasting.name())
}

/// What is wrong with a destination: its own diagnosis, or, where it is this machine itself, that of the
/// listener that answers there.
pub fn of_destination<'s>(state: &'s State, to: &DestinationState) -> Option<&'s Finding> {
    let of_listener = |one: &Finding| one.evidence.contains_key("accept_queue_limit");
    let with = |subject: &str, listener: bool| {
        state.diagnoses.iter().find(|one| one.subject == subject && of_listener(one) == listener)
    };
    let own = host_port(&to.address, to.port);
    // The kernel prefers the exact address, then every address of the family, then `[::]`.
    let v4 = !to.address.contains(':');
    let addresses = [Some(to.address.as_str()), v4.then_some("0.0.0.0"), Some("::")];
    let serves = |address: &&str| {
        let at = |one: &ListenerState| one.address == *address && one.port == to.port;
        state.listeners.iter().any(at) || with(&host_port(address, to.port), true).is_some()
    };
    let here = |address: &&str| to.here || *address == to.address;
    let listener = || addresses.into_iter().flatten().filter(here).find(serves);
    with(&own, false).or_else(|| with(&host_port(listener()?, to.port), true))
}

/// Names of all diagnoses of a state, each a section of `docs/causes.md`.
pub fn ids() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|(id, _)| *id)
}

/// What is wrong with a state now, problems first. It does not know the states before.
pub fn find(state: &State) -> Vec<Finding> {
    let mut found: Vec<Finding> = RULES.iter().flat_map(|(_, rule)| rule(state)).collect();
    sort(&mut found);
    found
}

/// Problems first; then by rule and subject, so that a diagnosis keeps its place. Drops what another
/// one of the same subject says.
pub(crate) fn sort(found: &mut Vec<Finding>) {
    let rule = |id: &str| RULES.iter().position(|(known, _)| *known == id);
    let key = |one: &Finding| (one.severity, rule(&one.id), one.subject.clone());
    found.sort_by_cached_key(key);
    supersede(found, SUPERSEDES);
}

/// Drops each second one where a first one has the same subject.
pub(crate) fn supersede(found: &mut Vec<Finding>, pairs: &[(&str, &str)]) {
    for (first, second) in pairs {
        let of_first = found.iter().filter(|one| one.id == *first);
        let subjects: Vec<String> = of_first.map(|one| one.subject.clone()).collect();
        found.retain(|one| one.id != *second || !subjects.contains(&one.subject));
    }
}

/// Diagnoses whose evidence may have ended, by name and subject.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// With the time at which the evidence was last there, s.
    last: BTreeMap<(String, String), (f64, Finding)>,
}

impl Held {
    /// Fills in what is wrong with a state: what it shows, and what ended less than [`HOLD_S`] ago.
    pub(super) fn apply(&mut self, state: &mut State) {
        let mut found = find(state);
        let active = found.iter().map(|one| ((one.id.clone(), one.subject.clone()), one.clone()));
        let active: BTreeMap<_, _> = active.map(|(key, one)| (key, (state.at_s, one))).collect();
        let now = state.at_s;
        self.last.retain(|key, (at_s, _)| {
            !active.contains_key(key) && now >= *at_s && now - *at_s < HOLD_S
        });
        found.extend(self.last.values().map(|(at_s, one)| ended(one, now - at_s)));
        sort(&mut found);
        state.diagnoses_left_out = found.len().saturating_sub(DIAGNOSES_MAX) as u64;
        found.truncate(DIAGNOSES_MAX);
        self.last.extend(active);
        // Only what is shown is held: so there is a bound.
        self.last.retain(|(id, subject), _| {
            found.iter().any(|one| one.id == *id && one.subject == *subject)
        });
        found.shrink_to_fit();
        state.diagnoses = found;
    }
}

/// A diagnosis whose evidence ended.
fn ended(one: &Finding, ago_s: f64) -> Finding {
    let mut one = one.clone();
    let text = format!("{}; ended {:.0} s ago", one.text, ago_s.floor());
    // Where there is no room the evidence alone says it.
    if text.chars().count() <= TEXT_MAX {
        one.text = text;
    }
    one.evidence.insert("ended_s_ago".into(), rounded(ago_s));
    one
}

/// What a diagnosis of a listener is about: all sockets of one address and port.
pub(super) fn subject(listener: &ListenerState) -> String {
    host_port(&listener.address, listener.port)
}

/// Evidence from what there is of it.
pub(crate) fn evidence<const N: usize>(
    values: [(&str, Option<Value>); N],
) -> BTreeMap<String, Value> {
    values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// A measurement with three decimals; a value that is no number is null.
pub(crate) fn rounded(value: f64) -> Value {
    Value::from((value * 1e3).round() / 1e3)
}

#[cfg(test)]
mod standing_tests;

#[cfg(test)]
mod tests;
