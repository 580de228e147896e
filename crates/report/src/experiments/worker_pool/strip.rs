//! How is a pool over time drawn with letters? A strip per arm, one character for a slice of time: busy
//! workers, then the latency of requests that need no backend.

use tcptoll_model::experiments::worker_pool::LOCAL;
use tcptoll_model::record::{Series, Summary};

use super::{Drawn, drawn, last};
use crate::own::{Block, Tone};
use crate::{clean, figures, number};

/// From the least to the greatest.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Arms that are shown; the page has all.
const SHOWN: usize = 8;

/// Columns of a name, and of what stands behind a strip.
const NAME: usize = 22;
const BEHIND: usize = 18;

/// Columns of a strip: with fewer there is nothing to see, more say nothing more.
const CELLS: [usize; 2] = [16, 50];

/// Both strips of each arm.
pub(super) fn blocks(summary: &Summary, width: usize) -> Vec<Block> {
    let mut all = drawn(summary);
    let [least, most] = CELLS;
    let cells = width.saturating_sub(2 + NAME + 2 + 2 + BEHIND).min(most);
    if all.is_empty() || cells < least {
        return Vec::new();
    }
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
        let peak = one.pool.busy.points.iter().map(|point| point[3]).fold(0.0, f64::max);
        let full = one.pool.workers as f64;
        let strip = letters(&strip, |busy| busy / full);
        let behind = format!("peak {} of {}", number::trimmed(peak), one.pool.workers);
        blocks.push(row(name, &strip, &behind));
    }
    let latencies: Vec<Vec<Option<f64>>> =
        all.iter().map(|one| latency(one, last, cells)).collect();
    let values = || latencies.iter().flatten().flatten().copied().filter(|us| *us > 0.0);
    if let (Some(low), Some(high)) = (values().reduce(f64::min), values().reduce(f64::max)) {
        let range = format!(
            "{} {} to {} {} (log)",
            HEIGHTS[0],
            number::time(low),
            HEIGHTS[7],
            number::time(high)
        );
        blocks.push(Block::Blank);
        blocks.push(heading("latency without the backend, by when due", &range));
        for (name, strip) in names.iter().zip(&latencies) {
            let peak = strip.iter().flatten().copied().reduce(f64::max);
            let behind = peak.map_or_else(String::new, |us| format!("peak {}", number::time(us)));
            // Of a run whose latencies are all alike every height is the least.
            let span = (high / low).ln().max(1e-9);
            let strip = letters(strip, |us| (us / low).ln() / span);
            blocks.push(row(name, &strip, &behind));
        }
    }
    if more > 0 {
        let text = format!("{} in the HTML report", figures::plural(more as u64, "more arm"));
        blocks.push(Block::Prose(2, text, Tone::Dim));
    }
    blocks
}

fn latency(one: &Drawn<'_>, last: f64, cells: usize) -> Vec<Option<f64>> {
    one.pool.groups.get(LOCAL).map_or_else(Vec::new, |group| cut(&group.latency_us, last, cells))
}

fn heading(text: &str, behind: &str) -> Block {
    let behind = if behind.is_empty() { String::new() } else { format!("   {behind}") };
    Block::Line(vec![(Tone::Strong, text.to_owned()), (Tone::Dim, behind)])
}

fn row(name: &str, strip: &str, behind: &str) -> Block {
    let blanks = " ".repeat(NAME.saturating_sub(clean::columns(name)));
    Block::Line(vec![
        (Tone::Plain, format!("  {name}{blanks}  ")),
        (Tone::Client, strip.to_owned()),
        (Tone::Dim, format!("  {behind}")),
    ])
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

/// The mean of each slice of time. None: it has no value.
fn cut(series: &Series, last: f64, cells: usize) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0_u32); cells];
    for point in series.points.iter().filter(|point| point[0] <= last) {
        let at = ((point[0] / last.max(1e-9) * cells as f64) as usize).min(cells - 1);
        sums[at].0 += point[2];
        sums[at].1 += 1;
    }
    sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect()
}

/// A character for each value by its share of the height; a blank where there is none.
fn letters(values: &[Option<f64>], share: impl Fn(f64) -> f64) -> String {
    let letter = |value: &Option<f64>| {
        value.map_or(' ', |value| {
            HEIGHTS[((share(value).clamp(0.0, 1.0) * 7.0).round() as usize).min(7)]
        })
    };
    values.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_shows_a_share_of_the_height_and_a_blank_no_value() {
        let values = [Some(0.0), None, Some(10.0), Some(20.0)];
        assert_eq!(letters(&values, |busy| busy / 20.0), "▁ ▅█");
    }

    #[test]
    fn slices_hold_the_mean_of_their_points() {
        let points = vec![[0.0, 1.0, 1.0, 1.0], [0.4, 3.0, 3.0, 3.0], [1.9, 5.0, 5.0, 5.0]];
        assert_eq!(cut(&Series { points }, 2.0, 4), [Some(2.0), None, None, Some(5.0)]);
    }
}
