//! `HAProxy`: `global`, `defaults`, `frontend`, `backend` and `listen`.

use super::directives::{Field, Level};
use super::lines::{Grammar, Line, lines, plain};
use super::reading::{Reading, address, clipped, join, shortest};
use super::settings::Settings;
use super::{ConfigPosition, ENTRIES_MAX, Listen, Program, ServerConfig, Sourced, Upstream};

/// Its configuration file in packages of Debian, Red Hat and Alpine, and in the official image.
const FILES: [&str; 2] = ["/etc/haproxy/haproxy.cfg", "/usr/local/etc/haproxy/haproxy.cfg"];
/// Words that open a section.
const SECTIONS: &str = "global defaults frontend backend listen peers resolvers userlist cache \
                        mailers program ring http-errors fcgi-app log-forward crt-store traces \
                        log-profile acme";
const GRAMMAR: Grammar = Grammar {
    words: |line| plain(line.split(" #").next().unwrap_or(line)),
    opens: |word| SECTIONS.split(' ').any(|section| section == word),
    includes: |_, _, _, _| None,
};

struct Section {
    name: String,
    settings: Settings,
    /// Addresses, and the options of each.
    binds: Vec<(String, Settings)>,
    servers: Vec<String>,
}

struct Haproxy {
    global: Settings,
    defaults: Vec<(String, Settings)>,
    sections: Vec<Section>,
}

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let mut config = reading.config();
    let mut files = files(reading);
    if files.is_empty() {
        files.extend(reading.first_of(&FILES));
    }
    if files.is_empty() {
        return config;
    }
    let global = Settings::new(Program::Haproxy);
    let mut haproxy = Haproxy { global, defaults: Vec::new(), sections: Vec::new() };
    for file in files {
        // A folder stands for the files in it that end with .cfg.
        let inside = format!("{}/*.cfg", file.trim_end_matches('/'));
        let inside = reading.included(&inside, 0, true);
        let paths = if inside.is_empty() { vec![file] } else { inside };
        for path in paths {
            lines(reading, &GRAMMAR, (&path, 0), &mut |line| haproxy.line(line));
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
            // Several files may follow one option.
            "-f" => files.extend(std::iter::from_fn(|| {
                arguments.next_if(|next| !next.starts_with('-')).cloned()
            })),
            "-C" => {
                directory = arguments.next().map_or(directory, |one| join(&process.directory, one));
            }
            "--" => is_file = true,
            other if is_file => files.push(other.to_owned()),
            _ => {}
        }
    }
    files.truncate(ENTRIES_MAX);
    files.iter().map(|file| join(&directory, file)).collect()
}

impl Haproxy {
    fn line(&mut self, line: &Line<'_>) {
        let Some(kind) = line.section.first() else { return };
        let (name, values, at) = (line.name, line.values, &line.at);
        match (kind.as_str(), self.sections.last_mut(), self.defaults.last_mut()) {
            _ if line.opens => self.open(kind, values, at),
            ("global", ..) => self.global.set(Level::Main, name, values, at),
            ("defaults", _, Some((_, settings))) => set(settings, name, values, at),
            ("frontend" | "listen", Some(section), _) if name == "bind" => section.bind(values, at),
            ("backend" | "listen", Some(section), _) if name == "server" => {
                section.server(values, at);
            }
            ("frontend" | "backend" | "listen", Some(section), _) => {
                set(&mut section.settings, name, values, at);
            }
            _ => {}
        }
    }

