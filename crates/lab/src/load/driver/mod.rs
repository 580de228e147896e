//! What a client loop needs of the kernel, so that one loop runs over epoll and over `io_uring`.
//!
//! A slot is one connection's place; the driver keeps its socket. What happened comes one by one
//! from [`Driver::next`]; received bytes stay readable in [`Driver::bytes`] until the next call.
//!
//! A new load states its [`Setup`], makes an [`Epoll`](super::epoll::Epoll) or a
//! [`Uring`](super::uring::Uring) on each of its threads, and repeats: begin what its
//! [`Pace`](super::pace::Pace) says, [`Driver::wait`], take every event. What a short
//! [`Driver::send`] has left over goes when [`What::Room`] comes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::LoadError;

/// What a driver opens, and how it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    /// To whom.
    pub(super) target: SocketAddr,
    /// Source addresses, taken in turn; none: the one that the kernel chooses.
    pub(super) bind: &'a [IpAddr],
    /// Congestion control, by the kernel's name.
    pub(super) congestion: Option<&'a str>,
    /// How many connections there can be concurrently.
    pub(super) slots: u32,
    /// What happens within this is handled together, ns; 0: immediately.
    pub(super) batch_ns: u64,
    /// Use the kernel's receive stamps, where it has them.
    pub(super) stamps: bool,
}

impl Setup<'_> {
    /// Connections with the kernel's own settings.
    pub(super) fn to(target: SocketAddr, slots: u32) -> Self {
        Self { target, bind: &[], congestion: None, slots, batch_ns: 0, stamps: false }
    }
}

/// Something that happened to a slot.
#[derive(Debug)]
pub(super) struct Event {
    /// Which slot.
    pub(super) slot: u32,
    /// What.
    pub(super) what: What,
}

/// What happened.
#[derive(Debug)]
pub(super) enum What {
    /// The handshake is decided. `at_ns`: when this was seen, `CLOCK_MONOTONIC`.
    Connected { outcome: io::Result<()>, at_ns: u64 },
    /// Bytes have come, they are in [`Driver::bytes`]; at least one. `at_ns`: when the last of them
    /// arrived, by the kernel's stamp where it has one, else when it was seen.
    Received { at_ns: u64 },
    /// The peer has closed; all bytes before have been given.
    Closed { at_ns: u64 },
    /// There is room for more bytes, after [`Driver::tell_of_room`].
    Room,
    /// The socket has failed.
    Failed(io::Error),
}

/// When a handshake or bytes were given to the kernel, `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Surely not before this.
    pub(super) earliest_ns: u64,
    /// Most likely then, and as a rule not before.
    pub(super) likely_ns: u64,
}

/// Sockets of one thread and what is waited with.
pub(super) trait Driver {
    /// Name in the record: `epoll`, `io_uring`.
    const NAME: &'static str;

    /// Begins a connection from source address number `source` in an empty slot.
    ///
    /// Errors: none was begun; the slot is still empty.
    fn open(&mut self, slot: u32, source: usize) -> io::Result<()>;

    /// Sends bytes; gives how many were taken, all or as many as there was room for.
    fn send(&mut self, slot: u32, bytes: &[u8]) -> io::Result<usize>;

    /// Tells by [`What::Room`] when there is room for more bytes, after a send was short.
    fn tell_of_room(&mut self, slot: u32);

    /// Closes the slot's socket. Nothing is reported of it any more; the slot is empty immediately.
    ///
    /// `made`: its handshake was completed, so [`Driver::closed_after_peer`] is to count it.
    fn close(&mut self, slot: u32, made: bool);

    /// How many of the connections closed so far the peer had ended before: its FIN, or its RST, had
    /// arrived when the socket was closed. Complete when all events after a [`Driver::wait`] have
    /// been taken.
    ///
    /// A FIN that crosses ours is not seen, nor is one that arrives between the look and the close;
    /// over `io_uring` the close comes at the end of the system call if a receive has to be
    /// cancelled first. Both together: up to 35 % of connections to servers that close by themselves.
    fn closed_after_peer(&self) -> u64;

    /// Waits until something has happened or `timeout` has passed.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), LoadError>;

    /// The next thing that happened, in order; `None`: wait again.
    fn next(&mut self) -> Option<Event>;

    /// When the handshake or the bytes last asked for in a slot were given to the kernel. None: with
    /// the call.
    fn left(&self, _slot: u32) -> Option<Left> {
        None
    }

    /// The bytes of the last [`What::Received`].
    fn bytes(&self) -> &[u8];

    /// `TCP_INFO` and congestion control of a slot; not to be had of a direct descriptor.
    fn look(&self, slot: u32) -> Option<(Vec<u8>, String)>;
}

#[cfg(test)]
mod tests;
