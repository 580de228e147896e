//! Apache: its configuration for each of its three ways to use processes and threads.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::certificate::Certificate;
use super::scoreboard::PATH;
use super::site::{COMPRESSED, Laid, Php, READY_PATH};
use super::{Prepared, content, files_each, milliseconds, php, program, refuse_work, workers};
use crate::files::RunFolder;
use crate::messages::ServerSpec;

/// Folders of modules: Debian's, Fedora's, Arch's.
const MODULES: [&str; 4] = [
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/lib/httpd/modules",
    "/etc/httpd/modules",
];

/// Most processes of `prefork`, each of which holds one connection: 500 take some 3 s to start and
/// 0.5 MB of memory of their own each.
const PREFORK_MAX: u64 = 500;

/// Most threads of one process; Apache itself allows 20,000.
const THREADS_MAX: u64 = 4_000;

/// Most threads of one process of `event`, whose idle connections need none.
const EVENT_THREADS_MAX: u64 = 512;

/// Port of the status page.
const STATUS_PORT: u16 = 8090;

/// Threads of one process as Apache has them by itself.
const THREADS_DEFAULT: u64 = 25;

/// How processes and threads are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mpm {
    /// Threads answer; idle connections wait with one of them.
    Event,
    /// A thread per connection.
    Worker,
    /// A process per connection.
    Prefork,
}

impl Mpm {
    fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Worker => "worker",
            Self::Prefork => "prefork",
        }
    }

    /// Its own settings: enough for the connections asked for, all started at once and kept, so that
    /// no process is started or ended while a load runs.
    fn settings(self, spec: &ServerSpec) -> String {
        if let Some(limits) = &spec.limits {
            return self.limited(limits.workers);
        }
        let processes = workers(spec);
        if self == Self::Prefork {
            // A few more, so that one that is just closing is not missed.
            let wanted = spec.workers.unwrap_or(spec.connections + 8).max(1);
            let count = wanted.min(PREFORK_MAX);
            let mut text = String::new();
            if wanted > count {
                text += &format!(
                    "# Not {wanted} processes but {count}: further connections wait in the accept queue.\n"
                );
            }
            text += &format!(
                "ServerLimit {count}\nMaxRequestWorkers {count}\nStartServers {count}\n\
                 MinSpareServers 1\nMaxSpareServers {}\n",
                count + 1
            );
            return text;
        }
        let share = spec.connections.div_ceil(processes);
        let most = if self == Self::Event { EVENT_THREADS_MAX } else { THREADS_MAX };
        let wanted = share + share / 4 + 8;
        let threads = wanted.clamp(THREADS_DEFAULT, most);
        let mut text = String::new();
        if self == Self::Worker && wanted > threads {
            text += &format!(
                "# Not {wanted} threads but {threads}: further connections wait in the accept queue.\n"
            );
        }
        text += &format!(
            "ServerLimit {processes}\nStartServers {processes}\nThreadLimit {threads}\n\
             ThreadsPerChild {threads}\nMaxRequestWorkers {all}\n\
             MinSpareThreads 1\nMaxSpareThreads {spare}\n",
            all = processes * threads,
            spare = (processes + 1) * threads
        );
        if self == Self::Event && wanted > threads {
            // Connections of one process: its threads, and so many for each thread that is idle.
            text += &format!("AsyncRequestWorkerFactor {}\n", wanted.div_ceil(threads) * 2);
        }
        text
    }

    /// At most this many workers, started and ended as Apache decides, and one more that answers for the
    /// status page. Spare ones as Debian ships it (`mods-available/mpm_*.conf` of 2.4.71).
    fn limited(self, workers: u64) -> String {
        let all = workers + 1;
        if self == Self::Prefork {
            return format!(
                "ServerLimit {all}\nMaxRequestWorkers {all}\nStartServers {}\nMinSpareServers 5\n\
                 MaxSpareServers 10\n",
                all.min(5)
            );
        }
        // All processes have the same number of threads: as near to the usual one as divides them.
        let processes = all.div_ceil(THREADS_DEFAULT);
        let threads = all.div_ceil(processes);
        format!(
            "ServerLimit {processes}\nStartServers {}\nThreadLimit {threads}\n\
             ThreadsPerChild {threads}\nMaxRequestWorkers {}\nMinSpareThreads 25\nMaxSpareThreads 75\n",
            processes.min(2),
            processes * threads
        )
    }
}

pub(super) fn find() -> Result<PathBuf, String> {
    program::find(&["apache2", "httpd"], "apache2-bin")
}

