//! Pictures of `time-wait`: the CPU of connect(2) over the ports in use next to the cliff that was expected,
//! idle CPU over the rate, and how an arm went over time.

use tcptoll_core::record::{Arm, PortPoint, PortUse};
use tcptoll_core::stats::Series;
use tcptoll_show::html::over_time::{Axis, Instant, Line, Panel, Stack};
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::run::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Svg, arm_class};
use tcptoll_show::{number, published, rounds};

use super::{IDLE_SHARE, RATE};

/// Names of marks stand in so many rows above the frame.
const MARK_ROWS: usize = 3;

/// More lines than this cannot be told apart.
const LINES: usize = 9;

/// Most places of a line that have a tooltip.
const HITS: usize = 40;

/// An end of a range farther away than this many times the longest line is not drawn.
const NEAR: f64 = 1.2;

/// What an arm recorded of its ports.
pub(super) fn port_use(arm: &Arm) -> Option<&PortUse> {
    arm.own.port_use.as_deref().filter(|_| arm.failure.is_none())
}

/// An arm with a line.
struct CurveLine<'a> {
    at: usize,
    arm: &'a Arm,
    used: &'a PortUse,
    points: Vec<&'a PortPoint>,
}

impl CurveLine<'_> {
    fn last(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.ports)
    }
}

struct Mark {
    class: String,
    ports: f64,
    text: String,
}

fn curve_lines(summary: &Run) -> Vec<CurveLine<'_>> {
    let line = |(at, arm)| {
        let used: &PortUse = port_use(arm)?;
        let drawn = |point: &&PortPoint| point.connections > 0 && point.connect_cpu_us > 0.0;
        let points: Vec<&PortPoint> = used.curve.iter().filter(drawn).collect();
        (points.len() > 1).then_some(CurveLine { at, arm, used, points })
    };
    summary.arms.iter().enumerate().filter_map(line).take(LINES).collect()
}

/// The picture; `None` if no arm has a line.
pub(super) fn curve(summary: &Run) -> Option<Picture> {
    let lines = curve_lines(summary);
    (!lines.is_empty()).then(|| Picture {
        svg: draw_curve(&lines).labelled("CPU of connect(2) over local ports in use"),
        caption: curve_caption(summary, &lines),
        drawn: lines.iter().map(|line| line.at).collect(),
    })
}

