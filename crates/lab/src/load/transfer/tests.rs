//! Both ends in two threads, over loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use serde_json::Value;

use super::*;
use crate::messages::{Coalesce, Done, Receiving, Reply, Request, Sending};

const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

fn sending(message_bytes: u32) -> Sending {
    Sending { message_bytes, coalesce_bytes: 4_096, ..Sending::default() }
}

fn receiving(message_bytes: u32) -> Receiving {
    Receiving { message_bytes, ..Receiving::default() }
}

/// A flow of 50 ms, after 10 ms, that neither sends nor receives. The tail is long, so that a busy
/// machine does not cut the receiver's window.
fn flow() -> Flow {
    Flow {
        warmup_ns: 10_000_000,
        duration_ns: Some(50_000_000),
        tail_ns: 200_000_000,
        drain_ns: 10_000_000_000,
        ..Flow::default()
    }
}

fn transfer(target: SocketAddr, connections: u32, flow: Flow) -> Transfer {
    let connect_timeout_ns = 10_000_000_000;
    Transfer { target, connections, bind: Vec::new(), connect_timeout_ns, flow }
}

/// A server in a thread of its own: where it listens, its parent's end, its report.
fn served(flow: Flow) -> (SocketAddr, Channel, JoinHandle<TransferReport>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (mut parent, mut channel) = (Channel::new(ours), Channel::new(theirs));
    let order = TransferServer { at: ANY.into(), flow };
    let server = thread::spawn(move || serve(&order, &mut channel).unwrap());
    let at = match parent.receive(None).unwrap() {
        Reply::<Value, SocketAddr>::Started(at) => at,
        other => panic!("{other:?}"),
    };
    (at, parent, server)
}

fn ran(order: &Transfer) -> TransferReport {
    let (_parent, theirs) = UnixStream::pair().unwrap();
    run(order, &mut Channel::new(theirs)).unwrap()
}

/// The reports of the end that connects and of the one that listens.
fn carried(client: Flow, server: Flow, connections: u32) -> (TransferReport, TransferReport) {
    let (at, _parent, serving) = served(server);
    let report = ran(&transfer(at, connections, client));
    (report, serving.join().unwrap())
}

/// A client that sends so, to a server that receives.
fn up(sending: Sending, connections: u32, flow: Flow) -> (TransferReport, TransferReport) {
    let receive = Some(receiving(sending.message_bytes));
    let client = Flow { send: Some(sending), ..flow.clone() };
    carried(client, Flow { receive, ..flow }, connections)
}

/// Payload that the kernel sent once: on a busy machine it may have retransmitted some.
fn sent_once(report: &TransferReport) -> u64 {
    let ends = report.at_ends.unwrap();
    ends.bytes_sent - ends.bytes_retransmitted
}

#[track_caller]
fn all_is_well(report: &TransferReport, connections: u64) {
    assert!(report.errors.is_empty(), "{report:?}");
    assert_eq!((report.attempts, report.ok, report.partial), (connections, connections, false));
}

#[test]
fn what_is_sent_for_a_time_is_received_to_the_last_byte() {
    let (client, server) = up(sending(128 << 10), 1, flow());
    all_is_well(&client, 1);
    all_is_well(&server, 1);
    assert_eq!(client.sent.bytes, server.received.bytes);
    assert_eq!(client.sent.bytes, client.sent.messages * (128 << 10), "whole messages");
    assert_eq!(client.sent.messages, server.received.messages);
    assert_eq!(sent_once(&client), client.sent.bytes);
    // It ends when it was planned to, also where it began late.
    assert!(server.received.window_ns > 0, "{}", server.received.window_ns);
    assert!(server.received.window_bytes < server.received.bytes);
    assert!(client.sender.samples > 2 && client.sender.rtt_us.is_some(), "{:?}", client.sender);
    assert!(server.startup_ns.is_some() && server.series.contains_key("goodput_bytes_per_s"));
    assert!(client.sockets.send_buffer > 0 && !client.sockets.congestion.is_empty());
    assert!(client.window_cpu_us != (0, 0) && client.cpu_window_ns == client.sent.window_ns);
}

