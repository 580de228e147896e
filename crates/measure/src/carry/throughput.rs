//! Causes that limit the bandwidth of connections, from the arithmetic in [`tcptoll_core::verdict::throughput`].
//!
//! A send buffer is named by what was in flight, never by its size. With 16K asked for, up to 741 kB were in
//! flight, because one large write may exceed the limit by a super-packet; `tcpi_sndbuf_limited` counted
//! nothing of it.

use serde_json::Value;
use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::{Evidence, Finding};
use tcptoll_core::number;
use tcptoll_core::record::{Arm, LinkKind, Transfer, Way};
use tcptoll_core::verdict::throughput::{
    Direction, FULL, Limit, Limited, bandwidth_delay_product_bytes, limited_by, quiet_rtt_us,
};

use super::advice;

/// The receiver's window is spent in each round trip.
pub(super) const RECEIVE_WINDOW: CauseSpec =
    CauseSpec::new(Limit::ReceiveWindow.name(), |arm| finding(arm, Limit::ReceiveWindow))
        .remedied(advice::receive_window);

/// The send buffer holds less than a round trip takes.
pub(super) const SEND_BUFFER: CauseSpec =
    CauseSpec::new(Limit::SendBuffer.name(), |arm| finding(arm, Limit::SendBuffer))
        .remedied(advice::send_buffer);

/// The congestion window is spent in each round trip.
pub(super) const CONGESTION: CauseSpec =
    CauseSpec::new(Limit::Congestion.name(), |arm| finding(arm, Limit::Congestion))
        .remedied(advice::congestion);

/// The link carries no more.
pub(super) const LINK_RATE: CauseSpec =
    CauseSpec::new(Limit::LinkRate.name(), |arm| finding(arm, Limit::LinkRate))
        .remedied(advice::link_rate);

/// The client's program uses a whole CPU.
pub(super) const CLIENT_CPU: CauseSpec =
    CauseSpec::new(Limit::ClientCpu.name(), |arm| finding(arm, Limit::ClientCpu));

/// The server's program uses a whole CPU.
pub(super) const SERVER_CPU: CauseSpec =
    CauseSpec::new(Limit::ServerCpu.name(), |arm| finding(arm, Limit::ServerCpu));

/// The sender uses a whole CPU, most of it for the calls and not for the bytes.
pub(super) const MESSAGE_OVERHEAD: CauseSpec =
    CauseSpec::new(Limit::MessageOverhead.name(), |arm| finding(arm, Limit::MessageOverhead));

/// A segment waits for the acknowledgment of the one before, which the receiver delays.
pub(super) const NAGLE_DELAYED_ACK: CauseSpec =
    CauseSpec::new(Limit::NagleDelayedAck.name(), |arm| finding(arm, Limit::NagleDelayedAck));

/// All causes of bulk data, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[
    &NAGLE_DELAYED_ACK,
    &RECEIVE_WINDOW,
    &SEND_BUFFER,
    &CONGESTION,
    &MESSAGE_OVERHEAD,
    &CLIENT_CPU,
    &SERVER_CPU,
    &LINK_RATE,
];

/// What the transfer of an arm shows of one limit; of two directions that it limits, both.
fn finding(arm: &Arm, limit: Limit) -> Option<Finding> {
    let transfer = arm.own.transfer.as_ref()?;
    let mut sentences = Vec::new();
    let mut evidence = Evidence::new();
    let both = transfer.ways().count() > 1;
    for (direction, way) in Direction::used_in(transfer) {
        let Some(limited) = limited_by(transfer, direction, way).filter(|one| one.is(limit)) else {
            continue;
        };
        let seen = LimitedDirection { arm, transfer, direction, way, limited };
        let text = seen.words(limit);
        sentences.push(if both { format!("{}: {text}", direction.name()) } else { text });
        let prefix = if both { format!("{}_", direction.name()) } else { String::new() };
        for (name, value) in seen.evidence(limit) {
            evidence.insert(format!("{prefix}{name}"), value);
        }
    }
    (!sentences.is_empty()).then(|| Finding::new(sentences.join(". ") + ".", evidence))
}

/// How full a link is that limits.
fn fullness(transfer: &Transfer, way: &Way) -> &'static str {
    let share = way.goodput_bytes_per_s().zip(transfer.link_bytes_per_s);
    match share {
        Some((goodput, link)) if goodput < link * FULL => "nearly full",
        _ => "full",
    }
}

