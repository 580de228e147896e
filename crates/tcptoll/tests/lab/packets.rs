//! Is what the program says of the wire what was on the wire?

use std::fs::File;
use std::process::Command;

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::Block;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;

use crate::support::{Folder, connect, counter, lacks, no_lab, only, run, tcptoll};

#[test]
fn a_tap_on_a_direct_link_sees_every_syn_the_kernel_counted() {
    if no_lab() {
        return;
    }
    let summary = connect(&["--tap", "--count", "300"]);
    let arm = only(&summary);
    let wire = arm.wire.as_ref().unwrap();
    let counters = &arm.client.counters;
    let sent = counter(counters, "TcpActiveOpens") + counter(counters, "TcpExtTCPSynRetrans");
    assert_eq!(arm.timeline.as_ref().unwrap().source, "measured");
    // A tap without a CPU misses packets, and says how many.
    let seen = wire.client_to_server.syn;
    assert!(seen <= sent && seen + wire.tap_drops >= sent, "{seen} of {sent}: {wire:?}");
    let warned = summary.warnings.iter().any(|warning| warning.id == "tap-drops");
    assert_eq!(warned, wire.tap_drops > 0, "{:?}", summary.warnings);
}

#[test]
fn a_tap_on_a_direct_link_calls_nothing_a_retransmission_that_the_kernels_did_not_send_again() {
    if no_lab() {
        return;
    }
    let summary = connect(&["--tap", "--count", "300"]);
    let arm = only(&summary);
    let wire = arm.wire.as_ref().unwrap();
    let server = &arm.server.as_ref().unwrap().counters;
    let seen = [&wire.client_to_server, &wire.server_to_client].map(|way| way.retransmission);
    let sent = [&arm.client.counters, server].map(|counters| counter(counters, "TcpRetransSegs"));
    // A tap without a CPU misses packets, and calls none a retransmission for that. The server's counters are
    // read after the link's: its kernel may have sent again meanwhile.
    let fewer = seen[0] <= sent[0] && seen[1] <= sent[1];
    let client = seen[0] == sent[0] || wire.tap_drops > 0;
    assert!(client && fewer, "{seen:?} of {sent:?}: {wire:?}");
    // Nobody set SO_KEEPALIVE.
    let probes = wire.client_to_server.keepalive_probe + wire.server_to_client.keepalive_probe;
    assert_eq!(probes, 0);
}

/// Whether an IPv4 packet is a SYN without ACK.
fn is_syn(ip: &[u8]) -> bool {
    let header = usize::from(ip[0] & 15) * 4;
    ip[0] >> 4 == 4 && ip[9] == 6 && ip[header + 13] & 0x12 == 0x02
}

/// Bytes before the IP header.
fn link_header(kind: DataLink) -> usize {
    match kind {
        DataLink::ETHERNET => 14,
        DataLink::RAW | DataLink::IPV4 => 0,
        other => panic!("{other:?} is no link type of a lab"),
    }
}

/// SYNs at each interface of a capture, and its interfaces with the digits of their stamps.
fn read_capture(path: &str) -> ([u64; 2], Vec<(String, u8)>) {
    let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
    let mut syns = [0, 0];
    let mut interfaces = Vec::new();
    let mut stamps = Vec::new();
    let mut headers = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(interface) => {
                let mut name = String::new();
                let mut digits = 6;
                for option in &interface.options {
                    match option {
                        InterfaceDescriptionOption::IfName(text) => name = text.to_string(),
                        InterfaceDescriptionOption::IfTsResol(value) => digits = *value,
                        _ => {}
                    }
                }
                interfaces.push((name, digits));
                headers.push(link_header(interface.linktype));
            }
            Block::EnhancedPacket(packet) => {
                let end = packet.interface_id as usize;
                syns[end] += u64::from(is_syn(&packet.data[headers[end]..]));
                stamps.push(packet.timestamp);
            }
            _ => {}
        }
    }
    // Nanoseconds since 1970, this century.
    assert!(stamps.iter().all(|stamp| stamp.as_secs() > 1_600_000_000), "{:?}", stamps.first());
    (syns, interfaces)
}

#[test]
fn a_capture_of_an_emulated_link_has_both_ends_and_every_syn() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let path = folder.path("run.pcapng");
    let summary = connect(&["--link", "rtt=10ms", "--count", "40", "--pcap", &path]);
    let wire = only(&summary).wire.as_ref().unwrap();
    let (syns, interfaces) = read_capture(&path);
    assert_eq!(interfaces, [("client".to_owned(), 9), ("server".to_owned(), 9)]);
    assert_eq!(syns, [wire.client_to_server.syn; 2]);
}

#[test]
fn a_capture_of_a_direct_link_has_every_syn() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let path = folder.path("run.pcapng");
    let summary = connect(&["--count", "40", "--pcap", &path]);
    let wire = only(&summary).wire.as_ref().unwrap();
    assert_eq!(read_capture(&path).0[0], wire.client_to_server.syn);
}

#[test]
fn tcpdump_reads_the_capture_and_counts_the_same_syns() {
    if lacks(&["tcpdump"]) {
        return;
    }
    let folder = Folder::new();
    let path = folder.path("run.pcapng");
    let summary = connect(&["--link", "rtt=10ms", "--count", "40", "--pcap", &path]);
    let wire = only(&summary).wire.as_ref().unwrap();
    let filter = "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn";
    let ran = run(Command::new("tcpdump").args(["-nn", "-r", &path, filter]));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    // Each is seen at both ends.
    assert_eq!(ran.stdout.lines().count() as u64, 2 * wire.client_to_server.syn);
}

#[test]
fn the_lab_command_writes_a_capture_too() {
    if lacks(&["ping"]) {
        return;
    }
    let folder = Folder::new();
    let path = folder.path("ping.pcapng");
    let line = "ping -c 2 -i 0.2 $TCPTOLL_SERVER >/dev/null";
    let ran = run(&mut tcptoll(&[
        "lab",
        "--quiet",
        "--link",
        "rtt=2ms",
        "--link-tolerance",
        crate::support::TOLERANCE,
        "--pcap",
        &path,
        "--",
        "sh",
        "-c",
        line,
    ]));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let mut reader = PcapNgReader::new(File::open(&path).unwrap()).unwrap();
    let mut packets = 0;
    while let Some(block) = reader.next_block() {
        packets += u64::from(matches!(block.unwrap(), Block::EnhancedPacket(_)));
    }
    // Two requests and two replies, each at both ends.
    assert_eq!(packets, 8);
}
