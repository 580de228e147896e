//! Whether modules of one folder name each other in a circle: then none of them can be read, tested
//! or moved without the others.
//!
//! The rule compares *neighbours*: the modules declared in the same file. A neighbour stands for its
//! file and all files below it, so `study.rs` with `study/*.rs` is one subject. A name in `a/b.rs` that
//! leads into `c/d.rs` is an arrow from `a` to `c`, where `a` and `c` have the same parent. A name that
//! leads to a module around its own, or below it, is no arrow: parent and child are one subject, and
//! inside it the rule applies to the children. Re-exports are followed to the file that defines.
//! What is compiled for tests only does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Verdict;
use super::tree::{File, Module, Tree};

/// Circles that are there still: the parent of the neighbours, and the neighbours in order.
/// This table only shrinks: an entry that is no longer true is a fault, and so is a new circle.
const KNOWN: &[(&str, &[&str])] = &[];
const FILE: &str = "xtask/src/layers/circles.rs";

/// Neighbours of which each leads to each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// The module that declares them, like `tcptoll_model` or `tcptoll_engine::lab`.
    pub(super) parent: String,
    pub(super) neighbours: Vec<String>,
    pub(super) arrows: Vec<Arrow>,
}

/// From one neighbour of a circle to the next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrow {
    from: String,
    to: String,
    /// The names that make it: file with line, and the file it leads to; one of each pair of files.
    names: Vec<(String, String)>,
}

/// As details: the files of each arrow.
impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "circle in {}: {}", self.parent, self.neighbours.join(", "))?;
        for arrow in &self.arrows {
            write!(f, "\n  {} → {}", arrow.from, arrow.to)?;
            for (from, to) in &arrow.names {
                write!(f, "\n    {from} → {to}")?;
            }
        }
        Ok(())
    }
}

type Arrows = BTreeMap<(String, String), BTreeMap<(String, String), usize>>;

/// Every circle of every crate.
pub(super) fn find(tree: &Tree) -> Vec<Circle> {
    let mut groups: BTreeMap<Module, Arrows> = BTreeMap::new();
    for file in tree.files.iter().filter(|file| !file.test) {
        let Some(place) = &file.place else { continue };
        for name in file.source.names.iter().filter(|name| !name.place.test) {
            let Some(to) = tree.absolute(file, name).map(|path| tree.locate(&path)) else {
                continue;
            };
            let Some((to, place_of_it)) = file_of(tree, &to) else { continue };
            let Some((parent, from_one, to_one)) = neighbours(place, place_of_it) else { continue };
            let names = groups.entry(parent).or_default().entry((from_one, to_one)).or_default();
            names.entry((file.path.clone(), to.path.clone())).or_insert(name.place.line);
        }
    }
    groups.into_iter().flat_map(|(parent, arrows)| circles_of(&parent, &arrows)).collect()
}

/// The file that a module is written in, and the module that is the file.
fn file_of<'a>(tree: &'a Tree, module: &Module) -> Option<(&'a File, &'a Module)> {
    let file = tree.file(module)?;
    Some((file, file.place.as_ref()?))
}

/// The modules under which two files part, and the module that they have in common.
fn neighbours(from: &Module, to: &Module) -> Option<(Module, String, String)> {
    if from.krate != to.krate {
        return None;
    }
    let common = from.words.iter().zip(&to.words).take_while(|(a, b)| a == b).count();
    let parent = Module { krate: from.krate.clone(), words: from.words[..common].to_vec() };
    Some((parent, from.words.get(common)?.clone(), to.words.get(common)?.clone()))
}

fn circles_of(parent: &Module, arrows: &Arrows) -> Vec<Circle> {
    let all: BTreeSet<&String> = arrows.keys().flat_map(|(from, to)| [from, to]).collect();
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        all.iter().map(|one| (*one, reached_from(one, arrows))).collect();
    let mut placed: BTreeSet<&String> = BTreeSet::new();
    let mut circles = Vec::new();
    for one in all {
        let with: Vec<&String> =
            reached[one].iter().copied().filter(|other| reached[other].contains(one)).collect();
        // Whoever is on no circle does not reach itself.
        if with.is_empty() || !placed.insert(one) {
            continue;
        }
        placed.extend(&with);
        let inside = |from: &String, to: &String| with.contains(&from) && with.contains(&to);
        let arrows = arrows.iter().filter(|((from, to), _)| inside(from, to));
        circles.push(Circle {
            parent: [std::slice::from_ref(&parent.krate), &parent.words].concat().join("::"),
            arrows: arrows
                .map(|((from, to), names)| Arrow {
                    from: from.clone(),
                    to: to.clone(),
                    names: names
                        .iter()
                        .map(|((from, to), line)| (format!("{from}:{line}"), to.clone()))
                        .collect(),
                })
                .collect(),
            neighbours: with.into_iter().cloned().collect(),
        });
    }
    circles
}

