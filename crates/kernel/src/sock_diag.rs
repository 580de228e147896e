//! What TCP sockets does this network namespace have, and in which state?
//!
//! The `sock_diag(7)` interface, as `ss` uses it: no text of `/proc/net/tcp` is parsed, and the
//! kernel filters by state and port. `TCP_INFO` is handed on as raw bytes; what they mean is
//! decoded in the core crate. One [`SockDiag`] is meant to be kept and asked again and again.
//!
//! It also says which sockets have closed their connection, or are closing it, and what the memory of
//! established connections is.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netlink_packet_core::{DecodeError, NLM_F_DUMP, Parseable};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::SysError;
use crate::netlink::Channel;

/// A socket in LISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenSocket {
    /// What it is bound to; `[::]` may serve IPv4 too.
    pub address: SocketAddr,
    /// Inode of the socket, as `/proc/PID/fd` shows it; a listener that is made anew has another.
    pub inode: u64,
    /// Effective user id of the process that made the socket, as this user namespace maps it.
    pub uid: u32,
    /// Connections that wait for `accept(2)`; `ss` calls it Recv-Q.
    pub accept_queue_len: u32,
    /// The backlog after the clamp to `somaxconn`; `ss` calls it Send-Q. The queue holds one more.
    pub accept_queue_limit: u32,
    /// SYNs and ACKs that the kernel has dropped at this listener since it was made (`sk_drops`, modulo
    /// 2^32). None: the kernel does not report it.
    ///
    /// It holds the listener's own share of `TcpExtListenDrops`: both rise in `tcp_listendrop()` of
    /// include/net/tcp.h. Whatever of a half-open request opens nothing counts here once more, in
    /// `tcp_v4_rcv()`: so a last ACK that meets a full accept queue counts twice, and a RST that ends a
    /// request once. Seen on Linux 6.18: `SK_MEMINFO_DROPS`, the ninth word of `INET_DIAG_SKMEMINFO`
    /// (since Linux 4.7).
    pub drops: Option<u32>,
}

/// A `NETLINK_SOCK_DIAG` socket of the network namespace that the calling thread was in at
/// [`open`](Self::open).
///
/// Cost: of each question O(sockets in the namespace) in the kernel, which walks its whole hash
/// table, and O(matching sockets) here.
///
/// Errors: ENOENT if the kernel was built without `CONFIG_INET_DIAG`. A dump is not a snapshot:
/// a socket that changes state meanwhile may be missed or seen.
#[derive(Debug)]
pub struct SockDiag {
    channel: Channel,
}

impl SockDiag {
    /// Opens the socket; no privilege is needed.
    pub fn open() -> Result<Self, SysError> {
        Ok(Self { channel: Channel::open(NETLINK_SOCK_DIAG, "NETLINK_SOCK_DIAG")? })
    }

    /// Every TCP listener, IPv4 first, in the kernel's order.
    pub fn listeners(&mut self) -> Result<Vec<ListenSocket>, SysError> {
        let mut listeners = Vec::new();
        let wanted = ExtensionFlags::SKMEMINFO;
        self.dump(&StateFlags::LISTEN, &wanted, Ports::default(), |payload| {
            let InetResponse { header, nlas } = InetResponse::parse(payload)?;
            let drops = nlas.into_iter().find_map(|nla| match nla {
                Nla::MemInfo(memory) => Some(memory.drops),
                _ => None,
            });
            listeners.push(ListenSocket {
                address: SocketAddr::new(
                    header.socket_id.source_address,
                    header.socket_id.source_port,
                ),
                inode: header.inode.into(),
                uid: header.uid,
                accept_queue_len: header.recv_queue,
                accept_queue_limit: header.send_queue,
                drops,
            });
            Ok(())
        })?;
        Ok(listeners)
    }

    /// How many TCP sockets are in `state` (the number of `include/net/tcp_states.h`: 1
    /// ESTABLISHED, 2 SYN-SENT, 3 SYN-RECEIVED, 6 TIME-WAIT …), on one local port or on all.
    ///
    /// Half-open requests of a listener count as SYN-RECEIVED; handshakes in flight under SYN
    /// cookies have no socket and are not seen. 0 for a state that does not exist.
    pub fn count_in_state(&mut self, state: u8, local_port: Option<u16>) -> Result<u64, SysError> {
        let states =
            StateFlags::from_bits_truncate(1_u32.checked_shl(state.into()).unwrap_or_default());
        let mut count = 0;
        if !states.is_empty() {
            let ports = Ports { local: local_port.unwrap_or(0), remote: 0 };
            self.dump(&states, &ExtensionFlags::empty(), ports, |_| {
                count += 1;
                Ok(())
            })?;
        }
        Ok(count)
    }

