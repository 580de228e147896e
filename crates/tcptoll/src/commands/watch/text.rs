//! A state as words: the text of `--once`, and the words that the screen shares with it.

use std::fmt::Write as _;

use tcptoll_core::number;
use tcptoll_core::units::{host_port, plural};
use tcptoll_live::diagnosis::{Diagnosis, Fix, Severity};
use tcptoll_live::watch::{ListenerState, State};
use tcptoll_show::{printable, printable_line};

use super::figures::{activity, levels, lines, unreadable};
use super::table::{self, Align, DESTINATIONS, Field, LISTENERS, Sort, aligned, content, fit};
use crate::commands::prose::beside;
use crate::screen;

/// What is watched.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    /// The network namespace, as it was asked for; none: our own.
    pub network: Option<String>,
    /// Whether processes that own listeners were looked up.
    pub owners: bool,
    /// Whether root watches.
    pub by_root: bool,
}

impl Watched {
    /// The namespace for a line of names.
    pub(super) fn name(&self) -> Option<String> {
        self.network.as_ref().map(|network| format!("netns {}", printable_line(network)))
    }
}

/// What a line of a diagnosis begins with: two signs for a problem, one for a warning.
pub(super) fn mark(one: &Diagnosis) -> &'static str {
    match one.severity {
        _ if is_over(one) => "- ",
        Severity::Problem => "!!",
        Severity::Warning => "! ",
    }
}

/// Whether its evidence has ended, and it is shown a little longer.
pub(super) fn is_over(one: &Diagnosis) -> bool {
    one.evidence.contains_key("ended_s_ago")
}

