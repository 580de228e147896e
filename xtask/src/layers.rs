//! Which module may name which: two rules that neither Cargo nor clippy has.
//!
//! 1. **No circles.** The modules of one folder do not name each other in a circle, or none of them could be
//!    read, tested or moved without the others. Compared are *neighbours*, modules declared in the same file.
//!    One stands for its file and all below it: a name in `a/b.rs` that leads into `c/d.rs` is an arrow from
//!    `a` to `c`, where `a` and `c` have the same parent. Parent and child are one subject, so a name that
//!    leads to a module around its own, or below it, is no arrow; among the children the rule applies again.
//! 2. **Common code names no experiment**, by a path or by its name as a text, so that one can be added and
//!    taken away without a change of what all have in common. A folder of a family with a `SPEC` is an
//!    experiment. Its own files name it, the family's shared files, and [`TABLES`]. One family names no other.
//!
//! Source text is read as tokens, those inside macros too; nothing is compiled. What is for tests only does not
//! count. `use`, renames and re-exports are followed to the module that defines; what a `*` takes in is not, nor
//! what a macro defines: an arrow through one of these is not seen.
//!
//! Arrows between crates are Cargo's: a crate cannot name what its manifest does not list. That core and show have
//! no clock, file or socket is clippy's, by their `clippy.toml`; that `unsafe` stays where it is, the lints' of
//! the workspace. The same command holds packages to `deny.toml` ([`licences`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::process::Outcome;
use crate::{licences, workspace};

/// Above this many lines a file is worth a look.
const LINES_MAX: usize = 600;
/// A chain of renames longer than this is taken for a circle of them.
const RENAMES_MAX: usize = 16;

/// The folder whose folders are the families of experiments.
const MEASURE: &str = "crates/measure/src/";
/// What lists all experiments.
const TABLES: &[&str] = &["crates/measure/src/experiments.rs"];
const KEEPALIVE: &str = "an option: does the server keep connections?";
/// Texts that equal an experiment's name and mean something else: a file, or a folder with `/` at its end; the
/// text; what it means there.
const OTHER_MEANINGS: &[(&str, &str, &str)] = &[
    ("crates/core/src/experiment/columns.rs", "connect", "a heading: the time to connect"),
    ("crates/core/src/http/url.rs", "http", "the scheme of a URL"),
    ("crates/core/src/page/", "http", "the scheme of a URL"),
    ("crates/kernel/src/", "connect", "the system call, in errors"),
    ("crates/lab/src/load/http/tally.rs", "connect", "a distribution: the time to connect"),
    ("crates/lab/src/load/idle/writer.rs", "connect", "the system call, in errors"),
    ("crates/lab/src/load/page/", "http", "the scheme of a URL"),
    ("crates/live/src/doctor/config/apache.rs", "http", "a scheme or protocol"),
    ("crates/live/src/doctor/config/apps.rs", "keepalive", "a setting of gunicorn"),
    (
        "crates/live/src/doctor/config/directives.rs",
        "keepalive",
        "a directive of nginx, a parameter of Apache",
    ),
    ("crates/live/src/doctor/config/haproxy.rs", "http", "a mode"),
    ("crates/live/src/doctor/config/nginx.rs", "http", "a block of nginx.conf"),
    ("crates/live/src/doctor/config/nginx.rs", "stream", "a block of nginx.conf"),
    ("crates/live/src/doctor/rules/idle.rs", "http", "a remedy: of an upstream that speaks HTTP"),
    ("crates/measure/src/idle/keepalive/", "messages", "a unit: what a writing connection sends"),
    ("crates/measure/src/kit/settings.rs", "keepalive", KEEPALIVE),
    ("crates/measure/src/kit/target.rs", "http", "the scheme of a URL"),
    ("crates/measure/src/pages/", "http", "the scheme of a URL"),
    ("crates/measure/src/pages/", "keepalive", KEEPALIVE),
    ("crates/measure/src/pages/page/", "connect", "a phase of a request"),
    ("crates/measure/src/pages/visitors/", "page", "a unit: what visitors load"),
    ("crates/measure/src/requests/http/", "connect", "a distribution: the time to connect"),
    ("crates/measure/src/requests/http/", "keepalive", KEEPALIVE),
    ("crates/tcptoll/src/cli/tune.rs", "keepalive", KEEPALIVE),
    ("crates/tcptoll/src/tune/setting.rs", "keepalive", KEEPALIVE),
    ("crates/tcptoll/src/tune/load.rs", "keepalive", KEEPALIVE),
];

