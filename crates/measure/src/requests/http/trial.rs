//! One trial of `http`: the server, what it is asked for, and the load.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::closing::{AfterLoad, Server, count_closed, take_closing};
use super::forecast::Pace;
use super::requests::{Ends, LabServer, LabSettings};
use super::settings::{HttpSettings, Tls};
use crate::kit::TrialError;
use crate::kit::hosts::RootsFile;
use crate::kit::hosts::{PortsNeeded, launch, read_sysctls};
use crate::kit::notes::Notes;
use crate::kit::path::Opened;
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::kit::settings::{WarmUp, wrong};
use crate::kit::target::{NO_ANSWER, Unreached};
use tcptoll_core::http::status::reason;
use tcptoll_core::number;
use tcptoll_core::stats::Histogram;
use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::ports::{ClientCloses, PortForecast, PortSettings, forecast};
use tcptoll_core::units::ns;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Handle, Hosts};
use tcptoll_lab::messages::{
    ClosedSockets, Done, HttpLoad, HttpReport, HttpRequests, Rows, ServerSpec, Serving, TlsLoad,
    Upload, Watch,
};

/// Ports of the lab's server: above those that only a privileged program may listen on.
const PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;

/// After a load on a server of the lab, whose FINs have been waited for: how long its sockets may
/// take to their last state.
const SETTLED: Duration = Duration::from_millis(30);

/// The same of a server elsewhere, whose FINs have not been waited for.
const CLOSED_LIMIT: Duration = Duration::from_millis(500);

/// Every latency ends with the kernel's receive stamp, which is on the wall clock. No figure rests on
/// a tap's stamps, and the emulated link stamps its packets itself.
const STAMPED: bool = true;

pub(super) struct HttpTrial<'a> {
    pub(super) settings: &'a HttpSettings,
    pub(super) pace: Pace,
    /// What the forecast of ports rests on.
    ports: PortSettings,
    pub(super) notes: Notes,
    /// What the client is to do, and the roots it needs, once the server is there.
    load: Option<(HttpLoad, Option<RootsFile>)>,
    /// When it began to, ns on the monotonic clock.
    since_ns: u64,
    /// Sockets of closed connections on client and server.
    closed: [ClosedSockets; 2],
}

pub(super) struct Driven {
    pub(super) report: HttpReport,
    /// Distributions by name, without unit.
    pub(super) histograms: Vec<(String, Histogram)>,
    /// From when it was asked for to its report.
    pub(super) took: Duration,
}

/// A server of the lab that answers.
struct Answering {
    at: SocketAddr,
    /// What it has to ask for.
    path: String,
    /// Its certificate, where it speaks TLS.
    roots: Option<RootsFile>,
}

impl<'a> HttpTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a HttpSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let pace = settings.pace();
        let site = match &settings.ends {
            Ends::Lab(lab) => {
                let at_a_time = settings.ports(&pace);
                let connections = settings.expected_connections(&pace);
                Site::Lab(lab.spec.clone(), PortsNeeded { at_a_time, connections })
            }
            Ends::Target(_, target) => Site::Target(target),
        };
        let mut trial = HttpTrial {
            settings,
            pace,
            ports: PortSettings::default(),
            notes: Notes::new(&arm.name, &settings.load.bind),
            load: None,
            since_ns: 0,
            closed: [ClosedSockets::default(); 2],
        };
        procedure::run(&mut trial, site, context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }
}

