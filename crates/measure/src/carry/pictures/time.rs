//! How did an arm go over time? Goodput, congestion window and round trip below each other on one axis
//! of time.

use tcptoll_core::record::Arm;
use tcptoll_core::stats::Series;

use super::limits::{link, quiet_rtt_us};
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::number;
use tcptoll_show::own::{Item, Picture};
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Screen, Svg, arm_class, for_both};

/// What is drawn of an arm, where it was recorded.
const PANELS: [Panel; 3] = [
    Panel {
        series: "goodput_bytes_per_s",
        title: "goodput",
        factor: 8.0,
        tick: number::rate_tick,
        words: number::bit_rate,
        reference: link,
        reference_words: "dashed: link",
    },
    Panel {
        series: "congestion_window_bytes",
        title: "congestion window",
        factor: 1.0,
        tick: number::bytes_tick,
        words: number::human_bytes,
        reference: |_| None,
        reference_words: "",
    },
    Panel {
        series: "rtt_us",
        title: "round trip",
        factor: 1.0,
        tick: number::tick,
        words: number::time,
        reference: quiet_rtt_us,
        reference_words: "dashed: quiet link",
    },
];

/// Most places of a panel that have a tooltip.
const HITS: usize = 40;

/// A quantity over time.
#[derive(Clone, Copy)]
struct Panel {
    /// Its name in the record.
    series: &'static str,
    /// What it is.
    title: &'static str,
    /// From the record's unit to the reader's.
    factor: f64,
    /// A tick in words.
    tick: fn(f64) -> String,
    /// A value in words.
    words: fn(f64) -> String,
    /// A level to hold it against.
    reference: fn(&Arm) -> Option<f64>,
    /// What that is.
    reference_words: &'static str,
}

/// A series of an arm with what it shows.
struct Drawn<'a> {
    panel: Panel,
    series: &'a Series,
    reference: Option<f64>,
}

fn drawn(arm: &Arm) -> Vec<Drawn<'_>> {
    let with_series = |panel: Panel| {
        let series = arm.series.get(panel.series).filter(|series| series.points.len() > 1)?;
        Some(Drawn { panel, series, reference: (panel.reference)(arm) })
    };
    PANELS.into_iter().filter_map(with_series).collect()
}

/// A picture per arm that has any of the series.
pub(super) fn items(summary: &Run) -> Vec<Item> {
    let picture_of = |(at, arm): (usize, &Arm)| {
        let drawn = drawn(arm);
        (!drawn.is_empty()).then(|| (at, vec![Item::Picture(picture(at, arm, &drawn))]))
    };
    let arms: Vec<(usize, Vec<Item>)> =
        summary.arms.iter().enumerate().filter_map(picture_of).collect();
    if arms.is_empty() { Vec::new() } else { vec![Item::Arms(arms)] }
}

fn picture(at: usize, arm: &Arm, drawn: &[Drawn<'_>]) -> Picture {
    let titles: Vec<&str> = drawn.iter().map(|one| one.panel.title).collect();
    let label = format!("{} of {} over time", titles.join(", "), arm.name);
    Picture {
        both_svg: for_both(&label, |screen| draw(at, drawn, screen)),
        caption: caption(arm, drawn),
        drawn: Vec::new(),
    }
}

fn draw(at: usize, drawn: &[Drawn<'_>], screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let (left, height) = if wide { (84.0, 128.0) } else { (74.0, 114.0) };
    let last = drawn.iter().flat_map(|one| &one.series.points).map(|p| p[0]).fold(0.0, f64::max);
    let mut svg = Svg::new(height * drawn.len() as f64 + 28.0);
    for (n, one) in drawn.iter().enumerate() {
        let top = n as f64 * height + 36.0;
        let bottom = (n + 1) as f64 * height;
        let frame = Frame::between((left, screen.width() - 14.0), top, bottom);
        let points =
            || one.series.points.iter().map(|p| [p[1], p[2], p[3]].map(|v| v * one.panel.factor));
        let most = points().flatten().chain(one.reference).fold(0.0, f64::max);
        let x = Scale::from_zero(last, left, frame.right);
        let y = Scale::from_zero(most * 1.06, bottom, top);
        let mut plot = Plot::on(svg, frame, x, y);
        plot.y_axis(if wide { 4 } else { 3 }, one.panel.tick);
        plot.base();
        let reference = one.reference.map(|level| (level, (one.panel.words)(level)));
        if let Some((level, words)) = &reference {
            plot.group("echo", &format!("{} {words}", one.panel.reference_words), |plot| {
                plot.level("computed d2", *level);
            });
        }
        let words = reference.map_or_else(String::new, |(_, words)| {
            format!(" ({} {words})", one.panel.reference_words)
        });
        let place = (4.0, top - 10.0);
        plot.svg.text("label", place, Anchor::Start, &format!("{}{words}", one.panel.title));
        plot.group(&arm_class(at), "", |plot| {
            plot.band(
                "band",
                one.series
                    .points
                    .iter()
                    .map(|p| [p[0], p[1], p[3]])
                    .map(|[s, low, high]| [s, low * one.panel.factor, high * one.panel.factor]),
            );
            plot.line("curve", one.series.points.iter().map(|p| (p[0], p[2] * one.panel.factor)));
            // Something to point at; of many arms, one for every point would fill the page.
            let every = one.series.points.len().div_ceil(HITS).max(1);
            let step = (frame.right - left) * every as f64 / one.series.points.len() as f64;
            for [s, least, mean, most] in one.series.points.iter().step_by(every).filter(|_| wide) {
                let [least, mean, most] =
                    [least, mean, most].map(|v| (one.panel.words)(v * one.panel.factor));
                let tooltip =
                    format!("at {} s: mean {mean}, min {least}, max {most}", number::trimmed(*s));
                plot.svg.rect("hit", (x.at(*s) - step / 2.0, top), (step, bottom - top), &tooltip);
            }
        });
        if n + 1 == drawn.len() {
            plot.x_ticks(if wide { 8 } else { 4 }, false, plot::seconds);
        }
        svg = plot.svg;
    }
    svg
}

/// From where to where each went in its second half, where it is to be steady.
fn caption(arm: &Arm, drawn: &[Drawn<'_>]) -> String {
    let phrase = |one: &Drawn<'_>| {
        let points = &one.series.points;
        let later = &points[points.len() / 2..];
        let means = || later.iter().map(|p| p[2] * one.panel.factor);
        let least = means().fold(f64::INFINITY, f64::min);
        let most = means().fold(f64::NEG_INFINITY, f64::max);
        let [least, most] = [least, most].map(|value| (one.panel.words)(value));
        if least == most {
            format!("{} {least}", one.panel.title)
        } else {
            format!("{} {least} to {most}", one.panel.title)
        }
    };
    let words: Vec<String> = drawn.iter().map(phrase).collect();
    let rounds = if arm.rounds.len() > 1 { " The picture shows the first round." } else { "" };
    format!("In the second half: {}.{rounds}", words.join(", "))
}
