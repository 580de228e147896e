//! The kernel's edge: the only unsafe code of tcptoll (the library `tcp-heartbeat`, which stands
//! alone, has one call of its own).
//!
//! Each file wraps one part of the kernel and nothing more; what the answers mean is said in
//! `tcptoll-core`, what to do with them in `tcptoll-lab`. Every failure is a [`SysError`].
#![allow(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("tcptoll measures the TCP of the Linux kernel: build and run it on Linux");

pub mod clock;
pub mod connections;
pub mod cpu;
pub mod epoll;
pub mod namespace;
pub mod netlink;
pub mod packet_socket;
pub mod process;
pub mod raw_ip;
pub mod ring;
pub mod root;
pub mod slab;
pub mod sock_diag;
pub mod socket;
pub mod standard_output;
pub mod terminal;
pub mod tun;
pub mod unix_diag;

use std::fmt;
use std::io;

/// One error for every failed kernel operation: what, on what, why, and the way out if we know it.
#[derive(Debug)]
pub struct SysError {
    /// The system call or request, as in its man page: `connect`, `setns`, `TUNSETIFF`.
    pub op: &'static str,
    /// What it was applied to: an address, a namespace, an interface.
    pub on: String,
    /// What the kernel answered.
    pub source: io::Error,
}

impl SysError {
    /// Names a failed operation.
    pub fn new(op: &'static str, on: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { op, on: on.into(), source: source.into() }
    }

    /// Names the operation that failed just now on this thread.
    pub fn last(op: &'static str, on: impl Into<String>) -> Self {
        Self::new(op, on, io::Error::last_os_error())
    }

    /// Checks the return value of a system call that says -1 for failure.
    pub(crate) fn check(
        returned: libc::c_int,
        op: &'static str,
        on: &str,
    ) -> Result<libc::c_int, Self> {
        if returned == -1 { Err(Self::last(op, on)) } else { Ok(returned) }
    }

    /// The kernel's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// One sentence a user can act on, or `None` if we have nothing true to say.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match (self.op, self.source.raw_os_error()) {
            ("connect", Some(libc::EADDRNOTAVAIL)) => Some(
                "no free local port: widen net.ipv4.ip_local_port_range or add --bind addresses",
            ),
            ("socket", Some(libc::EMFILE)) => Some("raise the limit of open files: ulimit -n"),
            ("open", Some(libc::EACCES)) if self.on.starts_with("network namespace") => Some(
                "only root and the user who runs that process may read it: use sudo, or run as that user",
            ),
            ("open", Some(libc::ENOENT)) if self.on.starts_with("network namespace") => {
                Some("there is no such process or file")
            }
            ("setns", Some(libc::EPERM)) => Some(
                "only root and the user who made the namespace may join it: use sudo, or run as that user",
            ),
            ("setns", Some(libc::EINVAL)) => Some("the file is not a network namespace"),
            ("open", Some(libc::EACCES)) => Some("the file's permissions do not allow it"),
            _ => None,
        }
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}", self.op, self.on, self.source)?;
        self.hint().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

impl std::error::Error for SysError {}
