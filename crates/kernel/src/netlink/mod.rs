//! How does one build and shape a network interface, without `ip` and without a runtime?
//!
//! Requests of `rtnetlink(7)`, one at a time, each answered before the next is sent. The message
//! types come from `netlink-packet-route`; `tbf`, which it lacks, is written out in bytes here.
//! Replies are read attribute by attribute, so that one unknown attribute of a newer kernel cannot
//! make a lookup fail. It does not watch for changes and does not dump tables; the socket
//! table is in [`sock_diag`](crate::sock_diag), offloads are in [`tun`](crate::tun).
//!
//! `tbf` gets a peak-rate bucket of one MTU. TCP hands over super-packets of up to 64 KiB, and makes GSO
//! packets even where ethtool has turned offloads off. The small bucket makes tbf cut them, and charge each
//! packet with its Ethernet overhead.

mod channel;
mod route;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NlasIterator};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkHeader, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

pub(crate) use self::channel::Channel;
use self::channel::invalid;
pub use self::route::Route;
use crate::SysError;

/// `sizeof(struct ifinfomsg)`, after which the attributes of a link stand.
const IFINFOMSG_BYTES: usize = 16;
/// The Ethernet header that a device with one puts in front of the MTU.
const ETHERNET_HEADER: u32 = 14;
/// `IFLA_ADDRESS` and `IFLA_MTU` of `linux/if_link.h`.
const IFLA_ADDRESS: u16 = 1;
const IFLA_MTU: u16 = 4;

/// A `NETLINK_ROUTE` socket of the network namespace that the calling thread was in at
/// [`open`](Self::open); it stays with that namespace.
///
/// Errors: EPERM without `CAP_NET_ADMIN` over the namespace, ENODEV for an index that is gone,
/// EEXIST for a name, address or route that is there already. The kernel's own sentence, where it
/// sends one, is appended to [`SysError::on`].
#[derive(Debug)]
pub struct Netlink {
    channel: Channel,
}

impl Netlink {
    /// Opens the socket.
    pub fn open() -> Result<Self, SysError> {
        Ok(Self { channel: Channel::open(NETLINK_ROUTE, "NETLINK_ROUTE")? })
    }

    /// The index of the interface called `name`. ENODEV if there is none.
    pub fn index(&mut self, name: &str) -> Result<u32, SysError> {
        let mut request = LinkMessage::default();
        request.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let mut index = None;
        let on = format!("interface {name}");
        let message = RouteNetlinkMessage::GetLink(request);
        self.channel.exchange(0, message, "RTM_GETLINK", &on, |payload| {
            index = Some(LinkHeader::parse(payload)?.index);
            Ok(())
        })?;
        index.ok_or_else(|| SysError::new("RTM_GETLINK", on, invalid("no reply")))
    }

    /// The Ethernet address of the interface. `InvalidData` if it has none (a TUN device).
    pub fn mac(&mut self, index: u32) -> Result<[u8; 6], SysError> {
        self.attribute(index, IFLA_ADDRESS, "no Ethernet address")
    }

    /// Looks one attribute of an interface up; `missing` says what it is not if it has not `N` bytes.
    fn attribute<const N: usize>(
        &mut self,
        index: u32,
        kind: u16,
        missing: &'static str,
    ) -> Result<[u8; N], SysError> {
        let mut value = None;
        let on = format!("interface {index}");
        let message = RouteNetlinkMessage::GetLink(link(index));
        self.channel.exchange(0, message, "RTM_GETLINK", &on, |payload| {
            for attribute in NlasIterator::new(payload.get(IFINFOMSG_BYTES..).unwrap_or_default()) {
                let attribute = attribute?;
                if attribute.kind() == kind {
                    value = attribute.value().try_into().ok();
                }
            }
            Ok(())
        })?;
        value.ok_or_else(|| SysError::new("RTM_GETLINK", on, invalid(missing)))
    }

