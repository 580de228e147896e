//! What has a place on a page: listeners by address and port, where several sockets of one (`SO_REUSEPORT`) are
//! summed, and destinations with many local ports in use. Labels must not change from look to look.

use std::collections::BTreeMap;

use prometheus_client::registry::Unit;

use super::family::{Family, Kind, Labels, Value};
use super::{label, place};
use crate::watch::{DestinationState, ListenerState, State};

/// Listeners that a page has, at most.
const LISTENERS_MAX: usize = 200;
/// And those beyond, for listeners that a diagnosis names.
const LISTENERS_RESERVE: usize = 56;
/// Sockets of a listener whose drops are remembered while the state leaves sockets out.
const SOCKETS_MAX: usize = 1_024;

/// An address and port on which sockets listen.
#[derive(Debug, Default)]
struct Listener {
    sockets: u64,
    queue: u64,
    limit: u64,
    /// Of the fullest socket; absent where no socket has a limit above 0.
    fill: Option<f64>,
    queue_peak: Peak,
    fill_peak: Peak,
    /// Of the newest dump of all sockets.
    syn_queue: Option<u64>,
    /// Packets dropped since the page began to list it, by sockets that are closed now too.
    dropped: u64,
    /// Whether the kernel reported the drops of each socket in the newest look.
    dropped_known: bool,
    /// Drops of each socket that are in `dropped`.
    counted: BTreeMap<u64, u64>,
    /// Name of a process that owns a socket, and since when it is exported.
    process: Option<(String, f64)>,
}

impl Listener {
    fn see(&mut self, at_s: f64, sockets: &[&ListenerState], complete: bool) {
        let sum = |count: fn(&ListenerState) -> u32| {
            sockets.iter().map(|one| u64::from(count(one))).sum()
        };
        self.sockets = sockets.len() as u64;
        self.queue = sum(|one| one.accept_queue_len);
        self.limit = sum(|one| one.accept_queue_limit);
        self.fill = sockets
            .iter()
            .filter(|one| one.accept_queue_limit > 0)
            .map(|one| f64::from(one.accept_queue_len) / f64::from(one.accept_queue_limit))
            .reduce(f64::max);
        self.queue_peak.see(at_s, Some(self.queue as f64));
        self.fill_peak.see(at_s, self.fill);
        // Half-open requests are counted with a dump of all sockets, not at each look.
        let half_open = sockets.iter().filter_map(|one| one.syn_queue_len).map(u64::from);
        self.syn_queue = half_open.reduce(u64::saturating_add).or(self.syn_queue);
        self.see_drops(sockets, complete);
        let names = sockets.iter().filter_map(|one| one.process.as_ref());
        let name = names.map(|process| label(&process.name)).min();
        // A process may rename itself at each look: a new label is a new series.
        let keep = self.process.as_ref().is_some_and(|(_, since_s)| at_s - since_s < HOLD_S);
        if !keep && name.as_ref() != self.process.as_ref().map(|(name, _)| name) {
            self.process = name.map(|name| (name, at_s));
        }
    }

    fn see_drops(&mut self, sockets: &[&ListenerState], complete: bool) {
        self.dropped_known = sockets.iter().all(|one| one.drops.is_some());
        for (inode, drops) in sockets.iter().filter_map(|one| Some((one.inode, one.drops?))) {
            let before = self.counted.get(&inode).copied().unwrap_or(0);
            match drops.checked_sub(before) {
                Some(more) => self.dropped = self.dropped.saturating_add(more),
                // The watch's count of one socket never goes down: it lost track of it.
                None => self.dropped_known = false,
            }
            self.counted.insert(inode, drops);
        }
        if complete || self.counted.len() > SOCKETS_MAX {
            self.counted.retain(|inode, _| sockets.iter().any(|one| one.inode == *inode));
        }
    }
}

/// All listeners that are exported.
#[derive(Debug)]
pub(super) struct Listeners {
    slots: Slots<Listener>,
    /// Sockets of the newest look that are not exported.
    pub left_out: u64,
}

impl Default for Listeners {
    fn default() -> Self {
        Self { slots: Slots::new(LISTENERS_MAX, LISTENERS_RESERVE), left_out: 0 }
    }
}

impl Listeners {
    pub(super) fn see(&mut self, state: &State) {
        // The state has those with a diagnosis or a queue first; this keeps its order.
        let mut numbers: BTreeMap<(&str, u16), usize> = BTreeMap::new();
        let mut groups: Vec<Vec<&ListenerState>> = Vec::new();
        for one in &state.listeners {
            let number = *numbers.entry((&one.address, one.port)).or_insert(groups.len());
            if number == groups.len() {
                groups.push(Vec::new());
            }
            groups[number].push(one);
        }
        self.slots.look(state.at_s);
        self.left_out = state.listeners_left_out;
        for group in groups {
            let name = place(&group[0].address, group[0].port);
            let named = || state.diagnoses.iter().any(|one| one.subject == name);
            let urgent = !self.slots.has(&name) && named();
            match self.slots.place(&name, urgent) {
                Some(slot) => slot.see(state.at_s, &group, state.listeners_left_out == 0),
                None => self.left_out += group.len() as u64,
            }
        }
    }

