//! Which trials were excluded, and is the figure of a run that has no other a bound?
//!
//! A client that used up its CPU, or that was late, measured its own limit: the server can do at
//! least that. Alone, such a figure is an answer; against another one it is none.

use std::collections::BTreeMap;

use crate::record::{Excluded, Lasting, Summary, Trial};

/// Trials excluded from verdicts, by arm and reason, in order of running.
#[must_use]
pub fn excluded<'a>(trials: impl IntoIterator<Item = &'a Trial> + Clone) -> Vec<Excluded> {
    let mut trials_of_arm: BTreeMap<&str, u32> = BTreeMap::new();
    for trial in trials.clone() {
        *trials_of_arm.entry(&trial.arm.name).or_default() += 1;
    }
    let mut all: Vec<Excluded> = Vec::new();
    for trial in trials {
        let Some(reason) = &trial.invalid else { continue };
        let arm = &trial.arm.name;
        let same = |one: &&mut Excluded| {
            one.arm == *arm && one.reason == *reason && one.lasting == trial.lasting
        };
        match all.iter_mut().find(same) {
            Some(one) => one.trials += 1,
            None => all.push(Excluded {
                arm: arm.clone(),
                reason: reason.clone(),
                lasting: trial.lasting,
                trials: 1,
                of: trials_of_arm[arm.as_str()],
            }),
        }
    }
    all
}

/// The limit of the client that the figures of a run are: one arm, run once by plan, whose last
/// trial is excluded for nothing else. `None`: they are no bound.
#[must_use]
pub fn limit(summary: &Summary) -> Option<Lasting> {
    let [arm] = summary.arms.as_slice() else { return None };
    let counted = summary.excluded.iter().map(|one| one.trials).sum::<u32>();
    let last = summary.excluded.last()?;
    let is_limit = matches!(last.lasting, Some(Lasting::ClientCpu | Lasting::ClientSchedule));
    let alone = summary.rounds.is_none() && !arm.partial && arm.failure.is_none();
    (is_limit && alone && counted == last.of).then_some(last.lasting?)
}

/// The first words of the answer where the figure is a bound: `rate` is per second, of `what`.
#[must_use]
pub fn sentence(summary: &Summary, metric: &str, what: &str) -> Option<String> {
    let limit = limit(summary)?;
    let rate = summary.arms.first()?.metrics.get(metric)?.value;
    let why = match limit {
        Lasting::ClientCpu => "the client's CPU is the limit",
        Lasting::ClientSchedule => "the client could not keep its schedule",
        Lasting::Shortage => return None,
    };
    let rate = crate::number::count(three_digits(rate));
    Some(format!("At least {rate} {what}/s: {why}."))
}

/// Three significant digits, rounded down: what is a bound must not be rounded up.
fn three_digits(rate: f64) -> u64 {
    let whole = rate.max(0.0) as u64;
    let unit = 10_u64.pow(whole.checked_ilog10().unwrap_or(0).saturating_sub(2));
    whole / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Arm, Metric};

    fn trial(attempt: u32, why: Option<(&str, Option<Lasting>)>) -> Trial {
        let invalid = why.map(|(reason, _)| reason.to_owned());
        let lasting = why.and_then(|(_, lasting)| lasting);
        let arm = Arm { name: "a".to_owned(), ..Arm::default() };
        Trial { attempt, invalid, lasting, arm, ..Trial::default() }
    }

    fn summary(trials: &[Trial], rate: f64) -> Summary {
        let metric = Metric { value: rate, unit: "1/s".to_owned(), ci95: None, median: None, n: 1 };
        let metrics = [("requests_per_s".to_owned(), metric)].into();
        let arm = Arm { name: "a".to_owned(), metrics, ..Arm::default() };
        Summary {
            arms: vec![arm],
            excluded: excluded(trials),
            ..crate::verdict::answer::tests::summary()
        }
    }

    const CPU: Option<(&str, Option<Lasting>)> = Some(("CPU", Some(Lasting::ClientCpu)));
    const STEAL: Option<(&str, Option<Lasting>)> = Some(("steal", None));

    #[test]
    fn reasons_are_counted_by_arm_in_order_of_running() {
        let all = excluded(&[trial(0, STEAL), trial(1, STEAL), trial(2, CPU)]);
        let counts: Vec<_> = all.iter().map(|one| (&*one.reason, one.trials, one.of)).collect();
        assert_eq!(counts, [("steal", 2, 3), ("CPU", 1, 3)]);
    }

    #[test]
    fn one_arm_at_the_clients_limit_has_a_bound() {
        let at_limit = summary(&[trial(0, CPU)], 126_987.0);
        let says = "At least 126,000 requests/s: the client's CPU is the limit.";
        assert_eq!(sentence(&at_limit, "requests_per_s", "requests").as_deref(), Some(says));
        let after_steal = summary(&[trial(0, STEAL), trial(1, CPU)], 1.0);
        assert_eq!(limit(&after_steal), Some(Lasting::ClientCpu));
        let late = Some(("late", Some(Lasting::ClientSchedule)));
        assert_eq!(limit(&summary(&[trial(0, late)], 1.0)), Some(Lasting::ClientSchedule));
    }

    #[test]
    fn what_passes_what_lacks_and_several_arms_are_no_bound() {
        let short = Some(("ports", Some(Lasting::Shortage)));
        for trials in [vec![trial(0, STEAL)], vec![trial(0, short)], vec![trial(0, None)]] {
            assert_eq!(limit(&summary(&trials, 1.0)), None, "{trials:?}");
        }
        let mut several = summary(&[trial(0, CPU)], 1.0);
        several.arms.push(Arm::default());
        assert_eq!(limit(&several), None);
        let mut stopped = summary(&[trial(0, CPU)], 1.0);
        stopped.arms[0].partial = true;
        assert_eq!(limit(&stopped), None);
    }

    #[test]
    fn a_bound_is_rounded_down() {
        assert_eq!(
            [126_987.9, 999.9, 29_950.0, 7.6, 0.0].map(three_digits),
            [126_000, 999, 29_900, 7, 0]
        );
    }
}
