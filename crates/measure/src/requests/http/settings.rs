//! The options of `http`, and its settings: from what was typed to what it means, without sending anything.

use std::net::IpAddr;
use std::time::Duration;

use super::SPEC;
use super::requests::{Ends, LabServer, LabSettings, RequestSettings, ends};
use crate::kit::TrialError;
use crate::kit::settings::{SettingsReader, WarmUp, check_congestion, time_above_zero, wrong};
use crate::kit::target::Target;
use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    BIND, CLIENT_ADDRESS, CLIENT_HOST, CLIENT_SYSCTL, CONGESTION, DEAD_AFTER, IPV6, LINK, LOAD,
    PACKET_RELAY, PLACE, REMOTE_BINARY, SERVE, SERVER_ADDRESS, SERVER_SYSCTL, SSH_COMMAND, TAP,
};
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::http::server;
use tcptoll_core::http::status::Expected;
use tcptoll_core::stats::arrivals::Spread;
use tcptoll_core::study::Settings;
use tcptoll_core::study::points::Share;
use tcptoll_core::units::parse_size;
use tcptoll_lab::files::Shared;
use tcptoll_lab::load::THREADS_MAX;
use tcptoll_lab::messages::Io;

/// Heading of what is asked for.
const REQUESTS: &str = "Requests";
/// Heading of what counts as success.
const SUCCESS: &str = "Success criteria";
/// Heading of servers that are known by name.
const SERVER: &str = "Server settings";