impl Trial for HttpTrial<'_> {
    type Report = Driven;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        let (at, server_name, authority, paths, roots) = match &self.settings.ends {
            Ends::Lab(lab) => {
                let Answering { at, path, roots } = self.serve(hosts, lab, context)?;
                let paths = if lab.paths.is_empty() { vec![path] } else { lab.paths.clone() };
                (at, at.ip().to_string(), at.to_string(), paths, roots)
            }
            Ends::Target(urls, target) => {
                let paths: Vec<String> = urls.iter().map(|url| url.path.clone()).collect();
                if paths.len() > 1 {
                    self.notes.warn(&Warning::UrlsTogether { urls: paths.len() });
                }
                // All URLs are of one origin.
                let url = urls.first().ok_or_else(no_server)?;
                (target.address()?, url.host.clone(), url.authority(), paths, None)
            }
        };
        self.forecast(hosts, at)?;
        self.upload(&mut hosts.client, &authority, &paths)?;
        self.load = Some((self.load_on(at, &server_name, roots.as_ref(), context), roots));
        Ok(())
    }

    fn listen(&mut self, _hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let tap = self.settings.lab().is_some_and(|lab| lab.spec.tap);
        Ok(Watch { tap, ..Watch::default() })
    }

    fn turn(&self) -> Duration {
        self.settings.turn()
    }

    fn load(&mut self, hosts: &mut Hosts, context: &mut Context<'_>) -> Result<Driven, TrialError> {
        let total = self.settings.expected_requests(&self.pace);
        let warm = match self.pace.warmup {
            WarmUp::Time(long) => long,
            WarmUp::Operations(_) => Duration::ZERO,
        };
        let (load, _) = self.prepared()?;
        let begun = hosts.time.now();
        let since_ns = begun.as_nanos() as u64;
        let ordered = hosts.client.begin(load)?;
        self.since_ns = since_ns;
        let progress = &mut context.progress;
        // Of a duration the time tells how far the load is; how many requests fit is not known.
        let planned = self.pace.duration.filter(|_| self.pace.requests.is_none());
        let started = Instant::now();
        let tell = &mut |done: Done| match planned {
            Some(long) => {
                let long = long + warm;
                let passed = started.elapsed().min(long);
                progress(Done { done: passed.as_millis() as u64, ..done }, long.as_millis() as u64);
            }
            None => progress(done, total.max(done.done)),
        };
        let answered = hosts.client.wait(ordered, context.interrupt, tell)?;
        let report = answered.answer;
        let took = hosts.time.since(begun);
        match self.settings.target() {
            Some(target) if report.connections.1 == 0 && report.attempts > 0 && !report.partial => {
                Err(TrialError::Target(nothing_reached(&target.typed, &report)))
            }
            Some(target) if !report.partial && is_without_handshake(&report) => {
                Err(TrialError::Target(no_handshake(&target.typed, &report)))
            }
            _ => Ok(Driven { report, histograms: answered.histograms, took }),
        }
    }

    fn client_done(&mut self, hosts: &mut Hosts) -> Result<(), TrialError> {
        let limit = if self.settings.lab().is_some() { SETTLED } else { CLOSED_LIMIT };
        self.closed[0] = self.count_closed(&mut hosts.client, limit)?;
        Ok(())
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        self.closed[1] = self.count_closed(hosts.server()?, SETTLED)?;
        Ok(())
    }

    fn opened(&self, driven: &Driven) -> Option<Opened> {
        Some(driven.report.connections)
    }

    fn take(&mut self, driven: &Driven, seen: &LoadObservation<'_>) -> JudgementBasis {
        let report = &driven.report;
        let (since_ns, [ours, theirs], client) = (self.since_ns, self.closed, seen.client);
        self.take_report(driven);
        self.judge_server(driven, client);
        self.take_client(report, client);
        let after = match seen.server {
            Some(server) => {
                self.take_server(report, server);
                let loopback = self.settings.lab().is_some_and(|lab| lab.spec.link.loopback);
                let server = if loopback { Server::Same } else { Server::Apart(theirs, server) };
                AfterLoad { since_ns, ours, client, server }
            }
            None => AfterLoad::of_target(report, since_ns, ours, client),
        };
        take_closing(&mut self.notes, &mut self.ports, report, &after);
        if seen.server.is_some() {
            self.take_segments(report);
        }
        JudgementBasis { operations: sent(report), stamped: STAMPED }
    }

    fn compare(&mut self, _seen: &LoadObservation<'_>) {
        self.notes.compare_syns();
        self.compare_packets();
    }
}

