//! Which module a path leads to: the crates of the workspace as trees of modules.
//!
//! A file's place in its crate follows from its own path, as Rust has it unless `#[path]` says other;
//! nothing under `src` does. Names are followed through `use`, renames, globs and re-exports, from
//! crate to crate. What a macro defines is not known: a path into it ends at the macro's module.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Name, Scope, Source};

/// A chain of renames longer than this is taken for a circle of them.
const DEPTH_MAX: usize = 16;

/// One source file.
#[derive(Debug)]
pub(super) struct File {
    /// From the root of the workspace.
    pub(super) path: String,
    pub(super) source: Source,
    /// Its place in a crate; none for tests, examples and a `main.rs` beside a `lib.rs`.
    pub(super) place: Option<Module>,
    /// Whether it is compiled for tests only.
    pub(super) test: bool,
}

/// A module: the crate as Rust writes it, and its words from the root of the crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Module {
    pub(super) krate: String,
    pub(super) words: Vec<String>,
}

/// All sources.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) files: Vec<File>,
    /// Index of the file and the modules written out in it.
    modules: BTreeMap<Module, (usize, Vec<String>)>,
    crates: BTreeSet<String>,
}

/// A crate of the workspace: its folder, and its name as Rust writes it.
#[derive(Clone, Debug)]
pub(super) struct Krate {
    pub(super) folder: String,
    pub(super) name: String,
}

impl Tree {
    pub(super) fn new(crates: &[Krate], sources: Vec<(String, Source)>) -> Self {
        let mut files: Vec<File> = sources
            .into_iter()
            .map(|(path, source)| File { path, source, place: None, test: false })
            .collect();
        for krate in crates {
            let lib = format!("{}/src/lib.rs", krate.folder);
            let has_lib = files.iter().any(|file| file.path == lib);
            for file in &mut files {
                let words = words_of(&file.path, &krate.folder);
                if let Some(words) = words.filter(|_| !(has_lib && file.path.ends_with("/main.rs")))
                {
                    file.place = Some(Module { krate: krate.name.clone(), words });
                }
            }
        }
        let mut modules = BTreeMap::new();
        for (at, file) in files.iter().enumerate() {
            let Some(place) = &file.place else { continue };
            for inline in file.source.scopes.keys() {
                let words = [place.words.as_slice(), inline].concat();
                let module = Module { krate: place.krate.clone(), words };
                modules.insert(module, (at, inline.clone()));
            }
        }
        let crates = crates.iter().map(|krate| krate.name.clone()).collect();
        let mut tree = Self { files, modules, crates };
        let tests: Vec<bool> = tree.files.iter().map(|file| tree.is_for_tests(file)).collect();
        for (file, test) in tree.files.iter_mut().zip(tests) {
            file.test = test;
        }
        tree
    }

    /// A module is for tests if a declaration on the way to it is; so is all outside `src`.
    fn is_for_tests(&self, file: &File) -> bool {
        let Some(place) = &file.place else { return !file.path.ends_with("/src/main.rs") };
        (0..place.words.len()).any(|length| {
            let parent =
                Module { krate: place.krate.clone(), words: place.words[..length].to_vec() };
            let scope = self.scope(&parent);
            scope.and_then(|scope| scope.modules.get(&place.words[length])) == Some(&true)
        })
    }

    fn scope(&self, module: &Module) -> Option<&Scope> {
        let (file, inline) = self.modules.get(module)?;
        self.files[*file].source.scopes.get(inline)
    }

    /// The file that a module is written in.
    pub(super) fn file(&self, module: &Module) -> Option<&File> {
        self.modules.get(module).map(|(at, _)| &self.files[*at])
    }

    /// A name of a file, from the root of its crate, with the words as written but for renames.
    ///
    /// `None`: it is of no crate of ours, or no module's.
    pub(super) fn absolute(&self, file: &File, name: &Name) -> Option<Module> {
        match self.expanded(file, name) {
            Path::Ours(path) => Some(path),
            Path::Foreign(_) => None,
        }
    }

    /// The words of a name of another crate, like `std::fs::File`, with renames undone.
    pub(super) fn foreign(&self, file: &File, name: &Name) -> Option<Vec<String>> {
        match self.expanded(file, name) {
            Path::Ours(_) => None,
            Path::Foreign(words) => Some(words),
        }
    }

