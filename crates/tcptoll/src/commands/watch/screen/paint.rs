//! Draws the sections: header, what is wrong, listeners, destinations, keys.

use tcptoll_core::finding::Severity;
use tcptoll_core::number;
use tcptoll_core::units::plural;
use tcptoll_live::watch::{History, ListenerState, State};
use tcptoll_show::printable_line;
use textwrap::core::display_width;

use super::super::figures::{activity, clock, cost, levels, line, sparkline, unreadable};
use super::super::table::{
    Align, DESTINATIONS, Field, LISTENERS, Sort, aligned, content, fit, shortened,
};
use super::super::text::{Watched, fix_in_a_line, is_over, mark, nothing_wrong};
use super::view::{Rows, ScreenState, Section};
use super::{Ink, Line};
use crate::commands::watch::screen;
use crate::screen::{cut, has_unicode};

/// Less than this cannot be read.
const SMALLEST: [usize; 2] = [30, 6];
/// Columns before each row: whether it is selected, and what is wrong with it.
const LEAD: usize = 3;
/// From this height of all sections on a diagnosis has lines for its fix.
const ROOM_FOR_FIXES: usize = 9;

/// From this height on an empty line follows the header.
const ROOM_FOR_BLANK: usize = 24;
/// Looks whose queues are shown as a line, at least and at most.
const TREND: (usize, usize) = (20, 60);

/// How the screen is drawn.
#[derive(Debug, Default)]
pub(super) struct Painter {
    /// Whether colours underline what marks and words say.
    pub(super) colours: bool,
    pub(super) watched: Watched,
}