/// A path of words: one that the source names, or a module from the name of its crate on.
type Words = Vec<String>;

/// One source file under `src` of a crate.
#[derive(Default)]
struct File {
    path: String,
    module: Words,
    /// Whether it describes an experiment.
    has_spec: bool,
    /// Every path of two words or more, with its line from 1.
    names: Vec<(Words, usize)>,
    /// Every string literal, with its line from 1.
    texts: Vec<(String, usize)>,
    /// Names made by `use`, and what they stand for.
    aliases: BTreeMap<String, Words>,
    /// Modules declared here for tests only.
    for_tests: Vec<Words>,
}

impl File {
    fn parse(path: &str, module: &Words, text: &str) -> anyhow::Result<Self> {
        let mut file = Self { path: path.to_owned(), module: module.clone(), ..Self::default() };
        file.has_spec = text.contains(" const SPEC: ");
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{path}: {error}"))?;
        file.read(tokens, &[], false);
        Ok(file)
    }

    /// `stem`: the words before a group of a `use`; `in_use`: whether it is in one.
    fn read(&mut self, tokens: TokenStream, stem: &[String], mut in_use: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match (token, tokens.get(at)) {
                (TokenTree::Punct(hash), Some(TokenTree::Group(attribute)))
                    if hash.as_char() == '#' && is_for_tests(&attribute.stream().to_string()) =>
                {
                    at = self.skip(&tokens, at);
                }
                (TokenTree::Punct(punct), _) => in_use &= punct.as_char() != ';',
                (TokenTree::Group(group), _) => {
                    let before = self.names.len();
                    self.read(group.stream(), stem, in_use);
                    // The parent of a module that is written out is this file.
                    if at > 2 && tokens[at - 3].to_string() == "mod" {
                        let paths = self.names[before..].iter_mut().map(|(path, _)| path);
                        paths
                            .filter(|path| path[0] == "super")
                            .for_each(|path| path[0] = "self".into());
                    }
                }
                (TokenTree::Literal(literal), _) => {
                    let (text, line) = (literal.to_string(), literal.span().start().line);
                    let text = text.trim_matches('"');
                    // `#[serde(with = "super::hex")]` names a module in a text.
                    if text.starts_with("crate::") || text.starts_with("super::") {
                        self.names.push((text.split("::").map(str::to_owned).collect(), line));
                    }
                    self.texts.push((text.to_owned(), line));
                }
                (TokenTree::Ident(word), Some(TokenTree::Ident(_))) if word == "use" => {
                    in_use = true;
                }
                (TokenTree::Ident(_), _) => at = self.path(&tokens, at - 1, stem, in_use),
            }
        }
    }

    /// Reads the path that begins at a word, and gives where it ends.
    fn path(&mut self, tokens: &[TokenTree], start: usize, stem: &[String], in_use: bool) -> usize {
        let mut at = start;
        let mut path = stem.to_vec();
        let mut goes_on = true;
        while let Some(TokenTree::Ident(word)) = tokens.get(at).filter(|_| goes_on) {
            path.push(word.to_string());
            goes_on = is_punct(tokens.get(at + 1), ':') && is_punct(tokens.get(at + 2), ':');
            at += if goes_on { 3 } else { 1 };
        }
        // `a::{self}` is `a`.
        if path.len() > 1 && path.last().is_some_and(|word| word == "self") {
            path.pop();
        }
        if in_use && !goes_on {
            let renamed = matches!(tokens.get(at), Some(TokenTree::Ident(word)) if word == "as");
            at += if renamed { 2 } else { 0 };
            let alias =
                if renamed { tokens[at - 1].to_string() } else { path[path.len() - 1].clone() };
            self.aliases.insert(alias, path.clone());
        } else if let Some(TokenTree::Group(group)) = tokens.get(at).filter(|_| in_use) {
            self.read(group.stream(), &path, true);
            return at + 1;
        }
        if path.len() > 1 {
            self.names.push((path, tokens[start].span().start().line));
        }
        at
    }

    /// Where what is for tests only ends: after its block or its semicolon.
    fn skip(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let is_end = |token: &TokenTree| match token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            other => is_punct(Some(other), ';'),
        };
        let length =
            tokens[start..].iter().position(is_end).map_or(tokens.len() - start, |at| at + 1);
        let words: Words = tokens[start..start + length].iter().map(ToString::to_string).collect();
        if let Some(at) = words.iter().position(|word| word == "mod") {
            self.for_tests.push(joined(&self.module, &words[at + 1..at + 2]));
        }
        start + length
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Whether it is `test`, or a `cfg(...)` that asks for tests and does not refuse them.
fn is_for_tests(attribute: &str) -> bool {
    let words: Vec<&str> = attribute.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    words == ["test"] || words[0] == "cfg" && words.contains(&"test") && !words.contains(&"not")
}

