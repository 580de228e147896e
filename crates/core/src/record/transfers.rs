//! What bulk data over TCP connections showed (buffers, bytes, what limited each direction), and the
//! kernel memory of a number of open connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::merge::{Merge, merged, parts, sum};

/// Bulk data over one or more connections.
///
/// Of several rounds, counts are sums, and everything else is the mean or the first value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    /// Concurrent connections.
    pub connections: u64,
    /// Size of one write of the program, bytes.
    pub message_bytes: u64,
    /// Whether Nagle's algorithm was on, at the sending ends.
    pub nagle: bool,
    /// The client's sockets.
    pub client: SocketEnd,
    /// The server's sockets.
    pub server: SocketEnd,
    /// Payload that the link can carry, bytes/s, by its rate and the headers of full segments; absent
    /// where the link has no rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_s: Option<f64>,
    /// Payload that the program was to send at most, all connections together, bytes/s (`--rate`);
    /// absent: as much as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<f64>,
    /// Round trip of the quiet link, µs: ICMP echoes before the load, over ssh UDP datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_rtt_us: Option<f64>,
    /// From the client to the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Way>,
    /// From the server to the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Way>,
}

impl Transfer {
    /// The directions that carried data, each with its name: `up`, `down`.
    pub fn ways(&self) -> impl Iterator<Item = (&'static str, &Way)> {
        [("up", &self.up), ("down", &self.down)]
            .into_iter()
            .filter_map(|(name, way)| Some((name, way.as_ref()?)))
    }
}

impl Way {
    /// Payload received per second of the window.
    ///
    /// None: the window has no length.
    pub fn goodput_bytes_per_s(&self) -> Option<f64> {
        (self.window_s > 0.0).then(|| self.window_bytes as f64 / self.window_s)
    }

    /// Payload of a system call that sent, bytes.
    ///
    /// None: none was counted.
    pub fn bytes_per_call(&self) -> Option<f64> {
        (self.send_calls > 0).then(|| self.sent_bytes as f64 / self.send_calls as f64)
    }
}

/// The sockets of one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketEnd {
    /// `SO_SNDBUF`.
    pub send_buffer: Buffer,
    /// `SO_RCVBUF`.
    pub receive_buffer: Buffer,
    /// Congestion control in use.
    pub congestion: String,
    /// CPU time of the program in the window, divided by the window: 1 is one whole CPU.
    pub cpu_share: f64,
}

/// A socket buffer: asked for and got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Buffer {
    /// What the program asked for, bytes; absent: nothing, so the kernel tunes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
    /// What `getsockopt` returned after the handshake, bytes. The kernel doubles what is asked for, and
    /// counts its own overhead in it.
    pub effective_bytes: u64,
    /// Why it is not twice what was asked for: `maximum` (`rmem_max` or `wmem_max`), `minimum` (the
    /// kernel's own); absent: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<BufferLimit>,
}

/// What changed a buffer's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BufferLimit {
    /// `net.core.rmem_max` or `net.core.wmem_max`.
    Maximum,
    /// The kernel's smallest buffer: `SOCK_MIN_SNDBUF`, `SOCK_MIN_RCVBUF`.
    Minimum,
}

impl Buffer {
    /// A buffer of which `asked` bytes were asked for, and what the kernel reports.
    pub fn new(asked: Option<u64>, effective: u64) -> Self {
        let changed_by = asked.and_then(|asked| match effective.cmp(&asked.saturating_mul(2)) {
            std::cmp::Ordering::Less => Some(BufferLimit::Maximum),
            std::cmp::Ordering::Greater => Some(BufferLimit::Minimum),
            std::cmp::Ordering::Equal => None,
        });
        Self { asked_bytes: asked, effective_bytes: effective, changed_by }
    }
}

/// Data in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Way {
    /// Payload that the sending program gave to its sockets, from start to end, bytes.
    pub sent_bytes: u64,
    /// Payload that the receiving program read, from start to end, bytes.
    pub received_bytes: u64,
    /// Whole messages that the sending program wrote.
    pub messages: u64,
    /// System calls with which it wrote them.
    pub send_calls: u64,
    /// System calls with which the receiver read.
    pub receive_calls: u64,
    /// Payload that the sender's kernel sent, repeats included, bytes (`tcpi_bytes_sent`); absent on
    /// kernels before 4.19.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_sent_bytes: Option<u64>,
    /// Of it, retransmitted (`tcpi_bytes_retrans`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_retransmitted_bytes: Option<u64>,
    /// Payload on the wire, first transmissions, bytes; absent where nothing watched the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_bytes: Option<u64>,
    /// Payload on the wire that had been there before, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_retransmitted_bytes: Option<u64>,
    /// Length of the measured window at the receiver, s.
    pub window_s: f64,
    /// Payload received in the window, bytes.
    pub window_bytes: u64,
    /// From the first byte to when a hundredth of the window first had 90 % of the steady goodput, s;
    /// absent: it was not looked for, or never reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_s: Option<f64>,
    /// Of the connections, the least and the greatest share of the goodput, 0 to 1; absent for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_share: Option<[f64; 2]>,
    /// The sender's first connection in the window.
    pub sender: Sender,
}

