//! What one source file may name: levels of engine and lab, the pure model, `unsafe`, names of files.

use super::Finding;
use super::source::Name;
use super::tree::{File, Tree};

/// The only folder whose sources may say `unsafe`.
const UNSAFE_FOLDER: &str = "crates/kernel/";
/// The other files that may: a library that stands alone has an edge of its own, and the lint is
/// denied, not forbidden, at the top of that library, so that its edge can lift it.
const UNSAFE_FILES: &[&str] = &["crates/heartbeat/src/kernel.rs", "crates/heartbeat/src/lib.rs"];

/// The crates whose modules have levels, and their folders.
const LEVELLED: [(&str, &str); 2] =
    [("tcptoll_engine", "crates/engine/src/"), ("tcptoll_lab", "crates/lab/src/")];
/// Their modules with their levels: each may name those of a lower level, and itself.
/// A new module must be placed here: a file that is not is an error.
///
/// The lab stands above the host because its init becomes the hosts; a host never knows of a lab.
const LEVELS: &[(&str, u8)] = &[
    ("runner", 6),
    ("experiments", 5),
    ("record", 5),
    ("doctor", 4),
    ("watch", 3),
    ("lab", 4),
    ("host", 3),
    ("passport", 3),
    ("load", 2),
    ("observe", 2),
    ("servers", 2),
    ("channel", 1),
    ("clock", 1),
    ("control_group", 1),
    ("files", 1),
    ("run_folder", 1),
    ("messages", 0),
];

const MODEL_FOLDER: &str = "crates/model/src/";
/// What the pure crate must not name, nor anything inside it.
const IMPURE: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "env"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "io", "stdin"],
    &["std", "io", "stdout"],
    &["std", "io", "stderr"],
    &["std", "net", "TcpStream"],
    &["std", "net", "TcpListener"],
    &["std", "net", "UdpSocket"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
];

/// Names of files that say nothing of what is in them.
const NAMELESS: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc"];

/// Everything that one source file can break by itself.
pub(super) fn check(tree: &Tree, file: &File) -> Vec<Finding> {
    let finding = |line, text| Finding { file: file.path.clone(), line, text };
    let whole = [nameless(&file.path), unplaced(&file.path)].into_iter().flatten();
    let mut findings: Vec<Finding> = whole.map(|text| finding(None, text)).collect();
    for (word, line) in &file.source.words {
        findings.extend(unsafe_word(&file.path, word).map(|text| finding(Some(*line), text)));
    }
    for name in &file.source.names {
        let rules = [impure(tree, file, name), upward(tree, file, name)];
        let texts = rules.into_iter().flatten();
        findings.extend(texts.map(|text| finding(Some(name.place.line), text)));
    }
    // One fault on a line, though a path may be named there twice.
    findings.dedup();
    findings
}

fn nameless(file: &str) -> Option<String> {
    let stem = file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs"))?;
    let name = stem.rsplit('/').next().filter(|name| NAMELESS.contains(name))?;
    Some(format!("the name {name:?} does not say what the file holds: use a noun"))
}

fn unsafe_word(file: &str, word: &str) -> Option<String> {
    if file.starts_with(UNSAFE_FOLDER) || UNSAFE_FILES.contains(&file) {
        return None;
    }
    match word {
        "unsafe" => Some(format!("`unsafe` outside {UNSAFE_FOLDER}: wrap what is needed there")),
        "unsafe_code" => {
            Some(format!("the lint unsafe_code may be lifted only in {UNSAFE_FOLDER}"))
        }
        _ => None,
    }
}

