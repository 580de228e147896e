//! Which end holds TIME-WAIT of the connections of one load?
//!
//! Counted socket by socket, by the server's address and by age, so that neither other connections
//! of the machine nor earlier loads are counted.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_kernel::sock_diag::{Closed, End, SockDiag};

use super::read_sysctl;
use crate::clock::monotonic_ns;
use crate::messages::{ClosedSockets, CountClosed};

/// How long Linux keeps a socket in TIME-WAIT, ns (`TCP_TIMEWAIT_LEN` in `net/tcp.h`).
const TIME_WAIT_NS: u64 = 60_000_000_000;

/// A socket may look older or younger than it is by two of the kernel's ticks: 20 ms at 100 Hz, the
/// longest tick of any configuration.
const TICKS_NS: u64 = 20_000_000;

/// Counts, as soon as no such connection is being closed any more, or at the limit.
pub(crate) fn count(wanted: &CountClosed) -> ClosedSockets {
    let is_local = has_address(wanted.server);
    let fin_timeout_ns = fin_timeout_ns();
    let deadline = monotonic_ns() + wanted.limit_ns;
    let Ok(mut diag) = SockDiag::open() else { return ClosedSockets::default() };
    loop {
        let mut side_at = |end| Side::counted(&mut diag, end, wanted, fin_timeout_ns).ok();
        let client = side_at(End::Remote);
        let server = if is_local { side_at(End::Local) } else { None };
        let sides = [&client, &server].map(Option::as_ref);
        let under_way = sides.iter().flatten().map(|side| side.under_way + side.half_closed).sum();
        if under_way == 0 || monotonic_ns() >= deadline {
            let both = client.as_ref().zip(server.as_ref()).map(|(ours, theirs)| {
                ours.time_wait.intersection(&theirs.time_wait).count() as u64
            });
            let [ours, theirs] = sides.map(|side| side.map(|side| side.time_wait.len() as u64));
            return ClosedSockets {
                client: ours,
                server: theirs,
                both,
                under_way,
                half_closed: sides.map(|side| side.map_or(0, |side| side.half_closed)),
                half_closed_ns: client.as_ref().map_or(0, |side| side.half_closed_ns),
            };
        }
        // Not for luck: the question is asked again until it is answered or time is up.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One end's sockets.
#[derive(Default)]
struct Side {
    /// The clients' addresses of those in TIME-WAIT.
    time_wait: HashSet<SocketAddr>,
    /// Those that are being closed.
    under_way: u64,
    /// Those in FIN-WAIT-2.
    half_closed: u64,
    /// How long they have been so, ns, all together.
    half_closed_ns: u64,
}

impl Side {
    fn counted(
        diag: &mut SockDiag,
        end: End,
        wanted: &CountClosed,
        fin_timeout_ns: u64,
    ) -> Result<Self, SysError> {
        let mut side = Self::default();
        let now_ns = monotonic_ns();
        let is_own = |begun_ns: u64| begun_ns + TICKS_NS >= wanted.since_ns;
        diag.closed(end, wanted.server, |socket| match socket {
            Closed::UnderWay => side.under_way += 1,
            Closed::HalfClosed { left, .. } => {
                let begun_ns = begun_ns(now_ns, left, fin_timeout_ns);
                if is_own(begun_ns) {
                    side.half_closed += 1;
                    side.half_closed_ns += now_ns.saturating_sub(begun_ns);
                }
            }
            Closed::TimeWait { left, other } => {
                if is_own(begun_ns(now_ns, left, TIME_WAIT_NS)) {
                    side.time_wait.insert(other);
                }
            }
        })?;
        Ok(side)
    }
}

/// When a socket went into a state of this length, by what is left of it; 0: before the clock began.
fn begun_ns(now_ns: u64, left: Duration, whole_ns: u64) -> u64 {
    let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    (now_ns.saturating_add(left_ns)).saturating_sub(whole_ns)
}

/// How long this namespace keeps a socket in FIN-WAIT-2 that has no process, ns.
fn fin_timeout_ns() -> u64 {
    let text = read_sysctl("net.ipv4.tcp_fin_timeout");
    let seconds = text.ok().and_then(|text| text.parse::<u64>().ok());
    // A longer one the kernel keeps in a whole socket first, and as TIME-WAIT is kept for the last minute.
    seconds.map_or(TIME_WAIT_NS, |seconds| seconds.saturating_mul(1_000_000_000).min(TIME_WAIT_NS))
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
        assert_eq!(begun_ns(now, Duration::from_mins(1), TIME_WAIT_NS), now);
        assert_eq!(begun_ns(now, Duration::from_millis(57_500), TIME_WAIT_NS), now - 2_500_000_000);
        assert_eq!(begun_ns(1_000_000_000, Duration::from_secs(1), TIME_WAIT_NS), 0);
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
            ..ClosedSockets::default()
        };
        assert_eq!(count(&wanted), sockets(3, 2));
        let later = CountClosed { since_ns: monotonic_ns() + 1_000_000_000, ..wanted };
        assert_eq!(count(&later), sockets(0, 0));
        let elsewhere = "192.0.2.1:80".parse().unwrap();
        let none = ClosedSockets { server: None, both: None, ..sockets(0, 0) };
        assert_eq!(count(&CountClosed { server: elsewhere, ..wanted }), none);
    }

    #[test]
    fn a_connection_that_only_the_client_has_closed_holds_its_port_in_fin_wait_2() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let since_ns = monotonic_ns();
        let mut kept = Vec::new();
        for _ in 0..3 {
            drop(TcpStream::connect(server).unwrap());
            kept.push(listener.accept().unwrap());
        }
        let wanted = CountClosed { server, since_ns, limit_ns: 50_000_000 };
        let found = count(&wanted);
        assert_eq!((found.client, found.half_closed, found.under_way), (Some(0), [3, 0], 3));
        assert!(found.half_closed_ns >= 30_000_000, "{found:?}");
        let later = CountClosed { since_ns: monotonic_ns() + 1_000_000_000, ..wanted };
        assert_eq!(count(&later).half_closed, [0, 0], "those of another load are not counted");
    }

    #[test]
    fn addresses_of_documentation_are_nobody_s() {
        assert!(has_address("127.0.0.1:80".parse().unwrap()));
        assert!(!has_address("192.0.2.1:80".parse().unwrap()));
    }
}
