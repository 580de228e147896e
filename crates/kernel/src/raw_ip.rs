//! How does one send whole IP packets, with addresses of one's own choice?
//!
//! [`RawIp`] sends packets whose headers the caller wrote, out of one interface and no other. It
//! receives nothing. What a packet says is written in the core crate (`tcp::packet`); who may be
//! sent one is decided in the engine.
//!
//! [`Echo`] is ICMP echo over a raw socket, which the root of a namespace of its own may open.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::SysError;

/// A raw socket that is bound to one interface and sends to one address.
#[derive(Debug)]
pub struct RawIp {
    socket: Socket,
    to: SockAddr,
}

impl RawIp {
    /// Opens the socket in the calling thread's network namespace; packets leave through `device`
    /// alone.
    ///
    /// Errors: EPERM without `CAP_NET_RAW` over the namespace, ENODEV if it has no such device.
    pub fn open(device: &str, to: IpAddr) -> Result<Self, SysError> {
        let on = || format!("raw IP socket of {device}");
        // Of this protocol the kernel never hands packets up, and takes headers as they are.
        let raw = Protocol::from(libc::IPPROTO_RAW);
        let domain = if to.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::RAW, Some(raw))
            .map_err(|error| SysError::new("socket", on(), error))?;
        if to.is_ipv4() {
            socket
                .set_header_included_v4(true)
                .map_err(|error| SysError::new("IP_HDRINCL", on(), error))?;
        } else {
            socket
                .set_header_included_v6(true)
                .map_err(|error| SysError::new("IPV6_HDRINCL", on(), error))?;
        }
        socket
            .bind_device(Some(device.as_bytes()))
            .map_err(|error| SysError::new("SO_BINDTODEVICE", on(), error))?;
        socket.set_nonblocking(true).map_err(|error| SysError::new("fcntl", on(), error))?;
        Ok(Self { socket, to: SocketAddr::new(to, 0).into() })
    }

    /// Sends one packet, from its IP header on.
    ///
    /// Errors: `WouldBlock` or ENOBUFS if the device's queue is full, ENETUNREACH if no route to the
    /// address leads through the device, EMSGSIZE above its MTU.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.socket.send_to(packet, &self.to).map(drop)
    }
}

/// The names of the interfaces of the calling thread's network namespace that are up.
pub fn devices_up() -> Result<Vec<String>, SysError> {
    let mut names: Vec<String> = nix::ifaddrs::getifaddrs()
        .map_err(|errno| SysError::new("getifaddrs", "interfaces", errno))?
        .filter(|interface| interface.flags.contains(nix::net::if_::InterfaceFlags::IFF_UP))
        .map(|interface| interface.interface_name)
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Sends echo requests to one address and recognises the answers.
#[derive(Debug)]
pub struct Echo {
    socket: Socket,
    target: SocketAddr,
    id: u16,
}

impl Echo {
    /// Opens a raw ICMP socket, which takes the root of the network namespace.
    pub fn open(target: IpAddr, id: u16) -> Result<Self, SysError> {
        let (domain, protocol) = match target {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))
            .map_err(|e| SysError::new("socket", "raw ICMP", e))?;
        socket.set_nonblocking(true).map_err(|e| SysError::new("fcntl", "raw ICMP", e))?;
        let _ = socket.set_recv_buffer_size(4 << 20);
        Ok(Self { socket, target: SocketAddr::new(target, 0), id })
    }

    /// Sends request number `sequence`.
    pub fn send(&self, sequence: u16) -> io::Result<()> {
        let mut packet = [0_u8; 64];
        packet[0] = if self.target.is_ipv4() { 8 } else { 128 };
        packet[4..6].copy_from_slice(&self.id.to_be_bytes());
        packet[6..8].copy_from_slice(&sequence.to_be_bytes());
        if self.target.is_ipv4() {
            // ICMPv6's checksum is made by the kernel, ICMP's is ours (RFC 792).
            let sum: u32 = packet
                .chunks_exact(2)
                .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
                .sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            packet[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        }
        self.socket.send_to(&packet, &self.target.into()).map(drop)
    }

    /// The sequence number of the next answer to us that has arrived; `None` when none is left.
    pub fn receive(&self) -> io::Result<Option<u16>> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 256];
        loop {
            let length = match self.socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            };
            // SAFETY: recv filled the first `length` bytes.
            let bytes = unsafe { &*(std::ptr::from_ref(&buffer[..length]) as *const [u8]) };
            let (start, reply) = if self.target.is_ipv4() {
                (usize::from(bytes.first().map_or(0, |b| b & 15)) * 4, 0)
            } else {
                (0, 129)
            };
            if let Some(&[kind, _, _, _, id0, id1, s0, s1]) = bytes.get(start..start + 8)
                && kind == reply
                && u16::from_be_bytes([id0, id1]) == self.id
            {
                return Ok(Some(u16::from_be_bytes([s0, s1])));
            }
        }
    }
}

impl AsFd for Echo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
