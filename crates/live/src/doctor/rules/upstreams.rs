//! Connections of a proxy to the servers behind it: reused too long, or not at all.

use super::super::{Listen, Machine, Program, ServerConfig, Sourced, Upstream};
use super::servers::{at_text, behind, known, restart, seconds, short};
use super::{CLOSE_RACE, UPSTREAM_NOT_REUSED};
use crate::diagnosis::{Diagnosis, Fix, Severity};
use crate::watch::diagnoses::{evidence, rounded};

/// How much longer than the proxy a server is to keep an idle connection, s.
const RESERVE_S: f64 = 10.0;

/// A server that closes idle connections before, or just when, its proxy gives them up.
pub(super) fn close_race(machine: &Machine) -> Vec<Diagnosis> {
    let mut found: Vec<Diagnosis> = Vec::new();
    for proxy in known(machine) {
        for upstream in &proxy.upstreams {
            let Some(idle) = idle_time(proxy, upstream) else { continue };
            for target in &upstream.servers {
                let Some((server, listen)) = behind(machine, target) else { continue };
                let own = listen.keepalive_timeout_s.as_ref();
                let Some(closes) = own.or(server.keepalive_timeout_s.as_ref()) else { continue };
                // 0: it serves one request a connection, so none is reused.
                if closes.value <= 0.0 || !idle.lasts(closes.value) {
                    continue;
                }
                let one =
                    race(Ends { proxy, upstream, target, server, listen }, closes, idle.time());
                if !found.iter().any(|known| known.subject == one.subject) {
                    found.push(one);
                }
            }
        }
    }
    found
}

/// For how long a proxy reuses an idle connection.
#[derive(Clone, Copy)]
enum Idle<'u> {
    For(&'u Sourced<f64>),
    Unlimited,
}

impl<'u> Idle<'u> {
    fn time(self) -> Option<&'u Sourced<f64>> {
        match self {
            Self::For(time) => Some(time),
            Self::Unlimited => None,
        }
    }

    /// Whether the proxy may still reuse a connection that was idle for this long.
    fn lasts(self, s: f64) -> bool {
        self.time().is_none_or(|time| s <= time.value)
    }
}

/// None: the proxy does not reuse connections, or its time is not known.
fn idle_time<'u>(proxy: &ServerConfig, upstream: &'u Upstream) -> Option<Idle<'u>> {
    if upstream.reuses.as_ref().is_none_or(|reuses| !reuses.value) || upstream.fastcgi {
        return None;
    }
    let time = upstream.idle_timeout_s.as_ref();
    match proxy.program {
        Program::Nginx => {
            upstream.idle_connections.as_ref()?;
            time.map(Idle::For)
        }
        // Without `ttl` it keeps them for ever.
        Program::Apache => {
            Some(time.filter(|ttl| ttl.value > 0.0).map_or(Idle::Unlimited, Idle::For))
        }
        // HAProxy closes idle connections by demand: their time is not known.
        _ => time.map(Idle::For),
    }
}

/// A proxy and a server behind it.
#[derive(Clone, Copy)]
struct Ends<'m> {
    proxy: &'m ServerConfig,
    upstream: &'m Upstream,
    target: &'m str,
    server: &'m ServerConfig,
    listen: &'m Listen,
}

fn race(ends: Ends<'_>, closes: &Sourced<f64>, idle: Option<&Sourced<f64>>) -> Diagnosis {
    let Ends { proxy, upstream, target, server, listen } = ends;
    let (front, back) = (proxy.program.name(), server.program.name());
    let reuse =
        idle.map_or("without limit".to_owned(), |idle| format!("for {} s", seconds(idle.value)));
    let text = format!(
        "{back} closes idle connections after {} s; {front} reuses them {reuse} ({})",
        seconds(closes.value),
        short(&upstream.name)
    );
    let evidence = evidence([
        ("proxy", Some(front.into())),
        ("proxy_pid", Some(proxy.pid.into())),
        ("proxy_idle_timeout_s", idle.map(|idle| rounded(idle.value))),
        ("proxy_configured_at", idle.map(|idle| at_text(idle).into())),
        ("upstream", Some(short(&upstream.name).into())),
        ("server", Some(back.into())),
        ("server_pid", Some(server.pid.into())),
        ("server_listens_on", Some(short(&listen.on).into())),
        ("server_keepalive_timeout_s", Some(rounded(closes.value))),
        ("server_configured_at", Some(at_text(closes).into())),
    ]);
    Diagnosis {
        id: CLOSE_RACE.into(),
        severity: Severity::Warning,
        subject: format!("{front} → {}", short(target)),
        text,
        evidence,
        fix: Some(race_fix(ends, closes, idle)),
    }
}

