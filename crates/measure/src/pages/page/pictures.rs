//! A waterfall for the page: a bar for each request, a colour for each phase. And one with letters: a line for each
//! request, a letter for a slice of time.

use tcptoll_core::page::waterfall::{Request, Waterfall};
use tcptoll_core::sheet::{Note, Part, Tone};
use tcptoll_show::run::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::run::Section;
use tcptoll_show::svg::{Anchor, Svg, WIDTH};
use tcptoll_show::{clean, figures, number};

use super::waterfall::{
    Drawn, PHASES, critical_of, drawn, end_us, forecast, last_us, name_of, notes, outcome, rules,
};

/// Height of a row.
const ROW: f64 = 14.0;

/// Where the axis of time begins: names have as much room.
const LEFT: f64 = 120.0;

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
    items.extend(
        rules(&all).into_iter().map(|text| Part::prose(0, format!("{text}."), Tone::Plain)),
    );
    items.extend(all.iter().map(|one| picture(one, last).part(summary)));
    let note = |one: &Drawn<'_>, text| Note::new(format!("{}: {text}", one.arm.name), false);
    let notes: Vec<Note> = all
        .iter()
        .flat_map(|one| notes(&one.loads.waterfall).into_iter().map(move |text| note(one, text)))
        .collect();
    if !notes.is_empty() {
        items.push(Part::Notes { notes });
    }
    vec![Section::new("Waterfalls", items)]
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
        svg: draw(page, one, last).labelled(&label),
        caption: format!(
            "{}{by}: the load with the median span. Names in bold are on the critical path.{expected}{more}",
            one.arm.name
        ),
        drawn: Vec::new(),
    }
}

fn draw(page: &Waterfall, one: &Drawn<'_>, last: u64) -> Svg {
    let rows = page.requests.len().min(ROWS);
    let (head, ticks) = (52.0, 4);
    let bottom = head + ROW * rows as f64;
    let mut svg = Svg::new(bottom + 2.0);
    let x = |us: u64| LEFT + (WIDTH - LEFT - 8.0) * (us as f64 / last as f64);
    legend(&mut svg);
    for tick in 0..=ticks {
        let at = last / ticks * tick;
        svg.line("grid", (x(at), head - 4.0), (x(at), bottom));
        let anchor = if tick == ticks { Anchor::End } else { Anchor::Middle };
        svg.text("", (x(at), head - 11.0), anchor, &number::time(at as f64));
    }
    if let Some(expected) = &one.loads.forecast {
        let at = x(last_us(expected).min(last));
        svg.line("axis", (at, head - 4.0), (at, bottom));
    }
    let chain = critical_of(page).map(|critical| critical.chain).unwrap_or_default();
    for (number, request) in page.requests.iter().enumerate().take(ROWS) {
        let top = head + ROW * number as f64;
        let class = if chain.contains(&(number as u32)) { "strong" } else { "" };
        let name = clean::shorten(&clean::line(name_of(request)), 15);
        svg.open("row", &tooltip(request));
        svg.text(class, (LEFT - 6.0, top + ROW / 2.0), Anchor::End, &name);
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
        svg.cross("bad", (x(at) + 5.0, top + ROW / 2.0), 2.5, "");
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
        number::bytes(request.body_bytes as f64),
        phases.join(", "),
        number::time(end_us(request) as f64)
    )
}

fn legend(svg: &mut Svg) {
    let in_line = PHASES.len().div_ceil(2);
    let step = WIDTH / in_line as f64;
    for (number, (name, _, class, _)) in PHASES.iter().enumerate() {
        let (line, column) = (number / in_line, number % in_line);
        let (x, y) = (step * column as f64, 4.0 + 16.0 * line as f64);
        let class =
            if *name == "blocked" { format!("band {class}") } else { format!("full {class}") };
        svg.rect(&class, (x, y), (8.0, 8.0), "");
        svg.text("", (x + 12.0, y + 4.0), Anchor::Start, name);
    }
}

