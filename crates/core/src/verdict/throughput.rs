//! What limits the bandwidth of TCP connections: arithmetic over what the sender's kernel saw.
//!
//! A connection carries at most one window in each round trip, and at most what the link and both CPUs can
//! do. [`bounds`] works each of these out, [`limited_by`] names the one that was reached. The shares of time
//! that the kernel counts (`tcpi_rwnd_limited`) decide nothing alone: BBR shows 30 to 47 % where the receive
//! window is the only limit, and CUBIC 98 % where the link is full. They decide only between two windows of
//! one size.
//!
//! Text and advice are in `tcptoll_measure::carry::throughput`.

use crate::record::{Sender, SocketEnd, Transfer, Way};

/// A bound within this share of the goodput was reached.
const REACHED: f64 = 0.85;

/// Above this share of a bound, it was none: its window or round trip is not that of the transfer.
const EXCEEDED: f64 = 1.15;

/// From this share of the link's rate on, the link is full: windows only decide how long its queue is.
pub const FULL: f64 = 0.95;

/// Bounds within this share of each other are not told apart.
const CROSSOVER: f64 = 0.05;

/// From this share of a CPU on, the program did not wait for the network.
pub const CPU_BOUND: f64 = 0.9;

/// Of a window this much has to be in flight at its peak; less, and nobody waited for it.
const FILLED: f64 = 0.7;

/// With this much of a window in flight most of the time, it is the limit at a lower goodput too: the
/// round trip under load is a median, and a transfer that stands still now and then has longer ones.
const MOSTLY_FILLED: f64 = 0.75;

/// The goodput that is enough then, as a share of the bound.
const REACHED_WHEN_FILLED: f64 = 0.65;

/// From this share of samples on, the kernel's queue of the sender was empty as a rule.
const EMPTY_SHARE: f64 = 0.5;

/// Data in flight is constant if its median is at least this share of its peak.
const CONSTANT: f64 = 0.8;

/// A send buffer is the limit if it holds less than this share of the smallest window.
const WELL_BELOW: f64 = 0.9;

/// What is in flight is of a send buffer's size between these shares of it.
const OF_ITS_SIZE: [f64; 2] = [0.5, 4.0];

/// From this share of the time on, the send buffer kept the sender from sending.
const SEND_BUFFER_SHARE: f64 = 0.1;

/// With the receive window and the congestion window alike, this share of the time says which it was.
const RECEIVE_WINDOW_SHARE: f64 = 0.2;

/// A system call with less payload costs more than copying and sending its payload, where the program
/// gives it no more: a small send buffer makes calls short too.
///
/// Derivation, on Linux 6.18 over a direct link with Nagle's algorithm off: a call of 1 KiB took 2.8 µs of
/// CPU, and writes of 128 KiB 0.5 ns a byte (a build without optimization; nearly all of it is the
/// kernel's). What a call costs besides its bytes is equal to them at 4 to 5 KiB.
pub const SMALL_CALL_BYTES: f64 = 4_096.0;

/// What delayed acknowledgments add to a round trip, µs: `TCP_DELACK_MIN` is 40 ms, `TCP_DELACK_MAX`
/// 200 ms; timers end up to 10 ms off.
const DELAYED_ACK_US: [f64; 2] = [30e3, 210e3];

/// In flight while a delayed acknowledgment is waited for: no second full segment, which would end it.
const DELAYED_ACK_SEGMENTS: f64 = 2.0;

/// The way of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Direction {
    /// The directions that carried data.
    pub fn used_in(transfer: &Transfer) -> impl Iterator<Item = (Self, &Way)> {
        [(Self::Up, &transfer.up), (Self::Down, &transfer.down)]
            .into_iter()
            .filter_map(|(direction, way)| Some((direction, way.as_ref()?)))
    }

    /// As in the option: `up`, `down`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// The host that sends, in words.
    pub const fn sender(self) -> &'static str {
        match self {
            Self::Up => "client",
            Self::Down => "server",
        }
    }

    /// The host that receives, in words.
    pub const fn receiver(self) -> &'static str {
        match self {
            Self::Up => "server",
            Self::Down => "client",
        }
    }

    /// The sockets of the sender and of the receiver.
    pub const fn ends(self, transfer: &Transfer) -> [&SocketEnd; 2] {
        match self {
            Self::Up => [&transfer.client, &transfer.server],
            Self::Down => [&transfer.server, &transfer.client],
        }
    }
}

/// What can limit bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The receiver's window is spent in each round trip.
    ReceiveWindow,
    /// The send buffer holds less than a round trip takes.
    SendBuffer,
    /// The congestion window is spent in each round trip.
    Congestion,
    /// The link carries no more.
    LinkRate,
    /// The program sends no more than it was told to.
    ProgramRate,
    /// The client's program uses a whole CPU.
    ClientCpu,
    /// The server's program uses a whole CPU.
    ServerCpu,
    /// The sender uses a whole CPU, most of it for the calls and not for the bytes.
    MessageOverhead,
    /// A segment waits for the acknowledgment of the one before, which the receiver delays.
    NagleDelayedAck,
}

