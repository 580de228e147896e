//! How long a page should take: the loader's own decisions on a simulated network.
//!
//! The document's rule is a product: connections saved × round trip. It takes every handshake for
//! one that the page waits for. Here each handshake, request and window of data happens when the
//! loader would have it happen: round trips, slow start of each connection, the time that the server and
//! the client need. No packet is lost, and connections do not compete unless a rate is given.
//! `Sender` is the sender of one connection: segments leave by slow start, at once or paced.

use std::collections::{BTreeMap, VecDeque};

use super::loader::{Action, Config, ConnectionId, Head, Loader, Origin, RequestId, Start};
use super::resource::Graph;
use super::waterfall::Waterfall;

/// Events of one forecast at most.
const EVENTS_MAX: usize = 2_000_000;

/// What is known of the path and of both ends.
#[derive(Clone, Debug)]
pub struct Network {
    /// Round trip, µs.
    pub rtt_us: u64,
    /// Rate towards the client, bytes per second. None: not limited.
    pub rate_bytes_per_s: Option<f64>,
    /// Congestion control of the server, as the kernel names it.
    pub congestion: String,
    /// Round trips of a TLS handshake before the request: 1 (TLS 1.3) or 2 (TLS 1.2). `None`: no TLS.
    pub tls_round_trips: Option<u32>,
    /// Time of both ends' CPUs for a connection, beyond the round trip, µs.
    pub connection_us: u64,
    /// Time of their CPUs for a TLS handshake, µs.
    pub tls_us: u64,
    /// Bytes of a response's head.
    pub head_bytes: u64,
    /// Whether the server keeps connections.
    pub keeps: bool,
    /// Responses of one connection at most. None: any number.
    pub requests_max: Option<u64>,
    /// Whether the server speaks HTTP/2.
    pub http2: bool,
}

/// What happens next in the simulation.
#[derive(Clone, Copy, Debug)]
enum Event {
    Connected(ConnectionId),
    Secured(ConnectionId),
    First(RequestId),
    Bytes(RequestId, u64),
    Ended(RequestId),
    Wake,
}

/// One connection of the simulation.
#[derive(Debug)]
struct Wire {
    sender: Sender,
    answered: u64,
    /// When the response before has left the server, µs: responses of one connection do not pass each other in
    /// HTTP/1.1.
    busy_until_us: u64,
}

struct Simulation<'a> {
    network: &'a Network,
    graph: &'a Graph,
    loader: Loader,
    events: BTreeMap<(u64, usize), Event>,
    number: usize,
    wires: BTreeMap<ConnectionId, Wire>,
    /// Resource of each request: requests of a graph are made in its order of becoming known.
    carried: BTreeMap<RequestId, ConnectionId>,
    /// When the link has sent all that it was given, µs.
    link_free_us: f64,
}

/// Loads a page on a simulated network.
///
/// Errors: the graph is none, or the simulation does not end.
pub fn forecast(graph: &Graph, config: &Config, network: &Network) -> Result<Waterfall, String> {
    let loader = Loader::new(config.clone(), Start::Graph(graph.clone()))?;
    let mut simulation = Simulation {
        network,
        graph,
        loader,
        events: BTreeMap::new(),
        number: 0,
        wires: BTreeMap::new(),
        carried: BTreeMap::new(),
        link_free_us: 0.0,
    };
    let mut now = 0;
    simulation.act(now);
    for _ in 0..EVENTS_MAX {
        let Some(((at, _), event)) = simulation.events.pop_first() else {
            return Ok(simulation.loader.into_waterfall(None, now));
        };
        now = at;
        simulation.handle(event, now);
        simulation.act(now);
    }
    Err("it does not end".to_owned())
}

