//! Application servers behind a proxy: after which idle time they close a connection, and which backlog they ask for.
//!
//! They are configured by a command line, by a file in their own language, or by code. Of a file only plain values are
//! read; one that is computed makes the whole configuration unread. What code may set is presumed to be the default,
//! and its place says so. What they listen on is the kernel's to say, but for Unix sockets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reading::{Reading, address, clipped, count, join, place, words};
use super::{ConfigPosition, Listen, ServerConfig, Sourced};

/// An application server.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum App {
    /// Gunicorn.
    Gunicorn,
    /// Uvicorn.
    Uvicorn,
    /// Hypercorn.
    Hypercorn,
    /// Node.js.
    Node,
    /// Puma.
    Puma,
    /// Tomcat.
    Tomcat,
    /// Jetty.
    Jetty,
}

/// What a server does if nobody says otherwise.
pub(crate) struct Facts {
    app: App,
    name: &'static str,
    /// Idle connections are closed after this, s.
    pub(crate) keepalive_s: f64,
    backlog: f64,
    /// The line that sets the idle time, with `SECONDS` or `MILLISECONDS` in it.
    setting: &'static str,
    unit: Option<&'static str>,
}

/// The defaults. Sources and the versions they were checked for stand in `docs/causes.md`, `close-race`.
#[rustfmt::skip]
pub(crate) const FACTS: [Facts; 7] = [
    Facts { app: App::Gunicorn, name: "gunicorn", keepalive_s: 2.0, backlog: 2_048.0, setting: "gunicorn --keep-alive SECONDS", unit: Some("gunicorn") },
    Facts { app: App::Uvicorn, name: "Uvicorn", keepalive_s: 5.0, backlog: 2_048.0, setting: "uvicorn --timeout-keep-alive SECONDS", unit: None },
    Facts { app: App::Hypercorn, name: "Hypercorn", keepalive_s: 5.0, backlog: 100.0, setting: "hypercorn --keep-alive SECONDS", unit: None },
    Facts { app: App::Node, name: "Node.js", keepalive_s: 5.0, backlog: 511.0, setting: "server.keepAliveTimeout = MILLISECONDS", unit: None },
    Facts { app: App::Puma, name: "Puma", keepalive_s: 20.0, backlog: 1_024.0, setting: "persistent_timeout SECONDS", unit: Some("puma") },
    Facts { app: App::Tomcat, name: "Tomcat", keepalive_s: 60.0, backlog: 100.0, setting: "<Connector … keepAliveTimeout=\"MILLISECONDS\">", unit: Some("tomcat10") },
    Facts { app: App::Jetty, name: "Jetty", keepalive_s: 30.0, backlog: 50.0, setting: "jetty.http.idleTimeout=MILLISECONDS", unit: Some("jetty9") },
];

