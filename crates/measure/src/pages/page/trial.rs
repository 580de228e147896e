//! One trial of `page`: the server, a load that is not measured, and the loads that are. Then from what was loaded
//! to the arm that is recorded.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use tcptoll_core::units::ns;

use tcptoll_core::experiment::figures::FIRST_BYTE_MEAN;
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::page::forecast::{Network, forecast};
use tcptoll_core::page::loader::Config;
use tcptoll_core::page::resource::{Graph, Protocol};
use tcptoll_core::page::waterfall::{Connection, Request, Waterfall, critical};
use tcptoll_core::record::PageLoads;
use tcptoll_core::stats::Histogram;
use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::wire::Span;
use tcptoll_lab::lab::Hosts;
use tcptoll_lab::lab::certification::median;
use tcptoll_lab::messages::{
    LoadPage, NextPage, PageUser, ServerSpec, Serving, TakeSpan, TlsLoad, Visit, Watch,
};

use super::settings::{Ends, Lab, PageSettings};
use super::{
    BLOCKING, CONNECTIONS, CRITICAL_HANDSHAKE, CRITICAL_HANDSHAKES, EVERYTHING, FORECAST,
    FORECAST_RATIO, GAPS, HELD, LOAD_EVENT, NEXT_CONNECTIONS, NEXT_PAGE, REQUESTS, RETRANSMISSIONS,
    SPAN, SPAN_MEAN,
};
use crate::kit::TrialError;
use crate::kit::hosts::{PortsNeeded, RootsFile, read_sysctls};
use crate::kit::notes::Notes;
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::pages::content;
use crate::pages::content::Served;

/// Ports of the lab's server.
const PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;

/// Connections that the server must hold: more than a browser opens, with those that it has just
/// closed.
const SERVER_CONNECTIONS: u64 = 64;

pub(super) struct PageTrial<'a> {
    pub(super) settings: &'a PageSettings,
    pub(super) notes: Notes,
    order: Option<LoadPage>,
    /// What is uploaded before each load.
    graph: Option<String>,
    /// Only kept: the file goes with the trial.
    roots: Option<RootsFile>,
    /// The load that is not measured: what the page consists of.
    pub(super) warmup: Option<Visit>,
    /// Congestion control of the server's host.
    pub(super) congestion: Option<String>,
}

/// One load: what the client saw, and what the wire saw of it.
pub(super) struct Loaded {
    pub(super) visit: Visit,
    pub(super) span: Option<Span>,
}

impl<'a> PageTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a PageSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let connections = (settings.loads + 1) * SERVER_CONNECTIONS * 4;
        let site = match &settings.ends {
            Ends::Lab(lab) => {
                let ports = PortsNeeded { at_a_time: connections, connections };
                Site::Lab(lab.spec.clone(), ports)
            }
            Ends::Target(_, target) => Site::Target(target),
        };
        let mut trial = PageTrial {
            settings,
            notes: Notes::new(&arm.name, &[]),
            order: None,
            graph: None,
            roots: None,
            warmup: None,
            congestion: None,
        };
        procedure::run(&mut trial, site, context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    /// Starts the server; gives the page that it serves.
    fn serve(
        &mut self,
        hosts: &mut Hosts,
        lab: &Lab,
        context: &Context<'_>,
    ) -> Result<Served, TrialError> {
        if let Some(warning) = &lab.instead {
            self.notes.warn(warning);
        }
        let port = if self.settings.tls { TLS_PORT } else { PORT };
        let at = SocketAddr::new(hosts.addresses.server, port);
        let served = lab.content.served(self.settings.manner(), at.ip(), port)?;
        let server = hosts.server()?;
        let spec = ServerSpec {
            kind: lab.kind,
            at,
            workers: lab.workers,
            keepalive: lab.kept.on,
            keepalive_timeout_ns: lab.kept.timeout_ns(),
            keepalive_requests: lab.kept.requests,
            tls: self.settings.tls,
            body_bytes: 0,
            work_ns: 0,
            backlog: None,
            connections: SERVER_CONNECTIONS,
            site: None,
            site_uploaded: false,
            limits: None,
        };
        let Serving { version, certificate, .. } = served.start(server, spec)?;
        self.congestion =
            read_sysctls(server, &["net.ipv4.tcp_congestion_control"])?.into_values().next();
        if let Some(server) = &mut self.notes.arm.server {
            server.version = Some(version);
        }
        self.roots = certificate.map(|pem| RootsFile::write(&pem, context.seed)).transpose()?;
        Ok(served)
    }

    /// Loads the page once, by our own client or as the arm has it.
    fn load_once(
        &self,
        hosts: &mut Hosts,
        user: &PageUser,
        context: &mut Context<'_>,
    ) -> Result<Visit, TrialError> {
        let order = self.order.as_ref().ok_or_else(|| {
            TrialError::Target("there is no server to load a page from".to_owned())
        })?;
        let order = LoadPage { user: user.clone(), ..order.clone() };
        content::load_once(&mut hosts.client, &order, self.graph.as_deref(), context.interrupt)
    }
}

