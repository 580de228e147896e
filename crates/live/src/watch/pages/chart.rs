//! Curves over time in one frame, and what was wrong when, as bars.

use tcptoll_core::sheet::Picture;
use tcptoll_show::clean;
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::svg::{Anchor, Svg};

use super::Dated;
use crate::diagnosis::Severity;
use crate::watch::Episode;

/// Bands behind a curve, at most.
pub(super) const BANDS_MAX: usize = 100;
/// Width of a letter of a tick, at most.
const TICK_LETTER: f64 = 7.2;
/// Ticks of an axis of time, at most.
const TICKS_MAX: f64 = 6.0;
/// Steps of an axis of time, s.
const STEPS_S: [f64; 20] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0,
    10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0,
];

/// A value over an interval; absent: it is not known there.
pub(super) struct Step {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) value: Option<f64>,
}

/// A curve.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) steps: Vec<Step>,
    pub(super) filled: bool,
}

/// Curves of one unit, with what was wrong behind them.
pub(super) struct Chart<'a> {
    pub(super) label: String,
    pub(super) lines: Vec<Line>,
    pub(super) tick: fn(f64) -> String,
    /// The greatest value of the axis, where it is not that of the lines.
    pub(super) most: Option<f64>,
    /// The listener that it is about, in the words of a diagnosis.
    pub(super) subject: Option<String>,
    pub(super) view: &'a Dated<'a>,
}

/// Where the axis of time begins: in all pictures at one place, so that they can be compared.
const LEFT: f64 = 60.0;

impl Chart<'_> {
    /// The chart on the page.
    pub(super) fn picture(&self, title: String, caption: String) -> Picture {
        let label = format!("{title}: {} over time", self.label);
        let svg = self.draw().labelled(&label).into();
        Picture { title, svg, caption, ..Picture::default() }
    }

    fn draw(&self) -> Svg {
        let frame = Frame::across(LEFT, 22.0, 130.0);
        let values = self.lines.iter().flat_map(|line| &line.steps).filter_map(|step| step.value);
        let most = self.most.unwrap_or_else(|| values.fold(0.0, f64::max) * 1.08);
        let y = Scale::from_zero(if most > 0.0 { most } else { 1.0 }, frame.bottom, frame.top);
        let x = Scale::from_zero(self.view.review.lasted_s, frame.left, frame.right);
        let keyed = if self.lines.len() > 1 { self.lines.as_slice() } else { &[] };
        let below = plot::TICKS + plot::KEY * keyed.len() as f64;
        let mut plot = Plot::new(frame, below, x, y);
        bands(&mut plot, self.view, self.subject.as_deref());
        plot.y_axis(5, self.tick);
        time_axis(&mut plot, self.view);
        plot.base();
        plot.y_label(&self.label);
        for line in &self.lines {
            plot.group(&line.class, "", |plot| {
                for run in runs(&line.steps) {
                    if line.filled {
                        plot.band("band", run.iter().map(|(x, y)| [*x, 0.0, *y]));
                    }
                    plot.line("curve", run.iter().copied());
                }
            });
        }
        let keyed = keyed.iter();
        plot.key(keyed.map(|line| (format!("curve {}", line.class), line.name.as_str())));
        plot.svg
    }
}

/// Corners of a line that keeps its value over each step, without those that are on a straight line.
fn runs(steps: &[Step]) -> Vec<Vec<(f64, f64)>> {
    let mut runs: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut open = false;
    for step in steps {
        let Some(value) = step.value else {
            open = false;
            continue;
        };
        if !open {
            runs.push(Vec::new());
            open = true;
        }
        let Some(run) = runs.last_mut() else { continue };
        let level = |at: usize| run.get(run.len().wrapping_sub(at)).map(|(_, y)| y.to_bits());
        if level(1) == Some(value.to_bits()) && level(2) == Some(value.to_bits()) {
            run.pop();
        } else {
            run.push((step.from_s.max(0.0), value));
        }
        run.push((step.to_s, value));
    }
    runs
}

