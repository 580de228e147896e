//! Where do the microseconds of a TCP handshake go: to the client, the wire or the server?
//!
//! [`HandshakeTrace`] stamps the three packets where they leave and where they arrive;
//! [`timeline`] joins these stamps with what the two programs saw of `connect()` and `accept()`
//! to the eight steps of a [`Timeline`]. All stamps are nanoseconds of `CLOCK_MONOTONIC`, which
//! the hosts of one machine share.
//!
//! A connection is known by the client's address and port. The same port may come again within a
//! trial: packets are told apart by the initial sequence number, calls by their time. Two
//! connections at once from one client port to two servers would be mixed up: trace one port.

use std::collections::HashMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tcp::packet::Packet;
use crate::tcp::wire::Direction;

/// How far a stamp may be on the wrong side of its neighbour.
///
/// `called`, `returned` and `accepted` are taken by other processes than the packets' stamps. The
/// emulated link stamps a packet after the `write()` that delivered it, and by then the receiver
/// may have woken up and read its own clock. The true difference is then a few µs and reads as
/// below 0; it counts as 0. More than a scheduler's delay is another matter: no match.
const STAMP_SLACK_NS: u64 = 200_000;

/// Share of the connections that must be known at both ends.
const MATCHED_LEAST: f64 = 0.95;
/// A stamp of a later `accept()` than this after the last connection is no stamp of the load.
const ACCEPTED_WITHIN_NS: u64 = 600_000_000_000;

/// A step between two machines is shown from so many times on within which their clocks compare: then it is
/// right to a third.
const STEP_BOUNDS: u64 = 3;

/// Where the time of one operation went, step by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// The steps in the order of the handshake.
    pub steps: Vec<Step>,
    /// The same handshake from each point of view.
    pub views: Vec<HandshakeView>,
    /// Operations whose every stamp was found.
    pub matched: u64,
    /// Operations left out because a stamp is missing or they were retransmitted.
    pub unmatched: u64,
    /// `measured`; `witness`: a shorter trial of its own with a packet tap; `tcp-info`: two parts that the
    /// client's kernel tells, without a capture.
    pub source: String,
}

/// One step of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// What happens: `SYN on its way`.
    pub name: String,
    /// `client`, `wire` or `server`: whose time it is.
    pub at: String,
    /// When the median operation begins the step, µs after `connect()` was called.
    pub begins_us: f64,
    /// Median, µs.
    pub p50_us: f64,
    /// 99th percentile, µs; absent with fewer than ten values beyond.
    #[serde(default)]
    pub p99_us: Option<f64>,
}

/// The handshake from one point of view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "View")]
pub struct HandshakeView {
    /// `client`, `server kernel`, `server process` or `wire`.
    pub name: String,
    /// From what to what.
    pub span: String,
    /// Median, µs.
    pub p50_us: f64,
    /// What arithmetic expects, in round trips: 1, 1.5.
    pub expected_rtts: f64,
}

/// The client's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// Address.
    pub ip: IpAddr,
    /// Port.
    pub port: u16,
}

/// The handshake of one connection on the wire; stamps are those of the first packet of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireRow {
    /// The client's end.
    pub client: Peer,
    /// The SYN left the client, ns.
    pub syn_out: Option<u64>,
    /// The SYN reached the server, ns.
    pub syn_in: Option<u64>,
    /// The SYN-ACK left the server, ns.
    pub syn_ack_out: Option<u64>,
    /// The SYN-ACK reached the client, ns.
    pub syn_ack_in: Option<u64>,
    /// The client's first packet after it left the client, ns; it may carry data.
    pub ack_out: Option<u64>,
    /// Such a packet reached the server, ns.
    pub ack_in: Option<u64>,
    /// SYNs seen leaving the client.
    pub syn_count: u32,
    /// SYN-ACKs seen leaving the server.
    pub syn_ack_count: u32,
}

impl WireRow {
    /// Whether neither SYN nor SYN-ACK had to go again.
    fn sent_once(&self) -> bool {
        self.syn_count <= 1 && self.syn_ack_count <= 1
    }
}

/// What the client's program saw of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRow {
    /// The client's end.
    pub client: Peer,
    /// Just before `connect()`, ns.
    pub called: u64,
    /// Just after the connection was known to be established, ns.
    pub returned: u64,
}

