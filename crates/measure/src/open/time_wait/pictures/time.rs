//! How did the arms go over time? Idle CPU, busy workers, operations, failures and ports in use below
//! each other on one axis of time, a line per arm.

use tcptoll_core::record::{Arm, PortUse};
use tcptoll_core::stats::Series;

use super::{port_use, ports};
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::number;
use tcptoll_show::own::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Screen, Svg, arm_class, for_both};

/// More lines than this cannot be told apart.
const LINES: usize = 9;

/// What is drawn, where an arm recorded it.
const PANELS: [Panel; 5] = [
    Panel {
        title: "idle CPU of the client",
        series: |used| used.idle_share.as_ref(),
        tick: |share| format!("{:.0} %", share * 100.0),
        most: Some(1.0),
        optional: false,
    },
    Panel {
        title: "busy workers",
        series: |used| used.busy_workers.as_ref(),
        tick: number::trimmed,
        most: None,
        optional: false,
    },
    Panel {
        title: "operations per second",
        series: |used| Some(&used.rate_per_s),
        tick: ports,
        most: None,
        optional: false,
    },
    Panel {
        title: "operations per second that found no port",
        series: |used| Some(&used.failed_per_s),
        tick: ports,
        most: None,
        optional: true,
    },
    Panel {
        title: "local ports in use",
        series: |used| Some(&used.ports_in_use),
        tick: ports,
        most: None,
        optional: false,
    },
];

/// A quantity over time.
#[derive(Clone, Copy)]
struct Panel {
    title: &'static str,
    series: fn(&PortUse) -> Option<&Series>,
    tick: fn(f64) -> String,
    /// The end of its axis; absent: the greatest value.
    most: Option<f64>,
    /// Whether it is left out where all values are 0.
    optional: bool,
}

/// A line of a panel: the arm's place, the arm, its series.
type Line<'a> = (usize, &'a Arm, &'a Series);

fn panels(summary: &Run) -> Vec<(Panel, Vec<Line<'_>>)> {
    let of_panel = |panel: Panel| {
        let lines: Vec<Line<'_>> = summary
            .arms
            .iter()
            .enumerate()
            .filter_map(|(at, arm)| Some((at, arm, (panel.series)(port_use(arm)?)?)))
            .filter(|(.., series)| series.points.len() > 1)
            .take(LINES)
            .collect();
        let greatest = lines.iter().flat_map(|(.., series)| &series.points).map(|p| p[3]);
        let any = greatest.fold(0.0, f64::max) > 0.0;
        (!lines.is_empty() && (any || !panel.optional)).then_some((panel, lines))
    };
    PANELS.into_iter().filter_map(of_panel).collect()
}

/// The picture; `None` if nothing was recorded over time.
pub(super) fn picture(summary: &Run) -> Option<Picture> {
    let panels = panels(summary);
    let mut drawn: Vec<usize> =
        panels.iter().flat_map(|(_, lines)| lines).map(|(at, ..)| *at).collect();
    drawn.sort_unstable();
    drawn.dedup();
    let forecasts = forecasts(summary);
    (!panels.is_empty()).then(|| Picture {
        both_svg: for_both("Idle CPU, busy workers, operations and ports over time", |screen| {
            draw(&panels, &forecasts, screen)
        }),
        caption: caption(summary, &forecasts),
        drawn,
    })
}

/// When ports are expected to run out, s, each once.
fn forecasts(summary: &Run) -> Vec<(usize, f64)> {
    let mut all: Vec<(usize, f64)> = Vec::new();
    for (at, arm) in summary.arms.iter().enumerate() {
        let Some(s) = port_use(arm).and_then(|used| used.lasts_expected_s) else { continue };
        if !all.iter().any(|(_, known)| (known - s).abs() < 0.05) {
            all.push((at, s));
        }
    }
    all
}

fn draw(panels: &[(Panel, Vec<Line<'_>>)], forecasts: &[(usize, f64)], screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let (left, height) = if wide { (72.0, 128.0) } else { (60.0, 114.0) };
    let points = panels.iter().flat_map(|(_, lines)| lines).flat_map(|(.., s)| &s.points);
    let last = points.map(|p| p[0]).fold(0.0, f64::max);
    let mut svg = Svg::new(height * panels.len() as f64 + 48.0);
    for (n, (panel, lines)) in panels.iter().enumerate() {
        let (top, bottom) = (n as f64 * height + 36.0, (n + 1) as f64 * height);
        let frame = Frame::between((left, screen.width() - 14.0), top, bottom);
        let greatest = lines.iter().flat_map(|(.., s)| &s.points).map(|p| p[3]).fold(0.0, f64::max);
        let x = Scale::from_zero(last, left, frame.right);
        let y = Scale::from_zero(panel.most.unwrap_or(greatest * 1.06), bottom, top);
        let mut plot = Plot::on(svg, frame, x, y);
        plot.y_axis(if wide { 4 } else { 3 }, panel.tick);
        plot.base();
        plot.svg.text("label", (4.0, top - 10.0), Anchor::Start, panel.title);
        for (at, s) in forecasts.iter().filter(|(_, s)| *s <= last) {
            let tooltip = format!("ports expected to last {s:.1} s at this rate");
            plot.group(&arm_class(*at), &tooltip, |plot| {
                let place = plot.x.at(*s);
                plot.svg.line("computed d1", (place, top), (place, bottom));
            });
        }
        for (at, arm, series) in lines {
            plot.group(&arm_class(*at), &arm.name, |plot| {
                // Of several arms the bands would hide each other.
                if lines.len() == 1 {
                    plot.band("band", series.points.iter().map(|p| [p[0], p[1], p[3]]));
                }
                plot.line("curve", series.points.iter().map(|p| (p[0], p[2])));
            });
        }
        if n + 1 == panels.len() {
            plot.x_ticks(if wide { 8 } else { 4 }, false, plot::seconds);
            plot.x_label(34.0, "since the first operation");
        }
        svg = plot.svg;
    }
    svg
}

fn caption(summary: &Run, forecasts: &[(usize, f64)]) -> String {
    let ends = |series: &Series| Some((series.points.first()?[2], series.points.last()?[2]));
    let fell = summary.arms.iter().filter_map(|arm| {
        let (first, last) = ends(port_use(arm)?.idle_share.as_ref()?)?;
        (first - last > 0.05).then_some((arm, first, last))
    });
    let steepest = fell.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)));
    let mut said = Vec::new();
    if let Some((arm, first, last)) = steepest {
        said.push(format!(
            "{}: idle CPU falls from {:.0} % to {:.0} %.",
            arm.name,
            first * 100.0,
            last * 100.0
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