    /// Asks for both families; the kernel itself leaves out other states and other ports.
    pub(crate) fn dump(
        &mut self,
        states: &StateFlags,
        extensions: &ExtensionFlags,
        ports: Ports,
        mut each: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), SysError> {
        for (family, any) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            let request = SockDiagMessage::InetRequest(InetRequest {
                family,
                protocol: IPPROTO_TCP,
                extensions: extensions.clone(),
                states: states.clone(),
                socket_id: SocketId {
                    source_port: ports.local,
                    destination_port: ports.remote,
                    ..any
                },
            });
            let on = if family == AF_INET { "TCP over IPv4" } else { "TCP over IPv6" };
            self.channel.exchange(NLM_F_DUMP, request, "SOCK_DIAG_BY_FAMILY", on, &mut each)?;
        }
        Ok(())
    }
}

/// Ports of the sockets that are asked for; 0: any.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ports {
    pub(crate) local: u16,
    pub(crate) remote: u16,
}

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

/// Memory of several sockets together, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySums {
    /// Sockets that the kernel reported it of.
    pub sockets: u64,
    /// Data that has been received and not read, with its overhead (`sk_rmem_alloc`).
    pub received: u64,
    /// Data that has been written and not acknowledged, with its overhead (`sk_wmem_queued`).
    pub queued: u64,
    /// Memory that is charged to a socket and not in use (`sk_forward_alloc`), whole pages.
    pub reserved: u64,
    /// Options and filters (`sk_omem_alloc`).
    pub options: u64,
    /// What received data may grow to (`sk_rcvbuf`).
    pub receive_limit: u64,
    /// What queued data may grow to (`sk_sndbuf`).
    pub send_limit: u64,
}

impl MemorySums {
    /// All that the sockets hold. The kernel counts the first three in the machine's TCP memory
    /// (`mem` of `/proc/net/sockstat`).
    pub fn held(&self) -> u64 {
        self.received + self.queued + self.reserved + self.options
    }
}

impl SockDiag {
    /// Local address, remote address and `TCP_INFO` of up to `limit` established connections.
    ///
    /// Addresses mapped into IPv6 are given as the IPv4 ones they stand for. The bytes are
    /// `struct tcp_info` as long as this kernel has it (280 on Linux 6.18).
    pub fn tcp_info(
        &mut self,
        limit: usize,
    ) -> Result<Vec<(SocketAddr, SocketAddr, Vec<u8>)>, SysError> {
        let mut connections = Vec::new();
        let (states, wanted) = (StateFlags::ESTABLISHED, ExtensionFlags::INFO);
        self.dump(&states, &wanted, Ports::default(), |payload| {
            if connections.len() >= limit {
                return Ok(()); // the rest of the dump must be read, but not decoded
            }
            let response = InetResponse::parse(payload)?;
            let info = response.nlas.into_iter().find_map(|nla| match nla {
                Nla::TcpInfo(bytes) => Some(bytes),
                _ => None,
            });
            if let Some(info) = info {
                let id = response.header.socket_id;
                let end = |ip: IpAddr, port| SocketAddr::new(ip.to_canonical(), port);
                connections.push((
                    end(id.source_address, id.source_port),
                    end(id.destination_address, id.destination_port),
                    info,
                ));
            }
            Ok(())
        })?;
        Ok(connections)
    }

    /// How many established connections there are, and the mean memory of the first `limit` of
    /// them, bytes: buffers, what is queued in them and what is reserved for them. The socket's own
    /// structure is not in it.
    pub fn socket_memory(&mut self, limit: u64) -> Result<(u64, Option<f64>), SysError> {
        let (count, sums) = self.memory_of(Ports::default(), limit)?;
        Ok((count, (sums.sockets > 0).then(|| sums.held() as f64 / sums.sockets as f64)))
    }

    /// The memory of all established connections of which this port is at that end, together. The
    /// sockets' own structures are not in it.
    pub fn memory_at_port(&mut self, end: End, port: u16) -> Result<MemorySums, SysError> {
        let ports = match end {
            End::Local => Ports { local: port, remote: 0 },
            End::Remote => Ports { local: 0, remote: port },
        };
        self.memory_of(ports, u64::MAX).map(|(_, sums)| sums)
    }

    /// How many established connections there are, and the memory of the first `limit` of them.
    ///
    /// Source: `sk_get_meminfo()` in net/core/sock.c, read with Linux 6.18.
    fn memory_of(&mut self, ports: Ports, limit: u64) -> Result<(u64, MemorySums), SysError> {
        let (mut count, mut sums) = (0_u64, MemorySums::default());
        let wanted = ExtensionFlags::SKMEMINFO;
        self.dump(&StateFlags::ESTABLISHED, &wanted, ports, |payload| {
            count += 1;
            if sums.sockets >= limit {
                return Ok(()); // the rest of the dump must be read, but not decoded
            }
            for nla in InetResponse::parse(payload)?.nlas {
                if let Nla::MemInfo(memory) = nla {
                    sums.sockets += 1;
                    sums.received += u64::from(memory.receive_queue);
                    sums.queued += u64::from(memory.send_queue);
                    sums.reserved += u64::from(memory.cache);
                    sums.options += u64::from(memory.options);
                    sums.receive_limit += u64::from(memory.receive_queue_max);
                    sums.send_limit += u64::from(memory.send_queue_max);
                }
            }
            Ok(())
        })?;
        Ok((count, sums))
    }
}
