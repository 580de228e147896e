//! How is the trade drawn with letters? Time until a death is known against packets, both
//! logarithmic: capitals are measured arms, small letters the computed curves.

use tcptoll_core::tcp::checking::Mechanism;

use super::Trade;
use tcptoll_show::number;

/// Lines of the picture, axes apart.
const ROWS: usize = 13;

/// Columns left of the picture: a tick and the axis.
const LEFT: usize = 10;

/// The axes reach this many times beyond what was measured, and on to the next decade.
const NEAR: f64 = 2.0;

/// Letters wider apart than this say nothing more.
const COLUMNS: usize = 76;

fn letter(mechanism: Mechanism) -> char {
    match mechanism {
        Mechanism::None => 'n',
        Mechanism::Tcp => 't',
        Mechanism::Heartbeat => 'h',
        Mechanism::Lazy => 'l',
        Mechanism::Write => 'w',
    }
}

/// A logarithmic axis over `cells` cells, from a decade to a decade.
struct Axis {
    least: f64,
    most: f64,
    cells: usize,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, cells: usize) -> Option<Self> {
        let logs: Vec<f64> = values.filter(|v| v.is_finite() && *v > 0.0).map(f64::log10).collect();
        let least = logs.iter().copied().reduce(f64::min)?;
        let most = logs.iter().copied().reduce(f64::max)?;
        // A single value still spans a decade.
        let (least, most) = (least.floor(), most.ceil());
        Some(Self { least, most: most.max(least + 1.0), cells })
    }

    fn holds(&self, value: f64) -> bool {
        value > 0.0 && (self.least..=self.most).contains(&value.log10())
    }

    fn cell(&self, value: f64) -> usize {
        let share = ((value.log10() - self.least) / (self.most - self.least)).clamp(0.0, 1.0);
        (share * (self.cells - 1) as f64).round() as usize
    }

    fn decades(&self) -> impl Iterator<Item = f64> + use<> {
        (self.least as i32..=self.most as i32).map(|exponent| 10_f64.powi(exponent))
    }
}

/// The lines of the picture; none where nothing has a place in it.
pub(super) fn lines(trade: &Trade<'_>, width: usize) -> Vec<String> {
    // The curves go much further; near what was measured they can be told apart.
    let near = |value: f64| [value / NEAR, value * NEAR];
    let packets = trade.drawn.iter().flat_map(|arm| near(arm.packets_per_hour));
    let times = trade.drawn.iter().flat_map(|arm| near(arm.known_s[1]));
    let columns = width.saturating_sub(LEFT + 3).clamp(30, COLUMNS);
    let x = Axis::over(packets, columns);
    let y = Axis::over(times, ROWS);
    let (Some(x), Some(y)) = (x, y) else { return Vec::new() };
    let mut cells = vec![vec![' '; columns]; ROWS];
    for curve in &trade.curves {
        for (packets, s) in curve.line().filter(|(packets, s)| x.holds(*packets) && y.holds(*s)) {
            cells[ROWS - 1 - y.cell(s)][x.cell(packets)] = letter(curve.mechanism);
        }
    }
    for arm in &trade.drawn {
        let row = &mut cells[ROWS - 1 - y.cell(arm.known_s[1])];
        let at = x.cell(arm.packets_per_hour);
        // No arm hides another: beside it is still near enough.
        let free = (at..columns).find(|at| !row[*at].is_ascii_uppercase()).unwrap_or(at);
        row[free] = letter(arm.mechanism).to_ascii_uppercase();
    }
    let mut lines = vec![format!("  detected after (log); {}", key(&cells))];
    lines.extend(cells.into_iter().enumerate().map(|(row, cells)| {
        let tick = y.decades().find(|s| ROWS - 1 - y.cell(*s) == row);
        let tick = tick.map_or_else(String::new, |s| number::tick(s * 1e6));
        let cells: String = cells.into_iter().collect();
        format!("{tick:>width$} │{cells}", width = LEFT - 2).trim_end().to_owned()
    }));
    lines.extend(bottom(&x));
    lines
}

/// What the letters in the picture mean: capitals where an arm stands, else small.
fn key(cells: &[Vec<char>]) -> String {
    let drawn = |letter: &char| cells.iter().flatten().any(|cell| cell == letter);
    let word = |mechanism: Mechanism| {
        let small = letter(mechanism);
        let shown = [small.to_ascii_uppercase(), small].into_iter().find(drawn)?;
        Some(format!("{shown} {mechanism}"))
    };
    let words: Vec<String> = Mechanism::ALL.into_iter().filter_map(word).collect();
    format!("capitals: measured, {}", words.join(", "))
}

/// The axis of packets with its decades.
fn bottom(x: &Axis) -> [String; 3] {
    let mut rule: Vec<char> = vec!['─'; x.cells];
    let mut ticks = vec![' '; x.cells + 8];
    for packets in x.decades() {
        let at = x.cell(packets);
        rule[at] = '┴';
        let text = number::trimmed_ratio(packets);
        let from =
            at.saturating_sub(text.chars().count() / 2).min(x.cells - text.len().min(x.cells));
        for (place, letter) in ticks[from..].iter_mut().zip(text.chars()) {
            *place = letter;
        }
    }
    let blanks = " ".repeat(LEFT - 1);
    let rule: String = rule.into_iter().collect();
    let ticks: String = ticks.into_iter().collect();
    let name = "packets per hour and socket (log)";
    [
        format!("{blanks}└{rule}"),
        format!("{blanks} {ticks}").trim_end().to_owned(),
        format!("{name:>width$}", width = LEFT + x.cells),
    ]
}
