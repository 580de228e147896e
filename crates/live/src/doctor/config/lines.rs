//! Files of lines: `name value …`, in sections that a word or `[name]` opens, with included files in their places.

use super::ConfigPosition;
use super::reading::{Reading, place, words};

/// How a program writes its lines.
pub(super) struct Grammar {
    /// The words of a line; the first is a directive's name, or opens a section.
    pub(super) words: fn(&str) -> Vec<String>,
    /// Whether this word opens a section.
    pub(super) opens: fn(&str) -> bool,
    /// Paths and patterns that a directive of the file at this path includes.
    pub(super) includes: Includes,
}

/// Of the path, the name and the values.
type Includes = fn(&Reading<'_>, &str, &str, &[String]) -> Option<Vec<String>>;

/// A line with words.
pub(super) struct Line<'l> {
    /// Words of the line that opened the section; none before the first section of a file.
    pub(super) section: &'l [String],
    /// Whether this line opened it.
    pub(super) opens: bool,
    pub(super) name: &'l str,
    pub(super) values: &'l [String],
    pub(super) at: ConfigPosition,
}

/// Passes each line of a file, and of those that it includes, to `take`.
pub(super) fn lines(
    reading: &mut Reading<'_>,
    grammar: &Grammar,
    (path, depth): (&str, usize),
    take: &mut dyn FnMut(&Line<'_>),
) {
    let Some(text) = reading.text(path) else { return };
    let mut section = Vec::new();
    for (number, content) in text.lines().enumerate() {
        let words = (grammar.words)(content);
        let Some((name, values)) = words.split_first() else { continue };
        if let Some(patterns) = (grammar.includes)(reading, path, name, values) {
            for pattern in patterns {
                for file in reading.included(&pattern, depth, false) {
                    lines(reading, grammar, (&file, depth + 1), take);
                }
            }
            continue;
        }
        let opens = (grammar.opens)(name);
        if opens {
            section.clone_from(&words);
        }
        take(&Line { section: &section, opens, name, values, at: place(path, number) });
    }
}

/// Words of a line that are separated by white space; `#` begins a comment.
pub(super) fn plain(line: &str) -> Vec<String> {
    words(line, Some('#'))
}

/// `[name]` as two words, `name = value` too, without the quotes of a value and the comment behind it;
/// `!name value` as it is.
pub(super) fn ini(line: &str, quotes: &[char], comment: &str) -> Vec<String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Vec::new();
    }
    if let Some(name) = line.strip_prefix('[') {
        return vec!["[".to_owned(), name.split(']').next().unwrap_or(name).trim().to_owned()];
    }
    let is_order = line.starts_with('!');
    let by = if is_order { char::is_whitespace } else { |c| c == '=' };
    let split = line.split_once(by).or_else(|| is_order.then_some((line, "")));
    let Some((name, value)) = split else { return vec![line.to_owned()] };
    let value = value.trim();
    let value = match value.strip_prefix(quotes) {
        _ if is_order => value,
        Some(rest) => rest.split(quotes).next().unwrap_or(rest),
        None => value.split(comment).next().unwrap_or(value).trim(),
    };
    vec![name.trim().to_owned(), value.to_owned()]
}
