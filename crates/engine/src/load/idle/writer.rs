//! The one connection of a fleet that does not idle: writes messages without pause, or at a rate.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_kernel::cpu::thread_time;
use tcptoll_kernel::epoll::{Interest, Poller, select};
use tcptoll_kernel::socket::{ClientOptions, Tcp};
use tcptoll_model::tcp_info::TcpInfo;

use crate::channel::Channel;
use crate::channel::orders::Orders;
use crate::clock::monotonic_ns;
use crate::load::{CHANNEL, LoadError, class_of, pair, until};
use crate::messages::{Began, IdleReport, IdleSpec, Look, Made, Make, Rest};

const SOCKET: u64 = 0;

/// A handshake is given up after this.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Messages written before the host is listened to again.
const BURST: usize = 64;

pub(super) struct Writer {
    tcp: Tcp,
    poller: Poller,
    message: Vec<u8>,
    rate_per_s: Option<f64>,
    /// Of a message that was written in part, bytes that have been.
    written: usize,
    messages: u64,
    /// Whether the send buffer is full.
    full: bool,
    /// Whether `select(2)` is asked about all sockets before each message.
    selects: bool,
    /// Connections that idle beside.
    others: Vec<Tcp>,
    begun_ns: u64,
    /// Writes no more.
    resting: bool,
    report: IdleReport,
}

impl Writer {
    /// Connects.
    pub(super) fn new(spec: IdleSpec) -> Result<Self, LoadError> {
        let IdleSpec::Write { to, message_bytes, rate_per_s, select, congestion } = spec else {
            return Err(LoadError::Refused("a writer does nothing else".to_owned()));
        };
        let options = ClientOptions { congestion, ..ClientOptions::default() };
        let mut others = Vec::new();
        if let Some((idle_to, count)) = select {
            for _ in 0..count {
                let mut poller = Poller::new(1)?;
                others.push(connected(idle_to, &options, &mut poller)?);
            }
        }
        let mut poller = Poller::new(8)?;
        let tcp = connected(to, &options, &mut poller)?;
        let made = 1 + others.len() as u64;
        Ok(Self {
            tcp,
            poller,
            message: vec![b'm'; message_bytes.max(1) as usize],
            rate_per_s,
            written: 0,
            messages: 0,
            full: false,
            selects: select.is_some(),
            others,
            begun_ns: monotonic_ns(),
            resting: false,
            report: IdleReport { attempted: made, made, ..IdleReport::default() },
        })
    }

    /// Writes until the host is gone.
    pub(super) fn serve(mut self, channel: &mut Channel) -> Result<(), LoadError> {
        self.poller.add(&*channel, CHANNEL, Interest::READ)?;
        channel.answer::<Make>(&Made { listening: Vec::new(), at_ns: self.begun_ns })?;
        let orders = Orders::of("writer").on(|writer: &mut Self, Look, _| Ok(writer.look())).on(
            |writer, Rest, _| {
                let at_ns = monotonic_ns();
                writer.resting = true;
                Ok(Began { at_ns })
            },
        );
        loop {
            let timeout = if self.resting { None } else { self.write() };
            let mut asked = false;
            for event in self.poller.wait(timeout)? {
                if event.token == CHANNEL {
                    asked = true;
                } else {
                    self.full = false;
                }
            }
            if asked {
                orders.carry_out_next(&mut self, channel)?;
            }
        }
    }

    /// Writes what is due and fits; gives how long to wait for more, `None`: for an event.
    fn write(&mut self) -> Option<Duration> {
        for _ in 0..BURST {
            if self.full {
                return None;
            }
            if let Some(rate) = self.rate_per_s
                && self.written == 0
            {
                let due_ns = self.begun_ns + (self.messages as f64 / rate * 1e9) as u64;
                let left = until(due_ns);
                if !left.is_zero() {
                    return Some(left);
                }
            }
            if self.selects && !matches!(select(&self.others, &self.tcp, Duration::ZERO), Ok(1..)) {
                // Nothing may be written now: an event will tell when.
                self.full = true;
                return None;
            }
            match self.tcp.write(&self.message[self.written..]) {
                Ok(Some(length)) => {
                    self.written += length;
                    if self.written == self.message.len() {
                        self.written = 0;
                        self.messages += 1;
                    }
                }
                Ok(None) => self.full = true,
                Err(error) => {
                    *self.report.errors.entry(class_of(&error).to_owned()).or_default() += 1;
                    self.report.made = self.others.len() as u64;
                    self.full = true;
                }
            }
        }
        Some(Duration::ZERO)
    }

    fn look(&self) -> IdleReport {
        let tcp_info = self.tcp.tcp_info().unwrap_or_default();
        let acked = match TcpInfo::decode(&tcp_info) {
            Some(TcpInfo::Connection(sample)) => sample.bytes_acked,
            _ => None,
        };
        IdleReport {
            at_ns: monotonic_ns(),
            processes: 1,
            open: [1, 0],
            bytes_acked: acked.unwrap_or(0),
            tcp_info,
            congestion: self.tcp.congestion().unwrap_or_default(),
            cpu_us: pair(thread_time()),
            ..self.report.clone()
        }
    }
}

/// A connection that has been made, known to the poller by [`SOCKET`].
fn connected(
    to: SocketAddr,
    options: &ClientOptions,
    poller: &mut Poller,
) -> Result<Tcp, LoadError> {
    let failed = |error| LoadError::Kernel(SysError::new("connect", to.to_string(), error));
    let tcp = Tcp::client(to, options).map_err(failed)?;
    tcp.connect(&to.into()).map_err(failed)?;
    poller.add(&tcp, SOCKET, Interest::EDGES)?;
    if poller.wait(Some(CONNECT_LIMIT))?.is_empty() {
        return Err(failed(std::io::ErrorKind::TimedOut.into()));
    }
    match tcp.take_error().map_err(failed)? {
        Some(error) => Err(failed(error)),
        None => Ok(tcp),
    }
}
