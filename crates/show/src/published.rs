//! Published figures beside ours.

use tcptoll_core::record::{Arm, Comparison};
use tcptoll_core::sheet::{Align, Cell, Column, Room, Table};
use tcptoll_core::study::Published;

use crate::run::Run;
use crate::{effect, figures, number, rounds};

/// A published figure beside ours.
#[derive(Clone, Debug)]
pub(crate) struct Beside<'a> {
    /// The arm, or the two of a ratio.
    pub arm: String,
    /// The metric in words.
    pub metric: String,
    /// Ours with its unit; with the standard deviation of rounds, where theirs has one.
    pub ours: String,
    /// The interval of our ratio, or why there is none.
    pub interval: Option<String>,
    /// Theirs with its unit, and its standard deviation if the source states one.
    pub published: String,
    /// Whether theirs has a standard deviation.
    has_sd: bool,
    /// Ours / theirs.
    pub ratio: Option<f64>,
    /// Where it was published.
    pub source: &'a str,
    /// What the source says of it.
    pub note: Option<&'a str>,
}

/// What was published for a metric of an arm, above 0.
pub fn figure<'a>(summary: &'a Run, arm: &str, metric: &str) -> Option<&'a Published> {
    let is_meant = |p: &&Published| p.arm == arm && p.metric == metric;
    summary.published.iter().find(is_meant).filter(|p| p.value.is_finite() && p.value > 0.0)
}

/// The ratio of the published figures of a comparison's arms, and where the first is from.
pub fn ratio<'a>(summary: &'a Run, c: &Comparison) -> Option<(f64, &'a str)> {
    let [a, b] = [&c.a, &c.b].map(|arm| figure(summary, arm, &c.metric));
    let (a, b) = (a?, b?);
    let ratio = a.value / b.value;
    (ratio.is_finite() && ratio > 0.0).then_some((ratio, a.source.as_str()))
}

/// Published figures beside ours as a table. None: nothing was published.
pub(crate) fn table(run: &Run) -> Option<Table> {
    let rows = beside_ours(run);
    if rows.is_empty() {
        return None;
    }
    let columns = vec![
        Column::names("arm"),
        Column::names("metric"),
        Column::new("published", Align::Right),
        Column::new("ours", Align::Right),
        Column { whole: "ours / published".to_owned(), ..Column::new("ours ×", Align::Point) },
        Column::new("source", Align::Left).room(Room::Page),
    ];
    let row = |row: &Beside<'_>| {
        let note = row.note.map_or_else(String::new, |note| format!(" ({note})"));
        let interval = row.interval.clone().unwrap_or_default();
        [
            Cell::from(row.arm.as_str()),
            row.metric.as_str().into(),
            row.published.as_str().into(),
            Cell { interval, ..row.ours.as_str().into() },
            row.ratio.map_or_else(|| number::ABSENT.to_owned(), number::three).into(),
            format!("{}{note}", row.source).into(),
        ]
    };
    let mut sources: Vec<&str> = rows.iter().map(|row| row.source).collect();
    sources.dedup();
    let about = about_sd(&rows).map_or_else(String::new, |about| format!(". {about}"));
    let note = Some(format!("Source: {}{about}", sources.join(" · ")));
    Some(Table { note, ..Table::new(columns, rows.iter().map(row)) })
}

/// Published figures beside ours, in the order of the study; then the ratios of those that are compared.
pub(crate) fn beside_ours(summary: &Run) -> Vec<Beside<'_>> {
    let figures = summary.published.iter().map(|p| figures_of(summary, p));
    let ratios = summary.comparisons.iter().filter_map(|c| ratio_of(summary, c));
    figures.chain(ratios).collect()
}

/// A comparison beside the ratio of what was published.
fn ratio_of<'a>(summary: &'a Run, c: &Comparison) -> Option<Beside<'a>> {
    let (theirs, source) = ratio(summary, c)?;
    let [a, b] = effect::pair(summary, c);
    let per = effect::levels(&c.per);
    let per = if per.is_empty() { per } else { format!(", {per}") };
    Some(Beside {
        arm: format!("{}{per}", effect::slash(&a, &b)),
        metric: format!("ratio of {}", summary.specs.words_of_metric(&c.metric)),
        ours: c.ratio.map_or_else(|| number::ABSENT.to_owned(), |_| effect::ratio(c)[0].clone()),
        interval: Some(
            effect::no_interval(c).map_or_else(|| effect::ratio(c)[1].clone(), str::to_owned),
        ),
        published: number::ratio(theirs),
        has_sd: false,
        ratio: c.ratio.map(|ratio| ratio / theirs),
        source,
        note: None,
    })
}