/// Expected cliffs and ends of ranges, each once: of several arms at one place the first has the line.
fn marks(lines: &[CurveLine<'_>]) -> Vec<Mark> {
    let longest = lines.iter().map(CurveLine::last).fold(0.0, f64::max);
    let mut marks: Vec<Mark> = Vec::new();
    let mut add = |mark: Mark| {
        let known = marks.iter().any(|known| (known.ports - mark.ports).abs() < 0.5);
        if mark.ports <= longest * NEAR && !known {
            marks.push(mark);
        }
    };
    for line in lines {
        let class = |dash| format!("computed {dash} {}", arm_class(line.at));
        if let Some(expected) = line.used.cliff_expected {
            let text = format!("expected: {}", number::fixed(expected, 0));
            add(Mark { class: class("d1"), ports: expected, text });
        }
    }
    for line in lines {
        if let Some(forecast) = &line.arm.ports {
            let end = forecast.at_once as f64;
            let class = format!("computed d2 {}", arm_class(line.at));
            add(Mark { class, ports: end, text: format!("last port: {}", number::fixed(end, 0)) });
        }
    }
    marks
}

fn draw_curve(lines: &[CurveLine<'_>]) -> Svg {
    let marks = marks(lines);
    let [left, bottom] = [58.0, 230.0];
    let frame = Frame::across(left, 20.0 + 14.0 * marks.len().min(MARK_ROWS) as f64, bottom);
    let costs = lines.iter().flat_map(|line| &line.points).map(|point| point.connect_cpu_us);
    let longest = lines.iter().map(CurveLine::last).chain(marks.iter().map(|mark| mark.ports));
    let x = Scale::from_zero(longest.fold(0.0, f64::max) * 1.02, left, frame.right);
    let y = Scale::log(costs, bottom - 6.0, frame.top + 6.0);
    let keyed: Vec<(String, String)> = [
        (
            marks.iter().any(|m| m.class.contains("d1")),
            "d1",
            "expected cliff, computed before the run",
        ),
        (marks.iter().any(|m| m.class.contains("d2")), "d2", "last local port"),
    ]
    .into_iter()
    .filter(|(any, ..)| *any)
    .map(|(_, dash, name)| (format!("computed echo {dash}"), name.to_owned()))
    .collect();
    let mut plot = Plot::new(frame, plot::TICKS_AND_LABEL + plot::KEY * keyed.len() as f64, x, y);
    plot.y_axis(8, |us| number::tick(us, "us"));
    plot.x_ticks(6, true, |ports| number::fixed(ports, 0));
    plot.base();
    plot.y_label("CPU of connect(2) (log)");
    plot.x_label("local ports in use");
    for (n, mark) in marks.iter().enumerate() {
        let at = plot.x.at(mark.ports);
        plot.group("", &mark.text, |plot| {
            plot.svg.line(&mark.class, (at, plot.frame.top), (at, bottom));
        });
        // Above the frame, in rows, as lines may be next to each other.
        let row = (n % MARK_ROWS) as f64;
        let anchor =
            if at > f64::midpoint(left, frame.right) { Anchor::End } else { Anchor::Start };
        let beside = if anchor == Anchor::End { at - 5.0 } else { at + 5.0 };
        plot.svg.text("name", (beside, frame.top - 10.0 - row * 14.0), anchor, &mark.text);
    }
    for line in lines {
        draw_line(&mut plot, line);
    }
    plot.key(keyed.iter().map(|(class, name)| (class.clone(), name.as_str())));
    plot.svg
}

fn draw_line(plot: &mut Plot, line: &CurveLine<'_>) {
    let Frame { top, bottom, .. } = plot.frame;
    plot.group(&arm_class(line.at), "", |plot| {
        plot.line("curve", line.points.iter().map(|point| (point.ports, point.connect_cpu_us)));
        let every = line.points.len().div_ceil(HITS).max(1);
        let width = (plot.x.at(line.last()) - plot.frame.left) * every as f64
            / line.points.len().max(1) as f64;
        for point in line.points.iter().step_by(every) {
            let tooltip = format!(
                "{}: {} of CPU with {} ports in use; established after {}",
                line.arm.name,
                number::time(point.connect_cpu_us),
                number::fixed(point.ports, 0),
                number::time(point.connect_us)
            );
            let at = plot.x.at(point.ports) - width / 2.0;
            plot.svg.rect("hit", (at, top), (width, bottom - top), &tooltip);
        }
        if let Some(cliff) = line.used.cliff {
            let middle = (cliff.below_us * cliff.above_us).sqrt();
            let tooltip = format!(
                "{}: cliff found at {} ports in use, from {} to {}",
                line.arm.name,
                number::fixed(cliff.at_ports, 0),
                number::time(cliff.below_us),
                number::time(cliff.above_us)
            );
            plot.dot("hollow", (cliff.at_ports, middle), 4.0, &tooltip);
        }
    });
}

/// One sentence for the highest cliff, one for arms without one.
fn curve_caption(summary: &Run, lines: &[CurveLine<'_>]) -> String {
    let several = summary.arms.len() > 1;
    let with = lines.iter().filter_map(|line| Some((line, line.used.cliff?)));
    let highest = with.max_by(|(_, a), (_, b)| a.factor().total_cmp(&b.factor()));
    let mut said = Vec::new();
    if let Some((line, cliff)) = highest {
        let expected = line.used.cliff_expected.map_or_else(String::new, |expected| {
            let off = (cliff.at_ports / expected - 1.0).abs() * 100.0;
            format!(", {off:.1} % from the expected number")
        });
        let name = if several { format!("{}: c", line.arm.name) } else { "C".to_owned() };
        said.push(format!(
            "{name}onnect(2) rises from {} to {} of CPU ({} times) at {} ports in use (circle){expected}.",
            number::time(cliff.below_us),
            number::time(cliff.above_us),
            number::three(cliff.factor()),
            number::fixed(cliff.at_ports, 0)
        ));
    }
    let without: Vec<&str> = lines
        .iter()
        .filter(|line| line.used.cliff.is_none())
        .map(|line| line.arm.name.as_str())
        .collect();
    if several && !without.is_empty() && highest.is_some() {
        said.push(format!("Without a step: {}.", without.join(", ")));
    }
    if lines.iter().any(|line| line.arm.rounds.len() > 1) {
        said.push("The picture shows the first round.".to_owned());
    }
    if said.is_empty() {
        said.push("No step was found in the cost of connecting.".to_owned());
    }
    said.join(" ")
}

/// Half of a mark at the end of an interval.
const END: f64 = 4.5;

/// Rates nearer than this share of the greatest are drawn as one place.
const SAME: f64 = 0.04;

struct Point<'a> {
    at: usize,
    arm: &'a Arm,
    rate: f64,
    idle: f64,
    ci95: Option<[f64; 2]>,
    /// Published rate and idle share, with the source.
    published: Option<(f64, f64, &'a str)>,
}

fn points(summary: &Run) -> Vec<Point<'_>> {
    let point = |at: usize, arm| -> Option<Point<'_>> {
        let (rate, idle) =
            (rounds::measured(arm, RATE.name)?, rounds::measured(arm, IDLE_SHARE.name)?);
        let theirs = published::figure(summary, &arm.name, IDLE_SHARE.name);
        let their_rate = published::figure(summary, &arm.name, RATE.name);
        let published = theirs.map(|theirs| {
            let rate = their_rate.map_or(rate.value, |rate| rate.value);
            (rate, theirs.value, theirs.source.as_str())
        });
        Some(Point { at, arm, rate: rate.value, idle: idle.value, ci95: idle.ci95, published })
    };
    let found = summary.arms.iter().enumerate().filter_map(|(at, arm)| point(at, arm));
    found.collect()
}

/// The picture; `None` with fewer than two arms that have both figures.
pub(super) fn idle(summary: &Run) -> Option<Picture> {
    let points = points(summary);
    (points.len() > 1).then(|| Picture {
        svg: draw_idle(&points).labelled("Idle CPU of the client over operations per second"),
        caption: idle_caption(&points),
        drawn: points.iter().map(|point| point.at).collect(),
    })
}

fn draw_idle(points: &[Point<'_>]) -> Svg {
    let frame = Frame::across(50.0, 24.0, 210.0);
    let rates = points.iter().flat_map(|p| [p.rate, p.published.map_or(p.rate, |(rate, ..)| rate)]);
    let most = rates.fold(0.0, f64::max);
    let x = Scale::from_zero(most * 1.12, frame.left, frame.right);
    let y = Scale::between(0.0, 1.0, frame.bottom, frame.top);
    let mut plot = Plot::new(frame, plot::TICKS_AND_LABEL, x, y);
    plot.y_axis(6, |share| number::tick(share, "share"));
    plot.x_ticks(6, true, |rate| number::count(rate as u64));
    plot.base();
    plot.y_label("idle CPU of the client");
    plot.x_label("operations per second");
    for (rate, idle, source) in points.iter().filter_map(|point| point.published) {
        let tooltip =
            format!("published: {} at {}/s ({source})", number::percent(idle), number::three(rate));
        plot.group("echo", &tooltip, |plot| plot.dot("hollow", (rate, idle), 4.5, ""));
    }
    // Points of one rate would hide each other: they stand side by side.
    let mut places: Vec<f64> = Vec::new();
    for point in points {
        let same = places.iter().filter(|rate| (**rate - point.rate).abs() < most * SAME).count();
        places.push(point.rate);
        let tooltip = format!(
            "{}: {} idle at {}/s",
            point.arm.name,
            number::percent(point.idle),
            number::three(point.rate)
        );
        let side = if same % 2 == 0 { 1.0 } else { -1.0 };
        let shift = side * same.div_ceil(2) as f64 * 11.0;
        let (at, level) = plot.at((point.rate, point.idle));
        plot.group(&arm_class(point.at), &tooltip, |plot| {
            if let Some(ends) = point.ci95 {
                plot.whisker(at + shift, ends, END);
            }
            plot.svg.dot("full", (at + shift, level), 3.5, "");
        });
    }
    plot.svg
}

fn idle_caption(points: &[Point<'_>]) -> String {
    let by_idle = |a: &&Point<'_>, b: &&Point<'_>| a.idle.total_cmp(&b.idle);
    let ends = points.iter().min_by(by_idle).zip(points.iter().max_by(by_idle));
    let words = ends.map(|(least, most)| {
        let phrase = |point: &Point<'_>| {
            let rate = number::count(point.rate.round() as u64);
            format!("{} at {rate}/s ({})", number::percent(point.idle), point.arm.name)
        };
        format!("Idle CPU ranges from {} to {}.", phrase(least), phrase(most))
    });
    let hollow = points.iter().any(|point| point.published.is_some());
    let hollow = if hollow { " Hollow grey: published." } else { "" };
    words.unwrap_or_default() + hollow
}

/// What is drawn, where an arm recorded it.
const QUANTITIES: [Quantity; 5] = [
    Quantity {
        title: "idle CPU of the client",
        series: |used| used.idle_share.as_ref(),
        tick: |share| number::tick(share, "share"),
        axis: Axis::To(1.0),
        optional: false,
    },
    Quantity {
        title: "busy workers",
        series: |used| used.busy_workers.as_ref(),
        tick: number::plain,
        axis: Axis::FromZero(1.06),
        optional: false,
    },
    Quantity {
        title: "operations per second",
        series: |used| Some(&used.rate_per_s),
        tick: |ports| number::fixed(ports, 0),
        axis: Axis::FromZero(1.06),
        optional: false,
    },
    Quantity {
        title: "operations per second that found no port",
        series: |used| Some(&used.failed_per_s),
        tick: |ports| number::fixed(ports, 0),
        axis: Axis::FromZero(1.06),
        optional: true,
    },
    Quantity {
        title: "local ports in use",
        series: |used| Some(&used.ports_in_use),
        tick: |ports| number::fixed(ports, 0),
        axis: Axis::FromZero(1.06),
        optional: false,
    },
];

#[derive(Clone, Copy)]
struct Quantity {
    title: &'static str,
    series: fn(&PortUse) -> Option<&Series>,
    tick: fn(f64) -> String,
    axis: Axis,
    /// Whether it is left out where all values are 0.
    optional: bool,
}

/// Panels with the places of the arms in them.
fn panels(summary: &Run) -> Vec<(Panel, Vec<usize>)> {
    let of_panel = |Quantity { title, series, tick, axis, optional }: Quantity| {
        let line = |(at, arm): (usize, &Arm)| {
            let points = series(port_use(arm)?)?.points.clone();
            let (class, name) = (arm_class(at), arm.name.clone());
            let line = Line { class, name, points, ..Line::default() };
            (line.points.len() > 1).then_some((line, at))
        };
        let arms = summary.arms.iter().enumerate();
        let (mut lines, places): (Vec<Line>, Vec<usize>) =
            arms.filter_map(line).take(LINES).unzip();
        // Of several arms the bands would hide each other.
        if let [line] = &mut lines[..] {
            line.band = true;
        }
        let any = lines.iter().flat_map(|line| &line.points).any(|point| point[3] > 0.0);
        (!lines.is_empty() && (any || !optional))
            .then(|| (Panel { axis, lines, ..Panel::new(title, tick, tick) }, places))
    };
    QUANTITIES.into_iter().filter_map(of_panel).collect()
}

/// The picture; `None` if nothing was recorded over time.
pub(super) fn over_time(summary: &Run) -> Option<Picture> {
    let (panels, places): (Vec<Panel>, Vec<Vec<usize>>) = panels(summary).into_iter().unzip();
    let mut drawn = places.concat();
    drawn.sort_unstable();
    drawn.dedup();
    let forecasts = expected_ends(summary);
    let instant = |(at, s): &(usize, f64)| Instant {
        class: arm_class(*at),
        s: *s,
        text: format!("ports expected to last {s:.1} s at this rate"),
    };
    (!panels.is_empty()).then(|| Picture {
        svg: Stack {
            instants: forecasts.iter().map(instant).collect(),
            x_label: Some("since the first operation"),
            left: 58.0,
            height: 96.0,
            hits: 0,
            ..Stack::new(panels)
        }
        .draw()
        .labelled("Idle CPU, busy workers, operations and ports over time"),
        caption: over_time_caption(summary, &forecasts),
        drawn,
    })
}

/// When ports are expected to run out, s, each once.
fn expected_ends(summary: &Run) -> Vec<(usize, f64)> {
    let mut all: Vec<(usize, f64)> = Vec::new();
    for (at, arm) in summary.arms.iter().enumerate() {
        let Some(s) = port_use(arm).and_then(|used| used.lasts_expected_s) else { continue };
        if !all.iter().any(|(_, known)| (known - s).abs() < 0.05) {
            all.push((at, s));
        }
    }
    all
}

fn over_time_caption(summary: &Run, forecasts: &[(usize, f64)]) -> String {
    let ends = |series: &Series| Some((series.points.first()?[2], series.points.last()?[2]));
    let fell = summary.arms.iter().filter_map(|arm| {
        let (first, last) = ends(port_use(arm)?.idle_share.as_ref()?)?;
        (first - last > 0.05).then_some((arm, first, last))
    });
    let steepest = fell.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)));
    let mut said = Vec::new();
    if let Some((arm, first, last)) = steepest {
        said.push(format!(
            "{}: idle CPU falls from {} to {}.",
            arm.name,
            number::percent(first),
            number::percent(last)
        ));
    }
    if let Some((at, s)) = forecasts.first() {
        said.push(format!(
            "Dashed: the ports of {} are expected to run out after {s:.1} s.",
            summary.arms[*at].name
        ));
    }
    if summary.arms.iter().any(|arm| arm.rounds.len() > 1) {
        said.push("The picture shows the first round.".to_owned());
    }
    if said.is_empty() {
        said.push("Idle CPU, busy workers, operations and ports in use.".to_owned());
    }
    said.join(" ")
}