fn impure(tree: &Tree, file: &File, name: &Name) -> Option<String> {
    if !file.path.starts_with(MODEL_FOLDER) {
        return None;
    }
    let words = tree.foreign(file, name)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let hit = IMPURE.iter().find(|forbidden| {
        // A whole module taken in, by name or by `*`, hides what is used of it.
        let module = &forbidden[..forbidden.len() - 1];
        let whole = name.taken_in
            && module.len() > 1
            && (words == module || words.strip_suffix(&["*"]) == Some(module))
            // Most of `std::io` is pure, so its name may be.
            && module[1] != "io";
        whole || words.starts_with(forbidden) || words == ["std", "*"]
    })?;
    Some(format!("the model must stay pure: it must not use {}", hit.join("::")))
}

/// The module that a file belongs to, of those with levels; none for `lib.rs`, which only lists them.
fn levelled_module(file: &str) -> Option<&str> {
    let inside = LEVELLED.iter().find_map(|(_, folder)| file.strip_prefix(folder))?;
    let first = inside.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (name != "lib").then_some(name)
}

fn unplaced(file: &str) -> Option<String> {
    let name = levelled_module(file)?;
    if LEVELS.iter().any(|(placed, _)| *placed == name) {
        return None;
    }
    Some(format!(
        "module {name} is not in the table of xtask/src/layers/modules.rs: place it there"
    ))
}

