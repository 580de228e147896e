//! Idle connections: of a proxy to the servers behind it, not reused at all; over a router, without a probe before
//! something on the way forgets them.

use std::collections::BTreeMap;

use tcptoll_core::number;

use super::servers::{at_text, known, restart, seconds, short};
use super::{KEEPALIVE_BEYOND_NAT, UPSTREAM_NOT_REUSED};
use crate::doctor::neighbours::{Forgets, forgets};
use crate::doctor::{Listen, Machine, Neighbour, Program, ServerConfig, Sourced, Upstream};
use crate::watch::diagnoses::{evidence, rounded};
use tcptoll_core::finding::{Finding, Remedy, Severity};

/// nginx keeps idle connections to its upstream, and each request closes the one it used.
pub(super) fn not_reused(machine: &Machine) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for proxy in known(machine).filter(|one| one.program == Program::Nginx) {
        for upstream in &proxy.upstreams {
            // Who only left the default on has not asked for reuse.
            let keeps = upstream.idle_connections.as_ref();
            let Some(keeps) = keeps.filter(|keeps| keeps.value > 0 && !keeps.at.is_default())
            else {
                continue;
            };
            let Some(reuses) = upstream.reuses.as_ref().filter(|reuses| !reuses.value) else {
                continue;
            };
            let one = wasted(proxy, upstream, keeps, reuses);
            if !found.iter().any(|known| known.subject == one.subject) {
                found.push(one);
            }
        }
    }
    found
}

fn wasted(
    proxy: &ServerConfig,
    upstream: &Upstream,
    keeps: &Sourced<u64>,
    reuses: &Sourced<bool>,
) -> Finding {
    let why = if upstream.fastcgi {
        "fastcgi_keep_conn is off"
    } else {
        "requests use HTTP/1.0 or Connection: close"
    };
    let text = format!(
        "keepalive {} of nginx upstream {} has no effect: {why}",
        keeps.value,
        short(&upstream.name)
    );
    let evidence = evidence([
        ("upstream", Some(short(&upstream.name).into())),
        ("idle_connections", Some(keeps.value.into())),
        ("configured_at", Some(at_text(keeps).into())),
        ("decided_at", Some(at_text(reuses).into())),
        ("nginx_version", proxy.version.as_deref().map(|version| short(version).into())),
        ("pid", Some(proxy.pid.into())),
    ]);
    let fix = Remedy::named(UPSTREAM_NOT_REUSED, if upstream.fastcgi { "fastcgi" } else { "http" });
    Finding {
        id: UPSTREAM_NOT_REUSED.into(),
        severity: Severity::Warning,
        subject: at_text(keeps),
        text,
        evidence,
        remedies: vec![fix],
    }
}

/// Diagnoses of this kind, at most.
const FOUND_MAX: usize = 16;
/// The proposed time to the first probe, s: what Google proposes for its own firewall.
const PROPOSED_S: u64 = 60;
const TIME: &str = "net.ipv4.tcp_keepalive_time";
/// Who uses SSH notices a session that ended.
const SSH: u16 = 22;

/// Neighbours of one local port, or one remote address and port, added up.
#[derive(Default)]
struct Group {
    connections: u64,
    with_keepalive: u64,
    unprotected: u64,
    idle: u64,
    idle_max_s: f64,
    probe_after_max_s: Option<f64>,
    peers: u64,
}

impl Group {
    fn add(&mut self, one: &Neighbour) {
        self.connections = self.connections.saturating_add(one.connections);
        self.with_keepalive = self.with_keepalive.saturating_add(one.with_keepalive);
        self.unprotected = self.unprotected.saturating_add(one.unprotected);
        self.idle = self.idle.saturating_add(one.unprotected_idle);
        self.idle_max_s = self.idle_max_s.max(one.unprotected_idle_max_s.unwrap_or(0.0));
        let later =
            one.probe_after_max_s.map(|s| self.probe_after_max_s.map_or(s, |max| max.max(s)));
        self.probe_after_max_s = later.or(self.probe_after_max_s);
        self.peers = self.peers.saturating_add(1);
    }
}

