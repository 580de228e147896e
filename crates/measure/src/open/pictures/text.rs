//! What does a terminal show of queues? Each queue over time as a line of blocks, and what clients were
//! told.

use tcptoll_core::record::{Arm, ListenerQueue, Outcome, Queues};
use tcptoll_core::stats::Series;

use super::over_time::busy_until;
use super::{recorded, told_shortly};
use tcptoll_show::layout::{Align, Column, lay_out};
use tcptoll_show::own::{Block, Tone};
use tcptoll_show::run::Run;
use tcptoll_show::{clean, number};

/// Arms whose queue is drawn; more would push the answer off the screen.
const QUEUES: usize = 8;

/// Rows of outcomes.
const OUTCOMES: usize = 24;

/// Columns of an arm's name.
const NAME: usize = 24;

/// Columns of a queue over time, at least and at most.
const LINE: (usize, usize) = (16, 60);

/// Heights of a column.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// After the figures.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Block> {
    let arms = recorded(summary);
    let mut blocks = over_time(&arms, width);
    blocks.extend(outcomes(&arms, width));
    blocks
}

/// The listener that is drawn: the one that dropped the most.
fn drawn(queues: &Queues) -> Option<&ListenerQueue> {
    // Of equal ones the first: `max_by_key` takes the last.
    queues.listeners.iter().rev().max_by_key(|listener| listener.drops.unwrap_or(0))
}

fn over_time(arms: &[(usize, &Arm, &Queues)], width: usize) -> Vec<Block> {
    let all: Vec<(&Arm, &ListenerQueue)> = arms
        .iter()
        .filter_map(|(_, arm, queues)| Some((*arm, drawn(queues)?)))
        .filter(|(_, listener)| listener.length.points.len() > 1)
        .take(QUEUES)
        .collect();
    if all.is_empty() {
        return Vec::new();
    }
    let several = arms.len() > 1;
    let names: Vec<String> = all.iter().map(|(arm, _)| clean::shorten(&arm.name, NAME)).collect();
    let figures: Vec<String> = all
        .iter()
        .map(|(_, listener)| {
            let [peak, holds] =
                [listener.peak, listener.limit + 1].map(u64::from).map(number::count);
            format!("{peak}/{holds}")
        })
        .collect();
    let widest =
        |texts: &[String]| texts.iter().map(|text| clean::columns(text)).max().unwrap_or(0);
    let (name, figure) = (if several { widest(&names) + 2 } else { 0 }, widest(&figures));
    let room = width.saturating_sub(2 + name + 2 + figure + 9).clamp(LINE.0, LINE.1);
    let end = all.iter().map(|(_, listener)| busy_until(&listener.length)).fold(0.0, f64::max);
    let heading = format!(
        "accept queue over {} s (peak/capacity, drops)",
        number::trimmed((end * 100.0).round() / 100.0)
    );
    let mut blocks =
        vec![Block::Blank, Block::Line(vec![(Tone::Strong, clean::shorten(&heading, width))])];
    for (((_, listener), label), figure_text) in all.iter().zip(&names).zip(&figures) {
        let line = line(&listener.length, f64::from(listener.limit) + 1.0, end, room);
        let bound = if listener.drops_at_most { "≤ " } else { "" };
        let drops = listener
            .drops
            .map_or_else(String::new, |drops| format!("{bound}{}", number::count(drops)));
        let label = if several {
            format!("  {label}{}", " ".repeat(name - clean::columns(label)))
        } else {
            "  ".to_owned()
        };
        let tail = format!("  {figure_text:>figure$}  {drops:>6}");
        let tone = if listener.was_full() { Tone::Bad } else { Tone::Plain };
        blocks.push(Block::Line(vec![(Tone::Plain, label), (tone, line), (Tone::Plain, tail)]));
    }
    blocks
}

/// The greatest length in each column, as blocks; a full block is a full queue, a blank an empty one.
fn line(series: &Series, holds: f64, end: f64, room: usize) -> String {
    let mut most = vec![0.0_f64; room];
    let points: Vec<[f64; 4]> = series.points.iter().copied().filter(|p| p[0] <= end).collect();
    let place =
        |s: f64| if end > 0.0 { ((s / end) * (room - 1) as f64).round() as usize } else { 0 };
    for pair in points.windows(2) {
        // A point holds until the next one.
        for cell in &mut most[place(pair[0][0])..=place(pair[1][0]).min(room - 1)] {
            *cell = cell.max(pair[0][3]);
        }
    }
    if let Some(last) = points.last() {
        let cell = &mut most[place(last[0]).min(room - 1)];
        *cell = cell.max(last[3]);
    }
    most.into_iter()
        .map(|length| {
            if length <= 0.0 {
                return ' ';
            }
            let eighths = (length / holds.max(1.0) * 8.0).ceil().clamp(1.0, 8.0);
            // Only a queue that holds all it can is a full block.
            let eighths = if length < holds { eighths.min(7.0) } else { 8.0 };
            BLOCKS[eighths as usize - 1]
        })
        .collect()
}

fn outcomes(arms: &[(usize, &Arm, &Queues)], width: usize) -> Vec<Block> {
    let failed = |queues: &Queues| {
        queues.outcomes.iter().any(|(name, times)| name != "ok" && times.count > 0)
    };
    if !arms.iter().any(|(_, _, queues)| failed(queues)) {
        return Vec::new();
    }
    let mut rows: Vec<(String, &str, &Outcome)> = Vec::new();
    for (_, arm, queues) in arms {
        let mut all: Vec<(&String, &Outcome)> =
            queues.outcomes.iter().filter(|(_, times)| times.count > 0).collect();
        all.sort_by_key(|(name, _)| name.as_str() != "ok");
        for (n, (name, times)) in all.into_iter().enumerate() {
            let arm = if n == 0 && arms.len() > 1 {
                clean::shorten(&arm.name, NAME)
            } else {
                String::new()
            };
            rows.push((arm, told_shortly(name), times));
        }
    }
    let more = rows.len().saturating_sub(OUTCOMES);
    rows.truncate(OUTCOMES);
    let cells =
        |text: &dyn Fn(&Outcome) -> String| rows.iter().map(|row| text(row.2)).collect::<Vec<_>>();
    let times = |time: fn(&Outcome) -> f64| {
        number::times(&rows.iter().map(|row| Some(time(row.2))).collect::<Vec<_>>())
    };
    let table = |whole: bool| {
        let mut table = vec![
            Column::new("", Align::Left, rows.iter().map(|row| row.0.clone()).collect()),
            Column::new("outcome", Align::Left, rows.iter().map(|row| row.1.to_owned()).collect()),
            Column::new("connections", Align::Right, cells(&|times| number::count(times.count))),
            Column::new("median", Align::Right, times(|t| t.p50_us)),
        ];
        if whole {
            table.insert(3, Column::new("first", Align::Right, times(|t| t.min_us)));
            table.push(Column::new("last", Align::Right, times(|t| t.max_us)));
        }
        lay_out(table)
    };
    let whole = table(true);
    let lines = if whole.width() <= width { whole } else { table(false) };
    let mut blocks = vec![
        Block::Blank,
        Block::Line(vec![(Tone::Strong, "outcomes for clients, by time".to_owned())]),
        Block::Lines(lines, Tone::Dim),
    ];
    if more > 0 {
        blocks.push(Block::Prose(2, format!("{more} more rows in the HTML report"), Tone::Dim));
    }
    blocks
}
