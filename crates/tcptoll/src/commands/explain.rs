//! `tcptoll explain NAME`: the section of docs/causes.md of that name, laid out for a terminal.

use anyhow::bail;
use tcptoll_core::study::did_you_mean;
use tcptoll_show::TextStyle;

use super::prose;
use crate::exit::Status;
use crate::{screen, stdout};

const CAUSES: &str = include_str!("../../causes.md");

/// Errors as the kernel and programs name them, and the section of each.
const ERRORS: [(&str, &str); 20] = [
    ("address already in use", "local-ports"),
    ("cannot assign requested address", "local-ports"),
    ("connection refused", "connect-refused"),
    ("connection reset by peer", "reset"),
    ("connection timed out", "connect-timeout"),
    ("eaddrinuse", "local-ports"),
    ("eaddrnotavail", "local-ports"),
    ("econnrefused", "connect-refused"),
    ("econnreset", "reset"),
    ("ehostunreach", "unreachable"),
    ("emfile", "local-fds"),
    ("enetunreach", "unreachable"),
    ("enfile", "local-fds"),
    ("enobufs", "local-memory"),
    ("enomem", "local-memory"),
    ("epipe", "reset"),
    ("etimedout", "connect-timeout"),
    ("network is unreachable", "unreachable"),
    ("no route to host", "unreachable"),
    ("too many open files", "local-fds"),
];

/// Prints what is said of a name or of an error; of an empty one, all names.
pub(crate) fn run(typed: &str) -> anyhow::Result<Status> {
    if typed.is_empty() {
        return stdout::text(&prose::markdown(&names(), screen::style()));
    }
    // A name first: only what is none can be a message with an error in it.
    let is_name = sections().any(|(name, _)| name == typed);
    let wanted = error_in(typed).filter(|_| !is_name).unwrap_or(typed);
    let Some((name, body)) = sections().find(|(name, _)| *name == wanted) else {
        let names: Vec<&str> = sections().map(|(name, _)| name).collect();
        let meant = did_you_mean(wanted, &names).map(|meant| format!(" {meant}"));
        bail!(
            "explain {wanted}: there is no such name;{} `tcptoll explain` lists all {}",
            meant.unwrap_or_default(),
            names.len()
        );
    };
    stdout::text(&laid_out(name, body, screen::style()))
}

/// The section of the error that a message has in it, as programs print it: `Connection refused (os error 111)`.
fn error_in(message: &str) -> Option<&'static str> {
    let message = message.to_lowercase();
    let words: Vec<&str> = message.split(|c: char| !c.is_alphanumeric()).collect();
    let has = |known: &str| {
        if known.contains(' ') { message.contains(known) } else { words.contains(&known) }
    };
    ERRORS.iter().find(|(known, _)| has(known)).map(|(_, section)| *section)
}

/// What is said of a name; `None`: it is no name.
pub(super) fn section(wanted: &str, style: TextStyle) -> Option<String> {
    let (name, body) = sections().find(|(name, _)| *name == wanted)?;
    Some(laid_out(name, body, style))
}

fn laid_out(name: &str, body: &str, style: TextStyle) -> String {
    prose::markdown(&format!("## {name}\n{body}"), style)
}

/// All names by their kind: the table that the page begins with.
fn names() -> String {
    let before = CAUSES.split("\n## ").next().unwrap_or_default();
    let table: Vec<&str> = before.lines().filter(|line| line.starts_with('|')).collect();
    format!("{}\n\n`tcptoll explain NAME` explains one.", table.join("\n"))
}

/// All names.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    sections().map(|(name, _)| name)
}

/// Name and text of each section whose title is a name: lower case, in back quotes or not.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    CAUSES.split("\n## ").skip(1).filter_map(|section| {
        let (title, body) = section.split_once('\n')?;
        let name = title.trim().trim_matches('`');
        let kebab = name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        kebab.then_some((name, body))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tcptoll_core::verdict::warning::Warning;
    use tcptoll_measure::experiments;

    use super::*;

    #[test]
    fn every_error_has_its_section() {
        for (error, section) in ERRORS {
            assert_eq!(error, error.to_lowercase());
            assert!(sections().any(|(name, _)| name == section), "{error}: {section}");
        }
    }

    #[test]
    fn an_error_is_found_in_what_programs_print() {
        for (message, section) in [
            ("EADDRNOTAVAIL", Some("local-ports")),
            ("Cannot assign requested address (os error 99)", Some("local-ports")),
            ("[Errno 111] Connection refused", Some("connect-refused")),
            ("connect() to 10.0.0.1:80 failed (104: Connection reset by peer)", Some("reset")),
            ("connect EMFILE 10.0.0.1:80", Some("local-fds")),
            ("femfiles", None),
        ] {
            assert_eq!(error_in(message), section, "{message}");
        }
    }

    #[test]
    fn every_name_is_in_the_table_and_nothing_else_is() {
        let listed = names();
        let listed: BTreeSet<&str> =
            listed.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        let explained: BTreeSet<&str> = sections().map(|(name, _)| name).collect();
        assert_eq!(listed, explained);
    }

    #[test]
    fn every_section_is_laid_out_within_the_width() {
        for width in [60, 80, 100] {
            for (name, body) in sections() {
                let text = prose::markdown(body, TextStyle { colour: false, width });
                for line in text.lines() {
                    assert!(console::measure_text_width(line) <= width, "{name}: {line}");
                    let raw = line.starts_with('|') || line.contains("**") || line.contains("](");
                    assert!(!raw, "{name}: {line}");
                }
            }
        }
    }

    #[test]
    fn every_cause_and_warning_that_can_be_named_is_explained() {
        let explained: BTreeSet<&str> = sections().map(|(name, _)| name).collect();
        let causes = experiments::ALL.iter().flat_map(|spec| spec.causes).map(|cause| cause.id);
        let found = tcptoll_live::doctor::rules::ids();
        for name in causes.chain(Warning::IDS.iter().copied()).chain(found) {
            assert!(explained.contains(name), "{name} has no section in docs/causes.md");
        }
    }
}
