//! `HAProxy`: `global`, `defaults`, `frontend`, `backend` and `listen`.

use super::reading::{Reading, address, clipped, count, join, place, seconds, words};
use super::{Buffers, ConfigPosition, ENTRIES_MAX, Listen, ServerConfig, Sourced, Upstream};

/// Its configuration file in packages of Debian, Red Hat and Alpine, and in the official image.
const FILES: [&str; 2] = ["/etc/haproxy/haproxy.cfg", "/usr/local/etc/haproxy/haproxy.cfg"];

/// What a section sets, or inherits from `defaults`.
#[derive(Clone, Default)]
struct Settings {
    is_http: bool,
    backlog: Option<Sourced<u64>>,
    maxconn: Option<Sourced<u64>>,
    client: Option<Sourced<f64>>,
    request: Option<Sourced<f64>>,
    keepalive: Option<Sourced<f64>>,
    connect: Option<Sourced<f64>>,
    server: Option<Sourced<f64>>,
    queue: Option<Sourced<f64>>,
    /// `http-reuse`.
    reuse: Option<Sourced<String>>,
    /// `option httpclose`.
    closes: Option<Sourced<bool>>,
    /// `option http-server-close`.
    closes_server: Option<Sourced<bool>>,
    client_probes: Option<Sourced<bool>>,
    client_probes_idle: Option<Sourced<f64>>,
    server_probes: Option<Sourced<bool>>,
    pool_max: Option<Sourced<u64>>,
    no_pool: bool,
    pool_requests: Option<Sourced<u64>>,
}

struct Section {
    kind: String,
    name: String,
    settings: Settings,
    binds: Vec<Bind>,
    servers: Vec<String>,
}

struct Bind {
    on: String,
    backlog: Option<Sourced<u64>>,
    maxconn: Option<Sourced<u64>>,
}

#[derive(Default)]
struct Global {
    maxconn: Option<Sourced<u64>>,
    buffers: Buffers,
}

struct Haproxy {
    global: Global,
    defaults: Vec<(String, Settings)>,
    sections: Vec<Section>,
}

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let mut config = reading.config();
    let mut files = files(reading);
    if files.is_empty() {
        match reading.first_of(&FILES) {
            Some(file) => files.push(file),
            None => return config,
        }
    }
    let mut haproxy =
        Haproxy { global: Global::default(), defaults: Vec::new(), sections: Vec::new() };
    for file in files {
        // A folder stands for the files in it that end with .cfg.
        let inside = format!("{}/*.cfg", file.trim_end_matches('/'));
        let inside = reading.included(&inside, 0, true);
        let paths = if inside.is_empty() { vec![file] } else { inside };
        for path in paths {
            haproxy.file(reading, &path);
        }
    }
    haproxy.fill(reading, &mut config);
    config
}

/// Files after each `-f`, and after `--`.
fn files(reading: &Reading<'_>) -> Vec<String> {
    let process = reading.process;
    let mut arguments = process.arguments.iter().skip(1).peekable();
    let (mut files, mut is_file, mut directory) = (Vec::new(), false, process.directory.clone());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-f" => {
                // Several files may follow one option.
                while let Some(file) = arguments.next_if(|next| !next.starts_with('-')) {
                    files.push(file.clone());
                }
            }
            "-C" => {
                directory = arguments.next().map_or(directory, |one| join(&process.directory, one));
            }
            "--" => is_file = true,
            other if is_file => files.push(other.to_owned()),
            _ => {}
        }
    }
    files.truncate(256);
    files.iter().map(|file| join(&directory, file)).collect()
}

