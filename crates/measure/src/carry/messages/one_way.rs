//! One trial of messages that nobody answers: the client writes, the server reads.

use tcptoll_core::study::PlannedArm;
use tcptoll_lab::lab::Hosts;
use tcptoll_lab::messages::{Receiving, Rows, Sending, TransferReport, TransferServer, Watch};

use super::observation;
use super::settings::MessagesSettings;
use crate::carry::service::Server;
use crate::carry::transfer;
use crate::carry::transfer::{Bulk, EndReports, OneWay, round_trip};
use crate::kit::hosts::PortsNeeded;
use crate::kit::notes::Notes;
use crate::kit::plan::{Context, Outcome, TrialError};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};

/// One arm, being run.
pub(super) struct OneWayTrial<'a> {
    settings: &'a MessagesSettings,
    bulk: Bulk,
    notes: Notes,
    /// The receiver.
    server: Server<TransferServer>,
}

impl<'a> OneWayTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a MessagesSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial = Self {
            settings,
            bulk: bulk(settings),
            notes: Notes::new(&arm.name, &[]),
            server: Server::default(),
        };
        trial.notes.arm.own.message = Some(observation::way(settings));
        let ports = PortsNeeded { at_a_time: 1, connections: 1 };
        procedure::run(&mut trial, Site::Lab(settings.lab.clone(), ports), context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }
}

/// What flows, over one connection.
pub(super) fn bulk(settings: &MessagesSettings) -> Bulk {
    let up = OneWay {
        send: Sending {
            message_bytes: settings.message_bytes,
            coalesce: settings.coalesce,
            coalesce_bytes: settings.coalesce_bytes,
            work_ns: settings.work.as_nanos() as u64,
            ..Sending::default()
        },
        receive: Receiving {
            message_bytes: settings.message_bytes,
            work_ns: settings.receiver_work.as_nanos() as u64,
            ..Receiving::default()
        },
    };
    Bulk {
        connections: 1,
        client: settings.client_sockets(),
        server: settings.server_sockets(),
        up: Some(up),
        down: None,
        warmup: settings.warmup,
        duration: Some(settings.duration),
        timeout: settings.timeout,
        round_trip: round_trip(&settings.lab.link),
    }
}

impl Trial for OneWayTrial<'_> {
    type Report = TransferReport;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let order = self.bulk.server(hosts.addresses.server);
        self.server.listen(hosts, &order)?;
        Ok(Watch { tap: self.settings.lab.tap, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<TransferReport, TrialError> {
        self.bulk.drive(hosts, (self.server.at()?, &self.notes.sources), context)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        self.server.end(hosts)
    }

    fn take(&mut self, sent: &TransferReport, seen: &LoadObservation<'_>) -> JudgementBasis {
        let lab = &self.settings.lab;
        if let Some(received) = &self.server.answer {
            let ended = EndReports { client: sent, server: received };
            transfer::take(&mut self.notes, &self.bulk, ended, (&lab.link, lab.ipv6));
            observation::take_one_way(&mut self.notes, ended, seen);
        }
        JudgementBasis { operations: self.notes.arm.attempts, stamped: seen.tapped }
    }

    fn compare(&mut self, _seen: &LoadObservation<'_>) {
        self.notes.compare_syns();
        transfer::compare(&mut self.notes);
    }
}
