//! `tcptoll explain WORDS`: the section of docs/causes.md that is meant, laid out for a terminal.
//!
//! A section begins with a phrase and the words that it is also found by. `search` finds it; `brief` makes the page that
//! fits a screen. `--long` prints the whole section.

mod brief;
mod search;

use std::sync::LazyLock;

use anyhow::bail;
use tcptoll_core::finding::CAUSES;
use tcptoll_show::TextStyle;

use self::search::Hits;
use super::prose;
use crate::exit::Status;
use crate::{screen, stdout};

/// A section of the page.
struct Section {
    name: &'static str,
    /// What it is about, in a line.
    phrase: String,
    /// Other words for it: what people type, and error texts.
    keys: Vec<String>,
    /// Its Markdown, after the phrase and the keys.
    body: &'static str,
}

/// Each section whose title is a name: lower case, in back quotes or not.
static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let sections = CAUSES.split("\n## ").skip(1);
    sections.filter_map(read).collect()
});

fn read(text: &'static str) -> Option<Section> {
    let (title, body) = text.split_once('\n')?;
    let name = title.trim().trim_matches('`');
    if !name.chars().all(|c| c.is_ascii_lowercase() || c == '-') {
        return None;
    }
    let (head, body) = body.trim_start().split_once("\n\n")?;
    let head = head.replace('\n', " ");
    let (phrase, keys) = head.strip_prefix('*')?.split_once(".*")?;
    let keys = keys.trim().strip_prefix("Also: ").unwrap_or_default().trim_end_matches('.');
    let keys = keys.split(", ").map(|key| key.trim_matches('`').to_owned());
    let keys = keys.filter(|key| !key.is_empty()).collect();
    Some(Section { name, phrase: phrase.to_owned(), keys, body })
}

/// Prints what is said of the words that were typed; of none, all names.
pub(crate) fn run(typed: &str, long: bool) -> anyhow::Result<Status> {
    let style = screen::style();
    if typed.trim().is_empty() {
        return stdout::text(&index(style));
    }
    let Hits { sections, of } = search::find(typed, &SECTIONS);
    let text = match sections.as_slice() {
        [] => bail!(
            "explain {typed}: nothing is found for these words; `tcptoll explain` lists all {} names",
            SECTIONS.len()
        ),
        [one] => {
            let meant =
                of.map(|word| format!("nothing for '{}'; did you mean {word}?\n\n", shown(typed)));
            let page = if long { laid_out(one, style) } else { brief::page(one, style) };
            meant.unwrap_or_default() + &page
        }
        several => {
            let about = match of {
                Some(_) => format!("nothing for '{}'; the nearest:\n\n", shown(typed)),
                None => format!("{} pages for '{}':\n\n", several.len(), shown(typed)),
            };
            let list: String = several.iter().map(|one| line(one)).collect();
            format!("{about}{list}\ntcptoll explain {} shows the first\n", several[0].name)
        }
    };
    stdout::text(&text)
}

/// Words that were typed, as they may be printed.
fn shown(typed: &str) -> String {
    const WIDTH: usize = 50;
    screen::cut(&tcptoll_show::printable_line(typed), WIDTH)
}

/// What is said of a name, in whole; `None`: it is no name.
pub(super) fn section(wanted: &str, style: TextStyle) -> Option<String> {
    let one = SECTIONS.iter().find(|one| one.name == wanted)?;
    Some(laid_out(one, style))
}

/// How to see for oneself what a name means, in a sentence with what to type.
pub(super) fn check(wanted: &str) -> Option<String> {
    brief::check(SECTIONS.iter().find(|one| one.name == wanted)?)
}

fn laid_out(one: &Section, style: TextStyle) -> String {
    prose::markdown(&format!("## {}\n\n{}", one.name, one.body), style)
}

/// Columns of names in a list.
const NAMES: usize = 31;

fn line(one: &Section) -> String {
    format!("{:NAMES$}{}\n", one.name, one.phrase)
}

/// All names with their phrases, by the kinds of the table that the page begins with.
fn index(style: TextStyle) -> String {
    let mut text = String::new();
    for (kind, names) in kinds() {
        text += prose::markdown(&format!("## {kind}"), style).trim_end();
        text.push('\n');
        let named = |name: &&str| SECTIONS.iter().find(|one| one.name == *name);
        text.extend(names.iter().filter_map(named).map(line));
        text.push('\n');
    }
    text + "tcptoll explain WORDS finds names, counters, status codes and error messages.\n"
}

/// The rows of that table: a kind, and its names.
fn kinds() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let before = CAUSES.split("\n## ").next().unwrap_or_default();
    before.lines().filter_map(|row| {
        let (kind, names) = row.strip_prefix("| ")?.split_once(" | [")?;
        let names = names.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
        Some((kind, names.collect()))
    })
}

/// All names.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|one| one.name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tcptoll_core::verdict::warning::Warning;
    use tcptoll_measure::experiments;

    use super::*;

    fn plain(width: usize) -> TextStyle {
        TextStyle { colour: false, width }
    }

    #[test]
    fn every_section_begins_with_a_phrase_that_fits_its_line() {
        let titles = CAUSES.split("\n## ").skip(1).filter_map(|text| text.lines().next());
        let names =
            titles.filter(|title| title.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        assert_eq!(names.collect::<Vec<_>>(), all().collect::<Vec<_>>());
        for one in SECTIONS.iter() {
            assert!(line(one).trim_end().chars().count() <= 80, "{}", line(one));
            assert!(one.name.len() + 2 <= NAMES && one.phrase.len() > 10, "{}", one.name);
        }
    }

    #[test]
    fn every_name_is_in_the_table_and_nothing_else_is() {
        let listed: BTreeSet<&str> = kinds().flat_map(|(_, names)| names).collect();
        let explained: BTreeSet<&str> = all().collect();
        assert_eq!(listed, explained);
        let index = index(plain(80));
        for one in SECTIONS.iter() {
            assert!(index.contains(&line(one)), "{}", one.name);
        }
    }

    #[test]
    fn every_section_is_laid_out_within_the_width() {
        for width in [60, 80, 100] {
            for one in SECTIONS.iter() {
                for text in [laid_out(one, plain(width)), brief::page(one, plain(width))] {
                    for line in text.lines() {
                        // A command stays in one piece, so that it can be copied.
                        let fits = console::measure_text_width(line) <= width;
                        assert!(fits || line.starts_with("all "), "{}: {line}", one.name);
                        let raw =
                            line.starts_with('|') || line.contains("**") || line.contains("](");
                        assert!(!raw, "{}: {line}", one.name);
                    }
                }
            }
        }
    }

    #[test]
    fn every_cause_and_warning_that_can_be_named_is_explained() {
        let explained: BTreeSet<&str> = all().collect();
        let causes = experiments::ALL.iter().flat_map(|spec| spec.causes).map(|cause| cause.id);
        let found = tcptoll_live::doctor::rules::ids();
        for name in causes.chain(Warning::IDS.iter().copied()).chain(found) {
            assert!(explained.contains(name), "{name} has no section in docs/causes.md");
        }
    }
}
