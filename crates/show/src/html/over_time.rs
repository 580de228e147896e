//! Quantities over time, for every experiment that records some.
//!
//! `means` makes a series coarse enough to read, `Stack` draws panels on one axis of time, `row` draws
//! with letters.

use crate::html::plot;
use crate::html::plot::{Frame, KEY, Plot, Scale, TICKS, TICKS_AND_LABEL};
use crate::svg::{Anchor, Svg};
use crate::{clean, number};
use tcptoll_core::sheet::{Part, Tone};
use tcptoll_core::stats::Series;

// How is a series of many slices made coarse enough to read? Slices of equal length are put together
// until each holds some requests.

/// Points of a line at most.
const BINS: usize = 60;

/// Requests that a point of a line stands for, at least: a rate of fewer only shows their spacing.
const EACH: u64 = 5;

/// The mean of each bin over the whole time, as many as `requests` allow. A bin without a value has
/// no point; a point stands in the middle of its bin.
pub fn means(series: &Series, requests: u64, last_s: f64) -> Vec<[f64; 4]> {
    let bins = usize::try_from(requests / EACH).unwrap_or(BINS).clamp(4, BINS);
    let width = last_s / bins as f64;
    if width <= 0.0 {
        return Vec::new();
    }
    let mut sums = vec![(0.0, 0_u32); bins];
    for point in &series.points {
        let at = ((point[0] / width) as usize).min(bins - 1);
        sums[at].0 += point[2];
        sums[at].1 += 1;
    }
    let mean = |(at, (sum, count)): (usize, (f64, u32))| {
        (count > 0).then(|| point((at as f64 + 0.5) * width, sum / f64::from(count)))
    };
    sums.into_iter().enumerate().filter_map(mean).collect()
}

/// The mean of each point up to the end.
pub fn whole(series: &Series, last_s: f64) -> Vec<[f64; 4]> {
    let inside = series.points.iter().filter(|point| point[0] <= last_s);
    inside.map(|[s, _, mean, _]| point(*s, *mean)).collect()
}

/// A value at an instant, as a point of a series.
fn point(s: f64, value: f64) -> [f64; 4] {
    [s, value, value, value]
}

/// A point in another unit.
pub fn scaled([s, values @ ..]: [f64; 4], factor: f64) -> [f64; 4] {
    let [least, mean, most] = values.map(|value| value * factor);
    [s, least, mean, most]
}

// How do several quantities stand below each other on one axis of time? Panels of lines, with the stall
// as a band through all of them.

/// A step of this many usual ones is a gap.
const GAP: f64 = 3.0;

/// Height of a band that is a strip.
const STRIP: f64 = 5.0;

/// All panels.
#[derive(Default)]
pub struct Stack {
    pub panels: Vec<Panel>,
    /// From when to when the backend stood still, s.
    pub stall: Option<[f64; 2]>,
    pub bands: Vec<Band>,
    pub instants: Vec<Instant>,
    /// The end of the axis of time, s.
    pub last_s: f64,
    /// Of the axis of time, with a grid; none: round seconds.
    pub ticks: Vec<(f64, String)>,
    /// Since when time is counted, where that is to be said.
    pub x_label: Option<&'static str>,
    /// Where the axis of time begins, unless ticks need more room.
    pub left: f64,
    /// Of a panel.
    pub height: f64,
    /// Places of a panel that have a tooltip, at most.
    pub hits: usize,
}

/// A quantity over time.
pub struct Panel {
    pub title: String,
    pub axis: Axis,
    /// A tick in words.
    pub tick: fn(f64) -> String,
    /// A value in words.
    pub words: fn(f64) -> String,
    pub levels: Vec<Level>,
    pub lines: Vec<Line>,
    /// Whether points are corners of the lines, so that no two are too far apart.
    pub corners: bool,
}

/// Which values have a place.
#[derive(Clone, Copy)]
pub enum Axis {
    /// From 0 to so many times the greatest value.
    FromZero(f64),
    /// From 0 to a value.
    To(f64),
    /// All, logarithmic.
    Log,
    /// All, logarithmic if they span decades.
    Fit,
}

