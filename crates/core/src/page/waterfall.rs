//! What was loaded, when, and over which connection: of our own load, or of a real browser's; and the
//! chain of requests that decided when the page was whole ([`critical`]).
//!
//! The chain goes from the request that ended last back to the document: a request that waited for a
//! connection waited for the one whose end made room, any other for the response that named it. TCP
//! handshakes on this chain cost the page their time. Handshakes beside it overlap with other requests
//! and cost nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::resource::{Kind, Priority, Protocol};

/// One load of a page.
///
/// Every time counts from the start of the navigation: when the document was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waterfall {
    /// Requests in the order in which they became known; the first is the document. A redirect is a
    /// request of its own.
    pub requests: Vec<Request>,
    /// Connections in the order in which they were begun.
    pub connections: Vec<Connection>,
    /// First byte of the document's response. Absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// End of the last response that blocks rendering. Absent: one of them failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocking_us: Option<u64>,
    /// End of the last response, failed ones too. Absent: the load was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub everything_us: Option<u64>,
    /// A browser's `load` event. Absent: our own load has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_event_us: Option<u64>,
    /// Named by the page and not asked for, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// One request and its response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// Its URL, at most 2,048 bytes, visible ASCII.
    pub url: String,
    /// What it is to the page.
    pub kind: Kind,
    /// How urgent.
    pub priority: Priority,
    /// Whether rendering waits for it.
    pub blocking: bool,
    /// The request whose response named it, by number. Absent: the document, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<u32>,
    /// The connection that carried it, by number. Absent: it was never sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<u32>,
    /// Status of its response. Absent: none came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Class of its failure, as in `docs/causes.md`. Absent: it succeeded. Of a complete response `status`: the
    /// server failed or refused for now, or the document is no page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Content as received, compressed, bytes.
    pub body_bytes: u64,
    /// When it became known.
    pub known_us: u64,
    /// Its phases.
    pub phases: Phases,
}

/// Where the time of a request went. Phases follow each other without a gap, in this order, from
/// `known_us`. A phase that did not happen is 0; the connection's own phases are with the request for which
/// it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Phases {
    /// Waited for a free connection.
    pub blocked_us: u64,
    /// Name resolution.
    pub dns_us: u64,
    /// TCP handshake.
    pub connect_us: u64,
    /// TLS handshake.
    pub tls_us: u64,
    /// Handing the request over to the kernel.
    pub send_us: u64,
    /// From there to the first byte of the response.
    pub wait_us: u64,
    /// From there to its last.
    pub receive_us: u64,
}

/// One connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Scheme, host and port: `http://page.test:8080`.
    pub origin: String,
    /// HTTP version spoken on it.
    pub protocol: Protocol,
    /// When it was begun (after its name was resolved).
    pub begun_us: u64,
    /// When the TCP handshake ended. Absent: it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_us: Option<u64>,
    /// When TLS was ready. Absent: none was spoken, or it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secured_us: Option<u64>,
    /// When it was closed, by either end. Absent: open at the end of the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_us: Option<u64>,
    /// Requests that it carried.
    pub requests: u32,
}

/// What a page names and was not asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// Why: `other-origin`, `too-many`, `cycle`, `too-deep`, `malformed`, `scheme`, `unused`.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// The first few of their URLs, visible ASCII, cut short.
    pub examples: Vec<String>,
}

/// Whether the server failed (5xx) or refuses for now (429).
pub(super) fn is_refusal(status: u16) -> bool {
    status >= 500 || status == 429
}

/// Fails requests whose complete response is no success: a refusal. The document's must be 2xx; a redirect
/// that was not followed is none. Other responses belong to the page as it is: a browser, too, goes on
/// without a picture that is not found.
pub(super) fn fail_statuses(requests: &mut [Request], document: Option<usize>) {
    for (number, request) in requests.iter_mut().enumerate().filter(|(_, one)| one.error.is_none())
    {
        let refused = |status: u16| {
            let no_page = document == Some(number) && !(200..300).contains(&status);
            no_page || is_refusal(status)
        };
        if request.status.is_some_and(refused) {
            request.error = Some("status".to_owned());
        }
    }
}

impl Waterfall {
    /// The class of the first failure. None: the page is whole.
    pub fn failure(&self) -> Option<&str> {
        let failed = self.requests.iter().find_map(|one| one.error.as_deref());
        failed.or_else(|| self.everything_us.is_none().then_some("unsent"))
    }
}

impl Phases {
    /// From when the request became known to its end.
    pub fn total_us(&self) -> u64 {
        let Self { blocked_us, dns_us, connect_us, tls_us, send_us, wait_us, receive_us } = *self;
        blocked_us + dns_us + connect_us + tls_us + send_us + wait_us + receive_us
    }
}

