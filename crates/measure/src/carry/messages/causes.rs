//! Causes that a run of messages may name: those of bulk data, and the stall of an exchange.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ACK_DELAY;
use crate::carry::throughput;
use tcptoll_core::experiment::figures::LATENCY;
use tcptoll_core::experiment::spec::{CauseSpec, Finding};
use tcptoll_core::record::{Arm, Sender};
use tcptoll_core::stats::HistogramSummary;
use tcptoll_core::tcp::throughput::quiet_rtt_us;
use tcptoll_core::units::human_us;

/// A delayed ACK adds at least this to an exchange, µs: `TCP_DELACK_MIN` of Linux is 40 ms, and timers
/// of a kernel with 100 ticks a second are up to 10 ms off.
pub(super) const DELAYED_US: f64 = 30e3;

/// Share of the exchanges for which the server's kernel must have delayed an ACK, where the wire was not
/// watched.
const DELAYED_SHARE: f64 = 0.5;

/// A write waits for the ACK of the one before, which the receiver delays. Of messages that nobody
/// answers the arithmetic of bulk data finds it.
const NAGLE_DELAYED_ACK: CauseSpec = CauseSpec {
    test: |arm| exchange(arm).or_else(|| (throughput::NAGLE_DELAYED_ACK.test)(arm)),
    ..throughput::NAGLE_DELAYED_ACK
};

/// The stall of 40 ms.
pub(super) const STALL: &str = NAGLE_DELAYED_ACK.id;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[
    &NAGLE_DELAYED_ACK,
    &throughput::RECEIVE_WINDOW,
    &throughput::SEND_BUFFER,
    &throughput::CONGESTION,
    &throughput::MESSAGE_OVERHEAD,
    &throughput::CLIENT_CPU,
    &throughput::SERVER_CPU,
    &throughput::LINK_RATE,
];

/// The longest that an ACK of the server was delayed on the wire, µs.
pub(super) fn ack_delay_us(arm: &Arm) -> Option<f64> {
    arm.histograms.get(ACK_DELAY.name)?.max
}

/// A typical exchange, µs.
pub(super) fn typical_us(latency: &HistogramSummary) -> Option<f64> {
    latency.p50.or(latency.mean)
}

/// An exchange that waits for a delayed ACK with Nagle's algorithm on.
fn exchange(arm: &Arm) -> Option<Finding> {
    let message = arm.own.message.as_ref().filter(|message| message.response_bytes.is_some())?;
    let transfer = arm.own.transfer.as_ref().filter(|transfer| transfer.nagle)?;
    let latency_us = typical_us(arm.histograms.get(LATENCY.name)?)?;
    let quiet_us = quiet_rtt_us(transfer, &Sender::default()).unwrap_or(0.0);
    if latency_us - quiet_us < DELAYED_US {
        return None;
    }
    let server = arm.server.as_ref();
    let delayed = server.and_then(|host| host.counters.get("TcpExtDelayedACKs")).copied();
    let delayed = delayed.unwrap_or(0).max(0);
    let often = delayed as f64 >= arm.ok as f64 * DELAYED_SHARE;
    let on_the_wire = ack_delay_us(arm);
    // The wire decides where it was watched, the kernel's count where not. Without an ACK alone there is
    // no delay, but it was watched.
    let waited = || on_the_wire.is_some_and(|us| us >= DELAYED_US);
    if !message.acks.map_or(often, |_| waited()) {
        return None;
    }
    let mut evidence = BTreeMap::from([
        ("latency_us".to_owned(), Value::from(latency_us)),
        ("quiet_rtt_us".to_owned(), Value::from(quiet_us)),
        ("writes".to_owned(), Value::from(message.writes.clone())),
        ("TcpExtDelayedACKs".to_owned(), Value::from(delayed)),
    ]);
    let mut text =
        "Nagle's algorithm holds back the last write until the previous one is acknowledged, and \
         the server delays that ACK"
            .to_owned();
    if let Some(acks) = message.acks {
        evidence.insert("delayed_acks".to_owned(), Value::from(acks.delayed));
        evidence.insert("quick_acks".to_owned(), Value::from(acks.quick));
        evidence.insert("acks_with_answers".to_owned(), Value::from(acks.with_answer));
    }
    if let Some(us) = on_the_wire {
        evidence.insert("ack_delay_max_us".to_owned(), Value::from(us));
        text += &format!(" by up to {} on the wire", human_us(us));
    }
    Some(Finding { text: text + ".", evidence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::causes;
    use tcptoll_core::record::{Acks, HostSummary, MessageWay, Transfer};

    fn arm(latency_us: f64, delayed: i64, ack_us: Option<f64>, nagle: bool) -> Arm {
        let histogram = |max| HistogramSummary {
            count: 23,
            p50: Some(max),
            max: Some(max),
            ..HistogramSummary::default()
        };
        let mut arm = Arm { name: "a".into(), attempts: 23, ok: 23, ..Arm::default() };
        arm.histograms.insert("latency_us".into(), histogram(latency_us));
        arm.histograms.extend(ack_us.map(|us| ("ack_delay_us".to_owned(), histogram(us))));
        let counters = [("TcpExtDelayedACKs".to_owned(), delayed)].into();
        arm.server = Some(HostSummary { counters, ..HostSummary::default() });
        arm.own.message = Some(MessageWay {
            pattern: "write-write-read".into(),
            writes: vec![512, 512],
            response_bytes: Some(1_024),
            acks: ack_us.map(|_| Acks::default()),
            ..MessageWay::default()
        });
        arm.own.transfer =
            Some(Transfer { nagle, quiet_rtt_us: Some(75.0), ..Transfer::default() });
        arm
    }

    fn named(arm: &Arm) -> Vec<String> {
        causes::supported(arm, ALL)
            .into_iter()
            .map(|cause| format!("{}: {}", cause.id, cause.text))
            .collect()
    }

    #[test]
    fn an_exchange_that_waits_for_a_delayed_ack_is_named_with_the_delay_on_the_wire() {
        let found = named(&arm(44_000.0, 43, Some(40_100.0), true));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("nagle-delayed-ack: Nagle's algorithm holds"), "{found:?}");
        assert!(found[0].ends_with("up to 40.1 ms on the wire."), "{found:?}");
        // Nobody watched the wire: the kernel's count is the evidence.
        assert_eq!(named(&arm(44_000.0, 43, None, true)).len(), 1);
    }

    #[test]
    fn it_is_not_named_without_nagle_without_a_stall_or_without_delayed_acks() {
        assert!(named(&arm(44_000.0, 43, Some(40_100.0), false)).is_empty(), "Nagle off");
        assert!(named(&arm(20_000.0, 43, Some(40_100.0), true)).is_empty(), "too short");
        assert!(named(&arm(44_000.0, 43, Some(9.0), true)).is_empty(), "the wire knows better");
        assert!(named(&arm(44_000.0, 2, None, true)).is_empty(), "slow for another reason");
    }
}
