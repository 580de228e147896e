//! How connections come about: which is to be opened next, begun when it is due, or accepted when there
//! is room.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tcp_heartbeat::frame::NULL_FRAME;
use tcptoll_kernel::epoll::Interest;
use tcptoll_kernel::socket::{Address, Begun, ClientOptions, Tcp};

use super::{CONNECT_LIMIT_NS, IdleConnection, Keeper, State};
use crate::clock::monotonic_ns;
use crate::load::class_of;
use crate::load::driver::Sources;
use crate::load::pace::{Pace, Plan, burst};

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

/// After a failed accept the next comes this much later: no file is free now.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

impl Keeper {
    pub(super) fn open_those_due(&mut self) {
        for _ in 0..burst::IDLE {
            let Some(opening) = &mut self.opening else { return };
            let Some(next) = opening.next(monotonic_ns()) else { return };
            let (kind, due_ns) = (next.kind, next.due_ns);
            self.report.attempted += 1;
            let begun = Tcp::client(next.at, next.options)
                .and_then(|tcp| tcp.connect(next.address).map(|begun| (tcp, begun)));
            match begun {
                Ok((tcp, begun)) => {
                    let state = State::Connecting(due_ns);
                    let slot = self.slots.put(IdleConnection {
                        tcp,
                        kind,
                        state,
                        member: None,
                        partial: None,
                    });
                    self.deadlines.push_back((monotonic_ns() + CONNECT_LIMIT_NS, slot));
                    let added = self
                        .slots
                        .get(slot)
                        .map(|kept| self.poller.add(&kept.tcp, u64::from(slot), Interest::EDGES));
                    if let Some(Err(error)) = added {
                        self.failed(slot, &error.source);
                    } else if begun == Begun::Done {
                        self.made(slot);
                    }
                }
                Err(error) => {
                    opening.in_flight -= 1;
                    *self.report.errors.entry(class_of(&error).to_owned()).or_default() += 1;
                }
            }
        }
    }

    /// A handshake came to nothing.
    pub(super) fn failed(&mut self, slot: u32, error: &io::Error) {
        if self.take(slot).is_some() {
            *self.report.errors.entry(class_of(error).to_owned()).or_default() += 1;
        }
    }

    pub(super) fn give_up_late_handshakes(&mut self) {
        let now = monotonic_ns();
        while let Some(&(deadline, slot)) = self.deadlines.front() {
            let began = match self.slots.get(slot) {
                Some(IdleConnection { state: State::Connecting(_), .. }) if deadline > now => {
                    return;
                }
                Some(IdleConnection { state: State::Connecting(began), .. }) => Some(*began),
                _ => None,
            };
            self.deadlines.pop_front();
            // A slot may have been used again since.
            if began.is_some_and(|began| began + CONNECT_LIMIT_NS <= now) {
                self.failed(
                    slot,
                    &io::Error::from_raw_os_error(tcptoll_kernel::socket::errno::ETIMEDOUT),
                );
            }
        }
    }

    pub(super) fn made(&mut self, slot: u32) {
        let Some(kept) = self.slots.get_mut(slot) else { return };
        let State::Connecting(began) = kept.state else { return };
        let Some(opening) = &mut self.opening else { return };
        opening.in_flight -= 1;
        kept.state = if opening.is_paced() { State::Arriving(began) } else { State::Open };
        self.report.made += 1;
    }

    pub(super) fn accept_those_waiting(&mut self) {
        let now_ns = monotonic_ns();
        if now_ns < self.accept_ns {
            return;
        }
        for number in 0..self.listeners.len() {
            for _ in 0..burst::IDLE {
                if !self.listeners[number].waiting {
                    break;
                }
                let held = self.slots.held();
                if held as u64 >= self.room {
                    // Beyond what it was made for: left in the backlog.
                    self.accept_ns = now_ns + ACCEPT_AGAIN.as_nanos() as u64;
                    return;
                }
                if !self.checks.has_room() {
                    self.checks.room_wanted(Duration::from_nanos(now_ns));
                    break;
                }
                match self.listeners[number].tcp.accept() {
                    Ok(Some((tcp, _))) => self.accepted(tcp, number as u8),
                    Ok(None) => self.listeners[number].waiting = false,
                    Err(error) => {
                        *self.report.errors.entry(class_of(&error).to_owned()).or_default() += 1;
                        self.accept_ns = now_ns + ACCEPT_AGAIN.as_nanos() as u64;
                        return;
                    }
                }
            }
        }
    }

    fn accepted(&mut self, tcp: Tcp, kind: u8) {
        self.report.attempted += 1;
        let greeted = !self.greet || matches!(tcp.write(&NULL_FRAME), Ok(Some(_)));
        let kept = IdleConnection { tcp, kind, state: State::Open, member: None, partial: None };
        let slot = self.slots.put(kept);
        let Some(kept) = self.slots.get_mut(slot) else { return };
        let concerned = self.checks.concern(kind);
        let checked = !concerned || self.checks.set(&kept.tcp).is_ok();
        if concerned {
            kept.member = self.checks.insert(slot, 0.0, Duration::from_nanos(monotonic_ns()));
        }
        let added = self.poller.add(&kept.tcp, u64::from(slot), Interest::EDGES);
        if greeted && checked && added.is_ok() {
            self.report.made += 1;
        } else {
            drop(self.take(slot));
            *self.report.errors.entry("other".to_owned()).or_default() += 1;
        }
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