impl Request {
    /// When its response had ended, or it had failed.
    pub fn ended_us(&self) -> u64 {
        self.known_us + self.phases.total_us()
    }
}

/// An end and what it released are seen this far apart at most, µs: one turn of the client.
const APART_US: u64 = 500;

/// The chain and its handshakes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Critical {
    /// Requests by number, the document first.
    pub chain: Vec<u32>,
    /// TCP handshakes of these.
    pub handshakes: u32,
    /// Their time, µs.
    pub handshake_us: u64,
}

/// Finds the chain. None: no request ended.
pub fn critical(waterfall: &Waterfall) -> Option<Critical> {
    let requests = &waterfall.requests;
    let mut at = (0..requests.len()).max_by_key(|&number| requests[number].ended_us())?;
    let mut critical = Critical::default();
    loop {
        let request = &requests[at];
        critical.chain.push(at as u32);
        if request.phases.connect_us > 0 {
            critical.handshakes += 1;
            critical.handshake_us += request.phases.connect_us;
        }
        let before = waited_for(requests, at).or(request.initiator.map(|number| number as usize));
        // Each step goes back in time, so the chain ends. A record may hold anything.
        let earlier = |before: &usize| {
            requests.get(*before).is_some_and(|other| order(other, *before) < order(request, at))
        };
        match before.filter(earlier) {
            Some(before) => at = before,
            None => break,
        }
    }
    critical.chain.reverse();
    Some(critical)
}

/// When a request had its connection; of two at the same time the first that became known.
fn order(request: &Request, number: usize) -> (u64, usize) {
    (request.known_us.saturating_add(request.phases.blocked_us), number)
}

/// The request whose end gave this one a connection. None: it did not wait.
fn waited_for(requests: &[Request], number: usize) -> Option<usize> {
    let request = &requests[number];
    if request.phases.blocked_us <= APART_US {
        return None;
    }
    let (given, _) = order(request, number);
    let ended = |other: &usize| requests[*other].ended_us();
    (0..requests.len())
        .filter(|&other| order(&requests[other], other) < (given, number))
        .filter(|other| ended(other) > request.known_us && ended(other) <= given + APART_US)
        .max_by_key(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_fail_and_documents_that_are_no_page_are_no_success() {
        let answered = |statuses: &[u16], document| {
            let request = |&status| Request { status: Some(status), ..Request::default() };
            let mut requests: Vec<Request> = statuses.iter().map(request).collect();
            fail_statuses(&mut requests, document);
            requests.iter().map(|one| one.error.is_none()).collect::<Vec<bool>>()
        };
        assert_eq!(answered(&[200, 404, 503, 429, 301], Some(0)), [true, true, false, false, true]);
        assert_eq!(answered(&[301, 404], Some(1)), [true, false]);
        // A redirect to elsewhere.
        assert_eq!(answered(&[302], Some(0)), [false]);
        assert_eq!(answered(&[302, 200], None), [true, true]);
    }

    fn request(known_us: u64, initiator: Option<u32>, phases: Phases) -> Request {
        Request { initiator, known_us, phases, ..Request::default() }
    }

    #[test]
    fn handshakes_beside_the_chain_are_not_counted() {
        let opened = Phases { connect_us: 15_000, wait_us: 15_000, ..Phases::default() };
        let reused = Phases { wait_us: 15_000, ..Phases::default() };
        let queued = Phases { blocked_us: 30_000, wait_us: 15_000, ..Phases::default() };
        let waterfall = Waterfall {
            requests: vec![
                request(0, None, opened),
                request(30_000, Some(0), reused),
                request(30_000, Some(0), opened),
                // Waits for the one before it.
                request(30_000, Some(0), queued),
            ],
            ..Waterfall::default()
        };
        let found = critical(&waterfall).unwrap();
        assert_eq!(found.chain, [0, 2, 3]);
        assert_eq!((found.handshakes, found.handshake_us), (2, 30_000));
        assert_eq!(critical(&Waterfall::default()), None);
    }

    #[test]
    fn the_chain_of_requests_much_shorter_than_a_turn_still_begins_at_the_document() {
        // One after the other on one connection, 70 µs each.
        let phases = |blocked_us| Phases { blocked_us, wait_us: 70, ..Phases::default() };
        let document = Phases { connect_us: 100, wait_us: 900, ..Phases::default() };
        let mut requests = vec![request(0, None, document)];
        requests.extend((0..100).map(|number| request(1_000, Some(0), phases(number * 70))));
        let found = critical(&Waterfall { requests, ..Waterfall::default() }).unwrap();
        assert_eq!((found.chain[0], found.handshakes), (0, 1));
        assert!(found.chain.len() > 12, "{found:?}");
    }
}
