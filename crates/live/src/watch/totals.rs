//! Counters of a namespace since it began: what a system that makes rates itself wants.

use tcptoll_core::tcp::counters::Counters;

/// Counters that a watch follows. Absent: this kernel does not report the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections opened from here (`TcpActiveOpens`).
    pub active_opens: Option<u64>,
    /// Connections accepted by the kernel (`TcpPassiveOpens`).
    pub passive_opens: Option<u64>,
    /// Connections that failed before they were established (`TcpAttemptFails`).
    pub failed_opens: Option<u64>,
    /// Segments sent, retransmissions not included (`TcpOutSegs`).
    pub segments_out: Option<u64>,
    /// Segments retransmitted (`TcpRetransSegs`).
    pub retransmitted: Option<u64>,
    /// Retransmission timers that expired (`TcpExtTCPTimeouts`).
    pub timeouts: Option<u64>,
    /// SYNs and SYN-ACKs retransmitted (`TcpExtTCPSynRetrans`).
    pub syns_retransmitted: Option<u64>,
    /// SYNs and ACKs that met a full accept queue (`TcpExtListenOverflows`).
    pub overflows: Option<u64>,
    /// Everything that listeners dropped (`TcpExtListenDrops`).
    pub drops: Option<u64>,
    /// SYN cookies sent (`TcpExtSyncookiesSent`).
    pub cookies_sent: Option<u64>,
    /// SYNs dropped because the SYN queue was full without cookies (`TcpExtTCPReqQFullDrop`).
    pub syns_dropped: Option<u64>,
    /// Connections reset (`TcpEstabResets`).
    pub resets: Option<u64>,
    /// Connections closed for want of memory (`TcpExtTCPAbortOnMemory`).
    pub aborted_for_memory: Option<u64>,
    /// TIME-WAIT that ended early at `tcp_max_tw_buckets` (`TcpExtTCPTimeWaitOverflow`).
    pub time_wait_overflows: Option<u64>,
}

impl Totals {
    /// Those of a reading. A negative count is no count: absent.
    pub fn from_counters(counters: &Counters) -> Self {
        let total = |name: &str| u64::try_from(*counters.get(name)?).ok();
        Self {
            active_opens: total("TcpActiveOpens"),
            passive_opens: total("TcpPassiveOpens"),
            failed_opens: total("TcpAttemptFails"),
            segments_out: total("TcpOutSegs"),
            retransmitted: total("TcpRetransSegs"),
            timeouts: total("TcpExtTCPTimeouts"),
            syns_retransmitted: total("TcpExtTCPSynRetrans"),
            overflows: total("TcpExtListenOverflows"),
            drops: total("TcpExtListenDrops"),
            cookies_sent: total("TcpExtSyncookiesSent"),
            syns_dropped: total("TcpExtTCPReqQFullDrop"),
            resets: total("TcpEstabResets"),
            aborted_for_memory: total("TcpExtTCPAbortOnMemory"),
            time_wait_overflows: total("TcpExtTCPTimeWaitOverflow"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_not_reported_is_absent_and_zero_is_zero() {
        let counters = Counters::from([
            ("TcpExtListenOverflows".to_owned(), 0),
            ("TcpOutSegs".to_owned(), 7),
            ("TcpEstabResets".to_owned(), -1),
        ]);
        let totals = Totals::from_counters(&counters);
        assert_eq!((totals.overflows, totals.segments_out), (Some(0), Some(7)));
        assert_eq!((totals.drops, totals.resets), (None, None));
    }
}
