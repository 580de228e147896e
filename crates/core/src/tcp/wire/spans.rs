//! How long a load took on the wire: from the first SYN to the last byte from the server, and where
//! lost segments held later ones back.
//!
//! [`SpanTracker`] is told of each packet twice: when its sender gives it to the link (`sent`), and, from the
//! server, when it reaches the client (`arrived`). An observer at the client's device alone calls both at one
//! time; then a retransmission is one that the client has received before, or that fills a gap. The span is
//! of one load at a time (`TakeSpan`). A browser's own clock includes its work before and after; on the wire
//! our client and a browser are measured alike.
//!
//! What ends a span:
//!
//! - The last *new* payload byte that reached the client. FIN, ACK and repeated data lengthen nothing.
//! - A TLS server says `close_notify` before its FIN, perhaps seconds after the page. Such a record is told
//!   by its header: content type 21, or 19 encrypted bytes (TLS 1.3 hides the type; an alert is two bytes, its type
//!   and a tag of 16) in a segment of its own that is followed by FIN or RST and by no more data. A response
//!   whose last record has two bytes of content alone and ends the connection is mistaken for one; the
//!   span is then short by that record.
//! - HTTP/2's own last frames (GOAWAY) are data like any other, as they are encrypted. Take the span when the page
//!   is loaded, and not after the idle timeout.
//!
//! Head of line: while a segment is missing, the client's kernel keeps later segments of the same connection
//! back. Each hole at which it waits is a gap. The link keeps packets in order, so a gap is a loss. On a link
//! that reorders, it is not.

use std::collections::HashMap;

use super::received::{HeadOfLine, Received};
use serde::{Deserialize, Serialize};

use super::{Direction, FlowKey, is_before};
use crate::tcp::packet::{Packet, Segment};

/// Connections that have a row of their own in a [`Span`].
pub const ROWS_MAX: usize = 300;

/// Connections that are followed at once; some 3 MB.
const FLOWS_MAX: usize = 10_000;

/// Bytes of payload that tell a TLS alert.
const RECORD_HEADER: usize = 5;

/// What was seen since the tracker began, or since the last span was taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// First SYN, ns of the observer's clock. None: no connection was begun.
    pub first_syn_ns: Option<u64>,
    /// First SYN, or first new payload byte from the client where that was earlier: a page on connections
    /// that were open. None: neither was seen.
    pub begun_ns: Option<u64>,
    /// Last new payload byte from the server, as it reached the client. Bytes after the client's FIN are not
    /// counted here. None: there was none.
    pub last_byte_ns: Option<u64>,
    /// From `begun_ns` to `last_byte_ns`, µs. None: either is missing.
    pub span_us: Option<f64>,
    /// Connections begun: first SYNs.
    pub connections: u64,
    /// Connections refused: a SYN answered by RST.
    pub refused: u64,
    /// Connections reset later on, by either end.
    pub resets: u64,
    /// Connections that carried a packet, those open before too.
    pub active: u64,
    /// First transmissions of payload from the client, bytes.
    pub client_bytes: u64,
    /// New payload that reached the client, bytes.
    pub server_bytes: u64,
    /// Segments that the client retransmitted, SYN and FIN too.
    pub client_retransmissions: u64,
    /// Segments that the server retransmitted, SYN-ACK and FIN too.
    pub server_retransmissions: u64,
    /// Head-of-line blocking, all connections together.
    pub head_of_line: HeadOfLine,
    /// Each connection, in the order in which they were first seen; at most [`ROWS_MAX`].
    pub rows: Vec<SpanRow>,
    /// Packets of connections that were not followed because there were too many.
    pub untracked: u64,
}

/// Follows connections for spans. Packets cost O(1) each; one that fills a gap, O(number of gaps), at most 64.
#[derive(Debug, Default)]
pub struct SpanTracker {
    flows: HashMap<FlowKey, Flow>,
    /// Flows in the order in which they were first seen since the last take.
    order: Vec<FlowKey>,
    /// Sums that need no connection.
    totals: Span,
}