    fn expanded(&self, file: &File, name: &Name) -> Path {
        let Some(place) = &file.place else {
            return Path::Foreign(name.path.clone());
        };
        let words = [place.words.as_slice(), &name.place.modules].concat();
        let module = Module { krate: place.krate.clone(), words };
        let mut path = name.path.as_slice();
        if name.taken_in && path.last().is_some_and(|word| word == "*") {
            path = &path[..path.len() - 1];
        }
        let expanded = self.expand(&module, path, name.taken_in, 0);
        match expanded {
            Path::Foreign(mut words) if path.len() < name.path.len() => {
                words.push("*".to_owned());
                Path::Foreign(words)
            }
            other => other,
        }
    }

    /// What the first words of a path stand for in a module.
    ///
    /// `defining`: the path is that of a `use`, which does not mean itself.
    fn expand(&self, module: &Module, path: &[String], defining: bool, depth: usize) -> Path {
        let ours = |words: Vec<String>| Path::Ours(Module { krate: module.krate.clone(), words });
        let Some((first, rest)) = path.split_first() else { return Path::Foreign(Vec::new()) };
        match first.as_str() {
            "" => return self.external(rest),
            "crate" => return ours(rest.to_vec()),
            "self" | "super" => {
                let own = usize::from(first == "self");
                let climbs = path[own..].iter().take_while(|word| *word == "super").count();
                let stays = module.words.len().saturating_sub(climbs);
                return ours([&module.words[..stays], &path[own + climbs..]].concat());
            }
            _ => {}
        }
        let here = |at: &Module| ours_in(at, path);
        let child = here(module);
        if self.modules.contains_key(&Module {
            words: [&module.words[..], &path[..1]].concat(),
            ..module.clone()
        }) {
            return Path::Ours(child);
        }
        let Some(scope) = self.scope(module).filter(|_| depth < DEPTH_MAX) else {
            return self.external(path);
        };
        if let Some(target) = scope.aliases.get(first).filter(|target| {
            !(defining && target.as_slice() == path) && target.as_slice() != &path[..1]
        }) {
            return self.expand(module, target, true, depth + 1).joined(rest);
        }
        if scope.items.contains(first) {
            return Path::Ours(child);
        }
        let from_glob = scope.globs.iter().find_map(|glob| {
            let Path::Ours(path) = self.expand(module, glob, true, depth + 1) else { return None };
            let target = self.locate_from(&path, depth + 1);
            (target != *module && self.defines(&target, first)).then_some(target)
        });
        match from_glob {
            Some(target) => Path::Ours(here(&target)),
            None => self.external(path),
        }
    }

    fn defines(&self, module: &Module, word: &str) -> bool {
        self.scope(module).is_some_and(|scope| {
            scope.items.contains(word)
                || scope.modules.contains_key(word)
                || scope.aliases.contains_key(word)
        })
    }

    /// A path that begins with the name of a crate.
    fn external(&self, path: &[String]) -> Path {
        match path.split_first() {
            Some((first, rest)) if self.crates.contains(first) => {
                Path::Ours(Module { krate: first.clone(), words: rest.to_vec() })
            }
            _ => Path::Foreign(path.to_vec()),
        }
    }

    /// The module in which a path from the root of a crate ends, with re-exports followed.
    pub(super) fn locate(&self, path: &Module) -> Module {
        self.locate_from(path, 0)
    }

    fn locate_from(&self, path: &Module, depth: usize) -> Module {
        let mut reached = Module { krate: path.krate.clone(), words: Vec::new() };
        for (at, word) in path.words.iter().enumerate() {
            reached.words.push(word.clone());
            if self.modules.contains_key(&reached) {
                continue;
            }
            reached.words.pop();
            // A word that is not defined here may be re-exported.
            let defined = self.scope(&reached).is_none_or(|scope| scope.items.contains(word));
            if !defined && depth < DEPTH_MAX {
                let further = self.expand(&reached, &path.words[at..], false, depth + 1);
                if let Path::Ours(further) = further
                    && further != ours_in(&reached, &path.words[at..])
                    && further != *path
                {
                    return self.locate_from(&further, depth + 1);
                }
            }
            break;
        }
        reached
    }
}

fn ours_in(module: &Module, path: &[String]) -> Module {
    Module { krate: module.krate.clone(), words: [module.words.as_slice(), path].concat() }
}

enum Path {
    Ours(Module),
    Foreign(Vec<String>),
}

impl Path {
    fn joined(self, rest: &[String]) -> Self {
        match self {
            Self::Ours(module) => Self::Ours(ours_in(&module, rest)),
            Self::Foreign(words) => Self::Foreign([words.as_slice(), rest].concat()),
        }
    }
}

