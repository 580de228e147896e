//! MariaDB and `MySQL`: option files with groups, over which arguments stand.

use super::directives::{Field, Level};
use super::lines::{Grammar, ini, lines};
use super::reading::{Reading, addresses, join};
use super::settings::Settings;
use super::{ConfigPosition, Listen, Program, ServerConfig, Sourced};

/// Option files, in the order in which they are read.
const FILES: [&str; 3] = ["/etc/my.cnf", "/etc/mysql/my.cnf", "/usr/local/etc/my.cnf"];

const GRAMMAR: Grammar = Grammar {
    words: |line| ini(line, &['"', '\''], " #"),
    opens: |word| word == "[",
    includes: |_, _, name, values| match (name, values) {
        ("!include", [file]) => Some(vec![file.clone()]),
        ("!includedir", [folder]) => Some(vec![format!("{}/*.cnf", folder.trim_end_matches('/'))]),
        _ => None,
    },
};

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let mut settings = Settings::new(Program::Mariadb);
    let process = reading.process;
    let argument = |name: &str| {
        let value = process.arguments.iter().find_map(|one| one.strip_prefix(name));
        value.map(|file| join(&process.directory, file))
    };
    let mut files = match argument("--defaults-file=") {
        _ if process.arguments.iter().any(|one| one == "--no-defaults") => Vec::new(),
        Some(file) => vec![file],
        None => {
            let mut files: Vec<String> = FILES.iter().map(|&file| file.to_owned()).collect();
            files.extend(argument("--defaults-extra-file="));
            files.extend(process.environment.get("HOME").map(|home| join(home, ".my.cnf")));
            reading.all_of(&files)
        }
    };
    files.dedup();
    for file in files {
        lines(reading, &GRAMMAR, (&file, 0), &mut |line| {
            if let [_, group] = line.section
                && is_the_servers(group, process.version.as_deref())
            {
                set(&mut settings, line.name, line.values, &line.at);
            }
        });
    }
    let at = reading.command_line();
    for option in process.arguments.iter().skip(1).filter_map(|one| one.strip_prefix("--")) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        set(&mut settings, name, &[value.trim().to_owned()], &at);
    }
    config(reading, &settings)
}

fn config(reading: &Reading<'_>, settings: &Settings) -> ServerConfig {
    let mut config = reading.config();
    config.workers = reading.value(settings, Field::Workers);
    let own = config.workers.as_ref().map(|connections| (50 + connections.value / 5).min(900));
    let backlog = settings.get(Field::Backlog).or_else(|| reading.default(own?));
    if settings.plain(Field::SkipNetworking) != Some(true) {
        let bind = settings.plain::<String>(Field::Bind).unwrap_or_default();
        let port = reading.value(settings, Field::Port).map(|port| port.value);
        let hosts = bind.split(',').map(|host| match host.trim() {
            // Both families, where the kernel has both.
            "" | "*" => "::",
            host => host,
        });
        let on = addresses(&hosts.collect::<Vec<_>>(), &[port, settings.plain(Field::ExtraPort)]);
        let listen = |on| Listen { on, backlog: backlog.clone(), ..Listen::default() };
        config.listens = on.into_iter().map(listen).collect();
    }
    if let Some(on) = settings.plain(Field::Socket).filter(|path: &String| !path.is_empty()) {
        config.listens.push(Listen { on, backlog, ..Listen::default() });
    }
    config.keepalive_timeout_s = reading.value(settings, Field::KeepaliveTimeout);
    let kernel = reading.process.kernel_keepalive_s;
    let time = settings.get(Field::TcpKeepalive).or_else(|| reading.default(0.0));
    config.tcp_keepalive_s = time.map(|Sourced { value, at }| {
        let value = if value > 0.0 { value } else { kernel };
        Sourced { value, at }
    });
    config
}

/// Whether the server reads this group: `[mysqld]`, `[mariadb-10.11]`.
fn is_the_servers(group: &str, version: Option<&str>) -> bool {
    let plain = ["mysqld", "server", "mariadb", "mariadbd"];
    if plain.contains(&group) {
        return true;
    }
    let Some((name, suffix)) = group.rsplit_once('-') else { return false };
    let rest = version.and_then(|version| version.strip_prefix(suffix));
    let is_its = rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    plain.contains(&name) && !suffix.is_empty() && is_its
}

fn set(settings: &mut Settings, name: &str, values: &[String], at: &ConfigPosition) {
    let name = name.trim().to_ascii_lowercase().replace('-', "_");
    settings.set(Level::Main, name.strip_prefix("loose_").unwrap_or(&name), values, at);
}
