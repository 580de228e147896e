//! Every socket of the namespace but its listeners, one after the other, and for how long established
//! connections were silent.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use netlink_packet_core::DecodeError;
use netlink_packet_sock_diag::inet::{ExtensionFlags, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6};

use super::sock_diag::{Closed, End, Ports, SockDiag};
use crate::SysError;

/// A socket that is no listener: a connection, or what is left of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The number of `include/net/tcp_states.h`: 1 ESTABLISHED, 2 SYN-SENT, 3 SYN-RECEIVED …
    ///
    /// 3 is a half-open request of a listener; it has no inode yet. FIN-WAIT-2 without a process is
    /// reported as FIN-WAIT-2.
    pub state: u8,
    /// The socket's own address; mapped IPv4 as IPv4.
    pub local: SocketAddr,
    /// The peer's address; mapped IPv4 as IPv4.
    pub remote: SocketAddr,
    /// The timer that runs, if one does.
    pub timer: Option<Timer>,
    /// Time until that timer expires; 0 without a timer. Of TIME-WAIT: until it ends, exact to two
    /// ticks of the kernel (8 ms at 250 Hz).
    pub expires: Duration,
    /// Retransmissions, or probes, so far without an answer.
    pub retransmits: u8,
    /// Bytes that were received and not read.
    pub receive_queue: u32,
    /// Bytes that were written and not acknowledged.
    pub send_queue: u32,
    /// Effective user id of the process that made the socket, as this user namespace maps it. 0 for
    /// half-open requests and TIME-WAIT, which have no user.
    pub uid: u32,
    /// Inode of the socket; `None`: no process has it (TIME-WAIT, an orphan, a half-open request).
    pub inode: Option<u64>,
}

/// The timer of a socket. Source: `inet_sk_diag_fill()` in `net/ipv4/inet_diag.c`, Linux 6.18.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Data, or a SYN, is retransmitted when it expires; also the tail loss probe.
    Retransmit,
    /// A keep-alive probe is sent when it expires. The kernel also reports a SYN-ACK's timer here.
    KeepAlive,
    /// TIME-WAIT ends when it expires.
    TimeWait,
    /// A window probe is sent when it expires: the peer accepts no data.
    WindowProbe,
}

/// A set of TCP states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct States(StateFlags);

impl States {
    /// All states that a socket can have, but LISTEN.
    pub fn all() -> Self {
        // 1 ESTABLISHED to 11 CLOSING, without 10 LISTEN. Higher numbers are the kernel's own.
        Self::from_numbers(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 11])
    }

    /// These states, by the numbers of `include/net/tcp_states.h`. LISTEN and numbers that no state
    /// has are left out.
    pub fn from_numbers(numbers: &[u8]) -> Self {
        let bits = numbers
            .iter()
            .filter(|number| (1..=11).contains(*number) && **number != 10)
            .fold(0, |bits, number| bits | 1 << number);
        Self(StateFlags::from_bits_truncate(bits))
    }
}

/// Where `struct inet_diag_msg` of `linux/inet_diag.h` has its fields, bytes.
mod at {
    pub(super) const STATE: usize = 1;
    pub(super) const TIMER: usize = 2;
    pub(super) const RETRANSMITS: usize = 3;
    pub(super) const LOCAL_PORT: usize = 4;
    pub(super) const REMOTE_PORT: usize = 6;
    pub(super) const LOCAL: usize = 8;
    pub(super) const REMOTE: usize = 24;
    pub(super) const EXPIRES: usize = 52;
    pub(super) const RECEIVE_QUEUE: usize = 56;
    pub(super) const SEND_QUEUE: usize = 60;
    pub(super) const UID: usize = 64;
    pub(super) const INODE: usize = 68;
}

/// `sizeof(struct inet_diag_msg)`.
pub(super) const HEADER_BYTES: usize = 72;

