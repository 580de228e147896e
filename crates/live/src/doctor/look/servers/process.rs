//! Main processes of servers in this network namespace, from `/proc`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::doctor::Program;
use crate::doctor::config::Process;
use tcptoll_kernel::root::Root;

use super::files::reason;
use super::version;

/// Processes that are looked at, at most.
const PROCESSES_MAX: usize = 65_536;
/// Bytes of a command line, at most.
const ARGUMENTS_MAX: u64 = 4_096;
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
    by_name(name.trim_end_matches('\n'))
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
    if parent.is_some_and(|parent| self::program(parent) == Some(program)) {
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
    let arguments = text(&format!("/proc/{pid}/cmdline"), ARGUMENTS_MAX).unwrap_or_default();
    let arguments: Vec<String> =
        arguments.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
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
        version: binary.and_then(|binary| version::version(found.program, binary)),
        arguments,
        program,
        directory: directory(link("cwd"), link("root")),
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
    let pairs = pairs.filter(|(name, _)| *name == "HOME" || name.starts_with("APACHE_"));
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

#[cfg(test)]
mod tests {
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
}
