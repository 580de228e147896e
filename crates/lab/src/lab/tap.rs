//! The witness of a link without an emulator: packet taps on both hosts' devices.
//!
//! A tap costs the kernel a copy per packet, so it is opened only for runs that ask for it; figures
//! that are compared come from runs without.
//!
//! What both ends of the link saw is written as pcapng: nanoseconds, one interface an end. The format is
//! draft-ietf-opsawg-pcapng; three kinds of its blocks are enough.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use tcptoll_core::stats::Histogram;
use tcptoll_core::tcp::handshake::{End, HandshakeTrace};
use tcptoll_core::tcp::packet::Packet;
use tcptoll_core::tcp::wire::{
    AckTracker, Direction, Span, SpanTracker, WireTracker, payload_start,
};
use tcptoll_kernel::SysError;
use tcptoll_kernel::cpu::thread_time;
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::namespace::enter_network;
use tcptoll_kernel::netlink::Netlink;
use tcptoll_kernel::packet_socket::{Tap, TappedPacket};

use super::DEVICE;
use crate::channel::{Channel, Orders, Refusal};
use crate::clock::{FromRealtime, monotonic_ns};
use crate::files::{MAKER, empty, open_own};
use crate::load::LoadError;
use crate::messages::{Calibrate, Count, Counted, Rows, TakeSpan, Watch};

/// Headers of IP and TCP with all their options fit.
const SNAPLEN: u32 = 192;

/// Kept between two looks: about 200,000 packets of headers.
const RING_BYTES: usize = 64 << 20;

/// The kernel hands over the youngest packets within 20 ms; longer than this is a fault, and the
/// comparison with the kernel's own counters will show what is missing.
const TAIL: Duration = Duration::from_millis(500);

/// Where the two ends are.
pub struct Ends {
    /// Network namespace of each host; one alone on the loopback place.
    pub namespaces: Vec<OwnedFd>,
}

/// What is being watched.
struct Watched {
    taps: Vec<Tap>,
    sight: Sight,
}

/// What was seen so far.
struct Sight {
    tracker: WireTracker,
    /// Absent: nobody asked for it.
    acks: Option<AckTracker>,
    /// Absent: nobody asked for it.
    spans: Option<SpanTracker>,
    trace: HandshakeTrace,
    /// On loopback, where both ends have one address: who sent a SYN.
    clients: HashSet<(IpAddr, u16)>,
    clock: FromRealtime,
    pcap: Option<Pcap>,
    cpu_before: u64,
}

/// The witness, and what it waits on.
struct Witness {
    ends: Ends,
    poller: Poller,
    watched: Option<Watched>,
}

/// The number under which the poller knows the control channel.
const CHANNEL: u64 = 9;

/// Watches when ordered to, until the parent is gone.
pub fn run(ends: Ends, channel: &mut Channel) -> Result<(), LoadError> {
    let orders = orders();
    let mut witness = Witness { ends, poller: Poller::new(8)?, watched: None };
    witness.poller.add(&*channel, CHANNEL, Interest::READ)?;
    loop {
        for event in witness.poller.wait(None)? {
            if event.token == CHANNEL {
                orders.carry_out_next(&mut witness, channel)?;
            } else if let Some(watched) = &mut witness.watched {
                watched.drain()?;
            }
        }
    }
}

fn orders() -> Orders<Witness> {
    Orders::new("tap")
        .on(|witness: &mut Witness, watch: Watch, _| {
            witness.watched = None;
            if watch.tap || watch.pcap.is_some() {
                let Witness { ends, poller, .. } = &*witness;
                let opened = Watched::open(ends, &watch, poller).map_err(Refusal)?;
                witness.watched = Some(opened);
            }
            Ok(())
        })
        .on(|witness, Count, channel| match witness.watched.take() {
            Some(watched) => Ok(watched.finish(channel)?),
            None => Ok(Counted::default()),
        })
        .on(|witness, TakeSpan, _| match &mut witness.watched {
            Some(watched) => Ok(watched.take_span()?),
            None => Ok(None),
        })
        .on(|_, Calibrate { .. }, _| Ok(()))
}

