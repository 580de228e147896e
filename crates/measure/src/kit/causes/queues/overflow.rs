//! Was an overflow of the accept queue rare, or did it last?
//!
//! The rule looks at three shares of one load: how many connections it hit, how often the queue was
//! full when it was looked at, and in how many slices of 100 ms the kernel dropped something. A
//! share that was not measured decides nothing.

use std::fmt;

use super::counter;
use tcptoll_core::record::{Arm, ListenerQueue};
use tcptoll_core::stats::histogram::Histogram;

/// An overflow hits at most this share of the connections to be rare: 1 of 1,000. Then neither the
/// p99.9 of the clients nor any quantile below it shows the overflow.
pub(crate) const RARE_CONNECTIONS: f64 = 0.001;

/// A rare overflow drops packets in at most this share of the slices: 1 of 100, so about once in 10 s.
/// One slice alone is rare in a load of any length: a single moment is no rhythm.
pub(crate) const RARE_SLICES: f64 = 0.01;

/// A queue that is full in more than 1 of 20 samples has no reserve, even if it dropped little: the
/// next burst of the same size overflows it.
pub(crate) const RARE_SAMPLES: f64 = 0.05;

/// From half of the time on, the overflow is the normal state: connections arrive faster than the
/// server accepts them, and any queue would fill.
pub(crate) const LASTING: f64 = 0.5;

/// How an overflow went on over the time of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// It may be tolerated.
    Rare,
    /// The queue overflows at times and is empty in between: a longer one would hold the bursts.
    Bursts,
    /// The server is too slow for the connections that arrive: a longer queue makes them wait longer.
    Lasting,
}

impl Overflow {
    /// Its name in a record.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rare => "rare",
            Self::Bursts => "bursts",
            Self::Lasting => "lasting",
        }
    }

    /// How the overflow of a listener was.
    ///
    /// None: there are neither connections nor samples to judge by.
    pub(crate) fn judge(arm: &Arm, listener: &ListenerQueue) -> Option<Self> {
        let hit = hit_by(arm).map(|hit| hit as f64 / arm.attempts as f64);
        let (full, dropping) = (listener.full_share(), listener.dropping_share());
        if hit.is_none() && full.is_none() && dropping.is_none() {
            return None;
        }
        let at_most = |share: Option<f64>, limit: f64| share.is_none_or(|share| share <= limit);
        let known: Vec<f64> = [full, dropping].into_iter().flatten().collect();
        if at_most(hit, RARE_CONNECTIONS)
            && at_most(full, RARE_SAMPLES)
            && (listener.dropping_slices <= 1 || at_most(dropping, RARE_SLICES))
        {
            return Some(Self::Rare);
        }
        let lasts = !known.is_empty() && known.iter().all(|share| *share >= LASTING);
        Some(if lasts { Self::Lasting } else { Self::Bursts })
    }
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Classes of failures that a full queue brings about.
const CLASSES: [&str; 3] = ["connect-timeout", "reset", "timeout"];

/// Connections that waited for a retransmission of either side, or failed as a full queue makes them
/// fail.
///
/// A connection may wait on both ladders, and then fail: added up they are too many. Where the whole
/// distribution of those that succeeded is there, those that took at least the first step bound the
/// waits too, and the smaller figure is taken.
///
/// None: nothing was attempted.
pub(crate) fn hit_by(arm: &Arm) -> Option<u64> {
    let waited: u64 = match &arm.own.queues {
        Some(queues) => {
            let ladders = [&queues.syn_ladder, &queues.syn_ack_ladder];
            ladders.iter().flat_map(|ladder| &ladder.connections).sum()
        }
        None => arm.rungs.iter().sum(),
    };
    let failed: u64 = CLASSES.iter().filter_map(|class| arm.errors.get(*class)).sum();
    let waited = slow(arm).map_or(waited, |slow| waited.min(slow));
    // Of more connections than packets dropped, the others waited for another reason: loss, say.
    let dropped = match counter(arm, "TcpExtListenDrops") {
        0 => u64::MAX,
        dropped => dropped,
    };
    (arm.attempts > 0).then(|| waited.saturating_add(failed).min(dropped).min(arm.attempts))
}

/// A bucket of a distribution is this exact.
const BUCKET: f64 = 0.995;

