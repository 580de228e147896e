//! The screen of `watch`: what the machine's connections do now, and did in the last minutes.
//!
//! [`view`] has the user's choices and what keys change of them, [`paint`] draws them, and
//! [`terminal`] is the edge: it takes the terminal over and gives it back. The screen is drawn after a
//! look, a key and a change of size, and at no other time.

mod paint;
mod terminal;
mod view;

use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT};

use self::paint::Painter;
pub(super) use self::terminal::is_there;
use self::terminal::{Shown, WaitOutcome};
use self::view::{KeyAction, OverlayPage, ScreenState};
use super::text::{Watched, fix_parts, is_over};
use crate::commands::{explain, prose};
use crate::{exit, screen};
use tcptoll_core::finding::{Finding, Severity};
use tcptoll_core::sheet::{Part, Tone};
use tcptoll_live::watch::History;
use tcptoll_show::TextStyle;

/// The screen, on a terminal that is given back when this is dropped.
pub(super) struct Screen {
    shown: Shown,
    view: ScreenState,
    painter: Painter,
}

impl Drop for Screen {
    fn drop(&mut self) {
        // First the terminal as it was: what is said now is to stay there.
        self.shown.close();
        exit::release();
    }
}

/// How the watch goes on after keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It goes on.
    GoOn,
    /// The user wants to end it.
    Quit,
    /// As a signal of this number would end it.
    Signal(i32),
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn open(watched: &Watched) -> anyhow::Result<Self> {
        let painter = Painter { colours: terminal::colours(), watched: watched.clone() };
        let shown = Shown::open()?;
        exit::hold();
        Ok(Self { shown, view: ScreenState::default(), painter })
    }

    /// Draws what is to be seen.
    pub(super) fn draw(&mut self, history: &History) -> anyhow::Result<()> {
        let Self { shown, view, painter } = self;
        view.notice = exit::held();
        let size = Shown::size();
        shown.draw(size, painter.rows(size, view, history))?;
        Ok(())
    }

    /// A sentence about the watch itself, for the last line until the next key or look.
    pub(super) fn say(&mut self, sentence: &str) {
        self.view.message = Some(tcptoll_show::printable_line(sentence));
    }

    /// Waits for keys, but not longer than this, and does what they say.
    pub(super) fn wait(&mut self, at_most: Duration, history: &History) -> anyhow::Result<After> {
        let (keys, mut redraw) = match self.shown.wait(at_most)? {
            WaitOutcome::Keys { keys, redraw } => (keys, redraw),
            WaitOutcome::HungUp => return Ok(After::Signal(SIGHUP)),
        };
        for key in keys {
            redraw = true;
            match self.view.press(key, history) {
                KeyAction::Nothing => {}
                KeyAction::Quit => return Ok(After::Quit),
                KeyAction::Interrupt => return Ok(After::Signal(SIGINT)),
                KeyAction::Suspend => self.shown.suspend()?,
            }
        }
        if redraw {
            self.draw(history)?;
        }
        Ok(After::GoOn)
    }
}

/// What a part of a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Strong,
    Faint,
    Problem,
    Warning,
    Bar,
    /// A key that can be pressed, or a state of the screen.
    Reversed,
}

/// One line of the screen: parts with their ink.
pub(super) type Line = Vec<(Ink, String)>;

// Pages that cover the sections: help, and a diagnosis with its evidence, its fix and what
// `tcptoll explain` says.

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
fn lines(page: &OverlayPage, width: usize) -> Vec<Line> {
    let parts = match page {
        OverlayPage::Help => help(),
        OverlayPage::Explained(one) => explained(one, width.min(100)),
    };
    let mut lines = Vec::new();
    for part in parts {
        let ink = match part {
            Part::Heading { .. } | Part::Prose { tone: Tone::Strong, .. } => Ink::Strong,
            _ => Ink::Plain,
        };
        if matches!(part, Part::Heading { .. }) && !lines.is_empty() {
            lines.push(Vec::new());
        }
        // A sheet has at least 60 columns, the screen may have less.
        let text = screen::narrowed(&prose::parts([part], width.min(100)), width);
        lines.extend(text.lines().map(|line| vec![(ink, line.to_owned())]));
    }
    lines
}

/// The last line of the screen while a page is open.
pub(super) fn footer(below: bool) -> Line {
    let more = if below { "↓ more  " } else { "" };
    vec![(Ink::Strong, format!("{more}Esc back  ↑↓ PgUp PgDn scroll  g G begin, end"))]
}

fn help() -> Vec<Part> {
    let list = |list: &[(&str, &str)]| -> Vec<Part> {
        let part = |(name, does): &(&str, &str)| {
            Part::labelled(format!("  {name}"), 14, *does, Tone::Plain)
        };
        list.iter().map(part).collect()
    };
    let (keys, words) = ([Part::heading("Keys")], [Part::heading("Signs and columns")]);
    keys.into_iter().chain(list(KEYS)).chain(words).chain(list(WORDS)).collect()
}

fn explained(one: &Finding, width: usize) -> Vec<Part> {
    let severity = match one.severity {
        _ if is_over(one) => "ended",
        Severity::Problem => "problem",
        Severity::Warning => "warning",
    };
    let head = format!("{severity} · {} · {}", one.id, one.subject);
    let mut parts =
        vec![Part::prose(0, head, Tone::Strong), Part::prose(0, &one.text, Tone::Plain)];
    if let Some(fix) = one.fix() {
        parts.push(Part::heading("Fix"));
        parts.extend(fix_parts(fix, 2));
    }
    parts.push(Part::heading("Evidence"));
    let longest = one.evidence.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    for (name, value) in &one.evidence {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        parts.push(Part::labelled(format!("  {name}"), longest + 4, value, Tone::Plain));
    }
    if let Some(text) = explain::section(&one.id, TextStyle { colour: false, width }) {
        let mut lines = text.trim_end().lines();
        parts.extend(lines.next().map(Part::heading));
        parts.extend(lines.map(|line| Part::line(line, Tone::Plain)));
    }
    parts
}

#[cfg(test)]
mod tests;
