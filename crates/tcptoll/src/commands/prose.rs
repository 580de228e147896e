//! How do words look on a terminal? Wrapped at its width; headings, lists, code and tables of Markdown
//! laid out. What a page says is in `docs/`.

use std::fmt::Write as _;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use textwrap::core::display_width;

use crate::screen;
use crate::screen::{filled, room};
use tcptoll_core::sheet::{Forms, Part, Parts};
use tcptoll_show::{TextStyle, sheet};

/// Between two columns of a table.
const GAP: usize = 2;

/// Columns that words may take on stdout.
pub(super) fn width() -> usize {
    room(screen::style().width)
}

/// Parts as text without colour.
pub(super) fn parts(shown: impl IntoIterator<Item = Part>, width: usize) -> String {
    let mut parts = Parts::default();
    parts.extend(Forms::TEXT, shown);
    sheet::parts(&parts, TextStyle { colour: false, width })
}

/// Markdown for a terminal. It ends with a line feed.
pub(super) fn markdown(text: &str, style: TextStyle) -> String {
    markdown_within(text, TextStyle { width: room(style.width), ..style })
}

/// Markdown in lines of at most the style's width.
pub(super) fn markdown_within(text: &str, style: TextStyle) -> String {
    let mut page = ProsePage { width: style.width, colour: style.colour, ..ProsePage::default() };
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        page.take(event);
    }
    format!("{}\n", page.out.trim_end())
}

#[derive(Default)]
struct ProsePage {
    out: String,
    width: usize,
    colour: bool,
    /// Of the block that is open, on one line.
    words: String,
    /// Whether words are to stand out.
    strong: bool,
    code: bool,
    /// Where the link leads whose words are being read.
    link: Option<String>,
    /// The next number of each open list; none: its items have no numbers.
    lists: Vec<Option<u64>>,
    /// What the lines of each open item begin with: its label once, then blanks.
    items: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl ProsePage {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Text(text) if self.code => self.words.push_str(&text),
            Event::Text(text) => self.say(&text),
            Event::Code(code) => self.say(&format!("`{code}`")),
            Event::SoftBreak | Event::HardBreak => self.words.push(' '),
            Event::Start(tag) => self.begin(tag),
            Event::End(tag) => self.end(tag),
            _ => {}
        }
    }

    fn begin(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Strong | Tag::Heading { .. } => self.strong = true,
            Tag::TableHead => {
                self.strong = true;
                self.rows.push(Vec::new());
            }
            Tag::TableRow => self.rows.push(Vec::new()),
            Tag::CodeBlock(_) => self.code = true,
            // Another section of the page is told by its name.
            Tag::Link { dest_url, .. } if !dest_url.starts_with('#') => {
                self.link = Some(dest_url.into_string());
            }
            Tag::List(number) => {
                self.block();
                self.lists.push(number);
            }
            Tag::Item => {
                let label = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "- ".to_owned(),
                };
                self.items.push(label);
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Strong | TagEnd::TableHead => self.strong = false,
            TagEnd::Heading(_) => {
                self.strong = false;
                self.block();
            }
            TagEnd::Paragraph => self.block(),
            TagEnd::Link => {
                if let Some(to) = self.link.take() {
                    let folder = if to.contains("://") { "" } else { "docs/" };
                    self.say(&format!(" ({folder}{to})"));
                }
            }
            TagEnd::CodeBlock => {
                self.code = false;
                for line in std::mem::take(&mut self.words).lines() {
                    let _ = writeln!(self.out, "{}    {line}", self.items.concat());
                }
                self.out.push('\n');
            }
            TagEnd::Item => {
                self.block();
                self.items.pop();
            }
            TagEnd::List(_) => {
                self.lists.pop();
                if self.lists.is_empty() {
                    self.out.push('\n');
                }
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.words);
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.table(),
            _ => {}
        }
    }

    /// Words that stand out do so one by one: they may end up on two lines.
    fn say(&mut self, text: &str) {
        if !(self.strong && self.colour) {
            self.words.push_str(text);
            return;
        }
        let bold = |word: &str| match word {
            "" => String::new(),
            word => format!("\u{1b}[1m{word}\u{1b}[0m"),
        };
        let words: Vec<String> = text.split(' ').map(bold).collect();
        self.words.push_str(&words.join(" "));
    }

    /// Writes the words there are. Blocks have an empty line between them, items of lists have none.
    fn block(&mut self) {
        if self.words.is_empty() {
            return;
        }
        let first = self.items.concat();
        for item in &mut self.items {
            *item = " ".repeat(display_width(item));
        }
        let text = std::mem::take(&mut self.words);
        self.out += &filled(text.trim(), &first, &self.items.concat(), self.width);
        self.out += if self.lists.is_empty() { "\n\n" } else { "\n" };
    }

    fn table(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        rows.retain(|row| row.iter().any(|cell| !cell.is_empty()));
        let widths = widths(&rows, self.width);
        let rows: Vec<Vec<Vec<String>>> = rows
            .iter()
            .map(|row| {
                let cells = row.iter().zip(&widths);
                cells.map(|(cell, width)| lines(cell, *width)).collect()
            })
            .collect();
        let apart = rows.iter().flatten().any(|cell| cell.len() > 1);
        for row in &rows {
            for at in 0..row.iter().map(Vec::len).max().unwrap_or(0) {
                let mut line = String::new();
                for (cell, width) in row.iter().zip(&widths) {
                    let text = cell.get(at).map_or("", String::as_str);
                    let blanks = " ".repeat(width.saturating_sub(display_width(text)) + GAP);
                    line += &format!("{text}{blanks}");
                }
                let _ = writeln!(self.out, "{}", line.trim_end());
            }
            if apart {
                self.out.push('\n');
            }
        }
        if !apart {
            self.out.push('\n');
        }
    }
}

