//! Pictures of what became of connections: when each was established and when it was served, with the steps of the
//! retry ladders, and what clients were told, each on one axis of time.

use tcptoll_core::experiment::figures::{CONNECT, CONNECT_OF_FAILED, FIRST_BYTE};
use tcptoll_core::record::{Arm, Outcome, Queues, RetryLadder};
use tcptoll_core::sheet::{Part, Table};
use tcptoll_core::stats::histogram::Histogram;
use tcptoll_show::html::plot::{Frame, Plot, Scale, TICKS_AND_LABEL};
use tcptoll_show::run::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Svg, arm_class};
use tcptoll_show::{clean, figures, number};

/// Arms that recorded their queues, with their places.
pub(super) fn recorded(summary: &Run) -> Vec<(usize, &Arm, &Queues)> {
    let arms = summary.arms.iter().enumerate();
    arms.filter_map(|(at, arm)| Some((at, arm, arm.own.queues.as_deref()?))).collect()
}

/// What a client was told, in words.
fn told(outcome: &str) -> &str {
    match outcome {
        "ok" => "served",
        "reset" => "reset",
        "connect-refused" => "refused",
        "connect-timeout" => "timed out while connecting",
        "timeout" => "timed out before the first byte",
        other => other,
    }
}

/// The same in few letters.
pub(super) fn told_shortly(outcome: &str) -> &str {
    match outcome {
        "connect-timeout" => "no connection",
        "timeout" => "no first byte",
        other => told(other),
    }
}

/// `backlog 16: ` where there are several arms.
fn before(summary: &Run, arm: &Arm) -> String {
    if summary.arms.len() > 1 { format!("{}: ", arm.name) } else { String::new() }
}

/// Arms in the picture; more would not be read.
const ARMS: usize = 8;

/// Bars per factor of ten.
const BARS: f64 = 16.0;

/// Latencies are drawn from here on, µs: the kernel is never faster.
const LEAST_US: f64 = 10.0;

/// Height of an arm's row.
const PITCH: f64 = 118.0;

/// Steps whose numbers are labelled in a row; their neighbours go in the next one.
const LABEL_ROWS: usize = 2;

/// An arm with its distributions as counts per bar.
struct ArmRow<'a> {
    at: usize,
    arm: &'a Arm,
    queues: &'a Queues,
    connected: Vec<(i32, u64)>,
    served: Vec<(i32, u64)>,
}

impl ArmRow<'_> {
    fn is_empty(&self) -> bool {
        self.connected.is_empty() && self.served.is_empty()
    }
}

fn bar_of(us: f64) -> i32 {
    (us.max(LEAST_US).log10() * BARS).floor() as i32
}

/// The left end of a bar, µs.
fn begin_of(bar: i32) -> f64 {
    10_f64.powf(f64::from(bar) / BARS)
}

/// Values of some distributions, counted per bar.
fn bars(arm: &Arm, names: &[&str]) -> Vec<(i32, u64)> {
    let mut counts = std::collections::BTreeMap::<i32, u64>::new();
    for summary in names.iter().filter_map(|name| arm.histograms.get(*name)) {
        if let Ok(Some(whole)) = Histogram::from_summary(summary) {
            for (ns, count) in whole.buckets_ns() {
                *counts.entry(bar_of(ns as f64 / 1e3)).or_default() += count;
            }
        }
    }
    counts.into_iter().collect()
}

fn served(summary: &Run) -> Vec<ArmRow<'_>> {
    let row = |(at, arm, queues)| {
        let connected = bars(arm, &[CONNECT.name, CONNECT_OF_FAILED.name]);
        let served = bars(arm, &[FIRST_BYTE.name]);
        ArmRow { at, arm, queues, connected, served }
    };
    // Where no connection succeeded there are no bars, and that is said in their place.
    let drawn = |row: &ArmRow<'_>| !row.is_empty() || (row.arm.ok == 0 && row.arm.attempts > 0);
    recorded(summary).into_iter().map(row).filter(drawn).take(ARMS).collect()
}

/// The picture; `None` where no arm has a whole distribution.
pub(super) fn ladder(summary: &Run) -> Option<Picture> {
    let rows = served(summary);
    if rows.iter().all(ArmRow::is_empty) {
        return None;
    }
    let label = "Connections by time to connect and time to first byte, with the retry ladders";
    Some(Picture {
        svg: draw_ladder(&rows).labelled(label),
        caption: ladder_caption(summary, &rows),
        // Names stand beside the rows.
        drawn: Vec::new(),
    })
}

