//! nginx: `http`, `server`, `upstream`, `location`, and what each level inherits.

use std::collections::BTreeMap;

use super::blocks::{Directive, Tree};
use super::directives::{Field, Level};
use super::reading::{Reading, address, clipped, count, folder, join, option, seconds, shortest};
use super::settings::Settings;
use super::{ENTRIES_MAX, Listen, Program, ServerConfig, Sourced, Upstream};

/// Configuration files as Debian, Red Hat, Alpine and the official image have it, and as a build
/// from source has it.
const FILES: [&str; 3] =
    ["/etc/nginx/nginx.conf", "/usr/local/nginx/conf/nginx.conf", "/opt/nginx/conf/nginx.conf"];

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let config = reading.config();
    let arguments = arguments(&reading.process.arguments);
    let moved = option(&arguments, "-p");
    let prefix = join(&reading.process.directory, moved.as_deref().unwrap_or("/etc/nginx"));
    let file = match option(&arguments, "-c") {
        Some(file) => Some(join(&prefix, &file)),
        // The path that is compiled in may be absolute: then `-p` does not move it.
        None if moved.is_some() => reading.first_of(&[&join(&prefix, "conf/nginx.conf"), FILES[0]]),
        None => reading.first_of(&FILES),
    };
    let Some(file) = file else { return config };
    let command_line = reading.command_line();
    let mut tree = Tree::new(reading, folder(&file).to_owned());
    let mut all = tree.file(&file, 0);
    if let Some(directives) = option(&arguments, "-g") {
        let given = tree.text(&command_line.file, &(directives + ";"), 0).into_iter();
        all.extend(given.map(|one| Directive { at: command_line.clone(), ..one }));
    }
    Nginx { reading, config, groups: Vec::new(), maps: BTreeMap::new() }.main(&all)
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

/// A level inside another: its own directives, in whatever order, over what it inherits.
fn level(around: &Settings, directives: &[Directive]) -> Settings {
    let mut level = around.clone();
    // Of headers, none is inherited where a level sets any.
    if directives.iter().any(|one| one.name == "proxy_set_header") {
        level.remove(Field::Connection);
    }
    for one in directives {
        match (one.name.as_str(), one.arguments.split_first()) {
            ("proxy_set_header", Some((header, value))) => {
                let name = format!("proxy_set_header {}", header.to_ascii_lowercase());
                level.set(Level::Section, &name, value, &one.at);
            }
            (name, _) => level.set(Level::Section, name, &one.arguments, &one.at),
        }
    }
    level
}

/// What directives set on a level that inherits nothing.
fn own<'d>(on: Level, directives: impl Iterator<Item = &'d Directive>) -> Settings {
    let mut own = Settings::new(Program::Nginx);
    for one in directives {
        own.set(on, &one.name, &one.arguments, &one.at);
    }
    own
}

struct Nginx<'r, 'a> {
    reading: &'r Reading<'a>,
    config: ServerConfig,
    /// `upstream` blocks.
    groups: Vec<Upstream>,
    /// By variable: the value of an ordinary request, whose `$http_upgrade` is empty.
    maps: BTreeMap<String, String>,
}

impl Nginx<'_, '_> {
    fn main(mut self, all: &[Directive]) -> ServerConfig {
        self.workers(all);
        let nothing = Settings::new(Program::Nginx);
        let mut http = nothing.clone();
        for one in all.iter().filter(|one| one.name == "http" || one.name == "stream") {
            let is_http = one.name == "http";
            let groups = one.all("upstream").take(ENTRIES_MAX);
            self.groups = groups.map(|block| self.group(block, is_http)).collect();
            one.all("map").for_each(|block| self.map(block));
            let around = level(&nothing, &one.inside);
            for server in one.all("server") {
                let level = level(&around, &server.inside);
                self.server(server, &level, is_http);
                self.targets(&server.inside, &level, is_http);
            }
            if is_http {
                http = around;
            }
        }
        let mut config = self.config;
        let times = config.listens.iter().map(|one| one.keepalive_timeout_s.clone());
        // A file without a server: what its servers will inherit.
        let timeout = shortest(times).or_else(|| http.get(Field::KeepaliveTimeout));
        config.keepalive_timeout_s = timeout;
        let requests = config.keepalive_requests.take();
        config.keepalive_requests = requests.or_else(|| http.get(Field::KeepaliveRequests));
        config
    }

