//! The settings of `http`: from what was typed to what it means, without sending anything.

use std::net::IpAddr;
use std::time::Duration;

use crate::requests::http::SPEC;
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::http::status::Expected;
use tcptoll_core::stats::arrivals::Spread;
use tcptoll_core::study::Settings;
use tcptoll_core::study::points::Share;
use tcptoll_core::units::parse_size;
use tcptoll_lab::files::Shared;
use tcptoll_lab::load::THREADS_MAX;
use tcptoll_lab::messages::Io;

use super::endpoints::{Ends, LabServer, LabSettings, ends};
use super::requests::RequestSettings;
use crate::kit::plan::TrialError;
use crate::kit::settings::{SettingsReader, WarmUp, check_congestion, time_above_zero, wrong};
use crate::kit::target::Target;

/// Most requests of one trial, before or in its measured part.
const REQUESTS_MAX: u64 = 1_000_000_000;

/// Against an address that is not of this machine or its own network, unless `--requests` or
/// `--duration` says other.
pub(super) const PUBLIC_REQUESTS: u64 = 200;

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct HttpSettings {
    /// Where the two ends stand.
    pub ends: Ends,
    /// What is asked for.
    pub requests: RequestSettings,
    /// How it is asked for.
    pub load: LoadSettings,
    /// Whether TLS is spoken, and how it is begun.
    pub tls: Tls,
    /// Accept any certificate.
    pub insecure: bool,
    /// PEM file of further roots.
    pub ca: Option<String>,
}

/// How requests are sent.
#[derive(Clone, Debug)]
pub(super) struct LoadSettings {
    /// How connections are used again.
    pub reuse: Reuse,
    /// Connections at once, at most.
    pub connections: u64,
    /// Threads of the client.
    pub threads: u64,
    /// Requests due per second, if it was said.
    pub rate: Option<f64>,
    /// The part of the load that is sent, if it is not all of it.
    pub share: Option<Share>,
    /// How they are spread.
    pub spread: Spread,
    /// Measured requests, if it was said.
    pub requests: Option<u64>,
    /// Time in which measured requests begin, if it was said.
    pub duration: Option<Duration>,
    /// What comes before, if it was said.
    pub warmup: Option<WarmUp>,
    /// Time over which the first connections begin, if it was said.
    pub ramp: Option<Duration>,
    /// Of one request.
    pub timeout: Duration,
    /// Of one handshake.
    pub connect_timeout: Duration,
    /// What has happened is handled together, at most this much later.
    pub batch: Duration,
    /// What to wait with.
    pub io: Io,
    /// Source addresses.
    pub bind: Vec<IpAddr>,
    /// Congestion control.
    pub congestion: Option<String>,
    /// Statuses that are successes.
    pub expect_status: Expected,
    /// SHA-256 of the content, hexadecimal, small letters.
    pub expect_sha256: Option<String>,
    /// Bytes of content at most.
    pub body_limit: u64,
}

/// Whether TLS is spoken, and how it is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// Not.
    Off,
    /// A full handshake for each connection.
    Full,
    /// Sessions are resumed where the server allows it.
    Resumed,
}

impl HttpSettings {
    /// Checks the settings of one arm, without looking at files and names.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let ends = ends(&reader)?;
        let requests = RequestSettings::from(&reader, &ends)?;
        let load = load(&reader)?;
        let tls = tls(&reader, &ends)?;
        let settings = Self {
            requests,
            load,
            tls,
            insecure: reader.flag("insecure")?,
            ca: reader.typed("ca"),
            ends,
        };
        settings.check_roots(&reader)?;
        Ok(settings)
    }

    /// The server, if we do not control it.
    pub(super) fn target(&self) -> Option<&Target> {
        match &self.ends {
            Ends::Lab(_) => None,
            Ends::Target(_, target) => Some(target),
        }
    }

    /// The lab's settings, if that is where the server is.
    pub(super) fn lab(&self) -> Option<&LabSettings> {
        match &self.ends {
            Ends::Lab(lab) => Some(lab),
            Ends::Target(..) => None,
        }
    }

    fn check_roots(&self, reader: &SettingsReader<'_>) -> Result<(), TrialError> {
        let known = matches!(self.lab().map(|lab| &lab.server), Some(LabServer::Known(_)));
        for key in ["insecure", "ca"] {
            let Some(typed) = reader.typed(key) else { continue };
            if self.tls == Tls::Off {
                return Err(wrong(
                    key,
                    &typed,
                    "it has no effect without TLS: leave it out, or write --tls full",
                ));
            }
            if known && key == "ca" {
                let why = "the lab makes this server's certificate and trusts it: leave --ca out";
                return Err(wrong(key, &typed, why));
            }
        }
        match &self.ca {
            Some(typed) if self.insecure => {
                let why = "it has no effect with --insecure: leave one of them out";
                Err(wrong("ca", typed, why))
            }
            _ => Ok(()),
        }
    }

    /// Checks and reads what depends on this machine: the kernel's congestion controls, the server's
    /// program, files.
    pub(super) fn read_files(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        check_congestion(self.load.congestion.as_deref())?;
        if let Some(typed) = &self.ca {
            std::fs::metadata(typed).map_err(|error| wrong("ca", typed, error))?;
        }
        if let Ends::Lab(lab) = &mut self.ends {
            lab.find_server(self.tls != Tls::Off)?;
        }
        self.requests.read_files(files)
    }
}

