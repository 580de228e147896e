//! What do pictures of bulk data show? Goodput and latency over a size, beside what limits them; which
//! way of sending is the fastest; the round trip under load; and all of it over time.
//!
//! Here arms are gathered over the levels of a size, a line per combination of everything else, with what the record
//! says they could reach at most; `over` draws both. Experiments whose arms have sizes for levels share this.

mod over;
mod time;

use tcptoll_core::experiment::figures::{GOODPUT, LATENCY};
use tcptoll_core::record::{Arm, Transfer, Way};
use tcptoll_core::verdict::throughput;
use tcptoll_show::run::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::run::Section;
use tcptoll_show::svg::arm_class;
use tcptoll_show::{published, rounds};

/// Options whose levels are sizes in bytes, in the order of their pictures.
const SIZES: [Size; 4] = [
    Size { option: "window", noun: "window", axis: "requested socket buffers", receives: true },
    Size {
        option: "receive-buffer",
        noun: "receive buffer",
        axis: "requested receive buffer",
        receives: true,
    },
    Size {
        option: "send-buffer",
        noun: "send buffer",
        axis: "requested send buffer",
        receives: false,
    },
    Size { option: "message", noun: "message", axis: "message", receives: false },
];

/// An option whose levels are sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    option: &'static str,
    /// What has that size.
    noun: &'static str,
    /// What the axis shows.
    axis: &'static str,
    /// Whether it sets the window of the receiver.
    receives: bool,
}

/// Goodput over each size that has levels, then latency over them.
fn over(summary: &Run) -> Vec<Lines<'_>> {
    let shown = [
        Shown { metric: GOODPUT.name, words: "goodput" },
        Shown { metric: "latency_us_p50", words: LATENCY.words },
    ];
    let lines =
        |shown: Shown| SIZES.iter().filter_map(move |size| Lines::new(summary, *size, shown));
    shown.into_iter().flat_map(lines).collect()
}

pub(super) fn picture(summary: &Run) -> Option<Picture> {
    over(summary).first().map(over::picture)
}

/// Whether the first of these shows the metric of the run.
pub(super) fn leads(summary: &Run) -> bool {
    let shown = over(summary).first().map(|lines| lines.shown.metric);
    shown.is_some() && shown == rounds::metric(summary)
}

/// The others, and what is compared per arm; `loaded` is the metric of a round trip under load.
pub(super) fn sections(summary: &Run, loaded: Option<&str>) -> Vec<Section> {
    let lines = over(summary);
    let goodput = lines.iter().skip(1).map(|lines| over::picture(lines).part(summary)).collect();
    let heat = lines.iter().find_map(over::cells).map(|picture| picture.part(summary));
    let beside = loaded
        .and_then(|loaded| time::beside(summary, loaded))
        .map(|picture| picture.part(summary));
    vec![
        Section::led("By size", goodput),
        Section::new("Each way of sending, by size", heat.into_iter().collect()),
        Section::new("Goodput and round trip", beside.into_iter().collect()),
    ]
}

/// How the arms went over time.
pub(super) fn details(summary: &Run) -> Vec<Section> {
    vec![Section::new("Over time", time::items(summary))]
}

/// More lines than this cannot be told apart.
const LINES: usize = 9;

/// How far a bar reaches from a median.
const P99: &str = "latency_us_p99";

/// A metric that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    metric: &'static str,
    words: &'static str,
}

/// An arm on a line. Rates are in bit/s, times in µs.
#[derive(Clone, Debug)]
struct Point<'a> {
    /// Its place among the arms.
    at: usize,
    arm: &'a Arm,
    /// The size, bytes; absent: the kernel chooses.
    size: Option<f64>,
    /// Value, above 0.
    value: f64,
    /// Of a rate its 95 % interval, above 0; of a median from it to the 99th percentile.
    bar: Option<[f64; 2]>,
    /// What was published for it: value and source.
    published: Option<(f64, &'a str)>,
}

/// Arms that differ in the size alone.
#[derive(Clone, Debug)]
struct Line<'a> {
    /// What they have in common; empty if there is only one line.
    label: String,
    colour: String,
    dash: &'static str,
    /// Sizes ascending; then what the kernel chose.
    points: Vec<Point<'a>>,
}

impl<'a> Line<'a> {
    /// Points with a size.
    fn sized(&self) -> impl Iterator<Item = (f64, &Point<'a>)> {
        self.points.iter().filter_map(|point| Some((point.size?, point)))
    }

