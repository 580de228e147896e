//! CSS: what a style sheet names, and for which elements.
//!
//! `cssparser` gives the tokens and their nesting, so comments, escapes and strings are read as the
//! standard says. What is kept are imports, fonts, and rules that name an image or a font family.

use cssparser::{ParseError, Parser, ToCss as _, Token};
use url::Url;

use super::{Found, media};
use crate::page::resource::Kind;
use crate::page::rules;

/// Rules of one sheet that are kept.
const RULES: usize = 50_000;

/// Groups of rules, one inside the other.
const NESTED: u32 = 16;

/// A style sheet.
#[derive(Clone, Debug)]
pub(super) struct Sheet {
    base: Url,
    imports: Vec<String>,
    pub(super) fonts: Vec<FontFace>,
    pub(super) rules: Vec<Rule>,
}

/// `@font-face`.
#[derive(Clone, Debug)]
pub(super) struct FontFace {
    /// In lower case.
    pub(super) family: String,
    /// The first source that a browser can use.
    pub(super) url: Option<Url>,
    pub(super) text: String,
    /// Whether it has letters of the Latin alphabet.
    pub(super) latin: bool,
}

/// A rule that names an image or a font family.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) selector: String,
    pub(super) images: Vec<(Option<Url>, String)>,
    /// In lower case.
    pub(super) families: Vec<String>,
}

impl Sheet {
    /// Reads a style sheet; what is malformed is skipped, as CSS is read.
    pub(super) fn read(text: &str, base: &Url) -> Self {
        let mut sheet =
            Self { base: base.clone(), imports: Vec::new(), fonts: Vec::new(), rules: Vec::new() };
        sheet.rules_of(&mut Parser::new(text), None, 0);
        sheet
    }

    /// Style sheets that it imports.
    pub(super) fn imports(&self) -> Vec<Found> {
        let found = |text: &String| Found {
            url: self.base.join(text).ok(),
            text: text.clone(),
            kind: Kind::Stylesheet,
            priority: rules::priority(Kind::Stylesheet),
            blocking: true,
            nested: true,
        };
        self.imports.iter().map(found).collect()
    }

    pub(super) fn names_resources(&self) -> bool {
        !self.fonts.is_empty() || self.rules.iter().any(|rule| !rule.images.is_empty())
    }

    /// Reads rules until the end of the input. `within`: the selector of the rule around them.
    fn rules_of(&mut self, parser: &mut Parser<'_>, within: Option<&str>, depth: u32) {
        loop {
            parser.skip_whitespace();
            let start = parser.position();
            let Ok(token) = parser.next_including_whitespace().cloned() else { return };
            match token {
                Token::AtKeyword(name) => {
                    let name = name.to_ascii_lowercase();
                    self.at_rule(&name, parser, within, depth);
                }
                Token::Semicolon | Token::CDO | Token::CDC | Token::CloseCurlyBracket => {}
                first => self.rule(first, start, parser, within, depth),
            }
            if self.rules.len() >= RULES {
                return;
            }
        }
    }

    fn at_rule(&mut self, name: &str, parser: &mut Parser<'_>, within: Option<&str>, depth: u32) {
        let start = parser.position();
        let mut url = None;
        loop {
            // To the end of a block, if the last token opened one.
            parser.skip_whitespace();
            let end = parser.position();
            let token = parser.next_including_whitespace().cloned();
            match token.unwrap_or(Token::Semicolon) {
                Token::Semicolon => {
                    if let ("import", Some((url, after))) = (name, url) {
                        self.import(url, parser.slice(after..end));
                    }
                    return;
                }
                Token::QuotedString(text) | Token::UnquotedUrl(text) if url.is_none() => {
                    url = Some((text.as_ref().to_owned(), parser.position()));
                }
                Token::Function(function)
                    if function.eq_ignore_ascii_case("url") && url.is_none() =>
                {
                    let text = nested(parser, |inside| {
                        inside.expect_string().ok().map(|text| text.as_ref().to_owned())
                    });
                    url = text.flatten().map(|text| (text, parser.position()));
                }
                Token::CurlyBracketBlock => {
                    let prelude = parser.slice(start..end).trim().to_owned();
                    let applies = match name {
                        "media" => media::applies(&prelude),
                        "supports" | "layer" | "container" | "scope" | "starting-style" => true,
                        "font-face" => {
                            let face = nested(parser, |inside| self.font_face(inside));
                            self.fonts.extend(face.flatten());
                            return;
                        }
                        _ => false,
                    };
                    let open = applies && depth < NESTED;
                    nested(parser, |inside| {
                        if open {
                            self.rules_of(inside, within, depth + 1);
                        }
                    });
                    return;
                }
                _ => {}
            }
        }
    }