impl Painter {
    /// Parameters of the control sequence that begins this ink (SGR of ECMA-48).
    fn style(&self, ink: Ink) -> &'static str {
        match ink {
            Ink::Problem if self.colours => "0;1;31",
            Ink::Strong | Ink::Problem => "0;1",
            Ink::Faint => "0;2",
            Ink::Reversed => "0;7",
            Ink::Warning if self.colours => "0;33",
            Ink::Bar if self.colours => "0;36",
            Ink::Plain | Ink::Warning | Ink::Bar => "0",
        }
    }

    /// Each row of a screen, with its control sequences. `size`: columns and rows.
    pub(super) fn rows(
        &self,
        size: [usize; 2],
        view: &mut ScreenState,
        history: &History,
    ) -> Vec<String> {
        let mut lines = self.paint(size, view, history);
        lines.resize(size[1], Line::new());
        let unicode = has_unicode();
        lines.iter().map(|line| self.row(line, size[0], unicode)).collect()
    }

    /// One row; nothing goes beyond the right edge. What was right of it is erased, but not behind a full
    /// row: its last character would be.
    fn row(&self, line: &Line, width: usize, unicode: bool) -> String {
        let mut row = String::new();
        let mut left = width;
        'parts: for (ink, text) in line {
            row += &format!("\x1b[{}m", self.style(*ink));
            for c in text.chars().filter(|c| !c.is_control()) {
                let columns = display_width(c.encode_utf8(&mut [0; 4]));
                if columns > left {
                    break 'parts;
                }
                left -= columns;
                if unicode || c.is_ascii() {
                    row.push(c);
                } else {
                    let sign = tcptoll_show::ascii(&c.to_string()).chars().next().unwrap_or('?');
                    row += &format!("{sign:<columns$}");
                }
            }
        }
        row += "\x1b[m";
        if left > 0 {
            row += "\x1b[K";
        }
        row
    }

    fn paint(&self, size: [usize; 2], view: &mut ScreenState, history: &History) -> Vec<Line> {
        let [width, height] = size;
        if width < SMALLEST[0] || height < SMALLEST[1] {
            let sentence = format!(
                "The terminal has {width} × {height} characters; the screen needs {} × {}. q quits.",
                SMALLEST[0], SMALLEST[1]
            );
            let lines = textwrap::wrap(&sentence, width.max(1)).into_iter();
            return lines.map(|line| vec![(Ink::Plain, line.into_owned())]).collect();
        }
        let Some(state) = view.state(history) else {
            return vec![vec![(Ink::Plain, "the first look …".to_owned())]];
        };
        let mut lines = self.header(view, state, history, size);
        let notice = view.notice.as_deref().map(printable_line);
        lines.extend(notice.map(|text| vec![(Ink::Problem, cut(&text, width))]));
        if height >= ROOM_FOR_BLANK {
            lines.push(Line::new());
        }
        let room = (height - 1).saturating_sub(lines.len());
        let footer = if let Some(page) = &view.page {
            let whole = screen::lines(page, width);
            let first = view.scrolled.min(whole.len().saturating_sub(room));
            let below = whole.len() - first > room;
            lines.extend(whole.into_iter().skip(first).take(room));
            (view.scrolled, view.page_height) = (first, room);
            screen::footer(below)
        } else {
            lines.extend(sections(view, state, history, [width, room]).into_iter().take(room));
            footer(view, width)
        };
        lines.resize(height - 1, Line::new());
        lines.push(footer);
        lines
    }

    fn header(
        &self,
        view: &ScreenState,
        state: &State,
        history: &History,
        [width, height]: [usize; 2],
    ) -> Vec<Line> {
        let moment = view.moment.is_some().then(|| {
            let newest = history.latest().map_or(state.at_s, |newest| newest.at_s);
            match newest - state.at_s {
                ago if ago >= 0.5 => {
                    format!(" paused, as of {} ago ", number::duration(ago.round()))
                }
                _ => " paused ".to_owned(),
            }
        });
        let right = moment.as_deref().map_or(0, |text| display_width(text) + 1);
        let mut names = vec!["tcptoll watch".to_owned()];
        names.push(shortened(&printable_line(&state.host), 32));
        names.extend(self.watched.name());
        names.push(clock(&printable_line(&state.time)));
        names.push(format!("up {}", number::duration(state.uptime_s)));
        let names = line(&names, width.saturating_sub(right));
        let mut title = vec![(Ink::Strong, aligned(&names, Align::Left, width - right.min(width)))];
        title.extend(moment.map(|text| (Ink::Reversed, format!(" {text}")[1..].to_owned())));
        let mut cost = cost(state);
        cost.extend(unreadable(state, self.watched.by_root).filter(|_| self.watched.owners));
        let figures = [activity(state), levels(state), cost];
        let count = match height {
            0..8 => 0,
            8..14 => 1,
            14..18 => 2,
            _ => 3,
        };
        let shown = figures.into_iter().take(count).filter(|figures| !figures.is_empty());
        let lines = shown.map(|figures| vec![(Ink::Plain, line(&figures, width))]);
        std::iter::once(title).chain(lines).collect()
    }
}

/// The lines between header and footer.
fn sections(
    view: &ScreenState,
    state: &State,
    history: &History,
    [width, height]: [usize; 2],
) -> Vec<Line> {
    let rows = view.rows(state);
    let focus = view.section(&rows);
    let wrong = {
        let lines = |fixes| diagnoses(view, &rows, focus, width, fixes);
        let count = |all: &[Vec<Line>]| all.iter().map(Vec::len).sum::<usize>();
        let most = height * 2 / 5;
        let found =
            [2, 1].map(|fixes| if height >= ROOM_FOR_FIXES { lines(fixes) } else { lines(0) });
        let [long, short] = found;
        if count(&long) <= most { long } else { short }
    };
    let table = |count: usize| if count == 0 { 0 } else { count + 2 };
    let hidden = usize::from(forgotten(view, state).is_some());
    let no_match = usize::from(rows.listeners.is_empty() && !view.filter.is_empty());
    let wanted = [
        wrong.iter().map(Vec::len).sum(),
        table(rows.listeners.len() + hidden + no_match),
        table(rows.destinations.len()),
    ];
    let [of_wrong, of_listeners, of_destinations] = shares(wanted, height, focus);
    let mut lines = within(wrong, view.selected(&rows, Section::Wrong), of_wrong);
    if of_listeners > 2 || (of_listeners > 0 && wanted[1] == of_listeners) {
        let count = state.listeners.len() as u64 + state.listeners_left_out;
        let size = [width, of_listeners - hidden - no_match];
        let trend = |one: &ListenerState, looks: usize| queues(history, state, one, looks);
        let trend: Option<&Trend<'_, ListenerState>> = Some(&trend);
        let mut part =
            part(view, &rows, Section::Listeners, LISTENERS, (&rows.listeners, count), trend, size);
        if no_match > 0 {
            part.push(vec![(Ink::Plain, format!("  no listener matches \"{}\"", view.filter))]);
        }
        part.extend(forgotten(view, state).map(|text| vec![(Ink::Faint, text)]));
        lines.extend(part);
    }
    if of_destinations > 2 {
        let count = state.destinations.len() as u64 + state.destinations_left_out;
        lines.extend(part(
            view,
            &rows,
            Section::Destinations,
            DESTINATIONS,
            (&rows.destinations, count),
            None,
            [width, of_destinations],
        ));
    }
    lines
}