/// Where an option of a server known by name applies.
const BY_NAME: &[Only] = &[Only::Lab, Only::When("server", &server::NAMES)];

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &Opt::arguments(
        "url",
        "URL",
        "URL to request from a running server instead of the lab's. Several URLs of one server are \
         requested in turn; several servers are compared",
    ),
    &LINK,
    &Opt::each(
        PLACE,
        "server",
        "NAME|COMMAND|ssh://HOST",
        "Server to start in the lab, or with --serve on a host of yours, ssh://[USER@]HOST[:PORT]: nginx, apache (apache-event, apache-worker, apache-prefork), \
         puma, null (tcptoll's own, for calibration) or a command. Repeat the option, or list \
         several names, to compare servers",
    )
    .split(server::split)
    .by_default("nginx")
    .only(&[Only::Lab]),
    &Opt::one(
        PLACE,
        "port",
        "PORT",
        "Port of the server that a command starts, if it listens on several",
    )
    .only(&[Only::Lab]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL
        .worded("Set a sysctl on the client host, e.g. net.ipv4.tcp_tw_reuse=1; may be repeated"),
    &SERVER_SYSCTL,
    &CLIENT_HOST,
    &SERVE,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &Opt::each(
        REQUESTS,
        "reuse",
        "WAY",
        "How connections are reused; the values are explained below",
    )
    .by_default("keep-alive"),
    &Opt::each(REQUESTS, "method", "NAME", "HTTP method of every request")
        .letters(&['m'])
        .derived("GET; POST with --body"),
    &Opt::one(
        REQUESTS,
        "path",
        "PATH",
        "Path to request from the lab's server. Several paths, separated by spaces, are requested \
         in turn",
    )
    .derived("the path of the server's small page")
    .only(&[Only::Lab]),
    &Opt::together(
        REQUESTS,
        "header",
        "NAME: VALUE",
        "Header of every request, e.g. 'Accept: text/html'; may be repeated",
    )
    .letters(&['H']),
    &Opt::one(REQUESTS, "body", "TEXT|@FILE", "Body of every request, at most 1 MiB"),
    &Opt::one(
        REQUESTS,
        "access-log",
        "FILE",
        "Replay the GET and HEAD requests of an access log (common or combined format) in their \
         order, to one URL or to the lab's server",
    ),
    &Opt::each(
        REQUESTS,
        "tls",
        "off,full,resumed",
        "Use TLS with full handshakes (full), or with session resumption if the server allows it \
         (resumed). With an https:// URL only these two are possible",
    )
    .derived("off; resumed with https://"),
    &Opt::one(REQUESTS, "ca", "FILE", "File of additional root certificates (PEM)"),
    &Opt::flag(REQUESTS, "insecure", "Do not verify the server's certificate"),
    &Opt::each(LOAD, "connections", "N", "Maximum number of concurrent connections")
        .letters(&['c'])
        .alias(&["concurrency"])
        .number()
        .derived("50; in the lab without --rate the larger of 2 and --threads"),
    &Opt::each(
        LOAD,
        "rate",
        "PER_SECOND",
        "Requests to send per second, whether or not earlier ones have been answered (open loop). \
         Latency counts from the scheduled time of each",
    )
    .letters(&['R', 'q'])
    .number(),
    &Opt::one(
        LOAD,
        "share",
        "PART/OF",
        "Send one part of the load of --rate, e.g. 2/3: the second of three machines. Together they \
         send the whole load, and tcptoll merge adds up what they measured",
    )
    .only(&[Only::With("rate", "")]),
    &Opt::each(
        LOAD,
        "spread",
        "constant,poisson",
        "Spacing of the requests of --rate: constant, or random like independent users (poisson)",
    )
    .by_default("constant")
    .only(&[Only::With("rate", "")]),
    &Opt::each(LOAD, "duration", "TIME", "Time during which each trial starts requests, e.g. 30s")
        .letters(&['d', 'z'])
        .derived("1s without --requests"),
    &Opt::each(
        LOAD,
        "requests",
        "N",
        "Number of requests per trial, instead of --duration; without --warmup no others are sent. \
         With both, the trial ends at whichever comes first",
    )
    .letters(&['n'])
    .number(),
    &Opt::each(
        LOAD,
        "warmup",
        "N|TIME",
        "Warm-up before the measurement, as a number of requests or a time. Its connections stay \
         open; its figures are reported separately",
    )
    .number()
    .derived("200ms plus --ramp; none with --requests or for a public address"),
    &Opt::each(LOAD, "ramp", "TIME", "Time over which the first connections are opened, evenly")
        .derived(
            "0 with --rate, or for up to 1000 connections on a link without delay; otherwise 0.1ms \
             per connection, at least one round trip",
        ),
    &Opt::each(LOAD, "threads", "N", "Client threads, each with its own event loop")
        .letters(&['t'])
        .number()
        .by_default("1"),
    &Opt::each(
        LOAD,
        "io",
        "auto,epoll,io-uring",
        "I/O interface of the client. auto uses io_uring if the kernel allows it, otherwise epoll",
    )
    .by_default("auto"),
    &Opt::each(
        LOAD,
        "batch",
        "TIME",
        "Process events in batches, delaying each by at most TIME, e.g. 100us. Saves CPU; latency \
         stays exact because it uses kernel receive timestamps",
    )
    .by_default("0"),
    &Opt::each(
        LOAD,
        "timeout",
        "TIME",
        "Timeout of a request, from when it was due to the last byte of its response",
    )
    .by_default("10s"),
    &Opt::each(LOAD, "connect-timeout", "TIME", "Timeout of the handshake of a connection")
        .derived("same as --timeout"),
    &BIND,
    &CONGESTION,
    &Opt::one(
        SUCCESS,
        "expect-status",
        "STATUS",
        "Status codes that count as success, joined by +, e.g. 200, 2xx or 2xx+304",
    )
    .by_default("2xx+3xx"),
    &Opt::one(
        SUCCESS,
        "expect-sha256",
        "HEX",
        "SHA-256 that the body of every response must have, in hexadecimal",
    ),
    &Opt::one(SUCCESS, "body-limit", "SIZE", "Maximum size of a response body").by_default("64M"),
    &Opt::each(SERVER, "workers", "N", "Worker processes of the server, or threads if it has none")
        .number()
        .derived("1; with apache-prefork one per connection")
        .only(BY_NAME),
    &Opt::each(SERVER, "keepalive", "on,off", "HTTP keep-alive: several requests per connection")
        .by_default("on")
        .only(BY_NAME),
    &Opt::each(
        SERVER,
        "keepalive-requests",
        "N",
        "Requests after which the server closes a connection. 0 means no limit",
    )
    .number()
    .derived("server default")
    .only(BY_NAME),
    &Opt::each(
        SERVER,
        "keepalive-timeout",
        "TIME",
        "Idle time after which the server closes a connection, e.g. 5s",
    )
    .derived("server default")
    .only(BY_NAME),
    &Opt::each(SERVER, "response", "SIZE", "Size of the response body in bytes, e.g. 13 or 10K")
        .number()
        .by_default("13")
        .only(BY_NAME),
    &Opt::each(SERVER, "work", "TIME", "Time before the server answers, e.g. 5ms")
        .by_default("0")
        .only(&[Only::Lab, Only::When("server", &["puma", "null"])]),
    &Opt::each(SERVER, "backlog", "N", "Backlog that the server passes to listen(2)")
        .number()
        .derived("server default")
        .only(BY_NAME),
    &TAP.worded(
        "On a direct link or loopback, capture packets in the measured trial and count them by \
         kind (costs CPU)",
    ),
];

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

