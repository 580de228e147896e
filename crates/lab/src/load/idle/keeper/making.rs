//! How connections come about: begun when they are due, or accepted when there is room.

use std::io;
use std::time::Duration;

use tcp_heartbeat::frame::NULL_FRAME;
use tcptoll_kernel::epoll::Interest;
use tcptoll_kernel::socket::{Begun, Tcp};

use super::{IdleConnection, Keeper, State};
use crate::clock::monotonic_ns;
use crate::load::class_of;
use crate::load::idle::CONNECT_LIMIT_NS;
use crate::load::pace::burst;

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
