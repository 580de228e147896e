use Direction::{ClientToServer as C, ServerToClient as S};
use proptest::prelude::*;

use super::*;
use crate::tcp::packet::Flags;

const SYN: Flags = Flags::SYN;
const ACK: Flags = Flags::ACK;
const SYN_ACK: Flags = Flags::SYN.with(ACK);
const FIN: Flags = Flags::FIN.with(ACK);

/// Direction, flags, sequence number, acknowledgment, payload.
type Sent = (Direction, Flags, u32, u32, u32);

fn packet((direction, flags, seq, ack, payload): Sent, client: u32) -> Packet {
    let client = IpAddr::from((0x0a00_0000 + client).to_be_bytes());
    let server = IpAddr::from([192, 168, 0, 1]);
    let (src, dst) = if direction == C { (client, server) } else { (server, client) };
    let (src_port, dst_port) = if direction == C { (4000, 80) } else { (80, 4000) };
    let segment = Segment { src_port, dst_port, seq, ack, flags, payload, window: 512 };
    let ip_bytes = payload.saturating_add(40);
    Packet { src, dst, ip_bytes, segment: Some(segment), header_bytes: 40 }
}

/// A second after what was seen last.
fn later_ns(tracker: &WireTracker) -> u64 {
    let Wire { client_to_server: c, server_to_client: s, .. } = tracker.wire();
    (c.packets + s.packets + 1) * 1_000_000_000
}

fn send(tracker: &mut WireTracker, client: u32, sent: &[Sent]) {
    for &one in sent {
        let at_ns = later_ns(tracker);
        tracker.observe(one.0, &packet(one, client), 0, at_ns);
    }
}

fn observed(sent: &[Sent]) -> Wire {
    let mut tracker = WireTracker::new();
    send(&mut tracker, 1, sent);
    tracker.wire()
}

/// The client's initial sequence number is `c`, the server's `s`; 10 bytes asked, 20 answered.
fn life(c: u32, s: u32) -> Vec<Sent> {
    let (c, s) = (|n| c.wrapping_add(n), |n| s.wrapping_add(n));
    vec![
        (C, SYN, c(0), 0, 0),
        (S, SYN_ACK, s(0), c(1), 0),
        (C, ACK, c(1), s(1), 0),
        (C, ACK, c(1), s(1), 10),
        (S, ACK, s(1), c(11), 20),
        (C, ACK, c(11), s(21), 0),
        (C, ACK, c(10), s(21), 0), // keep-alive probe
        (S, ACK, s(21), c(11), 0), // and its answer
        (C, FIN, c(11), s(21), 0),
        (S, FIN, s(21), c(12), 0),
        (C, ACK, c(12), s(22), 0),
    ]
}

#[test]
fn a_whole_life_is_counted_by_kind_and_wraps_with_the_sequence_numbers() {
    for start in [0, 1000, u32::MAX - 30, u32::MAX - 12, u32::MAX - 5, u32::MAX, 1 << 31] {
        let payload = |bytes| WireCounts {
            payload_bytes: Some(bytes),
            retransmitted_bytes: Some(0),
            data: 1,
            fin: 1,
            ..Default::default()
        };
        let c = WireCounts { syn: 1, keepalive_probe: 1, pure_ack: 3, ..payload(10) };
        let client_to_server = WireCounts { packets: 7, bytes: 290, ..c };
        let s = WireCounts { syn_ack: 1, keepalive_ack: 1, ..payload(20) };
        let server_to_client = WireCounts { packets: 4, bytes: 180, ..s };
        let expected = Wire { client_to_server, server_to_client, ..Default::default() };
        assert_eq!(observed(&life(start, start.wrapping_mul(3))), expected, "{start}");
    }
}

#[test]
fn everything_sent_twice_is_a_retransmission_if_it_takes_up_sequence_numbers() {
    let mut twice: Vec<Sent> = life(u32::MAX - 5, 7).into_iter().flat_map(|p| [p, p]).collect();
    twice.extend([(C, FIN, 5, 28, 0), (S, FIN, 28, 6, 0)]); // after both sides are closed
    let wire = observed(&twice);
    assert_eq!((wire.client_to_server.retransmission, wire.client_to_server.syn), (4, 2));
    assert_eq!((wire.server_to_client.retransmission, wire.server_to_client.fin), (4, 3));
}

#[test]
fn the_last_byte_again_is_a_retransmission_until_it_is_acknowledged() {
    let (byte, ack) = ((C, ACK, 100, 1, 1), (S, ACK, 1, 101, 0));
    let wire = observed(&[byte, byte, ack, byte]).client_to_server;
    assert_eq!((wire.retransmission, wire.keepalive_probe, wire.data), (1, 1, 3));
}