    /// Makes a veth pair: `name` here, `peer` inside `peer_netns`; both are down.
    ///
    /// `macs` are those of `name` and `peer`; they must be unicast (lowest bit of the first byte 0).
    pub fn add_veth(
        &mut self,
        name: &str,
        peer: &str,
        peer_netns: BorrowedFd<'_>,
        mtu: u32,
        macs: ([u8; 6], [u8; 6]),
    ) -> Result<(), SysError> {
        let end = |name: &str, mac: [u8; 6]| {
            let mut end = LinkMessage::default();
            end.attributes = vec![
                LinkAttribute::IfName(name.to_owned()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::Address(mac.to_vec()),
            ];
            end
        };
        let mut far = end(peer, macs.1);
        far.attributes.push(LinkAttribute::NetNsFd(peer_netns.as_raw_fd()));
        let mut near = end(name, macs.0);
        near.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
        ]));
        let message = RouteNetlinkMessage::NewLink(near);
        self.request(NLM_F_CREATE | NLM_F_EXCL, message, "RTM_NEWLINK", &format!("veth {name}"))
    }

    /// Sets the interface up.
    pub fn set_up(&mut self, index: u32) -> Result<(), SysError> {
        let mut message = link(index);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        let on = format!("interface {index} (up)");
        self.request(0, RouteNetlinkMessage::SetLink(message), "RTM_SETLINK", &on)
    }

    /// Sets the MTU, in bytes of IP packet.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), SysError> {
        self.set_link(index, "MTU", LinkAttribute::Mtu(mtu))
    }

    /// Sets how many packets may wait in the device's transmit queue; for a TUN device that is
    /// what waits for its reader.
    pub fn set_tx_queue_len(&mut self, index: u32, packets: u32) -> Result<(), SysError> {
        self.set_link(index, "txqueuelen", LinkAttribute::TxQueueLen(packets))
    }

    fn set_link(
        &mut self,
        index: u32,
        what: &str,
        attribute: LinkAttribute,
    ) -> Result<(), SysError> {
        let mut message = link(index);
        message.attributes.push(attribute);
        let on = format!("interface {index} ({what})");
        self.request(0, RouteNetlinkMessage::SetLink(message), "RTM_SETLINK", &on)
    }

    /// Gives the interface an address. An IPv6 address is usable at once: duplicate address
    /// detection, which would hold it back for a second, is off for it.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> Result<(), SysError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = index;
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        let on = format!("{address}/{prefix} on interface {index}");
        let message = RouteNetlinkMessage::NewAddress(message);
        self.request(NLM_F_CREATE | NLM_F_EXCL, message, "RTM_NEWADDR", &on)
    }

    /// Writes down for good which MAC `address` has, so that no connection waits for ARP or
    /// neighbour discovery. Replaces an entry that is there.
    pub fn add_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), SysError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unspec;
        message.attributes = vec![
            NeighbourAttribute::Destination(address.into()),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        let on = format!("{address} on interface {index}");
        let message = RouteNetlinkMessage::NewNeighbour(message);
        self.request(NLM_F_CREATE | NLM_F_REPLACE, message, "RTM_NEWNEIGH", &on)
    }

    /// Sends what goes to `destination/prefix` out of the interface, with no gateway. Bits of
    /// `destination` beyond the prefix are ignored. EEXIST if there is such a route.
    pub fn add_route(
        &mut self,
        index: u32,
        destination: IpAddr,
        prefix: u8,
    ) -> Result<(), SysError> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(destination),
            destination_prefix_length: prefix,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: if destination.is_ipv4() { RouteScope::Link } else { RouteScope::Universe },
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes = vec![
            RouteAttribute::Destination(masked(destination, prefix).into()),
            RouteAttribute::Oif(index),
        ];
        let on = format!("{destination}/{prefix} on interface {index}");
        let message = RouteNetlinkMessage::NewRoute(message);
        self.request(NLM_F_CREATE | NLM_F_EXCL, message, "RTM_NEWROUTE", &on)
    }

    /// Shapes what leaves the interface by a token bucket (`tbf` as root qdisc; replaces one).
    ///
    /// - `rate_bit_per_s`: what drains the bucket; each packet costs its length as the device
    ///   sees it (on veth with the 14 bytes of Ethernet header) plus `overhead_bytes`. With 24
    ///   (FCS, preamble, gap) the rate is Ethernet line rate. The 64-byte minimum of a frame is not
    ///   accounted.
    /// - `burst_bytes`: the bucket, at least MTU + 14 (`InvalidInput` below). Of a slow link it is
    ///   what a pause lets through at once; of a fast one it must hold what drains while a timer
    ///   is late (at 1 Gbit/s 125 kB is 1 ms).
    /// - `limit_bytes`: what may wait, in device bytes; packets beyond it are dropped.
    ///
    /// TCP's super-packets are cut here into packets of at most the MTU, each charged for itself; no
    /// offload has to be turned off for that.
    ///
    /// Source: `net/sched/sch_tbf.c`, Linux 6.18.
    pub fn add_tbf(
        &mut self,
        index: u32,
        rate_bit_per_s: f64,
        burst_bytes: u32,
        limit_bytes: u32,
        overhead_bytes: u16,
    ) -> Result<(), SysError> {
        let on = format!("interface {index} (tbf, {rate_bit_per_s} bit/s)");
        let mtu = u32::from_ne_bytes(self.attribute(index, IFLA_MTU, "no MTU")?);
        let longest = mtu.saturating_add(ETHERNET_HEADER);
        let sound = rate_bit_per_s >= 8.0 && burst_bytes >= longest;
        let Some(device) = i32::try_from(index).ok().filter(|_| sound) else {
            return Err(SysError::new("RTM_NEWQDISC", on, io::ErrorKind::InvalidInput));
        };
        let mut message = TcMessage::with_index(device);
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes = vec![
            TcAttribute::Kind("tbf".to_owned()),
            TcAttribute::Options(tbf_options(
                (rate_bit_per_s / 8.0).round() as u64,
                burst_bytes,
                longest,
                limit_bytes,
                overhead_bytes,
            )),
        ];
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.request(NLM_F_CREATE | NLM_F_REPLACE, message, "RTM_NEWQDISC", &on)
    }

    fn request(
        &mut self,
        flags: u16,
        message: RouteNetlinkMessage,
        op: &'static str,
        on: &str,
    ) -> Result<(), SysError> {
        self.channel.exchange(flags, message, op, on, |_| Ok(()))
    }
}

