//! The terminal text of the golden summaries, at 80 columns and without colour.

mod golden;

use std::path::Path;

use golden::{NAMES, load};
use tcptoll_report::{TextStyle, text};

const RECORD: &str = "/home/me/.local/share/tcptoll/connect-20261121-2104.jsonl";

fn plain(name: &str) -> String {
    text(&load(name), Some(Path::new(RECORD)), TextStyle::default())
}

#[test]
fn one_arm() {
    insta::assert_snapshot!(plain("one-arm"));
}

#[test]
fn nine_arms() {
    insta::assert_snapshot!(plain("nine-arms"));
}

#[test]
fn failure() {
    insta::assert_snapshot!(plain("failure"));
}

#[test]
fn no_string_of_a_summary_reaches_the_terminal_as_a_control() {
    let text = plain("hostile");
    let bad = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.chars().any(bad), "{text:?}");
    // A forged line would begin at the margin.
    assert!(!text.lines().any(|line| line.starts_with("<img")), "{text}");
}

#[test]
fn no_line_but_a_command_to_copy_is_wider_than_the_terminal() {
    for name in NAMES {
        for width in [80, 100, 132] {
            let style = TextStyle { colour: false, width };
            let text = text(&load(name), None, style);
            let wide = text.lines().find(|line| {
                !line.contains("tcptoll ") && unicode_width::UnicodeWidthStr::width(*line) > width
            });
            assert!(wide.is_none() || name == "hostile", "{name} at {width}: {wide:?}");
        }
    }
}

#[test]
fn colour_adds_nothing_but_colour() {
    for name in NAMES {
        let summary = load(name);
        let coloured = text(&summary, None, TextStyle { colour: true, width: 80 });
        let mut without = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            without += before;
            rest = after.split_once('m').expect("a colour ends in m").1;
        }
        without += rest;
        assert_eq!(without, text(&summary, None, TextStyle::default()), "{name}");
    }
}
