//! HTML, tag by tag as it arrives.

use std::cell::RefCell;
use std::fmt;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use url::Url;

use super::css::Sheet;
use super::{Found, LeftOuts, leave_out, media};
use crate::page::resource::{Kind, Priority};
use crate::page::rules;

/// A document as far as it has arrived.
pub(super) struct Scan {
    tokenizer: Tokenizer<Names>,
    input: BufferQueue,
    /// Bytes at the end that are not yet a whole character.
    rest: Vec<u8>,
    text: String,
}

impl fmt::Debug for Scan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Scan").field("bytes", &self.text.len()).finish_non_exhaustive()
    }
}

impl Scan {
    pub(super) fn new(url: Url) -> Self {
        let names = Names(RefCell::new(State {
            base: url,
            has_base: false,
            in_body: false,
            in_noscript: false,
            in_template: 0,
            style: None,
            sheets: Vec::new(),
            found: Vec::new(),
            skipped: Vec::new(),
        }));
        Self {
            tokenizer: Tokenizer::new(names, TokenizerOpts::default()),
            input: BufferQueue::default(),
            rest: Vec::new(),
            text: String::new(),
        }
    }

    pub(super) fn feed(&mut self, content: &[u8], left_out: &mut LeftOuts) -> Vec<Found> {
        self.rest.extend_from_slice(content);
        // A character may be cut in two; what is no UTF-8 at all becomes U+FFFD.
        let whole = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        };
        let after = self.rest.split_off(whole);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.rest, after)).into_owned();
        self.text.push_str(&text);
        self.input.push_back(StrTendril::from(text));
        // Scripts are not run: the tokenizer stops after each and is asked to go on.
        while !self.input.is_empty() {
            let _ = self.tokenizer.feed(&self.input);
        }
        self.take(left_out)
    }

    pub(super) fn end(&mut self, left_out: &mut LeftOuts) -> Vec<Found> {
        self.tokenizer.end();
        self.take(left_out)
    }

    /// What was found since it was last asked.
    fn take(&mut self, left_out: &mut LeftOuts) -> Vec<Found> {
        let mut state = self.tokenizer.sink.0.borrow_mut();
        for (reason, url) in state.skipped.drain(..) {
            leave_out(left_out, reason, &url);
        }
        std::mem::take(&mut state.found)
    }

    /// The document so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Its own style sheets.
    pub(super) fn sheets(&self) -> Vec<Sheet> {
        self.tokenizer.sink.0.borrow().sheets.clone()
    }
}

/// Takes tags.
struct Names(RefCell<State>);

struct State {
    base: Url,
    has_base: bool,
    in_body: bool,
    in_noscript: bool,
    in_template: u32,
    /// The text of a `style` element, while it lasts.
    style: Option<String>,
    sheets: Vec<Sheet>,
    found: Vec<Found>,
    skipped: Vec<(&'static str, String)>,
}

impl TokenSink for Names {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut state = self.0.borrow_mut();
        match token {
            Token::CharacterTokens(text) => {
                if let Some(style) = &mut state.style {
                    style.push_str(&text);
                }
                TokenSinkResult::Continue
            }
            Token::TagToken(tag) if tag.kind == TagKind::StartTag => state.start(&tag),
            Token::TagToken(tag) => {
                state.end(&tag);
                TokenSinkResult::Continue
            }
            _ => TokenSinkResult::Continue,
        }
    }
}

fn attribute<'a>(tag: &'a Tag, name: &str) -> Option<&'a str> {
    tag.attrs.iter().find(|one| &*one.name.local == name).map(|one| one.value.trim())
}

impl State {
    fn start(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        // Scripts are not run, but a browser runs them: what is for browsers without is ignored.
        if self.in_noscript && &*tag.name != "noscript"
            || self.in_template > 0 && &*tag.name != "template"
        {
            return raw(&tag.name);
        }
        let source = attribute(tag, "src");
        match &*tag.name {
            "base" => self.base(tag),
            "body" => self.in_body = true,
            "noscript" => self.in_noscript = true,
            "template" => self.in_template += 1,
            "style" if applies(tag) => self.style = Some(String::new()),
            "link" => self.link(tag),
            "script" => self.script(tag),
            "img" => {
                let set = attribute(tag, "srcset")
                    .and_then(|set| media::choose_image(set, attribute(tag, "sizes")));
                self.name(set.as_deref().or(source), Kind::Image, Priority::Low, false);
            }
            "input"
                if attribute(tag, "type")
                    .is_some_and(|kind| kind.eq_ignore_ascii_case("image")) =>
            {
                self.name(source, Kind::Image, Priority::Low, false);
            }
            "video" => {
                self.name(attribute(tag, "poster"), Kind::Image, Priority::Low, false);
                self.skip("media", source);
            }
            "audio" | "track" | "embed" => self.skip("media", source),
            "object" => self.skip("media", attribute(tag, "data")),
            "iframe" | "frame" => self.skip("frame", source),
            "image" => {
                let link = attribute(tag, "href").or_else(|| attribute(tag, "xlink:href"));
                self.name(link, Kind::Image, Priority::Low, false);
            }
            _ => {}
        }
        raw(&tag.name)
    }