/// Of a past look only listeners with something to show are remembered.
fn forgotten(view: &ScreenState, state: &State) -> Option<String> {
    let count = state.listeners_left_out;
    (view.moment.is_some() && count > 0 && view.filter.is_empty())
        .then(|| format!("   not kept for this look: {}", plural(count, "more listener")))
}

/// Lines of what is wrong, listeners and destinations; the section with the selected row has more.
fn shares(wanted: [usize; 3], height: usize, focus: Section) -> [usize; 3] {
    let part = |tenths: usize, section: Section| {
        let parts = if focus == section { 5 } else { tenths };
        (height * parts).div_ceil(10)
    };
    let others = if focus == Section::Wrong { 4 } else { 3 };
    let mut wrong = wanted[0].min(part(others, Section::Wrong).max(1));
    let mut destinations = wanted[2].min(part(3, Section::Destinations));
    if destinations < 3 {
        destinations = 0;
    }
    let mut listeners = wanted[1].min(height.saturating_sub(wrong + destinations));
    if listeners < 3 && wanted[1] >= 3 {
        listeners = wanted[1].min(height.saturating_sub(wrong));
        destinations = 0;
    }
    let mut spare = height.saturating_sub(wrong + listeners + destinations);
    for (has, wants) in
        [(&mut wrong, wanted[0]), (&mut destinations, wanted[2]), (&mut listeners, wanted[1])]
    {
        let more = wants.saturating_sub(*has).min(spare);
        // A table of which nothing but its title fits takes no room.
        if *has > 0 || more > 2 {
            *has += more;
            spare -= more;
        }
    }
    [wrong, listeners, destinations]
}

/// The lines of each diagnosis, at most so many for its fix. Without them its text has one line too.
fn diagnoses(
    view: &ScreenState,
    rows: &Rows<'_>,
    focus: Section,
    width: usize,
    fixes: usize,
) -> Vec<Vec<Line>> {
    if rows.wrong.is_empty() {
        return vec![vec![vec![(Ink::Strong, cut(&nothing_wrong(rows.state), width))]]];
    }
    let selected = view.selected(rows, Section::Wrong).filter(|_| focus == Section::Wrong);
    let room = width.saturating_sub(4);
    let row = |(at, one): (usize, &tcptoll_core::finding::Finding)| {
        let ink = match one.severity {
            _ if is_over(one) => Ink::Faint,
            Severity::Problem => Ink::Problem,
            Severity::Warning => Ink::Warning,
        };
        let pointer = if selected == Some(at) { '›' } else { ' ' };
        let text = printable_line(&one.text);
        let texts =
            if fixes > 0 { textwrap::wrap(&text, room) } else { vec![cut(&text, room).into()] };
        let mut lines: Vec<Line> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| {
                let lead =
                    if at == 0 { format!("{pointer}{:<3}", mark(one)) } else { "    ".into() };
                vec![(ink, lead), (ink, text.to_string())]
            })
            .collect();
        if let Some(fix) = fix_in_a_line(one) {
            let text = format!("fix: {fix}");
            let mut wrapped = textwrap::wrap(&text, room).into_iter();
            let mut left: Vec<_> = wrapped.by_ref().take(fixes).collect();
            if let (Some(last), Some(more)) = (left.last_mut(), wrapped.next()) {
                *last = cut(&format!("{last} {more}"), room).into();
            }
            lines.extend(left.iter().map(|text| vec![(Ink::Plain, format!("    {text}"))]));
        }
        if selected == Some(at) {
            // Colours alone do not say what is selected; the pointer does.
            lines.iter_mut().take(1).flatten().for_each(|(ink, _)| *ink = Ink::Reversed);
        }
        lines
    };
    rows.wrong.iter().enumerate().map(row).collect()
}

