//! One trial of `page`: the server, a load that is not measured, and the loads that are.

use std::net::SocketAddr;

use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::wire::Span;
use tcptoll_lab::lab::Hosts;
use tcptoll_lab::messages::{
    LoadPage, NextPage, PageUser, ServerSpec, Serving, TakeSpan, TlsLoad, Visit, Watch,
};

use super::settings::{Ends, Lab, PageSettings};
use crate::kit::hosts::RootsFile;
use crate::kit::hosts::{PortsNeeded, read_sysctls};
use crate::kit::notes::Notes;
use crate::kit::plan::{Context, Outcome, TrialError};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::pages::content;
use crate::pages::content::Served;

/// Ports of the lab's server.
const PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;

/// Connections that the server must hold: more than a browser opens, with those that it has just
/// closed.
const CONNECTIONS: u64 = 64;

/// One arm, being run.
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
        let connections = (settings.loads + 1) * CONNECTIONS * 4;
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
            connections: CONNECTIONS,
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
        let ns = |time: std::time::Duration| time.as_nanos() as u64;
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
