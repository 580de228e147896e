//! Whatever a peer sends: each form stays what it is, and no text becomes more than text.

use std::sync::LazyLock;

use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};
use scraper::Html;
use tcptoll_core::sheet::{
    Align, Arm, Article, Cell, Column, Forms, Note, Part, Picture, Room, Row, Sheet, Table, Tone,
};

use super::{html, markdown, parts, text};
use crate::TextStyle;
use crate::svg::{Anchor, Svg};

/// A sheet of every part in which each text, of whatever use, is `text` with the name of its place after it.
fn every_part(text: &str) -> Sheet {
    let t = |name: &str| format!("{text}{name}");
    let two = |a, b| vec![[t(a), t(b)], [t(a), t(b)]];
    let note = |about: &str, text, bad| Note {
        about: about.to_owned(),
        text: t(text),
        command: t("command"),
        bad,
    };
    let notes = || vec![note(&t("subject"), "remark", true), note("", "other remark", false)];
    let column = |head, align, room| Column { room, ..Column::new(t(head), align) };
    let cell = |name, bar| Cell {
        text: t(name),
        unit: t("unit"),
        interval: t("interval"),
        small: t("small"),
        value: Some(40.0),
        bar,
        class: t("class"),
    };
    let bar = Cell { text: String::new(), ..cell("", true) };
    let table = Table {
        columns: vec![
            column("name", Align::Left, Room::Always).under(&t("group")),
            column("figure", Align::Point, Room::Always).under(&t("group")),
            column("wide", Align::Right, Room::Wide),
            Column { whole: t("whole head"), ..column("page", Align::Right, Room::Page) },
            column("bar", Align::Left, Room::Always).gap(1),
        ],
        rows: vec![
            Row::Group { text: t("row group") },
            Row::Cells {
                cells: ["first", "1.25", "3", "page cell"]
                    .map(|name| cell(name, false))
                    .into_iter()
                    .chain([bar.clone()])
                    .collect(),
                marked: true,
            },
            Row::Cells {
                cells: ["second", "12.5", "4", "page cell", "100"]
                    .map(|name| cell(name, false))
                    .into(),
                marked: false,
            },
        ],
        sortable: true,
        note: Some(t("table note")),
    };
    let figure = |at: usize| Column::new(t(&format!("figure {at}")), Align::Right);
    let row = |name| (0..7).map(move |_| cell(name, false));
    let turned = Table {
        sortable: true,
        ..Table::new((0..7).map(figure).collect(), [row("first"), row("second")])
    };
    let mut svg = Svg::new(20.0).labelled(&t("label of the drawing"));
    svg.open_link(&t("place"));
    svg.open("arm", &t("tooltip"));
    svg.text("name", (0.0, 10.0), Anchor::Start, &t("drawn"));
    svg.close();
    svg.close_link();
    let finding = |anchor, problem| {
        Part::Finding(Box::new(Article {
            anchor: t(anchor),
            severity: t("severity"),
            problem,
            id: t("id"),
            subject: t("whom"),
            text: t("finding"),
            evidence: two("evidence", "value of evidence"),
            change: t("change"),
            commands: vec![t("how"), t("how else")],
            words: two("cost", "price"),
            proof: Some([t("verdict"), t("proof")]),
            more: two("further", "further command"),
        }))
    };
    let mut sheet = Sheet {
        title: t("title"),
        kicker: t("kicker"),
        question: t("question"),
        answer: [t("answer"), t("rest of the answer")],
        tone: Tone::Strong,
        failed: vec![t("a limit that was broken")],
        invalid: vec![t("why it is invalid")],
        doubts: vec![note(&t("subject"), "doubt", true)],
        place: vec![t("host"), t("kernel")],
        time: t("time"),
        record: Some(t("path")),
        file_name: t("file name"),
        footer: t("footer"),
        ..Sheet::default()
    };
    let long =
        "about where and how, with more words than there is room for in a line of 80 columns";
    sheet.about.put(Forms::ALL, Part::prose(0, t(long), Tone::Dim));
    sheet.lead.put(
        Forms::ALL,
        Part::Picture(Picture {
            title: t("title of the picture"),
            svg: svg.into(),
            caption: t("caption"),
            drawn: vec![Arm { name: t("arm"), class: t("class") }],
        }),
    );
    sheet.parts.extend(
        Forms::ALL,
        [
            Part::heading(t("heading")),
            Part::Title { text: t("heading below"), class: t("class") },
            Part::pieces(vec![(Tone::Client, t("piece ")), (Tone::Plain, t("other piece"))]),
            Part::Blank,
            Part::labelled(t("label"), 24, t("labelled words"), Tone::Bad),
            Part::Pairs { pairs: two("name", "value") },
            Part::Table(table),
            Part::Table(turned),
            finding("first", true),
            finding("second", false),
            Part::Notes { notes: notes() },
            Part::list(&t("doubts"), notes(), Tone::Doubt),
            Part::list(&t("list"), notes(), Tone::Plain),
            Part::Code { text: t("code\n") + &t("more code") },
            Part::Next { steps: two("command to type", "why") },
            Part::Folded {
                title: t("folded"),
                small: t("small"),
                class: t("class"),
                parts: [Tone::Plain, Tone::Strong, Tone::Dim, Tone::Bad, Tone::Doubt]
                    .map(|tone| Part::prose(2, t("words"), tone))
                    .into(),
            },
        ],
    );
    sheet
}

