//! One trial of `worker-pool`: a backend, a front service before it, requests of two kinds, and a
//! stall in the middle.

use std::net::SocketAddr;
use std::time::Duration;
use tcptoll_core::units::ns;

use super::settings::{PoolSettings, StallSettings};
use crate::kit::TrialError;
use crate::kit::hosts::{DEFAULT_PORTS, PortsNeeded, workers_seen};
use crate::kit::notes::Notes;
use crate::kit::opening::recorded_queues;
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::kit::settings::LabSpec;
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::http::status::Expected;
use tcptoll_core::record::ListenerQueue;
use tcptoll_core::stats::Histogram;
use tcptoll_core::study::PlannedArm;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Handle, Hosts, LabError};
use tcptoll_lab::messages::{
    BackendKind, BackendServing, BackendSpec, Done, FrontServing, FrontSpec, GroupReport, HttpLoad,
    HttpReport, HttpRequests, Io, Rows, Stall, Stalled, UPLOAD_MAX, Upload, Watch, WatchQueues,
    WatchWorkers, WorkersSeen,
};

/// Port of the front service: below every range of local ports, above those that only a privileged
/// program may listen on.
const FRONT_PORT: u16 = 4080;

/// Ports of backends are those that everybody knows.
const REDIS_PORT: u16 = 6379;
const MARIADB_PORT: u16 = 3306;

/// Readings of the status page in a trial, about, and the least time between two.
const READINGS: u32 = 300;
const READ_EVERY_MIN: Duration = Duration::from_millis(10);

/// Group numbers of requests.
pub(super) const BACKEND_GROUP: u8 = 0;
pub(super) const LOCAL_GROUP: u8 = 1;

/// Latencies end with the kernel's receive stamp, which is on the wall clock.
const STAMPED: bool = true;

const PORT_RANGE: &str = "net.ipv4.ip_local_port_range";

/// A range that leaves the ports below 5000 to servers.
const WIDE_RANGE: &str = "5000 65000";

pub(super) struct PoolTrial<'a> {
    pub(super) settings: &'a PoolSettings,
    pub(super) notes: Notes,
    /// Both services, once they answer.
    services: Option<(BackendServing, FrontServing)>,
    /// What the front service's status page showed.
    pub(super) workers: WorkersSeen,
    /// When the backend's queue was watched from, ns on the monotonic clock.
    watched_ns: u64,
    /// The same, with what the queue did.
    pub(super) queue: Option<(u64, ListenerQueue)>,
}

/// What a load and a stall reported.
pub(super) struct Driven {
    pub(super) report: HttpReport,
    pub(super) groups: Vec<GroupReport>,
    pub(super) histograms: Vec<(String, Histogram)>,
    pub(super) stalled: Option<Stalled>,
}

impl<'a> PoolTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a PoolSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial = Self {
            settings,
            notes: Notes::new(&arm.name, &[]),
            services: None,
            workers: WorkersSeen::default(),
            watched_ns: 0,
            queue: None,
        };
        let lab = trial.lab();
        // Workers take any address of the host; `lab` sees to their ports.
        let ports = PortsNeeded { at_a_time: 0, connections: 0 };
        procedure::run(&mut trial, Site::Lab(lab, ports), context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    /// The lab, with enough local ports for the workers: past half of the range the kernel searches
    /// long for a port, and that is not what is measured.
    fn lab(&mut self) -> LabSpec {
        let mut lab = self.settings.lab.clone();
        let connections = self.settings.backend_connections();
        let told = lab.client_sysctls.iter().any(|(name, _)| name == PORT_RANGE);
        if !told && connections > DEFAULT_PORTS / 2 {
            lab.client_sysctls.push((PORT_RANGE.to_owned(), WIDE_RANGE.to_owned()));
            self.notes.warn(&Warning::SettingMade {
                name: PORT_RANGE.to_owned(),
                value: WIDE_RANGE.to_owned(),
                why: format!(
                    "up to {connections} connections to the backend need local ports \
                     (to choose yourself: --client-sysctl)"
                ),
            });
        }
        lab
    }

    pub(super) fn services(&self) -> Result<&(BackendServing, FrontServing), TrialError> {
        let none = || LabError::Refused("there is no service to send requests to".to_owned());
        Ok(self.services.as_ref().ok_or_else(none)?)
    }

    fn start_backend(&self, hosts: &mut Hosts) -> Result<BackendServing, TrialError> {
        let backend = &self.settings.backend;
        let port = match backend.kind {
            BackendKind::Redis => REDIS_PORT,
            BackendKind::Mariadb => MARIADB_PORT,
        };
        let at = SocketAddr::new(hosts.addresses.server, port);
        let spec = BackendSpec { kind: backend.kind, at, backlog: backend.backlog };
        Ok(hosts.server()?.ask(&spec)?)
    }

    fn start_front(
        &self,
        hosts: &mut Hosts,
        backend: SocketAddr,
        seed: u64,
    ) -> Result<FrontServing, TrialError> {
        let PoolSettings { front, backend: calls, load, .. } = self.settings;
        let spec = FrontSpec {
            kind: front.kind,
            at: SocketAddr::new(hosts.addresses.client, FRONT_PORT),
            workers: front.workers,
            backlog: None,
            connections: load.connections,
            backend,
            backend_kind: calls.kind,
            connection: calls.connection,
            connect_timeout_ns: calls.connect_timeout.map(ns),
            timeout_ns: ns(calls.answer_timeout),
            retries: calls.retries.count,
            backoff_ns: calls.retries.backoff_ns,
            jitter: calls.retries.jitter,
            cache_ns: front.cache.map(ns),
            work_ns: ns(front.work),
            seed,
        };
        Ok(hosts.client.ask(&spec)?)
    }

    /// Hands the client what to ask for: requests of both kinds in turn.
    fn upload(&self, client: &mut Handle, front: &FrontServing) -> Result<(), TrialError> {
        let cycle = self.settings.load.cycle();
        let line = |&calls: &bool| {
            let path = if calls { &front.backend_path } else { &front.local_path };
            ("GET".to_owned(), path.clone())
        };
        let group = |&calls: &bool| if calls { BACKEND_GROUP } else { LOCAL_GROUP };
        let requests = HttpRequests {
            lines: cycle.iter().map(line).collect(),
            authority: front.at.to_string(),
            groups: cycle.iter().map(group).collect(),
            ..HttpRequests::default()
        };
        let text = serde_json::to_string(&requests)
            .map_err(|error| TrialError::Setting(format!("requests: {error}")))?;
        // Paths and addresses are ASCII: any place is between two characters.
        for piece in text.as_bytes().chunks(UPLOAD_MAX) {
            let piece = String::from_utf8_lossy(piece).into_owned();
            client.ask(&Upload(piece))?;
        }
        Ok(())
    }

    fn load_on(&self, target: SocketAddr, seed: u64) -> HttpLoad {
        let load = &self.settings.load;
        HttpLoad {
            target,
            tls: None,
            reuse: Reuse::ServerClose,
            connections: load.connections,
            threads: 1,
            rate_per_s: Some(load.rate_per_s),
            spread: load.spread,
            ramp_ns: 0,
            warmup_requests: 0,
            warmup_ns: ns(load.warmup),
            requests: None,
            duration_ns: Some(ns(load.duration)),
            timeout_ns: ns(load.timeout),
            connect_timeout_ns: ns(load.timeout),
            bind: Vec::new(),
            congestion: None,
            io: Io::Epoll,
            batch_ns: 0,
            expect_status: Expected::default(),
            expect_sha256: None,
            body_limit: 1 << 20,
            seed,
        }
    }
}