/// Whatever can be reached by one arrow or more.
fn reached_from<'a>(start: &String, arrows: &'a Arrows) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(one) = open.pop() {
        for (_, to) in arrows.keys().filter(|(from, _)| from == one) {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

/// `cargo xtask layers`, this rule.
pub(super) fn check(tree: &Tree) -> Verdict {
    judge(&find(tree), KNOWN)
}

fn judge(circles: &[Circle], known: &[(&str, &[&str])]) -> Verdict {
    let within = |circle: &Circle, (parent, neighbours): &(&str, &[&str])| {
        let listed = |one: &String| neighbours.contains(&one.as_str());
        circle.parent == *parent && circle.neighbours.iter().all(listed)
    };
    let (old, new): (Vec<&Circle>, Vec<&Circle>) =
        circles.iter().partition(|circle| known.iter().any(|entry| within(circle, entry)));
    let mut faults: Vec<String> = new.iter().map(ToString::to_string).collect();
    for entry in known {
        let left: Vec<&&Circle> = old.iter().filter(|circle| within(circle, entry)).collect();
        if left.iter().any(|circle| circle.neighbours == entry.1) {
            continue;
        }
        let remedy = match left.as_slice() {
            [] => "this circle is gone: remove it".to_owned(),
            some => {
                let lists: Vec<String> =
                    some.iter().map(|circle| circle.neighbours.join(", ")).collect();
                format!("this circle is smaller now: write {}", lists.join(" and "))
            }
        };
        let (parent, neighbours) = (entry.0, entry.1.join(", "));
        faults.push(format!("{FILE}: KNOWN: {parent}: {neighbours}: {remedy}"));
    }
    Verdict {
        summary: format!("circles of modules: {}, of them {} known", circles.len(), old.len()),
        faults,
        known: old.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::tree::tests::tree;

    /// `parent: neighbour, neighbour` of each circle.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let found = find(&tree(files));
        found
            .iter()
            .map(|circle| format!("{}: {}", circle.parent, circle.neighbours.join(", ")))
            .collect()
    }

    const LIB: (&str, &str) = ("crates/a/src/lib.rs", "mod x; mod y; mod z; pub use z::Z;");

    #[test]
    fn a_circle_of_three_files_is_found_with_its_arrows() {
        let files = [
            LIB,
            ("crates/a/src/x.rs", "\nuse crate::y::Y; pub struct X;"),
            ("crates/a/src/y.rs", "pub struct Y; fn f() { m!(super::z::g()) }"),
            ("crates/a/src/z.rs", "pub struct Z; fn g(x: crate::x::X) {}"),
        ];
        assert_eq!(circles(&files), ["a: x, y, z"]);
        let text = find(&tree(&files))[0].to_string();
        assert!(text.contains("x → y\n    crates/a/src/x.rs:2 → crates/a/src/y.rs"), "{text}");
    }

    #[test]
    fn a_circle_through_files_of_folders_and_a_re_export_is_found() {
        let files = [
            LIB,
            ("crates/a/src/x/mod.rs", "mod deep;"),
            ("crates/a/src/x/deep.rs", "use crate::Z;"),
            ("crates/a/src/z.rs", "mod inner; pub struct Z;"),
            ("crates/a/src/z/inner.rs", "use crate::x;"),
        ];
        assert_eq!(circles(&files), ["a: x, z"]);
    }

    #[test]
    fn parent_and_child_are_one_subject_and_children_are_compared() {
        let parent =
            ("crates/a/src/x/mod.rs", "mod b; mod c; use b::B; struct X; fn f() { c::g() }");
        let files = [
            LIB,
            parent,
            ("crates/a/src/x/b.rs", "use super::X; struct B;"),
            ("crates/a/src/x/c.rs", "use super::{X, b::B};"),
        ];
        assert!(circles(&files).is_empty());
        let back = ("crates/a/src/x/b.rs", "use super::c; struct B;");
        assert_eq!(circles(&[LIB, parent, back, files[3]]), ["a::x: b, c"]);
    }

    #[test]
    fn tests_and_other_crates_make_no_circle() {
        let tests = "use crate::y; #[cfg(test)] mod tests { use crate::y; }";
        assert!(
            circles(&[
                LIB,
                ("crates/a/src/x.rs", tests),
                ("crates/a/src/y.rs", "#[cfg(test)] use crate::x; #[cfg(test)] mod tests;"),
                ("crates/a/src/y/tests.rs", "use crate::x::f;"),
                ("crates/b/src/lib.rs", "mod x; use a::x::f;"),
            ])
            .is_empty()
        );
    }

    #[test]
    fn the_table_of_known_circles_only_shrinks() {
        let circle = |neighbours: &[&str]| Circle {
            parent: "a".into(),
            neighbours: neighbours.iter().map(|&one| one.into()).collect(),
            arrows: Vec::new(),
        };
        let known: &[(&str, &[&str])] = &[("a", &["x", "y"])];
        assert!(judge(&[circle(&["x", "y"])], known).faults.is_empty());
        assert_eq!(judge(&[circle(&["x", "y"]), circle(&["v", "w"])], known).faults.len(), 1);
        let gone = judge(&[], known).faults;
        assert!(gone.len() == 1 && gone[0].contains("remove it"), "{gone:?}");
        assert_eq!(judge(&[circle(&["x", "y", "z"])], known).faults.len(), 2);
        let larger: &[(&str, &[&str])] = &[("a", &["x", "y", "z"])];
        let shrunk = judge(&[circle(&["x", "y"])], larger).faults;
        assert!(shrunk.len() == 1 && shrunk[0].ends_with("write x, y"), "{shrunk:?}");
    }
}
