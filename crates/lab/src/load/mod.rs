//! Loads: what is done to connections, inside a host, until its time is up or the parent says stop.
//!
//! What is measured has a module of its own each: [`connect`] opens connections, [`http`] sends
//! requests, [`idle`] keeps connections open and writes over one, [`exchange`] sends and answers
//! requests of any bytes over one, [`half_open`] opens requests that it never completes, [`transfer`]
//! carries bulk data, [`hold`] fills connections for their memory, [`short`] opens short connections
//! from blocking workers; [`page`] loads a page as a browser does, and [`browser`] lets Chromium load
//! it; [`clocks`] compares the clocks of two hosts, [`greet`] is the in-house server of `connect`, and [`probes`] is the traffic
//! that certifies a link.
//!
//! What they share knows no protocol. A new load begins with the first three:
//!
//! | module | answers |
//! | --- | --- |
//! | `pace` | when may the next operation begin, is it measured, when does the window end? Closed and open loop, ramp, warm-up, pauses, bursts |
//! | `driver` | how do bytes come and go? Over `epoll` or `uring`, with the kernel's receive stamps. Which source address and socket options has each connection? |
//! | `control` | what do a load and its parent say to each other? How does a load run on several threads, stop, and report? |
//! | `slots` | where is each connection kept, by number? Which has waited too long, were those of a closed loop all in use, can an operation that waits still be answered in time? |
//!
//! This file has what a single function answers: room for sockets, classes of errors, the memory of
//! a socket. A loop looks at the control channel between two events, so that
//! [`Request::Stop`](crate::messages::Request::Stop) ends it immediately with what it has.

pub mod browser;
pub mod clocks;
pub mod connect;
mod connect_evidence;
mod control;
mod departures;
mod driver;
mod epoll;
pub mod exchange;
pub mod greet;
pub mod half_open;
pub mod hold;
pub mod http;
pub mod idle;
mod pace;
pub mod page;
pub mod probes;
pub mod short;
mod slots;
pub mod transfer;
mod uring;

use std::io;
use std::time::Duration;

use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::socket::errno;
use tcptoll_kernel::{SysError, cpu, slab};

pub use self::control::THREADS_MAX;
use crate::channel::ChannelError;
use crate::clock::monotonic_ns;

/// Why a load could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] SysError),
    /// The parent is gone.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// What was asked for cannot be done; a sentence for the user.
    #[error("{0}")]
    Refused(String),
    /// The parent gave another order meanwhile.
    #[error("order {0} while another was being carried out")]
    Busy(String),
}

/// From now to an instant, zero if it has passed.
fn until(instant_ns: u64) -> Duration {
    Duration::from_nanos(instant_ns.saturating_sub(monotonic_ns()))
}

/// File descriptors of a process that are not connections: streams, channel, listeners, epoll, ICMP,
/// netlink, libraries.
const OTHER_FILES: u64 = 64;

/// How many sockets this process may have open, at least 1. Raises its soft limit of open files to
/// the hard one.
fn sockets_max() -> io::Result<u64> {
    Ok(cpu::file_limit()?.saturating_sub(OTHER_FILES).max(1))
}

/// Sockets whose memory is looked at.
const SOCKETS: u64 = 1_000;

/// How many established connections this host has, and the kernel memory of one, bytes: buffers and
/// their reserves of up to 1,000 of them, and the structures of each; absent where this user may
/// not read how large these are.
pub fn socket_memory() -> Result<(u64, Option<f64>), SysError> {
    let (sockets, buffers) = SockDiag::open()?.socket_memory(SOCKETS)?;
    let structures = slab::connection_bytes().map(|bytes| bytes as f64);
    Ok((sockets, buffers.zip(structures).map(|(buffers, structures)| buffers + structures)))
}

/// The class of a failed socket call; the classes are listed in `docs/causes.md`.
fn class_of(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(errno::EADDRNOTAVAIL) => "local-ports",
        Some(errno::EMFILE | errno::ENFILE) => "local-fds",
        Some(errno::ENOMEM | errno::ENOBUFS) => "local-memory",
        Some(errno::ECONNREFUSED) => "connect-refused",
        Some(errno::ETIMEDOUT) => "connect-timeout",
        Some(errno::ECONNRESET | errno::EPIPE) => "reset",
        Some(errno::ENETUNREACH | errno::EHOSTUNREACH) => "unreachable",
        _ => match error.kind() {
            io::ErrorKind::ConnectionRefused => "connect-refused",
            io::ErrorKind::ConnectionReset => "reset",
            _ => "other",
        },
    }
}

/// CPU time as two numbers, µs.
fn pair(time: cpu::CpuTime) -> (u64, u64) {
    (time.user_us, time.system_us)
}