/// Why one direction of an arm carries no more, as part of a sentence: `the receive window allows
/// 18.8 kB per round trip of 10.0 ms`.
///
/// None: nothing that was recorded explains it.
pub(super) fn reason(transfer: &Transfer, direction: Direction, way: &Way) -> Option<String> {
    let limited = limited_by(transfer, direction, way)?;
    let sender = &way.sender;
    let [from, to] = direction.ends(transfer);
    let rtt = number::time(limited.rtt_us.or(quiet_rtt_us(transfer, sender)).unwrap_or(0.0));
    let bytes = |value: Option<f64>| number::bytes(value.unwrap_or(0.0));
    // Without a bound there is no round trip that explains the goodput.
    let window = |name: &str, size: Option<f64>| match limited.bound_bytes_per_s {
        Some(_) => format!("the {name} window allows {} per round trip of {rtt}", bytes(size)),
        None => format!("the {name} window of {} is full most of the time", bytes(size)),
    };
    Some(match limited.by {
        Limit::ReceiveWindow => window("receive", sender.peer_window_bytes),
        Limit::SendBuffer => {
            let held = bytes(sender.in_flight_max_bytes);
            match limited.bound_bytes_per_s {
                Some(_) => format!("the send buffer allows {held} per round trip of {rtt}"),
                None => format!("the send buffer limits the data in flight to {held}"),
            }
        }
        Limit::Congestion => window("congestion", sender.congestion_window_bytes),
        Limit::LinkRate => format!("the link is {}", fullness(transfer, way)),
        Limit::ProgramRate => "--rate limits the program".to_owned(),
        Limit::ClientCpu | Limit::ServerCpu => {
            let client = limited.by == Limit::ClientCpu;
            let side = if client { "client" } else { "server" };
            let share = if direction.sender() == side { from.cpu_share } else { to.cpu_share };
            format!("the {side} uses {} of a CPU", number::percent(share))
        }
        Limit::MessageOverhead => format!(
            "the {} uses {} of a CPU for system calls of {} each",
            direction.sender(),
            number::percent(from.cpu_share),
            bytes(way.bytes_per_call())
        ),
        Limit::NagleDelayedAck => format!(
            "each segment waits for an acknowledgment that the {} delays (round trip: {})",
            direction.receiver(),
            number::time(sender.rtt_us.unwrap_or(0.0))
        ),
    })
}

/// One direction and its limit.
struct LimitedDirection<'a> {
    arm: &'a Arm,
    transfer: &'a Transfer,
    direction: Direction,
    way: &'a Way,
    limited: Limited,
}