impl Connection {
    /// Reads `struct inet_diag_msg`; attributes behind it are not looked at.
    pub(super) fn read(payload: &[u8]) -> Result<Self, DecodeError> {
        let Some(header) = payload.first_chunk::<HEADER_BYTES>() else {
            return Err(DecodeError::from("a reply shorter than struct inet_diag_msg"));
        };
        let family = header[0];
        if family != AF_INET && family != AF_INET6 {
            return Err(DecodeError::from(format!("address family {family}")));
        }
        let bytes = |at: usize| header[at..].first_chunk::<4>().copied().unwrap_or_default();
        let number = |at: usize| u32::from_ne_bytes(bytes(at));
        let end = |at: usize, port_at: usize| {
            let ip = if family == AF_INET {
                IpAddr::from(bytes(at))
            } else {
                let all = header[at..].first_chunk::<16>().copied().unwrap_or_default();
                IpAddr::V6(Ipv6Addr::from(all)).to_canonical()
            };
            SocketAddr::new(ip, u16::from_be_bytes([header[port_at], header[port_at + 1]]))
        };
        let timer = match header[at::TIMER] {
            1 => Some(Timer::Retransmit),
            2 => Some(Timer::KeepAlive),
            3 => Some(Timer::TimeWait),
            4 => Some(Timer::WindowProbe),
            _ => None,
        };
        let inode = number(at::INODE);
        Ok(Self {
            state: header[at::STATE],
            local: end(at::LOCAL, at::LOCAL_PORT),
            remote: end(at::REMOTE, at::REMOTE_PORT),
            timer,
            expires: Duration::from_millis(number(at::EXPIRES).into()),
            retransmits: header[at::RETRANSMITS],
            receive_queue: number(at::RECEIVE_QUEUE),
            send_queue: number(at::SEND_QUEUE),
            uid: number(at::UID),
            inode: (inode != 0).then_some(inode.into()),
        })
    }
}

impl SockDiag {
    /// Hands each socket in one of these states to `each`, IPv4 sockets first.
    ///
    /// No socket is kept and none is allocated, so that memory does not grow with their number.
    /// Half-open requests of listeners count as SYN-RECEIVED; handshakes in flight under SYN cookies
    /// have no socket and are not seen.
    pub fn connections(
        &mut self,
        states: &States,
        mut each: impl FnMut(&Connection),
    ) -> Result<(), SysError> {
        self.dump(&states.0, &ExtensionFlags::empty(), Ports::default(), |payload| {
            each(&Connection::read(payload)?);
            Ok(())
        })
    }

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

/// Time since the last packets of a connection, to a tick of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Since data was last sent, or the connection was opened (`tcpi_last_data_sent`).
    pub data_sent: Duration,
    /// Since data was last received (`tcpi_last_data_recv`). Very long where none ever was.
    pub data_received: Duration,
    /// Since an acknowledgment was last received (`tcpi_last_ack_recv`).
    pub ack_received: Duration,
}

impl Silence {
    /// Since data last came or went.
    pub fn of_data(self) -> Duration {
        self.data_sent.min(self.data_received)
    }

    /// Since the last packet came; from it on the kernel counts the time to its next keep-alive probe
    /// (`keepalive_time_elapsed()` of include/net/tcp.h).
    pub fn of_peer(self) -> Duration {
        self.data_received.min(self.ack_received)
    }

    /// From the attributes behind the header of a socket. None: the kernel sent no `tcp_info`.
    fn read(mut attributes: &[u8]) -> Option<Self> {
        /// `INET_DIAG_INFO` of `<linux/inet_diag.h>`.
        const INFO: u16 = 2;
        loop {
            let head = attributes.get(..4)?;
            let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
            let kind = u16::from_ne_bytes([head[2], head[3]]);
            let value = attributes.get(4..length)?;
            if kind == INFO {
                return Self::of_info(value);
            }
            attributes = attributes.get(length.next_multiple_of(4)..)?;
        }
    }

    /// From `struct tcp_info`, Linux `include/uapi/linux/tcp.h`: words 11, 13 and 14, in ms.
    fn of_info(info: &[u8]) -> Option<Self> {
        let ms = |at: usize| {
            let word: [u8; 4] = info.get(at..at + 4)?.try_into().ok()?;
            Some(Duration::from_millis(u32::from_ne_bytes(word).into()))
        };
        Some(Self { data_sent: ms(44)?, data_received: ms(52)?, ack_received: ms(56)? })
    }
}

impl SockDiag {
    /// Hands each established connection to `each` with its silence, IPv4 sockets first.
    ///
    /// None is kept. `tcp_info` makes each reply 280 bytes longer than those of
    /// [`connections`](Self::connections).
    pub fn silences(
        &mut self,
        each: impl FnMut(&Connection, Option<Silence>),
    ) -> Result<(), SysError> {
        self.silences_in(&StateFlags::ESTABLISHED, each)
    }

