//! Which characters of a summary reach the reader? Names, errors and banners may come from a
//! hostile peer, so one place cleans all of them before any report looks at them.
//!
//! Escaping for HTML is not done here: the template engine does it, and `html::svg` for pictures.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tcptoll_model::record::Summary;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A copy whose every string and key is without control and direction characters.
///
/// Errors: a figure that is not a number cannot be represented, so there is no copy.
pub(crate) fn summary(summary: &Summary) -> Result<Summary, serde_json::Error> {
    of(summary)
}

/// As [`summary`], for any part of one.
pub(crate) fn of<T: Serialize + DeserializeOwned>(part: &T) -> Result<T, serde_json::Error> {
    let mut value = serde_json::to_value(part)?;
    walk(&mut value);
    serde_json::from_value(value)
}

/// What to say when [`summary`] failed.
pub(crate) fn cannot_show(error: &serde_json::Error) -> String {
    let reason = line(&error.to_string());
    format!(
        "error: the summary cannot be shown: a figure in it is missing or not a number ({reason})"
    )
}

fn walk(value: &mut Value) {
    match value {
        Value::String(text) => *text = line(text),
        Value::Array(items) => items.iter_mut().for_each(walk),
        Value::Object(map) => {
            let entries = std::mem::take(map);
            for (key, mut item) in entries {
                walk(&mut item);
                map.insert(line(&key), item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// One line of plain characters: controls become `·`, white space a blank, invisible ones go.
pub(crate) fn line(text: &str) -> String {
    text.chars()
        .filter(|&c| !invisible(c))
        .map(|c| match c {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' | '\u{85}' => ' ',
            c if c.is_control() => '·',
            c => c,
        })
        .collect()
}

/// As [`line`], for a text of several: line feeds and tabs stay, of CR LF the line feed.
pub(crate) fn lines(text: &str) -> String {
    let clean = |one: &str| {
        let cells: Vec<String> =
            one.strip_suffix('\r').unwrap_or(one).split('\t').map(line).collect();
        cells.join("\t")
    };
    text.split('\n').map(clean).collect::<Vec<_>>().join("\n")
}

/// Characters that change the direction or the look of others, and show nothing themselves.
fn invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Columns that `text` takes on a terminal.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// `text` in at most `width` columns; what is left out of the middle becomes `…`.
///
/// The middle goes because names of arms differ at their beginning or at their end.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let tail_room = room * 3 / 5;
    let tail: Vec<char> = take(text.chars().rev(), tail_room);
    let head = take(text.chars(), room - tail_room);
    head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect()
}

fn take(chars: impl Iterator<Item = char>, width: usize) -> Vec<char> {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

/// `names` in at most `width` columns each, still all different if they were.
pub(crate) fn shorten_all(names: &[&str], width: usize) -> Vec<String> {
    let short: Vec<String> = names.iter().map(|name| shorten(name, width)).collect();
    short
        .iter()
        .enumerate()
        .map(|(at, name)| {
            if short.iter().filter(|other| *other == name).count() < 2 {
                return name.clone();
            }
            let mark = format!("#{} ", at + 1);
            let rest = width.saturating_sub(columns(&mark));
            format!("{mark}{}", shorten(names[at], rest))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_cannot_move_the_cursor_or_turn_the_text_round() {
        assert_eq!(line("a\u{1b}[31mb\nc\u{202e}d\u{9b}2J\u{0}"), "a·[31mb cd·2J·");
    }

    #[test]
    fn lines_and_tabs_stay_where_a_text_has_several() {
        assert_eq!(lines("a\tb\r\nc\rd\u{1b}[2J\n\u{2067}e\u{85}\n"), "a\tb\nc d·[2J\ne \n");
    }

    #[test]
    fn no_control_of_direction_is_left() {
        let marks = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        assert_eq!((line(marks), lines(marks)), (String::new(), String::new()));
    }

    #[test]
    fn the_middle_goes_and_wide_letters_count_twice() {
        assert_eq!(shorten("link=cross-region backlog=4096", 16), "link=c…klog=4096");
        // Head of 3 columns takes one wide letter, tail of 3 another.
        assert_eq!(shorten("接続接続接続接続", 7), "接…続");
        assert_eq!(shorten("short", 16), "short");
    }

    #[test]
    fn shortened_names_stay_different() {
        let names = ["aaaaaaaa-1-zzzzzzzz", "aaaaaaaa-2-zzzzzzzz"];
        assert_eq!(shorten_all(&names, 10), ["#1 aaa…zzz", "#2 aaa…zzz"]);
    }
}