/// What the server's program saw of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRow {
    /// The client's end.
    pub client: Peer,
    /// Just after `accept()` returned it, ns.
    pub accepted: u64,
}

/// The end of the link at which a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

/// Stamps the packets of handshakes.
#[derive(Debug)]
pub struct HandshakeTrace {
    server_port: Option<u16>,
    limit: usize,
    rows: Vec<WireRow>,
    /// Client's end and initial sequence number, to the index of the row.
    index: HashMap<(Peer, u32), usize>,
}

impl HandshakeTrace {
    /// `server_port`: only connections to it, or to any; `limit`: later handshakes are not kept.
    pub fn new(server_port: Option<u16>, limit: usize) -> Self {
        Self { server_port, limit, rows: Vec::new(), index: HashMap::new() }
    }

    /// Takes note of a packet seen at one end of the link.
    ///
    /// The two ends may be observed in any order, each end's packets in order of time. Whatever is
    /// not part of a handshake is passed over, at the cost of one look-up.
    #[inline]
    pub fn observe(&mut self, end: End, direction: Direction, packet: &Packet, at_ns: u64) {
        let Some(segment) = packet.segment else { return };
        let flags = segment.flags;
        let (ip, port, server_port) = match direction {
            Direction::ClientToServer => (packet.src, segment.src_port, segment.dst_port),
            Direction::ServerToClient => (packet.dst, segment.dst_port, segment.src_port),
        };
        if flags.rst() || self.server_port.is_some_and(|wanted| wanted != server_port) {
            return;
        }
        let client = Peer { ip, port };
        match (direction, flags.syn(), flags.ack()) {
            (Direction::ClientToServer, true, false) => {
                let Some(row) = self.row_or_new(client, segment.seq) else { return };
                match end {
                    End::Client => {
                        row.syn_out.get_or_insert(at_ns);
                        row.syn_count += 1;
                    }
                    End::Server => _ = row.syn_in.get_or_insert(at_ns),
                }
            }
            (Direction::ServerToClient, true, true) => {
                let Some(row) = self.row(client, segment.ack.wrapping_sub(1)) else { return };
                match end {
                    End::Server => {
                        row.syn_ack_out.get_or_insert(at_ns);
                        row.syn_ack_count += 1;
                    }
                    End::Client => _ = row.syn_ack_in.get_or_insert(at_ns),
                }
            }
            // The first packet after the SYN, and no later one, has its sequence number plus one.
            (Direction::ClientToServer, false, true) => {
                let Some(row) = self.row(client, segment.seq.wrapping_sub(1)) else { return };
                match end {
                    End::Client => _ = row.ack_out.get_or_insert(at_ns),
                    End::Server => _ = row.ack_in.get_or_insert(at_ns),
                }
            }
            _ => {}
        }
    }

    /// The handshakes so far, in the order their first SYN was observed.
    pub fn rows(&self) -> Vec<WireRow> {
        self.rows.clone()
    }

    #[inline]
    fn row(&mut self, client: Peer, isn: u32) -> Option<&mut WireRow> {
        self.rows.get_mut(*self.index.get(&(client, isn))?)
    }

    #[inline]
    fn row_or_new(&mut self, client: Peer, isn: u32) -> Option<&mut WireRow> {
        if self.rows.len() < self.limit {
            let index = *self.index.entry((client, isn)).or_insert(self.rows.len());
            if index == self.rows.len() {
                self.rows.push(WireRow {
                    client,
                    syn_out: None,
                    syn_in: None,
                    syn_ack_out: None,
                    syn_ack_in: None,
                    ack_out: None,
                    ack_in: None,
                    syn_count: 0,
                    syn_ack_count: 0,
                });
            }
        }
        self.row(client, isn)
    }
}

/// The stamps of one connection, in order; made by [`Stamps::in_order`] only.
#[derive(Clone, Copy)]
struct Stamps {
    called: u64,
    returned: u64,
    syn_out: u64,
    syn_in: u64,
    syn_ack_out: u64,
    syn_ack_in: u64,
    ack_out: u64,
    ack_in: u64,
    accepted: Option<u64>,
}

