//! Servers that run in this network namespace, and the configuration that each was started with.
//!
//! No program of the machine is run: `nginx -T` would open log files and resolve names. Main processes are found in
//! `/proc`, and the files they read are read in the root directory of each (`openat2` with `RESOLVE_IN_ROOT`), bounded
//! in number, depth and size. A version is read from the text inside the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tcptoll_core::printable::copy;
use tcptoll_kernel::SysError;
use tcptoll_kernel::root::Root;

use super::config::apps::{App, may_be};
use super::config::{Files, Process, read};
use super::{Listen, Program, ServerConfig};
use crate::watch::ListenerState;
use crate::watch::reader::is_root;
use tcptoll_core::units::host_port;

/// Processes that are looked at, at most.
const PROCESSES_MAX: usize = 65_536;
/// Bytes of a command line, at most.
/// Those of a JVM are long, and its class comes last.
const ARGUMENTS_MAX: u64 = 65_536;
/// Bytes of an environment, at most.
const ENVIRONMENT_MAX: u64 = 65_536;

/// The main process of a server.
pub(super) struct Found {
    pub(super) program: Program,
    pid: u32,
    /// Whether it is in a namespace of processes below this one: a container.
    is_nested: bool,
    /// Whether its network namespace could be read, and is this one.
    pub(super) is_certain: bool,
}

/// A file of `/proc`, as text of at most this length; none where it may not be read.
fn text(path: &str, most: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Which server a process is, by its name.
fn program(pid: u32) -> Option<Program> {
    let name = text(&format!("/proc/{pid}/comm"), 64)?;
    let name = name.trim_end_matches('\n');
    let app = || App::of(name, &arguments(pid)).map(Program::App);
    by_name(name).or_else(|| if may_be(name) { app() } else { None })
}

/// The command line of a process.
fn arguments(pid: u32) -> Vec<String> {
    let arguments = text(&format!("/proc/{pid}/cmdline"), ARGUMENTS_MAX).unwrap_or_default();
    arguments.trim_end_matches('\0').split('\0').map(str::to_owned).collect()
}

fn by_name(name: &str) -> Option<Program> {
    match name {
        "nginx" => Some(Program::Nginx),
        "apache2" | "httpd" => Some(Program::Apache),
        "redis-server" => Some(Program::Redis),
        "haproxy" => Some(Program::Haproxy),
        "mariadbd" | "mysqld" => Some(Program::Mariadb),
        name if name.starts_with("php-fpm") => Some(Program::PhpFpm),
        _ => None,
    }
}

/// Servers whose parent is not the same server, in order of their numbers.
pub(super) fn main_processes() -> Vec<Found> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names =
        entries.take(PROCESSES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<Found> =
        names.filter_map(|name| name.parse().ok()).filter_map(main_process).collect();
    found.sort_by_key(|one| one.pid);
    found
}

fn main_process(pid: u32) -> Option<Found> {
    let program = program(pid)?;
    let status = text(&format!("/proc/{pid}/status"), 8_192)?;
    let parent = field(&status, "PPid:").and_then(|parent| parent.trim().parse().ok());
    // One Node.js may run another: which of them serves, its listener says.
    let is_node = program == Program::App(App::Node);
    if !is_node && parent.is_some_and(|parent| self::program(parent) == Some(program)) {
        return None;
    }
    let depth =
        |status: &str| field(status, "NSpid:").map_or(1, |ids| ids.split_whitespace().count());
    let own = text("/proc/self/status", 8_192).map_or(1, |status| depth(&status));
    let is_nested = depth(&status) > own;
    // Where the namespace may not be read, a process outside of containers is taken for one here.
    let namespace = |path: &str| fs::read_link(path).ok();
    let its = namespace(&format!("/proc/{pid}/ns/net"));
    let is_certain = its.is_some();
    let is_here =
        if is_certain { its == namespace("/proc/thread-self/ns/net") } else { !is_nested };
    is_here.then_some(Found { program, pid, is_nested, is_certain })
}

fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// All that is known of a process, and its root directory.
pub(super) fn describe(found: &Found) -> (Process, Result<Root, String>) {
    let pid = found.pid;
    let own_root = Root::open(Path::new(&format!("/proc/{pid}/root")));
    let root = match own_root {
        // Another user's, outside of containers: its files are those that everybody sees.
        Err(_) if !found.is_nested => Root::open(Path::new("/")),
        other => other,
    };
    let arguments = arguments(pid);
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).ok();
    let exe = link("exe");
    let program = exe.as_ref().map(|exe| exe.display().to_string().replace(" (deleted)", ""));
    let program = program.unwrap_or_else(|| program_path(found.program, &arguments));
    let binary = File::open(format!("/proc/{pid}/exe")).ok().or_else(|| {
        let root = root.as_ref().ok()?;
        root.file(Path::new(&program)).ok()
    });
    let process = Process {
        pid,
        version: binary.and_then(|binary| version(found.program, binary)),
        arguments,
        program,
        directory: directory(link("cwd"), link("root")),
        sockets: Vec::new(),
        environment: environment(pid),
        cpus: cpus().unwrap_or(0),
        kernel_keepalive_s: kernel_keepalive_s(),
    };
    (process, root.map_err(|error| reason(&error)))
}

