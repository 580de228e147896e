//! A section on one screen: what one sees, the fix, how to check it and how to undo it.
//!
//! All of it stands in the section, under the headings that every section has. Each part gets as many whole sentences,
//! items or rows as its lines hold.

use tcptoll_show::TextStyle;

use super::{Section, laid_out};
use crate::commands::prose;
use crate::screen;

/// Lines of a page of 80 columns: a terminal of 24 has the prompt, too.
const LINES: usize = 22;
/// Where words begin beside a label.
const INDENT: usize = 9;

/// Most lines of what one sees, the fix, the check and the undo. With title, blank line and the last line that is a page.
const SEE: usize = 5;
const FIX: usize = 7;
const CHECK: usize = 4;
const UNDO: usize = 3;

/// A sentence, an item of a list or a row of a table.
#[derive(Clone, Debug, PartialEq)]
enum Unit {
    Sentence(String),
    Item(String),
}

impl Unit {
    fn text(&self) -> &str {
        let (Self::Sentence(text) | Self::Item(text)) = self;
        text
    }

    fn short(&self) -> Self {
        match self {
            Self::Item(text) => Self::Item(sentences(text).next().unwrap_or_default()),
            Self::Sentence(_) => self.clone(),
        }
    }
}

/// What a page says of a section.
#[derive(Default)]
struct Brief {
    see: Vec<Unit>,
    fix: Vec<Unit>,
    /// Written for whoever wants to see it.
    shown: Vec<Unit>,
    evidence: Vec<Unit>,
    cost: Vec<Unit>,
    undo: Vec<Unit>,
}

/// The section in at most 22 lines of 80 columns.
pub(super) fn page(one: &Section, style: TextStyle) -> String {
    let brief = Brief::read(one.body);
    let check = brief.check();
    let width = screen::room(style.width) - INDENT;
    let lines = |units: &[Unit], most| filled(units, most, TextStyle { width, ..style });
    let undo = lines(&brief.undo, UNDO);
    let (see, fix, check) = (lines(&brief.see, SEE), lines(&brief.fix, FIX), lines(&check, CHECK));
    let used = 3 + [&see, &fix, &check, &undo].map(Vec::len).iter().sum::<usize>();
    let room = LINES.saturating_sub(used);
    let cost = lines(&brief.cost, room);
    let cost = if cost.len() <= room { cost } else { Vec::new() };
    let title = format!("## {}: {}", one.name, one.phrase);
    let mut page = prose::markdown(&title, style) + "\n";
    for (label, lines) in
        [("you see", see), ("fix", fix), ("check", check), ("cost", cost), ("undo", undo)]
    {
        for (at, line) in lines.iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            page += format!("{label:INDENT$}{line}").trim_end();
            page.push('\n');
        }
    }
    let whole = laid_out(one, style).lines().count();
    let command = format!("{:INDENT$}tcptoll explain {} --long", "all", one.name);
    let with_length = format!("{command}  ({whole} lines)");
    let fits = with_length.len() <= screen::room(style.width);
    page + if fits { &with_length } else { &command } + "\n"
}

/// As many units as `most` lines hold, at least the first. Items that do not fit in whole are their first sentences.
fn filled(units: &[Unit], most: usize, style: TextStyle) -> Vec<String> {
    if rendered(units, style).len() <= most {
        return rendered(units, style);
    }
    let units: Vec<Unit> = units.iter().map(Unit::short).collect();
    let mut shown = Vec::new();
    for count in 1..=units.len() {
        // What announces more stands with what follows.
        if count < units.len() && count > 1 && units[count - 1].text().ends_with(':') {
            continue;
        }
        let lines = rendered(&units[..count], style);
        if lines.len() > most && count > 1 {
            break;
        }
        shown = lines;
    }
    shown
}

