//! What a browser asks for next, and over which connection.
//!
//! [`Loader`] is a state machine without input and output of its own. Its driver tells it what has happened
//! on the network, with the time, and carries out its [`Action`]s. Our client drives it with real sockets,
//! the forecast with a simulated network. So the forecast cannot follow other rules than the load.
//!
//! A request takes an idle connection of its origin. If there is none, a new one is opened, up to the
//! limit; whichever connection is free first takes the most urgent request. Chromium's socket pools
//! work alike (late binding, `net/socket/transport_client_socket_pool.h`). What a document or a style
//! sheet names is found by `page::discovery`; limits and orders are in [`super::rules`].

mod ends;
mod pool;

use std::collections::BTreeMap;

use url::Url;

use self::pool::{Pool, Socket};
use super::discovery::{Discovery, Found};
pub use super::resource::{ConnectionId, Origin, RequestId};
use super::resource::{Graph, Kind, Priority, Protocol, Resource};
use super::rules;
use super::waterfall::is_refusal;

/// How a page is loaded.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections to one origin, at least 1; HTTP/2 uses one.
    pub connections_per_origin: u32,
    /// How requests share a connection.
    pub protocol: Protocol,
    /// Ask other origins than the document's too.
    pub other_origins: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_per_origin: rules::CONNECTIONS_PER_ORIGIN,
            protocol: Protocol::Http1,
            other_origins: false,
        }
    }
}

/// What is loaded.
#[derive(Clone, Debug)]
pub enum Start {
    /// A document, and what it turns out to name.
    Url(Url),
    /// Resources that are known; their content is not looked at.
    Graph(Graph),
}

/// What the driver must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a connection.
    Connect {
        /// Its number.
        connection: ConnectionId,
        /// Where to.
        origin: Origin,
    },
    /// Send a request.
    Send {
        /// On this connection, which is open.
        connection: ConnectionId,
        /// The request.
        request: RequestId,
        /// Path and query, visible ASCII.
        path: String,
        /// The `Host` field.
        host: String,
        /// Whether nothing more is to be read of the response than its status and length, as it is
        /// known what follows.
        known: bool,
    },
    /// Close a connection.
    Close {
        /// Which.
        connection: ConnectionId,
    },
    /// Read no more of a response: it exceeds a limit. The connection is closed (HTTP/1.1) or the
    /// stream reset (HTTP/2); [`Loader::failed`] follows.
    Cancel {
        /// The request.
        request: RequestId,
    },
}

/// The head of a response, as far as a page depends on it.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Status.
    pub status: u16,
    /// `Location`, of a redirect.
    pub location: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// Whether the connection can carry another request afterwards.
    pub keeps: bool,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for a connection.
    Waiting,
    /// Handed to a connection.
    Assigned,
    /// The response has begun.
    Receiving,
    /// Over, successfully or not.
    Ended,
}

/// A request and its times, µs since the navigation began.
#[derive(Clone, Debug)]
struct Entry {
    url: Url,
    kind: Kind,
    priority: Priority,
    blocking: bool,
    initiator: Option<u32>,
    /// Bytes of its initiator's content that were there. None: all of it.
    named_at: Option<u64>,
    /// The resource of a graph that it asks for.
    resource: Option<u32>,
    /// Style sheets around it, redirects before it.
    depth: u32,
    redirects: u32,
    state: State,
    connection: Option<ConnectionId>,
    /// Whether it is the first on its connection.
    first_on_connection: bool,
    known_us: u64,
    assigned_us: Option<u64>,
    sent_us: Option<u64>,
    first_byte_us: Option<u64>,
    ended_us: Option<u64>,
    status: Option<u16>,
    error: Option<String>,
    body_bytes: u64,
    decoded_bytes: u64,
    location: Option<String>,
    keeps: bool,
}

