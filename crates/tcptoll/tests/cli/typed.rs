//! The lines of `lines.rs`: each answer names the problem and the remedy, and no
//! option that there is not.

use std::collections::BTreeSet;

use crate::lines::{LINES, words};
use crate::refused::refused;
use crate::tcptoll;

#[test]
fn a_wrong_line_is_answered_with_the_problem_and_the_remedy() {
    assert!(LINES.len() >= 100, "{}", LINES.len());
    for (line, says) in LINES {
        let args = words(line);
        for part in *says {
            refused(&args, part);
        }
    }
}

#[test]
fn no_answer_names_an_option_that_there_is_not() {
    let reference = include_str!("../../../../docs/reference/cli.md");
    let known: BTreeSet<&str> = options(reference).collect();
    for (line, _) in LINES {
        let args = words(line);
        let said = tcptoll(&args).stderr;
        for option in options(&said).filter(|option| !line.contains(option)) {
            assert!(known.contains(option), "{line}: {option} in {said}");
        }
    }
}

/// Every `--option` of a text.
fn options(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("--").filter_map(|(at, _)| {
        let name = &text[at + 2..];
        let end = name.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-');
        let name = &name[..end.unwrap_or(name.len())];
        let begins = !text[..at].ends_with(|c: char| c == '-' || c.is_ascii_alphanumeric());
        (begins && name.starts_with(|c: char| c.is_ascii_lowercase()))
            .then(|| name.trim_end_matches('-'))
    })
}
