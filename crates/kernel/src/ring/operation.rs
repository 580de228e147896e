//! What a ring is asked for and what it answers.

use std::io;

/// How large a ring is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Operations queued before they have to go to the kernel; at least 16.
    pub entries: u32,
    /// Completions before the kernel has to keep them elsewhere; a power of two.
    pub completions: u32,
    /// Sockets of the table; at most [`max_direct`](super::max_direct).
    pub direct: u32,
    /// Buffers to receive into, shared by all connections; a power of two, at most 32,768.
    pub buffers: u16,
    /// Size of each, bytes; at least 256.
    pub buffer_bytes: u32,
    /// Ask for the kernel's receive stamps.
    pub stamps: bool,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// A socket; of this, options and bind only failures are told, and the connect is not.
    Socket,
    /// A socket option.
    Option,
    /// The source address.
    Bind,
    /// The handshake.
    Connect,
    /// A send that was to be told of, or one that failed.
    Send,
    /// A receive; the bytes are in [`Ring::received`](super::Ring::received).
    Receive,
    /// A close that failed.
    Close,
    /// A cancellation that found nothing.
    Cancel,
    /// A look at whether the peer has closed.
    Peek,
    /// A short send that was not complete; the ring sees to it.
    Short,
}

impl Operation {
    const ALL: [Self; 10] = [
        Self::Socket,
        Self::Option,
        Self::Bind,
        Self::Connect,
        Self::Send,
        Self::Receive,
        Self::Close,
        Self::Cancel,
        Self::Peek,
        Self::Short,
    ];

    /// The number that comes back with the completion.
    pub(super) fn tag(self, direct: u32, extra: u32) -> u64 {
        u64::from(direct) | (self as u64) << 32 | u64::from(extra) << 40
    }
}

/// What became of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Place of the socket in the table.
    pub direct: u32,
    /// What was asked for.
    pub operation: Operation,
    /// Bytes sent or received, else 0. Of a peek 0: the peer's FIN has arrived and all bytes before
    /// it have been received; 1 or `EAGAIN`: not so.
    pub result: io::Result<u32>,
    /// The receive goes on.
    pub more: bool,
    /// The kernel's receive stamp, ns on `CLOCK_REALTIME`; 0: none.
    pub stamp_ns: u64,
}

/// What a send took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// So many bytes were copied and will be sent.
    pub bytes: usize,
    /// [`Operation::Send`] will be told; otherwise the send is decided when the next wait returns,
    /// and only its failure is told.
    pub told: bool,
}

/// How long a receive stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Once; `waiting`: nothing can have arrived yet.
    Once {
        /// Do not try before there is something.
        waiting: bool,
    },
    /// Until it fails, the peer closes or buffers run out.
    Ended,
}

/// What a completion's number says was asked for.
pub(super) fn operation(tag: u64) -> Operation {
    Operation::ALL.get((tag >> 32 & 0xff) as usize).copied().unwrap_or(Operation::Cancel)
}
