//! What the kernel really does with our requests, in throwaway network namespaces.
//!
//! Each test makes its own [`Host`](hosts::Host)s; nothing in the machine's own namespace is
//! touched. Without privilege a test prints `SKIPPED (lab): reason`; `LAB=required` makes that fail.
#![allow(clippy::unwrap_used)] // the helpers of tests are tests

mod hosts;
mod joining;
mod netlink;
mod packet_socket;
mod raw_ip;
mod ring;
mod sock_diag;
mod tun;