/// A value to hold the lines against.
pub struct Level {
    pub value: f64,
    pub text: String,
    /// The class of its dashes.
    pub dash: &'static str,
    /// Whether its text stands at it; else the title says it.
    pub named: bool,
}

/// A span of time that stands out behind the lines of all panels.
pub struct Band {
    pub class: &'static str,
    /// From when to when.
    pub span_s: [f64; 2],
    /// Whether it is only a strip at the top: bands over bands would hide the lines.
    pub strip: bool,
    pub tooltip: String,
}

/// When something is expected.
pub struct Instant {
    /// The class of its colour.
    pub class: String,
    pub s: f64,
    pub text: String,
}

/// A line of a panel.
#[derive(Default)]
pub struct Line {
    /// The class of its colour.
    pub class: String,
    /// The class of its dashes, or nothing.
    pub dash: &'static str,
    pub name: String,
    /// As of [`Series`]; a mean that is no number is a hole.
    pub points: Vec<[f64; 4]>,
    /// Whether least to greatest are a band behind it.
    pub band: bool,
    /// Its name below the picture, where colours are not named above it.
    pub key: Option<String>,
}

impl Stack {
    /// Panels up to the last point of any.
    pub fn new(panels: Vec<Panel>) -> Self {
        let points = panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
        let last_s = points.map(|point| point[0]).fold(0.0, f64::max);
        Self { panels, last_s, left: 56.0, height: 100.0, hits: 40, ..Self::default() }
    }

    pub fn draw(&self) -> Svg {
        let keys: Vec<(String, &str)> = self.panels.iter().flat_map(Panel::keys).collect();
        let count = self.panels.len();
        let below = self.x_label.map_or(TICKS, |_| TICKS_AND_LABEL) + KEY * keys.len() as f64;
        let ticks = |panel: &Panel| plot::ticks(&panel.scale(0.0, 1.0), 4, panel.tick);
        let ticks: Vec<(f64, String)> = self.panels.iter().flat_map(ticks).collect();
        let mut svg = Svg::new(self.height * count as f64 + below);
        for (n, panel) in self.panels.iter().enumerate() {
            let (top, bottom) = (n as f64 * self.height + 26.0, (n + 1) as f64 * self.height);
            let frame = Frame::across(self.left, top, bottom).beside(&ticks);
            let x = Scale::from_zero(self.last_s, frame.left, frame.right);
            let mut plot = Plot::on(svg, frame, x, panel.scale(bottom, top));
            self.shade(&mut plot, n == 0);
            panel.axes(&mut plot);
            for Instant { class, s, text } in
                self.instants.iter().filter(|one| one.s <= self.last_s)
            {
                let x = plot.x.at(*s);
                plot.group(class, text, |plot| {
                    plot.svg.line("computed d1", (x, top), (x, bottom));
                });
            }
            panel.draw(&mut plot, self.hits);
            if n + 1 == count {
                match self.ticks.as_slice() {
                    [] => plot.x_ticks(6, false, |s| number::tick(s, "s")),
                    ticks => plot.x_marks(false, ticks.iter().cloned()),
                }
                if let Some(label) = self.x_label {
                    plot.x_label(label);
                }
                plot.key(keys.iter().cloned());
            }
            svg = plot.svg;
        }
        svg
    }

    /// What stands behind the lines; the stall has its name in the first panel.
    fn shade(&self, plot: &mut Plot, named: bool) {
        let Frame { top, bottom, .. } = plot.frame;
        let s = number::plain;
        let stall = self.stall.map(|[from, until]| Band {
            class: "margin",
            span_s: [from, until],
            strip: false,
            tooltip: format!("stall from {} s to {} s", s(from), s(until)),
        });
        for Band { class, span_s, strip, tooltip } in self.bands.iter().chain(&stall) {
            let [from, until] = span_s.map(|s| plot.x.at(s));
            let height = if *strip { STRIP } else { bottom - top };
            plot.svg.rect(class, (from, top), ((until - from).max(1.5), height), tooltip);
        }
        if let (true, Some(span_s)) = (named, self.stall) {
            let [from, until] = span_s.map(|s| plot.x.at(s));
            plot.svg.text("", (f64::midpoint(from, until), top - 12.0), Anchor::Middle, "stall");
        }
        for (s, _) in &self.ticks {
            let x = plot.x.at(*s);
            plot.svg.line("grid", (x, top), (x, bottom));
        }
    }
}