    /// `@import`, with what follows its URL.
    fn import(&mut self, url: String, conditions: &str) {
        if media::applies(media_of(conditions)) && self.imports.len() < rules::REQUESTS {
            self.imports.push(url);
        }
    }

    /// A qualified rule, or a declaration where the selector should be (of a rule around it).
    fn rule(
        &mut self,
        first: Token<'_>,
        start: cssparser::SourcePosition,
        parser: &mut Parser<'_>,
        within: Option<&str>,
        depth: u32,
    ) {
        let mut token = Some(first);
        loop {
            match token {
                None | Some(Token::Semicolon) => return,
                Some(Token::CurlyBracketBlock) => break,
                Some(_) => {}
            }
            token = parser.next_including_whitespace().ok().cloned();
        }
        let text = parser.slice_from(start);
        let text = text.strip_suffix('{').unwrap_or(text).trim();
        // Nesting: `&` is the rule around; without it, a descendant.
        let selector = match within {
            Some(outer) if text.contains('&') => text.replace('&', &format!(":is({outer})")),
            Some(outer) => format!(":is({outer}) {text}"),
            None => text.to_owned(),
        };
        let read = nested(parser, |inside| self.declarations(inside, &selector, depth));
        let Some((images, families)) = read else { return };
        if !images.is_empty() || !families.is_empty() {
            self.rules.push(Rule { selector, images, families });
        }
    }

    fn declarations(
        &mut self,
        parser: &mut Parser<'_>,
        selector: &str,
        depth: u32,
    ) -> (Vec<(Option<Url>, String)>, Vec<String>) {
        let (mut images, mut families) = (Vec::new(), Vec::new());
        loop {
            parser.skip_whitespace();
            let before = parser.state();
            let start = parser.position();
            let Ok(token) = parser.next().cloned() else { return (images, families) };
            match token {
                Token::Ident(name) if parser.try_parse(Parser::expect_colon).is_ok() => {
                    let name = name.to_ascii_lowercase();
                    let (urls, words, block) = value(parser);
                    if block && depth < NESTED {
                        // `a:hover { … }` looks like a declaration until its block.
                        parser.reset(&before);
                        let first = parser.next_including_whitespace().cloned();
                        if let Ok(first) = first {
                            self.rule(first, start, parser, Some(selector), depth + 1);
                        }
                    } else if name == "font-family" || name == "font" || name.starts_with("--") {
                        families.extend(words);
                    } else if fetched(&name) {
                        let own = |text: String| (self.base.join(&text).ok(), text);
                        images.extend(urls.into_iter().map(own));
                    }
                }
                Token::AtKeyword(name) => {
                    let name = name.to_ascii_lowercase();
                    self.at_rule(&name, parser, Some(selector), depth + 1);
                }
                Token::Semicolon => {}
                first if depth < NESTED => {
                    self.rule(first, start, parser, Some(selector), depth + 1);
                }
                _ => return (images, families),
            }
        }
    }

    fn font_face(&self, parser: &mut Parser<'_>) -> Option<FontFace> {
        let (mut family, mut source, mut latin) = (None, None, true);
        while let Ok(token) = parser.next().cloned() {
            let Token::Ident(name) = token else { continue };
            if parser.expect_colon().is_err() {
                continue;
            }
            if name.eq_ignore_ascii_case("unicode-range") {
                let start = parser.position();
                value(parser);
                latin = has_latin(parser.slice_from(start));
                continue;
            }
            let (urls, words, _) = value(parser);
            if name.eq_ignore_ascii_case("font-family") {
                family = words.into_iter().next();
            } else if name.eq_ignore_ascii_case("src") {
                // A later `src` replaces the one before it, which is for older browsers.
                source = urls.into_iter().find(|url| usable(url));
            }
        }
        let text = source?;
        Some(FontFace { family: family?, url: self.base.join(&text).ok(), text, latin })
    }
}