#[derive(Clone, Debug)]
pub(super) struct LoadSettings {
    /// How connections are used again.
    pub reuse: Reuse,
    /// Connections at once, at most.
    pub connections: u64,
    pub threads: u64,
    /// Requests due per second, if it was said.
    pub rate: Option<f64>,
    /// The part of the load that is sent, if it is not all of it.
    pub share: Option<Share>,
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
    pub io: Io,
    pub bind: Vec<IpAddr>,
    pub congestion: Option<String>,
    pub expect_status: Expected,
    /// SHA-256 of the content, hexadecimal, small letters.
    pub expect_sha256: Option<String>,
    /// Bytes of content at most.
    pub body_limit: u64,
}

/// Whether TLS is spoken, and how it is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tls {
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
mod tests {
    use super::super::requests::Body;
    use super::*;
    use serde_json::Value;
    use tcptoll_lab::messages::ServerKind;

    fn read(pairs: &[(&str, &str)]) -> Result<HttpSettings, String> {
        let settings =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Settings>();
        HttpSettings::from(&settings).map_err(|error| error.to_string())
    }

    /// What is refused only where files are looked at.
    fn refused_here(pairs: &[(&str, &str)], starts: &str) {
        let error =
            read(pairs).unwrap().read_files(&mut Shared::default()).unwrap_err().to_string();
        assert!(error.starts_with(starts), "{error}");
    }

    fn refused(pairs: &[(&str, &str)], starts: &str, has: &str) {
        let error = read(pairs).expect_err(starts);
        assert!(error.starts_with(starts) && error.contains(has), "{error}");
    }

    #[test]
    fn a_slip_is_refused_with_the_names_there_are() {
        refused(&[("conections", "5")], "conections: ", "connections");
    }

    #[test]
    fn nothing_said_is_nginx_next_door_with_two_connections() {
        let settings = read(&[]).unwrap();
        let lab = settings.lab().unwrap();
        let LabServer::Known(server) = &lab.server else { panic!("{lab:?}") };
        assert_eq!(
            (server.kind, server.workers, server.response_bytes),
            (ServerKind::Nginx, Some(1), 13)
        );
        assert_eq!((settings.load.connections, settings.load.threads), (2, 1));
        assert_eq!(read(&[("rate", "100")]).unwrap().load.connections, 50);
        assert_eq!(read(&[("threads", "3")]).unwrap().load.connections, 3);
        assert_eq!((settings.load.reuse, settings.tls), (Reuse::KeepAlive, Tls::Off));
        assert_eq!((settings.requests.method.as_str(), lab.paths.len()), ("GET", 0));
    }

    #[test]
    fn a_setting_without_effect_is_an_error_that_names_the_other() {
        let url = ("url", "http://127.0.0.1:8080/");
        refused(&[url, ("backlog", "4")], "--backlog needs the lab", "with a URL");
        refused(&[url, ("link", "metro")], "--link needs the lab", "with a URL");
        refused(&[url, ("tls", "full")], "--tls full: ", "https");
        refused(&[("server", "python3 x"), ("work", "1ms")], "--work 1ms: ", "known by name");
        refused(&[("port", "80")], "--port 80: ", "--server");
        refused(&[("spread", "poisson")], "--spread has no effect", "--rate");
        refused(&[("rate", "5"), ("ramp", "1s")], "--ramp 1s: ", "--rate");
        refused(&[("rate", "5"), ("reuse", "idle=1s")], "--reuse idle=1000ms: ", "--rate");
        refused(&[("threads", "4"), ("connections", "3")], "--threads 4: ", "3");
        refused(
            &[("keepalive", "off"), ("keepalive-requests", "5")],
            "--keepalive-requests 5: ",
            "--keepalive off",
        );
        refused(&[("body", "x"), ("method", "GET")], "--body x: ", "GET");
        refused(&[("insecure", "true")], "--insecure true: ", "--tls");
        refused(&[("tls", "full"), ("ca", "/dev/null")], "--ca /dev/null: ", "lab");
        refused(&[("access-log", "/dev/null"), ("path", "/a")], "--path /a: ", "--access-log");
    }

