//! Connections that a host holds open, and fills: what their memory is then is read by [`memory`].
//!
//! They stay in the host between two orders, and no epoll set is kept of them: its entries would be
//! part of the memory that is measured. See `messages/socket_memory.rs` for the orders.
//!
//! A connection is full when less than 0.1 % of the data moved in 250 ms and two round trips. "No socket
//! takes a byte" was never true on slow links.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use tcptoll_core::tcp::counters::parse_sockstat;
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::sock_diag::{End, SockDiag};
use tcptoll_kernel::socket::{Address, Begun, Tcp, reset_when_closed};
use tcptoll_kernel::{SysError, slab};

use super::control::{CHANNEL, Progress, stop_requested};
use super::driver::Sources;
use super::{LoadError, class_of, sockets_max, until};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{
    Filled, Held, HoldAccept, HoldConnect, HoldFill, HoldListen, HoldListening, MemoryPicture,
    ReadMemory, SocketSettings, SocketsGot,
};

/// The number under which a poller knows the listener.
const LISTENER: u64 = CHANNEL - 1;

/// The argument of `listen(2)`; the kernel limits it to `somaxconn`.
const BACKLOG: i32 = 4_096;

/// Events taken together.
const EVENTS: usize = 512;

/// Written in one call. The kernel cuts it up into the same pages whatever its length is.
const WRITE_BYTES: usize = 64 << 10;

/// Calls on one connection before the next has its turn.
const WRITES_MAX: u32 = 1_024;

/// Connections are full when no more than this part of their data is taken or acknowledged. Of
/// thousands one or two move at any time: where a segment did not fit a receive buffer, it is
/// retransmitted after ever longer times.
const MOVED_PART: u64 = 1_000;

/// Connections that took nothing are tried again after this: `EPOLLOUT` is not reported before a
/// third of a buffer is free.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// The connections of a host.
#[derive(Debug, Default)]
pub struct Holder {
    listener: Option<Tcp>,
    connections: Vec<Tcp>,
}

impl Holder {
    /// Listens.
    pub fn listen(&mut self, order: &HoldListen) -> Result<HoldListening, LoadError> {
        check_room(order.all)?;
        let prepare = |listener: &Tcp| set(listener, &order.sockets);
        let listener = Tcp::prepared_listener(order.at, BACKLOG, prepare)?;
        let named = |error| SysError::new("getsockname", "the listener", error);
        let at = listener.local().map_err(named)?;
        let listeners = SockDiag::open()?.listeners()?;
        let queue = listeners.iter().find(|known| known.address.port() == at.port());
        let queue = queue.map_or(1, |known| known.accept_queue_limit.max(1));
        self.listener = Some(listener);
        Ok(HoldListening { at, queue })
    }

    /// Opens connections, all concurrently.
    pub fn connect(
        &mut self,
        order: &HoldConnect,
        channel: &mut Channel,
    ) -> Result<Held, LoadError> {
        check_room(order.all)?;
        let deadline_ns = monotonic_ns() + order.timeout_ns;
        let mut poller = Poller::new(EVENTS)?;
        poller.add(&*channel, CHANNEL, Interest::READ)?;
        let sources = Sources::new(&order.bind, None, false);
        let target: Address = order.target.into();
        let mut held = Held::default();
        let mut pending: Vec<Option<Tcp>> = Vec::new();
        for number in 0..u64::from(order.connections) {
            let begun = Tcp::client(order.target, sources.options(order.before + number))
                .and_then(|tcp| set(&tcp, &order.sockets).map(|()| tcp))
                .and_then(|tcp| tcp.connect(&target).map(|begun| (tcp, begun)));
            match begun {
                Ok((tcp, Begun::Done)) => self.hold(tcp, &mut held),
                Ok((tcp, Begun::InProgress)) => {
                    poller.add(&tcp, pending.len() as u64, Interest::WRITE)?;
                    pending.push(Some(tcp));
                }
                Err(error) => failed(&mut held.errors, class_of(&error), 1),
            }
        }
        let mut waiting = pending.len();
        while waiting > 0 && monotonic_ns() < deadline_ns {
            let count = poller.wait_count(Some(until(deadline_ns)))?;
            for at in 0..count {
                let event = poller.event(at);
                if event.token == CHANNEL {
                    stop_requested(channel)?;
                    return Ok(held);
                }
                let Some(tcp) = pending.get_mut(event.token as usize).and_then(Option::take) else {
                    continue;
                };
                waiting -= 1;
                match tcp.take_error() {
                    // Still in the set, which ends with this order.
                    Ok(None) => self.hold(tcp, &mut held),
                    Ok(Some(error)) | Err(error) => failed(&mut held.errors, class_of(&error), 1),
                }
            }
        }
        failed(&mut held.errors, "connect-timeout", waiting as u64);
        Ok(held)
    }

