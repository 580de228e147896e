//! How many connections must be held, from the schedule and the settings: arrivals × (service + timeout).

use std::time::Duration;

use tcptoll_core::page::visits::Visit;
use tcptoll_core::page::waterfall::{Request, Waterfall};

/// What one page does without others on the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Alone {
    connections: Vec<Held>,
    /// From the beginning to the last response of all, µs.
    page_us: u64,
}

/// One connection of it, µs since the page's beginning.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_field_names)] // all are times
struct Held {
    opened_us: u64,
    last_us: u64,
    /// When the server closed it during the load, as at its limit of responses.
    closed_us: Option<u64>,
}

impl Alone {
    /// Of a load without others. None: it failed.
    pub(super) fn from_page(page: &Waterfall) -> Option<Self> {
        if page.failure().is_some() {
            return None;
        }
        let last = |number: usize| {
            let carried = |one: &&Request| one.connection == Some(number as u32);
            page.requests.iter().filter(carried).map(Request::ended_us).max()
        };
        let connections = page
            .connections
            .iter()
            .enumerate()
            .filter_map(|(number, one)| {
                let (opened_us, last_us) = (one.connected_us?, last(number)?);
                Some(Held { opened_us, last_us, closed_us: one.closed_us })
            })
            .collect();
        Some(Self { connections, page_us: page.everything_us? })
    }

    /// Mean number of connections that these visitors hold within a window, s since the first may come.
    ///
    /// After a response a connection is held for `timeout`, at most until the visitor's next page, which
    /// uses it again, or until the visitor leaves. With None each is closed after its last response.
    pub(super) fn held(
        &self,
        visits: &[Visit],
        timeout: Option<Duration>,
        leave: Option<Duration>,
        [from_s, until_s]: [f64; 2],
    ) -> f64 {
        let timeout_s = timeout.unwrap_or_default().as_secs_f64();
        let mut held_s = 0.0;
        for visit in visits {
            let mut page_s = visit.at_ns as f64 / 1e9;
            let thinks = visit.thinks_ns.iter().map(|&ns| Some(ns as f64 / 1e9)).chain([None]);
            for think_s in thinks {
                let end_s = page_s + self.page_us as f64 / 1e6;
                let next_s = match (think_s, leave) {
                    (Some(think_s), _) => end_s + think_s,
                    (None, Some(leave)) => end_s + leave.as_secs_f64(),
                    (None, None) => f64::INFINITY,
                };
                for one in &self.connections {
                    let opened_s = page_s + one.opened_us as f64 / 1e6;
                    let kept_s = page_s + one.last_us as f64 / 1e6 + timeout_s;
                    let closed_s = one.closed_us.map_or(kept_s, |us| page_s + us as f64 / 1e6);
                    let closed_s = closed_s.min(kept_s).min(next_s);
                    held_s += (closed_s.min(until_s) - opened_s.max(from_s)).max(0.0);
                }
                page_s = next_s;
                // No page begins after the end.
                if page_s >= until_s {
                    break;
                }
            }
        }
        held_s / (until_s - from_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> Alone {
        let held = |opened_us| Held { opened_us, last_us: 500_000, closed_us: None };
        Alone { connections: vec![held(0), held(100_000)], page_us: 500_000 }
    }

    fn visit(at_s: u64, thinks_s: &[u64]) -> Visit {
        let thinks_ns = thinks_s.iter().map(|s| s * 1_000_000_000).collect();
        Visit { at_ns: at_s * 1_000_000_000, thinks_ns }
    }

    #[test]
    fn a_visitor_holds_its_connections_for_the_page_and_the_timeout() {
        let held = |visits: &[Visit], timeout: u64, leave| {
            let timeout = Some(Duration::from_secs(timeout));
            alone().held(visits, timeout, leave, [0.0, 10.0])
        };
        // 0.5 + 2 and 0.4 + 2 s of 10.
        assert!((held(&[visit(1, &[])], 2, None) - 0.49).abs() < 1e-9);
        // Half of it is after the end.
        assert!((held(&[visit(9, &[])], 2, None) - 0.19).abs() < 1e-9);
        // Thinks for less than the timeout: held throughout, then for the timeout.
        assert!((held(&[visit(0, &[1])], 2, None) - (1.5 + 1.4 + 2.5 + 2.4) / 10.0).abs() < 1e-9);
        // Leaves before the timeout.
        assert!((held(&[visit(0, &[])], 5, Some(Duration::from_secs(1))) - 0.29).abs() < 1e-9);
        // The server closed one of them with its last response.
        let mut closed = alone();
        closed.connections[0].closed_us = Some(500_000);
        let two = Some(Duration::from_secs(2));
        let held = closed.held(&[visit(1, &[])], two, None, [0.0, 10.0]);
        assert!((held - (0.5 + 2.4) / 10.0).abs() < 1e-9);
        assert!((alone().held(&[visit(0, &[])], None, None, [0.0, 10.0]) - 0.09).abs() < 1e-9);
    }
}
