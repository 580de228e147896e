//! Connections that stay open, and what finds out that their peers are gone.
//!
//! A fleet is a group of processes ([`group`]), each of which keeps its share of the connections
//! (`Keeper`) and checks them in one of several ways (`checks`), or writes over a single one
//! (`writer`). A process of its own because only a process can be stopped where it is, and because
//! the limit of open files is one process's.
//!
//! A `Keeper` accepts or opens its connections (`opening`), reads what comes, answers Null messages
//! that ask for it, and checks those that idle. It has a poll loop of its own, not a `Driver`, because its memory for each connection is measured.

mod checks;
pub mod group;
mod opening;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tcp_heartbeat::Member;
use tcp_heartbeat::frame::Decoder;
use tcptoll_kernel::cpu::{self, anonymous_bytes, thread_time};
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::process;
use tcptoll_kernel::socket::{Tcp, error_name, reset_when_closed};

use self::checks::{Checks, turns};
use self::opening::Opening;
use self::writer::Writer;
use super::control::CHANNEL;
use super::slots::Slots;
use super::{LoadError, pair, until};
use crate::channel::{Channel, ChannelError, Orders};
use crate::clock::monotonic_ns;
use crate::messages::{
    Began, Check, Faulted, IdleReport, IdleSpec, Leave, Look, Made, Make, Order, Request, Rest,
};

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

/// Listeners have the numbers from here on.
const LISTENERS: u64 = 1 << 40;

/// The argument of `listen(2)`; the kernel's own limit is below it only if somebody set it so.
const BACKLOG: i32 = 4096;

/// Events handled together.
const EVENTS: usize = 1024;

/// Read in one call; what a stream without pause sends is read in as few calls as can be.
const READ_BYTES: usize = 256 << 10;

/// One connection. There may be many: every byte counts.
struct IdleConnection {
    tcp: Tcp,
    kind: u8,
    state: State,
    /// What the program's timers know it by, if it is checked by them.
    member: Option<Member>,
    /// The beginning of a frame whose rest has not come.
    partial: Option<Box<Decoder>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The handshake is on its way since then, ns.
    Connecting(u64),
    /// The first byte is waited for since then, ns.
    Arriving(u64),
    /// It idles.
    Open,
}

struct Listener {
    tcp: Tcp,
    /// Connections may wait in its backlog.
    waiting: bool,
}

/// Connections for which the kernel's probes are being switched on.
struct Enabling {
    /// Their slots, in turn.
    turns: Vec<u32>,
    /// How many have had their turn.
    next: usize,
    began_ns: u64,
}

struct Keeper {
    poller: Poller,
    listeners: Vec<Listener>,
    greet: bool,
    /// Connections it must hold; above, it accepts no more.
    room: u64,
    /// No connection is accepted before this, ns: a file was lacking.
    accept_ns: u64,
    slots: Slots<IdleConnection>,
    opening: Option<Opening>,
    /// Whether `Make` is still to be answered.
    making: bool,
    /// Handshakes in the order they began. Not [`Waiting`](super::slots::Waiting), whose
    /// places would be part of the memory measured of each idle connection.
    deadlines: VecDeque<(u64, u32)>,
    checks: Checks,
    enabling: Option<Enabling>,
    faulted_ns: Option<u64>,
    report: IdleReport,
    buffer: Vec<u8>,
    resident_before: u64,
    begun_ns: u64,
}

impl Keeper {
    /// Listens, or begins to connect.
    fn new(spec: IdleSpec, channel: &mut Channel) -> Result<Self, LoadError> {
        let now = monotonic_ns();
        let mut keeper = Self {
            poller: Poller::new(EVENTS)?,
            listeners: Vec::new(),
            greet: false,
            room: u64::MAX,
            accept_ns: 0,
            slots: Slots::new(),
            opening: None,
            making: false,
            deadlines: VecDeque::new(),
            checks: Checks::none(),
            enabling: None,
            faulted_ns: None,
            report: IdleReport::default(),
            buffer: vec![0; READ_BYTES],
            resident_before: 0,
            begun_ns: now,
        };
        // Touched once, so that it is not counted as memory of connections.
        keeper.buffer.fill(1);
        keeper.poller.add(&*channel, CHANNEL, Interest::READ)?;
        match spec {
            IdleSpec::Listen { at, sockets, greet, shared } => {
                keeper.greet = greet;
                keeper.room = sockets;
                let mut taken = Vec::new();
                for (number, at) in at.into_iter().enumerate() {
                    let tcp = if shared {
                        Tcp::shared_listener(at, BACKLOG)?
                    } else {
                        Tcp::listener(at, BACKLOG, false)?
                    };
                    let named =
                        |error| tcptoll_kernel::SysError::new("getsockname", "a listener", error);
                    taken.push(tcp.local().map_err(named)?);
                    keeper.poller.add(&tcp, LISTENERS + number as u64, Interest::READ_EDGE)?;
                    keeper.listeners.push(Listener { tcp, waiting: false });
                }
                channel.answer::<Make>(&Made { listening: taken, at_ns: now })?;
            }
            IdleSpec::Connect { to, bind, rate_per_s, congestion } => {
                let opening = Opening::new(to, &bind, rate_per_s, congestion.as_ref(), now);
                keeper.making = true;
                keeper.opening = Some(opening);
            }
            IdleSpec::Write { .. } => {
                return Err(LoadError::Refused("a keeper does not write".to_owned()));
            }
        }
        keeper.resident_before = anonymous_bytes();
        Ok(keeper)
    }