/// Connections at once, unless it is said: to another machine (`URL`), or with a schedule (`--rate`).
const CONNECTIONS: u64 = 50;

/// The same in a closed loop in the lab. Both hosts share a kernel and often two CPUs: from four at
/// once the client used 91 to 95 % of its own against nginx (Linux 6.18), and would be what is
/// measured: nearly every trial was excluded, rightly.
const LAB_CONNECTIONS: u64 = 2;

fn load(reader: &SettingsReader<'_>) -> Result<LoadSettings, TrialError> {
    let reuse = reader.read("reuse", str::parse::<Reuse>)?;
    let rate = reader.rate("requests")?;
    let threads = reader.count("threads", 1, THREADS_MAX)?;
    let closed_lab = rate.is_none() && reader.typed("url").is_none();
    let otherwise = if closed_lab { LAB_CONNECTIONS.max(threads) } else { CONNECTIONS };
    let connections = reader.typed_count("connections", 1, 1_000_000)?.unwrap_or(otherwise);
    if threads > connections {
        let why = format!(
            "each thread needs a connection, and there are only {connections}: raise --connections"
        );
        return Err(wrong("threads", &threads.to_string(), why));
    }
    if let (Some(_), Some(ramp)) = (rate, reader.typed("ramp")) {
        let why = "it has no effect with --rate, an open loop: leave one of them out";
        return Err(wrong("ramp", &ramp, why));
    }
    if let (Some(_), Reuse::Idle(_)) = (rate, reuse) {
        let why = "an open loop (--rate) has no idle time between requests: leave one of them out";
        return Err(wrong("reuse", &reuse.to_string(), why));
    }
    let spread = match reader.value("spread")?.as_str() {
        "constant" => Spread::Constant,
        "poisson" => Spread::Poisson,
        other => return Err(wrong("spread", other, "write constant or poisson")),
    };
    let share = reader.typed_read("share", str::parse::<Share>)?;
    if let Some(share) = share {
        let typed = share.to_string();
        if rate.is_none() {
            return Err(wrong("share", &typed, "only the load of a rate can be split: add --rate"));
        }
        if spread == Spread::Poisson {
            let why =
                "random requests are not the same in number each time: leave --spread poisson out";
            return Err(wrong("share", &typed, why));
        }
    }
    let io = match reader.value("io")?.as_str() {
        "auto" => Io::Auto,
        "epoll" => Io::Epoll,
        "io-uring" => Io::IoUring,
        other => return Err(wrong("io", other, "write auto, epoll or io-uring")),
    };
    let timeout = reader.read("timeout", time_above_zero)?;
    let batch = reader.time("batch")?;
    if batch > Duration::from_secs(1) {
        return Err(wrong("batch", &reader.value("batch")?, "write at most 1s"));
    }
    let body_limit = reader.read("body-limit", parse_size)?;
    Ok(LoadSettings {
        reuse,
        connections,
        threads,
        rate,
        share,
        spread,
        requests: reader.typed_count("requests", 1, REQUESTS_MAX)?,
        duration: reader.typed_read("duration", time_above_zero)?,
        warmup: reader.warm_up("requests", REQUESTS_MAX)?,
        ramp: reader.typed_time("ramp")?,
        timeout,
        connect_timeout: reader.typed_read("connect-timeout", time_above_zero)?.unwrap_or(timeout),
        batch,
        io,
        bind: reader.addresses("bind")?,
        congestion: reader.typed("congestion"),
        expect_status: reader.read("expect-status", str::parse::<Expected>)?,
        expect_sha256: reader.typed_read("expect-sha256", sha256)?,
        body_limit,
    })
}

/// A time that must not be 0.
fn sha256(typed: &str) -> Result<String, &'static str> {
    let digits = typed.len() == 64 && typed.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits
        .then(|| typed.to_ascii_lowercase())
        .ok_or("write 64 hexadecimal digits, as sha256sum prints them")
}

fn tls(reader: &SettingsReader<'_>, ends: &Ends) -> Result<Tls, TrialError> {
    let asked = match reader.typed("tls").as_deref() {
        None => None,
        Some("off" | "false") => Some(Tls::Off),
        Some("full") => Some(Tls::Full),
        Some("resumed") => Some(Tls::Resumed),
        Some(other) => return Err(wrong("tls", other, "write off, full or resumed")),
    };
    let Ends::Target(urls, _) = ends else { return Ok(asked.unwrap_or(Tls::Off)) };
    let https = urls.iter().any(|url| url.tls);
    let typed = reader.typed("tls").unwrap_or_default();
    match (https, asked) {
        (true, Some(Tls::Off)) => {
            Err(wrong("tls", &typed, "the URL says https: leave this out, or write http://"))
        }
        (false, Some(Tls::Full | Tls::Resumed)) => {
            Err(wrong("tls", &typed, "the URL says http: leave this out, or write https://"))
        }
        (true, asked) => Ok(asked.unwrap_or(Tls::Resumed)),
        (false, _) => Ok(Tls::Off),
    }
}

#[cfg(test)]
mod tests;
