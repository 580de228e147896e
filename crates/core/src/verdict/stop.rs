//! When is enough measured, by a study's own rule?

use std::time::Duration;

use crate::number;
use crate::record::{Arm, Comparison, Verdict};
use crate::stats::sequence::ROUNDS_TO_BE_NARROW;
use crate::study::stop::{StopRule, Target};
use crate::units::plural;

impl StopRule {
    /// Why to stop after `done` whole rounds, one clause; `None`: go on.
    ///
    /// `next_round_s` is what another round is expected to take.
    pub fn reached(
        &self,
        done: u32,
        elapsed: Duration,
        next_round_s: f64,
        arms: &[Arm],
        primary_metric: &str,
        comparisons: &[Comparison],
    ) -> Option<String> {
        if done == 0 {
            return None;
        }
        let rounds = plural(done.into(), "round");
        if done >= self.min {
            match self.target {
                Target::Verdicts if all_found(comparisons) => {
                    return Some(format!("every comparison has its verdict after {rounds}"));
                }
                Target::Interval(width)
                    if done as usize >= ROUNDS_TO_BE_NARROW
                        && all_narrow(width, arms, primary_metric, comparisons) =>
                {
                    return Some(format!("every interval is within ±{}", number::percent(width)));
                }
                _ => {}
            }
        }
        if done >= self.max {
            return Some(match self.target {
                Target::Rounds => "as planned".to_owned(),
                _ => format!("the round limit ended the run {}", self.not_reached(done)),
            });
        }
        let limit = self.max_time?;
        let before = || self.not_reached(done);
        (elapsed.as_secs_f64() + next_round_s.max(0.0) > limit.as_secs_f64()).then(|| {
            format!(
                "the time limit of {} ended the run {}",
                number::tick(limit.as_secs_f64(), "s"),
                before()
            )
        })
    }
}

fn all_found(comparisons: &[Comparison]) -> bool {
    !comparisons.is_empty() && comparisons.iter().all(|c| c.verdict != Verdict::NotEnough)
}

