//! nginx: its configuration.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::certificate::Certificate;
use super::scoreboard::PATH;
use super::site::{COMPRESSED, Laid, READY_PATH};
use super::{Prepared, content, files_each, milliseconds, program, refuse_work, workers};
use crate::files::RunFolder;
use crate::messages::ServerSpec;

/// Content up to this length is part of the configuration (`return`), which takes words of 4 KiB at
/// most; longer content is a file.
const INLINE_MAX: u64 = 2_000;

/// Connections that a process of nginx has besides its clients': listeners, a channel to the master, and the
/// reader of the status page.
const OWN_CONNECTIONS: u64 = 4;

/// For any number of requests on a connection; nginx knows no such word.
const WITHOUT_END: u64 = u32::MAX as u64;

pub(super) fn prepare(
    spec: &ServerSpec,
    folder: &RunFolder,
    tls: Option<&Certificate>,
    site: Option<&Laid>,
) -> Result<Prepared, String> {
    refuse_work("nginx", spec)?;
    let (program, version) = find()?;
    let files = files_each("nginx", spec, workers(spec))?;
    if site.is_none() && spec.body_bytes > INLINE_MAX {
        folder.write("content", &content(spec))?;
    }
    let configuration = configuration(spec, folder, (tls, site), files, &version);
    let file = folder.write("nginx.conf", configuration.as_bytes())?;
    let command = command(&program, &version, &file);
    let path = "/".to_owned();
    Ok(Prepared { name: "nginx", commands: vec![command], version, path, configuration })
}

/// Where the status page is: no TCP connection is added to those that are measured.
pub(super) fn status_socket(folder: &RunFolder) -> PathBuf {
    folder.file("status.sock")
}

/// The program, and its version: `nginx/1.22.1`.
pub(super) fn find() -> Result<(PathBuf, String), String> {
    let program = program::find(&["nginx"], "nginx-light")?;
    let version = program::version(&program, "-v")?;
    let version = version.strip_prefix("nginx version: ").unwrap_or(&version).to_owned();
    Ok((program, version))
}

/// The command that runs it with a configuration file.
pub(super) fn command(program: &Path, version: &str, file: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("-c").arg(file);
    // Without it nginx opens the machine's own log before it reads where ours is.
    if takes_log_option(version) {
        command.arg("-e").arg("stderr");
    }
    command
}

/// The beginning of a configuration, up to where `http` begins.
///
/// `files`, `connections`: of each process. `severity`: messages below it are not logged.
pub(super) fn preamble(
    folder: &RunFolder,
    workers: u64,
    (files, connections): (u64, u64),
    severity: &str,
) -> String {
    let folder = folder.path().display();
    format!(
        "daemon off;\n\
         worker_processes {workers};\n\
         worker_rlimit_nofile {files};\n\
         pid {folder}/pid;\n\
         error_log stderr {severity};\n\
         events {{ worker_connections {connections}; }}\n"
    )
}

/// Where `http` keeps what does not fit its buffers.
pub(super) fn temporary_paths(folder: &RunFolder) -> String {
    let folder = folder.path().display();
    let line = |kind| format!("  {kind}_temp_path {folder}/{kind};\n");
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(line).concat()
}

/// Since 1.19.5 (its CHANGES).
fn takes_log_option(version: &str) -> bool {
    numbers(version) >= [1, 19, 5]
}

/// The words that turn HTTP/2 on: of `listen`, and since 1.25.1 (its CHANGES) a directive of its own.
fn http2_words(version: &str) -> (&'static str, &'static str) {
    if numbers(version) >= [1, 25, 1] { ("", "    http2 on;\n") } else { (" http2", "") }
}

