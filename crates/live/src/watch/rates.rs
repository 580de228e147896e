//! Rates of a namespace: the difference of two readings over the time between them.

use std::collections::VecDeque;

use super::overflow::HostDrops;
use super::state::{Rates, Segments};
use tcptoll_core::tcp::counters::Counters;

/// What [`Segments`] are of, s.
const SEGMENTS_OVER_S: f64 = 10.0;
/// Intervals that [`Recent`] keeps, at most: 10 s at the shortest interval, 0.1 s, and some more.
const INTERVALS_MAX: usize = 128;

/// Time from one look to the next, s. Absent: it is no positive time, so nothing can be divided by it.
///
/// A suspended machine has a long interval, not a wrong one: rates are divided by the time that passed.
pub(super) fn interval(before_s: f64, now_s: f64) -> Option<f64> {
    let s = now_s - before_s;
    (s.is_finite() && s > 0.0).then_some(s)
}

/// Change of one counter. Absent: a reading lacks it, or it went backwards.
fn change(before: &Counters, after: &Counters, name: &str) -> Option<u64> {
    let (before, after) = (before.get(name)?, after.get(name)?);
    u64::try_from(after.checked_sub(*before)?).ok()
}

/// All rates. Absent if one counter is missing or went backwards: the two readings are not of one
/// namespace then, and no other rate is to be trusted.
pub(super) fn rates(before: &Counters, after: &Counters, interval_s: f64) -> Option<Rates> {
    let rate = |name| Some(change(before, after, name)? as f64 / interval_s);
    Some(Rates {
        active_opens_per_s: rate("TcpActiveOpens")?,
        passive_opens_per_s: rate("TcpPassiveOpens")?,
        segments_out_per_s: rate("TcpOutSegs")?,
        retransmitted_per_s: rate("TcpRetransSegs")?,
        syns_retransmitted_per_s: rate("TcpExtTCPSynRetrans")?,
        overflows_per_s: rate("TcpExtListenOverflows")?,
        drops_per_s: rate("TcpExtListenDrops")?,
        cookies_sent_per_s: rate("TcpExtSyncookiesSent")?,
        syns_dropped_per_s: rate("TcpExtTCPReqQFullDrop")?,
        resets_per_s: rate("TcpEstabResets")?,
        aborted_for_memory_per_s: rate("TcpExtTCPAbortOnMemory")?,
        time_wait_overflows_per_s: rate("TcpExtTCPTimeWaitOverflow")?,
        deferred_per_s: rate("TcpExtTCPDeferAcceptDrop")?,
    })
}

/// What all listeners of the namespace dropped.
pub(super) fn host_drops(before: &Counters, after: &Counters) -> Option<HostDrops> {
    Some(HostDrops {
        overflows: change(before, after, "TcpExtListenOverflows")?,
        drops: change(before, after, "TcpExtListenDrops")?,
        deferred: change(before, after, "TcpExtTCPDeferAcceptDrop")?,
    })
}

/// Segments of the newest intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// The newest last.
    intervals: VecDeque<Segments>,
}

impl Recent {
    /// Adds an interval. What lies further back than 10 s from now goes.
    pub(super) fn push(&mut self, before: &Counters, after: &Counters, interval_s: f64) {
        let sent = change(before, after, "TcpOutSegs");
        let Some((sent, retransmitted)) = sent.zip(change(before, after, "TcpRetransSegs")) else {
            return self.intervals.clear();
        };
        // A peer that is not there, or a full queue, leaves SYNs unanswered: no path lost them. The two
        // counters are read one after the other, so that the SYNs may be ahead by some.
        let syns = change(before, after, "TcpExtTCPSynRetrans").unwrap_or(0);
        let retransmitted = retransmitted.saturating_sub(syns);
        self.intervals.push_back(Segments { over_s: interval_s, sent, retransmitted });
        // With 1 s intervals a sum of 10 s may come out as 10.000001 s.
        let over = |intervals: &VecDeque<Segments>| -> f64 {
            intervals.iter().map(|one| one.over_s).sum::<f64>() - SEGMENTS_OVER_S - 1e-3
        };
        while self.intervals.len() > 1
            && (over(&self.intervals) > 0.0 || self.intervals.len() > INTERVALS_MAX)
        {
            self.intervals.pop_front();
        }
    }