impl HttpTrial<'_> {
    fn serve(
        &mut self,
        hosts: &mut Hosts,
        lab: &LabSettings,
        context: &Context<'_>,
    ) -> Result<Answering, TrialError> {
        let known = match &lab.server {
            LabServer::Command(line, port) => {
                let at = launch(hosts, line, *port)?;
                return Ok(Answering { at, path: "/".to_owned(), roots: None });
            }
            LabServer::Known(known) => known,
        };
        if let Some(warning) = &known.instead {
            self.notes.warn(warning);
        }
        let tls = self.settings.tls != Tls::Off;
        let at = SocketAddr::new(hosts.addresses.server, if tls { TLS_PORT } else { PORT });
        let spec = ServerSpec {
            kind: known.kind,
            at,
            workers: known.workers,
            keepalive: known.kept.on,
            keepalive_timeout_ns: known.kept.timeout_ns(),
            keepalive_requests: known.kept.requests,
            tls,
            body_bytes: known.response_bytes,
            work_ns: ns(known.work),
            backlog: known.backlog,
            connections: self.settings.load.connections,
            site: None,
            site_uploaded: false,
            limits: None,
        };
        let server = hosts.server()?;
        let Serving { at, version, certificate, path, .. } = server.ask(&spec)?;
        if let Some(server) = &mut self.notes.arm.server {
            server.version = Some(version);
        }
        let roots = certificate.map(|pem| RootsFile::write(&pem, context.seed)).transpose()?;
        Ok(Answering { at, path, roots })
    }

    /// How many connections the client's ports allow, before the first is opened.
    fn forecast(&mut self, hosts: &mut Hosts, at: SocketAddr) -> Result<(), TrialError> {
        let names = [
            "net.ipv4.ip_local_port_range",
            "net.ipv4.ip_local_reserved_ports",
            "net.ipv4.tcp_timestamps",
            "net.ipv4.tcp_tw_reuse",
            "net.ipv4.tcp_tw_reuse_delay",
        ];
        let settings = PortSettings {
            sysctls: read_sysctls(&mut hosts.client, &names)?,
            sources: self.notes.sources.len().max(1) as u64,
            destinations: 1,
            client_closes: if self.settings.load.reuse.client_closes() {
                ClientCloses::All
            } else {
                ClientCloses::None
            },
            loopback: at.ip().is_loopback(),
            ..PortSettings::default()
        };
        self.notes.arm.ports = forecast(&settings);
        self.ports = settings;
        let open = self.settings.open_at_once(&self.pace);
        match &self.notes.arm.ports {
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
            self.notes.warn(&warning);
        }
        let text = serde_json::to_string(&requests)
            .map_err(|error| TrialError::Setting(format!("requests: {error}")))?;
        for piece in Upload::pieces(&text) {
            client.ask(&piece)?;
        }
        Ok(())
    }

    fn load_on(
        &self,
        target: SocketAddr,
        server_name: &str,
        roots: Option<&RootsFile>,
        context: &Context<'_>,
    ) -> HttpLoad {
        let HttpSettings { load, tls, insecure, ca, .. } = self.settings;
        let made = roots.map(|file| file.path().display().to_string());
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
            bind: self.notes.sources.clone(),
            congestion: load.congestion.clone(),
            io: load.io,
            batch_ns: ns(load.batch),
            expect_status: load.expect_status.clone(),
            expect_sha256: load.expect_sha256.clone(),
            body_limit: load.body_limit,
            seed: context.seed,
        }
    }

    /// What the client is to do, which is known once the server is there.
    fn prepared(&self) -> Result<&(HttpLoad, Option<RootsFile>), TrialError> {
        self.load.as_ref().ok_or_else(no_server)
    }

    /// Sockets of closed connections on one host.
    fn count_closed(
        &self,
        host: &mut Handle,
        limit: Duration,
    ) -> Result<ClosedSockets, TrialError> {
        let server = self.prepared()?.0.target;
        Ok(count_closed(host, server, self.since_ns, limit)?)
    }
}

fn no_server() -> TrialError {
    TrialError::Target("there is no server to send requests to".to_owned())
}

/// Why connections that are all to be open cannot be.
fn too_few_ports(open: u64, ports: &PortForecast) -> TrialError {
    let why = format!(
        "the client's local ports allow {} open connections to one server ({} source address{} with {} each): give more source addresses (--bind), or widen net.ipv4.ip_local_port_range",
        number::count(ports.at_once),
        number::count(ports.sources),
        if ports.sources == 1 { "" } else { "es" },
        number::count(ports.usable)
    );
    wrong("connections", &open.to_string(), why)
}

/// Requests that were sent, those of the warm-up too: what counters over the whole load are
/// divided by.
pub(super) fn sent(report: &HttpReport) -> u64 {
    report.attempts.saturating_sub(report.unsent()) + report.warmup.0
}

/// Whether every connection failed in its TLS handshake; what was under way then was broken off.
fn is_without_handshake(report: &HttpReport) -> bool {
    let mut classes = report.errors.keys().chain(report.warmup.1.keys());
    report.carried.0 == 0
        && report.first_errors.contains_key("tls")
        && classes.all(|class| matches!(class.as_str(), "tls" | "interrupted"))
}

/// The reason of the first handshake that failed, and what to write.
fn no_handshake(typed: &str, report: &HttpReport) -> String {
    let reason = reason("tls", report.first_errors.get("tls").map(String::as_str));
    format!("{typed}: every TLS handshake failed{reason}")
}

/// Why a target gave nothing, with what to do about it.
fn nothing_reached(typed: &str, report: &HttpReport) -> String {
    let unreached = Unreached {
        subject: typed.to_owned(),
        operation: "request",
        outcome: "no connection could be opened".to_owned(),
        errors: &report.errors,
        first_errors: &report.first_errors,
    };
    unreached.sentence(&[
        (
            "local-ports",
            "no local port is free, or --bind names an address that this host does not have",
        ),
        ("timeout", NO_ANSWER),
        ("tls", "the TLS handshake failed: write --ca FILE for your own roots, or --insecure"),
    ])
}
