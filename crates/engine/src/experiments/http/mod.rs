//! What does it cost to reuse a connection, or not, and who pays?

mod closing;
mod forecast;
mod observation;
pub mod requests;
pub mod settings;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use tcptoll_model::http::url::Url;
use tcptoll_model::ports::{ClientCloses, PortForecast, PortSettings, forecast};
use tcptoll_model::record::{Resolved, Summary};
use tcptoll_model::stats::Histogram;
use tcptoll_model::study::{PlannedArm, Settings};
use tcptoll_model::units::human_count;

use self::closing::{AfterLoad, Server, count_closed};
use self::forecast::Pace;
use self::requests::pieces;
use self::settings::{
    HttpSettings, LabServer, LabSettings, OPTIONS, PUBLIC_RATE_PER_S, PlaceSettings, Tls,
};
use crate::clock::ClockWatch;
use crate::experiments::bench::hosts::{
    ECHOES, Wish, count, launch, observe, read_sysctls, settle,
};
use crate::experiments::bench::notes::{Span, Trial};
use crate::experiments::bench::settings::{WarmUp, wrong};
use crate::experiments::bench::target::Target;
use crate::experiments::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};
use crate::files::Shared;
use crate::lab::certification::echoes;
use crate::lab::{Handle, LabError, Place};
use crate::messages::{
    Forget, HttpLoad, HttpReport, HttpRequests, ServerSpec, Serving, TlsLoad, UPLOAD_MAX, Upload,
    Watch,
};
use tcptoll_model::experiments::http::conclusion;

/// Differences in throughput below this relative size change no decision.
const MARGIN: f64 = 0.02;

/// Ports of the lab's server: above those that only a privileged program may listen on.
const PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;

/// After a load on a server of the lab, whose FINs have been waited for: how long its sockets may
/// take to their last state.
const SETTLED: Duration = Duration::from_millis(30);

/// The same of a server elsewhere, whose FINs have not been waited for.
const CLOSED_LIMIT: Duration = Duration::from_millis(500);

/// Every metric of a trial.
const METRICS: &[&str] = &[
    "accept_queue_peak",
    "achieved_per_s",
    "client_bytes_per_connection",
    "client_cpu_us_per_op",
    "client_segments_per_op",
    "client_time_wait",
    "connect_us_mean",
    "connections_per_s",
    "first_byte_us_mean",
    "goodput_bytes_per_s",
    "in_flight_mean",
    "intended_per_s",
    "kernel_bytes_per_connection",
    "latency_us_mean",
    "rate_resolution_per_s",
    "requests_per_connection",
    "requests_per_s",
    "server_cpu_us_per_op",
    "server_segments_per_op",
    "server_time_wait",
    "tls_resumed_share",
    "unserved_at_end",
];

/// Every distribution of a trial.
const HISTOGRAMS: &[&str] = &[
    "connect_us",
    "first_byte_us",
    "idle_close_us",
    "lateness_us",
    "latency_us",
    "rtt_us",
    "tls_us",
];

/// The experiment.
pub struct Http;

impl Experiment for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn question(&self) -> &'static str {
        "What does it cost to reuse a connection, or not, and who pays?"
    }

    fn options(&self) -> &'static [&'static str] {
        OPTIONS
    }

    fn primary_metric(&self) -> &'static str {
        "requests_per_s"
    }

    fn metrics(&self) -> &'static [&'static str] {
        METRICS
    }

    fn histograms(&self) -> &'static [&'static str] {
        HISTOGRAMS
    }

    fn margin(&self) -> f64 {
        MARGIN
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(HttpSettings::from(settings)?))
    }

    fn conclude(&self, summary: &mut Summary) {
        conclusion::conclude(summary);
    }
}

impl Plan for HttpSettings {
    fn target(&self) -> Option<&Target> {
        Self::target(self)
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let PlaceSettings::Target(_, target) = &mut self.place {
            target.take(resolved);
        }
    }

