//! Did the machine drift while the run went on? Each arm's rounds in order of running; what does not
//! count is a hollow cross.

use tcptoll_core::record::{Arm, Round};

use super::plot::{self, Frame, Plot, Scale};
use crate::number::{self, Estimate};
use crate::run::Run;
use crate::svg::{Anchor, Svg, WIDTH, arm_class};
use crate::{clean, figures, rounds};

/// More arms than this stand in pictures of their own.
const TOGETHER: usize = 6;

/// Arms further apart than this would flatten each other's rounds on one axis.
const FAR_APART: f64 = 1.5;

/// The rounds of an arm.
struct Track<'a> {
    at: usize,
    arm: &'a Arm,
    /// Mean of the rounds that count, if any does.
    mean: Option<f64>,
}

/// The picture; `None` if no arm has two rounds.
pub(super) fn picture(summary: &Run) -> Option<Svg> {
    let metric = rounds::metric(summary)?;
    let tracks = tracks(summary, metric);
    tracks.iter().any(|track| track.arm.rounds.len() > 1).then_some(())?;
    let unit = rounds::unit(summary, metric);
    let words = summary.specs.words_of_metric(metric);
    let label = format!("{words} of each round in run order");
    let view = RoundsPicture { tracks, metric, words, unit };
    let svg = if view.together() { view.one() } else { view.many() };
    Some(svg.labelled(&label))
}

fn tracks<'a>(summary: &'a Run, metric: &str) -> Vec<Track<'a>> {
    let track = |(at, arm): (usize, &'a Arm)| {
        let values: Vec<f64> =
            arm.rounds.iter().filter_map(|round| rounds::counted(round, metric)).collect();
        let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        (!arm.rounds.is_empty()).then_some(Track { at, arm, mean })
    };
    summary.arms.iter().enumerate().filter_map(track).collect()
}

struct RoundsPicture<'a> {
    tracks: Vec<Track<'a>>,
    metric: &'a str,
    /// The metric in words.
    words: String,
    unit: &'a str,
}

