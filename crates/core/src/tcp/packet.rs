//! What does one captured IP packet say?
//!
//! Only the few fields that counting and stamping need, from the IP header on. Checksums are not
//! looked at: packets of a TUN or veth device carry partial ones. [`crate::tcp::wire`] counts packets
//! by kind, [`crate::tcp::handshake`] stamps them.
//!
//! The parsing is by hand and not by etherparse, because a capture is cut after the headers: a
//! length field then speaks of more bytes than there are, which is normal here and not an error.
//! Ten fields at fixed places are simpler than reading them back out of lax slices.
//!
//! [`syn`] goes the other way: it writes the bytes of a SYN, from the IP header on, with every checksum
//! computed. The kernel makes SYNs of sockets by itself. These are of a peer that has no socket: it opens
//! connections that it never completes. Nothing here sends anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;

/// The flags of a TCP header, as its 14th byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// The acknowledgment field is meant.
    pub const ACK: Self = Self(0x10);

    /// These flags and those of `other`.
    #[must_use]
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether FIN is set.
    #[inline]
    pub const fn fin(self) -> bool {
        self.has(Self::FIN)
    }

    /// Whether SYN is set.
    #[inline]
    pub const fn syn(self) -> bool {
        self.has(Self::SYN)
    }

    /// Whether RST is set.
    #[inline]
    pub const fn rst(self) -> bool {
        self.has(Self::RST)
    }

    /// Whether ACK is set.
    #[inline]
    pub const fn ack(self) -> bool {
        self.has(Self::ACK)
    }
}

/// An IP packet, or a GSO super-packet that stands for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Bytes from the IP header on, without link-layer padding; of a super-packet, all its bytes.
    pub ip_bytes: u32,
    /// The TCP header. None: not TCP, or a fragment that is not the first.
    pub segment: Option<Segment>,
    /// Bytes of the IP header with its options and extensions, and of the TCP header if there is one.
    pub header_bytes: u32,
}

/// The TCP header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number, as on the wire.
    pub seq: u32,
    /// Acknowledgment number; means nothing without the ACK flag.
    pub ack: u32,
    /// Flags.
    pub flags: Flags,
    /// Payload bytes by the IP length, not by the captured bytes: these may be cut.
    pub payload: u32,
    /// Window as on the wire, before scaling.
    pub window: u16,
}

impl Segment {
    /// Sequence numbers the segment takes up: its payload, and one each for SYN and FIN.
    #[inline]
    pub fn seq_len(&self) -> u32 {
        self.payload
            .wrapping_add(u32::from(self.flags.syn()))
            .wrapping_add(u32::from(self.flags.fin()))
    }
}

/// Where the IP header ends, and what follows.
struct IpHeader {
    src: IpAddr,
    dst: IpAddr,
    len: usize,
    whole_len: u32,
    /// Protocol of what follows; `None` in a fragment that is not the first.
    protocol: Option<u8>,
}

impl Packet {
    /// Parses a packet whose bytes may be cut after the headers.
    ///
    /// Shape:   `ip` begins with the IP header; `whole_len` is the length the packet had from
    ///          there on, before a capture cut it.
    /// None:    neither IPv4 nor IPv6, headers cut, or lengths that contradict each other.
    /// Cost:    no allocation; it is called for every packet of the link emulator.
    /// Source:  RFC 791, RFC 8200, RFC 9293 section 3.1. A length field of 0 stands for a
    ///          super-packet above 64 KiB (Linux BIG TCP): `whole_len` is taken instead.
    #[inline]
    pub fn parse(ip: &[u8], whole_len: u32) -> Option<Self> {
        let header = match ip.first()? >> 4 {
            4 => ipv4(ip, whole_len)?,
            6 => ipv6(ip, whole_len)?,
            _ => return None,
        };
        let after_ip = header.whole_len.checked_sub(u32::try_from(header.len).ok()?)?;
        let (segment, tcp_len) = if header.protocol == Some(TCP) {
            let (segment, len) = tcp(ip.get(header.len..)?, after_ip)?;
            (Some(segment), len)
        } else {
            (None, 0)
        };
        Some(Self {
            src: header.src,
            dst: header.dst,
            ip_bytes: header.whole_len,
            segment,
            header_bytes: u32::try_from(header.len).ok()? + tcp_len,
        })
    }
}

