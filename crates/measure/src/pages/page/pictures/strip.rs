//! A waterfall with letters: a line for each request, a letter for a slice of time.

use tcptoll_core::page::waterfall::{Request, Waterfall};

use super::{
    PHASES, critical_of, drawn, end_us, forecast, last_us, name_of, notes, outcome, rules,
};
use tcptoll_show::own::{Block, Tone};
use tcptoll_show::run::Run;
use tcptoll_show::{clean, figures, number};

/// Arms that are shown; the page has all.
const ARMS: usize = 4;

/// Requests of one arm that are shown, where there is one and where there are several.
const ROWS: [usize; 2] = [30, 12];

/// Columns of a name, and of the time behind a bar.
const NAME: usize = 18;
const BEHIND: usize = 9;

/// Columns of a bar: fewer show nothing, more say nothing more.
const CELLS: [usize; 2] = [20, 100];

/// The waterfalls.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Block> {
    let all = drawn(summary);
    let [least, most] = CELLS;
    let cells = width.saturating_sub(2 + NAME + 2 + 1 + BEHIND).min(most);
    if all.is_empty() || cells < least {
        return Vec::new();
    }
    let rows = ROWS[usize::from(all.len() > 1)];
    let last = all.iter().take(ARMS).map(|one| last_us(&one.loads.waterfall)).max().unwrap_or(1);
    let mut blocks = vec![Block::Blank];
    for one in all.iter().take(ARMS) {
        let page = &one.loads.waterfall;
        let by = one
            .loads
            .browser
            .as_deref()
            .map_or(String::new(), |name| format!(", {}", clean::line(name)));
        let heading = format!("{}: a load with the median span{by}", clean::line(&one.arm.name));
        blocks.push(Block::Prose(0, heading, Tone::Strong));
        blocks.extend(lines(page, rows, cells, last));
        let hidden = (page.requests.len().saturating_sub(rows) as u64)
            .saturating_add(one.loads.requests_left_out);
        if hidden > 0 {
            let text = format!("… and {}", figures::plural(hidden, "more request"));
            blocks.push(Block::Prose(2, text, Tone::Dim));
        }
        if let Some(text) = forecast(one) {
            blocks.push(Block::Prose(2, text, Tone::Plain));
        }
        blocks.extend(notes(page).iter().map(|text| Block::Prose(2, clean::line(text), Tone::Dim)));
        blocks.push(Block::Blank);
    }
    let legend: Vec<String> =
        PHASES.iter().map(|(name, letter, _, _)| format!("{letter} {name}")).collect();
    let legend = format!("{}; * on the critical path", legend.join("  "));
    blocks.push(Block::Prose(2, legend, Tone::Dim));
    if all.len() > ARMS {
        let more = figures::plural((all.len() - ARMS) as u64, "more arm");
        blocks.push(Block::Prose(2, format!("{more} in the HTML report"), Tone::Dim));
    }
    blocks.extend(rules(&all).iter().map(|text| Block::Prose(2, clean::line(text), Tone::Plain)));
    blocks
}

fn lines(page: &Waterfall, rows: usize, cells: usize, last: u64) -> Vec<Block> {
    let chain = critical_of(page).map(|critical| critical.chain).unwrap_or_default();
    let line = |(number, request): (usize, &Request)| {
        let name = clean::shorten(&clean::line(name_of(request)), NAME);
        let blanks = " ".repeat(NAME.saturating_sub(clean::columns(&name)));
        let mark = if chain.contains(&(number as u32)) { '*' } else { ' ' };
        let (tone, behind) = match &request.error {
            Some(_) => (Tone::Bad, clean::shorten(&clean::line(&outcome(request)), BEHIND)),
            None => (Tone::Plain, number::time(end_us(request) as f64)),
        };
        let behind =
            format!("{}{behind}", " ".repeat(BEHIND.saturating_sub(clean::columns(&behind))));
        Block::Line(vec![
            (tone, format!(" {mark}{name}{blanks}  ")),
            (Tone::Wire, bar(request, cells, last)),
            (tone, format!(" {behind}")),
        ])
    };
    page.requests.iter().enumerate().take(rows).map(line).collect()
}

/// Each slice has the letter of the phase in its middle.
fn bar(request: &Request, cells: usize, last: u64) -> String {
    let slice = last as f64 / cells as f64;
    let mut edges = Vec::new();
    let mut at = request.known_us;
    for (_, letter, _, time) in PHASES {
        let from = at;
        at = at.saturating_add(time(&request.phases));
        edges.push((from as f64, at as f64, letter));
    }
    let cell = |number: usize| {
        let middle = (number as f64 + 0.5) * slice;
        let here = edges.iter().find(|(from, to, _)| *from <= middle && middle < *to);
        here.map_or(' ', |(_, _, letter)| *letter)
    };
    (0..cells).map(cell).collect()
}