impl App {
    fn facts(self) -> &'static Facts {
        FACTS.iter().find(|facts| facts.app == self).unwrap_or(&FACTS[0])
    }

    /// Its name in a sentence.
    pub(super) fn name(self) -> &'static str {
        self.facts().name
    }

    /// Its unit of systemd, where a package has one.
    pub(crate) fn unit(self) -> Option<&'static str> {
        self.facts().unit
    }

    /// The line that makes it keep idle connections for this long.
    pub(crate) fn keeping(self, s: f64) -> String {
        let setting = self.facts().setting;
        let milliseconds = format!("{:.0}", s * 1e3);
        setting
            .replace("MILLISECONDS", &milliseconds)
            .replace("SECONDS", &format!("{:.0}", s.ceil()))
    }

    /// Which one a process is, by its name and its arguments.
    pub(crate) fn of(comm: &str, arguments: &[String]) -> Option<Self> {
        let first = arguments.first()?.as_str();
        let is = |text: &str, name: &str| base(text) == name;
        if first.starts_with("gunicorn: master") {
            return Some(Self::Gunicorn);
        }
        if first.starts_with("puma ") && first.contains(" (") {
            return Some(Self::Puma);
        }
        if is(first, "java") {
            let has = |part: &str| arguments.iter().any(|one| one.contains(part));
            return if has("org.apache.catalina.startup.Bootstrap") {
                Some(Self::Tomcat)
            } else {
                (has("-Djetty.base=") || arguments.iter().any(|one| is(one, "start.jar")))
                    .then_some(Self::Jetty)
            };
        }
        let script = program(arguments)?;
        match base(script) {
            "gunicorn" | "gunicorn3" => Some(Self::Gunicorn),
            "uvicorn" => Some(Self::Uvicorn),
            "hypercorn" => Some(Self::Hypercorn),
            "puma" => Some(Self::Puma),
            _ => (comm == "node" || is(first, "node") || is(first, "nodejs")).then_some(Self::Node),
        }
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The program, or the script or module that an interpreter runs.
fn program(arguments: &[String]) -> Option<&str> {
    let first = arguments.first()?.as_str();
    let interprets = ["python", "ruby", "bundle"].iter().any(|name| base(first).starts_with(name));
    if !interprets {
        return Some(first);
    }
    arguments[1..].iter().map(String::as_str).find(|one| !one.starts_with('-') && *one != "exec")
}

/// Whether a process by this name may be one: its arguments are worth a look.
pub(crate) fn may_be(comm: &str) -> bool {
    const NAMES: [&str; 10] = [
        "python",
        "gunicorn",
        "uvicorn",
        "hypercorn",
        "node",
        "MainThread",
        "ruby",
        "puma",
        "java",
        "bundle",
    ];
    NAMES.iter().any(|name| comm.starts_with(name))
}

pub(super) fn read(reading: &mut Reading<'_>, app: App) -> ServerConfig {
    let mut config = reading.config();
    let facts = app.facts();
    match app {
        App::Gunicorn => gunicorn(reading, &mut config, facts),
        App::Uvicorn => uvicorn(reading, &mut config, facts),
        App::Hypercorn => hypercorn(reading, &mut config, facts),
        App::Node => node(reading, &mut config, facts),
        App::Puma => puma(reading, &mut config, facts),
        App::Tomcat => tomcat(reading, &mut config, facts),
        App::Jetty => jetty(reading, &mut config, facts),
    }
    config
}

/// How the place of a default ends that code may have changed.
const PRESUMED: &str = " (presumed: code can set another)";

impl ConfigPosition {
    /// Whether code may have set another value, which no file shows.
    pub fn is_presumed(&self) -> bool {
        self.file.ends_with(PRESUMED)
    }
}

/// A default that code may have changed.
fn presumed<T>(reading: &Reading<'_>, value: T) -> Option<Sourced<T>> {
    let mut default = reading.default(value)?;
    default.at.file.push_str(PRESUMED);
    Some(default)
}

/// What is written in a file of the program's language.
enum Written {
    Plain(String, usize),
    /// By an expression, or under a condition.
    Computed(usize),
}

/// The last assignment `name = value` of a file in Python or TOML.
fn assigned(text: &str, name: &str) -> Option<Written> {
    let mut found = None;
    for (number, line) in text.lines().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix(name) else { continue };
        let Some(value) = rest.trim_start().strip_prefix('=').filter(|one| !one.starts_with('='))
        else {
            continue;
        };
        let value = value.split('#').next().unwrap_or(value).trim();
        let is_plain = value.parse::<f64>().is_ok() || value.starts_with(['"', '\'', '[']);
        found = Some(if is_plain && !line.starts_with(char::is_whitespace) {
            Written::Plain(value.to_owned(), number)
        } else {
            Written::Computed(number)
        });
    }
    found
}

/// Quoted texts of a value: `"a"`, `['a', "b"]`.
fn quoted(value: &str) -> Vec<String> {
    let parts = value.split(['"', '\'']).skip(1).step_by(2);
    parts.take(64).map(str::to_owned).collect()
}

/// Arguments over a file.
struct Layers {
    arguments: Vec<String>,
    at: ConfigPosition,
    file: Option<(String, String)>,
}

