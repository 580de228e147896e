//! How long a page should take: the loader's own decisions on a simulated network.
//!
//! The document's rule is a product: connections saved × round trip. It takes every handshake for
//! one that the page waits for. Here each handshake, request and window of data happens when the
//! loader would have it happen: round trips, slow start of each connection, the time that the server and
//! the client need. No packet is lost, and connections do not compete unless a rate is given.
//! `flow` is the sender of one connection.

mod flow;

use std::collections::BTreeMap;

use self::flow::{Flow, Sender};
use super::graph::Graph;
use super::loader::{Action, Config, ConnectionId, Head, Loader, Origin, RequestId, Start};
use super::resource::Protocol;
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

/// Whether these settings may use HTTP/2 at all.
pub fn speaks_http2(config: &Config, tls: bool) -> bool {
    tls && config.protocol == Protocol::Http2
}

#[cfg(test)]
mod tests;