fn draw_ladder(rows: &[ArmRow<'_>]) -> Svg {
    let frame = Frame::across(82.0, 0.0, PITCH * rows.len() as f64);
    let ends = rows.iter().flat_map(|row| row.connected.iter().chain(&row.served));
    let (least, most) = ends
        .fold((i32::MAX, i32::MIN), |(least, most), (bar, _)| (least.min(*bar), most.max(*bar)));
    let steps = rows.iter().flat_map(|row| steps(&row.queues.syn_ladder));
    let last_step = steps.map(|(at, _)| at * 1e6).fold(0.0, f64::max);
    let x = Scale::log(
        [begin_of(least), begin_of(most + 1).max(last_step)].into_iter(),
        frame.left,
        frame.right,
    );
    let mut plot = Plot::of_rows(frame, TICKS_AND_LABEL, x);
    plot.time_axis(6);
    plot.x_label("time since the connection was due (log)");
    ladder_lines(&mut plot, rows);
    for (at, row) in rows.iter().enumerate() {
        one(&mut plot, row, at as f64 * PITCH);
    }
    plot.svg
}

/// Steps at which connections went on, s, with their number.
fn steps(ladder: &RetryLadder) -> impl Iterator<Item = (f64, u64)> + '_ {
    let all = ladder.at_s.iter().copied().zip(ladder.connections.iter().copied());
    all.filter(|(_, count)| *count > 0)
}

