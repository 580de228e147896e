//! TCP as the kernel and the wire show it: counters, sockets, packets, and the arithmetic over them.

pub mod checking;
pub mod counters;
pub mod drops;
pub mod handshake;
pub mod packet;
pub mod port_cliff;
pub mod ports;
pub mod tcp_info;
pub mod throughput;
pub mod wire;
