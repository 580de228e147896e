//! What is true without a machine: no clock, socket, file or environment is touched here.
//!
//! Captured bytes and text come in, values go out. Read [`link`] for what joins two hosts,
//! [`packet`] for what the wire says, [`counters`] and [`tcp_info`] for what the kernel says,
//! [`stats`] for what the numbers allow one to say, and [`record`] for what is kept.
//!
//! A release is built without optimising this crate, most of which runs once a second. What runs once a
//! packet or once a request is `#[inline]`: it is compiled with the caller, and as well as the caller.

pub mod answer;
pub mod arrivals;
pub mod bound;
pub mod causes;
pub mod checked_study;
pub mod checking;
pub mod clock_offset;
pub mod compare;
pub mod consolidate;
pub mod counters;
pub mod diagnosis;
pub mod doctor;
pub mod drops;
pub mod effective;
pub mod experiments;
pub mod half_open;
pub mod handshake;
pub mod http;
pub mod lab_network;
pub mod ladder;
pub mod link;
pub mod link_model;
pub mod merge;
pub mod order;
pub mod packet;
pub mod page;
pub mod pairs;
pub mod points;
pub mod pool;
pub mod port_cliff;
pub mod ports;
pub mod printable;
pub mod record;
pub mod saturation;
pub mod schema;
pub mod share;
pub mod shell;
pub mod stats;
pub mod stop;
pub mod stuck;
pub mod study;
pub mod tcp_info;
pub mod throughput;
pub mod tune;
pub mod units;
pub mod validity;
pub mod wakeups;
pub mod warning;
pub mod watch;
pub mod wire;
