//! Established connections, grouped by what is at their other end, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::Neighbour;
use super::routes::Routes;

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
    /// The socket's own address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Its keep-alive timer.
    pub timer: KeepAlive,
    /// Time since data was last sent or received, s; none: the kernel does not report it.
    pub idle_s: Option<f64>,
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

/// Groups connections.
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

    /// Takes one connection.
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

#[cfg(test)]
mod tests;