/// The sending end of one connection in the window, as its kernel saw it (`TCP_INFO`).
///
/// Shares are of the window, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sender {
    /// Samples of `TCP_INFO` in the window.
    pub samples: u64,
    /// Time with data to send or to be acknowledged (`tcpi_busy_time`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_share: Option<f64>,
    /// Time limited by the receiver's window (`tcpi_rwnd_limited`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_window_share: Option<f64>,
    /// Time limited by the send buffer (`tcpi_sndbuf_limited`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_share: Option<f64>,
    /// Share of samples in which the program had given too little (`tcpi_delivery_rate_app_limited`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_share: Option<f64>,
    /// Median of the receiver's window as the sender saw it, bytes (`tcpi_snd_wnd`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_window_bytes: Option<f64>,
    /// Median of the congestion window, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_window_bytes: Option<f64>,
    /// Median of what was sent and not acknowledged, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_bytes: Option<f64>,
    /// The greatest of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_max_bytes: Option<f64>,
    /// Payload of a full segment, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<f64>,
    /// Smallest round trip that the kernel saw, µs (`tcpi_min_rtt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_us: Option<f64>,
    /// Median of the smoothed round trip while data flowed, µs (`tcpi_rtt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Segments retransmitted in the window.
    pub retransmitted_segments: u64,
}

/// The mean of what some rounds have.
fn mean<'a, T: 'a>(rounds: &[&'a T], value: impl Fn(&'a T) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = rounds.iter().copied().filter_map(value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl Merge for Transfer {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        Some(Self {
            client: SocketEnd::merge(&parts(rounds, |round| &round.client))?,
            server: SocketEnd::merge(&parts(rounds, |round| &round.server))?,
            quiet_rtt_us: mean(rounds, |round| round.quiet_rtt_us),
            up: merged(rounds, |round| round.up.as_ref()),
            down: merged(rounds, |round| round.down.as_ref()),
            ..first.clone()
        })
    }
}

impl Merge for SocketEnd {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let cpu_share = mean(rounds, |end| Some(end.cpu_share))?;
        Some(Self { cpu_share, ..(*rounds.first()?).clone() })
    }
}

impl Merge for Way {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let total = |count: fn(&Self) -> u64| sum(rounds.iter().map(|way| count(way)));
        // A sum over rounds says something only if every round has the count.
        let every = |count: fn(&Self) -> Option<u64>| {
            let all: Option<Vec<u64>> = rounds.iter().map(|way| count(way)).collect();
            all.map(|counts| sum(counts.into_iter()))
        };
        let ends = |at: usize| mean(rounds, |way| way.connection_share.map(|ends| ends[at]));
        Some(Self {
            sent_bytes: total(|way| way.sent_bytes),
            received_bytes: total(|way| way.received_bytes),
            messages: total(|way| way.messages),
            send_calls: total(|way| way.send_calls),
            receive_calls: total(|way| way.receive_calls),
            kernel_sent_bytes: every(|way| way.kernel_sent_bytes),
            kernel_retransmitted_bytes: every(|way| way.kernel_retransmitted_bytes),
            // Only some rounds may have been watched.
            wire_bytes: every(|way| way.wire_bytes),
            wire_retransmitted_bytes: every(|way| way.wire_retransmitted_bytes),
            window_s: rounds.iter().map(|way| way.window_s).sum(),
            window_bytes: total(|way| way.window_bytes),
            startup_s: mean(rounds, |way| way.startup_s),
            connection_share: ends(0).zip(ends(1)).map(|(least, most)| [least, most]),
            sender: Sender::merge(&parts(rounds, |way| &way.sender))?,
        })
    }
}

impl Merge for Sender {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let total = |count: fn(&Self) -> u64| sum(rounds.iter().map(|one| count(one)));
        (!rounds.is_empty()).then(|| Self {
            samples: total(|one| one.samples),
            busy_share: mean(rounds, |one| one.busy_share),
            receive_window_share: mean(rounds, |one| one.receive_window_share),
            send_buffer_share: mean(rounds, |one| one.send_buffer_share),
            application_share: mean(rounds, |one| one.application_share),
            peer_window_bytes: mean(rounds, |one| one.peer_window_bytes),
            congestion_window_bytes: mean(rounds, |one| one.congestion_window_bytes),
            in_flight_bytes: mean(rounds, |one| one.in_flight_bytes),
            in_flight_max_bytes: mean(rounds, |one| one.in_flight_max_bytes),
            segment_bytes: mean(rounds, |one| one.segment_bytes),
            min_rtt_us: mean(rounds, |one| one.min_rtt_us),
            rtt_us: mean(rounds, |one| one.rtt_us),
            retransmitted_segments: total(|one| one.retransmitted_segments),
        })
    }
}