    fn prepare(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        self.read_files(files)
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn public_load(&self) -> Option<PublicLoad> {
        let target = Self::target(self).filter(|target| target.is_public())?;
        let rate = self.load.rate.unwrap_or(PUBLIC_RATE_PER_S);
        Some(PublicLoad {
            target: target.typed.clone(),
            size: rate,
            load: format!("up to {rate} requests per second will be sent to it"),
            options: "--rate and --requests set other figures",
        })
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        let mut trial = HttpTrial {
            settings: self,
            pace: self.pace(),
            ports: PortSettings::default(),
            common: Trial::new(&arm.name, &self.load.bind),
        };
        match &self.place {
            PlaceSettings::Lab(lab) => trial.in_lab(lab, context)?,
            PlaceSettings::Target(urls, target) => trial.at_target(urls, target, context)?,
        }
        Ok(trial.common.into_outcome(&arm.factors))
    }
}

/// Every latency ends with the kernel's receive stamp, which is on the wall clock. No figure rests on
/// a tap's stamps, and the emulated link stamps its packets itself.
const STAMPED: bool = true;

/// One arm, being run.
struct HttpTrial<'a> {
    settings: &'a HttpSettings,
    pace: Pace,
    /// What the forecast of ports rests on.
    ports: PortSettings,
    common: Trial,
}

/// What a load reported.
struct Driven {
    report: HttpReport,
    /// Distributions by name, without unit.
    histograms: Vec<(String, Histogram)>,
    /// From when it was asked for to its report.
    took: Duration,
}

/// A server of the lab that answers.
struct Answering {
    at: SocketAddr,
    /// What it has to ask for.
    path: String,
    /// Its certificate, where it speaks TLS.
    roots: Option<RootsFile>,
}