/// A page that is being loaded.
#[derive(Debug)]
pub struct Loader {
    config: Config,
    entries: Vec<Entry>,
    sockets: Vec<Socket>,
    pools: BTreeMap<Origin, Pool>,
    discovery: Discovery,
    /// Known before the load, if it is.
    graph: Option<ends::Known>,
    actions: Vec<Action>,
    decoded_bytes: u64,
    document_origin: Option<Origin>,
    /// What time counts from.
    begun_us: u64,
    /// Requests sent again because the server closed a connection that was idle.
    repeats: u32,
}

impl Loader {
    /// Everything that may be done now.
    pub fn actions(&mut self, now_us: u64) -> Vec<Action> {
        self.release_known(now_us);
        let origins: Vec<Origin> = self.pools.keys().cloned().collect();
        for origin in origins {
            self.schedule(&origin, now_us);
        }
        std::mem::take(&mut self.actions)
    }

    /// When [`Loader::actions`] has something new without an event: a delay of a graph ends, µs.
    pub fn wake_at(&self) -> Option<u64> {
        self.graph.as_ref().and_then(ends::Known::wake_at)
    }

    /// Whether everything that was asked for has ended, and nothing more will become known.
    pub fn is_done(&self) -> bool {
        self.entries.iter().all(|entry| entry.state == State::Ended)
            && self.graph.as_ref().is_none_or(ends::Known::is_exhausted)
    }

    /// Whether a request has failed.
    pub fn has_failed(&self) -> bool {
        let failed = |entry: &Entry| entry.error.is_some() || entry.status.is_some_and(is_refusal);
        self.entries.iter().any(failed)
    }

    /// The resource of the graph that a request asks for. None: it is not of a graph.
    pub fn resource_of(&self, request: RequestId) -> Option<u32> {
        self.entries.get(request.0 as usize)?.resource
    }

    /// Requests that were sent again because the server closed an idle connection.
    pub fn repeats(&self) -> u32 {
        self.repeats
    }

    /// The name of a connection's host has an address.
    pub fn resolved(&mut self, connection: ConnectionId, now_us: u64) {
        if let Some(socket) = self.socket(connection) {
            socket.resolved_us = Some(now_us);
        }
    }

    /// A connection's TCP handshake has ended.
    pub fn connected(&mut self, connection: ConnectionId, now_us: u64) {
        let Some(socket) = self.socket(connection) else { return };
        socket.connected_us = Some(now_us);
        if !socket.origin.tls {
            socket.ready = true;
        }
    }

    /// A connection's TLS handshake has ended; HTTP/2 was agreed on or not.
    pub fn secured(&mut self, connection: ConnectionId, now_us: u64, http2: bool) {
        let Some(socket) = self.socket(connection) else { return };
        socket.secured_us = Some(now_us);
        socket.ready = true;
        socket.http2 = http2;
        let origin = socket.origin.clone();
        if let Some(pool) = self.pools.get_mut(&origin) {
            pool.http2 = Some(http2);
        }
    }

    /// A request was handed to the kernel.
    pub fn sent(&mut self, request: RequestId, now_us: u64) {
        if let Some(entry) = self.entry(request) {
            entry.sent_us = Some(now_us);
        }
    }

    /// The first byte of a response.
    pub fn first_byte(&mut self, request: RequestId, now_us: u64) {
        if let Some(entry) = self.entry(request)
            && entry.state == State::Assigned
        {
            entry.state = State::Receiving;
            entry.first_byte_us = Some(now_us);
        }
    }

    /// The head of a response.
    pub fn head(&mut self, request: RequestId, head: &Head, now_us: u64) {
        self.first_byte(request, now_us);
        let Some(entry) = self.entry(request) else { return };
        entry.status = Some(head.status);
        entry.keeps = head.keeps;
        let redirect = matches!(head.status, 301 | 302 | 303 | 307 | 308);
        entry.location = head.location.clone().filter(|_| redirect);
        let (kind, url, known) = (entry.kind, entry.url.clone(), entry.resource.is_some());
        if (200..300).contains(&head.status) && !known {
            self.discovery.begin(request, kind, &url, head.content_type.as_deref());
        }
    }