/// What was wrong, and where nothing was seen, behind the curves.
///
/// Behind a listener's queue: what was wrong with it. Elsewhere problems of all kinds, and warnings as a strip
/// above them: bands over bands would hide the curves.
fn bands(plot: &mut Plot, view: &Dated<'_>, subject: Option<&str>) {
    let Frame { top, bottom, .. } = plot.frame;
    let mut band = |class: &str, [from_s, to_s]: [f64; 2], height: f64| {
        let (from, to) = (plot.x.at(from_s), plot.x.at(to_s));
        plot.svg.rect(class, (from, top), ((to - from).max(1.5), height), "");
    };
    let spans = |severity: Severity| {
        let about = |one: &&Episode| subject.is_none_or(|subject| one.subject == subject);
        let episodes = view.review.episodes.iter().filter(|one| one.severity == severity);
        union(episodes.filter(about).map(|one| [one.from_s, one.to_s]).collect())
    };
    let height = if subject.is_some() { bottom - top } else { 5.0 };
    for span in spans(Severity::Warning) {
        band("warned", span, height);
    }
    for span in spans(Severity::Problem) {
        band("problem", span, bottom - top);
    }
    for gap in view.review.gaps.iter().take(BANDS_MAX) {
        band("margin", [gap.at_s - gap.lasted_s, gap.at_s], bottom - top);
    }
}

/// Spans of time without overlaps, in order, at most [`BANDS_MAX`].
fn union(mut spans: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    spans.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let mut joined: Vec<[f64; 2]> = Vec::new();
    for [from, to] in spans {
        match joined.last_mut() {
            Some(last) if from <= last[1] => last[1] = last[1].max(to),
            _ => joined.push([from, to]),
        }
    }
    joined.truncate(BANDS_MAX);
    joined
}

/// Round times of day below the axis.
pub(super) fn time_axis(plot: &mut Plot, view: &Dated<'_>) {
    let Frame { top, bottom, right, room, .. } = plot.frame;
    let lasted_s = view.review.lasted_s.min(1e9);
    let step = STEPS_S.into_iter().find(|step| lasted_s / step <= TICKS_MAX);
    // Of more than some weeks: as many days as it takes.
    let step = step.unwrap_or_else(|| (lasted_s / TICKS_MAX / 86_400.0).ceil() * 86_400.0);
    let first = (view.clock.second_of_day() / step).ceil() * step - view.clock.second_of_day();
    let count = ((lasted_s - first) / step).floor().max(-1.0) as i64;
    for number in 0..=count.min(TICKS_MAX as i64 + 1) {
        let at_s = first + number as f64 * step;
        let x = plot.x.at(at_s);
        plot.svg.line("grid", (x, top), (x, bottom));
        // A tick is at a whole second, and a sum of steps may be a little below it.
        let time = view.clock.text(at_s + 0.001, false);
        let text = match (step >= 60.0, time.as_str()) {
            (true, "00:00:00") => {
                let date = view.clock.date_text(at_s + 0.001);
                date.rsplit_once(' ').map_or(date.clone(), |(day, _)| day.to_owned())
            }
            (true, time) => time[..5].to_owned(),
            (false, time) => time.to_owned(),
        };
        // The last one may not reach beyond the picture.
        let half = TICK_LETTER / 2.0 * text.chars().count() as f64;
        let x = x.min(right + room - half);
        plot.svg.text("", (x, bottom + 12.0), Anchor::Middle, &text);
    }
}

/// Rows of the timeline, at most.
const ROWS_MAX: usize = 24;

