//! One trial of `visitors`: the server, a load without others, and the visitors. Before a trial on a server that is
//! not ours, a command of the user's may switch its configuration.
//!
//! Visitors are the same in all arms of a round (`Context::round_seed`); otherwise the draw of visitors would
//! be a difference between arms.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tcptoll_core::units::ns;

use tcptoll_core::page::resource::Protocol;
use tcptoll_core::page::waterfall::Waterfall;
use tcptoll_core::study::PlannedArm;
use tcptoll_kernel::process::kill_group;
use tcptoll_lab::lab::{Hosts, Interrupt, LabError};
use tcptoll_lab::messages::{
    ConnectionSeen, Done, LoadPage, LoadVisits, PageSeen, PageUser, Rows, ServerLimits, ServerSpec,
    Serving, TlsLoad, VisitPart, VisitsReport, Watch, WatchMemory, WatchWorkers, WorkersSeen,
};
use tcptoll_lab::servers::memory;
use tcptoll_lab::servers::memory::KeptGroup;

use super::settings::{Ends, Lab, Theirs, VisitorSettings};
use crate::kit::TrialError;
use crate::kit::hosts::{PortsNeeded, workers_seen};
use crate::kit::notes::Notes;
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::pages::content;
use crate::pages::content::Served;

/// Port of the lab's server.
pub(super) const PORT: u16 = 8080;

/// Readings of the status page in a trial, about, and the least time between two, ns.
const READINGS: u64 = 1_000;
const READ_EVERY_MIN_NS: u64 = 20_000_000;

pub(super) struct VisitorTrial<'a> {
    pub(super) settings: &'a VisitorSettings,
    pub(super) notes: Notes,
    order: Option<LoadPage>,
    graph: Option<String>,
    /// Of its visitors: the same ones come in all arms of a round.
    pub(super) seed: u64,
    /// The page, loaded by one visitor alone.
    pub(super) alone: Option<Waterfall>,
    /// What the server's status page showed.
    pub(super) workers: WorkersSeen,
    /// How its memory is limited.
    pub(super) memory: Limit,
    /// Processes that the kernel killed for it during the load.
    pub(super) kills: u64,
}

/// How the memory of the server is limited.
pub(super) enum Limit {
    /// It is not.
    None,
    /// By the kernel.
    Group(KeptGroup),
    /// By a watch, because the kernel would not: why.
    Watch(String),
}

/// What visitors did.
pub(super) struct VisitorsOutcome {
    pub(super) report: VisitsReport,
    pub(super) pages: Vec<PageSeen>,
    pub(super) connections: Vec<ConnectionSeen>,
}

impl<'a> VisitorTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a VisitorSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        // Without KeepAlive each request of a page has a connection.
        let pages = settings.visitors_about() * settings.pages_mean;
        let connections = (pages * 30.0) as u64 + 1_000;
        let ports = PortsNeeded { at_a_time: connections, connections };
        let (site, memory_bytes) = match &settings.ends {
            Ends::Lab(lab) => (Site::Lab(lab.spec.clone(), ports), lab.memory_bytes),
            Ends::Target(theirs) => (Site::Target(&theirs.target), None),
        };
        let mut trial = VisitorTrial {
            settings,
            notes: Notes::new(&arm.name, &[]),
            order: None,
            graph: None,
            seed: context.round_seed,
            alone: None,
            workers: WorkersSeen::default(),
            kills: 0,
            memory: memory_bytes.map_or(Limit::None, |bytes| {
                KeptGroup::make(bytes).map_or_else(Limit::Watch, Limit::Group)
            }),
        };
        procedure::run(&mut trial, site, context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    fn serve(&mut self, hosts: &mut Hosts, lab: &Lab) -> Result<Served, TrialError> {
        let at = SocketAddr::new(hosts.addresses.server, PORT);
        let served = lab.content.served(self.settings.manner(), at.ip(), PORT)?;
        let server = hosts.server()?;
        let spec = ServerSpec {
            kind: lab.kind,
            at,
            workers: None,
            keepalive: lab.kept.on,
            keepalive_timeout_ns: lab.kept.timeout_ns(),
            keepalive_requests: lab.kept.requests,
            tls: false,
            body_bytes: 0,
            work_ns: 0,
            backlog: None,
            connections: lab.limits.workers,
            site: None,
            site_uploaded: false,
            limits: Some(ServerLimits {
                memory: match &self.memory {
                    Limit::Group(kept) => Some(kept.group.clone()),
                    Limit::None | Limit::Watch(_) => None,
                },
                ..lab.limits.clone()
            }),
        };
        let Serving { version, .. } = served.start(server, spec)?;
        if let Some(server) = &mut self.notes.arm.server {
            server.version = Some(version);
        }
        Ok(served)
    }

    /// Processes that the kernel has killed for the limit of memory.
    fn killed(&self) -> u64 {
        match &self.memory {
            Limit::Group(kept) => memory::kills(&kept.group).unwrap_or_default(),
            Limit::None | Limit::Watch(_) => 0,
        }
    }

    fn order(&self) -> Result<LoadPage, TrialError> {
        let none = || LabError::Refused("there is no server to load a page from".to_owned());
        Ok(self.order.clone().ok_or_else(none)?)
    }
}

