//! nginx: `http`, `server`, `upstream`, `location`, and what each level inherits.

use std::collections::BTreeMap;

use super::nginx_tree::{Directive, Tree};
use super::reading::{
    Reading, address, clipped, count, folder, join, option, seconds, size, switch,
};
use super::{Buffers, ENTRIES_MAX, Listen, ServerConfig, Sourced, Upstream};

/// Configuration files as Debian, Red Hat, Alpine and the official image have it, and as a build
/// from source has it.
const FILES: [&str; 3] =
    ["/etc/nginx/nginx.conf", "/usr/local/nginx/conf/nginx.conf", "/opt/nginx/conf/nginx.conf"];

/// nginx asks for this backlog on Linux.
const BACKLOG: u64 = 511;

/// Since this version, nginx keeps connections to upstreams without being told to.
const KEEPS_UPSTREAMS: [u64; 3] = [1, 29, 7];

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let mut config = reading.config();
    let arguments = arguments(&reading.process.arguments);
    let prefix = option(&arguments, "-p").unwrap_or_else(|| "/etc/nginx".to_owned());
    let prefix = join(&reading.process.directory, &prefix);
    let file = match option(&arguments, "-c") {
        Some(file) => join(&prefix, &file),
        None => match option(&arguments, "-p").map(|_| join(&prefix, "conf/nginx.conf")) {
            // The path that is compiled in may be absolute: then `-p` does not move it.
            Some(own) => match reading.first_of(&[own.as_str(), FILES[0]]) {
                Some(file) => file,
                None => return config,
            },
            None => match reading.first_of(&FILES) {
                Some(file) => file,
                None => return config,
            },
        },
    };
    let command_line = reading.command_line().file;
    let mut tree = Tree::new(reading, folder(&file).to_owned());
    let mut all = tree.file(&file, 0);
    if let Some(directives) = option(&arguments, "-g") {
        all.extend(tree.text(&command_line, &(directives + ";"), 0, false));
    }
    Nginx { reading, config: &mut config, groups: Vec::new(), maps: BTreeMap::new() }.main(&all);
    config
}

/// The arguments of nginx; a main process shows them in its title, joined by blanks.
fn arguments(arguments: &[String]) -> Vec<String> {
    let Some(title) = arguments.first().and_then(|title| title.split_once("master process "))
    else {
        return arguments.to_vec();
    };
    let mut all: Vec<String> = Vec::new();
    for word in title.1.split_whitespace() {
        let is_option = word.len() == 2 && word.starts_with('-');
        // What follows `-g` has blanks of its own.
        let after_g = all.len() >= 2 && all.get(all.len() - 2).is_some_and(|one| one == "-g");
        match all.last_mut() {
            Some(last) if after_g && !is_option => {
                last.push(' ');
                last.push_str(word);
            }
            _ => all.push(word.to_owned()),
        }
    }
    all
}

/// What a level of the configuration inherits from the level around it.
#[derive(Clone, Default)]
struct Level {
    keepalive_timeout: Option<Sourced<f64>>,
    keepalive_requests: Option<Sourced<u64>>,
    http_version: Option<Sourced<String>>,
    /// `proxy_set_header Connection` of the nearest level that sets any header: of others, none is
    /// inherited.
    connection: Option<Sourced<String>>,
    connect_timeout: Option<Sourced<f64>>,
    read_timeout: Option<Sourced<f64>>,
    proxy_probes: Option<Sourced<bool>>,
    fastcgi_keep: Option<Sourced<bool>>,
    fastcgi_connect_timeout: Option<Sourced<f64>>,
    fastcgi_read_timeout: Option<Sourced<f64>>,
}

impl Level {
    /// This level inside itself: its own directives, in whatever order, over what it inherits.
    fn with(&self, directives: &[Directive]) -> Self {
        let mut level = self.clone();
        let sets_headers = |one: &Directive| one.name == "proxy_set_header";
        if directives.iter().any(sets_headers) {
            level.connection = None;
        }
        for one in directives {
            let first = one.first();
            let time = || sourced(one, seconds(first, 1.0));
            match one.name.as_str() {
                "keepalive_timeout" => put(&mut level.keepalive_timeout, time()),
                "keepalive_requests" => {
                    put(&mut level.keepalive_requests, sourced(one, count(first)));
                }
                "proxy_http_version" => {
                    put(&mut level.http_version, sourced(one, Some(first.to_owned())));
                }
                "proxy_set_header" if first.eq_ignore_ascii_case("connection") => {
                    let value = one.arguments.get(1).cloned().unwrap_or_default();
                    put(&mut level.connection, sourced(one, Some(value)));
                }
                "proxy_connect_timeout" => put(&mut level.connect_timeout, time()),
                "proxy_read_timeout" => put(&mut level.read_timeout, time()),
                "proxy_socket_keepalive" => {
                    put(&mut level.proxy_probes, sourced(one, switch(first)));
                }
                "fastcgi_keep_conn" => put(&mut level.fastcgi_keep, sourced(one, switch(first))),
                "fastcgi_connect_timeout" => put(&mut level.fastcgi_connect_timeout, time()),
                "fastcgi_read_timeout" => put(&mut level.fastcgi_read_timeout, time()),
                _ => {}
            }
        }
        level
    }
}

