//! Sentences about what did not go as it should: connects that waited, arms without a success, a
//! load that its time limit ended.

use super::super::causes::waits_matter;
use crate::record::{Arm, HistogramSummary};
use crate::units::{human_count, human_us};

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

/// How many connects waited for a retransmitted SYN, and how long, where that is more than chance.
pub(super) fn waits(arms: &[&Arm]) -> Option<String> {
    let waiting = |arm: &&Arm| waits_matter(arm.rungs.iter().sum(), handshakes(arm));
    let waited_in: Vec<&Arm> = arms.iter().copied().filter(waiting).collect();
    let arm = waited_in.first()?;
    let (waited, of) = (arm.rungs.iter().sum::<u64>(), handshakes(arm));
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
    let which = if of == arm.attempts { "connects" } else { "completed handshakes" };
    let mut text = format!(
        "{}{} of {} {which} waited {long} s for a retransmitted SYN",
        if arms.len() > 1 { format!("In arm {}, ", arm.name) } else { String::new() },
        human_count(waited),
        human_count(of)
    );
    match waited_in.len() {
        1 => {}
        2 => text += "; so did some of 1 other arm",
        more => text += &format!("; so did some of {} other arms", more - 1),
    }
    Some(text + ".")
}

/// How long the faster half took, beside those that waited.
pub(super) fn half(arm: &Arm) -> Option<String> {
    let p50 = arm.histograms.get("connect_us")?.p50?;
    Some(format!("Half of the connections took at most {}.", human_us(p50)))
}

/// Arms in which nothing succeeded: what failed instead.
pub(super) fn none_succeeded(arms: &[&Arm]) -> Option<String> {
    let failed = |arm: &&&Arm| arm.ok == 0 && arm.attempts > 0;
    let arm = arms.iter().find(failed)?;
    let others = arms.iter().filter(failed).count() - 1;
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
        "{} of {} connections succeeded: {}{after}",
        if arms.len() > 1 { format!("In arm {}, none", arm.name) } else { "None".to_owned() },
        human_count(arm.attempts),
        what.join(", ")
    );
    match others {
        0 => {}
        1 => text += "; nor did any of 1 other arm",
        more => text += &format!("; nor did any of {more} other arms"),
    }
    Some(text + ".")
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
        "truncated" => format!("{was} closed after the handshake without a byte"),
        "timeout" => "had no first byte in time".to_owned(),
        "connect-timeout" => format!("{was} not established in time"),
        "connect-refused" => format!("{was} refused"),
        "interrupted" => format!("{was} interrupted"),
        other => format!("failed with {other}"),
    }
}

/// A time limit that nobody asked for, where it ended a load.
pub(super) fn cut(arms: &[&Arm]) -> Option<String> {
    let (arm, limit_s) = arms.iter().find_map(|arm| Some((arm, arm.cut_after_s?)))?;
    Some(format!(
        "{}{} connection{} in {limit_s} s, the time limit; --count, --duration or --max-time sets another.",
        if arms.len() > 1 { format!("In arm {}, ", arm.name) } else { String::new() },
        human_count(arm.attempts),
        if arm.attempts == 1 { "" } else { "s" }
    ))
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
    fn connects_that_waited_are_counted_with_their_rungs() {
        let waited = |rungs: [u64; 3], ok| Arm { rungs: rungs.to_vec(), ..arm("a", ok, &[]) };
        let says = |arm: &Arm| waits(&[arm]);
        assert_eq!(
            says(&waited([193, 0, 0], 1_000)).as_deref(),
            Some("193 of 1,000 connects waited 1 s for a retransmitted SYN.")
        );
        assert!(says(&waited([20, 3, 0], 1_000)).unwrap().contains("waited 1 or 2 s"));
        assert!(says(&waited([20, 3, 1], 1_000)).unwrap().contains("waited 1 to 3 s"));
        assert_eq!(says(&waited([10, 0, 0], 1_000)), None, "1 % may be chance");
        assert!(says(&waited([1, 0, 0], 50)).unwrap().starts_with("1 of 50 connects"));
        let (a, b) = (waited([193, 0, 0], 1_000), arm("b", 1_000, &[]));
        let both = waits(&[&b, &a]).unwrap();
        assert!(both.starts_with("In arm a, 193 of 1,000 connects waited 1 s"), "{both}");
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
                "None of 8 connections succeeded: 7 were not established in time, 1 had no first byte in time."
            )
        );
        assert_eq!(none_succeeded(&[&arm("a", 1, &[("reset", 9)])]), None);
    }

    #[test]
    fn a_load_that_its_time_limit_ended_says_how_far_it_came() {
        let cut_arm = Arm { cut_after_s: Some(10.0), ..arm("a", 823, &[]) };
        let text = cut(&[&cut_arm]).unwrap();
        assert!(text.starts_with("823 connections in 10 s, the time limit"), "{text}");
        assert_eq!(cut(&[&arm("a", 1_000, &[])]), None);
    }
}
