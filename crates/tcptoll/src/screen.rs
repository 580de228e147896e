//! The terminal: its width, its colours, its characters, and where a line of words ends.

use console::Term;
use textwrap::core::display_width;

use tcptoll_show::TextStyle;

/// How text is to look on stdout: colour only on a terminal and without `NO_COLOR`.
pub(crate) fn style() -> TextStyle {
    let term = Term::stdout();
    let width = term.size_checked().map(|(_, columns)| usize::from(columns));
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    TextStyle { colour: term.is_term() && wanted, width: width.unwrap_or(80) }
}

/// Whether somebody sees on stderr what a run is doing.
pub(crate) fn shows_progress(quiet: bool) -> bool {
    !quiet && Term::stderr().is_term()
}

/// Columns of the terminal that stdout is; `None`: it is none.
pub(crate) fn terminal() -> Option<usize> {
    let term = Term::stdout();
    term.is_term().then(|| usize::from(term.size().1))
}

/// Text for people in the characters of their locale: ASCII where that has no Unicode.
pub(crate) fn in_locale(text: &str) -> String {
    if has_unicode() { text.to_owned() } else { tcptoll_show::ascii(text) }
}

/// Whether the locale has Unicode. Where no variable names a locale, as in most containers, it is taken to have it.
pub(crate) fn has_unicode() -> bool {
    let value = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let named = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(value);
    named.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Lines longer than this are hard to read; help is as wide.
const WIDTH_MAX: usize = 100;
/// Tables need some room, also on a terminal that has less.
const WIDTH_MIN: usize = 60;

/// Columns that words take on a terminal of this width.
pub(crate) fn room(width: usize) -> usize {
    width.clamp(WIDTH_MIN, WIDTH_MAX)
}

/// One paragraph in lines of at most `width` columns, each with its indent.
pub(crate) fn filled(text: &str, first: &str, others: &str, width: usize) -> String {
    textwrap::fill(text, options(width).initial_indent(first).subsequent_indent(others))
}

/// A text of several lines: lines that are too long are wrapped and keep their indent. A path that is
/// longer than a line stays in one piece, so that it can be copied.
pub(crate) fn narrowed(text: &str, width: usize) -> String {
    let narrow = |line: &str| {
        if display_width(line) <= width {
            return line.to_owned();
        }
        let words = line.trim_start_matches(' ');
        let indent = " ".repeat(line.len() - words.len());
        let options = options(width).initial_indent(&indent).subsequent_indent(&indent);
        textwrap::fill(words, options.break_words(false))
    };
    text.split('\n').map(narrow).collect::<Vec<_>>().join("\n")
}

/// `text` in at most `width` columns; what is left out of its end becomes `…`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += display_width(c.encode_utf8(&mut [0; 4]));
        used <= width
    };
    let begin: String = text.chars().take_while(fits).collect();
    begin + "…"
}

fn options<'a>(width: usize) -> textwrap::Options<'a> {
    // Names are looked for, and pasted: `keep-alive` stays in one piece.
    textwrap::Options::new(width).word_splitter(textwrap::WordSplitter::NoHyphenation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_with_their_indent_and_short_ones_stay_as_they_are() {
        let text = "error: one two three four\n\n  tip: five six seven eight\nshort  line\n";
        assert_eq!(
            narrowed(text, 16),
            "error: one two\nthree four\n\n  tip: five six\n  seven eight\nshort  line\n"
        );
    }

    #[test]
    fn a_sentence_loses_its_end() {
        assert_eq!(
            [cut("one two", 7), cut("one two", 6), cut("日本語", 4)],
            ["one two", "one t…", "日…"]
        );
    }

    #[test]
    fn a_path_longer_than_a_line_stays_in_one_piece() {
        let text = narrowed("record /a/long-folder/with-a-long-name/run.jsonl: not there", 20);
        assert_eq!(text, "record\n/a/long-folder/with-a-long-name/run.jsonl:\nnot there");
    }

    #[test]
    fn colours_take_no_columns() {
        let text = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m one two";
        assert_eq!(narrowed(text, 14), text);
    }
}