impl Trial for PoolTrial<'_> {
    type Report = Driven;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        let backend = self.start_backend(hosts)?;
        let front = self.start_front(hosts, backend.at, context.seed)?;
        self.upload(&mut hosts.client, &front)?;
        if let Some(server) = &mut self.notes.arm.server {
            server.version = Some(backend.version.clone());
        }
        self.services = Some((backend, front));
        Ok(())
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let window = self.settings.load.duration;
        let every_ns = ns((window / READINGS).max(READ_EVERY_MIN));
        hosts.client.ask(&WatchWorkers { every_ns, memory: None })?;
        self.watched_ns = ns(hosts.time.now());
        hosts.server()?.ask(&WatchQueues { half_open_every: 0 })?;
        Ok(Watch::default())
    }

    fn load(&mut self, hosts: &mut Hosts, context: &mut Context<'_>) -> Result<Driven, TrialError> {
        let (_, front) = self.services()?;
        let load = self.load_on(front.at, context.seed);
        let settings = &self.settings.load;
        let loading = hosts.client.begin(&load)?;
        let stalling = match self.settings.stall {
            Some(StallSettings { after, long }) => {
                let order = Stall { after_ns: ns(settings.warmup + after), for_ns: ns(long) };
                Some(hosts.server()?.start(&order)?.1)
            }
            None => None,
        };
        let expected = settings.rate_per_s * (settings.warmup + settings.duration).as_secs_f64();
        let total = expected.ceil() as u64;
        let progress = &mut context.progress;
        let tell = &mut |done: Done| progress(done, total.max(done.done));
        let loaded = hosts.client.wait(loading, context.interrupt, tell)?;
        // The window outlasts the stall; where the load was stopped before, so is the stall, and the
        // backend goes on.
        let stalled = match stalling {
            Some(begun) => Some(hosts.server()?.stop(begun)?.answer),
            None => None,
        };
        let group = |rows| match rows {
            Rows::Group(group) => Some(*group),
            _ => None,
        };
        Ok(Driven {
            report: loaded.answer,
            groups: loaded.rows.into_iter().filter_map(group).collect(),
            histograms: loaded.histograms,
            stalled,
        })
    }

    fn client_done(&mut self, hosts: &mut Hosts) -> Result<(), TrialError> {
        self.workers = workers_seen(&mut hosts.client)?;
        Ok(())
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        let at = self.services()?.0.at;
        let queue = recorded_queues(hosts.server()?, &[at])?.pop();
        self.queue = queue.map(|queue| (self.watched_ns, queue));
        Ok(())
    }

    fn take(&mut self, driven: &Driven, seen: &LoadObservation<'_>) -> JudgementBasis {
        self.take_driven(driven, seen);
        JudgementBasis {
            operations: driven.report.attempts + driven.report.warmup.0,
            stamped: STAMPED,
        }
    }

    /// The client's counters have the connections of the load in them, which never reach the link.
    fn compare(&mut self, _seen: &LoadObservation<'_>) {}
}
