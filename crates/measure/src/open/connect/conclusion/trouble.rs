//! Sentences about what did not go as it should: handshakes that waited, arms without a success, a
//! load that its time limit ended.

use super::super::causes::waits_matter;
use crate::kit::conclusion::{capital, in_arm};
use tcptoll_core::record::Arm;
use tcptoll_core::stats::HistogramSummary;
use tcptoll_core::units::{human_count, human_us, plural};

/// Classes of failures before the handshake was complete.
const BEFORE: [&str; 7] = [
    "bind",
    "connect-refused",
    "connect-timeout",
    "local-fds",
    "local-memory",
    "local-ports",
    "unreachable",
];

fn count_of(arm: &Arm, histogram: &str) -> u64 {
    arm.histograms.get(histogram).map_or(0, |histogram| histogram.count)
}

/// Handshakes that were completed, those of connections that failed later too.
fn handshakes(arm: &Arm) -> u64 {
    count_of(arm, "connect_us") + count_of(arm, "connect_of_failed_us")
}

/// How many handshakes waited for a retransmitted SYN, and how long, where that is more than chance.
pub(super) fn waits(arm: &Arm) -> Option<String> {
    let (waited, all) = (arm.rungs.iter().sum::<u64>(), handshakes(arm));
    if !waits_matter(waited, all) {
        return None;
    }
    let at: Vec<String> = arm
        .syn_retry_ladder_s
        .iter()
        .zip(&arm.rungs)
        .filter(|(_, count)| **count > 0)
        .map(|(at, _)| at.to_string())
        .collect();
    let long = match at.as_slice() {
        [] => return None,
        [only] => only.clone(),
        [first, second] => format!("{first} or {second}"),
        [first, .., last] => format!("{first} to {last}"),
    };
    let which = if all == arm.attempts { "handshakes" } else { "completed handshakes" };
    Some(format!(
        "{} of {} {which} waited {long} s for a retransmitted SYN",
        human_count(waited),
        human_count(all)
    ))
}

/// The median, next to the handshakes that waited.
pub(super) fn half(arm: &Arm) -> Option<String> {
    let p50 = arm.histograms.get("connect_us")?.p50?;
    Some(format!("The median connect latency is {}.", human_us(p50)))
}

/// Arms in which nothing succeeded: what failed instead.
pub(super) fn none_succeeded(arms: &[&Arm]) -> Option<String> {
    let failed = |arm: &&&Arm| arm.ok == 0 && arm.attempts > 0;
    let arm = arms.iter().find(failed)?;
    let others = arms.iter().filter(failed).count() as u64 - 1;
    let mut classes: Vec<(&str, u64)> = arm
        .errors
        .iter()
        .map(|(class, count)| (class.as_str(), *count))
        .filter(|(_, count)| *count > 0)
        .collect();
    classes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let of_class = |(class, count): &(&str, u64)| {
        format!("{} {}", human_count(*count), words(class, *count == 1))
    };
    let what: Vec<String> = classes.iter().map(of_class).collect();
    // Whoever resets first may be faster than the client's look at its handshake: its time is stated
    // where that of all is known.
    let later: u64 =
        classes.iter().filter(|(class, _)| !BEFORE.contains(class)).map(|(_, n)| n).sum();
    let handshake = arm.histograms.get("connect_of_failed_us");
    let after = handshake.filter(|h| later > 0 && h.count == later).and_then(typical);
    let after = match after {
        Some(us) if later == arm.attempts => format!(" ({})", human_us(us)),
        _ => String::new(),
    };
    let mut text = format!(
        "{}none of {} connections succeeded: {}{after}",
        in_arm(arms.len() > 1, arm),
        human_count(arm.attempts),
        what.join(", ")
    );
    if others > 0 {
        text += &format!("; none succeeded in {} either", plural(others, "other arm"));
    }
    Some(capital(&text) + ".")
}

fn typical(histogram: &HistogramSummary) -> Option<f64> {
    histogram.p50.or(histogram.mean)
}