impl Watched {
    fn open(ends: &Ends, watch: &Watch, poller: &Poller) -> Result<Self, String> {
        let pcap = watch.pcap.as_deref().map(Pcap::create).transpose()?;
        let snaplen = if pcap.is_some() { 65_535 } else { SNAPLEN };
        let taps = ends
            .namespaces
            .iter()
            .map(|namespace| {
                enter_network(namespace)?;
                let device = if ends.namespaces.len() == 1 { "lo" } else { DEVICE };
                Tap::open(Netlink::open()?.index(device)?, snaplen, RING_BYTES)
            })
            .collect::<Result<Vec<_>, SysError>>()
            .map_err(|error| format!("the packet tap cannot be opened: {error}"))?;
        for (number, tap) in taps.iter().enumerate() {
            poller.add(tap, number as u64, Interest::READ).map_err(|error| error.to_string())?;
        }
        let cpu = thread_time();
        let sight = Sight {
            tracker: WireTracker::new(),
            acks: watch.ack_delays.then(AckTracker::new),
            spans: watch.spans.then(SpanTracker::new),
            trace: HandshakeTrace::new(None, watch.trace_limit),
            clients: HashSet::new(),
            clock: FromRealtime::now(),
            pcap,
            cpu_before: cpu.user_us + cpu.system_us,
        };
        Ok(Self { taps, sight })
    }

    fn drain(&mut self) -> Result<(), SysError> {
        let Self { taps, sight } = self;
        let loopback = taps.len() == 1;
        for (number, tap) in taps.iter_mut().enumerate() {
            tap.for_each(|seen| sight.take(number, loopback, &seen))?;
        }
        Ok(())
    }

