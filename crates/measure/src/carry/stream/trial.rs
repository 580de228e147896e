//! One trial of `stream`: who listens, who connects, and when both are done.

use tcptoll_core::experiment::figures::GOODPUT;
use tcptoll_core::record::{Transfer, Way};
use tcptoll_core::study::PlannedArm;
use tcptoll_lab::lab::Hosts;
use tcptoll_lab::messages::{Rows, TransferReport, TransferServer, Watch};

use super::settings::StreamSettings;
use super::{
    CLIENT_CPU_PER_GB, GOODPUT_DOWN, GOODPUT_UP, LINK_SHARE, LOADED_RTT, RETRANSMITTED,
    SERVER_CPU_PER_GB, STARTUP, TRANSFER,
};
use crate::carry::transfer;
use crate::carry::transfer::{EndReports, Server, cpu_s_per_gb, goodput};
use crate::kit::TrialError;
use crate::kit::hosts::PortsNeeded;
use crate::kit::notes::Notes;
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};

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

impl StreamTrial<'_> {
    fn take_reports(&mut self, client: &TransferReport) {
        let nothing = TransferReport::default();
        let server = self.server.answer.as_ref().unwrap_or(&nothing);
        let lab = &self.settings.lab;
        let ended = EndReports { client, server };
        let cpu = [cpu_s_per_gb(client), cpu_s_per_gb(server)];
        transfer::take(&mut self.notes, &self.settings.bulk, ended, (&lab.link, lab.ipv6));
        let Some(recorded) = self.notes.arm.own.transfer.clone() else { return };
        // A connection that failed carried bytes, but nobody got what was to be carried.
        if self.notes.arm.ok == 0 {
            return;
        }
        self.take_goodput(&recorded);
        self.take_ways(&recorded);
        let n = self.notes.arm.ok;
        for (metric, cpu) in [&CLIENT_CPU_PER_GB, &SERVER_CPU_PER_GB].into_iter().zip(cpu) {
            self.notes.metric(metric, cpu, n);
        }
    }

    fn take_goodput(&mut self, recorded: &Transfer) {
        let notes = &mut self.notes;
        let [up, down] = [recorded.up.as_ref(), recorded.down.as_ref()].map(goodput);
        if recorded.up.is_some() && recorded.down.is_some() {
            for (metric, one) in [(&GOODPUT_UP, up), (&GOODPUT_DOWN, down)] {
                notes.metric(metric, one.map(|one| one.per_s), one.map_or(0, |one| one.bytes));
            }
        }
        let ways: Vec<_> = [up, down].into_iter().flatten().collect();
        if ways.len() < recorded.ways().count() {
            return; // a sum that lacks a part is none
        }
        let (per_s, bytes) =
            ways.iter().fold((0.0, 0), |(rate, bytes), way| (rate + way.per_s, bytes + way.bytes));
        notes.metric(&GOODPUT, Some(per_s), bytes);
        // The rate is of each direction.
        let share = recorded.link_bytes_per_s.map(|link| per_s / (link * ways.len() as f64));
        notes.metric(&LINK_SHARE, share, bytes);
    }

    fn take_ways(&mut self, recorded: &Transfer) {
        let ways: Vec<&Way> = recorded.ways().map(|(_, way)| way).collect();
        let each = |value: fn(&Way) -> Option<f64>| -> Option<Vec<f64>> {
            ways.iter().map(|way| value(way)).collect()
        };
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let samples = ways.iter().map(|way| way.sender.samples).sum();
        let rtt = each(|way| way.sender.rtt_us).map(mean);
        let sent: Option<u64> = ways.iter().map(|way| way.kernel_sent_bytes).sum();
        let again: Option<u64> = ways.iter().map(|way| way.kernel_retransmitted_bytes).sum();
        let share = again.zip(sent).map(|(again, sent)| again as f64 / sent as f64);
        // Both directions must have come that far.
        let longest = |values: Vec<f64>| values.into_iter().fold(0.0, f64::max);
        let startup = each(|way| way.startup_s).map(longest);
        let whole = each(|way| Some(way.window_s).filter(|s| *s > 0.0)).map(longest);
        let notes = &mut self.notes;
        let n = notes.arm.ok;
        notes.metric(&LOADED_RTT, rtt, samples);
        notes.metric(&RETRANSMITTED, share, sent.unwrap_or(0));
        notes.metric(&STARTUP, startup.map(|s| s * 1e6), n);
        let whole = whole.filter(|_| self.settings.bulk.duration.is_none());
        if self.settings.bulk.duration.is_none() && whole.is_none_or(|s| s <= 0.0) {
            notes.exclude("all bytes arrived in one read, so there is no duration: raise --bytes");
        }
        notes.metric(&TRANSFER, whole.map(|s| s * 1e6), n);
    }

    pub(super) fn take_hosts(&mut self, seen: &LoadObservation<'_>) {
        self.notes.arm.client.rss_peak_bytes = Some(seen.client.after.rss_peak_bytes);
        if let (Some(host), Some(span)) = (&mut self.notes.arm.server, seen.server) {
            host.rss_peak_bytes = Some(span.after.rss_peak_bytes);
        }
    }
}