/// Kernel memory of open connections, idle and filled. Of several rounds, means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionMemory {
    /// Connections that were open.
    pub connections: u64,
    /// The client's sockets.
    pub client: MemorySockets,
    /// The server's sockets.
    pub server: MemorySockets,
    /// Open, without data.
    pub idle: MemoryState,
    /// The client has written until no socket took more; the server has read nothing. Absent: the
    /// sockets still took data when the time was up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<MemoryState>,
    /// The machine's limit of TCP memory, bytes (the last value of `net.ipv4.tcp_mem`); absent where
    /// it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_limit_bytes: Option<u64>,
    /// From this much TCP memory on the kernel is under pressure, bytes (the second value).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_pressure_bytes: Option<u64>,
    /// Whether the kernel came under memory pressure (`TcpExtTCPMemoryPressures`), or was.
    #[serde(default)]
    pub pressure: bool,
}

/// The sockets of one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySockets {
    /// `SO_SNDBUF` after the handshake.
    pub send_buffer: Buffer,
    /// `SO_RCVBUF` after the handshake.
    pub receive_buffer: Buffer,
    /// Congestion control in use.
    pub congestion: String,
    /// Structures of one socket, bytes: socket, inode, file, directory entry, local port; absent
    /// where this user may not read it (`/proc/slabinfo`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structures_bytes: Option<f64>,
}

/// Memory in one state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryState {
    /// The client's sockets.
    pub client: MemoryHeld,
    /// The server's sockets.
    pub server: MemoryHeld,
    /// Payload in flight and in buffers, bytes.
    pub payload_bytes: f64,
    /// Growth of the whole machine's TCP memory since before the connections, bytes (`sockstat`, TCP
    /// `mem`): the witness.
    pub machine_tcp_bytes: f64,
    /// Growth of the whole machine's slabs since then, bytes (`/proc/meminfo`, `Slab`).
    pub machine_slab_bytes: f64,
}

/// What all sockets of one host hold together (`skmem`), bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryHeld {
    /// Data that was received and not read, with its overhead.
    pub received_bytes: f64,
    /// Data that was written and not acknowledged, with its overhead.
    pub queued_bytes: f64,
    /// Charged to the sockets and not in use.
    pub reserved_bytes: f64,
    /// What received data may grow to: the sum of the receive buffers as they are now.
    pub receive_limit_bytes: f64,
    /// What written data may grow to: the sum of the send buffers as they are now.
    pub send_limit_bytes: f64,
}

impl MemoryHeld {
    /// The buffers: data with its overhead, and reserves.
    pub fn buffers_bytes(&self) -> f64 {
        self.received_bytes + self.queued_bytes + self.reserved_bytes
    }
}

impl MemoryState {
    /// The buffers of both hosts.
    pub fn buffers_bytes(&self) -> f64 {
        self.client.buffers_bytes() + self.server.buffers_bytes()
    }
}

impl ConnectionMemory {
    /// One connection's share of a sum; absent without connections.
    fn share(&self, bytes: f64) -> Option<f64> {
        (self.connections > 0).then(|| bytes / self.connections as f64)
    }

    /// Memory of one connection at its client: buffers and structures.
    ///
    /// None: the structures are not known, or there is no such state.
    pub fn at_client(&self, state: Option<&MemoryState>) -> Option<f64> {
        let buffers = self.share(state?.client.buffers_bytes())?;
        self.client.structures_bytes.map(|structures| buffers + structures)
    }

    /// Memory of one connection at its server, as [`Self::at_client`].
    pub fn at_server(&self, state: Option<&MemoryState>) -> Option<f64> {
        let buffers = self.share(state?.server.buffers_bytes())?;
        self.server.structures_bytes.map(|structures| buffers + structures)
    }

    /// Memory of all connections at both ends: buffers, and structures where they are known.
    pub fn in_total(&self, state: &MemoryState) -> f64 {
        let structures =
            [&self.client, &self.server].map(|end| end.structures_bytes.unwrap_or(0.0));
        state.buffers_bytes() + structures.iter().sum::<f64>() * self.connections as f64
    }