fn lines(cell: &str, width: usize) -> Vec<String> {
    filled(cell, "", "", width).lines().map(str::to_owned).collect()
}

/// Columns of each column: no word is cut while there is room, and the rest is shared out evenly
/// among those that have a use for it.
fn widths(rows: &[Vec<String>], width: usize) -> Vec<usize> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let wanted: Vec<usize> =
        (0..count).map(|c| cells(c).map(|cell| display_width(cell)).max().unwrap_or(0)).collect();
    let room = width.saturating_sub(GAP * (count - 1));
    let mut widths: Vec<usize> = (0..count)
        .map(|c| {
            let words = cells(c).flat_map(|cell| cell.split(' '));
            words.map(display_width).max().unwrap_or(0)
        })
        .collect();
    if widths.iter().sum::<usize>() > room {
        widths.fill(room / count);
    }
    let mut spare = room - widths.iter().sum::<usize>();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|c| wanted[*c].saturating_sub(widths[*c]));
    for (done, c) in order.into_iter().enumerate() {
        let more = wanted[c].saturating_sub(widths[c]).min(spare / (count - done));
        widths[c] += more;
        spare -= more;
    }
    widths
}

// How does a study's file fit a terminal? Comments, sentences and lists that are too wide take several
// lines. The file means the same: it can be copied from the screen.

/// TOML in lines of at most `width` columns, where TOML allows to break them.
pub(super) fn toml(text: &str, width: usize) -> String {
    let mut within = None;
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let whole = within.is_none();
        if whole && let Some(lead) = comment(line) {
            // A paragraph is wrapped as a whole, or not at all.
            let mut block = vec![line];
            while let Some(next) = lines.next_if(|next| comment(next) == Some(lead)) {
                block.push(next);
            }
            let fits = |line: &&str| display_width(line) <= width;
            let words: Vec<&str> = block.iter().map(|line| line[lead.len()..].trim()).collect();
            out += &if block.iter().all(fits) {
                block.join("\n")
            } else {
                filled(&words.join(" "), lead, lead, width)
            };
            out.push('\n');
            continue;
        }
        within = after(line, within);
        let narrow = (whole && within.is_none() && display_width(line) > width)
            .then(|| narrow(line, width))
            .flatten();
        out += narrow.as_deref().unwrap_or(line);
        out.push('\n');
    }
    out
}

/// What a comment begins with, up to its first word; `None`: it is no comment, or an empty one.
fn comment(line: &str) -> Option<&str> {
    let words = line.trim_start().strip_prefix('#')?.trim_start();
    (!words.is_empty()).then(|| &line[..line.len() - words.len()])
}

