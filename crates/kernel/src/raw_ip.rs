//! How does one send whole IP packets, with addresses of one's own choice?
//!
//! [`RawIp`] sends packets whose headers the caller wrote, out of one interface and no other. It
//! receives nothing. What a packet says is written in the model crate (`packet::syn`); who may be
//! sent one is decided in the engine.

use std::io;
use std::net::{IpAddr, SocketAddr};

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
