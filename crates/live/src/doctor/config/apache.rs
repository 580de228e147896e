//! Apache httpd: directives of the main server and of its virtual hosts, and what it proxies to.

use std::collections::{BTreeMap, BTreeSet};

use super::directives::{Field, Level};
use super::reading::{
    Reading, address, clipped, folder, join, option, place, shortest, url_host, words,
};
use super::settings::Settings;
use super::{ConfigPosition, ENTRIES_MAX, Listen, Program, ServerConfig, Sourced, Upstream};

/// Configuration files of Debian, Red Hat, the official image and Alpine.
const FILES: [&str; 4] = [
    "/etc/apache2/apache2.conf",
    "/etc/httpd/conf/httpd.conf",
    "/usr/local/apache2/conf/httpd.conf",
    "/etc/apache2/httpd.conf",
];
/// Sections inside each other, at most.
const SECTIONS_MAX: usize = 32;
/// Variables and names of modules, at most.
const NAMES_MAX: usize = 1_024;

struct Apache<'r, 'a> {
    reading: &'r mut Reading<'a>,
    root: String,
    variables: BTreeMap<String, String>,
    defined: BTreeSet<String>,
    modules: BTreeSet<String>,
    listens: Vec<String>,
    main: Settings,
    /// Of each virtual host its ports, of which none stands for all.
    hosts: Vec<(Vec<Option<u16>>, Settings)>,
    no_reuse: Option<ConfigPosition>,
    /// Sections around the line that is read, and files around its own.
    sections: Vec<Section>,
    depth: usize,
    targets: Vec<Target>,
}

/// A server behind it, or a balancer.
struct Target {
    name: String,
    servers: Vec<String>,
    settings: Settings,
}

/// A section, and whether what is inside counts.
struct Section {
    name: String,
    argument: String,
    counts: bool,
}

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let config = reading.config();
    let arguments = arguments(&reading.process.arguments);
    let root = option(&arguments, "-d");
    let file = match (option(&arguments, "-f"), &root) {
        (Some(file), root) => Some(join(root.as_deref().unwrap_or("/etc/apache2"), &file)),
        (None, Some(root)) => {
            let own = ["apache2.conf", "conf/httpd.conf", "httpd.conf"].map(|one| join(root, one));
            reading.first_of(&own.each_ref().map(String::as_str))
        }
        (None, None) => reading.first_of(&FILES),
    };
    let Some(file) = file else { return config };
    let beside = folder(&file);
    let root = root.unwrap_or_else(|| beside.strip_suffix("/conf").unwrap_or(beside).to_owned());
    let mut variables = reading.process.environment.clone();
    // Debian's script exports them; without the environment, the script's own file says the same.
    if !variables.keys().any(|name| name.starts_with("APACHE_")) {
        variables = envvars(reading, &join(beside, "envvars"));
    }
    let mut apache = Apache {
        reading,
        root,
        variables,
        defined: after(&arguments, "-D").cloned().collect(),
        modules: BTreeSet::new(),
        listens: Vec::new(),
        main: Settings::new(Program::Apache),
        hosts: Vec::new(),
        no_reuse: None,
        sections: Vec::new(),
        depth: 0,
        targets: Vec::new(),
    };
    let at = apache.reading.command_line();
    for line in after(&arguments, "-C") {
        apache.line(line, &at);
        apache.sections.clear();
    }
    apache.file(&file);
    for line in after(&arguments, "-c") {
        apache.sections.clear();
        apache.line(line, &at);
    }
    apache.fill(config)
}

/// The arguments behind each of an option.
fn after<'n>(arguments: &'n [String], name: &'n str) -> impl Iterator<Item = &'n String> {
    let behind = arguments.iter().skip(1);
    arguments.iter().zip(behind).filter(move |(one, _)| *one == name).map(|(_, behind)| behind)
}

