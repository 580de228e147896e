//! PHP-FPM behind nginx: their configurations, and the settings of `front.php`.
//!
//! Nothing of the machine's own php.ini is read (`-n`): only the extensions that are needed are
//! loaded. nginx speaks FastCGI over a Unix socket, as Debian sets it up.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tcptoll_core::http::server::PAUSE_MAX_NS;
use tcptoll_kernel::cpu;

use super::BACKEND_PATH;
use crate::files::RunFolder;
use crate::messages::{BackendKind, Connection, FrontSpec};
use crate::servers::backends::KEY;
use crate::servers::{nginx, php};

/// The script that every worker runs.
const SCRIPT: &str = include_str!("front.php");

/// Longer than anything here takes: nginx must not answer in place of a worker.
const NGINX_LIMIT: &str = "1d";

/// Where no time limit of connecting was asked for, ns: longer than the kernel tries.
const WITHOUT_LIMIT_NS: u64 = 3_600_000_000_000;

/// Descriptors of nginx besides its connections.
const OWN_FILES: u64 = 64;

/// Both programs, ready to be started, and what they are told.
pub(super) struct Prepared {
    pub(super) fpm: Command,
    pub(super) nginx: Command,
    pub(super) version: String,
    pub(super) configuration: String,
    /// Sockets of requests and of the status pool.
    pub(super) sockets: (PathBuf, PathBuf),
}

pub(super) fn prepare(spec: &FrontSpec, folder: &RunFolder) -> Result<Prepared, String> {
    let (php, version) = php::find()?;
    if spec.backend_kind == BackendKind::Mariadb {
        check_mysqli(&php)?;
    }
    let (nginx, nginx_version) = nginx::find()?;
    let sockets = (folder.file("fpm.sock"), folder.file("status.sock"));
    let settings = settings(spec)?;
    folder.write("front.php", SCRIPT.as_bytes())?;
    folder.write("settings.php", settings.as_bytes())?;
    let pool = pool(spec, folder);
    let pool_file = folder.write("fpm.conf", pool.as_bytes())?;
    let http = http(spec, folder)?;
    let http_file = folder.write("nginx.conf", http.as_bytes())?;
    let mut fpm = Command::new(&php);
    fpm.arg("-n").arg("-F").arg("-y").arg(pool_file);
    for (name, value) in ini(spec.backend_kind, folder) {
        fpm.arg("-d").arg(format!("{name}={value}"));
    }
    Ok(Prepared {
        fpm,
        nginx: nginx::command(&nginx, &nginx_version, &http_file),
        version: format!("{version}, {nginx_version}"),
        configuration: format!("{pool}\n{settings}\n{http}"),
        sockets,
    })
}