impl Simulation<'_> {
    fn at(&mut self, at_us: u64, event: Event) {
        self.number += 1;
        self.events.insert((at_us, self.number), event);
    }

    fn handle(&mut self, event: Event, now: u64) {
        match event {
            Event::Connected(connection) => {
                self.loader.connected(connection, now);
                if let Some(rounds) = self.network.tls_round_trips {
                    let took = u64::from(rounds) * self.network.rtt_us + self.network.tls_us;
                    self.at(now + took, Event::Secured(connection));
                }
            }
            Event::Secured(connection) => {
                self.loader.secured(connection, now, self.network.http2);
            }
            Event::First(request) => {
                let keeps = self.keeps(request);
                let status = self.status(request);
                self.loader.head(request, &Head { status, keeps, ..Head::default() }, now);
            }
            Event::Bytes(request, bytes) => self.loader.body(request, &[], bytes, now),
            Event::Ended(request) => self.loader.ended(request, now),
            Event::Wake => {}
        }
    }

    fn keeps(&mut self, request: RequestId) -> bool {
        let Some(wire) = self.carried.get(&request).and_then(|id| self.wires.get_mut(id)) else {
            return false;
        };
        wire.answered += 1;
        self.network.keeps && self.network.requests_max.is_none_or(|most| wire.answered < most)
    }

    fn status(&self, request: RequestId) -> u16 {
        let resource = self.loader.resource_of(request);
        let resource = resource.and_then(|number| self.graph.resources.get(number as usize));
        resource.map_or(200, |resource| resource.status)
    }

    fn act(&mut self, now: u64) {
        for action in self.loader.actions(now) {
            match action {
                Action::Connect { connection, origin } => self.connect(connection, &origin, now),
                Action::Send { connection, request, .. } => self.send(connection, request, now),
                Action::Close { connection } => {
                    self.wires.remove(&connection);
                }
                Action::Cancel { request } => self.loader.failed(request, "body-limit", now),
            }
        }
        if let Some(at) = self.loader.wake_at().filter(|at| *at > now) {
            self.at(at, Event::Wake);
        }
    }

    fn connect(&mut self, connection: ConnectionId, origin: &Origin, now: u64) {
        let rtt = self.network.rtt_us;
        let flow = Flow::from_congestion(&self.network.congestion);
        let wire = Wire { sender: Sender::new(flow, rtt), answered: 0, busy_until_us: 0 };
        self.wires.insert(connection, wire);
        self.loader.resolved(connection, now);
        debug_assert!(origin.tls == self.network.tls_round_trips.is_some(), "one scheme");
        self.at(now + rtt + self.network.connection_us, Event::Connected(connection));
    }

    /// A request arrives, is answered, and the response comes window by window.
    fn send(&mut self, connection: ConnectionId, request: RequestId, now: u64) {
        let number = self.loader.resource_of(request).unwrap_or(0) as usize;
        let Some(resource) = self.graph.resources.get(number) else { return };
        let half = self.network.rtt_us / 2;
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        self.carried.insert(request, connection);
        self.loader.sent(request, now);
        let mut ready = now + half + resource.server_us;
        if !self.network.http2 {
            ready = ready.max(wire.busy_until_us);
        }
        let bytes = self.network.head_bytes + resource.body_bytes;
        let segments = wire.sender.send(ready, bytes);
        wire.busy_until_us = segments.last().map_or(ready, |(at, _)| *at);
        let mut first = true;
        let mut last = now;
        let mut left_of_head = self.network.head_bytes;
        for (left_us, bytes) in segments {
            let mut arrives = left_us + (self.network.rtt_us - half);
            if let Some(rate) = self.network.rate_bytes_per_s {
                let begins = self.link_free_us.max(left_us as f64);
                self.link_free_us = begins + bytes as f64 / rate * 1e6;
                arrives = self.link_free_us as u64 + (self.network.rtt_us - half);
            }
            if std::mem::take(&mut first) {
                self.at(arrives, Event::First(request));
            }
            let head = left_of_head.min(bytes);
            left_of_head -= head;
            if bytes > head {
                self.at(arrives, Event::Bytes(request, bytes - head));
            }
            last = arrives;
        }
        self.at(last, Event::Ended(request));
    }
}

/// The document's rule: connections saved × round trip, µs.
pub fn simple_saving_us(connections_without: u64, connections_with: u64, rtt_us: u64) -> u64 {
    connections_without.saturating_sub(connections_with).saturating_mul(rtt_us)
}

/// Payload of a segment over Ethernet with time stamps, bytes.
const SEGMENT_BYTES: u64 = 1_448;

/// Initial window, segments: RFC 6928, and Linux since 2.6.39.
const INITIAL_WINDOW: f64 = 10.0;

/// BBR's gain while it starts: 2 / ln 2 (`bbr_high_gain` of `net/ipv4/tcp_bbr.c`).
const STARTUP_GAIN: f64 = 2.885;

