//! How is a server over time drawn with letters? Workers that hold a connection, then page times.

use tcptoll_core::stats::Series;

use super::{Drawn, drawn, pages_of};
use tcptoll_show::over_time;
use tcptoll_show::over_time::{HEIGHTS, NAME, cut, heading, letters, row};
use tcptoll_show::own::{Block, Tone};
use tcptoll_show::run::Run;
use tcptoll_show::{clean, figures, number};

/// Arms that are shown; the page has all.
const SHOWN: usize = 6;

/// Both strips of each arm.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Block> {
    let mut all = drawn(summary);
    let Some(cells) = over_time::cells(width).filter(|_| !all.is_empty()) else {
        return Vec::new();
    };
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let last = all.iter().map(|one| one.visits.window_s).fold(0.0, f64::max);
    let names: Vec<&str> = all.iter().map(|one| one.arm.name.as_str()).collect();
    let names = clean::shorten_all(&names, NAME);
    // All strips have one scale: the limit, or what is held at most where nobody comes near it.
    let most = all.iter().filter_map(|one| one.visits.busy.peak()).fold(1.0, f64::max);
    let time = format!("over {} s", number::trimmed(last));
    let full = format!("{} {}", HEIGHTS[7], number::trimmed(most));
    let mut blocks =
        vec![Block::Blank, heading(&format!("workers that hold a connection {time}"), &full)];
    for (one, name) in all.iter().zip(&names) {
        let strip = letters(&cut(&one.visits.busy, last, cells), |busy| busy / most);
        let peak = one.visits.busy.peak().unwrap_or_default();
        let behind = format!("peak {} of {}", number::trimmed(peak), one.visits.workers);
        blocks.push(row(name, &strip, &behind));
    }
    blocks.extend(pages(&all, &names, last, cells));
    if more > 0 {
        let text = format!("{} in the HTML report", figures::plural(more as u64, "more arm"));
        blocks.push(Block::Prose(2, text, Tone::Dim));
    }
    blocks
}

/// Page times by when the pages were asked for.
fn pages(all: &[Drawn<'_>], names: &[String], last: f64, cells: usize) -> Vec<Block> {
    let times: Vec<Vec<Option<f64>>> = all
        .iter()
        .map(|one| {
            let points = pages_of(one.visits, last);
            let points = points.into_iter().map(|(s, us)| [s, us, us, us]).collect();
            cut(&Series { points }, last, cells)
        })
        .collect();
    over_time::times("page time, by request time", names, &times)
}
