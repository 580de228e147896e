//! Published figures beside ours.

use tcptoll_model::experiments::names;
use tcptoll_model::record::{Arm, Summary};

use crate::{figures, number, rounds};

/// A published figure beside ours.
#[derive(Clone, Debug)]
pub(crate) struct Beside<'a> {
    /// The arm.
    pub(crate) arm: &'a str,
    /// The metric in words.
    pub(crate) metric: String,
    /// Ours with its unit; with the standard deviation of rounds, where theirs has one.
    pub(crate) ours: String,
    /// Theirs with its unit, and its standard deviation if the source states one.
    pub(crate) published: String,
    /// Whether theirs has a standard deviation.
    pub(crate) has_sd: bool,
    /// Ours / theirs.
    pub(crate) ratio: Option<f64>,
    /// Where it was published.
    pub(crate) source: &'a str,
    /// What the source says of it.
    pub(crate) note: Option<&'a str>,
}

/// Published figures beside ours, in the order of the study.
pub(crate) fn of(summary: &Summary) -> Vec<Beside<'_>> {
    let row = |p| {
        let p: &tcptoll_model::record::Published = p;
        let arm = summary.arms.iter().find(|arm| arm.name == p.arm);
        let ours = arm.and_then(|arm| figures::value_of(arm, &p.metric));
        let unit = ours.map_or_else(|| names::unit_of_metric(&p.metric), |(_, unit)| unit);
        Beside {
            arm: &p.arm,
            metric: names::words_of_metric(&p.metric),
            ours: ours.map_or_else(
                || number::ABSENT.to_owned(),
                |(value, _)| with_sd(value, p.sd.and(sd_of_rounds(arm, &p.metric)), unit),
            ),
            published: with_sd(p.value, p.sd, unit),
            has_sd: p.sd.is_some(),
            ratio: ours.filter(|_| p.value > 0.0).map(|(value, _)| value / p.value),
            source: &p.source,
            note: p.note.as_deref(),
        }
    };
    summary.published.iter().map(row).collect()
}

/// A figure with its standard deviation, if there is one: `13,577 ± 303 /s`.
fn with_sd(value: f64, sd: Option<f64>, unit: &str) -> String {
    match sd {
        None => number::metric(value, unit),
        Some(sd) if unit == "1/s" => {
            format!("{} ± {} /s", number::three(value), number::three(sd))
        }
        Some(sd) => format!("{} ± {}", number::metric(value, unit), number::metric(sd, unit)),
    }
}

/// Standard deviation of a metric over the rounds that count; at least two.
fn sd_of_rounds(arm: Option<&Arm>, metric: &str) -> Option<f64> {
    let counted = |round| rounds::counted(round, metric);
    let values: Vec<f64> = arm?.rounds.iter().filter_map(counted).collect();
    tcptoll_model::stats::sample::sd(&values)
}

/// What the figures after a ± are, where published ones have them.
pub(crate) fn about_sd(rows: &[Beside<'_>]) -> Option<String> {
    let mut with_sd = rows.iter().filter(|row| row.has_sd).peekable();
    with_sd.peek()?;
    let note = with_sd.find_map(|row| row.note);
    let theirs = note.map(|note| format!(" ({note})")).unwrap_or_default();
    Some(format!("± is the standard deviation: ours of rounds, theirs as published{theirs}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_standard_deviation_has_ours_of_rounds_beside_it() {
        let round = |value: f64, left_out: Option<&str>| tcptoll_model::record::Round {
            metrics: [("requests_per_s".to_owned(), value)].into(),
            left_out: left_out.map(str::to_owned),
            ..tcptoll_model::record::Round::default()
        };
        // Of 15,800, 16,200 and 16,600 the standard deviation is 400; the round left out is not in it.
        let rounds = [(15_800.0, None), (16_200.0, None), (9.0, Some("late")), (16_600.0, None)];
        let arm = Arm { rounds: rounds.map(|(v, l)| round(v, l)).to_vec(), ..Arm::default() };
        let sd = sd_of_rounds(Some(&arm), "requests_per_s");
        assert_eq!(sd, Some(400.0));
        assert_eq!(with_sd(16_200.0, sd, "1/s"), "16,200 ± 400 /s");
        assert_eq!(with_sd(1_500.0, Some(20.0), "us"), "1.50 ms ± 20.0 µs");
        assert_eq!(with_sd(13_577.0, None, "1/s"), "13,577 /s");
        assert_eq!(sd_of_rounds(None, "requests_per_s"), None);
    }
}
