//! Destinations of the newest dump, with the change since the dump before.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::look::{DESTINATIONS_MAX, Limits, Table};
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
    /// More ports in use than connect(2) may choose means that programs chose some themselves: how many
    /// are left is not known then.
    pub(super) fn states(&mut self, table: &Table, limits: &Limits) -> Vec<DestinationState> {
        self.see(table);
        let states = table.destinations.iter().take(DESTINATIONS_MAX).map(|one| {
            let reused = limits.reuses_time_wait(one.to.ip());
            let taken = one.ports_in_use.checked_sub(if reused { one.time_wait } else { 0 });
            let ports_left = limits.local_ports.zip(taken);
            let ports_left = ports_left.and_then(|(all, taken)| all.checked_sub(taken));
            let ports_per_s = self.per_s.get(&one.to).copied();
            let rising = ports_per_s.filter(|per_s| *per_s > 0.0 && !reused);
            DestinationState {
                address: one.to.ip().to_string(),
                port: one.to.port(),
                ports_in_use: one.ports_in_use,
                time_wait: one.time_wait,
                ports_left,
                syn_sent: one.syn_sent,
                here: one.here,
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
        let one =
            Destination { to, sources: 1, ports_in_use, time_wait: 0, syn_sent: 0, here: false };
        Table { at_s, destinations: vec![one], ..Table::default() }
    }

    fn range(local_ports: u32) -> Limits {
        Limits { local_ports: Some(local_ports), ..Limits::default() }
    }

    #[test]
    fn a_port_in_time_wait_is_left_where_it_is_taken_again() {
        for (to, tw_reuse, left) in [
            ("10.0.0.9:80", 0, 100),
            ("10.0.0.9:80", 1, 1_000),
            ("10.0.0.9:80", 2, 100),
            ("127.0.0.1:80", 2, 1_000),
            ("[::1]:80", 2, 1_000),
        ] {
            let mut dumps = Dumps::default();
            let limits = Limits { tw_reuse: Some(tw_reuse), ..range(1_000) };
            let mut table = table(0.0, 900);
            table.destinations[0].to = to.parse().unwrap();
            table.destinations[0].time_wait = 900;
            let first = &dumps.states(&table, &limits)[0];
            assert_eq!(first.ports_left, Some(left), "{to} {tw_reuse}");
            table.at_s = 1.0;
            table.destinations[0].ports_in_use = 950;
            let second = &dumps.states(&table, &limits)[0];
            assert_eq!(second.lasts_s.is_none(), left == 1_000, "{to} {tw_reuse}");
        }
    }

    #[test]
    fn ports_last_as_long_as_the_two_newest_dumps_say() {
        let mut dumps = Dumps::default();
        let range = &range(28_232);
        let first = &dumps.states(&table(0.0, 10_000), range)[0];
        assert_eq!(
            (first.ports_left, first.ports_per_s, first.lasts_s),
            (Some(18_232), None, None)
        );
        let second = &dumps.states(&table(2.0, 11_000), range)[0];
        assert_eq!((second.ports_per_s, second.lasts_s), (Some(500.0), Some(17_232.0 / 500.0)));
        let same = &dumps.states(&table(2.0, 11_000), range)[0];
        assert_eq!(same, second, "a dump that is shown again keeps its rate");
        let falling = &dumps.states(&table(3.0, 10_000), range)[0];
        assert_eq!((falling.ports_per_s, falling.lasts_s), (Some(-1_000.0), None));
    }

    #[test]
    fn more_ports_than_the_range_has_leave_an_unknown_number() {
        let state = &Dumps::default().states(&table(0.0, 101), &range(100))[0];
        assert_eq!((state.ports_in_use, state.ports_left), (101, None));
    }
}