/// Arguments, where a title joins them by blanks.
fn arguments(arguments: &[String]) -> Vec<String> {
    match arguments {
        [one] if one.contains(' ') => one.split_whitespace().map(str::to_owned).collect(),
        several => several.to_vec(),
    }
}

/// Variables that Debian's script exports before it starts Apache.
fn envvars(reading: &mut Reading<'_>, path: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    if reading.all_of(&[path.to_owned()]).is_empty() {
        return variables;
    }
    let text = reading.text(path).unwrap_or_default();
    for line in text.lines() {
        let line = line.trim();
        let set = line.strip_prefix("export ").and_then(|rest| rest.split_once('='));
        let assumed = line.strip_prefix(": ${").and_then(|rest| rest.split_once(":="));
        let Some((name, value)) = set.or(assumed) else { continue };
        // `$SUFFIX` is empty but where several instances run.
        let value = value.trim_end_matches('}').trim_matches(['"', '\'']).replace("$SUFFIX", "");
        if variables.len() < NAMES_MAX {
            variables.insert(name.trim().to_owned(), clipped(&value));
        }
    }
    variables
}

impl Apache<'_, '_> {
    fn file(&mut self, path: &str) {
        let Some(text) = self.reading.text(path) else { return };
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let mut whole = line.trim().to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                let Some((_, next)) = lines.next() else { break };
                whole.push_str(next.trim());
            }
            if whole.is_empty() || whole.starts_with('#') {
                continue;
            }
            self.line(&whole, &place(path, number));
        }
    }

    fn line(&mut self, line: &str, at: &ConfigPosition) {
        if let Some(name) = line.strip_prefix("</") {
            let name = name.trim_end_matches('>').trim().to_ascii_lowercase();
            if let Some(index) = self.sections.iter().rposition(|one| one.name == name) {
                self.sections.truncate(index);
            }
            return;
        }
        let line = self.expanded(line);
        let line = line.as_str();
        if let Some(inside) = line.strip_prefix('<') {
            let inside = inside.trim_end().trim_end_matches('>');
            let (name, argument) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
            self.section(&name.to_ascii_lowercase(), argument.trim());
            return;
        }
        if self.sections.iter().any(|section| !section.counts) {
            return;
        }
        let words = words(line, None);
        let Some((name, values)) = words.split_first() else { return };
        self.directive(&name.to_ascii_lowercase(), values, at);
    }

    /// `${NAME}` replaced, where the name is known.
    fn expanded(&self, line: &str) -> String {
        let mut whole = String::new();
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("${") {
            whole.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                whole.push_str("${");
                rest = after;
                continue;
            };
            match self.variables.get(name) {
                Some(value) => whole.push_str(value),
                None => whole.push_str(&format!("${{{name}}}")),
            }
            rest = after;
            if whole.len() > 1 << 16 {
                break;
            }
        }
        whole.push_str(rest);
        whole
    }

    fn section(&mut self, name: &str, argument: &str) {
        if self.sections.len() >= SECTIONS_MAX {
            self.reading.missing("Apache: sections are nested too deeply");
            return;
        }
        let negated = argument.strip_prefix('!');
        let wanted = negated.map_or(argument, str::trim);
        let counts = match name {
            "ifmodule" => self.has_module(wanted) != negated.is_some(),
            "ifdefine" => self.defined.contains(wanted) != negated.is_some(),
            _ => true,
        };
        let counts_around = self.sections.iter().all(|section| section.counts);
        if name == "virtualhost" && counts_around && self.hosts.len() < ENTRIES_MAX {
            let port = |one: &str| one.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            let ports = argument.split_whitespace().map(port).collect();
            self.hosts.push((ports, Settings::new(Program::Apache)));
        }
        let argument = clipped(argument.trim_matches(['"', '\'']));
        self.sections.push(Section { name: name.to_owned(), argument, counts });
    }

    /// Whether a module is there, by the name of its file or its own: `mod_ssl.c`, `ssl_module`.
    fn has_module(&self, name: &str) -> bool {
        let stem = stem(name);
        // These are part of every httpd.
        matches!(stem.as_str(), "core" | "http_core" | "http" | "so" | "unixd")
            || self.modules.contains(&stem)
    }

    fn directive(&mut self, name: &str, values: &[String], at: &ConfigPosition) {
        let first = values.first().map_or("", String::as_str);
        let has_room = self.variables.len().max(self.defined.len()) < NAMES_MAX;
        match name {
            "include" | "includeoptional" => {
                let pattern = join(&self.root, first);
                let optional = name == "includeoptional";
                let files = self.reading.included(&pattern, self.depth, optional);
                self.depth += 1;
                for file in files {
                    self.file(&file);
                }
                self.depth -= 1;
            }
            "serverroot" => self.root = clipped(first),
            "define" if has_room => {
                self.defined.insert(clipped(first));
                let value = values.get(1).map_or("", String::as_str);
                self.variables.insert(clipped(first), clipped(value));
            }
            "loadmodule" if self.modules.len() < NAMES_MAX => self.modules.extend([stem(first)]),
            "listen" if self.listens.len() < ENTRIES_MAX => {
                self.listens.extend(address(first, "[::]", None).map(|on| clipped(&on)));
            }
            "setenv" if matches!(first, "proxy-nokeepalive" | "force-proxy-request-1.0") => {
                self.no_reuse = Some(at.clone());
            }
            "proxypass" | "proxypassmatch" => {
                let inside = self.sections.iter().any(|one| one.name.starts_with("location"));
                let target = usize::from(!inside);
                self.pass(values.get(target..).unwrap_or_default(), at, None);
            }
            "balancermember" | "proxyset" => {
                let is_member = name == "balancermember";
                // Outside its section, the balancer comes first.
                let of = if is_member { "balancer://" } else { "://" };
                let (target, values) = match values.split_first() {
                    Some((first, values)) if first.contains(of) => (Some(first.clone()), values),
                    _ => {
                        let own = self.sections.iter().rev().find(|one| one.name == "proxy");
                        (own.map(|section| section.argument.clone()), values)
                    }
                };
                let known = |one: &&mut Target| Some(&one.name) == target.as_ref();
                if is_member {
                    self.pass(values, at, target.as_deref());
                } else if let Some(one) = self.targets.iter_mut().find(known) {
                    one.settings.parameters(Level::Upstream, values, at);
                }
            }
            _ => {
                let in_host = self.sections.iter().any(|one| one.name == "virtualhost");
                let host = self.hosts.last_mut().filter(|_| in_host).map(|(_, host)| host);
                host.unwrap_or(&mut self.main).set(Level::Section, name, values, at);
                if !in_host || name != "timeout" {
                    self.main.set(Level::Main, name, values, at);
                }
            }
        }
    }

    /// A target with its parameters, on its own or as a member of a balancer.
    fn pass(&mut self, values: &[String], at: &ConfigPosition, balancer: Option<&str>) {
        let Some((url, values)) = values.split_first() else { return };
        if url == "!" || url.contains('$') {
            return;
        }
        // unix:/path|http://name/ speaks to the socket.
        let server = match url.strip_prefix("unix:").and_then(|rest| rest.split_once('|')) {
            Some((path, _)) => Some(path.to_owned()),
            None if url.starts_with("balancer://") => None,
            None => url_host(url),
        };
        let name = match (balancer, &server) {
            (None, Some(server)) => clipped(server),
            // Of a balancer without members here, other lines say more.
            (balancer, _) => clipped(balancer.unwrap_or(url).trim_end_matches('/')),
        };
        let known = self.targets.iter().position(|one| one.name == name);
        if known.is_none() && self.targets.len() < ENTRIES_MAX {
            let settings = Settings::new(Program::Apache);
            self.targets.push(Target { name, servers: Vec::new(), settings });
        }
        let index = known.unwrap_or(self.targets.len() - 1);
        let Some(target) = self.targets.get_mut(index) else { return };
        if let Some(server) = server.filter(|_| target.servers.len() < ENTRIES_MAX) {
            target.servers.push(clipped(&server));
            target.servers.dedup();
        }
        target.settings.parameters(Level::Upstream, values, at);
    }

    fn fill(self, mut config: ServerConfig) -> ServerConfig {
        let Self { reading, main, .. } = self;
        config.buffers = main.buffers();
        let effective = |host: &Settings| {
            let keeps = host.get(Field::Keeps);
            let keeps: Sourced<bool> = keeps.or_else(|| reading.value(&main, Field::Keeps))?;
            if !keeps.value {
                return Some(Sourced { value: 0.0, at: keeps.at });
            }
            let own = host.get(Field::KeepaliveTimeout);
            own.or_else(|| reading.value(&main, Field::KeepaliveTimeout))
        };
        // It sets SO_KEEPALIVE on its listeners, and no time.
        config.tcp_keepalive_s = reading.default(reading.process.kernel_keepalive_s);
        for on in self.listens {
            let mut listen = Listen {
                on,
                backlog: reading.value(&main, Field::Backlog),
                tcp_keepalive_s: config.tcp_keepalive_s.clone(),
                ..Listen::default()
            };
            let own = listen.port();
            let is_its = |port: &Option<u16>| port.is_none() || *port == own;
            let hosts = self.hosts.iter().filter(|(ports, _)| ports.iter().any(is_its));
            let timeout = shortest(hosts.map(|(_, host)| effective(host)));
            listen.keepalive_timeout_s = timeout.or_else(|| effective(&main));
            config.listens.push(listen);
        }
        let times = config.listens.iter().map(|one| one.keepalive_timeout_s.clone());
        config.keepalive_timeout_s = shortest(times).or_else(|| effective(&main));
        config.keepalive_requests = reading.value(&main, Field::KeepaliveRequests);
        config.workers = main.get(Field::Workers).or_else(|| {
            let limit: Option<u64> = main.plain(Field::Limit);
            if self.modules.contains("mpm_prefork") {
                return reading.default(limit.unwrap_or(256));
            }
            let threads: Sourced<u64> = reading.value(&main, Field::Threads)?;
            reading.default(limit.unwrap_or(16).checked_mul(threads.value)?)
        });
        let timeout = main.get(Field::ProxyTimeout);
        let timeout = timeout.or_else(|| reading.value(&main, Field::ResponseTimeout));
        let no_reuse = self.no_reuse.map(|at| Sourced { value: false, at });
        // A balancer whose members are not known has nothing to say.
        for target in self.targets.into_iter().filter(|one| !one.servers.is_empty()) {
            let own = &target.settings;
            let response = own.get(Field::ResponseTimeout).or_else(|| timeout.clone());
            config.upstreams.push(Upstream {
                name: target.name,
                servers: target.servers,
                idle_connections: own.get(Field::IdleConnections),
                idle_timeout_s: own.get(Field::IdleTimeout),
                reuses: no_reuse.clone().or_else(|| reading.value(own, Field::Reuses)),
                connect_timeout_s: own.get(Field::ConnectTimeout).or_else(|| response.clone()),
                queue_timeout_s: own.get(Field::QueueTimeout),
                response_timeout_s: response,
                probes: reading.value(own, Field::Probes),
                ..Upstream::default()
            });
        }
        config
    }
}

/// The part of a module's name that all its spellings share: `mpm_event` of `mpm_event_module`.
fn stem(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    let name = name.strip_suffix("_module").or_else(|| name.strip_suffix(".c")).unwrap_or(&name);
    let name = name.strip_prefix("mod_").unwrap_or(name);
    match name {
        "event" | "worker" | "prefork" => format!("mpm_{name}"),
        other => clipped(other),
    }
}
