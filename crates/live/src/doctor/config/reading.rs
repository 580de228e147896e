//! Reading a configuration within bounds: files by path, their lines, where a value stands, and values as
//! programs write them: times, sizes, switches, addresses.

use std::collections::BTreeMap;

use super::directives::{self, Field};
use super::settings::Settings;
use super::values::Kind;
pub(super) use super::values::{clipped, count, seconds};
use super::{ConfigPosition, DEFAULT_OF, Program, ServerConfig, Sourced};

/// Files of one server's configuration, at most.
const FILES_MAX: usize = 256;
/// Length of one file, bytes, at most.
pub(super) const FILE_MAX: usize = 1 << 20;
/// Length of all files of one server, bytes, at most.
const ALL_MAX: usize = 8 << 20;
/// Files that include each other, at most.
pub(super) const DEPTH_MAX: usize = 8;
/// Reasons in `unread`, at most.
const UNREAD_MAX: usize = 16;

/// Where the text of files comes from.
pub trait Files {
    /// The text of a file.
    ///
    /// Errors: why it cannot be read.
    fn read(&mut self, path: &str) -> Result<String, String>;

    /// Paths that match a pattern of the shell (`*`, `?`, `[…]`), in order. A path without a
    /// wildcard matches itself if it is there. A folder matches too.
    ///
    /// Errors: why a folder cannot be listed.
    fn matching(&mut self, pattern: &str) -> Result<Vec<String>, String>;
}

/// What is known of a running server besides its files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    pub pid: u32,
    pub version: Option<String>,
    /// Its arguments, the program's name first. Several may stand in one, as titles have them.
    pub arguments: Vec<String>,
    pub program: String,
    pub directory: String,
    /// Addresses that it listens on, as the kernel has them.
    pub sockets: Vec<String>,
    /// Its environment, where that may be read.
    pub environment: BTreeMap<String, String>,
    /// CPUs that it may use.
    pub cpus: u64,
    /// `net.ipv4.tcp_keepalive_time`, s.
    pub kernel_keepalive_s: f64,
}

/// One configuration while it is read.
pub(super) struct Reading<'a> {
    program: Program,
    pub(super) process: &'a Process,
    files: &'a mut dyn Files,
    files_left: usize,
    bytes_left: usize,
    unread: Vec<String>,
    read: Vec<String>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(program: Program, process: &'a Process, files: &'a mut dyn Files) -> Self {
        let (files_left, bytes_left, unread, read) = (FILES_MAX, ALL_MAX, Vec::new(), Vec::new());
        Self { program, process, files, files_left, bytes_left, unread, read }
    }

    /// The configuration so far: nothing but the process.
    pub(super) fn config(&self) -> ServerConfig {
        let mut config = ServerConfig::new(self.program, self.process.pid);
        config.version.clone_from(&self.process.version);
        config
    }

    /// Files that were read, and reasons why others were not.
    pub(super) fn into_files(self) -> (Vec<String>, Vec<String>) {
        (self.read, self.unread)
    }

    /// Notes that a part of the configuration is not known.
    pub(super) fn missing(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        if self.unread.len() < UNREAD_MAX && !self.unread.contains(&reason) {
            self.unread.push(reason);
        }
    }

    /// The text of a file; a file that cannot be read is noted.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        let text = self.bounded(path);
        let path = clipped(path);
        match text {
            Ok(_) if self.read.contains(&path) => {}
            Ok(_) => self.read.push(path),
            Err(ref reason) => self.missing(format!("{path}: {reason}")),
        }
        text.ok()
    }

    fn bounded(&mut self, path: &str) -> Result<String, String> {
        let left = self.files_left.checked_sub(1);
        self.files_left = left.ok_or_else(|| format!("more than {FILES_MAX} files"))?;
        let text = self.files.read(path)?;
        if text.len() > FILE_MAX {
            return Err("longer than 1 MiB".to_owned());
        }
        let left = self.bytes_left.checked_sub(text.len());
        self.bytes_left = left.ok_or("all files together are longer than 8 MiB")?;
        Ok(text)
    }

    /// Paths that a pattern names. A path without a wildcard that is not there is noted, unless the
    /// program itself accepts that.
    pub(super) fn included(&mut self, pattern: &str, depth: usize, optional: bool) -> Vec<String> {
        let paths = if depth >= DEPTH_MAX {
            Err(format!("includes are nested more than {DEPTH_MAX} deep"))
        } else {
            self.files.matching(pattern)
        };
        let is_expected = !optional && !pattern.contains(['*', '?', '[']);
        match paths {
            Ok(paths) if !paths.is_empty() => return paths,
            Ok(_) if is_expected => self.missing(format!("{}: no such file", clipped(pattern))),
            Ok(_) => {}
            Err(reason) => self.missing(format!("{}: {reason}", clipped(pattern))),
        }
        Vec::new()
    }

    /// The first of these paths that is there; otherwise, it is noted that none is.
    pub(super) fn first_of(&mut self, candidates: &[&str]) -> Option<String> {
        let mut refused = None;
        for path in candidates {
            match self.files.matching(path) {
                Ok(paths) if !paths.is_empty() => return Some((*path).to_owned()),
                Ok(_) => {}
                Err(reason) => refused = refused.or(Some(format!("{path}: {reason}"))),
            }
        }
        let name = self.program.name();
        let none = || format!("no configuration file of {name} is in the usual places");
        self.missing(refused.unwrap_or_else(none));
        None
    }

    /// Those of these paths that are there.
    pub(super) fn all_of(&mut self, candidates: &[String]) -> Vec<String> {
        candidates.iter().flat_map(|path| self.included(path, 0, true)).collect()
    }

    /// A default of the program; none while a file is missing that may set another value.
    pub(super) fn default<T>(&self, value: T) -> Option<Sourced<T>> {
        self.unread.is_empty().then(|| Sourced { value, at: self.default_place() })
    }

    /// What is set, or else the program's default.
    pub(super) fn value<T: Kind>(&self, set: &Settings, field: Field) -> Option<Sourced<T>> {
        set.get(field).or_else(|| self.preset(field))
    }

    /// The program's default of a field.
    pub(super) fn preset<T: Kind>(&self, field: Field) -> Option<Sourced<T>> {
        let is_at_least = |version| self.is_at_least(version);
        let (unit, text) = directives::preset(self.program, field, is_at_least)?;
        self.default(unit.read(text)?)
    }

    fn default_place(&self) -> ConfigPosition {
        let version = self.process.version.as_deref().map(|version| format!(" {version}"));
        let (name, version) = (self.program.name(), version.unwrap_or_default());
        ConfigPosition { file: format!("{DEFAULT_OF}{name}{version}"), line: None }
    }

    /// The place of an argument.
    pub(super) fn command_line(&self) -> ConfigPosition {
        ConfigPosition { file: format!("the command line of PID {}", self.process.pid), line: None }
    }

    /// Whether the server's version is known to be this one or a later one.
    pub(super) fn is_at_least(&self, version: [u64; 3]) -> Option<bool> {
        let text = self.process.version.as_deref()?;
        let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u64>);
        let mut own = [0; 3];
        for (place, part) in own.iter_mut().zip(&mut parts) {
            *place = part.unwrap_or(0);
        }
        (own[0] > 0).then_some(own >= version)
    }
}

