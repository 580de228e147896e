//! What is wrong with a study: on which line, at which key, and what to write instead.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::units::echo;

/// The most arms one study may have; a product of factors explodes quietly otherwise.
pub const ARMS_MAX: usize = 256;

/// Why a study cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// Not TOML.
    #[error("invalid TOML: {0}")]
    Toml(String),
    /// Too many arms.
    #[error("{arms} arms, at most {ARMS_MAX} are allowed ({product}); remove levels")]
    TooManyArms {
        /// How many the product makes.
        arms: usize,
        /// The product, as text.
        product: String,
    },
    /// A key that is not known, is missing, or holds what it cannot.
    #[error("{key}{}: {problem}", after_blank(.said))]
    Key {
        /// Where, from the top of the study: `rounds.target`, `compare[2].against`, counted from 1.
        key: String,
        /// What stands there, as far as it helps; may be empty.
        said: String,
        /// What is wrong with it and what to write, one clause.
        problem: String,
    },
    /// Any of these, found on a line of a study file.
    #[error("line {line}: {error}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong there.
        error: Box<StudyError>,
    },
}

fn after_blank(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" {said}") }
}

impl StudyError {
    /// A problem with a key.
    pub fn key(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Key { key: key.into(), said: String::new(), problem: problem.into() }
    }

    /// A problem with the text that stands at a key.
    pub fn text(key: impl Into<String>, text: &str, problem: impl Into<String>) -> Self {
        let said = format!("\"{}\"", echo(text));
        Self::Key { key: key.into(), said, problem: problem.into() }
    }

    /// The same with the line of `text`, a study file, on which its key stands.
    ///
    /// Unchanged if it has a line already, or `text` does not have the key.
    #[must_use]
    pub fn in_text(self, text: &str) -> Self {
        let line = match &self {
            Self::Line { .. } | Self::Toml(_) => None,
            Self::TooManyArms { .. } => line_of(text, "factors").or_else(|| line_of(text, "arm")),
            Self::Key { key, .. } => line_of(text, key),
        };
        match line {
            Some(line) => Self::Line { line, error: Box::new(self) },
            None => self,
        }
    }
}

/// The line, from 1, on which the deepest part of `key` stands that `text` has.
///
/// `None` if it has not even the first part, or is not TOML.
pub fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let mut line = None;
    for part in key.split('.') {
        let (name, number) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
            Some((name, number)) => (name, number.parse::<usize>().ok()),
            None => (part, None),
        };
        let Some((written, value)) = table.iter().find(|(key, _)| *key.get_ref() == name) else {
            break;
        };
        line = Some(line_at(text, written.span().start));
        let mut value = value;
        if let (Some(number), DeValue::Array(items)) = (number, value.get_ref()) {
            let Some(item) = number.checked_sub(1).and_then(|at| items.get(at)) else { break };
            line = Some(line_at(text, item.span().start));
            value = item;
        }
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    line
}

/// The line, from 1, of a byte of `text`.
pub(super) fn line_at(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
}

/// The key whose value spans the byte: `rounds.fixed`. Empty if there is none.
pub(super) fn key_at(text: &str, byte: usize) -> String {
    let Ok(document) = DeTable::parse(text) else { return String::new() };
    in_table(document.get_ref(), byte).unwrap_or_default()
}

fn in_table(table: &DeTable<'_>, byte: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let name = echo(key.get_ref());
        if key.span().contains(&byte) {
            return Some(name);
        }
        in_value(value, byte).map(|inner| format!("{name}{inner}"))
    })
}

/// What follows the key: empty, `.inner`, `[2].inner`.
fn in_value(value: &Spanned<DeValue<'_>>, byte: usize) -> Option<String> {
    // The span of a table under a header is the header's, so the inside is searched first.
    let inside = match value.get_ref() {
        DeValue::Table(table) => in_table(table, byte).map(|inner| format!(".{inner}")),
        DeValue::Array(items) => items
            .iter()
            .zip(1..)
            .find_map(|(item, number)| in_value(item, byte).map(|i| format!("[{number}]{i}"))),
        _ => None,
    };
    inside.or_else(|| value.span().contains(&byte).then(String::new))
}

