//! Connections that stay open, and what finds out that their peers are gone.
//!
//! A fleet is a group of processes ([`group`]), each of which keeps its share of the connections
//! (`keeper`) and checks them in one of several ways (`checks`), or writes over a single one
//! (`writer`). A process of its own because only a process can be stopped where it is, and because
//! the limit of open files is one process's.

mod checks;
pub mod group;
mod keeper;
mod opening;
mod writer;

use std::os::unix::net::UnixStream;

use tcptoll_kernel::{cpu, process};

use self::keeper::Keeper;
use self::writer::Writer;
use super::LoadError;
use crate::channel::{Channel, ChannelError};
use crate::messages::{IdleSpec, Make, Order, Request};

/// Environment variable of such a process: how far its host's clock is shifted, ns.
pub const CLOCK_SHIFT: &str = "TCPTOLL_CLOCK_SHIFT_NS";

/// The hidden sub-command that makes one process of a fleet of the re-executed binary.
pub const COMMAND: &str = "__idle";

/// A handshake is given up after this, ns.
const CONNECT_LIMIT_NS: u64 = 10_000_000_000;

/// Becomes one process of a fleet; gives its exit status when it ends.
pub fn run(stream: UnixStream) -> i32 {
    process::set_name("tcptoll-idle");
    let _ = process::ignore_stop_signals();
    let _ = cpu::exact_timers();
    let _ = cpu::file_limit();
    let mut channel = Channel::new(stream);
    let ended = serve(&mut channel);
    match ended {
        // The host has ended, or wants this to.
        Ok(()) | Err(LoadError::Channel(ChannelError::Closed)) => 0,
        Err(error) => {
            let _ = channel.refuse(error.to_string());
            1
        }
    }
}

fn serve(channel: &mut Channel) -> Result<(), LoadError> {
    match channel.receive::<Request<Make>>(None)? {
        Request::Order { name, body: Make(spec) } if name == Make::NAME => match spec {
            IdleSpec::Write { .. } => Writer::new(spec)?.serve(channel),
            spec => Keeper::new(spec, channel)?.serve(channel),
        },
        other => {
            Err(LoadError::Refused(format!("a process of a fleet must be made first: {other:?}")))
        }
    }
}
