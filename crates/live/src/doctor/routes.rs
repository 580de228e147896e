//! Which addresses are this machine's own, and which are reached over a router.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Routes that are kept: a router of the whole Internet is no machine for this.
const ROUTES_MAX: usize = 4_096;
/// Own addresses that are kept.
const ADDRESSES_MAX: usize = 4_096;
/// `RTF_GATEWAY` and `RTF_UP` of `<linux/route.h>`; `RTF_REJECT`.
const GATEWAY: u32 = 0x2;
const UP: u32 = 0x1;
const REJECT: u32 = 0x200;

/// One route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    to: IpAddr,
    prefix: u32,
    over_router: bool,
    metric: u32,
}

/// The routes and the own addresses of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Routes {
    routes: Vec<Route>,
    own: BTreeSet<IpAddr>,
}

impl Routes {
    /// From the text of `/proc/net/route`, `ipv6_route`, `fib_trie` and `if_inet6`.
    pub(super) fn read(v4: &str, v6: &str, own_v4: &str, own_v6: &str) -> Self {
        let v4 = v4.lines().skip(1).filter_map(route_v4);
        let routes = v4.chain(v6.lines().filter_map(route_v6)).take(ROUTES_MAX).collect();
        let own_v6 = own_v6.lines().filter_map(|line| address_v6(line.split_whitespace().next()?));
        let own = own_of_trie(own_v4).into_iter().chain(own_v6.map(IpAddr::V6));
        Self { routes, own: own.take(ADDRESSES_MAX).collect() }
    }

    /// The addresses of this machine.
    pub(super) fn own(&self) -> Vec<IpAddr> {
        self.own.iter().copied().collect()
    }

    /// Whether packets to this address pass a router. None: no route leads there, or the routes
    /// could not be read.
    pub(super) fn is_routed(&self, to: IpAddr) -> Option<bool> {
        let to = to.to_canonical();
        if to.is_loopback() || self.own.contains(&to) {
            return Some(false);
        }
        let fits = self.routes.iter().filter(|route| route.holds(to));
        // The longest prefix wins, then the smallest metric.
        let best = fits.max_by_key(|route| (route.prefix, std::cmp::Reverse(route.metric)))?;
        // A tunnel is a default route without a router's address.
        Some(best.over_router || best.prefix == 0)
    }
}

impl Route {
    fn holds(&self, address: IpAddr) -> bool {
        match (self.to, address) {
            (IpAddr::V4(to), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix.min(32)).unwrap_or(0);
                u32::from(to) & mask == u32::from(address) & mask
            }
            (IpAddr::V6(to), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix.min(128)).unwrap_or(0);
                u128::from(to) & mask == u128::from(address) & mask
            }
            _ => false,
        }
    }
}

/// `eth0 000200C0 00000000 0001 0 0 0 00FFFFFF …`: addresses as the memory of a little-endian machine
/// has them.
fn route_v4(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().take(8).collect();
    let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
    let flags = number(3)?;
    if flags & UP == 0 || flags & REJECT != 0 {
        return None;
    }
    let address = |word: u32| Ipv4Addr::from(word.to_ne_bytes());
    let mask = u32::from(address(number(7)?));
    Some(Route {
        to: address(number(1)?).into(),
        prefix: mask.leading_ones(),
        over_router: flags & GATEWAY != 0,
        metric: words.get(6)?.parse().ok()?,
    })
}

/// `fd00…00 40 0…0 00 0…0 00000100 … 00000001 eth0`: destination, prefix, source, its prefix, next hop,
/// metric, references, use, flags, device.
fn route_v6(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().take(10).collect();
    let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
    let flags = number(8)?;
    if flags & UP == 0 || flags & REJECT != 0 {
        return None;
    }
    Some(Route {
        to: address_v6(words.first()?)?.into(),
        prefix: number(1)?,
        over_router: flags & GATEWAY != 0,
        metric: number(5)?,
    })
}

fn address_v6(digits: &str) -> Option<Ipv6Addr> {
    if digits.len() != 32 {
        return None;
    }
    u128::from_str_radix(digits, 16).ok().map(Ipv6Addr::from)
}

/// Addresses behind `|--` whose next line says `/32 host LOCAL`.
fn own_of_trie(text: &str) -> Vec<IpAddr> {
    let mut own = Vec::new();
    let mut address = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(leaf) = line.strip_prefix("|-- ") {
            address = leaf.trim().parse::<Ipv4Addr>().ok();
        } else if line.ends_with("/32 host LOCAL")
            && let Some(address) = address
            && own.len() < ADDRESSES_MAX
        {
            own.push(address.into());
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        eth1\t0000090A\t020200C0\t0003\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
    const V6: &str = "\
        fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eth0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- \
        192.0.2.2\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n";
    const IF6: &str = "fd000000000000000000000000000002 02 40 00 80     eth0\n";

    fn routed(to: &str) -> Option<bool> {
        Routes::read(V4, V6, TRIE, IF6).is_routed(to.parse().unwrap())
    }

    #[test]
    fn an_address_is_routed_if_its_best_route_has_a_router() {
        for (to, expected) in [
            ("192.0.2.9", false),
            ("192.0.2.2", false),
            ("127.0.0.5", false),
            ("198.51.100.7", true),
            ("10.9.3.4", true),
            ("::ffff:198.51.100.7", true),
            ("fd00::77", false),
            ("fd00::2", false),
            ("::1", false),
            ("2001:db8::1", true),
        ] {
            assert_eq!(routed(to), Some(expected), "{to}");
        }
    }

    #[test]
    fn without_a_route_nothing_is_known() {
        let none = Routes::read("", "", "", "");
        assert_eq!(none.is_routed("192.0.2.9".parse().unwrap()), None);
        assert_eq!(none.is_routed("127.0.0.1".parse().unwrap()), Some(false));
        assert!(none.own().is_empty());
    }

    #[test]
    fn own_addresses_are_those_of_hosts() {
        let own = Routes::read(V4, V6, TRIE, IF6).own();
        assert_eq!(own, ["192.0.2.2", "fd00::2"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    }

    #[test]
    fn lines_of_nonsense_are_no_routes() {
        let none = Routes::read("\nx y\neth0 zz", "fd00\n\u{1b}", "|-- x\n/32 host LOCAL", "f\n");
        assert_eq!(none, Routes::default());
    }
}
