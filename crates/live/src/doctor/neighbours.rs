//! Established connections, grouped by what is at their other end, in bounded memory; which addresses are this
//! machine's own, and which are reached over a router.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Neighbour;

/// Groups that are kept.
const GROUPS_MAX: usize = 1_024;
/// Groups that are given, those with the most unprotected connections first.
const GIVEN_MAX: usize = 256;

/// After which silence something on the way forgets a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Forgets {
    /// An idle connection that shows that it is meant to be idle for long, s.
    pub idle_s: f64,
    /// A probe that comes later comes too late, s.
    pub probe_s: f64,
    /// Whose limit `probe_s` is.
    pub by: &'static str,
}

/// The defaults of large clouds: load balancers and NAT of Azure 240 s; network load balancers and NAT
/// gateways of AWS 350 s; the firewall of Google's Compute Engine 600 s. Probes are called late by the
/// second of these, because Redis' own default of 300 s is meant to be safe.
const CLOUDS: Forgets =
    Forgets { idle_s: 240.0, probe_s: 350.0, by: "AWS load balancers and NAT gateways" };

/// After which silence a connection is forgotten on the way, or by this machine's own tracking.
pub(super) fn forgets(sysctls: &BTreeMap<String, String>, tracked: Option<u64>) -> Forgets {
    let own = sysctls.get("net.netfilter.nf_conntrack_tcp_timeout_established");
    let own = own.and_then(|text| text.trim().parse::<u64>().ok()).map(|s| s as f64);
    match own {
        // The sysctl is there too where nothing is tracked.
        Some(own) if own < CLOUDS.probe_s && own > 0.0 && tracked.is_some_and(|n| n > 0) => {
            Forgets {
                idle_s: own.min(CLOUDS.idle_s),
                probe_s: own,
                by: "nf_conntrack of this host",
            }
        }
        _ => CLOUDS,
    }
}

/// An established connection as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Held {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub timer: KeepAlive,
    /// Time since data was last sent or received, s; none: the kernel does not report it.
    pub idle_s: Option<f64>,
    /// Whether it is accepted and waits for the next request.
    pub waits: bool,
}

/// The keep-alive timer of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum KeepAlive {
    /// None runs, nor any other timer.
    Off,
    /// The next probe is due after so much silence, s, counted from the last packet received.
    After(f64),
    /// Another timer runs, and hides whether there is one.
    Hidden,
}

#[derive(Debug)]
pub(super) struct Neighbours<'a> {
    listening: &'a BTreeSet<u16>,
    routes: &'a Routes,
    forgets: Forgets,
    groups: BTreeMap<(Option<u16>, String), Neighbour>,
    /// Connections that there was no room for.
    left_out: u64,
}

impl<'a> Neighbours<'a> {
    /// None yet, on a machine with these listening ports and routes.
    pub(super) fn new(listening: &'a BTreeSet<u16>, routes: &'a Routes, forgets: Forgets) -> Self {
        Self { listening, routes, forgets, groups: BTreeMap::new(), left_out: 0 }
    }

    pub(super) fn add(&mut self, held: &Held) {
        let port = held.local.port();
        let served = self.listening.contains(&port).then_some(port);
        let remote = match served {
            Some(_) => held.remote.ip().to_canonical().to_string(),
            None => held.remote.to_string(),
        };
        let key = (served, remote);
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let routes = self.routes;
        let group = self.groups.entry(key).or_insert_with_key(|(local_port, remote)| Neighbour {
            local_port: *local_port,
            remote: remote.clone(),
            routed: routes.is_routed(held.remote.ip()),
            ..Neighbour::default()
        });
        group.connections += 1;
        group.waiting += u64::from(held.waits);
        longest(&mut group.idle_max_s, held.idle_s);
        let unprotected = match held.timer {
            KeepAlive::Off => true,
            KeepAlive::After(s) => {
                group.with_keepalive += 1;
                longest(&mut group.probe_after_max_s, Some(s));
                // The kernel's timers are late by some ticks.
                s > self.forgets.probe_s + 1.0
            }
            KeepAlive::Hidden => false,
        };
        if unprotected {
            group.unprotected += 1;
            longest(&mut group.unprotected_idle_max_s, held.idle_s);
            if held.idle_s.is_some_and(|idle| idle >= self.forgets.idle_s) {
                group.unprotected_idle += 1;
            }
        }
    }

