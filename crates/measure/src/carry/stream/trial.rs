//! One trial of `stream`: who listens, who connects, and when both are done.

use tcptoll_core::study::PlannedArm;
use tcptoll_lab::lab::Hosts;
use tcptoll_lab::messages::{Rows, TransferReport, TransferServer, Watch};

use super::settings::StreamSettings;
use crate::carry::service::Server;
use crate::carry::transfer;
use crate::kit::hosts::PortsNeeded;
use crate::kit::notes::Notes;
use crate::kit::plan::{Context, Outcome, TrialError};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};

/// One arm, being run.
pub(super) struct StreamTrial<'a> {
    pub(super) settings: &'a StreamSettings,
    pub(super) notes: Notes,
    /// The end that listens.
    pub(super) server: Server<TransferServer>,
}

impl<'a> StreamTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a StreamSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial =
            Self { settings, notes: Notes::new(&arm.name, &[]), server: Server::default() };
        let ports = settings.ports();
        let needed = PortsNeeded { at_a_time: ports, connections: ports };
        procedure::run(&mut trial, Site::Lab(settings.lab.clone(), needed), context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }
}

impl Trial for StreamTrial<'_> {
    type Report = TransferReport;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let order = self.settings.bulk.server(hosts.addresses.server);
        self.server.listen(hosts, &order)?;
        Ok(Watch { tap: self.settings.lab.tap, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<TransferReport, TrialError> {
        self.settings.bulk.drive(hosts, (self.server.at()?, &self.notes.sources), context)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        // All connections have ended at the client, and their last packets have arrived: the server has
        // read to the end of each, or has its error.
        self.server.end(hosts)
    }

    fn take(&mut self, report: &TransferReport, seen: &LoadObservation<'_>) -> JudgementBasis {
        self.take_reports(report);
        self.take_hosts(seen);
        JudgementBasis { operations: report.attempts, stamped: false }
    }

    fn compare(&mut self, _seen: &LoadObservation<'_>) {
        self.notes.compare_syns();
        transfer::compare(&mut self.notes);
    }
}
