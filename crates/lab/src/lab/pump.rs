//! The emulated link: takes packets from one host's device and gives them to the other's when the
//! link model says so, seeing every one of them.
//!
//! Time: a packet enters when it is read from its device. A thread that sleeps wakes late, so the
//! last stretch before a release is spun, as long as spinning takes less than a third of a CPU; how
//! long that stretch has to be is learned ([`tcptoll_core::link::clocks`]). How late packets really left
//! is recorded.
//!
//! The pump is pinned to the client's CPU: at 500 connections/s its p99 lateness was 97 µs there, 603 µs
//! unpinned and 833 µs on the server's CPU. Threads of class `SCHED_IDLE` that keep the CPUs from sleeping
//! made it worse: the p99 of the round trip's error rose from 150 to 200 µs to 400 to 870 µs (Linux 6.18,
//! 2 CPUs). So only the pump spins.
//!
//! Calibration corrects wake-ups and not the delay. Only a packet that woke the pump has waited before its
//! stamp, so only such packets are taken as entered earlier, by the time that echoes show. Subtracted from
//! every packet, it made a busy link shorter than asked.
//!
//! Where `/dev/net/tun` cannot be opened, the same pump runs on packet sockets over veth pairs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tcptoll_core::link::clocks::{Wait, Wakeups};
use tcptoll_core::link::model::{Fate, Loss, Pipe, Settings, settings};
use tcptoll_core::link::{LinkSpec, clocks, line_bytes};
use tcptoll_core::stats::Histogram;
use tcptoll_core::tcp::handshake::{End, HandshakeTrace};
use tcptoll_core::tcp::packet::{Packet, flow};
use tcptoll_core::tcp::wire::{AckTracker, Direction, SpanTracker, WireTracker, payload_start};
use tcptoll_kernel::clock::Timer;
use tcptoll_kernel::cpu::thread_time;
use tcptoll_kernel::epoll::{Event, Interest, Poller};
use tcptoll_kernel::packet_socket::PacketSocket;
use tcptoll_kernel::tun::{self, Tun, VnetHeader};

use super::tap::Pcap;
use crate::channel::{Channel, Orders, Refusal};
use crate::clock::monotonic_ns;
use crate::load::LoadError;
use crate::messages::{Began, Calibrate, Count, Counted, FaultPorts, Peek, Rows, TakeSpan, Watch};

/// Room for the largest super-packet and the headers in front of it.
const FRAME_MAX: usize = 65_536 + 128;

/// Packets read from one device before the other gets its turn.
const BATCH: usize = 64;

/// Bytes of frames the link may hold, each direction; above, packets are dropped and the trial is
/// invalid. 200 ms at 2.5 Gbit/s is 63 MB.
const MEMORY_MAX: u64 = 512 << 20;

/// A link without packets wakes up this often all the same, to see whether it could.
const IDLE_NS: u64 = 100_000_000;

/// A yield that took longer has given the CPU to another thread, ns.
const YIELDED_NS: u64 = 5_000;

/// One end of the link.
#[derive(Debug)]
pub enum Port {
    /// Layer 3, before each packet a vnet header.
    Tun(Tun),
    /// Layer 2, before each frame a vnet header.
    Packet(PacketSocket),
}

impl Port {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tun(tun) => tun.read(buffer),
            Self::Packet(socket) => socket.read(buffer),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tun(tun) => tun.write(bytes),
            Self::Packet(socket) => socket.write(bytes),
        }
    }

    /// Where the IP header begins.
    fn ip_at(&self) -> usize {
        const ETHERNET: usize = 14;
        match self {
            Self::Tun(_) => tun::VNET_HEADER,
            Self::Packet(_) => PacketSocket::VNET_HEADER + ETHERNET,
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tun(tun) => tun.as_fd(),
            Self::Packet(socket) => socket.as_fd(),
        }
    }
}

/// Everything that is counted between [`Watch`] and [`Count`].
struct Witness {
    tracker: WireTracker,
    /// Absent: nobody asked for it.
    acks: Option<AckTracker>,
    /// Absent: nobody asked for it.
    spans: Option<SpanTracker>,
    trace: HandshakeTrace,
    tracing: bool,
    lateness: Histogram,
    unwanted_drops: u64,
    dropped_before: [(u64, u64); 2],
    faulted_before: u64,
    overslept_ns: u64,
    socket_drops_before: u64,
    pcap: Option<Pcap>,
    cpu_before: u64,
}

/// The link, running.
struct Pump {
    ports: [Port; 2],
    pipes: [Pipe<Vec<u8>>; 2],
    scratch: Vec<u8>,
    witness: Witness,
    epoch_ns: u64,
    timer: Timer,
    wakeups: Wakeups,
    /// How long waking up takes, as the calibration found.
    early_ns: u64,
    /// When the last wait began, if it slept: what is read now has waited for the wake-up, ns.
    slept_from_ns: Option<u64>,
    /// Whether a packet was released since the CPU was last given away.
    released: bool,
    faulted: FaultedPorts,
    spec: LinkSpec,
    seed: u64,
}

