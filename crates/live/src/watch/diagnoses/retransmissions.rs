//! Segments that are retransmitted.

use super::{evidence, rounded, severity};
use crate::diagnosis::Diagnosis;
use crate::watch::state::State;
use tcptoll_core::units::{human_count, human_share};

pub(super) const ID: &str = "retransmissions";
const SUBJECT: &str = "paths of this host";

/// Retransmissions of the last seconds below which no share is stated: 1 of 3 is no alarm. With 50 counted
/// the share is known to about ±28 % (95 %, of a Poisson count).
const COUNT_MIN: u64 = 50;
/// A share that is named. By Mathis' formula CUBIC and Reno get at most 1.22 / √0.02 = 8.6 segments a round
/// trip.
const SHARE_MIN: f64 = 0.02;
/// A share that harms whatever runs: less than 5.5 segments a round trip.
const SHARE_HARMS: f64 = 0.05;

/// A share of the segments is retransmitted.
pub(super) fn many(state: &State) -> Vec<Diagnosis> {
    let Some(seen) = state.segments else { return Vec::new() };
    let all = seen.sent.saturating_add(seen.retransmitted);
    if seen.retransmitted < COUNT_MIN {
        return Vec::new();
    }
    let share = seen.retransmitted as f64 / all as f64;
    if share < SHARE_MIN {
        return Vec::new();
    }
    // A connection whose last ACK met a full queue is open for its client, which repeats its data.
    let overflows_per_s =
        state.rates.as_ref().map(|rates| rates.overflows_per_s).filter(|per_s| *per_s > 0.0);
    let perhaps =
        if overflows_per_s.is_some() { "; some may have met a full accept queue" } else { "" };
    let text = format!(
        "{} of the segments retransmitted: {} of {} in {:.0} s{perhaps}",
        human_share(share),
        human_count(seen.retransmitted),
        human_count(all),
        seen.over_s
    );
    let syns = state.rates.as_ref().map(|rates| rounded(rates.syns_retransmitted_per_s));
    let evidence = evidence([
        ("retransmitted", Some(seen.retransmitted.into())),
        ("segments", Some(all.into())),
        ("over_s", Some(rounded(seen.over_s))),
        ("share", Some(rounded(share))),
        ("syns_retransmitted_per_s", syns),
        ("accept_queue_overflows_per_s", overflows_per_s.map(rounded)),
    ]);
    vec![Diagnosis {
        id: ID.into(),
        severity: severity(share >= SHARE_HARMS),
        subject: SUBJECT.into(),
        text,
        evidence,
        // The path loses them; no setting of this host does.
        fix: None,
    }]
}
