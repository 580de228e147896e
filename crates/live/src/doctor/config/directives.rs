//! The directives that are read: where each may stand, which field it sets, how its value is read, what holds
//! where nothing sets it, and since which version.
//!
//! A default is written as the program's file would have it. What does not fit a row (addresses, servers behind a
//! proxy, what one section inherits from another) is in the file of the program.

use super::Program;
use super::values::Unit::{
    self, Count, Flag, Inverse, Milliseconds, Positive, PositiveSize, Seconds, Size, Switch,
    SwitchOrCount, Text, Words,
};
use Field::{
    Backlog, Bind, Client, ClientProbes, Closes, ClosesServer, ConnectTimeout, Connection,
    ExtraPort, FastcgiConnect, FastcgiKeeps, FastcgiResponse, Folder, HttpReuse, HttpVersion,
    IdleConnections, IdleTimeout, KeepaliveRequests, KeepaliveTimeout, Keeps, Limit, Mode, Port,
    Probes, Processes, ProxyTimeout, QueueTimeout, Receive, RequestTimeout, RequestsPerConnection,
    ResponseTimeout, Reuses, Send, SkipNetworking, Socket, TcpKeepalive, Threads, TlsPort, Workers,
};
use Level::{Listen, Main, Section, Upstream};
use Preset::{Is, IsIfKnown, Nothing, Since};

/// One row of the table.
pub(super) struct Directive {
    pub(super) level: Level,
    /// Two words where the first decides nothing: `timeout client`.
    pub(super) name: &'static str,
    pub(super) field: Field,
    pub(super) unit: Unit,
    preset: Preset,
}

/// Where a directive may stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// Of the whole server.
    Main,
    /// A section that inherits: `server`, a virtual host, `frontend`, a pool.
    Section,
    /// A parameter of an address.
    Listen,
    /// A group of servers behind a proxy, or a parameter of one.
    Upstream,
}