fn put<T>(slot: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *slot = value;
    }
}

fn sourced<T>(directive: &Directive, value: Option<T>) -> Option<Sourced<T>> {
    Some(Sourced { value: value?, at: directive.at.clone() })
}

/// An `upstream` block.
struct Group {
    name: String,
    servers: Vec<String>,
    idle: Option<Sourced<u64>>,
    idle_timeout: Option<Sourced<f64>>,
    requests: Option<Sourced<u64>>,
}

struct Nginx<'r, 'a> {
    reading: &'r Reading<'a>,
    config: &'r mut ServerConfig,
    groups: Vec<Group>,
    /// By variable: the value of an ordinary request, whose `$http_upgrade` is empty.
    maps: BTreeMap<String, String>,
}

impl Nginx<'_, '_> {
    fn main(&mut self, all: &[Directive]) {
        self.workers(all);
        let mut http = Level::default();
        for one in all.iter().filter(|one| one.name == "http" || one.name == "stream") {
            let is_http = one.name == "http";
            self.groups.clear();
            for inside in &one.inside {
                match inside.name.as_str() {
                    "upstream" if self.groups.len() < ENTRIES_MAX => self.group(inside, is_http),
                    "map" => self.map(inside),
                    _ => {}
                }
            }
            let level = Level::default().with(&one.inside);
            if is_http {
                http = level.clone();
            }
            for server in one.inside.iter().filter(|inside| inside.name == "server") {
                let level = level.with(&server.inside);
                self.server(server, &level, is_http);
                self.targets(&server.inside, &level, is_http);
            }
        }
        let listens = self.config.listens.iter();
        self.config.keepalive_timeout_s = listens
            .filter_map(|one| one.keepalive_timeout_s.clone())
            .min_by(|one, other| one.value.total_cmp(&other.value))
            // A file without a server: what its servers will inherit.
            .or(http.keepalive_timeout);
        let requests = self.config.keepalive_requests.take();
        self.config.keepalive_requests = requests.or(http.keepalive_requests);
    }

    /// Connections of all processes: `worker_processes` × `worker_connections`.
    fn workers(&mut self, all: &[Directive]) {
        let processes = all.iter().rev().find(|one| one.name == "worker_processes");
        let processes = match processes.map(Directive::first) {
            None => Some(1),
            Some("auto") => Some(self.reading.process.cpus).filter(|&cpus| cpus > 0),
            Some(number) => count(number),
        };
        let events = all.iter().filter(|one| one.name == "events").flat_map(|one| &one.inside);
        let connections = events
            .filter(|one| one.name == "worker_connections")
            .find_map(|one| sourced(one, count(one.first())));
        let connections = connections.or_else(|| self.reading.default(512));
        self.config.workers = processes.zip(connections).and_then(|(processes, connections)| {
            let value = processes.checked_mul(connections.value)?;
            Some(Sourced { value, at: connections.at })
        });
    }

    fn group(&mut self, block: &Directive, is_http: bool) {
        let own = |name: &str| block.inside.iter().rev().find(|one| one.name == name);
        let keeps = self.reading.is_at_least(KEEPS_UPSTREAMS) == Some(true) && is_http;
        let idle = own("keepalive").and_then(|one| sourced(one, count(one.first())));
        let idle = idle.or_else(|| if keeps { self.reading.default(32) } else { None });
        let idle = idle.filter(|idle| idle.value > 0);
        let keeps = idle.is_some();
        let time = own("keepalive_timeout").and_then(|one| sourced(one, seconds(one.first(), 1.0)));
        let requests = own("keepalive_requests").and_then(|one| sourced(one, count(one.first())));
        let requests =
            requests.or_else(|| self.reading.default(self.requests_default()).filter(|_| keeps));
        let servers = block.inside.iter().filter(|one| one.name == "server");
        self.groups.push(Group {
            name: clipped(block.first()),
            servers: servers.filter_map(|one| server_address(one.first())).take(256).collect(),
            idle,
            idle_timeout: time.or_else(|| self.reading.default(60.0)).filter(|_| keeps),
            requests,
        });
    }