impl Limit {
    /// The name in reports; the id of its cause, where it has one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "receive-window",
            Self::SendBuffer => "send-buffer",
            Self::Congestion => "congestion",
            Self::LinkRate => "link-rate",
            Self::ProgramRate => "program-rate",
            Self::ClientCpu => "client-cpu",
            Self::ServerCpu => "server-cpu",
            Self::MessageOverhead => "message-overhead",
            Self::NagleDelayedAck => "nagle-delayed-ack",
        }
    }
}

/// A bound of the goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// What sets it.
    pub limit: Limit,
    /// Payload, bytes/s, all connections together.
    pub bytes_per_s: f64,
}

/// What limited one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limited {
    /// The limit.
    pub by: Limit,
    /// Another one that cannot be told apart: at the crossover of two bounds either is true.
    pub or: Option<Limit>,
    /// What it allows, bytes/s; absent for CPUs, which have no bound of their own.
    pub bound_bytes_per_s: Option<f64>,
    /// The round trip of that arithmetic, µs, where a window is the bound.
    pub rtt_us: Option<f64>,
}

impl Limited {
    /// A limit without a bound of its own.
    const fn alone(by: Limit) -> Self {
        Self { by, or: None, bound_bytes_per_s: None, rtt_us: None }
    }

    /// Whether this is the limit, or one that cannot be told apart from it.
    pub fn is(&self, limit: Limit) -> bool {
        self.by == limit || self.or == Some(limit)
    }
}

/// The round trip of a connection without a queue, µs: the echo's median, else the smallest that TCP saw.
///
/// The median of echoes comes first: where the delay varies, the smallest round trip is one that hardly
/// any window took.
pub fn quiet_rtt_us(transfer: &Transfer, sender: &Sender) -> Option<f64> {
    [transfer.quiet_rtt_us, sender.min_rtt_us].into_iter().flatten().find(|us| *us > 0.0)
}

/// Bytes under way on a full link without a queue: its payload rate times its round trip.
pub fn bandwidth_delay_product_bytes(transfer: &Transfer, way: &Way) -> Option<f64> {
    Some(transfer.link_bytes_per_s? * quiet_rtt_us(transfer, &way.sender)? / 1e6)
}

/// The windows of a sender in bytes, each with its name; the send buffer only where the sender waited for
/// it, and less was in flight than both windows allow.
fn windows(transfer: &Transfer, sender: &Sender) -> impl Iterator<Item = (Limit, f64)> {
    let counted = sender.send_buffer_share.is_some_and(|share| share >= SEND_BUFFER_SHARE);
    let waited = counted || runs_empty(transfer, sender);
    let others = [sender.peer_window_bytes, sender.congestion_window_bytes];
    // What fills a window is limited by it, however large the buffer is.
    let below = |bytes: f64| {
        others.into_iter().flatten().filter(|w| *w > 0.0).all(|w| bytes <= w * WELL_BELOW)
    };
    let buffered = sender.in_flight_max_bytes.filter(|bytes| waited && below(*bytes));
    [
        (Limit::ReceiveWindow, sender.peer_window_bytes),
        (Limit::Congestion, sender.congestion_window_bytes),
        (Limit::SendBuffer, buffered),
    ]
    .into_iter()
    .filter_map(|(limit, bytes)| Some((limit, bytes.filter(|bytes| *bytes > 0.0)?)))
}

/// Whether the kernel's queue runs empty with always as much in flight, although the program has more.
///
/// Linux 6.18 does not count the time in `tcpi_sndbuf_limited` where one super-packet fills the buffer: with
/// 1K asked for, 65 kB were in flight all the time, and it counted nothing.
fn runs_empty(transfer: &Transfer, sender: &Sender) -> bool {
    let constant = sender
        .in_flight_bytes
        .zip(sender.in_flight_max_bytes)
        .is_some_and(|(median, most)| median >= most * CONSTANT);
    transfer.rate_bytes_per_s.is_none()
        && constant
        && sender.application_share.is_some_and(|share| share >= EMPTY_SHARE)
}