fn joined(module: &[String], path: &[String]) -> Words {
    [module, path].concat()
}

/// The files that ship, by their modules.
struct Tree(BTreeMap<Words, File>);

impl Tree {
    /// `sources`: path of each file, its module, its text.
    fn new(sources: &[(String, Words, String)]) -> anyhow::Result<Self> {
        let files = sources.iter().map(|(path, module, text)| File::parse(path, module, text));
        let files: Vec<File> = files.collect::<Result<_, _>>()?;
        let for_tests: Vec<Words> = files.iter().flat_map(|file| file.for_tests.clone()).collect();
        let ships = |file: &File| !for_tests.iter().any(|module| file.module.starts_with(module));
        Ok(Self(files.into_iter().filter(ships).map(|file| (file.module.clone(), file)).collect()))
    }

    /// A path in a module, from the name of its crate on. `None`: it leads to no crate of ours.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Words> {
        let own = usize::from(path[0] == "self");
        let climbs = path[own..].iter().take_while(|word| *word == "super").count();
        let alias = self.0.get(module).and_then(|file| file.aliases.get(&path[0]));
        let is_here = alias.is_some_and(|alias| alias != path)
            || self.0.contains_key(&joined(module, &path[..1]));
        if path[0] == "crate" {
            Some(joined(&module[..1], &path[1..]))
        } else if own + climbs > 0 || is_here {
            let stays = module.len().saturating_sub(climbs).max(1);
            Some(joined(&module[..stays], &path[own + climbs..]))
        } else {
            self.0.contains_key(&path[..1]).then(|| path.to_vec())
        }
    }

    /// The files that a path leads through by renames and re-exports; the last one defines what it names.
    fn way(&self, module: &[String], path: &[String]) -> Vec<&File> {
        let mut way = Vec::new();
        let mut next = self.absolute(module, path);
        while let Some(path) = next.take().filter(|_| way.len() < RENAMES_MAX) {
            let known = (1..=path.len())
                .rev()
                .find_map(|length| Some((self.0.get(&path[..length])?, &path[length..])));
            let Some((file, rest)) = known else { break };
            way.push(file);
            if let Some((word, rest)) = rest.split_first()
                && let Some(alias) = file.aliases.get(word)
            {
                let further =
                    self.absolute(&file.module, alias).map(|further| joined(&further, rest));
                next = further.filter(|further| *further != path);
            }
        }
        way
    }
}