fn rendered(units: &[Unit], style: TextStyle) -> Vec<String> {
    let mut text = String::new();
    let mut numbers = 1..;
    for unit in units {
        match unit {
            Unit::Sentence(sentence) if text.ends_with('\n') => text += &format!("\n{sentence} "),
            Unit::Sentence(sentence) => text += &format!("{sentence} "),
            Unit::Item(item) => {
                let number = numbers.next().unwrap_or(0);
                text += &format!("\n\n{number}. {item}\n");
            }
        }
    }
    let text = prose::markdown_within(&text, style);
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

impl Brief {
    fn read(body: &str) -> Self {
        let mut brief = Self::default();
        let mut label = String::new();
        for block in body.split("\n\n") {
            let block = block.trim();
            if block.starts_with('|') {
                brief.take_table(&label, block);
                continue;
            }
            if is_list(block) {
                brief.take(&label, items(block).map(Unit::Item));
                continue;
            }
            for (bold, text) in labelled(&block.replace('\n', " ")) {
                label = bold.unwrap_or(label);
                // What follows a label may be a list.
                brief.take(&label, sentences(&text).map(Unit::Sentence));
            }
        }
        brief
    }

    /// The part of the page that a label of the section belongs to; `None`: it is for the long form.
    fn part(&mut self, label: &str) -> Option<&mut Vec<Unit>> {
        let has = |start: &str| label.starts_with(start);
        Some(match label {
            _ if has("What it is") => &mut self.see,
            _ if has("See it yourself") || has("On a live machine") => &mut self.shown,
            _ if has("Evidence") => &mut self.evidence,
            _ if has("What to change") => &mut self.fix,
            _ if has("What it costs") || has("Cost") => &mut self.cost,
            _ if has("How to undo") || has("Undo") => &mut self.undo,
            _ => return None,
        })
    }

    fn take(&mut self, label: &str, units: impl Iterator<Item = Unit>) {
        for unit in units {
            let text = unit.text();
            let unit = match text.strip_prefix("Undo: ") {
                Some(undo) => Unit::Sentence(undo.to_owned()),
                None => unit.clone(),
            };
            let is_undo = text.starts_with("Undo: ") || text.starts_with("Nothing to undo");
            if let Some(part) = self.part(if is_undo { "Undo" } else { label }) {
                part.push(unit);
            }
        }
    }

    /// A row is an item: of changes with their undo, or a name with what it means.
    fn take_table(&mut self, label: &str, block: &str) {
        let mut rows = block.lines().map(cells);
        let heads = rows.next().unwrap_or_default();
        let undo = heads.iter().position(|head| head == "undo");
        if undo.is_some() {
            // What announces the changes stands before them; the rest is about the advice of a run.
            self.fix.retain(|unit| unit.text().ends_with(':'));
        }
        for (row, number) in rows.skip(1).zip(1..) {
            let item = match (undo, row.as_slice()) {
                (Some(_), [change, ..]) => change.clone(),
                (None, [name, meaning, ..]) => format!("{name}: {meaning}"),
                _ => continue,
            };
            self.take(label, [Unit::Item(item)].into_iter());
            let undo =
                undo.and_then(|at| row.get(at)).filter(|undo| !["", "–"].contains(&undo.as_str()));
            self.undo.extend(undo.map(|undo| Unit::Sentence(format!("({number}) {undo}."))));
        }
    }

    /// What to type, where a section has it; else the evidence from its beginning.
    fn check(&self) -> Vec<Unit> {
        let typed = self.typed();
        let all = || self.shown.iter().chain(&self.evidence).cloned().collect();
        if typed.is_empty() { all() } else { typed }
    }

    fn typed(&self) -> Vec<Unit> {
        const COMMANDS: [&str; 9] = [
            "`ss ",
            "`nstat ",
            "`tcptoll ",
            "`ip ",
            "`ping",
            "`curl ",
            "`top ",
            "`conntrack ",
            "`tc ",
        ];
        let is_typed = |unit: &&Unit| COMMANDS.iter().any(|start| unit.text().contains(start));
        self.shown.iter().chain(&self.evidence).filter(is_typed).cloned().collect()
    }
}

/// The first sentence of a section with what to type, without what stands in brackets.
pub(super) fn check(one: &Section) -> Option<String> {
    let typed = Brief::read(one.body).typed();
    let first = typed.iter().find(|unit| matches!(unit, Unit::Sentence(_)))?;
    let style = TextStyle { colour: false, width: usize::MAX };
    let text = prose::markdown_within(first.text(), style);
    let mut pieces = text.trim().split(" (");
    let begin = pieces.next().unwrap_or_default().to_owned();
    let rest = pieces.map(|piece| piece.split_once(')').map_or(piece, |(_, rest)| rest));
    Some(begin + &rest.collect::<String>())
}

fn is_list(block: &str) -> bool {
    block.starts_with("- ") || block.starts_with("1. ")
}

/// Items of a list, each in one line.
fn items(block: &str) -> impl Iterator<Item = String> {
    let mut items: Vec<String> = Vec::new();
    for line in block.lines() {
        let item = line.strip_prefix("- ");
        let item = item.or_else(|| {
            let (number, rest) = line.split_once(". ")?;
            number.chars().all(|c| c.is_ascii_digit()).then_some(rest)
        });
        match (item, items.last_mut()) {
            (Some(item), _) => items.push(item.to_owned()),
            (None, Some(last)) => *last += &format!(" {}", line.trim()),
            (None, None) => {}
        }
    }
    items.into_iter()
}

fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches("| ").trim_end_matches('|');
    row.split(" | ").map(|cell| cell.trim().to_owned()).collect()
}