impl Level {
    /// One whose text stands at it.
    pub fn named(value: f64, text: String, dash: &'static str) -> Self {
        Self { value, text, dash, named: true }
    }
}

impl Line {
    /// A mean in its band.
    pub fn range(class: String, points: Vec<[f64; 4]>) -> Self {
        Self { class, points, band: true, ..Self::default() }
    }

    /// Points that follow each other: a line does not go on over a hole or a gap, as where no request succeeded.
    fn pieces(&self, corners: bool) -> impl Iterator<Item = &[[f64; 4]]> {
        let steps = self.points.windows(2).map(|pair| pair[1][0] - pair[0][0]);
        let usual = steps.clone().sum::<f64>() / steps.len().max(1) as f64;
        let gap = if self.band || corners { f64::INFINITY } else { usual * GAP };
        let follows =
            move |a: &[f64; 4], b: &[f64; 4]| b[0] - a[0] <= gap && a[2].is_nan() == b[2].is_nan();
        self.points.chunk_by(follows).filter(|piece| !piece[0][2].is_nan())
    }

    fn draw(&self, plot: &mut Plot, corners: bool) {
        let class = format!("curve {}", self.dash);
        for piece in self.pieces(corners) {
            if self.band {
                plot.band("band", piece.iter().map(|p| [p[0], p[1], p[3]]));
            }
            match piece {
                [[s, _, alone, _]] => plot.dot("full", (*s, *alone), 2.0, ""),
                piece => plot.line(class.trim_end(), piece.iter().map(|p| (p[0], p[2]))),
            }
        }
    }

    /// Something to point at; one for every point could not be hit. Peaks of the points of a place stay.
    fn hits(&self, plot: &mut Plot, most: usize, words: fn(f64) -> String) {
        let count = self.points.len().min(most);
        if count == 0 {
            return;
        }
        let last = plot.x.most();
        let place = |s: f64| ((s / last * count as f64) as usize).min(count - 1);
        let mut places = vec![None; count];
        for [s, least, mean, most] in &self.points {
            let (sum, n, low, high) = places[place(*s)].unwrap_or((0.0, 0_u32, *least, *most));
            places[place(*s)] = Some((sum + mean, n + 1, low.min(*least), high.max(*most)));
        }
        let texts = places.into_iter().enumerate().map(|(at, found)| {
            let Some((sum, n, least, most)) = found else { return Vec::new() };
            let s = number::plain(last * (at as f64 + 0.5) / count as f64);
            [s].into_iter().chain([sum / f64::from(n), least, most].map(words)).collect()
        });
        let between = ["at ", " s: mean ", ", min ", ", max ", ""].map(str::to_owned);
        plot.hits(&between, &texts.collect::<Vec<_>>());
    }
}

impl Panel {
    /// An empty one, from 0 to a little above the greatest value.
    pub fn new(
        title: impl Into<String>,
        tick: fn(f64) -> String,
        words: fn(f64) -> String,
    ) -> Self {
        let (title, axis) = (title.into(), Axis::FromZero(1.08));
        let (levels, lines) = (Vec::new(), Vec::new());
        Self { title, axis, tick, words, levels, lines, corners: false }
    }

    /// An empty one of counts.
    pub fn count(title: impl Into<String>) -> Self {
        Self::new(title, number::plain, number::three)
    }

    /// An empty one of times, logarithmic.
    pub fn time(title: &str) -> Self {
        Self { axis: Axis::Log, ..Self::new(title, |us| number::tick(us, "us"), number::time) }
    }

    fn keys(&self) -> impl Iterator<Item = (String, &str)> {
        self.lines.iter().filter_map(|line| {
            Some((format!("curve {} {}", line.dash, line.class), line.key.as_deref()?))
        })
    }