impl HttpTrial<'_> {
    fn in_lab(&mut self, lab: &LabSettings, context: &mut Context<'_>) -> Result<(), TrialError> {
        let mut wish = Wish {
            link: &lab.link,
            ipv6: lab.ipv6,
            packet_relay: lab.packet_relay,
            client_sysctls: lab.client_sysctls.clone(),
            server_sysctls: lab.server_sysctls.clone(),
        };
        let ports = self.settings.ports(&self.pace);
        let connections = self.settings.expected_connections(&self.pace);
        self.common.spread_ports(ports, connections, &mut wish);
        let mut place = self.common.lab(wish, context)?;
        let server = self.serve(&mut place, lab, context)?;
        let (number, interval_ns) = ECHOES[usize::from(!context.witness)];
        let quiet = echoes(&mut place, number, interval_ns, context.interrupt)?;
        self.common.take_echoes(&quiet);
        self.forecast(&mut place, server.at)?;
        let paths =
            if lab.paths.is_empty() { vec![server.path.clone()] } else { lab.paths.clone() };
        self.upload(&mut place.client, &server.at.to_string(), &paths)?;
        let load =
            self.load(server.at, &server.at.ip().to_string(), server.roots.as_ref(), context);
        // What its start put into queues is no peak of the load.
        place.server()?.ask(&Forget)?;
        let client_before = observe(&mut place.client)?;
        let server_before = observe(place.server()?)?;
        let emulated = lab.link.is_emulated();
        let tapped = lab.tap || context.pcap.is_some();
        let pcap = context.pcap.map(str::to_owned);
        let watch = Watch { tap: lab.tap, pcap, ..Watch::default() };
        place.link()?.ask(&watch)?;
        let clocks = ClockWatch::begin();
        let since_ns = place.time.now().as_nanos() as u64;
        let driven = self.drive(&mut place, &load, context)?;
        settle(&mut place, &lab.link)?;
        let clocks = clocks.end();
        let ours = count_closed(&mut place.client, server.at, since_ns, SETTLED)?;
        let client_after = observe(&mut place.client)?;
        let (counted, _) = count(place.link()?)?;
        let theirs = count_closed(place.server()?, server.at, since_ns, SETTLED)?;
        let server_after = observe(place.server()?)?;
        let client = Span { before: &client_before, after: &client_after };
        let server = Span { before: &server_before, after: &server_after };
        self.take_report(&driven);
        self.take_client(&driven.report, client);
        self.take_server(&driven.report, server);
        let place_of_server =
            if lab.link.loopback { Server::Same } else { Server::Apart(theirs, server) };
        let after = AfterLoad { since_ns, ours, client, server: place_of_server };
        self.take_closing(&driven.report, &after);
        self.take_segments(&driven.report);
        if self.common.take_link(counted, emulated || tapped, client, server) {
            self.common.compare_syns();
            self.compare_packets();
        }
        self.common.take_machine(client, sent(&driven.report));
        self.common.take_clocks(clocks, STAMPED);
        Ok(())
    }

    fn at_target(
        &mut self,
        urls: &[Url],
        target: &Target,
        context: &mut Context<'_>,
    ) -> Result<(), TrialError> {
        let Some(url) = urls.first() else { return Ok(()) };
        let address = target.address()?;
        let mut place = context.places.target()?;
        place.addresses.server = address.ip();
        let quiet = echoes(&mut place, 20, 20_000_000, context.interrupt);
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        // A firewall may eat echoes, and this user may not be allowed to send them.
        if let Ok(quiet) = quiet {
            self.common.take_echoes(&quiet);
        }
        self.forecast(&mut place, address)?;
        let paths: Vec<String> = urls.iter().map(|url| url.path.clone()).collect();
        self.upload(&mut place.client, &url.authority(), &paths)?;
        let load = self.load(address, &url.host, None, context);
        let before = observe(&mut place.client)?;
        let clocks = ClockWatch::begin();
        let since_ns = place.time.now().as_nanos() as u64;
        let driven = self.drive(&mut place, &load, context)?;
        let clocks = clocks.end();
        let sockets = count_closed(&mut place.client, address, since_ns, CLOSED_LIMIT)?;
        let after = observe(&mut place.client)?;
        let report = &driven.report;
        if report.connections.1 == 0 && report.attempts > 0 && !report.partial {
            return Err(TrialError::Target(nothing_reached(&target.typed, report)));
        }
        let client = Span { before: &before, after: &after };
        self.take_report(&driven);
        self.take_client(report, client);
        self.take_closing(report, &AfterLoad::of_target(report, since_ns, sockets, client));
        self.common.take_machine(client, sent(report));
        self.common.take_clocks(clocks, STAMPED);
        Ok(())
    }

    /// Starts the server.
    fn serve(
        &mut self,
        place: &mut Place,
        lab: &LabSettings,
        context: &Context<'_>,
    ) -> Result<Answering, TrialError> {
        let known = match &lab.server {
            LabServer::Command(line, port) => {
                let at = launch(place, line, *port)?;
                return Ok(Answering { at, path: "/".to_owned(), roots: None });
            }
            LabServer::Known(known) => known,
        };
        let tls = self.settings.tls != Tls::Off;
        let at = SocketAddr::new(place.addresses.server, if tls { TLS_PORT } else { PORT });
        let ns = |time: Duration| time.as_nanos() as u64;
        let spec = ServerSpec {
            kind: known.kind,
            at,
            workers: Some(known.workers),
            keepalive: known.keepalive,
            keepalive_timeout_ns: known.keepalive_timeout.map(ns),
            keepalive_requests: known.keepalive_requests,
            tls,
            body_bytes: known.response_bytes,
            work_ns: ns(known.work),
            backlog: known.backlog,
            connections: self.settings.load.connections,
        };
        let server = place.server()?;
        let Serving { at, version, certificate, path, .. } = server.ask(&spec)?;
        if let Some(server) = &mut self.common.arm.server {
            server.version = Some(version);
        }
        let roots = certificate.map(|pem| RootsFile::write(&pem, context.seed)).transpose()?;
        Ok(Answering { at, path, roots })
    }

    /// How many connections the client's ports allow, before the first is opened.
    fn forecast(&mut self, place: &mut Place, at: SocketAddr) -> Result<(), TrialError> {
        let names = [
            "net.ipv4.ip_local_port_range",
            "net.ipv4.ip_local_reserved_ports",
            "net.ipv4.tcp_timestamps",
            "net.ipv4.tcp_tw_reuse",
            "net.ipv4.tcp_tw_reuse_delay",
        ];
        let settings = PortSettings {
            sysctls: read_sysctls(&mut place.client, &names)?,
            sources: self.common.sources.len().max(1) as u64,
            destinations: 1,
            client_closes: if self.settings.load.reuse.client_closes() {
                ClientCloses::All
            } else {
                ClientCloses::None
            },
            loopback: at.ip().is_loopback(),
        };
        self.common.arm.ports = forecast(&settings);
        self.ports = settings;
        let open = self.settings.open_at_once(&self.pace);
        match &self.common.arm.ports {
            Some(ports) if open > ports.at_once => Err(too_few_ports(open, ports)),
            _ => Ok(()),
        }
    }

    /// Hands the client what to ask for.
    fn upload(
        &mut self,
        client: &mut Handle,
        authority: &str,
        paths: &[String],
    ) -> Result<(), TrialError> {
        let (requests, warning): (HttpRequests, _) = self.settings.requests.all(authority, paths);
        if let Some(warning) = warning {
            self.common.warn(&warning);
        }
        let text = serde_json::to_string(&requests)
            .map_err(|error| TrialError::Setting(format!("requests: {error}")))?;
        for piece in pieces(&text, UPLOAD_MAX) {
            client.ask(&Upload(piece.to_owned()))?;
        }
        Ok(())
    }

    fn load(
        &self,
        target: SocketAddr,
        server_name: &str,
        roots: Option<&RootsFile>,
        context: &Context<'_>,
    ) -> HttpLoad {
        let HttpSettings { load, tls, insecure, ca, .. } = self.settings;
        let ns = |time: Duration| time.as_nanos() as u64;
        let made = roots.map(|file| file.0.display().to_string());
        let (warmup_requests, warmup_ns) = match self.pace.warmup {
            WarmUp::Operations(count) => (count, 0),
            WarmUp::Time(long) => (0, ns(long)),
        };
        HttpLoad {
            target,
            tls: (*tls != Tls::Off).then(|| TlsLoad {
                server_name: server_name.to_owned(),
                insecure: *insecure,
                ca: ca.clone().or(made),
                resume: *tls == Tls::Resumed,
            }),
            reuse: load.reuse,
            connections: load.connections,
            threads: load.threads,
            rate_per_s: self.pace.rate,
            spread: load.spread,
            ramp_ns: ns(self.pace.ramp),
            warmup_requests,
            warmup_ns,
            requests: self.pace.requests,
            duration_ns: self.pace.duration.map(ns),
            timeout_ns: ns(load.timeout),
            connect_timeout_ns: ns(load.connect_timeout),
            bind: self.common.sources.clone(),
            congestion: load.congestion.clone(),
            io: load.io,
            batch_ns: ns(load.batch),
            expect_status: load.expect_status.clone(),
            expect_sha256: load.expect_sha256.clone(),
            body_limit: load.body_limit,
            seed: context.seed,
        }
    }

    fn drive(
        &self,
        place: &mut Place,
        load: &HttpLoad,
        context: &mut Context<'_>,
    ) -> Result<Driven, TrialError> {
        let total = self.settings.expected_requests(&self.pace);
        let begun = place.time.now();
        let ordered = place.client.begin(load)?;
        let progress = &mut context.progress;
        let tell = &mut |done: u64| progress(done, total.max(done));
        let answered = place.client.wait(ordered, context.interrupt, tell)?;
        Ok(Driven {
            report: answered.answer,
            histograms: answered.histograms,
            took: place.time.since(begun),
        })
    }
}

