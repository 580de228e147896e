//! A section on one screen: what one sees, the fix, how to check it and how to undo it.
//!
//! All of it stands in the section, under the headings that every section has. Each part gets as many whole sentences,
//! items or rows as its lines hold.

use tcptoll_show::{SCREEN, TextStyle};

use super::{Section, laid_out};
use crate::commands::prose;
use crate::screen;

/// Where words begin beside a label.
const INDENT: usize = 9;

/// Title, blank line and the last line.
const FRAME: usize = 3;
/// Most lines of what one sees, the fix and the undo. The check has the lines that these leave, and the cost what it leaves.
const SEE: usize = 5;
const FIX: usize = 7;
const UNDO: usize = 3;
/// Most lines of a check without a command.
const CHECK: usize = 4;

/// How the label of a remedy begins.
const REMEDY: &str = "Remedy";

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

    /// Has it something to type?
    fn is_typed(&self) -> bool {
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
        COMMANDS.iter().any(|start| self.text().contains(start))
    }

    fn short(&self) -> Self {
        match self {
            Self::Item(text) => Self::Item(sentences(text).next().unwrap_or_default()),
            Self::Sentence(_) => self.clone(),
        }
    }
}

/// How to undo the fix, or one item of it.
#[derive(Clone, Debug, PartialEq)]
struct Undo {
    /// The number of that item.
    of: Option<usize>,
    text: String,
}

/// What a page says of a section.
#[derive(Default)]
struct Brief {
    see: Vec<Unit>,
    fix: Vec<Unit>,
    /// Whether the section words its remedies as fields: they say all that prose before them does.
    has_remedies: bool,
    /// Written for whoever wants to see it.
    shown: Vec<Unit>,
    evidence: Vec<Unit>,
    cost: Vec<Unit>,
    undo: Vec<Undo>,
}

