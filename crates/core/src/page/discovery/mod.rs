//! What documents and style sheets name.
//!
//! HTML is read as it arrives, as a browser's preload scanner reads it: what a start tag names is found with the bytes
//! that complete the tag. A style sheet is read when it is complete. Its imports are found then; its fonts and
//! images are found when the document and all style sheets that block it are there, and only if a rule that
//! names them matches an element of the document. No script is run, so what scripts would add is
//! not found.

mod css;
mod html;
mod media;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use css::Sheet;
use cssparser::{Parser, Token};
use html::Scan;
use html5ever::ParseOpts;
use html5ever::tendril::{StrTendril, TendrilSink as _};
use scraper::{Html, HtmlTreeSink, Selector};
use url::Url;

use super::resource::{Kind, Priority, RequestId};
use super::rules;
use super::waterfall::LeftOut;

/// A resource that something names.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Its URL. None: it is malformed.
    pub(super) url: Option<Url>,
    /// As it was written.
    pub(super) text: String,
    pub(super) kind: Kind,
    pub(super) priority: Priority,
    pub(super) blocking: bool,
    /// Whether it is a style sheet that another one imports.
    pub(super) nested: bool,
}

/// What is being read of one page.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    document: Option<(RequestId, Box<Scan>)>,
    /// Those that are still arriving, with what is there of them.
    arriving: BTreeMap<RequestId, (Url, Vec<u8>)>,
    /// Those that are there, in the order of their requests.
    sheets: BTreeMap<RequestId, Sheet>,
    /// Whether the document is there.
    complete: bool,
    /// Whether the document or a style sheet has come since the used ones were found.
    changed: bool,
    left_out: BTreeMap<&'static str, (u64, Vec<String>)>,
}

impl Discovery {
    /// Begins to read a response. Content that is neither HTML nor CSS is not read.
    pub(super) fn begin(
        &mut self,
        request: RequestId,
        kind: Kind,
        url: &Url,
        content_type: Option<&str>,
    ) {
        let media = content_type.unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind {
            Kind::Document if matches!(&*media, "" | "text/html" | "application/xhtml+xml") => {
                self.document = Some((request, Box::new(Scan::new(url.clone()))));
            }
            // Served as anything else, a browser in standards mode ignores it.
            Kind::Stylesheet if matches!(&*media, "" | "text/css") => {
                self.arriving.insert(request, (url.clone(), Vec::new()));
            }
            _ => {}
        }
    }

    /// Reads content, decoded.
    pub(super) fn feed(&mut self, request: RequestId, content: &[u8]) -> Vec<Found> {
        if let Some((document, scan)) = &mut self.document
            && *document == request
        {
            return scan.feed(content, &mut self.left_out);
        }
        if let Some((_, text)) = self.arriving.get_mut(&request) {
            text.extend_from_slice(content);
        }
        Vec::new()
    }

    /// A response is complete, or has failed.
    pub(super) fn end(&mut self, request: RequestId) -> Vec<Found> {
        let mut found = Vec::new();
        if let Some((document, scan)) = &mut self.document
            && *document == request
        {
            found = scan.end(&mut self.left_out);
            self.complete = true;
            self.changed = true;
        }
        if let Some((url, text)) = self.arriving.remove(&request) {
            let sheet = Sheet::read(&String::from_utf8_lossy(&text), &url);
            found.extend(sheet.imports());
            self.sheets.insert(request, sheet);
            self.changed = true;
        }
        found
    }

    /// Fonts and images of style sheets that elements use, once the document is here. `sheets_wait`: style
    /// sheets that elements wait for are not.
    ///
    /// All of them anew after each style sheet, as a late one adds to it; the loader asks for each URL once.
    pub(super) fn used(&mut self, sheets_wait: bool) -> Vec<Found> {
        if !self.complete || sheets_wait || !std::mem::take(&mut self.changed) {
            return Vec::new();
        }
        let Some((_, scan)) = &self.document else { return Vec::new() };
        let own = scan.sheets();
        let sheets: Vec<&Sheet> = own.iter().chain(self.sheets.values()).collect();
        if sheets.iter().all(|sheet| !sheet.names_resources()) {
            return Vec::new();
        }
        used(scan.text(), &sheets)
    }

    /// Counts what is not asked for.
    pub(super) fn leave_out(&mut self, reason: &'static str, url: &str) {
        leave_out(&mut self.left_out, reason, url);
    }

    /// Everything that is not asked for.
    pub(super) fn left_out(&self) -> Vec<LeftOut> {
        let one = |(reason, (count, examples)): (&&str, &(u64, Vec<String>))| LeftOut {
            reason: (*reason).to_owned(),
            count: *count,
            examples: examples.clone(),
        };
        self.left_out.iter().map(one).collect()
    }
}

type LeftOuts = BTreeMap<&'static str, (u64, Vec<String>)>;

fn leave_out(all: &mut LeftOuts, reason: &'static str, url: &str) {
    /// Characters that are kept of a URL.
    const SHOWN: usize = 200;
    let (count, examples) = all.entry(reason).or_default();
    *count += 1;
    if examples.len() < rules::EXAMPLES {
        let visible = |c: char| if c.is_ascii_graphic() { c } else { '?' };
        examples.push(url.chars().take(SHOWN).map(visible).collect());
    }
}

/// Nodes of a document's tree. All rules count as used by a larger one.
const NODES: usize = 100_000;

/// Depth of a document's tree, likewise. Browsers stop at 512.
const DEPTH: usize = 1_024;

/// Steps from nodes to those around them, for all rules; the rules that are left count as used.
const STEPS: usize = 200_000_000;

/// Finds them, in the order of the sheets.
fn used(document: &str, sheets: &[&Sheet]) -> Vec<Found> {
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

#[cfg(test)]
mod tests;
