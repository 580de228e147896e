//! Families without a listener or a destination: the namespace, and what watching costs.

use crate::watch::State;
use prometheus_client::registry::Unit;

use super::family::{Family, Kind, Value};
use super::{Metrics, label};

/// Counters since the namespace began.
pub(super) fn totals(state: &State) -> Vec<Family> {
    let totals = &state.totals;
    let counter = |name, help, value: Option<u64>| {
        Family::new(Kind::Counter, name, help).single(value.map(Value::from))
    };
    vec![
        counter(
            "connections_opened",
            "Connections opened from here (TcpActiveOpens).",
            totals.active_opens,
        ),
        counter(
            "connections_accepted",
            "Connections that the kernel accepted (TcpPassiveOpens).",
            totals.passive_opens,
        ),
        counter(
            "connections_failed",
            "Connections that failed before they were established (TcpAttemptFails).",
            totals.failed_opens,
        ),
        counter("connections_reset", "Connections reset (TcpEstabResets).", totals.resets),
        counter(
            "connections_aborted_for_memory",
            "Connections closed for want of memory (TcpExtTCPAbortOnMemory).",
            totals.aborted_for_memory,
        ),
        counter(
            "segments_sent",
            "Segments sent, without retransmissions (TcpOutSegs).",
            totals.segments_out,
        ),
        counter(
            "segments_retransmitted",
            "Segments retransmitted (TcpRetransSegs).",
            totals.retransmitted,
        ),
        counter(
            "syns_retransmitted",
            "SYNs and SYN-ACKs retransmitted (TcpExtTCPSynRetrans).",
            totals.syns_retransmitted,
        ),
        counter(
            "retransmission_timeouts",
            "Retransmission timers that expired (TcpExtTCPTimeouts).",
            totals.timeouts,
        ),
        counter(
            "listen_overflows",
            "SYNs and ACKs that met a full accept queue, of all listeners (TcpExtListenOverflows).",
            totals.overflows,
        ),
        counter(
            "listen_drops",
            "Everything that listeners dropped, overflows included (TcpExtListenDrops).",
            totals.drops,
        ),
        counter(
            "syn_cookies_sent",
            "SYN cookies sent (TcpExtSyncookiesSent).",
            totals.cookies_sent,
        ),
        counter(
            "syns_dropped",
            "SYNs dropped because the SYN queue was full (TcpExtTCPReqQFullDrop).",
            totals.syns_dropped,
        ),
        counter(
            "time_wait_overflows",
            "TIME-WAIT that ended early at tcp_max_tw_buckets (TcpExtTCPTimeWaitOverflow).",
            totals.time_wait_overflows,
        ),
    ]
}

/// Levels and limits now.
pub(super) fn levels(state: &State) -> Vec<Family> {
    let (counted, limits) = (&state.counted, &state.limits);
    let gauge = |name, help| Family::new(Kind::Gauge, name, help);
    let count = |name, help, value: Option<u64>| gauge(name, help).single(value.map(Value::from));
    let bytes = |name, help, value| count(name, help, value).unit(Unit::Bytes);
    let states = state.states.iter();
    let states = states.map(|(name, count)| (vec![("state", label(name))], (*count).into()));
    vec![
        gauge("sockets", "TCP sockets by state, at the newest dump of all sockets.").each(states),
        count("sockets_in_use", "TCP sockets in use (sockstat).", counted.sockets),
        count("time_wait_sockets", "Sockets in TIME-WAIT.", counted.time_wait),
        count(
            "time_wait_sockets_limit",
            "Sockets in TIME-WAIT that the kernel keeps (tcp_max_tw_buckets).",
            limits.max_tw_buckets,
        ),
        count(
            "orphan_sockets",
            "Connections without a process, of the whole machine.",
            counted.orphans,
        ),
        count(
            "orphan_sockets_limit",
            "Connections without a process that the kernel keeps (tcp_max_orphans).",
            limits.max_orphans,
        ),
        bytes("memory", "Memory of TCP, of the whole machine.", counted.memory_bytes),
        bytes(
            "memory_pressure",
            "Memory from which on the kernel saves memory (second figure of tcp_mem).",
            limits.memory_pressure_bytes,
        ),
        bytes(
            "memory_limit",
            "Memory beyond which the kernel refuses memory (third figure of tcp_mem).",
            limits.memory_max_bytes,
        ),
        count(
            "tracked_connections",
            "Entries of the connection tracking table (nf_conntrack_count).",
            counted.tracked,
        ),
        count(
            "tracked_connections_limit",
            "Entries that the connection tracking table holds (nf_conntrack_max).",
            limits.tracked_max,
        ),
        count(
            "local_ports_limit",
            "Local ports that connect(2) may choose, per destination and source.",
            limits.local_ports.map(u64::from),
        ),
        count(
            "somaxconn",
            "Upper limit of a listener's backlog (net.core.somaxconn).",
            limits.somaxconn.map(u64::from),
        ),
    ]
}

/// The watch's own metrics.
pub(super) fn own(state: &State, own: &Metrics) -> Vec<Family> {
    let gauge = |name, help| Family::new(Kind::Gauge, name, help);
    let counter = |name, help| Family::new(Kind::Counter, name, help);
    let version = (vec![("version", label(&own.version))], Value::Count(1));
    vec![
        Family::new(Kind::Info, "build", "Version of tcptoll.").each([version]),
        counter("watch_looks", "Looks that succeeded.").single(Some(own.looks.into())),
        counter("watch_failed_looks", "Looks that failed.").single(Some(own.failed.into())),
        gauge("watch_last_look_timestamp", "Time of the newest look, since the Unix epoch.")
            .unit(Unit::Seconds)
            .single(Some(own.last_look_s.into())),
        gauge("watch_interval", "Time between two looks, as asked.")
            .unit(Unit::Seconds)
            .single(Some(own.interval_s.into())),
        gauge("watch_table_age", "Age of the newest dump of all sockets at the newest look.")
            .unit(Unit::Seconds)
            .single(state.table_age_s.map(Value::from)),
        gauge(
            "watch_table_interval",
            "Time between two dumps of all sockets. It grows with their cost.",
        )
        .unit(Unit::Seconds)
        .single(Some(state.cost.table_every_s.into())),
        counter("watch_cpu", "CPU time of the watch.")
            .unit(Unit::Seconds)
            .single(Some(state.cost.cpu_s.into())),
        gauge("watch_resident_memory", "Resident memory of the watch.")
            .unit(Unit::Bytes)
            .single(Some(state.cost.resident_bytes.into())),
        gauge("watch_listeners_left_out", "Listening sockets that there is no room to export.")
            .single(Some(own.listeners.left_out.into())),
        gauge(
            "watch_destinations_left_out",
            "Destinations that are not exported: few ports in use, or no room.",
        )
        .single(Some(own.destinations.left_out.into())),
        gauge("watch_diagnoses_left_out", "Diagnoses that there is no room to export.")
            .single(Some(own.diagnoses_left_out.into())),
    ]
}
