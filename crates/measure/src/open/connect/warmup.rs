//! What comes before the measurement: measured as well, and in none of its figures.

use tcptoll_lab::lab::{Hosts, LabError};

use super::trial::ConnectTrial;
use crate::kit::opening::{Trace, drive, end_greeting, warmed};
use crate::kit::plan::{Context, TrialError};

impl ConnectTrial<'_> {
    /// Opens connections for caches, routes and branch predictors: to the server that is measured
    /// if there is one already and the user asked for it, else to one of their own.
    pub(super) fn warm_up(
        &mut self,
        hosts: &mut Hosts,
        context: &Context<'_>,
    ) -> Result<(), TrialError> {
        let Some(warm) = self.settings.warm_up() else { return Ok(()) };
        let mut trial = ConnectTrial::new("", &warm);
        trial.notes.sources.clone_from(&self.notes.sources);
        let running = self.at.filter(|_| warm.server.is_some() || warm.to.is_some());
        let (server, at) = match running {
            Some(at) => (None, at),
            None => trial.greet(hosts).map(|(server, at)| (Some(server), at))?,
        };
        let mut load = trial.load_on(at);
        load.trace_limit = 0;
        let mut unseen = Trace::default();
        let report = drive(&mut hosts.client, &load, &mut unseen, context.interrupt, &mut |_| {})?;
        if let Some(greeting) = server {
            end_greeting(hosts.server()?, greeting, &mut unseen)?;
        }
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        self.notes.arm.warmup = Some(warmed(report));
        Ok(())
    }
}