/// Which packets keep their order among each other: those of one connection or one pair of UDP ports.
///
/// Each packet of another protocol, such as an echo, is a flow of its own. 0: no header of IP, or a
/// fragment that is not the first.
#[inline]
pub fn flow(ip: &[u8]) -> u64 {
    let bits = || {
        let header = match ip.first()? >> 4 {
            4 => ipv4(ip, 0)?,
            6 => ipv6(ip, 0)?,
            _ => return None,
        };
        let ports = u64::from(be32(ip, header.len)?);
        let protocol = header.protocol?;
        // Of an echo: identifier and number.
        let more = if [TCP, UDP].contains(&protocol) { 0 } else { be32(ip, header.len + 4)? };
        Some(ports << 32 ^ u64::from(more) ^ u64::from(protocol))
    };
    bits().unwrap_or(0)
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The packet's length: what its header says, unless that is 0 or more than there was.
#[inline]
fn length_of(said: u32, whole_len: u32) -> u32 {
    if said == 0 { whole_len } else { said.min(whole_len) }
}

#[inline]
fn ipv4(ip: &[u8], whole_len: u32) -> Option<IpHeader> {
    let len = usize::from(ip.first()? & 0x0f) * 4;
    if len < 20 || ip.len() < len {
        return None;
    }
    let address = |at: usize| Some(IpAddr::from(Ipv4Addr::from(be32(ip, at)?)));
    let fragment_offset = be16(ip, 6)? & 0x1fff;
    Some(IpHeader {
        src: address(12)?,
        dst: address(16)?,
        len,
        whole_len: length_of(u32::from(be16(ip, 2)?), whole_len),
        protocol: if fragment_offset == 0 { Some(*ip.get(9)?) } else { None },
    })
}

#[inline]
fn ipv6(ip: &[u8], whole_len: u32) -> Option<IpHeader> {
    let address = |at: usize| {
        let bytes: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(bytes)))
    };
    let payload_len = u32::from(be16(ip, 4)?);
    let said = if payload_len == 0 { 0 } else { payload_len + IPV6_HEADER_LEN as u32 };
    let (len, protocol) = ipv6_extensions(ip)?;
    Some(IpHeader {
        src: address(8)?,
        dst: address(24)?,
        len,
        whole_len: length_of(said, whole_len),
        protocol,
    })
}

/// Where the last extension header ends, and the protocol of what follows.
///
/// Each turn takes at least 8 bytes of `ip`, so a hostile chain ends with the capture.
#[inline]
fn ipv6_extensions(ip: &[u8]) -> Option<(usize, Option<u8>)> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION: u8 = 60;
    let mut next = *ip.get(6)?;
    let mut at = IPV6_HEADER_LEN;
    loop {
        let len = match next {
            HOP_BY_HOP | ROUTING | DESTINATION => (usize::from(*ip.get(at + 1)?) + 1) * 8,
            AUTHENTICATION => (usize::from(*ip.get(at + 1)?) + 2) * 4,
            FRAGMENT if be16(ip, at + 2)? >> 3 > 0 => return Some((at + 8, None)),
            FRAGMENT => 8,
            protocol => return (ip.len() >= at).then_some((at, Some(protocol))),
        };
        next = *ip.get(at)?;
        at += len;
    }
}