/// A usual path of a program whose own may not be read.
fn program_path(program: Program, arguments: &[String]) -> String {
    let first = arguments.first().map_or("", String::as_str);
    let words = first.split_whitespace();
    if let Some(path) = words.into_iter().find(|word| word.starts_with('/')) {
        return path.to_owned();
    }
    match program {
        Program::Nginx => "/usr/sbin/nginx",
        Program::Apache => "/usr/sbin/apache2",
        Program::Redis => "/usr/bin/redis-server",
        Program::Haproxy => "/usr/sbin/haproxy",
        Program::PhpFpm => "/usr/sbin/php-fpm",
        Program::Mariadb => "/usr/sbin/mariadbd",
        Program::App(_) => "",
    }
    .to_owned()
}

/// The working directory as the process sees it: inside its root.
fn directory(cwd: Option<PathBuf>, root: Option<PathBuf>) -> String {
    let (Some(cwd), Some(root)) = (cwd, root) else { return "/".to_owned() };
    let inside = cwd.strip_prefix(&root).unwrap_or(&cwd);
    Path::new("/").join(inside).display().to_string()
}

fn environment(pid: u32) -> BTreeMap<String, String> {
    let text = text(&format!("/proc/{pid}/environ"), ENVIRONMENT_MAX).unwrap_or_default();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    // Only the names that configurations are written with: others are nobody's business.
    let wanted = |name: &str| {
        let whole = ["HOME", "GUNICORN_CMD_ARGS", "PUMA_PERSISTENT_TIMEOUT"];
        let modes = ["APP_ENV", "RACK_ENV", "RAILS_ENV"];
        let begins = ["APACHE_", "UVICORN_TIMEOUT_KEEP_ALIVE", "UVICORN_BACKLOG"];
        whole.contains(&name)
            || modes.contains(&name)
            || begins.iter().any(|begin| name.starts_with(begin))
    };
    let pairs = pairs.filter(|(name, _)| wanted(name));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).take(64).collect()
}

/// CPUs that are online.
fn cpus() -> Option<u64> {
    let ranges = text("/sys/devices/system/cpu/online", 4_096)?;
    let mut sum = 0_u64;
    for range in ranges.trim().split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u64, u64) = (low.parse().ok()?, high.parse().ok()?);
        sum += high.checked_sub(low)? + 1;
    }
    Some(sum)
}

/// `net.ipv4.tcp_keepalive_time` of this network namespace.
fn kernel_keepalive_s() -> f64 {
    let time = text("/proc/sys/net/ipv4/tcp_keepalive_time", 32);
    // Two hours is the kernel's own default.
    time.and_then(|time| time.trim().parse().ok()).unwrap_or(7_200.0)
}

/// Servers that are read, at most.
const SERVERS_MAX: usize = 64;

/// A configuration without what steers a terminal: its files, names and values may be anybody's. Nothing is
/// opened by these names any more.
fn printable(config: &ServerConfig) -> ServerConfig {
    copy(config).unwrap_or_else(|_| {
        let why = "a value in its configuration is not a number (NaN or infinite)";
        let unread = vec![why.to_owned()];
        ServerConfig { unread, ..ServerConfig::new(config.program, config.pid) }
    })
}