fn link(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// `address` with the bits beyond `prefix` cleared; the kernel refuses a route with any set.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix.into())).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    }
}

/// The nested options of `tbf`.
///
/// `TCA_TBF_BURST` makes the kernel compute the bucket itself, so neither the old rate table
/// (`TCA_TBF_RTAB`) nor the burst in clock ticks is needed; the link layer "Ethernet" keeps it from
/// looking for that table.
///
/// The peak rate is far above anything real and only there for its bucket of one packet: tbf cuts
/// super-packets that are longer than the smaller bucket. Without it a super-packet within the
/// large bucket passes whole and is charged the overhead once: 1.4 to 2.5 % too fast, measured with
/// 125 kB. TCP without super-packets instead (`gso_max_segs` 1) is right too, but two cores then
/// reach only 0.5 Gbit/s; with `ethtool` alone they are cut only behind the qdisc.
fn tbf_options(
    bytes_per_s: u64,
    burst: u32,
    longest: u32,
    limit: u32,
    overhead: u16,
) -> Vec<TcOption> {
    const PARMS: u16 = 1;
    const RATE64: u16 = 4;
    const PRATE64: u16 = 5;
    const BURST: u16 = 6;
    const PBURST: u16 = 7;
    const LINKLAYER_ETHERNET: u8 = 1;
    /// A packet of 1500 bytes in 15 ns; must be above the rate.
    const PEAK_BYTES_PER_S: u64 = 100_000_000_000;

    // struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate. The kernel takes
    // the larger of this 32-bit rate and the 64-bit one.
    let ratespec = |overhead: u16, rate: u64| {
        let mut spec = vec![0, LINKLAYER_ETHERNET];
        spec.extend(overhead.to_ne_bytes());
        spec.extend([0; 4]);
        spec.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
        spec
    };
    // struct tc_tbf_qopt: rate, peakrate, limit, buffer, mtu (the last two as attributes below).
    let mut parms = ratespec(overhead, bytes_per_s);
    parms.extend(ratespec(0, PEAK_BYTES_PER_S));
    parms.extend(limit.to_ne_bytes());
    parms.extend([0; 8]);

    let option = |kind, value: Vec<u8>| TcOption::Other(DefaultNla::new(kind, value));
    vec![
        option(PARMS, parms),
        option(RATE64, bytes_per_s.to_ne_bytes().to_vec()),
        option(PRATE64, PEAK_BYTES_PER_S.to_ne_bytes().to_vec()),
        option(BURST, burst.to_ne_bytes().to_vec()),
        option(PBURST, longest.to_ne_bytes().to_vec()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_cleared_at_every_prefix_length() {
        let cases = [
            ("10.1.2.3", 24, "10.1.2.0"),
            ("10.1.2.3", 32, "10.1.2.3"),
            ("10.1.2.3", 0, "0.0.0.0"),
            ("fd00::1:2", 64, "fd00::"),
            ("fd00::1:2", 128, "fd00::1:2"),
            ("fd00::1:2", 0, "::"),
        ];
        for (address, prefix, expected) in cases {
            let masked = masked(address.parse().unwrap(), prefix);
            assert_eq!(masked, expected.parse::<IpAddr>().unwrap(), "{address}/{prefix}");
        }
    }
}
