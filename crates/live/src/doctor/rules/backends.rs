//! A proxy and the server behind it: which of both closes an idle connection first.

use super::CLOSE_RACE;
use super::servers::{at_text, behind, known, reload, seconds, short};
use crate::doctor::{Listen, Machine, Program, ServerConfig, Sourced, Upstream};
use crate::watch::diagnoses::{evidence, rounded};
use tcptoll_core::finding::{Finding, Remedy, Severity};

/// How much longer than the proxy a server is to keep an idle connection, s.
const RESERVE_S: f64 = 10.0;
/// A server that polls closes a little late, s.
const LATE_S: f64 = 2.0;

/// A server that closes idle connections before, or just when, its proxy gives them up.
pub(super) fn close_race(machine: &Machine) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
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
                if closes.at.is_presumed() && outlives(machine, listen, closes.value) {
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

/// Whether a client of this listener was idle for longer than the server is presumed to allow.
fn outlives(machine: &Machine, listen: &Listen, s: f64) -> bool {
    let port = listen.port();
    let clients = machine.neighbours.iter().filter(|one| port.is_some() && one.local_port == port);
    clients.filter_map(|one| one.idle_max_s).any(|idle| idle > s + LATE_S)
}

fn race(ends: Ends<'_>, closes: &Sourced<f64>, idle: Option<&Sourced<f64>>) -> Finding {
    let Ends { proxy, upstream, target, server, listen } = ends;
    let (front, back) = (proxy.program.name(), server.program.name());
    let reuse =
        idle.map_or("without limit".to_owned(), |idle| format!("for {} s", seconds(idle.value)));
    let presumed = closes.at.is_presumed();
    let text = format!(
        "{back} {}closes idle connections after {} s; {front} reuses them {reuse} ({})",
        if presumed { "presumably " } else { "" },
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
        ("server_presumed", presumed.then_some(true.into())),
    ]);
    Finding {
        id: CLOSE_RACE.into(),
        severity: Severity::Warning,
        subject: format!("{front} → {}", short(target)),
        text,
        evidence,
        remedies: remedies(ends, closes, idle),
    }
}

/// What to change at either end: first at the server, if there is a time that is long enough.
fn remedies(ends: Ends<'_>, closes: &Sourced<f64>, idle: Option<&Sourced<f64>>) -> Vec<Remedy> {
    let (front, back) = (ends.proxy.program.name(), ends.server.program.name());
    let mut today = format!(
        " Today {back} closes them after {} s ({})",
        seconds(closes.value),
        at_text(closes)
    );
    if let Some(idle) = idle {
        today +=
            &format!(", and {front} reuses them for {} s ({})", seconds(idle.value), at_text(idle));
    }
    let filled = |name: &str, lines: Vec<Option<String>>| {
        let remedy = Remedy::named(CLOSE_RACE, name);
        let change = format!("{}{today}.", remedy.change);
        Remedy { change, commands: lines.into_iter().flatten().collect(), ..remedy }
    };
    let (lower, proof) = (lowered(ends, closes), proof(ends, closes));
    let lowered = filled("lower", vec![lower.clone(), Some(reload(ends.proxy)), proof.clone()]);
    let Some(idle) = idle else { return vec![lowered] };
    let longer = keeping(ends.server.program, idle.value + RESERVE_S);
    // The same directive elsewhere is about the proxy's own clients.
    let place = if ends.proxy.program == Program::Nginx { "the upstream of " } else { "" };
    let or = lower.as_ref().map(|lower| format!("# or in {place}{front}: {lower}"));
    let raised = filled("raise", vec![Some(longer), Some(reload(ends.server)), or, proof]);
    std::iter::once(raised).chain(lower.map(|_| lowered)).collect()
}

/// The line that makes a server keep idle connections for this long.
fn keeping(program: Program, s: f64) -> String {
    let longer = seconds(s);
    match program {
        Program::Nginx => format!("keepalive_timeout {longer}s;"),
        Program::Apache => format!("KeepAliveTimeout {}", seconds(s.ceil())),
        Program::Haproxy => format!("timeout http-keep-alive {longer}s"),
        Program::Redis => "timeout 0".to_owned(),
        Program::Mariadb => format!("wait_timeout = {}", seconds(s.ceil())),
        Program::PhpFpm => "request_terminate_timeout = 0".to_owned(),
        Program::App(app) => app.keeping(s),
    }
}

/// The line that makes the proxy drop idle connections earlier; none where the server leaves no time for it.
fn lowered(ends: Ends<'_>, closes: &Sourced<f64>) -> Option<String> {
    let half = (closes.value / 2.0).floor();
    match ends.proxy.program {
        Program::Nginx if closes.value >= 2.0 => {
            Some(format!("keepalive_timeout {}s;", seconds((closes.value - 1.0).floor())))
        }
        Program::Apache => Some(format!(
            "ProxyPass … http://{} ttl={}",
            short(ends.target),
            seconds(half.max(1.0))
        )),
        _ => None,
    }
}

/// The command that measures after which idle time the server closes.
fn proof(ends: Ends<'_>, closes: &Sourced<f64>) -> Option<String> {
    ends.listen.port()?;
    let idle_s = closes.value.ceil() + 1.0;
    // Several times, or no connection is used again while it is measured.
    let (idle, lasts) = (seconds(idle_s), seconds(5.0 * idle_s));
    (closes.value < 600.0).then(|| {
        format!("tcptoll http --reuse idle={idle}s -d {lasts}s http://{}/", short(ends.target))
    })
}
