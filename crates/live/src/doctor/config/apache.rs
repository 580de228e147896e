//! Apache httpd: directives of the main server and of its virtual hosts, and what it proxies to.

use std::collections::{BTreeMap, BTreeSet};

use super::reading::{
    Reading, address, clipped, count, folder, join, option, place, seconds, switch, url_host, words,
};
use super::{Buffers, ConfigPosition, Listen, ServerConfig, Sourced, Upstream};

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

/// Of the main server or of a virtual host.
#[derive(Clone, Default)]
struct Host {
    keeps: Option<Sourced<bool>>,
    timeout: Option<Sourced<f64>>,
    /// Ports of the virtual host; none: all.
    ports: Vec<Option<u16>>,
}

struct Apache<'r, 'a> {
    reading: &'r mut Reading<'a>,
    root: String,
    variables: BTreeMap<String, String>,
    defined: BTreeSet<String>,
    modules: BTreeSet<String>,
    listens: Vec<Sourced<String>>,
    main: Host,
    hosts: Vec<Host>,
    backlog: Option<Sourced<u64>>,
    requests: Option<Sourced<u64>>,
    workers: Option<Sourced<u64>>,
    threads: Option<Sourced<u64>>,
    limit: Option<Sourced<u64>>,
    request_timeout: Option<Sourced<f64>>,
    proxy_timeout: Option<Sourced<f64>>,
    buffers: Buffers,
    no_reuse: Option<ConfigPosition>,
    upstreams: Vec<Upstream>,
}

