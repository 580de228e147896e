//! The connections of each origin, and which request each carries.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::{Action, ConnectionId, Loader, Origin, Protocol, RequestId, State};
use crate::page::resource::Priority;
use crate::page::rules;

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub(super) origin: Origin,
    /// Requests and responses may pass.
    pub(super) ready: bool,
    pub(super) http2: bool,
    /// Closed, by either end, or never opened.
    pub(super) over: bool,
    /// Requests that wait for their responses, in the order sent.
    pub(super) carries: Vec<RequestId>,
    /// Requests it was given, all in all.
    pub(super) requests: u32,
    /// A response on it ended and left it open.
    pub(super) kept: bool,
    pub(super) asked_us: u64,
    pub(super) resolved_us: Option<u64>,
    pub(super) connected_us: Option<u64>,
    pub(super) secured_us: Option<u64>,
    pub(super) closed_us: Option<u64>,
}

/// What one origin has: requests that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// The most urgent first, of these the one known first.
    waiting: BTreeSet<(Reverse<Priority>, RequestId)>,
    /// Whether its server speaks HTTP/2; not known before the first handshake.
    pub(super) http2: Option<bool>,
}

impl Pool {
    pub(super) fn wait(&mut self, priority: Priority, request: RequestId) {
        self.waiting.insert((Reverse(priority), request));
    }

    /// Forgets the requests that wait.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

impl Loader {
    /// Hands requests to connections, and opens connections for those that still wait.
    pub(super) fn schedule(&mut self, origin: &Origin, now_us: u64) {
        while let Some(first) =
            self.pools.get(origin).and_then(|pool| pool.waiting.first().copied())
        {
            let Some(connection) = self.free(origin) else { break };
            if let Some(pool) = self.pools.get_mut(origin) {
                pool.waiting.remove(&first);
            }
            self.assign(first.1, connection, now_us);
        }
        let Some(pool) = self.pools.get(origin) else { return };
        let waiting = pool.waiting.len();
        let one =
            self.config.protocol == Protocol::Http2 && origin.tls && pool.http2 != Some(false);
        let limit = if one { 1 } else { self.config.connections_per_origin.max(1) as usize };
        let mut live = 0;
        let mut opening = 0;
        for socket in self.sockets.iter().filter(|socket| !socket.over && socket.origin == *origin)
        {
            live += 1;
            opening += usize::from(!socket.ready);
        }
        for _ in 0..limit.saturating_sub(live).min(waiting.saturating_sub(opening)) {
            let connection = ConnectionId(self.sockets.len() as u32);
            self.sockets.push(Socket {
                origin: origin.clone(),
                ready: false,
                http2: false,
                over: false,
                carries: Vec::new(),
                requests: 0,
                kept: false,
                asked_us: now_us,
                resolved_us: None,
                connected_us: None,
                secured_us: None,
                closed_us: None,
            });
            self.actions.push(Action::Connect { connection, origin: origin.clone() });
        }
    }

    /// A connection that can take one more request: of those with the fewest under way the one used last, as
    /// a pool takes it.
    fn free(&self, origin: &Origin) -> Option<ConnectionId> {
        let pipelined = self.config.protocol == Protocol::Pipelined;
        let room = |socket: &Socket| {
            let under_way = socket.carries.len();
            if socket.http2 {
                under_way < rules::STREAMS as usize
            } else if pipelined && socket.kept {
                under_way < rules::PIPELINED as usize
            } else {
                under_way == 0
            }
        };
        let numbered = self.sockets.iter().enumerate();
        numbered
            .filter(|(_, socket)| socket.ready && !socket.over && socket.origin == *origin)
            .filter(|(_, socket)| room(socket))
            .min_by_key(|(_, socket)| (socket.carries.len(), Reverse(socket.requests)))
            .map(|(number, _)| ConnectionId(number as u32))
    }

    fn assign(&mut self, request: RequestId, connection: ConnectionId, now_us: u64) {
        let known = self.graph.is_some();
        let socket = &mut self.sockets[connection.0 as usize];
        let entry = &mut self.entries[request.0 as usize];
        entry.state = State::Assigned;
        entry.connection = Some(connection);
        entry.first_on_connection = socket.requests == 0;
        entry.assigned_us = Some(now_us);
        socket.requests += 1;
        socket.carries.push(request);
        let path = match entry.url.query() {
            Some(query) => format!("{}?{query}", entry.url.path()),
            None => entry.url.path().to_owned(),
        };
        let host = socket.origin.authority();
        self.actions.push(Action::Send { connection, request, path, host, known });
    }

    /// A response is over: its connection is free, or of no more use.
    pub(super) fn give_back(
        &mut self,
        connection: ConnectionId,
        request: RequestId,
        keeps: bool,
        now_us: u64,
    ) {
        let Some(socket) = self.sockets.get_mut(connection.0 as usize) else { return };
        socket.carries.retain(|carried| *carried != request);
        if socket.http2 {
            // It may be closed while it is idle, as any other.
            socket.kept |= keeps;
        }
        if socket.http2 || socket.over {
            return;
        }
        if keeps {
            socket.kept = true;
            return;
        }
        socket.kept = true;
        // Pipelined requests after it will not be answered.
        self.closed(connection, now_us);
        self.actions.push(Action::Close { connection });
    }

    /// A connection could not be opened: its class, as in `docs/causes.md`. The most urgent request
    /// that waits for it fails with it.
    pub fn refused(&mut self, connection: ConnectionId, class: &str, now_us: u64) {
        let Some(socket) = self.sockets.get_mut(connection.0 as usize) else { return };
        if socket.over {
            return;
        }
        let origin = socket.origin.clone();
        self.over(connection, now_us);
        let Some(pool) = self.pools.get_mut(&origin) else { return };
        let Some(first) = pool.waiting.first().copied() else { return };
        pool.waiting.remove(&first);
        self.entries[first.1.0 as usize].connection = Some(connection);
        self.entries[first.1.0 as usize].first_on_connection = true;
        self.failed(first.1, class, now_us);
    }

    /// A connection was closed. A request of which nothing had come is sent again on another connection,
    /// if the connection had carried one before: the server may have closed it while it was idle
    /// (RFC 9112, section 9.3.1). The other one may be as old, and closed at the same time; each such attempt
    /// uses up a connection that had carried a response, so there are no more of them than responses. What has
    /// begun, and what was sent on a new connection, fails.
    pub fn closed(&mut self, connection: ConnectionId, now_us: u64) {
        let Some(socket) = self.sockets.get_mut(connection.0 as usize) else { return };
        if socket.over {
            return;
        }
        let origin = socket.origin.clone();
        let kept = socket.kept;
        let carried = std::mem::take(&mut socket.carries);
        self.over(connection, now_us);
        for request in carried {
            let entry = &mut self.entries[request.0 as usize];
            if kept && entry.state == State::Assigned {
                entry.state = State::Waiting;
                entry.connection = None;
                let priority = entry.priority;
                self.repeats += 1;
                if let Some(pool) = self.pools.get_mut(&origin) {
                    pool.wait(priority, request);
                }
            } else if entry.state != State::Ended {
                self.failed(request, "truncated", now_us);
            }
        }
    }

    fn over(&mut self, connection: ConnectionId, now_us: u64) {
        let socket = &mut self.sockets[connection.0 as usize];
        socket.over = true;
        socket.ready = false;
        socket.closed_us = Some(now_us);
    }
}
