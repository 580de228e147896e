//! The bytes of a SYN, from the IP header on, with every checksum computed.
//!
//! The kernel makes SYNs of sockets by itself. These are of a peer that has no socket: it opens
//! connections that it never completes. Nothing here sends anything.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::{Flags, IPV6_HEADER_LEN, TCP, TCP_HEADER_LEN};

/// IPv4 header without options.
const IPV4_HEADER_LEN: usize = 20;
/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: usize = 16;
/// Hops that a packet may take, as Linux sets it.
const HOPS: u8 = 64;
/// Window of a SYN, never scaled.
const WINDOW: u16 = 64_240;
/// Options of an ordinary client without timestamps: SACK permitted, and a window scale of 7 behind a
/// filler. The largest segment comes before them.
const OPTIONS: [u8; 8] = [1, 1, 4, 2, 1, 3, 3, 7];
/// TCP header with all options.
const SYN_LEN: usize = TCP_HEADER_LEN + 4 + OPTIONS.len();

/// A SYN from one endpoint to another.
///
/// Shape:   an IP header without options or extensions, then a TCP header with the options MSS, SACK
///          permitted and window scale. The MSS is that of an MTU of 1500 bytes.
/// None:    the endpoints are of different families.
/// Source:  RFC 791, RFC 8200, RFC 9293 section 3.1, RFC 1071.
pub fn syn(from: SocketAddr, to: SocketAddr, seq: u32) -> Option<Vec<u8>> {
    match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => Some(over_ipv4(from, to, seq)),
        (SocketAddr::V6(from), SocketAddr::V6(to)) => Some(over_ipv6(from, to, seq)),
        _ => None,
    }
}

fn over_ipv4(from: SocketAddrV4, to: SocketAddrV4, seq: u32) -> Vec<u8> {
    let length = IPV4_HEADER_LEN + SYN_LEN;
    let mut packet = vec![0; IPV4_HEADER_LEN];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    // Must not be fragmented.
    packet[6] = 0x40;
    packet[8] = HOPS;
    packet[9] = TCP;
    packet[12..16].copy_from_slice(&from.ip().octets());
    packet[16..20].copy_from_slice(&to.ip().octets());
    let sum = checksum(0, &packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let (source, destination) = (from.ip().octets(), to.ip().octets());
    let mss = 1_500 - IPV4_HEADER_LEN - TCP_HEADER_LEN;
    let ports = (from.port(), to.port());
    packet.extend(header(ports, seq, mss as u16, &source, &destination));
    packet
}

fn over_ipv6(from: SocketAddrV6, to: SocketAddrV6, seq: u32) -> Vec<u8> {
    let mut packet = vec![0; IPV6_HEADER_LEN];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&(SYN_LEN as u16).to_be_bytes());
    packet[6] = TCP;
    packet[7] = HOPS;
    packet[8..24].copy_from_slice(&from.ip().octets());
    packet[24..40].copy_from_slice(&to.ip().octets());
    let (source, destination) = (from.ip().octets(), to.ip().octets());
    let mss = 1_500 - IPV6_HEADER_LEN - TCP_HEADER_LEN;
    let ports = (from.port(), to.port());
    packet.extend(header(ports, seq, mss as u16, &source, &destination));
    packet
}