/// A section, and whether what is inside counts.
struct Section {
    name: String,
    argument: String,
    counts: bool,
}

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let mut config = reading.config();
    let arguments = arguments(&reading.process.arguments);
    let root = option(&arguments, "-d");
    let file = match (option(&arguments, "-f"), &root) {
        (Some(file), Some(root)) => join(root, &file),
        (Some(file), None) => join("/etc/apache2", &file),
        (None, Some(root)) => {
            let own = ["apache2.conf", "conf/httpd.conf", "httpd.conf"].map(|one| join(root, one));
            match reading.first_of(&own.each_ref().map(String::as_str)) {
                Some(file) => file,
                None => return config,
            }
        }
        (None, None) => match reading.first_of(&FILES) {
            Some(file) => file,
            None => return config,
        },
    };
    let beside = folder(&file);
    let root = root.unwrap_or_else(|| beside.strip_suffix("/conf").unwrap_or(beside).to_owned());
    let mut variables = reading.process.environment.clone();
    // Debian's script exports them; without the environment, the script's own file says the same.
    if !variables.keys().any(|name| name.starts_with("APACHE_")) {
        variables = envvars(reading, &join(beside, "envvars"));
    }
    let defined = arguments.windows(2).filter(|pair| pair.first().is_some_and(|one| one == "-D"));
    let defined = defined.filter_map(|pair| pair.get(1).cloned()).collect();
    let mut apache = Apache {
        reading,
        root,
        variables,
        defined,
        modules: BTreeSet::new(),
        listens: Vec::new(),
        main: Host::default(),
        hosts: Vec::new(),
        backlog: None,
        requests: None,
        workers: None,
        threads: None,
        limit: None,
        request_timeout: None,
        proxy_timeout: None,
        buffers: Buffers::default(),
        no_reuse: None,
        upstreams: Vec::new(),
    };
    let at = apache.reading.command_line();
    apache.given(&arguments, "-C", &at);
    apache.file(&file, 0, &mut Vec::new());
    apache.given(&arguments, "-c", &at);
    apache.fill(&mut config);
    config
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
    /// Directives on the command line.
    fn given(&mut self, arguments: &[String], name: &str, at: &ConfigPosition) {
        for (index, argument) in arguments.iter().enumerate() {
            if argument == name
                && let Some(line) = arguments.get(index + 1)
            {
                self.line(line, at, 0, &mut Vec::new());
            }
        }
    }

    fn file(&mut self, path: &str, depth: usize, sections: &mut Vec<Section>) {
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
            self.line(&whole, &place(path, number), depth, sections);
        }
    }

    fn line(&mut self, line: &str, at: &ConfigPosition, depth: usize, sections: &mut Vec<Section>) {
        if let Some(name) = line.strip_prefix("</") {
            let name = name.trim_end_matches('>').trim().to_ascii_lowercase();
            if let Some(index) = sections.iter().rposition(|section| section.name == name) {
                sections.truncate(index);
            }
            return;
        }
        let line = self.expanded(line);
        let line = line.as_str();
        if let Some(inside) = line.strip_prefix('<') {
            let inside = inside.trim_end().trim_end_matches('>');
            let (name, argument) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
            self.section(&name.to_ascii_lowercase(), argument.trim(), sections);
            return;
        }
        if sections.iter().any(|section| !section.counts) {
            return;
        }
        let words = words(line, None);
        let Some((name, values)) = words.split_first() else { return };
        self.directive(&name.to_ascii_lowercase(), values, at, depth, sections);
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

    fn section(&mut self, name: &str, argument: &str, sections: &mut Vec<Section>) {
        if sections.len() >= SECTIONS_MAX {
            self.reading.missing("Apache: sections are nested too deeply");
            return;
        }
        let (wanted, negated) = match argument.strip_prefix('!') {
            Some(rest) => (rest.trim(), true),
            None => (argument, false),
        };
        let counts = match name {
            "ifmodule" => self.has_module(wanted) != negated,
            "ifdefine" => self.defined.contains(wanted) != negated,
            _ => true,
        };
        let counts_around = sections.iter().all(|section| section.counts);
        if name == "virtualhost" && counts && counts_around && self.hosts.len() < 256 {
            let port = |one: &str| one.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            let ports = argument.split_whitespace().map(port).collect();
            self.hosts.push(Host { ports, ..Host::default() });
        }
        let argument = clipped(argument.trim_matches(['"', '\'']));
        sections.push(Section { name: name.to_owned(), argument, counts });
    }

    /// Whether a module is there, by the name of its file or its own: `mod_ssl.c`, `ssl_module`.
    fn has_module(&self, name: &str) -> bool {
        let stem = stem(name);
        // These are part of every httpd.
        matches!(stem.as_str(), "core" | "http_core" | "http" | "so" | "unixd")
            || self.modules.contains(&stem)
    }

    fn directive(
        &mut self,
        name: &str,
        values: &[String],
        at: &ConfigPosition,
        depth: usize,
        sections: &mut Vec<Section>,
    ) {
        let first = values.first().map_or("", String::as_str);
        let number = || count(first).map(|value| Sourced { value, at: at.clone() });
        let time = || seconds(first, 1.0).map(|value| Sourced { value, at: at.clone() });
        let in_host = sections.iter().any(|section| section.name == "virtualhost");
        let host = match self.hosts.last_mut() {
            Some(host) if in_host => host,
            _ => &mut self.main,
        };
        match name {
            "include" | "includeoptional" => {
                let pattern = join(&self.root, first);
                let optional = name == "includeoptional";
                for path in self.reading.included(&pattern, depth, optional) {
                    self.file(&path, depth + 1, sections);
                }
            }
            "serverroot" => self.root = clipped(first),
            "define" if self.variables.len() < NAMES_MAX && self.defined.len() < NAMES_MAX => {
                self.defined.insert(clipped(first));
                let value = values.get(1).map_or("", String::as_str);
                self.variables.insert(clipped(first), clipped(value));
            }
            "loadmodule" if self.modules.len() < NAMES_MAX => {
                self.modules.insert(stem(first));
            }
            "listen" if self.listens.len() < 256 => {
                if let Some(on) = address(first, "[::]", None) {
                    self.listens.push(Sourced { value: clipped(&on), at: at.clone() });
                }
            }
            "listenbacklog" => self.backlog = number(),
            "keepalive" => {
                // An old form gives the number of requests.
                let keeps = switch(first).or_else(|| count(first).map(|count| count > 0));
                host.keeps = keeps.map(|value| Sourced { value, at: at.clone() });
            }
            "keepalivetimeout" => host.timeout = time(),
            "maxkeepaliverequests" => self.requests = number(),
            "maxrequestworkers" | "maxclients" => self.workers = number(),
            "threadsperchild" => self.threads = number(),
            "serverlimit" => self.limit = number(),
            "timeout" if !in_host => self.request_timeout = time(),
            "proxytimeout" => self.proxy_timeout = time(),
            "receivebuffersize" => self.buffers.receive = number().filter(|one| one.value > 0),
            "sendbuffersize" => self.buffers.send = number().filter(|one| one.value > 0),
            "setenv" if matches!(first, "proxy-nokeepalive" | "force-proxy-request-1.0") => {
                self.no_reuse = Some(at.clone());
            }
            "proxypass" | "proxypassmatch" => {
                let inside = sections.iter().any(|one| one.name.starts_with("location"));
                let target = usize::from(!inside);
                self.pass(values.get(target..).unwrap_or_default(), at, None);
            }
            "balancermember" => {
                let own = sections.iter().rev().find(|one| one.name == "proxy");
                let own = own.map(|section| section.argument.clone());
                // Outside its section, the balancer comes first.
                let outside = usize::from(first.starts_with("balancer://"));
                let balancer = if outside == 1 { Some(clipped(first)) } else { own };
                self.pass(values.get(outside..).unwrap_or_default(), at, balancer.as_deref());
            }
            "proxyset" => {
                let own = sections.iter().rev().find(|one| one.name == "proxy");
                let outside = usize::from(first.contains("://"));
                let target = if outside == 1 {
                    Some(clipped(first))
                } else {
                    own.map(|section| section.argument.clone())
                };
                if let Some(target) = target
                    && let Some(one) = self.upstreams.iter_mut().find(|one| one.name == target)
                {
                    parameters(one, values.get(outside..).unwrap_or_default(), at);
                }
            }
            _ => {}
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
            (Some(balancer), _) => balancer.trim_end_matches('/').to_owned(),
            (None, Some(server)) => clipped(server),
            // The balancer's members say more.
            (None, None) => clipped(url.trim_end_matches('/')),
        };
        let index = self.upstreams.iter().position(|one| one.name == name).unwrap_or_else(|| {
            self.upstreams.push(Upstream { name, ..Upstream::default() });
            self.upstreams.len() - 1
        });
        if self.upstreams.len() > 256 {
            self.upstreams.truncate(256);
        }
        let Some(upstream) = self.upstreams.get_mut(index) else { return };
        if let Some(server) = server.filter(|_| upstream.servers.len() < 256) {
            upstream.servers.push(clipped(&server));
            upstream.servers.dedup();
        }
        parameters(upstream, values, at);
    }

    fn fill(self, config: &mut ServerConfig) {
        let reading = self.reading;
        config.buffers =
            Some(self.buffers).filter(|one| one.receive.is_some() || one.send.is_some());
        let effective = |host: &Host| {
            let keeps = host.keeps.clone().or_else(|| self.main.keeps.clone());
            let keeps = keeps.or_else(|| reading.default(true))?;
            if !keeps.value {
                return Some(Sourced { value: 0.0, at: keeps.at });
            }
            let timeout = host.timeout.clone().or_else(|| self.main.timeout.clone());
            timeout.or_else(|| reading.default(5.0))
        };
        let shorter = |one: &Sourced<f64>, other: &Sourced<f64>| one.value.total_cmp(&other.value);
        let backlog = self.backlog.or_else(|| reading.default(511));
        // It sets SO_KEEPALIVE on its listeners, and no time.
        let probes = reading.default(reading.process.kernel_keepalive_s);
        for listen in self.listens {
            let mut one = Listen {
                on: listen.value,
                backlog: backlog.clone(),
                tcp_keepalive_s: probes.clone(),
                ..Listen::default()
            };
            let own = one.port();
            let hosts = self
                .hosts
                .iter()
                .filter(|host| host.ports.iter().any(|port| port.is_none() || *port == own));
            let timeouts = hosts.filter_map(effective).min_by(shorter);
            one.keepalive_timeout_s = timeouts.or_else(|| effective(&self.main));
            config.listens.push(one);
        }
        let timeouts = config.listens.iter().filter_map(|one| one.keepalive_timeout_s.clone());
        config.keepalive_timeout_s = timeouts.min_by(shorter).or_else(|| effective(&self.main));
        config.keepalive_requests = self.requests.or_else(|| reading.default(100));
        config.tcp_keepalive_s = probes;
        let is_prefork = self.modules.contains("mpm_prefork");
        config.workers = self.workers.or_else(|| {
            let limit = self.limit.map(|one| one.value);
            if is_prefork {
                return reading.default(limit.unwrap_or(256));
            }
            let threads = self.threads.as_ref().map_or(25, |one| one.value);
            reading.default(limit.unwrap_or(16).checked_mul(threads)?)
        });
        let timeout = self.proxy_timeout.or(self.request_timeout).or_else(|| reading.default(60.0));
        config.upstreams = self.upstreams;
        for one in &mut config.upstreams {
            if let Some(at) = &self.no_reuse {
                one.reuses = Some(Sourced { value: false, at: at.clone() });
            }
            one.reuses = one.reuses.take().or_else(|| reading.default(true));
            one.probes = one.probes.take().or_else(|| reading.default(false));
            one.response_timeout_s = one.response_timeout_s.take().or_else(|| timeout.clone());
            let response = one.response_timeout_s.clone();
            one.connect_timeout_s = one.connect_timeout_s.take().or(response);
        }
        // A balancer whose members are not known has nothing to say.
        config.upstreams.retain(|one| !one.servers.is_empty());
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

fn parameters(upstream: &mut Upstream, values: &[String], at: &ConfigPosition) {
    for value in values {
        let Some((name, value)) = value.split_once('=') else { continue };
        // These two take milliseconds with `ms`.
        let time = || seconds(value, 1.0).map(|value| Sourced { value, at: at.clone() });
        let is = || switch(value).map(|value| Sourced { value, at: at.clone() });
        match name.to_ascii_lowercase().as_str() {
            "ttl" => upstream.idle_timeout_s = time(),
            "connectiontimeout" => upstream.connect_timeout_s = time(),
            "timeout" => upstream.response_timeout_s = time(),
            "acquire" => {
                upstream.queue_timeout_s =
                    seconds(value, 1e-3).map(|value| Sourced { value, at: at.clone() });
            }
            "max" => {
                upstream.idle_connections =
                    count(value).map(|value| Sourced { value, at: at.clone() });
            }
            "keepalive" => upstream.probes = is(),
            "disablereuse" => {
                upstream.reuses = is().map(|one| Sourced { value: !one.value, at: one.at });
            }
            "enablereuse" => upstream.reuses = is(),
            _ => {}
        }
    }
}
