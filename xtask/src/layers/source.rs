//! Source text in, what it names out: paths, texts, and the scopes that say what a name stands for.
//!
//! `syn` reads the grammar; the contents of macros are read as tokens. Nothing is looked up here:
//! which module a path leads to is the question of `tree.rs`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use proc_macro2::{Ident, Spacing, Span, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Lit, Meta, UseTree};

/// A path that the source names: `crate::lab::Link` is three words, a lone word is one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Its words, from left to right. The last one of a glob is `*`; an empty first word stands for
    /// a leading `::`.
    pub(super) path: Vec<String>,
    pub(super) place: SourcePosition,
    /// Whether it is taken in by a `use`.
    pub(super) taken_in: bool,
}

/// Where something stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourcePosition {
    /// From 1.
    pub(super) line: usize,
    /// Modules written out in this file around it, from the outermost.
    pub(super) modules: Vec<String>,
    /// Whether it is compiled for tests only, as far as this file tells.
    pub(super) test: bool,
}

/// A string literal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) value: String,
    pub(super) place: SourcePosition,
}

/// What the words of one module stand for.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// What is defined here, modules aside.
    pub(super) items: BTreeSet<String>,
    /// Its modules, in this file or in one of their own, and whether they are for tests only.
    pub(super) modules: BTreeMap<String, bool>,
    /// Names made by `use`, re-exports among them; one inside a function counts for the module.
    pub(super) aliases: BTreeMap<String, Vec<String>>,
    /// What is taken in with `*`.
    pub(super) globs: Vec<Vec<String>>,
}

/// One file, read.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Every path, in the order of the text.
    pub(super) names: Vec<Name>,
    /// Every string literal outside the docs.
    pub(super) texts: Vec<Text>,
    /// Every word with its line, those inside macros and attributes included.
    pub(super) words: Vec<(String, usize)>,
    /// The scopes of the file, by the modules written out in it; the empty key is the file itself.
    pub(super) scopes: BTreeMap<Vec<String>, Scope>,
}

impl Source {
    /// Reads a file's text. Errors: it is no Rust; the line is named.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let located = |at: Span, why: String| anyhow!("line {}: {why}", at.start().line);
        let tokens: TokenStream =
            text.parse().map_err(|e: proc_macro2::LexError| located(e.span(), e.to_string()))?;
        let mut reader = SourceReader::default();
        all_words(tokens.clone(), &mut reader.source.words);
        let file: syn::File = syn::parse2(tokens).map_err(|e| located(e.span(), e.to_string()))?;
        reader.source.scopes.entry(Vec::new()).or_default();
        reader.visit_file(&file);
        Ok(reader.source)
    }
}

