//! How is a quantity over time drawn with letters? A row per arm, one character for a slice of time.

use tcptoll_core::stats::Series;

use crate::own::{Block, Tone};
use crate::{clean, number};

/// From the least to the greatest.
pub const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of a name, and of what stands behind a strip.
pub const NAME: usize = 22;
const BEHIND: usize = 18;

/// Columns of a strip: with fewer there is nothing to see, more say nothing more.
const CELLS: [usize; 2] = [16, 50];

/// Characters of a strip where the terminal has so many columns. None: too few to see anything.
pub fn cells(width: usize) -> Option<usize> {
    let [least, most] = CELLS;
    let cells = width.saturating_sub(2 + NAME + 2 + 2 + BEHIND).min(most);
    (cells >= least).then_some(cells)
}

/// What the strips below show, and what stands behind them.
pub fn heading(text: &str, behind: &str) -> Block {
    let behind = if behind.is_empty() { String::new() } else { format!("   {behind}") };
    Block::Line(vec![(Tone::Strong, text.to_owned()), (Tone::Dim, behind)])
}

/// A strip between its name and a figure.
pub fn row(name: &str, strip: &str, behind: &str) -> Block {
    let blanks = " ".repeat(NAME.saturating_sub(clean::columns(name)));
    Block::Line(vec![
        (Tone::Plain, format!("  {name}{blanks}  ")),
        (Tone::Client, strip.to_owned()),
        (Tone::Dim, format!("  {behind}")),
    ])
}

/// Times of each arm on one logarithmic scale, below their heading. Empty: there are none.
pub fn times(title: &str, names: &[String], strips: &[Vec<Option<f64>>]) -> Vec<Block> {
    let values = || strips.iter().flatten().flatten().copied().filter(|us| *us > 0.0);
    let (Some(low), Some(high)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
        return Vec::new();
    };
    let [least, most] = [HEIGHTS[0], HEIGHTS[7]];
    let range = format!("{least} {} to {most} {} (log)", number::time(low), number::time(high));
    let mut blocks = vec![Block::Blank, heading(title, &range)];
    // Of a run whose times are all alike every height is the least.
    let span = (high / low).ln().max(1e-9);
    for (name, strip) in names.iter().zip(strips) {
        let peak = strip.iter().flatten().copied().reduce(f64::max);
        let behind = peak.map_or_else(String::new, |us| format!("peak {}", number::time(us)));
        blocks.push(row(name, &letters(strip, |us| (us / low).ln() / span), &behind));
    }
    blocks
}

/// The mean of each slice of time. None: it has no value.
pub fn cut(series: &Series, last: f64, cells: usize) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0_u32); cells];
    for point in series.points.iter().filter(|point| point[0] <= last) {
        let at = ((point[0] / last.max(1e-9) * cells as f64) as usize).min(cells - 1);
        sums[at].0 += point[2];
        sums[at].1 += 1;
    }
    sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect()
}

/// A character for each value by its share of the height; a blank where there is none.
pub fn letters(values: &[Option<f64>], share: impl Fn(f64) -> f64) -> String {
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
