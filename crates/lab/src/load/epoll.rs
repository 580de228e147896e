//! A client loop's sockets over epoll: edges, one registration a connection, one system call to
//! receive and one to send.
//!
//! See [`Driver`]. A loop without a thread of its own also waits for its control channel here
//! ([`Epoll::heed`]), and one that needs a socket itself gets at it ([`Epoll::socket`]).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use tcptoll_kernel::epoll::{Event as Edge, Interest, Poller};
use tcptoll_kernel::socket::{Address, Begun, Tcp};

use super::LoadError;
use super::control::CHANNEL;
use super::driver::{Driver, Event, Setup, Sources, Stamps, What};
use crate::clock::monotonic_ns;

/// Events taken together.
const EVENTS: usize = 1024;

/// What one receive takes at most, bytes.
const BUFFER: usize = 128 << 10;

/// A connection's socket.
#[derive(Debug, Default)]
struct ConnectionSocket {
    socket: Option<Tcp>,
    /// Counts the connections of the slot, so that an event of an earlier one is told apart.
    generation: u32,
    connecting: bool,
    wants_room: bool,
    /// The peer has closed, or the connection has failed.
    ended: bool,
}

/// See [`Driver`].
#[derive(Debug)]
pub(super) struct Epoll {
    poller: Poller,
    target: SocketAddr,
    /// The form that `connect(2)` takes, made once instead of once per connection.
    address: Address,
    sources: Sources,
    places: Vec<ConnectionSocket>,
    /// What is known without an event.
    known: VecDeque<Event>,
    /// Whether the control channel had something to read.
    asked: bool,
    /// Edges of the last wait, and the one being looked at.
    edges: usize,
    at: usize,
    /// When they were seen.
    seen_ns: u64,
    buffer: Vec<u8>,
    received: usize,
    batch: Duration,
    stamps: Stamps,
    closed_after_peer: u64,
}

impl Epoll {
    /// No connection yet.
    pub(super) fn new(setup: &Setup<'_>) -> Result<Self, LoadError> {
        Ok(Self {
            poller: Poller::new(EVENTS)?,
            target: setup.target,
            address: setup.target.into(),
            sources: Sources::new(setup.bind, setup.congestion, false),
            places: (0..setup.slots).map(|_| ConnectionSocket::default()).collect(),
            known: VecDeque::new(),
            asked: false,
            edges: 0,
            at: 0,
            seen_ns: 0,
            buffer: vec![0; BUFFER],
            received: 0,
            batch: Duration::from_nanos(setup.batch_ns),
            stamps: Stamps::new(setup.stamps),
            closed_after_peer: 0,
        })
    }

    /// Has a wait also end when this channel can be read; [`Epoll::is_asked`] tells.
    pub(super) fn heed(&self, channel: impl AsFd) -> Result<(), LoadError> {
        Ok(self.poller.add(channel, CHANNEL, Interest::READ)?)
    }

    /// Whether the channel could be read; true once. Known when all events after a wait have been
    /// taken.
    pub(super) fn is_asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// The socket of a slot; None: the slot is empty.
    pub(super) fn socket(&self, slot: u32) -> Option<&Tcp> {
        self.places.get(slot as usize)?.socket.as_ref()
    }

    /// Hands over the socket of a slot, which is empty then.
    pub(super) fn take(&mut self, slot: u32) -> Option<Tcp> {
        let place = self.places.get_mut(slot as usize)?;
        place.generation = place.generation.wrapping_add(1);
        place.socket.take()
    }