    fn open(&mut self, kind: &str, values: &[String], at: &ConfigPosition) {
        let name = clipped(values.first().map_or("", String::as_str));
        let from = values.iter().position(|one| one == "from");
        let from = from.and_then(|at| values.get(at + 1));
        let parent = match from {
            Some(from) => self.defaults.iter().rev().find(|(name, _)| name == from),
            // Other `defaults` start anew.
            None => self.defaults.last().filter(|_| kind != "defaults"),
        };
        let new = || Settings::new(Program::Haproxy);
        let settings = parent.map_or_else(new, |(_, settings)| settings.clone());
        match kind {
            "defaults" if self.defaults.len() < ENTRIES_MAX => self.defaults.push((name, settings)),
            "frontend" | "backend" | "listen" if self.sections.len() < 1_024 => {
                let (binds, servers) = (Vec::new(), Vec::new());
                let mut section = Section { name, settings, binds, servers };
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
        config.workers = self.global.get(Field::Workers);
        config.buffers = self.global.buffers();
        for Section { name, settings, binds, servers } in self.sections {
            let left = ENTRIES_MAX.saturating_sub(config.listens.len());
            for (on, bind) in binds.into_iter().take(left) {
                // Without a backlog, HAProxy asks for as many as it may have connections.
                let workers = settings.get(Field::Workers).or_else(|| bind.get(Field::Workers));
                let workers = workers.or_else(|| config.workers.clone());
                let backlog = bind.get(Field::Backlog).or_else(|| settings.get(Field::Backlog));
                config.listens.push(Listen {
                    on,
                    backlog: backlog.or_else(|| workers.clone()),
                    section: Some(name.clone()),
                    keepalive_timeout_s: idle_of_clients(&settings),
                    tcp_keepalive_s: probes_of_clients(&settings, reading),
                    workers,
                    request_timeout_s: settings.get(Field::RequestTimeout),
                    buffers: None,
                });
            }
            if servers.is_empty() || config.upstreams.len() >= ENTRIES_MAX {
                continue;
            }
            let connect_timeout_s: Option<Sourced<f64>> = settings.get(Field::ConnectTimeout);
            config.upstreams.push(Upstream {
                name,
                servers,
                idle_connections: settings.get(Field::IdleConnections),
                // It closes idle connections by demand, not after a time.
                idle_timeout_s: None,
                requests_per_connection: settings.get(Field::RequestsPerConnection),
                reuses: reuses(&settings, reading),
                fastcgi: false,
                queue_timeout_s: settings
                    .get(Field::QueueTimeout)
                    .or_else(|| connect_timeout_s.clone()),
                connect_timeout_s,
                response_timeout_s: settings.get(Field::ResponseTimeout),
                probes: reading.value(&settings, Field::Probes),
            });
        }
        let times = config.listens.iter().map(|one| one.keepalive_timeout_s.clone());
        config.keepalive_timeout_s = shortest(times);
    }
}

impl Section {
    fn bind(&mut self, values: &[String], at: &ConfigPosition) {
        let Some((addresses, options)) = values.split_first() else { return };
        let mut settings = Settings::new(Program::Haproxy);
        settings.options(Level::Listen, options, at);
        for on in addresses.split(',').filter_map(|on| target(on, "0.0.0.0")) {
            if self.binds.len() < ENTRIES_MAX {
                self.binds.push((clipped(&on), settings.clone()));
            }
        }
    }

    fn server(&mut self, values: &[String], at: &ConfigPosition) {
        if let Some(server) = values.get(1).and_then(|one| target(one, "localhost"))
            && self.servers.len() < ENTRIES_MAX
        {
            self.servers.push(clipped(&server));
        }
        self.settings.options(Level::Upstream, values.get(2..).unwrap_or_default(), at);
    }
}

/// An address with a port, or the path of a Unix socket.
fn target(text: &str, any: &str) -> Option<String> {
    if let Some(path) = text.strip_prefix("unix@").or(Some(text).filter(|it| it.starts_with('/'))) {
        return Some(path.to_owned());
    }
    if ["quic", "fd@", "abns@"].iter().any(|other| text.starts_with(other)) {
        return None;
    }
    let text = text.strip_prefix("ipv4@").unwrap_or(text);
    let (text, any) = text.strip_prefix("ipv6@").map_or((text, any), |rest| (rest, "[::]"));
    address(text, any, None)
}

/// Takes a directive of a section.
fn set(settings: &mut Settings, name: &str, values: &[String], at: &ConfigPosition) {
    let (name, values, is_on) = match (name, values.split_first()) {
        ("no", Some((name, values))) => (name.as_str(), values, false),
        _ => (name, values, true),
    };
    match (name, values.split_first()) {
        ("timeout", Some((which, values))) => {
            settings.set(Level::Section, &format!("timeout {which}"), values, at);
        }
        // It ends the two others.
        ("option", Some((which, _))) if which == "http-keep-alive" && is_on => {
            settings.remove(Field::Closes);
            settings.remove(Field::ClosesServer);
        }
        ("option", Some((which, _))) => {
            let both = ["clitcpka".to_owned(), "srvtcpka".to_owned()];
            let which = if which == "tcpka" { &both } else { std::slice::from_ref(which) };
            let value = if is_on { "on" } else { "off" }.to_owned();
            for which in which {
                let name = format!("option {which}");
                settings.set(Level::Section, &name, std::slice::from_ref(&value), at);
            }
        }
        ("default-server", _) => settings.options(Level::Upstream, values, at),
        _ => settings.set(Level::Section, name, values, at),
    }
}

fn is_http(settings: &Settings) -> bool {
    settings.plain::<String>(Field::Mode).is_some_and(|mode| mode == "http")
}

/// After which time an idle connection of a client is closed.
fn idle_of_clients(settings: &Settings) -> Option<Sourced<f64>> {
    let client = || settings.get(Field::Client);
    if !is_http(settings) {
        return client();
    }
    if let Some(closes) = settings.get(Field::Closes).filter(|closes| closes.value) {
        return Some(Sourced { value: 0.0, at: closes.at });
    }
    let time = settings.get(Field::KeepaliveTimeout);
    time.or_else(|| settings.get(Field::RequestTimeout)).or_else(client)
}

fn probes_of_clients(settings: &Settings, reading: &Reading<'_>) -> Option<Sourced<f64>> {
    let Some(probes) = settings.get(Field::ClientProbes) else {
        return reading.preset(Field::TcpKeepalive);
    };
    let kernel = Sourced { value: reading.process.kernel_keepalive_s, at: probes.at.clone() };
    let none = Sourced { value: 0.0, at: probes.at };
    let on = settings.get(Field::TcpKeepalive).unwrap_or(kernel);
    Some(if probes.value { on } else { none })
}

/// Whether connections to servers serve more than one request.
fn reuses(settings: &Settings, reading: &Reading<'_>) -> Option<Sourced<bool>> {
    if !is_http(settings) {
        return None;
    }
    let closing = [Field::Closes, Field::ClosesServer].map(|field| settings.get(field));
    let closing = closing.into_iter().flatten().find(|closes| closes.value);
    let no_pool = settings.get(Field::IdleConnections).filter(|max: &Sourced<u64>| max.value == 0);
    if let Some(at) = closing.map(|one| one.at).or_else(|| no_pool.map(|one| one.at)) {
        return Some(Sourced { value: false, at });
    }
    let reuse: Sourced<String> = reading.value(settings, Field::HttpReuse)?;
    Some(Sourced { value: reuse.value != "never", at: reuse.at })
}