/// The place of a file under `src` of a crate's folder.
fn words_of(file: &str, folder: &str) -> Option<Vec<String>> {
    let inside = file.strip_prefix(folder)?.strip_prefix("/src/")?;
    if matches!(inside, "lib.rs" | "main.rs") {
        return Some(Vec::new());
    }
    let stem = inside.strip_suffix("/mod.rs").or_else(|| inside.strip_suffix(".rs"))?;
    Some(stem.split('/').map(str::to_owned).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A tree of `(path, text)`; each crate is named after its folder: `crates/a` is `a`.
    pub(in crate::layers) fn tree(files: &[(&str, &str)]) -> Tree {
        let mut crates: Vec<Krate> = Vec::new();
        for (path, _) in files {
            let (folder, _) = path.split_once("/src/").unwrap_or((path, ""));
            let name = folder.rsplit('/').next().unwrap_or(folder).to_owned();
            if path.contains("/src/") && crates.iter().all(|krate| krate.name != name) {
                crates.push(Krate { folder: folder.to_owned(), name });
            }
        }
        let sources =
            files.iter().map(|(path, text)| ((*path).to_owned(), Source::parse(text).unwrap()));
        Tree::new(&crates, sources.collect())
    }

    /// Where the last name of the first file leads.
    fn target(files: &[(&str, &str)]) -> String {
        let tree = tree(files);
        let file = &tree.files[0];
        let name = file.source.names.last().unwrap();
        let path = tree.absolute(file, name).expect("a path of ours");
        let found = tree.locate(&path);
        format!("{}::{}", found.krate, found.words.join("::"))
    }

    const OTHERS: [(&str, &str); 4] = [
        ("crates/a/src/lib.rs", "mod x; mod y; pub use y::z::Deep; pub use x::*;"),
        ("crates/a/src/y/mod.rs", "pub mod z; pub struct Own;"),
        ("crates/a/src/y/z.rs", "pub struct Deep;"),
        ("crates/b/src/lib.rs", "pub mod w; pub use a::Deep as Shallow;"),
    ];

    fn from_x(text: &str) -> String {
        target(&[&[("crates/a/src/x.rs", text)], OTHERS.as_slice()].concat())
    }

    #[test]
    fn crate_self_super_and_names_of_crates_are_followed() {
        assert_eq!(from_x("use crate::y::z::Deep;"), "a::y::z");
        assert_eq!(from_x("use super::y::Own;"), "a::y");
        assert_eq!(from_x("mod inner { use super::super::y::z; }"), "a::y::z");
        assert_eq!(from_x("use self::Here; struct Here;"), "a::x");
        assert_eq!(from_x("use b::w::Thing;"), "b::");
    }

    #[test]
    fn renames_globs_and_re_exports_do_not_hide_where_a_path_leads() {
        assert_eq!(from_x("use crate as root; fn f() { root::y::z::g() }"), "a::y::z");
        assert_eq!(from_x("use super::y::*; fn f() { z::g() }"), "a::y::z");
        assert_eq!(from_x("use crate::Deep;"), "a::y::z");
        assert_eq!(from_x("use b::Shallow;"), "a::y::z");
        assert_eq!(from_x("use crate::{y as q}; use q::z as r; fn f() { r::g() }"), "a::y::z");
    }

    #[test]
    fn a_circle_of_renames_ends() {
        let text = "use crate::x::p as q; use crate::x::q as p; use super::x::*; fn f() { p::g() }";
        assert_eq!(from_x(text), "a::x");
    }

    #[test]
    fn renames_of_other_crates_are_undone() {
        let tree =
            tree(&[("crates/a/src/lib.rs", "use std as s; use s::fs; fn f() { fs::read() }")]);
        let file = &tree.files[0];
        let last = file.source.names.last().unwrap();
        assert_eq!(tree.foreign(file, last).unwrap().join("::"), "std::fs::read");
    }

    #[test]
    fn a_file_declared_for_tests_is_one_and_so_are_those_below_it() {
        let tree = tree(&[
            ("crates/a/src/lib.rs", "mod x; #[cfg(test)] mod tests;"),
            ("crates/a/src/x.rs", ""),
            ("crates/a/src/tests.rs", "mod more;"),
            ("crates/a/src/tests/more.rs", ""),
            ("crates/a/tests/whole.rs", ""),
        ]);
        let tests: Vec<bool> = tree.files.iter().map(|file| file.test).collect();
        assert_eq!(tests, [false, false, true, true, true]);
    }
}
