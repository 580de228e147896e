//! Which end holds TIME-WAIT of the connections of one load?
//!
//! Counted socket by socket, by the server's address and by age, so that neither other connections
//! of the machine nor earlier loads are counted.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_kernel::sock_diag::{Closed, End, SockDiag};

use crate::clock::monotonic_ns;
use crate::messages::{ClosedSockets, CountClosed};

/// How long Linux keeps a socket in TIME-WAIT, ns (`TCP_TIMEWAIT_LEN` in `net/tcp.h`).
const TIME_WAIT_NS: u64 = 60_000_000_000;

/// A socket may look older or younger than it is by two of the kernel's ticks: 20 ms at 100 Hz, the
/// longest tick of any configuration.
const TICKS_NS: u64 = 20_000_000;

/// Counts, as soon as no such connection is being closed any more, or at the limit.
pub(super) fn count(wanted: &CountClosed) -> ClosedSockets {
    let is_local = has_address(wanted.server);
    let deadline = monotonic_ns() + wanted.limit_ns;
    let Ok(mut diag) = SockDiag::open() else { return ClosedSockets::default() };
    loop {
        let mut under_way = 0;
        let mut of = |end| side(&mut diag, end, wanted, &mut under_way).ok();
        let client = of(End::Remote);
        let server = if is_local { of(End::Local) } else { None };
        if under_way == 0 || monotonic_ns() >= deadline {
            let both = client.as_ref().zip(server.as_ref());
            let both = both.map(|(ours, theirs)| ours.intersection(theirs).count() as u64);
            let count = |side: Option<HashSet<_>>| side.map(|clients| clients.len() as u64);
            return ClosedSockets { client: count(client), server: count(server), both, under_way };
        }
        // Not for luck: the question is asked again until it is answered or time is up.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The clients' addresses of one end's sockets in TIME-WAIT; adds those that are still being closed.
fn side(
    diag: &mut SockDiag,
    end: End,
    wanted: &CountClosed,
    under_way: &mut u64,
) -> Result<HashSet<SocketAddr>, SysError> {
    let mut clients = HashSet::new();
    diag.closed(end, wanted.server, |socket| match socket {
        Closed::UnderWay => *under_way += 1,
        Closed::TimeWait { left, other } => {
            if begun_ns(monotonic_ns(), left) + TICKS_NS >= wanted.since_ns {
                clients.insert(other);
            }
        }
    })?;
    Ok(clients)
}

/// When a socket went into TIME-WAIT, by what is left of it; 0: before the clock began.
fn begun_ns(now_ns: u64, left: Duration) -> u64 {
    let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    (now_ns.saturating_add(left_ns)).saturating_sub(TIME_WAIT_NS)
}

/// Whether the address is one of this network namespace: only then can a socket be bound to it.
fn has_address(at: SocketAddr) -> bool {
    UdpSocket::bind((at.ip(), 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_is_left_of_a_minute_says_when_it_began() {
        let now = 100_000_000_000;
        assert_eq!(begun_ns(now, Duration::from_mins(1)), now);
        assert_eq!(begun_ns(now, Duration::from_millis(57_500)), now - 2_500_000_000);
        assert_eq!(begun_ns(1_000_000_000, Duration::from_secs(1)), 0);
    }

    #[test]
    fn time_wait_is_counted_by_end_and_not_if_it_is_older_than_the_load() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let since_ns = monotonic_ns();
        // Three that the client closes first, and two that the server does.
        for at in 0..5 {
            let client = TcpStream::connect(server).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            let (mut first, mut second) =
                if at < 3 { (client, accepted) } else { (accepted, client) };
            first.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(second.read(&mut [0]).unwrap(), 0, "the FIN has come");
            drop(second);
            assert_eq!(first.read(&mut [0]).unwrap(), 0);
        }
        let wanted = CountClosed { server, since_ns, limit_ns: 5_000_000_000 };
        let sockets = |client, server| ClosedSockets {
            client: Some(client),
            server: Some(server),
            both: Some(0),
            under_way: 0,
        };
        assert_eq!(count(&wanted), sockets(3, 2));
        let later = CountClosed { since_ns: monotonic_ns() + 1_000_000_000, ..wanted };
        assert_eq!(count(&later), sockets(0, 0));
        let elsewhere = "192.0.2.1:80".parse().unwrap();
        let none = ClosedSockets { server: None, both: None, ..sockets(0, 0) };
        assert_eq!(count(&CountClosed { server: elsewhere, ..wanted }), none);
    }

    #[test]
    fn addresses_of_documentation_are_nobody_s() {
        assert!(has_address("127.0.0.1:80".parse().unwrap()));
        assert!(!has_address("192.0.2.1:80".parse().unwrap()));
    }
}
