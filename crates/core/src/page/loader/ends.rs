//! The beginning of a load with the resources that are known before it, and what came of it.

use std::collections::BTreeMap;

use url::Url;

use super::pool::{Pool, Socket};
use super::{Action, Config, ConnectionId, Entry, Loader, Origin, RequestId, Start, State};
use crate::page::discovery::Discovery;
use crate::page::resource::{Graph, Initiator, Kind};
use crate::page::rules;
use crate::page::waterfall::{Connection, Phases, Request, Waterfall, fail_statuses};

/// A graph of which parts are known to the page already.
#[derive(Debug)]
pub(super) struct Known {
    graph: Graph,
    /// The URLs, parsed.
    urls: Vec<Url>,
    /// The request that asks for each resource.
    requests: Vec<Option<RequestId>>,
    /// Resources that a resource names and that are not known yet.
    named: BTreeMap<u32, Vec<u32>>,
    /// When resources become known, µs.
    due: BTreeMap<u64, Vec<u32>>,
}

impl Known {
    pub(super) fn wake_at(&self) -> Option<u64> {
        self.due.keys().next().copied()
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.due.is_empty()
    }

    fn from_graph(graph: Graph) -> Result<Self, String> {
        if graph.resources.is_empty() {
            return Err("it has no resources".to_owned());
        }
        if graph.resources.len() > rules::REQUESTS {
            return Err(format!(
                "it has {} resources; the limit is {}",
                graph.resources.len(),
                rules::REQUESTS
            ));
        }
        let mut named: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut urls = Vec::new();
        for (number, resource) in graph.resources.iter().enumerate() {
            let url = Url::parse(&resource.url)
                .map_err(|error| format!("resource {number}: its URL is malformed: {error}"))?;
            if Origin::from_url(&url).is_none() {
                return Err(format!("resource {number}: its URL is neither http nor https"));
            }
            urls.push(url);
            match resource.initiator {
                Some(Initiator { resource: other, .. }) if (other as usize) < number => {
                    named.entry(other).or_default().push(number as u32);
                }
                Some(_) => return Err(format!("resource {number} is before its initiator")),
                None if number > 0 => {
                    return Err(format!(
                        "resource {number} has no initiator, and is not the first"
                    ));
                }
                None => {}
            }
        }
        let requests = vec![None; graph.resources.len()];
        Ok(Self { graph, urls, requests, named, due: BTreeMap::new() })
    }
}

impl Loader {
    /// Begins a load at time 0.
    ///
    /// Errors: a sentence, without the name of what is loaded: a graph that is none.
    pub fn new(config: Config, start: Start) -> Result<Self, String> {
        let mut loader = Self {
            config,
            entries: Vec::new(),
            sockets: Vec::new(),
            pools: BTreeMap::new(),
            discovery: Discovery::default(),
            graph: None,
            actions: Vec::new(),
            decoded_bytes: 0,
            document_origin: None,
            begun_us: 0,
            repeats: 0,
        };
        loader.start(start, 0)?;
        Ok(loader)
    }

    pub(super) fn start(&mut self, start: Start, now_us: u64) -> Result<(), String> {
        self.begun_us = now_us;
        match start {
            Start::Url(mut url) => {
                url.set_fragment(None);
                let origin = Origin::from_url(&url).ok_or("it is neither http nor https")?;
                self.document_origin = Some(origin.clone());
                self.queue(Entry::new(url, now_us), origin);
            }
            Start::Graph(graph) => {
                let known = Known::from_graph(graph)?;
                self.document_origin = Origin::from_url(&known.urls[0]);
                self.graph = Some(known);
                self.ask_known(0, now_us);
            }
        }
        Ok(())
    }

    /// Asks for a resource of the graph.
    fn ask_known(&mut self, number: u32, now_us: u64) {
        let request = RequestId(self.entries.len() as u32);
        let Some(known) = &mut self.graph else { return };
        let url = known.urls[number as usize].clone();
        let resource = &known.graph.resources[number as usize];
        let Some(origin) = Origin::from_url(&url) else { return };
        let initiator =
            resource.initiator.and_then(|initiator| known.requests[initiator.resource as usize]);
        let entry = Entry {
            kind: resource.kind,
            priority: resource.priority,
            blocking: resource.blocking,
            initiator: initiator.map(|request| request.0),
            resource: Some(number),
            ..Entry::new(url, now_us)
        };
        known.requests[number as usize] = Some(request);
        self.queue(entry, origin);
    }

    /// Content of a response arrived: what it names becomes known.
    pub(super) fn graph_arrived(&mut self, request: RequestId, all: bool, now_us: u64) {
        let entry = &self.entries[request.0 as usize];
        let Some(number) = entry.resource else { return };
        let bytes = entry.body_bytes;
        let Some(known) = &mut self.graph else { return };
        let Some(mut waiting) = known.named.remove(&number) else { return };
        waiting.retain(|&other| {
            let resource = &known.graph.resources[other as usize];
            let Some(initiator) = resource.initiator else { return false };
            let here = all || initiator.at_byte.is_some_and(|at| bytes >= at);
            if here {
                let at = now_us.saturating_add(initiator.delay_us);
                known.due.entry(at).or_default().push(other);
            }
            !here
        });
        if !waiting.is_empty() {
            known.named.insert(number, waiting);
        }
    }

    /// Asks for all resources that are due.
    pub(super) fn release_known(&mut self, now_us: u64) {
        while let Some(known) = &mut self.graph
            && let Some(first) = known.due.first_entry()
            && *first.key() <= now_us
        {
            for number in first.remove() {
                self.ask_known(number, now_us);
            }
        }
    }
}