/// From one neighbour to another: the files that make it, with the first line in each.
type Arrows = BTreeMap<(String, String), BTreeMap<(String, String), usize>>;

/// The first rule.
fn circles(tree: &Tree) -> Vec<String> {
    let mut folders: BTreeMap<&[String], Arrows> = BTreeMap::new();
    for file in tree.0.values() {
        for (path, line) in &file.names {
            let way = tree.way(&file.module, path);
            let Some(to) = way.last() else { continue };
            let common = file.module.iter().zip(&to.module).take_while(|(a, b)| a == b).count();
            let parted = (file.module.get(common), to.module.get(common));
            if let (1.., (Some(from), Some(into))) = (common, parted) {
                let arrows = folders.entry(&file.module[..common]).or_default();
                let names = arrows.entry((from.clone(), into.clone())).or_default();
                names.entry((file.path.clone(), to.path.clone())).or_insert(*line);
            }
        }
    }
    folders.iter().flat_map(|(parent, arrows)| circles_in(&parent.join("::"), arrows)).collect()
}

fn circles_in(parent: &str, arrows: &Arrows) -> Vec<String> {
    let mut circles = Vec::new();
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    for (start, _) in arrows.keys() {
        let mut circle = reached_from(start, arrows);
        circle.retain(|other| reached_from(other, arrows).contains(start.as_str()));
        if circle.is_empty() || placed.contains(start.as_str()) {
            continue;
        }
        placed.extend(&circle);
        let mut text = format!(
            "circle in {parent}: {}",
            circle.iter().copied().collect::<Vec<_>>().join(", ")
        );
        let is_inside = |one: &String| circle.contains(one.as_str());
        for ((from, to), names) in
            arrows.iter().filter(|((from, to), _)| is_inside(from) && is_inside(to))
        {
            text += &format!("\n  {from} → {to}");
            let lines = names
                .iter()
                .map(|((file, target), line)| format!("\n    {file}:{line} → {target}"));
            text.extend(lines);
        }
        circles.push(text);
    }
    circles
}

/// Whatever can be reached by one arrow or more.
fn reached_from<'a>(start: &'a str, arrows: &'a Arrows) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(one) = open.pop() {
        let next = arrows.keys().filter(|(from, _)| from == one).map(|(_, to)| to.as_str());
        open.extend(next.filter(|to| reached.insert(*to)));
    }
    reached
}

/// The second rule.
fn mentions(tree: &Tree) -> Vec<String> {
    let described = tree.0.values().filter(|file| file.has_spec && file.path.starts_with(MEASURE));
    let experiments: Vec<&[String]> = described
        .filter(|file| file.module.len() == 3)
        .map(|file| file.module.as_slice())
        .collect();
    let around = |module: &Words, length: usize| {
        experiments.iter().map(|one| &one[..length]).find(|folder| module.starts_with(folder))
    };
    let mut faults = Vec::new();
    if experiments.is_empty() {
        faults.push(format!("{MEASURE}: no folder of a family has a SPEC"));
    }
    let mut unused: BTreeSet<_> = OTHER_MEANINGS.iter().collect();
    let checked = tree.0.values().filter(|file| file.path.starts_with("crates/"));
    for file in checked.filter(|file| !TABLES.contains(&file.path.as_str())) {
        let (own_family, own) = (around(&file.module, 2), around(&file.module, 3));
        let may_name =
            |one: &[String]| own_family == Some(&one[..2]) && own.is_none_or(|own| own == one);
        let mut named: BTreeMap<String, usize> = BTreeMap::new();
        for (path, line) in &file.names {
            for step in tree.way(&file.module, path) {
                let fault = match (around(&step.module, 2), around(&step.module, 3)) {
                    (_, Some(one)) => Some(one).filter(|one| !may_name(one)),
                    (Some(family), None) => {
                        own_family.and(Some(family)).filter(|_| own_family != Some(family))
                    }
                    _ => None,
                };
                if let Some(fault) = fault {
                    named.entry(fault.join("::")).or_insert(*line);
                }
            }
        }
        for (text, line) in &file.texts {
            let one = experiments.iter().find(|one| one[2].replace('_', "-") == *text);
            if one.is_none_or(|one| may_name(one)) {
                continue;
            }
            let is_meant = |(place, value, _): &&_| value == text && file.path.starts_with(place);
            match OTHER_MEANINGS.iter().find(is_meant) {
                Some(meaning) => drop(unused.remove(meaning)),
                None => drop(named.entry(format!("{text:?}")).or_insert(*line)),
            }
        }
        faults.extend(named.iter().map(|(one, line)| format!("{}:{line}: names {one}", file.path)));
    }
    let unused = unused
        .iter()
        .map(|(place, text, _)| format!("OTHER_MEANINGS: {place}: {text:?} is not there any more"));
    faults.extend(unused);
    faults
}

