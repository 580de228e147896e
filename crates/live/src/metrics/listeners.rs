//! Listeners by address and port: several sockets of one (`SO_REUSEPORT`) are summed.

use std::collections::BTreeMap;

use crate::watch::{ListenerState, State};

use super::family::{Family, Kind, Labels, Value};
use super::slots::{HOLD_S, Peak, Slots};
use super::{label, place};
use prometheus_client::registry::Unit;

/// Listeners that a page has, at most.
const ROOM: usize = 200;
/// And those beyond, for listeners that a diagnosis names.
const RESERVE: usize = 56;
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
        Self { slots: Slots::new(ROOM, RESERVE), left_out: 0 }
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