/// Segments of one response whose times are computed one by one.
const SEGMENTS_MAX: u64 = 1_000_000;

/// How a congestion control sends a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// As soon as it may: CUBIC, Reno.
    Burst,
    /// Spread over the round trip: BBR.
    Paced,
}

impl Flow {
    /// By the name of the congestion control.
    fn from_congestion(congestion: &str) -> Self {
        if congestion.starts_with("bbr") { Self::Paced } else { Self::Burst }
    }
}

/// The sending side of one connection; it keeps its window from one response to the next.
#[derive(Debug)]
struct Sender {
    flow: Flow,
    rtt_us: f64,
    /// Segments that may be unacknowledged.
    window: f64,
    /// Acknowledgments of segments under way, µs.
    unacknowledged: VecDeque<f64>,
    /// Paced: segments per µs.
    rate: f64,
    /// Paced: when the next segment may leave, µs.
    next_us: f64,
    /// Paced: acknowledgments of the last round trip, µs.
    acknowledged: VecDeque<f64>,
}

impl Sender {
    fn new(flow: Flow, rtt_us: u64) -> Self {
        let rtt_us = (rtt_us as f64).max(1.0);
        Self {
            flow,
            rtt_us,
            window: INITIAL_WINDOW,
            unacknowledged: VecDeque::new(),
            rate: STARTUP_GAIN * INITIAL_WINDOW / rtt_us,
            next_us: 0.0,
            acknowledged: VecDeque::new(),
        }
    }

    /// Times at which segments leave, µs, in ascending order, with their payload, bytes.
    fn send(&mut self, ready_us: u64, bytes: u64) -> Vec<(u64, u64)> {
        let count = bytes.div_ceil(SEGMENT_BYTES).clamp(1, SEGMENTS_MAX);
        let mut now = ready_us as f64;
        let mut segments = Vec::new();
        for number in 0..count {
            if self.flow == Flow::Paced {
                now = now.max(self.next_us);
            }
            self.acknowledge(now);
            while self.unacknowledged.len() as f64 >= self.window {
                now = now.max(self.unacknowledged.front().copied().unwrap_or(now));
                self.acknowledge(now);
            }
            if self.flow == Flow::Paced {
                self.next_us = now + 1.0 / self.rate;
            }
            self.unacknowledged.push_back(now + self.rtt_us);
            let payload =
                if number + 1 == count { bytes - number * SEGMENT_BYTES } else { SEGMENT_BYTES };
            segments.push((now as u64, payload));
        }
        segments
    }