impl Stamps {
    /// None: a stamp is missing, a packet was sent twice, or stamps are not in order.
    fn in_order(client: &ClientRow, wire: &WireRow, accepted: Option<u64>) -> Option<Self> {
        let stamps = Self {
            called: client.called,
            returned: client.returned,
            syn_out: wire.syn_out?,
            syn_in: wire.syn_in?,
            syn_ack_out: wire.syn_ack_out?,
            syn_ack_in: wire.syn_ack_in?,
            ack_out: wire.ack_out?,
            ack_in: wire.ack_in?,
            accepted,
        };
        let strictly = client.called <= client.returned
            && stamps.syn_out <= stamps.syn_in
            && stamps.syn_in <= stamps.syn_ack_out
            && stamps.syn_ack_out <= stamps.syn_ack_in
            && stamps.syn_ack_in <= stamps.ack_out
            && stamps.ack_out <= stamps.ack_in;
        let nearly = |earlier: u64, later: u64| later.saturating_add(STAMP_SLACK_NS) > earlier;
        let across_processes = nearly(stamps.called, stamps.syn_out)
            && nearly(stamps.syn_ack_in, stamps.returned)
            && accepted.is_none_or(|accepted| nearly(stamps.ack_in, accepted));
        (wire.sent_once() && strictly && across_processes).then_some(stamps)
    }
}

/// Finds the rows that belong together, by the client's end and by time.
struct Matcher {
    wire: HashMap<Peer, Vec<WireRow>>,
    accepted: HashMap<Peer, Vec<u64>>,
}

impl Matcher {
    fn new(wire: &[WireRow], server: &[ServerRow]) -> Self {
        let mut sent: Vec<_> = wire.iter().filter(|row| row.syn_out.is_some()).collect();
        sent.sort_unstable_by_key(|row| row.syn_out);
        let mut by_client: HashMap<Peer, Vec<WireRow>> = HashMap::new();
        for row in sent {
            by_client.entry(row.client).or_default().push(*row);
        }
        let mut server = server.to_vec();
        server.sort_unstable_by_key(|row| row.accepted);
        let mut accepted: HashMap<Peer, Vec<u64>> = HashMap::new();
        for row in server {
            accepted.entry(row.client).or_default().push(row.accepted);
        }
        Self { wire: by_client, accepted }
    }

    /// The handshake whose SYN left during the call, and the SYN of the port's next connection.
    fn wire(&self, client: &ClientRow) -> Option<(&WireRow, Option<u64>)> {
        let rows = self.wire.get(&client.client)?;
        let next = rows.partition_point(|row| row.syn_out <= Some(client.returned));
        let row = rows.get(next.checked_sub(1)?)?;
        let during = row.syn_out?.saturating_add(STAMP_SLACK_NS) > client.called;
        during.then(|| (row, rows.get(next).and_then(|row| row.syn_out)))
    }

    /// The first `accept()` from an instant on, and before the port's next connection.
    fn accepted(&self, client: Peer, from: Option<u64>, before: Option<u64>) -> Option<u64> {
        let stamps = self.accepted.get(&client)?;
        let first = stamps.partition_point(|&stamp| Some(stamp) < from);
        stamps.get(first).copied().filter(|&stamp| before.is_none_or(|before| stamp < before))
    }
}

/// Joins what the client, the wire and the server saw to the steps of the median handshake.
///
/// Shape:   eight steps in the order of the handshake and four views; without the last step and
///          the `server process` view if `server` is empty (a server that is not ours); the
///          `client` view alone if `wire` is empty; nothing if no operation matched.
/// Range:   `unmatched` are the operations of `client` with a stamp missing, a SYN or SYN-ACK
///          sent twice, or stamps out of order; a step across two processes may read up to 200 µs
///          below 0 and counts as 0.
/// Unit:    µs; quantiles by nearest rank, so each is a measured value. Steps overlap (the ACK
///          leaves before `connect()` is back) and medians do not add up exactly.
pub fn timeline(client: &[ClientRow], wire: &[WireRow], server: &[ServerRow]) -> Timeline {
    let mut timeline = Timeline {
        steps: Vec::new(),
        views: Vec::new(),
        matched: 0,
        unmatched: 0,
        source: "measured".to_owned(),
    };
    let calls: Vec<u64> = if wire.is_empty() {
        client.iter().filter_map(|row| row.returned.checked_sub(row.called)).collect()
    } else {
        let matched = matched(client, wire, server);
        timeline.steps = steps(&matched);
        timeline.views = wire_views(&matched);
        matched.iter().map(|stamps| stamps.returned - stamps.called).collect()
    };
    timeline.matched = calls.len() as u64;
    timeline.unmatched = (client.len() - calls.len()) as u64;
    if let Some(view) = view("client", "connect() → back", calls, 1.0) {
        timeline.views.insert(0, view);
    }
    timeline
}

