//! What does goodput cost in latency? Per arm its goodput, and next to it the round trip from the quiet
//! link to under load.

use tcptoll_core::experiment::figures::GOODPUT;
use tcptoll_core::record::Arm;

use super::limits::quiet_rtt_us;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::own::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Screen, Svg, arm_class, for_both};
use tcptoll_show::{clean, number, rounds};

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
pub(super) fn picture(summary: &Run, loaded: &str) -> Option<Picture> {
    let arms = summary.arms.iter().enumerate();
    let rows: Vec<Row<'_>> = arms.filter_map(|(at, arm)| row(at, arm, loaded)).collect();
    (2..=ARMS).contains(&rows.len()).then_some(())?;
    let label = "Goodput and round trip under load per arm";
    Some(Picture {
        both_svg: for_both(label, |screen| draw(&rows, screen)),
        caption: caption(&rows),
        drawn: Vec::new(),
    })
}

fn draw(rows: &[Row<'_>], screen: Screen) -> Svg {
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
fn caption(rows: &[Row<'_>]) -> String {
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
