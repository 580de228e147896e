//! Which characters reach the reader, and how many columns do they take? Names, errors and banners may come from a
//! hostile peer, so whatever writes a form cleans them. Escaping for HTML is done in `sheet` and `svg`.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use tcptoll_core::printable::{line, lines};

/// Columns that `text` takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// `text` in at most `width` columns; what is left out of the middle becomes `…`.
///
/// The middle goes because names of arms differ at their beginning or at their end.
pub fn shorten(text: &str, width: usize) -> String {
    let text = line(text);
    if columns(&text) <= width {
        return text;
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
pub fn shorten_all(names: &[&str], width: usize) -> Vec<String> {
    let short: Vec<String> = names.iter().map(|name| shorten(name, width)).collect();
    short
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let others = short.iter().zip(names).filter(|(other, _)| *other == name);
            if others.filter(|(_, whole)| **whole != names[at]).count() == 0 {
                return name.clone();
            }
            let mark = format!("#{} ", at + 1);
            let rest = width.saturating_sub(columns(&mark));
            format!("{mark}{}", shorten(names[at], rest))
        })
        .collect()
}

/// A number and its unit stay on one line.
pub(crate) fn keep_units(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split(' ') {
        let unit =
            matches!(word.trim_matches(|c: char| ".,;:()".contains(c)), "µs" | "ms" | "s" | "%");
        let after_digit = out.ends_with(|c: char| c.is_ascii_digit());
        if !out.is_empty() {
            out.push(if unit && after_digit { '\u{a0}' } else { ' ' });
        }
        out.push_str(word);
    }
    out
}

// Text for a terminal whose locale has no Unicode.

/// `text` in ASCII. A sign that becomes longer takes the room of spaces before it, so that most columns stay in place.
#[must_use]
pub fn ascii(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            plain.push(c);
            continue;
        }
        let sign = sign(c);
        for _ in 1..sign.len() {
            if plain.ends_with("  ") {
                plain.pop();
            }
        }
        plain.push_str(sign);
    }
    plain
}

/// A sign of the reports in ASCII; `?` for letters of other scripts, which only names have.
fn sign(c: char) -> &'static str {
    match c {
        'µ' | 'μ' => "u",
        '×' => "x",
        '÷' => "/",
        '±' => "+-",
        '≤' => "<=",
        '≥' => ">=",
        '√' => "sqrt ",
        '²' => "^2",
        '³' => "^3",
        '…' => "...",
        '→' => "->",
        '←' => "<-",
        '↑' => "^",
        '↓' => "v",
        '›' | '▶' => ">",
        '·' | '–' | '—' | '−' | '─' | '━' | '▄' => "-",
        '│' | '┃' | '┊' | '┆' => "|",
        // The other lines of boxes are corners and crossings.
        '▆' | '\u{2500}'..='\u{257f}' => "+",
        '●' | '•' | '▇' => "*",
        '▁' => "_",
        '▂' | '▏' | '▎' => ".",
        '▃' | '▍' | '▌' => ":",
        '▅' | '▋' | '▊' => "=",
        '█' | '▉' => "#",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn signs_become_ascii_and_longer_ones_take_the_room_of_spaces() {
        assert_eq!(ascii("12 µs · 2× – … → ±5 —"), "12 us - 2x - ... -> +-5 -");
        assert_eq!(ascii("http     ≤ 7,578\n"), "http    <= 7,578\n");
        assert_eq!(ascii("a ≥ b"), "a >= b");
        assert_eq!(ascii("▁▂▃▄▅▆▇█ │├─┤ é接"), "_.:-=+*# |+-+ ??");
        assert_eq!(ascii("\u{1b}[1mplain\u{1b}[0m"), "\u{1b}[1mplain\u{1b}[0m");
    }
}