impl Layers {
    /// All values of an option.
    fn options(&self, names: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            for name in names {
                let rest = argument.strip_prefix(name);
                let value = match rest {
                    Some("") => arguments.next().cloned(),
                    Some(rest) if name.starts_with("--") => {
                        rest.strip_prefix('=').map(str::to_owned)
                    }
                    Some(rest) => Some(rest.to_owned()),
                    None => continue,
                };
                found.extend(value.filter(|_| found.len() < 64));
                break;
            }
        }
        found
    }

    /// A setting by its options and its name in the file.
    fn text(
        &self,
        reading: &mut Reading<'_>,
        options: &[&str],
        name: &str,
    ) -> Option<Sourced<String>> {
        if let Some(value) = self.options(options).pop() {
            return Some(Sourced { value, at: self.at.clone() });
        }
        let (path, text) = self.file.as_ref()?;
        match assigned(text, name)? {
            Written::Plain(value, line) => Some(Sourced { value, at: place(path, line) }),
            Written::Computed(line) => {
                reading.missing(format!("{}: the value of {name} is computed", place(path, line)));
                None
            }
        }
    }

    /// As [`Self::text`], a number, or this default.
    fn number(
        &self,
        reading: &mut Reading<'_>,
        options: &[&str],
        name: &str,
        default: f64,
    ) -> Option<Sourced<f64>> {
        match self.text(reading, options, name) {
            Some(Sourced { value, at }) => {
                let value = value.trim().parse().ok().filter(|s: &f64| s.is_finite())?;
                Some(Sourced { value, at })
            }
            None => reading.default(default),
        }
    }
}

fn whole(number: Sourced<f64>) -> Sourced<u64> {
    Sourced { value: number.value as u64, at: number.at }
}

/// The listeners that the kernel has of the process, and the Unix sockets among these addresses; without listeners,
/// all of these addresses.
fn listens(reading: &Reading<'_>, binds: &[String], backlog: Option<&Sourced<u64>>) -> Vec<Listen> {
    let own = &reading.process.sockets;
    let path = |bind: &String| {
        let path = bind.strip_prefix("unix:")?;
        Some(path.strip_prefix("//").unwrap_or(path).split('?').next()?.to_owned())
    };
    let tcp = |bind: &String| {
        let bind = bind.strip_prefix("tcp://").unwrap_or(bind).split('?').next()?;
        if bind.contains("//") || bind.starts_with("unix:") {
            None
        } else {
            address(bind, "0.0.0.0", Some(8_000))
        }
    };
    let mut on: Vec<String> =
        if own.is_empty() { binds.iter().filter_map(tcp).collect() } else { own.clone() };
    on.extend(binds.iter().filter_map(path));
    let listen =
        |on: String| Listen { on: clipped(&on), backlog: backlog.cloned(), ..Listen::default() };
    on.into_iter().map(listen).collect()
}

/// Settings: <https://docs.gunicorn.org/en/stable/settings.html>; workers: `gunicorn/workers/` of 20.1.0.
fn gunicorn(reading: &mut Reading<'_>, config: &mut ServerConfig, facts: &Facts) {
    let process = reading.process;
    if process.arguments.first().is_some_and(|one| one.starts_with("gunicorn: ")) {
        reading.missing("the title of gunicorn hides its arguments");
    }
    let mut layers = of_arguments(reading, "GUNICORN_CMD_ARGS");
    let own = layers.options(&["-c", "--config"]).pop();
    let file = own.as_deref().unwrap_or("gunicorn.conf.py");
    let path = join(&process.directory, file.strip_prefix("file:").unwrap_or(file));
    // Without the option the file may be absent.
    if file.starts_with("python:") {
        reading.missing(format!("{}: a module of Python", clipped(file)));
    } else if own.is_some() || !reading.all_of(std::slice::from_ref(&path)).is_empty() {
        layers.file = reading.text(&path).map(|text| (path, text));
    }
    let keeps = layers.number(reading, &["--keep-alive"], "keepalive", facts.keepalive_s);
    let class = layers.text(reading, &["-k", "--worker-class"], "worker_class");
    let threads = layers.number(reading, &["--threads"], "threads", 1.0);
    let backlog = layers.number(reading, &["--backlog"], "backlog", facts.backlog).map(whole);
    let name = class.as_ref().map_or("sync", |class| class.value.trim_matches(['"', '\'']));
    let name = name.rsplit('.').next().unwrap_or(name);
    config.keepalive_timeout_s = match name {
        // It serves one request a connection.
        "sync" | "SyncWorker" if threads.as_ref().is_some_and(|one| one.value <= 1.0) => class
            .as_ref()
            .map(|class| Sourced { value: 0.0, at: class.at.clone() })
            .or_else(|| reading.default(0.0)),
        "sync" | "SyncWorker" | "gthread" | "ThreadWorker" | "gevent" | "GeventWorker"
        | "eventlet" | "EventletWorker" | "UvicornWorker" | "UvicornH11Worker" => keeps,
        // Tornado has a time of its own, and so may others.
        _ => None,
    };
    let mut binds = layers.options(&["-b", "--bind"]);
    if binds.is_empty() {
        binds = layers.text(reading, &[], "bind").map_or(Vec::new(), |bind| quoted(&bind.value));
    }
    config.listens = listens(reading, &binds, backlog.as_ref());
}