/// Arms that are shown; the page has all.
const ARMS: usize = 4;

/// Requests of one arm that are shown, where there is one and where there are several.
const LINES: [usize; 2] = [30, 12];

/// Columns of a name, and of the time behind a bar.
const NAME: usize = 18;
const BEHIND: usize = 9;

/// Columns of a bar: fewer show nothing, more say nothing more.
const CELLS: [usize; 2] = [20, 100];

/// The waterfalls.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Part> {
    let all = drawn(summary);
    let [least, most] = CELLS;
    let cells = width.saturating_sub(2 + NAME + 2 + 1 + BEHIND).min(most);
    if all.is_empty() || cells < least {
        return Vec::new();
    }
    let rows = LINES[usize::from(all.len() > 1)];
    let last = all.iter().take(ARMS).map(|one| last_us(&one.loads.waterfall)).max().unwrap_or(1);
    let mut blocks = vec![Part::Blank];
    for one in all.iter().take(ARMS) {
        let page = &one.loads.waterfall;
        let by = one
            .loads
            .browser
            .as_deref()
            .map_or(String::new(), |name| format!(", {}", clean::line(name)));
        let heading = format!("{}: a load with the median span{by}", clean::line(&one.arm.name));
        blocks.push(Part::prose(0, heading, Tone::Strong));
        blocks.extend(lines(page, rows, cells, last));
        let hidden = (page.requests.len().saturating_sub(rows) as u64)
            .saturating_add(one.loads.requests_left_out);
        if hidden > 0 {
            let text = format!("… and {}", figures::plural(hidden, "more request"));
            blocks.push(Part::prose(2, text, Tone::Dim));
        }
        if let Some(text) = forecast(one) {
            blocks.push(Part::prose(2, text, Tone::Plain));
        }
        blocks.extend(notes(page).iter().map(|text| Part::prose(2, clean::line(text), Tone::Dim)));
        blocks.push(Part::Blank);
    }
    let legend: Vec<String> =
        PHASES.iter().map(|(name, letter, _, _)| format!("{letter} {name}")).collect();
    let legend = format!("{}; * on the critical path", legend.join("  "));
    blocks.push(Part::prose(2, legend, Tone::Dim));
    if all.len() > ARMS {
        let more = figures::plural((all.len() - ARMS) as u64, "more arm");
        blocks.push(Part::prose(2, format!("{more} in the HTML report"), Tone::Dim));
    }
    blocks.extend(rules(&all).iter().map(|text| Part::prose(2, clean::line(text), Tone::Plain)));
    blocks
}