/// The step from the client's established connection to `accept()`, where the stamps of two machines tell it.
///
/// Unit:    µs, from when `connect()` was back; the wait in the accept queue, and what of the ACK's way is not
///          over by then.
/// Range:   None if fewer than 95 % of the connections matched, as behind NAT, or if the median is below three times `bound_ns`, within which
///          instants of the two machines compare.
pub fn accept_step(client: &[ClientRow], server: &[ServerRow], bound_ns: u64) -> Option<Step> {
    let matcher = Matcher::new(&[], server);
    let mut calls: HashMap<Peer, Vec<u64>> = HashMap::new();
    for row in client {
        calls.entry(row.client).or_default().push(row.called);
    }
    let last = client.iter().map(|row| row.returned).max()?.saturating_add(ACCEPTED_WITHIN_NS);
    let waits = client.iter().filter_map(|row| {
        let next = calls[&row.client].iter().copied().filter(|&called| called > row.called).min();
        // By the client's clock it may have been accepted as much too early as the clocks are apart.
        let from = row.called.saturating_sub(bound_ns);
        let accepted = matcher.accepted(row.client, Some(from), next)?;
        (accepted <= last).then(|| accepted.saturating_sub(row.returned))
    });
    let waits = sorted(waits);
    // Where ports are changed on the way, some find the accept of another connection.
    if (waits.len() as f64) < client.len() as f64 * MATCHED_LEAST {
        return None;
    }
    let p50 = nearest_rank(&waits, 50)?;
    let latencies = client.iter().filter_map(|row| row.returned.checked_sub(row.called));
    let begins = nearest_rank(&sorted(latencies), 50)?;
    (p50 > 0 && p50 >= bound_ns.saturating_mul(STEP_BOUNDS)).then(|| Step {
        name: "connect() back → accept() back".to_owned(),
        at: "server".to_owned(),
        begins_us: us(begins),
        p50_us: us(p50),
        p99_us: p99(&waits).map(us),
    })
}

fn matched(client: &[ClientRow], wire: &[WireRow], server: &[ServerRow]) -> Vec<Stamps> {
    let matcher = Matcher::new(wire, server);
    client
        .iter()
        .filter_map(|row| {
            let (wire, next) = matcher.wire(row)?;
            let accepted = if server.is_empty() {
                None
            } else {
                Some(matcher.accepted(wire.client, wire.syn_in, next)?)
            };
            Stamps::in_order(row, wire, accepted)
        })
        .collect()
}

fn steps(matched: &[Stamps]) -> Vec<Step> {
    type Stamp = fn(&Stamps) -> Option<u64>;
    let steps: [(&str, &str, Stamp, Stamp); 8] = [
        ("connect() → SYN out", "client", |s| Some(s.called), |s| Some(s.syn_out)),
        ("SYN on its way", "wire", |s| Some(s.syn_out), |s| Some(s.syn_in)),
        ("SYN in → SYN-ACK out", "server", |s| Some(s.syn_in), |s| Some(s.syn_ack_out)),
        ("SYN-ACK on its way", "wire", |s| Some(s.syn_ack_out), |s| Some(s.syn_ack_in)),
        ("SYN-ACK in → connect() back", "client", |s| Some(s.syn_ack_in), |s| Some(s.returned)),
        ("SYN-ACK in → ACK out", "client", |s| Some(s.syn_ack_in), |s| Some(s.ack_out)),
        ("ACK on its way", "wire", |s| Some(s.ack_out), |s| Some(s.ack_in)),
        ("ACK in → accept() back", "server", |s| Some(s.ack_in), |s| s.accepted),
    ];
    steps
        .into_iter()
        .filter_map(|(name, at, from, to)| {
            let begins = matched.iter().filter_map(|s| Some(from(s)?.saturating_sub(s.called)));
            let lasts = matched.iter().filter_map(|s| Some(to(s)?.saturating_sub(from(s)?)));
            let lasts = sorted(lasts);
            Some(Step {
                name: name.to_owned(),
                at: at.to_owned(),
                begins_us: us(nearest_rank(&sorted(begins), 50)?),
                p50_us: us(nearest_rank(&lasts, 50)?),
                p99_us: p99(&lasts).map(us),
            })
        })
        .collect()
}