fn all_words(tokens: TokenStream, words: &mut Vec<(String, usize)>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => words.push((word.to_string(), line(&word))),
            TokenTree::Group(group) => all_words(group.stream(), words),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn line(word: &Ident) -> usize {
    word.span().start().line
}

/// `r#lab` is the name `lab`.
fn plain(word: &Ident) -> String {
    word.unraw().to_string()
}

#[derive(Default)]
struct SourceReader {
    source: Source,
    modules: Vec<String>,
    test: bool,
}

impl SourceReader {
    fn place(&self, line: usize) -> SourcePosition {
        SourcePosition { line, modules: self.modules.clone(), test: self.test }
    }

    fn name(&mut self, path: Vec<String>, line: usize, taken_in: bool) {
        let place = self.place(line);
        self.source.names.push(Name { path, place, taken_in });
    }

    fn text(&mut self, value: String, line: usize) {
        let place = self.place(line);
        self.source.texts.push(Text { value, place });
    }

    fn scope(&mut self) -> &mut Scope {
        self.source.scopes.entry(self.modules.clone()).or_default()
    }

    /// Reads on with what stands under these attributes.
    fn under(&mut self, attributes: &[Attribute], read: impl FnOnce(&mut Self)) {
        let before = self.test;
        self.test |= attributes.iter().any(is_for_tests);
        read(self);
        self.test = before;
    }

    fn take_in(&mut self, tree: &UseTree, stem: &mut Vec<String>) {
        match tree {
            UseTree::Path(branch) => {
                stem.push(plain(&branch.ident));
                self.take_in(&branch.tree, stem);
                stem.pop();
            }
            UseTree::Name(leaf) => self.take_in_as(&leaf.ident, None, stem),
            UseTree::Rename(leaf) => self.take_in_as(&leaf.ident, Some(&leaf.rename), stem),
            UseTree::Glob(star) => {
                let line = star.star_token.spans[0].start().line;
                self.name([stem.as_slice(), &["*".to_owned()]].concat(), line, true);
                self.scope().globs.push(stem.clone());
            }
            UseTree::Group(group) => {
                for branch in &group.items {
                    self.take_in(branch, stem);
                }
            }
        }
    }

    fn take_in_as(&mut self, leaf: &Ident, rename: Option<&Ident>, stem: &[String]) {
        let mut path = stem.to_vec();
        // `a::{self}` is `a`.
        if leaf != "self" || path.is_empty() {
            path.push(plain(leaf));
        }
        self.name(path.clone(), line(leaf), true);
        let alias = rename.map(plain).or_else(|| path.last().cloned()).unwrap_or_default();
        if alias != "_" {
            let test = self.test;
            let aliases = &mut self.scope().aliases;
            // What ships decides where a test has another meaning for the word.
            if !(test && aliases.contains_key(&alias)) {
                aliases.insert(alias, path);
            }
        }
    }

    /// Paths and texts among tokens that need not be Rust.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Ident(word) => {
                    let mut path = vec![plain(word)];
                    while let Some(next) = tokens.get(at..).and_then(after_colons) {
                        path.push(plain(next));
                        at += 3;
                    }
                    self.name(path, line(word), false);
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Lit::Str(text) = Lit::new(literal.clone()) {
                        self.text(text.value(), text.span().start().line);
                    }
                }
                TokenTree::Punct(_) => {}
            }
        }
    }
}

/// The word after a `::` that the tokens begin with.
fn after_colons(tokens: &[TokenTree]) -> Option<&Ident> {
    match tokens {
        [TokenTree::Punct(first), TokenTree::Punct(second), TokenTree::Ident(word), ..]
            if (first.as_char(), first.spacing()) == (':', Spacing::Joint)
                && second.as_char() == ':' =>
        {
            Some(word)
        }
        _ => None,
    }
}