    pub(super) fn clear(&mut self) {
        self.intervals.clear();
    }

    /// Their sum; absent if there is none.
    pub(super) fn sum(&self) -> Option<Segments> {
        let add = |sum: Segments, one: &Segments| Segments {
            over_s: sum.over_s + one.over_s,
            sent: sum.sent.saturating_add(one.sent),
            retransmitted: sum.retransmitted.saturating_add(one.retransmitted),
        };
        let any = !self.intervals.is_empty();
        any.then(|| self.intervals.iter().fold(Segments::default(), add))
    }
}

/// Change of `sk_drops`, which the kernel counts modulo 2^32. Absent: more than half of that in one
/// interval is no count but another socket's.
pub(super) fn drops_since(before: u32, after: u32) -> Option<u64> {
    let change = after.wrapping_sub(before);
    (change <= u32::MAX / 2).then_some(u64::from(change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(sent: i64, retransmitted: i64) -> Counters {
        [("TcpOutSegs", sent), ("TcpRetransSegs", retransmitted)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    #[test]
    fn sk_drops_wraps_and_never_goes_backwards() {
        assert_eq!(drops_since(u32::MAX - 1, 3), Some(5));
        assert_eq!(drops_since(7, 7), Some(0));
        assert_eq!(drops_since(7, 6), None);
    }

    #[test]
    fn no_time_and_negative_time_are_no_interval() {
        for (before, now) in [(5.0, 5.0), (5.0, 4.0), (5.0, f64::NAN), (f64::INFINITY, 5.0)] {
            assert_eq!(interval(before, now), None);
        }
        assert_eq!(interval(5.0, 3605.0), Some(3600.0), "a suspended machine");
    }

    #[test]
    fn a_syn_that_nobody_answers_is_no_lost_segment() {
        let mut recent = Recent::default();
        let with_syns = |sent, retransmitted, syns| {
            let mut counters = counters(sent, retransmitted);
            counters.insert("TcpExtTCPSynRetrans".to_owned(), syns);
            counters
        };
        recent.push(&with_syns(0, 0, 0), &with_syns(1_000, 70, 60), 1.0);
        assert_eq!(recent.sum().map(|sum| (sum.sent, sum.retransmitted)), Some((1_000, 10)));
        recent.push(&with_syns(0, 0, 0), &with_syns(1_000, 60, 61), 1.0);
        assert_eq!(recent.sum().map(|sum| sum.retransmitted), Some(10));
    }

    #[test]
    fn segments_are_of_ten_seconds_and_begin_again_with_another_namespace() {
        let mut recent = Recent::default();
        assert_eq!(recent.sum(), None);
        for second in 0..30 {
            recent.push(
                &counters(100 * second, second),
                &counters(100 * second + 100, second + 1),
                1.0,
            );
        }
        let sum = recent.sum().unwrap();
        assert_eq!((sum.sent, sum.retransmitted), (1_000, 10));
        assert!((sum.over_s - 10.0).abs() < 1e-6);
        recent.push(&counters(0, 0), &counters(9, 1), 3_600.0);
        assert_eq!(recent.sum().unwrap().sent, 9, "one long interval stands alone");
        recent.push(&counters(9, 1), &counters(8, 1), 1.0);
        assert_eq!(recent.sum(), None);
        for _ in 0..1_000 {
            recent.push(&counters(0, 0), &counters(1, 0), 0.001);
        }
        assert_eq!(recent.intervals.len(), INTERVALS_MAX);
    }
}