    pub(super) fn families(&self) -> Vec<Family> {
        let gauge = |name, help| Family::new(Kind::Gauge, name, help);
        let ratio = || Unit::Other("ratio".to_owned());
        let connections = || Unit::Other("connections".to_owned());
        vec![
            Family::new(Kind::Info, "listener", "Name of a process that owns the listener.").each(
                self.slots.seen(0.0).filter_map(|(name, one)| {
                    let process = one.process.as_ref()?.0.clone();
                    Some((vec![("listener", name.to_owned()), ("process", process)], 1_u64.into()))
                }),
            ),
            gauge("listener_sockets", "Listening sockets of this address and port.")
                .each(self.each(|one| Some(one.sockets.into()))),
            gauge("listener_accept_queue", "Connections that wait for accept(2), of all sockets.")
                .unit(connections())
                .each(self.each(|one| Some(one.queue.into()))),
            gauge(
                "listener_accept_queue_peak",
                "The longest accept queue of any look in the last 30 to 60 s.",
            )
            .unit(connections())
            .each(self.each(|one| one.queue_peak.value().map(Value::from))),
            gauge(
                "listener_accept_queue_limit",
                "Backlog after the clamp to somaxconn, of all sockets. Each queue holds one more.",
            )
            .unit(connections())
            .each(self.each(|one| Some(one.limit.into()))),
            gauge(
                "listener_accept_queue_fill",
                "Accept queue over its limit, of the fullest socket. Above 1 the queue is full.",
            )
            .unit(ratio())
            .each(self.each(|one| one.fill.map(Value::from))),
            gauge(
                "listener_accept_queue_fill_peak",
                "The largest fill ratio of any look in the last 30 to 60 s.",
            )
            .unit(ratio())
            .each(self.each(|one| one.fill_peak.value().map(Value::from))),
            gauge(
                "listener_syn_queue",
                "Half-open requests (SYN-RECEIVED) at the newest dump of all sockets.",
            )
            .unit(connections())
            .each(self.each(|one| one.syn_queue.map(Value::from))),
            Family::new(
                Kind::Counter,
                "listener_dropped_packets",
                "Packets that the kernel dropped at the listener since the watch began (sk_drops).",
            )
            .each(self.each(|one| one.dropped_known.then_some(one.dropped.into()))),
        ]
    }

    fn each(&self, value: fn(&Listener) -> Option<Value>) -> impl Iterator<Item = (Labels, Value)> {
        let all = self.slots.seen(0.0);
        all.filter_map(move |(name, one)| Some((vec![("listener", name.to_owned())], value(one)?)))
    }
}

/// Destinations that a page has, at most.
const DESTINATIONS_MAX: usize = 64;
/// And those beyond, for destinations that a diagnosis names.
const DESTINATIONS_RESERVE: usize = 16;
/// Local ports in use from which on a destination gets a place: below it no port is scarce, and the many
/// destinations of a crawler would take all places.
const PORTS_MIN: u32 = 10;

/// All destinations that are exported.
#[derive(Debug)]
pub(super) struct Destinations {
    slots: Slots<DestinationState>,
    /// Destinations of the newest dump that are not exported.
    pub left_out: u64,
}

impl Default for Destinations {
    fn default() -> Self {
        Self { slots: Slots::new(DESTINATIONS_MAX, DESTINATIONS_RESERVE), left_out: 0 }
    }
}

impl Destinations {
    pub(super) fn see(&mut self, state: &State) {
        self.slots.look(state.at_s);
        self.left_out = state.destinations_left_out;
        for one in &state.destinations {
            let name = place(&one.address, one.port);
            let known = self.slots.has(&name);
            let urgent = !known && state.diagnoses.iter().any(|named| named.subject == name);
            let wanted = known || urgent || one.ports_in_use >= PORTS_MIN;
            match wanted.then(|| self.slots.place(&name, urgent)).flatten() {
                Some(slot) => slot.clone_from(one),
                None => self.left_out += 1,
            }
        }
    }

    pub(super) fn families(&self) -> Vec<Family> {
        let gauge = |name, help| Family::new(Kind::Gauge, name, help);
        vec![
            gauge(
                "destination_local_ports_in_use",
                "Local ports in use, from the source address that uses the most.",
            )
            .each(self.each(|one| Some(one.ports_in_use.into()))),
            gauge("destination_local_ports_left", "Local ports left to that source address.")
                .each(self.each(|one| one.ports_left.map(Value::from))),
            gauge("destination_time_wait_sockets", "Of the ports in use, those in TIME-WAIT.")
                .each(self.each(|one| Some(one.time_wait.into()))),
            gauge("destination_syn_sent_sockets", "Sockets in SYN-SENT.")
                .each(self.each(|one| Some(one.syn_sent.into()))),
        ]
    }