/// The arguments of the process, over those of a variable of its environment.
fn of_arguments(reading: &Reading<'_>, variable: &str) -> Layers {
    let process = reading.process;
    let own = process.environment.get(variable).map_or(Vec::new(), |text| words(text, None));
    let arguments = own.into_iter().chain(process.arguments.iter().cloned()).collect();
    Layers { arguments, at: reading.command_line(), file: None }
}

/// Settings: <https://www.uvicorn.org/settings/>; `uvicorn/main.py` of 0.17.6.
fn uvicorn(reading: &mut Reading<'_>, config: &mut ServerConfig, facts: &Facts) {
    let mut layers = of_arguments(reading, "");
    let environment = &reading.process.environment;
    for (name, option) in
        [("UVICORN_TIMEOUT_KEEP_ALIVE", "--timeout-keep-alive"), ("UVICORN_BACKLOG", "--backlog")]
    {
        if let Some(value) = environment.get(name) {
            layers.arguments.insert(0, format!("{option}={value}"));
        }
    }
    config.keepalive_timeout_s =
        layers.number(reading, &["--timeout-keep-alive"], "", facts.keepalive_s);
    let backlog = layers.number(reading, &["--backlog"], "", facts.backlog).map(whole);
    let socket = layers.options(&["--uds"]).pop().map(|path| format!("unix:{path}"));
    config.listens = listens(reading, socket.as_slice(), backlog.as_ref());
}

/// Settings: <https://hypercorn.readthedocs.io/en/latest/how_to_guides/configuring.html>; `hypercorn/config.py` of 0.13.2.
fn hypercorn(reading: &mut Reading<'_>, config: &mut ServerConfig, facts: &Facts) {
    let mut layers = of_arguments(reading, "");
    if let Some(file) = layers.options(&["-c", "--config"]).pop() {
        let path = join(&reading.process.directory, file.strip_prefix("file:").unwrap_or(&file));
        if file.starts_with("python:") {
            reading.missing(format!("{}: a module of Python", clipped(&file)));
        } else {
            layers.file = reading.text(&path).map(|text| (path, text));
        }
    }
    config.keepalive_timeout_s =
        layers.number(reading, &["--keep-alive"], "keep_alive_timeout", facts.keepalive_s);
    let backlog = layers.number(reading, &["--backlog"], "backlog", facts.backlog).map(whole);
    let mut binds = layers.options(&["-b", "--bind"]);
    if binds.is_empty() {
        binds = layers.text(reading, &[], "bind").map_or(Vec::new(), |bind| quoted(&bind.value));
    }
    config.listens = listens(reading, &binds, backlog.as_ref());
}