fn upward(tree: &Tree, file: &File, name: &Name) -> Option<String> {
    let from = levelled_module(&file.path)?;
    let (from, level) = LEVELS.iter().find(|(module, _)| *module == from)?;
    let written = tree.absolute(file, name)?;
    // As written, and where a re-export leads.
    let reached = tree.locate(&written);
    let named = [&written, &reached]
        .into_iter()
        .filter(|module| LEVELLED.iter().any(|(krate, _)| module.krate == *krate));
    let (to, its_level) = named
        .filter_map(|module| {
            let first = module.words.first()?;
            LEVELS.iter().find(|(known, _)| first == known)
        })
        .find(|(to, its_level)| to != from && its_level >= level)?;
    Some(format!("{from} (level {level}) must not name {to} (level {its_level})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::source::Source;
    use crate::layers::tree::Krate;

    fn findings_in(files: &[(&str, &str)]) -> Vec<String> {
        let krate = |folder: &str, name: &str| Krate { folder: folder.into(), name: name.into() };
        let crates = [
            krate("crates/engine", "tcptoll_engine"),
            krate("crates/lab", "tcptoll_lab"),
            krate("crates/model", "tcptoll_model"),
            krate("crates/report", "tcptoll_report"),
        ];
        let sources =
            files.iter().map(|(path, text)| ((*path).to_owned(), Source::parse(text).unwrap()));
        let tree = Tree::new(&crates, sources.collect());
        check(&tree, &tree.files[0]).iter().map(ToString::to_string).collect()
    }

    fn findings(file: &str, text: &str) -> Vec<String> {
        findings_in(&[(file, text)])
    }

    #[test]
    fn an_upward_arrow_is_found_with_its_line() {
        let found = findings("crates/lab/src/lab/veth.rs", "\nuse crate::runner::Plan;\n");
        assert_eq!(
            found,
            ["crates/lab/src/lab/veth.rs:2: lab (level 4) must not name runner (level 6)"]
        );
    }

    #[test]
    fn a_downward_arrow_a_comment_and_a_text_are_fine() {
        let text = "//! crate::runner\n/* crate::runner */ use crate::clock::Clock;\n\
                    const HINT: &str = \"crate::runner\";";
        assert!(findings("crates/lab/src/load.rs", text).is_empty());
    }

    #[test]
    fn a_group_and_a_path_in_the_middle_of_code_or_of_a_macro_are_seen() {
        let grouped = "use crate::{clock::Clock,\nexperiments::{self,\nconnect}};";
        assert_eq!(findings("crates/lab/src/observe/mod.rs", grouped).len(), 2);
        for code in ["crate::lab::up()", "println!(\"{}\", crate::lab::up())", "m! { crate::lab }"]
        {
            let text = format!("fn f() {{ {code}; }}");
            assert_eq!(findings("crates/lab/src/load.rs", &text).len(), 1, "{code}");
        }
    }

    #[test]
    fn neither_a_rename_nor_a_re_export_hides_an_arrow() {
        let renamed = "use crate as root; fn f() -> root::runner::Plan { todo!() }";
        assert_eq!(findings("crates/lab/src/load.rs", renamed).len(), 1);
        let found = findings_in(&[
            ("crates/engine/src/record.rs", "use crate::Plan;"),
            ("crates/engine/src/lib.rs", "mod record; mod runner; pub use runner::Plan;"),
            ("crates/engine/src/runner.rs", "pub struct Plan;"),
        ]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn the_lab_makes_hosts_and_a_host_knows_no_lab() {
        assert!(findings("crates/lab/src/lab/init.rs", "use crate::host;").is_empty());
        assert_eq!(findings("crates/lab/src/host.rs", "use crate::lab::Lab;").len(), 1);
    }

    #[test]
    fn neighbours_of_one_level_do_not_name_each_other() {
        assert_eq!(findings("crates/lab/src/observe.rs", "use crate::load::X;").len(), 1);
        assert!(findings("crates/lab/src/load/a.rs", "use crate::load::b;").is_empty());
    }

    #[test]
    fn super_is_followed_to_where_it_leads() {
        let file = "crates/lab/src/lab/link/pump.rs";
        assert_eq!(findings(file, "use super::super::super::runner::Plan;").len(), 1);
        assert!(findings(file, "use super::super::runner::Plan;").is_empty());
        let inside_a_test_module = "mod tests { use super::runner; }";
        assert!(findings("crates/lab/src/load.rs", inside_a_test_module).is_empty());
    }

    #[test]
    fn a_module_that_nobody_placed_is_an_error() {
        assert_eq!(findings("crates/engine/src/novelty/mod.rs", "").len(), 1);
        assert!(
            findings("crates/engine/src/lib.rs", "pub mod runner; use crate::runner;").is_empty()
        );
    }

    #[test]
    fn the_model_has_no_clock_file_or_environment() {
        let file = "crates/model/src/link.rs";
        for text in [
            "use std::fs;",
            "use std::fs::File;",
            "use std::{collections::BTreeMap, env};",
            "use std::net::{IpAddr, TcpStream};",
            "use std::net::{self, IpAddr};",
            "use std::time::*;",
            "use std::*;",
            "use std::time;",
            "fn f() { std::time::Instant::now(); }",
            "use std as s; fn f() { s::env::args(); }",
            "fn f() { println!(\"{:?}\", std::env::args()); }",
        ] {
            assert!(!findings(file, text).is_empty(), "{text}");
        }
        let pure = "use std::{net::{IpAddr, Ipv4Addr}, time::Duration}; // std::fs\nuse std::io;";
        assert!(findings(file, pure).is_empty(), "{:?}", findings(file, pure));
        assert!(findings("crates/lab/src/clock.rs", "use std::time::Instant;").is_empty());
    }

    #[test]
    fn unsafe_belongs_to_the_kernel_crate() {
        for text in [
            "fn f() { unsafe { g() } }",
            "unsafe fn f() {}",
            "unsafe impl Send for S {}",
            "fn f() { m! { unsafe { g() } } }",
            "#![allow(unsafe_code)]",
        ] {
            assert_eq!(findings("crates/report/src/html.rs", text).len(), 1, "{text}");
            assert!(findings("crates/kernel/src/tun.rs", text).is_empty(), "{text}");
        }
        assert!(findings("crates/report/src/html.rs", "// unsafe\nfn unsafely() {}").is_empty());
    }

    #[test]
    fn a_file_must_be_named_after_what_is_in_it() {
        assert_eq!(findings("crates/report/src/helpers.rs", "").len(), 1);
        assert_eq!(findings("crates/tcptoll/tests/common/mod.rs", "").len(), 1);
        assert!(findings("crates/model/src/common_cause.rs", "").is_empty());
    }
}