/// The section in at most 22 lines of 80 columns.
pub(super) fn page(one: &Section, style: TextStyle) -> String {
    let brief = Brief::read(one.body);
    let within = TextStyle { width: screen::room(style.width) - INDENT, ..style };
    let lines = |units: &[Unit], most| filled(units, most, within).0;
    let see = lines(&brief.see, SEE);
    let (fix, count) = filled(&brief.fix, FIX, within);
    let undo = lines(&brief.undo_of(&brief.fix[..count]), UNDO);
    let left = |parts: &[&Vec<String>]| {
        SCREEN.saturating_sub(FRAME + parts.iter().map(|lines| lines.len()).sum::<usize>())
    };
    let check = brief.check(left(&[&see, &fix, &undo]), within);
    let room = left(&[&see, &fix, &undo, &check]);
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

/// As many units as `most` lines hold, at least the first, and how many these are. Items that do not fit in whole are
/// their first sentences.
fn filled(units: &[Unit], most: usize, style: TextStyle) -> (Vec<String>, usize) {
    let whole = rendered(units, style);
    if whole.len() <= most {
        return (whole, units.len());
    }
    let units: Vec<Unit> = units.iter().map(Unit::short).collect();
    let mut shown = (Vec::new(), 0);
    for count in 1..=units.len() {
        // What announces more stands with what follows.
        if count < units.len() && count > 1 && units[count - 1].text().ends_with(':') {
            continue;
        }
        let lines = rendered(&units[..count], style);
        if lines.len() > most && count > 1 {
            break;
        }
        shown = (lines, count);
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
                if label.starts_with(REMEDY) {
                    brief.take_fields(items(block));
                    label.clear();
                } else {
                    brief.take(&label, items(block).map(Unit::Item));
                }
                continue;
            }
            for (bold, text) in labelled(&block.replace('\n', " ")) {
                label = bold.unwrap_or(label);
                if label.starts_with(REMEDY) {
                    if !std::mem::replace(&mut brief.has_remedies, true) {
                        brief.fix.clear();
                    }
                    brief.fix.push(Unit::Item(text.trim().to_owned()));
                    REMEDY.clone_into(&mut label);
                    continue;
                }
                // What follows a label may be a list.
                brief.take(&label, sentences(&text).map(Unit::Sentence));
            }
        }
        if let (true, [Unit::Item(only)]) = (brief.has_remedies, &brief.fix[..]) {
            brief.fix = sentences(only).map(Unit::Sentence).collect();
            brief.undo.iter_mut().for_each(|undo| undo.of = None);
        }
        brief
    }

    /// Fields of the newest remedy.
    fn take_fields(&mut self, fields: impl Iterator<Item = String>) {
        for field in fields {
            match (field.split_once(": "), self.fix.last_mut()) {
                (Some(("Command", command)), Some(Unit::Item(fix))) => {
                    *fix += &format!(" {command}");
                }
                (Some(("Cost", cost)), _) => {
                    self.cost.extend(sentences(cost).map(Unit::Sentence));
                }
                (Some(("Undo", undo)), _) => {
                    let text = undo.trim_end_matches('.').to_owned();
                    self.undo.push(Undo { of: Some(item_count(&self.fix)), text });
                }
                _ => {}
            }
        }
    }

    /// The part of the page that a label of the section belongs to; `None`: it is for the long form.
    fn part(&mut self, label: &str) -> Option<&mut Vec<Unit>> {
        let has = |start: &str| label.starts_with(start);
        Some(match label {
            _ if has("What it is") => &mut self.see,
            _ if has("See it yourself") || has("On a live machine") => &mut self.shown,
            _ if has("Evidence") => &mut self.evidence,
            _ if has("What to change") && !self.has_remedies => &mut self.fix,
            _ if has("What it costs") || has("Cost") => &mut self.cost,
            _ => return None,
        })
    }

    fn take(&mut self, label: &str, units: impl Iterator<Item = Unit>) {
        let is_about_undo = ["How to undo", "Undo"].iter().any(|start| label.starts_with(start));
        for unit in units {
            let text = unit.text();
            let undo = text.strip_prefix("Undo: ");
            if undo.is_some() || is_about_undo || text.starts_with("Nothing to undo") {
                let text = undo.unwrap_or(text).to_owned();
                self.undo.push(Undo { of: None, text });
            } else if let Some(part) = self.part(label) {
                part.push(unit);
            }
        }
    }

    /// How to undo what is shown of the fix.
    fn undo_of(&self, fix: &[Unit]) -> Vec<Unit> {
        let items = item_count(fix);
        let is_shown = |undo: &&Undo| undo.of.is_none_or(|number| number <= items);
        let sentence = |undo: &Undo| match undo.of {
            Some(number) => Unit::Sentence(format!("({number}) {}.", undo.text)),
            None => Unit::Sentence(undo.text.clone()),
        };
        self.undo.iter().filter(is_shown).map(sentence).collect()
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
        for row in rows.skip(1) {
            let item = match (undo, row.as_slice()) {
                (Some(_), [change, ..]) => change.clone(),
                (None, [name, meaning, ..]) => format!("{name}: {meaning}"),
                _ => continue,
            };
            self.take(label, [Unit::Item(item)].into_iter());
            let undo =
                undo.and_then(|at| row.get(at)).filter(|undo| !["", "–"].contains(&undo.as_str()));
            let of = Some(item_count(&self.fix));
            self.undo.extend(undo.map(|undo| Undo { of, text: undo.clone() }));
        }
    }

    /// The evidence from its beginning to the first command and what is said of that, with the commands that follow it
    /// on few lines or in a list; without a command, as much of it as fits. If it begins with a record of tcptoll, it begins where it comes to a machine of one's own.
    fn check(&self, most: usize, style: TextStyle) -> Vec<String> {
        let all: Vec<Unit> = self.shown.iter().chain(&self.evidence).cloned().collect();
        let Some(command) = all.iter().position(Unit::is_typed) else {
            return filled(&all, most.min(CHECK), style).0;
        };
        let is_own =
            |unit: &Unit| unit.text().starts_with("On ") && unit.text().contains("of your own");
        let begin = all[..=command].iter().rposition(is_own).unwrap_or(0);
        let after = all.len().min(command + 2);
        let more = all[after..].iter().take_while(|unit| unit.is_typed()).count();
        let longer = (after + 1..=after + more).rev().map(|end| (begin..end, CHECK));
        let ranges = longer.chain([(begin..after, most), (begin..command + 1, most)]);
        let later = (begin + 1..=command).map(|begin| (begin..command + 1, most));
        let fits = ranges.chain(later).find_map(|(range, few)| {
            let is_list = matches!(all[range.clone()].last(), Some(Unit::Item(_)));
            let lines = rendered(&all[range], style);
            (lines.len() <= if is_list { most } else { few.min(most) }).then_some(lines)
        });
        fits.unwrap_or_else(|| filled(&all[command..=command], most, style).0)
    }

    fn typed(&self) -> impl Iterator<Item = &Unit> {
        self.shown.iter().chain(&self.evidence).filter(|unit| unit.is_typed())
    }
}

