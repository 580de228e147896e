//! Holds local ports in TIME-WAIT, quickly: each connection is opened from a given port and closed by
//! the client.
//!
//! A load that fills the ports by itself needs 12 s for the second half of the default range, because
//! the kernel searches longer and longer. Here each socket may only use one port
//! (`IP_LOCAL_PORT_RANGE`, since Linux 6.3), so nothing is searched. Ports are taken in the order in
//! which `connect(2)` would: all of the parity of the range's lowest port first. The kernel keeps such
//! a port as one that it chose itself. A port given to `bind(2)` is different: `connect(2)` passes it
//! by without a look at its connections, which is cheaper than what is to be measured.
//!
//! Source: `__inet_hash_connect()` in `net/ipv4/inet_hashtables.c`, `inet_csk_find_open_port()` in
//! `net/ipv4/inet_connection_sock.c`, Linux 6.18.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_kernel::sock_diag::{Closed, End, SockDiag};
use tcptoll_kernel::socket::blocking::{Blocking, BlockingOptions};
use tcptoll_kernel::socket::errno;

use super::{class_of_connecting, lock, spawn};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::load::LoadError;
use crate::messages::{HoldPorts, PortsHeld};

/// Connections that are opened concurrently: with a round trip of 10 ms, 28,000 take 18 s.
const THREADS: u64 = 32;

/// Failures after which holding ends: there may be another program on some ports, but not on many.
const FAILURES_MAX: u64 = 1_000;

/// Holds ports until as many are held as asked, or all have been tried.
///
/// It does not look at the channel: the parent waits, and each connection has its time limit.
pub fn run(order: &HoldPorts, channel: &mut Channel) -> Result<PortsHeld, LoadError> {
    let begun_ns = monotonic_ns();
    let all = Candidates::of(order);
    let shared = Shared::default();
    let spawned = std::thread::scope(|scope| {
        let (all, shared) = (&all, &shared);
        for _ in 0..THREADS.min(order.count) {
            spawn(scope, move || shared.fill(order, all))?;
        }
        while shared.is_filling(order) {
            // Not for luck: it asks again until all are held, and says how far it has come.
            std::thread::sleep(Duration::from_millis(20));
            if channel.progress(shared.closed.load(Ordering::Relaxed)).is_err() {
                shared.failures.store(FAILURES_MAX, Ordering::Relaxed);
            }
            if shared.running.load(Ordering::SeqCst) == 0 {
                break;
            }
        }
        Ok(())
    });
    spawned.map_err(|error: io::Error| SysError::new("clone", "a thread", error))?;
    let took_ns = monotonic_ns().saturating_sub(begun_ns);
    Ok(PortsHeld {
        closed: shared.closed.load(Ordering::Relaxed),
        errors: shared.errors.into_inner().unwrap_or_default(),
        time_wait: time_wait(order.target)?,
        took_ns,
        kernel_chose: shared.kernel_chooses.load(Ordering::Relaxed),
    })
}