/// Why connections that are all to be open cannot be.
fn too_few_ports(open: u64, ports: &PortForecast) -> TrialError {
    let why = format!(
        "the client's local ports allow {} open connections to one server ({} source address{} with {} each): give more source addresses (--bind), or widen net.ipv4.ip_local_port_range",
        human_count(ports.at_once),
        human_count(ports.sources),
        if ports.sources == 1 { "" } else { "es" },
        human_count(ports.usable)
    );
    wrong("connections", &open.to_string(), why)
}

/// Requests that were sent, those of the warm-up too: what counters over the whole load are
/// divided by.
fn sent(report: &HttpReport) -> u64 {
    report.attempts.saturating_sub(report.unsent()) + report.warmup.0
}

/// Why a target gave nothing, with what to do about it.
fn nothing_reached(typed: &str, report: &HttpReport) -> String {
    let Some((class, _)) = report.errors.iter().max_by_key(|(_, count)| **count) else {
        return format!("--url {typed}: no request was begun");
    };
    let words = report.first_errors.get(class).map_or("", String::as_str);
    let advice = match class.as_str() {
        "connect-refused" => "nothing listens there: check the port, or start the server",
        "connect-timeout" | "timeout" => {
            "nothing answers there: check address and firewall, or raise --timeout"
        }
        "unreachable" => "there is no route to it: check the address",
        "local-fds" => "raise the limit of open files: ulimit -n",
        "local-ports" => {
            "no local port is free, or --bind names an address that this host does not have"
        }
        "tls" => "TLS did not come about: --ca for roots of your own, --insecure to accept any",
        _ => "see the error",
    };
    format!("--url {typed}: no connection was made ({class}: {words}): {advice}")
}

/// A file of root certificates for the client; it goes with the trial.
struct RootsFile(PathBuf);

impl RootsFile {
    fn write(pem: &str, seed: u64) -> Result<Self, TrialError> {
        let name = format!("tcptoll-{}-{seed:016x}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        let refuse = |error: std::io::Error| {
            TrialError::Lab(LabError::Refused(format!("{}: {error}", path.display())))
        };
        // Of this user alone, and nobody else's file of the same name.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(refuse)?;
        let roots = Self(path.clone());
        file.write_all(pem.as_bytes()).map_err(refuse)?;
        Ok(roots)
    }
}

impl Drop for RootsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
