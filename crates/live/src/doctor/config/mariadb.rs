//! MariaDB and `MySQL`: option files with groups, over which arguments stand.

use std::collections::BTreeMap;

use super::reading::{Reading, clipped, join, place, size, switch};
use super::{ConfigPosition, Listen, ServerConfig, Sourced};

/// Option files, in the order in which they are read.
const FILES: [&str; 3] = ["/etc/my.cnf", "/etc/mysql/my.cnf", "/usr/local/etc/my.cnf"];

/// Settings by name; a later one replaces an earlier one.
type Settings = BTreeMap<String, Sourced<String>>;

/// Names that are kept: no other is looked at.
const NAMES: [&str; 10] = [
    "back_log",
    "bind_address",
    "extra_port",
    "max_connections",
    "port",
    "skip_networking",
    "socket",
    "tcp_keepalive_time",
    "wait_timeout",
    "skip_bind_address",
];

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let mut config = reading.config();
    let mut settings = Settings::new();
    let arguments = reading.process.arguments.clone();
    let argument = |name: &str| {
        let joined = format!("{name}=");
        arguments.iter().find_map(|one| one.strip_prefix(&joined)).map(str::to_owned)
    };
    let is_given = |name: &str| arguments.iter().any(|one| one == name);
    let directory = reading.process.directory.clone();
    if !is_given("--no-defaults") {
        let mut files = if let Some(file) = argument("--defaults-file") {
            vec![join(&directory, &file)]
        } else {
            let mut files: Vec<String> = FILES.iter().map(|&file| file.to_owned()).collect();
            files.extend(argument("--defaults-extra-file").map(|file| join(&directory, &file)));
            let home = reading.process.environment.get("HOME");
            files.extend(home.map(|home| join(home, ".my.cnf")));
            reading.all_of(&files)
        };
        files.dedup();
        for file in files {
            read_file(reading, &mut settings, &file, 0);
        }
    }
    let at = reading.command_line();
    for one in arguments.iter().skip(1) {
        if let Some(option) = one.strip_prefix("--") {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            set(&mut settings, name, value, &at);
        }
    }
    fill(reading, &mut config, &settings);
    config
}

fn number(settings: &Settings, name: &str) -> Option<Sourced<u64>> {
    let one = settings.get(name)?;
    Some(Sourced { value: size(&one.value)?, at: one.at.clone() })
}

fn fill(reading: &Reading<'_>, config: &mut ServerConfig, settings: &Settings) {
    let connections = number(settings, "max_connections").or_else(|| reading.default(151));
    // 50 and a fifth of the connections, at most 900; also where it is set to 0.
    let own = connections.as_ref().map(|connections| (50 + connections.value / 5).min(900));
    let backlog = number(settings, "back_log").filter(|backlog| backlog.value > 0);
    let backlog = backlog.or_else(|| reading.default(own?));
    let port = number(settings, "port").or_else(|| reading.default(3306));
    let is_set = |name: &str| {
        let value = settings.get(name).map(|one| one.value.as_str());
        value.is_some_and(|value| value.is_empty() || switch(value) == Some(true))
    };
    let bind = settings.get("bind_address").map(|one| one.value.clone()).unwrap_or_default();
    let ports = [port, number(settings, "extra_port").filter(|port| port.value > 0)];
    let ports = ports.into_iter().flatten().map(|port| port.value);
    for port in ports.filter(|_| !is_set("skip_networking")) {
        for host in bind.split(',').map(str::trim) {
            let host = match host {
                // Both families, where the kernel has both.
                "" | "*" => "[::]".to_owned(),
                bare if bare.contains(':') => format!("[{bare}]"),
                other => other.to_owned(),
            };
            let on = clipped(&format!("{host}:{port}"));
            config.listens.push(Listen { on, backlog: backlog.clone(), ..Listen::default() });
        }
    }
    if let Some(socket) = settings.get("socket").filter(|socket| !socket.value.is_empty()) {
        let on = clipped(&socket.value);
        config.listens.push(Listen { on, backlog, ..Listen::default() });
    }
    let seconds = |one: Sourced<u64>| Sourced { value: one.value as f64, at: one.at };
    config.keepalive_timeout_s =
        number(settings, "wait_timeout").or_else(|| reading.default(28_800)).map(seconds);
    let kernel = reading.process.kernel_keepalive_s;
    // 0 leaves the time to the kernel; probes are sent in any case.
    config.tcp_keepalive_s = match number(settings, "tcp_keepalive_time") {
        Some(time) if time.value > 0 => Some(seconds(time)),
        Some(time) => Some(Sourced { value: kernel, at: time.at }),
        None => reading.default(kernel),
    };
    config.workers = connections;
}

/// Whether the server reads this group: `[mysqld]`, `[mariadb-10.11]`.
fn is_the_servers(group: &str, version: Option<&str>) -> bool {
    let plain = ["mysqld", "server", "mariadb", "mariadbd"];
    if plain.contains(&group) {
        return true;
    }
    let Some((name, suffix)) = group.rsplit_once('-') else { return false };
    let starts = |version: &str| {
        version
            .strip_prefix(suffix)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    plain.contains(&name) && !suffix.is_empty() && version.is_some_and(starts)
}

fn read_file(reading: &mut Reading<'_>, settings: &mut Settings, path: &str, depth: usize) {
    let Some(text) = reading.text(path) else { return };
    let mut is_ours = false;
    for (line, content) in text.lines().enumerate() {
        let content = content.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(folder) = content.strip_prefix("!includedir") {
            let pattern = format!("{}/*.cnf", folder.trim().trim_end_matches('/'));
            for file in reading.included(&pattern, depth, true) {
                read_file(reading, settings, &file, depth + 1);
            }
        } else if let Some(file) = content.strip_prefix("!include") {
            for file in reading.included(file.trim(), depth, false) {
                read_file(reading, settings, &file, depth + 1);
            }
        } else if let Some(group) = content.strip_prefix('[') {
            let group = group.split(']').next().unwrap_or(group).trim();
            is_ours = is_the_servers(group, reading.process.version.as_deref());
        } else if is_ours {
            let (name, value) = content.split_once('=').unwrap_or((content, ""));
            let value = value.trim();
            let quoted = value.strip_prefix(['"', '\'']);
            let value = match quoted {
                Some(rest) => rest.split(['"', '\'']).next().unwrap_or(rest),
                None => value.split(" #").next().unwrap_or(value).trim(),
            };
            set(settings, name, value, &place(path, line));
        }
    }
}

fn set(settings: &mut Settings, name: &str, value: &str, at: &ConfigPosition) {
    let name = name.trim().to_ascii_lowercase().replace('-', "_");
    let name = name.strip_prefix("loose_").unwrap_or(&name);
    if NAMES.contains(&name) {
        let value = clipped(value.trim());
        settings.insert(name.to_owned(), Sourced { value, at: at.clone() });
    }
}