/// What bounds the goodput of one direction at this round trip, the smallest first.
///
/// Windows count for each connection, all of which are taken to be like the first.
fn bounds_at(transfer: &Transfer, way: &Way, rtt_us: Option<f64>) -> Vec<Bound> {
    let connections = transfer.connections.max(1) as f64;
    let per_rtt = |(limit, window): (Limit, f64)| {
        let bytes_per_s = window * connections / (rtt_us? / 1e6);
        Some(Bound { limit, bytes_per_s })
    };
    let rate = |limit, rate: Option<f64>| Some(Bound { limit, bytes_per_s: rate? });
    let mut all: Vec<Bound> = windows(transfer, &way.sender)
        .filter_map(per_rtt)
        .chain(rate(Limit::LinkRate, transfer.link_bytes_per_s))
        .chain(rate(Limit::ProgramRate, transfer.rate_bytes_per_s))
        .filter(|bound| bound.bytes_per_s.is_finite() && bound.bytes_per_s > 0.0)
        .collect();
    all.sort_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s));
    all
}

/// What bounds the goodput of one direction at the quiet link's round trip, the smallest first.
pub fn bounds(transfer: &Transfer, way: &Way) -> Vec<Bound> {
    bounds_at(transfer, way, quiet_rtt_us(transfer, &way.sender))
}

/// What limited one direction.
///
/// In this order, because the earlier evidence explains the later one away:
///
/// 1. an acknowledgment that the receiver delays: nothing else adds 40 ms to so little in flight;
/// 2. the link, or the program's own rate: a full link makes its queue, and so the round trip, as long
///    as the windows allow;
/// 3. a CPU: whoever uses a whole CPU does not wait for a window;
/// 4. the smallest bound at the quiet round trip, if the goodput reaches it;
/// 5. the same at the round trip under load: where no link is full, the hosts themselves make it longer;
/// 6. a window without room for one more segment in most samples: round trips then vary so much that their
///    median is not that of the goodput;
/// 7. a send buffer that was set, where what was in flight is of its size and well below both windows.
///
/// None: nothing of it was reached, or what it takes was not recorded.
pub fn limited_by(transfer: &Transfer, direction: Direction, way: &Way) -> Option<Limited> {
    let goodput = way.goodput_bytes_per_s().filter(|rate| *rate > 0.0)?;
    let quiet = bounds(transfer, way);
    if waits_for_delayed_acks(transfer, way) {
        return Some(Limited::alone(Limit::NagleDelayedAck));
    }
    let at = |rtt_us: Option<f64>, reached: [f64; 2]| {
        let bounds = bounds_at(transfer, way, rtt_us);
        let limited = smallest(goodput, &bounds, reached, transfer, &way.sender)?;
        Some(Limited { rtt_us, ..limited })
    };
    full(goodput, &quiet)
        .or_else(|| cpu(transfer, direction, way))
        .or_else(|| at(quiet_rtt_us(transfer, &way.sender), [REACHED; 2]))
        .or_else(|| at(way.sender.rtt_us, [REACHED, REACHED_WHEN_FILLED]))
        .or_else(|| without_room(transfer, &way.sender))
        .or_else(|| buffer_left_over(transfer, direction, &way.sender))
}

/// Whether each segment waits until the receiver's timer lets the acknowledgment of the last one go.
fn waits_for_delayed_acks(transfer: &Transfer, way: &Way) -> bool {
    let sender = &way.sender;
    let added = sender.rtt_us.zip(quiet_rtt_us(transfer, sender)).map(|(rtt, quiet)| rtt - quiet);
    let in_flight = sender.in_flight_max_bytes.or(sender.in_flight_bytes);
    let few = in_flight
        .zip(sender.segment_bytes)
        .is_some_and(|(bytes, segment)| bytes <= segment * DELAYED_ACK_SEGMENTS);
    transfer.nagle
        && few
        && added.is_some_and(|us| (DELAYED_ACK_US[0]..=DELAYED_ACK_US[1]).contains(&us))
}

/// The link, or the program's rate, where the goodput fills it.
fn full(goodput: f64, bounds: &[Bound]) -> Option<Limited> {
    let rate = bounds
        .iter()
        .find(|bound| matches!(bound.limit, Limit::LinkRate | Limit::ProgramRate))
        .filter(|rate| goodput >= rate.bytes_per_s * FULL)?;
    Some(Limited {
        by: rate.limit,
        or: next_to(rate, bounds),
        bound_bytes_per_s: Some(rate.bytes_per_s),
        rtt_us: None,
    })
}

/// A window whose bound cannot be told apart from this one.
fn next_to(bound: &Bound, bounds: &[Bound]) -> Option<Limit> {
    let near = |other: &&Bound| {
        other.limit != bound.limit
            && (other.bytes_per_s / bound.bytes_per_s - 1.0).abs() <= CROSSOVER
    };
    bounds.iter().find(near).map(|other| other.limit)
}