fn lines(page: &Waterfall, rows: usize, cells: usize, last: u64) -> Vec<Part> {
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
        Part::pieces(vec![
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

#[cfg(test)]
mod tests {
    use tcptoll_core::page::waterfall::{Connection, LeftOut};
    use tcptoll_core::record::Summary;

    use crate::experiments::REPORTS;

    use super::super::waterfall::*;
    use super::*;
    use tcptoll_core::page::waterfall::{Phases, Request, Waterfall};
    use tcptoll_core::record::{Arm, PageLoads};

    fn request(known_us: u64, phases: Phases) -> Request {
        Request {
            url: "http://page.test/r/<script>\u{1b}[31m.css".to_owned(),
            known_us,
            phases,
            ..Request::default()
        }
    }

    fn summary(requests: Vec<Request>) -> Run {
        let waterfall = Waterfall {
            requests,
            connections: vec![Connection::default()],
            left_out: vec![LeftOut {
                reason: "scheme".to_owned(),
                count: u64::MAX,
                examples: vec!["<b>".to_owned()],
            }],
            ..Waterfall::default()
        };
        let loads = PageLoads {
            spans_us: vec![30_000.0],
            forecast: Some(waterfall.clone()),
            waterfall,
            rtt_us: Some(15_000.0),
            requests_left_out: 7,
            ..PageLoads::default()
        };
        let mut arm = Arm { name: "<arm>".to_owned(), ..Arm::default() };
        arm.own.page = Some(Box::new(loads));
        REPORTS.run(Summary { arms: vec![arm], ..Summary::default() })
    }

    fn text(summary: &Run, width: usize) -> String {
        let line = |part: &Part| match part {
            Part::Line { pieces } => pieces.iter().map(|(_, text)| text.as_str()).collect(),
            Part::Prose { text, .. } => text.clone(),
            _ => String::new(),
        };
        blocks(summary, width).iter().map(line).collect::<Vec<String>>().join("\n")
    }

    #[test]
    fn a_bar_shows_its_phases_where_they_were() {
        let phases = Phases { connect_us: 15_000, wait_us: 15_000, ..Phases::default() };
        let drawn = text(&summary(vec![request(0, phases)]), 80);
        let bar = drawn.lines().find(|line| line.contains('c')).unwrap().to_owned();
        let bar = drawn.lines().find(|line| line.contains("cccc")).unwrap_or(&bar);
        let (connect, wait) = (bar.matches('c').count(), bar.matches('-').count());
        assert!(connect.abs_diff(wait) <= 4 && connect > 10, "{bar}");
        assert!(drawn.lines().all(|line| tcptoll_show::clean::columns(line) <= 400));
        assert!(!drawn.contains('\u{1b}'), "{drawn}");
    }

    #[test]
    fn records_with_impossible_times_are_drawn_and_escaped() {
        for (known, time) in [(0, 0), (u64::MAX, u64::MAX), (5, u64::MAX)] {
            let phases = Phases { blocked_us: time, receive_us: time, ..Phases::default() };
            let summary = summary(vec![request(known, phases); 3]);
            text(&summary, 80);
            text(&summary, 10);
            for section in sections(&summary) {
                for item in section.parts {
                    let Part::Picture(picture) = item else { continue };
                    assert!(!picture.svg.0.contains("<script>"));
                    assert!(!picture.svg.0.contains("NaN") && !picture.svg.0.contains("inf"));
                }
            }
        }
    }

    #[test]
    fn a_name_is_the_last_part_of_its_path() {
        let name =
            |url: &str| name_of(&Request { url: url.to_owned(), ..Request::default() }).to_owned();
        assert_eq!(name("http://a.test/css/main.css?v=1"), "main.css");
        assert_eq!(name("http://a.test/"), "/");
        assert_eq!(name("http://a.test/docs/"), "docs");
        assert_eq!(name(""), "/");
    }

    #[test]
    fn the_rule_of_thumb_is_stated_for_arms_that_differ_in_keepalive_alone() {
        let phases = Phases { connect_us: 15_000, wait_us: 15_000, ..Phases::default() };
        let mut run = summary(vec![request(0, phases)]);
        let arm = run.summary.arms.remove(0);
        for (level, browser, connections) in
            [("on", "off", 6), ("off", "off", 21), ("on", "on", 6), ("off", "on", 21)]
        {
            let mut arm = arm.clone();
            arm.factors.insert("keepalive".to_owned(), level.into());
            arm.factors.insert("browser".to_owned(), browser.into());
            arm.name = format!("{level} {browser}");
            let loads = arm.own.page.as_mut().unwrap();
            loads.waterfall.connections = vec![Connection::default(); connections];
            loads.spans_us =
                vec![if browser == "on" { 1e6 } else { 0.0 } + connections as f64 * 1e3];
            run.summary.arms.push(arm);
        }
        let rules = rules(&drawn(&run));
        assert_eq!(rules.len(), 2, "{rules:?}");
        // 15 connections, whoever loads the page; the browser's own second is in neither.
        assert!(rules.iter().all(|rule| rule.contains("measured 15.0 ms")), "{rules:?}");
    }
}
