//! Figures and pictures of `connect`: the columns of its tables, and where the time of a handshake went, on a
//! terminal.

use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table};
use tcptoll_core::experiment::columns::{
    CONN_RATE, CONNECT_MEAN_COLUMN, CONNECT_OF_FAILED_P50, ECHO_P50, ERRORS, FIRST_BYTE_P50, OK,
    QUEUE_PEAK, WAITED_SHARE, any_waited, client_cpu, figures,
};
use tcptoll_core::experiment::figures::{CONNECT, CONNECT_OF_FAILED};
use tcptoll_core::record::{Arm, PlaceKind, Step, Summary, Timeline};
use tcptoll_core::sheet::{Align, Column as Shown, Part, Room, Table as Rows, Tone};
use tcptoll_show::run::Failed;
use tcptoll_show::run::{NONE, Own, Run};
use tcptoll_show::{clean, figures, number};

use super::timeline;
use super::timeline::Expected;

use Figure::Number;
use Quantile::{Max, P50, P90, P99, P999};

/// Where handshakes waited, p99 is the length of a wait and p90 says whether most did.
fn none_waited(summary: &Summary) -> bool {
    !any_waited(summary)
}

fn answer_is_another(summary: &Summary) -> bool {
    summary.arms.iter().any(|arm| arm.histograms.contains_key(CONNECT.name))
}

const fn answer(quantile: Quantile) -> Column {
    Column::answer(quantile).shown(Room::Always)
}

const CPU: &str = "CPU µs/conn";
const CPU_TOTAL: Column =
    Column::new((CPU, "total"), "CPU total µs", ("", "us"), Number(client_cpu, 1.0));
const CPU_KERNEL: Column = Column::new(
    (CPU, "kernel"),
    "CPU kernel µs",
    ("", "us"),
    Number(|arm| arm.client.cpu_system_us_per_op, 1.0),
)
.shown(Room::Wide);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[figures(&[
    &[
        answer(P50),
        answer(P90).when(any_waited),
        answer(P99),
        answer(P999).when(none_waited),
        answer(Max),
        WAITED_SHARE.shown(Room::Always).when(any_waited),
        FIRST_BYTE_P50.when(answer_is_another),
    ],
    &[CONNECT_MEAN_COLUMN, ECHO_P50.shown(Room::Page), CONNECT_OF_FAILED_P50],
    &[CPU_TOTAL, CPU_KERNEL, CONN_RATE, QUEUE_PEAK, OK, ERRORS],
])];

pub(crate) const OWN: Own = Own {
    failed: Some(failed),
    answer_has_failures: Some("None of "),
    trouble: handshakes_of_failed,
    lists_metrics: false,
    text_after: blocks,
    details: timeline::sections,
    ..NONE
};

fn failed(Failed { failed, tried }: Failed) -> String {
    let [bad, all, good] = [failed, tried, tried - failed].map(number::count);
    format!("{bad} of {all} attempts failed. The latencies cover only the {good} that succeeded.")
}

/// How long the handshakes took of connections that failed later: no latency above has them.
fn handshakes_of_failed(arm: &Arm) -> Option<String> {
    let failed = arm.histograms.get(CONNECT_OF_FAILED.name).filter(|h| h.count > 0)?;
    let [middle, max] = [figures::middle(failed)?, failed.max?].map(number::time);
    let word = if failed.p50.is_some() { "median" } else { "mean" };
    let which = figures::plural(failed.count, "connection");
    Some(format!("client: handshakes of {which} that failed later: {word} {middle}, max {max}"))
}

/// At most this many timelines stand on the terminal; the HTML report has all.
const SHOWN: usize = 2;

/// Columns of the bars at least; with less there is nothing to see.
const BAR_MIN: usize = 16;

/// The timelines that differ with their views, then expected against measured.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Part> {
    let mut blocks = timelines(summary, width);
    blocks.extend(expected(summary));
    if summary.place.kind == PlaceKind::Target {
        let text = "tcptoll captures no packets of a server of your own. All eight steps, with a server \
                    in the lab: tcptoll connect";
        blocks.push(Part::prose(2, text.to_owned(), Tone::Dim));
    }
    blocks
}