impl RoundsPicture<'_> {
    fn together(&self) -> bool {
        let means = || self.tracks.iter().filter_map(|track| track.mean);
        let (least, most) = (means().fold(f64::INFINITY, f64::min), means().fold(0.0, f64::max));
        self.tracks.len() <= TOGETHER && least > 0.0 && most / least <= FAR_APART
    }

    fn last_s(&self) -> f64 {
        let rounds = self.tracks.iter().flat_map(|track| &track.arm.rounds);
        rounds.map(|round| round.began_s).filter(|s| s.is_finite()).fold(0.0, f64::max)
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.tracks.iter().flat_map(|track| {
            track.arm.rounds.iter().filter_map(|round| rounds::counted(round, self.metric))
        })
    }

    /// All arms on one axis.
    fn one(&self) -> Svg {
        let frame = Frame::across(60.0, 24.0, 170.0);
        let y = Scale::fit(self.values(), frame.bottom - 6.0, frame.top);
        let ticks = plot::ticks(&y, 5, |value| Estimate::new(value, None, self.unit).text());
        let frame = frame.beside(&ticks);
        let x = Scale::from_zero(self.last_s() * 1.02, frame.left + 6.0, frame.right);
        let mut plot = Plot::new(frame, plot::TICKS_AND_LABEL, x, y);
        plot.y_ticks(ticks);
        plot.x_ticks(6, false, |s| number::tick(s, "s"));
        plot.base();
        plot.y_label(&self.words);
        plot.x_label("since the start of the run");
        for track in &self.tracks {
            self.track(&mut plot, track);
        }
        plot.svg
    }

    /// A small picture per arm, with as many percent from bottom to top in each.
    fn many(&self) -> Svg {
        const ACROSS: usize = 2;
        let (cell, height) = (WIDTH / ACROSS as f64, 94.0);
        let rows = self.tracks.len().div_ceil(ACROSS);
        let mut svg = Svg::new(rows as f64 * height + 16.0);
        let reach = self.reach();
        for (n, track) in self.tracks.iter().enumerate() {
            let (column, row) = (n % ACROSS, n / ACROSS);
            let begin = column as f64 * cell;
            let (top, bottom) = (row as f64 * height + 20.0, (row + 1) as f64 * height - 20.0);
            let frame = Frame::between((begin + 80.0, begin + cell - 14.0), top, bottom);
            let x = Scale::from_zero(self.last_s() * 1.02, frame.left + 4.0, frame.right);
            // Without a mean there is nothing to place but crosses.
            let (low, high) = track
                .mean
                .map_or((0.0, 1.0), |mean| (mean - mean.abs() * reach, mean + mean.abs() * reach));
            let y = Scale::between(low, high, bottom - 4.0, top);
            let mut plot = Plot::on(svg, frame, x, y);
            plot.group(&arm_class(track.at), "", |plot| {
                plot.svg.dot("full", (begin + 4.0, top - 11.0), 3.0, "");
            });
            let name = clean::shorten(&track.arm.name, 28);
            plot.svg.text("name", (begin + 12.0, top - 11.0), Anchor::Start, &name);
            plot.base();
            plot.x_ticks(3, false, |s| number::tick(s, "s"));
            if let Some(mean) = track.mean {
                let values = [mean * (1.0 - reach * 0.8), mean, mean * (1.0 + reach * 0.8)];
                plot.y_ticks(values.map(|value| {
                    let ci95 = Some([mean * (1.0 - reach), mean * (1.0 + reach)]);
                    let text = Estimate::new(value, ci95, self.unit);
                    (value, format!("{} {}", text.value, text.symbol).trim_end().to_owned())
                }));
            } else {
                let place = (frame.left + 8.0, f64::midpoint(top, bottom));
                plot.svg.text("", place, Anchor::Start, "all rounds excluded");
            }
            self.track(&mut plot, track);
            svg = plot.svg;
        }
        let place = (WIDTH - 14.0, rows as f64 * height + 6.0);
        svg.text("", place, Anchor::End, "since the start of the run");
        svg
    }

    /// The largest distance of a round from the mean of its arm, as a share of it.
    fn reach(&self) -> f64 {
        let far = self.tracks.iter().filter_map(|track| {
            let mean = track.mean.filter(|mean| *mean != 0.0)?;
            let values =
                track.arm.rounds.iter().filter_map(|round| rounds::counted(round, self.metric));
            values.map(|value| (value / mean - 1.0).abs()).reduce(f64::max)
        });
        far.fold(0.005, f64::max) * 1.15
    }

    fn track(&self, plot: &mut Plot, track: &Track<'_>) {
        let name = &track.arm.name;
        let counted = |round: &Round| Some((round.began_s, rounds::counted(round, self.metric)?));
        // What failed has no value: it lies on the axis.
        let on_axis = plot.frame.bottom - 5.0;
        plot.group(&arm_class(track.at), name, |plot| {
            plot.line("thin", track.arm.rounds.iter().filter_map(counted));
            for round in &track.arm.rounds {
                let number = u64::from(round.round) + 1;
                let began = number::duration(round.began_s);
                let value = round.metrics.get(self.metric).copied().filter(|v| v.is_finite());
                let text = value.map_or_else(
                    || "no value".to_owned(),
                    |value| Estimate::new(value, None, self.unit).text(),
                );
                let text = format!("{name}, round {number}, {began} after the start: {text}");
                match (&round.left_out, value) {
                    (None, Some(value)) => plot.dot("mark", (round.began_s, value), 2.5, &text),
                    (None, None) => {}
                    (Some(why), value) => {
                        let height = value.map_or(on_axis, |value| plot.y.at(value));
                        let place = (plot.x.at(round.began_s), height);
                        plot.svg.cross("out", place, 3.0, &format!("{text}; excluded: {why}"));
                    }
                }
            }
        });
    }

    fn caption(&self) -> String {
        let crosses = self.tracks.iter().flat_map(|track| &track.arm.rounds);
        let crosses = crosses.filter(|round| round.left_out.is_some()).count() as u64;
        let crosses = match crosses {
            0 => String::new(),
            n => format!(" Crosses: {}.", figures::plural(n, "excluded trial")),
        };
        let axes = if self.together() {
            ""
        } else {
            " Each arm has its own axis; all axes span the same percentage."
        };
        let drift = self.tracks.iter().filter_map(|track| Some((track, self.drift(track)?)));
        let most = drift.max_by(|a, b| (a.1 - 1.0).abs().total_cmp(&(b.1 - 1.0).abs()));
        let drift = most.map_or_else(
            || "One dot per round.".to_owned(),
            |(track, ratio)| {
                format!(
                    "{} drifted most: by {} on average from its first half of rounds to its second.",
                    track.arm.name,
                    number::percent_off(ratio)
                )
            },
        );
        format!("{drift}{crosses}{axes}")
    }

    /// Mean of the second half of the rounds over that of the first; `None` with fewer than four.
    fn drift(&self, track: &Track<'_>) -> Option<f64> {
        let values: Vec<f64> = track
            .arm
            .rounds
            .iter()
            .filter_map(|round| rounds::counted(round, self.metric))
            .collect();
        let half = values.len() / 2;
        if half < 2 {
            return None;
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let ratio = mean(&values[values.len() - half..]) / mean(&values[..half]);
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }
}

/// One sentence that says what to see.
pub(super) fn caption(summary: &Run) -> String {
    let Some(metric) = rounds::metric(summary) else { return String::new() };
    let unit = rounds::unit(summary, metric);

    let words = summary.specs.words_of_metric(metric);
    RoundsPicture { tracks: tracks(summary, metric), metric, words, unit }.caption()
}
