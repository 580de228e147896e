//! How did the rounds go? The metric they were run for, each arm's values in order of running, why
//! the run ended, and what came before it.

pub use tcptoll_core::experiment::column::metric_of as metric;
use tcptoll_core::experiment::spec::Noun;
use tcptoll_core::record::{Arm, Round};
use tcptoll_core::units::parse_size;

use crate::figures;
use crate::number::{self, Estimate};
use crate::run::Run;

/// A metric of an arm.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Mean over rounds.
    pub value: f64,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// Its unit.
    pub unit: &'a str,
}

/// A metric of each arm, in the reader's unit, which is the same for all.
pub(crate) fn estimates(summary: &Run, metric: &str) -> Vec<Option<Estimate>> {
    let figures: Vec<_> =
        summary.arms.iter().map(|arm| measured(arm, metric).map(|m| (m.value, m.ci95))).collect();
    Estimate::column(&figures, unit(summary, metric))
}

impl Measured<'_> {
    /// In the reader's unit.
    pub(crate) fn estimate(&self) -> Estimate {
        Estimate::new(self.value, self.ci95, self.unit)
    }
}

/// A metric of an arm by name; of a quantile there is no interval.
pub fn measured<'a>(arm: &'a Arm, metric: &str) -> Option<Measured<'a>> {
    let (value, unit) = figures::value_of(arm, metric)?;
    let ci95 = arm.metrics.get(metric).and_then(|m| m.ci95);
    value.is_finite().then_some(Measured { value, ci95, unit })
}

/// Unit of a metric: that of the first arm that has it, or else the one in its name.
pub fn unit<'a>(summary: &'a Run, metric: &str) -> &'a str {
    let known = summary.arms.iter().find_map(|arm| measured(arm, metric));
    known.map_or_else(|| summary.specs.unit_of_metric(&summary.experiment, metric), |m| m.unit)
}

/// Whether there is anything to show in order of running.
pub fn any(summary: &Run) -> bool {
    summary.arms.iter().any(|arm| !arm.rounds.is_empty())
}

/// The value of a round that counts.
pub fn counted(round: &Round, metric: &str) -> Option<f64> {
    let value = round.metrics.get(metric).copied();
    value.filter(|v| v.is_finite() && round.left_out.is_none())
}

/// Least and greatest value of all rounds that count.
pub fn range(summary: &Run, metric: &str) -> Option<(f64, f64)> {
    let values = summary.arms.iter().flat_map(|arm| &arm.rounds);
    values.filter_map(|round| counted(round, metric)).fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((least, most)) => Some((f64::min(least, value), f64::max(most, value))),
    })
}

/// From this ratio on, heights are logarithmic.
const DECADES: f64 = 20.0;

/// How many neighbouring rounds share a mark, so that no arm has more than `columns` of them; 1 at
/// least.
pub(crate) fn per_mark(summary: &Run, columns: usize) -> usize {
    let most = summary.arms.iter().map(|arm| arm.rounds.len()).max().unwrap_or(0);
    most.div_ceil(columns.max(1)).max(1)
}

/// One character per round, or the mean of `per` neighbours.
///
/// A round that does not count is `×`, one without a value `·`.
pub fn sparkline(rounds: &[Round], metric: &str, (least, most): (f64, f64), per: usize) -> String {
    let height = |value: f64| {
        let share = if most <= least {
            0.5
        } else if least > 0.0 && most / least >= DECADES {
            (value / least).ln() / (most / least).ln()
        } else {
            (value - least) / (most - least)
        };
        ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][(share.clamp(0.0, 1.0) * 7.0).round() as usize]
    };
    let mark = |part: &[Round]| {
        let values: Vec<f64> = part.iter().filter_map(|round| counted(round, metric)).collect();
        if !values.is_empty() {
            height(values.iter().sum::<f64>() / values.len() as f64)
        } else if part.iter().any(|round| round.left_out.is_some()) {
            '×'
        } else {
            '·'
        }
    };
    rounds.chunks(per.max(1)).map(mark).collect()
}

