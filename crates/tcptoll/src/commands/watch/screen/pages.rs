//! Pages that cover the sections: help, and a diagnosis with its evidence, its fix and what
//! `tcptoll explain` says.

use serde_json::Value;
use tcptoll_live::diagnosis::{Diagnosis, Severity};
use tcptoll_show::{TextStyle, printable_line};

use super::super::text::{fix_lines, is_over};
use super::ink::{Ink, Line};
use super::view::OverlayPage;
use crate::commands::explain;
use crate::commands::prose::beside;
use crate::wrap;

/// Keys and what they do.
const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "end the watch"),
    ("↑ ↓ or j k", "select a row, or scroll a page; g and G: the first and the last"),
    ("Tab", "next section: what is wrong, listeners, destinations"),
    ("Enter or e", "explain what is wrong with the selected row: evidence, fix, risk, undo"),
    ("s, r", "next sort order of listeners; reverse the order"),
    ("/", "filter listeners and destinations by address, port or process; Esc clears it"),
    ("space", "pause or resume the display, not the watch. On a page: scroll"),
    (
        "← →",
        "one look back or forward in time; PgUp and PgDn: 30 s, or scroll a page; Home: the oldest look",
    ),
    ("End or 0", "now"),
    ("Ctrl-Z", "suspend"),
];

/// Signs and columns, and where each figure comes from.
const WORDS: &[(&str, &str)] = &[
    ("!!", "problem: connections are harmed now"),
    ("!", "warning: a limit is near"),
    ("-", "ended in the last 10 s"),
    ("–", "not known, or may not be read"),
    (
        "QUEUE",
        "connections that wait for accept(2), and LIMIT: the backlog after the clamp to somaxconn",
    ),
    ("PEAK", "longest queue of any look since the watch began"),
    ("SYN-RECV", "half-open requests (SYN-RECEIVED), as old as the table of all sockets"),
    (
        "OVERFL/s",
        "SYNs and last ACKs that met a full accept queue; ~: estimated from the drops of several listeners",
    ),
    (
        "DROP/s",
        "packets dropped here (sk_drops; d of ss -lntm), including the harmless last ACKs that TCP_DEFER_ACCEPT ignores",
    ),
    ("PORTS", "local ports in use to a destination, from the source address that uses the most"),
    (
        "LEFT",
        "local ports that connect(2) may still choose; LASTS: time until no port is left at this rate",
    ),
    ("×4", "4 sockets listen on this address and port; each is a row"),
];

/// The lines of a page in this width.
pub(super) fn lines(page: &OverlayPage, width: usize) -> Vec<Line> {
    match page {
        OverlayPage::Help => help(width),
        OverlayPage::Explained(one) => explained(one, width),
    }
}

/// The last line of the screen while a page is open.
pub(super) fn footer(below: bool) -> Line {
    let more = if below { "↓ more  " } else { "" };
    vec![(Ink::Strong, format!("{more}Esc back  ↑↓ PgUp PgDn scroll  g G begin, end"))]
}

fn plain(lines: &mut Vec<Line>, text: &str) {
    lines.extend(text.lines().map(|line| vec![(Ink::Plain, line.to_owned())]));
}

fn title(lines: &mut Vec<Line>, text: &str) {
    lines.push(Vec::new());
    lines.push(vec![(Ink::Strong, text.to_owned())]);
}

fn help(width: usize) -> Vec<Line> {
    let mut lines = vec![vec![(Ink::Strong, "Keys".to_owned())]];
    let list = |lines: &mut Vec<Line>, list: &[(&str, &str)]| {
        for (name, does) in list {
            let blanks = 12_usize.saturating_sub(name.chars().count());
            let label = format!("  {name}{}", " ".repeat(blanks));
            plain(lines, &beside(&label, does, width.min(100)));
        }
    };
    list(&mut lines, KEYS);
    title(&mut lines, "Signs and columns");
    list(&mut lines, WORDS);
    lines
}

fn explained(one: &Diagnosis, width: usize) -> Vec<Line> {
    let width = width.min(100);
    let severity = match one.severity {
        _ if is_over(one) => "ended",
        Severity::Problem => "problem",
        Severity::Warning => "warning",
    };
    let mut lines = Vec::new();
    let head = format!("{severity} · {} · {}", one.id, one.subject);
    for line in beside("", &printable_line(&head), width).lines() {
        lines.push(vec![(Ink::Strong, line.to_owned())]);
    }
    plain(&mut lines, &beside("", &printable_line(&one.text), width));
    if let Some(fix) = &one.fix {
        title(&mut lines, "Fix");
        plain(&mut lines, &wrap::narrowed(&fix_lines(fix, "  ", width), width));
    }
    title(&mut lines, "Evidence");
    let longest = one.evidence.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    for (name, value) in &one.evidence {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let label = format!("  {:<longest$}  ", printable_line(name));
        plain(&mut lines, &beside(&label, &printable_line(&value), width));
    }
    let style = TextStyle { colour: false, width };
    if let Some(text) = explain::section(&one.id, style) {
        lines.push(Vec::new());
        let text = wrap::narrowed(text.trim_end(), width);
        let mut rest = text.lines();
        lines.extend(rest.next().map(|name| vec![(Ink::Strong, name.to_owned())]));
        plain(&mut lines, &rest.collect::<Vec<_>>().join("\n"));
    }
    lines
}