#[test]
fn exact_bytes_arrive_in_every_way_of_putting_messages_together() {
    use Coalesce::{Buffer, Cork, Gather, More, None};
    // Not a multiple of the message: the last one is cut.
    let bytes = 3_000_017;
    let limited = Flow { duration_ns: Option::None, ..flow() };
    for coalesce in [None, Cork, More, Gather, Buffer] {
        for message in [100, 1_448, 70_000] {
            let sending = Sending { coalesce, bytes: Some(bytes), ..sending(message) };
            let (client, server) = up(sending, 1, limited.clone());
            all_is_well(&client, 1);
            all_is_well(&server, 1);
            let name = format!("{coalesce:?} {message}");
            assert_eq!((client.sent.bytes, server.received.bytes), (bytes, bytes), "{name}");
            assert_eq!(client.sent.messages, bytes / u64::from(message), "{name}");
            assert_eq!(sent_once(&client), bytes, "{name}");
            assert_eq!(server.received.window_bytes, bytes, "{name}");
            assert_eq!(server.least_and_greatest, Some([bytes; 2]), "{name}");
        }
    }
}

#[test]
fn bytes_of_a_file_and_bytes_that_are_discarded_count_like_any_other() {
    let bytes = 9_000_001;
    let limited = Flow { duration_ns: None, ..flow() };
    let send = Some(Sending { from_file: true, bytes: Some(bytes), ..sending(131_072) });
    let receive = Some(Receiving { discard: true, ..receiving(131_072) });
    let server = Flow { receive, ..limited.clone() };
    let (client, server) = carried(Flow { send, ..limited }, server, 2);
    all_is_well(&client, 2);
    assert_eq!((client.sent.bytes, server.received.bytes), (2 * bytes, 2 * bytes));
    assert_eq!(client.sent.messages, 2 * (bytes / 131_072));
    assert_eq!(sent_once(&client), 2 * bytes);
}

#[test]
fn the_end_that_listens_can_send_and_the_window_is_the_receivers() {
    let client = Flow { receive: Some(receiving(16_384)), ..flow() };
    let server = Flow { send: Some(sending(16_384)), ..flow() };
    let (client, server) = carried(client, server, 1);
    all_is_well(&client, 1);
    all_is_well(&server, 1);
    assert_eq!(server.sent.bytes, client.received.bytes);
    assert_eq!((client.sent.bytes, server.received.bytes), (0, 0));
    assert!(client.received.window_ns > 0 && server.sent.window_ns > 0);
    assert!(client.window_cpu_us != (0, 0) && client.cpu_window_ns == client.received.window_ns);
    assert_eq!(sent_once(&server), server.sent.bytes);
    let share = client.least_and_greatest.unwrap();
    assert_eq!(share, [client.received.window_bytes; 2]);
}

#[test]
fn both_ends_send_and_receive_every_byte_over_the_same_connections() {
    let both = Flow { send: Some(sending(8_192)), receive: Some(receiving(8_192)), ..flow() };
    let (client, server) = carried(both.clone(), both, 3);
    all_is_well(&client, 3);
    all_is_well(&server, 3);
    assert!(client.sent.bytes > 0 && server.sent.bytes > 0);
    assert_eq!(client.sent.bytes, server.received.bytes);
    assert_eq!(server.sent.bytes, client.received.bytes);
    assert_eq!(sent_once(&client), client.sent.bytes);
    assert_eq!(sent_once(&server), server.sent.bytes);
}

#[test]
fn a_hundred_connections_all_carry_data_and_none_is_lost() {
    let (client, server) = up(sending(4_096), 100, flow());
    all_is_well(&client, 100);
    all_is_well(&server, 100);
    assert_eq!(client.sent.bytes, server.received.bytes);
    assert_eq!(sent_once(&client), client.sent.bytes);
    let [least, greatest] = server.least_and_greatest.unwrap();
    assert!(least > 0 && greatest >= least, "{least} {greatest}");
}

#[test]
fn tiny_transfers_over_many_connections_are_all_accepted_before_the_first_ends() {
    let limited = Flow { duration_ns: None, ..flow() };
    let tiny = Sending { bytes: Some(1), ..sending(1) };
    let (client, server) = up(tiny.clone(), 50, limited.clone());
    all_is_well(&client, 50);
    all_is_well(&server, 50);
    assert_eq!((client.sent.bytes, server.received.bytes), (50, 50));
    let down = Flow { receive: Some(receiving(1)), ..limited.clone() };
    let (client, server) = carried(down, Flow { send: Some(tiny), ..limited }, 50);
    all_is_well(&client, 50);
    all_is_well(&server, 50);
    assert_eq!((client.received.bytes, server.sent.bytes), (50, 50));
}

