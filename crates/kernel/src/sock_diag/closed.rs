//! Which sockets have closed their connection, or are closing it?

use std::net::SocketAddr;
use std::time::Duration;

use netlink_packet_sock_diag::inet::{ExtensionFlags, StateFlags};

use super::connections::{Connection, Timer};
use super::{Ports, SockDiag};
use crate::error::SysError;

/// Which end of a connection a socket of this namespace is, relative to one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The address is the socket's own.
    Local,
    /// The address is the peer's.
    Remote,
}

/// A socket whose connection is being closed, or has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// FIN-WAIT-1, CLOSING or LAST-ACK, or FIN-WAIT-2 of a process that still has the socket: a FIN or
    /// its acknowledgement is missing.
    UnderWay,
    /// FIN-WAIT-2 without a process: the peer has not closed. The port is held.
    HalfClosed {
        /// Time until the kernel gives up, at most `net.ipv4.tcp_fin_timeout`.
        left: Duration,
        /// The end that is not `address`.
        other: SocketAddr,
    },
    /// TIME-WAIT.
    TimeWait {
        /// Time until it ends, at most 60 s; exact to two ticks of the kernel (8 ms at 250 Hz).
        left: Duration,
        /// The end that is not `address`.
        other: SocketAddr,
    },
}

impl SockDiag {
    /// Every socket that closed a connection of which `address` is this end, or that still does.
    ///
    /// IPv4 addresses mapped into IPv6 count as the IPv4 ones they stand for. What is in FIN-WAIT-2
    /// after its process has gone is kept by the kernel like TIME-WAIT, with its time.
    ///
    /// Source: `inet_diag_dump_icsk()` and `inet_twsk_diag_fill()` in `net/ipv4/inet_diag.c`, Linux
    /// 6.18; there a TIME-WAIT of 60 s had up to 4 ms more left than its age says, at 250 Hz.
    pub fn closed(
        &mut self,
        end: End,
        address: SocketAddr,
        mut each: impl FnMut(Closed),
    ) -> Result<(), SysError> {
        let states = StateFlags::FIN_WAIT1
            | StateFlags::FIN_WAIT2
            | StateFlags::CLOSING
            | StateFlags::LAST_ACK
            | StateFlags::TIME_WAIT;
        let ports = match end {
            End::Local => Ports { local: address.port(), remote: 0 },
            End::Remote => Ports { local: 0, remote: address.port() },
        };
        let ip = address.ip().to_canonical();
        self.dump(&states, &ExtensionFlags::empty(), ports, |payload| {
            let socket = Connection::read(payload)?;
            let (found, other) = match end {
                End::Local => (socket.local, socket.remote),
                End::Remote => (socket.remote, socket.local),
            };
            if found.ip() != ip {
                return Ok(());
            }
            let left = socket.expires;
            let is = |state: StateFlags| u32::from(socket.state) == state.bits().trailing_zeros();
            each(if is(StateFlags::TIME_WAIT) {
                Closed::TimeWait { left, other }
            } else if is(StateFlags::FIN_WAIT2) && socket.timer == Some(Timer::TimeWait) {
                Closed::HalfClosed { left, other }
            } else {
                Closed::UnderWay
            });
            Ok(())
        })
    }
}
