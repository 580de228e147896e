//! TCP as the kernel and the wire show it: counters, sockets, packets, and the arithmetic over them.

pub mod checking;
pub mod counters;
pub mod handshake;
pub mod packet;
pub mod ports;
pub mod syn;
pub mod tcp_info;
pub mod wire;
