//! What were clients told, and when? Each outcome of each arm on one axis of time.

use tcptoll_core::record::Outcome;

use super::{before, connections, recorded, told, told_shortly};
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::own::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Screen, Svg, arm_class, for_both};
use tcptoll_show::{clean, number};

/// Rows of the picture, at most.
const ROWS: usize = 40;

struct Row<'a> {
    at: usize,
    name: &'a str,
    outcome: &'a str,
    times: &'a Outcome,
}

fn rows(summary: &Run) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (at, arm, queues) in recorded(summary) {
        // Those that were served first.
        let mut outcomes: Vec<(&String, &Outcome)> =
            queues.outcomes.iter().filter(|(_, times)| times.count > 0).collect();
        outcomes.sort_by_key(|(name, _)| name.as_str() != "ok");
        rows.extend(outcomes.into_iter().map(|(outcome, times)| Row {
            at,
            name: &arm.name,
            outcome,
            times,
        }));
    }
    rows.truncate(ROWS);
    rows
}

/// The picture; `None` where no outcome was recorded.
pub(super) fn picture(summary: &Run) -> Option<Picture> {
    let rows = rows(summary);
    (!rows.is_empty()).then(|| Picture {
        both_svg: for_both("Outcomes of connections by time", |screen| draw(&rows, screen)),
        caption: caption(summary, &rows),
        drawn: Vec::new(),
    })
}

fn draw(rows: &[Row<'_>], screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let (left, pitch) = if wide { (290.0, 26.0) } else { (10.0, 44.0) };
    let frame = Frame::across(screen, left, 4.0, 14.0 + rows.len() as f64 * pitch);
    let frame = frame.with_room(if wide { 76.0 } else { 58.0 });
    let values = rows.iter().flat_map(|row| [row.times.min_us, row.times.max_us]);
    let mut plot = Plot::of_rows(frame, 44.0, Scale::fit(values, left, frame.right));
    plot.time_axis(if wide { 6 } else { 4 });
    plot.x_label(36.0, "time from connect(2) to the outcome");
    for (n, row) in rows.iter().enumerate() {
        let top = 8.0 + n as f64 * pitch;
        let y = if wide { top + pitch / 2.0 } else { top + 28.0 };
        let first = n == 0 || rows[n - 1].at != row.at;
        let several = rows.iter().any(|other| other.at != row.at);
        let name = match (several, wide) {
            (true, true) if first => {
                format!("{}: {}", clean::shorten(row.name, 24), told_shortly(row.outcome))
            }
            (true, false) => {
                format!("{}: {}", clean::shorten(row.name, 26), told_shortly(row.outcome))
            }
            (true, true) => told_shortly(row.outcome).to_owned(),
            (false, _) => told(row.outcome).to_owned(),
        };
        let (place, anchor) = if wide {
            ((left - 14.0, y + 4.0), Anchor::End)
        } else {
            ((left, top + 14.0), Anchor::Start)
        };
        plot.group(&arm_class(row.at), &tooltip(row), |plot| {
            plot.svg.text("name", place, anchor, &name);
            let [from, middle, to] =
                [row.times.min_us, row.times.p50_us, row.times.max_us].map(|us| plot.x.at(us));
            plot.svg.line("bar", (from, y), (to, y));
            plot.svg.dot(if row.outcome == "ok" { "mark" } else { "full" }, (middle, y), 5.0, "");
            let end = (plot.frame.right + 10.0, y + 4.0);
            plot.svg.text("tick", end, Anchor::Start, &number::count(row.times.count));
        });
    }
    plot.svg
}

fn tooltip(row: &Row<'_>) -> String {
    let Outcome { count, min_us, p50_us, max_us } = *row.times;
    let [min, p50, max] = [min_us, p50_us, max_us].map(number::time);
    format!(
        "{}: {}, {}: after {min} to {max}, median {p50}",
        row.name,
        connections(count),
        told(row.outcome)
    )
}

/// What those that failed were told, of up to three outcomes.
fn caption(summary: &Run, rows: &[Row<'_>]) -> String {
    let phrase = |row: &Row<'_>| {
        let arm = summary.arms.get(row.at)?;
        let were = if row.times.count == 1 { "was" } else { "were" };
        let what = match row.outcome {
            "reset" | "connect-refused" => format!("{were} {}", told(row.outcome)),
            "connect-timeout" | "timeout" => told(row.outcome).to_owned(),
            other => format!("failed with {}", told(other)),
        };
        Some(format!(
            "{}{} {what} (median: {}).",
            before(summary, arm),
            connections(row.times.count),
            number::time(row.times.p50_us)
        ))
    };
    let failed: Vec<String> =
        rows.iter().filter(|row| row.outcome != "ok").filter_map(phrase).take(3).collect();
    let bars = "Bars: from the first to the last connection. Dots: medians. Numbers: connections.";
    match failed.as_slice() {
        [] => format!("Every connection was served in the end. {bars}"),
        failed => format!("{} {bars}", failed.join(" ")),
    }
}
