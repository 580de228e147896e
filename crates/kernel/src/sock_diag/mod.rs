//! What TCP sockets does this network namespace have, and in which state?
//!
//! The `sock_diag(7)` interface, as `ss` uses it: no text of `/proc/net/tcp` is parsed, and the
//! kernel filters by state and port. `TCP_INFO` is handed on as raw bytes; what they mean is
//! decoded in the model crate. One [`SockDiag`] is meant to be kept and asked again and again.

mod closed;
mod connections;
mod memory;
mod silence;

use std::net::SocketAddr;

use netlink_packet_core::{DecodeError, NLM_F_DUMP, Parseable};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage,
    inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags, nlas::Nla},
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

pub use self::closed::{Closed, End};
pub use self::connections::{Connection, States, Timer};
pub use self::memory::MemorySums;
pub use self::silence::Silence;
use crate::{error::SysError, netlink::Channel};

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
    fn dump(
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
struct Ports {
    local: u16,
    remote: u16,
}
