//! One trial, step by step, whatever the experiment and wherever the two ends stand.
//!
//! An experiment implements [`Trial`]. [`run`] does these steps, in this order, for every trial:
//!
//! 1. **Hosts.** In the lab: two new hosts with a certified link, their sysctls, enough source
//!    addresses. At a target: one host on the machine's own network. Over ssh: two hosts on machines of
//!    the user's.
//! 2. [`Trial::prepare`]: servers that must run first, the warm-up, forecasts.
//! 3. **Echoes** measure the quiet path; over ssh also the clocks, and again after the load. A target may
//!    leave them unanswered.
//! 4. **Peaks of accept queues are forgotten.** The start of a server and the warm-up are not part of
//!    the load.
//! 5. **The clock watch begins, and the counters of both hosts are read.**
//! 6. [`Trial::listen`]: our own server starts. It answers nothing but the load until it ends, so the
//!    counters are read before.
//! 7. **The link begins to count**, last before the load.
//! 8. [`Trial::load`].
//! 9. **The last FINs arrive** (in the lab), and the clock watch ends.
//! 10. [`Trial::client_done`], the client's counters, the link's counts, [`Trial::server_done`], the
//!     server's counters. Our own server, when it ends, resets connections that it has not accepted;
//!     those packets must not be among the link's counts.
//! 11. [`Trial::take`] notes the figures.
//! 12. **Judgement** of the link, the witnesses ([`Trial::compare`]), the machine and the clocks. The
//!     first reason against a trial is the one that is recorded, so the experiment's own come first.
//!
//! This file does not know what is measured. Read [`super::notes`] next.

use std::time::Duration;

use tcptoll_core::link::LinkSpec;
use tcptoll_core::verdict::validity::End;
use tcptoll_lab::clock::ClockWatch;
use tcptoll_lab::lab::certification::echoes;
use tcptoll_lab::lab::{Hosts, LabError};
use tcptoll_lab::messages::{Forget, Rows, Watch, WatchListener};

use super::hosts::{ECHOES, PortsNeeded, count, observe, settle};
use super::notes::{Notes, Span};
use super::path::{self, Opened};
use super::settings::LabSpec;
use super::target::Target;
use crate::kit::TrialError;
use crate::kit::plan::Context;

/// Echoes on the way to a target, and the time between two, ns.
const TARGET_ECHOES: (u16, u64) = (20, 20_000_000);

/// Where the two ends of a trial stand.
pub(crate) enum Site<'a> {
    /// A lab made for this trial, with enough ports; or hosts of the user's.
    Lab(LabSpec, PortsNeeded),
    /// This machine and a server we do not control.
    Target(&'a Target),
}

/// What was seen of a load from outside.
pub(crate) struct LoadObservation<'a> {
    /// Round trips on the quiet path, ns; `None`: nothing answers echoes there, or they may not be
    /// sent.
    pub(crate) quiet: Option<&'a [u64]>,
    pub(crate) client: Span<'a>,
    /// In the lab.
    pub(crate) server: Option<Span<'a>>,
    /// Whether a packet tap was on the link: its stamps are on the wall clock.
    pub(crate) tapped: bool,
    /// Instants of the two hosts compare within this, ns; hosts of one machine have one clock. `None`: not
    /// known.
    pub(crate) clock_bound_ns: Option<u64>,
}

/// What a judgement of the machine needs of an experiment.
pub(crate) struct JudgementBasis {
    /// Operations that the machine did between the two readings of its counters.
    pub(crate) operations: u64,
    /// Whether a figure rests on time stamps of packets, which are on the wall clock.
    pub(crate) stamped: bool,
}

/// What one experiment does in a trial. [`run`] calls each method once, in this order, except
/// [`Trial::notes`].
pub(crate) trait Trial {
    /// What its load reports.
    type Report;

    /// What is noted of the trial.
    fn notes(&mut self) -> &mut Notes;

    /// Prepares the hosts, before anything is observed.
    fn prepare(&mut self, _hosts: &mut Hosts, _context: &Context<'_>) -> Result<(), TrialError> {
        Ok(())
    }

    /// Starts a server that answers nothing but the load; gives what the link is to watch.
    fn listen(&mut self, _hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        Ok(Watch::default())
    }

    /// Whether the queue of a server on this machine is looked at while the load runs.
    fn watches_listener(&self) -> bool {
        true
    }

    /// How long after the others a part of a split load begins.
    fn turn(&self) -> Duration {
        Duration::ZERO
    }

    /// Runs the load to its end.
    ///
    /// Errors: also if no operation at a target succeeded.
    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<Self::Report, TrialError>;

    /// Asks the client for what must be known before its counters are read after the load.
    fn client_done(&mut self, _hosts: &mut Hosts) -> Result<(), TrialError> {
        Ok(())
    }

    /// With two hosts: takes the rows of the link, and asks the server for what must be known before its
    /// counters are read after the load.
    fn server_done(&mut self, _hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        Ok(())
    }

    /// Connections that the load opened. `None`: it does not count them.
    fn opened(&self, _report: &Self::Report) -> Option<Opened> {
        None
    }

