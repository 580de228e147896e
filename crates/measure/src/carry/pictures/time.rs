//! How did an arm go over time? Goodput, congestion window and round trip below each other on one axis
//! of time. And what does goodput cost in latency: per arm its goodput, and next to it the round trip from the quiet
//! link to under load.

use tcptoll_core::experiment::figures::GOODPUT;
use tcptoll_core::record::Arm;
use tcptoll_core::sheet::Part;
use tcptoll_show::html::of_arms;
use tcptoll_show::html::over_time::{Axis, Level, Line, Panel, Stack, scaled};
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::run::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Svg, arm_class};
use tcptoll_show::{clean, number, rounds};

use super::{link, quiet_rtt_us};

/// What is drawn of an arm, where it was recorded.
const QUANTITIES: [Quantity; 3] = [
    Quantity {
        series: "goodput_bytes_per_s",
        title: "goodput",
        factor: 8.0,
        tick: |rate| number::tick(rate, "bit/s"),
        words: number::bit_rate,
        reference: link,
        reference_words: "dashed: link",
    },
    Quantity {
        series: "congestion_window_bytes",
        title: "congestion window",
        factor: 1.0,
        tick: |bytes| number::tick(bytes, "bytes"),
        words: number::bytes,
        reference: |_| None,
        reference_words: "",
    },
    Quantity {
        series: "rtt_us",
        title: "round trip",
        factor: 1.0,
        tick: |us| number::tick(us, "us"),
        words: number::time,
        reference: quiet_rtt_us,
        reference_words: "dashed: quiet link",
    },
];

