//! Destinations of the newest dump, with the change since the dump before.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::look::{DESTINATIONS_MAX, Table};
use super::rates::interval;
use super::state::DestinationState;

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
    fn see(&mut self, table: &Table) {
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
    /// `local_ports`: ports that connect(2) may choose. More ports in use than that means that programs
    /// chose some themselves: how many are left is not known then.
    pub(super) fn states(
        &mut self,
        table: &Table,
        local_ports: Option<u32>,
    ) -> Vec<DestinationState> {
        self.see(table);
        let states = table.destinations.iter().take(DESTINATIONS_MAX).map(|one| {
            let ports_left = local_ports.and_then(|all| all.checked_sub(one.ports_in_use));
            let ports_per_s = self.per_s.get(&one.to).copied();
            let rising = ports_per_s.filter(|per_s| *per_s > 0.0);
            DestinationState {
                address: one.to.ip().to_string(),
                port: one.to.port(),
                ports_in_use: one.ports_in_use,
                time_wait: one.time_wait,
                ports_left,
                syn_sent: one.syn_sent,
                ports_per_s,
                lasts_s: ports_left.zip(rising).map(|(left, per_s)| f64::from(left) / per_s),
            }
        });
        states.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::look::Destination;
    use super::*;

    fn table(at_s: f64, ports_in_use: u32) -> Table {
        let to = "10.0.0.9:80".parse().unwrap();
        let one = Destination { to, sources: 1, ports_in_use, time_wait: 0, syn_sent: 0 };
        Table { at_s, destinations: vec![one], ..Table::default() }
    }

    #[test]
    fn ports_last_as_long_as_the_two_newest_dumps_say() {
        let mut dumps = Dumps::default();
        let first = &dumps.states(&table(0.0, 10_000), Some(28_232))[0];
        assert_eq!(
            (first.ports_left, first.ports_per_s, first.lasts_s),
            (Some(18_232), None, None)
        );
        let second = &dumps.states(&table(2.0, 11_000), Some(28_232))[0];
        assert_eq!((second.ports_per_s, second.lasts_s), (Some(500.0), Some(17_232.0 / 500.0)));
        let same = &dumps.states(&table(2.0, 11_000), Some(28_232))[0];
        assert_eq!(same, second, "a dump that is shown again keeps its rate");
        let falling = &dumps.states(&table(3.0, 10_000), Some(28_232))[0];
        assert_eq!((falling.ports_per_s, falling.lasts_s), (Some(-1_000.0), None));
    }

    #[test]
    fn more_ports_than_the_range_has_leave_an_unknown_number() {
        let state = &Dumps::default().states(&table(0.0, 101), Some(100))[0];
        assert_eq!((state.ports_in_use, state.ports_left), (101, None));
    }
}
