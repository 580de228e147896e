//! How is each peer called, and what does it print?

use std::process::Command;

use super::{CONNECTIONS, Case};

/// Another load generator.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) program: &'static str,
    /// Where it is to be had.
    pub(crate) package: &'static str,
    /// Its command for each case; `{connections}`, `{seconds}` and `{url}` stand for values.
    keep_alive: &'static str,
    /// None: it has no way to do that.
    server_close: Option<&'static str>,
    /// Reads what it printed. None: it is not what this program prints when it has run.
    pub(crate) read: fn(&str) -> Option<Counted>,
}

/// What a peer says it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted {
    /// Requests with a status that is a success.
    pub(crate) ok: u64,
    /// Requests with another, and failures.
    pub(crate) errors: u64,
    /// The rate it prints, which has both in it.
    rate: f64,
}

impl Counted {
    /// Successes per second.
    pub(crate) fn per_s(self) -> f64 {
        self.rate * self.ok as f64 / (self.ok + self.errors).max(1) as f64
    }
}

/// One thread each. `ab` ends after 50,000 requests unless it is told a number behind the time.
pub(crate) const PEERS: &[Peer] = &[
    Peer {
        program: "wrk",
        package: "wrk",
        keep_alive: "wrk -t1 -c{connections} -d{seconds}s {url}",
        server_close: Some("wrk -t1 -c{connections} -d{seconds}s -H 'Connection: close' {url}"),
        read: read_wrk,
    },
    Peer {
        program: "ab",
        package: "apache2-utils",
        keep_alive: "ab -q -k -c {connections} -t {seconds} -n 5000000 {url}",
        server_close: Some(
            "ab -q -c {connections} -t {seconds} -n 5000000 -H 'Connection: close' {url}",
        ),
        read: read_ab,
    },
    Peer {
        program: "h2load",
        package: "nghttp2-client",
        keep_alive: "h2load --h1 -t1 -c{connections} -D {seconds} {url}",
        server_close: None,
        read: read_h2load,
    },
    Peer {
        program: "hey",
        package: "hey",
        keep_alive: "hey -z {seconds}s -c {connections} -cpus 1 {url}",
        server_close: Some("hey -z {seconds}s -c {connections} -cpus 1 -disable-keepalive {url}"),
        read: read_distribution,
    },
    Peer {
        program: "oha",
        package: "oha (cargo install oha)",
        keep_alive: "oha --no-tui -z {seconds}s -c {connections} {url}",
        server_close: Some("oha --no-tui -z {seconds}s -c {connections} --disable-keepalive {url}"),
        read: read_distribution,
    },
    Peer {
        program: "fortio",
        package: "fortio (https://fortio.org)",
        keep_alive: "fortio load -qps 0 -c {connections} -t {seconds}s {url}",
        server_close: Some(
            "fortio load -qps 0 -c {connections} -t {seconds}s -keepalive=false {url}",
        ),
        read: read_fortio,
    },
];

/// The peer of this name.
pub(crate) fn named(program: &str) -> Option<&'static Peer> {
    PEERS.iter().find(|peer| peer.program == program)
}

impl Peer {
    /// Its command for a case. None: it cannot do that.
    pub(crate) fn line(&self, case: Case, url: &str, seconds: u64) -> Option<String> {
        let template = match case {
            Case::KeepAlive => self.keep_alive,
            Case::ServerClose => self.server_close?,
        };
        Some(fill(template, url, CONNECTIONS, seconds))
    }

    /// Its command that keeps so many connections open.
    pub(crate) fn holding(&self, url: &str, connections: u64, seconds: u64) -> String {
        fill(self.keep_alive, url, connections, seconds)
    }

    /// As [`version_of`].
    pub(crate) fn version(&self) -> Option<String> {
        version_of(self.program, self.package)
    }
}

