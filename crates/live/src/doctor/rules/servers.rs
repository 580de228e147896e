//! Which configured server listens where, and which of its settings count.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tcptoll_core::units::host_port;

use super::super::{Listen, Machine, Program, ServerConfig, Sourced};
use crate::watch::ListenerState;

/// Servers whose whole configuration was read: a file that could not be read may set another value.
pub(super) fn known(machine: &Machine) -> impl Iterator<Item = &ServerConfig> {
    machine.servers.iter().filter(|server| server.unread.is_empty())
}

/// What a server is asked to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Ip(IpAddr),
    Localhost,
}

/// Host and port of `address:port`; none for a path and for a name that only a resolver knows.
fn host_and_port(text: &str) -> Option<(Host, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if bare.eq_ignore_ascii_case("localhost") {
        return Some((Host::Localhost, port));
    }
    let ip: IpAddr = bare.parse().ok()?;
    Some((Host::Ip(ip.to_canonical()), port))
}

/// Whether a process may be a server's, by its name.
fn is_of(program: Program, name: &str) -> bool {
    match program {
        Program::Nginx => name == "nginx",
        Program::Apache => matches!(name, "apache2" | "httpd"),
        Program::Redis => name.starts_with("redis-server") || name.starts_with("valkey-server"),
        Program::Haproxy => name == "haproxy",
        Program::PhpFpm => name.starts_with("php-fpm"),
        Program::Mariadb => matches!(name, "mariadbd" | "mysqld"),
        // Their addresses are those of their own sockets.
        Program::App(_) => true,
    }
}

/// The name of a server's process, as fixes of the live diagnoses expect it.
pub(super) fn process_name(program: Program) -> &'static str {
    match program {
        Program::Nginx => "nginx",
        Program::Apache => "apache2",
        Program::Redis => "redis-server",
        Program::Haproxy => "haproxy",
        Program::PhpFpm => "php-fpm",
        Program::Mariadb => "mariadbd",
        Program::App(_) => program.name(),
    }
}

/// How to restart a server, with Debian's names of units.
pub(super) fn restart(server: &ServerConfig) -> String {
    let unit = match server.program {
        Program::App(app) => match app.unit() {
            Some(unit) => unit,
            None => return format!("# restart the service of {}", server.program.name()),
        },
        Program::Nginx => "nginx",
        Program::Apache => "apache2",
        Program::Redis => "redis-server",
        Program::Haproxy => "haproxy",
        Program::Mariadb => "mariadb",
        Program::PhpFpm => {
            let mut parts = server.version.as_deref().unwrap_or_default().split('.');
            return match (parts.next(), parts.next()) {
                (Some(major), Some(minor)) if !major.is_empty() => {
                    format!("systemctl restart php{major}.{minor}-fpm")
                }
                _ => "systemctl restart php-fpm".to_owned(),
            };
        }
    };
    format!("systemctl restart {unit}")
}

/// The command that makes a server read its configuration again.
pub(super) fn reload(server: &ServerConfig) -> String {
    let restart = restart(server);
    // They read the time when they start.
    if matches!(server.program, Program::App(_)) {
        restart
    } else {
        restart.replace("restart", "reload")
    }
}

/// The sockets that a server listens on by one configured address.
///
/// None where no listener has that address, or another program's has it: then the file is not what
/// the server was started with.
pub(super) fn sockets<'m>(
    machine: &'m Machine,
    server: &ServerConfig,
    listen: &Listen,
) -> Vec<&'m ListenerState> {
    const EVERY_4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    const EVERY_6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let Some((host, port)) = host_and_port(&listen.on) else { return Vec::new() };
    let at = |wanted: &dyn Fn(IpAddr) -> bool| -> Vec<&'m ListenerState> {
        let listeners = machine.state.listeners.iter().filter(|one| one.port == port);
        let fits = |one: &&ListenerState| {
            let address: Option<IpAddr> = one.address.parse().ok();
            let process = one.process.as_ref();
            address.is_some_and(|address| wanted(address.to_canonical()))
                && process.is_none_or(|process| is_of(server.program, &process.name))
        };
        listeners.filter(fits).collect()
    };
    match host {
        Host::Localhost => at(&|address| address.is_loopback()),
        Host::Ip(EVERY_6) => {
            let both = at(&|address| address == EVERY_6);
            // A kernel without IPv6 has the other one.
            if both.is_empty() { at(&|address| address == EVERY_4) } else { both }
        }
        Host::Ip(ip) => at(&|address| address == ip),
    }
}

