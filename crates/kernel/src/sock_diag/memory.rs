//! What do the kernel's structures of established connections hold: memory and `TCP_INFO`?

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::Parseable;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetResponse, StateFlags, nlas::Nla};

use super::{End, Ports, SockDiag};
use crate::error::SysError;

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