#[inline]
fn tcp(bytes: &[u8], whole_len: u32) -> Option<(Segment, u32)> {
    let header_len = u32::from(bytes.get(12)? >> 4) * 4;
    if header_len < TCP_HEADER_LEN as u32 || bytes.len() < TCP_HEADER_LEN {
        return None;
    }
    let segment = Segment {
        src_port: be16(bytes, 0)?,
        dst_port: be16(bytes, 2)?,
        seq: be32(bytes, 4)?,
        ack: be32(bytes, 8)?,
        flags: Flags(*bytes.get(13)?),
        payload: whole_len.checked_sub(header_len)?,
        window: be16(bytes, 14)?,
    };
    Some((segment, header_len))
}

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
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    const PAYLOAD: usize = 100;

    fn ipv4_syn_with_payload() -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(40_000, 80, 7, 512)
            .syn()
            .write(&mut bytes, &[1; PAYLOAD])
            .unwrap();
        bytes
    }

    fn ipv6_ack_with_payload() -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 64)
            .tcp(40_000, 80, 7, 512)
            .ack(9)
            .write(&mut bytes, &[1; PAYLOAD])
            .unwrap();
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Packet> {
        Packet::parse(bytes, u32::try_from(bytes.len()).unwrap())
    }

    #[test]
    fn an_ipv4_segment_is_read_field_by_field() {
        let packet = parse(&ipv4_syn_with_payload()).unwrap();
        assert_eq!(packet.src, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(packet.dst, IpAddr::from([10, 0, 0, 2]));
        assert_eq!((packet.ip_bytes, packet.header_bytes), (140, 40));
        let expected = Segment {
            src_port: 40_000,
            dst_port: 80,
            seq: 7,
            ack: 0,
            flags: Flags::SYN,
            payload: 100,
            window: 512,
        };
        assert_eq!(packet.segment, Some(expected));
        assert_eq!(expected.seq_len(), 101);
    }

    #[test]
    fn a_capture_cut_after_the_headers_still_knows_the_payload() {
        for (bytes, headers) in [(ipv4_syn_with_payload(), 40), (ipv6_ack_with_payload(), 60)] {
            let whole_len = u32::try_from(bytes.len()).unwrap();
            assert_eq!(Packet::parse(&bytes[..headers], whole_len), parse(&bytes));
            assert_eq!(Packet::parse(&bytes[..headers - 1], whole_len), None);
        }
    }

    #[test]
    fn ethernet_padding_is_no_payload() {
        let mut bytes = ipv4_syn_with_payload();
        bytes.extend([0; 20]);
        assert_eq!(parse(&bytes).unwrap().ip_bytes, 140);
    }

    #[test]
    fn a_later_fragment_has_no_segment() {
        let mut bytes = ipv4_syn_with_payload();
        bytes[7] = 1;
        let packet = parse(&bytes).unwrap();
        assert_eq!((packet.segment, packet.header_bytes), (None, 20));
    }

    #[test]
    fn ipv4_options_move_the_tcp_header() {
        let plain = ipv4_syn_with_payload();
        let mut bytes = plain[..20].to_vec();
        bytes.extend([1, 1, 1, 1]);
        bytes.extend(&plain[20..]);
        bytes[0] = 0x46;
        bytes[3] += 4;
        let packet = parse(&bytes).unwrap();
        assert_eq!(packet.header_bytes, 44);
        assert_eq!(packet.segment, parse(&plain).unwrap().segment);
    }

    #[test]
    fn ipv6_extension_headers_are_stepped_over() {
        let plain = ipv6_ack_with_payload();
        let mut bytes = plain[..40].to_vec();
        bytes.extend([44, 0, 0, 0, 0, 0, 0, 0]); // hop by hop, 8 bytes, then a fragment header
        bytes.extend([TCP, 0, 0, 1, 0, 0, 0, 0]); // offset 0, more to come, then TCP
        bytes.extend(&plain[40..]);
        bytes[6] = 0;
        bytes[5] += 16;
        let packet = parse(&bytes).unwrap();
        assert_eq!(packet.header_bytes, 76);
        assert_eq!(packet.segment, parse(&plain).unwrap().segment);
        bytes[51] = 8; // offset 1: not the first fragment
        assert_eq!(parse(&bytes).unwrap().segment, None);
    }

    #[test]
    fn a_super_packet_above_64_kib_takes_the_whole_length() {
        let mut bytes = ipv6_ack_with_payload();
        (bytes[4], bytes[5]) = (0, 0);
        let packet = Packet::parse(&bytes, 100_060).unwrap();
        assert_eq!(packet.ip_bytes, 100_060);
        assert_eq!(packet.segment.unwrap().payload, 100_000);
    }

    #[test]
    fn a_datagram_counts_without_a_segment() {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([1; 4], [2; 4], 64).udp(1, 2).write(&mut bytes, &[0; 10]).unwrap();
        let packet = parse(&bytes).unwrap();
        assert_eq!((packet.ip_bytes, packet.header_bytes, packet.segment), (38, 20, None));
    }

    #[test]
    fn what_is_not_ip_is_none() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0x20; 60]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(
            first in prop::sample::select(vec![0x45_u8, 0x4f, 0x60, 0x00]),
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            whole_len in any::<u32>(),
        ) {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            if let Some(packet) = Packet::parse(&bytes, whole_len) {
                let payload = packet.segment.map_or(0, |segment| segment.payload);
                prop_assert!(packet.header_bytes + payload <= packet.ip_bytes);
                prop_assert!(packet.ip_bytes <= whole_len);
            }
        }

        #[test]
        fn any_cut_gives_the_whole_packet_or_none(cut in 0_usize..160) {
            for bytes in [ipv4_syn_with_payload(), ipv6_ack_with_payload()] {
                let whole = parse(&bytes);
                let part = Packet::parse(&bytes[..cut.min(bytes.len())], bytes.len() as u32);
                prop_assert!(part.is_none() || part == whole);
            }
        }
    }

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