    /// `keepalive_requests` if nothing sets it: 100 before nginx 1.19.10.
    fn requests_default(&self) -> u64 {
        if self.reading.is_at_least([1, 19, 10]) == Some(false) { 100 } else { 1_000 }
    }

    /// A `map` from `$http_upgrade`, by which `Connection` is often set.
    fn map(&mut self, block: &Directive) {
        let ([source, target], true) = (&block.arguments[..], self.maps.len() < 256) else {
            return;
        };
        if source != "$http_upgrade" {
            return;
        }
        let entry = |key: &str| block.inside.iter().find(|one| one.name == key);
        // The empty value of an ordinary request, else the default, which itself defaults to "".
        let value = entry("").or_else(|| entry("default")).map_or("", Directive::first);
        self.maps.insert(target.clone(), value.to_owned());
    }

    fn server(&mut self, server: &Directive, level: &Level, is_http: bool) {
        let timeout = level.keepalive_timeout.clone().or_else(|| self.reading.default(75.0));
        let timeout = timeout.filter(|_| is_http);
        if is_http && self.config.keepalive_requests.is_none() {
            let requests = level.keepalive_requests.clone();
            self.config.keepalive_requests =
                requests.or_else(|| self.reading.default(self.requests_default()));
        }
        let mut any = false;
        for one in server.inside.iter().filter(|one| one.name == "listen") {
            any = true;
            if one.arguments.iter().any(|argument| argument == "quic" || argument == "udp") {
                continue;
            }
            let first = one.first();
            let on = match first.strip_prefix("unix:") {
                Some(path) => Some(path.to_owned()),
                None => address(first, "0.0.0.0", Some(80)),
            };
            if let Some(on) = on {
                self.listen(clipped(&on), Some(one), timeout.clone());
            }
        }
        if !any && is_http && self.reading.default(()).is_some() {
            self.listen("0.0.0.0:80".to_owned(), None, timeout);
        }
    }

    /// One address; several servers may share it, of which only one may set its parameters.
    fn listen(&mut self, on: String, by: Option<&Directive>, timeout: Option<Sourced<f64>>) {
        if self.config.listens.len() >= ENTRIES_MAX {
            return;
        }
        let known = self.config.listens.iter().position(|listen| listen.on == on);
        let index = known.unwrap_or_else(|| {
            let backlog = self.reading.default(BACKLOG);
            let tcp_keepalive_s = self.reading.default(0.0).filter(|_| !on.starts_with('/'));
            self.config.listens.push(Listen { on, backlog, tcp_keepalive_s, ..Listen::default() });
            self.config.listens.len() - 1
        });
        let kernel = self.reading.process.kernel_keepalive_s;
        let Some(listen) = self.config.listens.get_mut(index) else { return };
        let known = listen.keepalive_timeout_s.take();
        listen.keepalive_timeout_s = match (known, timeout) {
            (Some(known), Some(own)) if own.value < known.value => Some(own),
            (known, own) => known.or(own),
        };
        let Some(by) = by else { return };
        for parameter in by.arguments.iter().skip(1) {
            let Some((name, value)) = parameter.split_once('=') else { continue };
            match name {
                // A negative one is the kernel's own limit.
                "backlog" => listen.backlog = sourced(by, count(value)),
                "rcvbuf" | "sndbuf" => {
                    let buffers = listen.buffers.get_or_insert_default();
                    let slot =
                        if name == "rcvbuf" { &mut buffers.receive } else { &mut buffers.send };
                    put(slot, sourced(by, size(value)));
                    let all: &mut Buffers = self.config.buffers.get_or_insert_default();
                    let all = if name == "rcvbuf" { &mut all.receive } else { &mut all.send };
                    put(all, sourced(by, size(value)));
                }
                "so_keepalive" => {
                    let time = match value {
                        "on" => Some(kernel),
                        "off" => Some(0.0),
                        _ => match value.split(':').next().unwrap_or_default() {
                            "" => Some(kernel),
                            idle => seconds(idle, 1.0),
                        },
                    };
                    put(&mut listen.tcp_keepalive_s, sourced(by, time));
                }
                _ => {}
            }
        }
    }

    /// What requests are passed to, on this level and those inside.
    fn targets(&mut self, directives: &[Directive], level: &Level, is_http: bool) {
        for one in directives {
            match one.name.as_str() {
                "proxy_pass" => self.proxied(one, level, is_http),
                "fastcgi_pass" => self.fastcgi(one, level),
                "location" | "if" | "limit_except" => {
                    self.targets(&one.inside, &level.with(&one.inside), is_http);
                }
                _ => {}
            }
        }
    }

