//! What came of a load.

use super::pool::{Pool, Socket};
use super::{Action, ConnectionId, Entry, Loader, Start, State};
use crate::page::discovery::Discovery;
use crate::page::graph::Initiator;
use crate::page::resource::Kind;
use crate::page::waterfall::{Connection, Phases, Request, Waterfall, fail_statuses};

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
