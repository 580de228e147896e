//! Stamps exchanged between two hosts over UDP: the round trip of the path, and what their clocks are apart.
//!
//! The reflector answers one peer that knows its token, and never with more bytes than came: it is of no use
//! for anybody else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use tcptoll_core::link::clocks::Exchange;
use tcptoll_core::record::Route;
use tcptoll_kernel::SysError;
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::netlink::Netlink;

use super::control::{CHANNEL, stop_requested};
use super::{LoadError, until};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{AskClock, AskRoute, EXCHANGES_MAX, Reflect, Reflected, Token};

/// A question: the token, its number, and room for the two stamps of its answer.
const LENGTH: usize = TOKEN + NUMBER + 16;
const TOKEN: usize = size_of::<Token>();
const NUMBER: usize = 2;

/// How packets leave this host. None: the kernel does not tell.
pub fn route(order: &AskRoute) -> Option<Route> {
    let found = Netlink::open().and_then(|mut netlink| netlink.route(order.to, order.from)).ok()?;
    Some(Route {
        device: found.device,
        gateway: found.gateway.map(|address| address.to_string()),
        source: found.source.map(|address| address.to_string()),
        mtu_bytes: found.mtu_bytes,
    })
}

/// Answers until the parent says stop.
pub fn reflect(order: &Reflect, channel: &mut Channel) -> Result<Reflected, LoadError> {
    let (socket, at) = bound(SocketAddr::new(order.at, 0))?;
    let failed = |op| move |error| SysError::new(op, at.to_string(), error);
    let mut poller = Poller::new(8)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    poller.add(&socket, 0, Interest::READ)?;
    channel.started::<Reflect>(&at)?;
    let mut peer = order.peer;
    let mut seen = Reflected::default();
    // One byte more than a question has, so that a longer one is told from it.
    let mut datagram = [0; LENGTH + 1];
    loop {
        for event in poller.wait(None)? {
            if event.token == CHANNEL {
                stop_requested(channel)?;
                return Ok(seen);
            }
            loop {
                let (length, from) = match socket.recv_from(&mut datagram) {
                    Ok(received) => received,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(failed("recvfrom")(error).into()),
                };
                let received_ns = monotonic_ns();
                let known = peer.is_none_or(|peer| peer.to_canonical() == from.ip().to_canonical());
                if !known || length != LENGTH || datagram[..TOKEN] != order.token {
                    seen.refused += 1;
                    continue;
                }
                peer = Some(from.ip());
                let stamps = TOKEN + NUMBER;
                datagram[stamps..stamps + 8].copy_from_slice(&received_ns.to_be_bytes());
                datagram[stamps + 8..LENGTH].copy_from_slice(&monotonic_ns().to_be_bytes());
                // What cannot be sent is lost, as on the way.
                if socket.send_to(&datagram[..LENGTH], from).is_ok() {
                    seen.answered += 1;
                }
            }
        }
    }
}

/// Asks, one at a time, and gives what came back in time.
pub fn ask(order: &AskClock) -> Result<Vec<Exchange>, LoadError> {
    let any = match order.target.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let (socket, _) = bound(SocketAddr::new(order.from.unwrap_or(any), 0))?;
    let failed = |op| move |error| SysError::new(op, order.target.to_string(), error);
    // Only its answers are received from now on.
    socket.connect(order.target).map_err(failed("connect(2)"))?;
    let mut poller = Poller::new(2)?;
    poller.add(&socket, 0, Interest::READ)?;
    let mut exchanges = Vec::new();
    let mut question = [0; LENGTH];
    question[..TOKEN].copy_from_slice(&order.token);
    let start = monotonic_ns();
    for number in 0..order.count.min(EXCHANGES_MAX) {
        while until(start + order.interval_ns * u64::from(number)) > std::time::Duration::ZERO {
            poller.wait(Some(until(start + order.interval_ns * u64::from(number))))?;
            // A late answer of the one before.
            let _ = socket.recv(&mut [0; LENGTH]);
        }
        question[TOKEN..TOKEN + NUMBER].copy_from_slice(&number.to_be_bytes());
        let t1 = monotonic_ns();
        if let Err(error) = socket.send(&question) {
            // The answer to the one before: nobody is there.
            if error.kind() == std::io::ErrorKind::ConnectionRefused {
                continue;
            }
            return Err(failed("send")(error).into());
        }
        if let Some((t4, answer)) = answer(&socket, &mut poller, &question, t1 + order.limit_ns)? {
            let stamp =
                |at: usize| u64::from_be_bytes(answer[at..at + 8].try_into().unwrap_or_default());
            let stamps = TOKEN + NUMBER;
            exchanges.push(Exchange { t1, t2: stamp(stamps), t3: stamp(stamps + 8), t4 });
        }
    }
    Ok(exchanges)
}

