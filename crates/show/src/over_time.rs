//! Quantities over time, for every experiment that records some.
//!
//! `bins` makes a series coarse enough to read, `stack` draws panels on one axis of time, `strips` draws
//! with letters.

use crate::html::plot;
use crate::html::plot::{Frame, KEY, Plot, Scale, TICKS};
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

/// `(seconds, mean)` of bins over the whole time, as many as `requests` allow. A bin without a value has
/// no point; a point stands in the middle of its bin.
pub fn means(series: &Series, requests: u64, last_s: f64) -> Vec<(f64, f64)> {
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
        (count > 0).then(|| ((at as f64 + 0.5) * width, sum / f64::from(count)))
    };
    sums.into_iter().enumerate().filter_map(mean).collect()
}

/// `(seconds, mean)` of each point up to the end.
pub fn whole(series: &Series, last_s: f64) -> Vec<(f64, f64)> {
    let inside = series.points.iter().filter(|point| point[0] <= last_s);
    inside.map(|point| (point[0], point[2])).collect()
}

// How do several quantities stand below each other on one axis of time? Panels of lines, with the stall
// as a band through all of them.

/// Places of a panel that have a tooltip, at most.
const HITS: usize = 40;

/// A step of this many usual ones is a gap.
const GAP: f64 = 3.0;

/// All panels.
pub struct Stack {
    pub panels: Vec<Panel>,
    /// From when to when the backend stood still, s.
    pub stall: Option<[f64; 2]>,
    /// The end of the axis of time, s.
    pub last_s: f64,
}

/// A quantity over time.
pub struct Panel {
    pub title: String,
    /// Whether its axis is logarithmic; else it begins at 0.
    pub log: bool,
    /// A tick in words.
    pub tick: fn(f64) -> String,
    /// A value in words.
    pub words: fn(f64) -> String,
    pub levels: Vec<Level>,
    pub lines: Vec<Line>,
}

/// A value to hold the lines against.
pub struct Level {
    pub value: f64,
    pub text: String,
    /// The class of its dashes.
    pub dash: &'static str,
}

/// A line of a panel.
pub struct Line {
    /// The class of its colour.
    pub class: String,
    /// The class of its dashes, or nothing.
    pub dash: &'static str,
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Its name below the picture, where colours are not named above it.
    pub key: Option<String>,
}

impl Stack {
    pub fn draw(&self) -> Svg {
        let height = 100.0;
        let keys: Vec<(String, &str)> = self.panels.iter().flat_map(Panel::keys).collect();
        let count = self.panels.len();
        let mut svg = Svg::new(height * count as f64 + TICKS + KEY * keys.len() as f64);
        for (n, panel) in self.panels.iter().enumerate() {
            let (top, bottom) = (n as f64 * height + 26.0, (n + 1) as f64 * height);
            let frame = Frame::across(56.0, top, bottom);
            let x = Scale::from_zero(self.last_s, frame.left, frame.right);
            let mut plot = Plot::on(svg, frame, x, panel.scale(bottom, top));
            self.shade(&mut plot, n == 0);
            panel.draw(&mut plot);
            if n + 1 == count {
                plot.x_ticks(6, false, plot::seconds);
                plot.key(keys.iter().cloned());
            }
            svg = plot.svg;
        }
        svg
    }

    /// The stall, with its name in the first panel.
    fn shade(&self, plot: &mut Plot, named: bool) {
        let Some([from, until]) = self.stall else { return };
        let Frame { top, bottom, .. } = plot.frame;
        let (x0, x1) = (plot.x.at(from), plot.x.at(until));
        let s = number::trimmed;
        let tooltip = format!("stall from {} s to {} s", s(from), s(until));
        plot.svg.rect("margin", (x0, top), (x1 - x0, bottom - top), &tooltip);
        if named {
            plot.svg.text("tick", (f64::midpoint(x0, x1), top - 12.0), Anchor::Middle, "stall");
        }
    }
}

