//! The kernel's edge: the only unsafe code of tcptoll (the library `tcp-heartbeat`, which stands
//! alone, has one call of its own).
//!
//! Each file wraps one part of the kernel and nothing more; what the answers mean is said in
//! `tcptoll-core`, what to do with them in `tcptoll-lab`. Every failure is a [`SysError`].
#![allow(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("tcptoll measures the TCP of the Linux kernel: build and run it on Linux");

pub mod clock;
pub mod cpu;
pub mod epoll;
pub mod error;
pub mod ethtool;
pub mod icmp;
pub mod keepalive;
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
pub mod timer;
pub mod tun;
pub mod unix_diag;

pub use error::SysError;
