//! Redis: `name value` lines, over which arguments `--name value` stand.

use super::reading::{Reading, clipped, count, folder, join, place, words};
use super::{ConfigPosition, ENTRIES_MAX, Listen, ServerConfig, Sourced};

/// Configuration files of Debian, Red Hat and Alpine, and of the official image's documentation.
const FILES: [&str; 4] =
    ["/etc/redis/redis.conf", "/etc/redis.conf", "/usr/local/etc/redis/redis.conf", "redis.conf"];

#[derive(Default)]
struct Settings {
    bind: Vec<String>,
    port: Option<Sourced<u64>>,
    tls_port: Option<Sourced<u64>>,
    socket: Option<String>,
    backlog: Option<Sourced<u64>>,
    keepalive: Option<Sourced<f64>>,
    timeout: Option<Sourced<f64>>,
    clients: Option<Sourced<u64>>,
    /// The folder that it changes to when it starts.
    folder: Option<String>,
}

impl Settings {
    fn set(&mut self, name: &str, values: &[String], at: &ConfigPosition) {
        let first = values.first().map_or("", String::as_str);
        let number = count(first).map(|value| Sourced { value, at: at.clone() });
        let time = number.clone().map(|Sourced { value, at }| Sourced { value: value as f64, at });
        match name.to_ascii_lowercase().as_str() {
            "bind" => self.bind = values.iter().take(ENTRIES_MAX).cloned().collect(),
            "port" if number.is_some() => self.port = number,
            "tls-port" if number.is_some() => self.tls_port = number,
            "unixsocket" => self.socket = Some(clipped(first)).filter(|path| !path.is_empty()),
            "tcp-backlog" if number.is_some() => self.backlog = number,
            "tcp-keepalive" if time.is_some() => self.keepalive = time,
            "timeout" if time.is_some() => self.timeout = time,
            "dir" => self.folder = Some(clipped(first)).filter(|path| !path.is_empty()),
            "maxclients" if number.is_some() => self.clients = number,
            _ => {}
        }
    }
}

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let mut config = reading.config();
    let mut settings = Settings::default();
    match title_address(&reading.process.arguments) {
        Some(title) => from_usual_files(reading, &mut settings, title),
        None => from_arguments(reading, &mut settings),
    }
    let port = settings
        .port
        .as_ref()
        .map(|port| port.value)
        .or_else(|| reading.default(6379_u64).map(|port| port.value));
    let mut addresses: Vec<String> =
        settings.bind.iter().map(|one| one.trim_start_matches('-').to_owned()).collect();
    if addresses.is_empty() {
        addresses = vec!["0.0.0.0".to_owned(), "[::]".to_owned()];
    }
    let backlog = settings.backlog.or_else(|| reading.default(511));
    let tls_port = settings.tls_port.map(|port| port.value);
    for port in [port, tls_port].into_iter().flatten().filter(|port| *port > 0) {
        for host in &addresses {
            let host = match host.as_str() {
                "*" => "0.0.0.0".to_owned(),
                "::*" => "[::]".to_owned(),
                bare if bare.contains(':') && !bare.starts_with('[') => format!("[{bare}]"),
                other => other.to_owned(),
            };
            let on = clipped(&format!("{host}:{port}"));
            config.listens.push(Listen { on, backlog: backlog.clone(), ..Listen::default() });
        }
    }
    if let Some(on) = settings.socket {
        config.listens.push(Listen { on, backlog, ..Listen::default() });
    }
    config.tcp_keepalive_s = settings.keepalive.or_else(|| reading.default(300.0));
    // 0 is no limit here, where other programs mean "at once" by it: then there is no time-out.
    config.keepalive_timeout_s = settings.timeout.filter(|timeout| timeout.value > 0.0);
    config.workers = settings.clients.or_else(|| reading.default(10_000));
    config
}

/// `127.0.0.1:6379` of the title that Redis writes over its arguments.
fn title_address(arguments: &[String]) -> Option<&str> {
    let (first, rest) = arguments.split_first()?;
    let mut words = first.split_whitespace().skip(1).chain(rest.iter().map(String::as_str));
    let address = words.next()?;
    let (_, port) = address.rsplit_once(':')?;
    // Arguments never look so: a file has a path, an option two dashes.
    (!address.starts_with('-') && !address.contains('/') && port.parse::<u16>().is_ok())
        .then_some(address)
}

/// The title hides the file and the arguments: a usual file is taken if its port is the server's, and the
/// folder that it names is the one where the server is. Another file may have the same port.
fn from_usual_files(reading: &mut Reading<'_>, settings: &mut Settings, title: &str) {
    let port = title.rsplit_once(':').and_then(|(_, port)| count(port));
    for file in FILES {
        let path = join(&reading.process.directory, file);
        if reading.all_of(std::slice::from_ref(&path)).is_empty() {
            continue;
        }
        let mut own = Settings::default();
        read_file(reading, &mut own, &path, 0);
        let its_port = own.port.as_ref().map_or(6379, |port| port.value);
        let here = &reading.process.directory;
        let elsewhere = own.folder.as_ref().is_some_and(|its| {
            its.starts_with('/') && its.trim_end_matches('/') != here.trim_end_matches('/')
        });
        if port == Some(its_port) && !elsewhere {
            *settings = own;
            return;
        }
    }
    let at = reading.command_line();
    settings.port = port.map(|value| Sourced { value, at });
    if let Some((host, _)) = title.rsplit_once(':') {
        settings.bind = vec![host.to_owned()];
    }
    reading.missing(format!(
        "the process title of PID {} hides its arguments, and no Redis file in the usual places has its port",
        reading.process.pid
    ));
}

fn from_arguments(reading: &mut Reading<'_>, settings: &mut Settings) {
    let process = reading.process;
    let arguments = process.arguments.get(1..).unwrap_or_default();
    let mut rest = arguments;
    if let Some((file, after)) = arguments.split_first()
        && !file.starts_with('-')
    {
        let path = join(&process.directory, file);
        read_file(reading, settings, &path, 0);
        rest = after;
    }
    let at = reading.command_line();
    let mut rest = rest.iter().peekable();
    while let Some(argument) = rest.next() {
        let Some(name) = argument.strip_prefix("--") else { continue };
        let mut values = Vec::new();
        while let Some(value) = rest.next_if(|next| !next.starts_with("--")) {
            values.extend(words(value, None));
        }
        settings.set(name, &values, &at);
    }
}

fn read_file(reading: &mut Reading<'_>, settings: &mut Settings, path: &str, depth: usize) {
    let Some(text) = reading.text(path) else { return };
    for (line, content) in text.lines().enumerate() {
        let words = words(content, Some('#'));
        let Some((name, values)) = words.split_first() else { continue };
        if name.eq_ignore_ascii_case("include") {
            for pattern in values {
                // Redis resolves it against its folder at the start, which is mostly this one.
                let pattern = join(folder(path), pattern);
                for file in reading.included(&pattern, depth, false) {
                    read_file(reading, settings, &file, depth + 1);
                }
            }
            continue;
        }
        settings.set(name, values, &place(path, line));
    }
}