/// What holds where nothing sets a directive.
enum Preset {
    /// Nothing, or what code derives from others.
    Nothing,
    Is(&'static str),
    /// The first since this version, the second before; a version that is not known counts as newer.
    Since([u64; 3], &'static str, &'static str),
    /// The same; nothing if the version is not known.
    IsIfKnown([u64; 3], &'static str, &'static str),
}

/// What a directive sets. Those of the first three lines have the names of fields of the configuration; from the
/// others, code derives fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[rustfmt::skip]
pub(super) enum Field {
    KeepaliveTimeout, KeepaliveRequests, TcpKeepalive, Workers, Backlog, Receive, Send, RequestTimeout,
    IdleConnections, IdleTimeout, RequestsPerConnection, Reuses, ConnectTimeout, QueueTimeout,
    ResponseTimeout, Probes,
    Bind, Client, ClientProbes, Closes, ClosesServer, Connection, ExtraPort, FastcgiConnect, FastcgiKeeps,
    FastcgiResponse, Folder, HttpReuse, HttpVersion, Keeps, Limit, Mode, Port, Processes, ProxyTimeout,
    SkipNetworking, Socket, Threads, TlsPort,
}

/// Since this version, nginx keeps connections to upstreams without being told to (nginx.org/en/CHANGES).
const KEEPS_UPSTREAMS: [u64; 3] = [1, 29, 7];
/// Since this version, nginx serves 1,000 requests per connection (`ngx_http_core_module.html`).
const THOUSAND_REQUESTS: [u64; 3] = [1, 19, 10];

/// nginx.org/en/docs: `ngx_core_module`, `http/ngx_http_core_module`, `http/ngx_http_proxy_module`,
/// `http/ngx_http_fastcgi_module`, `http/ngx_http_upstream_module`.
const NGINX: &[Directive] = &[
    row(Main, "worker_processes", Processes, Text, Is("1")),
    row(Main, "worker_connections", Workers, Count, Is("512")),
    row(Section, "keepalive_timeout", KeepaliveTimeout, Seconds, Is("75s")),
    row(Section, "keepalive_requests", KeepaliveRequests, Count, REQUESTS),
    row(Section, "proxy_http_version", HttpVersion, Text, IsIfKnown(KEEPS_UPSTREAMS, "1.1", "1.0")),
    row(Section, "proxy_set_header connection", Connection, Text, CONNECTION),
    row(Section, "proxy_connect_timeout", ConnectTimeout, Seconds, Is("60s")),
    row(Section, "proxy_read_timeout", ResponseTimeout, Seconds, Is("60s")),
    row(Section, "proxy_socket_keepalive", Probes, Switch, Is("off")),
    row(Section, "fastcgi_keep_conn", FastcgiKeeps, Switch, Is("off")),
    row(Section, "fastcgi_connect_timeout", FastcgiConnect, Seconds, Is("60s")),
    row(Section, "fastcgi_read_timeout", FastcgiResponse, Seconds, Is("60s")),
    // On Linux. A negative one is the kernel's own limit.
    row(Listen, "backlog", Backlog, Count, Is("511")),
    row(Listen, "rcvbuf", Receive, Size, Nothing),
    row(Listen, "sndbuf", Send, Size, Nothing),
    row(Listen, "so_keepalive", TcpKeepalive, Text, Is("off")),
    row(Upstream, "keepalive", IdleConnections, Count, IsIfKnown(KEEPS_UPSTREAMS, "32", "0")),
    row(Upstream, "keepalive_timeout", IdleTimeout, Seconds, Is("60s")),
    row(Upstream, "keepalive_requests", RequestsPerConnection, Count, REQUESTS),
];
const REQUESTS: Preset = Since(THOUSAND_REQUESTS, "1000", "100");
const CONNECTION: Preset = IsIfKnown(KEEPS_UPSTREAMS, "", "close");

/// httpd.apache.org/docs/2.4/mod: `core`, `mpm_common`, `mod_proxy`.
const APACHE: &[Directive] = &[
    row(Main, "listenbacklog", Backlog, Count, Is("511")),
    row(Main, "maxkeepaliverequests", KeepaliveRequests, Count, Is("100")),
    // ServerLimit, times ThreadsPerChild where the module has threads.
    row(Main, "maxrequestworkers", Workers, Count, Nothing),
    row(Main, "maxclients", Workers, Count, Nothing),
    // 16, or 256 with prefork.
    row(Main, "serverlimit", Limit, Count, Nothing),
    row(Main, "threadsperchild", Threads, Count, Is("25")),
    row(Main, "timeout", ResponseTimeout, Seconds, Is("60")),
    // Timeout.
    row(Main, "proxytimeout", ProxyTimeout, Seconds, Nothing),
    row(Main, "receivebuffersize", Receive, Positive, Nothing),
    row(Main, "sendbuffersize", Send, Positive, Nothing),
    // An old form gives the number of requests.
    row(Section, "keepalive", Keeps, SwitchOrCount, Is("on")),
    row(Section, "keepalivetimeout", KeepaliveTimeout, Seconds, Is("5")),
    row(Upstream, "max", IdleConnections, Count, Nothing),
    row(Upstream, "ttl", IdleTimeout, Seconds, Nothing),
    // The response's time-out.
    row(Upstream, "connectiontimeout", ConnectTimeout, Seconds, Nothing),
    row(Upstream, "acquire", QueueTimeout, Milliseconds, Nothing),
    // ProxyTimeout.
    row(Upstream, "timeout", ResponseTimeout, Seconds, Nothing),
    row(Upstream, "keepalive", Probes, Switch, Is("off")),
    row(Upstream, "enablereuse", Reuses, Switch, Is("on")),
    row(Upstream, "disablereuse", Reuses, Inverse, Is("off")),
];

/// docs.haproxy.org/2.6/configuration.html.
const HAPROXY: &[Directive] = &[
    row(Main, "maxconn", Workers, Count, Nothing),
    row(Main, "tune.rcvbuf.client", Receive, Count, Nothing),
    row(Main, "tune.sndbuf.client", Send, Count, Nothing),
    row(Section, "mode", Mode, Text, Nothing),
    // As many as it may have connections.
    row(Section, "backlog", Backlog, Count, Nothing),
    row(Section, "maxconn", Workers, Count, Nothing),
    row(Section, "timeout client", Client, Milliseconds, Nothing),
    row(Section, "timeout http-request", RequestTimeout, Milliseconds, Nothing),
    // `timeout http-request`, else `timeout client`.
    row(Section, "timeout http-keep-alive", KeepaliveTimeout, Milliseconds, Nothing),
    row(Section, "timeout connect", ConnectTimeout, Milliseconds, Nothing),
    row(Section, "timeout server", ResponseTimeout, Milliseconds, Nothing),
    // `timeout connect`.
    row(Section, "timeout queue", QueueTimeout, Milliseconds, Nothing),
    row(Section, "http-reuse", HttpReuse, Text, Since([2, 0, 0], "safe", "never")),
    row(Section, "option httpclose", Closes, Flag, Nothing),
    row(Section, "option http-server-close", ClosesServer, Flag, Nothing),
    row(Section, "option clitcpka", ClientProbes, Flag, Nothing),
    row(Section, "option srvtcpka", Probes, Flag, Is("off")),
    // The kernel's time, with `option clitcpka`.
    row(Section, "clitcpka-idle", TcpKeepalive, Seconds, Is("0")),
    row(Listen, "backlog", Backlog, Count, Nothing),
    row(Listen, "maxconn", Workers, Count, Nothing),
    // -1 is no limit.
    row(Upstream, "pool-max-conn", IdleConnections, Count, Nothing),
    row(Upstream, "max-reuse", RequestsPerConnection, Count, Nothing),
];

/// `redis.conf` of the program's source.
const REDIS: &[Directive] = &[
    row(Main, "bind", Bind, Words, Nothing),
    row(Main, "port", Port, Count, Is("6379")),
    row(Main, "tls-port", TlsPort, Count, Nothing),
    row(Main, "unixsocket", Socket, Text, Nothing),
    row(Main, "tcp-backlog", Backlog, Count, Is("511")),
    row(Main, "tcp-keepalive", TcpKeepalive, Count, Is("300")),
    // 0 is no time-out here, where other programs mean "immediately" by it.
    row(Main, "timeout", KeepaliveTimeout, Count, Nothing),
    row(Main, "maxclients", Workers, Count, Is("10000")),
    // The folder that it changes to when it starts.
    row(Main, "dir", Folder, Text, Nothing),
];

/// php.net/manual/en/install.fpm.configuration.php.
const PHP_FPM: &[Directive] = &[
    row(Section, "listen", Bind, Text, Nothing),
    // -1 on Linux: as many as the kernel allows. Old versions asked for 511; which one does is not known for
    // sure, so none is claimed.
    row(Section, "listen.backlog", Backlog, Count, Nothing),
    row(Section, "pm.max_children", Workers, Count, Nothing),
    row(Section, "request_terminate_timeout", RequestTimeout, Seconds, Is("0")),
];

/// mariadb.com/kb/en/server-system-variables.
const MARIADB: &[Directive] = &[
    // 50 and a fifth of the connections, at most 900; also where it is set to 0.
    row(Main, "back_log", Backlog, PositiveSize, Nothing),
    row(Main, "bind_address", Bind, Text, Nothing),
    row(Main, "port", Port, Size, Is("3306")),
    row(Main, "extra_port", ExtraPort, PositiveSize, Nothing),
    row(Main, "skip_networking", SkipNetworking, Flag, Nothing),
    row(Main, "socket", Socket, Text, Nothing),
    row(Main, "max_connections", Workers, Size, Is("151")),
    // 0, the default, leaves the time to the kernel; probes are sent in any case.
    row(Main, "tcp_keepalive_time", TcpKeepalive, Size, Nothing),
    row(Main, "wait_timeout", KeepaliveTimeout, Size, Is("28800")),
];

const fn row(
    level: Level,
    name: &'static str,
    field: Field,
    unit: Unit,
    preset: Preset,
) -> Directive {
    Directive { level, name, field, unit, preset }
}

fn of(program: Program) -> &'static [Directive] {
    match program {
        Program::Nginx => NGINX,
        Program::Apache => APACHE,
        Program::Haproxy => HAPROXY,
        Program::Redis => REDIS,
        Program::PhpFpm => PHP_FPM,
        Program::Mariadb => MARIADB,
        // They are configured by their command line: see `apps`.
        Program::App(_) => &[],
    }
}

