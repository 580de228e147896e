//! Which fonts and images of style sheets the elements of a document use.

use std::collections::{BTreeSet, HashMap};

use cssparser::{Parser, Token};
use html5ever::ParseOpts;
use html5ever::tendril::{StrTendril, TendrilSink as _};
use scraper::{Html, HtmlTreeSink, Selector};

use super::Found;
use super::css::Sheet;
use crate::page::resource::Kind;
use crate::page::rules;

/// Nodes of a document's tree. All rules count as used by a larger one.
const NODES: usize = 100_000;

/// Depth of a document's tree, likewise. Browsers stop at 512.
const DEPTH: usize = 1_024;

/// Steps from nodes to those around them, for all rules; the rules that are left count as used.
const STEPS: usize = 200_000_000;

/// Finds them, in the order of the sheets.
pub(super) fn used(document: &str, sheets: &[&Sheet]) -> Vec<Found> {
    let html = tree(document);
    let mut rules_left = html.as_ref().map_or(0, |html| STEPS / steps(html));
    let mut families: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for rule in sheets.iter().flat_map(|sheet| &sheet.rules) {
        if rule.images.is_empty() && rule.families.iter().all(|one| families.contains(&**one)) {
            continue;
        }
        if let Some(html) = html.as_ref().filter(|_| rules_left > 0) {
            rules_left -= 1;
            if !applies(html, &rule.selector) {
                continue;
            }
        }
        families.extend(rule.families.iter().map(String::as_str));
        for (url, text) in &rule.images {
            if url.as_ref().is_some_and(|url| url.scheme() == "data") {
                continue;
            }
            found.push(Found {
                url: url.clone(),
                text: text.clone(),
                kind: Kind::Image,
                priority: rules::priority(Kind::Image),
                blocking: false,
                nested: false,
            });
        }
    }
    for face in sheets.iter().flat_map(|sheet| &sheet.fonts) {
        let data = face.url.as_ref().is_some_and(|url| url.scheme() == "data");
        if !data && face.latin && families.contains(&*face.family) {
            found.push(Found {
                url: face.url.clone(),
                text: face.text.clone(),
                kind: Kind::Font,
                priority: rules::priority(Kind::Font),
                blocking: false,
                nested: false,
            });
        }
    }
    found
}

/// The tree of a document. None: it is too large. A short text can make a large tree, as elements
/// that are not closed are opened anew in each block, so nodes are counted tag by tag; and the parser looks through all
/// that are open at each tag, so they must not be many.
fn tree(document: &str) -> Option<Html> {
    let sink = HtmlTreeSink::new(Html::new_document());
    let mut parser = html5ever::parse_document(sink, ParseOpts::default());
    for tag in document.split_inclusive('>') {
        parser.process(StrTendril::from(tag));
        let sink = parser.tokenizer.sink.sink.0.borrow();
        let last = sink.tree.nodes().next_back();
        let depth = last.map_or(0, |node| node.ancestors().take(DEPTH).count());
        if sink.tree.values().len() > NODES || depth == DEPTH {
            return None;
        }
    }
    Some(parser.finish())
}

/// The sum of all nodes' depths: what it may take to match one selector.
fn steps(html: &Html) -> usize {
    let mut depths = HashMap::new();
    let mut all = 1;
    for node in html.tree.nodes() {
        let above = node.parent().and_then(|parent| depths.get(&parent.id()).copied());
        let depth = above.unwrap_or(0_usize) + 1;
        depths.insert(node.id(), depth);
        all += depth;
    }
    all
}

/// Whether an element of the document matches one of the selectors. States that only a visitor
/// brings about (`:hover`) do not match. A pseudo-element belongs to its element.
fn applies(html: &Html, selectors: &str) -> bool {
    alternatives(selectors).any(|selector| {
        let (element, _) = selector.split_once("::").unwrap_or((selector, ""));
        let element = [":before", ":after", ":first-letter", ":first-line"]
            .iter()
            .find_map(|pseudo| element.strip_suffix(pseudo))
            .unwrap_or(element)
            .replace(":root", "html");
        let element = if element.trim().is_empty() { "*" } else { element.trim() };
        Selector::parse(element).is_ok_and(|selector| html.select(&selector).next().is_some())
    })
}

/// The selectors of a list. One that is not understood must not hide the others, so the list is not
/// parsed as a whole.
fn alternatives(list: &str) -> impl Iterator<Item = &str> {
    let mut parser = Parser::new(list);
    let mut start = Some(parser.position());
    std::iter::from_fn(move || {
        let from = start.take()?;
        loop {
            // To the end of a block, if the last token opened one: its commas are its own.
            parser.skip_whitespace();
            let end = parser.position();
            match parser.next_including_whitespace() {
                Ok(Token::Comma) => {
                    start = Some(parser.position());
                    return Some(parser.slice(from..end).trim());
                }
                Ok(_) => {}
                Err(_) => return Some(parser.slice_from(from).trim()),
            }
        }
    })
}
