//! Causes that limit the bandwidth of connections, from the arithmetic in [`crate::throughput`].

use std::collections::BTreeMap;

use serde_json::Value;

use super::spec::{CauseSpec, Finding, Remedy};
use crate::record::{Arm, LinkKind, Transfer, Way};
use crate::throughput::{
    Direction, Limit, Limited, bandwidth_delay_product_bytes, limited_by, quiet_rtt_us,
};
use crate::units::{human_bytes, human_count, human_rate, human_us};

/// The receiver's window is spent in each round trip.
pub const RECEIVE_WINDOW: CauseSpec = CauseSpec {
    id: Limit::ReceiveWindow.name(),
    test: |arm| finding(arm, Limit::ReceiveWindow),
    remedy: Remedy::Setting {
        change: "Do not set SO_RCVBUF, so that the kernel tunes the receive buffer; or set it to at least the link's rate times the round trip.",
        cost: "Kernel memory of up to the buffer's size for each connection whose receiver falls behind.",
        undo: "Set the former SO_RCVBUF before connect(2) or listen(2).",
    },
};

/// The send buffer holds less than a round trip takes.
pub const SEND_BUFFER: CauseSpec = CauseSpec {
    id: Limit::SendBuffer.name(),
    test: |arm| finding(arm, Limit::SendBuffer),
    remedy: Remedy::Setting {
        change: "Do not set SO_SNDBUF, so that the kernel tunes the send buffer; or set it to at least the link's rate times the round trip.",
        cost: "Kernel memory of up to the buffer's size for each connection with unacknowledged data.",
        undo: "Set the former SO_SNDBUF.",
    },
};

/// The congestion window is spent in each round trip.
pub const CONGESTION: CauseSpec = CauseSpec {
    id: Limit::Congestion.name(),
    test: |arm| finding(arm, Limit::Congestion),
    remedy: Remedy::Setting {
        change: "With losses: look for their source, or try TCP_CONGESTION=bbr. Without: the window is still growing; keep the connection open, and set net.ipv4.tcp_slow_start_after_idle=0 if it pauses.",
        cost: "BBR may take more than its share of a link from connections with other congestion controls, and retransmit more.",
        undo: "Set the former TCP_CONGESTION; net.ipv4.tcp_slow_start_after_idle=1.",
    },
};

/// The link carries no more.
pub const LINK_RATE: CauseSpec = CauseSpec {
    id: Limit::LinkRate.name(),
    test: |arm| finding(arm, Limit::LinkRate),
    remedy: Remedy::Setting {
        change: "Nothing on the hosts: the link is full. Only a faster link, or fewer bytes (compression), carries more.",
        cost: "Larger buffers than the link needs make its queue longer, and every round trip with it.",
        undo: "Nothing was changed.",
    },
};

/// The client's program uses a whole CPU.
pub const CLIENT_CPU: CauseSpec = CauseSpec {
    id: Limit::ClientCpu.name(),
    test: |arm| finding(arm, Limit::ClientCpu),
    remedy: Remedy::Setting {
        change: "Spend less CPU per byte on the client (larger writes, sendfile(2) or MSG_ZEROCOPY), or use more CPUs: more connections in more threads.",
        cost: "More threads cost memory and context switches; sendfile(2) needs the data in a file.",
        undo: "Use the former calls.",
    },
};

/// The server's program uses a whole CPU.
pub const SERVER_CPU: CauseSpec = CauseSpec {
    id: Limit::ServerCpu.name(),
    test: |arm| finding(arm, Limit::ServerCpu),
    remedy: Remedy::Setting {
        change: "Spend less CPU per byte on the server (larger reads and writes), or use more CPUs: more connections in more threads.",
        cost: "More threads cost memory and context switches.",
        undo: "Use the former calls.",
    },
};

/// The sender uses a whole CPU, most of it for the calls and not for the bytes.
pub const MESSAGE_OVERHEAD: CauseSpec = CauseSpec {
    id: Limit::MessageOverhead.name(),
    test: |arm| finding(arm, Limit::MessageOverhead),
    remedy: Remedy::Setting {
        change: "Collect small messages in the program and write blocks of 4 KiB or more; or gather them in one sendmsg(2).",
        cost: "A message waits until its block is full or flushed.",
        undo: "Write each message by itself.",
    },
};

/// A segment waits for the acknowledgment of the one before, which the receiver delays.
pub const NAGLE_DELAYED_ACK: CauseSpec = CauseSpec {
    id: Limit::NagleDelayedAck.name(),
    test: |arm| finding(arm, Limit::NagleDelayedAck),
    remedy: Remedy::Setting {
        change: "Set TCP_NODELAY on the sender, or write each message with one call.",
        cost: "With TCP_NODELAY, each small write becomes a segment of its own: more packets and CPU.",
        undo: "TCP_NODELAY=0.",
    },
};

/// All causes of bulk data, in the order of the answer.
pub const ALL: &[&CauseSpec] = &[
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
    let mut evidence = BTreeMap::new();
    let both = transfer.ways().count() > 1;
    for (direction, way) in Direction::of(transfer) {
        let Some(limited) = limited_by(transfer, direction, way).filter(|one| one.is(limit)) else {
            continue;
        };
        let seen = Seen { arm, transfer, direction, way, limited };
        let text = seen.words(limit);
        sentences.push(if both { format!("{}: {text}", direction.name()) } else { text });
        let prefix = if both { format!("{}_", direction.name()) } else { String::new() };
        for (name, value) in seen.evidence() {
            evidence.insert(format!("{prefix}{name}"), value);
        }
    }
    (!sentences.is_empty()).then(|| Finding { text: sentences.join(". ") + ".", evidence })
}