/// A program that used a whole CPU; the sender's first, as on one machine it does the receiver's softirq
/// work too.
fn cpu(transfer: &Transfer, direction: Direction, way: &Way) -> Option<Limited> {
    let [sender, receiver] = direction.ends(transfer).map(|end| end.cpu_share);
    let limit_of = |name| if name == "client" { Limit::ClientCpu } else { Limit::ServerCpu };
    let by = if sender >= CPU_BOUND {
        let short_calls = way.bytes_per_call().is_some_and(|bytes| bytes < SMALL_CALL_BYTES);
        if short_calls && (transfer.message_bytes as f64) < SMALL_CALL_BYTES {
            Limit::MessageOverhead
        } else {
            limit_of(direction.sender())
        }
    } else if receiver >= CPU_BOUND {
        limit_of(direction.receiver())
    } else {
        return None;
    };
    Some(Limited::alone(by))
}

/// The smallest bound, where the goodput reaches this share of it, or the other share of a window that was
/// full most of the time.
fn smallest(
    goodput: f64,
    bounds: &[Bound],
    [reached, reached_when_filled]: [f64; 2],
    transfer: &Transfer,
    sender: &Sender,
) -> Option<Limited> {
    let least = bounds.first()?;
    let share = goodput / least.bytes_per_s;
    let window = windows(transfer, sender).find(|(limit, _)| *limit == least.limit);
    let window = window.map(|(_, bytes)| bytes);
    let reached = if mostly_filled(window, sender) { reached_when_filled } else { reached };
    if !(reached..=EXCEEDED).contains(&share) || !peak_fills(window, sender) {
        return None;
    }
    let second = next_to(least, bounds);
    let pair = [Some(least.limit), second];
    let both_windows =
        pair.contains(&Some(Limit::ReceiveWindow)) && pair.contains(&Some(Limit::Congestion));
    let (by, or) = match sender.receive_window_share {
        // The kernel only counts it where the congestion window had room.
        Some(share) if both_windows && share >= RECEIVE_WINDOW_SHARE => {
            (Limit::ReceiveWindow, None)
        }
        _ => (least.limit, second),
    };
    Some(Limited { by, or, bound_bytes_per_s: Some(least.bytes_per_s), rtt_us: None })
}

/// The smallest window, where it had no room for one more full segment in most samples.
fn without_room(transfer: &Transfer, sender: &Sender) -> Option<Limited> {
    let mut all: Vec<(Limit, f64)> = windows(transfer, sender).collect();
    all.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let (least, bytes) = *all.first()?;
    let in_flight = sender.in_flight_bytes.filter(|bytes| *bytes > 0.0)?;
    let no_segment = sender.segment_bytes.is_some_and(|segment| bytes - in_flight < segment);
    let full = mostly_filled(Some(bytes), sender) || no_segment;
    if !full || !peak_fills(Some(bytes), sender) {
        return None;
    }
    let waited = sender.receive_window_share.is_some_and(|share| share >= RECEIVE_WINDOW_SHARE);
    let receive = all.iter().find(|(limit, _)| *limit == Limit::ReceiveWindow);
    let alike = receive.is_some_and(|(_, window)| *window <= bytes * (1.0 + CROSSOVER));
    let by = if waited && alike { Limit::ReceiveWindow } else { least };
    Some(Limited::alone(by))
}

/// The send buffer that the program set, where nothing else is left: it always had more to send, and the
/// median of what was in flight is of the buffer's size and well below both windows.
///
/// Its peak says nothing: one large write may exceed the buffer (measured on Linux 6.18 at 10 ms with 16K to
/// 512K asked for: medians of 0.6 to 2.5 times the effective size).
fn buffer_left_over(transfer: &Transfer, direction: Direction, sender: &Sender) -> Option<Limited> {
    let [end, _] = direction.ends(transfer);
    let buffer = end.send_buffer.asked_bytes.and(Some(end.send_buffer.effective_bytes as f64))?;
    let in_flight = sender.in_flight_bytes.filter(|bytes| *bytes > 0.0)?;
    let below = |window: Option<f64>| window.is_some_and(|bytes| in_flight < bytes * WELL_BELOW);
    let is_left = transfer.rate_bytes_per_s.is_none()
        && (OF_ITS_SIZE[0]..=OF_ITS_SIZE[1]).contains(&(in_flight / buffer))
        && below(sender.peer_window_bytes)
        && below(sender.congestion_window_bytes);
    is_left.then(|| Limited::alone(Limit::SendBuffer))
}

/// Whether the peak of what was in flight filled the window; true where it was not recorded, or the bound
/// is no window.
fn peak_fills(window: Option<f64>, sender: &Sender) -> bool {
    let both = window.zip(sender.in_flight_max_bytes);
    both.is_none_or(|(window, bytes)| bytes >= window * FILLED)
}

/// Whether the median of what was in flight nearly fills the window.
fn mostly_filled(window: Option<f64>, sender: &Sender) -> bool {
    let both = window.zip(sender.in_flight_bytes);
    both.is_some_and(|(window, bytes)| bytes >= window * MOSTLY_FILLED)
}

#[cfg(test)]
mod tests;
