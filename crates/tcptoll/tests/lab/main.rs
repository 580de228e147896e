//! Lab tests: each makes a lab of its own through the real binary, as a user would.
//!
//! Expected values follow from the configuration or from a second witness (kernel counters, the
//! wire, tcpdump). The link's tolerance is wide here, because a test must not need a quiet machine;
//! how exact a link is, `cargo xtask prove` says.
//!
//! `cargo xtask test` runs two of them at a time, as they wait most of the time. A test whose
//! expected values need a CPU that nobody else uses is in a module named `alone` of its file. Those
//! run before, one at a time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accept_queue;
mod configurations;
mod doctor;
mod doctor_examination;
mod documented;
mod endings;
mod exits;
mod first_fin;
mod hosts;
mod http;
mod http_closing;
mod http_faults;
mod http_first_fin;
mod http_shortage;
mod http_tls;
mod isolation;
mod keepalive;
mod keepalive_deaths;
mod keepalive_many;
mod known_servers;
mod machines;
mod messages;
mod messages_java;
mod names;
mod opening;
mod packets;
mod page;
mod privileges;
mod queues;
mod remote;
mod rounds;
mod serve;
mod servers;
mod settings;
mod sites;
mod stream;
mod stream_memory;
mod studies;
mod support;
mod syn_queue;
mod targets;
mod time_wait;
mod truth;
mod tune;
mod visitors;
mod watch_live;
mod watch_metrics;
mod watch_names;
mod watch_reading;
mod watch_record;
mod watch_screen;
mod watch_witness;
mod worker_pool;