    fn proxied(&mut self, one: &Directive, level: &Level, is_http: bool) {
        let target = one.first();
        let (host, port) = match target.split_once("://") {
            Some((scheme, rest)) => (rest, if scheme == "https" { 443 } else { 80 }),
            None if is_http => return,
            None => (target, 0),
        };
        let host = match host.strip_prefix("unix:") {
            Some(path) => path.split(':').next().unwrap_or(path),
            None => host.split('/').next().unwrap_or(host),
        };
        let reuses = if is_http { self.reuses(level) } else { None };
        let upstream = Upstream {
            reuses,
            connect_timeout_s: level.connect_timeout.clone().or_else(|| self.reading.default(60.0)),
            response_timeout_s: level
                .read_timeout
                .clone()
                .or_else(|| self.reading.default(60.0))
                .filter(|_| is_http),
            probes: level.proxy_probes.clone().or_else(|| self.reading.default(false)),
            ..Upstream::default()
        };
        self.upstream(host, port, upstream);
    }

    /// Whether requests let the connection be reused, and the directive that decides it.
    fn reuses(&self, level: &Level) -> Option<Sourced<bool>> {
        let newer = self.reading.is_at_least(KEEPS_UPSTREAMS);
        let default_version = match newer {
            Some(true) => self.reading.default("1.1".to_owned()),
            Some(false) => self.reading.default("1.0".to_owned()),
            // Not known, and the versions differ.
            None => None,
        };
        let version = level.http_version.clone().or(default_version);
        let field = if let Some(field) = &level.connection {
            let value = match self.maps.get(&field.value) {
                Some(value) => value.clone(),
                None if field.value.starts_with('$') => return None,
                None => field.value.clone(),
            };
            Sourced { value, at: field.at.clone() }
        } else {
            let close = if newer? { "" } else { "close" };
            self.reading.default(close.to_owned())?
        };
        let value = field.value.trim().to_ascii_lowercase();
        if value == "close" {
            return Some(Sourced { value: false, at: field.at });
        }
        let version = version?;
        let is_old = version.value == "1.0" && value != "keep-alive";
        Some(Sourced { value: !is_old, at: if is_old { version.at } else { field.at } })
    }

    fn fastcgi(&mut self, one: &Directive, level: &Level) {
        let target = one.first();
        let host = target.strip_prefix("unix:").unwrap_or(target);
        let upstream = Upstream {
            reuses: level.fastcgi_keep.clone().or_else(|| self.reading.default(false)),
            fastcgi: true,
            connect_timeout_s: level
                .fastcgi_connect_timeout
                .clone()
                .or_else(|| self.reading.default(60.0)),
            response_timeout_s: level
                .fastcgi_read_timeout
                .clone()
                .or_else(|| self.reading.default(60.0)),
            ..Upstream::default()
        };
        self.upstream(host, 9000, upstream);
    }

    /// Adds a target with the group it names. One that is decided per request (`$backend`) is
    /// passed over; the same target with the same settings is kept once.
    fn upstream(&mut self, host: &str, port: u16, settings: Upstream) {
        if host.is_empty() || host.contains('$') {
            return;
        }
        let group = self.groups.iter().find(|group| group.name == host);
        let upstream = match group {
            Some(group) => Upstream {
                name: group.name.clone(),
                servers: group.servers.clone(),
                idle_connections: group.idle.clone(),
                idle_timeout_s: group.idle_timeout.clone(),
                requests_per_connection: group.requests.clone(),
                ..settings
            },
            None if host.starts_with('/') => {
                Upstream { name: clipped(host), servers: vec![clipped(host)], ..settings }
            }
            None => {
                let Some(server) = address(host, "localhost", Some(port)) else { return };
                Upstream { name: clipped(host), servers: vec![clipped(&server)], ..settings }
            }
        };
        let same = |one: &Upstream| {
            let value = |one: &Upstream| one.reuses.as_ref().map(|reuses| reuses.value);
            one.name == upstream.name && value(one) == value(&upstream)
        };
        if self.config.upstreams.len() < 256 && !self.config.upstreams.iter().any(same) {
            self.config.upstreams.push(upstream);
        }
    }
}

/// The address of a `server` line of an upstream.
fn server_address(text: &str) -> Option<String> {
    let address = match text.strip_prefix("unix:") {
        Some(path) => path.to_owned(),
        None => address(text, "localhost", Some(80))?,
    };
    Some(clipped(&address))
}