    /// Goes on until the host is gone.
    fn serve(mut self, channel: &mut Channel) -> Result<(), LoadError> {
        let orders = Self::orders();
        let mut asked_ns = u64::MAX;
        loop {
            self.turn(channel)?;
            self.behind(asked_ns);
            let woken_ns = self.sleep_to_tick();
            let due_ns = self.next_due();
            asked_ns = due_ns.map_or(u64::MAX, |due_ns| due_ns.max(woken_ns));
            let count = self.poller.wait_count(due_ns.map(until))?;
            self.report.wakeups += 1;
            let mut asked = false;
            for at in 0..count {
                let event = self.poller.event(at);
                match event.token {
                    CHANNEL => asked = true,
                    listener if listener >= LISTENERS => {
                        if let Some(listener) =
                            self.listeners.get_mut((listener - LISTENERS) as usize)
                        {
                            listener.waiting = true;
                        }
                    }
                    slot => self.happened(slot as u32, event),
                }
            }
            if asked {
                orders.carry_out_next(&mut self, channel)?;
            }
        }
    }

    /// Lets what arrives meanwhile be handled together: of idle connections nothing is urgent, and a
    /// wake-up for each Null costs more than the Null. Gives when it wanted to wake, ns.
    fn sleep_to_tick(&mut self) -> u64 {
        if self.checks.tick.is_zero() {
            return monotonic_ns();
        }
        let tick_ns = self.checks.tick.as_nanos() as u64;
        let next_ns = (monotonic_ns() / tick_ns + 1) * tick_ns;
        std::thread::sleep(until(next_ns));
        let overslept_ns = monotonic_ns().saturating_sub(next_ns);
        self.report.overslept_ns = self.report.overslept_ns.max(overslept_ns);
        self.behind(next_ns);
        next_ns
    }

    /// What was asked for then has been done only now.
    fn behind(&mut self, asked_ns: u64) {
        let behind_ns = monotonic_ns().saturating_sub(asked_ns);
        self.report.behind_ns = self.report.behind_ns.max(behind_ns);
    }

    /// Does everything that is due.
    fn turn(&mut self, channel: &mut Channel) -> Result<(), LoadError> {
        self.open_those_due();
        self.give_up_late_handshakes();
        self.accept_those_waiting();
        self.switch_on_probes();
        let now = Duration::from_nanos(monotonic_ns());
        while let Some(step) = self.checks.next(now) {
            self.step(step, now);
        }
        if self.making
            && self.opening.as_ref().is_none_or(|opening| opening.is_paced() || opening.is_over())
        {
            self.making = false;
            channel.answer::<Make>(&Made { listening: Vec::new(), at_ns: self.begun_ns })?;
        }
        Ok(())
    }

    /// When something is due, ns; `None`: never.
    fn next_due(&self) -> Option<u64> {
        let opening = self.opening.as_ref().and_then(Opening::next_due);
        let handshake = self.deadlines.front().map(|&(at, _)| at);
        let waiting = self.listeners.iter().any(|listener| listener.waiting);
        let accepting = (waiting && self.checks.has_room()).then_some(self.accept_ns);
        let enabling = self.enabling.as_ref().map(|enabling| self.enabled_at(enabling));
        let checks = self.checks.next_due().map(|due| due.as_nanos() as u64);
        [opening, handshake, accepting, enabling, checks].into_iter().flatten().min()
    }

