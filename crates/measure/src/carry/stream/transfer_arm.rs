//! An arm that carried bulk data, with what limited it.

use tcptoll_core::experiment::column::value;
use tcptoll_core::experiment::figures::GOODPUT;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Sender, SocketEnd, Summary, Transfer};
use tcptoll_core::study::level_text;
use tcptoll_core::units::parse_size;
use tcptoll_core::verdict::throughput::{Direction, Limit, quiet_rtt_us};

use super::{TRANSFER, sheet};
use crate::carry::throughput::reason;

/// Arms within this share of each other carry the same.
pub(super) const SAME: f64 = 0.03;

/// From this ratio of the round trip under load to the quiet one on, the queue is worth a sentence.
pub(super) const QUEUE_SHOWN: f64 = 1.5;

/// Options whose levels are sizes.
pub(super) const SIZES: [&str; 4] = ["window", "receive-buffer", "send-buffer", "message"];

/// An arm that carried data.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferArm<'a> {
    pub(super) arm: &'a Arm,
    pub(super) transfer: &'a Transfer,
    /// All that was received, bytes/s.
    pub(super) goodput: f64,
}

impl<'a> TransferArm<'a> {
    fn from_arm(arm: &'a Arm) -> Option<Self> {
        let transfer = sheet::transfer(arm).filter(|_| arm.failure.is_none())?;
        let sum = || {
            let of_ways = transfer.ways().filter_map(|(_, way)| way.goodput_bytes_per_s());
            Some(of_ways.sum::<f64>())
        };
        let goodput = value(arm, GOODPUT.name).or_else(sum).filter(|rate| *rate > 0.0)?;
        Some(Self { arm, transfer, goodput })
    }

    pub(super) fn rate(&self) -> String {
        number::metric(self.goodput, "bytes/s")
    }

    /// Its goodput, next to the payload rate of the link where that is known:
    /// `15.0 Mbit/s of the link's 941 Mbit/s`.
    pub(super) fn of_link(&self) -> String {
        let ways = self.transfer.ways().count() as f64;
        match self.transfer.link_bytes_per_s.map(|link| link * ways) {
            Some(link) if self.goodput < link => {
                format!("{} of the link's {}", self.rate(), number::metric(link, "bytes/s"))
            }
            // At the edges of the window a little more may arrive than the link carries on average.
            Some(link) if self.goodput > link * (1.0 + MORE) => format!(
                "{} (above the link's {}: bytes that waited before the window arrived in it)",
                self.rate(),
                number::metric(link, "bytes/s")
            ),
            Some(_) | None => self.rate(),
        }
    }

    /// Why it carries no more: of two directions both, where they differ.
    pub(super) fn reason(&self) -> Option<String> {
        let each: Vec<(Direction, Option<String>)> = Direction::used_in(self.transfer)
            .map(|(direction, way)| (direction, reason(self.transfer, direction, way)))
            .collect();
        let (_, first) = each.first()?;
        if each.iter().all(|(_, other)| other == first) {
            return first.clone();
        }
        let each = each.iter().map(|(direction, reason)| {
            let reason = reason.as_deref().unwrap_or("no limit was reached");
            format!("{reason} ({})", direction.name())
        });
        Some(each.collect::<Vec<_>>().join(", and "))
    }

    /// Where no limit explains the goodput: what the arm shows of link and machine.
    pub(super) fn unknown(&self) -> String {
        let late = self.arm.link.as_ref().and_then(|link| link.lateness_us.as_ref()?.p99);
        if let Some(late) = late.filter(|us| *us >= LATE_US) {
            return format!(
                "no limit was reached because the link emulator was late (p99 {})",
                number::time(late)
            );
        }
        let trips = value(self.arm, TRANSFER.name)
            .zip(self.round_trips())
            .map(|(transfer, [quiet, _])| transfer / quiet)
            .filter(|trips| *trips <= SLOW_START_TRIPS);
        if let Some(trips) = trips {
            return format!("slow start dominates a transfer of {trips:.1} round trips");
        }
        let end = |end: &SocketEnd| number::percent(end.cpu_share);
        let Transfer { client, server, .. } = self.transfer;
        format!(
            "no limit was reached, and the client used {} of a CPU, the server {}",
            end(client),
            end(server)
        )
    }

    /// Whether this limits every direction, or cannot be told apart from what does.
    pub(super) fn is(&self, limit: Limit) -> bool {
        let mut limits = sheet::limits(self.arm).into_iter();
        limits.all(|(_, limited)| limited.is_some_and(|limited| limited.is(limit)))
    }

    fn sender(&self) -> Option<&'a Sender> {
        Direction::used_in(self.transfer).next().map(|(_, way)| &way.sender)
    }

    /// The round trip of the quiet link and under load, µs.
    pub(super) fn round_trips(&self) -> Option<[f64; 2]> {
        let sender = self.sender()?;
        Some([quiet_rtt_us(self.transfer, sender)?, sender.rtt_us?])
    }

    /// How many times longer a round trip is under load.
    pub(super) fn queue(&self) -> Option<f64> {
        let [quiet, loaded] = self.round_trips()?;
        Some(loaded / quiet).filter(|ratio| ratio.is_finite())
    }

    /// The size that a level of this option is; absent for `auto`.
    pub(super) fn size(&self, option: &str) -> Option<u64> {
        parse_size(&level_text(self.arm.factors.get(option)?)).ok()
    }
}

/// From this share on it is said that more arrived in the window than the link carries in it.
const MORE: f64 = 0.01;

/// A transfer of at most so many round trips is slow start for the most part.
const SLOW_START_TRIPS: f64 = 10.0;

/// From here on the lateness of the link (p99, µs) explains a goodput that nothing else does.
const LATE_US: f64 = 2_000.0;

pub(super) fn told(summary: &Summary) -> Vec<TransferArm<'_>> {
    summary.arms.iter().filter_map(TransferArm::from_arm).collect()
}

/// What the queue of the stream adds to its round trip.
pub(super) fn queue(told: &TransferArm<'_>, arm: &str) -> Option<String> {
    let [quiet, loaded] = told.round_trips()?;
    let full = told.is(Limit::LinkRate) && told.queue()? >= QUEUE_SHOWN;
    full.then(|| {
        let queue = if arm.is_empty() { "The".to_owned() } else { format!("With {arm}, the") };
        format!(
            "{queue} queue lengthens the round trip from {} to {}.",
            number::time(quiet),
            number::time(loaded)
        )
    })
}