#[test]
fn a_zero_window_probe_looks_like_a_keepalive_probe() {
    let sent = [(C, ACK, 100, 1, 50), (S, ACK, 1, 150, 0), (C, ACK, 149, 1, 0)];
    assert_eq!(observed(&sent).client_to_server.keepalive_probe, 1);
}

#[test]
fn a_new_initial_sequence_number_or_a_reset_begins_a_new_connection() {
    let mut sent = life(9000, 9000);
    sent.extend(life(100, 100));
    sent.extend([(S, Flags::RST, 122, 0, 0), (C, SYN, 100, 0, 0)]);
    let wire = observed(&sent);
    assert_eq!((wire.client_to_server.syn, wire.server_to_client.rst), (3, 1));
    assert_eq!(wire.client_to_server.retransmission + wire.server_to_client.retransmission, 0);
}

#[test]
fn a_super_packet_counts_as_the_packets_it_becomes() {
    let mut tracker = WireTracker::new();
    tracker.observe(C, &packet((C, ACK, 0, 1, 3001), 1), 1000, 0);
    tracker.observe(C, &packet((C, ACK, 1500, 1, 3001), 1), 1000, 0);
    tracker.observe(C, &packet((C, ACK, 9000, 1, 1), 1), 0, 0); // a gap is no repeat
    let counts = tracker.wire().client_to_server;
    assert_eq!((counts.packets, counts.data, counts.retransmission), (9, 9, 2));
    assert_eq!(counts.bytes, 2 * (3001 + 4 * 40) + 41);
}

#[test]
fn payload_is_counted_once_however_it_is_cut_when_it_is_repeated() {
    for start in [0, u32::MAX - 2_500] {
        let mut tracker = WireTracker::new();
        let mut data = |seq: u32, payload, gso| {
            let packet = packet((C, ACK, start.wrapping_add(seq), 1, payload), 1);
            tracker.observe(C, &packet, gso, 0);
        };
        data(0, 3_001, 1_000); // a super-packet
        data(1_500, 3_001, 1_000); // its second half again, and 1,500 bytes that are new
        data(4_400, 50, 0); // within what was sent
        data(4_500, 1, 0); // the last byte again
        let counts = tracker.wire().client_to_server;
        assert_eq!(counts.payload_bytes, Some(4_501), "{start}");
        assert_eq!(counts.retransmitted_bytes, Some(1_501 + 50 + 1), "{start}");
    }
}

#[test]
fn data_with_a_syn_counts_once_and_a_probe_of_one_byte_is_a_repeat() {
    let (syn, ack) = ((C, SYN, 9, 0, 100), (S, SYN_ACK, 5, 110, 0));
    let probe = (C, ACK, 109, 6, 1);
    let wire = observed(&[syn, syn, ack, probe]);
    let counts = wire.client_to_server;
    assert_eq!((counts.payload_bytes, counts.retransmitted_bytes), (Some(100), Some(101)));
    assert_eq!(counts.keepalive_probe, 1);
    assert_eq!(wire.server_to_client.payload_bytes, Some(0));
    assert_eq!(observed(&[]).client_to_server.payload_bytes, None, "nothing was seen");
}

#[test]
fn a_full_table_forgets_what_ended_and_counts_what_it_cannot_follow() {
    let mut tracker = WireTracker::new();
    let syn_twice = [(C, SYN, 1, 0, 0), (C, SYN, 1, 0, 0)];
    send(&mut tracker, 0, &life(1, 1));
    (1..FLOWS_MAX as u32).for_each(|client| send(&mut tracker, client, &syn_twice[..1]));
    send(&mut tracker, 1 << 20, &syn_twice); // takes the place of the one that ended
    assert_eq!((tracker.wire().client_to_server.retransmission, tracker.untracked), (1, 0));
    send(&mut tracker, 1 << 21, &syn_twice);
    assert_eq!((tracker.wire().client_to_server.retransmission, tracker.untracked), (1, 2));
    assert_eq!(tracker.wire().client_to_server.syn as usize, FLOWS_MAX + 4);
}

#[test]
fn an_ack_that_is_seen_after_the_fin_of_its_sender_is_no_probe() {
    let mut tracker = WireTracker::new();
    send(&mut tracker, 1, &opened());
    // The server's ACK of the client's FIN and its own FIN leave on two CPUs, in this order:
    let late = [
        (C, FIN, 1011, 5021, 0),
        (S, FIN, 5021, 1012, 0),
        (C, ACK, 1012, 5022, 0),
        (S, ACK, 5021, 1012, 0), // and are seen in that one
    ];
    let at_ns = later_ns(&tracker);
    for (one, at_us) in late.into_iter().zip([0, 20, 60, 19]) {
        tracker.observe(one.0, &packet(one, 1), 0, at_ns + at_us * 1_000);
    }
    let wire = tracker.wire();
    assert_eq!((wire.server_to_client.keepalive_probe, wire.server_to_client.pure_ack), (0, 1));
}