    /// The point of a size.
    fn of_size(&self, size: f64) -> Option<&Point<'a>> {
        self.sized().find(|(own, _)| own.total_cmp(&size).is_eq()).map(|(_, point)| point)
    }

    /// The label before a sentence: `nagle on: `.
    fn before(&self) -> String {
        if self.label.is_empty() { String::new() } else { format!("{}: ", self.label) }
    }
}

/// A metric over a size.
#[derive(Clone, Debug)]
struct Lines<'a> {
    size: Size,
    shown: Shown,
    /// Whether the metric is a rate, in bit/s; else it is a time.
    rate: bool,
    /// At least one has two points.
    all: Vec<Line<'a>>,
    /// Lines that were too many.
    more: usize,
}

impl<'a> Lines<'a> {
    /// The metric over the levels of a size; `None` with fewer than two of them.
    fn new(summary: &'a Run, size: Size, shown: Shown) -> Option<Self> {
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

    fn points(&self) -> impl Iterator<Item = &Point<'a>> {
        self.all.iter().flat_map(|line| &line.points)
    }

    /// All sizes, ascending, each once.
    fn sizes(&self) -> Vec<f64> {
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

/// Limits that differ by less are drawn once.
const ALIKE: f64 = 1.15;

/// Limits of rates, bit/s.
#[derive(Clone, Debug, Default)]
struct Limits {
    /// What the links carry, each once.
    links: Vec<f64>,
    /// Window / RTT over the size, of each line that has one of its own.
    windows: Vec<Window>,
}

/// What the window allows in a round trip.
#[derive(Clone, Debug)]
struct Window {
    /// Round trip of the quiet link, µs.
    rtt_us: f64,
    /// Size asked for, bytes; window as the sender saw it, bytes; bit/s.
    points: Vec<[f64; 3]>,
}

/// The direction of an arm that its goodput is of.
fn way(transfer: &Transfer) -> Option<&Way> {
    transfer.ways().map(|(_, way)| way).max_by_key(|way| way.window_bytes)
}

/// The round trip without load, µs.
fn quiet_rtt_us(arm: &Arm) -> Option<f64> {
    let transfer = arm.own.transfer.as_ref()?;
    let rtt = match way(transfer) {
        Some(way) => throughput::quiet_rtt_us(transfer, &way.sender),
        None => transfer.quiet_rtt_us,
    };
    rtt.filter(|us| us.is_finite() && *us > 0.0)
}

/// Payload that the link of an arm carries, bit/s.
fn link(arm: &Arm) -> Option<f64> {
    let rate = arm.own.transfer.as_ref()?.link_bytes_per_s? * 8.0;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// The limits of lines; none of times.
fn limits(lines: &Lines<'_>) -> Limits {
    let mut limits = Limits::default();
    if !lines.rate {
        return limits;
    }
    for rate in lines.points().filter_map(|point| link(point.arm)) {
        if !limits.links.iter().any(|known| alike(*known, rate)) {
            limits.links.push(rate);
        }
    }
    for line in lines.all.iter().filter(|_| lines.size.receives) {
        let Some(window) = window(line) else { continue };
        let same = |known: &Window| {
            known.points.len() == window.points.len()
                && known.points.iter().zip(&window.points).all(|(a, b)| alike(a[2], b[2]))
        };
        if !limits.windows.iter().any(same) {
            limits.windows.push(window);
        }
    }
    limits
}

fn alike(a: f64, b: f64) -> bool {
    a.max(b) <= a.min(b) * ALIKE
}

/// Window / RTT of a line; `None` with fewer than two points.
fn window(line: &Line<'_>) -> Option<Window> {
    let bound = |(size, point): (f64, &Point<'_>)| {
        let transfer = point.arm.own.transfer.as_ref()?;
        let window = way(transfer)?.sender.peer_window_bytes?;
        let rtt_us = quiet_rtt_us(point.arm)?;
        // Each connection has a window.
        let rate = window * transfer.connections.max(1) as f64 * 8.0 / (rtt_us / 1e6);
        (rate.is_finite() && rate > 0.0).then_some(([size, window, rate], rtt_us))
    };
    let (points, rtts): (Vec<[f64; 3]>, Vec<f64>) = line.sized().filter_map(bound).unzip();
    let rtt_us = rtts.iter().copied().sum::<f64>() / rtts.len() as f64;
    (points.len() > 1).then_some(Window { rtt_us, points })
}

#[cfg(test)]
mod tests;