/// The name nearest to a mistyped one; `None` if none is near.
///
/// Near is at most a third of the letters wrong; two neighbours swapped are one wrong letter.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance of longer texts takes long, and they are no slips of the finger.
    if word.len() > 64 {
        return None;
    }
    let wrong = |name: &str| strsim::damerau_levenshtein(&word.to_lowercase(), name);
    names
        .into_iter()
        .map(|name| (wrong(name), name))
        .min()
        .filter(|(distance, _)| *distance <= (word.len() / 3).max(1))
        .map(|(_, name)| name)
}

/// Most names that are suggested for one that is none.
const SUGGESTED_MAX: usize = 5;

/// `did you mean keepalive-cost or keepalive-select?`: names that hold the word, or else the one
/// that a slip of the finger makes it; `None` if there is none.
pub fn did_you_mean(word: &str, names: &[&str]) -> Option<String> {
    let lower = word.to_lowercase();
    // One or two letters are in nearly every name.
    let holds = |name: &&&str| lower.len() >= 3 && name.contains(&lower);
    let mut alike: Vec<&str> = names.iter().filter(holds).copied().collect();
    alike.sort_by_key(|name| !name.starts_with(&lower));
    alike.truncate(SUGGESTED_MAX);
    if alike.is_empty() {
        alike.extend(nearest(word, names.iter().copied()));
    }
    let last = alike.pop()?;
    let others = alike.join(", ");
    let or = if others.is_empty() { "" } else { " or " };
    Some(format!("did you mean {others}{or}{last}?"))
}

/// `did you mean rounds?`, or else all the names there are.
pub fn suggestion(word: &str, names: &[&str]) -> String {
    match nearest(word, names.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("available: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "question = 'what?'\n\n[rounds]\nfixed = 3\n[[compare]]\nagainst = 'a'\n\
                        [[compare]]\n# a remark\nmetric = 'm'\nagainst = 'b'\n[[arm]]\nname = 'a'\n";

    #[test]
    fn a_name_that_is_none_gives_those_that_hold_it_or_the_nearest() {
        let names = ["http-keepalive", "keepalive-2003", "keepalive-cost", "tour"];
        for (word, meant) in [
            ("keepalive", Some("did you mean keepalive-2003, keepalive-cost or http-keepalive?")),
            ("KEEPALIVE-C", Some("did you mean keepalive-cost?")),
            ("toor", Some("did you mean tour?")),
            ("to", None),
            ("elsewhere", None),
        ] {
            assert_eq!(did_you_mean(word, &names).as_deref(), meant, "{word}");
        }
    }

    #[test]
    fn the_line_of_a_key_is_where_it_is_written() {
        for (key, line) in [
            ("question", 1),
            ("rounds", 3),
            ("rounds.fixed", 4),
            ("compare[1].against", 6),
            ("compare[2].metric", 9),
            ("compare[2].against", 10),
            ("arm[1].name", 12),
        ] {
            assert_eq!(line_of(FILE, key), Some(line), "{key}");
        }
    }

    #[test]
    fn a_key_that_is_not_there_has_the_line_of_what_it_would_stand_in() {
        assert_eq!(line_of(FILE, "rounds.target"), Some(3));
        assert_eq!(line_of(FILE, "compare[2].factor"), Some(7));
        assert_eq!(line_of(FILE, "answer"), None);
        assert_eq!(line_of("= no TOML", "answer"), None);
    }

    #[test]
    fn the_key_of_a_byte_is_the_innermost() {
        let at = |needle: &str| key_at(FILE, FILE.find(needle).unwrap());
        assert_eq!(at("3"), "rounds.fixed");
        assert_eq!(at("'b'"), "compare[2].against");
        assert_eq!(at("'what"), "question");
    }

    #[test]
    fn a_slip_of_the_finger_finds_its_name_and_another_word_finds_none() {
        let names = ["rounds", "compare", "margin", "metric"];
        assert_eq!(nearest("rouds", names), Some("rounds"));
        assert_eq!(nearest("comapre", names), Some("compare"));
        assert_eq!(nearest("Margin", names), Some("margin"));
        assert_eq!(nearest("telepathy", names), None);
        assert_eq!(nearest(&"m".repeat(100_000), names), None);
    }
}
