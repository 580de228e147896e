//! One trial of messages that are answered: an exchange after another over one connection.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::study::PlannedArm;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::Hosts;
use tcptoll_lab::messages::{Answers, Done, Exchange, ExchangeReport, Rows, Watch};

use super::observation;
use super::settings::MessagesSettings;
use crate::carry::service::Server;
use crate::kit::hosts::PortsNeeded;
use crate::kit::notes::Notes;
use crate::kit::plan::{Context, Outcome, TrialError};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::kit::settings::LabSpec;

/// Exchanges of the warm-up at least. The server acknowledges without delay until its first answer: from
/// then on the answers are to carry the acknowledgements (`inet_csk_in_pingpong_mode` of Linux; on 6.18 the
/// first exchange took 70 µs and the second 44 ms).
const WARMUP_EXCHANGES: u64 = 5;

/// Window of the witness: 12 stalls of 40 ms.
const WITNESS: Duration = Duration::from_millis(500);

/// One arm, being run.
pub(super) struct Exchanges<'a> {
    settings: &'a MessagesSettings,
    notes: Notes,
    /// The end that answers.
    server: Server<Answers>,
}

impl<'a> Exchanges<'a> {
    /// Runs a trial of an arm, and its witness where it needs one.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a MessagesSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial = Exchanges::new(&arm.name, settings);
        trial.run(context)?;
        let seen = trial.notes.ack_delays.take();
        observation::take_acks(&mut trial.notes, seen);
        let lab = &settings.lab;
        let untapped = !lab.link.is_emulated() && !lab.tap && context.pcap.is_none();
        let whole = trial.notes.arm.ok == trial.notes.arm.attempts && !trial.notes.arm.partial;
        if context.witness && untapped && whole {
            trial.with_witness(context);
        }
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    fn new(name: &str, settings: &'a MessagesSettings) -> Self {
        let mut notes = Notes::new(name, &[]);
        notes.arm.own.message = Some(observation::way(settings));
        Self { settings, notes, server: Server::default() }
    }

    fn run(&mut self, context: &mut Context<'_>) -> Result<(), TrialError> {
        let ports = PortsNeeded { at_a_time: 1, connections: 1 };
        procedure::run(self, Site::Lab(self.settings.lab.clone(), ports), context)
    }

    /// On a link without an emulator: the same again, shorter and with a packet tap, for the delay of
    /// ACKs, which only the wire shows. A tap costs CPU that an exchange of 20 µs feels, so the
    /// figures come from the trial without it.
    fn with_witness(&mut self, context: &mut Context<'_>) {
        let settings = MessagesSettings {
            warmup: Duration::ZERO,
            duration: WITNESS.min(self.settings.duration),
            lab: LabSpec { tap: true, ..self.settings.lab.clone() },
            ..self.settings.clone()
        };
        let mut witness = Exchanges::new(&self.notes.arm.name, &settings);
        // What was measured stands without it.
        if let Err(error) = witness.run(&mut context.of_witness(&mut |_, _| {})) {
            self.notes.warn(&Warning::NoWitness { why: error.to_string() });
        }
        let seen = witness.notes.ack_delays.take();
        observation::take_acks(&mut self.notes, seen);
    }
}

impl Trial for Exchanges<'_> {
    type Report = ExchangeReport;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let settings = self.settings;
        let order = Answers {
            at: SocketAddr::new(hosts.addresses.server, 0),
            sockets: settings.server_sockets(),
            request_bytes: settings.message_bytes,
            response_bytes: settings.response_bytes,
            work_ns: settings.receiver_work.as_nanos() as u64,
        };
        self.server.listen(hosts, &order)?;
        Ok(Watch { tap: settings.lab.tap, ack_delays: true, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<ExchangeReport, TrialError> {
        let settings = self.settings;
        let ns = |time: Duration| time.as_nanos() as u64;
        let order = Exchange {
            target: self.server.at()?,
            sockets: settings.client_sockets(),
            writes: settings.writes(),
            response_bytes: settings.response_bytes,
            work_ns: ns(settings.work),
            warmup_ns: ns(settings.warmup),
            warmup_exchanges: WARMUP_EXCHANGES,
            duration_ns: ns(settings.duration),
            timeout_ns: ns(settings.timeout),
        };
        let begun = hosts.client.begin(&order)?;
        let progress = &mut context.progress;
        // How many there will be is not known: without a total no share of it is shown.
        let tell = &mut |done: Done| progress(done, 0);
        Ok(hosts.client.wait(begun, context.interrupt, tell)?.answer)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        self.server.end(hosts)
    }

    fn take(&mut self, report: &ExchangeReport, seen: &LoadObservation<'_>) -> JudgementBasis {
        let answered = self.server.answer.take().unwrap_or_default();
        observation::take_exchanges(&mut self.notes, self.settings, (report, &answered), seen);
        JudgementBasis { operations: answered.answered, stamped: seen.tapped }
    }
}