/// The configuration of each server that runs in the network namespace of this thread, by process.
/// `listeners`: those that are here, with their process where it may be read.
///
/// The namespace of another user's process may not be readable. It counts as here unless its
/// configuration names ports and none of them has a listener here.
///
/// Cost: one file of each process of the machine, and the configuration of each server. What may
/// not be read is in [`ServerConfig::unread`].
pub fn configured(listeners: &[ListenerState]) -> Vec<ServerConfig> {
    let ports: BTreeSet<u16> = listeners.iter().map(|one| one.port).collect();
    let of = |pid: u32| {
        let is_its =
            move |one: &&ListenerState| one.process.as_ref().is_some_and(|own| own.pid == pid);
        listeners.iter().filter(is_its).map(|one| host_port(&one.address, one.port))
    };
    let mut all = main_processes();
    // Every tool in JavaScript is a Node.js.
    all.retain(|one| one.program != Program::App(App::Node) || of(one.pid).next().is_some());
    let mut servers: Vec<ServerConfig> = Vec::new();
    for found in all.into_iter().take(SERVERS_MAX) {
        let (mut process, root) = describe(&found);
        process.sockets = of(found.pid).collect();
        let mut files = Rooted::new(root);
        let config = printable(&read(found.program, &process, &mut files));
        let mut its = config.listens.iter().filter_map(Listen::port).peekable();
        if found.is_certain || its.peek().is_none() || its.any(|port| ports.contains(&port)) {
            servers.push(config);
        }
    }
    servers
}

/// The configuration that a file of this machine begins, as Apache or nginx would read it if it were started
/// with it.
///
/// Cost: the file and those that it includes. What may not be read is in [`ServerConfig::unread`].
pub fn begun_by(program: Program, file: &Path) -> ServerConfig {
    let option = if program == Program::Nginx { "-c" } else { "-f" };
    let arguments = [program.name(), option, &file.display().to_string()].map(str::to_owned);
    let cpus = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64);
    let process = Process { arguments: arguments.into(), cpus, ..Process::default() };
    let root = Root::open(Path::new("/")).map_err(|error| reason(&error));
    printable(&read(program, &process, &mut Rooted::new(root)))
}

/// So much of a program is looked through, at most.
const PROGRAM_MAX: u64 = 40 << 20;
/// Longest text that is looked for.
const TEXT_MAX: usize = 48;