/// Connections over a router that are idle for longer than common NATs and balancers wait, and that
/// no probe keeps; or whose server is configured so, and keeps them idle.
pub(super) fn beyond_nat(machine: &Machine) -> Vec<Finding> {
    let forgets = forgets(&machine.sysctls, machine.state.counted.tracked);
    let mut groups: BTreeMap<(Option<u16>, String), Group> = BTreeMap::new();
    let routed = machine.neighbours.iter().filter(|one| one.routed == Some(true));
    for one in routed.filter(|one| one.unprotected > 0 && !is_ssh(one)) {
        // Clients of one port are one finding, however many addresses they have.
        let remote = if one.local_port.is_some() { String::new() } else { one.remote.clone() };
        groups.entry((one.local_port, remote)).or_default().add(one);
    }
    let say = |((port, remote), group): ((Option<u16>, String), Group)| {
        let server = port.and_then(|port| server_at(machine, port));
        let late = server.and_then(|(server, listen)| late_probe(server, listen, &forgets));
        if group.idle == 0 && late.is_none() {
            return None;
        }
        let subject = port.map_or(remote, |port| format!("clients of port {port}"));
        let text = match late {
            Some(_) if group.idle == 0 => format!(
                "{} of {} connections of {subject} send no probe within {} s",
                number::count(group.unprotected),
                number::count(group.connections),
                seconds(forgets.probe_s)
            ),
            _ => format!(
                "{} of {} connections ({subject}) are idle for over {} s and send no probe within {} s",
                number::count(group.idle),
                number::count(group.connections),
                seconds(forgets.idle_s),
                seconds(forgets.probe_s)
            ),
        };
        let evidence = evidence([
            ("connections", Some(group.connections.into())),
            ("with_keepalive", Some(group.with_keepalive.into())),
            ("unprotected", Some(group.unprotected.into())),
            ("unprotected_idle", Some(group.idle.into())),
            ("idle_max_s", Some(rounded(group.idle_max_s))),
            ("probe_after_max_s", group.probe_after_max_s.map(rounded)),
            ("peers", Some(group.peers.into())),
            ("limit_s", Some(rounded(forgets.probe_s))),
            ("limit_of", Some(forgets.by.into())),
            ("tcp_keepalive_time", machine.number(TIME).map(Into::into)),
            ("configured_at", late.map(|late| at_text(late).into())),
            ("configured_s", late.map(|late| rounded(late.value))),
            ("program", server.map(|(server, _)| server.program.name().into())),
        ]);
        Some(Finding {
            id: KEEPALIVE_BEYOND_NAT.into(),
            severity: Severity::Warning,
            subject,
            text,
            evidence,
            remedies: vec![fix(machine, server.map(|(server, _)| server), &group)],
        })
    };
    let mut found: Vec<Finding> = groups.into_iter().filter_map(say).collect();
    found.truncate(FOUND_MAX);
    found
}

fn is_ssh(one: &Neighbour) -> bool {
    let to = one.remote.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    one.local_port == Some(SSH) || (one.local_port.is_none() && to == Some(SSH))
}

type At<'m> = (&'m ServerConfig, &'m Listen);

/// The server that listens on a port, if one alone does.
fn server_at(machine: &Machine, port: u16) -> Option<At<'_>> {
    let mut all = known(machine)
        .flat_map(|server| server.listens.iter().map(move |listen| (server, listen)))
        .filter(|(_, listen)| listen.port() == Some(port));
    let first = all.next()?;
    all.all(|(server, _)| server.pid == first.0.pid).then_some(first)
}

/// The line that turns probes off or makes them late, of a server that keeps idle connections for
/// longer than NATs do.
fn late_probe<'m>(
    server: &'m ServerConfig,
    listen: &'m Listen,
    forgets: &Forgets,
) -> Option<&'m Sourced<f64>> {
    let probe = listen.tcp_keepalive_s.as_ref().or(server.tcp_keepalive_s.as_ref())?;
    let late = probe.value <= 0.0 || probe.value > forgets.probe_s;
    let closes = listen.keepalive_timeout_s.as_ref().or(server.keepalive_timeout_s.as_ref());
    let keeps = match closes {
        Some(closes) => closes.value > forgets.probe_s,
        // Redis without `timeout` keeps them for ever; of others it is not known.
        None => server.program == Program::Redis,
    };
    (late && keeps && !probe.at.is_default()).then_some(probe)
}

fn fix(machine: &Machine, server: Option<&ServerConfig>, group: &Group) -> Remedy {
    let setting = server.and_then(|server| match server.program {
        Program::Redis => Some(format!("tcp-keepalive {PROPOSED_S}")),
        Program::Mariadb => Some(format!("tcp_keepalive_time = {PROPOSED_S}")),
        Program::Nginx => Some(format!("listen … so_keepalive={PROPOSED_S}s;")),
        Program::Haproxy => Some(format!("option clitcpka; clitcpka-idle {PROPOSED_S}s")),
        // They leave the time to the kernel.
        Program::Apache | Program::PhpFpm | Program::App(_) => None,
    });
    if let Some((setting, server)) = setting.zip(server) {
        let remedy = Remedy::named(KEEPALIVE_BEYOND_NAT, "server");
        return remedy.with("SETTING", setting).with("RESTART", restart(server));
    }
    let by_kernel = machine.number(TIME).is_some() && group.with_keepalive > 0;
    Remedy::named(KEEPALIVE_BEYOND_NAT, if by_kernel { "kernel" } else { "program" })
}