/// Whether the line after this one is inside a string of several lines, and what ends it.
fn after(line: &str, within: Option<&'static str>) -> Option<&'static str> {
    let opens = |line: &str| {
        let quotes = ["\"\"\"", "'''"].into_iter();
        quotes.filter_map(|quote| Some((line.find(quote)?, quote))).min()
    };
    match within {
        Some(quote) => (!line.contains(quote)).then_some(quote),
        None if line.trim_start().starts_with('#') => None,
        None => opens(line)
            .filter(|(at, quote)| !line[at + quote.len()..].contains(quote))
            .map(|(_, quote)| quote),
    }
}

/// None: there is no place to break the line.
fn narrow(line: &str, width: usize) -> Option<String> {
    let indent = &line[..line.len() - line.trim_start().len()];
    let (key, value) = line.split_once(" = ")?;
    let value = value.trim_end();
    if let Some(items) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        // Quoted commas, tables and lists inside it: it stays as it is.
        let plain = !items.contains(['[', '{', '#', '\'', '\\'])
            && items.split(", ").all(|item| !item.contains(',') && is_whole(item));
        let inner = format!("{indent}  ");
        return plain
            .then(|| format!("{key} = [\n{}\n{indent}]", filled(items, &inner, &inner, width)));
    }
    let sentence = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))?;
    // Blanks at a break would be lost.
    if !is_whole(value) || sentence.contains("  ") || sentence.trim() != sentence {
        return None;
    }
    // Room for a backslash, or for the three quotes at the end.
    let lines = filled(sentence, "", "", width.saturating_sub(3));
    Some(format!("{key} = \"\"\"\\\n{}\"\"\"", lines.replace('\n', " \\\n")))
}

/// Whether this is one string, or has no quote at all.
fn is_whole(item: &str) -> bool {
    let bare = item.replace("\\\\", "").replace("\\\"", "");
    let quotes = bare.matches('"').count();
    quotes == 0 || quotes == 2 && bare.starts_with('"') && bare.ends_with('"')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies;
    use tcptoll_core::study::Study;

    fn plain(text: &str) -> String {
        markdown(text, TextStyle { colour: false, width: 60 })
    }

    #[test]
    fn paragraphs_lists_and_code_are_laid_out_within_the_width() {
        let text = "## Title\n\n**What it is.** A word, another word and `listen(2)`; these make\nmore \
                    than one line of it.\n\n1. First, which is a long item of a list and has to go on.\n\
                    2. See [there](#there) and [that](guide/that.md).\n\n```sh\nss -lnt\n```\n";
        assert_eq!(
            plain(text),
            "Title\n\nWhat it is. A word, another word and `listen(2)`; these make\nmore than one \
             line of it.\n\n1. First, which is a long item of a list and has to go on.\n2. See there \
             and that (docs/guide/that.md).\n\n    ss -lnt\n"
        );
    }

    #[test]
    fn cells_of_a_table_are_wrapped_beside_each_other_and_no_word_is_cut() {
        let text = "| a | what it says |\n| --- | --- |\n| `net.ipv4.tcp_retries2` | a long \
                    sentence that does not fit beside its name |\n| `x` | short |\n";
        assert_eq!(
            plain(text),
            "a                        what it says\n\n\
             `net.ipv4.tcp_retries2`  a long sentence that does not fit\n\
             \x20                        beside its name\n\n\
             `x`                      short\n"
        );
        // Nothing to wrap: no empty lines; a heading without words is none.
        assert_eq!(plain("| | |\n| --- | --- |\n| a | b |\n| cc | d |\n"), "a   b\ncc  d\n");
    }

    #[test]
    fn words_stand_out_one_by_one_and_take_no_columns() {
        let text = markdown("**Who is it.** Me.", TextStyle { colour: true, width: 60 });
        let bold = |word: &str| format!("\u{1b}[1m{word}\u{1b}[0m");
        assert_eq!(text, format!("{} {} {} Me.\n", bold("Who"), bold("is"), bold("it.")));
    }

    #[test]
    fn every_study_fits_80_columns_and_means_the_same() {
        for (name, text) in studies::BUILT_IN {
            let shown = toml(text, 80);
            let widest = shown.lines().map(display_width).max();
            assert!(widest <= Some(80), "{name}: {widest:?}\n{shown}");
            assert_eq!(Study::from_toml(&shown), Study::from_toml(text), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_broken_without_another_meaning_stays_as_it_is() {
        for line in [
            "question = \"two  blanks between two words of it\"",
            "question = \"a\" # \"and a remark behind the sentence\"",
            "factors = [\"a, with a comma inside of it\", \"b\", \"c\"]",
            "arm = { name = \"a table on one line\", count = 5 }",
        ] {
            assert_eq!(toml(line, 20), format!("{line}\n"));
        }
        let several = "answer = \"\"\"\n# no comment but a line of the sentence\n\"\"\"\n";
        assert_eq!(toml(several, 20), several);
    }

    #[test]
    fn comments_sentences_and_lists_are_wrapped() {
        let text = "# one two three four five\n# six\n#   seven\nx = \"one two three four\"\nl = [1, 2, 3, 4, 5, 6, 7]\n";
        assert_eq!(
            toml(text, 16),
            "# one two three\n# four five six\n#   seven\nx = \"\"\"\\\none two three \\\nfour\"\"\"\nl = [\n  1, 2, 3, 4, \
             5,\n  6, 7\n]\n"
        );
    }
}
