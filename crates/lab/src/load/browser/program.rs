//! Chromium as a process: found, started with the switches of [`SWITCHES`], ended with its children.

use std::env;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tcptoll_kernel::{cpu, process};

use super::pipe::Pipe;
use super::warm::Warm;
use crate::channel::Channel;
use crate::files::RunFolder;
use crate::load::LoadError;

/// Where Chromium itself is. Debian's `/usr/bin/chromium` is a shell script around it that adds the
/// switches of `/etc/chromium.d`, which are the machine's, not the experiment's.
const PROGRAMS: [&str; 2] =
    ["/usr/lib/chromium/chromium", "/usr/lib64/chromium-browser/chromium-browser"];

/// Names in the `PATH` where it is elsewhere.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Switches of every run.
///
/// Figures are medians of the span at RTT 15 ms, KeepAlive on and off, of a document and 20 style
/// sheets of 2 kB from Apache on 2 CPUs with other work; a client that does nothing but ask needs
/// 102 ms and 149 ms.
const SWITCHES: &[&str] = &[
    // The browser that users have, without a window. The old headless mode is another program.
    "--headless=new",
    // Commands over descriptors 3 and 4: no port on the network that is measured.
    "--remote-debugging-pipe",
    // In the lab it is root of a user namespace, where the sandbox refuses to start.
    "--no-sandbox",
    // No second process that keeps crashes, and none that survives the group.
    "--disable-breakpad",
    "--disable-crash-reporter",
    // Only the page is on the network: no updates, lists, field trials, accounts, checks of the connection.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-client-side-phishing-detection",
    "--disable-sync",
    "--disable-field-trial-config",
    "--metrics-recording-only",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    // A page that could not be loaded is not asked for again a second later.
    "--disable-auto-reload",
    // Nothing of the machine's: no keyring, no sound, no graphics driver.
    "--password-store=basic",
    "--use-mock-keychain",
    "--mute-audio",
    "--disable-gpu",
    // /dev/shm of a container may have 64 MB.
    "--disable-dev-shm-usage",
    // The page of the link is never hidden behind another.
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    // One protocol over TCP, which the wire's witness understands.
    "--disable-quic",
    // What follows are structures of Chromium's processes that cost CPU time between the document and
    // the first request that it names; none changes what is asked for, or over how many connections:
    // a new frame for each navigation, a further thread between the network and the page, the page
    // before kept alive (116 ms and 164 ms without the first two, 117 ms and 164 ms with them), and
    // the browser's own user interface, which is a page of its own and re-themes itself at each
    // navigation (CPU time of a load 85 ms instead of 125 ms without that interface).
    concat!(
        "--disable-features=RenderDocument,BackgroundResourceFetch,BackForwardCache,",
        "PreloadTopChromeWebUI,WebUIReloadButton,WebUIToolbar,InitialWebUI"
    ),
];

/// What Chromium's settings call "Preload pages: no preloading".
///
/// By default it opens a second connection to the document's host when a navigation begins, before it
/// knows what the page needs (`kMinSockets` of `loading_predictor.cc`). That saves a round trip with KeepAlive on,
/// a connection that no resource asked for, and it would make a page without resources two connections.
const PREFERENCES: &str = r#"{"net":{"network_prediction_options":2}}"#;

/// What the command line depends on.
#[derive(Debug)]
pub(super) struct Settings<'a> {
    /// Host of the page, as in its URL, without brackets.
    pub(super) host: &'a str,
    /// Names that are resolved without DNS.
    pub(super) names: &'a [(String, IpAddr)],
    /// Whether all other hosts are reachable.
    pub(super) other_origins: bool,
    pub(super) http2: bool,
    /// Certificates that are accepted whatever is wrong with them: SHA-256 of their keys, base64.
    pub(super) trusted: &'a [String],
    pub(super) insecure: bool,
}

/// Chromium while it runs; it ends with its host, or when this is dropped.
pub(super) struct Browser {
    child: Child,
    pub(super) pipe: Pipe,
    /// Its profile; removed after its processes have ended.
    _folder: RunFolder,
}

impl Drop for Browser {
    fn drop(&mut self) {
        process::kill_group(self.child.id());
        let _ = self.child.wait();
        // The folder is removed only when nobody writes into it any more.
        process::reap_group(self.child.id());
    }
}

impl Browser {
    /// Starts it with a fresh profile.
    pub(super) fn start(
        settings: &Settings<'_>,
        warm: &Warm,
        channel: &Channel,
    ) -> Result<Self, LoadError> {
        let program = find()?;
        let folder = folder().map_err(LoadError::Refused)?;
        let profile = folder.file("Default");
        let preferences = profile.join("Preferences");
        std::fs::create_dir(&profile)
            .and_then(|()| std::fs::write(&preferences, PREFERENCES))
            .map_err(|error| LoadError::Refused(format!("{}: {error}", preferences.display())))?;
        let mut command = Command::new("sh");
        // Descriptors 3 and 4 are the pipe; its own output goes with its errors.
        command.args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >&2"#, "sh"]).arg(&program);
        command.args(arguments(settings, warm.port(), folder.path()));
        command.env("HOME", folder.path()).env("TMPDIR", folder.path());
        command.env_remove("DBUS_SESSION_BUS_ADDRESS").env_remove("DISPLAY");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        process::restore_signals(&mut command);
        let failed =
            |error: std::io::Error| LoadError::Refused(format!("{}: {error}", program.display()));
        let mut child = on_all_cpus(|| command.spawn()).map_err(failed)?;
        let ends = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(commands), Some(answers), Some(errors)) = ends else {
            unreachable!("all three were asked for");
        };
        match Pipe::new(commands, answers, errors, channel) {
            Ok(pipe) => Ok(Self { child, pipe, _folder: folder }),
            Err(error) => {
                process::kill_group(child.id());
                let _ = child.wait();
                Err(error)
            }
        }
    }
}

