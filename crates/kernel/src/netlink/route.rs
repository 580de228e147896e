//! How do packets to an address leave this machine?

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{DecodeError, DefaultNla, NlasIterator};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};

use super::channel::invalid;
use super::{IFINFOMSG_BYTES, IFLA_MTU, Netlink, family, link};
use crate::SysError;

/// `sizeof(struct rtmsg)`, after which the attributes of a route stand.
const RTMSG_BYTES: usize = 12;
// Of `linux/rtnetlink.h` and `linux/if_link.h`.
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_IP_PROTO: u16 = 27;
const TCP: u8 = 6;
const RTAX_MTU: u16 = 2;
const IFLA_IFNAME: u16 = 3;

/// The kernel's answer to `ip route get`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Device that packets leave by.
    pub device: String,
    /// Router they are handed to. None: the destination is on the device's own network.
    pub gateway: Option<IpAddr>,
    /// Address they come from.
    pub source: Option<IpAddr>,
    /// Longest IP packet, bytes: what was learned of the path, or else the device's.
    pub mtu_bytes: Option<u32>,
}

impl Netlink {
    /// The route to an address, for packets that come from `source` if it is given.
    ///
    /// Errors: ENETUNREACH and others where there is none.
    pub fn route(&mut self, to: IpAddr, source: Option<IpAddr>) -> Result<Route, SysError> {
        let length = if to.is_ipv4() { 32 } else { 128 };
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(to),
            destination_prefix_length: length,
            source_prefix_length: source.map_or(0, |_| length),
            ..RouteHeader::default()
        };
        message.attributes.push(RouteAttribute::Destination(to.into()));
        message.attributes.extend(source.map(|source| RouteAttribute::Source(source.into())));
        let on = format!("route to {to}");
        let mut found = (Route::default(), None);
        // Rules may send TCP another way than the rest; kernels before 4.19 cannot be asked for it.
        let mut of_tcp = message.clone();
        of_tcp.attributes.push(RouteAttribute::Other(DefaultNla::new(RTA_IP_PROTO, vec![TCP])));
        let mut asked = |message: RouteMessage| {
            let message = RouteNetlinkMessage::GetRoute(message);
            self.channel.exchange(0, message, "RTM_GETROUTE", &on, |payload| {
                found = of_route(payload)?;
                Ok(())
            })
        };
        asked(of_tcp).or_else(|_| asked(message))?;
        let (mut route, Some(index)) = found else {
            return Err(SysError::new("RTM_GETROUTE", on, invalid("no device")));
        };
        let message = RouteNetlinkMessage::GetLink(link(index));
        self.channel.exchange(0, message, "RTM_GETLINK", &on, |payload| {
            let (device, mtu) = of_link(payload)?;
            route.device = device;
            route.mtu_bytes = route.mtu_bytes.or(mtu);
            Ok(())
        })?;
        Ok(route)
    }
}

/// A reply to `RTM_GETROUTE`: the route without its device's name, and the device's index.
fn of_route(payload: &[u8]) -> Result<(Route, Option<u32>), DecodeError> {
    let mut route = Route::default();
    let mut index = None;
    for attribute in NlasIterator::new(payload.get(RTMSG_BYTES..).unwrap_or_default()) {
        let attribute = attribute?;
        let value = attribute.value();
        match attribute.kind() {
            RTA_OIF => index = number(value),
            RTA_GATEWAY => route.gateway = address(value),
            RTA_PREFSRC => route.source = address(value),
            RTA_METRICS => {
                for metric in NlasIterator::new(value) {
                    let metric = metric?;
                    if metric.kind() == RTAX_MTU {
                        route.mtu_bytes = number(metric.value()).filter(|&mtu| mtu > 0);
                    }
                }
            }
            _ => {}
        }
    }
    Ok((route, index))
}

/// A reply to `RTM_GETLINK`: name and MTU.
fn of_link(payload: &[u8]) -> Result<(String, Option<u32>), DecodeError> {
    let (mut name, mut mtu) = (String::new(), None);
    for attribute in NlasIterator::new(payload.get(IFINFOMSG_BYTES..).unwrap_or_default()) {
        let attribute = attribute?;
        match attribute.kind() {
            IFLA_IFNAME => {
                let text = String::from_utf8_lossy(attribute.value());
                text.trim_end_matches('\0').clone_into(&mut name);
            }
            IFLA_MTU => mtu = number(attribute.value()),
            _ => {}
        }
    }
    Ok((name, mtu))
}

fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_route_is_read_attribute_by_attribute_and_what_is_cut_short_is_no_panic() {
        let mut reply = vec![0; RTMSG_BYTES];
        reply.extend(attribute(RTA_OIF, &7_u32.to_ne_bytes()));
        reply.extend(attribute(RTA_GATEWAY, &[10, 0, 0, 1]));
        reply.extend(attribute(RTA_PREFSRC, &[10, 0, 0, 9]));
        reply.extend(attribute(RTA_METRICS, &attribute(RTAX_MTU, &1_400_u32.to_ne_bytes())));
        // An attribute of a kernel to come.
        reply.extend(attribute(999, b"abc"));
        let (route, index) = of_route(&reply).unwrap();
        assert_eq!((index, route.mtu_bytes), (Some(7), Some(1_400)));
        assert_eq!(route.gateway, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(route.source, Some("10.0.0.9".parse().unwrap()));
        for length in 0..reply.len() {
            let _ = of_route(&reply[..length]);
            let _ = of_link(&reply[..length]);
        }
    }

    #[test]
    fn the_route_to_this_machine_leaves_by_the_loopback_device() {
        let mut netlink = Netlink::open().unwrap();
        let route = netlink.route(Ipv4Addr::LOCALHOST.into(), None).unwrap();
        assert_eq!((route.device.as_str(), route.gateway), ("lo", None));
        assert_eq!(route.source, Some(Ipv4Addr::LOCALHOST.into()));
        assert!(route.mtu_bytes.is_some_and(|mtu| mtu >= 1_280), "{route:?}");
    }
}
