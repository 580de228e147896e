//! How does one keep a device from handing over super-packets?
//!
//! The three `ethtool` settings that matter to a lab link, by ioctl, nothing else of ethtool.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::SysError;

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