/// Connections whose packets are lost on purpose, beside what the link loses of all.
#[derive(Default)]
struct FaultedPorts {
    ports: Vec<u16>,
    loss: Option<Loss>,
    lost: u64,
}

impl FaultedPorts {
    fn takes(&mut self, direction: Direction, packet: Option<&Packet>) -> bool {
        let Some(segment) = packet.and_then(|packet| packet.segment) else { return false };
        let port = match direction {
            Direction::ClientToServer => segment.dst_port,
            Direction::ServerToClient => segment.src_port,
        };
        let taken = self.ports.contains(&port) && self.loss.as_mut().is_some_and(Loss::takes_one);
        self.lost += u64::from(taken);
        taken
    }
}

/// Number of the client's port.
const CLIENT: usize = 0;

/// Number of the server's port.
const SERVER: usize = 1;

const CHANNEL: u64 = 9;
const TIMER: u64 = 8;

/// Carries packets until the parent is gone.
pub fn run(
    client: Port,
    server: Port,
    spec: LinkSpec,
    seed: u64,
    channel: &mut Channel,
) -> Result<(), LoadError> {
    let mut poller = Poller::new(8)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    poller.add(&client, 0, Interest::READ)?;
    poller.add(&server, 1, Interest::READ)?;
    let timer = Timer::new()?;
    poller.add(&timer, TIMER, Interest::READ_EDGE)?;
    let ways = make_pipes(&spec, seed);
    let mut pump = Pump {
        ports: [client, server],
        pipes: ways,
        scratch: vec![0; FRAME_MAX],
        witness: Witness::new(0, None),
        epoch_ns: monotonic_ns(),
        timer,
        wakeups: Wakeups::new(),
        early_ns: 0,
        slept_from_ns: None,
        released: false,
        faulted: FaultedPorts::default(),
        spec,
        seed,
    };
    let orders = orders();
    loop {
        for event in pump.wait(&mut poller)? {
            match event.token {
                TIMER => {}
                CHANNEL => orders.carry_out_next(&mut pump, channel)?,
                port => pump.take_in(port as usize),
            }
        }
        pump.release();
    }
}

fn orders() -> Orders<Pump> {
    Orders::new("link")
        .on(|pump: &mut Pump, watch: Watch, _| pump.watch(&watch))
        .on(|pump, Count, channel| pump.count(channel))
        .on(|pump, Peek, _| Ok(pump.so_far()))
        .on(|pump, TakeSpan, _| {
            Ok(pump.witness.spans.as_mut().map(|spans| spans.take(monotonic_ns())))
        })
        .on(|pump, fault: FaultPorts, _| Ok(pump.fault(fault)))
        .on(|pump, Calibrate { early_ns }, _| {
            pump.pipes = make_pipes(&pump.spec, pump.seed);
            pump.early_ns = early_ns;
            Ok(())
        })
}

/// The two directions. They draw from streams of their own.
fn make_pipes(spec: &LinkSpec, seed: u64) -> [Pipe<Vec<u8>>; 2] {
    [0, 1].map(|way| {
        let base = settings(spec, seed.wrapping_mul(2).wrapping_add(way));
        Pipe::new(Settings { memory_limit_bytes: MEMORY_MAX, ..base })
    })
}

impl Pump {
    fn now(&self) -> Duration {
        Duration::from_nanos(monotonic_ns() - self.epoch_ns)
    }

    /// Waits until something is to be done: a packet came, one is due, or the parent has an order.
    fn wait(&mut self, poller: &mut Poller) -> Result<Vec<Event>, LoadError> {
        let due = self.pipes.iter().filter_map(Pipe::next_due).min();
        let began_ns = monotonic_ns();
        let idle = Wait::Sleep { until_ns: began_ns + IDLE_NS, left_ns: IDLE_NS };
        let wait = due
            .map_or(idle, |due| self.wakeups.plan(began_ns, self.epoch_ns + due.as_nanos() as u64));
        match wait {
            Wait::Spin => {
                self.slept_from_ns = None;
                // The host beside may have been woken by the last packet, once.
                let gives_way = self.released && self.wakeups.may_yield(began_ns);
                self.released = false;
                if gives_way {
                    std::thread::yield_now();
                }
                let yielded_ns = monotonic_ns();
                self.wakeups.yielded(yielded_ns, yielded_ns - began_ns);
                let events = poller.wait(Some(Duration::ZERO))?;
                // What another thread used meanwhile was not spun.
                let gave_way = yielded_ns - began_ns > YIELDED_NS;
                let from_ns = if gave_way { yielded_ns } else { began_ns };
                let spun_ns = monotonic_ns() - from_ns;
                self.wakeups.spun(spun_ns);
                self.witness.overslept_ns = self.witness.overslept_ns.max(spun_ns);
                Ok(events)
            }
            Wait::Sleep { until_ns, left_ns } => {
                self.slept_from_ns = Some(began_ns);
                self.released = false;
                self.timer.set(Duration::from_nanos(until_ns))?;
                let events = poller.wait(None)?;
                // A wait that a packet ended says nothing of timers.
                if let Some(late_ns) = monotonic_ns().checked_sub(until_ns) {
                    self.wakeups.woke(left_ns, late_ns);
                    self.witness.overslept_ns = self.witness.overslept_ns.max(late_ns);
                }
                Ok(events)
            }
        }
    }