/// Why the run ended, and what does not count: `Stopped after 11 rounds, 41 s: … .`
pub fn ending(summary: &Run) -> Option<String> {
    let rounds = summary.rounds.as_ref()?;
    let done = figures::plural(u64::from(rounds.done), "round");
    let at_most = if rounds.done < rounds.most {
        format!(" (of at most {})", number::count(rounds.most))
    } else {
        String::new()
    };
    let why = if rounds.stopped.is_empty() { &rounds.rule } else { &rounds.stopped };
    let why = why.trim_end_matches('.');
    // How many there were stands before it.
    let why = why.strip_suffix(&format!(" after {done}")).unwrap_or(why);
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let took = number::duration(rounds.elapsed_s);
    let mut text = format!("Stopped after {done}{at_most}, {took}{why}.");
    let left_out = [(rounds.excluded, "excluded from verdicts"), (rounds.failed, "failed")];
    let left_out: Vec<String> = left_out
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{} {what}", figures::plural(u64::from(n), "trial")))
        .collect();
    if !left_out.is_empty() {
        text.push_str(&format!(" {}.", left_out.join(", ")));
    }
    Some(text)
}

/// What the warm-up of an arm did, if it had one: `20 connections in 0.4 s, mean 45.1 µs`. Of the
/// distributions in `answers`, the first that it has gives the mean.
pub(crate) fn warmup(arm: &Arm, noun: Noun, answers: &[&str]) -> Option<String> {
    let warmup = arm.warmup.as_ref()?;
    let key = answers.iter().copied().find(|key| warmup.histograms.contains_key(*key));
    let mut text = format!(
        "{} in {}",
        figures::plural(warmup.attempts, noun.one),
        number::duration(warmup.elapsed_s)
    );
    if let Some(mean) = key.and_then(|key| warmup.histograms[key].mean) {
        text.push_str(&format!(", mean {}", number::time(mean)));
    }
    let failed: Vec<String> = warmup
        .errors
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(class, n)| format!("{class} {}", number::count(*n)))
        .collect();
    if !failed.is_empty() {
        text.push_str(&format!(", failed: {}", failed.join(" · ")));
    }
    Some(text)
}

/// Rounds that do not count, each with its arm and reason.
pub fn left_out(summary: &Run) -> Vec<[String; 4]> {
    let rows_of = |arm: &Arm| {
        let rows = arm.rounds.iter().filter_map(|round| {
            Some([
                arm.name.clone(),
                (u64::from(round.round) + 1).to_string(),
                number::duration(round.began_s),
                round.left_out.clone()?,
            ])
        });
        rows.collect::<Vec<_>>()
    };
    summary.arms.iter().flat_map(rows_of).collect()
}

/// A level as a number, where it is one: a size is one of bytes, so `1K` comes after `512`.
pub fn numeric(level: &serde_json::Value) -> Option<f64> {
    let of_text = |text: &str| {
        let size = || parse_size(text).ok().map(|bytes| bytes as f64);
        text.trim().parse().ok().or_else(size)
    };
    let number = level.as_f64().or_else(|| of_text(level.as_str()?));
    number.filter(|n: &f64| n.is_finite())
}

/// A level as it was written, and as the names of arms have it: `4096`, `true`.
pub fn level(level: &serde_json::Value) -> String {
    match level {
        serde_json::Value::Null => number::ABSENT.to_owned(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(value: f64, left_out: bool) -> Round {
        Round {
            left_out: left_out.then(|| "the client was late".to_owned()),
            metrics: [("m".to_owned(), value)].into(),
            ..Round::default()
        }
    }

    #[test]
    fn a_sparkline_runs_from_least_to_greatest_and_marks_what_does_not_count() {
        let rounds = [1.0, 8.0, 4.5, 2.0].map(|v| round(v, (v - 4.5).abs() < 0.1));
        assert_eq!(sparkline(&rounds, "m", (1.0, 8.0), 1), "▁█×▂");
        assert_eq!(sparkline(&rounds, "other", (1.0, 8.0), 1), "··×·");
    }

    #[test]
    fn neighbours_that_share_a_mark_are_averaged() {
        let rounds: Vec<Round> = (0..24).map(|n| round(f64::from(n / 2), false)).collect();
        assert_eq!(sparkline(&rounds, "m", (0.0, 11.0), 2).chars().count(), 12);
        assert_eq!(sparkline(&rounds, "m", (0.0, 11.0), 5).chars().count(), 5);
        assert_eq!(sparkline(&rounds, "m", (3.0, 3.0), 12), "▅▅");
    }
}