impl Trial for PageTrial<'_> {
    type Report = Vec<Loaded>;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        let served = match &self.settings.ends {
            Ends::Lab(lab) => self.serve(hosts, lab, context)?,
            Ends::Target(url, target) => Served::by(url, target)?,
        };
        let (start, graph) = served.begin()?;
        self.graph = graph;
        let made = self.roots.as_ref().map(|file| file.path().display().to_string());
        self.order = Some(LoadPage {
            start,
            names: served.names,
            protocol: self.settings.protocol,
            connections_per_origin: self.settings.connections_per_origin,
            other_origins: self.settings.other_origins || self.settings.spreads(),
            // A server of the lab compresses only if it is to; a browser that must not accept it costs time.
            compress: self.settings.compress || matches!(self.settings.ends, Ends::Lab(_)),
            tls: TlsLoad {
                server_name: String::new(),
                insecure: self.settings.insecure,
                ca: self.settings.ca.clone().or(made),
                resume: true,
            },
            next: self
                .settings
                .next_after
                .map(|after| NextPage { after_ns: ns(after), url: served.url.clone() }),
            timeout_ns: ns(self.settings.timeout),
            user: self.settings.user.clone(),
        });
        Ok(())
    }

    fn listen(&mut self, _hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let tap = match &self.settings.ends {
            Ends::Lab(lab) => lab.spec.tap,
            Ends::Target(..) => false,
        };
        Ok(Watch { tap, spans: true, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<Vec<Loaded>, TrialError> {
        let loads = self.settings.loads;
        self.warmup = Some(self.load_once(hosts, &PageUser::Tcptoll, context)?);
        let mut loaded = Vec::new();
        for done in 0..loads {
            (context.progress)(done.into(), loads);
            if let Some(link) = &mut hosts.link {
                link.ask(&TakeSpan)?;
            }
            let visit = self.load_once(hosts, &self.settings.user.clone(), context)?;
            let span = match &mut hosts.link {
                Some(link) => link.ask(&TakeSpan)?,
                None => None,
            };
            let partial = visit.report.partial;
            loaded.push(Loaded { visit, span });
            if partial {
                break;
            }
        }
        (context.progress)(loads.into(), loads);
        Ok(loaded)
    }

    fn compare(&mut self, _seen: &LoadObservation<'_>) {
        // A browser's warm-up has connections of its own on loopback.
        if self.settings.user == PageUser::Tcptoll {
            self.notes.compare_syns();
        }
    }

    fn take(&mut self, loaded: &Vec<Loaded>, seen: &LoadObservation<'_>) -> JudgementBasis {
        self.take_loads(loaded, seen);
        JudgementBasis { operations: loaded.len() as u64 + 1, stamped: false }
    }
}

/// Bytes of a response's head where the wire did not count them: those of Apache and nginx have 250 to 330.
const HEAD_BYTES: u64 = 300;

impl PageTrial<'_> {
    fn take_loads(&mut self, loaded: &[Loaded], seen: &LoadObservation<'_>) {
        let spans: Vec<Option<f64>> = loaded.iter().map(|one| self.span_us(one)).collect();
        let mut errors: BTreeMap<String, u64> = BTreeMap::new();
        for one in loaded {
            // A load has the class of its first failure.
            if let Some(class) = failure(one) {
                *errors.entry(class).or_default() += 1;
            }
        }
        let failed: u64 = errors.values().sum();
        self.notes.first_errors(loaded.iter().flat_map(|one| &one.visit.report.first_errors));
        let arm = &mut self.notes.arm;
        arm.attempts = loaded.len() as u64;
        arm.ok = arm.attempts - failed;
        arm.errors = errors;
        arm.partial = loaded.iter().any(|one| one.visit.report.partial);
        let whole: Vec<(&Loaded, f64)> = loaded
            .iter()
            .zip(&spans)
            .filter(|(one, _)| failure(one).is_none())
            .filter_map(|(one, span)| Some((one, (*span)?)))
            .collect();
        let mut histogram = Histogram::new();
        for (_, span) in &whole {
            histogram.record_ns((span * 1e3) as u64);
        }
        self.notes.histogram(&SPAN, &histogram);
        self.mean(&SPAN_MEAN, &whole, |_, span| Some(span));
        let of_page = |value: fn(&Waterfall) -> Option<u64>| {
            move |one: &Loaded, _: f64| Some(value(one.visit.pages.first()?)? as f64)
        };
        self.mean(&FIRST_BYTE_MEAN, &whole, of_page(|page| page.first_byte_us));
        self.mean(&BLOCKING, &whole, of_page(|page| page.blocking_us));
        self.mean(&EVERYTHING, &whole, of_page(|page| page.everything_us));
        self.mean(&LOAD_EVENT, &whole, of_page(|page| page.load_event_us));
        self.mean(&REQUESTS, &whole, of_page(|page| Some(page.requests.len() as u64)));
        let single = self.settings.next_after.is_none();
        self.mean(&CONNECTIONS, &whole, |one, _| {
            // A browser does not tell of each connection what it opened; the wire does.
            let on_wire = one.span.as_ref().filter(|_| single).map(|span| span.connections as f64);
            on_wire.or_else(|| opened(one))
        });
        self.mean(&NEXT_PAGE, &whole, |one, _| Some(one.visit.pages.get(1)?.everything_us? as f64));
        self.mean(&NEXT_CONNECTIONS, &whole, |one, _| {
            let opened = |request: &&Request| request.phases.connect_us > 0;
            Some(one.visit.pages.get(1)?.requests.iter().filter(opened).count() as f64)
        });
        let on_wire = |value: fn(&tcptoll_core::tcp::wire::Span) -> f64| {
            move |one: &Loaded, _: f64| one.span.as_ref().map(value)
        };
        self.mean(
            &RETRANSMISSIONS,
            &whole,
            on_wire(|span| (span.client_retransmissions + span.server_retransmissions) as f64),
        );
        self.mean(&GAPS, &whole, on_wire(|span| span.head_of_line.gaps as f64));
        self.mean(&HELD, &whole, on_wire(|span| span.head_of_line.held_ns as f64 / 1e3));
        self.take_record(&whole, loaded, seen);
    }

    /// The mean of a figure over the loads that have it.
    fn mean(
        &mut self,
        spec: &MetricSpec,
        whole: &[(&Loaded, f64)],
        value: impl Fn(&Loaded, f64) -> Option<f64>,
    ) {
        let values: Vec<f64> = whole.iter().filter_map(|(one, span)| value(one, *span)).collect();
        let count = values.len() as u64;
        let mean = (count > 0).then(|| values.iter().sum::<f64>() / count as f64);
        self.notes.metric(spec, mean, count);
    }

    fn is_from_wire(&self, one: &Loaded) -> bool {
        // Two pages are one span on the wire; the client's clock has each.
        self.settings.next_after.is_none() && one.span.as_ref().is_some_and(|s| s.span_us.is_some())
    }

    /// The network span of a load, µs.
    fn span_us(&self, one: &Loaded) -> Option<f64> {
        if self.is_from_wire(one) {
            return one.span.as_ref()?.span_us;
        }
        Some(one.visit.pages.first()?.everything_us? as f64)
    }

    fn take_record(
        &mut self,
        whole: &[(&Loaded, f64)],
        loaded: &[Loaded],
        seen: &LoadObservation<'_>,
    ) {
        let mut order: Vec<&(&Loaded, f64)> = whole.iter().collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        let typical = order.get(order.len().saturating_sub(1) / 2).map(|(one, _)| *one);
        let Some(typical) = typical.or(loaded.first()) else { return };
        let pages = &typical.visit.pages;
        let Some(page) = pages.first() else { return };
        // Of other origins a browser tells no phases: then the chain is not known.
        let whole_page = typical.span.as_ref().is_none_or(|span| {
            self.settings.next_after.is_some() || span.connections == page.connections.len() as u64
        });
        if let Some(critical) = critical(page).filter(|_| whole_page) {
            let count = Some(f64::from(critical.handshakes));
            self.notes.metric(&CRITICAL_HANDSHAKES, count, 1);
            self.notes.metric(&CRITICAL_HANDSHAKE, Some(critical.handshake_us as f64), 1);
        }
        let rtt_ns = seen.quiet.and_then(median);
        let expected = rtt_ns.and_then(|rtt| self.forecast(rtt / 1_000, loaded));
        if let Some(span) = expected.as_ref().and_then(span_of) {
            self.notes.metric(&FORECAST, Some(span), 1);
            let mean = self.notes.arm.metrics.get(SPAN_MEAN.name).map(|metric| metric.value);
            self.notes.metric(&FORECAST_RATIO, mean.map(|mean| mean / span), whole.len() as u64);
        }
        let (waterfall, requests_left_out) = PageLoads::kept(page.clone());
        let from = if self.is_from_wire(typical) { "wire" } else { "client" };
        let record = PageLoads {
            span_from: from.to_owned(),
            spans_us: whole.iter().map(|(_, span)| *span).collect(),
            waterfall,
            requests_left_out,
            next_page: pages.get(1).cloned().map(|page| PageLoads::kept(page).0),
            forecast: expected.map(|page| PageLoads::kept(page).0),
            rtt_us: rtt_ns.map(|rtt| rtt as f64 / 1e3),
            congestion: self.congestion.clone(),
            browser: typical.visit.report.browser.clone(),
            repeats: loaded.iter().map(|one| u64::from(one.visit.report.repeats)).sum(),
        };
        self.notes.arm.own.page = Some(Box::new(record));
    }

    /// What the model expects, from the load that is not measured: what the page consists of, and how long
    /// server and CPUs took.
    fn forecast(&self, rtt_us: u64, loaded: &[Loaded]) -> Option<Waterfall> {
        let Ends::Lab(lab) = &self.settings.ends else { return None };
        let warmup = self.warmup.as_ref()?;
        let page = warmup.pages.first()?;
        if page.requests.iter().any(|one| one.error.is_some()) {
            return None;
        }
        let mut graph = Graph { resources: warmup.resources.clone() };
        for (at, (resource, request)) in graph.resources.iter_mut().zip(&page.requests).enumerate()
        {
            // The shortest wait of all loads: a longer one may have had a lost packet.
            let waits = loaded.iter().filter_map(|one| {
                let same = one.visit.pages.first()?.requests.get(at)?;
                (same.url == request.url && same.error.is_none()).then_some(same.phases.wait_us)
            });
            let wait_us = waits.chain([request.phases.wait_us]).min().unwrap_or_default();
            resource.server_us = wait_us.saturating_sub(rtt_us);
        }
        let beyond = |times: Vec<u64>| {
            let mut beyond: Vec<u64> =
                times.into_iter().map(|time| time.saturating_sub(rtt_us)).collect();
            beyond.sort_unstable();
            beyond.get(beyond.len() / 2).copied().unwrap_or(0)
        };
        let connect =
            |one: &Connection| Some(one.connected_us? - one.begun_us.min(one.connected_us?));
        let secure =
            |one: &Connection| Some(one.secured_us? - one.connected_us?.min(one.secured_us?));
        let each = |value: fn(&Connection) -> Option<u64>| {
            page.connections.iter().filter_map(value).collect()
        };
        let content: u64 = page.requests.iter().map(|one| one.body_bytes).sum();
        let on_wire = loaded.iter().find_map(|one| one.span.as_ref()).map(|span| span.server_bytes);
        let heads = on_wire.filter(|_| !self.settings.tls && self.settings.next_after.is_none());
        let head_bytes = heads
            .and_then(|bytes| bytes.checked_sub(content)?.checked_div(page.requests.len() as u64))
            .unwrap_or(HEAD_BYTES);
        let network = Network {
            rtt_us,
            rate_bytes_per_s: lab.spec.link.rate_bit_per_s.map(|rate| rate / 8.0),
            congestion: self.congestion.clone().unwrap_or_default(),
            tls_round_trips: self.settings.tls.then_some(1),
            connection_us: beyond(each(connect)),
            tls_us: beyond(each(secure)),
            head_bytes,
            keeps: lab.kept.keeps(),
            requests_max: lab.kept.requests.filter(|&count| count > 0),
            http2: self.settings.protocol == Protocol::Http2,
        };
        let config = Config {
            connections_per_origin: self.settings.connections_per_origin,
            protocol: self.settings.protocol,
            other_origins: true,
        };
        forecast(&graph, &config, &network).ok()
    }
}

/// From the first connection's beginning to the end of the last response, µs.
fn span_of(page: &Waterfall) -> Option<f64> {
    let begun = page.connections.iter().map(|one| one.begun_us).min()?;
    Some((page.everything_us? - begun) as f64)
}

/// Connections opened for the first page.
fn opened(one: &Loaded) -> Option<f64> {
    Some(one.visit.pages.first()?.connections.len() as f64)
}

/// The class of the first failure. None: everything was loaded.
fn failure(one: &Loaded) -> Option<String> {
    let pages = &one.visit.pages;
    let failed = pages.iter().find_map(Waterfall::failure);
    failed.or_else(|| pages.is_empty().then_some("unsent")).map(str::to_owned)
}