/// What became of a connection, after its number.
fn words(class: &str, is_one: bool) -> String {
    let was = if is_one { "was" } else { "were" };
    match class {
        // A RST that answers a SYN is a refusal: a reset comes later.
        "reset" => format!("{was} reset after the handshake"),
        "truncated" => format!("{was} closed after the handshake without any data"),
        "timeout" => "timed out before the first byte".to_owned(),
        "connect-timeout" => "timed out during the handshake".to_owned(),
        "connect-refused" => format!("{was} refused"),
        "interrupted" => format!("{was} interrupted"),
        other => format!("failed with {other}"),
    }
}

/// A time limit that nobody asked for, where it ended a load.
pub(super) fn cut(arms: &[&Arm]) -> Option<String> {
    let (arm, limit_s) = arms.iter().find_map(|arm| Some((arm, arm.cut_after_s?)))?;
    let text = format!(
        "{}the time limit of {limit_s} s stopped the load after {}; --count, --duration or --max-time \
         changes it.",
        in_arm(arms.len() > 1, arm),
        plural(arm.attempts, "connection")
    );
    Some(capital(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(count: u64, p50: f64) -> HistogramSummary {
        HistogramSummary { count, p50: Some(p50), ..HistogramSummary::default() }
    }

    fn arm(name: &str, ok: u64, failed: &[(&str, u64)]) -> Arm {
        let errors: u64 = failed.iter().map(|(_, count)| count).sum();
        Arm {
            name: name.into(),
            attempts: ok + errors,
            ok,
            errors: failed.iter().map(|(class, n)| ((*class).to_owned(), *n)).collect(),
            histograms: [("connect_us".to_owned(), histogram(ok, 21.3))].into(),
            syn_retry_ladder_s: vec![1.0, 2.0, 3.0],
            ..Arm::default()
        }
    }

    #[test]
    fn handshakes_that_waited_are_counted_with_their_rungs() {
        let waited = |rungs: [u64; 3], ok| Arm { rungs: rungs.to_vec(), ..arm("a", ok, &[]) };
        assert_eq!(
            waits(&waited([193, 0, 0], 1_000)).as_deref(),
            Some("193 of 1,000 handshakes waited 1 s for a retransmitted SYN")
        );
        assert!(waits(&waited([20, 3, 0], 1_000)).unwrap().contains("waited 1 or 2 s"));
        assert!(waits(&waited([20, 3, 1], 1_000)).unwrap().contains("waited 1 to 3 s"));
        assert_eq!(waits(&waited([10, 0, 0], 1_000)), None, "1 % may be chance");
        assert!(waits(&waited([1, 0, 0], 50)).unwrap().starts_with("1 of 50 handshakes"));
    }

    #[test]
    fn where_nothing_succeeded_the_sentence_says_what_failed() {
        let mut reset = arm("a", 0, &[("reset", 10)]);
        reset.histograms = [("connect_of_failed_us".to_owned(), histogram(10, 83.2))].into();
        assert_eq!(
            none_succeeded(&[&reset]).as_deref(),
            Some("None of 10 connections succeeded: 10 were reset after the handshake (83.2 µs).")
        );
        let unseen = arm("a", 0, &[("reset", 10)]);
        let text = none_succeeded(&[&unseen]).unwrap();
        assert!(text.ends_with("10 were reset after the handshake."), "{text}");
        let mixed = arm("a", 0, &[("connect-timeout", 7), ("timeout", 1)]);
        assert_eq!(
            none_succeeded(&[&mixed]).as_deref(),
            Some(
                "None of 8 connections succeeded: 7 timed out during the handshake, 1 timed out before the first byte."
            )
        );
        assert_eq!(none_succeeded(&[&arm("a", 1, &[("reset", 9)])]), None);
        let both = none_succeeded(&[&unseen, &mixed]).unwrap();
        assert!(both.starts_with("In arm a, none of 10 connections succeeded: "), "{both}");
        assert!(both.ends_with("; none succeeded in 1 other arm either."), "{both}");
    }

    #[test]
    fn a_load_that_its_time_limit_ended_says_how_far_it_came() {
        let cut_arm = Arm { cut_after_s: Some(10.0), ..arm("a", 823, &[]) };
        let text = cut(&[&cut_arm]).unwrap();
        let says = "The time limit of 10 s stopped the load after 823 connections; ";
        assert!(text.starts_with(says), "{text}");
        assert_eq!(cut(&[&arm("a", 1_000, &[])]), None);
    }
}
