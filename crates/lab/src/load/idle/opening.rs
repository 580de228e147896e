//! Which connection is to be opened next, and when?

use std::net::{IpAddr, SocketAddr};

use tcptoll_kernel::socket::{Address, ClientOptions};

use crate::load::pace::{Pace, Plan};
use crate::load::sources::Sources;

/// Concurrent handshakes where no rate is asked for: no queue of a listener is shorter.
const HANDSHAKES: u64 = 64;

/// Connections that are still to be opened.
#[derive(Debug)]
pub(super) struct Opening {
    targets: Vec<Target>,
    sources: Sources,
    pace: Pace,
    /// Handshakes on their way.
    pub(super) in_flight: u64,
}

#[derive(Debug)]
struct Target {
    at: SocketAddr,
    address: Address,
    all: u64,
    left: u64,
}

/// What is to be opened.
pub(super) struct Next<'a> {
    pub(super) at: SocketAddr,
    pub(super) address: &'a Address,
    pub(super) options: &'a ClientOptions,
    /// Place of the target in the list.
    pub(super) kind: u8,
    /// When it was due, ns.
    pub(super) due_ns: u64,
}

impl Opening {
    pub(super) fn new(
        to: Vec<(SocketAddr, u64)>,
        bind: &[IpAddr],
        rate_per_s: Option<f64>,
        congestion: Option<&String>,
        begins_ns: u64,
    ) -> Self {
        let target =
            |(at, all): (SocketAddr, u64)| Target { at, address: at.into(), all, left: all };
        let operations = Some(to.iter().map(|(_, all)| all).sum());
        let plan = Plan { rate_per_s, slots: HANDSHAKES, operations, ..Plan::ENDLESS };
        Self {
            targets: to.into_iter().map(target).collect(),
            sources: Sources::new(bind, congestion.map(String::as_str), false),
            pace: Pace::from_start(&plan, begins_ns),
            in_flight: 0,
        }
    }

    /// Whether there is nothing left to open, nor on its way.
    pub(super) fn is_over(&self) -> bool {
        self.in_flight == 0 && self.targets.iter().all(|target| target.left == 0)
    }

    /// Begins no more.
    pub(super) fn end(&mut self) {
        for target in &mut self.targets {
            target.left = 0;
        }
    }

    /// Whether connections are begun at a rate, not as fast as they go.
    pub(super) fn is_paced(&self) -> bool {
        self.pace.is_open()
    }

    /// When the next one is due, ns; `None`: not before another is made, or never.
    pub(super) fn next_due(&self) -> Option<u64> {
        if self.targets.iter().all(|target| target.left == 0) {
            return None;
        }
        self.pace.next(self.in_flight)
    }

    /// Takes the next one, if it is due. Targets take turns by their shares, so that connections of
    /// all kinds lie next to each other.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Next<'_>> {
        let due_ns = self.next_due().filter(|&due| due <= now_ns)?;
        let left = |target: &Target| target.left as f64 / target.all.max(1) as f64;
        let (kind, target) = self
            .targets
            .iter_mut()
            .enumerate()
            .filter(|(_, target)| target.left > 0)
            .max_by(|(_, a), (_, b)| left(a).total_cmp(&left(b)))?;
        target.left -= 1;
        self.in_flight += 1;
        let options = self.sources.options(self.pace.begun());
        self.pace.begin(now_ns);
        let due_ns = if self.pace.is_open() { due_ns } else { now_ns };
        Some(Next { at: target.at, address: &target.address, options, kind: kind as u8, due_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_mixed_by_their_shares_and_all_are_opened() {
        let at: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let mut opening = Opening::new(vec![(at, 6), (at, 3)], &[], None, None, 0);
        let mut kinds = Vec::new();
        while let Some(next) = opening.next(0) {
            kinds.push(next.kind);
            opening.in_flight -= 1;
        }
        assert_eq!(kinds.len(), 9);
        assert!(kinds.windows(4).all(|four| four.contains(&1)), "{kinds:?}");
        assert!(opening.is_over());
    }

    #[test]
    fn a_rate_spaces_connections_evenly_from_its_beginning() {
        let at: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let mut opening = Opening::new(vec![(at, 3)], &[], Some(10.0), None, 500);
        assert!(opening.next(499).is_none());
        assert_eq!(opening.next(500).map(|next| next.due_ns), Some(500));
        assert_eq!(opening.next_due(), Some(100_000_500));
    }
}