    fn take_in(&mut self, from: usize) {
        let direction = [Direction::ClientToServer, Direction::ServerToClient][from];
        for _ in 0..BATCH {
            let Ok(length) = self.ports[from].read(&mut self.scratch) else { return };
            // Copied out: a queue of buffers of the largest size would be 40 times the packets.
            let frame = self.scratch[..length].to_vec();
            let at = monotonic_ns();
            let (packet, gso_size) = self.look(from, &frame);
            let line = packet.as_ref().map_or(0, |packet| {
                let segments = segments(packet, gso_size);
                let bytes =
                    u64::from(packet.ip_bytes) + (segments - 1) * u64::from(packet.header_bytes);
                if segments == 1 {
                    line_bytes(packet.ip_bytes)
                } else {
                    bytes + segments * u64::from(tcptoll_core::link::ETHERNET_OVERHEAD)
                }
            });
            if let Some(packet) = &packet {
                self.witness.tracker.observe(direction, packet, gso_size, at);
                self.witness.trace.observe([End::Client, End::Server][from], direction, packet, at);
            }
            if let Some(pcap) = &mut self.witness.pcap {
                pcap.write(from, at, &frame[self.ports[from].ip_at().min(length)..]);
            }
            let entered_ns = self
                .slept_from_ns
                .map_or(at, |began_ns| clocks::entered_ns(at, self.early_ns, began_ns));
            if let (Some(spans), Some(packet)) = (&mut self.witness.spans, &packet) {
                spans.sent(direction, packet, entered_ns);
            }
            if self.faulted.takes(direction, packet.as_ref()) {
                continue;
            }
            // An ACK from the server, from the moment that it left there.
            if let (Some(acks), SERVER, Some(packet)) = (&mut self.witness.acks, from, &packet) {
                acks.observe(direction, packet, entered_ns);
            }
            let now = Duration::from_nanos(entered_ns.saturating_sub(self.epoch_ns));
            let memory = frame.len() as u64 + 64;
            let flow = if self.spec.jitter.is_zero() { 0 } else { flow(self.ip(from, &frame)) };
            match self.pipes[from].push(now, line, memory, flow, frame) {
                Fate::Overflow => self.witness.unwanted_drops += 1,
                Fate::Queued | Fate::Lost | Fate::QueueFull => {}
            }
        }
    }

    /// What the packet is, and the size of its segments if it is a super-packet.
    fn look(&self, from: usize, frame: &[u8]) -> (Option<Packet>, u32) {
        let gso = VnetHeader::parse(frame)
            .map_or(0, |header| if header.gso_type == 0 { 0 } else { u32::from(header.gso_size) });
        let ip = self.ip(from, frame);
        (Packet::parse(ip, ip.len() as u32), gso)
    }

