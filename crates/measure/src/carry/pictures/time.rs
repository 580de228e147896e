//! How did an arm go over time? Goodput, congestion window and round trip below each other on one axis
//! of time. And what does goodput cost in latency: per arm its goodput, and next to it the round trip from the quiet
//! link to under load.

use tcptoll_core::experiment::figures::GOODPUT;
use tcptoll_core::record::Arm;
use tcptoll_core::sheet::Part;
use tcptoll_core::stats::Series;
use tcptoll_show::html::of_arms;
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::own::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Screen, Svg, arm_class, for_both};
use tcptoll_show::{clean, number, rounds};

use super::{link, quiet_rtt_us};

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

#[derive(Clone, Copy)]
struct Panel {
    /// Its name in the record.
    series: &'static str,
    title: &'static str,
    /// From the record's unit to the reader's.
    factor: f64,
    tick: fn(f64) -> String,
    words: fn(f64) -> String,
    /// A level to hold it against.
    reference: fn(&Arm) -> Option<f64>,
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
pub(super) fn items(summary: &Run) -> Vec<Part> {
    let picture_of = |(at, arm): (usize, &Arm)| {
        let drawn = drawn(arm);
        (!drawn.is_empty()).then(|| (at, vec![picture(at, arm, &drawn).part(summary)]))
    };
    let arms: Vec<(usize, Vec<Part>)> =
        summary.arms.iter().enumerate().filter_map(picture_of).collect();
    of_arms(summary, arms)
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

/// More arms than this are read in the table.
const ARMS: usize = 40;

/// Columns of a name.
const NAME: usize = 30;

/// Arms whose goodput is this share of the greatest carry as much.
const NEARLY: f64 = 0.95;

struct Row<'a> {
    at: usize,
    arm: &'a Arm,
    /// bit/s.
    goodput: f64,
    /// Under load and, where it is known, without, µs.
    loaded_us: f64,
    quiet_us: Option<f64>,
}

fn row<'a>(at: usize, arm: &'a Arm, loaded: &str) -> Option<Row<'a>> {
    let measured =
        |metric| rounds::measured(arm, metric).map(|m| m.value).filter(|value| *value > 0.0);
    Some(Row {
        at,
        arm,
        goodput: measured(GOODPUT.name)? * 8.0,
        loaded_us: measured(loaded)?,
        quiet_us: quiet_rtt_us(arm),
    })
}

/// The picture; `None` with fewer than two arms that have both. `loaded` is the metric of the round trip
/// under load.
pub(super) fn beside(summary: &Run, loaded: &str) -> Option<Picture> {
    let arms = summary.arms.iter().enumerate();
    let rows: Vec<Row<'_>> = arms.filter_map(|(at, arm)| row(at, arm, loaded)).collect();
    (2..=ARMS).contains(&rows.len()).then_some(())?;
    let label = "Goodput and round trip under load per arm";
    Some(Picture {
        both_svg: for_both(label, |screen| draw_rows(&rows, screen)),
        caption: caption_of_rows(&rows),
        drawn: Vec::new(),
    })
}

fn draw_rows(rows: &[Row<'_>], screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let longest = rows.iter().map(|row| clean::columns(&row.arm.name)).max().unwrap_or(0);
    let room = (longest.min(NAME) as f64 * 7.2 + 16.0).max(90.0);
    let (left, pitch) = if wide { (room, 26.0) } else { (24.0, 44.0) };
    let middle = if wide { 490.0 } else { 168.0 };
    let top = 24.0;
    let bottom = top + rows.len() as f64 * pitch + 4.0;
    let goodput =
        Scale::from_zero(rows.iter().map(|r| r.goodput).fold(0.0, f64::max) * 1.04, left, middle);
    let times = rows.iter().flat_map(|row| [Some(row.loaded_us), row.quiet_us]).flatten();
    let ends = (middle + 34.0, screen.width() - 14.0);
    let round_trip = Scale::fit(times, ends.0, ends.1);
    let of_goodput = Frame::between((left, middle), top, bottom);
    let of_rtt = Frame::between(ends, top, bottom);
    let mut plot = Plot::of_rows(of_goodput, 26.0, goodput);
    plot.x_ticks(if wide { 5 } else { 2 }, true, number::rate_tick);
    plot.base();
    plot.svg.text("label", (left, 12.0), Anchor::Start, "goodput");
    let mut plot = Plot::on(plot.svg, of_rtt, round_trip, Scale::between(0.0, 1.0, bottom, top));
    plot.time_axis(if wide { 5 } else { 2 });
    let log = if round_trip.is_log() { " (log)" } else { "" };
    let label =
        if wide { "round trip: quiet (hollow) to loaded" } else { "quiet (hollow) to loaded" };
    plot.svg.text("label", (ends.1, 12.0), Anchor::End, &format!("{label}{log}"));
    for (n, row) in rows.iter().enumerate() {
        let line = top + n as f64 * pitch;
        let y = if wide { line + pitch / 2.0 + 2.0 } else { line + 32.0 };
        let (place, anchor) = if wide {
            ((left - 10.0, y + 4.0), Anchor::End)
        } else {
            ((8.0, line + 18.0), Anchor::Start)
        };
        let name = clean::shorten(&row.arm.name, if wide { NAME } else { 46 });
        plot.group(&arm_class(row.at), &tooltip(row), |plot| {
            plot.svg.text("name", place, anchor, &name);
            let size = (goodput.at(row.goodput) - left, 10.0);
            plot.svg.rect("full", (left, y - 5.0), size, "");
            let loaded = plot.x.at(row.loaded_us);
            if let Some(quiet) = row.quiet_us.map(|us| plot.x.at(us)) {
                plot.svg.line("whisker", (quiet, y), (loaded, y));
                plot.svg.dot("hollow", (quiet, y), 4.5, "");
            }
            plot.svg.dot("full", (loaded, y), 4.5, "");
        });
    }
    plot.svg
}

fn tooltip(row: &Row<'_>) -> String {
    let quiet = row
        .quiet_us
        .map_or_else(String::new, |us| format!(", {} on the quiet link", number::time(us)));
    format!(
        "{}: {}; round trip {} under load{quiet}",
        row.arm.name,
        number::bit_rate(row.goodput),
        number::time(row.loaded_us)
    )
}

/// Of the arms that carry nearly the most, the one with the shortest and the one with the longest
/// round trip.
fn caption_of_rows(rows: &[Row<'_>]) -> String {
    let best = rows.iter().map(|row| row.goodput).fold(0.0, f64::max);
    let full = || rows.iter().filter(|row| row.goodput >= best * NEARLY);
    let by_rtt = |a: &&Row<'_>, b: &&Row<'_>| a.loaded_us.total_cmp(&b.loaded_us);
    let (Some(short), Some(long)) = (full().min_by(by_rtt), full().max_by(by_rtt)) else {
        return String::new();
    };
    let words =
        |row: &Row<'_>| format!("{} carries {}", row.arm.name, number::bit_rate(row.goodput));
    let rise = |row: &Row<'_>| match row.quiet_us {
        Some(quiet) => format!(
            "a round trip of {} under load, {} the quiet link's",
            number::time(row.loaded_us),
            number::ratio(row.loaded_us / quiet)
        ),
        None => format!("a round trip of {} under load", number::time(row.loaded_us)),
    };
    if short.at == long.at {
        return format!("{} with {}.", words(short), rise(short));
    }
    format!("{} with {}. {} with {}.", words(short), rise(short), words(long), rise(long))
}
