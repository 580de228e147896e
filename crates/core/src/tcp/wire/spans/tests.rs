use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use Direction::{ClientToServer as C, ServerToClient as S};
use proptest::prelude::*;

use super::*;
use crate::tcp::packet::Flags;

const SYN: Flags = Flags::SYN;
const ACK: Flags = Flags::ACK;
const SYN_ACK: Flags = Flags::SYN.with(ACK);
const FIN: Flags = Flags::FIN.with(ACK);
const RST: Flags = Flags::RST.with(ACK);

/// Of a connection from this port; sequence numbers count from `base`.
fn packet(direction: Direction, port: u16, flags: Flags, seq: u32, payload: u32) -> Packet {
    let (client, server) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let (src, dst) = if direction == C { (client, server) } else { (server, client) };
    let (src_port, dst_port) = if direction == C { (port, 80) } else { (80, port) };
    let segment = Segment { src_port, dst_port, seq, ack: 0, flags, payload, window: 512 };
    Packet { src, dst, ip_bytes: payload + 40, segment: Some(segment), header_bytes: 40 }
}

/// A tracker that sees a link of 10 ms; times are in ms.
struct Link(SpanTracker);

impl Link {
    fn new() -> Self {
        Self(SpanTracker::new())
    }

    fn client(&mut self, ms: u64, port: u16, flags: Flags, seq: u32, payload: u32) {
        self.0.sent(C, &packet(C, port, flags, seq, payload), ms * 1_000_000);
    }

    fn lost(&mut self, ms: u64, port: u16, flags: Flags, seq: u32, payload: u32) {
        self.0.sent(S, &packet(S, port, flags, seq, payload), ms * 1_000_000);
    }

    fn server(&mut self, ms: u64, port: u16, flags: Flags, seq: u32, payload: u32) {
        self.record(ms, port, (flags, seq, payload), &[]);
    }

    fn record(
        &mut self,
        ms: u64,
        port: u16,
        (flags, seq, length): (Flags, u32, u32),
        payload: &[u8],
    ) {
        let packet = packet(S, port, flags, seq, length);
        self.0.sent(S, &packet, ms * 1_000_000);
        self.0.arrived(&packet, payload, (ms + 10) * 1_000_000);
    }

    fn open(&mut self, ms: u64, port: u16) {
        self.client(ms, port, SYN, 99, 0);
        self.server(ms + 10, port, SYN_ACK, 999, 0);
        self.client(ms + 20, port, ACK, 100, 0);
    }

    fn take(&mut self) -> Span {
        self.0.take(1_000_000_000_000)
    }
}

#[test]
fn nothing_seen_is_no_span() {
    let mut link = Link::new();
    assert_eq!(link.take(), Span::default());
    // The end of an older load alone.
    link.server(1, 5, FIN, 1, 0);
    link.client(1, 5, ACK, 1, 0);
    link.client(1, 5, RST, 1, 0);
    assert_eq!(link.take(), Span::default());
}

#[test]
fn a_span_goes_from_the_first_syn_to_the_last_new_byte_at_the_client() {
    let mut link = Link::new();
    link.open(100, 1);
    link.client(120, 1, ACK, 100, 50);
    link.open(125, 2);
    link.server(130, 1, ACK, 1_000, 1_000);
    link.client(145, 2, ACK, 100, 50);
    link.server(155, 2, ACK, 1_000, 500);
    // Repeated data, ACKs and FINs lengthen nothing.
    link.server(400, 2, ACK, 1_000, 500);
    link.server(500, 2, FIN, 1_500, 0);
    link.client(520, 2, FIN, 150, 0);
    let span = link.take();
    assert_eq!(span.first_syn_ns, Some(100_000_000));
    assert_eq!(span.last_byte_ns, Some(165_000_000));
    assert_eq!(span.span_us, Some(65_000.0));
    assert_eq!((span.connections, span.active, span.resets, span.refused), (2, 2, 0, 0));
    assert_eq!((span.client_bytes, span.server_bytes), (100, 1_500));
    assert_eq!((span.client_retransmissions, span.server_retransmissions), (0, 1));
    assert_eq!(span.head_of_line, HeadOfLine::default());
    let row = span.rows[1];
    let times = (row.syn_us, row.request_us, row.first_byte_us, row.last_byte_us);
    assert_eq!(times, (Some(25_000), Some(45_000), Some(65_000), Some(65_000)));
}

#[test]
fn a_second_load_on_open_connections_begins_with_its_first_request() {
    let mut link = Link::new();
    link.open(100, 1);
    link.client(120, 1, ACK, 100, 50);
    link.server(130, 1, ACK, 1_000, 1_000);
    link.take();
    link.client(1_000, 1, ACK, 150, 50);
    link.server(1_010, 1, ACK, 2_000, 10);
    let span = link.take();
    assert_eq!((span.first_syn_ns, span.connections, span.active), (None, 0, 1));
    assert_eq!(span.span_us, Some(20_000.0));
    assert_eq!((span.client_bytes, span.server_bytes), (50, 10));
    assert_eq!(span.rows[0].syn_us, None);
    assert_eq!(link.take(), Span::default());
}