    fn scale(&self, bottom: f64, top: f64) -> Scale {
        let values = self.lines.iter().flat_map(|line| &line.points).flat_map(|point| &point[1..]);
        let values = values.copied().chain(self.levels.iter().map(|level| level.value));
        match self.axis {
            Axis::FromZero(room) => {
                let most = values.fold(0.0, f64::max);
                Scale::from_zero(if most > 0.0 { most } else { 1.0 } * room, bottom, top)
            }
            Axis::To(most) => Scale::from_zero(most, bottom, top),
            Axis::Log => Scale::log(values, bottom, top),
            Axis::Fit => Scale::fit(values, bottom, top),
        }
    }

    fn axes(&self, plot: &mut Plot) {
        let Frame { right, top, .. } = plot.frame;
        plot.y_axis(4, self.tick);
        plot.base();
        let title = clean::shorten(&self.title, 62);
        plot.svg.text("", (0.0, top - 12.0), Anchor::Start, &title);
        for Level { value, text, dash, named } in &self.levels {
            let class = if *named { "none" } else { "computed" };
            plot.group("echo", text, |plot| plot.level(&format!("{class} {dash}"), *value));
            if *named {
                let place = (right - 4.0, plot.y.at(*value) + 8.0);
                plot.svg.text("name", place, Anchor::End, text);
            }
        }
    }

    fn draw(&self, plot: &mut Plot, hits: usize) {
        for line in &self.lines {
            plot.group(&line.class, &line.name, |plot| {
                line.draw(plot, self.corners);
                if line.band && hits > 0 {
                    line.hits(plot, hits, self.words);
                }
            });
        }
        if !self.lines.iter().any(|line| line.band) {
            self.hits(plot, hits);
        }
    }

    /// Something to point at: what each line is at an instant.
    fn hits(&self, plot: &mut Plot, hits: usize) {
        let lines: Vec<&Line> = self.lines.iter().filter(|line| !line.points.is_empty()).collect();
        if lines.is_empty() {
            return;
        }
        let texts = (0..hits).map(|at| {
            let s = plot.x.most() * (at as f64 + 0.5) / hits as f64;
            let near = |line: &&Line| {
                let far = |point: &[f64; 4]| (point[0] - s).abs();
                let nearest = line.points.iter().min_by(|a, b| far(a).total_cmp(&far(b)))?;
                Some((self.words)(nearest[2]))
            };
            [number::plain(s)].into_iter().chain(lines.iter().filter_map(near)).collect()
        });
        let texts: Vec<Vec<String>> = texts.collect();
        let name = |(at, line): (usize, &&Line)| {
            format!("{} {}: ", if at == 0 { " s:" } else { "," }, line.name)
        };
        let names = lines.iter().enumerate().map(name);
        let between: Vec<String> =
            ["at ".to_owned()].into_iter().chain(names).chain([String::new()]).collect();
        plot.hits(&between, &texts);
    }
}

// How is a quantity over time drawn with letters? A row per arm, one character for a slice of time.

/// From the least to the greatest.
pub const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of a name, and of what stands behind a strip.
pub const NAME: usize = 22;
const BEHIND: usize = 18;

/// Columns of a strip: with fewer there is nothing to see, more say nothing more.
const CELLS: [usize; 2] = [16, 50];

/// Characters of a strip where the terminal has so many columns. None: too few to see anything.
pub fn cells(width: usize) -> Option<usize> {
    let [least, most] = CELLS;
    let cells = width.saturating_sub(2 + NAME + 2 + 2 + BEHIND).min(most);
    (cells >= least).then_some(cells)
}

/// What the strips below show, and what stands behind them.
pub fn heading(text: &str, behind: &str) -> Part {
    let behind = if behind.is_empty() { String::new() } else { format!("   {behind}") };
    Part::pieces(vec![(Tone::Strong, text.to_owned()), (Tone::Dim, behind)])
}

/// A strip between its name and a figure.
pub fn row(name: &str, strip: &str, behind: &str) -> Part {
    let blanks = " ".repeat(NAME.saturating_sub(clean::columns(name)));
    Part::pieces(vec![
        (Tone::Plain, format!("  {name}{blanks}  ")),
        (Tone::Client, strip.to_owned()),
        (Tone::Dim, format!("  {behind}")),
    ])
}