/// As many of these as fit in a height, the selected one among them, and how many there are more.
fn within(all: Vec<Vec<Line>>, selected: Option<usize>, height: usize) -> Vec<Line> {
    let count = all.len();
    if all.iter().map(Vec::len).sum::<usize>() <= height || height == 0 {
        return all.into_iter().flatten().take(height).collect();
    }
    let room = if height > 1 { height - 1 } else { height };
    let mut first = 0;
    let lines = |from: usize, to: usize| all[from..=to].iter().map(Vec::len).sum::<usize>();
    let selected = selected.unwrap_or(0).min(count - 1);
    while first < selected && lines(first, selected) > room {
        first += 1;
    }
    let mut shown: Vec<Line> = Vec::new();
    let mut whole = 0;
    for one in &all[first..] {
        if shown.len() + one.len() > room && whole > 0 {
            break;
        }
        shown.extend(one.iter().take(room - shown.len()).cloned());
        whole += 1;
        if shown.len() == room {
            break;
        }
    }
    if height > 1 && whole < count {
        shown.push(vec![(Ink::Faint, format!("    {} more of {count}: ↑ ↓", count - whole))]);
    }
    shown
}

/// The queue of a listener at the last looks, as a line.
///
/// Of past looks only listeners with something to show are remembered: another one had no queue.
fn queues(history: &History, state: &State, one: &ListenerState, looks: usize) -> String {
    let until = history.iter_back().skip_while(|past| past.at_s > state.at_s);
    let len = |past: &State| {
        let same =
            past.listeners.iter().find(|other| other.inode == one.inode && other.port == one.port);
        same.map_or(0, |other| other.accept_queue_len)
    };
    let mut values: Vec<u32> = until.take(looks).map(len).collect();
    values.reverse();
    sparkline(&values, one.accept_queue_limit)
}

/// A figure of a row at the last looks, as many as this, as a line.
type Trend<'a, T> = dyn Fn(&T, usize) -> String + 'a;