    fn each(
        &self,
        value: fn(&DestinationState) -> Option<Value>,
    ) -> impl Iterator<Item = (Labels, Value)> {
        let all = self.slots.seen(0.0);
        all.filter_map(move |(name, one)| {
            Some((vec![("destination", name.to_owned())], value(one)?))
        })
    }
}

/// A place stays taken for this time after its thing was last seen, s. So names that come and go take at
/// most one room of places in this time, and the number of series stays bounded over days.
pub(super) const HOLD_S: f64 = 600.0;

/// Places for things by name.
#[derive(Debug)]
pub(super) struct Slots<T> {
    by_name: BTreeMap<String, Slot<T>>,
    room: usize,
    /// Places beyond `room` for what is urgent.
    reserve: usize,
    now_s: f64,
}

#[derive(Debug)]
struct Slot<T> {
    seen_s: f64,
    value: T,
}

impl<T: Default> Slots<T> {
    pub(super) fn new(room: usize, reserve: usize) -> Self {
        Self { by_name: BTreeMap::new(), room, reserve, now_s: 0.0 }
    }

    /// A look begins: places whose things were not seen for [`HOLD_S`] become free.
    pub(super) fn look(&mut self, at_s: f64) {
        self.now_s = at_s;
        self.by_name.retain(|_, slot| at_s - slot.seen_s <= HOLD_S);
    }

    /// The place of a thing that this look shows; none if there is no room. One that has a place keeps it.
    pub(super) fn place(&mut self, name: &str, urgent: bool) -> Option<&mut T> {
        let room = self.room + if urgent { self.reserve } else { 0 };
        if !self.by_name.contains_key(name) {
            if self.by_name.len() >= room {
                return None;
            }
            let slot = Slot { seen_s: self.now_s, value: T::default() };
            self.by_name.insert(name.to_owned(), slot);
        }
        let slot = self.by_name.get_mut(name)?;
        slot.seen_s = self.now_s;
        Some(&mut slot.value)
    }

    /// Whether a thing has a place.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// What was seen in the newest look or at most `within_s` before it, by name.
    pub(super) fn seen(&self, within_s: f64) -> impl Iterator<Item = (&str, &T)> {
        let seen = move |slot: &Slot<T>| self.now_s - slot.seen_s <= within_s;
        let all = self.by_name.iter().filter(move |(_, slot)| seen(slot));
        all.map(|(name, slot)| (name.as_str(), &slot.value))
    }
}

/// The largest value of the last 30 to 60 s: a scrape every 30 s misses no queue.
#[derive(Debug, Default)]
pub(super) struct Peak {
    began_s: f64,
    /// Of this part and of the one before.
    parts: [Option<f64>; 2],
}

/// A part of a [`Peak`], s.
const PART_S: f64 = 30.0;

impl Peak {
    pub(super) fn see(&mut self, at_s: f64, value: Option<f64>) {
        let since = at_s - self.began_s;
        if !(0.0..2.0 * PART_S).contains(&since) {
            *self = Self { began_s: at_s, parts: [None, None] };
        } else if since >= PART_S {
            *self = Self { began_s: at_s, parts: [None, self.parts[0]] };
        }
        self.parts[0] = larger(self.parts[0], value);
    }

    pub(super) fn value(&self) -> Option<f64> {
        larger(self.parts[0], self.parts[1])
    }
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(slots: &Slots<u32>, within_s: f64) -> Vec<&str> {
        slots.seen(within_s).map(|(name, _)| name).collect()
    }

    #[test]
    fn one_that_has_a_place_keeps_it_and_the_reserve_is_for_the_urgent() {
        let mut slots = Slots::<u32>::new(2, 1);
        slots.look(0.0);
        assert!(slots.place("b", false).is_some() && slots.place("c", false).is_some());
        assert!(slots.place("a", false).is_none(), "more important by order, and yet too late");
        assert!(slots.place("d", true).is_some());
        assert!(slots.place("e", true).is_none(), "the reserve has an end too");
        slots.look(1.0);
        assert!(slots.place("d", false).is_some(), "no longer urgent, and it stays");
        assert_eq!(names(&slots, 0.0), ["d"], "what a look does not show is not exported");
        assert_eq!(names(&slots, 1.0), ["b", "c", "d"]);
        slots.look(HOLD_S);
        assert!(slots.place("a", false).is_none(), "names that come and go use places up");
        slots.look(HOLD_S + 0.5);
        assert!(slots.place("a", false).is_some());
        assert_eq!(names(&slots, 0.0), ["a"]);
    }

    #[test]
    fn a_peak_lasts_for_30_to_60_seconds() {
        let mut peak = Peak::default();
        assert_eq!(peak.value(), None);
        peak.see(0.0, Some(9.0));
        for at_s in 1..60_u32 {
            peak.see(at_s.into(), Some(1.0));
            assert_eq!(peak.value(), Some(9.0), "{at_s}");
        }
        peak.see(60.0, Some(1.0));
        assert_eq!(peak.value(), Some(1.0));
        peak.see(1_000.0, None);
        assert_eq!(peak.value(), None, "a suspended machine");
    }
}