/// A place in a file; `line` counts from 0.
pub(super) fn place(file: &str, line: usize) -> ConfigPosition {
    ConfigPosition { file: clipped(file), line: u32::try_from(line + 1).ok() }
}

/// A path as a program sees it that resolves it against this folder.
pub(super) fn join(folder: &str, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    format!("{}/{}", folder.trim_end_matches('/'), path.strip_prefix("./").unwrap_or(path))
}

/// The folder of a file.
pub(super) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| if folder.is_empty() { "/" } else { folder })
}

/// Words of one line: separated by white space, quoted by `"` or `'`, where `\` keeps the next
/// character. Ends at `comment` where a word would begin.
pub(super) fn words(line: &str, comment: Option<char>) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        match rest.peek() {
            None => return words,
            Some(&first) if Some(first) == comment => return words,
            Some(_) => {}
        }
        let (mut word, mut quote) = (String::new(), None);
        while let Some(c) = rest.next() {
            match quote {
                Some(end) if c == end => quote = None,
                None if c == '"' || c == '\'' => quote = Some(c),
                None if c.is_whitespace() => break,
                _ if c == '\\' && quote != Some('\'') => word.extend(rest.next()),
                _ => word.push(c),
            }
        }
        words.push(word);
    }
}

/// The value of an option: `-c FILE` or `-cFILE`, as `getopt` takes both.
pub(super) fn option(arguments: &[String], short: &str) -> Option<String> {
    let mut arguments = arguments.iter().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == short {
            return arguments.next().cloned();
        }
        if let Some(value) = argument.strip_prefix(short) {
            return Some(value.to_owned());
        }
    }
    None
}

/// `address:port` of an address that may lack either: `8080`, `*:80`, `:80`, `[::]:80`, `localhost`.
pub(super) fn address(text: &str, any: &str, port: Option<u16>) -> Option<String> {
    let text = text.trim();
    if let Ok(port) = text.parse::<u16>() {
        return Some(format!("{any}:{port}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        // The colon of an IPv6 address is no port's.
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (text, port?),
        Some((host, port)) => (host, port.parse().ok()?),
        None => (text, port?),
    };
    let host = if host.is_empty() || host == "*" { any } else { host };
    Some(if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    })
}

/// Host and port of a URL, and its path of a Unix socket if it has one.
pub(super) fn url_host(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if let Some(path) = rest.strip_prefix("unix:") {
        return Some(path.split(':').next().unwrap_or(path).to_owned());
    }
    let host = rest.split(['/', '?', '#']).next()?;
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let port = match scheme.to_ascii_lowercase().as_str() {
        "https" | "wss" | "h2" => 443,
        "fcgi" => 8000,
        "ajp" => 8009,
        _ => 80,
    };
    if host.is_empty() { None } else { address(host, "localhost", Some(port)) }
}

/// The addresses of hosts and ports.
pub(super) fn addresses(hosts: &[&str], ports: &[Option<u64>]) -> Vec<String> {
    let on = |host: &str, port: u64| match host {
        bare if bare.contains(':') && !bare.starts_with('[') => format!("[{bare}]:{port}"),
        host => format!("{host}:{port}"),
    };
    let ports = ports.iter().copied().flatten();
    ports.flat_map(|port| hosts.iter().map(move |host| clipped(&on(host, port)))).collect()
}

/// The shortest of several times.
pub(super) fn shortest(times: impl Iterator<Item = Option<Sourced<f64>>>) -> Option<Sourced<f64>> {
    times.flatten().min_by(|one, other| one.value.total_cmp(&other.value))
}
