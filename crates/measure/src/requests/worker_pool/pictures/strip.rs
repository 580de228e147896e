//! How is a pool over time drawn with letters? A strip per arm, one character for a slice of time: busy
//! workers, then the latency of requests that need no backend.

use crate::requests::worker_pool::LOCAL;

use super::{Drawn, drawn, last};
use tcptoll_show::over_time;
use tcptoll_show::over_time::{NAME, cut, heading, letters, row};
use tcptoll_show::own::{Block, Tone};
use tcptoll_show::run::Run;
use tcptoll_show::{clean, figures, number};

/// Arms that are shown; the page has all.
const SHOWN: usize = 8;

/// Both strips of each arm.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Block> {
    let mut all = drawn(summary);
    let Some(cells) = over_time::cells(width).filter(|_| !all.is_empty()) else {
        return Vec::new();
    };
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let last = all.iter().map(|one| last(one.pool)).fold(0.0, f64::max);
    let names: Vec<&str> = all.iter().map(|one| one.arm.name.as_str()).collect();
    let names = clean::shorten_all(&names, NAME);
    let time = format!("over {} s", number::trimmed(last));
    let mut blocks = vec![Block::Blank];
    blocks.push(heading(&format!("busy workers {time}"), ""));
    blocks.extend(stall(&all, last, cells));
    for (one, name) in all.iter().zip(&names) {
        let strip = cut(&one.pool.busy, last, cells);
        let peak = one.pool.busy.peak().unwrap_or_default();
        let full = one.pool.workers as f64;
        let strip = letters(&strip, |busy| busy / full);
        let behind = format!("peak {} of {}", number::trimmed(peak), one.pool.workers);
        blocks.push(row(name, &strip, &behind));
    }
    let latencies: Vec<Vec<Option<f64>>> =
        all.iter().map(|one| latency(one, last, cells)).collect();
    blocks.extend(over_time::times("latency without the backend, by due time", &names, &latencies));
    if more > 0 {
        let text = format!("{} in the HTML report", figures::plural(more as u64, "more arm"));
        blocks.push(Block::Prose(2, text, Tone::Dim));
    }
    blocks
}

fn latency(one: &Drawn<'_>, last: f64, cells: usize) -> Vec<Option<f64>> {
    one.pool.groups.get(LOCAL).map_or_else(Vec::new, |group| cut(&group.latency_us, last, cells))
}

/// The stall above the strips: `├──────┤ stall`.
fn stall(all: &[Drawn<'_>], last: f64, cells: usize) -> Option<Block> {
    let [from, until] = all.iter().find_map(|one| one.pool.stalled_s)?;
    let cell = |s: f64| ((s / last * cells as f64) as usize).min(cells - 1);
    let (from, until) = (cell(from), cell(until));
    let line = if until > from { "─".repeat(until - from - 1) } else { String::new() };
    let end = if until > from { "┤" } else { "" };
    let text = format!("{}├{line}{end} stall", " ".repeat(2 + NAME + 2 + from));
    Some(Block::Line(vec![(Tone::Dim, text)]))
}
