//! Text of others without what steers a terminal: names, errors, banners and configurations may come from a
//! hostile process or peer.
//!
//! Names of a live machine are cleaned where they are read, so that the screen, the record, the metrics and
//! printed JSON agree. When each way of printing cleaned them for itself, the JSON object and the record
//! still held raw control characters that the evidence next to them did not. Everything else is cleaned
//! before it is shown. Nothing is escaped for HTML here.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A copy whose every string and key is one [`line()`].
///
/// Errors: a figure that is not a number cannot be represented, so there is no copy.
pub fn copy<T: Serialize + DeserializeOwned>(part: &T) -> Result<T, serde_json::Error> {
    let mut value = serde_json::to_value(part)?;
    walk(&mut value);
    serde_json::from_value(value)
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
#[must_use]
pub fn line(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    text.chars()
        .filter(|&c| !invisible(c))
        .map(|c| match c {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' | '\u{85}' => ' ',
            c if c.is_control() => '·',
            c => c,
        })
        .collect()
}

/// As [`line()`], for a text of several: line feeds and tabs stay, of CR LF the line feed.
#[must_use]
pub fn lines(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let clean = |one: &str| {
        let cells: Vec<String> =
            one.strip_suffix('\r').unwrap_or(one).split('\t').map(line).collect();
        cells.join("\t")
    };
    text.split('\n').map(clean).collect::<Vec<_>>().join("\n")
}

/// Whether every byte is a printable one of ASCII, as in most texts: a page has many thousands.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Characters that change the direction or the look of others, and show nothing themselves.
fn invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// JSON of the same meaning whose bytes steer no terminal: that which would is escaped by its number.
#[must_use]
pub fn json(text: &str) -> String {
    let steers = |c: char| c == '\u{7f}' || (c > '\u{7f}' && (c.is_control() || invisible(c)));
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            let mut units = [0; 2];
            safe.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// One argument of a command line for a POSIX shell, quoted if it needs to be.
pub fn shell_argument(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(safe) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_cannot_move_the_cursor_or_turn_the_text_round() {
        assert_eq!(line("a\u{1b}[31mb\nc\u{202e}d\u{9b}2J\u{0}"), "a·[31mb cd·2J·");
    }

    #[test]
    fn json_of_what_steers_a_terminal_is_plain_and_means_the_same() {
        let text = serde_json::to_string("a\u{9b}31m\u{202e}é\u{e0041}\n").unwrap();
        let plain = json(&text);
        assert_eq!(plain, r#""a\u009b31m\u202eé\udb40\udc41\n""#);
        let read: String = serde_json::from_str(&plain).unwrap();
        assert_eq!(read, "a\u{9b}31m\u{202e}é\u{e0041}\n");
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
    fn every_string_and_key_of_a_part_is_cleaned_and_figures_stay() {
        let part =
            serde_json::json!({"a\u{9b}": ["b\u{202e}\u{200b}", 7, null], "c": {"d": "\u{7f}"}});
        let clean = serde_json::json!({"a·": ["b", 7, null], "c": {"d": "·"}});
        assert_eq!(copy(&part).unwrap(), clean);
        assert!(copy(&f64::NAN).is_err(), "a figure that is no number has no copy");
    }
}