#[test]
fn what_a_server_sends_after_the_clients_fin_is_no_part_of_the_page() {
    let mut link = Link::new();
    link.open(100, 1);
    link.client(120, 1, ACK, 100, 50);
    link.server(130, 1, ACK, 1_000, 1_000);
    link.client(1_100, 1, FIN, 150, 0);
    // GOAWAY of HTTP/2 and the alert, in one record each.
    link.server(1_110, 1, ACK, 2_000, 39);
    link.server(1_111, 1, FIN, 2_039, 24);
    let span = link.take();
    assert_eq!(span.last_byte_ns, Some(140_000_000));
}

#[test]
fn refused_connections_and_resets_are_told_apart_and_a_syn_again_is_no_connection() {
    let mut link = Link::new();
    link.client(0, 1, SYN, 99, 0);
    link.client(1_000, 1, SYN, 99, 0);
    link.server(1_010, 1, RST, 0, 0);
    link.open(2_000, 2);
    link.client(2_030, 2, RST, 100, 0);
    let span = link.take();
    assert_eq!((span.connections, span.refused, span.resets), (2, 1, 1));
    assert_eq!(span.client_retransmissions, 1);
    assert_eq!((span.last_byte_ns, span.span_us), (None, None));
}

#[test]
fn a_closing_alert_seconds_after_the_page_lengthens_nothing() {
    const TLS13: [u8; 5] = [23, 3, 3, 0, 19];
    const TLS12: [u8; 5] = [21, 3, 3, 0, 26];
    for (header, length, in_fin) in [(TLS13, 24, false), (TLS12, 31, false), (TLS13, 24, true)] {
        let mut link = Link::new();
        link.open(0, 1);
        link.client(20, 1, ACK, 100, 50);
        link.server(30, 1, ACK, 1_000, 1_000);
        let flags = if in_fin { FIN } else { ACK };
        link.record(5_030, 1, (flags, 2_000, length), &header);
        if !in_fin {
            link.server(5_030, 1, FIN, 2_000 + length, 0);
        }
        let span = link.take();
        assert_eq!(span.span_us, Some(40_000.0), "{header:?} {in_fin}");
        assert_eq!(span.server_bytes, 1_000);
    }
}

#[test]
fn a_short_record_that_more_data_follows_is_no_alert_and_plain_http_has_none() {
    let mut link = Link::new();
    link.open(0, 1);
    link.record(30, 1, (ACK, 1_000, 24), &[23, 3, 3, 0, 19]);
    link.record(50, 1, (ACK, 1_024, 100), &[23, 3, 3, 0, 95]);
    link.server(60, 1, FIN, 1_124, 0);
    assert_eq!(link.take().span_us, Some(60_000.0));
    let mut link = Link::new();
    link.open(0, 1);
    link.record(30, 1, (ACK, 1_000, 24), b"HTTP/");
    link.record(50, 1, (FIN, 1_024, 5), b"0\r\n\r\n");
    let span = link.take();
    assert_eq!((span.span_us, span.server_bytes), (Some(60_000.0), 29));
}

#[test]
fn a_lost_segment_holds_back_what_follows_it_until_its_retransmission() {
    let mut link = Link::new();
    link.open(0, 1);
    link.lost(30, 1, ACK, 1_000, 100);
    link.server(31, 1, ACK, 1_100, 100);
    link.server(32, 1, ACK, 1_200, 100);
    link.lost(33, 1, ACK, 1_300, 100);
    link.server(34, 1, ACK, 1_400, 50);
    // The other connection goes on.
    link.open(30, 2);
    link.server(60, 2, ACK, 1_000, 100);
    link.server(51, 1, ACK, 1_000, 100);
    link.server(61, 1, ACK, 1_300, 100);
    let span = link.take();
    let expected = HeadOfLine { gaps: 2, held_bytes: 250, held_ns: 30_000_000 };
    assert_eq!(span.head_of_line, expected);
    assert_eq!(span.rows[0].head_of_line, expected);
    assert_eq!(span.rows[1].head_of_line, HeadOfLine::default());
    assert_eq!(span.server_retransmissions, 2);
    assert_eq!(span.server_bytes, 550);
}

#[test]
fn connections_beyond_the_rows_are_counted_and_beyond_the_table_said() {
    let mut link = Link::new();
    for port in 0..FLOWS_MAX as u16 + 5 {
        link.client(u64::from(port), port, SYN, 99, 0);
    }
    let span = link.take();
    assert_eq!(span.rows.len(), ROWS_MAX);
    assert_eq!((span.connections, span.untracked), (FLOWS_MAX as u64, 5));
    let text = serde_json::to_string(&span).unwrap();
    assert_eq!(serde_json::from_str::<Span>(&text).unwrap(), span);
    assert!(text.len() < 60_000, "{}", text.len());
}

