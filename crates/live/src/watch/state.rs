//! What two looks say together: levels, peaks, rates, and what is wrong.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tcptoll_core::tcp::counters::Counters;

use super::look::{Counted, Limits, LookCost, Process, Unclosed};
use tcptoll_core::finding::Finding;

/// The state of a namespace over one interval. `watch --once --format json` prints one.
///
/// Rates are over `interval_s`, which ends with the look. Peaks are of the whole watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// Wall-clock time of the look, RFC 3339.
    pub time: String,
    /// Time since the watch began, s.
    pub at_s: f64,
    /// Time between the two looks, s. Above the asked interval where the machine was busy.
    pub interval_s: f64,
    /// Host name, as the kernel has it.
    pub host: String,
    /// Time since boot, s.
    pub uptime_s: f64,
    /// What is wrong, problems first. One whose evidence ended stays for some seconds, with
    /// `ended_s_ago` in its evidence.
    pub diagnoses: Vec<Finding>,
    /// Diagnoses that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub diagnoses_left_out: u64,
    /// Listeners, those with a diagnosis or a queue first.
    pub listeners: Vec<ListenerState>,
    /// Listeners that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub listeners_left_out: u64,
    /// Destinations with the most local ports in use.
    pub destinations: Vec<DestinationState>,
    /// Destinations that there was no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub destinations_left_out: u64,
    /// Connections that the peer has closed and a program here has not (CLOSE-WAIT), where there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclosed: Vec<Unclosed>,
    /// Sockets by state, from the newest dump of all sockets.
    pub states: BTreeMap<String, u64>,
    /// Age of that dump at the look, s; absent: none was made yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_age_s: Option<f64>,
    /// Rates of the namespace; absent: the counters did not continue (another namespace, a wrap).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// Counters since the namespace began, for what makes rates itself. Not printed: `rates` are.
    #[serde(skip)]
    pub totals: Totals,
    /// Segments of the last seconds; absent like `rates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Segments>,
    /// Levels now.
    pub counted: Counted,
    /// Limits now.
    pub limits: Limits,
    /// What watching costs.
    pub cost: LookCost,
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde hands it over like this
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde hands it over like this
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A listener over one interval.
///
/// Each listening socket is one entry. Several sockets of one address and port (`SO_REUSEPORT`) each
/// have a queue and a limit of their own, and one may overflow while the others are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerState {
    /// Local address.
    pub address: String,
    /// Local port.
    pub port: u16,
    /// Inode of the socket. It distinguishes sockets of one address and port.
    #[serde(default)]
    pub inode: u64,
    /// Listening sockets of this address and port, this one included: above 1 with `SO_REUSEPORT`.
    #[serde(default)]
    pub sockets: u32,
    /// Its process; absent where it may not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Connections that wait for accept(2) now.
    pub accept_queue_len: u32,
    /// The longest queue of any look since the watch began.
    pub accept_queue_peak: u32,
    /// The longest queue of the looks of the last 5 to 10 s.
    #[serde(default)]
    pub accept_queue_recent_peak: u32,
    /// The backlog after the clamp to `somaxconn`; the queue holds one more.
    pub accept_queue_limit: u32,
    /// Half-open requests at the newest dump of all sockets, `table_age_s` ago; absent if the listener is
    /// newer, or one of several with its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syn_queue_len: Option<u32>,
    /// SYNs and last ACKs that met a full accept queue, per second. Exact where one listener alone
    /// dropped, or none: then it is the host's `TcpExtListenOverflows`. Absent where it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflows_per_s: Option<f64>,
    /// Whether `overflows_per_s` is estimated: several listeners dropped packets, and this one has
    /// its share by `sk_drops`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub overflows_estimated: bool,
    /// Packets that the kernel dropped here, per second (`sk_drops`); absent where the kernel does not
    /// report it, and in the first interval of a new listener. Not each is a fault: it rises once for a
    /// port scan, and once a connection with `TCP_DEFER_ACCEPT` (`deferred` of nginx).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops_per_s: Option<f64>,
    /// Packets dropped here since the watch began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops: Option<u64>,
    /// Of `drops_per_s`, last ACKs that `TCP_DEFER_ACCEPT` ignored, per second: they harm nobody. Exact
    /// where no other listener can have had them: then it is the host's `TcpExtTCPDeferAcceptDrop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred_per_s: Option<f64>,
    /// Whether `deferred_per_s` is an upper bound: several listeners dropped packets.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deferred_at_most: bool,
    /// The accept queue since it was last seen empty; absent with less than two looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands: Option<Box<Standing>>,
}