    #[test]
    fn a_value_out_of_range_says_what_to_write() {
        refused(&[("connections", "0")], "--connections 0: ", "from 1");
        refused(&[("rate", "-1")], "--rate -1: ", "requests per second");
        refused(&[("reuse", "sometimes")], "--reuse sometimes: ", "keep-alive");
        refused(&[("io", "aio")], "--io aio: ", "epoll");
        refused(&[("tls", "1.3")], "--tls 1.3: ", "resumed");
        refused(&[("expect-sha256", "abc")], "--expect-sha256 abc: ", "64");
        refused(&[("expect-status", "abc")], "--expect-status abc: ", "2xx");
        refused(&[("duration", "0")], "--duration 0: ", "above 0");
        refused(&[("batch", "2s")], "--batch 2s: ", "1s");
        refused(&[("path", "hello")], "--path hello: ", "/");
        refused(&[("warmup", "some")], "--warmup some: ", "number of requests");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_its_option_before_the_first_trial() {
        refused_here(&[("access-log", "/no/such.log")], "--access-log /no/such.log: ");
        refused_here(&[("body", "@/no/such")], "--body @/no/such: ");
        let https = ("url", "https://127.0.0.1/");
        refused_here(&[https, ("ca", "/no/such.pem")], "--ca /no/such.pem: ");
        let refuses = "--congestion telepathy: the kernel refuses it (";
        refused_here(&[("congestion", "telepathy")], refuses);
    }

    #[test]
    fn content_makes_a_post_of_a_get() {
        let settings = read(&[("body", "a=1")]).unwrap();
        assert_eq!(
            (settings.requests.method.as_str(), settings.requests.body),
            ("POST", Some(Body::Text(b"a=1".to_vec())))
        );
    }

    #[test]
    fn the_host_field_may_be_given() {
        let mut settings = Settings::new();
        settings.insert("header".into(), Value::from(vec!["Host: example.org", "Accept: a, b"]));
        let read = HttpSettings::from(&settings).unwrap().requests;
        assert_eq!(read.host.as_deref(), Some("example.org"));
        assert_eq!(read.fields, [("Accept".to_owned(), "a, b".to_owned())]);
    }

    #[test]
    fn several_paths_are_asked_for_in_turn() {
        let settings = read(&[("path", "/a /b?c=d")]).unwrap();
        assert_eq!(settings.lab().unwrap().paths, ["/a", "/b?c=d"]);
    }

    #[test]
    fn any_other_name_of_a_server_is_a_command() {
        let settings =
            read(&[("server", "python3 -m http.server 8000"), ("port", "8000")]).unwrap();
        let LabServer::Command(line, port) = &settings.lab().unwrap().server else { panic!() };
        assert_eq!((line.as_str(), *port), ("python3 -m http.server 8000", Some(8000)));
    }

    #[test]
    fn urls_are_of_one_origin_and_https_speaks_tls() {
        let two = read(&[("url", "http://10.0.0.1:81/a http://10.0.0.1:81/b")]).unwrap();
        let Ends::Target(urls, _) = &two.ends else { panic!() };
        assert_eq!((urls.len(), two.tls), (2, Tls::Off));
        refused(
            &[("url", "http://10.0.0.1/a http://10.0.0.2/b")],
            "--url ",
            "an arm for each server",
        );
        refused(&[("url", "http://a/,http://b/")], "--url ", "a comma does not separate URLs");
        refused(&[("url", "ftp://10.0.0.1/")], "--url ftp://10.0.0.1/: ", "");
        assert_eq!(read(&[("url", "https://10.0.0.1/")]).unwrap().tls, Tls::Resumed);
        let full = read(&[("url", "https://10.0.0.1/"), ("tls", "full"), ("insecure", "on")]);
        assert_eq!(full.unwrap().tls, Tls::Full);
        refused(&[("url", "https://10.0.0.1/"), ("tls", "off")], "--tls off: ", "https");
    }
}
