//! Who closed first, and which end holds TIME-WAIT: what the client saw, held against the sockets
//! that the kernels kept.
//!
//! The client sees a FIN of the server that has arrived before it closes. It cannot see one that is under
//! way, so its own count has too many for the client: up to 13 % of all connections to servers that close as
//! the client does (Linux 6.18, a veth link, 2,000 connections to gunicorn and to Python's `http.server`). A
//! look for the FIN right before `close()` is no remedy: it took 725 of 2,000 connections for the client's
//! where packets showed 78, and 395 had crossed. TIME-WAIT of both ends settles it: first FINs then equalled
//! those of tcpdump in 48 of 48 cases. Read `tcptoll_core::http::reuse` next.
//!
//! The server's sockets in TIME-WAIT are not the number that it closed first: a new connection from the same
//! port replaces the old socket, uncounted (2,000 closed, 1,951 sockets). So `TcpExtTW` counts in the lab,
//! and 4-tuples count where both ends share a namespace.

use std::net::SocketAddr;
use std::time::Duration;
use tcptoll_core::experiment::figures::{
    CLIENT_FIN_WAIT_2, CLIENT_TIME_WAIT, SERVER_FIN_WAIT_2, SERVER_TIME_WAIT,
};

use tcptoll_core::http::reuse::{Counted, Disagreement, First, closed_first, crossed};
use tcptoll_core::tcp::ports::{ClientCloses, HalfClosed, PortSettings, forecast};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Handle, LabError};
use tcptoll_lab::messages::{ClosedSockets, CountClosed, HttpReport};

use crate::kit::notes::{Notes, Span};

/// A socket is in TIME-WAIT for 60 s (`TCP_TIMEWAIT_LEN`): of a load that is counted sooner none has
/// gone, with a second to spare.
const NONE_GONE_NS: u64 = 59_000_000_000;

/// Counts sockets of closed connections on one host, as soon as none is being closed any more.
pub(super) fn count_closed(
    host: &mut Handle,
    server: SocketAddr,
    since_ns: u64,
    limit: Duration,
) -> Result<ClosedSockets, LabError> {
    let limit_ns = limit.as_nanos() as u64;
    host.ask(&CountClosed { server, since_ns, limit_ns })
}

/// Where the server's ends of the connections are.
#[derive(Clone, Copy)]
pub(super) enum Server<'a> {
    /// On a host of the lab, with a network namespace of its own.
    Apart(ClosedSockets, Span<'a>),
    /// In the network namespace of the client.
    Same,
    /// Elsewhere.
    Unseen,
}

/// What was counted after a load.
pub(super) struct AfterLoad<'a> {
    /// When the load began, ns on the monotonic clock.
    pub(super) since_ns: u64,
    /// On the client's host.
    pub(super) ours: ClosedSockets,
    pub(super) client: Span<'a>,
    pub(super) server: Server<'a>,
}

impl AfterLoad<'_> {
    /// After a load on a server that is not ours.
    pub(super) fn of_target<'a>(
        report: &HttpReport,
        since_ns: u64,
        ours: ClosedSockets,
        client: Span<'a>,
    ) -> AfterLoad<'a> {
        // The address may be this machine's and the server not: a container's port, for one.
        let accepted = grew(client, "TcpPassiveOpens");
        let made = report.connections.1;
        let here = ours.server.is_some() && made > 0 && accepted >= made;
        let server = if here { Server::Same } else { Server::Unseen };
        AfterLoad { since_ns, ours, client, server }
    }

    /// Sockets in TIME-WAIT on the server's end.
    fn server_time_wait(&self) -> Option<u64> {
        match self.server {
            Server::Apart(theirs, _) => theirs.server,
            Server::Same => self.ours.server,
            Server::Unseen => None,
        }
    }

    /// Sockets in FIN-WAIT-2 on the client's end, and on the server's.
    fn half_closed(&self) -> [u64; 2] {
        let theirs = match self.server {
            Server::Apart(theirs, _) => theirs.half_closed[1],
            Server::Same | Server::Unseen => self.ours.half_closed[1],
        };
        [self.ours.half_closed[0], theirs]
    }

    /// Counters that can tell: of the client's host and, in the lab, of the server's.
    fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        let server = match self.server {
            Server::Apart(_, server) => Some(server),
            Server::Same | Server::Unseen => None,
        };
        [Some(self.client), server].into_iter().flatten()
    }

    /// Whether every connection was made and closed by a FIN of each end, as far as the kernels know.
    fn all_by_fins(&self, report: &HttpReport) -> bool {
        /// Each says that a connection may have ended without a TIME-WAIT, or a TIME-WAIT early.
        const OTHERWISE: [&str; 3] = ["TcpOutRsts", "TcpEstabResets", "TcpExtTCPTimeWaitOverflow"];
        let under_way = match self.server {
            Server::Apart(theirs, _) => theirs.under_way,
            Server::Same | Server::Unseen => 0,
        };
        report.connections.0 == report.connections.1
            && self.ours.under_way + under_way == 0
            && self.spans().all(|span| OTHERWISE.iter().all(|name| grew(span, name) == 0))
    }

    /// Sockets that went into TIME-WAIT on the client, and connections that left one on both ends.
    ///
    /// None: not known, as some have gone again.
    fn entered(&self, made: u64) -> Option<(u64, Option<u64>)> {
        // Until its 60 s are over a socket goes only if a new connection takes its place: on the
        // client with `net.ipv4.tcp_tw_reuse`, which is counted; on the server whenever the client
        // uses a port again, which is not.
        let whole = self.client.after.at_ns.saturating_sub(self.since_ns) < NONE_GONE_NS
            && grew(self.client, "TcpExtTWRecycled") == 0;
        let found = self.ours.client.filter(|_| whole);
        match self.server {
            Server::Apart(_, server) if alone(self.client, server, made) => {
                let [ours, theirs] = [self.client, server].map(began);
                Some((ours, crossed(made, ours, theirs)))
            }
            Server::Same => Some((found?, self.ours.both)),
            Server::Apart(..) | Server::Unseen => Some((found?, None)),
        }
    }
}