/// The first sentence of a section with what to type, without what stands in brackets.
pub(super) fn check(one: &Section) -> Option<String> {
    let brief = Brief::read(one.body);
    let first = brief.typed().find(|unit| matches!(unit, Unit::Sentence(_)))?;
    let style = TextStyle { colour: false, width: usize::MAX };
    let text = prose::markdown_within(first.text(), style);
    let mut pieces = text.trim().split(" (");
    let begin = pieces.next().unwrap_or_default().to_owned();
    let rest = pieces.map(|piece| piece.split_once(')').map_or(piece, |(_, rest)| rest));
    Some(begin + &rest.collect::<String>())
}

fn item_count(units: &[Unit]) -> usize {
    units.iter().filter(|unit| matches!(unit, Unit::Item(_))).count()
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
            assert!(page.lines().count() <= SCREEN, "{} lines\n{page}", page.lines().count());
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
        let style = TextStyle { colour: false, width: 60 };
        assert_eq!(brief.check(4, style), ["A counter. `ss -lnt` shows it."]);
        assert_eq!(texts(&brief.fix)[1..], ["First of all.", "Second."]);
        assert_eq!(texts(&brief.cost), ["Some."]);
        assert_eq!(texts(&brief.undo_of(&[])), ["the other.", "this too."]);
    }

    #[test]
    fn a_table_of_changes_gives_each_its_undo() {
        let body = "**What to change, and how to undo.**\n\n| change | cost | undo |\n| --- | --- | --- |\n| a | b | c \
                    |\n| d | e | f |\n";
        let brief = Brief::read(body);
        assert_eq!(brief.fix, [Unit::Item("a".to_owned()), Unit::Item("d".to_owned())]);
        let undo = ["(1) c.", "(2) f."].map(|text| Unit::Sentence(text.to_owned()));
        assert_eq!(brief.undo_of(&brief.fix), undo);
        assert_eq!(brief.undo_of(&brief.fix[..1]), undo[..1], "of what is shown alone");
    }

    #[test]
    fn no_page_undoes_a_change_that_it_does_not_show() {
        for one in SECTIONS.iter() {
            let page = page(one, TextStyle { colour: false, width: 80 });
            let Some((above, undo)) = page.split_once("\nundo     ") else { continue };
            for number in 1..20 {
                let is_shown = above.contains(&format!(" {number}. "));
                assert!(is_shown || !undo.contains(&format!("({number}) ")), "{page}");
            }
        }
    }

    #[test]
    fn a_check_has_what_stands_before_and_after_its_command() {
        let style = TextStyle { colour: false, width: 60 };
        let body = "**Evidence.** A log says so. `ss -lnt` lists it. Repeat that. More.\n";
        let check = |body, most| Brief::read(body).check(most, style);
        assert_eq!(check(body, 2), ["A log says so. `ss -lnt` lists it. Repeat that."]);
        let own = "**Evidence.** A field. On a machine of your own, look. `ss -lnt` lists it.\n";
        assert_eq!(check(own, 2), ["On a machine of your own, look. `ss -lnt` lists it."]);
        let long =
            format!("**Evidence.** {}. So. `ss -lnt` lists it. More.\n", "A word ".repeat(20));
        assert_eq!(check(&long, 1), ["So. `ss -lnt` lists it."], "as much as fits");
    }
}
