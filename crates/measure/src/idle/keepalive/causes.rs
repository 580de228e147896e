//! Causes of a run of idle connections, above all a dead peer that was not detected.

use std::collections::BTreeMap;

use serde_json::Value;

use super::advice;
use crate::kit::causes::ports::LOCAL_PORTS_SCARCE;
use crate::kit::causes::queues::{ACCEPT_QUEUE_FULL, SYN_QUEUE_FULL};
use tcptoll_core::experiment::spec::{CauseSpec, Finding, Remedy};
use tcptoll_core::record::{Arm, Deaths};
use tcptoll_core::tcp::checking::{Checking, Evidence, Mechanism};
use tcptoll_core::units::{human_count, human_us};

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] =
    &[&ACCEPT_QUEUE_FULL, &SYN_QUEUE_FULL, &LOCAL_PORTS_SCARCE, &DEAD_PEER_UNNOTICED];

/// Peers died, and this was not detected.
const DEAD_PEER_UNNOTICED: CauseSpec = CauseSpec {
    id: advice::UNNOTICED,
    test: dead_peer_unnoticed,
    remedy: Remedy::Computed(advice::advise),
};

/// Connections died, and some of them were not detected before watching ended.
fn dead_peer_unnoticed(arm: &Arm) -> Option<Finding> {
    let keepalive = arm.own.keepalive.as_ref()?;
    let deaths = keepalive.deaths.as_ref().filter(|deaths| deaths.known < deaths.dead)?;
    let evidence = BTreeMap::from([
        ("fault".to_owned(), Value::from(deaths.fault.clone())),
        ("dead".to_owned(), Value::from(deaths.dead)),
        ("known".to_owned(), Value::from(deaths.known)),
        ("watched_s".to_owned(), Value::from(deaths.watched_s)),
    ]);
    let why = why(&keepalive.checking, deaths);
    let text = format!(
        "{} of {} dead connections were not detected within {}: {why}.",
        human_count(deaths.dead - deaths.known),
        human_count(deaths.dead),
        human_us(deaths.watched_s * 1e6)
    );
    Some(Finding { text, evidence })
}

/// Why a mechanism does not detect such a death, one clause.
fn why(checking: &Checking, deaths: &Deaths) -> String {
    let frozen = deaths.fault == "freeze";
    let by_kernel = checking.evidence != Some(Evidence::Answered);
    match checking.mechanism {
        Mechanism::None => "nothing is sent that could fail".to_owned(),
        Mechanism::Tcp if frozen => "the stopped peer's kernel answers probes".to_owned(),
        Mechanism::Heartbeat | Mechanism::Lazy if frozen && by_kernel => {
            "the stopped peer's kernel acknowledges heartbeats".to_owned()
        }
        Mechanism::Write if frozen => {
            "the stopped peer's kernel acknowledges written data until its receive buffer is full"
                .to_owned()
        }
        Mechanism::Lazy if deaths.arrivals == 0 => {
            "no new connection needed their places".to_owned()
        }
        Mechanism::Lazy => "too few new connections needed their places".to_owned(),
        _ => match deaths.bound_s.filter(|bound| *bound > deaths.watched_s) {
            Some(bound) if checking.mechanism == Mechanism::Write => format!(
                "the kernel still retransmits, for up to {} after the death (computed)",
                human_us(bound * 1e6)
            ),
            Some(bound) => format!("detection takes up to {} (computed)", human_us(bound * 1e6)),
            None => "detection was due, but did not come; look at the packets (--pcap)".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::record::Keepalive;

    fn cause(checking: Checking, deaths: Deaths) -> Option<Finding> {
        let keepalive = Keepalive { checking, deaths: Some(deaths), ..Keepalive::default() };
        dead_peer_unnoticed(&Arm { own: keepalive.into(), ..Arm::default() })
    }

    fn dead(fault: &str, known: u64) -> Deaths {
        Deaths { fault: fault.into(), dead: 100, known, watched_s: 5.0, ..Deaths::default() }
    }

    fn checking(mechanism: Mechanism) -> Checking {
        Checking { mechanism, ..Checking::default() }
    }

    #[test]
    fn deaths_that_were_all_detected_are_no_cause() {
        assert_eq!(cause(checking(Mechanism::Tcp), dead("cut", 100)), None);
        assert_eq!(dead_peer_unnoticed(&Arm::default()), None);
    }

    #[test]
    fn a_side_that_sends_nothing_detects_nothing() {
        let cause = cause(checking(Mechanism::None), dead("cut", 0)).unwrap();
        assert_eq!(
            cause.text,
            "100 of 100 dead connections were not detected within 5.00 s: nothing is sent that could fail."
        );
        assert_eq!(cause.evidence["dead"], 100);
    }

    #[test]
    fn the_kernel_of_a_stopped_process_speaks_for_it_unless_the_program_is_asked() {
        let text = |checking| cause(checking, dead("freeze", 0)).unwrap().text;
        assert!(text(checking(Mechanism::Tcp)).contains("kernel answers probes"));
        assert!(text(checking(Mechanism::Heartbeat)).contains("kernel acknowledges heartbeats"));
        let asked =
            Checking { evidence: Some(Evidence::Answered), ..checking(Mechanism::Heartbeat) };
        assert!(!text(asked).contains("kernel"));
    }

    #[test]
    fn a_bound_beyond_the_watched_time_is_stated() {
        let deaths = Deaths { bound_s: Some(925.4), ..dead("cut", 0) };
        let text = cause(checking(Mechanism::Write), deaths).unwrap().text;
        assert!(text.contains("retransmits, for up to 925 s after the death"), "{text}");
    }
}