/// `keepAliveTimeout` of the script, where it is a number; 5 s before Node.js 26, 65 s since (nodejs/node#62782). A
/// script that names Fastify is not presumed to have it: Fastify sets 72 s.
fn node(reading: &mut Reading<'_>, config: &mut ServerConfig, facts: &Facts) {
    let backlog = presumed(reading, facts.backlog).map(whole);
    config.listens = listens(reading, &[], backlog.as_ref());
    let mut arguments = reading.process.arguments.iter().skip(1);
    let script = arguments.find(|one| !one.starts_with('-'));
    let path = script.map(|script| join(&reading.process.directory, script));
    let path = path.and_then(|path| reading.all_of(&[path]).pop());
    let text = path.as_ref().and_then(|path| reading.text(path)).unwrap_or_default();
    let lines = text.lines().enumerate();
    let written =
        lines.filter_map(|(number, line)| Some((number, line.split_once("keepAliveTimeout")?.1)));
    config.keepalive_timeout_s = match (written.last(), path) {
        (Some((line, rest)), Some(path)) => {
            let value = rest.trim_start().strip_prefix(['=', ':']);
            let value = value
                .map(|value| value.trim_matches([' ', ';', ',', ')', '}', '\t']).replace('_', ""));
            let ms = value.and_then(|value| count(&value));
            ms.map(|ms| Sourced { value: ms as f64 / 1e3, at: place(&path, line) })
        }
        _ if text.contains("fastify") => None,
        _ => presumed(
            reading,
            if reading.is_at_least([26, 0, 0]) == Some(true) { 65.0 } else { facts.keepalive_s },
        ),
    };
}

/// `persistent_timeout`: 20 s, 65 s since 7.0 (puma/puma#3378). The title has version and addresses, and hides `-C`.
fn puma(reading: &mut Reading<'_>, config: &mut ServerConfig, facts: &Facts) {
    let process = reading.process;
    let title =
        process.arguments.first().and_then(|one| one.strip_prefix("puma ")?.split_once(" ("));
    let binds = title.and_then(|(_, rest)| rest.split_once(')')).map_or("", |(binds, _)| binds);
    let mut binds: Vec<String> = binds.split(',').map(str::to_owned).collect();
    let layers = of_arguments(reading, "");
    let version = title.map(|(version, _)| version.to_owned()).or_else(|| process.version.clone());
    binds.extend(layers.options(&["-b", "--bind"]));
    let asked =
        binds.iter().find_map(|bind| count(bind.split_once("backlog=")?.1.split('&').next()?));
    let backlog = asked.map(|value| Sourced { value, at: reading.command_line() });
    let backlog = backlog.or_else(|| reading.default(facts.backlog).map(whole));
    config.listens = listens(reading, &binds, backlog.as_ref());
    let variable = |name: &&str| process.environment.get(*name).cloned();
    let mode = ["APP_ENV", "RACK_ENV", "RAILS_ENV"].iter().find_map(variable);
    let usual = [
        format!("config/puma/{}.rb", mode.as_deref().unwrap_or("development")),
        "config/puma.rb".to_owned(),
    ];
    let files = layers.options(&["-C", "--config"]).pop().map_or(usual.to_vec(), |own| vec![own]);
    let files: Vec<String> = files.iter().map(|file| join(&process.directory, file)).collect();
    let file = reading.all_of(&files).into_iter().next();
    let text = file.as_ref().and_then(|file| reading.text(file)).unwrap_or_default();
    let lines = text.lines().enumerate();
    let written = lines.filter_map(|(number, line)| {
        Some((number, line.trim_start().strip_prefix("persistent_timeout")?))
    });
    let since_7 = version
        .as_deref()
        .and_then(|text| count(text.split('.').next()?))
        .is_some_and(|major| major >= 7);
    config.keepalive_timeout_s = match (written.last(), file) {
        (Some((line, rest)), Some(file)) => {
            let number = rest.split('#').next().unwrap_or(rest);
            let number = count(number.trim_matches([' ', '(', ')']));
            number.map(|s| Sourced { value: s as f64, at: place(&file, line) })
        }
        _ if since_7 && process.environment.contains_key("PUMA_PERSISTENT_TIMEOUT") => None,
        // The title hides another file that -C may name.
        _ if title.is_some() && text.is_empty() => None,
        _ => presumed(reading, if since_7 { 65.0 } else { facts.keepalive_s }),
    };
    config.version = version;
}