/// The answer to a question and when it came; None: not in time.
fn answer(
    socket: &UdpSocket,
    poller: &mut Poller,
    question: &[u8; LENGTH],
    deadline_ns: u64,
) -> Result<Option<(u64, [u8; LENGTH])>, LoadError> {
    let mut datagram = [0; LENGTH];
    loop {
        match socket.recv(&mut datagram) {
            Ok(LENGTH) if datagram[..TOKEN + NUMBER] == question[..TOKEN + NUMBER] => {
                return Ok(Some((monotonic_ns(), datagram)));
            }
            Ok(_) => continue,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // An ICMP error: it is not there, or not yet.
            Err(_) => return Ok(None),
        }
        if monotonic_ns() >= deadline_ns {
            return Ok(None);
        }
        poller.wait(Some(until(deadline_ns)))?;
    }
}

fn bound(at: SocketAddr) -> Result<(UdpSocket, SocketAddr), SysError> {
    let failed = |op: &'static str| move |error| SysError::new(op, at.to_string(), error);
    let socket = UdpSocket::bind(at).map_err(failed("bind"))?;
    socket.set_nonblocking(true).map_err(failed("fcntl"))?;
    let at = socket.local_addr().map_err(failed("getsockname"))?;
    Ok((socket, at))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use tcptoll_core::link::clocks::best_offset;

    use super::*;
    use crate::messages::{Reply, Request};

    const TOKEN_HERE: Token = [7; 16];

    /// Runs a reflector on this machine while `work` is done with its address.
    fn reflecting(peer: Option<IpAddr>, work: impl FnOnce(SocketAddr)) -> Reflected {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut parent, mut host) = (Channel::new(ours), Channel::new(theirs));
        let order = Reflect { at: Ipv4Addr::LOCALHOST.into(), peer, token: TOKEN_HERE };
        let running = std::thread::spawn(move || reflect(&order, &mut host).unwrap());
        let Reply::Started(at) = parent.receive::<Reply<(), SocketAddr>>(None).unwrap() else {
            panic!("it did not start");
        };
        work(at);
        parent.send(&Request::<()>::Stop).unwrap();
        running.join().unwrap()
    }

    fn question(target: SocketAddr, token: Token) -> AskClock {
        AskClock { target, from: None, token, count: 8, interval_ns: 0, limit_ns: 100_000_000 }
    }

    #[test]
    fn clocks_of_one_machine_are_not_apart_by_more_than_the_bound() {
        let seen = reflecting(None, |at| {
            let exchanges = ask(&question(at, TOKEN_HERE)).unwrap();
            let offset = best_offset(&exchanges).unwrap();
            assert!(offset.ns.unsigned_abs() <= offset.bound_ns, "{offset:?}");
        });
        assert_eq!((seen.answered, seen.refused), (8, 0));
    }

    #[test]
    fn a_reflector_answers_its_peer_and_its_token_alone() {
        let limit = |question: AskClock| AskClock { limit_ns: 5_000_000, ..question };
        let seen = reflecting(None, |at| {
            assert!(ask(&limit(question(at, [8; 16]))).unwrap().is_empty());
        });
        assert_eq!((seen.answered, seen.refused), (0, 8));
        let seen = reflecting(Some("192.0.2.1".parse().unwrap()), |at| {
            assert!(ask(&limit(question(at, TOKEN_HERE))).unwrap().is_empty());
        });
        assert_eq!((seen.answered, seen.refused), (0, 8));
    }

    #[test]
    fn datagrams_of_another_length_are_not_answered() {
        let seen = reflecting(None, |at| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for length in [0, 1, TOKEN, LENGTH - 1, LENGTH + 1, 1_400] {
                let mut datagram = vec![7; length];
                datagram.truncate(length);
                socket.send_to(&datagram, at).unwrap();
            }
            // The last in the queue is answered, so all before it were seen.
            assert_eq!(ask(&question(at, TOKEN_HERE)).unwrap().len(), 8);
        });
        assert_eq!((seen.answered, seen.refused), (8, 6));
    }
}
