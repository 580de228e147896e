//! What a watch's record says as a whole: what was wrong when, and where.
//!
//! A record is read line by line, twice: [`Reviewer`] sums it up, and [`Curves`] then keeps what pictures
//! need of the listeners and destinations that mattered most. Both are bounded, however long the record.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tcptoll_core::record::Passport;

use super::{Interval, ListenerPart, WatchLine};
use crate::watch::look::{Counted, Limits, Process};
use tcptoll_core::finding::{Remedy, Severity};

/// Diagnoses of one subject with less time than this between them are one episode, s.
pub(super) const MERGE_S: f64 = 60.0;
/// Episodes that are kept, at most.
pub(super) const EPISODES_MAX: usize = 500;
/// Listeners that are stated, at most.
pub(super) const LISTENERS_STATED: usize = 64;
/// Destinations that are stated, at most.
pub(super) const DESTINATIONS_STATED: usize = 32;
/// Gaps that are stated, at most.
pub(super) const GAPS_MAX: usize = 50;

/// A watch's record in short. `tcptoll report FILE --format json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Review {
    /// What kind of object this is: `watch`.
    pub kind: String,
    /// Version of the record format.
    pub record_version: u32,
    /// Version of the program that wrote the record.
    pub tcptoll_version: String,
    /// The exact command line, one element an argument.
    pub command: Vec<String>,
    /// Host name, as the kernel has it.
    pub host: String,
    /// When the watch began, RFC 3339.
    pub started_at: String,
    /// When its last look was, RFC 3339; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Time from its beginning to its last look, s.
    pub lasted_s: f64,
    /// Time between two looks, s, as asked.
    pub interval_s: f64,
    /// The machine.
    pub passport: Passport,
    /// Looks that the record holds.
    pub looks: u64,
    /// Lines that hold them: fewer where looks were joined to keep to the limit of the file.
    pub lines: u64,
    /// The most looks in one line.
    pub joined_most: u32,
    /// Looks that were due and could not be taken in time; absent if the watch was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
    /// Whether the last line is missing: the watch was killed, its disk was full, or it still runs.
    pub killed: bool,
    /// Why nothing more was recorded though the watch went on, like `No space left on device`; absent: it
    /// was not so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Whether the last line was cut while it was written.
    pub cut: bool,
    /// What was wrong, in the order of its beginning.
    pub episodes: Vec<Episode>,
    /// Episodes that there was no room for.
    pub episodes_left_out: u64,
    /// Listeners with a queue or a drop, those with the most drops and then the longest queue first.
    pub listeners: Vec<ListenerReview>,
    /// Listeners that there was no room for.
    pub listeners_left_out: u64,
    /// Packets dropped by listeners that no line describes: see `others` in the lines of the record.
    pub drops_of_others: u64,
    /// Listeners without a queue or a drop, the most at any look.
    pub listeners_idle: u32,
    /// Destinations, those with the most ports in use first.
    pub destinations: Vec<DestinationReview>,
    /// Destinations that there was no room for.
    pub destinations_left_out: u64,
    /// Time that `counts` are of, s: less than the watch where counters did not continue.
    pub counted_s: f64,
    /// Counts of the namespace by name; one that is missing is 0. `retransmitted` is of all segments,
    /// `data_retransmitted` of those that are no SYN and no SYN-ACK.
    pub counts: BTreeMap<String, u64>,
    /// The highest rate of one interval of each of them, per second, with its time.
    pub peaks_per_s: BTreeMap<String, Peak>,
    /// The greatest of each level.
    pub levels: Counted,
    /// The last limits.
    pub limits: Limits,
    /// The most sockets by state of any dump.
    pub states: BTreeMap<String, u64>,
    /// Time in which nothing was seen: the machine was suspended, or looks could not be taken.
    pub gaps: Vec<Gap>,
    /// Gaps that there was no room for.
    pub gaps_left_out: u64,
}

/// A figure, and when it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// The figure.
    pub value: f64,
    /// End of its interval, s since the watch began.
    pub at_s: f64,
}

/// Something that was wrong for a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Episode {
    /// The cause's name.
    pub id: String,
    /// Whether it harmed connections.
    pub severity: Severity,
    /// What it is about.
    pub subject: String,
    /// Its sentence at its worst.
    pub text: String,
    /// When it began, s since the watch began.
    pub from_s: f64,
    /// When its evidence ended, s since the watch began.
    pub to_s: f64,
    /// Time in which it had evidence, s: less than from its beginning to its end where it came and went.
    pub active_s: f64,
    /// End of the line that has the worst of it, s since the watch began.
    pub worst_at_s: f64,
    /// Whether it was still so at the last look of the record.
    pub ongoing: bool,
    /// What fixes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<Remedy>,
}