/// The folder of its modules.
pub(super) fn modules() -> Result<PathBuf, String> {
    let mut folders = MODULES.iter().map(PathBuf::from);
    folders
        .find(|folder| folder.join("mod_authz_core.so").exists())
        .ok_or_else(|| format!("apache2: its modules are missing in {}", MODULES.join(", ")))
}

pub(super) fn prepare(
    mpm: Mpm,
    spec: &ServerSpec,
    folder: &RunFolder,
    tls: Option<&Certificate>,
    site: Option<&Laid>,
) -> Result<Prepared, String> {
    refuse_work("apache2", spec)?;
    let program = find()?;
    let modules = modules()?;
    if mpm != Mpm::Prefork {
        files_each("apache2", spec, workers(spec))?;
    }
    let version = program::version(&program, "-v")?;
    let version = version.strip_prefix("Server version: ").unwrap_or(&version).to_owned();
    std::fs::create_dir(folder.file("htdocs")).map_err(|error| format!("apache2: {error}"))?;
    if site.is_none() {
        folder.write("htdocs/content", &content(spec))?;
    }
    let configuration = configuration(mpm, spec, folder, (tls, site), &modules)?;
    let file = folder.write("apache2.conf", configuration.as_bytes())?;
    let mut command = Command::new(program);
    command.arg("-f").arg(file).arg("-DFOREGROUND");
    // Of mod_php: nothing of the machine's own settings is read.
    command.env("PHP_INI_SCAN_DIR", "");
    let path = "/".to_owned();
    Ok(Prepared { name: "apache2", commands: vec![command], version, path, configuration })
}

fn configuration(
    mpm: Mpm,
    spec: &ServerSpec,
    folder: &RunFolder,
    (tls, site): (Option<&Certificate>, Option<&Laid>),
    modules: &Path,
) -> Result<String, String> {
    let root = folder.path().display();
    let log = folder.file("log");
    let mut text = format!(
        "ServerRoot \"{root}\"\nDefaultRuntimeDir \"{root}\"\nPidFile \"{root}/pid\"\n\
         ErrorLog \"{}\"\nLogLevel error\nServerName localhost\nListen {}\n",
        log.display(),
        spec.at
    );
    let mut wanted = vec![format!("mpm_{}", mpm.name()), "authz_core".to_owned(), "dir".to_owned()];
    // Built in by Debian, modules elsewhere; without it nothing starts.
    if modules.join("mod_unixd.so").exists() {
        wanted.push("unixd".to_owned());
    }
    if tls.is_some() {
        wanted.extend(["socache_shmcb".to_owned(), "ssl".to_owned()]);
    }
    if let Some(site) = site {
        wanted.extend(modules_of(site).map(str::to_owned));
    }
    if spec.limits.is_some() {
        wanted.push("status".to_owned());
    }
    for name in wanted {
        let file = modules.join(format!("mod_{name}.so"));
        if !file.exists() {
            return Err(format!("apache2: {} is not installed", file.display()));
        }
        text += &format!("LoadModule {name}_module \"{}\"\n", file.display());
    }
    text += &mpm.settings(spec);
    if let Some(backlog) = spec.backlog {
        text += &format!("ListenBackLog {backlog}\n");
    }
    let kept = spec.keepalive && spec.keepalive_requests != Some(1);
    text += if kept { "KeepAlive On\n" } else { "KeepAlive Off\n" };
    if let Some(ns) = spec.keepalive_timeout_ns {
        text += &format!("KeepAliveTimeout {}\n", milliseconds(ns));
    }
    // Apache counts those that follow the first (2.4.71: of 2, three are answered); 0 is any number.
    if let Some(requests) = spec.keepalive_requests.filter(|&requests| requests != 1) {
        text += &format!("MaxKeepAliveRequests {}\n", requests.saturating_sub(1));
    }
    if let Some(tls) = tls {
        text += &format!(
            "SSLEngine on\nSSLCertificateFile \"{}\"\nSSLCertificateKeyFile \"{}\"\n\
             SSLProtocol TLSv1.2 TLSv1.3\nSSLSessionCache \"shmcb:{root}/sessions(512000)\"\n\
             SSLSessionTickets on\n",
            tls.chain_file.display(),
            tls.key_file.display()
        );
    }
    if spec.limits.is_some() {
        text += &status_text(status_at(spec));
    }
    if let Some(site) = site {
        text += &site_text(site, folder, modules)?;
        return Ok(text);
    }
    text += &format!(
        "DocumentRoot \"{root}/htdocs\"\n\
         <Directory \"{root}/htdocs\">\n  Require all granted\n  DirectoryIndex content\n</Directory>\n"
    );
    Ok(text)
}

