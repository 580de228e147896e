//! The CPU of connect(2) over the ports in use, a line per arm, with the cliff that was expected and the
//! end of each range as vertical lines.

use tcptoll_core::record::{Arm, PortPoint, PortUse};

use super::{port_use, ports, times};
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::number;
use tcptoll_show::own::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Screen, Svg, arm_class, for_both};

/// More lines than this cannot be told apart.
const LINES: usize = 9;

/// Most places of a line that have a tooltip.
const HITS: usize = 40;

/// An end of a range farther away than this many times the longest line is not drawn.
const NEAR: f64 = 1.2;

/// An arm with a line.
struct Line<'a> {
    at: usize,
    arm: &'a Arm,
    used: &'a PortUse,
    points: Vec<&'a PortPoint>,
}

impl Line<'_> {
    fn last(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.ports)
    }
}

/// A vertical line.
struct Mark {
    class: String,
    ports: f64,
    text: String,
}

fn lines(summary: &Run) -> Vec<Line<'_>> {
    let line = |(at, arm)| {
        let used: &PortUse = port_use(arm)?;
        let drawn = |point: &&PortPoint| point.connections > 0 && point.connect_cpu_us > 0.0;
        let points: Vec<&PortPoint> = used.curve.iter().filter(drawn).collect();
        (points.len() > 1).then_some(Line { at, arm, used, points })
    };
    summary.arms.iter().enumerate().filter_map(line).take(LINES).collect()
}

/// The picture; `None` if no arm has a line.
pub(super) fn picture(summary: &Run) -> Option<Picture> {
    let lines = lines(summary);
    (!lines.is_empty()).then(|| Picture {
        both_svg: for_both("CPU of connect(2) over local ports in use", |screen| {
            draw(&lines, screen)
        }),
        caption: caption(summary, &lines),
        drawn: lines.iter().map(|line| line.at).collect(),
    })
}

/// Expected cliffs and ends of ranges, each once: of several arms at one place the first has the line.
fn marks(lines: &[Line<'_>]) -> Vec<Mark> {
    let longest = lines.iter().map(Line::last).fold(0.0, f64::max);
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
            let text = format!("expected: {}", ports(expected));
            add(Mark { class: class("d1"), ports: expected, text });
        }
    }
    for line in lines {
        if let Some(forecast) = &line.arm.ports {
            let end = forecast.at_once as f64;
            let class = format!("computed d2 {}", arm_class(line.at));
            add(Mark { class, ports: end, text: format!("last port: {}", ports(end)) });
        }
    }
    marks
}

fn draw(lines: &[Line<'_>], screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let [left, bottom] = if wide { [72.0, 330.0] } else { [60.0, 270.0] };
    let frame = Frame::across(screen, left, 66.0, bottom);
    let marks = marks(lines);
    let costs = lines.iter().flat_map(|line| &line.points).map(|point| point.connect_cpu_us);
    let longest = lines.iter().map(Line::last).chain(marks.iter().map(|mark| mark.ports));
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
    let mut plot = Plot::new(frame, 52.0 + plot::KEY * keyed.len() as f64, x, y);
    plot.y_axis(if wide { 9 } else { 7 }, number::tick);
    plot.x_ticks(if wide { 8 } else { 4 }, true, ports);
    plot.base();
    plot.y_label("CPU of connect(2) (log)");
    plot.x_label(34.0, "local ports in use");
    for (n, mark) in marks.iter().enumerate() {
        let at = plot.x.at(mark.ports);
        plot.group("", &mark.text, |plot| {
            plot.svg.line(&mark.class, (at, plot.frame.top), (at, bottom));
        });
        // Above the frame, in rows, as lines may be next to each other.
        let row = (n % 3) as f64;
        let anchor =
            if at > f64::midpoint(left, frame.right) { Anchor::End } else { Anchor::Start };
        let beside = if anchor == Anchor::End { at - 5.0 } else { at + 5.0 };
        plot.svg.text("name", (beside, frame.top - 6.0 - row * 15.0), anchor, &mark.text);
    }
    for line in lines {
        one(&mut plot, line, wide);
    }
    plot.key(52.0, 34.0, keyed.iter().map(|(class, name)| (class.clone(), name.as_str())));
    plot.svg
}

fn one(plot: &mut Plot, line: &Line<'_>, wide: bool) {
    let Frame { top, bottom, .. } = plot.frame;
    plot.group(&arm_class(line.at), "", |plot| {
        plot.line("curve", line.points.iter().map(|point| (point.ports, point.connect_cpu_us)));
        let every = line.points.len().div_ceil(HITS).max(1);
        let width = (plot.x.at(line.last()) - plot.frame.left) * every as f64
            / line.points.len().max(1) as f64;
        for point in line.points.iter().step_by(every).filter(|_| wide) {
            let tooltip = format!(
                "{}: {} of CPU with {} ports in use; established after {}",
                line.arm.name,
                number::time(point.connect_cpu_us),
                ports(point.ports),
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
                ports(cliff.at_ports),
                number::time(cliff.below_us),
                number::time(cliff.above_us)
            );
            plot.dot("hollow", (cliff.at_ports, middle), 5.0, &tooltip);
        }
    });
}

/// One sentence for the highest cliff, one for arms without one.
fn caption(summary: &Run, lines: &[Line<'_>]) -> String {
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
            times(cliff.factor()),
            ports(cliff.at_ports)
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
