//! A state as words: the sheet of `--once`, and the words that the screen shares with it.

use tcptoll_core::finding::{Finding, Remedy, Severity, counted};
use tcptoll_core::number;
use tcptoll_core::sheet::{Forms, Part, Sheet, Tone};
use tcptoll_core::units::{host_port, plural};
use tcptoll_live::watch::{ListenerState, State};
use tcptoll_show::printable_line;
use tcptoll_show::sheet::wrap_phrases;

use super::figures::{activity, levels, unreadable};
use super::table::{self, DESTINATIONS, Field, LISTENERS, Sort, aligned, content, fit};
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
pub(super) fn mark(one: &Finding) -> &'static str {
    match one.severity {
        _ if is_over(one) => "- ",
        Severity::Problem => "!!",
        Severity::Warning => "! ",
    }
}

/// Whether its evidence has ended, and it is shown a little longer.
pub(super) fn is_over(one: &Finding) -> bool {
    one.evidence.contains_key("ended_s_ago")
}

/// The commands that fix it, then the change in a sentence.
pub(super) fn fix_in_a_line(one: &Finding) -> Option<String> {
    let fix = one.fix()?;
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

/// A fix, each part beside its label. Commands stay in one piece, so that they can be copied.
pub(super) fn fix_parts(fix: &Remedy, indent: usize) -> Vec<Part> {
    let Remedy { change, commands, effect, cost, undo, not_if, .. } = fix;
    let words = |(label, text): (&str, &String)| {
        let label = format!("{:indent$}{label}", "");
        (!text.is_empty()).then(|| Part::labelled(label, indent + 8, text, Tone::Plain))
    };
    let command = |(at, command): (usize, &String)| {
        let label = if at == 0 { "type" } else { "" };
        Part::line(format!("{:indent$}{label:<8}{command}", ""), Tone::Plain)
    };
    let mut parts = Vec::from_iter(words(("change", change)));
    parts.extend(commands.iter().filter(|one| !one.is_empty()).enumerate().map(command));
    parts.extend(
        [("effect", effect), ("not if", not_if), ("risk", cost), ("undo", undo)]
            .into_iter()
            .filter_map(words),
    );
    parts
}

/// A state as a sheet, complete, with tables as wide as the terminal: what is wrong and its fix first.
pub(super) fn whole(state: &State, watched: &Watched, width: usize) -> Sheet {
    let mut place = vec!["tcptoll watch".to_owned(), state.host.clone()];
    place.extend(watched.name());
    place.extend([state.time.clone(), format!("up {}", number::duration(state.uptime_s))]);
    place.push(format!("rates over {:.2} s", state.interval_s));
    let mut parts = Vec::new();
    for one in &state.diagnoses {
        let tone = match one.severity {
            _ if is_over(one) => Tone::Dim,
            Severity::Problem => Tone::Bad,
            Severity::Warning => Tone::Doubt,
        };
        parts.extend([Part::Blank, Part::labelled(mark(one), 3, &one.text, tone)]);
        parts.extend(one.fix().into_iter().flat_map(|fix| fix_parts(fix, 3)));
        parts.push(line(format!("   {:<8}tcptoll explain {}", "explain", one.id)));
    }
    left_out(&mut parts, "more fault", state.diagnoses_left_out);
    let listeners = table::listeners(state, "", Sort::Pressing, false);
    rows(&mut parts, LISTENERS, &listeners, width);
    left_out(&mut parts, "more listener", state.listeners_left_out);
    let destinations = table::destinations(state, "");
    rows(&mut parts, DESTINATIONS, &destinations, width);
    left_out(&mut parts, "more destination", state.destinations_left_out);
    parts.push(Part::Blank);
    for figures in [activity(state), levels(state), states(state), once_cost(state)] {
        parts.extend(wrap_phrases(&figures, screen::room(width)).into_iter().map(line));
    }
    let unreadable = unreadable(state, watched.by_root).filter(|_| watched.owners);
    parts.extend(unreadable.map(|sentence| Part::prose(0, sentence, Tone::Plain)));
    let (answer, tone) = ([verdict(state), String::new()], Tone::Strong);
    let mut sheet = Sheet { place, answer, tone, ..Sheet::default() };
    sheet.parts.extend(Forms::TEXT, parts);
    sheet
}

fn line(text: String) -> Part {
    Part::line(text, Tone::Plain)
}

fn verdict(state: &State) -> String {
    let active = state.diagnoses.iter().filter(|one| !is_over(one));
    let found = counted(active.map(|one| one.severity));
    if found.is_empty() { nothing_wrong(state) } else { format!("{}.", found.join(" and ")) }
}

/// Sockets by state.
fn states(state: &State) -> Vec<String> {
    let shown = state.states.iter().filter(|(name, _)| *name != "LISTEN");
    shown.map(|(name, count)| format!("{name} {}", number::count(*count))).collect()
}

/// A share of a second that began with the program would mislead.
fn once_cost(state: &State) -> Vec<String> {
    let cpu = number::time(1e6 * state.cost.cpu_s);
    vec![format!("watching took {cpu} of CPU, {}", number::bytes(state.cost.resident_bytes as f64))]
}

fn left_out(parts: &mut Vec<Part>, what: &str, count: u64) {
    parts.extend((count > 0).then(|| line(format!("… and {}", plural(count, what)))));
}

/// A table with its title, after an empty line; nothing if it has no rows.
fn rows<T>(parts: &mut Vec<Part>, columns: &[Field<T>], rows: &[&T], width: usize) {
    if rows.is_empty() {
        return;
    }
    let places = fit(columns, &content(columns, rows), width);
    let joined = |cell: &dyn Fn(&Field<T>, usize) -> String| {
        let cells = places.iter().map(|place| {
            let column = &columns[place.column];
            aligned(&cell(column, place.width), column.align, place.width)
        });
        line(cells.collect::<Vec<_>>().join(" "))
    };
    parts.extend([Part::Blank, joined(&|column, _| column.title.to_owned())]);
    parts.extend(rows.iter().map(|row| joined(&|column, width| (column.cell)(row, width))));
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
            (with(9.0, 0.0, false), "no overflow; 9.00 drops/s of other packets"),
            (
                with(50.0, 40.0, true),
                "no overflow; 50.0 drops/s of other packets, at most 40.0 of them by TCP_DEFER_ACCEPT",
            ),
        ] {
            assert_eq!(sentence, format!("Nothing is wrong: {drops}, {queues}"));
        }
    }
}
