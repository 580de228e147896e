//! The one connection of a fleet that does not idle: writes messages without pause, or at a rate.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::tcp::tcp_info::TcpInfo;
use tcptoll_kernel::SysError;
use tcptoll_kernel::cpu::thread_time;
use tcptoll_kernel::epoll::select;
use tcptoll_kernel::socket::Tcp;

use super::CONNECT_LIMIT_NS;
use crate::channel::{Channel, Orders};
use crate::clock::monotonic_ns;
use crate::load::driver::{Driver, Setup, What};
use crate::load::epoll::Epoll;
use crate::load::pace::{Pace, Plan, burst};
use crate::load::{LoadError, class_of, pair, until};
use crate::messages::{Began, IdleReport, IdleSpec, Look, Made, Make, Rest};

/// The slot of the connection that writes.
const SOCKET: u32 = 0;

pub(super) struct Writer {
    driver: Epoll,
    message: Vec<u8>,
    /// None: without pause.
    pace: Option<Pace>,
    /// Of a message that was written in part, bytes that have been.
    written: usize,
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
        let selects = select.is_some();
        let others = if let Some((idle_to, count)) = select {
            let mut driver = connected(idle_to, count as u32, congestion.as_deref())?;
            (0..count as u32).filter_map(|slot| driver.take(slot)).collect()
        } else {
            Vec::new()
        };
        let driver = connected(to, 1, congestion.as_deref())?;
        let made = 1 + others.len() as u64;
        let begun_ns = monotonic_ns();
        Ok(Self {
            driver,
            message: vec![b'm'; message_bytes.max(1) as usize],
            pace: rate_per_s
                .map(|_| Pace::from_start(&Plan { rate_per_s, ..Plan::ENDLESS }, begun_ns)),
            written: 0,
            full: false,
            selects,
            others,
            begun_ns,
            resting: false,
            report: IdleReport { attempted: made, made, ..IdleReport::default() },
        })
    }

    /// Writes until the host is gone.
    pub(super) fn serve(mut self, channel: &mut Channel) -> Result<(), LoadError> {
        self.driver.heed(&*channel)?;
        channel.answer::<Make>(&Made { listening: Vec::new(), at_ns: self.begun_ns })?;
        let orders = Orders::new("writer").on(|writer: &mut Self, Look, _| Ok(writer.look())).on(
            |writer, Rest, _| {
                let at_ns = monotonic_ns();
                writer.resting = true;
                Ok(Began { at_ns })
            },
        );
        loop {
            let timeout = if self.resting { None } else { self.write() };
            self.driver.wait(timeout)?;
            while let Some(event) = self.driver.next() {
                match event.what {
                    What::Failed(error) => self.failed(&error),
                    _ => self.full = false,
                }
            }
            if self.driver.is_asked() {
                orders.carry_out_next(&mut self, channel)?;
            }
        }
    }

    /// Writes what is due and fits; gives how long to wait for more, `None`: for an event.
    fn write(&mut self) -> Option<Duration> {
        for _ in 0..burst::MESSAGES {
            if self.full {
                return None;
            }
            if self.written == 0
                && let Some(pace) = &self.pace
            {
                let left = until(pace.next(0)?);
                if !left.is_zero() {
                    return Some(left);
                }
            }
            if self.selects && !self.may_write() {
                self.wait_for_room();
                return None;
            }
            match self.driver.send(SOCKET, &self.message[self.written..]) {
                Ok(0) => self.wait_for_room(),
                Ok(length) => {
                    self.written += length;
                    if self.written == self.message.len() {
                        self.written = 0;
                        if let Some(pace) = &mut self.pace {
                            pace.begin(monotonic_ns());
                        }
                    }
                }
                Err(error) => self.failed(&error),
            }
        }
        Some(Duration::ZERO)
    }

    /// What `select(2)` says of all sockets.
    fn may_write(&self) -> bool {
        let to_write = self.driver.socket(SOCKET);
        to_write.is_some_and(|tcp| matches!(select(&self.others, tcp, Duration::ZERO), Ok(1..)))
    }

    /// Nothing may be written now: an event will tell when.
    fn wait_for_room(&mut self) {
        self.full = true;
        self.driver.tell_of_room(SOCKET);
    }

    /// The connection has failed, and nothing is written any more.
    fn failed(&mut self, error: &std::io::Error) {
        *self.report.errors.entry(class_of(error).to_owned()).or_default() += 1;
        self.report.made = self.others.len() as u64;
        self.full = true;
    }

    fn look(&self) -> IdleReport {
        let (tcp_info, congestion) = self.driver.look(SOCKET).unwrap_or_default();
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
            congestion,
            cpu_us: pair(thread_time()),
            ..self.report.clone()
        }
    }
}

/// This many connections that have been made, one after the other.
fn connected(to: SocketAddr, count: u32, congestion: Option<&str>) -> Result<Epoll, LoadError> {
    let failed = |error| LoadError::Kernel(SysError::new("connect", to.to_string(), error));
    let mut driver = Epoll::new(&Setup { congestion, ..Setup::to(to, count) })?;
    for slot in 0..count {
        driver.open(slot, 0).map_err(failed)?;
        let limit_ns = monotonic_ns() + CONNECT_LIMIT_NS;
        loop {
            match driver.next() {
                Some(event) if event.slot != slot => {}
                Some(event) => match event.what {
                    What::Connected { outcome, .. } => break outcome.map_err(failed)?,
                    What::Failed(error) => return Err(failed(error)),
                    _ => {}
                },
                None if monotonic_ns() >= limit_ns => {
                    return Err(failed(std::io::ErrorKind::TimedOut.into()));
                }
                None => driver.wait(Some(until(limit_ns)))?,
            }
        }
    }
    Ok(driver)
}