    fn end(&mut self, tag: &Tag) {
        match &*tag.name {
            "noscript" => self.in_noscript = false,
            "template" => self.in_template = self.in_template.saturating_sub(1),
            "head" => self.in_body = true,
            "style" => {
                if let Some(text) = self.style.take() {
                    let sheet = Sheet::read(&text, &self.base);
                    self.found.extend(sheet.imports());
                    self.sheets.push(sheet);
                }
            }
            _ => {}
        }
    }

    /// The first `base` counts.
    fn base(&mut self, tag: &Tag) {
        if let (false, Some(href)) = (self.has_base, attribute(tag, "href"))
            && let Ok(base) = self.base.join(href)
            && matches!(base.scheme(), "http" | "https")
        {
            self.base = base;
            self.has_base = true;
        }
    }

    fn link(&mut self, tag: &Tag) {
        let relations = attribute(tag, "rel").unwrap_or_default().to_ascii_lowercase();
        let relations: Vec<&str> = relations.split_ascii_whitespace().collect();
        let has = |name: &str| relations.contains(&name);
        let href = attribute(tag, "href").filter(|href| !href.is_empty());
        if has("stylesheet") {
            if has("alternate") || attribute(tag, "disabled").is_some() {
                self.skip("unused", href);
            } else if applies(tag) {
                self.name(href, Kind::Stylesheet, rules::priority(Kind::Stylesheet), true);
            } else {
                // For another medium: a browser asks for it all the same, last, and does not use it.
                self.name(href, Kind::Other, Priority::VeryLow, false);
            }
        } else if has("preload") && applies(tag) {
            let kind = match attribute(tag, "as").unwrap_or_default() {
                "style" => Kind::Stylesheet,
                "script" => Kind::Script,
                "font" => Kind::Font,
                "image" => Kind::Image,
                _ => Kind::Other,
            };
            let priority = if kind == Kind::Font { Priority::High } else { rules::priority(kind) };
            self.name(href, kind, priority, false);
        } else if has("modulepreload") {
            self.name(href, Kind::Script, Priority::High, false);
        } else if has("prefetch") || has("prerender") {
            self.skip("prefetch", href);
        } else if has("icon") || has("apple-touch-icon") || has("manifest") {
            self.skip("icon", href);
        }
    }

    fn script(&mut self, tag: &Tag) {
        let kind = attribute(tag, "type").unwrap_or_default().to_ascii_lowercase();
        let module = kind == "module";
        let runs = module
            || matches!(
                &*kind,
                "" | "text/javascript"
                    | "application/javascript"
                    | "text/ecmascript"
                    | "application/x-javascript"
            );
        let source = attribute(tag, "src").filter(|source| !source.is_empty());
        if !runs || attribute(tag, "nomodule").is_some() {
            self.skip("unused", source);
            return;
        }
        let later = module || ["async", "defer"].iter().any(|name| attribute(tag, name).is_some());
        let (priority, blocking) = match (later, self.in_body) {
            (true, _) => (Priority::Low, false),
            (false, false) => (Priority::High, true),
            (false, true) => (Priority::Medium, false),
        };
        self.name(source, Kind::Script, priority, blocking);
    }

    fn name(&mut self, reference: Option<&str>, kind: Kind, priority: Priority, blocking: bool) {
        let Some(reference) = reference.filter(|reference| !reference.is_empty()) else { return };
        let url = self.base.join(reference).ok();
        let text = reference.chars().take(rules::URL_BYTES).collect();
        if url.as_ref().is_some_and(|url| url.scheme() == "data") {
            return;
        }
        self.found.push(Found { url, text, kind, priority, blocking, nested: false });
    }

    fn skip(&mut self, reason: &'static str, reference: Option<&str>) {
        if let Some(reference) =
            reference.filter(|reference| !reference.is_empty() && !reference.starts_with("data:"))
        {
            self.skipped.push((reason, reference.to_owned()));
        }
    }
}

/// Whether its `media` is that of a browser's window.
fn applies(tag: &Tag) -> bool {
    attribute(tag, "media").is_none_or(media::applies)
}

/// Elements whose content is text, whatever it looks like.
fn raw(name: &str) -> TokenSinkResult<()> {
    match name {
        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
        "style" | "xmp" | "iframe" | "noembed" | "noframes" => {
            TokenSinkResult::RawData(RawKind::Rawtext)
        }
        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
        "plaintext" => TokenSinkResult::Plaintext,
        _ => TokenSinkResult::Continue,
    }
}