#[test]
fn a_rate_is_kept_over_all_connections_together() {
    // 1 MB/s for 10 + 200 + 200 ms in messages of 1,000 bytes: one each millisecond.
    let long = Flow { duration_ns: Some(200_000_000), ..flow() };
    let limited = Sending { rate_bytes_per_s: Some(1e6), ..sending(1_000) };
    let (client, server) = up(limited, 2, long);
    all_is_well(&client, 2);
    assert_eq!(client.sent.bytes, server.received.bytes);
    // 410 are due. On a busy machine the last turn may come late, and then the time is up.
    assert!(client.sent.messages >= 200, "{:?}", client.sent);
    let most = client.elapsed_ns / 1_000_000 + 2;
    assert!(client.sent.messages <= most, "{} of {most}", client.sent.messages);
    let rate = client.sent.window_bytes as f64 / client.sent.window_ns as f64 * 1e9;
    // A turn that comes late is made up for: what is late by then, or was, is on the schedule.
    assert!((0.5e6..1.5e6).contains(&rate), "{rate}");
    assert!(client.sender.application_share.is_some_and(|share| share > 0.5), "{client:?}");
}

#[test]
fn work_for_each_message_slows_the_end_that_does_it() {
    // 100 µs for each message: at most 500 in 50 ms.
    let working = Sending { work_ns: 100_000, ..sending(1_000) };
    let (client, _) = up(working, 1, flow());
    let most = client.sent.window_ns / 100_000 + 1;
    assert!((1..=most).contains(&client.sent.window_messages), "{:?}", client.sent);
    let receive = Some(Receiving { work_ns: 100_000, ..receiving(100_000) });
    let send = Some(sending(100_000));
    let server = Flow { receive, ..flow() };
    let (client, server) = carried(Flow { send, ..flow() }, server, 1);
    all_is_well(&client, 1);
    assert_eq!(client.sent.bytes, server.received.bytes);
    let most = server.received.window_ns / 100_000 + 3;
    assert!((1..=most).contains(&server.received.window_messages), "{:?}", server.received);
}

#[test]
fn buffers_are_set_before_the_handshake_and_reported_as_the_kernel_has_them() {
    let sockets = SocketSettings {
        send_buffer: Some(32_768),
        receive_buffer: Some(16_384),
        no_delay: true,
        quick_ack: true,
        congestion: Some("reno".to_owned()),
    };
    let (client, server) = up(sending(10_000), 1, Flow { sockets, ..flow() });
    all_is_well(&client, 1);
    for got in [&client.sockets, &server.sockets] {
        assert_eq!((got.send_buffer, got.receive_buffer), (65_536, 32_768));
        assert_eq!(got.congestion, "reno");
    }
    // The window that the sender sees is bound by the receiver's buffer.
    let window = client.sender.peer_window_bytes.unwrap();
    assert!(window <= 32_768.0, "{window}");
}

#[test]
fn a_congestion_control_that_the_kernel_has_not_got_is_refused() {
    let sockets = SocketSettings { congestion: Some("none-such".to_owned()), ..Default::default() };
    let flow = Flow { sockets, send: Some(sending(1)), ..flow() };
    let report = ran(&transfer(ANY.into(), 1, flow.clone()));
    assert_eq!((report.attempts, report.ok, report.errors["other"]), (1, 0, 1));
    let (_parent, theirs) = UnixStream::pair().unwrap();
    let order = TransferServer { at: ANY.into(), flow };
    let refused = serve(&order, &mut Channel::new(theirs)).unwrap_err();
    assert!(refused.to_string().contains("setsockopt"), "{refused}");
}

/// A server that hands its first connection over to `with`.
fn peer(with: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(ANY).unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || with(listener.accept().unwrap().0));
    at
}

fn sends(message_bytes: u32) -> Flow {
    Flow { send: Some(sending(message_bytes)), ..flow() }
}