    /// Memory of one filled connection for each byte of its payload, buffers of both ends.
    pub fn overhead(&self) -> Option<f64> {
        let filled = self.filled.as_ref().filter(|filled| filled.payload_bytes > 0.0)?;
        Some(filled.buffers_bytes() / filled.payload_bytes)
    }
}

fn mean_of_all<T>(rounds: &[&T], value: impl Fn(&T) -> f64) -> f64 {
    rounds.iter().map(|round| value(round)).sum::<f64>() / rounds.len().max(1) as f64
}

impl Merge for ConnectionMemory {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        Some(Self {
            connections: mean_of_all(rounds, |round| round.connections as f64).round() as u64,
            idle: MemoryState::merge(&parts(rounds, |round| &round.idle))?,
            filled: merged(rounds, |round| round.filled.as_ref()),
            pressure: rounds.iter().any(|round| round.pressure),
            ..first.clone()
        })
    }
}

impl Merge for MemoryState {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        (!rounds.is_empty()).then(|| Self {
            client: MemoryHeld::mean(&parts(rounds, |state| &state.client)),
            server: MemoryHeld::mean(&parts(rounds, |state| &state.server)),
            payload_bytes: mean_of_all(rounds, |state| state.payload_bytes),
            machine_tcp_bytes: mean_of_all(rounds, |state| state.machine_tcp_bytes),
            machine_slab_bytes: mean_of_all(rounds, |state| state.machine_slab_bytes),
        })
    }
}

impl MemoryHeld {
    fn mean(rounds: &[&Self]) -> Self {
        Self {
            received_bytes: mean_of_all(rounds, |held| held.received_bytes),
            queued_bytes: mean_of_all(rounds, |held| held.queued_bytes),
            reserved_bytes: mean_of_all(rounds, |held| held.reserved_bytes),
            receive_limit_bytes: mean_of_all(rounds, |held| held.receive_limit_bytes),
            send_limit_bytes: mean_of_all(rounds, |held| held.send_limit_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_says_why_it_is_not_twice_what_was_asked_for() {
        let changed = |asked, effective| Buffer::new(asked, effective).changed_by;
        assert_eq!(changed(None, 131_072), None, "the kernel tunes it");
        assert_eq!(changed(Some(65_536), 131_072), None);
        assert_eq!(changed(Some(8 << 20), 8 << 20), Some(BufferLimit::Maximum));
        assert_eq!(changed(Some(1_024), 2_304), Some(BufferLimit::Minimum));
    }

    #[test]
    fn rounds_add_up_and_shares_are_means() {
        let way = |bytes, busy, wire| Way {
            sent_bytes: bytes,
            wire_bytes: wire,
            sender: Sender { busy_share: Some(busy), ..Sender::default() },
            ..Way::default()
        };
        let (a, b) = (way(10, 0.5, Some(10)), way(20, 1.0, None));
        let both = Way::merge(&[&a, &b]).unwrap();
        assert_eq!((both.sent_bytes, both.wire_bytes), (30, None));
        assert_eq!(both.sender.busy_share, Some(0.75));
        assert!(Way::merge(&[]).is_none());
    }

    fn state(bytes: f64) -> MemoryState {
        let held =
            MemoryHeld { queued_bytes: bytes, reserved_bytes: 100.0, ..MemoryHeld::default() };
        MemoryState { client: held, payload_bytes: bytes / 2.0, ..MemoryState::default() }
    }

    #[test]
    fn a_connection_costs_its_share_of_the_buffers_and_its_structures() {
        let mut memory = ConnectionMemory {
            connections: 10,
            idle: state(0.0),
            filled: Some(state(900.0)),
            ..ConnectionMemory::default()
        };
        assert_eq!(memory.at_client(memory.filled.as_ref()), None, "structures are not known");
        memory.client.structures_bytes = Some(4_000.0);
        assert_eq!(memory.at_client(Some(&memory.idle)), Some(4_010.0));
        assert_eq!(memory.at_client(memory.filled.as_ref()), Some(4_100.0));
        assert_eq!(Some(memory.in_total(&memory.idle)), Some(40_100.0));
        assert_eq!(memory.overhead(), Some(1_000.0 / 450.0));
    }

    #[test]
    fn rounds_become_their_mean_and_one_without_a_filled_state_is_left_out_of_it() {
        let memory = |filled: Option<f64>, pressure| ConnectionMemory {
            connections: 4,
            filled: filled.map(state),
            pressure,
            ..ConnectionMemory::default()
        };
        let (one, two, three) =
            (memory(Some(100.0), false), memory(None, true), memory(Some(300.0), false));
        let whole = ConnectionMemory::merge(&[&one, &two, &three]).unwrap();
        assert_eq!(whole.filled.map(|state| state.client.queued_bytes), Some(200.0));
        assert!(whole.pressure);
    }
}