#[derive(Clone, Copy)]
struct Quantity {
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

/// A series of an arm, in the reader's unit, with what it shows.
struct Drawn {
    quantity: Quantity,
    points: Vec<[f64; 4]>,
    reference: Option<f64>,
}

fn drawn(arm: &Arm) -> Vec<Drawn> {
    let with_series = |quantity: Quantity| {
        let series = arm.series.get(quantity.series).filter(|series| series.points.len() > 1)?;
        let points = series.points.iter().map(|point| scaled(*point, quantity.factor)).collect();
        Some(Drawn { quantity, points, reference: (quantity.reference)(arm) })
    };
    QUANTITIES.into_iter().filter_map(with_series).collect()
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

fn picture(at: usize, arm: &Arm, drawn: &[Drawn]) -> Picture {
    let titles: Vec<&str> = drawn.iter().map(|one| one.quantity.title).collect();
    let label = format!("{} of {} over time", titles.join(", "), arm.name);
    let panels = drawn.iter().map(|one| panel(at, one)).collect();
    let stack = Stack { left: 80.0, height: 96.0, ..Stack::new(panels) };
    Picture { svg: stack.draw().labelled(&label), caption: caption(arm, drawn), drawn: Vec::new() }
}

fn panel(at: usize, drawn: &Drawn) -> Panel {
    let Quantity { title, tick, words, reference_words, .. } = drawn.quantity;
    let level = drawn.reference.map(|value| {
        let text = format!("{reference_words} {}", words(value));
        Level { value, text, dash: "d2", named: false }
    });
    let said = level.as_ref().map_or_else(String::new, |level| format!(" ({})", level.text));
    Panel {
        axis: Axis::FromZero(1.06),
        levels: level.into_iter().collect(),
        lines: vec![Line::range(arm_class(at), drawn.points.clone())],
        ..Panel::new(format!("{title}{said}"), tick, words)
    }
}

/// From where to where each went in its second half, where it is to be steady.
fn caption(arm: &Arm, drawn: &[Drawn]) -> String {
    let phrase = |one: &Drawn| {
        let later = &one.points[one.points.len() / 2..];
        let means = || later.iter().map(|p| p[2]);
        let least = means().fold(f64::INFINITY, f64::min);
        let most = means().fold(f64::NEG_INFINITY, f64::max);
        let [least, most] = [least, most].map(one.quantity.words);
        if least == most {
            format!("{} {least}", one.quantity.title)
        } else {
            format!("{} {least} to {most}", one.quantity.title)
        }
    };
    let words: Vec<String> = drawn.iter().map(phrase).collect();
    let rounds = if arm.rounds.len() > 1 { " The picture shows the first round." } else { "" };
    format!("In the second half: {}.{rounds}", words.join(", "))
}

/// More arms than this are read in the table.
const ARMS: usize = 40;

/// Arms whose goodput is this share of the greatest carry as much.
const NEARLY: f64 = 0.95;

struct Lane<'a> {
    at: usize,
    arm: &'a Arm,
    /// bit/s.
    goodput: f64,
    /// Under load and, where it is known, without, µs.
    loaded_us: f64,
    quiet_us: Option<f64>,
}

fn row<'a>(at: usize, arm: &'a Arm, loaded: &str) -> Option<Lane<'a>> {
    let measured =
        |metric| rounds::measured(arm, metric).map(|m| m.value).filter(|value| *value > 0.0);
    Some(Lane {
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
    let rows: Vec<Lane<'_>> = arms.filter_map(|(at, arm)| row(at, arm, loaded)).collect();
    (2..=ARMS).contains(&rows.len()).then_some(())?;
    let label = "Goodput and round trip under load per arm";
    Some(Picture {
        svg: draw_rows(&rows).labelled(label),
        caption: caption_of_rows(&rows),
        drawn: Vec::new(),
    })
}

fn draw_rows(rows: &[Lane<'_>]) -> Svg {
    const PITCH: f64 = 32.0;
    let (top, bottom) = (18.0, 22.0 + rows.len() as f64 * PITCH);
    let of_goodput = Frame::between((28.0, 244.0), top, bottom);
    let of_rtt = Frame::across(276.0, top, bottom);
    let most = rows.iter().map(|r| r.goodput).fold(0.0, f64::max) * 1.04;
    let goodput = Scale::from_zero(most, of_goodput.left, of_goodput.right);
    let times = rows.iter().flat_map(|row| [Some(row.loaded_us), row.quiet_us]).flatten();
    let round_trip = Scale::fit(times, of_rtt.left, of_rtt.right);
    let mut plot = Plot::of_rows(of_goodput, plot::TICKS, goodput);
    plot.x_ticks(2, true, |rate| number::tick(rate, "bit/s"));
    plot.base();
    plot.y_label("goodput");
    let mut plot = Plot::on(plot.svg, of_rtt, round_trip, Scale::between(0.0, 1.0, bottom, top));
    plot.time_axis(3);
    let label = format!("round trip: quiet (hollow) to loaded{}", plot::log_note(&round_trip));
    plot.svg.text("", (of_rtt.right, 8.0), Anchor::End, &label);
    for (n, row) in rows.iter().enumerate() {
        let line = top + n as f64 * PITCH;
        let y = line + 23.0;
        let name = clean::shorten(&row.arm.name, 62);
        plot.group(&arm_class(row.at), &tooltip(row), |plot| {
            plot.svg.text("name", (0.0, line + 9.0), Anchor::Start, &name);
            let from = of_goodput.left;
            plot.svg.rect("full", (from, y - 3.5), (goodput.at(row.goodput) - from, 7.0), "");
            let loaded = plot.x.at(row.loaded_us);
            if let Some(quiet) = row.quiet_us.map(|us| plot.x.at(us)) {
                plot.svg.line("whisker", (quiet, y), (loaded, y));
                plot.svg.dot("hollow", (quiet, y), 3.5, "");
            }
            plot.svg.dot("full", (loaded, y), 3.5, "");
        });
    }
    plot.svg
}

fn tooltip(row: &Lane<'_>) -> String {
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
fn caption_of_rows(rows: &[Lane<'_>]) -> String {
    let best = rows.iter().map(|row| row.goodput).fold(0.0, f64::max);
    let full = || rows.iter().filter(|row| row.goodput >= best * NEARLY);
    let by_rtt = |a: &&Lane<'_>, b: &&Lane<'_>| a.loaded_us.total_cmp(&b.loaded_us);
    let (Some(short), Some(long)) = (full().min_by(by_rtt), full().max_by(by_rtt)) else {
        return String::new();
    };
    let words =
        |row: &Lane<'_>| format!("{} carries {}", row.arm.name, number::bit_rate(row.goodput));
    let rise = |row: &Lane<'_>| match row.quiet_us {
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
