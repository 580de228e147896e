//! Destinations with many local ports in use.

use crate::watch::{DestinationState, State};

use super::family::{Family, Kind, Labels, Value};
use super::place;
use super::slots::Slots;

/// Destinations that a page has, at most.
const ROOM: usize = 64;
/// And those beyond, for destinations that a diagnosis names.
const RESERVE: usize = 16;
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
        Self { slots: Slots::new(ROOM, RESERVE), left_out: 0 }
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