    /// Takes what the kernel still has.
    fn flush(&mut self) -> Result<(), SysError> {
        let Self { taps, sight } = self;
        let loopback = taps.len() == 1;
        for (number, tap) in taps.iter_mut().enumerate() {
            match tap.flush_wait(TAIL, |seen| sight.take(number, loopback, &seen)) {
                Err(error) if error.source.kind() != io::ErrorKind::TimedOut => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take_span(&mut self) -> Result<Option<Span>, SysError> {
        if self.sight.spans.is_some() {
            self.flush()?;
        }
        Ok(self.sight.spans.as_mut().map(|spans| spans.take(monotonic_ns())))
    }

    fn finish(mut self, channel: &mut Channel) -> Result<Counted, LoadError> {
        self.flush()?;
        let Self { taps, sight } = &mut self;
        let pcap_error = sight.pcap.take().and_then(|mut pcap| pcap.finish().err());
        channel.rows(&sight.trace.rows(), Rows::Wire)?;
        let mut wire = sight.tracker.wire();
        for tap in taps {
            wire.tap_drops += tap.drops()?;
        }
        let cpu = thread_time();
        Ok(Counted {
            wire: Some(wire),
            lateness: Histogram::new(),
            unwanted_drops: 0,
            overslept_ns: 0,
            ack_delays: sight.acks.as_ref().map(|acks| acks.delays().clone()),
            pcap_error,
            cpu_us: cpu.user_us + cpu.system_us - sight.cpu_before,
        })
    }
}

impl Sight {
    /// Takes one packet from the tap of host `number`.
    fn take(&mut self, number: usize, loopback: bool, seen: &TappedPacket<'_>) {
        let Self { tracker, acks, spans, trace, clients, clock, pcap, .. } = self;
        let at = clock.monotonic_ns(seen.at_realtime_ns);
        let Some(packet) = Packet::parse(seen.bytes, seen.ip_len) else { return };
        if loopback {
            // One device: every packet is seen leaving and, at once, arriving.
            let direction = loopback_direction(clients, &packet);
            let (from, to) = match direction {
                Direction::ClientToServer => (End::Client, End::Server),
                Direction::ServerToClient => (End::Server, End::Client),
            };
            if seen.outgoing {
                tracker.observe(direction, &packet, seen.gso_size, at);
                if let Some(spans) = spans {
                    observe_span(spans, direction, &packet, seen.bytes, at);
                }
            }
            trace.observe(if seen.outgoing { from } else { to }, direction, &packet, at);
            if let Some(acks) = acks
                && seen.outgoing == (direction == Direction::ServerToClient)
            {
                acks.observe(direction, &packet, at);
            }
        } else {
            let (end, leaving, arriving) = if number == 0 {
                (End::Client, Direction::ClientToServer, Direction::ServerToClient)
            } else {
                (End::Server, Direction::ServerToClient, Direction::ClientToServer)
            };
            let direction = if seen.outgoing { leaving } else { arriving };
            // Counted at the client alone: two rings give their packets out of step, and an ACK
            // seen before its data would look like a retransmission.
            if number == 0 {
                tracker.observe(direction, &packet, seen.gso_size, at);
                if let Some(spans) = spans {
                    observe_span(spans, direction, &packet, seen.bytes, at);
                }
            }
            trace.observe(end, direction, &packet, at);
            // At the server, so that no time on the link is in it.
            if let Some(acks) = acks
                && number == 1
            {
                acks.observe(direction, &packet, at);
            }
        }
        if let Some(pcap) = pcap {
            pcap.write_cut(number, at, seen.bytes, seen.ip_len);
        }
    }
}

/// At the client's own device a packet is sent and has arrived at one time.
fn observe_span(
    spans: &mut SpanTracker,
    direction: Direction,
    packet: &Packet,
    ip: &[u8],
    at_ns: u64,
) {
    spans.sent(direction, packet, at_ns);
    if direction == Direction::ServerToClient {
        spans.arrived(packet, payload_start(ip, packet), at_ns);
    }
}

/// Who sent a SYN is the client; a port number serves one client or the server, never both.
fn loopback_direction(clients: &mut HashSet<(IpAddr, u16)>, packet: &Packet) -> Direction {
    let Some(segment) = &packet.segment else { return Direction::ServerToClient };
    let source = (packet.src, segment.src_port);
    if segment.flags.syn() && !segment.flags.ack() {
        clients.insert(source);
    }
    if clients.contains(&source) { Direction::ClientToServer } else { Direction::ServerToClient }
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// What names the order of the bytes: this machine's.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const VERSION: [u16; 2] = [1, 0];
const LEN_NOT_STATED: [u8; 8] = [0xff; 8];
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;

/// libpcap 1.10 refuses two interfaces of raw IP: packets stand behind an Ethernet header of zeros.
const ETHERNET: u16 = 1;
const ETHERNET_LEN: u32 = 14;

/// A capture file being written.
pub struct Pcap {
    path: String,
    file: BufWriter<File>,
    clock: FromRealtime,
    failed: Option<io::Error>,
}

impl Pcap {
    /// Creates the file; an error is a sentence for the user.
    pub fn create(path: &str) -> Result<Self, String> {
        let say = |error: io::Error| format!("--pcap {path}: {error}");
        let file = open_own(Path::new(path)).map_err(say)?;
        empty(&file).map_err(say)?;
        let mut file = BufWriter::new(file);
        let version = VERSION.map(u16::to_ne_bytes);
        let mut section =
            [&BYTE_ORDER.to_ne_bytes(), version.as_flattened(), &LEN_NOT_STATED].concat();
        option(&mut section, USER_APPLICATION, MAKER.as_bytes());
        block(&mut file, SECTION_HEADER, &[&section, &[0; 4]]).map_err(say)?;
        for name in ["client", "server"] {
            // All of each packet is kept. Stamps are in units of 10^-9 s.
            let mut interface = [&ETHERNET.to_ne_bytes()[..], &[0; 6]].concat();
            option(&mut interface, INTERFACE_NAME, name.as_bytes());
            option(&mut interface, INTERFACE_RESOLUTION, &[9]);
            block(&mut file, INTERFACE_DESCRIPTION, &[&interface, &[0; 4]]).map_err(say)?;
        }
        Ok(Self { path: path.to_owned(), file, clock: FromRealtime::now(), failed: None })
    }

    /// Writes one packet, from its IP header on, as seen at `end` (0 client, 1 server).
    pub fn write(&mut self, end: usize, at_ns: u64, ip: &[u8]) {
        self.write_cut(end, at_ns, ip, ip.len() as u32);
    }

    /// The same of a packet whose end was not captured.
    fn write_cut(&mut self, end: usize, at_ns: u64, ip: &[u8], whole_len: u32) {
        if self.failed.is_some() {
            return;
        }
        let at_ns = self.clock.realtime_ns(at_ns);
        let [len, whole_len] = [ip.len() as u32, whole_len].map(|len| len + ETHERNET_LEN);
        let packet = [end as u32, (at_ns >> 32) as u32, at_ns as u32, len, whole_len];
        let ether_type: [u8; 2] = match ip.first().map(|byte| byte >> 4) {
            Some(6) => [0x86, 0xdd],
            _ => [0x08, 0x00],
        };
        let packet = packet.map(u32::to_ne_bytes);
        let parts = [packet.as_flattened(), &[0; 12], &ether_type, ip];
        self.failed = block(&mut self.file, ENHANCED_PACKET, &parts).err();
    }

    /// Flushes the file; says what went wrong meanwhile, if anything did.
    pub fn finish(&mut self) -> Result<(), String> {
        let failed = self.failed.take();
        let written = failed.map_or_else(|| self.file.flush(), Err);
        written.map_err(|error| format!("--pcap {}: {error}", self.path))
    }
}

/// A block: its kind and length, these parts as one, padded, and its length again.
fn block(file: &mut impl Write, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
    let body: usize = parts.iter().map(|part| part.len()).sum();
    let len = (body.next_multiple_of(4) as u32 + 12).to_ne_bytes();
    file.write_all(&kind.to_ne_bytes())?;
    file.write_all(&len)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.write_all(&[0; 3][..body.next_multiple_of(4) - body])?;
    file.write_all(&len)
}

/// Appends an option; four zeros end the list of them.
fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    to.extend(code.to_ne_bytes());
    to.extend((value.len() as u16).to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}