    /// Content of a response: as decoded, and its length on the wire.
    pub fn body(&mut self, request: RequestId, decoded: &[u8], encoded_len: u64, now_us: u64) {
        let Some(entry) = self.entry(request) else { return };
        if entry.state == State::Ended {
            return;
        }
        entry.body_bytes = entry.body_bytes.saturating_add(encoded_len);
        entry.decoded_bytes = entry.decoded_bytes.saturating_add(decoded.len() as u64);
        let limit = match entry.kind {
            Kind::Document => rules::DOCUMENT_BYTES,
            Kind::Stylesheet => rules::STYLESHEET_BYTES,
            _ => rules::PAGE_BYTES,
        };
        let too_long = entry.decoded_bytes.max(entry.body_bytes) > limit;
        self.decoded_bytes =
            self.decoded_bytes.saturating_add((decoded.len() as u64).max(encoded_len));
        if too_long || self.decoded_bytes > rules::PAGE_BYTES {
            self.actions.push(Action::Cancel { request });
            return;
        }
        let found = self.discovery.feed(request, decoded);
        self.take_found(request, found, now_us);
        self.graph_arrived(request, false, now_us);
    }

    /// A response is complete.
    pub fn ended(&mut self, request: RequestId, now_us: u64) {
        let Some(entry) = self.entry(request) else { return };
        if entry.state == State::Ended {
            return;
        }
        entry.state = State::Ended;
        entry.ended_us = Some(now_us);
        let (keeps, connection) = (entry.keeps, entry.connection);
        let location = entry.location.take();
        if let Some(connection) = connection {
            self.give_back(connection, request, keeps, now_us);
        }
        self.read_to_the_end(request, now_us);
        if let Some(location) = location {
            self.redirect(request, &location, now_us);
        }
        self.graph_arrived(request, true, now_us);
    }

    /// A request failed: its class, as in `docs/causes.md`. Its connection is of no more use, unless
    /// it speaks HTTP/2.
    pub fn failed(&mut self, request: RequestId, class: &str, now_us: u64) {
        let Some(entry) = self.entry(request) else { return };
        if entry.state == State::Ended {
            return;
        }
        entry.state = State::Ended;
        entry.ended_us = Some(now_us);
        entry.error = Some(class.to_owned());
        if let Some(connection) = entry.connection {
            self.give_back(connection, request, false, now_us);
        }
        self.read_to_the_end(request, now_us);
        self.graph_arrived(request, true, now_us);
    }

    /// Takes what is found now that a response has ended.
    fn read_to_the_end(&mut self, request: RequestId, now_us: u64) {
        let found = self.discovery.end(request);
        self.take_found(request, found, now_us);
        let used = self.discovery.used(self.sheets_wait());
        self.take_found(request, used, now_us);
    }

    /// Whether a style sheet that blocks rendering has not ended.
    fn sheets_wait(&self) -> bool {
        let sheet = |entry: &Entry| entry.blocking && entry.kind == Kind::Stylesheet;
        self.entries.iter().any(|entry| sheet(entry) && entry.state != State::Ended)
    }

    fn socket(&mut self, connection: ConnectionId) -> Option<&mut Socket> {
        self.sockets.get_mut(connection.0 as usize)
    }

    fn entry(&mut self, request: RequestId) -> Option<&mut Entry> {
        self.entries.get_mut(request.0 as usize)
    }

    /// Takes what a response named.
    fn take_found(&mut self, initiator: RequestId, found: Vec<Found>, now_us: u64) {
        for one in found {
            let depth = self.entries[initiator.0 as usize].depth;
            let depth = depth + u32::from(one.nested);
            self.add(one, Some(initiator.0), depth, 0, now_us);
        }
    }

