//! Traffic that certifies a link: echo requests for its delay, trains of datagrams for its rate
//! and its loss.

use tcptoll_kernel::SysError;
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::raw_ip::Echo;
use tcptoll_kernel::socket::{Address, Udp};

use super::control::{CHANNEL, stop_requested};
use super::{LoadError, until};
use crate::channel::Channel;
use crate::clock::{monotonic_ns, wait_until};
use crate::messages::{Arrivals, PING_MAX, Ping, Sink, Train};

/// Datagrams handed to the kernel in one call: one at a time, two cores reach 0.85 Gbit/s.
const TOGETHER: u64 = 20;

/// Most datagrams a sink remembers the arrival of.
const ARRIVALS_MAX: usize = 200_000;

/// Sends echo requests and times the answers; those that do not come are left out.
pub fn ping(ping: &Ping) -> Result<Vec<u64>, LoadError> {
    let count = usize::from(ping.count.min(PING_MAX));
    let echo = Echo::open(ping.target, std::process::id() as u16)?;
    let mut poller = Poller::new(8)?;
    poller.add(&echo, 0, Interest::READ)?;
    let mut sent: Vec<u64> = Vec::with_capacity(count);
    let mut rtts = Vec::new();
    let start = monotonic_ns();
    let failed = |op| move |error| SysError::new(op, ping.target.to_string(), error);
    while rtts.len() < count {
        let due = start + ping.interval_ns * sent.len() as u64;
        if sent.len() < count && monotonic_ns() >= due {
            sent.push(monotonic_ns());
            echo.send((sent.len() - 1) as u16).map_err(failed("sendto"))?;
        }
        let next = if sent.len() < count {
            start + ping.interval_ns * sent.len() as u64
        } else {
            sent.last().copied().unwrap_or(start) + ping.limit_ns
        };
        let events = poller.wait(Some(until(next)))?;
        let now = monotonic_ns();
        if events.is_empty() {
            if sent.len() == count && now >= next {
                break;
            }
            continue;
        }
        while let Some(sequence) = echo.receive().map_err(failed("recv"))? {
            if let Some(&at) = sent.get(usize::from(sequence)) {
                rtts.push(now - at);
            }
        }
    }
    Ok(rtts)
}

/// Receives datagrams until the parent says stop.
pub fn sink(sink: &Sink, channel: &mut Channel) -> Result<Arrivals, LoadError> {
    let address = std::net::SocketAddr::new(sink.at, 0);
    let socket = Udp::bind(address)?;
    let failed = |op| move |error| SysError::new(op, address.to_string(), error);
    let port = socket.port().map_err(failed("getsockname"))?;
    let mut poller = Poller::new(8)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    poller.add(&socket, 0, Interest::READ)?;
    channel.started::<Sink>(&std::net::SocketAddr::new(sink.at, port))?;
    let no_room_before = no_room();
    let mut arrivals: Vec<(u64, u64)> = Vec::new();
    let mut number = [0; 8];
    let mut packets = 0;
    loop {
        for event in poller.wait(None)? {
            if event.token == CHANNEL {
                stop_requested(channel)?;
                let no_room = no_room() - no_room_before;
                return Ok(Arrivals { no_room, ..steady(packets, &arrivals) });
            }
            while socket.receive(&mut number).map_err(failed("recv"))?.is_some() {
                packets += 1;
                if arrivals.len() < ARRIVALS_MAX {
                    arrivals.push((monotonic_ns(), u64::from_le_bytes(number)));
                }
            }
        }
    }
}

/// Datagrams that this host's sockets had no room for, since it began.
fn no_room() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    let mut counters = tcptoll_core::tcp::counters::parse_net(&text);
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    counters.extend(tcptoll_core::tcp::counters::parse_snmp6(&text));
    ["UdpRcvbufErrors", "Udp6RcvbufErrors"]
        .iter()
        .filter_map(|name| counters.get(*name))
        .map(|&count| count.max(0) as u64)
        .sum()
}

/// Leaves out the first fifth: a token bucket lets a burst through at the start.
fn steady(packets: u64, arrivals: &[(u64, u64)]) -> Arrivals {
    let tail = &arrivals[arrivals.len() / 5..];
    match tail {
        [first, .., last] => Arrivals {
            packets,
            no_room: 0,
            steady_packets: tail.len() as u64 - 1,
            steady_span: last.1.saturating_sub(first.1),
            steady_ns: last.0 - first.0,
        },
        _ => Arrivals { packets, ..Arrivals::default() },
    }
}

/// Sends a train of datagrams.
pub fn train(train: &Train) -> Result<u64, LoadError> {
    let any: std::net::IpAddr = if train.target.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = Udp::bind(std::net::SocketAddr::new(any, 0))?;
    let mut poller = Poller::new(8)?;
    poller.add(&socket, 0, Interest::WRITE)?;
    let target = Address::from(train.target);
    let together = if train.together { TOGETHER } else { 1 };
    if together > 1 {
        socket
            .set_segment(train.payload as u16)
            .map_err(|error| SysError::new("UDP_SEGMENT", train.target.to_string(), error))?;
    }
    let mut bytes = vec![0; train.payload * together as usize];
    let start = monotonic_ns();
    let mut sent = 0;
    while sent < train.packets {
        if train.interval_ns > 0 {
            wait_until(start + sent * train.interval_ns);
        }
        let now = together.min(train.packets - sent);
        for (number, datagram) in (sent..).zip(bytes.chunks_exact_mut(train.payload)) {
            datagram[..8].copy_from_slice(&number.to_le_bytes());
        }
        match socket.send_to(&bytes[..train.payload * now as usize], &target) {
            Ok(Some(_)) => sent += now,
            Ok(None) => {
                poller.wait(Some(std::time::Duration::from_millis(100)))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(error) => {
                return Err(SysError::new("sendto", train.target.to_string(), error).into());
            }
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_state_leaves_out_the_first_fifth() {
        let arrivals: Vec<(u64, u64)> = (0..10).map(|n| (n * 100, n * 2)).collect();
        let steady = steady(12, &arrivals);
        assert_eq!((steady.packets, steady.steady_packets, steady.steady_ns), (12, 7, 700));
        assert_eq!(steady.steady_span, 14);
    }

    #[test]
    fn one_packet_has_no_steady_state() {
        assert_eq!(steady(1, &[(5, 0)]).steady_packets, 0);
    }
}
