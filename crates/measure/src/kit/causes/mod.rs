//! Named explanations, found in counters and latencies; each with the evidence it rests on.
//!
//! Here are those that several experiments have; those of one experiment are in its folder, and
//! its description lists all that it may name. `docs/causes.md` says what each means and how to
//! fix it.

pub(crate) mod ports;
pub(crate) mod queues;

use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::record::{Arm, Cause};

/// Those of the causes that the arm's evidence supports, in the order of the list.
pub(crate) fn supported(arm: &Arm, causes: &[&CauseSpec]) -> Vec<Cause> {
    causes.iter().filter_map(|cause| cause.explain(arm)).collect()
}

#[cfg(test)]
mod tests {
    use super::queues::{ACCEPT_QUEUE_FULL, SYN_QUEUE_FULL};
    use super::*;
    use tcptoll_core::record::{HostSummary, Listener};

    const QUEUES: &[&CauseSpec] = &[&ACCEPT_QUEUE_FULL, &SYN_QUEUE_FULL];

    fn arm(counters: &[(&str, i64)], peak: u32) -> Arm {
        Arm {
            name: "a".into(),
            server: Some(HostSummary {
                counters: counters.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
                listeners: vec![Listener {
                    address: "10.77.0.2".into(),
                    port: 80,
                    accept_queue_peak: peak,
                    accept_queue_limit: 16,
                    syn_queue_peak: None,
                }],
                ..HostSummary::default()
            }),
            ..Arm::default()
        }
    }

    /// The causes of an arm where `waited` handshakes waited for the first retransmission.
    fn causes(arm: Arm, waited: u64) -> Vec<Cause> {
        let arm = Arm { syn_retry_ladder_s: vec![1.0, 2.0], rungs: vec![waited, 0], ..arm };
        supported(&arm, QUEUES)
    }

    #[test]
    fn overflows_and_a_ladder_are_a_full_accept_queue() {
        let arm = arm(&[("TcpExtListenOverflows", 482), ("TcpExtListenDrops", 482)], 17);
        let found = causes(arm, 482);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].id, "accept-queue-full");
        assert!(found[0].text.contains("482 at 1 s"), "{}", found[0].text);
        assert_eq!(found[0].evidence["TcpExtListenOverflows"], 482);
    }

    #[test]
    fn with_cookies_off_the_counter_that_counts_is_another() {
        let found = causes(arm(&[("TcpExtTCPReqQFullDrop", 482)], 16), 482);
        assert_eq!(found.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["syn-queue-full"]);
    }

    #[test]
    fn a_queue_that_was_full_without_anyone_waiting_is_no_cause() {
        assert!(causes(arm(&[], 17), 0).is_empty());
    }

    #[test]
    fn lost_syns_on_the_ladder_are_not_blamed_on_a_queue() {
        assert!(causes(arm(&[], 3), 9).is_empty());
    }
}