#[test]
fn a_captured_connection_has_three_probes_three_answers_and_no_retransmission() {
    let mut tracker = WireTracker::new();
    for line in include_str!("../../../tests/captured/connection-keepalive-6.18.txt").lines() {
        let (from, rest) = line.split_once(' ').unwrap();
        let (len, hex) = rest.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let packet = Packet::parse(&bytes, len.parse().unwrap()).unwrap();
        let at_ns = later_ns(&tracker);
        tracker.observe(if from == "c" { C } else { S }, &packet, 0, at_ns);
    }
    let Wire { client_to_server: c, server_to_client: s, .. } = tracker.wire();
    assert_eq!((c.packets, c.syn, c.data, c.fin, c.pure_ack), (9, 1, 1, 1, 3));
    assert_eq!((c.keepalive_probe, s.keepalive_ack), (3, 3));
    assert_eq!((s.packets, s.syn_ack, s.data, s.fin, s.pure_ack), (7, 1, 1, 1, 1));
    assert_eq!((c.retransmission, s.retransmission, c.bytes, s.bytes), (0, 0, 479, 1372));
}

/// A connection to port 80 opens and asks; then it idles.
fn opened() -> Vec<Sent> {
    life(1000, 5000).into_iter().take(6).collect()
}

fn quiet(sent: &[Sent]) -> Quiet {
    let mut tracker = WireTracker::watching([443, 80]);
    send(&mut tracker, 1, &opened());
    let before = tracker.wire();
    send(&mut tracker, 1, sent);
    *tracker.wire().since(&before).quiet_on(80).unwrap()
}

fn traffic(packets: u64, bytes: u64) -> Traffic {
    Traffic { packets, bytes }
}

#[test]
fn what_goes_over_a_quiet_connection_is_told_apart() {
    let seen = quiet(&[
        (S, ACK, 5020, 1011, 0),     // probe of the server
        (C, ACK, 1011, 5021, 0),     // and its answer
        (S, ACK, 5021, 1011, 4),     // Null
        (S, ACK, 5021, 1011, 4),     // the same again
        (C, ACK, 1011, 5025, 0),     // acknowledged
        (C, ACK, 1010, 5025, 1),     // probe with a byte of garbage: no heartbeat
        (S, ACK, 5025, 1011, 0),     // and its answer
        (C, FIN, 1011, 5025, 0),     // in none of the kinds
        (S, Flags::RST, 5025, 0, 0), // nor this
    ]);
    let server_to_client = QuietCounts {
        probes: traffic(1, 40),
        probe_answers: traffic(1, 40),
        heartbeats: traffic(2, 88),
        heartbeat_retransmissions: 1,
        all: traffic(5, 208),
        ..QuietCounts::default()
    };
    let client_to_server = QuietCounts {
        probes: traffic(1, 41),
        probe_answers: traffic(1, 40),
        acks: traffic(1, 40),
        all: traffic(4, 161),
        ..QuietCounts::default()
    };
    assert_eq!(seen, Quiet { port: 80, client_to_server, server_to_client });
    assert_eq!(seen.both().all, traffic(9, 369));
}

#[test]
fn each_port_is_counted_apart_and_one_without_packets_has_zeros() {
    let mut tracker = WireTracker::watching([443, 80]);
    send(&mut tracker, 1, &life(1, 1));
    tracker.watch([22, 80]);
    let wire = tracker.wire();
    assert_eq!(wire.quiet.iter().map(|quiet| quiet.port).collect::<Vec<_>>(), [22, 80, 443]);
    assert_eq!(wire.quiet_on(80).unwrap().both().all.packets, 11);
    assert_eq!(wire.quiet_on(443).unwrap().both(), QuietCounts::default());
    assert_eq!(wire.quiet_on(4000), None); // the client's port
    assert_eq!(observed(&life(1, 1)).quiet, []);
}

#[test]
fn probes_that_cross_are_no_answers_to_each_other() {
    let probes = [(C, ACK, 1010, 5021, 0), (S, ACK, 5020, 1011, 0)];
    let answers = [(S, ACK, 5021, 1011, 0), (C, ACK, 1011, 5021, 0)];
    let Quiet { client_to_server: c, server_to_client: s, .. } = quiet(&[probes, answers].concat());
    assert_eq!((c.probes.packets, c.probe_answers.packets, c.acks.packets), (1, 1, 0));
    assert_eq!((s.probes.packets, s.probe_answers.packets, s.acks.packets), (1, 1, 0));
}