/// `cargo xtask layers`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    ensure!(arguments.is_empty(), "layers takes no arguments");
    let tree = Tree::new(&sources()?)?;
    let (packages, undeclared) = licences::check()?;
    let rules = [
        (format!("circles of modules in {} source files", tree.0.len()), circles(&tree)),
        ("common code names no experiment".to_owned(), mentions(&tree)),
        (format!("{packages} packages, their licences, sources and bans"), undeclared),
    ];
    for fault in rules.iter().flat_map(|(_, faults)| faults) {
        println!("{fault}");
    }
    for (rule, faults) in &rules {
        println!("layers: {rule}: {} faults", faults.len());
    }
    let holds = rules.iter().all(|(_, faults)| faults.is_empty());
    Ok(if holds { Outcome::Passed } else { Outcome::Failed })
}

/// Every source file under `src` of a crate: its path, its module, its text.
fn sources() -> anyhow::Result<Vec<(String, Words, String)>> {
    let metadata = workspace::packages()?;
    let mut sources = Vec::new();
    for package in metadata.workspace_packages() {
        let folder =
            package.manifest_path.strip_prefix(&metadata.workspace_root)?.with_file_name("src");
        let krate = package.name.replace('-', "_");
        let mut folders = vec![folder.clone().into_std_path_buf()];
        while let Some(inside) = folders.pop() {
            for entry in fs::read_dir(&inside).with_context(|| inside.display().to_string())? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(module) = module(&krate, folder.as_std_path(), &path) {
                    let text =
                        fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                    let path = path.display().to_string();
                    if text.lines().count() > LINES_MAX {
                        println!("warning: {path}: more than {LINES_MAX} lines: two subjects?");
                    }
                    sources.push((path, module, text));
                }
            }
        }
    }
    Ok(sources)
}