/// Runs this with all CPUs allowed: a host is pinned to one, Chromium is not.
fn on_all_cpus<T>(act: impl FnOnce() -> T) -> T {
    let before = cpu::allowed();
    let all = std::thread::available_parallelism().map_or(1, usize::from).max(online());
    let all: Vec<u32> = (0..all as u32).collect();
    let widened = cpu::allow(&all).is_ok();
    let result = act();
    if widened {
        let _ = cpu::allow(&before);
    }
    result
}

/// CPUs that this machine has switched on, whatever this process is pinned to.
fn online() -> usize {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let of_one = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    text.lines().filter(of_one).count()
}

/// In the lab a folder in memory; on the machine's own network one among the temporary files.
fn folder() -> Result<RunFolder, String> {
    // Only the lab has mounts of its own.
    let init = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    if init.trim() == "tcptoll-init" { RunFolder::make() } else { RunFolder::temporary() }
}

/// Errors: a sentence that says what to install.
fn find() -> Result<PathBuf, LoadError> {
    find_in(&PROGRAMS, &env::var_os("PATH").unwrap_or_default())
}

fn find_in(programs: &[&str], path: &std::ffi::OsStr) -> Result<PathBuf, LoadError> {
    let folders: Vec<PathBuf> = env::split_paths(path).collect();
    let in_path = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    programs.iter().map(PathBuf::from).chain(in_path).find(|file| file.is_file()).ok_or_else(|| {
        LoadError::Refused("chromium is not installed: apt-get install chromium".to_owned())
    })
}

fn arguments(settings: &Settings<'_>, warm_port: u16, folder: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = SWITCHES.iter().map(|&one| one.to_owned()).collect();
    arguments.push(format!("--user-data-dir={}", folder.display()));
    arguments.push(format!("--host-resolver-rules={}", rules(settings, warm_port)));
    if !settings.http2 {
        arguments.push("--disable-http2".to_owned());
    }
    if settings.insecure {
        arguments.push("--ignore-certificate-errors".to_owned());
    }
    if !settings.trusted.is_empty() {
        let list = settings.trusted.join(",");
        arguments.push(format!("--ignore-certificate-errors-spki-list={list}"));
    }
    // Not the new-tab page, whose scripts go on working.
    arguments.push("about:blank".to_owned());
    arguments
}

/// Where names lead: the warm-up's port to this host's own loopback, pinned names to their addresses,
/// all others nowhere unless other origins are wanted.
fn rules(settings: &Settings<'_>, warm_port: u16) -> String {
    let bracketed = |text: &str| if text.contains(':') { format!("[{text}]") } else { text.into() };
    let host = bracketed(settings.host);
    let mut rules = format!("MAP {host}:{warm_port} 127.0.0.1:{warm_port}");
    for (name, address) in settings.names {
        let _ = write!(rules, ", MAP {name} {}", bracketed(&address.to_string()));
    }
    if !settings.other_origins {
        let pinned = |name: &str| settings.names.iter().any(|(one, _)| one == name);
        if !pinned(settings.host) {
            // Rules are asked in their order, and an exclusion would come before the first.
            let _ = write!(rules, ", MAP {host} {host}");
        }
        rules += ", MAP * ~NOTFOUND";
    }
    rules
}

/// Longest time from the start to the first answer.
pub(super) const START_LIMIT: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn settings<'a>(host: &'a str, names: &'a [(String, IpAddr)]) -> Settings<'a> {
        Settings { host, names, other_origins: false, http2: false, trusted: &[], insecure: false }
    }

    #[test]
    fn a_missing_browser_is_named_with_its_package() {
        let error = find_in(&["/nonexistent"], std::ffi::OsStr::new("")).unwrap_err();
        assert_eq!(error.to_string(), "chromium is not installed: apt-get install chromium");
    }

    #[test]
    fn names_lead_to_their_addresses_and_all_others_nowhere() {
        let names = [("page.test".to_owned(), "10.0.0.1".parse().unwrap())];
        assert_eq!(
            rules(&settings("page.test", &names), 7),
            "MAP page.test:7 127.0.0.1:7, MAP page.test 10.0.0.1, MAP * ~NOTFOUND"
        );
        assert_eq!(
            rules(&settings("fd00::1", &[]), 7),
            "MAP [fd00::1]:7 127.0.0.1:7, MAP [fd00::1] [fd00::1], MAP * ~NOTFOUND"
        );
        let open = Settings { other_origins: true, ..settings("a.test", &[]) };
        assert_eq!(rules(&open, 7), "MAP a.test:7 127.0.0.1:7");
    }

    #[test]
    fn http2_is_offered_only_where_it_is_wanted() {
        let folder = Path::new("/run/x");
        let without = arguments(&settings("a.test", &[]), 7, folder);
        assert!(without.contains(&"--disable-http2".to_owned()));
        let with = arguments(&Settings { http2: true, ..settings("a.test", &[]) }, 7, folder);
        assert!(!with.contains(&"--disable-http2".to_owned()));
        assert_eq!(with.last().map(String::as_str), Some("about:blank"));
    }
}
