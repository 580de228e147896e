//! What kept local ports available in an arm, or when did they run out? From what was counted.

use tcptoll_core::record::{Arm, PortUse};
use tcptoll_core::units::human_count;

/// With fewer connections than this share of the operations, connections are long-lived.
const LONG_LIVED: f64 = 0.1;

/// What kept ports available.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Supply {
    /// Nothing: calls failed for want of a port, the first one after this time, s.
    RanOut(Option<f64>),
    /// Connections were kept open: this number of them.
    LongLived(u64),
    /// `net.ipv4.tcp_tw_reuse`: this number of ports was taken over from TIME-WAIT.
    Reused(u64),
    /// `net.ipv4.tcp_max_tw_buckets`: this number of connections ended without TIME-WAIT.
    Ended(u64),
    /// The server closes first: this number of sockets is in TIME-WAIT there.
    ServerKeeps(u64),
    /// The run ended before: ports that were left.
    Left(u64),
}

impl Supply {
    /// Of an arm; `None` if it did not record its use of ports, or if nothing is known.
    pub(super) fn from_arm(arm: &Arm) -> Option<Self> {
        let used = arm.own.port_use.as_deref().filter(|_| arm.failure.is_none())?;
        if arm.errors.get("local-ports").is_some_and(|count| *count > 0) {
            return Some(Self::RanOut(first_failure_s(used)));
        }
        let connections = arm.connections_ok?;
        if (connections as f64) < arm.ok as f64 * LONG_LIVED {
            return Some(Self::LongLived(connections));
        }
        if used.time_wait_reused > 0 {
            return Some(Self::Reused(used.time_wait_reused));
        }
        if used.time_wait_overflows > 0 {
            return Some(Self::Ended(used.time_wait_overflows));
        }
        if used.server_time_wait > used.client_time_wait {
            return Some(Self::ServerKeeps(used.server_time_wait));
        }
        let all = arm.ports.as_ref()?.at_once;
        all.checked_sub(used.client_time_wait).map(Self::Left)
    }

    /// A clause: `server closes first: 2,000 in TIME-WAIT there`.
    pub(super) fn words(self, arm: &Arm) -> String {
        let expected = arm.own.port_use.as_ref().and_then(|used| used.lasts_expected_s);
        match self {
            Self::RanOut(after) => {
                let after = after.map_or_else(String::new, |s| format!(" after {s:.1} s"));
                let expected =
                    expected.map_or_else(String::new, |s| format!(" (expected {s:.1} s)"));
                format!("nothing: used up{after}{expected}")
            }
            Self::LongLived(connections) => format!(
                "long-lived: {} connections for {} operations",
                human_count(connections),
                human_count(arm.ok)
            ),
            Self::Reused(ports) => {
                format!("tcp_tw_reuse: {} ports reused", human_count(ports))
            }
            Self::Ended(sockets) => {
                format!("tcp_max_tw_buckets: {} without TIME-WAIT", human_count(sockets))
            }
            Self::ServerKeeps(sockets) => {
                format!("server closes first: {} in TIME-WAIT there", human_count(sockets))
            }
            Self::Left(ports) => {
                let expected =
                    expected.map_or_else(String::new, |s| format!(", expected to last {s:.1} s"));
                format!("not used up: {} left{expected}", human_count(ports))
            }
        }
    }
}

/// When the first call found no port, s.
fn first_failure_s(used: &PortUse) -> Option<f64> {
    let failed = used.failed_per_s.points.iter().find(|[_, _, mean, _]| *mean > 0.0);
    failed.map(|[at, ..]| *at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::stats::Series;
    use tcptoll_core::tcp::ports::PortForecast;

    fn arm(used: PortUse) -> Arm {
        let ports = PortForecast { at_once: 28_232, ..PortForecast::default() };
        let own = Box::new(used).into();
        Arm { ok: 1_000, connections_ok: Some(1_000), ports: Some(ports), own, ..Arm::default() }
    }

    #[test]
    fn what_was_counted_says_what_kept_ports_available() {
        let words = |used: PortUse| {
            let arm = arm(used);
            Supply::from_arm(&arm).unwrap().words(&arm)
        };
        let reused =
            PortUse { time_wait_reused: 7_000, client_time_wait: 2_000, ..PortUse::default() };
        assert_eq!(words(reused), "tcp_tw_reuse: 7,000 ports reused");
        let server = PortUse { server_time_wait: 1_000, ..PortUse::default() };
        assert_eq!(words(server), "server closes first: 1,000 in TIME-WAIT there");
        let ended =
            PortUse { time_wait_overflows: 900, client_time_wait: 100, ..PortUse::default() };
        assert_eq!(words(ended), "tcp_max_tw_buckets: 900 without TIME-WAIT");
        let left = PortUse {
            client_time_wait: 28_000,
            lasts_expected_s: Some(14.116),
            ..PortUse::default()
        };
        assert_eq!(words(left), "not used up: 232 left, expected to last 14.1 s");
    }

    #[test]
    fn ports_that_ran_out_did_so_when_the_first_call_failed() {
        let failed_per_s = Series {
            points: vec![[0.0, 0.0, 0.0, 0.0], [14.2, 0.0, 3.0, 9.0], [14.4, 9.0, 9.0, 9.0]],
        };
        let lasts_expected_s = Some(14.116);
        let mut arm = arm(PortUse { lasts_expected_s, failed_per_s, ..PortUse::default() });
        arm.errors.insert("local-ports".into(), 12);
        let supply = Supply::from_arm(&arm).unwrap();
        assert_eq!(supply, Supply::RanOut(Some(14.2)));
        assert_eq!(supply.words(&arm), "nothing: used up after 14.2 s (expected 14.1 s)");
    }

    #[test]
    fn few_connections_for_many_operations_are_long_lived() {
        let mut arm = arm(PortUse::default());
        arm.connections_ok = Some(4);
        assert_eq!(Supply::from_arm(&arm), Some(Supply::LongLived(4)));
        assert_eq!(Supply::from_arm(&Arm::default()), None);
    }
}
