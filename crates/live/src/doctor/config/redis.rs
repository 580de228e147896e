//! Redis: `name value` lines, over which arguments `--name value` stand.

use super::directives::{Field, Level};
use super::lines::{Grammar, lines, plain};
use super::reading::{Reading, addresses, count, folder, join, words};
use super::settings::Settings;
use super::{ConfigPosition, Listen, Program, ServerConfig};

/// Configuration files of Debian, Red Hat and Alpine, and of the official image's documentation.
const FILES: [&str; 4] =
    ["/etc/redis/redis.conf", "/etc/redis.conf", "/usr/local/etc/redis/redis.conf", "redis.conf"];

const GRAMMAR: Grammar = Grammar {
    words: plain,
    opens: |_| false,
    includes: |_, path, name, values| {
        // Redis resolves it against its folder at the start, which is mostly this one.
        let patterns = values.iter().map(|pattern| join(folder(path), pattern));
        name.eq_ignore_ascii_case("include").then(|| patterns.collect())
    },
};

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let settings = match title_address(&reading.process.arguments) {
        Some(title) => from_usual_files(reading, title),
        None => from_arguments(reading),
    };
    let mut config = reading.config();
    let bind: Vec<String> = settings.plain(Field::Bind).unwrap_or_default();
    let hosts = bind.iter().map(|host| match host.trim_start_matches('-') {
        "*" => "0.0.0.0",
        "::*" => "::",
        host => host,
    });
    let mut hosts: Vec<&str> = hosts.collect();
    if hosts.is_empty() {
        hosts = vec!["0.0.0.0", "::"];
    }
    let port = reading.value(&settings, Field::Port).map(|port| port.value);
    let backlog = reading.value(&settings, Field::Backlog);
    let ports = [port, settings.plain(Field::TlsPort)].map(|port| port.filter(|&port| port > 0));
    let mut on = addresses(&hosts, &ports);
    on.extend(settings.plain(Field::Socket).filter(|path: &String| !path.is_empty()));
    let listen = |on| Listen { on, backlog: backlog.clone(), ..Listen::default() };
    config.listens = on.into_iter().map(listen).collect();
    config.tcp_keepalive_s = reading.value(&settings, Field::TcpKeepalive);
    let timeout = settings.get(Field::KeepaliveTimeout);
    config.keepalive_timeout_s = timeout.filter(|timeout| timeout.value > 0.0);
    config.workers = reading.value(&settings, Field::Workers);
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
fn from_usual_files(reading: &mut Reading<'_>, title: &str) -> Settings {
    let (host, port) = title.rsplit_once(':').unwrap_or((title, ""));
    let here = &reading.process.directory;
    for file in FILES.map(|file| join(here, file)) {
        if reading.all_of(std::slice::from_ref(&file)).is_empty() {
            continue;
        }
        let mut own = Settings::new(Program::Redis);
        read_file(reading, &mut own, &file);
        let folder: String = own.plain(Field::Folder).unwrap_or_default();
        let elsewhere =
            folder.starts_with('/') && folder.trim_end_matches('/') != here.trim_end_matches('/');
        if count(port) == Some(own.plain(Field::Port).unwrap_or(6379)) && !elsewhere {
            return own;
        }
    }
    let mut own = Settings::new(Program::Redis);
    let at = reading.command_line();
    set(&mut own, "port", &[port.to_owned()], &at);
    set(&mut own, "bind", &[host.to_owned()], &at);
    reading.missing(format!(
        "the process title of PID {} hides its arguments, and no Redis file in the usual places has its port",
        reading.process.pid
    ));
    own
}

fn from_arguments(reading: &mut Reading<'_>) -> Settings {
    let mut settings = Settings::new(Program::Redis);
    let process = reading.process;
    let mut rest = process.arguments.iter().skip(1).peekable();
    if let Some(file) = rest.next_if(|file| !file.starts_with('-')) {
        read_file(reading, &mut settings, &join(&process.directory, file));
    }
    let at = reading.command_line();
    while let Some(argument) = rest.next() {
        let Some(name) = argument.strip_prefix("--") else { continue };
        let mut values = Vec::new();
        while let Some(value) = rest.next_if(|next| !next.starts_with("--")) {
            values.extend(words(value, None));
        }
        set(&mut settings, name, &values, &at);
    }
    settings
}

fn read_file(reading: &mut Reading<'_>, settings: &mut Settings, path: &str) {
    lines(reading, &GRAMMAR, (path, 0), &mut |line| {
        set(settings, line.name, line.values, &line.at);
    });
}

fn set(settings: &mut Settings, name: &str, values: &[String], at: &ConfigPosition) {
    settings.set(Level::Main, &name.to_ascii_lowercase(), values, at);
}