/// An accept queue at the looks since it was last seen empty: at most ten, 0.9 s or more apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// Looks.
    pub looks: u32,
    /// Time from the first of them to the last, s.
    pub over_s: f64,
    /// The shortest queue of these looks.
    pub shortest: u32,
    /// The longest queue of these looks.
    pub longest: u32,
    /// Looks at which more than 80 % of the limit was in use.
    pub nearly_full: u32,
    /// The queue at the first of them.
    pub first: u32,
    /// The queue at the last of them.
    pub last: u32,
    /// Connections accepted from it meanwhile, at most: all that the kernel established for any listener,
    /// less the growth of this queue. Absent where the counters do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at_most: Option<u64>,
    /// Looks without a pause, up to the last, with ten connections or more in the queue. They may reach
    /// further back than the others.
    pub long_looks: u32,
}

/// A destination in the newest dump.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DestinationState {
    /// Remote address.
    pub address: String,
    /// Remote port.
    pub port: u16,
    /// Local ports in use from the source address that uses the most.
    pub ports_in_use: u32,
    /// Of those, in TIME-WAIT.
    pub time_wait: u32,
    /// Local ports left to that source; absent where the range is not readable. A port in TIME-WAIT is
    /// left where `tcp_tw_reuse` lets connect(2) take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports_left: Option<u32>,
    /// Sockets in SYN-SENT.
    pub syn_sent: u32,
    /// Whether this machine itself is the destination: a listener here answers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub here: bool,
    /// Change of the ports in use, per second, between the two newest dumps; absent before the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports_per_s: Option<f64>,
    /// Time until none is left if they go on to rise like this, s; absent if they do not rise, and where
    /// ports in TIME-WAIT are taken again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_s: Option<f64>,
}

/// Segments of the last seconds: a share needs more than one interval to be worth stating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Segments {
    /// Time that they are of, s: at most 10 s, or one interval where that is longer.
    pub over_s: f64,
    /// Segments sent, retransmissions not included (`TcpOutSegs`).
    pub sent: u64,
    /// Segments retransmitted, SYNs and SYN-ACKs not included (`TcpRetransSegs` less
    /// `TcpExtTCPSynRetrans`).
    pub retransmitted: u64,
}

/// Rates of a namespace, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Connections opened from here (`TcpActiveOpens`).
    pub active_opens_per_s: f64,
    /// Connections accepted by the kernel (`TcpPassiveOpens`).
    pub passive_opens_per_s: f64,
    /// Segments sent (`TcpOutSegs`).
    pub segments_out_per_s: f64,
    /// Segments retransmitted (`TcpRetransSegs`).
    pub retransmitted_per_s: f64,
    /// SYNs retransmitted (`TcpExtTCPSynRetrans`).
    pub syns_retransmitted_per_s: f64,
    /// SYNs and ACKs that met a full accept queue (`TcpExtListenOverflows`).
    pub overflows_per_s: f64,
    /// Everything that listeners dropped (`TcpExtListenDrops`).
    pub drops_per_s: f64,
    /// SYN cookies sent (`TcpExtSyncookiesSent`).
    pub cookies_sent_per_s: f64,
    /// SYNs dropped because the SYN queue was full without cookies (`TcpExtTCPReqQFullDrop`).
    pub syns_dropped_per_s: f64,
    /// Connections reset (`TcpEstabResets`).
    pub resets_per_s: f64,
    /// Connections closed for want of memory (`TcpExtTCPAbortOnMemory`).
    pub aborted_for_memory_per_s: f64,
    /// TIME-WAIT that ended early at `tcp_max_tw_buckets` (`TcpExtTCPTimeWaitOverflow`).
    pub time_wait_overflows_per_s: f64,
    /// Last ACKs that `TCP_DEFER_ACCEPT` ignored (`TcpExtTCPDeferAcceptDrop`). `sk_drops` of the listener
    /// counts each, `TcpExtListenDrops` none.
    #[serde(default)]
    pub deferred_per_s: f64,
    /// Packets that connection tracking dropped, mostly for want of room in its table (`drop` and `early_drop`
    /// of `/proc/net/stat/nf_conntrack`).
    #[serde(default)]
    pub tracking_drops_per_s: f64,
}

impl Rates {
    /// Each rate with the name of what it counts: its field without `_per_s`.
    pub fn named(&self) -> [(&'static str, f64); 13] {
        [
            ("active_opens", self.active_opens_per_s),
            ("passive_opens", self.passive_opens_per_s),
            ("segments_out", self.segments_out_per_s),
            ("retransmitted", self.retransmitted_per_s),
            ("syns_retransmitted", self.syns_retransmitted_per_s),
            ("overflows", self.overflows_per_s),
            ("drops", self.drops_per_s),
            ("cookies_sent", self.cookies_sent_per_s),
            ("syns_dropped", self.syns_dropped_per_s),
            ("resets", self.resets_per_s),
            ("aborted_for_memory", self.aborted_for_memory_per_s),
            ("time_wait_overflows", self.time_wait_overflows_per_s),
            ("deferred", self.deferred_per_s),
        ]
    }
}

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
    pub(crate) fn from_counters(counters: &Counters) -> Self {
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
