//! What is done to connections: the client's side ([`connect`]), the in-house server ([`greet`]),
//! and the traffic that certifies a link ([`probes`]).
//!
//! Each runs inside a host, on one thread, and looks at the control channel between two events, so
//! that [`Request::Stop`] ends it at once with what it has.

pub mod connect;
mod driver;
mod epoll;
pub mod greet;
pub mod http;
pub mod idle;
mod occupancy;
mod pace;
pub mod probes;
mod service;
mod submission;
mod uring;
mod waiting;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use serde::de::IgnoredAny;
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::socket::errno;
use tcptoll_kernel::{SysError, slab};

use crate::channel::{Channel, ChannelError};
use crate::clock::monotonic_ns;
use crate::messages::Request;

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

/// The number under which a poller knows the control channel.
const CHANNEL: u64 = u64::MAX;

/// Takes what the parent sends while an order is being carried out: that it is to stop.
fn stop_requested(channel: &mut Channel) -> Result<(), LoadError> {
    match channel.receive(None)? {
        Request::Stop => Ok(()),
        Request::Order::<IgnoredAny> { name, .. } => Err(LoadError::Busy(name.into_owned())),
    }
}

/// From now to an instant, zero if it has passed.
fn until(instant_ns: u64) -> Duration {
    Duration::from_nanos(instant_ns.saturating_sub(monotonic_ns()))
}

/// The source of each connection in turn: the addresses given, or the one the kernel chooses.
fn sources(given: &[IpAddr]) -> Vec<Option<IpAddr>> {
    if given.is_empty() { vec![None] } else { given.iter().copied().map(Some).collect() }
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
fn pair(time: tcptoll_kernel::cpu::CpuTime) -> (u64, u64) {
    (time.user_us, time.system_us)
}