/// The views that need the wire.
fn wire_views(matched: &[Stamps]) -> Vec<HandshakeView> {
    let spans = |length: fn(&Stamps) -> Option<u64>| matched.iter().filter_map(length).collect();
    let on_wire = spans(|s| Some(s.syn_ack_in - s.syn_out));
    let kernel = spans(|s| Some(s.ack_in - s.syn_in));
    let process = spans(|s| Some(s.accepted?.saturating_sub(s.called)));
    [
        view("wire", "SYN out → SYN-ACK in", on_wire, 1.0),
        view("server kernel", "SYN in → ACK in", kernel, 1.0),
        view("server process", "connect() → accept() back", process, 1.5),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn view(name: &str, span: &str, spans: Vec<u64>, expected_rtts: f64) -> Option<HandshakeView> {
    let p50 = nearest_rank(&sorted(spans), 50)?;
    Some(HandshakeView {
        name: name.to_owned(),
        span: span.to_owned(),
        p50_us: us(p50),
        expected_rtts,
    })
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn sorted(values: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<u64> = values.into_iter().collect();
    values.sort_unstable();
    values
}

/// The value below or at which `percent` of `sorted` lie; `None` if there is none.
fn nearest_rank(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The 99th percentile; absent with fewer than ten values beyond it.
fn p99(sorted: &[u64]) -> Option<u64> {
    if sorted.len() < 1000 { None } else { nearest_rank(sorted, 99) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::packet::{Flags, Segment};
    use Direction::{ClientToServer as C, ServerToClient as S};

    const CALLED: u64 = 1_000_000_000;

    fn packet(direction: Direction, port: u16, flags: Flags, seq: u32, ack: u32) -> Packet {
        let (client, server) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let (src, dst) = if direction == C { (client, server) } else { (server, client) };
        let (src_port, dst_port) = if direction == C { (port, 80) } else { (80, port) };
        let segment = Segment { src_port, dst_port, seq, ack, flags, payload: 0, window: 1 };
        Packet { src, dst, ip_bytes: 40, segment: Some(segment), header_bytes: 40 }
    }

    /// A handshake over 10 ms each way that begins 5 µs after `called`, and both programs' rows.
    fn connect(trace: &mut HandshakeTrace, port: u16, isn: u32, us: u64) -> (ClientRow, ServerRow) {
        let at = |offset_us: u64| CALLED + (us + offset_us) * 1000;
        let syn = packet(C, port, Flags::SYN, isn, 0);
        let syn_ack = packet(S, port, Flags::SYN.with(Flags::ACK), 7, isn.wrapping_add(1));
        let ack = packet(C, port, Flags::ACK, isn.wrapping_add(1), 8);
        trace.observe(End::Client, C, &syn, at(5));
        trace.observe(End::Server, C, &syn, at(10_005));
        trace.observe(End::Server, S, &syn_ack, at(10_025));
        trace.observe(End::Client, S, &syn_ack, at(20_025));
        trace.observe(End::Client, C, &ack, at(20_030));
        trace.observe(End::Server, C, &ack, at(30_030));
        let client = Peer { ip: syn.src, port };
        (
            ClientRow { client, called: at(0), returned: at(20_055) },
            ServerRow { client, accepted: at(30_090) },
        )
    }

    #[test]
    fn eight_steps_of_one_handshake_have_the_times_they_were_given() {
        let mut trace = HandshakeTrace::new(Some(80), 10);
        let (client, server) = connect(&mut trace, 4000, u32::MAX, 0);
        let all = timeline(&[client], &trace.rows(), &[server]);
        let steps: Vec<_> = all.steps.iter().map(|s| (s.begins_us, s.p50_us, s.p99_us)).collect();
        let begins = [0.0, 5.0, 10_005.0, 10_025.0, 20_025.0, 20_025.0, 20_030.0, 30_030.0];
        let lasts = [5.0, 1e4, 20.0, 1e4, 30.0, 5.0, 1e4, 60.0];
        assert_eq!(steps, std::array::from_fn::<_, 8, _>(|i| (begins[i], lasts[i], None)));
        let views: Vec<_> = all.views.iter().map(|view| view.p50_us).collect();
        assert_eq!(views, [20_055.0, 20_020.0, 20_025.0, 30_090.0]);
        assert_eq!((all.matched, all.unmatched), (1, 0));
        let not_ours = timeline(&[client], &trace.rows(), &[]);
        assert_eq!((not_ours.steps.len(), not_ours.views.len(), not_ours.matched), (7, 3, 1));
        let no_wire = timeline(&[client], &[], &[server]);
        assert_eq!((no_wire.steps.len(), no_wire.views.len(), no_wire.matched), (0, 1, 1));
    }

    #[test]
    fn a_port_that_comes_again_is_matched_by_time_and_a_repeat_or_gap_is_left_out() {
        let mut trace = HandshakeTrace::new(None, 4);
        let (mut client, mut server) = (Vec::new(), Vec::new());
        for (port, isn, us) in [(1, 9, 0), (1, 99, 50_000), (2, 9, 0), (3, 9, 0), (4, 9, 0)] {
            let (c, s) = connect(&mut trace, port, isn, us);
            client.push(c);
            server.push(s);
        }
        trace.observe(End::Client, C, &packet(C, 2, Flags::SYN, 9, 0), CALLED); // port 2: sent twice
        server.remove(3); // port 3: never accepted; port 4: beyond the limit of the trace
        let all = timeline(&client, &trace.rows(), &server);
        assert_eq!((all.matched, all.unmatched, all.steps[7].p50_us), (2, 3, 60.0));
        server.remove(0); // the first of port 1 must not take the accept() of the second
        assert_eq!(timeline(&client, &trace.rows(), &server).matched, 1);
    }

    #[test]
    fn a_stamp_a_little_early_counts_as_zero_and_one_much_too_early_is_no_match() {
        let mut trace = HandshakeTrace::new(None, 10);
        let (client, mut server) = connect(&mut trace, 1, 1, 0);
        server.accepted -= 100_000; // 40 µs before ACK in
        let early = timeline(&[client], &trace.rows(), &[server]);
        assert_eq!((early.matched, early.steps[7].p50_us), (1, 0.0));
        server.accepted -= 200_000;
        assert_eq!(timeline(&[client], &trace.rows(), &[server]).unmatched, 1);
        let mut rows = trace.rows();
        rows[0].syn_in = Some(CALLED); // the wire's own stamps have no slack
        assert_eq!(timeline(&[client], &rows, &[]).matched, 0);
    }

    #[test]
    fn a_step_between_two_machines_is_shown_from_three_times_the_bound_of_their_clocks() {
        let peer = Peer { ip: "10.0.0.1".parse().unwrap(), port: 5_000 };
        let client = ClientRow { client: peer, called: 1_000_000, returned: 1_040_000 };
        // The port's next connection, which was accepted at once.
        let next = ClientRow { client: peer, called: 9_000_000, returned: 9_040_000 };
        let accepted = |at| ServerRow { client: peer, accepted: at };
        let server = [accepted(1_340_000), accepted(9_340_000)];
        let step = accept_step(&[client, next], &server, 100_000).unwrap();
        assert!(
            (step.begins_us - 40.0).abs() < 1e-9 && (step.p50_us - 300.0).abs() < 1e-9,
            "{step:?}"
        );
        assert_eq!(accept_step(&[client, next], &server, 100_001), None);
        // Accepted before the client woke up: no wait, whatever the bound.
        assert_eq!(accept_step(&[client], &[accepted(1_020_000)], 0), None);
        // A stamp of the server's clock may be before the call by as much as the clocks are apart.
        assert_eq!(accept_step(&[client], &[accepted(999_000)], 2_000), None);
        assert_eq!(accept_step(&[client], &[], 0), None);
        // An instant of another century.
        assert_eq!(accept_step(&[client], &[accepted(u64::MAX)], 0), None);
        // Ports that were changed on the way: most connections have no accept of their own.
        let other = |port| ClientRow { client: Peer { port, ..peer }, ..client };
        let many: Vec<ClientRow> = (1..=20).map(other).collect();
        let few: Vec<ServerRow> = many[..18]
            .iter()
            .map(|row| ServerRow { client: row.client, accepted: 2_000_000 })
            .collect();
        assert_eq!(accept_step(&many, &few, 0), None);
    }

    #[test]
    fn p99_needs_a_thousand_matches() {
        assert_eq!((p99(&[5; 1000]), p99(&[5; 999])), (Some(5), None));
    }
}