    /// Accepts connections as they come.
    ///
    /// Errors: there is no listener. One that cannot be accepted is an error of the connection, and
    /// ends the order.
    pub fn accept(&mut self, order: HoldAccept, channel: &mut Channel) -> Result<Held, LoadError> {
        let Some(listener) = self.listener.take() else {
            return Err(LoadError::Refused("the host does not listen".to_owned()));
        };
        let accepted = self.accept_from(&listener, order, channel);
        self.listener = Some(listener);
        accepted
    }

    fn accept_from(
        &mut self,
        listener: &Tcp,
        order: HoldAccept,
        channel: &mut Channel,
    ) -> Result<Held, LoadError> {
        let deadline_ns = monotonic_ns() + order.timeout_ns;
        let mut poller = Poller::new(EVENTS)?;
        poller.add(&*channel, CHANNEL, Interest::READ)?;
        poller.add(listener, LISTENER, Interest::READ)?;
        let mut held = Held::default();
        while held.held < u64::from(order.connections) {
            match listener.accept() {
                Ok(Some((tcp, _))) => self.hold(tcp, &mut held),
                Ok(None) if monotonic_ns() >= deadline_ns => break,
                Ok(None) => {
                    let count = poller.wait_count(Some(until(deadline_ns)))?;
                    if (0..count).any(|at| poller.event(at).token == CHANNEL) {
                        stop_requested(channel)?;
                        break;
                    }
                }
                Err(error) => {
                    failed(&mut held.errors, class_of(&error), 1);
                    break;
                }
            }
        }
        Ok(held)
    }

    fn hold(&mut self, tcp: Tcp, held: &mut Held) {
        self.connections.push(tcp);
        held.held += 1;
    }

    /// The options of the first connection.
    pub fn look(&self) -> Result<SocketsGot, LoadError> {
        let Some(tcp) = self.connections.first() else { return Ok(SocketsGot::default()) };
        let named = |error| SysError::new("getsockopt", "a connection", error);
        Ok(SocketsGot {
            send_buffer: tcp.send_buffer().map_err(named)?,
            receive_buffer: tcp.receive_buffer().map_err(named)?,
            congestion: tcp.congestion().map_err(named)?,
        })
    }

    /// Writes into each connection until none takes more.
    pub fn fill(&mut self, order: HoldFill, channel: &mut Channel) -> Result<Filled, LoadError> {
        let mut poller = Poller::new(1)?;
        poller.add(&*channel, CHANNEL, Interest::READ)?;
        let bytes = vec![0; WRITE_BYTES];
        let mut filled = Filled::default();
        let mut progress = Progress::default();
        let begun_ns = monotonic_ns();
        let mut still = Still { at_ns: begun_ns, taken: 0, queued: None };
        loop {
            let errors = &mut filled.errors;
            let sum = &mut filled.bytes;
            self.connections.retain(|tcp| match write_all(tcp, &bytes, sum) {
                Ok(()) => true,
                Err(error) => {
                    failed(errors, class_of(&error), 1);
                    false
                }
            });
            filled.full = still.is_full(filled.bytes, &order)?;
            let now_ns = monotonic_ns();
            if filled.full || now_ns - begun_ns >= order.limit_ns {
                return Ok(filled);
            }
            progress.report(channel, now_ns, filled.bytes)?;
            if poller.wait_count(Some(TRY_AGAIN))? > 0 {
                stop_requested(channel)?;
                return Ok(filled);
            }
        }
    }

