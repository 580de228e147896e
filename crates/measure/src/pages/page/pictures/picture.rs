//! A waterfall for the page: a bar for each request, a colour for each phase.

use tcptoll_core::page::waterfall::{Request, Waterfall};

use super::{
    Drawn, PHASES, critical_of, drawn, end_us, forecast, last_us, name_of, notes, outcome, rules,
};
use tcptoll_show::own::{Item, Note, Picture, Section};
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Screen, Svg, for_both};
use tcptoll_show::{clean, number};

/// Height of a row.
const ROW: f64 = 14.0;

/// Columns of a name, by the screen.
const NAMES: [(f64, usize); 2] = [(150.0, 24), (84.0, 13)];

/// Requests that are drawn of one load.
const ROWS: usize = 120;

/// A section with a picture for each arm.
pub(super) fn sections(summary: &Run) -> Vec<Section> {
    let all = drawn(summary);
    if all.is_empty() {
        return Vec::new();
    }
    let last = all.iter().map(|one| last_us(&one.loads.waterfall)).max().unwrap_or(1);
    let mut items = Vec::new();
    items.extend(rules(&all).into_iter().map(|text| Item::Paragraph(format!("{text}."))));
    items.extend(all.iter().map(|one| Item::Picture(picture(one, last))));
    let note =
        |one: &Drawn<'_>, text| Note { text: format!("{}: {text}", one.arm.name), bad: false };
    let notes: Vec<Note> = all
        .iter()
        .flat_map(|one| notes(&one.loads.waterfall).into_iter().map(move |text| note(one, text)))
        .collect();
    if !notes.is_empty() {
        items.push(Item::Notes(notes));
    }
    vec![Section { title: "Waterfalls", items }]
}

fn picture(one: &Drawn<'_>, last: u64) -> Picture {
    let page = &one.loads.waterfall;
    let label = format!("Waterfall of a load with {}", one.arm.name);
    let by = one.loads.browser.as_deref().map_or(String::new(), |name| format!(" ({name})"));
    let more = page.requests.len().saturating_sub(ROWS) as u64 + one.loads.requests_left_out;
    let more =
        if more > 0 { format!(" {more} more requests are not drawn.") } else { String::new() };
    let expected = forecast(one).map_or(String::new(), |text| format!(" {text}."));
    Picture {
        both_svg: for_both(&label, |screen| draw(page, one, screen, last)),
        caption: format!(
            "{}{by}: the load with the median span. Names in bold are on the critical path.{expected}{more}",
            one.arm.name
        ),
        drawn: Vec::new(),
    }
}

fn draw(page: &Waterfall, one: &Drawn<'_>, screen: Screen, last: u64) -> Svg {
    let (left, letters) = NAMES[usize::from(screen == Screen::Narrow)];
    let rows = page.requests.len().min(ROWS);
    let (head, ticks) = if screen == Screen::Wide { (44.0, 4) } else { (62.0, 3) };
    let bottom = head + ROW * rows as f64;
    let mut svg = Svg::new(bottom + 8.0);
    let width = screen.width() - left - 8.0;
    let x = |us: u64| left + width * (us as f64 / last as f64);
    legend(&mut svg, screen);
    for tick in 0..=ticks {
        let at = last / ticks * tick;
        svg.line("grid", (x(at), head - 4.0), (x(at), bottom));
        let anchor = if tick == ticks { Anchor::End } else { Anchor::Middle };
        svg.text("tick", (x(at), head - 8.0), anchor, &number::time(at as f64));
    }
    if let Some(expected) = &one.loads.forecast {
        let at = x(last_us(expected).min(last));
        svg.line("axis", (at, head - 4.0), (at, bottom));
    }
    let chain = critical_of(page).map(|critical| critical.chain).unwrap_or_default();
    for (number, request) in page.requests.iter().enumerate().take(ROWS) {
        let top = head + ROW * number as f64;
        let class = if chain.contains(&(number as u32)) { "strong" } else { "tick" };
        let name = clean::shorten(&clean::line(name_of(request)), letters);
        svg.open("row", &tooltip(request));
        svg.text(class, (left - 6.0, top + ROW - 4.0), Anchor::End, &name);
        bars(&mut svg, request, top, x);
        svg.close();
    }
    svg
}

fn bars(svg: &mut Svg, request: &Request, top: f64, x: impl Fn(u64) -> f64) {
    let mut at = request.known_us;
    for (name, _, class, time) in PHASES {
        let from = at;
        at = at.saturating_add(time(&request.phases));
        let (begin, end) = (x(from), x(at));
        if at > from {
            let class =
                if name == "blocked" { format!("band {class}") } else { format!("full {class}") };
            svg.rect(&class, (begin, top + 2.0), ((end - begin).max(0.5), ROW - 4.0), "");
        }
    }
    if request.error.is_some() {
        svg.cross("bad", (x(at) + 5.0, top + ROW / 2.0), 3.0, "");
    }
}

fn tooltip(request: &Request) -> String {
    let phases = PHASES.iter().filter(|(_, _, _, time)| time(&request.phases) > 0);
    let phases: Vec<String> = phases
        .map(|(name, _, _, time)| format!("{name} {}", number::time(time(&request.phases) as f64)))
        .collect();
    let connection = request.connection.map_or(String::new(), |id| format!(", connection {id}"));
    format!(
        "{} · {} · {}{connection} · {} · ends at {}",
        request.url,
        outcome(request),
        number::bytes(request.body_bytes),
        phases.join(", "),
        number::time(end_us(request) as f64)
    )
}

fn legend(svg: &mut Svg, screen: Screen) {
    let in_line = if screen == Screen::Wide { PHASES.len() } else { PHASES.len().div_ceil(2) };
    let step = (screen.width() - 8.0) / in_line as f64;
    for (number, (name, _, class, _)) in PHASES.iter().enumerate() {
        let (line, column) = (number / in_line, number % in_line);
        let (x, y) = (4.0 + step * column as f64, 4.0 + 18.0 * line as f64);
        let class =
            if *name == "blocked" { format!("band {class}") } else { format!("full {class}") };
        svg.rect(&class, (x, y), (10.0, 10.0), "");
        svg.text("tick", (x + 13.0, y + 9.0), Anchor::Start, name);
    }
}