/// One connection.
#[derive(Debug, Default)]
struct Flow {
    client: Sent,
    server: Sent,
    received: Received,
    /// A server's segment was seen: it was not refused.
    answered: bool,
    /// FIN of the server reached the client, or RST of either was seen.
    ended: bool,
    reset: bool,
    /// The client closed its end: it has what it asked for.
    client_closed: bool,
    /// A record that may be a closing alert, and the last byte before it.
    alert: Option<Alert>,
    /// Since the last take.
    seen: Activity,
}

/// A record that is a closing alert if the connection ends after it.
#[derive(Clone, Copy, Debug)]
struct Alert {
    before_ns: Option<u64>,
    bytes: u64,
}

/// What a connection did since the last take.
#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    active: bool,
    syn_ns: Option<u64>,
    request_ns: Option<u64>,
    first_byte_ns: Option<u64>,
    last_byte_ns: Option<u64>,
    client_bytes: u64,
    server_bytes: u64,
    server_retransmissions: u64,
    head_of_line: HeadOfLine,
}

/// What one end has sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    isn: Option<u32>,
    /// One past the highest sequence number.
    next: Option<u32>,
}

impl Sent {
    /// New payload bytes of a segment, and whether it repeats something.
    #[inline]
    fn send(&mut self, segment: &Segment) -> (u32, bool) {
        if segment.flags.syn() && self.isn != Some(segment.seq) {
            *self = Self { isn: Some(segment.seq), next: None };
        }
        if segment.seq_len() == 0 {
            return (0, false);
        }
        let end = segment.seq.wrapping_add(segment.seq_len());
        let Some(next) = self.next else {
            self.next = Some(end);
            return (segment.payload, false);
        };
        let data = segment.seq.wrapping_add(u32::from(segment.flags.syn()));
        let old =
            if is_before(data, next) { next.wrapping_sub(data).min(segment.payload) } else { 0 };
        // A keep-alive probe of one byte or none, below what was sent: with one byte it looks like a
        // retransmission of that byte, and is one.
        let repeats = is_before(segment.seq, next);
        if is_before(next, end) {
            self.next = Some(end);
        }
        (segment.payload - old, repeats)
    }
}

impl SpanTracker {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of a packet that an end gave to the link at `at_ns`; of a super-packet, of all its parts
    /// as one segment.
    #[inline]
    pub fn sent(&mut self, direction: Direction, packet: &Packet, at_ns: u64) {
        let Some(segment) = packet.segment else { return };
        let Some((flow, totals)) = self.flow(direction, packet, &segment) else { return };
        let flags = segment.flags;
        if flags.rst() {
            let refused = !flow.answered && direction == Direction::ServerToClient;
            totals.refused += u64::from(refused && !flow.reset);
            totals.resets += u64::from(!refused && !flow.reset);
            flow.end(true);
            return;
        }
        match direction {
            Direction::ClientToServer => {
                let (new, repeats) = flow.client.send(&segment);
                totals.client_retransmissions += u64::from(repeats);
                totals.client_bytes += u64::from(new);
                flow.seen.client_bytes += u64::from(new);
                if flags.syn() && !repeats {
                    totals.connections += 1;
                    earliest(&mut totals.first_syn_ns, at_ns);
                    earliest(&mut totals.begun_ns, at_ns);
                    flow.seen.syn_ns = Some(at_ns);
                }
                flow.client_closed |= flags.fin();
                if new > 0 {
                    earliest(&mut totals.begun_ns, at_ns);
                    earliest(&mut flow.seen.request_ns, at_ns);
                }
            }
            Direction::ServerToClient => {
                flow.answered = true;
                let (_, repeats) = flow.server.send(&segment);
                totals.server_retransmissions += u64::from(repeats);
                flow.seen.server_retransmissions += u64::from(repeats);
            }
        }
    }