/// The media of an import: what stands after a layer and what must be supported.
fn media_of(conditions: &str) -> &str {
    let mut parser = Parser::new(conditions);
    loop {
        parser.skip_whitespace();
        let start = parser.position();
        match parser.next() {
            Ok(Token::Ident(name)) if name.eq_ignore_ascii_case("layer") => {}
            Ok(Token::Function(name))
                if ["layer", "supports"].iter().any(|one| name.eq_ignore_ascii_case(one)) => {}
            Ok(_) => {
                while parser.next().is_ok() {}
                return parser.slice_from(start);
            }
            Err(_) => return "",
        }
    }
}

/// Whether a value of this property is fetched as an image.
fn fetched(name: &str) -> bool {
    let name = name.strip_prefix("-webkit-").unwrap_or(name);
    matches!(
        name,
        "background"
            | "background-image"
            | "border-image"
            | "border-image-source"
            | "content"
            | "list-style"
            | "list-style-image"
            | "mask"
            | "mask-image"
            | "mask-border-source"
    )
}

/// Whether a browser of today takes a font of this name.
fn usable(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    !matches!(path.rsplit('.').next(), Some("eot" | "svg"))
}

/// Whether a `unicode-range` has the letter `a`.
fn has_latin(ranges: &str) -> bool {
    ranges.split(',').any(|range| {
        let range = range.trim().trim_end_matches([';', '}']).trim().to_ascii_lowercase();
        let Some(range) = range.strip_prefix("u+") else { return true };
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let low = u32::from_str_radix(&from.replace('?', "0"), 16).unwrap_or(0);
        let high = u32::from_str_radix(&to.replace('?', "f"), 16).unwrap_or(u32::MAX);
        (low..=high).contains(&0x61)
    })
}

/// Reads inside the block that was just opened.
fn nested<T>(parser: &mut Parser<'_>, read: impl FnOnce(&mut Parser<'_>) -> T) -> Option<T> {
    let result: Result<T, ParseError<()>> = parser.parse_nested_block(|inside| {
        let read = read(inside);
        // What is left must be read, or the block counts as malformed.
        while inside.next().is_ok() {}
        Ok(read)
    });
    result.ok()
}

/// Reads a value up to its semicolon: URLs, names of families in lower case, and whether it ended in a block
/// instead.
fn value(parser: &mut Parser<'_>) -> (Vec<String>, Vec<String>, bool) {
    let (mut urls, mut words, mut name) = (Vec::new(), Vec::new(), String::new());
    let mut finish = |name: &mut String| {
        let whole = std::mem::take(name);
        if !whole.is_empty() {
            words.push(whole);
        }
    };
    let mut block = false;
    while let Ok(token) = parser.next().cloned() {
        match token {
            Token::Semicolon => break,
            Token::CurlyBracketBlock => {
                block = true;
                break;
            }
            Token::UnquotedUrl(text) => urls.push(text.as_ref().to_owned()),
            Token::QuotedString(text) => {
                finish(&mut name);
                finish(&mut text.to_ascii_lowercase());
            }
            Token::Comma => finish(&mut name),
            Token::Function(function) => {
                let inside = nested(parser, |inside| functions(inside, &function, 0));
                urls.extend(inside.into_iter().flatten());
            }
            Token::Ident(word) => {
                if !name.is_empty() {
                    name.push(' ');
                }
                name.push_str(&word.to_ascii_lowercase());
            }
            // `font: bold 12px/1.5 Name`: what is before a size is no family.
            Token::Dimension { .. } | Token::Percentage { .. } | Token::Number { .. } => {
                name.clear();
            }
            other => {
                let _ = other.to_css_string();
            }
        }
    }
    finish(&mut name);
    (urls, words, block)
}

/// URLs inside a function: `url("…")`, `image-set(…)`, a gradient has none.
fn functions(parser: &mut Parser<'_>, name: &str, depth: u32) -> Vec<String> {
    let mut urls = Vec::new();
    let set = name.to_ascii_lowercase().ends_with("image-set");
    let taken = name.eq_ignore_ascii_case("url") || name.eq_ignore_ascii_case("src") || set;
    while let Ok(token) = parser.next().cloned() {
        match token {
            Token::QuotedString(text) if taken => urls.push(text.as_ref().to_owned()),
            Token::UnquotedUrl(text) => urls.push(text.as_ref().to_owned()),
            Token::Function(inner) if depth < NESTED => {
                let inside = nested(parser, |inside| functions(inside, &inner, depth + 1));
                urls.extend(inside.into_iter().flatten());
            }
            _ => {}
        }
    }
    // Of a set, the first one: for a resolution of 1×.
    if set {
        urls.truncate(1);
    }
    urls
}