/// Dashed lines at the steps of both ladders that any arm used.
fn ladder_lines(plot: &mut Plot, rows: &[ArmRow<'_>]) {
    let Frame { top, bottom, .. } = plot.frame;
    let used = |ladder: fn(&Queues) -> &RetryLadder| {
        let mut at: Vec<f64> =
            rows.iter().flat_map(|row| steps(ladder(row.queues))).map(|(at, _)| at).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        at
    };
    let ladders: [(&str, &str, Vec<f64>); 2] = [
        ("d1", "SYN", used(|queues| &queues.syn_ladder)),
        ("d2", "SYN-ACK", used(|queues| &queues.syn_ack_ladder)),
    ];
    for (dash, packet, steps) in ladders {
        for at in steps {
            let x = plot.x.at(at * 1e6);
            let text = format!("retransmitted {packet} {} s after the first", number::plain(at));
            plot.group("echo", &text, |plot| {
                plot.svg.line(&format!("computed {dash}"), (x, top), (x, bottom));
            });
        }
    }
}

fn one(plot: &mut Plot, row: &ArmRow<'_>, top: f64) {
    let Frame { left, right, .. } = plot.frame;
    let (middle, room) = (top + 63.0, 26.0);
    let most = row.connected.iter().chain(&row.served).map(|(_, count)| *count).max().unwrap_or(1);
    // Logarithmic: the few that waited are what there is to see.
    let height = |count: u64| (1.0 + count as f64).ln() / (1.0 + most as f64).ln() * room;
    let name = clean::shorten(&row.arm.name, 62);
    plot.svg.text("name", (0.0, top + 8.0), Anchor::Start, &name);
    plot.svg.text("", (left - 8.0, middle - 10.0), Anchor::End, "first byte");
    plot.svg.text("", (left - 8.0, middle + 10.0), Anchor::End, "connected");
    if row.is_empty() {
        let text = format!("none of {} succeeded", figures::plural(row.arm.attempts, "connection"));
        plot.svg.text("name strong worse", (left + 8.0, middle - 10.0), Anchor::Start, &text);
    }
    plot.group(&arm_class(row.at), "", |plot| {
        for (bars, up) in [(&row.served, true), (&row.connected, false)] {
            let what = if up { "got their first byte" } else { "connected" };
            for (bar, count) in bars {
                let (from, to) = (begin_of(*bar), begin_of(bar + 1));
                let (x, end) = (plot.x.at(from), plot.x.at(to));
                let tall = height(*count).max(1.5);
                let text = format!(
                    "{} {what} after {} to {}",
                    figures::plural(*count, "connection"),
                    number::time(from),
                    number::time(to)
                );
                let y = if up { middle - 1.0 - tall } else { middle + 1.0 };
                let class = if up { "full" } else { "band" };
                plot.svg.rect(class, (x, y), ((end - x - 0.6).max(0.8), tall), &text);
            }
        }
    });
    plot.svg.line("axis", (left, middle), (right, middle));
    labels(plot, row, (middle - room - 8.0, middle + room + 9.0));
}

/// Numbers of connections at their steps: of the SYN ladder below, of the SYN-ACK ladder above.
fn labels(plot: &mut Plot, row: &ArmRow<'_>, (above, below): (f64, f64)) {
    let sides = [
        (&row.queues.syn_ladder, below, 12.0, "SYN"),
        (&row.queues.syn_ack_ladder, above, -12.0, "SYN-ACK"),
    ];
    for (ladder, y, line, packet) in sides {
        // Ends of what is written in each line: a number that has no room goes to the next.
        let mut ends = [f64::MIN; LABEL_ROWS];
        for (n, (at, count)) in steps(ladder).enumerate() {
            let x = plot.x.at(at * 1e6);
            let text = match n {
                0 => format!("{packet}: {}", number::count(count)),
                _ => number::count(count),
            };
            let wide = 7.2 * text.chars().count() as f64;
            // The line of the step may not go through it.
            let from = if n == 0 { x - wide - 4.0 } else { x + 3.0 };
            let Some(free) = ends.iter().position(|end| *end < from) else { continue };
            ends[free] = from + wide;
            let (x, anchor) = if n == 0 { (x - 4.0, Anchor::End) } else { (from, Anchor::Start) };
            plot.svg.text("name", (x, y + line * free as f64), anchor, &text);
        }
    }
}

fn ladder_caption(summary: &Run, rows: &[ArmRow<'_>]) -> String {
    let mut said = vec![
        "Bars count connections (log): first byte received above the line, connected below it."
            .to_owned(),
    ];
    for row in rows {
        let Some(words) = waited(row.queues) else { continue };
        said.push(format!("{}{words}.", before(summary, row.arm)));
        if said.len() > 2 {
            break;
        }
    }
    if said.len() == 1 {
        let all = rows.len() == recorded(summary).len();
        let of = if all { "No connection" } else { "Of the arms drawn, no connection" };
        said.push(format!("{of} waited for a retransmission."));
    }
    said.join(" ")
}

/// `connected after a retransmitted SYN: 246 at 1 s`.
fn waited(queues: &Queues) -> Option<String> {
    let sentence = |ladder: &RetryLadder, packet: &str| {
        let steps: Vec<String> = steps(ladder)
            .map(|(at, count)| format!("{} at {} s", number::count(count), number::plain(at)))
            .collect();
        (!steps.is_empty())
            .then(|| format!("connected after a retransmitted {packet}: {}", steps.join(", ")))
    };
    let parts: Vec<String> = [(&queues.syn_ladder, "SYN"), (&queues.syn_ack_ladder, "SYN-ACK")]
        .into_iter()
        .filter_map(|(ladder, packet)| sentence(ladder, packet))
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Steps that connections waited for, next to the drops that the kernel counted.
pub(super) fn ladder_table(summary: &Run) -> Option<Part> {
    let rows: Vec<Vec<String>> = recorded(summary)
        .into_iter()
        .flat_map(|(_, arm, queues)| {
            let row = |ladder: &'_ RetryLadder, packet: &'static str| {
                let on: Vec<String> = steps(ladder)
                    .map(|(at, count)| {
                        format!("{} at {} s", number::count(count), number::plain(at))
                    })
                    .collect();
                let off = ladder.off;
                let drops = queues.drops.as_ref();
                let (implied, counted) = match packet {
                    "SYN" => (
                        drops.map(|drops| drops.syns_unanswered),
                        drops.map(|drops| {
                            drops.syns_dropped.saturating_add(drops.syns_dropped_half_open)
                        }),
                    ),
                    _ => (None, drops.map(|drops| drops.acks_dropped)),
                };
                let any = !on.is_empty() || off > 0 || counted.unwrap_or(0) > 0;
                let figure =
                    |count: Option<u64>| count.map_or_else(|| "—".to_owned(), number::count);
                any.then(|| {
                    vec![
                        arm.name.clone(),
                        packet.to_owned(),
                        if on.is_empty() { "none".to_owned() } else { on.join(", ") },
                        number::count(off),
                        figure(implied),
                        figure(counted),
                    ]
                })
            };
            [row(&queues.syn_ladder, "SYN"), row(&queues.syn_ack_ladder, "SYN-ACK")]
        })
        .flatten()
        .collect();
    let heads =
        vec!["", "retransmitted", "connections", "off schedule", "implied drops", "counted drops"];
    (!rows.is_empty()).then(|| Part::Table(Table::texts(&heads, &[1, 2], rows)))
}

/// Who waits this long or longer has met a full queue or a lost packet: the first retransmission comes after 1 s, and the
/// middle of its bucket may be half a millisecond before it; µs.
const WAITED_US: f64 = 0.999e6;

/// What became of the connections of an arm.
struct Became<'a> {
    at: usize,
    arm: &'a Arm,
    soon: u64,
    late: u64,
    failed: u64,
}

impl<'a> Became<'a> {
    /// None: nothing was attempted, or it is not known how long those that succeeded took.
    fn counted(at: usize, arm: &'a Arm) -> Option<Self> {
        let failed = arm.attempts.checked_sub(arm.ok).filter(|_| arm.attempts > 0)?;
        if arm.ok == 0 {
            return Some(Self { at, arm, soon: 0, late: 0, failed });
        }
        let names = [FIRST_BYTE.name, CONNECT.name];
        let times = names.iter().find_map(|name| arm.histograms.get(*name))?;
        let whole = Histogram::from_summary(times).ok()??;
        let late = whole.buckets_ns().into_iter().filter(|(ns, _)| *ns as f64 / 1e3 >= WAITED_US);
        let late = late.map(|(_, count)| count).sum::<u64>().min(arm.ok);
        Some(Self { at, arm, soon: arm.ok - late, late, failed })
    }
}

fn became_rows(summary: &Run) -> Vec<Became<'_>> {
    recorded(summary).into_iter().filter_map(|(at, arm, _)| Became::counted(at, arm)).collect()
}

/// Those that are drawn: of many the worst, in their order.
fn worst<'a>(rows: &'a [Became<'a>]) -> Vec<&'a Became<'a>> {
    let mut drawn: Vec<&Became<'_>> = rows.iter().collect();
    drawn.sort_by_key(|row| std::cmp::Reverse((row.failed, row.late)));
    drawn.truncate(ARMS);
    drawn.sort_by_key(|row| row.at);
    drawn
}

/// How many were served, waited, or failed, a bar for each arm; `None` where none had a first byte to wait for.
pub(super) fn became(summary: &Run) -> Option<Picture> {
    let rows = became_rows(summary);
    rows.iter().any(|row| row.arm.ok > 0).then(|| Picture {
        svg: draw_became(&worst(&rows)).labelled("Connections that were served, waited or failed"),
        caption: became_caption(summary, &rows),
        drawn: Vec::new(),
    })
}

fn draw_became(rows: &[&Became<'_>]) -> Svg {
    const PITCH: f64 = 44.0;
    const HEIGHT: f64 = 15.0;
    let frame = Frame::across(14.0, 0.0, rows.len() as f64 * PITCH);
    let x = Scale::from_zero(1.0, frame.left, frame.right);
    let mut plot = Plot::of_rows(frame, TICKS_AND_LABEL, x);
    plot.x_ticks(5, true, number::percent);
    plot.x_label("share of the connections");
    for (n, row) in rows.iter().enumerate() {
        let top = n as f64 * PITCH;
        let parts = [
            (row.soon, "full", "served within 1 s"),
            (row.late, "band", "served after 1 s or more"),
            (row.failed, "worse", "failed"),
        ];
        let told = parts.iter().filter(|(count, ..)| *count > 0);
        let told = told.map(|(count, _, what)| format!("{} {what}", number::count(*count)));
        let text = format!(
            "{}: {}",
            clean::shorten(&row.arm.name, 24),
            told.collect::<Vec<_>>().join(", ")
        );
        plot.group(&arm_class(row.at), "", |plot| {
            plot.svg.text("name", (0.0, top + 9.0), Anchor::Start, &text);
            let mut before = 0;
            for (count, class, what) in parts.into_iter().filter(|(count, ..)| *count > 0) {
                let share = |n: u64| plot.x.at(n as f64 / row.arm.attempts as f64);
                let (from, to) = (share(before), share(before + count));
                let tooltip = format!("{}: {} {what}", row.arm.name, number::count(count));
                plot.svg.rect(class, (from, top + 19.0), ((to - from).max(0.8), HEIGHT), &tooltip);
                before += count;
            }
        });
    }
    plot.svg
}

fn became_caption(summary: &Run, rows: &[Became<'_>]) -> String {
    let key = "Full: served within 1 s. Pale: served after 1 s or more. Red: failed.";
    let worst = rows.iter().max_by_key(|row| row.failed + row.late);
    match worst.filter(|row| row.failed + row.late > 0) {
        None => format!("Every connection was served within 1 s. {key}"),
        Some(row) => format!(
            "{}{} of {} connections failed, {} more were served after 1 s or more. {key}",
            before(summary, row.arm),
            number::count(row.failed),
            number::count(row.arm.attempts),
            number::count(row.late)
        ),
    }
}

/// Rows of the picture, at most.
const ROWS: usize = 40;

struct Told<'a> {
    at: usize,
    name: &'a str,
    outcome: &'a str,
    times: &'a Outcome,
}

fn told_rows(summary: &Run) -> Vec<Told<'_>> {
    let mut rows = Vec::new();
    for (at, arm, queues) in recorded(summary) {
        // Those that were served first.
        let mut outcomes: Vec<(&String, &Outcome)> =
            queues.outcomes.iter().filter(|(_, times)| times.count > 0).collect();
        outcomes.sort_by_key(|(name, _)| name.as_str() != "ok");
        rows.extend(outcomes.into_iter().map(|(outcome, times)| Told {
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
pub(super) fn outcomes(summary: &Run) -> Option<Picture> {
    let rows = told_rows(summary);
    (!rows.is_empty()).then(|| Picture {
        svg: draw_outcomes(&rows).labelled("Outcomes of connections by time"),
        caption: outcomes_caption(summary, &rows),
        drawn: Vec::new(),
    })
}

fn draw_outcomes(rows: &[Told<'_>]) -> Svg {
    const PITCH: f64 = 30.0;
    let frame = Frame::across(14.0, 0.0, rows.len() as f64 * PITCH).with_room(70.0);
    let values = rows.iter().flat_map(|row| [row.times.min_us, row.times.max_us]);
    let x = Scale::fit(values, frame.left, frame.right);
    let mut plot = Plot::of_rows(frame, TICKS_AND_LABEL, x);
    plot.time_axis(5);
    plot.x_label("time from connect(2) to the outcome");
    let several = rows.iter().any(|other| other.at != rows[0].at);
    for (n, row) in rows.iter().enumerate() {
        let top = n as f64 * PITCH;
        let y = top + 21.0;
        let name = if several {
            format!("{}: {}", clean::shorten(row.name, 42), told_shortly(row.outcome))
        } else {
            told(row.outcome).to_owned()
        };
        plot.group(&arm_class(row.at), &tooltip(row), |plot| {
            plot.svg.text("name", (0.0, top + 8.0), Anchor::Start, &name);
            let [from, middle, to] =
                [row.times.min_us, row.times.p50_us, row.times.max_us].map(|us| plot.x.at(us));
            plot.svg.line("bar", (from, y), (to, y));
            plot.svg.dot(if row.outcome == "ok" { "mark" } else { "full" }, (middle, y), 3.5, "");
            let end = (frame.right + 9.0, y);
            plot.svg.text("", end, Anchor::Start, &number::count(row.times.count));
        });
    }
    plot.svg
}

fn tooltip(row: &Told<'_>) -> String {
    let Outcome { count, min_us, p50_us, max_us } = *row.times;
    let [min, p50, max] = [min_us, p50_us, max_us].map(number::time);
    format!(
        "{}: {}, {}: after {min} to {max}, median {p50}",
        row.name,
        figures::plural(count, "connection"),
        told(row.outcome)
    )
}

/// What those that failed were told, of up to three outcomes.
fn outcomes_caption(summary: &Run, rows: &[Told<'_>]) -> String {
    let phrase = |row: &Told<'_>| {
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
            figures::plural(row.times.count, "connection"),
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
