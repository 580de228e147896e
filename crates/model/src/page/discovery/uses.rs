//! Which fonts and images of style sheets the elements of a document use.

use std::collections::BTreeSet;

use scraper::{Html, Selector};

use super::Found;
use super::css::Sheet;
use crate::page::resource::Kind;
use crate::page::rules;

/// Elements times rules that are matched at most; what is beyond counts as used.
const MATCHES: usize = 20_000_000;

/// Finds them, in the order of the sheets.
pub(super) fn used(document: &str, sheets: &[&Sheet]) -> Vec<Found> {
    let html = Html::parse_document(document);
    let elements = html.tree.nodes().count().max(1);
    let mut left = MATCHES / elements;
    let mut families: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for rule in sheets.iter().flat_map(|sheet| &sheet.rules) {
        if rule.images.is_empty() && rule.families.iter().all(|one| families.contains(&**one)) {
            continue;
        }
        if left > 0 && !applies(&html, &rule.selector) {
            left -= 1;
            continue;
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

/// Whether an element of the document matches one of the selectors. States that only a visitor
/// brings about (`:hover`) do not match. A pseudo-element belongs to its element.
fn applies(html: &Html, selectors: &str) -> bool {
    selectors.split(',').any(|selector| {
        let selector = selector.trim();
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