    fn redirect(&mut self, from: RequestId, location: &str, now_us: u64) {
        let entry = &self.entries[from.0 as usize];
        let (redirects, depth) = (entry.redirects + 1, entry.depth);
        let found = Found {
            kind: entry.kind,
            priority: entry.priority,
            blocking: entry.blocking,
            nested: false,
            url: entry.url.join(location).ok(),
            text: location.to_owned(),
        };
        if redirects > rules::REDIRECTS {
            self.discovery.leave_out("too-many-redirects", location);
            let entry = &mut self.entries[from.0 as usize];
            entry.error = Some("status".to_owned());
            return;
        }
        let document = from.0 == 0 || self.is_document(from);
        if document && let Some(origin) = found.url.as_ref().and_then(Origin::from_url) {
            // The page is where the redirect leads.
            if self.config.other_origins || self.document_origin.as_ref() == Some(&origin) {
                self.document_origin = Some(origin);
            }
        }
        self.add(found, Some(from.0), depth, redirects, now_us);
    }

    fn is_document(&self, request: RequestId) -> bool {
        self.entries[request.0 as usize].kind == Kind::Document
    }

    /// Adds a request, unless it must not or need not be sent.
    fn add(
        &mut self,
        found: Found,
        initiator: Option<u32>,
        depth: u32,
        redirects: u32,
        now_us: u64,
    ) {
        let Some(mut url) = found.url else {
            self.discovery.leave_out("malformed", &found.text);
            return;
        };
        url.set_fragment(None);
        let Some(origin) = Origin::from_url(&url) else {
            self.discovery.leave_out("scheme", url.as_str());
            return;
        };
        let reason = if url.as_str().len() > rules::URL_BYTES {
            Some("too-long")
        } else if self.document_origin.as_ref() != Some(&origin) && !self.config.other_origins {
            Some("other-origin")
        } else if depth > rules::IMPORT_DEPTH {
            Some("too-deep")
        } else if self.entries.len() >= rules::REQUESTS {
            Some("too-many")
        } else {
            None
        };
        if let Some(reason) = reason {
            self.discovery.leave_out(reason, url.as_str());
            return;
        }
        if self.entries.iter().any(|entry| entry.url == url) {
            // Asked for once; a redirect back to it is a cycle.
            if redirects > 0 {
                self.discovery.leave_out("cycle", url.as_str());
            }
            return;
        }
        let named_at = initiator.map(|number| &self.entries[number as usize]);
        let named_at = named_at.filter(|one| one.state != State::Ended).map(|one| one.body_bytes);
        let entry = Entry {
            named_at,
            kind: found.kind,
            priority: found.priority,
            blocking: found.blocking,
            initiator,
            depth,
            redirects,
            ..Entry::new(url, now_us)
        };
        self.queue(entry, origin);
    }

    fn queue(&mut self, entry: Entry, origin: Origin) {
        let request = RequestId(self.entries.len() as u32);
        self.pools.entry(origin).or_default().wait(entry.priority, request);
        self.entries.push(entry);
    }

    /// The graph that a load was: for a forecast, and to load the same again.
    ///
    /// `server_us` gives the time that the server takes for a request, µs.
    pub fn graph(&self, server_us: impl Fn(usize) -> u64) -> Graph {
        Graph { resources: self.resources(server_us) }
    }

    fn resources(&self, server_us: impl Fn(usize) -> u64) -> Vec<Resource> {
        let resource = |(number, entry): (usize, &Entry)| Resource {
            url: entry.url.to_string(),
            kind: entry.kind,
            priority: entry.priority,
            blocking: entry.blocking,
            initiator: Self::initiator_of(entry),
            status: entry.status.unwrap_or_default(),
            body_bytes: entry.body_bytes,
            server_us: server_us(number),
        };
        self.entries.iter().enumerate().map(resource).collect()
    }
}

impl Entry {
    fn new(url: Url, now_us: u64) -> Self {
        Self {
            url,
            kind: Kind::Document,
            priority: Priority::VeryHigh,
            blocking: true,
            initiator: None,
            named_at: None,
            resource: None,
            depth: 0,
            redirects: 0,
            state: State::Waiting,
            connection: None,
            first_on_connection: false,
            known_us: now_us,
            assigned_us: None,
            sent_us: None,
            first_byte_us: None,
            ended_us: None,
            status: None,
            error: None,
            body_bytes: 0,
            decoded_bytes: 0,
            location: None,
            keeps: false,
        }
    }
}

#[cfg(test)]
mod tests;