fn figures_of<'a>(summary: &'a Run, p: &'a Published) -> Beside<'a> {
    let arm = summary.arms.iter().find(|arm| arm.name == p.arm);
    let ours = arm.and_then(|arm| figures::value_of(arm, &p.metric));
    let unit = ours.map_or_else(
        || summary.specs.unit_of_metric(&summary.experiment, &p.metric),
        |(_, unit)| unit,
    );
    Beside {
        arm: p.arm.clone(),
        metric: summary.specs.words_of_metric(&p.metric),
        ours: ours.map_or_else(
            || number::ABSENT.to_owned(),
            |(value, _)| with_sd(value, p.sd.and(sd_of_rounds(arm, &p.metric)), unit),
        ),
        interval: None,
        published: with_sd(p.value, p.sd, unit),
        has_sd: p.sd.is_some(),
        ratio: ours.filter(|_| p.value > 0.0).map(|(value, _)| value / p.value),
        source: &p.source,
        note: p.note.as_deref(),
    }
}

/// A figure with its standard deviation, if there is one: `13,577 ± 303/s`.
fn with_sd(value: f64, sd: Option<f64>, unit: &str) -> String {
    match sd {
        None => number::metric(value, unit),
        Some(sd) if unit == "1/s" => {
            format!("{} ± {}", number::three(value), number::metric(sd, unit))
        }
        Some(sd) => format!("{} ± {}", number::metric(value, unit), number::metric(sd, unit)),
    }
}

/// Standard deviation of a metric over the rounds that count; at least two.
fn sd_of_rounds(arm: Option<&Arm>, metric: &str) -> Option<f64> {
    let counted = |round| rounds::counted(round, metric);
    let values: Vec<f64> = arm?.rounds.iter().filter_map(counted).collect();
    tcptoll_core::stats::sample::sd(&values)
}

/// What the figures after a ± are, where published ones have them.
pub(crate) fn about_sd(rows: &[Beside<'_>]) -> Option<String> {
    let mut with_sd = rows.iter().filter(|row| row.has_sd).peekable();
    with_sd.peek()?;
    let note = with_sd.find_map(|row| row.note);
    let theirs = note.map(|note| format!(" ({note})")).unwrap_or_default();
    Some(format!(
        "± is the standard deviation: over rounds for our figures, as published for theirs{theirs}"
    ))
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::Summary;

    use super::*;

    #[test]
    fn a_published_standard_deviation_has_ours_of_rounds_beside_it() {
        let round = |value: f64, left_out: Option<&str>| tcptoll_core::record::Round {
            metrics: [("requests_per_s".to_owned(), value)].into(),
            left_out: left_out.map(str::to_owned),
            ..tcptoll_core::record::Round::default()
        };
        // Of 15,800, 16,200 and 16,600 the standard deviation is 400; the round left out is not in it.
        let rounds = [(15_800.0, None), (16_200.0, None), (9.0, Some("late")), (16_600.0, None)];
        let arm = Arm { rounds: rounds.map(|(v, l)| round(v, l)).to_vec(), ..Arm::default() };
        let sd = sd_of_rounds(Some(&arm), "requests_per_s");
        assert_eq!(sd, Some(400.0));
        assert_eq!(with_sd(16_200.0, sd, "1/s"), "16,200 ± 400/s");
        assert_eq!(with_sd(1_500.0, Some(20.0), "us"), "1.50 ms ± 20.0 µs");
        assert_eq!(with_sd(13_577.0, None, "1/s"), "13,577/s");
        assert_eq!(sd_of_rounds(None, "requests_per_s"), None);
    }

    #[test]
    fn compared_figures_have_their_published_ratio_beside_ours() {
        let published = |arm: &str, value| Published {
            arm: arm.into(),
            metric: "goodput_bytes_per_s".into(),
            value,
            source: "2008".into(),
            note: None,
            sd: None,
        };
        let comparison = Comparison {
            metric: "goodput_bytes_per_s".into(),
            a: "window 2K".into(),
            b: "window 4M".into(),
            ratio: Some(0.4),
            ci95: Some([0.38, 0.42]),
            ..Comparison::default()
        };
        let unpublished = Comparison { a: "window 512K".into(), ..comparison.clone() };
        let summary = Run::from(Summary {
            published: vec![published("window 2K", 43e6), published("window 4M", 117.75e6)],
            comparisons: vec![comparison, unpublished],
            ..Summary::default()
        });
        let rows = beside_ours(&summary);
        assert_eq!(rows.len(), 3, "two figures, and one ratio of both");
        assert_eq!(rows[2].arm, "window 2K / 4M");
        assert_eq!(
            [&rows[2].metric, &rows[2].published, &rows[2].ours],
            ["ratio of goodput", "×0.365", "×0.400"]
        );
        assert_eq!(rows[2].interval.as_deref(), Some("[0.380, 0.420]"));
        let off = rows[2].ratio.unwrap();
        assert!((off - 0.4 / (43.0 / 117.75)).abs() < 1e-9, "{off}");
    }
}
