//! How do the IP packets of a namespace get into our hands, and back?
//!
//! A layer 3 TUN device: no Ethernet, so no ARP. Each packet carries the virtio header, which says
//! whether its checksum is still to be computed and whether it is a super-packet; a packet read
//! from one [`Tun`] is written unchanged into another, and both are this kernel, so nothing is ever
//! computed twice. Delay, rate and loss are not here, they are in the engine's link; its model is
//! in the core crate.
//!
//! To keep a device from handing over super-packets there are the three `ethtool` settings that matter to a
//! lab link, by ioctl ([`offloads_off`]).

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::SysError;

/// Bytes of the virtio header in front of each packet (`struct virtio_net_hdr_v1`).
pub const VNET_HEADER: usize = 12;

/// What the virtio header says about the packet behind it.
///
/// Source: `struct virtio_net_hdr`, `linux/virtio_net.h`; in the byte order of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// Bit 0 (`NEEDS_CSUM`): the checksum is still to be computed. Bit 1: it was checked.
    pub flags: u8,
    /// 0 for a plain packet, 1 for a TCP super-packet over IPv4, 4 over IPv6; 0x80 marks ECN.
    pub gso_type: u8,
    /// Bytes of IP and TCP header together; a hint.
    pub hdr_len: u16,
    /// Bytes of payload in each segment of a super-packet; 0 for a plain packet.
    pub gso_size: u16,
    /// Where checksumming starts, in bytes from the start of the packet.
    pub csum_start: u16,
    /// Where the checksum goes, in bytes from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Reads the first 10 bytes, which the 10-byte and the 12-byte header share.
    /// `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self {
            flags: *bytes.first()?,
            gso_type: *bytes.get(1)?,
            hdr_len: word(2)?,
            gso_size: word(4)?,
            csum_start: word(6)?,
            csum_offset: word(8)?,
        })
    }
}

/// A TUN device and the descriptor that is its other end. The device goes when this is dropped.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    /// The interface's name, as the kernel has it.
    pub name: String,
}

impl Tun {
    /// Makes the device `name` (`%d` in it is replaced by a number), down and without an address,
    /// in the network namespace of the calling thread.
    ///
    /// With `gso` TCP super-packets of up to 64 KiB come through whole; without it the kernel cuts
    /// them first, so that each packet is one packet on the wire. Checksums are left to be
    /// computed either way.
    ///
    /// Errors: `open` on `/dev/net/tun` with ENOENT or EACCES in containers that lack it, `TUNSETIFF`
    /// with EPERM without `CAP_NET_ADMIN` over the namespace, EBUSY if the name is taken.
    pub fn open(name: &str, gso: bool) -> Result<Self, SysError> {
        let device = "/dev/net/tun";
        let fd: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(device)
            .map_err(|source| SysError::new("open", device, source))?
            .into();

        let mut request =
            interface_request(name).map_err(|source| SysError::new("TUNSETIFF", name, source))?;
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one struct ifreq, which lives until the call returns.
        let code = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if code < 0 {
            return Err(SysError::last("TUNSETIFF", name));
        }

        let header_len: libc::c_int = 12;
        const { assert!(VNET_HEADER == 12) };
        // SAFETY: TUNSETVNETHDRSZ reads one int, which lives until the call returns.
        let code =
            unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header_len) };
        if code < 0 {
            return Err(SysError::last("TUNSETVNETHDRSZ", name));
        }

        let mut offloads = libc::TUN_F_CSUM; // the others are refused without it
        if gso {
            offloads |= libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        }
        // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
        let code = unsafe {
            libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
        };
        if code < 0 {
            return Err(SysError::last("TUNSETOFFLOAD", name));
        }

        let letters = request.ifr_name.iter().map(|&c| c.cast_unsigned());
        let name = letters.take_while(|&c| c != 0).collect::<Vec<u8>>();
        Ok(Self { fd, name: String::from_utf8_lossy(&name).into_owned() })
    }

    /// Reads one packet that the namespace sent: virtio header, then IP packet.
    ///
    /// `buffer` should hold [`VNET_HEADER`] + 65536 bytes; what does not fit is lost.
    /// `WouldBlock` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(&self.fd, buffer)?)
    }

    /// Hands one packet, with its virtio header, to the namespace as received.
    ///
    /// EIO while the interface is down, EINVAL if header and packet do not fit together.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(&self.fd, bytes)?)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `ETHTOOL_STSO`, `ETHTOOL_SGSO` and `ETHTOOL_SGRO` of `linux/ethtool.h`.
const SETTINGS: [(u32, &str); 3] = [(0x1f, "tso"), (0x24, "gso"), (0x2c, "gro")];

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

/// Turns segmentation offload (TSO and GSO) and GRO off on the interface called `name`, in the
/// network namespace of the calling thread.
///
/// Afterwards what leaves the device is at most MTU-sized; a veth's peer, an `AF_PACKET` socket
/// there and a [`Tap`](crate::packet_socket::Tap) on the device see it so. A qdisc still does not: Linux TCP
/// builds super-packets whatever is said here, and they are cut behind the qdisc (`tbf` as set by
/// [`Netlink::add_tbf`](crate::netlink::Netlink::add_tbf) cuts them itself).
///
/// Checksum offload stays on: an emulated link forwards the unfinished checksum in the virtio
/// header.
///
/// Errors: EPERM without `CAP_NET_ADMIN`; ENODEV; EOPNOTSUPP if the driver cannot.
pub fn offloads_off(name: &str) -> Result<(), SysError> {
    let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|errno| SysError::new("socket", "AF_INET", errno))?;
    for (cmd, what) in SETTINGS {
        set(&control, name, Value { cmd, data: 0 }).map_err(|source| {
            SysError::new("SIOCETHTOOL", format!("{name} ({what} off)"), source)
        })?;
    }
    Ok(())
}

fn set(control: &impl AsFd, name: &str, mut value: Value) -> io::Result<()> {
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads a struct ifreq whose ifr_data points to a struct ethtool_value;
    // both live until the call returns, and the set commands write nothing beyond them.
    let code = unsafe {
        libc::ioctl(control.as_fd().as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request)
    };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A `struct ifreq` that names an interface; `InvalidInput` if the name is longer than 15 bytes, or
/// holds a zero byte.
pub(crate) fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: struct ifreq is plain C data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an interface name has at most 15 bytes",
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_field_by_field_and_a_cut_one_is_none() {
        let mut bytes = vec![1, 4];
        for word in [72_u16, 1440, 40, 16, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        let expected = VnetHeader {
            flags: 1,
            gso_type: 4,
            hdr_len: 72,
            gso_size: 1440,
            csum_start: 40,
            csum_offset: 16,
        };
        assert_eq!(bytes.len(), VNET_HEADER);
        assert_eq!(VnetHeader::parse(&bytes), Some(expected));
        assert_eq!(VnetHeader::parse(&bytes[..10]), Some(expected));
        for len in 0..10 {
            assert_eq!(VnetHeader::parse(&bytes[..len]), None);
        }
    }
}