/// Connections that succeeded and took at least the first step of either ladder.
///
/// None: no ladder or no whole distribution is there.
fn slow(arm: &Arm) -> Option<u64> {
    let queues = arm.own.queues.as_deref()?;
    let first = [&queues.syn_ladder, &queues.syn_ack_ladder]
        .into_iter()
        .filter_map(|ladder| ladder.at_s.first().copied())
        .reduce(f64::min)?;
    let times = ["first_byte_us", "connect_us"]
        .into_iter()
        .find_map(|name| arm.histograms.get(name).filter(|histogram| histogram.count > 0))?;
    let whole = Histogram::from_summary(times).ok()??;
    let late = |(ns, _): &(u64, u64)| *ns as f64 >= first * 1e9 * BUCKET;
    Some(whole.buckets_ns().iter().filter(|bucket| late(bucket)).map(|(_, count)| count).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::record::{Queues, RetryLadder};

    /// A load of 100,000 connections over 20 s, of which `hit` waited for a second SYN.
    fn arm(hit: u64) -> Arm {
        let ladder = RetryLadder { at_s: vec![1.0], connections: vec![hit], off: 0 };
        let queues = Queues { syn_ladder: ladder, ..Queues::default() };
        Arm { attempts: 100_000, own: Box::new(queues).into(), ..Arm::default() }
    }

    fn listener(full_samples: u64, dropping_slices: u64) -> ListenerQueue {
        let (samples, slices) = (2_000, 200);
        ListenerQueue { samples, full_samples, slices, dropping_slices, ..<_>::default() }
    }

    fn judged(hit: u64, full_samples: u64, dropping_slices: u64) -> Option<Overflow> {
        Overflow::judge(&arm(hit), &listener(full_samples, dropping_slices))
    }

    #[test]
    fn an_overflow_is_rare_only_where_connections_samples_and_slices_all_say_so() {
        assert_eq!(judged(100, 100, 2), Some(Overflow::Rare), "1 of 1,000, 1 of 20, 1 of 100");
        assert_eq!(judged(101, 100, 2), Some(Overflow::Bursts), "one connection more");
        assert_eq!(judged(100, 101, 2), Some(Overflow::Bursts), "one full sample more");
        assert_eq!(judged(100, 100, 3), Some(Overflow::Bursts), "one slice more");
    }

    #[test]
    fn one_slice_with_drops_is_rare_in_a_short_load_too() {
        let short = |dropping_slices| ListenerQueue {
            slices: 20,
            dropping_slices,
            samples: 200,
            full_samples: 2,
            ..ListenerQueue::default()
        };
        assert_eq!(Overflow::judge(&arm(100), &short(1)), Some(Overflow::Rare));
        assert_eq!(Overflow::judge(&arm(100), &short(2)), Some(Overflow::Bursts));
    }

    #[test]
    fn an_overflow_lasts_from_half_of_the_samples_and_half_of_the_slices_on() {
        assert_eq!(judged(40_000, 1_000, 100), Some(Overflow::Lasting));
        assert_eq!(judged(40_000, 999, 100), Some(Overflow::Bursts));
        assert_eq!(judged(40_000, 1_000, 99), Some(Overflow::Bursts));
    }

    #[test]
    fn what_was_not_measured_decides_nothing() {
        let unseen = ListenerQueue::default();
        assert_eq!(Overflow::judge(&Arm::default(), &unseen), None);
        assert_eq!(Overflow::judge(&arm(40_000), &unseen), Some(Overflow::Bursts));
        assert_eq!(Overflow::judge(&arm(1), &unseen), Some(Overflow::Rare));
        let dropping = ListenerQueue { slices: 200, dropping_slices: 150, ..unseen };
        assert_eq!(Overflow::judge(&Arm::default(), &dropping), Some(Overflow::Lasting));
    }

    #[test]
    fn a_connection_that_waited_on_both_ladders_counts_once_where_its_time_is_known() {
        let mut both = arm(40);
        let queues = both.own.queues.as_deref_mut().unwrap();
        queues.syn_ack_ladder = RetryLadder { at_s: vec![1.0], connections: vec![30], off: 0 };
        assert_eq!(hit_by(&both), Some(70), "nothing says which are the same");
        let mut times = Histogram::new();
        for at in 0..1_000_u64 {
            times.record_ns(if at < 50 { 1_002_000_000 } else { 300_000_000 });
        }
        both.histograms.insert("first_byte_us".to_owned(), times.summary_us());
        assert_eq!(hit_by(&both), Some(50));
    }

    #[test]
    fn failures_that_a_full_queue_brings_about_are_hits_and_others_are_not() {
        let errors = [("reset", 3), ("timeout", 4), ("connect-timeout", 5), ("local-ports", 7)];
        let errors = errors.map(|(class, count)| (class.to_owned(), count)).into();
        let failed = Arm { errors, ..arm(10) };
        assert_eq!(hit_by(&failed), Some(22));
        let old = Arm { attempts: 20, rungs: vec![2, 1], ..Arm::default() };
        assert_eq!(hit_by(&old), Some(3), "a record without queues");
        assert_eq!(hit_by(&Arm { attempts: 1, ..old }), Some(1));
    }
}