/// All listening sockets of one address and port over the whole watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerReview {
    /// Local address.
    pub address: String,
    /// Local port.
    pub port: u16,
    /// Its last process that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Sockets that had a queue or a drop: several with `SO_REUSEPORT`, or after a restart.
    pub sockets: u32,
    /// The last limit of the accept queue.
    pub accept_queue_limit: u32,
    /// The longest accept queue of any look.
    pub accept_queue_peak: u32,
    /// End of the line that has it, s since the watch began.
    pub peak_at_s: f64,
    /// Packets dropped.
    pub drops: u64,
    /// SYNs and last ACKs that met a full accept queue.
    pub overflows: f64,
    /// Whether a part of them is a share by `sk_drops`.
    pub overflows_estimated: bool,
    /// Time in which its overflows could not be told from those of others, s.
    pub overflows_unknown_s: f64,
    /// The highest rate of overflows of one interval, per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflows_peak_per_s: Option<f64>,
}

/// A destination over the whole watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DestinationReview {
    /// Remote address and port.
    pub to: String,
    /// The most local ports in use from one source.
    pub ports_in_use: u32,
    /// The fewest ports left to one source; absent where the range is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports_left: Option<u32>,
    /// The most ports in TIME-WAIT.
    pub time_wait: u32,
    /// The most sockets in SYN-SENT.
    pub syn_sent: u32,
    /// End of the line with the most ports in use, s since the watch began.
    pub at_s: f64,
}

/// Time without a look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// End of the line that it is in, s since the watch began.
    pub at_s: f64,
    /// Time between two looks, s.
    pub lasted_s: f64,
    /// Part of the line in which the machine was suspended, s.
    pub suspended_s: f64,
}

/// Points of a curve, at most.
const POINTS_MAX: usize = 1_000;
/// Listeners, and destinations, that are drawn, at most.
const DRAWN_MAX: usize = 8;

/// The second reading of a record: keeps what is drawn.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Place of a listener in the review, by address and port.
    places: BTreeMap<(String, u16), u32>,
    /// Place and limit by number.
    numbers: BTreeMap<u32, (u32, u32)>,
    drawn: Vec<String>,
    /// Width of a point, s.
    step_s: f64,
    series: Series,
    open: Option<(u64, Interval)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// At most 1,001 intervals. Numbers of listeners are their places in the review.
    pub points: Vec<Interval>,
    /// Limits of the accept queue by place: since when, s, and which.
    pub limits: BTreeMap<u32, Vec<(f64, u32)>>,
}

impl Curves {
    /// For the record of this review.
    pub fn new(review: &Review) -> Self {
        let listeners = review.listeners.iter().take(DRAWN_MAX).enumerate();
        let places =
            listeners.map(|(at, one)| ((one.address.clone(), one.port), at as u32)).collect();
        let drawn = review.destinations.iter().take(DRAWN_MAX).map(|one| one.to.clone()).collect();
        Self {
            places,
            numbers: BTreeMap::new(),
            drawn,
            step_s: (review.lasted_s / POINTS_MAX as f64).max(1e-3),
            series: Series::default(),
            open: None,
        }
    }

    /// Takes a line that [`Reviewer`](super::Reviewer) took.
    pub fn line(&mut self, line: WatchLine) {
        match line {
            WatchLine::Listener(line) => {
                if let Some(place) = self.places.get(&(line.address, line.port)) {
                    self.numbers.insert(line.n, (*place, line.accept_queue_limit));
                }
            }
            WatchLine::State(interval) => self.interval(*interval),
            _ => {}
        }
    }

    fn interval(&mut self, mut interval: Interval) {
        interval.diagnoses.clear();
        interval.limits = None;
        interval.destinations.retain(|one| self.drawn.contains(&one.to));
        interval.listeners = self.listeners(std::mem::take(&mut interval.listeners), interval.at_s);
        let at = (interval.at_s / self.step_s).floor() as u64;
        self.open = match self.open.take() {
            Some((step, open)) if step == at => Some((step, open.join(interval))),
            Some((_, open)) => {
                self.series.points.push(open);
                Some((at, interval))
            }
            None => Some((at, interval)),
        };
    }

    /// Sockets of one address and port as one listener, numbered by its place.
    fn listeners(&mut self, parts: Vec<ListenerPart>, at_s: f64) -> Vec<ListenerPart> {
        let mut all: BTreeMap<u32, ListenerPart> = BTreeMap::new();
        for part in parts {
            let Some((place, limit)) = self.numbers.get(&part.n).copied() else { continue };
            let steps = self.series.limits.entry(place).or_default();
            // A socket of several with other limits makes a step at each look: that many are not drawn.
            if steps.last().is_none_or(|(_, last)| *last != limit) && steps.len() < POINTS_MAX {
                steps.push((at_s, limit));
            }
            let part = part.numbered(place);
            match all.get_mut(&place) {
                Some(known) => known.add(&part),
                None => drop(all.insert(place, part)),
            }
        }
        all.into_values().collect()
    }

    /// What is to be drawn.
    pub fn finish(mut self) -> Series {
        self.series.points.extend(self.open.take().map(|(_, open)| open));
        self.series
    }
}