impl Theirs {
    /// Runs the command that comes before each trial; gives the page and how TLS is spoken.
    fn begin(&self, context: &Context<'_>) -> Result<(Served, TlsLoad), TrialError> {
        if let Some(command) = &self.before {
            run_before(command, context.interrupt)?;
        }
        let served = Served::by(&self.url, &self.target)?;
        let tls = TlsLoad {
            insecure: self.insecure,
            ca: self.ca.clone(),
            resume: true,
            ..TlsLoad::default()
        };
        Ok((served, tls))
    }
}

impl Trial for VisitorTrial<'_> {
    type Report = VisitorsOutcome;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        let (served, tls) = match &self.settings.ends {
            Ends::Lab(lab) => (self.serve(hosts, lab)?, TlsLoad::default()),
            Ends::Target(theirs) => theirs.begin(context)?,
        };
        let (start, graph) = served.begin()?;
        self.graph = graph;
        let order = LoadPage {
            start,
            names: served.names,
            protocol: Protocol::Http1,
            connections_per_origin: self.settings.connections_per_origin,
            other_origins: self.settings.lab().is_some_and(|lab| lab.content.spreads()),
            compress: self.settings.compress,
            tls,
            next: None,
            timeout_ns: ns(self.settings.timeout),
            user: PageUser::Tcptoll,
        };
        self.order = Some(order.clone());
        // Twice: PHP and the files are in memory for the second.
        for _ in 0..2 {
            let graph = self.graph.as_deref();
            let visit = content::load_once(&mut hosts.client, &order, graph, context.interrupt)?;
            self.alone = visit.pages.into_iter().last();
        }
        Ok(())
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        self.kills = self.killed();
        let time_ns = ns(self.settings.warmup + self.settings.duration);
        let every_ns = (time_ns / READINGS).max(READ_EVERY_MIN_NS);
        // Nothing of a server that is not ours can be seen from here.
        let Some(lab) = self.settings.lab() else { return Ok(Watch::default()) };
        let limit_bytes = lab.memory_bytes.filter(|_| matches!(self.memory, Limit::Watch(_)));
        let memory = Some(WatchMemory { limit_bytes });
        hosts.server()?.ask(&WatchWorkers { every_ns, memory })?;
        Ok(Watch::default())
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<VisitorsOutcome, TrialError> {
        if let Some(graph) = &self.graph {
            content::upload(&mut hosts.client, graph)?;
        }
        let order = LoadVisits {
            page: self.order()?,
            visitors: self.settings.visitors(self.seed),
            warmup_ns: ns(self.settings.warmup),
            leave_ns: self.settings.leave.map(ns),
        };
        let total = (self.settings.visitors_about() * self.settings.pages_mean) as u64;
        let begun = hosts.client.begin(&order)?;
        let progress = &mut context.progress;
        let tell = &mut |done: Done| progress(done, total.max(done.done));
        let answered = hosts.client.wait(begun, context.interrupt, tell)?;
        let mut came =
            VisitorsOutcome { report: answered.answer, pages: Vec::new(), connections: Vec::new() };
        for row in answered.rows {
            match row {
                Rows::Visit(VisitPart::Pages(pages)) => came.pages.extend(pages),
                Rows::Visit(VisitPart::Connections(more)) => came.connections.extend(more),
                _ => {}
            }
        }
        Ok(came)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        self.workers = workers_seen(hosts.server()?)?;
        self.kills = self.killed().saturating_sub(self.kills);
        Ok(())
    }

    fn take(&mut self, came: &VisitorsOutcome, seen: &LoadObservation<'_>) -> JudgementBasis {
        self.take_visits(came, seen);
        JudgementBasis { operations: came.pages.len() as u64, stamped: false }
    }
}

/// How long the command may take.
const COMMAND_MAX: Duration = Duration::from_mins(2);

/// How often it is looked at.
const COMMAND_POLL: Duration = Duration::from_millis(20);

/// Runs it with the shell, and waits for its end. Its output goes to our stderr.
///
/// Errors: it could not be started, failed, or took too long; the run was interrupted.
fn run_before(command: &str, interrupt: &Interrupt) -> Result<(), TrialError> {
    use std::os::unix::process::CommandExt as _;
    let failed = |why: String| {
        TrialError::Target(format!("the command before the trial, {command:?}, failed: {why}"))
    };
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .process_group(0)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let begun = Instant::now();
    loop {
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(failed(status.to_string())),
            None if interrupt.signal().is_some() => {
                end(&mut child);
                return Err(LabError::Interrupted.into());
            }
            None if begun.elapsed() > COMMAND_MAX => {
                end(&mut child);
                return Err(failed(format!("it did not end within {} s", COMMAND_MAX.as_secs())));
            }
            None => std::thread::sleep(COMMAND_POLL),
        }
    }
}

fn end(child: &mut Child) {
    kill_group(child.id());
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_named_with_its_status() {
        let interrupt = Interrupt::new();
        run_before("true", &interrupt).unwrap();
        let error = run_before("exit 3", &interrupt).unwrap_err().to_string();
        assert!(error.contains("\"exit 3\"") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_signal_ends_the_command() {
        let interrupt = Interrupt::new();
        interrupt.flag().store(15, std::sync::atomic::Ordering::SeqCst);
        let begun = Instant::now();
        let error = run_before("sleep 60", &interrupt).unwrap_err();
        let interrupted = matches!(error, TrialError::Lab(LabError::Interrupted));
        assert!(interrupted && begun.elapsed() < Duration::from_secs(50), "{error}");
    }
}
