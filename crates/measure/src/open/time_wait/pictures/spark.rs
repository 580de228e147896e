//! The curve on a terminal: a line of bars per arm, from no port in use to the last, and a mark where the
//! cliff was expected.

use tcptoll_core::record::{Arm, PortUse};

use super::{port_use, ports};
use tcptoll_show::own::{Block, Tone};
use tcptoll_show::run::Run;
use tcptoll_show::{clean, number};

/// Most arms that have a line.
const ARMS: usize = 6;

/// Most columns of a line of bars; room for a name and for the figures is kept beside it.
const BARS: usize = 36;

/// Most columns of a name.
const NAME: usize = 20;

/// Columns of the figures behind the bars: ` 7.10 µs to 1.24 ms`.
const FIGURES: usize = 22;

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// An arm that has a curve.
struct Line<'a> {
    name: String,
    used: &'a PortUse,
}

/// What the terminal shows after the figures.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Block> {
    let drawn = |arm: &Arm| port_use(arm).is_some_and(|used| costs(used).count() > 1);
    let arms: Vec<&Arm> = summary.arms.iter().filter(|arm| drawn(arm)).take(ARMS).collect();
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let names = clean::shorten_all(&names, NAME);
    let lines: Vec<Line<'_>> = arms
        .iter()
        .zip(names)
        .filter_map(|(arm, name)| Some(Line { name, used: port_use(arm)? }))
        .collect();
    let room = lines.iter().map(|line| clean::columns(&line.name)).max().unwrap_or(0);
    let bars = width.saturating_sub(room + FIGURES + 4).min(BARS);
    let all = || lines.iter().flat_map(|line| costs(line.used));
    let most_ports = all().map(|(ports, _)| ports).fold(0.0, f64::max);
    let least = all().map(|(_, cost)| cost).fold(f64::INFINITY, f64::min);
    let most = all().map(|(_, cost)| cost).fold(0.0, f64::max);
    if lines.is_empty() || bars < 12 || most_ports <= 0.0 || least <= 0.0 {
        return Vec::new();
    }
    let heading = format!(
        "CPU of connect(2), from 0 to {} ports in use (log scale{})",
        ports(most_ports),
        if lines.iter().any(|line| line.used.cliff_expected.is_some()) {
            "; ^ expected cliff"
        } else {
            ""
        }
    );
    let mut blocks = vec![Block::Blank, Block::Line(vec![(Tone::Dim, heading)])];
    for Line { name, used } in &lines {
        let cells = cells(used, bars, most_ports, [least, most]);
        let range = costs(used).map(|(_, cost)| cost);
        let (low, high) = range
            .fold((f64::INFINITY, 0.0_f64), |(low, high), cost| (low.min(cost), high.max(cost)));
        let pad = " ".repeat(room.saturating_sub(clean::columns(name)));
        blocks.push(Block::Line(vec![
            (Tone::Plain, format!("  {name}{pad}  ")),
            (Tone::Strong, cells),
            (Tone::Plain, format!(" {} to {}", number::time(low), number::time(high))),
        ]));
        let column = used
            .cliff_expected
            .filter(|at| *at <= most_ports)
            .map(|at| column(at, bars, most_ports));
        if let Some(column) = column {
            let blanks = " ".repeat(room + 4 + column);
            blocks.push(Block::Line(vec![(Tone::Dim, format!("{blanks}^"))]));
        }
    }
    blocks
}

/// Ports in use and cost of each point that has a connection.
fn costs(used: &PortUse) -> impl Iterator<Item = (f64, f64)> {
    let points =
        used.curve.iter().filter(|point| point.connections > 0 && point.connect_cpu_us > 0.0);
    points.map(|point| (point.ports, point.connect_cpu_us))
}

/// The column of a number of ports.
fn column(at: f64, bars: usize, most: f64) -> usize {
    ((at / most * bars as f64) as usize).min(bars - 1)
}

/// A bar per column: the mean of the logarithms of its points; a blank without any.
fn cells(used: &PortUse, bars: usize, most_ports: f64, [least, most]: [f64; 2]) -> String {
    let mut sums = vec![(0.0, 0_u32); bars];
    for (ports, cost) in costs(used) {
        let (sum, count) = &mut sums[column(ports, bars, most_ports)];
        (*sum, *count) = (*sum + cost.ln(), *count + 1);
    }
    let span = (most / least).ln();
    let cell = |(sum, count): (f64, u32)| {
        if count == 0 {
            return ' ';
        }
        let share = if span > 0.0 { (sum / f64::from(count) - least.ln()) / span } else { 0.0 };
        LEVELS[(share.clamp(0.0, 1.0) * 7.0).round() as usize]
    };
    sums.into_iter().map(cell).collect()
}