/// The commands that fix it, then the change in a sentence.
pub(super) fn fix_in_a_line(one: &Diagnosis) -> Option<String> {
    let fix = one.fix.as_ref()?;
    let commands = fix.commands.join("; ");
    let parts = [commands.as_str(), fix.change.as_str()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(printable_line(&parts.join(" · ")))
}

/// That nothing is wrong, and what that rests on.
pub(super) fn nothing_wrong(state: &State) -> String {
    if state.rates.is_none() {
        return "No verdict yet: rates need a second look.".to_owned();
    }
    if state.listeners.is_empty() {
        return "Nothing is wrong: no listener here.".to_owned();
    }
    let queues = "every accept queue below 80 % of its limit";
    format!("Nothing is wrong: {}, {queues}.{}", drops(state), waiting(state))
}

/// The longest queue that no look found empty, where the looks are too few for a verdict.
fn waiting(state: &State) -> String {
    let all = state.listeners.iter().filter_map(|one| Some((one, one.stands.as_deref()?)));
    let longest = all.max_by_key(|(_, queue)| queue.shortest);
    let Some((one, queue)) = longest.filter(|(_, queue)| queue.shortest >= 2) else {
        return String::new();
    };
    format!(
        " {} clients waited at {} at each of {} looks: watch longer.",
        number::count(queue.shortest),
        host_port(&one.address, one.port),
        queue.looks
    )
}

/// What listeners dropped in the interval, where nothing is wrong with it. `sk_drops` counts harmless
/// packets too.
fn drops(state: &State) -> String {
    let sum = |rate: &dyn Fn(&ListenerState) -> Option<f64>| -> f64 {
        state.listeners.iter().filter_map(rate).sum()
    };
    let all = sum(&|one| one.drops_per_s);
    let over = number::duration(state.interval_s.max(1.0));
    if all <= 0.0 {
        return format!("no drop in {over}");
    }
    let deferred = sum(&|one| one.deferred_per_s.filter(|_| !one.deferred_at_most));
    if deferred >= all {
        return format!(
            "the {} drops/s are last ACKs that TCP_DEFER_ACCEPT ignored (harmless)",
            number::three(all)
        );
    }
    let at_most = state.rates.as_ref().map_or(0.0, |rates| rates.deferred_per_s.min(all));
    let deferred = match at_most {
        0.0 => String::new(),
        at_most => format!(", at most {} of them by TCP_DEFER_ACCEPT", number::three(at_most)),
    };
    format!("no overflow; {} drops/s of other packets{deferred}", number::three(all))
}

/// The label and text of each part of a fix.
pub(super) fn parts(fix: &Fix) -> [(&'static str, Vec<&str>); 5] {
    [
        ("change", vec![fix.change.as_str()]),
        ("type", fix.commands.iter().map(String::as_str).collect()),
        ("effect", vec![fix.effect.as_str()]),
        ("risk", vec![fix.risk.as_str()]),
        ("undo", vec![fix.undo.as_str()]),
    ]
}

/// A fix in lines of at most `width` columns, each with an indent. Commands stay in one piece, so that
/// they can be copied.
pub(super) fn fix_lines(fix: &Fix, indent: &str, width: usize) -> String {
    let mut text = String::new();
    for (label, lines) in parts(fix) {
        for (at, line) in lines.iter().filter(|line| !line.is_empty()).enumerate() {
            let label = format!("{indent}{:<8}", if at == 0 { label } else { "" });
            let line = printable_line(line);
            if label.trim_start().starts_with("type") || lines.len() > 1 {
                let _ = writeln!(text, "{label}{line}");
            } else {
                let _ = writeln!(text, "{}", beside(&label, &line, width));
            }
        }
    }
    text
}

/// A state as text, complete, with tables as wide as the terminal: what is wrong and its fix first.
pub(super) fn whole(state: &State, watched: &Watched, width: usize) -> String {
    let words = screen::room(width);
    let mut text = String::new();
    let mut names = vec!["tcptoll watch".to_owned(), printable_line(&state.host)];
    names.extend(watched.name());
    names.push(printable_line(&state.time));
    names.push(format!("up {}", number::duration(state.uptime_s)));
    names.push(format!("rates over {:.2} s", state.interval_s));
    text += &lines(&names, words);
    text.push('\n');
    verdict(&mut text, state, words);
    for one in &state.diagnoses {
        text.push('\n');
        let label = format!("{:<3}", mark(one));
        text += &(beside(&label, &printable_line(&one.text), words) + "\n");
        if let Some(fix) = &one.fix {
            text += &fix_lines(fix, "   ", words);
        }
        let _ = writeln!(text, "   {:<8}tcptoll explain {}", "explain", printable_line(&one.id));
    }
    left_out(&mut text, "more fault", state.diagnoses_left_out);
    let listeners = table::listeners(state, "", Sort::Pressing, false);
    rows(&mut text, LISTENERS, &listeners, width);
    left_out(&mut text, "more listener", state.listeners_left_out);
    let destinations = table::destinations(state, "");
    rows(&mut text, DESTINATIONS, &destinations, width);
    left_out(&mut text, "more destination", state.destinations_left_out);
    text.push('\n');
    for figures in [activity(state), levels(state), states(state), once_cost(state)] {
        text += &lines(&figures, words);
    }
    if let Some(sentence) = unreadable(state, watched.by_root).filter(|_| watched.owners) {
        text += &paragraph(&sentence, words);
    }
    printable(&text)
}

fn paragraph(text: &str, width: usize) -> String {
    beside("", text, width) + "\n"
}

fn verdict(text: &mut String, state: &State, words: usize) {
    let count = |severity| {
        let is_active = |one: &&Diagnosis| one.severity == severity && !is_over(one);
        state.diagnoses.iter().filter(is_active).count()
    };
    let name = |count: usize, noun: &str| (count > 0).then(|| plural(count as u64, noun));
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    let found: Vec<String> =
        [name(problems, "problem"), name(warnings, "warning")].into_iter().flatten().collect();
    let sentence =
        if found.is_empty() { nothing_wrong(state) } else { format!("{}.", found.join(" and ")) };
    *text += &paragraph(&sentence, words);
}

/// Sockets by state.
fn states(state: &State) -> Vec<String> {
    let shown = state.states.iter().filter(|(name, _)| *name != "LISTEN");
    let named = |(name, count): (&String, &u64)| {
        format!("{} {}", printable_line(name), number::count(*count))
    };
    shown.map(named).collect()
}

/// A share of a second that began with the program would mislead.
fn once_cost(state: &State) -> Vec<String> {
    let cpu = number::time(1e6 * state.cost.cpu_s);
    vec![format!("watching took {cpu} of CPU, {}", number::bytes(state.cost.resident_bytes as f64))]
}

fn left_out(text: &mut String, what: &str, count: u64) {
    if count > 0 {
        let _ = writeln!(text, "… and {}", plural(count, what));
    }
}

/// A table with its title, after an empty line; nothing if it has no rows.
fn rows<T>(text: &mut String, columns: &[Field<T>], rows: &[&T], width: usize) {
    if rows.is_empty() {
        return;
    }
    let places = fit(columns, &content(columns, rows), width);
    let line = |cell: &dyn Fn(usize, usize) -> (String, Align)| {
        let cells = places.iter().map(|place| {
            let (text, align) = cell(place.column, place.width);
            aligned(&text, align, place.width)
        });
        cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    };
    let title = line(&|column, _| (columns[column].title.to_owned(), columns[column].align));
    let _ = writeln!(text, "\n{title}");
    for row in rows {
        let row =
            line(&|column, width| ((columns[column].cell)(row, width), columns[column].align));
        let _ = writeln!(text, "{row}");
    }
}

#[cfg(test)]
mod tests {
    use tcptoll_live::watch::{Rates, Standing};

    use super::*;

    #[test]
    fn a_queue_that_two_looks_found_is_stated() {
        let stands = Standing { looks: 2, shortest: 12, ..Standing::default() };
        let one = ListenerState {
            address: "127.0.0.1".into(),
            port: 80,
            stands: Some(Box::new(stands)),
            ..ListenerState::default()
        };
        let rates = Some(Rates::default());
        let text = nothing_wrong(&State { listeners: vec![one], rates, ..State::default() });
        let begins =
            "Nothing is wrong: no drop in 1 s, every accept queue below 80 % of its limit.";
        let ends = "12 clients waited at 127.0.0.1:80 at each of 2 looks: watch longer.";
        assert_eq!(text, format!("{begins} {ends}"));
    }

    #[test]
    fn drops_that_harm_nobody_are_not_called_none() {
        let with = |drops_per_s, deferred_per_s, at_most| {
            let one = ListenerState {
                drops_per_s: Some(drops_per_s),
                deferred_per_s: Some(deferred_per_s),
                deferred_at_most: at_most,
                ..ListenerState::default()
            };
            let rates = Some(Rates { deferred_per_s, ..Rates::default() });
            nothing_wrong(&State {
                listeners: vec![one],
                rates,
                interval_s: 1.0,
                ..State::default()
            })
        };
        let queues = "every accept queue below 80 % of its limit.";
        for (sentence, drops) in [
            (with(0.0, 0.0, false), "no drop in 1 s"),
            (
                with(40.0, 40.0, false),
                "the 40.0 drops/s are last ACKs that TCP_DEFER_ACCEPT ignored (harmless)",
            ),
            (with(9.0, 0.0, false), "no overflow; 9.0 drops/s of other packets"),
            (
                with(50.0, 40.0, true),
                "no overflow; 50.0 drops/s of other packets, at most 40.0 of them by TCP_DEFER_ACCEPT",
            ),
        ] {
            assert_eq!(sentence, format!("Nothing is wrong: {drops}, {queues}"));
        }
    }
}