/// Where the status page is: an address of its own, so that the reader's connection can be kept
/// whatever the site's settings are.
pub(super) fn status_at(spec: &ServerSpec) -> SocketAddr {
    SocketAddr::new(spec.at.ip(), STATUS_PORT)
}

fn status_text(at: SocketAddr) -> String {
    format!(
        "Listen {at}\n<VirtualHost {at}>\n  KeepAlive On\n  KeepAliveTimeout 3600\n  MaxKeepAliveRequests 0\n  \
         <Location \"{PATH}\">\n    SetHandler server-status\n    Require all granted\n  </Location>\n\
         </VirtualHost>\n"
    )
}

/// Modules that a site needs besides.
fn modules_of(site: &Laid) -> impl Iterator<Item = &'static str> {
    let with = |wanted: bool, names: &'static [&'static str]| if wanted { names } else { &[] };
    let names = [
        with(true, &["mime", "alias"]),
        with(matches!(site.php, Some(Php::Fpm(_))), &["proxy", "proxy_fcgi"]),
        with(site.compress, &["filter", "deflate"]),
        with(site.http2, &["http2"]),
    ];
    names.into_iter().flatten().copied()
}

/// What Apache is told of a site: one server, which answers to every name.
fn site_text(site: &Laid, folder: &RunFolder, modules: &Path) -> Result<String, String> {
    let path = folder.path().display();
    let root = site.root.display();
    let lines = site
        .types
        .iter()
        .fold(String::new(), |text, (extension, kind)| text + &format!("{kind} {extension}\n"));
    let types = folder.write("mime.types", lines.as_bytes())?;
    let mut text = format!("TypesConfig \"{}\"\n", types.display());
    if site.http2 {
        text += "Protocols h2 http/1.1\n";
    }
    if site.compress {
        text += &format!("AddOutputFilterByType DEFLATE {}\n", COMPRESSED.join(" "));
    }
    text += &format!("Alias \"{READY_PATH}\" \"{path}/ready/ready.txt\"\n");
    for (at, script) in &site.scripts {
        text += &format!("Alias \"{at}\" \"{}\"\n", script.display());
    }
    // Without FollowSymLinks no link below the folder is followed; those above it are resolved already.
    text += &format!(
        "DocumentRoot \"{root}\"\n\
         <Directory \"{path}/ready\">\n  Require all granted\n</Directory>\n\
         <Directory \"{root}\">\n  Require all granted\n  Options None\n  AllowOverride None\n  \
         DirectoryIndex index.html\n</Directory>\n"
    );
    text += &match &site.php {
        None => String::new(),
        Some(Php::Fpm(fpm)) => format!(
            "ProxyTimeout 120\n<Directory \"{path}/php\">\n  Require all granted\n  \
             SetHandler \"proxy:unix:{}|fcgi://localhost\"\n</Directory>\n",
            fpm.socket.display()
        ),
        Some(Php::Module) => format!(
            "LoadModule php_module \"{}\"\nPHPIniDir \"{path}/php\"\n<Directory \"{path}/php\">\n  \
             Require all granted\n  SetHandler application/x-httpd-php\n</Directory>\n",
            php::module(modules)?.display()
        ),
    };
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::ServerKind;
    use crate::servers::tests::spec;

    fn value(settings: &str, name: &str) -> Option<u64> {
        settings.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    #[test]
    fn prefork_has_a_process_for_each_connection_up_to_500_and_says_when_not() {
        let mut spec = ServerSpec { workers: None, ..spec(ServerKind::ApachePrefork) };
        let settings = Mpm::Prefork.settings(&spec);
        assert_eq!(value(&settings, "StartServers"), Some(108));
        assert!(!settings.contains('#'));
        spec.connections = 2_000;
        let settings = Mpm::Prefork.settings(&spec);
        assert_eq!(value(&settings, "StartServers"), Some(500));
        assert!(settings.starts_with("# Not 2008 processes but 500"), "{settings}");
    }

    #[test]
    fn worker_has_a_thread_for_each_connection_and_event_places_for_them() {
        let spec = ServerSpec { connections: 3_000, ..spec(ServerKind::ApacheWorker) };
        let worker = Mpm::Worker.settings(&spec);
        // 1,500 each, a quarter more and 8.
        assert_eq!(value(&worker, "ThreadsPerChild"), Some(1_883));
        assert_eq!(value(&worker, "MaxRequestWorkers"), Some(3_766));
        let event = Mpm::Event.settings(&spec);
        assert_eq!(value(&event, "ThreadsPerChild"), Some(512));
        assert_eq!(value(&event, "AsyncRequestWorkerFactor"), Some(8));
    }
}