impl Haproxy {
    fn file(&mut self, reading: &mut Reading<'_>, path: &str) {
        let Some(text) = reading.text(path) else { return };
        let mut kind = String::new();
        for (line, content) in text.lines().enumerate() {
            let before_comment = content.split(" #").next().unwrap_or(content);
            let words = words(before_comment, Some('#'));
            let Some((first, values)) = words.split_first() else { continue };
            let at = place(path, line);
            if is_section(first) {
                kind.clone_from(first);
                self.open(first, values, &at);
                continue;
            }
            match kind.as_str() {
                "global" => self.global.set(first, values, &at),
                "defaults" => {
                    if let Some((_, settings)) = self.defaults.last_mut() {
                        settings.set(first, values, &at);
                    }
                }
                "frontend" | "backend" | "listen" => {
                    if let Some(section) = self.sections.last_mut() {
                        section.set(first, values, &at);
                    }
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, kind: &str, values: &[String], at: &ConfigPosition) {
        let name = clipped(values.first().map_or("", String::as_str));
        let from = values.iter().position(|one| one == "from");
        let from = from.and_then(|at| values.get(at + 1));
        let parent = match from {
            Some(from) => self.defaults.iter().rev().find(|(name, _)| name == from),
            None => self.defaults.last(),
        };
        let inherited = parent.map(|(_, settings)| settings.clone()).unwrap_or_default();
        match kind {
            // A new one starts anew, unless it is told from which.
            "defaults" if self.defaults.len() < 256 => {
                let settings = if from.is_some() { inherited } else { Settings::default() };
                self.defaults.push((name, settings));
            }
            "frontend" | "backend" | "listen" if self.sections.len() < 1_024 => {
                let (binds, servers) = (Vec::new(), Vec::new());
                let kind = kind.to_owned();
                let mut section = Section { kind, name, settings: inherited, binds, servers };
                // An old form has the address behind the name.
                if let Some(on) = values.get(1).filter(|on| on.contains(':')) {
                    section.bind(std::slice::from_ref(on), at);
                }
                self.sections.push(section);
            }
            _ => {}
        }
    }

    fn fill(self, reading: &Reading<'_>, config: &mut ServerConfig) {
        let Self { global, sections, .. } = self;
        config.workers.clone_from(&global.maxconn);
        config.buffers =
            Some(global.buffers).filter(|one| one.receive.is_some() || one.send.is_some());
        for section in sections {
            let settings = &section.settings;
            let listens_max = global.maxconn.clone();
            let left = ENTRIES_MAX.saturating_sub(config.listens.len());
            for bind in section.binds.iter().take(left) {
                // Without a backlog, HAProxy asks for as many as it may have connections.
                let maxconn = settings.maxconn.clone().or_else(|| bind.maxconn.clone());
                let workers = maxconn.or_else(|| listens_max.clone());
                let backlog = bind.backlog.clone().or_else(|| settings.backlog.clone());
                config.listens.push(Listen {
                    on: bind.on.clone(),
                    backlog: backlog.or_else(|| workers.clone()),
                    section: Some(section.name.clone()),
                    keepalive_timeout_s: settings.idle_of_clients(),
                    tcp_keepalive_s: settings.probes_of_clients(reading),
                    workers,
                    request_timeout_s: settings.request.clone(),
                    buffers: None,
                });
            }
            if section.servers.is_empty() || config.upstreams.len() >= ENTRIES_MAX {
                continue;
            }
            config.upstreams.push(Upstream {
                name: section.name.clone(),
                servers: section.servers.clone(),
                idle_connections: settings.pool_max.clone(),
                // It closes idle connections by demand, not after a time.
                idle_timeout_s: None,
                requests_per_connection: settings.pool_requests.clone(),
                reuses: settings.reuses(reading),
                fastcgi: false,
                connect_timeout_s: settings.connect.clone(),
                queue_timeout_s: settings.queue.clone().or_else(|| settings.connect.clone()),
                response_timeout_s: settings.server.clone(),
                probes: settings.server_probes.clone().or_else(|| reading.default(false)),
            });
        }
        let shortest = config.listens.iter().filter_map(|one| one.keepalive_timeout_s.clone());
        config.keepalive_timeout_s =
            shortest.min_by(|one, other| one.value.total_cmp(&other.value));
    }
}

fn is_section(word: &str) -> bool {
    let others = [
        "global",
        "defaults",
        "frontend",
        "backend",
        "listen",
        "peers",
        "resolvers",
        "userlist",
        "cache",
        "mailers",
        "program",
        "ring",
        "http-errors",
        "fcgi-app",
        "log-forward",
        "crt-store",
        "traces",
        "log-profile",
        "acme",
    ];
    others.contains(&word)
}

fn number(values: &[String], at: &ConfigPosition) -> Option<Sourced<u64>> {
    Some(Sourced { value: count(values.first()?)?, at: at.clone() })
}

/// The value behind a word of a line: `backlog 512`.
fn behind<'v>(values: &'v [String], name: &str) -> Option<&'v [String]> {
    let at = values.iter().position(|one| one == name)?;
    values.get(at + 1..)
}

impl Global {
    fn set(&mut self, name: &str, values: &[String], at: &ConfigPosition) {
        match name {
            "maxconn" => self.maxconn = number(values, at),
            "tune.rcvbuf.client" => self.buffers.receive = number(values, at),
            "tune.sndbuf.client" => self.buffers.send = number(values, at),
            _ => {}
        }
    }
}

impl Section {
    fn set(&mut self, name: &str, values: &[String], at: &ConfigPosition) {
        match name {
            "bind" if self.kind != "backend" => self.bind(values, at),
            "server" if self.kind != "frontend" => {
                if let Some(server) = values.get(1).and_then(|one| target(one, "localhost"))
                    && self.servers.len() < 256
                {
                    self.servers.push(clipped(&server));
                }
                self.settings.server_options(values.get(2..).unwrap_or_default(), at);
            }
            _ => self.settings.set(name, values, at),
        }
    }