fn plain(width: usize) -> TextStyle {
    TextStyle { colour: false, width }
}

/// The page as far as a reader sees it.
fn seen(page: &str) -> &str {
    page.split("</main>").next().unwrap()
}

#[test]
fn every_part_is_shown_in_its_forms() {
    let sheet = every_part("the ");
    for width in [80, 120] {
        insta::assert_snapshot!(format!("every_part.{width}.txt"), text(&sheet, plain(width)));
    }
    insta::assert_snapshot!("every_part.md", markdown(&sheet));
    let page = html(sheet, &());
    insta::assert_snapshot!("every_part.html", seen(&page).split_once("<main>").unwrap().1);
}

/// What is no text: elements with their attributes.
fn elements(page: &str) -> Vec<String> {
    let document = Html::parse_document(page);
    let elements = document.tree.values().filter_map(|node| node.as_element());
    let named = elements.map(|one| {
        let mut names: Vec<&str> = one.attrs().map(|(name, _)| name).collect();
        names.sort_unstable();
        format!("{} {}", one.name(), names.join(" "))
    });
    named.collect()
}

/// What is no text: blocks, cells and marks of Markdown; and the page without its code.
fn blocks(page: &str) -> (Vec<String>, String) {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS;
    let mut outside = page.to_owned();
    let mut blocks = Vec::new();
    for (event, place) in Parser::new_ext(page, options).into_offset_iter() {
        if matches!(event, Event::Start(Tag::CodeBlock(_))) {
            outside.replace_range(place.clone(), &" ".repeat(place.len()));
        }
        if !matches!(event, Event::Text(_)) {
            blocks.push(format!("{event:?}"));
        }
    }
    (blocks, outside)
}

/// Characters that steer a terminal or turn the text round.
fn steering(text: &str) -> Option<char> {
    let turns = |c| {
        matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().find(|&c| c != '\n' && c.is_control() || turns(c))
}

const FRAGMENTS: [&str; 46] = [
    "\u{1b}[2J",
    "\u{1b}]0;title\u{7}",
    "\u{9b}1m",
    "\u{90}",
    "\0",
    "\u{7f}",
    "\u{202e}",
    "\u{2066}",
    "\u{200b}",
    "\u{feff}",
    "\u{61c}",
    "\u{2028}",
    "\n",
    "\r\n",
    "\t",
    " ",
    "     ",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</script></pre></main>",
    "<!--",
    "\"",
    "' onerror='alert(1)",
    "&lt;&#64;",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "`",
    "```",
    "~~~",
    "|",
    "\\",
    "](",
    "[a](b)",
    "![a](b)",
    "[a]: b",
    "[1, 2](",
    "[^1]",
    "[x] ",
    "@name",
    "=1+1",
    "- ",
    "12. ",
    "# ",
    "**",
    "_",
    "word. Word",
];

/// Blocks and elements of a harmless text.
static HARMLESS: LazyLock<(Vec<String>, Vec<String>)> = LazyLock::new(|| {
    let sheet = every_part("the ");
    (blocks(&markdown(&sheet)).0, elements(&html(sheet, &"the ")))
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_hostile_text_stays_text_in_every_form(
        fragments in prop::collection::vec(prop::sample::select(FRAGMENTS.to_vec()), 1..8)
    ) {
        let hostile = fragments.concat();
        let sheet = every_part(&hostile);
        let (blocks_expected, elements_expected) = &*HARMLESS;

        for width in [60, 120] {
            let both = text(&sheet, plain(width)) + &parts(&sheet.parts, plain(width));
            prop_assert_eq!(steering(&both), None, "{}", both);
        }

        let (found, outside) = blocks(&markdown(&sheet));
        prop_assert_eq!(&found, blocks_expected, "{}", outside);
        prop_assert!(!outside.contains('<'), "{outside}");
        let calls = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric());
        prop_assert!(!outside.split('@').skip(1).any(calls), "{outside}");

        let page = html(sheet, &hostile);
        prop_assert_eq!(&elements(&page), elements_expected);
        let seen = seen(&page).replace('\t', " ");
        prop_assert_eq!(steering(&seen), None);
    }
}