/// The timelines that differ, then their views.
fn timelines(summary: &Run, width: usize) -> Vec<Part> {
    let mut blocks = Vec::new();
    let all: Vec<(&Arm, &Timeline)> = summary
        .arms
        .iter()
        .filter_map(|arm| Some((arm, arm.timeline.as_ref()?)))
        .filter(|(_, timeline)| !timeline.steps.is_empty())
        .collect();
    let mut shown: Vec<(&Arm, &Timeline)> = Vec::new();
    for (arm, timeline) in &all {
        if shown.len() < SHOWN
            && shown.iter().all(|(_, other)| !timeline::same_story(other, timeline))
        {
            shown.push((arm, timeline));
        }
    }
    for (arm, timeline) in &shown {
        blocks.push(Part::Blank);
        blocks.push(heading(timeline, (summary.arms.len() > 1).then_some(&arm.name), width));
        blocks.extend(bars(timeline, width));
        blocks.extend(views(arm, timeline));
    }
    if all.len() > shown.len() && !shown.is_empty() {
        let more = figures::plural((all.len() - shown.len()) as u64, "more timeline");
        blocks.push(Part::prose(2, format!("{more} in the HTML report"), Tone::Dim));
    }
    blocks
}

fn heading(timeline: &Timeline, arm: Option<&String>, width: usize) -> Part {
    let arm_name = arm.map(|name| format!(", {}", clean::shorten(name, 24))).unwrap_or_default();
    let witness = match timeline.source.as_str() {
        "witness" => ", in a trial with capture",
        "tcp-info" => ", by TCP_INFO",
        _ => "",
    };
    let unmatched = match timeline.unmatched {
        0 => String::new(),
        n => format!(", {} not matched", number::count(n)),
    };
    let matched = number::count(timeline.matched);
    let text = format!("where the time goes{arm_name} (median of {matched}{unmatched}{witness})");
    Part::pieces(vec![(Tone::Strong, clean::shorten(&text, width))])
}

/// Columns of the names of steps, and of their times.
const STEP: usize = 34;
const TIME: usize = 9;

/// A line for each step, its bar last.
fn bars(timeline: &Timeline, width: usize) -> Vec<Part> {
    let end = timeline::timeline_end(timeline);
    let unit = number::TimeUnit::of_column(timeline.steps.iter().map(|step| step.p50_us));
    let widest = timeline.steps.iter().map(|step| clean::columns(&step.name)).max().unwrap_or(0);
    let names = widest.min(STEP);
    let left = 2 + 6 + 2 + names + TIME + 3;
    let room = width.saturating_sub(left + 3).min(60);
    let mut blocks = Vec::new();
    for step in &timeline.steps {
        let bar = if room >= BAR_MIN { bar(step, end, room) } else { String::new() };
        let name = clean::shorten(&step.name, names);
        let blanks = " ".repeat(names - clean::columns(&name));
        let (at, time) = (clean::shorten(&step.at, 6), unit.figure(step.p50_us));
        let row = format!("  {at:6}  {name}{blanks}{time:>TIME$} {:<2}", unit.symbol());
        blocks.push(Part::pieces(vec![
            (Tone::Plain, format!("{row}   ")),
            (lane_tone(&step.at), bar),
        ]));
    }
    if room >= BAR_MIN && end > 0.0 {
        let last = number::time(end);
        let gap = room.saturating_sub(1 + clean::columns(&last));
        let scale = format!("{}0{}{last}", " ".repeat(left + 3), " ".repeat(gap));
        blocks.push(Part::pieces(vec![(Tone::Dim, scale)]));
    }
    blocks
}

fn lane_tone(at: &str) -> Tone {
    match at {
        "client" => Tone::Client,
        "server" => Tone::Server,
        _ => Tone::Wire,
    }
}

/// A bar from the step's beginning to its end on an axis from 0 to `end`, in eighths of a column.
fn bar(step: &Step, end: f64, room: usize) -> String {
    if end <= 0.0 {
        return String::new();
    }
    let eighths = |us: f64| ((us / end).clamp(0.0, 1.0) * room as f64 * 8.0).round() as usize;
    let begin = eighths(step.begins_us);
    let from = (begin / 8).min(room - 1);
    let end_at = eighths(step.begins_us + step.p50_us);
    // A step of no visible length leaves a mark, also at the very end.
    let to = if end_at > begin { end_at } else { from * 8 + 1 };
    let (full, part) = ((to - from * 8) / 8, (to - from * 8) % 8);
    let tail = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][part];
    format!("{}{}{tail}", " ".repeat(from), "█".repeat(full))
}

