//! Where does a line of words end? At the width of the terminal, between words; help is as wide.

use textwrap::core::display_width;

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
