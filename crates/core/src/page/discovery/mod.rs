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
mod srcset;
mod uses;

use std::collections::BTreeMap;

use url::Url;

use self::css::Sheet;
use self::html::Scan;
use super::ids::RequestId;
use super::resource::{Kind, Priority};
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
        uses::used(scan.text(), &sheets)
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

#[cfg(test)]
mod tests;
