//! How does a study's file fit a terminal? Comments, sentences and lists that are too wide take several
//! lines. The file means the same: it can be copied from the screen.

use textwrap::core::display_width;

use crate::wrap::filled;

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
    use tcptoll_core::study::Study;

    use super::*;
    use crate::studies;

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