/// Text by the labels in it: bold words that end in a dot or a colon, or begin it.
fn labelled(text: &str) -> Vec<(Option<String>, String)> {
    let mut parts: Vec<(Option<String>, String)> = vec![(None, String::new())];
    for (at, piece) in text.split("**").enumerate() {
        let is_bold = at % 2 == 1;
        let begins = parts.len() == 1 && parts[0].1.is_empty();
        if is_bold && (begins || piece.ends_with(['.', ':'])) {
            parts.push((Some(piece.to_owned()), String::new()));
        } else if let Some((_, text)) = parts.last_mut() {
            *text += piece;
        }
    }
    parts.retain(|(label, text)| label.is_some() || !text.trim().is_empty());
    parts
}

/// Whole sentences: one ends with a dot before a blank and no small letter.
fn sentences(text: &str) -> impl Iterator<Item = String> {
    let mut sentences = Vec::new();
    let mut rest = text.trim().trim_start_matches([',', ':', ' ']);
    while !rest.is_empty() {
        let ends = rest
            .match_indices(". ")
            .find(|(at, _)| !rest[at + 2..].starts_with(|c: char| c.is_lowercase()));
        let end = ends.map_or(rest.len(), |(at, _)| at + 1);
        sentences.push(rest[..end].trim().to_owned());
        rest = rest[end..].trim_start();
    }
    sentences.into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::SECTIONS;
    use super::*;

    #[test]
    fn every_page_fits_a_screen_and_says_what_one_sees_and_what_to_do() {
        let style = TextStyle { colour: false, width: 80 };
        for one in SECTIONS.iter() {
            let page = page(one, style);
            assert!(page.lines().count() <= LINES, "{} lines\n{page}", page.lines().count());
            assert!(page.starts_with(&format!("{}: ", one.name)), "{page}");
            assert!(page.contains("\nyou see  "), "{page}");
            // A run that was stopped needs none.
            assert!(page.contains("\nfix      ") || one.name == "interrupted", "{page}");
        }
    }

    #[test]
    fn parts_come_from_the_headings_of_a_section() {
        let body = "**What it is.** One. Two\nof it.\n\n**Evidence.** A counter. `ss -lnt` shows it.\n\n**What to \
                    change**, in this order:\n\n1. First\n   of all.\n2. Second.\n\n**Cost.** Some. **Undo:** the other. \
                    Undo: this too.\n";
        let brief = Brief::read(body);
        let texts =
            |units: &[Unit]| units.iter().map(|one| one.text().to_owned()).collect::<Vec<_>>();
        assert_eq!(texts(&brief.see), ["One.", "Two of it."]);
        assert_eq!(texts(&brief.check()), ["`ss -lnt` shows it."]);
        assert_eq!(texts(&brief.fix)[1..], ["First of all.", "Second."]);
        assert_eq!(texts(&brief.cost), ["Some."]);
        assert_eq!(texts(&brief.undo), ["the other.", "this too."]);
    }

    #[test]
    fn a_table_of_changes_gives_each_its_undo() {
        let body = "**What to change, and how to undo.**\n\n| change | cost | undo |\n| --- | --- | --- |\n| a | b | c \
                    |\n| d | e | f |\n";
        let brief = Brief::read(body);
        assert_eq!(brief.fix, [Unit::Item("a".to_owned()), Unit::Item("d".to_owned())]);
        let undo = ["(1) c.", "(2) f."].map(|text| Unit::Sentence(text.to_owned()));
        assert_eq!(brief.undo, undo);
    }
}