    fn bind(&mut self, values: &[String], at: &ConfigPosition) {
        let Some((addresses, options)) = values.split_first() else { return };
        for on in addresses.split(',') {
            let Some(on) = target(on, "0.0.0.0") else { continue };
            let option = |name: &str| number(behind(options, name)?, at);
            let (backlog, maxconn) = (option("backlog"), option("maxconn"));
            if self.binds.len() < 256 {
                self.binds.push(Bind { on: clipped(&on), backlog, maxconn });
            }
        }
    }
}

/// An address with a port, or the path of a Unix socket.
fn target(text: &str, any: &str) -> Option<String> {
    if let Some(path) = text.strip_prefix("unix@") {
        return Some(path.to_owned());
    }
    if text.starts_with('/') {
        return Some(text.to_owned());
    }
    if text.starts_with("quic") || text.starts_with("fd@") || text.starts_with("abns@") {
        return None;
    }
    let text = text.strip_prefix("ipv4@").unwrap_or(text);
    let (text, any) = match text.strip_prefix("ipv6@") {
        Some(rest) => (rest, "[::]"),
        None => (text, any),
    };
    address(text, any, None)
}

impl Settings {
    fn set(&mut self, name: &str, values: &[String], at: &ConfigPosition) {
        let (name, values, is_on) = match (name, values.split_first()) {
            ("no", Some((name, values))) => (name.as_str(), values, false),
            _ => (name, values, true),
        };
        let first = values.first().map_or("", String::as_str);
        match name {
            "mode" => self.is_http = first == "http",
            "backlog" => self.backlog = number(values, at),
            "maxconn" => self.maxconn = number(values, at),
            "timeout" => {
                let time = values.get(1).and_then(|time| seconds(time, 1e-3));
                let time = time.map(|value| Sourced { value, at: at.clone() });
                match first {
                    "client" => self.client = time,
                    "http-request" => self.request = time,
                    "http-keep-alive" => self.keepalive = time,
                    "connect" => self.connect = time,
                    "server" => self.server = time,
                    "queue" => self.queue = time,
                    _ => {}
                }
            }
            "http-reuse" => {
                self.reuse = Some(Sourced { value: clipped(first), at: at.clone() });
            }
            "clitcpka-idle" => {
                let time = seconds(first, 1.0);
                self.client_probes_idle = time.map(|value| Sourced { value, at: at.clone() });
            }
            "option" => {
                let set = Some(Sourced { value: is_on, at: at.clone() });
                match first {
                    "httpclose" => self.closes = set,
                    "http-server-close" => self.closes_server = set,
                    // It ends the two others.
                    "http-keep-alive" if is_on => {
                        self.closes = None;
                        self.closes_server = None;
                    }
                    "clitcpka" => self.client_probes = set,
                    "srvtcpka" => self.server_probes = set,
                    "tcpka" => {
                        self.client_probes.clone_from(&set);
                        self.server_probes = set;
                    }
                    _ => {}
                }
            }
            "default-server" => self.server_options(values, at),
            _ => {}
        }
    }

    fn server_options(&mut self, values: &[String], at: &ConfigPosition) {
        if let Some(values) = behind(values, "pool-max-conn") {
            // -1 is no limit.
            self.pool_max = number(values, at);
            self.no_pool = self.pool_max.as_ref().is_some_and(|max| max.value == 0);
        }
        if let Some(values) = behind(values, "max-reuse") {
            self.pool_requests = number(values, at);
        }
    }

    /// After which time an idle connection of a client is closed.
    fn idle_of_clients(&self) -> Option<Sourced<f64>> {
        if !self.is_http {
            return self.client.clone();
        }
        if let Some(closes) = self.closes.as_ref().filter(|closes| closes.value) {
            return Some(Sourced { value: 0.0, at: closes.at.clone() });
        }
        let time = self.keepalive.clone().or_else(|| self.request.clone());
        time.or_else(|| self.client.clone())
    }

    fn probes_of_clients(&self, reading: &Reading<'_>) -> Option<Sourced<f64>> {
        let Some(probes) = &self.client_probes else { return reading.default(0.0) };
        if !probes.value {
            return Some(Sourced { value: 0.0, at: probes.at.clone() });
        }
        let kernel = reading.process.kernel_keepalive_s;
        let kernel = Sourced { value: kernel, at: probes.at.clone() };
        Some(self.client_probes_idle.clone().unwrap_or(kernel))
    }

    /// Whether connections to servers serve more than one request.
    fn reuses(&self, reading: &Reading<'_>) -> Option<Sourced<bool>> {
        if !self.is_http {
            return None;
        }
        let closing = [&self.closes, &self.closes_server].into_iter().flatten();
        if let Some(closes) = closing.into_iter().find(|closes| closes.value) {
            return Some(Sourced { value: false, at: closes.at.clone() });
        }
        if self.no_pool
            && let Some(max) = &self.pool_max
        {
            return Some(Sourced { value: false, at: max.at.clone() });
        }
        match &self.reuse {
            Some(reuse) => Some(Sourced { value: reuse.value != "never", at: reuse.at.clone() }),
            // `safe` since version 2.0; before, none.
            None => reading.default(reading.is_at_least([2, 0, 0]).unwrap_or(true)),
        }
    }
}