/// The handshake from each point of view against whole round trips.
fn views(arm: &Arm, timeline: &Timeline) -> Option<Part> {
    // Without a capture there is one view: the latency itself.
    if timeline.views.is_empty() || timeline.source == "tcp-info" {
        return None;
    }
    let rtt = timeline::reference_rtt(arm);
    let row = |view: &tcptoll_core::record::HandshakeView| {
        let rtts = number::plain(view.expected_rtts);
        let expected = match rtt.map(|rtt| rtt * view.expected_rtts).filter(|us| *us > 0.0) {
            Some(us) => {
                let off = number::percent_off(view.p50_us / us);
                format!("{rtts} RTT = {} ({off})", number::time(us))
            }
            None => format!("{rtts} RTT"),
        };
        [view.name.clone(), view.span.clone(), number::time(view.p50_us), expected]
    };
    let columns = vec![
        Shown::names("seen by"),
        Shown::names("from … to"),
        Shown::new("median", Align::Right),
        Shown::new("expected", Align::Left),
    ];
    Some(Part::Table(Rows::new(columns, timeline.views.iter().map(row))))
}

/// Expected against measured: a line for one arm with ICMP echo beside it, else a table.
fn expected(summary: &Run) -> Vec<Part> {
    let rows: Vec<_> =
        summary.arms.iter().filter_map(|arm| Some((arm, timeline::expected(arm)?))).collect();
    let [(arm, e)] = rows.as_slice() else { return expected_table(&rows) };
    let (theirs, ours) = (number::exact_time(e.theory_us), number::exact_time(e.measured_us));
    let text = if e.is_possible() {
        format!("expected {} = {theirs} · measured {ours} ({})", e.formula(), e.off())
    } else {
        format!(
            "the handshake takes {ours}, less than the {} of {theirs}: there is no expected value",
            e.rtt_from
        )
    };
    let mut blocks = vec![Part::Blank, Part::prose(2, text, Tone::Plain)];
    let from = from(arm, e);
    blocks.extend(from.map(|from| Part::prose(2, from, Tone::Dim)));
    blocks.extend(timeline::floor(arm).map(|floor| Part::prose(2, floor, Tone::Dim)));
    blocks
}

/// Where the round trip of the arithmetic is from, and what an echo took; once where they are the same.
fn from(arm: &Arm, e: &Expected<'_>) -> Option<String> {
    let [p50, p99, ..] = figures::quantiles(arm, "rtt_us").map(|us| us.map(number::exact_time));
    if e.rtt_from == "ICMP echo" {
        let p99 = p99.map(|p99| format!(" (its p99 {p99})")).unwrap_or_default();
        return e
            .is_possible()
            .then(|| format!("RTT: median of the ICMP echoes in the same run{p99}"));
    }
    let mut from = format!("RTT from {}", e.rtt_from);
    if let Some(p50) = p50 {
        let p99 = p99.map(|p99| format!(", p99 {p99}")).unwrap_or_default();
        from = format!("{from} · ICMP echo in the same run: p50 {p50}{p99}");
    }
    Some(from)
}

fn expected_table(rows: &[(&Arm, Expected<'_>)]) -> Vec<Part> {
    if rows.is_empty() {
        return Vec::new();
    }
    let times = |time: fn(&Expected<'_>) -> f64| {
        number::exact_times(&rows.iter().map(|(_, e)| time(e)).collect::<Vec<_>>())
    };
    let times = times(|e| e.theory_us).into_iter().zip(times(|e| e.measured_us));
    let heads = ["expected", "measured", "off"].map(|head| Shown::new(head, Align::Right));
    let columns = [Shown::names("connect, median")].into_iter().chain(heads).collect();
    let cells = rows.iter().zip(times);
    let cells = cells
        .map(|((arm, e), (expected, measured))| [arm.name.clone(), expected, measured, e.off()]);
    let table = Rows::new(columns, cells);
    let mut how: Vec<String> =
        rows.iter().map(|(_, e)| format!("{}, RTT from {}", e.formula(), e.rtt_from)).collect();
    how.sort();
    how.dedup();
    let how = format!("expected: {}", how.join("; "));
    vec![Part::Blank, Part::Table(table), Part::prose(2, how, Tone::Dim)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_step_leaves_a_mark_where_it_begins() {
        let step = Step { begins_us: 50.0, p50_us: 0.01, ..blank() };
        assert_eq!(bar(&step, 100.0, 20), format!("{}▏", " ".repeat(10)));
        let last = Step { begins_us: 100.0, p50_us: 0.0, ..blank() };
        assert_eq!(bar(&last, 100.0, 20), format!("{}▏", " ".repeat(19)));
    }

    fn blank() -> Step {
        Step { name: String::new(), at: "wire".into(), begins_us: 0.0, p50_us: 0.0, p99_us: None }
    }
}