/// One direction and its limit.
struct Seen<'a> {
    arm: &'a Arm,
    transfer: &'a Transfer,
    direction: Direction,
    way: &'a Way,
    limited: Limited,
}

fn rate(bytes_per_s: f64) -> String {
    human_rate(bytes_per_s * 8.0)
}

impl Seen<'_> {
    /// The limit in a sentence without its full stop.
    fn words(&self, limit: Limit) -> String {
        let sender = &self.way.sender;
        let goodput = rate(self.way.goodput_bytes_per_s().unwrap_or(0.0));
        let each = match self.transfer.connections {
            0 | 1 => String::new(),
            several => format!(" of each of {} connections", human_count(several)),
        };
        let allows = match (self.limited.bound_bytes_per_s, self.limited.rtt_us) {
            (Some(bound), Some(rtt)) => {
                let rtt = human_us(rtt);
                format!("allows {} at a round trip of {rtt}; the goodput is {goodput}", rate(bound))
            }
            _ => format!("is about what the link's queue needs; the goodput is {goodput}"),
        };
        let bytes = |of: Option<f64>| human_bytes(of.unwrap_or(0.0));
        match limit {
            Limit::ReceiveWindow => {
                format!("The receive window of {}{each} {allows}", bytes(sender.peer_window_bytes))
            }
            Limit::SendBuffer => format!(
                "The send buffer of the {}{each} holds {} of data in flight, which {allows}",
                self.direction.sender(),
                bytes(sender.in_flight_max_bytes)
            ),
            Limit::Congestion => format!(
                "The congestion window of {}{each} {allows}, with {}",
                bytes(sender.congestion_window_bytes),
                match sender.retransmitted_segments {
                    0 => "no retransmission".to_owned(),
                    1 => "1 segment retransmitted".to_owned(),
                    several => format!("{} segments retransmitted", human_count(several)),
                }
            ),
            Limit::LinkRate => {
                let link = self.transfer.link_bytes_per_s.unwrap_or(0.0);
                format!("The link is full: {goodput} of the {} that its rate allows", rate(link))
            }
            Limit::ProgramRate => format!("The program sends no more than --rate: {goodput}"),
            Limit::ClientCpu | Limit::ServerCpu => self.cpu(limit, &goodput),
            Limit::MessageOverhead => self.overhead(),
            Limit::NagleDelayedAck => format!(
                "A round trip takes {} with at most {} in flight: Nagle's algorithm waits for an acknowledgment that the {} delays",
                human_us(sender.rtt_us.unwrap_or(0.0)),
                bytes(sender.in_flight_max_bytes.or(sender.in_flight_bytes)),
                self.direction.receiver()
            ),
        }
    }

    fn cpu(&self, limit: Limit, goodput: &str) -> String {
        let [sender, receiver] = self.direction.ends(self.transfer);
        let of = if limit == Limit::ClientCpu { "client" } else { "server" };
        let end = if self.direction.sender() == of { sender } else { receiver };
        let mut text =
            format!("The {of} uses {:.0} % of a CPU at {goodput}", end.cpu_share * 100.0);
        if self.direction.sender() == of && self.shares_softirq() {
            text += ", with part of the receiver's softirq work in it";
        }
        text
    }

    fn overhead(&self) -> String {
        let [sender, _] = self.direction.ends(self.transfer);
        let each = self.way.bytes_per_call().unwrap_or(0.0);
        let calls = self.way.goodput_bytes_per_s().unwrap_or(0.0) / each.max(1.0);
        let mut text = format!(
            "The {} uses {:.0} % of a CPU to send {} a call, {} for each",
            self.direction.sender(),
            sender.cpu_share * 100.0,
            human_bytes(each),
            human_us(sender.cpu_share / calls.max(f64::MIN_POSITIVE) * 1e6)
        );
        if self.shares_softirq() {
            text += " with part of the receiver's softirq work";
        }
        text
    }

    /// Without a program between the hosts, the sending CPU also runs the receiver's softirq work.
    fn shares_softirq(&self) -> bool {
        let kind = self.arm.link.as_ref().map(|link| link.kind);
        matches!(kind, Some(LinkKind::Direct | LinkKind::Loopback))
    }

    /// Every figure of the decision that was recorded.
    fn evidence(&self) -> Vec<(&'static str, Value)> {
        let sender = &self.way.sender;
        let [from, to] = self.direction.ends(self.transfer);
        let figures = [
            ("goodput_bytes_per_s", self.way.goodput_bytes_per_s()),
            ("bound_bytes_per_s", self.limited.bound_bytes_per_s),
            ("link_bytes_per_s", self.transfer.link_bytes_per_s),
            (
                "bandwidth_delay_product_bytes",
                bandwidth_delay_product_bytes(self.transfer, self.way),
            ),
            ("quiet_rtt_us", quiet_rtt_us(self.transfer, sender)),
            ("rtt_us", sender.rtt_us),
            ("peer_window_bytes", sender.peer_window_bytes),
            ("congestion_window_bytes", sender.congestion_window_bytes),
            ("in_flight_max_bytes", sender.in_flight_max_bytes),
            ("receive_window_share", sender.receive_window_share),
            ("send_buffer_share", sender.send_buffer_share),
            ("application_share", sender.application_share),
            ("bytes_per_call", self.way.bytes_per_call()),
            ("sender_cpu_share", Some(from.cpu_share)),
            ("receiver_cpu_share", Some(to.cpu_share)),
        ];
        let counted = ("retransmitted_segments", Value::from(sender.retransmitted_segments));
        let named = figures.into_iter().filter_map(|(name, of)| Some((name, Value::from(of?))));
        named.chain([counted]).collect()
    }
}