    /// As [`silences`](Self::silences), of connections that the peer has closed and this host has not (CLOSE-WAIT).
    pub fn unclosed(
        &mut self,
        each: impl FnMut(&Connection, Option<Silence>),
    ) -> Result<(), SysError> {
        self.silences_in(&StateFlags::CLOSE_WAIT, each)
    }

    fn silences_in(
        &mut self,
        states: &StateFlags,
        mut each: impl FnMut(&Connection, Option<Silence>),
    ) -> Result<(), SysError> {
        let wanted = ExtensionFlags::INFO;
        self.dump(states, &wanted, Ports::default(), |payload| {
            let connection = Connection::read(payload)?;
            each(&connection, Silence::read(payload.get(HEADER_BYTES..).unwrap_or_default()));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of `tests/captured/inet_diag-6.18.hex`, one socket a line behind its name.
    fn captured(name: &str) -> Vec<u8> {
        let text = include_str!("../tests/captured/inet_diag-6.18.hex");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let digits: Vec<u8> = line.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn a_captured_connection_with_keep_alive_is_read_as_ss_shows_it() {
        let read = Connection::read(&captured("keepalive:")).unwrap();
        assert_eq!((read.state, read.timer), (1, Some(Timer::KeepAlive)));
        assert_eq!((read.local, read.remote), (at("127.0.0.1:7001"), at("127.0.0.1:41000")));
        assert_eq!((read.receive_queue, read.send_queue), (5, 0));
        assert!(read.expires <= Duration::from_hours(2) && !read.expires.is_zero());
        assert!(read.inode.is_some());
    }

    #[test]
    fn captured_mapped_ipv4_is_ipv4_and_time_wait_has_no_inode() {
        let mapped = Connection::read(&captured("mapped:")).unwrap();
        assert_eq!((mapped.local, mapped.remote), (at("127.0.0.1:7002"), at("127.0.0.1:41001")));
        let waits = Connection::read(&captured("time-wait:")).unwrap();
        assert_eq!((waits.state, waits.timer, waits.inode), (6, Some(Timer::TimeWait), None));
        assert!(waits.expires <= Duration::from_mins(1) && !waits.expires.is_zero());
        let sixth = Connection::read(&captured("ipv6:")).unwrap();
        assert_eq!((sixth.local, sixth.remote), (at("[::1]:7003"), at("[::1]:41002")));
    }

    #[test]
    fn a_reply_that_is_cut_off_or_of_another_family_is_an_error() {
        let whole = captured("keepalive:");
        for length in 0..HEADER_BYTES {
            assert!(Connection::read(&whole[..length]).is_err(), "{length}");
        }
        let mut other = whole.clone();
        other[0] = 1;
        assert!(Connection::read(&other).is_err());
    }

    #[test]
    fn a_set_of_states_never_holds_a_listener() {
        assert_eq!(States::from_numbers(&[10, 0, 12, 40]).0, StateFlags::empty());
        assert_eq!(States::all().0.bits(), 0b1011_1111_1110);
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = 4 + value.len();
        let mut bytes = u16::try_from(length).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    fn info() -> Vec<u8> {
        let mut info = vec![0; 280];
        for (at, ms) in [(44, 1_000_u32), (52, 2_000), (56, 500)] {
            info[at..at + 4].copy_from_slice(&ms.to_ne_bytes());
        }
        info
    }

    #[test]
    fn the_times_stand_behind_other_attributes() {
        let all = [attribute(8, &[0]), attribute(2, &info())].concat();
        let silence = Silence::read(&all).unwrap();
        assert_eq!(silence.of_data(), Duration::from_secs(1));
        assert_eq!(silence.of_peer(), Duration::from_millis(500));
    }

    #[test]
    fn attributes_that_are_cut_off_or_have_no_length_end_the_search() {
        let whole = [attribute(8, &[0]), attribute(2, &info())].concat();
        for length in 0..whole.len() - 222 {
            assert_eq!(Silence::read(&whole[..length]), None, "{length}");
        }
        assert_eq!(Silence::read(&[0; 64]), None);
        assert_eq!(Silence::read(&attribute(2, &[0; 40])), None);
    }
}