/// `keepAliveTimeout` of a `<Connector>`, else its `connectionTimeout`, else 60 s:
/// <https://tomcat.apache.org/tomcat-10.1-doc/config/http.html>.
fn tomcat(reading: &mut Reading<'_>, config: &mut ServerConfig, facts: &Facts) {
    let base =
        reading.process.arguments.iter().find_map(|one| one.strip_prefix("-Dcatalina.base="));
    let Some(path) = base.map(|base| format!("{base}/conf/server.xml")) else {
        return reading.missing("no -Dcatalina.base among the arguments of Tomcat");
    };
    let Some(text) = reading.text(&path) else { return };
    let text = without_comments(&text);
    for (from, _) in text.match_indices("<Connector").take(64) {
        let tag = text[from..].split('>').next().unwrap_or_default();
        let attribute = |name: &str| -> Option<Sourced<String>> {
            let (before, after) = tag
                .split_once(&format!(" {name}="))
                .or_else(|| tag.split_once(&format!("\n{name}=")))?;
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            let value = after[1..].split(quote).next()?.to_owned();
            let line = text[..=from + before.len()].matches('\n').count();
            Some(Sourced { value, at: place(&path, line) })
        };
        if attribute("protocol").is_some_and(|one| one.value.to_ascii_lowercase().contains("ajp")) {
            continue;
        }
        let Some(port) = attribute("port").and_then(|port| port.value.parse::<u16>().ok()) else {
            continue;
        };
        let host = attribute("address").map_or("[::]".to_owned(), |one| one.value);
        let written = attribute("keepAliveTimeout").or_else(|| attribute("connectionTimeout"));
        let keeps = match written {
            // -1: without limit. A value with ${…} is not known.
            Some(Sourced { value, at }) => {
                count(&value).map(|ms| Sourced { value: ms as f64 / 1e3, at })
            }
            None => reading.default(facts.keepalive_s),
        };
        let backlog = attribute("acceptCount")
            .and_then(|one| Some(Sourced { value: count(&one.value)?, at: one.at }));
        config.listens.push(Listen {
            on: clipped(&address(&host, "[::]", Some(port)).unwrap_or_default()),
            backlog: backlog.or_else(|| reading.default(facts.backlog).map(whole)),
            keepalive_timeout_s: keeps,
            ..Listen::default()
        });
    }
}

/// XML with comments blanked, line for line.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!--") {
        out += before;
        let (comment, after) = after.split_once("-->").unwrap_or((after, ""));
        out.extend(comment.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    out + rest
}

/// `jetty.http.idleTimeout`, ms: an argument, or a line of `start.ini` or `start.d/*.ini`; else 30 s, the default of
/// `modules/http.mod`, over which XML may stand.
fn jetty(reading: &mut Reading<'_>, config: &mut ServerConfig, facts: &Facts) {
    const NAME: &str = "jetty.http.idleTimeout=";
    let process = reading.process;
    let backlog = presumed(reading, facts.backlog).map(whole);
    config.listens = listens(reading, &[], backlog.as_ref());
    let at = reading.command_line();
    let value = |line: &str| count(line.trim().strip_prefix(NAME)?).map(|ms| ms as f64 / 1e3);
    let mut keeps =
        process.arguments.iter().find_map(|one| value(one)).map(|value| Sourced { value, at });
    let base = process.arguments.iter().find_map(|one| one.strip_prefix("-Djetty.base="));
    let base = base.unwrap_or(&process.directory);
    let files = reading.all_of(&[format!("{base}/start.ini"), format!("{base}/start.d/*.ini")]);
    for file in files {
        let Some(text) = reading.text(&file) else { continue };
        let line = text.lines().enumerate().find_map(|(number, line)| Some((number, value(line)?)));
        keeps = keeps
            .or_else(|| line.map(|(number, value)| Sourced { value, at: place(&file, number) }));
    }
    config.keepalive_timeout_s = keeps.or_else(|| presumed(reading, facts.keepalive_s));
}

#[cfg(test)]
mod tests;
