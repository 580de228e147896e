//! Both ends in two threads, over loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use serde_json::Value;

use super::*;
use crate::messages::{Coalesce, Receiving, Reply, Request, Sending};

const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

fn sending(message_bytes: u32) -> Sending {
    Sending { message_bytes, coalesce_bytes: 4_096, ..Sending::default() }
}

fn receiving(message_bytes: u32) -> Receiving {
    Receiving { message_bytes, ..Receiving::default() }
}

/// A flow of 50 ms, after 10 ms, that neither sends nor receives.
fn flow() -> Flow {
    Flow {
        warmup_ns: 10_000_000,
        duration_ns: Some(50_000_000),
        tail_ns: 10_000_000,
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
    assert_eq!(client.at_ends.unwrap().bytes_sent, client.sent.bytes);
    assert!(server.received.window_ns >= 50_000_000, "{}", server.received.window_ns);
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
            assert_eq!(client.at_ends.unwrap().bytes_sent, bytes, "{name}");
            assert_eq!(server.received.window_bytes, bytes, "{name}");
        }
    }
}