/// Takes what was counted after the load; `ports` is what the forecast of ports rests on.
pub(super) fn take_closing(
    notes: &mut Notes,
    ports: &mut PortSettings,
    report: &HttpReport,
    after: &AfterLoad<'_>,
) {
    let sides =
        [(&CLIENT_TIME_WAIT, after.ours.client), (&SERVER_TIME_WAIT, after.server_time_wait())];
    for (metric, sockets) in sides {
        notes.metric(metric, sockets.map(|count| count as f64), 1);
    }
    let [ours, theirs] = after.half_closed();
    for (metric, count) in [(&CLIENT_FIN_WAIT_2, ours), (&SERVER_FIN_WAIT_2, theirs)] {
        notes.metric(metric, (count > 0).then_some(count as f64), 1);
    }
    settle_closers(notes, report, after);
    revise_forecast(notes, ports, &after.ours);
}

/// Replaces who closed first as the client saw it by what the sockets say, where they can.
fn settle_closers(notes: &mut Notes, report: &HttpReport, after: &AfterLoad<'_>) {
    if !after.all_by_fins(report) {
        return;
    }
    let Some(closing) = &mut notes.arm.closing else { return };
    let mut counted = Counted {
        by_client: closing.by_client,
        by_server: closing.by_server,
        open_at_end: closing.open_at_end,
        ended_at_end: report.ended_at_end,
        client_time_wait: 0,
        both: None,
    };
    let Some((client_time_wait, both)) = after.entered(counted.made()) else { return };
    (counted.client_time_wait, counted.both) = (client_time_wait, both);
    match closed_first(&counted) {
        Ok(First { by_client, by_server, both }) => {
            (closing.by_client, closing.by_server, closing.both) = (by_client, by_server, both);
        }
        Err(Disagreement { at_most, found }) => {
            let what = "connections closed by the client first".to_owned();
            notes.warn(&Warning::WitnessDisagrees { what, ours: at_most, witness: found });
        }
    }
}

/// The forecast of ports was made of what was asked for; a server may have closed otherwise, or late.
fn revise_forecast(notes: &mut Notes, ports: &mut PortSettings, ours: &ClosedSockets) {
    let Some(closing) = &notes.arm.closing else { return };
    let keeps = closing.by_client + closing.both.unwrap_or(0);
    let found = ClientCloses::found(keeps, closing.closed()).unwrap_or(ports.client_closes);
    // Those that were closed after the load say nothing of a load.
    let all = (keeps + closing.open_at_end) as f64;
    let half_closed = (ours.half_closed[0] > 0 && keeps > 0).then(|| HalfClosed {
        share: (ours.half_closed[0] as f64 / all).min(1.0),
        mean_s: ours.half_closed_ns as f64 / 1e9 / all,
    });
    if (found, half_closed) != (ports.client_closes, ports.half_closed) {
        (ports.client_closes, ports.half_closed) = (found, half_closed);
        notes.arm.ports = forecast(ports);
    }
}

/// How much a counter grew.
fn grew(span: Span<'_>, name: &str) -> u64 {
    let counter = |snapshot: &tcptoll_lab::messages::Snapshot| snapshot.counters.get(name).copied();
    let (before, after) = (counter(span.before).unwrap_or(0), counter(span.after).unwrap_or(0));
    u64::try_from(after.saturating_sub(before)).unwrap_or(0)
}

/// Whether the hosts had no other connections meanwhile.
fn alone(client: Span<'_>, server: Span<'_>, made: u64) -> bool {
    let opens = |span| [grew(span, "TcpActiveOpens"), grew(span, "TcpPassiveOpens")];
    opens(client) == [made, 0] && opens(server) == [0, made]
}

/// Sockets that went into TIME-WAIT in a host's network namespace, by the kernel's own count.
///
/// `TcpExtTW` counts them as they begin, also those that begin as FIN-WAIT-2 without a process;
/// `TcpExtTWKilled` those of them that a short `net.ipv4.tcp_fin_timeout` set going
/// (`__inet_twsk_schedule()` in `net/ipv4/inet_timewait_sock.c`, seen on Linux 6.18).
fn began(host: Span<'_>) -> u64 {
    grew(host, "TcpExtTW") + grew(host, "TcpExtTWKilled")
}