/// The TCP header of a SYN; the addresses are part of its checksum.
fn header(ports: (u16, u16), seq: u32, mss: u16, source: &[u8], destination: &[u8]) -> Vec<u8> {
    let mut tcp = Vec::with_capacity(SYN_LEN);
    tcp.extend(ports.0.to_be_bytes());
    tcp.extend(ports.1.to_be_bytes());
    tcp.extend(seq.to_be_bytes());
    // Nothing is acknowledged.
    tcp.extend([0; 4]);
    tcp.push((SYN_LEN as u8 / 4) << 4);
    tcp.push(Flags::SYN.0);
    tcp.extend(WINDOW.to_be_bytes());
    // The checksum, and the urgent pointer.
    tcp.extend([0; 4]);
    tcp.extend([2, 4]);
    tcp.extend(mss.to_be_bytes());
    tcp.extend(OPTIONS);
    let pseudo = sum(source) + sum(destination) + u64::from(TCP) + SYN_LEN as u64;
    let sum = checksum(pseudo, &tcp);
    tcp[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    tcp
}

/// The words of 16 bits, added up. Every header here has an even length.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

/// The checksum of RFC 1071 over bytes whose checksum field is 0, on top of a sum.
fn checksum(on_top_of: u64, bytes: &[u8]) -> u16 {
    let mut sum = on_top_of + sum(bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Endpoints that a peer without sockets opens connections from: `number` of them, spread over the
/// addresses, ports from 1024 on.
///
/// Shape:   the first of each address come first, so that neighbours differ in their address.
/// Range:   at most 64,512 for each address; fewer are given if there are not enough addresses.
pub fn endpoints(addresses: &[IpAddr], number: usize) -> Vec<SocketAddr> {
    const FIRST_PORT: u16 = 1_024;
    (FIRST_PORT..=u16::MAX)
        .flat_map(|port| addresses.iter().map(move |&address| SocketAddr::new(address, port)))
        .take(number)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Packet;
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_syn_is_read_back_as_what_was_asked_for() {
        for (from, to, length) in [
            ("10.77.254.1:1024", "10.77.0.2:8080", 52_u32),
            ("[fd77::2:1]:65535", "[fd77::2]:80", 72),
        ] {
            let bytes = syn(at(from), at(to), 0xdead_beef).unwrap();
            assert_eq!(bytes.len() as u32, length);
            let packet = Packet::parse(&bytes, length).unwrap();
            let segment = packet.segment.unwrap();
            assert_eq!(SocketAddr::new(packet.src, segment.src_port), at(from));
            assert_eq!(SocketAddr::new(packet.dst, segment.dst_port), at(to));
            assert_eq!((segment.flags, segment.seq), (Flags::SYN, 0xdead_beef));
            assert_eq!((segment.payload, segment.window), (0, 64_240));
        }
        assert_eq!(syn(at("10.0.0.1:1"), at("[::1]:1"), 0), None, "no packet has two families");
    }

    #[test]
    fn a_checksum_over_what_it_protects_is_zero() {
        let v4 = syn(at("192.0.2.1:40000"), at("198.51.100.7:80"), 1).unwrap();
        assert_eq!(checksum(0, &v4[..IPV4_HEADER_LEN]), 0);
        let pseudo = sum(&v4[12..20]) + 6 + SYN_LEN as u64;
        assert_eq!(checksum(pseudo, &v4[IPV4_HEADER_LEN..]), 0);
        let v6 = syn(at("[2001:db8::1]:40000"), at("[2001:db8::2]:80"), 1).unwrap();
        let pseudo = sum(&v6[8..40]) + 6 + SYN_LEN as u64;
        assert_eq!(checksum(pseudo, &v6[IPV6_HEADER_LEN..]), 0);
        let mut damaged = v6;
        damaged[IPV6_HEADER_LEN] ^= 1;
        assert_ne!(checksum(pseudo, &damaged[IPV6_HEADER_LEN..]), 0);
    }

    #[test]
    fn the_checksum_of_a_known_header_is_the_known_one() {
        // The example of RFC 1071, section 3: the sum of these is ddf2.
        assert_eq!(checksum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn endpoints_are_distinct_and_spread_over_the_addresses() {
        let addresses: Vec<IpAddr> =
            (1..=64).map(|host| IpAddr::from([10, 77, 254, host])).collect();
        let all = endpoints(&addresses, 65_536);
        assert_eq!(all.len(), 65_536);
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 65_536);
        assert_eq!(all[0], at("10.77.254.1:1024"));
        assert_eq!((all[63], all[64]), (at("10.77.254.64:1024"), at("10.77.254.1:1025")));
        assert_eq!(endpoints(&addresses[..1], 70_000).len(), 64_512, "no address has more ports");
        assert!(endpoints(&[], 5).is_empty());
    }
}