    /// The groups, and how many connections are in none of them.
    pub(super) fn finish(self) -> (Vec<Neighbour>, u64) {
        let mut all: Vec<Neighbour> = self.groups.into_values().collect();
        all.sort_by_key(|one| {
            let rank = (one.unprotected_idle, one.unprotected, one.connections);
            std::cmp::Reverse(rank)
        });
        let rest = all.split_off(all.len().min(GIVEN_MAX));
        let more: u64 = rest.iter().map(|one| one.connections).sum();
        (all, self.left_out + more)
    }
}

fn longest(slot: &mut Option<f64>, s: Option<f64>) {
    if let Some(s) = s {
        *slot = Some(slot.map_or(s, |longest: f64| longest.max(s)));
    }
}

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

    const DEFAULT_ROUTE: &str = "Iface\n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";

    fn held(local: &str, remote: &str, timer: KeepAlive, idle_s: f64) -> Held {
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        Held { local, remote, timer, idle_s: Some(idle_s), waits: false }
    }

    fn groups(all: &[Held]) -> Vec<Neighbour> {
        let routes = Routes::read(DEFAULT_ROUTE, "", "", "");
        let listening = [6_379].into();
        let mut neighbours = Neighbours::new(&listening, &routes, CLOUDS);
        for one in all {
            neighbours.add(one);
        }
        neighbours.finish().0
    }

    #[test]
    fn clients_of_a_port_are_grouped_by_address_and_own_connections_by_destination() {
        let off = KeepAlive::Off;
        let all = groups(&[
            held("192.0.2.2:6379", "198.51.100.7:1000", off, 1.0),
            held("192.0.2.2:6379", "198.51.100.7:1001", off, 500.0),
            held("192.0.2.2:40000", "198.51.100.7:5432", KeepAlive::After(60.0), 9.0),
        ]);
        let [clients, own] = &all[..] else { panic!("{all:?}") };
        assert_eq!((clients.local_port, clients.remote.as_str()), (Some(6_379), "198.51.100.7"));
        assert_eq!((clients.connections, clients.unprotected, clients.unprotected_idle), (2, 2, 1));
        assert_eq!((clients.idle_max_s, clients.routed), (Some(500.0), Some(true)));
        assert_eq!((own.local_port, own.remote.as_str()), (None, "198.51.100.7:5432"));
        assert_eq!(
            (own.with_keepalive, own.unprotected, own.probe_after_max_s),
            (1, 0, Some(60.0))
        );
    }

    #[test]
    fn a_connection_is_unprotected_without_a_timer_or_with_a_late_one() {
        for (timer, expected) in [
            (KeepAlive::Off, 1),
            (KeepAlive::After(300.0), 0),
            (KeepAlive::After(350.9), 0),
            (KeepAlive::After(352.0), 1),
            (KeepAlive::Hidden, 0),
        ] {
            let all = groups(&[held("192.0.2.2:6379", "198.51.100.7:1000", timer, 240.0)]);
            assert_eq!(
                (all[0].unprotected, all[0].unprotected_idle),
                (expected, expected),
                "{timer:?}"
            );
        }
    }

    #[test]
    fn groups_have_a_bound_and_those_at_risk_come_first() {
        let routes = Routes::default();
        let listening = [6_379].into();
        let mut neighbours = Neighbours::new(&listening, &routes, CLOUDS);
        for n in 0..3_000_u32 {
            let timer = if n == 900 { KeepAlive::Off } else { KeepAlive::Hidden };
            let ip = std::net::Ipv4Addr::from(0x0a00_0000 + n);
            neighbours.add(&held("10.1.0.1:6379", &format!("{ip}:1000"), timer, 1.0));
        }
        let (given, left_out) = neighbours.finish();
        assert_eq!((given.len(), left_out), (256, 3_000 - 256));
        assert_eq!((given[0].unprotected, given[0].routed), (1, None));
    }
}
