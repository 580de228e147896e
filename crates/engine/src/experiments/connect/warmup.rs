//! What comes before the measurement: measured as well, and in none of its figures.

use std::net::SocketAddr;

use tcptoll_model::record::Warmup;

use super::ConnectTrial;
use super::hosts::{Server, Trace, drive, end_greeting};
use crate::experiments::{Context, TrialError};
use crate::lab::{LabError, Place};
use crate::messages::{ConnectReport, Forget};

impl ConnectTrial<'_> {
    /// Opens connections for caches, routes and branch predictors: to the server that is measured
    /// if there is one already and the user asked for it, else to one of their own.
    pub(super) fn warm_up(
        &mut self,
        place: &mut Place,
        running: Option<SocketAddr>,
        context: &Context<'_>,
    ) -> Result<(), TrialError> {
        let Some(warm) = self.settings.warm_up() else { return Ok(()) };
        let mut trial = ConnectTrial::new("", &warm);
        trial.common.sources.clone_from(&self.common.sources);
        let running = running.filter(|_| warm.server.is_some() || warm.to.is_some());
        let (server, at) = match running {
            Some(at) => (None, at),
            None => trial.serve(place).map(|(server, at)| (Some(server), at))?,
        };
        let mut load = trial.load(at, &[]);
        load.trace_limit = 0;
        let mut unseen = Trace::default();
        let report = drive(&mut place.client, &load, &mut unseen, context.interrupt, &mut |_| {})?;
        if let Some(Server::Ours(greeting)) = server {
            end_greeting(place.server()?, greeting, &mut unseen)?;
        }
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        if let Some(server) = &mut place.server {
            // Its queues are no peak of the measurement.
            server.ask(&Forget)?;
        }
        self.common.arm.warmup = Some(kept(report));
        Ok(())
    }
}

fn kept(report: ConnectReport) -> Warmup {
    let histograms = [
        ("connect_of_failed_us", &report.connect_of_failed),
        ("connect_us", &report.connect),
        ("first_byte_us", &report.first_byte),
    ];
    Warmup {
        attempts: report.attempts,
        ok: report.ok,
        elapsed_s: report.elapsed_ns as f64 / 1e9,
        histograms: histograms
            .into_iter()
            .filter(|(_, histogram)| histogram.count() > 0)
            .map(|(name, histogram)| (name.to_owned(), histogram.summary_us()))
            .collect(),
        errors: report.errors,
    }
}