    /// Connections of all processes: `worker_processes` × `worker_connections`.
    fn workers(&mut self, all: &[Directive]) {
        let events = all.iter().filter(|one| one.name == "events").flat_map(|one| &one.inside);
        let events = own(Level::Main, events);
        let processes = own(Level::Main, all.iter()).plain::<String>(Field::Processes);
        let processes = match processes.as_deref() {
            None => Some(1),
            Some("auto") => Some(self.reading.process.cpus).filter(|&cpus| cpus > 0),
            Some(number) => count(number),
        };
        let connections: Option<Sourced<u64>> = self.reading.value(&events, Field::Workers);
        self.config.workers = processes.zip(connections).and_then(|(processes, connections)| {
            let value = processes.checked_mul(connections.value)?;
            Some(Sourced { value, at: connections.at })
        });
    }

    fn group(&self, block: &Directive, is_http: bool) -> Upstream {
        let own = own(Level::Upstream, block.inside.iter());
        let idle = own.get(Field::IdleConnections);
        let idle = idle.or_else(|| self.reading.preset(Field::IdleConnections).filter(|_| is_http));
        let idle = idle.filter(|idle: &Sourced<u64>| idle.value > 0);
        let keeps = idle.is_some();
        let requests = own.get(Field::RequestsPerConnection);
        let preset = || self.reading.preset(Field::RequestsPerConnection).filter(|_| keeps);
        let servers = block.all("server").filter_map(|one| server_address(one.first()));
        Upstream {
            name: clipped(block.first()),
            servers: servers.take(ENTRIES_MAX).collect(),
            idle_connections: idle,
            idle_timeout_s: self.reading.value(&own, Field::IdleTimeout).filter(|_| keeps),
            requests_per_connection: requests.or_else(preset),
            ..Upstream::default()
        }
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

    fn server(&mut self, server: &Directive, level: &Settings, is_http: bool) {
        let timeout = self.reading.value(level, Field::KeepaliveTimeout).filter(|_| is_http);
        if is_http && self.config.keepalive_requests.is_none() {
            self.config.keepalive_requests = self.reading.value(level, Field::KeepaliveRequests);
        }
        for one in server.all("listen") {
            let first = one.first();
            let on = match first.strip_prefix("unix:") {
                Some(path) => Some(path.to_owned()),
                None => address(first, "0.0.0.0", Some(80)),
            };
            let is_tcp = !one.arguments.iter().any(|one| one == "quic" || one == "udp");
            if let Some(on) = on.filter(|_| is_tcp) {
                self.listen(clipped(&on), Some(one), timeout.clone());
            }
        }
        let none = server.all("listen").next().is_none();
        if none && is_http && self.reading.default(()).is_some() {
            self.listen("0.0.0.0:80".to_owned(), None, timeout);
        }
    }

    /// One address; several servers may share it, of which only one may set its parameters.
    fn listen(&mut self, on: String, by: Option<&Directive>, timeout: Option<Sourced<f64>>) {
        let kernel = self.reading.process.kernel_keepalive_s;
        let known = self.config.listens.iter().position(|listen| listen.on == on);
        if self.config.listens.len() >= ENTRIES_MAX {
            return;
        }
        let index = known.unwrap_or_else(|| {
            let backlog = self.reading.preset(Field::Backlog);
            let tcp_keepalive_s = self.reading.default(0.0).filter(|_| !on.starts_with('/'));
            self.config.listens.push(Listen { on, backlog, tcp_keepalive_s, ..Listen::default() });
            self.config.listens.len() - 1
        });
        let Some(listen) = self.config.listens.get_mut(index) else { return };
        let known = listen.keepalive_timeout_s.take();
        listen.keepalive_timeout_s = shortest([known, timeout].into_iter());
        let Some(by) = by else { return };
        let mut own = Settings::new(Program::Nginx);
        own.parameters(Level::Listen, &by.arguments, &by.at);
        // A negative one is the kernel's own limit.
        if by.arguments.iter().any(|one| one.starts_with("backlog=")) {
            listen.backlog = own.get(Field::Backlog);
        }
        if let Some(buffers) = own.buffers() {
            for all in [&mut listen.buffers, &mut self.config.buffers] {
                let all = all.get_or_insert_default();
                all.receive = buffers.receive.clone().or(all.receive.take());
                all.send = buffers.send.clone().or(all.send.take());
            }
        }
        if let Some(Sourced { value, at }) = own.get::<String>(Field::TcpKeepalive) {
            let time = match (value.as_str(), value.split(':').next()) {
                ("off", _) => Some(0.0),
                ("on", _) | (_, None | Some("")) => Some(kernel),
                (_, Some(idle)) => seconds(idle, 1.0),
            };
            let set = time.map(|value| Sourced { value, at });
            listen.tcp_keepalive_s = set.or(listen.tcp_keepalive_s.take());
        }
    }

    /// What requests are passed to, on this level and those inside.
    fn targets(&mut self, directives: &[Directive], around: &Settings, is_http: bool) {
        for one in directives {
            match one.name.as_str() {
                "proxy_pass" => self.proxied(one.first(), around, is_http),
                "fastcgi_pass" => self.fastcgi(one.first(), around),
                "location" | "if" | "limit_except" => {
                    self.targets(&one.inside, &level(around, &one.inside), is_http);
                }
                _ => {}
            }
        }
    }

    fn proxied(&mut self, target: &str, level: &Settings, is_http: bool) {
        let (host, port) = match target.split_once("://") {
            Some((scheme, rest)) => (rest, if scheme == "https" { 443 } else { 80 }),
            None if is_http => return,
            None => (target, 0),
        };
        let host = match host.strip_prefix("unix:") {
            Some(path) => path.split(':').next().unwrap_or(path),
            None => host.split('/').next().unwrap_or(host),
        };
        let response = self.reading.value(level, Field::ResponseTimeout);
        let upstream = Upstream {
            reuses: if is_http { self.reuses(level) } else { None },
            connect_timeout_s: self.reading.value(level, Field::ConnectTimeout),
            response_timeout_s: response.filter(|_| is_http),
            probes: self.reading.value(level, Field::Probes),
            ..Upstream::default()
        };
        self.upstream(host, port, upstream);
    }

    /// Whether requests let the connection be reused, and the directive that decides it.
    fn reuses(&self, level: &Settings) -> Option<Sourced<bool>> {
        let version: Option<Sourced<String>> = self.reading.value(level, Field::HttpVersion);
        let field: Sourced<String> = self.reading.value(level, Field::Connection)?;
        let value = match self.maps.get(&field.value) {
            Some(value) => value,
            None if field.value.starts_with('$') => return None,
            None => &field.value,
        };
        let value = value.trim().to_ascii_lowercase();
        if value == "close" {
            return Some(Sourced { value: false, at: field.at });
        }
        let version = version?;
        let is_old = version.value == "1.0" && value != "keep-alive";
        Some(Sourced { value: !is_old, at: if is_old { version.at } else { field.at } })
    }

    fn fastcgi(&mut self, target: &str, level: &Settings) {
        let upstream = Upstream {
            reuses: self.reading.value(level, Field::FastcgiKeeps),
            fastcgi: true,
            connect_timeout_s: self.reading.value(level, Field::FastcgiConnect),
            response_timeout_s: self.reading.value(level, Field::FastcgiResponse),
            ..Upstream::default()
        };
        self.upstream(target.strip_prefix("unix:").unwrap_or(target), 9000, upstream);
    }

    /// Adds a target with the group it names. One that is decided per request (`$backend`) is
    /// passed over; the same target with the same settings is kept once.
    fn upstream(&mut self, host: &str, port: u16, settings: Upstream) {
        if host.is_empty() || host.contains('$') {
            return;
        }
        let alone = || {
            let server = if host.starts_with('/') { Some(host.to_owned()) } else { None };
            let server = server.or_else(|| address(host, "localhost", Some(port)))?;
            let servers = vec![clipped(&server)];
            Some(Upstream { name: clipped(host), servers, ..Upstream::default() })
        };
        let group = self.groups.iter().find(|group| group.name == host).cloned();
        let Some(group) = group.or_else(alone) else { return };
        let upstream = Upstream {
            name: group.name,
            servers: group.servers,
            idle_connections: group.idle_connections,
            idle_timeout_s: group.idle_timeout_s,
            requests_per_connection: group.requests_per_connection,
            ..settings
        };
        let value = |one: &Upstream| one.reuses.as_ref().map(|reuses| reuses.value);
        let same = |one: &Upstream| one.name == upstream.name && value(one) == value(&upstream);
        if self.config.upstreams.len() < ENTRIES_MAX && !self.config.upstreams.iter().any(same) {
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