/// What stands next to the version.
enum Mark {
    Before(&'static [u8]),
    After(&'static [u8]),
}

/// The version in a program, if its text has it.
pub(super) fn version(program: Program, file: File) -> Option<String> {
    let mark = match program {
        Program::Nginx => Mark::Before(b"nginx/"),
        Program::Apache => Mark::Before(b"Apache/"),
        Program::PhpFpm => Mark::Before(b"PHP/"),
        Program::Mariadb => Mark::After(b"-MariaDB"),
        Program::App(App::Node) => Mark::Before(b"/download/release/v"),
        // Their text has versions of other things too.
        Program::Redis | Program::Haproxy | Program::App(_) => return None,
    };
    let mut file = file.take(PROGRAM_MAX);
    let mut chunk = vec![0; 1 << 18];
    let mut kept = 0;
    loop {
        let read = file.read(chunk.get_mut(kept..)?).ok()?;
        if read == 0 {
            return None;
        }
        let text = chunk.get(..kept + read)?;
        if let Some(version) = within(&mark, text) {
            return Some(version);
        }
        // A text may begin in one part and end in the next.
        kept = text.len().min(TEXT_MAX);
        let from = text.len() - kept;
        let end = text.len();
        chunk.copy_within(from..end, 0);
    }
}

fn within(mark: &Mark, text: &[u8]) -> Option<String> {
    let bytes = match mark {
        Mark::Before(bytes) | Mark::After(bytes) => bytes,
    };
    let last = *bytes.last()?;
    let ends = text.iter().enumerate().filter(|&(_, &byte)| byte == last).map(|(at, _)| at + 1);
    for end in ends {
        let Some(begin) = end.checked_sub(bytes.len()) else { continue };
        if text.get(begin..end) != Some(bytes) {
            continue;
        }
        let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let version: Vec<u8> = match mark {
            Mark::Before(_) => text
                .get(end..)?
                .iter()
                .copied()
                .take(16)
                .take_while(|byte| is_version(byte))
                .collect(),
            Mark::After(_) => {
                let mut back: Vec<u8> = text
                    .get(..begin)?
                    .iter()
                    .rev()
                    .copied()
                    .take(16)
                    .take_while(|byte| is_version(byte))
                    .collect();
                back.reverse();
                back
            }
        };
        let parts = version.split(|&byte| byte == b'.');
        if parts.clone().count() == 3 && parts.clone().all(|part| !part.is_empty()) {
            return String::from_utf8(version).ok();
        }
    }
    None
}

/// Length of one file, bytes, at most.
const FILE_MAX: u64 = 1 << 20;
/// Entries of a folder that are looked at.
const ENTRIES_MAX: usize = 4_096;
/// Paths that one pattern names, and folders that it is looked for in, at most.
const PATHS_MAX: usize = 257;

/// Reads files inside a root, or none where the root may not be opened.
pub(super) struct Rooted(Result<Root, String>);

impl Rooted {
    pub(super) fn new(root: Result<Root, String>) -> Self {
        Self(root)
    }
}

/// Why a file cannot be read, with the remedy where there is one.
pub(super) fn reason(error: &SysError) -> String {
    match error.source.kind() {
        std::io::ErrorKind::PermissionDenied if is_root() => {
            // Root is refused nothing but by a user namespace, a container or a file system of others.
            "permission denied: root has no CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH over this process here; \
             run tcptoll outside of the container or user namespace"
                .to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "permission denied: run as the owner of the file, or with sudo".to_owned()
        }
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::InvalidInput if error.errno().is_none() => error.source.to_string(),
        _ => error.source.to_string(),
    }
}

impl Files for Rooted {
    fn read(&mut self, path: &str) -> Result<String, String> {
        let root = self.0.as_ref().map_err(Clone::clone)?;
        let file = root.file(Path::new(path)).map_err(|error| reason(&error))?;
        let mut bytes = Vec::new();
        file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > FILE_MAX {
            return Err("longer than 1 MiB".to_owned());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn matching(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let root = self.0.as_ref().map_err(Clone::clone)?;
        let mut paths = vec![String::new()];
        for part in pattern.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if !is_pattern(part) {
                for path in &mut paths {
                    path.push('/');
                    path.push_str(part);
                }
                continue;
            }
            let mut longer = Vec::new();
            for path in &paths {
                let folder = if path.is_empty() { "/" } else { path };
                let mut names = match root.names(Path::new(folder), ENTRIES_MAX) {
                    Ok(names) => names,
                    Err(error) if is_absent(&error) => continue,
                    Err(error) => return Err(reason(&error)),
                };
                names.sort();
                let names = names.iter().filter(|name| glob_matches(part, name));
                longer.extend(names.map(|name| format!("{path}/{name}")));
                longer.truncate(PATHS_MAX);
            }
            paths = longer;
        }
        let mut found = Vec::new();
        for path in paths {
            if root.has(Path::new(&path)).map_err(|error| reason(&error))? {
                found.push(path);
            }
        }
        Ok(found)
    }
}

fn is_absent(error: &SysError) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.source.kind(), NotFound | NotADirectory)
}

/// Whether a name matches: `*`, `?` and `[a-z]`, `[!a]`. A leading dot must be written.
pub(super) fn glob_matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut read) = (0, 0);
    // The last star, and how much of the name it takes: one step back is enough.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
                continue;
            }
            Some(_) => one(&pattern[at..], name[read]),
            None => None,
        };
        match (step, star) {
            (Some(length), _) => {
                at += length;
                read += 1;
            }
            (None, Some((star_at, taken))) => {
                at = star_at + 1;
                read = taken + 1;
                star = Some((star_at, read));
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|&c| c == '*')
}

/// Whether a name has a wildcard.
pub(super) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