    /// Notes the figures of the trial.
    fn take(&mut self, report: &Self::Report, seen: &LoadObservation<'_>) -> JudgementBasis;

    /// Compares what others counted with the wire's counts, which are whole.
    fn compare(&mut self, _seen: &LoadObservation<'_>) {
        self.notes().compare_syns();
    }
}

/// Runs a trial.
///
/// Errors: there is no result. Reasons to exclude a result are in the notes.
pub(crate) fn run<T: Trial>(
    trial: &mut T,
    site: Site<'_>,
    context: &mut Context<'_>,
) -> Result<(), TrialError> {
    // Of a server on this machine the queue can be seen, and its drops are this machine's.
    let listener = match &site {
        Site::Target(target) if trial.watches_listener() => target.listener_here(),
        _ => None,
    };
    let (mut hosts, link) = match site {
        Site::Lab(lab, ports) => {
            if let Some(spec) = &lab.remote {
                (trial.notes().remote(&lab, spec, context)?, None)
            } else {
                let link = lab.link.clone();
                (trial.notes().lab(lab, ports, context)?, Some(link))
            }
        }
        Site::Target(target) => {
            let address = target.address()?;
            let mut hosts = context.hosts.target()?;
            hosts.addresses.server = address.ip();
            (hosts, None)
        }
    };
    trial.prepare(&mut hosts, context)?;
    if let Some(at) = listener {
        hosts.client.ask(&WatchListener(at))?;
    }
    let mut before_load = if hosts.is_remote() {
        Some(path::before(&mut hosts, trial.notes(), context)?)
    } else {
        None
    };
    let quiet = match &before_load {
        Some(before) => Some(before.round_trips.clone()),
        None => quiet_path(&mut hosts, link.is_some(), context)?,
    };
    // Between hosts of the user's they are no ICMP echoes, and stand in `path`.
    if let Some(quiet) = quiet.as_ref().filter(|_| before_load.is_none()) {
        trial.notes().take_echoes(quiet);
    }
    if let Some(server) = &mut hosts.server {
        server.ask(&Forget)?;
    }
    let clocks = ClockWatch::begin();
    let client_before = observe(&mut hosts.client)?;
    let server_before = hosts.server.as_mut().map(observe).transpose()?;
    let watch = trial.listen(&mut hosts, context)?;
    let watch = Watch { pcap: context.pcap.map(str::to_owned), ..watch };
    let asked = watch.tap || watch.pcap.is_some();
    if let Some(handle) = &mut hosts.link {
        handle.ask(&watch)?;
    }
    if let Some(start) = &mut context.start {
        start.wait(trial.turn(), context.interrupt)?;
    }
    let report = trial.load(&mut hosts, context)?;
    if let Some(link) = &link {
        settle(&mut hosts, link.rtt, link.jitter)?;
    } else if let Some(before) = &before_load {
        let slowest = before.round_trips.iter().copied().max().unwrap_or(0);
        settle(&mut hosts, Duration::from_nanos(slowest), Duration::ZERO)?;
    }
    let clocks = clocks.end();
    trial.client_done(&mut hosts)?;
    let client_after = observe(&mut hosts.client)?;
    let (counted, rows) = hosts.link.as_mut().map(count).transpose()?.unzip();
    if hosts.server.is_some() {
        trial.server_done(&mut hosts, rows.unwrap_or_default())?;
    }
    let server_after = hosts.server.as_mut().map(observe).transpose()?;
    let emulated = link.as_ref().is_some_and(LinkSpec::is_emulated);
    let server = server_before.as_ref().zip(server_after.as_ref());
    let clock_bound_ns = match &mut before_load {
        Some(before) => path::after(&mut hosts, trial.notes(), before)?,
        None => Some(0),
    };
    let seen = LoadObservation {
        quiet: quiet.as_deref(),
        client: Span { before: &client_before, after: &client_after },
        server: server.map(|(before, after)| Span { before, after }),
        // The emulated link stamps its packets itself.
        tapped: link.is_some() && asked && !emulated,
        clock_bound_ns,
    };
    trial.notes().take_counters(seen.client, seen.server);
    if listener.is_some() {
        trial.notes().arm.client.listeners.clone_from(&client_after.listeners);
    }
    if let Some(before) = &before_load {
        let seconds = client_after.at_ns.saturating_sub(client_before.at_ns) as f64 / 1e9;
        let opened = trial.opened(&report);
        path::leave_out_others(trial.notes(), before, opened, seconds);
    }
    let taken = trial.take(&report, &seen);
    if let (Some(counted), Some(server)) = (counted, seen.server)
        && trial.notes().take_link(counted, emulated || asked, seen.client, server)
    {
        trial.compare(&seen);
    }
    trial.notes().take_standstill(End::Client, seen.client);
    if let Some(server) = seen.server {
        trial.notes().take_standstill(End::Server, server);
    }
    trial.notes().take_machine(seen.client, taken.operations);
    trial.notes().take_clocks(clocks, taken.stamped);
    Ok(())
}

/// Echoes before the load, ns.
fn quiet_path(
    hosts: &mut Hosts,
    in_lab: bool,
    context: &Context<'_>,
) -> Result<Option<Vec<u64>>, TrialError> {
    let (number, interval_ns) =
        if in_lab { ECHOES[usize::from(!context.witness)] } else { TARGET_ECHOES };
    let quiet = echoes(hosts, number, interval_ns, context.interrupt);
    if context.interrupt.signal().is_some() {
        return Err(LabError::Interrupted.into());
    }
    // A firewall may eat echoes, and this user may not be allowed to send them.
    if in_lab { Ok(Some(quiet?)) } else { Ok(quiet.ok()) }
}