/// Whether it is `#[test]`, or a `#[cfg(...)]` that asks for tests and does not refuse them.
fn is_for_tests(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let mut words = Vec::new();
            all_words(list.tokens.clone(), &mut words);
            let says = |wanted: &str| words.iter().any(|(word, _)| word == wanted);
            says("test") && !says("not")
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for SourceReader {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, defined): (&[Attribute], Option<&Ident>) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::TraitAlias(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::ExternCrate(item) => (&item.attrs, None),
            Item::ForeignMod(item) => (&item.attrs, None),
            Item::Impl(item) => (&item.attrs, None),
            Item::Mod(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            _ => (&[], None),
        };
        self.under(attributes, |reader| {
            if let Some(word) = defined {
                reader.scope().items.insert(plain(word));
            }
            visit::visit_item(reader, item);
        });
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => &[],
        };
        self.under(attributes, |reader| visit::visit_impl_item(reader, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let word = plain(&item.ident);
        let test = self.test;
        self.scope().modules.insert(word.clone(), test);
        let Some((_, items)) = &item.content else { return };
        self.modules.push(word);
        self.scope();
        for item in items {
            self.visit_item(item);
        }
        self.modules.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut stem: Vec<String> = item.leading_colon.iter().map(|_| String::new()).collect();
        self.take_in(&item.tree, &mut stem);
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        let rename = item.rename.as_ref().map(|(_, word)| word);
        self.take_in_as(&item.ident, rename, &[String::new()]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut words: Vec<String> = path.leading_colon.iter().map(|_| String::new()).collect();
        words.extend(path.segments.iter().map(|segment| plain(&segment.ident)));
        if let Some(first) = path.segments.first() {
            self.name(words, line(&first.ident), false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    /// `pub(in path)` names only modules around itself.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") || attribute.path().is_ident("cfg") {
            return;
        }
        let before = self.source.texts.len();
        match &attribute.meta {
            Meta::Path(_) => {}
            Meta::List(list) => self.tokens(list.tokens.clone()),
            Meta::NameValue(pair) => self.visit_expr(&pair.value),
        }
        // `#[serde(with = "super::hex")]` names a module in a text.
        let named = self.source.texts[before..].iter().filter_map(|text| {
            let path: syn::Path = syn::parse_str(&text.value).ok()?;
            let words: Vec<String> = path.segments.iter().map(|one| plain(&one.ident)).collect();
            (words.len() > 1).then_some((words, text.place.line))
        });
        for (words, line) in named.collect::<Vec<_>>() {
            self.name(words, line, false);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.text(text.value(), text.span().start().line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::parse(text).unwrap()
    }

    fn paths(text: &str) -> Vec<String> {
        source(text).names.iter().map(|name| name.path.join("::")).collect()
    }

    #[test]
    fn groups_are_multiplied_out_and_renames_are_names_of_the_module() {
        let text = "use a::{b, c::{self, d as e}, *}; pub use ::f::G;";
        assert_eq!(paths(text), ["a::b", "a::c", "a::c::d", "a::*", "::f::G"]);
        let source = source(text);
        let scope = &source.scopes[&Vec::new()];
        let aliases: Vec<String> = scope
            .aliases
            .iter()
            .map(|(name, path)| format!("{name}={}", path.join("::")))
            .collect();
        assert_eq!(aliases, ["G=::f::G", "b=a::b", "c=a::c", "e=a::c::d"]);
        assert_eq!(scope.globs, [["a"]]);
    }

    #[test]
    fn comments_docs_and_texts_are_no_paths() {
        let text = "//! a::b\n/* c::d */\n/// e::f\nconst G: &str = \"h::i\";";
        assert_eq!(paths(text), ["str"]);
        assert_eq!(source(text).texts.len(), 1);
    }

    #[test]
    fn paths_and_texts_inside_macros_and_attributes_are_seen() {
        let text = "fn f() { println!(\"t\", a::b(c::d::<u8>())); }\n\
            macro_rules! m { () => { $crate::e::f!() } }\n\
            struct S { #[serde(with = \"super::hex\")] x: u8 }";
        let found = paths(text);
        for path in ["a::b", "c::d", "crate::e::f", "super::hex"] {
            assert!(found.contains(&path.to_owned()), "{path}: {found:?}");
        }
        assert_eq!(source(text).texts[0].value, "t");
    }

    #[test]
    fn a_text_over_two_lines_does_not_shift_the_lines() {
        let source = source("const A: &str = \"a\nb\";\nuse c::d;");
        assert_eq!(source.names.last().unwrap().place.line, 3);
    }

    #[test]
    fn a_name_knows_the_modules_written_around_it() {
        let text = "mod m { mod inner { type A = a::A; } type B = b::B; } type C = c::C;";
        let source = source(text);
        let module = |word: &str| {
            let name = source.names.iter().find(|name| name.path[0] == word).unwrap();
            name.place.modules.join("::")
        };
        assert_eq!(
            (module("a"), module("b"), module("c")),
            ("m::inner".into(), "m".into(), String::new())
        );
    }

    #[test]
    fn what_is_compiled_for_tests_only_is_marked() {
        let text = "use a::A; #[cfg(test)] use b::B; #[cfg(not(test))] use c::C;\n\
            #[cfg(test)] mod tests { use d::D; } #[cfg(test)] mod e;\n\
            impl F { #[cfg(all(test, unix))] fn f() { g::g() } }";
        let source = source(text);
        let marked =
            |word: &str| source.names.iter().find(|name| name.path[0] == word).unwrap().place.test;
        assert_eq!(["a", "b", "c", "d", "g"].map(marked), [false, true, false, true, true]);
        assert!(source.scopes[&Vec::new()].modules["e"]);
    }

    #[test]
    fn what_is_no_rust_is_an_error_with_its_line() {
        for text in ["use a::{\n", "fn f() {}\n\"", "fn\n5"] {
            let error = Source::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("line "), "{error}");
        }
    }
}
