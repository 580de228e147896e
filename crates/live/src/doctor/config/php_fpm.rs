//! PHP-FPM: a file of the main process and pools, each a section.

use super::directives::{Field, Level};
use super::lines::{Grammar, ini, lines};
use super::reading::{Reading, address, clipped, folder, join, option};
use super::settings::Settings;
use super::{ENTRIES_MAX, Listen, Program, ServerConfig, Sourced};

/// Configuration files: the official image's, Red Hat's.
const FILES: [&str; 2] = ["/usr/local/etc/php-fpm.conf", "/etc/php-fpm.conf"];

const GRAMMAR: Grammar = Grammar {
    words: |line| ini(line, &['"'], ";"),
    opens: |word| word == "[",
    includes: |reading, path, name, values| {
        let pattern = values.first().filter(|_| name == "include")?;
        Some(vec![join(prefix(reading, path), pattern)])
    },
};

pub(super) fn read(reading: &mut Reading<'_>) -> ServerConfig {
    let mut config = reading.config();
    let Some(file) = file(reading) else { return config };
    let mut pools: Vec<(String, Settings)> = Vec::new();
    lines(reading, &GRAMMAR, (&file, 0), &mut |line| {
        let [_, name] = line.section else { return };
        if name.eq_ignore_ascii_case("global") {
            return;
        }
        if line.opens {
            // The same pool in two files is one.
            let known = pools.iter().position(|(pool, _)| pool == name);
            let known = known.map(|at| pools.remove(at));
            let pool = known.unwrap_or_else(|| (name.clone(), Settings::new(Program::PhpFpm)));
            if pools.len() < ENTRIES_MAX {
                pools.push(pool);
            }
        } else if let (Some((name, pool)), [value]) = (pools.last_mut(), line.values) {
            pool.set(Level::Section, line.name, &[value.replace("$pool", name)], &line.at);
        }
    });
    for (name, pool) in pools {
        let Some(listen) = pool.plain::<String>(Field::Bind) else { continue };
        let on =
            if listen.starts_with('/') { Some(listen) } else { address(&listen, "[::]", None) };
        let Some(on) = on else { continue };
        config.listens.push(Listen {
            on: clipped(&on),
            backlog: pool.get(Field::Backlog),
            section: Some(clipped(&name)),
            workers: pool.get(Field::Workers),
            request_timeout_s: reading.value(&pool, Field::RequestTimeout),
            ..Listen::default()
        });
    }
    let children = config.listens.iter().map(|listen| listen.workers.as_ref());
    let sum = children.clone().try_fold(0_u64, |sum, one| sum.checked_add(one?.value));
    let first = children.flatten().next();
    config.workers = first.zip(sum).map(|(first, value)| Sourced { value, at: first.at.clone() });
    config
}

/// The main file: in the title `php-fpm: master process (FILE)`, else an argument, else a usual one.
fn file(reading: &mut Reading<'_>) -> Option<String> {
    let process = reading.process;
    let arguments = &process.arguments;
    let title = arguments.first().and_then(|title| title.split_once("master process ("));
    let title = title.map(|(_, rest)| rest.split(')').next().unwrap_or(rest).to_owned());
    let long = || {
        let at = arguments.iter().position(|one| one == "--fpm-config")?;
        arguments.get(at + 1).cloned()
    };
    let joined = || arguments.iter().find_map(|one| one.strip_prefix("--fpm-config="));
    let given = title.or_else(long).or_else(|| joined().map(str::to_owned));
    if let Some(path) = given.or_else(|| option(arguments, "-y")) {
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