    fn ip<'a>(&self, from: usize, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.ports[from].ip_at()..).unwrap_or_default()
    }

    fn release(&mut self) {
        // What the kernel answers within a write has not waited for anything.
        self.slept_from_ns = None;
        for from in [0, 1] {
            let direction = [Direction::ClientToServer, Direction::ServerToClient][from];
            let to = 1 - from;
            while let Some((due, frame)) = self.pipes[from].pop(self.now()) {
                let left = self.now();
                self.witness.lateness.record_ns(left.saturating_sub(due).as_nanos() as u64);
                let at = self.epoch_ns + left.as_nanos() as u64;
                self.released = true;
                if self.witness.acks.is_some()
                    && to == SERVER
                    && let (Some(packet), _) = self.look(to, &frame)
                    && let Some(acks) = &mut self.witness.acks
                {
                    acks.observe(direction, &packet, at);
                }
                if self.ports[to].write(&frame).is_err() {
                    self.witness.unwanted_drops += 1;
                }
                if self.witness.spans.is_some() && to != SERVER {
                    self.arrived(&frame, at);
                }
                if self.witness.tracing
                    && let (Some(packet), _) = self.look(to, &frame)
                {
                    let end = [End::Client, End::Server][to];
                    self.witness.trace.observe(end, direction, &packet, at);
                }
                // The kernel has answered within the write: taken at once, the answer's stamp is
                // right, and it is not late behind the rest that is due.
                self.take_in(to);
                if let Some(pcap) = &mut self.witness.pcap {
                    pcap.write(to, at, &frame[self.ports[to].ip_at().min(frame.len())..]);
                }
            }
        }
    }

    /// Times a packet that has just reached the client.
    fn arrived(&mut self, frame: &[u8], at_ns: u64) {
        let (Some(packet), _) = self.look(CLIENT, frame) else { return };
        let ip = self.ip(CLIENT, frame);
        if let Some(spans) = &mut self.witness.spans {
            spans.arrived(&packet, payload_start(ip, &packet), at_ns);
        }
    }

    fn watch(&mut self, watch: &Watch) -> Result<(), Refusal> {
        let pcap = watch.pcap.as_deref().map(Pcap::create).transpose().map_err(Refusal)?;
        self.witness = Witness::new(watch.trace_limit, pcap);
        self.witness.tracker = WireTracker::watching(watch.quiet_ports.clone());
        self.witness.acks = watch.ack_delays.then(AckTracker::new);
        self.witness.spans = watch.spans.then(SpanTracker::new);
        self.witness.dropped_before = self.dropped();
        self.witness.faulted_before = self.faulted.lost;
        self.witness.socket_drops_before = self.socket_drops();
        Ok(())
    }

    /// Loses packets of connections to these ports from now on.
    fn fault(&mut self, FaultPorts { ports, share }: FaultPorts) -> Began {
        let lost = self.faulted.lost;
        // Other frames than those that the link itself loses.
        let loss = Some(Loss::new(share, self.seed.wrapping_add(u64::MAX / 3)));
        self.faulted = FaultedPorts { ports, loss, lost };
        Began { at_ns: monotonic_ns() }
    }

    /// Packets lost on purpose and at the queue limit, each direction, since the start.
    fn dropped(&self) -> [(u64, u64); 2] {
        [0, 1].map(|way: usize| {
            let counts = self.pipes[way].counts();
            (counts.lost, counts.queue_full)
        })
    }

    /// Frames the relay's sockets had no room for, since they were opened.
    fn socket_drops(&self) -> u64 {
        self.ports
            .iter()
            .filter_map(|port| match port {
                Port::Packet(socket) => socket.drops().ok(),
                Port::Tun(_) => None,
            })
            .sum()
    }

    fn count(&mut self, channel: &mut Channel) -> Result<Counted, Refusal> {
        let pcap_error = self.witness.pcap.take().and_then(|mut pcap| pcap.finish().err());
        channel.rows(&self.witness.trace.rows(), Rows::Wire)?;
        Ok(Counted { pcap_error, ..self.so_far() })
    }

    fn so_far(&self) -> Counted {
        let mut wire = self.witness.tracker.wire();
        for (now, before) in self.dropped().iter().zip(self.witness.dropped_before) {
            wire.lost_on_purpose += now.0 - before.0;
            wire.queue_drops += now.1 - before.1;
        }
        wire.lost_on_purpose += self.faulted.lost - self.witness.faulted_before;
        let socket_drops = self.socket_drops();
        let cpu = thread_time();
        Counted {
            wire: Some(wire),
            lateness: self.witness.lateness.clone(),
            unwanted_drops: self.witness.unwanted_drops + socket_drops
                - self.witness.socket_drops_before,
            ack_delays: self.witness.acks.as_ref().map(|acks| acks.delays().clone()),
            pcap_error: None,
            overslept_ns: self.witness.overslept_ns,
            cpu_us: cpu.user_us + cpu.system_us - self.witness.cpu_before,
        }
    }
}

impl Witness {
    fn new(trace_limit: usize, pcap: Option<Pcap>) -> Self {
        let cpu = thread_time();
        Self {
            tracker: WireTracker::new(),
            acks: None,
            spans: None,
            trace: HandshakeTrace::new(None, trace_limit),
            tracing: trace_limit > 0,
            lateness: Histogram::new(),
            unwanted_drops: 0,
            dropped_before: [(0, 0); 2],
            faulted_before: 0,
            overslept_ns: 0,
            socket_drops_before: 0,
            pcap,
            cpu_before: cpu.user_us + cpu.system_us,
        }
    }
}

/// Wire packets a super-packet stands for.
fn segments(packet: &Packet, gso_size: u32) -> u64 {
    match packet.segment.as_ref() {
        Some(segment) if gso_size > 0 => {
            u64::from(segment.payload).div_ceil(u64::from(gso_size)).max(1)
        }
        _ => 1,
    }
}
