//! Text for a terminal whose locale has no Unicode.

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
    fn signs_become_ascii_and_longer_ones_take_the_room_of_spaces() {
        assert_eq!(ascii("12 µs · 2× – … → ±5 —"), "12 us - 2x - ... -> +-5 -");
        assert_eq!(ascii("http     ≤ 7,578\n"), "http    <= 7,578\n");
        assert_eq!(ascii("a ≥ b"), "a >= b");
        assert_eq!(ascii("▁▂▃▄▅▆▇█ │├─┤ é接"), "_.:-=+*# |+-+ ??");
        assert_eq!(ascii("\u{1b}[1mplain\u{1b}[0m"), "\u{1b}[1mplain\u{1b}[0m");
    }
}