/// A program's version: of the package it is from, or what it says. None: it is not on the path.
pub(crate) fn version_of(program: &str, package: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    if !std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return None;
    }
    let first_line = |program: &str, words: &[&str]| -> Option<String> {
        let output = Command::new(program).args(words).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let line = text.lines().next()?.to_owned();
        output.status.success().then_some(line)
    };
    first_line("dpkg-query", &["-W", "-f", "${Version}", package])
        .or_else(|| first_line(program, &["--version"]))
        .or_else(|| first_line(program, &["version"]))
        .or_else(|| Some("of unknown version".to_owned()))
}

fn fill(template: &str, url: &str, connections: u64, seconds: u64) -> String {
    template
        .replace("{connections}", &connections.to_string())
        .replace("{seconds}", &seconds.to_string())
        .replace("{url}", url)
}

/// The first number behind a label at the beginning of a line.
fn behind(text: &str, label: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

fn read_wrk(text: &str) -> Option<Counted> {
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    let requests: u64 = line.split_whitespace().next()?.parse().ok()?;
    let statuses = behind(text, "Non-2xx or 3xx responses:").unwrap_or(0.0) as u64;
    // `Socket errors: connect 0, read 0, write 0, timeout 0`, printed only if there are some.
    let failures: u64 = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("Socket errors:"))
        .map_or(0, |line| line.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok()).sum());
    let ok = requests.checked_sub(statuses)?;
    Some(Counted { ok, errors: statuses + failures, rate: behind(text, "Requests/sec:")? })
}

fn read_ab(text: &str) -> Option<Counted> {
    let complete = behind(text, "Complete requests:")? as u64;
    let failed = behind(text, "Failed requests:")? as u64;
    let statuses = behind(text, "Non-2xx responses:").unwrap_or(0.0) as u64;
    // A request may be in both.
    let errors = (failed + statuses).min(complete);
    Some(Counted { ok: complete - errors, errors, rate: behind(text, "Requests per second:")? })
}

fn read_h2load(text: &str) -> Option<Counted> {
    let line = text.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let number = |name: &str| -> Option<u64> {
        let part = line.split(", ").find_map(|part| part.strip_suffix(name))?;
        part.trim().parse().ok()
    };
    let rate = text.lines().find_map(|line| {
        let (_, rest) = line.strip_prefix("finished in ")?.split_once(", ")?;
        rest.split_once(" req/s")?.0.parse().ok()
    })?;
    // Timeouts are errors, and errors are failures, by its manual; what stayed without any answer
    // at the end of the time is in none of them.
    Some(Counted { ok: number("succeeded")?, errors: number("failed")?, rate })
}

/// Of hey and oha: `[200] 15355 responses` and `[819] Get "…": connection refused`.
fn read_distribution(text: &str) -> Option<Counted> {
    let rate = behind(text, "Requests/sec:")?;
    let (mut ok, mut errors) = (0, 0);
    let mut failures = false;
    for line in text.lines().map(str::trim) {
        failures |= line.starts_with("Error distribution:");
        let Some((number, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']'))
        else {
            continue;
        };
        let number: u64 = number.parse().ok()?;
        if failures {
            errors += number;
            continue;
        }
        let count: u64 = rest.split_whitespace().next()?.parse().ok()?;
        *(if (200..400).contains(&number) { &mut ok } else { &mut errors }) += count;
    }
    Some(Counted { ok, errors, rate })
}

/// `Code 200 : 40 (100.0 %)`, failures having the code -1; `All done 40 calls … 7.9 qps`.
fn read_fortio(text: &str) -> Option<Counted> {
    let done = text.lines().find(|line| line.starts_with("All done "))?;
    let rate = done.strip_suffix(" qps")?.rsplit(' ').next()?.parse().ok()?;
    let (mut ok, mut errors) = (0, 0);
    for line in text.lines().filter_map(|line| line.strip_prefix("Code ")) {
        let (code, rest) = line.split_once(':')?;
        let code: i64 = code.trim().parse().ok()?;
        let count: u64 = rest.split_whitespace().next()?.parse().ok()?;
        *(if (200..400).contains(&code) { &mut ok } else { &mut errors }) += count;
    }
    Some(Counted { ok, errors, rate })
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