    /// What an edge means; `None`: nothing, or nothing more.
    fn look_at(&mut self, slot: u32, edge: Edge) -> Option<What> {
        let place = &mut self.places[slot as usize];
        let socket = place.socket.as_ref()?;
        if place.connecting {
            if !edge.writable && !edge.broken {
                self.at += 1;
                return None;
            }
            place.connecting = false;
            let outcome = match socket.take_error() {
                Ok(None) => Ok(()),
                Ok(Some(error)) | Err(error) => Err(error),
            };
            if !edge.readable || outcome.is_err() {
                self.at += 1;
            }
            return Some(What::Connected { outcome, at_ns: self.seen_ns });
        }
        if !edge.readable {
            self.at += 1;
            if edge.broken {
                let error = socket.take_error().ok().flatten();
                return Some(What::Failed(error.unwrap_or(io::ErrorKind::ConnectionReset.into())));
            }
            if edge.finished {
                return Some(What::Closed { at_ns: self.seen_ns });
            }
            if edge.writable && std::mem::take(&mut place.wants_room) {
                return Some(What::Room);
            }
            return None;
        }
        let read = if self.stamps.are_used() {
            socket.read_stamped(&mut self.buffer)
        } else {
            socket.read(&mut self.buffer).map(|read| read.map(|length| (length, 0)))
        };
        match read {
            Ok(Some((0, _))) => {
                self.at += 1;
                Some(What::Closed { at_ns: self.seen_ns })
            }
            Ok(Some((length, stamp_ns))) => {
                self.received = length;
                // A short read has emptied the socket; a full one may not have.
                if length < self.buffer.len() {
                    self.at += 1;
                    // No other edge will tell of room that this one tells of.
                    if edge.writable && !edge.broken && std::mem::take(&mut place.wants_room) {
                        self.known.push_back(Event { slot, what: What::Room });
                    }
                    if edge.finished && !edge.broken {
                        let closed = What::Closed { at_ns: self.seen_ns };
                        self.known.push_back(Event { slot, what: closed });
                        place.ended = true;
                    } else if edge.broken {
                        // Of a reset after data the next receive tells.
                        self.at -= 1;
                    }
                }
                Some(What::Received { at_ns: self.stamps.arrived_ns(stamp_ns, monotonic_ns()) })
            }
            Ok(None) => {
                self.at += 1;
                if std::mem::take(&mut self.places[slot as usize].wants_room) {
                    return Some(What::Room);
                }
                None
            }
            Err(error) => {
                self.at += 1;
                Some(What::Failed(error))
            }
        }
    }
}

impl Driver for Epoll {
    const NAME: &'static str = "epoll";

    fn open(&mut self, slot: u32, source: usize) -> io::Result<()> {
        let socket = Tcp::client(self.target, self.sources.options(source as u64))?;
        if self.stamps.are_used() {
            // Without it latency is as exact as the loop is prompt.
            let _ = socket.stamp_arrivals();
        }
        let begun = socket.connect(&self.address)?;
        let place = &mut self.places[slot as usize];
        let token = u64::from(slot) | u64::from(place.generation) << 32;
        self.poller.add(&socket, token, Interest::STREAM).map_err(|error| error.source)?;
        place.socket = Some(socket);
        place.connecting = begun == Begun::InProgress;
        place.wants_room = false;
        place.ended = false;
        if begun == Begun::Done {
            let what = What::Connected { outcome: Ok(()), at_ns: monotonic_ns() };
            self.known.push_back(Event { slot, what });
        }
        Ok(())
    }

    fn send(&mut self, slot: u32, bytes: &[u8]) -> io::Result<usize> {
        let Some(socket) = &self.places[slot as usize].socket else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        socket.write(bytes).map(|written| written.unwrap_or(0))
    }

    fn tell_of_room(&mut self, slot: u32) {
        self.places[slot as usize].wants_room = true;
    }

    fn close(&mut self, slot: u32, made: bool) {
        let place = &mut self.places[slot as usize];
        let socket = place.socket.take();
        // Who has heard of the peer's end already need not ask.
        if made && (place.ended || socket.is_some_and(|socket| socket.peer_has_closed())) {
            self.closed_after_peer += 1;
        }
        place.generation = place.generation.wrapping_add(1);
        self.known.retain(|event| event.slot != slot);
    }

    fn closed_after_peer(&self) -> u64 {
        self.closed_after_peer
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), LoadError> {
        let mut timeout = timeout;
        if !self.batch.is_zero() && timeout != Some(Duration::ZERO) && self.known.is_empty() {
            let pause = timeout.map_or(self.batch, |timeout| timeout.min(self.batch));
            std::thread::sleep(pause);
            timeout = timeout.map(|timeout| timeout.saturating_sub(pause));
        }
        if !self.known.is_empty() {
            timeout = Some(Duration::ZERO);
        }
        self.edges = self.poller.wait_count(timeout)?;
        self.at = 0;
        self.seen_ns = monotonic_ns();
        self.stamps.compare(self.seen_ns);
        Ok(())
    }

    fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.known.pop_front() {
            return Some(event);
        }
        while self.at < self.edges {
            let edge = self.poller.event(self.at);
            if edge.token == CHANNEL {
                self.asked = true;
                self.at += 1;
                continue;
            }
            let (slot, generation) = (edge.token as u32, (edge.token >> 32) as u32);
            let known = self.places.get(slot as usize);
            if known.is_none_or(|place| place.generation != generation) {
                self.at += 1;
                continue;
            }
            if let Some(what) = self.look_at(slot, edge) {
                if matches!(what, What::Closed { .. } | What::Failed(_)) {
                    self.places[slot as usize].ended = true;
                }
                return Some(Event { slot, what });
            }
        }
        None
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.received]
    }

    fn look(&self, slot: u32) -> Option<(Vec<u8>, String)> {
        let socket = self.places.get(slot as usize)?.socket.as_ref()?;
        Some((socket.tcp_info().ok()?, socket.congestion().unwrap_or_default()))
    }
}
