//! What to change, in the words of `docs/causes.md`.
//!
//! A section of the page has its remedies as paragraphs that begin with ``**Remedy `name`.**``, each with a list of
//! what to type, what it does, what it costs and how to undo it. Words in capitals, like `BACKLOG`, stand for values of
//! the machine or of the run.

use std::sync::LazyLock;

use super::Remedy;

/// The page.
pub const CAUSES: &str = include_str!("../../causes.md");

/// How the paragraph of a remedy begins.
const BEGINS: &str = "**Remedy `";

/// Remedies with their section and name, in the order of the page.
static ALL: LazyLock<Vec<((&str, &str), Remedy)>> = LazyLock::new(|| {
    let sections = CAUSES.split("\n## ").skip(1).filter_map(|text| text.split_once('\n'));
    let of = |(title, body): (&'static str, &'static str)| {
        let title = title.trim_matches('`');
        let remedies = body.split(BEGINS).skip(1);
        remedies.filter_map(move |text| {
            let (name, text) = text.split_once("`.**")?;
            Some(((title, name), read(text)))
        })
    };
    sections.flat_map(of).collect()
});

fn read(text: &str) -> Remedy {
    let mut blocks = text.split("\n\n");
    let mut remedy =
        Remedy { change: plain(blocks.next().unwrap_or_default()), ..Remedy::default() };
    let list = blocks.next().filter(|block| block.starts_with("- ")).unwrap_or_default();
    let items = list.strip_prefix("- ").into_iter().flat_map(|list| list.split("\n- "));
    for (label, text) in items.filter_map(|item| item.split_once(": ")) {
        match label {
            "Command" => remedy.commands.push(plain(text)),
            "Effect" => remedy.effect = plain(text),
            "Cost" => remedy.cost = plain(text),
            "Undo" => remedy.undo = plain(text),
            "Not if" => remedy.not_if = plain(text),
            _ => {}
        }
    }
    if remedy.commands.iter().any(|line| line.starts_with("sysctl -w ")) {
        remedy.cost += NEXT_BOOT;
    }
    remedy
}

/// What a sysctl costs besides.
const NEXT_BOOT: &str = " It lasts until the next boot; a file in /etc/sysctl.d/ makes it stay.";

/// Text in one line, without the marks of Markdown.
fn plain(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = words.join(" ").replace('`', "");
    // A reference is the name that it shows.
    while let Some((before, rest)) = line.split_once('[')
        && let Some((name, rest)) = rest.split_once("](")
        && let Some((_, after)) = rest.split_once(')')
    {
        line = format!("{before}{name}{after}");
    }
    line
}

impl Remedy {
    /// A remedy of a cause by its name in the page.
    pub fn named(cause: &str, name: &str) -> Self {
        let found = ALL.iter().find(|(names, _)| *names == (cause, name));
        debug_assert!(found.is_some(), "docs/causes.md has no remedy {name} of {cause}");
        found.map(|(_, remedy)| remedy.clone()).unwrap_or_default()
    }

    /// The first remedy of a cause.
    pub fn first_of(cause: &str) -> Option<Self> {
        ALL.iter().find(|((of, _), _)| *of == cause).map(|(_, remedy)| remedy.clone())
    }

    /// Without a sysctl, where it needs no change.
    #[must_use]
    pub fn without_sysctl(mut self) -> Self {
        self.commands.retain(|line| !line.starts_with("sysctl -w "));
        self.cost = self.cost.replace(NEXT_BOOT, "");
        self
    }

    /// With another that may be taken instead.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        let parts = [
            (&mut self.change, other.change),
            (&mut self.effect, other.effect),
            (&mut self.cost, other.cost),
            (&mut self.undo, other.undo),
        ];
        for (text, more) in parts.into_iter().filter(|(_, more)| !more.is_empty()) {
            let or = if text.is_empty() { "" } else { " Or: " };
            *text += &format!("{or}{more}");
        }
        self.commands.extend(other.commands);
        self
    }

    /// With values for its words in capitals.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a caller writes a figure or a text as it is"
    )]
    pub fn with(mut self, word: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        let Self { change, commands, effect, cost, undo, not_if, .. } = &mut self;
        let parts = [change, effect, cost, undo, not_if];
        for text in parts.into_iter().chain(commands) {
            *text = replaced(text, word, &value);
        }
        self
    }
}

/// Replaces a word where it stands alone.
fn replaced(text: &str, word: &str, value: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let alone = !before.ends_with(is_part) && !after.starts_with(is_part);
        out += before;
        out += if alone { value } else { word };
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_remedy_says_what_to_change_what_it_costs_and_how_to_undo_it() {
        assert!(!ALL.is_empty());
        for ((cause, name), remedy) in ALL.iter() {
            for (field, text) in
                [("change", &remedy.change), ("cost", &remedy.cost), ("undo", &remedy.undo)]
            {
                assert!(text.ends_with(['.', '?']), "{cause}, {name}: {field} is {text:?}");
            }
            for text in [&remedy.change, &remedy.effect, &remedy.cost, &remedy.undo] {
                assert!(
                    !text.contains(['`', '[']) && !text.contains("  "),
                    "{cause}, {name}: {text}"
                );
            }
        }
    }

    #[test]
    fn a_word_is_replaced_where_it_stands_alone() {
        assert_eq!(replaced("x=N; NAME N", "N", "4"), "x=4; NAME 4");
        assert_eq!(replaced("sysctl -w a=N", "N", "1 2"), "sysctl -w a=1 2");
    }

    #[test]
    fn text_has_no_marks() {
        assert_eq!(plain("Set `a=1`, as in\n  [b](#b)."), "Set a=1, as in b.");
    }
}