/// What was wrong when: a row for each cause and subject, each bar a link to its article.
pub(crate) fn timeline(view: &Dated<'_>) -> Option<Picture> {
    let mut rows: Vec<((&str, &str), Vec<&Episode>)> = Vec::new();
    for one in &view.review.episodes {
        let key = (one.id.as_str(), one.subject.as_str());
        match rows.iter_mut().find(|(known, _)| *known == key) {
            Some((_, all)) => all.push(one),
            None => rows.push((key, vec![one])),
        }
    }
    if rows.is_empty() {
        return None;
    }
    let worst = |all: &[&Episode]| all.iter().map(|one| one.severity).min();
    rows.sort_by_key(|(_, all)| worst(all));
    let more = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let height = 29.0;
    let frame = Frame::across(LEFT, 0.0, 4.0 + height * rows.len() as f64);
    let x = Scale::from_zero(view.review.lasted_s, frame.left, frame.right);
    let mut plot = Plot::of_rows(frame, plot::TICKS, x);
    time_axis(&mut plot, view);
    plot.base();
    for (at, ((id, subject), all)) in rows.iter().enumerate() {
        let top = height * at as f64;
        let name = clean::shorten(&format!("{id}: {subject}"), 60);
        plot.svg.text("name", (0.0, top + 9.0), Anchor::Start, &name);
        plot.svg.line("lane", (frame.left, top + 22.0), (frame.right, top + 22.0));
        for one in all.iter().take(BANDS_MAX) {
            let (from, to) = (plot.x.at(one.from_s), plot.x.at(one.to_s));
            let tooltip = format!("{} to {}: {}", view.at(one.from_s), view.at(one.to_s), one.text);
            plot.svg.open_link(&format!("#{}", anchor(one)));
            let size = ((to - from).max(2.0), 8.0);
            plot.svg.rect(&format!("{} solid", class(one)), (from, top + 18.0), size, &tooltip);
            plot.svg.close_link();
        }
    }
    let more = if more > 0 { format!(" {more} more are in the table.") } else { String::new() };
    let caption = format!(
        "Red: connections were harmed. Yellow: a warning, nothing was harmed yet. A bar links to its explanation and fix.{more}"
    );
    let svg = plot.svg.labelled("What was wrong over time").into();
    Some(Picture { svg, caption, ..Picture::default() })
}

/// Where the article of a cause is on the page. Names of causes are kebab case; a record may hold others.
pub(crate) fn anchor(one: &Episode) -> String {
    let kept = |c: char| c.is_ascii_lowercase() || c == '-';
    format!("cause-{}", one.id.chars().filter(|c| kept(*c)).take(60).collect::<String>())
}

fn class(one: &Episode) -> &'static str {
    if one.severity == Severity::Problem { "problem" } else { "warned" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from_s: f64, to_s: f64, value: Option<f64>) -> Step {
        Step { from_s, to_s, value }
    }

    #[test]
    fn spans_that_overlap_are_one_band() {
        let spans = vec![[5.0, 9.0], [1.0, 3.0], [2.0, 4.0], [9.0, 10.0]];
        assert_eq!(union(spans), [[1.0, 4.0], [5.0, 10.0]]);
        let many = (0..500).map(|n| [f64::from(n), f64::from(n) + 0.5]).collect();
        assert_eq!(union(many).len(), BANDS_MAX);
    }

    #[test]
    fn a_level_is_two_corners_however_many_steps_it_has_and_a_hole_is_a_hole() {
        let steps = [
            step(0.0, 1.0, Some(5.0)),
            step(1.0, 2.0, Some(5.0)),
            step(2.0, 3.0, Some(5.0)),
            step(3.0, 4.0, Some(7.0)),
            step(4.0, 5.0, None),
            step(5.0, 6.0, Some(7.0)),
        ];
        let runs = runs(&steps);
        assert_eq!(runs[0], [(0.0, 5.0), (3.0, 5.0), (3.0, 7.0), (4.0, 7.0)]);
        assert_eq!(runs[1], [(5.0, 7.0), (6.0, 7.0)]);
    }
}