/// The server here that answers at the address of a proxy's target, with what it listens on.
///
/// None where the target is another machine, a name that only a resolver knows, or a port that
/// nobody listens on.
pub(super) fn behind<'m>(
    machine: &'m Machine,
    target: &str,
) -> Option<(&'m ServerConfig, &'m Listen)> {
    let all = || {
        known(machine).flat_map(|server| server.listens.iter().map(move |listen| (server, listen)))
    };
    if target.starts_with('/') || target.starts_with('@') {
        return all().find(|(_, listen)| listen.on == target);
    }
    let (host, port) = host_and_port(target)?;
    let to = match host {
        Host::Ip(ip) => vec![ip],
        Host::Localhost => {
            vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        }
    };
    let is_here = |ip: &IpAddr| ip.is_loopback() || machine.addresses.contains(ip);
    // The kernel prefers the exact address, then every address of the family, then `[::]`.
    let rank = |listen: &Listen| -> Option<u8> {
        let (own, own_port) = host_and_port(&listen.on)?;
        let fits = |ip: &IpAddr| match own {
            Host::Ip(own) if own == *ip => Some(0),
            Host::Localhost if ip.is_loopback() => Some(0),
            Host::Ip(own) if own.is_unspecified() && own.is_ipv4() == ip.is_ipv4() => Some(1),
            Host::Ip(own) if own.is_unspecified() && own.is_ipv6() => Some(2),
            _ => None,
        };
        let ranks = to.iter().filter(|ip| is_here(ip)).filter_map(fits);
        if own_port == port { ranks.min() } else { None }
    };
    all()
        .filter(|(server, listen)| !sockets(machine, server, listen).is_empty())
        .filter_map(|(server, listen)| Some((rank(listen)?, server, listen)))
        .min_by_key(|(rank, ..)| *rank)
        .map(|(_, server, listen)| (server, listen))
}

/// The server that listens at an address as diagnoses have it, with what it was configured to.
pub(super) fn at<'m>(
    machine: &'m Machine,
    subject: &str,
) -> Option<(&'m ServerConfig, &'m Listen)> {
    known(machine)
        .flat_map(|server| server.listens.iter().map(move |listen| (server, listen)))
        .find(|(server, listen)| {
            let sockets = sockets(machine, server, listen);
            sockets.iter().any(|one| host_port(&one.address, one.port) == subject)
        })
}

/// Whether somebody wrote the backlog down. `HAProxy` asks for as many as it may have connections
/// where no backlog is set.
pub(super) fn is_chosen(server: &ServerConfig, listen: &Listen) -> bool {
    let Some(backlog) = &listen.backlog else { return false };
    let is_maxconn = server.program == Program::Haproxy && listen.workers.as_ref() == Some(backlog);
    !backlog.at.is_default() && !is_maxconn
}

/// Where a value stands, as evidence and as a subject.
pub(super) fn at_text<T>(sourced: &Sourced<T>) -> String {
    clipped(&sourced.at.to_string(), 200)
}

/// A name of a configuration, short enough for a sentence.
pub(super) fn short(name: &str) -> String {
    clipped(name, 32)
}

/// A text without control characters and of at most so many characters.
fn clipped(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    let mut kept: String = text.chars().map(plain).take(most).collect();
    if text.chars().nth(most).is_some() {
        kept.pop();
        kept.push('…');
    }
    kept
}

/// A time in seconds as configurations write it: `5`, `0.5`.
pub(super) fn seconds(s: f64) -> String {
    let text = format!("{s:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