#[test]
fn a_peer_that_does_not_read_to_the_end_in_time_is_a_timeout() {
    let (keep, kept) = std::sync::mpsc::channel();
    let at = peer(move |stream| keep.send(stream).unwrap());
    let order = transfer(at, 1, Flow { drain_ns: 20_000_000, ..sends(1_000) });
    let report = ran(&order);
    assert_eq!((report.attempts, report.ok, report.errors["timeout"]), (1, 0, 1), "{report:?}");
    assert!(report.elapsed_ns >= 90_000_000, "{}", report.elapsed_ns);
    // The connection was reset, not closed in order: reading gives what has come, then an error.
    let mut rest = Vec::new();
    let error = kept.recv().unwrap().read_to_end(&mut rest).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_peer_that_closes_with_data_unread_resets_the_connection() {
    let at = peer(|mut stream| {
        let _ = stream.read(&mut [0; 10]);
    });
    let report = ran(&transfer(at, 1, sends(100_000)));
    assert_eq!((report.attempts, report.ok, report.errors["reset"]), (1, 0, 1), "{report:?}");
    assert!(report.first_errors["reset"].contains("os error"), "{report:?}");
}

#[test]
fn a_peer_that_ends_early_in_order_is_not_taken_for_success() {
    let at = peer(|mut stream| {
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    let report = ran(&transfer(at, 1, sends(1_000)));
    assert_eq!((report.ok, report.errors["truncated"]), (0, 1), "{report:?}");
}

#[test]
fn data_from_a_peer_that_should_only_receive_is_an_error() {
    let at = peer(|mut stream| {
        stream.write_all(b"?").unwrap();
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    let report = ran(&transfer(at, 1, sends(1_000)));
    assert_eq!((report.ok, report.errors["other"]), (0, 1), "{report:?}");
}

#[test]
fn a_refused_connection_is_counted_and_the_others_carry_on() {
    let closed = TcpListener::bind(ANY).unwrap().local_addr().unwrap();
    let report = ran(&transfer(closed, 3, sends(1_000)));
    assert_eq!((report.attempts, report.ok), (3, 0));
    assert_eq!(report.errors["connect-refused"], 3, "{report:?}");
    assert_eq!((report.sent.bytes, report.at_ends), (0, None));
}

#[test]
fn a_stop_in_the_middle_ends_both_ends_with_what_they_have() {
    let long = Flow { duration_ns: Some(600_000_000_000), ..flow() };
    let (at, _server_parent, serving) =
        served(Flow { receive: Some(receiving(1_000)), ..long.clone() });
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (mut parent, mut channel) = (Channel::new(ours), Channel::new(theirs));
    let order = transfer(at, 2, Flow { send: Some(sending(1_000)), ..long });
    let running = thread::spawn(move || run(&order, &mut channel).unwrap());
    // Progress shows that data flows.
    loop {
        match parent.receive(None).unwrap() {
            Reply::<Value>::Progress(Done { done: 1.., .. }) => break,
            Reply::<Value>::Progress(Done { done: 0, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    parent.send(&Request::<()>::Stop).unwrap();
    let client = running.join().unwrap();
    assert!(client.partial);
    assert_eq!((client.attempts, client.ok, client.errors["interrupted"]), (2, 0, 2));
    assert!(client.sent.bytes > 0 && client.sent.window_bytes > 0, "{:?}", client.sent);
    // Both connections were reset, so the server ends by itself.
    let server = serving.join().unwrap();
    assert_eq!((server.attempts, server.ok, server.errors["reset"]), (2, 0, 2), "{server:?}");
    assert!(server.received.bytes > 0);
}

#[test]
fn a_stop_leaves_a_connection_that_has_sent_all_its_time_to_end_in_order() {
    let send = Some(Sending { bytes: Some(10_000), ..sending(1_000) });
    let limited = Flow { duration_ns: None, send, ..flow() };
    let (at, mut parent, serving) = served(limited);
    let mut stream = TcpStream::connect(at).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 10_000);
    parent.send(&Request::<()>::Stop).unwrap();
    // The stop has come as soon as nobody listens any more.
    while TcpStream::connect(at).is_ok() {}
    drop(stream);
    let report = serving.join().unwrap();
    assert_eq!((report.ok, report.partial), (1, false), "{report:?}");
    // Those that knocked meanwhile were accepted, and interrupted or reset.
    let errors: u64 = report.errors.values().sum();
    assert_eq!(report.attempts, report.ok + errors, "{report:?}");
}

#[test]
fn a_server_to_which_nobody_came_is_stopped_and_is_not_partial() {
    let (_, mut parent, serving) = served(Flow { receive: Some(receiving(1)), ..flow() });
    parent.send(&Request::<()>::Stop).unwrap();
    let report = serving.join().unwrap();
    assert_eq!((report.attempts, report.ok, report.partial), (0, 0, false));
}

#[test]
fn a_report_fits_one_message_of_the_channel() {
    let both = Flow {
        send: Some(sending(8_192)),
        receive: Some(receiving(8_192)),
        duration_ns: Some(450_000_000),
        ..flow()
    };
    let (client, _) = carried(both.clone(), both, 1);
    let longest = client.series.values().map(|series| series.points.len()).max().unwrap();
    assert!((50..=100).contains(&longest), "{longest}");
    let json = serde_json::to_vec(&client).unwrap();
    assert!(json.len() < crate::channel::MESSAGE_MAX / 2, "{}", json.len());
}