#[test]
fn the_longest_span_fits_a_message() {
    let big = Some(9_999_999_999);
    let row = SpanRow {
        client_port: 65_535,
        syn_us: big,
        request_us: big,
        first_byte_us: big,
        last_byte_us: big,
        client_bytes: 99_999_999_999,
        server_bytes: 99_999_999_999,
        server_retransmissions: 999_999,
        head_of_line: HeadOfLine {
            gaps: 999_999,
            held_bytes: 99_999_999_999,
            held_ns: 9_999_999_999_999,
        },
    };
    let span = Span { rows: vec![row; ROWS_MAX], ..Span::default() };
    assert!(serde_json::to_string(&span).unwrap().len() < 60_000);
}

/// A segment of a connection from port 1 or 2: where its data begins, how long it is, whether it gets lost.
type Piece = (u16, u32, u32, bool);

/// The slow way: sets of single bytes.
#[derive(Default)]
struct Recount {
    sent: BTreeMap<u16, BTreeSet<u32>>,
    arrived: BTreeMap<u16, BTreeSet<u32>>,
    retransmissions: u64,
    held_bytes: u64,
    held_ns: u64,
    last_byte_ns: Option<u64>,
}

impl Recount {
    /// Whether the client waits: it has something beyond the first byte that it has not.
    fn waits(&self, port: u16) -> bool {
        let Some(bytes) = self.arrived.get(&port) else { return false };
        let reached = (0..1_000).find(|at| !bytes.contains(at)).unwrap_or(0);
        bytes.range(reached..).next().is_some()
    }

    fn take(&mut self, (port, at, length, lost): Piece, ns: u64, since: &mut BTreeMap<u16, u64>) {
        let sent = self.sent.entry(port).or_default();
        let repeats = sent.last().is_some_and(|&last| at <= last);
        self.retransmissions += u64::from(repeats);
        sent.extend(at..at + length);
        if lost {
            return;
        }
        let before = self.arrived.entry(port).or_default().clone();
        let reached = (0..1_000).find(|at| !before.contains(at)).unwrap_or(0);
        let new: Vec<u32> = (at..at + length).filter(|at| !before.contains(at)).collect();
        self.arrived.entry(port).or_default().extend(&new);
        if !new.is_empty() {
            self.last_byte_ns = Some(ns);
            if at > reached {
                self.held_bytes += new.len() as u64;
            }
        }
        if self.waits(port) {
            since.entry(port).or_insert(ns);
        } else if let Some(since) = since.remove(&port) {
            self.held_ns += ns - since;
        }
    }
}

proptest! {
    #[test]
    fn the_tracker_counts_as_a_slow_recount_does(
        pieces in prop::collection::vec((1_u16..3, 0_u32..60, 1_u32..12, any::<bool>()), 0..80),
        base in any::<u32>(),
    ) {
        let mut tracker = SpanTracker::new();
        let mut recount = Recount::default();
        let mut since = BTreeMap::new();
        for port in [1, 2] {
            tracker.sent(C, &packet(C, port, SYN, 7, 0), 0);
            let syn_ack = packet(S, port, SYN_ACK, base.wrapping_sub(1), 0);
            tracker.sent(S, &syn_ack, 1);
            tracker.arrived(&syn_ack, &[], 1);
        }
        let mut ns = 1;
        for piece in pieces {
            ns += 1_000;
            let (port, at, length, lost) = piece;
            let packet = packet(S, port, ACK, base.wrapping_add(at), length);
            tracker.sent(S, &packet, ns);
            if !lost {
                tracker.arrived(&packet, &[], ns);
            }
            recount.take(piece, ns, &mut since);
        }
        recount.held_ns += since.values().map(|since| ns - since).sum::<u64>();
        let span = tracker.take(ns);
        let arrived = recount.arrived.values().map(|bytes| bytes.len() as u64).sum::<u64>();
        prop_assert_eq!(span.server_bytes, arrived);
        prop_assert_eq!(span.server_retransmissions, recount.retransmissions);
        prop_assert_eq!(span.head_of_line.held_bytes, recount.held_bytes);
        prop_assert_eq!(span.head_of_line.held_ns, recount.held_ns);
        prop_assert_eq!(span.last_byte_ns, recount.last_byte_ns);
        prop_assert_eq!(span.head_of_line.gaps == 0, span.head_of_line.held_bytes == 0);
        prop_assert_eq!(span.connections, 2);
        let rows: u64 = span.rows.iter().map(|row| row.server_bytes).sum();
        prop_assert_eq!(rows, arrived);
    }
}