#[test]
fn probes_of_a_dead_peer_are_all_counted() {
    let seen = quiet(&[(S, ACK, 5020, 1011, 0); 9]);
    assert_eq!(seen.server_to_client.probes.packets, 9);
    assert_eq!(seen.server_to_client.all.packets, 9);
}

#[test]
fn only_the_first_probe_of_a_connection_whose_beginning_was_not_seen_is_missed() {
    let mut tracker = WireTracker::watching([80]);
    let probe_and_answer = [(S, ACK, 5020, 1011, 0), (C, ACK, 1011, 5021, 0)];
    (0..3).for_each(|_| send(&mut tracker, 1, &probe_and_answer));
    let quiet = *tracker.wire().quiet_on(80).unwrap();
    let (c, s) = (quiet.client_to_server, quiet.server_to_client);
    assert_eq!((s.probes.packets, s.acks.packets), (2, 1));
    assert_eq!((c.probe_answers.packets, c.acks.packets), (2, 1));
}

#[test]
fn counts_of_a_port_can_be_read_back_inside_a_line_of_the_record() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "line")]
    enum Line {
        Trial(Wire),
    }
    let mut tracker = WireTracker::watching([80]);
    send(&mut tracker, 1, &life(1, 1));
    let line = Line::Trial(tracker.wire());
    let text = serde_json::to_string(&line).unwrap();
    assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
    // Older records have none.
    let older = serde_json::to_string(&Line::Trial(observed(&life(1, 1)))).unwrap();
    assert!(!older.contains("quiet"));
    assert!(serde_json::from_str::<Line>(&older).is_ok());
}

#[test]
fn what_came_since_is_the_difference_and_never_below_zero() {
    let mut tracker = WireTracker::watching([80]);
    send(&mut tracker, 1, &opened());
    let earlier = tracker.wire();
    send(&mut tracker, 1, &life(1000, 5000)[6..]);
    tracker.watch([443]);
    let later = Wire { queue_drops: 3, ..tracker.wire() };
    let since = later.since(&earlier);
    assert_eq!((since.client_to_server.packets, since.client_to_server.syn), (3, 0));
    assert_eq!((since.queue_drops, since.quiet.len()), (3, 2));
    assert_eq!(earlier.plus(&since), later);
    let none = earlier.since(&later);
    let nothing =
        WireCounts { payload_bytes: Some(0), retransmitted_bytes: Some(0), ..Default::default() };
    let quiet = none.quiet.clone();
    assert_eq!(
        none,
        Wire { client_to_server: nothing, server_to_client: nothing, quiet, ..Wire::default() }
    );
    assert_eq!(none.quiet, [Quiet { port: 80, ..Quiet::default() }]);
}

proptest! {
    #[test]
    fn every_packet_is_counted_once_and_no_kind_exceeds_the_packets(
        sent in prop::collection::vec(
            (any::<bool>(), 0_u8..32, 0_u32..60, 0_u32..60, 0_u32..4000, 0_u32..1500), 0..80),
    ) {
        let mut tracker = WireTracker::watching([80]);
        let mut parts = 0;
        for (client, flags, seq, ack, payload, gso) in sent {
            let direction = if client { C } else { S };
            let one = (direction, Flags(flags), seq.wrapping_sub(30), ack.wrapping_sub(30), payload);
            parts += if gso == 0 { 1 } else { u64::from(payload.div_ceil(gso)).max(1) };
            tracker.observe(direction, &packet(one, 1), gso, 0);
        }
        let Wire { client_to_server: c, server_to_client: s, quiet, .. } = tracker.wire();
        prop_assert_eq!(c.packets + s.packets, parts);
        for (w, q) in [(c, quiet[0].client_to_server), (s, quiet[0].server_to_client)] {
            let kinds = [q.probes, q.probe_answers, q.heartbeats, q.acks];
            prop_assert!(kinds.into_iter().reduce(Traffic::plus).unwrap().packets <= w.packets);
            prop_assert_eq!(q.all, Traffic { packets: w.packets, bytes: w.bytes });
            prop_assert_eq!(q.probes.packets, w.keepalive_probe);
            prop_assert_eq!(q.probe_answers.packets, w.keepalive_ack);
            prop_assert_eq!(q.acks.packets, w.pure_ack);
        }
        for w in [c, s] {
            let kinds = [w.syn, w.syn_ack, w.retransmission, w.keepalive_probe,
                w.keepalive_ack, w.pure_ack, w.data, w.fin, w.rst];
            prop_assert!(kinds.into_iter().all(|kind| kind <= w.packets), "{:?}", w);
        }
    }
}