    /// Takes note of a packet from the server that reached the client at `at_ns`; `payload` is where its
    /// payload begins, as far as it is known: five bytes suffice.
    #[inline]
    pub fn arrived(&mut self, packet: &Packet, payload: &[u8], at_ns: u64) {
        let Some(segment) = packet.segment else { return };
        let Some((flow, _)) = self.flow(Direction::ServerToClient, packet, &segment) else {
            return;
        };
        if segment.flags.rst() {
            return;
        }
        let new = flow.received.take(&segment, at_ns, &mut flow.seen.head_of_line);
        if new > 0 {
            flow.alert = is_alert(payload, segment.payload, new)
                .then_some(Alert { before_ns: flow.seen.last_byte_ns, bytes: new });
            flow.seen.first_byte_ns.get_or_insert(at_ns);
            // What a server answers to the client's FIN (GOAWAY of HTTP/2, an alert) is no part of a page.
            if !flow.client_closed {
                flow.seen.last_byte_ns = Some(at_ns);
            }
            flow.seen.server_bytes += new;
        }
        if segment.flags.fin() {
            flow.end(false);
        }
    }

    /// What was seen since the last take; connections that are open are followed on.
    pub fn take(&mut self, at_ns: u64) -> Span {
        let Self { flows, order, totals } = self;
        let mut span = std::mem::take(totals);
        for key in order.drain(..) {
            let Some(flow) = flows.get_mut(&key) else { continue };
            flow.received.pause(at_ns, &mut flow.seen.head_of_line);
            let seen = std::mem::take(&mut flow.seen);
            if let Some(alert) = &mut flow.alert {
                alert.before_ns = None;
            }
            span.active += 1;
            span.server_bytes += seen.server_bytes;
            span.last_byte_ns = span.last_byte_ns.max(seen.last_byte_ns);
            span.head_of_line.gaps += seen.head_of_line.gaps;
            span.head_of_line.held_bytes += seen.head_of_line.held_bytes;
            span.head_of_line.held_ns += seen.head_of_line.held_ns;
            if span.rows.len() < ROWS_MAX {
                let begun_ns = span.begun_ns.unwrap_or(at_ns);
                span.rows.push(SpanRow::new(key.client.1, &seen, begun_ns));
            }
        }
        flows.retain(|_, flow| !flow.ended);
        span.span_us = span
            .begun_ns
            .zip(span.last_byte_ns)
            .and_then(|(begun, last)| last.checked_sub(begun))
            .map(|ns| ns as f64 / 1_000.0);
        span
    }

    /// The flow of a packet and the totals; None: there are too many.
    #[inline]
    fn flow(
        &mut self,
        direction: Direction,
        packet: &Packet,
        segment: &Segment,
    ) -> Option<(&mut Flow, &mut Span)> {
        let key = FlowKey::new(direction, packet, segment);
        let flags = segment.flags;
        let begins = direction == Direction::ClientToServer && flags.syn() && !flags.ack();
        let Self { flows, order, totals } = self;
        // FINs and ACKs of the former load may come after it was taken.
        let carries = flags.syn() || segment.payload > 0;
        let room = flows.len() < FLOWS_MAX;
        let flow = match flows.entry(key) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            // An ACK, a FIN or an RST of a connection that ended before is no connection.
            std::collections::hash_map::Entry::Vacant(_) if flags.rst() || !carries => return None,
            std::collections::hash_map::Entry::Vacant(_) if !room => {
                totals.untracked += 1;
                return None;
            }
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(Flow::default()),
        };
        // The same address and port again: another connection. What the old one did stays in its row.
        if begins && flow.client.isn.is_some_and(|isn| isn != segment.seq) {
            let seen = flow.seen;
            *flow = Flow { seen: Activity { syn_ns: None, ..seen }, ..Flow::default() };
        }
        if carries && !flow.seen.active {
            flow.seen.active = true;
            order.push(key);
        }
        Some((flow, totals))
    }
}

impl Flow {
    /// Takes back a closing alert: it is no part of the page.
    #[inline]
    fn end(&mut self, reset: bool) {
        self.reset |= reset;
        self.ended = true;
        if let Some(alert) = self.alert.take()
            && self.seen.server_bytes >= alert.bytes
        {
            self.seen.last_byte_ns = alert.before_ns;
            self.seen.server_bytes -= alert.bytes;
            if alert.before_ns.is_none() {
                self.seen.first_byte_ns = None;
            }
        }
    }
}

