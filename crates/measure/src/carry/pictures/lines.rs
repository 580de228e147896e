//! Which arms belong on one line? A metric over the levels of a size, a line per combination of
//! everything else.

use tcptoll_core::record::Arm;

use super::Size;
use tcptoll_show::run::Run;
use tcptoll_show::svg::arm_class;
use tcptoll_show::{published, rounds};

/// More lines than this cannot be told apart.
const LINES: usize = 9;

/// How far a bar reaches from a median.
const P99: &str = "latency_us_p99";

/// A metric that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Its name.
    pub(super) metric: &'static str,
    /// In words.
    pub(super) words: &'static str,
}

/// An arm on a line. Rates are in bit/s, times in µs.
#[derive(Clone, Debug)]
pub(super) struct Point<'a> {
    /// Its place among the arms.
    pub(super) at: usize,
    /// The arm.
    pub(super) arm: &'a Arm,
    /// The size, bytes; absent: the kernel chooses.
    pub(super) size: Option<f64>,
    /// Value, above 0.
    pub(super) value: f64,
    /// Of a rate its 95 % interval, above 0; of a median from it to the 99th percentile.
    pub(super) bar: Option<[f64; 2]>,
    /// What was published for it: value and source.
    pub(super) published: Option<(f64, &'a str)>,
}

/// Arms that differ in the size alone.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    /// What they have in common; empty if there is only one line.
    pub(super) label: String,
    /// Its colour.
    pub(super) colour: String,
    /// Its dashes.
    pub(super) dash: &'static str,
    /// Sizes ascending; then what the kernel chose.
    pub(super) points: Vec<Point<'a>>,
}

impl<'a> Line<'a> {
    /// Points with a size.
    pub(super) fn sized(&self) -> impl Iterator<Item = (f64, &Point<'a>)> {
        self.points.iter().filter_map(|point| Some((point.size?, point)))
    }

    /// The point of a size.
    pub(super) fn of_size(&self, size: f64) -> Option<&Point<'a>> {
        self.sized().find(|(own, _)| own.total_cmp(&size).is_eq()).map(|(_, point)| point)
    }

    /// The label before a sentence: `nagle on: `.
    pub(super) fn before(&self) -> String {
        if self.label.is_empty() { String::new() } else { format!("{}: ", self.label) }
    }
}

/// A metric over a size.
#[derive(Clone, Debug)]
pub(super) struct Lines<'a> {
    /// The size.
    pub(super) size: Size,
    /// The metric.
    pub(super) shown: Shown,
    /// Whether the metric is a rate, in bit/s; else it is a time.
    pub(super) rate: bool,
    /// At least one has two points.
    pub(super) all: Vec<Line<'a>>,
    /// Lines that were too many.
    pub(super) more: usize,
}

impl<'a> Lines<'a> {
    /// The metric over the levels of a size; `None` with fewer than two of them.
    pub(super) fn new(summary: &'a Run, size: Size, shown: Shown) -> Option<Self> {
        let rate = rounds::unit(summary, shown.metric) == "bytes/s";
        let factor = if rate { 8.0 } else { 1.0 };
        let mut lines: Vec<Line<'a>> = Vec::new();
        for (at, arm) in summary.arms.iter().enumerate() {
            let Some(level) = arm.factors.get(size.option) else { continue };
            let bytes = rounds::numeric(level).filter(|bytes| *bytes > 0.0);
            if bytes.is_none() && level != "auto" {
                continue;
            }
            let Some(measured) = rounds::measured(arm, shown.metric) else { continue };
            if measured.value <= 0.0 {
                continue;
            }
            let interval =
                measured.ci95.filter(|ci| ci[0] > 0.0).map(|ci| ci.map(|end| end * factor));
            let to_p99 = rounds::measured(arm, P99).map(|p99| [measured.value, p99.value]);
            let theirs = published::figure(summary, &arm.name, shown.metric);
            let point = Point {
                at,
                arm,
                size: bytes,
                value: measured.value * factor,
                bar: if rate { interval } else { to_p99 },
                published: theirs.map(|p| (p.value * factor, p.source.as_str())),
            };
            let label = without(&arm.name, &format!("{} {}", size.option, rounds::level(level)));
            match lines.iter_mut().find(|line| line.label == label) {
                // The factors do not tell the arms apart.
                Some(line) if line.points.iter().any(|known| known.size == bytes) => return None,
                Some(line) => line.points.push(point),
                None => {
                    lines.push(Line {
                        label,
                        colour: String::new(),
                        dash: "",
                        points: vec![point],
                    });
                }
            }
        }
        for line in &mut lines {
            let last = |point: &Point<'_>| point.size.unwrap_or(f64::INFINITY);
            line.points.sort_by(|a, b| last(a).total_cmp(&last(b)));
        }
        lines.iter().any(|line| line.sized().count() > 1).then_some(())?;
        let more = lines.len().saturating_sub(LINES);
        lines.truncate(LINES);
        colour(&mut lines);
        if let [only] = lines.as_mut_slice() {
            only.label = String::new();
        }
        Some(Self { size, shown, rate, all: lines, more })
    }

    /// All points.
    pub(super) fn points(&self) -> impl Iterator<Item = &Point<'a>> {
        self.all.iter().flat_map(|line| &line.points)
    }

    /// All sizes, ascending, each once.
    pub(super) fn sizes(&self) -> Vec<f64> {
        let mut sizes: Vec<f64> = self.points().filter_map(|point| point.size).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes
    }
}

/// A line has the colour of its first arm; where two would have the same, that of its place.
fn colour(lines: &mut [Line<'_>]) {
    let own_colour = |line: &Line<'_>| line.points.first().map_or(0, |point| point.at % LINES);
    let mut colours: Vec<usize> = lines.iter().map(own_colour).collect();
    colours.sort_unstable();
    let distinct = colours.windows(2).all(|pair| pair[0] != pair[1]);
    for (at, line) in lines.iter_mut().enumerate() {
        let colour = if distinct { own_colour(line) } else { at };
        line.colour = arm_class(colour);
        line.dash = ["d0", "d1", "d2", "d3"][at % 4];
    }
}

/// The name of an arm without its level: `nagle on` of `message 64, nagle on`.
fn without(name: &str, level: &str) -> String {
    let parts: Vec<&str> = name.split(", ").filter(|part| *part != level).collect();
    parts.join(", ")
}