fn numbers(version: &str) -> [u32; 3] {
    let numbers = version.strip_prefix("nginx/").unwrap_or_default();
    let mut numbers = numbers.split(['.', ' ']).map_while(|number| number.parse::<u32>().ok());
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

fn configuration(
    spec: &ServerSpec,
    folder: &RunFolder,
    (tls, site): (Option<&Certificate>, Option<&Laid>),
    files: u64,
    version: &str,
) -> String {
    let workers = workers(spec);
    let mut listen = spec.at.to_string();
    if workers > 1 {
        listen += " reuseport";
    }
    if let Some(backlog) = spec.backlog {
        listen += &format!(" backlog={backlog}");
    }
    if tls.is_some() {
        listen += " ssl";
    }
    let http2 = if site.is_some_and(|site| site.http2) { http2_words(version) } else { ("", "") };
    listen += http2.0;
    let connections = match &spec.limits {
        // Shared between the processes; a few are nginx's own.
        Some(limits) => limits.workers.div_ceil(workers) + OWN_CONNECTIONS,
        None => files,
    };
    let mut text = preamble(folder, workers, (files, connections), "warn");
    text += "http {\n  \
         access_log off;\n  \
         default_type text/plain;\n  \
         sendfile on;\n  \
         tcp_nopush on;\n  \
         open_file_cache max=4096;\n";
    text += &temporary_paths(folder);
    if spec.limits.is_some() {
        text += &format!(
            "  server {{\n    listen unix:{};\n    location = {PATH} {{ stub_status; }}\n  }}\n",
            status_socket(folder).display()
        );
    }
    if !spec.keepalive {
        text += "  keepalive_timeout 0;\n";
    } else if let Some(ns) = spec.keepalive_timeout_ns {
        text += &format!("  keepalive_timeout {};\n", milliseconds(ns));
    }
    match spec.keepalive_requests {
        Some(0) => text += &format!("  keepalive_requests {WITHOUT_END};\n"),
        Some(requests) => text += &format!("  keepalive_requests {requests};\n"),
        None => {}
    }
    if let Some(tls) = tls {
        text += &format!(
            "  ssl_certificate {};\n  ssl_certificate_key {};\n  \
             ssl_protocols TLSv1.2 TLSv1.3;\n  \
             ssl_session_cache shared:tcptoll:10m;\n  ssl_session_tickets on;\n",
            tls.chain_file.display(),
            tls.key_file.display()
        );
    }
    if let Some(site) = site {
        text += &site_text(site, folder, &format!("    listen {listen};\n{}", http2.1));
        return text;
    }
    text += &format!("  server {{\n    listen {listen};\n    location / {{\n");
    if spec.body_bytes > INLINE_MAX {
        let root = folder.path().display();
        text += &format!("      root {root};\n      try_files /content =404;\n");
    } else {
        text += &format!("      return 200 \"{}\";\n", String::from_utf8_lossy(&content(spec)));
    }
    text += "    }\n  }\n}\n";
    text
}

/// The rest of `http` for a site: one server, which answers to every name.
fn site_text(site: &Laid, folder: &RunFolder, listen: &str) -> String {
    let root = site.root.display();
    let path = folder.path().display();
    let mut text = "  types {\n".to_owned();
    for (extension, kind) in &site.types {
        text += &format!("    {kind} {extension};\n");
    }
    text += "  }\n";
    if site.compress {
        // It knows text/html by itself, and warns where it is named.
        let kinds: Vec<&str> = COMPRESSED.into_iter().filter(|&kind| kind != "text/html").collect();
        text += &format!("  gzip on;\n  gzip_types {};\n", kinds.join(" "));
    }
    text += &format!(
        "  server {{\n{listen}    server_name _;\n    root \"{root}\";\n    index index.html;\n    \
         disable_symlinks on from=$document_root;\n    \
         location = {READY_PATH} {{ default_type text/plain; return 200 ready; }}\n"
    );
    for (at, script) in &site.scripts {
        text += &format!(
            "    location = {at} {{\n      \
               fastcgi_pass unix:{path}/php.sock;\n      \
               fastcgi_param SCRIPT_FILENAME {script};\n      \
               fastcgi_param REQUEST_METHOD $request_method;\n      \
               fastcgi_read_timeout 120s;\n    }}\n",
            script = script.display()
        );
    }
    text + "  }\n}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_that_know_it_get_the_option_of_the_log() {
        let versions = ["nginx/1.18.0 (Ubuntu)", "nginx/1.19.5", "nginx/1.22.1", "nginx/2.0", "?"];
        assert_eq!(versions.map(takes_log_option), [false, true, true, true, false]);
    }
}
