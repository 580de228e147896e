//! PHP-FPM: a file of the main process and pools, each a section.

use super::reading::{Reading, address, clipped, count, folder, join, option, place, seconds};
use super::{ConfigPosition, Listen, ServerConfig, Sourced};

/// Configuration files: the official image's, Red Hat's.
const FILES: [&str; 2] = ["/usr/local/etc/php-fpm.conf", "/etc/php-fpm.conf"];

#[derive(Default)]
struct Pool {
    name: String,
    listen: Option<String>,
    /// Absent also for a negative one, which leaves the backlog to the kernel.
    backlog: Option<Sourced<u64>>,
    children: Option<Sourced<u64>>,
    limit: Option<Sourced<f64>>,
}

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let mut config = reading.config();
    let Some(file) = file(reading) else { return config };
    let mut pools = Vec::new();
    read_file(reading, &mut pools, &file, 0);
    for pool in pools {
        let Some(listen) = pool.listen else { continue };
        let on =
            if listen.starts_with('/') { Some(listen) } else { address(&listen, "[::]", None) };
        let Some(on) = on else { continue };
        config.listens.push(Listen {
            on: clipped(&on),
            // By default PHP-FPM asks for -1 on Linux: as many as the kernel allows. Its old versions
            // asked for 511; which one does is not known for sure, so none is claimed.
            backlog: pool.backlog,
            section: Some(clipped(&pool.name)),
            workers: pool.children,
            request_timeout_s: pool.limit.or_else(|| reading.default(0.0)),
            ..Listen::default()
        });
    }
    let children: Vec<&Sourced<u64>> =
        config.listens.iter().filter_map(|listen| listen.workers.as_ref()).collect();
    let sum = children.iter().try_fold(0_u64, |sum, one| sum.checked_add(one.value));
    config.workers = children
        .first()
        .filter(|_| children.len() == config.listens.len())
        .zip(sum)
        .map(|(first, value)| Sourced { value, at: first.at.clone() });
    config
}

/// The main file: in the title `php-fpm: master process (FILE)`, else an argument, else a usual one.
fn file(reading: &mut Reading<'_>) -> Option<String> {
    let process = reading.process;
    let title = process.arguments.first().map_or("", String::as_str);
    if let Some((_, rest)) = title.split_once("master process (") {
        let path = rest.split(')').next().unwrap_or(rest);
        return Some(join(&process.directory, path));
    }
    let long = process.arguments.iter().position(|one| one == "--fpm-config");
    let long = long.and_then(|at| process.arguments.get(at + 1).cloned());
    let joined = process.arguments.iter().find_map(|one| one.strip_prefix("--fpm-config="));
    if let Some(path) =
        long.or_else(|| joined.map(str::to_owned)).or_else(|| option(&process.arguments, "-y"))
    {
        return Some(join(&process.directory, &path));
    }
    // Debian has a folder per version, as the program's name has it: php-fpm8.2.
    let version = process.program.rsplit_once("php-fpm").map_or("", |(_, version)| version);
    let debian = format!("/etc/php/{version}/fpm/php-fpm.conf");
    reading.first_of(&[&debian, FILES[0], FILES[1]])
}

/// The folder that relative paths of `include` begin at: the one PHP was installed under.
fn prefix<'p>(reading: &'p Reading<'_>, file: &'p str) -> &'p str {
    let program = folder(&reading.process.program);
    let installed = program.strip_suffix("/sbin").or_else(|| program.strip_suffix("/bin"));
    installed.filter(|prefix| !prefix.is_empty()).unwrap_or_else(|| folder(file))
}

fn read_file(reading: &mut Reading<'_>, pools: &mut Vec<Pool>, path: &str, depth: usize) {
    let Some(text) = reading.text(path) else { return };
    let mut in_pool = false;
    for (line, content) in text.lines().enumerate() {
        let content = content.trim();
        if content.starts_with([';', '#']) {
            continue;
        }
        if let Some(name) = content.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or(name).trim();
            in_pool = !name.eq_ignore_ascii_case("global");
            // The same pool in two files is one.
            if in_pool && !pools.iter().any(|pool| pool.name == name) && pools.len() < 256 {
                pools.push(Pool { name: name.to_owned(), ..Pool::default() });
            }
            if in_pool && let Some(at) = pools.iter().position(|pool| pool.name == name) {
                let pool = pools.remove(at);
                pools.push(pool);
            }
            continue;
        }
        let Some((key, value)) = content.split_once('=') else { continue };
        let (key, value) = (key.trim(), plain(value));
        if key == "include" {
            let optional = value.contains('*');
            let pattern = join(prefix(reading, path), &value);
            for file in reading.included(&pattern, depth, optional) {
                read_file(reading, pools, &file, depth + 1);
            }
            continue;
        }
        if in_pool && let Some(pool) = pools.last_mut() {
            let value = value.replace("$pool", &pool.name);
            set(pool, key, &value, &place(path, line));
        }
    }
}

/// A value without its quotes and the comment behind it.
fn plain(value: &str) -> String {
    let value = value.trim();
    if let Some(rest) = value.strip_prefix('"') {
        return rest.split('"').next().unwrap_or(rest).to_owned();
    }
    value.split(';').next().unwrap_or(value).trim().to_owned()
}

fn set(pool: &mut Pool, key: &str, value: &str, at: &ConfigPosition) {
    let number = || count(value).map(|value| Sourced { value, at: at.clone() });
    match key {
        "listen" => pool.listen = Some(value.to_owned()),
        "listen.backlog" => pool.backlog = number(),
        "pm.max_children" => pool.children = number(),
        "request_terminate_timeout" => {
            pool.limit = seconds(value, 1.0).map(|value| Sourced { value, at: at.clone() });
        }
        _ => {}
    }
}