/// Errors: mysqli cannot be loaded, with the package that has it.
fn check_mysqli(php: &Path) -> Result<(), String> {
    let output = Command::new(php)
        .args(["-n", "-d", "extension=mysqlnd", "-d", "extension=mysqli", "-m"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", php.display()))?;
    let modules = String::from_utf8_lossy(&output.stdout);
    if modules.lines().any(|line| line.trim() == "mysqli") {
        return Ok(());
    }
    Err("PHP lacks the mysqli extension for mariadb: apt-get install php-mysql".to_owned())
}

/// Settings of PHP itself.
fn ini(backend: BackendKind, folder: &RunFolder) -> Vec<(&'static str, String)> {
    let mut ini = vec![
        // The script is compiled once. Without opcache PHP says so in its log, and goes on.
        ("zend_extension", "opcache".to_owned()),
        ("opcache.memory_consumption", "8".to_owned()),
        ("opcache.interned_strings_buffer", "2".to_owned()),
        ("opcache.validate_timestamps", "0".to_owned()),
        ("opcache.lockfile_path", folder.path().display().to_string()),
        ("max_execution_time", "0".to_owned()),
        ("display_errors", "0".to_owned()),
        ("log_errors", "1".to_owned()),
        ("expose_php", "0".to_owned()),
    ];
    if backend == BackendKind::Mariadb {
        ini.push(("extension", "mysqlnd".to_owned()));
        ini.push(("extension", "mysqli".to_owned()));
    }
    ini
}

/// The configuration of PHP-FPM.
fn pool(spec: &FrontSpec, folder: &RunFolder) -> String {
    let path = folder.path().display();
    let mut text = format!(
        "[global]\n\
         error_log = {path}/log\n\
         log_level = warning\n\
         daemonize = no\n\
         [front]\n\
         listen = {path}/fpm.sock\n\
         pm = static\n\
         pm.max_children = {}\n\
         pm.status_path = /status\n\
         pm.status_listen = {path}/status.sock\n\
         catch_workers_output = yes\n",
        spec.workers
    );
    if let Some(backlog) = spec.backlog {
        text += &format!("listen.backlog = {backlog}\n");
    }
    text
}

/// The configuration of nginx.
fn http(spec: &FrontSpec, folder: &RunFolder) -> Result<String, String> {
    let limit = cpu::file_limit().map_err(|error| format!("RLIMIT_NOFILE: {error}"))?;
    // One from the client, one to PHP-FPM.
    let needed = spec.connections.saturating_mul(2).saturating_add(OWN_FILES);
    if needed > limit {
        return Err(format!(
            "nginx: {} connections need {needed} open files, but the limit is {limit} (ulimit -Hn)",
            spec.connections
        ));
    }
    let path = folder.path().display();
    let backlog = spec.backlog.map_or(String::new(), |backlog| format!(" backlog={backlog}"));
    // What clients give up is not logged.
    let files = needed.max(1_024).min(limit);
    let mut text = nginx::preamble(folder, 1, (files, files), "crit");
    text += "http {\n  access_log off;\n  default_type text/plain;\n  keepalive_timeout 0;\n";
    text += &nginx::temporary_paths(folder);
    text += &format!(
        "  server {{\n    \
             listen {at}{backlog};\n    \
             location / {{\n      \
               fastcgi_pass unix:{path}/fpm.sock;\n      \
               fastcgi_param SCRIPT_FILENAME {path}/front.php;\n      \
               fastcgi_param DOCUMENT_URI $document_uri;\n      \
               fastcgi_param REQUEST_METHOD $request_method;\n      \
               fastcgi_connect_timeout {NGINX_LIMIT};\n      \
               fastcgi_send_timeout {NGINX_LIMIT};\n      \
               fastcgi_read_timeout {NGINX_LIMIT};\n    \
             }}\n  }}\n}}\n",
        at = spec.at
    );
    Ok(text)
}

/// `settings.php`: numbers and names, as PHP writes an array.
fn settings(spec: &FrontSpec) -> Result<String, String> {
    let us = |ns: u64| ns.div_ceil(1_000);
    let connect_ns = spec.connect_timeout_ns.unwrap_or(WITHOUT_LIMIT_NS);
    let mariadb = spec.backend_kind == BackendKind::Mariadb;
    let whole = |what: &str, ns: u64| match (mariadb, ns % 1_000_000_000) {
        (true, 1..) => Err(format!(
            "the {what} of mariadb cannot be {} ms: mysqli takes whole seconds only",
            ns as f64 / 1e6
        )),
        _ => Ok((ns / 1_000_000_000).max(1)),
    };
    let ip = spec.backend.ip();
    let host = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let text = |text: &str| format!("'{text}'");
    let entries = [
        ("kind", text(spec.backend_kind.name())),
        ("path", text(BACKEND_PATH)),
        ("backend", text(&spec.backend.to_string())),
        ("host", text(&host)),
        ("port", spec.backend.port().to_string()),
        ("key", text(KEY)),
        ("pooled", (spec.connection == Connection::Pooled).to_string()),
        ("connect_us", us(connect_ns).to_string()),
        ("connect_s", whole("timeout of connecting", connect_ns)?.to_string()),
        ("answer_us", us(spec.timeout_ns).max(1).to_string()),
        ("answer_s", whole("timeout of an answer", spec.timeout_ns)?.to_string()),
        ("retries", spec.retries.to_string()),
        ("backoff_us", us(spec.backoff_ns).to_string()),
        ("pause_max_us", us(PAUSE_MAX_NS).to_string()),
        ("jitter", spec.jitter.to_string()),
        ("cache_us", spec.cache_ns.map_or("null".to_owned(), |ns| us(ns).to_string())),
        ("work_us", us(spec.work_ns).to_string()),
    ];
    let entries = entries.map(|(name, value)| format!("  '{name}' => {value},\n"));
    Ok(format!("<?php\nreturn [\n{}];\n", entries.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::fronts::tests::spec;

    const MS: u64 = 1_000_000;

    fn mariadb() -> FrontSpec {
        FrontSpec { backend_kind: BackendKind::Mariadb, timeout_ns: 1_000 * MS, ..spec() }
    }

    #[test]
    fn the_pool_is_static_and_its_status_has_a_socket_of_its_own() {
        let folder = RunFolder::temporary().unwrap();
        let text = pool(&FrontSpec { workers: 100, backlog: Some(7), ..spec() }, &folder);
        for line in ["pm = static", "pm.max_children = 100", "listen.backlog = 7"] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
        let status = format!("pm.status_listen = {}", folder.file("status.sock").display());
        assert!(text.lines().any(|one| one == status), "{text}");
        assert!(!pool(&spec(), &folder).contains("listen.backlog"));
    }

    #[test]
    fn nginx_closes_each_connection_and_waits_longer_than_any_worker() {
        let folder = RunFolder::temporary().unwrap();
        let text = http(&FrontSpec { backlog: Some(7), ..spec() }, &folder).unwrap();
        for part in [
            "listen 127.0.0.1:4080 backlog=7;",
            "keepalive_timeout 0;",
            "fastcgi_read_timeout 1d;",
            "fastcgi_connect_timeout 1d;",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let many = FrontSpec { connections: u64::MAX, ..spec() };
        assert!(http(&many, &folder).unwrap_err().contains("open files"));
    }

    #[test]
    fn settings_are_an_array_of_php() {
        let spec = FrontSpec {
            connect_timeout_ns: Some(100 * MS),
            cache_ns: Some(2_000 * MS),
            connection: Connection::Pooled,
            ..spec()
        };
        let text = settings(&spec).unwrap();
        for line in [
            "'connect_us' => 100000,",
            "'cache_us' => 2000000,",
            "'pooled' => true,",
            "'backend' => '127.0.0.1:6379',",
            "'kind' => 'redis',",
        ] {
            assert!(text.lines().any(|one| one.trim() == line), "{line} in {text}");
        }
        assert!(settings(&super::super::tests::spec()).unwrap().contains("'cache_us' => null,"));
    }

    #[test]
    fn a_time_limit_that_mysqli_cannot_have_is_refused_and_not_rounded() {
        let half = FrontSpec { connect_timeout_ns: Some(500 * MS), ..mariadb() };
        let error = settings(&half).unwrap_err();
        assert!(error.contains("timeout of connecting") && error.contains("500 ms"), "{error}");
        let half = FrontSpec { timeout_ns: 1_500 * MS, ..mariadb() };
        assert!(settings(&half).unwrap_err().contains("timeout of an answer"));
        let whole = FrontSpec { connect_timeout_ns: Some(2_000 * MS), ..mariadb() };
        assert!(settings(&whole).unwrap().contains("'connect_s' => 2,"));
    }

    #[test]
    fn an_address_of_ipv6_has_brackets_for_php() {
        let text = settings(&FrontSpec { backend: "[fd77::2]:3306".parse().unwrap(), ..mariadb() });
        assert!(text.unwrap().contains("'host' => '[fd77::2]',"));
    }
}