/// Points that follow each other: a line does not go on over a gap, as where no request succeeded.
pub fn pieces(points: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    let steps = points.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let usual = steps.clone().sum::<f64>() / steps.len().max(1) as f64;
    points.chunk_by(move |a, b| b.0 - a.0 <= usual * GAP)
}

impl Panel {
    fn keys(&self) -> impl Iterator<Item = (String, &str)> {
        self.lines.iter().filter_map(|line| {
            Some((format!("curve {} {}", line.dash, line.class), line.key.as_deref()?))
        })
    }

    fn scale(&self, bottom: f64, top: f64) -> Scale {
        let values = self.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let values = values.chain(self.levels.iter().map(|level| level.value));
        if self.log {
            Scale::log(values, bottom, top)
        } else {
            Scale::from_zero(values.fold(0.0, f64::max) * 1.08, bottom, top)
        }
    }

    fn draw(&self, plot: &mut Plot) {
        let Frame { left, right, top, .. } = plot.frame;
        plot.y_axis(4, self.tick);
        plot.base();
        let title = clean::shorten(&self.title, 62);
        plot.svg.text("label", (0.0, top - 12.0), Anchor::Start, &title);
        for level in &self.levels {
            plot.group("echo", &level.text, |plot| {
                plot.level(&format!("none {}", level.dash), level.value);
            });
            let place = (right - 4.0, plot.y.at(level.value) + 8.0);
            plot.svg.text("name", place, Anchor::End, &level.text);
        }
        for line in &self.lines {
            plot.group(&line.class, &line.name, |plot| {
                let class = format!("curve {}", line.dash);
                for piece in pieces(&line.points) {
                    match piece {
                        [alone] => plot.dot("full", *alone, 2.0, ""),
                        piece => plot.line(class.trim_end(), piece.iter().copied()),
                    }
                }
            });
        }
        self.hits(plot, (right - left) / HITS as f64);
    }

    /// Something to point at: what each line is at an instant.
    fn hits(&self, plot: &mut Plot, width: f64) {
        let Frame { left, right, top, bottom, .. } = plot.frame;
        let Some(last) =
            self.lines.iter().filter_map(|line| line.points.last()).map(|p| p.0).reduce(f64::max)
        else {
            return;
        };
        for at in 0..HITS {
            let s = last * (at as f64 + 0.5) / HITS as f64;
            let near = |line: &Line| {
                let by =
                    |a: &&(f64, f64), b: &&(f64, f64)| (a.0 - s).abs().total_cmp(&(b.0 - s).abs());
                let nearest = line.points.iter().min_by(by)?;
                Some(format!("{}: {}", line.name, (self.words)(nearest.1)))
            };
            let all: Vec<String> = self.lines.iter().filter_map(near).collect();
            let tooltip = format!("at {} s: {}", number::trimmed(s), all.join(", "));
            let x = plot.x.at(s) - width / 2.0;
            let size = (width.min(right - left), bottom - top);
            plot.svg.rect("hit", (x, top), size, &tooltip);
        }
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
        assert!(binned.iter().all(|(_, rate)| (rate - 40.0).abs() < 1e-9), "{binned:?}");
        assert!((binned[0].0 - 0.125).abs() < 1e-9, "the middle of a bin");
        assert!(means(&Series::default(), 100, 5.0).is_empty());
    }

    #[test]
    fn a_line_does_not_go_on_where_nothing_succeeded() {
        let whole = |from: u32, to: u32| (from..to).map(|at| (f64::from(at), 1.0));
        let points: Vec<(f64, f64)> = whole(0, 10).chain(whole(20, 30)).collect();
        let lengths: Vec<usize> = pieces(&points).map(<[_]>::len).collect();
        assert_eq!(lengths, [10, 10]);
        assert_eq!(pieces(&points[..10]).count(), 1);
        assert_eq!(pieces(&[]).count(), 0);
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
