//! Causes of slow and failed connections, and the one where nobody can look into the server.
//!
//! Where the server is on this machine, the counters of this machine are the server's: 10 waits, 10
//! `TcpExtListenOverflows`, a queue of 5 of 5. Of a server elsewhere both explanations are named, because the
//! client cannot tell a lost SYN from a dropped one.

use serde_json::Value;

use crate::kit::causes::ports::LOCAL_PORTS_SCARCE;
use crate::kit::causes::queues::{ACCEPT_QUEUE_FULL, SYN_QUEUE_FULL, felt};
use tcptoll_core::experiment::spec::{CauseSpec, Finding, Remedy};
use tcptoll_core::record::Arm;
use tcptoll_core::units::human_count;

/// Below this share of handshakes, chance losses of a network explain the waits.
const SHARE: f64 = 0.01;

/// Of fewer handshakes than this a share says nothing, and every wait counts.
const FEW: u64 = 100;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] =
    &[&ACCEPT_QUEUE_FULL, &SYN_QUEUE_FULL, &SYN_LOST_OR_QUEUE_FULL, &LOCAL_PORTS_SCARCE];

/// SYNs were retransmitted, and the server's counters are out of reach.
const SYN_LOST_OR_QUEUE_FULL: CauseSpec = CauseSpec {
    id: "syn-lost-or-queue-full",
    test: syn_lost_or_queue_full,
    remedy: Remedy::Setting {
        change: "On the server, run `nstat -az TcpExtListenOverflows TcpExtListenDrops TcpExtTCPReqQFullDrop` during the load, and compare Recv-Q with Send-Q in `ss -lnt`. If the counters grow, raise the backlog of listen(2) and net.core.somaxconn, or accept faster. If they do not grow, look for packet loss on the path.",
        cost: "Reading the counters costs nothing. A longer queue costs kernel memory: about 2.7 kB for each connection in the accept queue, about 300 bytes for each half-open request.",
        undo: "Restore the previous backlog and net.core.somaxconn. Both take effect only when the server calls listen(2) again.",
    },
};

/// Whether so many waits are worth a sentence: more than 1 % of the handshakes, or any of fewer
/// than 100.
pub(super) fn waits_matter(waited: u64, handshakes: u64) -> bool {
    waited > 0 && (handshakes < FEW || waited as f64 > handshakes as f64 * SHARE)
}

/// SYNs of this client were retransmitted, and the server's counters are out of reach.
fn syn_lost_or_queue_full(arm: &Arm) -> Option<Finding> {
    if arm.server.is_some() || !arm.client.listeners.is_empty() || arm.syn_retry_ladder_s.is_empty()
    {
        return None;
    }
    let (late, _, ladder) = felt(arm);
    let gave_up = arm.errors.get("connect-timeout").copied().unwrap_or(0);
    let again = arm.client.counters.get("TcpExtTCPSynRetrans").copied().unwrap_or(0);
    if !waits_matter(late + gave_up, arm.attempts) || again <= 0 {
        return None;
    }
    let mut parts = Vec::new();
    if late > 0 {
        let at = ladder.join(", ");
        parts.push(format!("{} waited for a retransmitted SYN ({at})", human_count(late)));
    }
    if gave_up > 0 {
        parts.push(format!("{} timed out during the handshake", human_count(gave_up)));
    }
    let text = format!(
        "Of {} handshakes, {}. Either packets were lost on the path, or the server dropped SYNs because a queue was full. Only the server's counters show which.",
        human_count(arm.attempts),
        parts.join(" and ")
    );
    let evidence = [
        ("TcpExtTCPSynRetrans", Value::from(again)),
        ("handshakes_on_the_ladder", Value::from(late)),
        ("gave_up_connecting", Value::from(gave_up)),
    ];
    Some(Finding { text, evidence: evidence.map(|(name, value)| (name.to_owned(), value)).into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::causes;
    use tcptoll_core::record::{Cause, HostSummary, Listener};

    /// 193 SYNs were retransmitted, and 193 of 1,000 handshakes took a second.
    fn arm() -> Arm {
        Arm {
            name: "a".into(),
            attempts: 1_000,
            ok: 1_000,
            client: HostSummary {
                counters: [("TcpExtTCPSynRetrans".to_owned(), 193)].into(),
                ..HostSummary::default()
            },
            ..Arm::default()
        }
    }

    /// The causes where `waited` handshakes waited for the first retransmission.
    fn found(arm: &Arm, waited: u64) -> Vec<Cause> {
        let arm = arm.clone();
        let ladder = vec![1.0, 2.0];
        causes::supported(&Arm { syn_retry_ladder_s: ladder, rungs: vec![waited, 0], ..arm }, ALL)
    }

    fn ids(arm: &Arm, waited: u64) -> Vec<String> {
        found(arm, waited).into_iter().map(|cause| cause.id).collect()
    }

    #[test]
    fn waits_matter_above_one_percent_or_where_handshakes_are_few() {
        assert!(waits_matter(11, 1_000) && !waits_matter(10, 1_000));
        assert!(waits_matter(1, 99) && !waits_matter(1, 100) && waits_matter(2, 100));
        assert!(!waits_matter(0, 5) && !waits_matter(0, 0));
    }

    #[test]
    fn at_a_server_elsewhere_the_cause_names_both_that_it_may_be() {
        let causes = found(&arm(), 193);
        assert_eq!(causes[0].id, "syn-lost-or-queue-full");
        assert!(causes[0].text.contains("193 waited for a retransmitted SYN (193 at 1 s)"));
        assert_eq!(causes[0].evidence["TcpExtTCPSynRetrans"], 193);
        let gave_up = Arm { errors: [("connect-timeout".to_owned(), 40)].into(), ..arm() };
        assert_eq!(ids(&gave_up, 0), ["syn-lost-or-queue-full"]);
    }

    #[test]
    fn few_waits_or_none_that_the_kernel_counted_are_no_cause() {
        assert!(ids(&arm(), 10).is_empty());
        let uncounted = Arm { client: HostSummary::default(), ..arm() };
        assert!(ids(&uncounted, 193).is_empty());
        assert!(causes::supported(&arm(), ALL).is_empty(), "handshakes were not looked at");
    }

    #[test]
    fn at_a_server_of_this_machine_the_counters_of_this_machine_prove_a_full_queue() {
        let listener = Listener {
            address: "0.0.0.0".into(),
            port: 80,
            accept_queue_peak: 5,
            accept_queue_limit: 4,
            syn_queue_peak: None,
        };
        let mut own = arm();
        own.client.listeners = vec![listener];
        own.client.counters.insert("TcpExtListenOverflows".into(), 193);
        let causes = found(&own, 193);
        assert_eq!(causes.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["accept-queue-full"]);
        assert!(causes[0].text.starts_with("The accept queue (backlog 4) was full"));
        assert_eq!(causes[0].evidence["accept_queue_peak"], 5);
        // Its listener was never full and no SYN was dropped: lost on the way.
        own.client.counters.remove("TcpExtListenOverflows");
        own.client.listeners[0].accept_queue_peak = 1;
        assert!(ids(&own, 193).is_empty());
    }
}