    /// Takes the acknowledgments that have arrived: each lets one more segment leave, and opens the window by
    /// one.
    fn acknowledge(&mut self, now: f64) {
        while let Some(&at) = self.unacknowledged.front().filter(|at| **at <= now) {
            self.unacknowledged.pop_front();
            self.window += 1.0;
            if self.flow == Flow::Paced {
                self.acknowledged.push_back(at);
                while self.acknowledged.front().is_some_and(|first| *first < at - self.rtt_us) {
                    self.acknowledged.pop_front();
                }
                // The delivery rate of the round trip that ends here.
                let delivered = self.acknowledged.len() as f64 / self.rtt_us;
                self.rate = self.rate.max(STARTUP_GAIN * delivered);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::resource::Protocol;
    use crate::page::resource::{Initiator, Kind, Resource};
    use crate::page::rules;

    #[test]
    fn a_window_leaves_at_once_and_doubles_each_round_trip() {
        let mut sender = Sender::new(Flow::Burst, 10_000);
        let segments = sender.send(0, 70 * SEGMENT_BYTES);
        let left_at = |time: u64| segments.iter().filter(|(at, _)| *at == time).count();
        assert_eq!([left_at(0), left_at(10_000), left_at(20_000)], [10, 20, 40]);
    }

    #[test]
    fn a_paced_window_is_spread_over_a_third_of_the_round_trip() {
        let mut sender = Sender::new(Flow::Paced, 100_000);
        let segments = sender.send(0, 10 * SEGMENT_BYTES);
        let last = segments.last().unwrap().0;
        assert!((30_000..32_000).contains(&last), "{last}");
    }

    #[test]
    fn a_connection_keeps_its_window() {
        let mut sender = Sender::new(Flow::Burst, 1_000);
        sender.send(0, 10 * SEGMENT_BYTES);
        let again = sender.send(5_000, 20 * SEGMENT_BYTES);
        assert!(again.iter().all(|(at, _)| *at == 5_000), "{again:?}");
    }

    #[test]
    fn the_payload_of_segments_is_what_was_given() {
        for bytes in [0, 1, 1_448, 1_449, 200_000] {
            let segments = Sender::new(Flow::Burst, 1_000).send(7, bytes);
            assert_eq!(segments.iter().map(|(_, bytes)| bytes).sum::<u64>(), bytes);
        }
    }

    const RTT: u64 = 15_000;

    /// A document and style sheets, each of a segment.
    fn page(sheets: u32) -> Graph {
        let resource = |number: u32| Resource {
            url: format!("http://page.test/{number}.css"),
            kind: if number == 0 { Kind::Document } else { Kind::Stylesheet },
            priority: rules::priority(Kind::Stylesheet),
            blocking: true,
            initiator: (number > 0).then_some(Initiator {
                resource: 0,
                at_byte: None,
                delay_us: 0,
            }),
            status: 200,
            body_bytes: 1_000,
            server_us: 0,
        };
        Graph { resources: (0..=sheets).map(resource).collect() }
    }

    fn network(keeps: bool) -> Network {
        Network {
            rtt_us: RTT,
            rate_bytes_per_s: None,
            congestion: "cubic".to_owned(),
            tls_round_trips: None,
            connection_us: 0,
            tls_us: 0,
            head_bytes: 300,
            keeps,
            requests_max: None,
            http2: false,
        }
    }

    fn run(graph: &Graph, config: &Config, network: &Network) -> (u64, usize) {
        let waterfall = forecast(graph, config, network).unwrap();
        assert_eq!(waterfall.requests.len(), graph.resources.len());
        assert!(waterfall.requests.iter().all(|one| one.error.is_none()), "{waterfall:?}");
        (waterfall.everything_us.unwrap() / RTT, waterfall.connections.len())
    }

    #[test]
    fn twenty_style_sheets_take_as_many_round_trips_as_worked_out_by_hand() {
        let config = Config::default();
        // Document: handshake and request. Then the open connection carries 1 while five are opened, and
        // each round of six takes one round trip: of 20, the first connection has carried one when the other five
        // are open. 1, then 6, 6, 6, then 1 more.
        assert_eq!(run(&page(20), &config, &network(true)), (7, 6));
        // Each file has a handshake and a request. The document, then 6, 6, 6 and 2.
        assert_eq!(run(&page(20), &config, &network(false)), (10, 21));
        assert_eq!(run(&page(0), &config, &network(true)), (2, 1));
    }

    #[test]
    fn seven_connections_carry_more_at_a_time() {
        let config = Config { connections_per_origin: 7, ..Config::default() };
        assert_eq!(run(&page(20), &config, &network(false)), (8, 21));
    }

    #[test]
    fn http2_asks_for_everything_at_once_on_one_connection() {
        let config = Config { protocol: Protocol::Http2, ..Config::default() };
        let mut graph = page(20);
        for resource in &mut graph.resources {
            resource.url = resource.url.replace("http:", "https:");
        }
        let network = Network { tls_round_trips: Some(1), http2: true, ..network(true) };
        // 20 responses of a segment each: 11 segments are in the window after the document.
        assert_eq!(run(&graph, &config, &network), (5, 1));
    }

    #[test]
    fn pipelining_fills_the_connections_that_are_known_to_persist() {
        let config = Config { protocol: Protocol::Pipelined, ..Config::default() };
        let (rounds, connections) = run(&page(20), &config, &network(true));
        assert!(rounds <= 5, "{rounds}");
        assert!(connections <= 6, "{connections}");
    }

    #[test]
    fn a_limit_of_requests_per_connection_costs_connections() {
        let network = Network { requests_max: Some(2), ..network(true) };
        let (_, connections) = run(&page(20), &Config::default(), &network);
        // 21 responses need 11; two more were opened for requests that a connection before them took.
        assert!((11..=13).contains(&connections), "{connections}");
    }

    #[test]
    fn the_simple_rule_multiplies() {
        assert_eq!(simple_saving_us(21, 7, 20_000), 280_000);
        assert_eq!(simple_saving_us(6, 7, 20_000), 0);
    }
}