/// How much of the pattern stands for this character, if it fits.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => {
            let negated = matches!(pattern.get(1), Some('!' | '^'));
            let begin = 1 + usize::from(negated);
            // A bracket right behind the first is one of the set.
            let end = begin + 1 + pattern.get(begin + 1..)?.iter().position(|&c| c == ']')?;
            let set = &pattern[begin..end];
            let mut found = false;
            let mut at = 0;
            while let Some(&low) = set.get(at) {
                let high = set.get(at + 2).filter(|_| set.get(at + 1) == Some(&'-'));
                found |= (low..=*high.unwrap_or(&low)).contains(&c);
                at += if high.is_some() { 3 } else { 1 };
            }
            (found != negated).then_some(end + 1)
        }
        '\\' => pattern.get(1).filter(|&&next| next == c).map(|_| 2),
        same => (*same == c).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigPosition, Sourced};
    use super::*;

    #[test]
    fn servers_are_known_by_the_names_of_their_processes() {
        assert_eq!(by_name("php-fpm8.2"), Some(Program::PhpFpm));
        assert_eq!(by_name("httpd"), Some(Program::Apache));
        assert_eq!(by_name("nginx-exporter"), None);
    }

    #[test]
    fn a_working_directory_is_seen_from_inside_the_root() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(directory(path("/srv/jail/app"), path("/srv/jail")), "/app");
        assert_eq!(directory(path("/app"), path("/")), "/app");
        assert_eq!(directory(None, None), "/");
    }

    #[test]
    fn a_file_is_read_as_if_a_server_were_started_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("apache2.conf");
        let included = folder.path().join("more.conf");
        std::fs::write(&included, "KeepAliveTimeout 7\n").unwrap();
        let text = format!("MaxKeepAliveRequests 33\nInclude {}\n", included.display());
        std::fs::write(&file, text).unwrap();
        let config = begun_by(Program::Apache, &file);
        assert!((config.keepalive_timeout_s.unwrap().value - 7.0).abs() < 1e-9);
        assert_eq!(config.keepalive_requests.unwrap().value, 33);
        assert_eq!(config.files_read.len(), 2, "{:?}", config.unread);
        let nginx = folder.path().join("nginx.conf");
        let text = "worker_processes auto;\nevents { worker_connections 100; }\nhttp { keepalive_timeout 1m; }\n";
        std::fs::write(&nginx, text).unwrap();
        let config = begun_by(Program::Nginx, &nginx);
        assert!(
            (config.keepalive_timeout_s.unwrap().value - 60.0).abs() < 1e-9,
            "without a server"
        );
        assert!(config.workers.unwrap().value >= 100);
        let none = begun_by(Program::Nginx, &folder.path().join("none.conf"));
        assert!(!none.unread.is_empty() && none.keepalive_timeout_s.is_none());
    }

    #[test]
    fn a_hostile_configuration_is_printable_and_one_that_cannot_be_written_is_named_unread() {
        let mut config = ServerConfig::new(Program::Nginx, 7);
        config.files_read = vec!["/etc/\u{9b}2J\u{202e}.conf".to_owned()];
        config.listens =
            vec![Listen { on: "/run/\u{7f}\u{200b}s".to_owned(), ..Listen::default() }];
        let clean = printable(&config);
        assert_eq!(clean.files_read, ["/etc/·2J.conf"]);
        assert_eq!(clean.listens[0].on, "/run/·s");
        assert_eq!(printable(&clean), clean);
        let at = ConfigPosition { file: "/etc/a.conf".to_owned(), line: Some(1) };
        config.keepalive_timeout_s = Some(Sourced { value: f64::NAN, at });
        let unread = printable(&config);
        assert!(unread.unread[0].contains("not a number") && unread.files_read.is_empty());
    }

    #[test]
    fn a_version_is_read_next_to_its_mark_alone() {
        let nginx = Mark::Before(b"nginx/");
        assert_eq!(within(&nginx, b"\0nginx/%s nginx/1.22.1\0").as_deref(), Some("1.22.1"));
        assert_eq!(within(&nginx, b"/etc/nginx/conf.d 1.2.3"), None);
        let mariadb = Mark::After(b"-MariaDB");
        assert_eq!(within(&mariadb, b"\x0010.11.14-MariaDB-0\0").as_deref(), Some("10.11.14"));
        assert_eq!(within(&mariadb, b"-MariaDB"), None);
    }

    #[test]
    fn patterns_name_files_in_order_and_long_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a/2.conf", "a/1.conf", "a/.3.conf", "a/4.bak", "b/5.conf"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        std::fs::write(folder.path().join("long"), vec![b'#'; (1 << 20) + 1]).unwrap();
        let mut files = Rooted::new(Root::open(folder.path()).map_err(|error| reason(&error)));
        assert_eq!(
            files.matching("/*/*.conf"),
            Ok(vec!["/a/1.conf".into(), "/a/2.conf".into(), "/b/5.conf".into()])
        );
        assert_eq!(files.matching("/none/*.conf"), Ok(Vec::new()));
        assert_eq!(files.matching("/a/1.conf"), Ok(vec!["/a/1.conf".into()]));
        assert_eq!(files.matching("/a/none"), Ok(Vec::new()));
        assert_eq!(files.read("/a/2.conf"), Ok("a/2.conf".to_owned()));
        assert_eq!(files.read("/long"), Err("longer than 1 MiB".to_owned()));
        assert_eq!(files.read("/a"), Err("not a regular file".to_owned()));
        assert_eq!(files.read("/none"), Err("no such file".to_owned()));
    }

    #[test]
    fn names_match_as_in_the_shell() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            (".*", ".conf", true),
            ("*.conf", "a.conf.bak", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?", "ab", false),
            ("[0-9][!0-9]*", "5a", true),
            ("[0-9][!0-9]*", "55", false),
            ("[]a]", "]", true),
            ("[ab", "[ab", false),
            ("*", "", true),
            ("\\*", "*", true),
        ] {
            assert_eq!(glob_matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!glob_matches(&format!("{}b", "a*".repeat(60)), &"a".repeat(255)));
    }
}
