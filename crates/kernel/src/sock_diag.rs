//! What TCP sockets does this network namespace have, and in which state?
//!
//! The `sock_diag(7)` interface, as `ss` uses it: no text of `/proc/net/tcp` is parsed, and the
//! kernel filters by state and port. `TCP_INFO` is handed on as raw bytes; what they mean is
//! decoded in the model crate. One [`SockDiag`] is meant to be kept and asked again and again.

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{DecodeError, NLM_F_DUMP, Parseable};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage,
    inet::{
        ExtensionFlags, InetRequest, InetResponse, InetResponseHeader, SocketId, StateFlags,
        nlas::Nla,
    },
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::{error::SysError, netlink::Channel};

/// A socket in LISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenSocket {
    /// What it is bound to; `[::]` may serve IPv4 too.
    pub address: SocketAddr,
    /// Connections that wait for `accept(2)`; `ss` calls it Recv-Q.
    pub accept_queue_len: u32,
    /// The backlog after the clamp to `somaxconn`; `ss` calls it Send-Q. The queue holds one more.
    pub accept_queue_limit: u32,
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
        self.dump(&StateFlags::LISTEN, &ExtensionFlags::empty(), None, |payload| {
            let header = InetResponseHeader::parse(payload)?;
            listeners.push(ListenSocket {
                address: SocketAddr::new(
                    header.socket_id.source_address,
                    header.socket_id.source_port,
                ),
                accept_queue_len: header.recv_queue,
                accept_queue_limit: header.send_queue,
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
            self.dump(&states, &ExtensionFlags::empty(), local_port, |_| {
                count += 1;
                Ok(())
            })?;
        }
        Ok(count)
    }

    /// Local address, remote address and `TCP_INFO` of up to `limit` established connections.
    ///
    /// Addresses mapped into IPv6 are given as the IPv4 ones they stand for. The bytes are
    /// `struct tcp_info` as long as this kernel has it (280 on Linux 6.18).
    pub fn tcp_info(
        &mut self,
        limit: usize,
    ) -> Result<Vec<(SocketAddr, SocketAddr, Vec<u8>)>, SysError> {
        let mut connections = Vec::new();
        self.dump(&StateFlags::ESTABLISHED, &ExtensionFlags::INFO, None, |payload| {
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
    ///
    /// Source: `sk_get_meminfo()` in net/core/sock.c, read with Linux 6.18.
    pub fn socket_memory(&mut self, limit: u64) -> Result<(u64, Option<f64>), SysError> {
        let (mut count, mut looked_at, mut bytes) = (0_u64, 0_u64, 0_u64);
        let wanted = ExtensionFlags::SKMEMINFO;
        self.dump(&StateFlags::ESTABLISHED, &wanted, None, |payload| {
            count += 1;
            if looked_at < limit {
                let response = InetResponse::parse(payload)?;
                for nla in response.nlas {
                    if let Nla::MemInfo(memory) = nla {
                        looked_at += 1;
                        let held =
                            [memory.receive_queue, memory.send_queue, memory.cache, memory.options];
                        bytes += held.map(u64::from).iter().sum::<u64>();
                    }
                }
            }
            Ok(())
        })?;
        Ok((count, (looked_at > 0).then(|| bytes as f64 / looked_at as f64)))
    }

    /// Asks for both families; the kernel itself leaves out other states and other local ports.
    fn dump(
        &mut self,
        states: &StateFlags,
        extensions: &ExtensionFlags,
        local_port: Option<u16>,
        mut each: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), SysError> {
        for (family, any) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            let request = SockDiagMessage::InetRequest(InetRequest {
                family,
                protocol: IPPROTO_TCP,
                extensions: extensions.clone(),
                states: states.clone(),
                socket_id: SocketId { source_port: local_port.unwrap_or(0), ..any },
            });
            let on = if family == AF_INET { "TCP over IPv4" } else { "TCP over IPv6" };
            self.channel.exchange(NLM_F_DUMP, request, "SOCK_DIAG_BY_FAMILY", on, &mut each)?;
        }
        Ok(())
    }
}