impl Loader {
    /// Ends the load. `gave_up`: the class of the failure of requests that have not ended.
    pub fn into_waterfall(mut self, gave_up: Option<&str>, now_us: u64) -> Waterfall {
        self.finish(gave_up, now_us)
    }

    /// Ends a page and begins the next one of the same visitor: over connections that are still
    /// open.
    ///
    /// Errors: as of [`Loader::new`].
    pub fn next_page(&mut self, start: Start, now_us: u64) -> Result<Waterfall, String> {
        let waterfall = self.finish(None, now_us);
        self.entries.clear();
        self.graph = None;
        self.discovery = Discovery::default();
        self.decoded_bytes = 0;
        // Numbers of requests begin anew, so none of this page may wait or be under way.
        self.pools.values_mut().for_each(Pool::clear);
        for (number, socket) in self.sockets.iter_mut().enumerate() {
            if !socket.carries.is_empty() && !socket.over {
                let connection = ConnectionId(number as u32);
                self.actions.push(Action::Close { connection });
                socket.over = true;
                socket.ready = false;
                socket.closed_us = Some(now_us);
            }
            socket.carries.clear();
        }
        self.start(start, now_us)?;
        Ok(waterfall)
    }

    fn finish(&mut self, gave_up: Option<&str>, now_us: u64) -> Waterfall {
        let class = gave_up.unwrap_or("unsent");
        let whole = self.entries.iter().all(|entry| entry.state == State::Ended);
        for entry in self.entries.iter_mut().filter(|entry| entry.state != State::Ended) {
            entry.state = State::Ended;
            entry.ended_us = Some(now_us);
            entry.error = Some(class.to_owned());
        }
        let since = |at: u64| at.saturating_sub(self.begun_us);
        let mut requests: Vec<Request> =
            self.entries.iter().map(|entry| self.request(entry)).collect();
        // The last of its redirects. What replays a graph loads its files, whatever they are.
        let document = self.entries.iter().rposition(|entry| entry.kind == Kind::Document);
        fail_statuses(&mut requests, document.filter(|_| self.graph.is_none()));
        let connections = self.sockets.iter().map(|socket| connection(socket, since)).collect();
        let first_byte_us = self.entries.first().and_then(|entry| entry.first_byte_us).map(since);
        let end = |wanted: fn(&Request) -> bool| {
            requests.iter().filter(|one| wanted(one)).map(Request::ended_us).max()
        };
        let blocked = requests.iter().any(|one| one.blocking && one.error.is_some());
        let blocking_us = if blocked { None } else { end(|one| one.blocking) };
        let everything_us = if whole { end(|_| true) } else { None };
        Waterfall {
            first_byte_us,
            blocking_us,
            everything_us,
            load_event_us: None,
            left_out: self.discovery.left_out(),
            requests,
            connections,
        }
    }

    /// Phases follow each other without a gap, whatever the driver reported when.
    fn request(&self, entry: &Entry) -> Request {
        let since = |at: u64| at.saturating_sub(self.begun_us);
        let socket = entry.connection.and_then(|id| self.sockets.get(id.0 as usize));
        let opened = socket.filter(|_| entry.first_on_connection);
        let end = entry.ended_us.unwrap_or(entry.known_us);
        let mut phases = Phases::default();
        let mut at = entry.known_us;
        let mut until = |phase: &mut u64, mark: Option<u64>| {
            if let Some(mark) = mark.map(|mark| mark.min(end)) {
                *phase += mark.saturating_sub(at);
                at = at.max(mark);
            }
        };
        if let Some(socket) = opened {
            until(&mut phases.blocked_us, Some(socket.asked_us));
            until(&mut phases.dns_us, socket.resolved_us);
            until(&mut phases.connect_us, socket.connected_us.or(socket.closed_us));
            if socket.origin.tls {
                until(&mut phases.tls_us, socket.secured_us.or(socket.closed_us));
            }
        }
        until(&mut phases.blocked_us, entry.assigned_us);
        until(&mut phases.send_us, entry.sent_us);
        until(&mut phases.wait_us, entry.first_byte_us);
        let last = if entry.first_byte_us.is_some() {
            &mut phases.receive_us
        } else if entry.assigned_us.is_some() {
            &mut phases.wait_us
        } else {
            &mut phases.blocked_us
        };
        until(last, Some(end));
        Request {
            url: entry.url.to_string(),
            kind: entry.kind,
            priority: entry.priority,
            blocking: entry.blocking,
            initiator: entry.initiator,
            connection: entry.connection.map(|id| id.0),
            status: entry.status,
            error: entry.error.clone(),
            body_bytes: entry.body_bytes,
            known_us: since(entry.known_us),
            phases,
        }
    }

    /// What made a request known, for a graph.
    pub(super) fn initiator_of(entry: &Entry) -> Option<Initiator> {
        let resource = entry.initiator?;
        Some(Initiator { resource, at_byte: entry.named_at, delay_us: 0 })
    }
}

fn connection(socket: &Socket, since: impl Fn(u64) -> u64) -> Connection {
    let protocol = if socket.http2 {
        crate::page::resource::Protocol::Http2
    } else {
        crate::page::resource::Protocol::Http1
    };
    Connection {
        origin: socket.origin.to_string(),
        protocol,
        begun_us: since(socket.resolved_us.unwrap_or(socket.asked_us)),
        connected_us: socket.connected_us.map(&since),
        secured_us: socket.secured_us.map(&since),
        closed_us: socket.closed_us.map(&since),
        requests: socket.requests,
    }
}