impl LimitedDirection<'_> {
    /// The limit in a sentence without its full stop.
    fn words(&self, limit: Limit) -> String {
        let sender = &self.way.sender;
        let goodput = number::metric(self.way.goodput_bytes_per_s().unwrap_or(0.0), "bytes/s");
        let each = match self.transfer.connections {
            0 | 1 => String::new(),
            several => format!(" (each of {} connections)", number::count(several)),
        };
        let allows = match (self.limited.bound_bytes_per_s, self.limited.rtt_us) {
            (Some(bound), Some(rtt)) => Some(format!(
                "allows {} at a round trip of {}",
                number::metric(bound, "bytes/s"),
                number::time(rtt)
            )),
            (Some(_), None) => Some("allows about as much as the link".to_owned()),
            (None, _) => None,
        };
        let full = || "was full in most samples".to_owned();
        let bytes = |value: Option<f64>| number::bytes(value.unwrap_or(0.0));
        match limit {
            Limit::ReceiveWindow => format!(
                "The receive window of {}{each} {}. The goodput is {goodput}",
                bytes(sender.peer_window_bytes),
                allows.unwrap_or_else(full)
            ),
            Limit::SendBuffer => format!(
                "The send buffer of the {}{each} limits the data in flight to {}{}. The goodput is \
                 {goodput}",
                self.direction.sender(),
                bytes(sender.in_flight_max_bytes),
                allows.map_or_else(String::new, |allows| format!(", which {allows}"))
            ),
            Limit::Congestion => format!(
                "The congestion window of {}{each} {}. The goodput is {goodput}, with {}",
                bytes(sender.congestion_window_bytes),
                allows.unwrap_or_else(full),
                match sender.retransmitted_segments {
                    0 => "no retransmission".to_owned(),
                    1 => "1 segment retransmitted".to_owned(),
                    several => format!("{} segments retransmitted", number::count(several)),
                }
            ),
            Limit::LinkRate => {
                let link = self.transfer.link_bytes_per_s.unwrap_or(0.0);
                let (full, link) =
                    (fullness(self.transfer, self.way), number::metric(link, "bytes/s"));
                format!("The link is {full}: goodput {goodput}, of at most {link} of payload")
            }
            Limit::ProgramRate => format!("--rate limits the program to {goodput}"),
            Limit::ClientCpu | Limit::ServerCpu => self.cpu(limit, &goodput),
            Limit::MessageOverhead => self.overhead(),
            Limit::NagleDelayedAck => format!(
                "A round trip takes {} with at most {} in flight: Nagle's algorithm waits for an \
                 acknowledgment that the {} delays",
                number::time(sender.rtt_us.unwrap_or(0.0)),
                bytes(sender.in_flight_max_bytes.or(sender.in_flight_bytes)),
                self.direction.receiver()
            ),
        }
    }

    fn cpu(&self, limit: Limit, goodput: &str) -> String {
        let [sender, receiver] = self.direction.ends(self.transfer);
        let side = if limit == Limit::ClientCpu { "client" } else { "server" };
        let end = if self.direction.sender() == side { sender } else { receiver };
        let mut text =
            format!("The {side} uses {} of a CPU at {goodput}", number::percent(end.cpu_share));
        if self.direction.sender() == side && self.shares_softirq() {
            text += ", including part of the receiver's softirq work";
        }
        text
    }

    fn overhead(&self) -> String {
        let [sender, _] = self.direction.ends(self.transfer);
        let each = self.way.bytes_per_call().unwrap_or(0.0);
        let calls = self.way.goodput_bytes_per_s().unwrap_or(0.0) / each.max(1.0);
        let mut text = format!(
            "The {} uses {} of a CPU for system calls of {} each, {} per call",
            self.direction.sender(),
            number::percent(sender.cpu_share),
            number::bytes(each),
            number::time(sender.cpu_share / calls.max(f64::MIN_POSITIVE) * 1e6)
        );
        if self.shares_softirq() {
            text += ", including part of the receiver's softirq work";
        }
        text
    }

    /// Without a program between the hosts, the sending CPU also runs the receiver's softirq work.
    fn shares_softirq(&self) -> bool {
        let kind = self.arm.link.as_ref().map(|link| link.kind);
        matches!(kind, Some(LinkKind::Direct | LinkKind::Loopback))
    }

    /// The figures that the decision rests on, where they were recorded.
    fn evidence(&self, limit: Limit) -> Vec<(&'static str, Value)> {
        let sender = &self.way.sender;
        let [from, to] = self.direction.ends(self.transfer);
        let goodput = ("goodput_bytes_per_s", self.way.goodput_bytes_per_s());
        let link = ("link_bytes_per_s", self.transfer.link_bytes_per_s);
        let bound = ("bound_bytes_per_s", self.limited.bound_bytes_per_s);
        let product = bandwidth_delay_product_bytes(self.transfer, self.way);
        let product = ("bandwidth_delay_product_bytes", product);
        let quiet = ("quiet_rtt_us", quiet_rtt_us(self.transfer, sender));
        let loaded = ("rtt_us", sender.rtt_us);
        let receive = ("peer_window_bytes", sender.peer_window_bytes);
        let congestion = ("congestion_window_bytes", sender.congestion_window_bytes);
        let in_flight = ("in_flight_max_bytes", sender.in_flight_max_bytes);
        let of_receive = ("receive_window_share", sender.receive_window_share);
        let of_send = ("send_buffer_share", sender.send_buffer_share);
        let again = ("retransmitted_segments", Some(sender.retransmitted_segments as f64));
        let cpus = [("sender_cpu_share", from.cpu_share), ("receiver_cpu_share", to.cpu_share)];
        let [sender_cpu, receiver_cpu] = cpus.map(|(name, share)| (name, Some(share)));
        let call = ("bytes_per_call", self.way.bytes_per_call());
        let figures: &[(&'static str, Option<f64>)] = match limit {
            Limit::ReceiveWindow => &[goodput, bound, receive, quiet, loaded, product, of_receive],
            Limit::SendBuffer => {
                &[goodput, bound, in_flight, receive, congestion, quiet, loaded, of_send]
            }
            Limit::Congestion => &[goodput, bound, congestion, receive, quiet, loaded, again],
            Limit::LinkRate | Limit::ProgramRate => {
                &[goodput, link, receive, product, quiet, loaded, of_receive]
            }
            Limit::ClientCpu | Limit::ServerCpu => &[goodput, sender_cpu, receiver_cpu],
            Limit::MessageOverhead => &[goodput, sender_cpu, receiver_cpu, call],
            Limit::NagleDelayedAck => &[goodput, quiet, loaded, in_flight],
        };
        let known = figures
            .iter()
            .filter_map(|(name, value)| Some((*name, value.filter(|value| value.is_finite())?)));
        known.map(|(name, value)| (name, number(value))).collect()
    }
}

/// A whole figure without a fraction, others with all digits.
fn number(value: f64) -> Value {
    let whole = value.round();
    if (value - whole).abs() < f64::EPSILON * whole.abs() || value.abs() >= 1e4 {
        return Value::from(whole as i64);
    }
    Value::from(value)
}