fn race_fix(ends: Ends<'_>, closes: &Sourced<f64>, idle: Option<&Sourced<f64>>) -> Fix {
    let Ends { proxy, server, target, .. } = ends;
    let (front, back) = (proxy.program.name(), server.program.name());
    let undo = "Set the former time, and reload again.".to_owned();
    let effect = format!(
        "{front} drops an idle connection before {back} closes it, so no request is sent on a closing connection."
    );
    let Some(idle) = idle else {
        let ttl = seconds((closes.value / 2.0).floor().max(1.0));
        return Fix {
            change: format!("Let {front} drop idle connections before {back} closes them, with ttl."),
            commands: vec![
                format!("ProxyPass … http://{} ttl={ttl}", short(target)),
                restart(proxy).replace("restart", "reload"),
            ],
            effect,
            risk: "More connections are opened. ttl has no effect with mpm_prefork: use disablereuse=on there."
                .to_owned(),
            undo,
        };
    };
    let longer = seconds(idle.value + RESERVE_S);
    let setting = match server.program {
        Program::Nginx => format!("keepalive_timeout {longer}s;"),
        Program::Apache => format!("KeepAliveTimeout {}", seconds((idle.value + RESERVE_S).ceil())),
        Program::Haproxy => format!("timeout http-keep-alive {longer}s"),
        Program::Redis => "timeout 0".to_owned(),
        Program::Mariadb => format!("wait_timeout = {}", seconds((idle.value + RESERVE_S).ceil())),
        Program::PhpFpm => "request_terminate_timeout = 0".to_owned(),
    };
    let shorter = (closes.value - 1.0).floor();
    let alternative = if proxy.program == Program::Nginx && shorter >= 1.0 {
        format!(
            " Or let {front} close first: keepalive_timeout {}s; in the upstream.",
            seconds(shorter)
        )
    } else {
        String::new()
    };
    Fix {
        change: format!("Let {back} keep idle connections for longer than {front}.{alternative}"),
        commands: vec![setting, restart(server).replace("restart", "reload")],
        effect,
        risk: format!(
            "{back} keeps idle connections of all its clients for longer. Each takes memory, and with Apache prefork \
             a process."
        ),
        undo,
    }
}

/// nginx keeps idle connections to its upstream, and each request closes the one it used.
pub(super) fn not_reused(machine: &Machine) -> Vec<Diagnosis> {
    let mut found: Vec<Diagnosis> = Vec::new();
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
) -> Diagnosis {
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
    let commands: Vec<String> = if upstream.fastcgi {
        vec!["fastcgi_keep_conn on;".into()]
    } else {
        vec!["proxy_http_version 1.1;".into(), "proxy_set_header Connection \"\";".into()]
    };
    let fix = Fix {
        change: "Add these lines to the location that passes requests to the upstream, and reload nginx.".to_owned(),
        commands: commands.into_iter().chain(["nginx -s reload".to_owned()]).collect(),
        effect: "Requests reuse connections to the upstream. They need no handshake each, and leave no port in \
                 TIME-WAIT."
            .to_owned(),
        risk: "The servers hold idle connections, so their keep-alive timeout must be longer than that of the upstream \
               (tcptoll explain close-race). A location with its own proxy_set_header does not inherit those of \
               outer levels."
            .to_owned(),
        undo: "Remove the lines, and reload nginx.".to_owned(),
    };
    Diagnosis {
        id: UPSTREAM_NOT_REUSED.into(),
        severity: Severity::Warning,
        subject: at_text(keeps),
        text,
        evidence,
        fix: Some(fix),
    }
}