/// Whether the intervals of the primary metric, of comparisons if there are any and else of arms,
/// reach at most `width` to each side, each of 15 rounds of its own: an arm that was left out of
/// rounds has fewer than the run.
fn all_narrow(width: f64, arms: &[Arm], metric: &str, comparisons: &[Comparison]) -> bool {
    let seen = |rounds: u64| rounds >= ROUNDS_TO_BE_NARROW as u64;
    let narrow = |value: Option<f64>, ci95: Option<[f64; 2]>| match (value, ci95) {
        (Some(value), Some([low, high])) => {
            value - low <= width * value.abs() && high - value <= width * value.abs()
        }
        _ => false,
    };
    let mut compared = comparisons.iter().filter(|c| c.metric == metric).peekable();
    if compared.peek().is_some() {
        return compared.all(|c| seen(u64::from(c.rounds)) && narrow(c.ratio, c.ci95));
    }
    !arms.is_empty()
        && arms.iter().all(|arm| {
            arm.metrics
                .get(metric)
                .is_some_and(|metric| seen(metric.n) && narrow(Some(metric.value), metric.ci95))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Metric;
    use crate::study::RoundsAsked;
    use crate::study::stop::tests::{asked, rule};

    fn compared(verdict: Verdict, ci95: [f64; 2]) -> Comparison {
        let metric = "m".to_owned();
        Comparison {
            metric,
            ratio: Some(1.0),
            ci95: Some(ci95),
            rounds: 15,
            verdict,
            ..Comparison::default()
        }
    }

    #[test]
    fn verdicts_stop_a_run_once_all_are_found_and_never_before_the_fewest_rounds() {
        let rule = rule(RoundsAsked { min: Some(5), ..asked() }, true);
        let found = compared(Verdict::Higher, [1.1, 1.2]);
        let open = compared(Verdict::NotEnough, [0.9, 1.2]);
        let after = |done, comparisons: &[Comparison]| {
            rule.reached(done, Duration::from_secs(7), 1.0, &[], "m", comparisons)
        };
        assert_eq!(after(4, std::slice::from_ref(&found)), None);
        assert_eq!(after(7, &[found.clone(), open.clone()]), None);
        assert_eq!(
            after(7, &[found.clone(), found]).as_deref(),
            Some("every comparison has its verdict after 7 rounds")
        );
        assert_eq!(
            after(30, &[open]).as_deref(),
            Some("the round limit ended the run before every comparison had its verdict")
        );
    }

    #[test]
    fn a_time_limit_before_the_fewest_rounds_does_not_say_that_verdicts_are_missing() {
        let limited = |target: Option<&str>| {
            let limit = Some("10s".into());
            rule(RoundsAsked { max_time: limit, target: target.map(Into::into), ..asked() }, true)
        };
        let found = compared(Verdict::Higher, [1.1, 1.2]);
        let after = |rule: &StopRule, done| {
            let elapsed = Duration::from_secs(9);
            rule.reached(done, elapsed, 2.0, &[], "m", std::slice::from_ref(&found))
        };
        assert_eq!(
            after(&limited(None), 10).as_deref(),
            Some(
                "the time limit of 10 s ended the run before round 15, the first at which verdicts \
                 can end a run"
            )
        );
        let ci = after(&limited(Some("ci 1%")), 10).unwrap();
        let ends = "before round 15, the first at which intervals can end a run";
        assert!(ci.ends_with(ends), "{ci}");
    }

    #[test]
    fn intervals_stop_a_run_once_the_widest_is_narrow() {
        let rule = rule(RoundsAsked { target: Some("ci 1%".into()), ..asked() }, true);
        let reached = |done, arms: &[Arm], comparisons: &[Comparison]| {
            rule.reached(done, Duration::ZERO, 0.0, arms, "m", comparisons)
        };
        let after = |arms: &[Arm], comparisons: &[Comparison]| reached(15, arms, comparisons);
        let narrow = compared(Verdict::NotEnough, [0.991, 1.009]);
        let wide = compared(Verdict::NotEnough, [0.991, 1.011]);
        let other = Comparison { metric: "other".into(), ..wide.clone() };
        let gaps = Comparison { rounds: 14, ..narrow.clone() };
        assert_eq!(
            reached(20, &[], &[narrow.clone(), gaps]),
            None,
            "a comparison has too few rounds"
        );
        assert_eq!(after(&[], &[narrow.clone(), wide]), None);
        let says = Some("every interval is within ±1 %".to_owned());
        let seen_too_little = reached(14, &[], std::slice::from_ref(&narrow));
        assert_eq!(seen_too_little, None, "a mode may not have been seen yet");
        assert_eq!(after(&[], &[narrow, other]), says, "only the primary metric counts");
        let arm = |n, ci95| Arm {
            metrics: [(
                "m".to_owned(),
                Metric { value: 200.0, unit: "us".into(), ci95, median: None, n },
            )]
            .into(),
            ..Arm::default()
        };
        let sure = Some([198.5, 201.5]);
        assert_eq!(after(&[arm(15, sure), arm(15, None)], &[]), None);
        assert_eq!(reached(20, &[arm(15, sure), arm(14, sure)], &[]), None, "of 14 rounds");
        assert_eq!(after(&[arm(15, sure)], &[]), says);
    }

    #[test]
    fn no_round_begins_that_would_end_after_the_limit_but_the_first_always_runs() {
        let rule = rule(asked(), true);
        let after = |done, s, next| rule.reached(done, Duration::from_secs(s), next, &[], "m", &[]);
        assert_eq!(after(0, 100, 100.0), None);
        assert_eq!(after(3, 40, 20.0), None);
        assert_eq!(
            after(3, 40, 20.5).as_deref(),
            Some(
                "the time limit of 60 s ended the run before round 15, the first at which verdicts \
                 can end a run"
            )
        );
        assert_eq!(
            after(15, 40, 20.5).as_deref(),
            Some("the time limit of 60 s ended the run before every comparison had its verdict")
        );
    }
}