/// The row of a directive on a level.
pub(super) fn named(program: Program, level: Level, name: &str) -> Option<&'static Directive> {
    of(program).iter().find(|one| one.level == level && one.name == name)
}

/// The unit of a field and its default as text. `is_at_least`: whether the program's version is known to be this
/// one or a later one.
pub(super) fn preset(
    program: Program,
    field: Field,
    is_at_least: impl Fn([u64; 3]) -> Option<bool>,
) -> Option<(Unit, &'static str)> {
    let mut rows = of(program).iter().filter(|one| one.field == field);
    let row = rows.find(|one| !matches!(one.preset, Nothing))?;
    let text = match row.preset {
        Nothing => return None,
        Is(text) => text,
        Since(version, new, old) => {
            if is_at_least(version) == Some(false) {
                old
            } else {
                new
            }
        }
        IsIfKnown(version, new, old) => {
            if is_at_least(version)? {
                new
            } else {
                old
            }
        }
    };
    Some((row.unit, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_read_by_its_own_unit_and_no_directive_stands_twice_on_a_level() {
        for program in Program::ALL {
            for (index, row) in of(program).iter().enumerate() {
                let defaults = match row.preset {
                    Nothing => vec![],
                    Is(text) => vec![text],
                    Since(_, new, old) | IsIfKnown(_, new, old) => vec![new, old],
                };
                for text in defaults {
                    assert!(row.unit.value(&[text.to_owned()]).is_some(), "{}: {text}", row.name);
                }
                let mut before = of(program).iter().take(index);
                assert!(!before.any(|one| (one.level, one.name) == (row.level, row.name)));
                assert_eq!(row.name, row.name.to_ascii_lowercase());
            }
        }
    }
}