/// Times of each arm on one logarithmic scale, below their heading. Empty: there are none.
pub fn times(title: &str, names: &[String], strips: &[Vec<Option<f64>>]) -> Vec<Part> {
    let values = || strips.iter().flatten().flatten().copied().filter(|us| *us > 0.0);
    let (Some(low), Some(high)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
        return Vec::new();
    };
    let [least, most] = [HEIGHTS[0], HEIGHTS[7]];
    let range = format!("{least} {} to {most} {} (log)", number::time(low), number::time(high));
    let mut blocks = vec![Part::Blank, heading(title, &range)];
    // Of a run whose times are all alike every height is the least.
    let span = (high / low).ln().max(1e-9);
    for (name, strip) in names.iter().zip(strips) {
        let peak = strip.iter().flatten().copied().reduce(f64::max);
        let behind = peak.map_or_else(String::new, |us| format!("peak {}", number::time(us)));
        blocks.push(row(name, &letters(strip, |us| (us / low).ln() / span), &behind));
    }
    blocks
}

/// The mean of each slice of time. None: it has no value.
pub fn cut(series: &Series, last: f64, cells: usize) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0_u32); cells];
    for point in series.points.iter().filter(|point| point[0] <= last) {
        let at = ((point[0] / last.max(1e-9) * cells as f64) as usize).min(cells - 1);
        sums[at].0 += point[2];
        sums[at].1 += 1;
    }
    sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect()
}

/// A character for each value by its share of the height; a blank where there is none.
pub fn letters(values: &[Option<f64>], share: impl Fn(f64) -> f64) -> String {
    let letter = |value: &Option<f64>| {
        value.map_or(' ', |value| {
            HEIGHTS[((share(value).clamp(0.0, 1.0) * 7.0).round() as usize).min(7)]
        })
    };
    values.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_some_requests_each_and_their_mean() {
        let points =
            (0..200_i32).map(|n| [f64::from(n) / 40.0, 0.0, f64::from(n % 2) * 80.0, 80.0]);
        let series = Series { points: points.collect() };
        let binned = means(&series, 100, 5.0);
        assert_eq!(binned.len(), 20, "100 requests, five in each");
        assert!(binned.iter().all(|[_, rate, ..]| (rate - 40.0).abs() < 1e-9), "{binned:?}");
        assert!((binned[0][0] - 0.125).abs() < 1e-9, "the middle of a bin");
        assert!(means(&Series::default(), 100, 5.0).is_empty());
    }

    #[test]
    fn a_line_does_not_go_on_where_nothing_succeeded() {
        let whole = |from: u32, to: u32| (from..to).map(|at| point(f64::from(at), 1.0));
        let lengths = |points: Vec<[f64; 4]>, corners| {
            let line = Line { points, ..Line::default() };
            line.pieces(corners).map(<[_]>::len).collect::<Vec<_>>()
        };
        let gap = || whole(0, 10).chain(whole(20, 30)).collect();
        assert_eq!(lengths(gap(), false), [10, 10]);
        assert_eq!(lengths(gap(), true), [20]);
        let hole = whole(0, 3).chain([point(3.0, f64::NAN)]).chain(whole(4, 6));
        assert_eq!(lengths(hole.collect(), true), [3, 2]);
        assert_eq!(lengths(Vec::new(), false), [0; 0]);
    }

    #[test]
    fn a_letter_shows_a_share_of_the_height_and_a_blank_no_value() {
        let values = [Some(0.0), None, Some(10.0), Some(20.0)];
        assert_eq!(letters(&values, |busy| busy / 20.0), "▁ ▅█");
    }

    #[test]
    fn slices_hold_the_mean_of_their_points() {
        let points = vec![[0.0, 1.0, 1.0, 1.0], [0.4, 3.0, 3.0, 3.0], [1.9, 5.0, 5.0, 5.0]];
        assert_eq!(cut(&Series { points }, 2.0, 4), [Some(2.0), None, None, Some(5.0)]);
    }
}