    fn orders() -> Orders<Self> {
        Orders::new("keeper")
            .on(|keeper: &mut Self, check: Check, _| {
                let at_ns = monotonic_ns();
                keeper.checks = Checks::new(check);
                keeper.enroll_all(Duration::from_nanos(at_ns))?;
                Ok(Began { at_ns })
            })
            .on(|keeper, Faulted { at_ns: faulted_ns }, _| {
                let at_ns = monotonic_ns();
                keeper.faulted_ns = Some(faulted_ns);
                keeper.report.behind_ns = 0;
                Ok(Began { at_ns })
            })
            .on(|keeper, Leave { reset }, _| {
                let at_ns = monotonic_ns();
                for slot in keeper.slots.numbers() {
                    if let Some(kept) = keeper.take(slot)
                        && reset
                    {
                        let _ = reset_when_closed(&kept.tcp);
                    }
                }
                Ok(Began { at_ns })
            })
            .on(|keeper, Look, _| Ok(keeper.look()))
            .on(|keeper, Rest, _| {
                let at_ns = monotonic_ns();
                keeper.rest();
                Ok(Began { at_ns })
            })
    }

    fn look(&mut self) -> IdleReport {
        let mut open = [0; 2];
        for kept in self.slots.iter() {
            open[usize::from(kept.kind.min(1))] += 1;
        }
        let one = self.slots.iter().next();
        IdleReport {
            at_ns: monotonic_ns(),
            processes: 1,
            open,
            cpu_us: pair(thread_time()),
            resident_bytes: anonymous_bytes().saturating_sub(self.resident_before),
            tcp_info: one.and_then(|kept| kept.tcp.tcp_info().ok()).unwrap_or_default(),
            congestion: one.and_then(|kept| kept.tcp.congestion().ok()).unwrap_or_default(),
            ..self.report.clone()
        }
    }

    /// Begins to check every connection there is.
    fn enroll_all(&mut self, now: Duration) -> io::Result<()> {
        let turns = turns(self.slots.numbers().len());
        let all = turns.len() as f64;
        // Those who were heard of earliest first: then none has to be sorted in.
        for (place, &slot) in turns.iter().enumerate().rev() {
            if let Some(kept) = self.slots.get_mut(slot)
                && self.checks.concern(kept.kind)
            {
                kept.member = self.checks.insert(slot, place as f64 / all, now);
                if let Some(limit) = self.checks.user_timeout {
                    kept.tcp.set_user_timeout(limit)?;
                }
            }
        }
        // The kernel counts idle time from when probes are switched on: that is what is spread.
        let began_ns = now.as_nanos() as u64;
        self.enabling = self.checks.probing.map(|_| Enabling { turns, next: 0, began_ns });
        Ok(())
    }

    fn enabled_at(&self, enabling: &Enabling) -> u64 {
        let part = enabling.next as f64 / enabling.turns.len().max(1) as f64;
        enabling.began_ns + (self.checks.spread.as_nanos() as f64 * part) as u64
    }

    fn switch_on_probes(&mut self) {
        let (Some(mut enabling), Some(probing)) = (self.enabling.take(), self.checks.probing)
        else {
            return;
        };
        let now = monotonic_ns();
        while let Some(&slot) = enabling.turns.get(enabling.next) {
            if self.enabled_at(&enabling) > now {
                self.enabling = Some(enabling);
                return;
            }
            if let Some(kept) = self.slots.get(slot)
                && self.checks.concern(kept.kind)
                && let Err(error) = kept.tcp.probe(&probing)
            {
                *self.report.errors.entry(error_name(&error)).or_default() += 1;
            }
            enabling.next += 1;
        }
    }

    /// Checks no more, and opens no more.
    fn rest(&mut self) {
        if let Some(opening) = &mut self.opening {
            opening.end();
        }
        if self.checks.probing.is_some() {
            for kept in self.slots.iter() {
                let _ = kept.tcp.probe_no_more();
            }
        }
        for kept in self.slots.iter_mut() {
            kept.member = None;
        }
        self.enabling = None;
        self.checks = Checks::none();
    }

    /// Takes a connection out, and out of everything that knows it.
    fn take(&mut self, slot: u32) -> Option<IdleConnection> {
        let kept = self.slots.take(slot)?;
        if let Some(member) = kept.member {
            self.checks.remove(member);
        }
        if matches!(kept.state, State::Connecting(_))
            && let Some(opening) = &mut self.opening
        {
            opening.in_flight -= 1;
        }
        Some(kept)
    }

    /// A connection is over, and this is how that is known.
    fn ended(&mut self, slot: u32, how: String) {
        let Some(kept) = self.take(slot) else { return };
        let kind = usize::from(kept.kind.min(1));
        *self.report.ended[kind].entry(how).or_default() += 1;
        if kind == 1
            && let Some(faulted_ns) = self.faulted_ns
        {
            self.report.detection.record_ns(monotonic_ns().saturating_sub(faulted_ns));
        }
        // What is still unacknowledged would go on being sent, to nobody.
        let _ = reset_when_closed(&kept.tcp);
    }
}