/// The module that a file is; `None`: it is no source, or a program's beside a library.
fn module(krate: &str, folder: &Path, path: &Path) -> Option<Words> {
    let inside = path.strip_prefix(folder).ok()?.to_str()?.strip_suffix(".rs")?;
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    let root = vec![krate.to_owned()];
    match inside {
        "main" if folder.join("lib.rs").exists() => None,
        "lib" | "main" => Some(root),
        _ => Some(root.into_iter().chain(inside.split('/').map(str::to_owned)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What both rules say of `(path, text)`; each crate is named after its folder.
    fn faults(files: &[(&str, &str)]) -> [Vec<String>; 2] {
        let source = |(path, text): &(&str, &str)| {
            let (folder, _) = path.split_once("/src/").unwrap();
            let folder = format!("{folder}/src");
            let krate = folder.split('/').nth(1).unwrap();
            let module = module(krate, Path::new(&folder), Path::new(path)).unwrap();
            ((*path).to_owned(), module, (*text).to_owned())
        };
        let tree = Tree::new(&files.iter().map(source).collect::<Vec<_>>()).unwrap();
        [circles(&tree), mentions(&tree)]
    }

    /// The first line of each circle.
    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let [circles, _] = faults(files);
        circles.iter().map(|text| text.lines().next().unwrap().to_owned()).collect()
    }

    const LIB: (&str, &str) = ("crates/a/src/lib.rs", "mod x; mod y; mod z; pub use z::Z;");

    #[test]
    fn a_circle_of_three_files_is_found_with_its_arrows() {
        let [circles, _] = faults(&[
            LIB,
            ("crates/a/src/x.rs", "\nuse crate::y::Y; pub struct X;"),
            ("crates/a/src/y.rs", "pub struct Y; fn f() { m!(super::z::g()) }"),
            ("crates/a/src/z.rs", "pub struct Z; fn g(x: crate::x::X) {}"),
        ]);
        assert_eq!(circles.len(), 1);
        let text = &circles[0];
        assert!(text.starts_with("circle in a: x, y, z\n  x → y\n"), "{text}");
        assert!(text.contains("\n    crates/a/src/x.rs:2 → crates/a/src/y.rs\n"), "{text}");
    }

    #[test]
    fn no_way_of_naming_a_module_hides_an_arrow() {
        for name in [
            "use crate::z::Z;",
            "use crate::Z;",
            "use crate::{y::Y, z::{self, deep}};",
            "use super::super::z;",
            "use crate as root; fn f() { root::z::g() }",
            "use crate::{self as root}; use root::z as q;",
            "fn f(a: Vec<crate::z::Z>) {}",
            "mod inner { use super::super::super::z; }",
            "struct S { #[serde(with = \"crate::z\")] x: u8 }",
        ] {
            let files = [
                LIB,
                ("crates/a/src/x/mod.rs", "mod deep;"),
                ("crates/a/src/x/deep.rs", name),
                ("crates/a/src/z.rs", "mod inner; pub struct Z;"),
                ("crates/a/src/z/inner.rs", "use crate::x;"),
            ];
            assert_eq!(circles_of(&files), ["circle in a: x, z"], "{name}");
        }
    }

    #[test]
    fn parent_and_child_are_one_subject_and_children_are_compared() {
        let parent =
            ("crates/a/src/x/mod.rs", "mod b; mod c; use b::B; struct X; fn f() { c::g() }");
        let c = ("crates/a/src/x/c.rs", "use super::{X, b::B};");
        let up = ("crates/a/src/x/b.rs", "use super::X; struct B; mod inner { use super::B; }");
        assert!(circles_of(&[LIB, parent, up, c]).is_empty());
        let back = ("crates/a/src/x/b.rs", "use super::c; struct B;");
        assert_eq!(circles_of(&[LIB, parent, back, c]), ["circle in a::x: b, c"]);
    }

    #[test]
    fn tests_docs_and_other_crates_make_no_circle() {
        for text in [
            "#[cfg(test)] mod tests { use crate::y; }",
            "#[cfg(all(test, unix))] use crate::y; #[test] fn f() -> u8 { crate::y::g() }",
            "#[cfg(test)] mod deep;",
            "//! crate::y\n/* crate::y */ const A: &str = \"y\"; use b::y; fn y() {} use std::y;",
        ] {
            let files = [
                LIB,
                ("crates/a/src/x.rs", text),
                (
                    "crates/a/src/x/deep.rs",
                    if text.contains("deep") { "use crate::y;" } else { "" },
                ),
                ("crates/a/src/y.rs", "use crate::x::f;"),
                ("crates/b/src/lib.rs", "pub mod y;"),
            ];
            assert!(circles_of(&files).is_empty(), "{text}");
        }
        let ships = ("crates/a/src/x.rs", "#[cfg(not(test))] use crate::y;");
        assert_eq!(circles_of(&[LIB, ships, ("crates/a/src/y.rs", "use crate::x;")]).len(), 1);
    }

    /// What is said of a file beside two experiments of one family and one of another.
    fn named(path: &str, text: &str) -> Vec<String> {
        let mut files = vec![
            ("crates/measure/src/lib.rs", "pub mod open; pub mod pages; mod kit;"),
            ("crates/measure/src/open/mod.rs", "pub mod connect; pub mod time_wait; mod shared;"),
            ("crates/measure/src/open/connect/mod.rs", "pub const SPEC: Spec = 1;"),
            ("crates/measure/src/open/time_wait/mod.rs", "pub(crate) const SPEC: Spec = 1;"),
            ("crates/measure/src/open/shared.rs", ""),
            ("crates/measure/src/pages/mod.rs", "pub mod page; pub mod content;"),
            ("crates/measure/src/pages/page/mod.rs", "pub const SPEC: Spec = 1;"),
            ("crates/measure/src/pages/content.rs", ""),
            ("crates/measure/src/kit/mod.rs", "pub(crate) const SPEC: Spec = 1;"),
            ("crates/tcptoll/src/lib.rs", ""),
        ];
        files.retain(|(other, _)| *other != path);
        files.push((path, text));
        let [_, mut mentions] = faults(&files);
        mentions.retain(|fault| !fault.starts_with("OTHER_MEANINGS"));
        mentions
    }

    #[test]
    fn common_code_that_names_an_experiment_is_found() {
        for text in [
            "use measure::open::time_wait;",
            "use measure::open::{self as all}; fn f() { all::time_wait::g() }",
            "fn f() { m!(measure::open::time_wait::g()) }",
            "const A: &str = \"time-wait\";",
            "struct S { #[serde(rename = \"time-wait\")] x: u8 }",
        ] {
            assert_eq!(named("crates/tcptoll/src/a.rs", text).len(), 1, "{text}");
        }
        let found = named("crates/measure/src/kit/a.rs", "\nuse crate::open::time_wait::X;");
        assert_eq!(found, ["crates/measure/src/kit/a.rs:2: names measure::open::time_wait"]);
    }

    #[test]
    fn other_words_tests_and_tables_name_no_experiment() {
        for (path, text) in [
            ("crates/tcptoll/src/a.rs", "/// time-wait\nconst A: &str = \"time-wait of\";"),
            ("crates/tcptoll/src/a.rs", "use measure::open::shared; use crate::time_wait;"),
            ("crates/tcptoll/src/a.rs", "#[cfg(test)] mod tests { const A: &str = \"page\"; }"),
            (
                "crates/measure/src/experiments.rs",
                "use crate::pages::page; const A: &str = \"page\";",
            ),
            ("crates/kernel/src/a.rs", "const A: &str = \"connect\";"),
        ] {
            assert_eq!(named(path, text), Vec::<String>::new(), "{path}: {text}");
        }
    }

    #[test]
    fn an_experiment_names_no_other_and_a_family_no_other_family() {
        let own = "use crate::open::time_wait::X; const A: &str = \"time-wait\";";
        for (path, count) in [
            ("crates/measure/src/open/time_wait/a.rs", 0),
            ("crates/measure/src/open/shared.rs", 0),
            ("crates/measure/src/open/connect/a.rs", 2),
            ("crates/measure/src/pages/content.rs", 2),
        ] {
            assert_eq!(named(path, own).len(), count, "{path}");
        }
        let other = named("crates/measure/src/open/shared.rs", "use crate::pages::content::C;");
        assert_eq!(other, ["crates/measure/src/open/shared.rs:1: names measure::pages"]);
    }

    #[test]
    fn a_tree_without_experiments_or_with_lines_of_the_table_unused_is_a_fault() {
        let [_, mentions] = faults(&[LIB]);
        assert_eq!(mentions.len(), 1 + OTHER_MEANINGS.len());
        assert!(mentions[0].contains("no folder of a family has a SPEC"), "{}", mentions[0]);
    }
}