    /// Resets every connection, and stops to listen.
    pub fn end(&mut self) -> u64 {
        self.listener = None;
        let ended = self.connections.len() as u64;
        for tcp in self.connections.drain(..) {
            // Closing would otherwise wait until the data has been delivered, to nobody.
            let _ = reset_when_closed(&tcp);
        }
        ended
    }
}

/// Since when next to nothing has been taken, and next to nothing acknowledged: a send buffer that was
/// filled beyond its limit takes nothing for a while, although the link empties it.
struct Still {
    at_ns: u64,
    /// Payload that had been taken then.
    taken: u64,
    /// Memory of what was queued then, once that has been read.
    queued: Option<u64>,
}

impl Still {
    /// Whether that has lasted for long enough.
    fn is_full(&mut self, taken: u64, order: &HoldFill) -> Result<bool, SysError> {
        let allowed = (taken / MOVED_PART).min(order.moved_bytes);
        if taken - self.taken > allowed {
            *self = Self { at_ns: monotonic_ns(), taken, queued: None };
            return Ok(false);
        }
        let now_ns = monotonic_ns();
        if self.queued.is_some() && now_ns - self.at_ns < order.quiet_ns {
            return Ok(false);
        }
        let queued = SockDiag::open()?.memory_at_port(End::Remote, order.port)?.queued;
        let moved = self.queued.map(|before| before.abs_diff(queued));
        if moved.is_some_and(|moved| moved <= allowed) {
            return Ok(true);
        }
        *self = Self { at_ns: monotonic_ns(), taken, queued: Some(queued) };
        Ok(false)
    }
}

/// Writes what a connection takes.
fn write_all(tcp: &Tcp, bytes: &[u8], sum: &mut u64) -> io::Result<()> {
    for _ in 0..WRITES_MAX {
        match tcp.write(bytes)? {
            Some(taken) => *sum += taken as u64,
            None => break,
        }
    }
    Ok(())
}

fn failed(errors: &mut BTreeMap<String, u64>, class: &str, connections: u64) {
    if connections > 0 {
        *errors.entry(class.to_owned()).or_default() += connections;
    }
}

/// Sets the options that are asked for.
fn set(tcp: &Tcp, sockets: &SocketSettings) -> io::Result<()> {
    if let Some(bytes) = sockets.send_buffer {
        tcp.set_send_buffer(bytes)?;
    }
    if let Some(bytes) = sockets.receive_buffer {
        tcp.set_receive_buffer(bytes)?;
    }
    sockets.congestion.as_ref().map_or(Ok(()), |name| tcp.set_congestion(name))
}

/// Errors: the limit of open files is below this many connections.
fn check_room(all: u64) -> Result<(), LoadError> {
    match sockets_max() {
        Ok(room) if room < all => Err(LoadError::Refused(format!(
            "--connections {all}: a process can have {room} sockets open here. Raise the limit of \
             open files (`ulimit -Hn`), or ask for fewer"
        ))),
        _ => Ok(()),
    }
}

/// The memory of this host's connections and of the machine.
pub fn memory(order: ReadMemory) -> Result<MemoryPicture, SysError> {
    let end = if order.connected { End::Remote } else { End::Local };
    let sums = SockDiag::open()?.memory_at_port(end, order.port)?;
    let sockstat = fs::read_to_string("/proc/thread-self/net/sockstat").unwrap_or_default();
    let pages = parse_sockstat(&sockstat).get("TCP_mem").copied().unwrap_or(0);
    Ok(MemoryPicture {
        sockets: sums.sockets,
        received: sums.received,
        queued: sums.queued,
        reserved: sums.reserved + sums.options,
        receive_limit: sums.receive_limit,
        send_limit: sums.send_limit,
        structures: slab::socket_bytes(order.ipv6, order.connected),
        machine_tcp: pages * slab::page_bytes(),
        machine_slab: slab::machine_bytes().unwrap_or(0),
    })
}