/// A table: an empty line, its title, rows around the selected one. `count`: rows without a filter.
fn part<T>(
    view: &ScreenState,
    rows: &Rows<'_>,
    section: Section,
    columns: &[Field<T>],
    (found, count): (&[&T], u64),
    trend: Option<&Trend<'_, T>>,
    [width, height]: [usize; 2],
) -> Vec<Line> {
    let room = height.saturating_sub(2);
    let selected = view.selected(rows, section).unwrap_or(0);
    let first = selected.saturating_sub(room / 2).min(found.len().saturating_sub(room));
    let shown: Vec<&T> = found.iter().skip(first).take(room).copied().collect();
    let places = fit(columns, &content(columns, &shown), width.saturating_sub(LEAD));
    let which = match (shown.len() == found.len(), found.len() as u64 == count) {
        (true, true) => String::new(),
        (true, false) => format!(" {} of {count}", found.len()),
        (false, _) => format!(" {}-{}/{}", first + 1, first + shown.len(), found.len()),
    };
    let mut title = vec![(Ink::Plain, " ".repeat(LEAD))];
    for (at, place) in places.iter().enumerate() {
        let column = &columns[place.column];
        let mut text = column.title.to_owned();
        if at == 0 {
            text += &which;
            if display_width(&text) > place.width {
                which.trim_start().clone_into(&mut text);
            }
        }
        let sorted = view.sort != Sort::Pressing && column.sort == Some(view.sort);
        let direction = if view.reversed { "↑" } else { "↓" };
        let text = if sorted && display_width(&text) < place.width {
            format!("{text}{direction}")
        } else {
            text
        };
        let ink = if sorted { Ink::Reversed } else { Ink::Strong };
        title.push((ink, aligned(&text, column.align, place.width)));
        title.push((Ink::Plain, " ".to_owned()));
    }
    let used = places.last().map_or(0, |place| place.at + place.width);
    let spare = width.saturating_sub(LEAD + used + 2).min(TREND.1);
    let trend = trend.filter(|_| spare >= TREND.0);
    if trend.is_some() {
        title.push((Ink::Strong, format!(" QUEUE, LAST {spare} LOOKS")));
    }
    let focus = view.section(rows) == section;
    let keys = rows.subjects(section);
    let mut lines = vec![Vec::new(), title];
    for (at, one) in shown.iter().enumerate() {
        let is_selected = focus && first + at == selected;
        let wrong = keys.get(first + at).and_then(|subject| rows.wrong_with(section, subject));
        let ink = match wrong.map(|one| one.severity) {
            _ if is_selected => Ink::Reversed,
            Some(Severity::Problem) => Ink::Problem,
            Some(Severity::Warning) => Ink::Warning,
            None => Ink::Plain,
        };
        let pointer = if is_selected { "›" } else { " " };
        let sign = wrong.map_or("  ", mark);
        let mut line = vec![(ink, format!("{pointer}{sign}"))];
        for place in &places {
            let column = &columns[place.column];
            let text = aligned(&(column.cell)(one, place.width), column.align, place.width);
            let ink = if column.title.is_empty() && ink == Ink::Plain { Ink::Bar } else { ink };
            line.push((ink, text));
            line.push((if is_selected { ink } else { Ink::Plain }, " ".to_owned()));
        }
        if let Some(trend) = trend {
            line.push((Ink::Bar, format!(" {}", trend(one, spare))));
        }
        lines.push(line);
    }
    lines
}

/// The keys, or what is being typed, or a sentence.
fn footer(view: &ScreenState, width: usize) -> Line {
    if view.typing {
        let text = format!("filter: {}", view.filter);
        let keys = "   Enter keeps it  Esc clears it".to_owned();
        return vec![(Ink::Strong, text), (Ink::Reversed, " ".to_owned()), (Ink::Plain, keys)];
    }
    if let Some(message) = &view.message {
        return vec![(Ink::Strong, cut(message, width))];
    }
    let mut keys = Vec::new();
    if !view.filter.is_empty() {
        keys.push(("Esc", format!("clears the filter \"{}\"", view.filter)));
    }
    // All of them fit in 80 columns. In a pause the keys of time come first.
    let begin = [("q", "quit"), ("h", "help"), ("e", "explain")];
    let rows = [("↑↓ Tab", "row"), ("s r", "sort"), ("/", "filter")];
    let is_paused = view.moment.is_some();
    let time = [("space", if is_paused { "go on" } else { "pause" }), ("←→", "time")];
    let others = if is_paused { [&time[..], &begin, &rows] } else { [&begin[..], &rows, &time] };
    keys.extend(others.concat().into_iter().map(|(key, does)| (key, does.to_owned())));
    let mut line = Line::new();
    let mut used = 0;
    for (key, does) in keys {
        let columns = display_width(key) + display_width(&does) + 3;
        if used + columns > width + 2 {
            break;
        }
        used += columns;
        line.push((Ink::Strong, key.to_owned()));
        line.push((Ink::Plain, format!(" {does}  ")));
    }
    line
}