/// Whether a segment is an alert record of TLS and nothing else.
#[inline]
fn is_alert(payload: &[u8], length: u32, new: u64) -> bool {
    /// Alert.
    const ALERT: u8 = 21;
    /// Application data, which every record of TLS 1.3 calls itself once it is encrypted.
    const APPLICATION: u8 = 23;
    /// Level, description, type, tag.
    const ENCRYPTED_ALERT: u32 = 2 + 1 + 16;
    let Some(&[kind, 3, _, high, low]) = payload.first_chunk::<RECORD_HEADER>() else {
        return false;
    };
    let record = u32::from(u16::from_be_bytes([high, low]));
    let alone = length == record + RECORD_HEADER as u32 && new == u64::from(length);
    // TLS 1.2 with AES-CBC makes an alert of up to 64 bytes.
    let fits = match kind {
        ALERT => record <= 64,
        APPLICATION => record == ENCRYPTED_ALERT,
        _ => false,
    };
    alone && fits
}

/// Where the payload of a packet begins, at most five bytes of it, as far as they were captured.
#[inline]
pub fn payload_start<'a>(ip: &'a [u8], packet: &Packet) -> &'a [u8] {
    let payload = packet.segment.map_or(0, |segment| segment.payload) as usize;
    let from = (packet.header_bytes as usize).min(ip.len());
    let to = (from + payload.min(RECORD_HEADER)).min(ip.len());
    &ip[from..to]
}

#[inline]
fn earliest(known: &mut Option<u64>, at_ns: u64) {
    *known = Some(known.map_or(at_ns, |known| known.min(at_ns)));
}

/// One connection. Times count from `begun_ns` of the span, µs.
///
/// Shape: serialized as an array in the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RawRow", into = "RawRow")]
pub struct SpanRow {
    /// The client's port.
    pub client_port: u16,
    /// Its first SYN. None: the connection was open before.
    pub syn_us: Option<u64>,
    /// First payload byte from the client. None: there was none.
    pub request_us: Option<u64>,
    /// First new payload byte from the server. None: there was none.
    pub first_byte_us: Option<u64>,
    /// Last new payload byte from the server. None: there was none.
    pub last_byte_us: Option<u64>,
    /// First transmissions of payload from the client, bytes.
    pub client_bytes: u64,
    /// New payload that reached the client, bytes.
    pub server_bytes: u64,
    /// Segments that the server retransmitted.
    pub server_retransmissions: u64,
    /// Head-of-line blocking on this connection.
    pub head_of_line: HeadOfLine,
}

type Times = (Option<u64>, Option<u64>, Option<u64>, Option<u64>);
type RawRow = (u16, Times, (u64, u64, u64), (u64, u64, u64));

impl From<RawRow> for SpanRow {
    fn from((client_port, times, bytes, held): RawRow) -> Self {
        let (syn_us, request_us, first_byte_us, last_byte_us) = times;
        let (client_bytes, server_bytes, server_retransmissions) = bytes;
        let (gaps, held_bytes, held_ns) = held;
        let head_of_line = HeadOfLine { gaps, held_bytes, held_ns };
        Self {
            client_port,
            syn_us,
            request_us,
            first_byte_us,
            last_byte_us,
            client_bytes,
            server_bytes,
            server_retransmissions,
            head_of_line,
        }
    }
}

impl From<SpanRow> for RawRow {
    fn from(row: SpanRow) -> Self {
        let held = row.head_of_line;
        (
            row.client_port,
            (row.syn_us, row.request_us, row.first_byte_us, row.last_byte_us),
            (row.client_bytes, row.server_bytes, row.server_retransmissions),
            (held.gaps, held.held_bytes, held.held_ns),
        )
    }
}

impl SpanRow {
    fn new(client_port: u16, seen: &Activity, begun_ns: u64) -> Self {
        let us = |at: Option<u64>| at.map(|at| at.saturating_sub(begun_ns) / 1_000);
        Self {
            client_port,
            syn_us: us(seen.syn_ns),
            request_us: us(seen.request_ns),
            first_byte_us: us(seen.first_byte_ns),
            last_byte_us: us(seen.last_byte_ns),
            client_bytes: seen.client_bytes,
            server_bytes: seen.server_bytes,
            server_retransmissions: seen.server_retransmissions,
            head_of_line: seen.head_of_line,
        }
    }
}

#[cfg(test)]
mod tests;
