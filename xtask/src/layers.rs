//! Which crate and which module may name which: the arrows of ARCHITECTURE.md, checked.
//!
//! It reads manifests and source text; it compiles nothing and follows no re-exports. The rules
//! are the tables below; how source text becomes paths is in `layers/source.rs`.

mod source;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use source::{Name, Source};

use crate::process::Outcome;

/// Crate, and the crates of ours that it may depend on. A new crate must be placed here.
const CRATES: &[(&str, &[&str])] = &[
    ("tcptoll", &["tcptoll-engine", "tcptoll-report", "tcptoll-model"]),
    ("tcptoll-engine", &["tcptoll-kernel", "tcptoll-model", "tcp-heartbeat"]),
    ("tcptoll-report", &["tcptoll-model"]),
    ("tcptoll-kernel", &["tcptoll-model"]),
    ("tcptoll-model", &[]),
    // For programs of all kinds: it knows nothing of tcptoll.
    ("tcp-heartbeat", &[]),
];

/// Dependencies, with what begins with them and a dash, of the command line alone.
const COMMAND_LINE_ONLY: &[&str] = &["clap", "anyhow"];
const COMMAND_LINE: &str = "tcptoll";

/// The only folder whose sources may say `unsafe`.
const UNSAFE_FOLDER: &str = "crates/kernel/";
/// The one other file that may: a library that stands alone has an edge of its own.
const UNSAFE_FILE: &str = "crates/heartbeat/src/kernel.rs";

const ENGINE_FOLDER: &str = "crates/engine/src/";
/// Modules of the engine with their levels: each may name those of a lower level, and itself.
/// A new module must be placed here: a file that is not is an error.
///
/// The lab stands above the host because its init becomes the hosts; a host never knows of a lab.
const ENGINE: &[(&str, u8)] = &[
    ("runner", 6),
    ("experiments", 5),
    ("record", 5),
    ("lab", 4),
    ("host", 3),
    ("passport", 3),
    ("load", 2),
    ("observe", 2),
    ("servers", 2),
    ("channel", 1),
    ("messages", 0),
    ("clock", 1),
    ("files", 1),
];

const MODEL_FOLDER: &str = "crates/model/src/";
/// What the pure crate must not name, nor anything inside it.
const IMPURE: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "env"],
    &["std", "process"],
    &["std", "net", "TcpStream"],
    &["std", "net", "TcpListener"],
    &["std", "net", "UdpSocket"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
];

/// Names of files that say nothing of what is in them.
const NAMELESS: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc"];

/// Above this many lines a file is worth a look.
const LINES_MAX: usize = 600;

/// Something that does not hold.
#[derive(Debug, PartialEq)]
struct Finding {
    file: String,
    /// From 1; absent where it concerns the whole file.
    line: Option<usize>,
    text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// `cargo xtask layers`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    if !arguments.is_empty() {
        bail!("layers takes no arguments");
    }
    let mut findings = Vec::new();
    let root = read(Path::new("Cargo.toml"))?;
    findings.extend(check_lints_of_workspace(&root.parse().context("Cargo.toml")?));
    let mut crates = 0;
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir("crates").context("listing crates")? {
        entries.push(entry.context("listing crates")?.path().join("Cargo.toml"));
    }
    entries.sort();
    for path in entries.iter().filter(|path| path.exists()) {
        let file = path.display().to_string();
        let manifest = read(path)?.parse().with_context(|| file.clone())?;
        findings.extend(check_manifest(&file, &manifest));
        crates += 1;
    }
    let mut sources = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(Path::new(folder), &mut sources)?;
    }
    for path in &sources {
        let file = path.display().to_string();
        let text = read(path)?;
        let length = text.lines().count();
        if length > LINES_MAX {
            println!("warning: {file}: {length} lines; above {LINES_MAX} it may hold two subjects");
        }
        findings.extend(check_source(&file, &Source::of(&text)));
    }
    for finding in &findings {
        println!("{finding}");
    }
    println!(
        "layers: {crates} crates, {} source files, {} out of order",
        sources.len(),
        findings.len()
    );
    Ok(if findings.is_empty() { Outcome::Passed } else { Outcome::Failed })
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Every `.rs` file below a folder, in order of name.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        entries.push(entry.with_context(|| format!("listing {}", folder.display()))?.path());
    }
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The lint that the crates inherit must be the strict one.
fn check_lints_of_workspace(manifest: &toml::Table) -> Option<Finding> {
    let level = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("lints")?.get("rust")?.get("unsafe_code")?.as_str());
    (!matches!(level, Some("deny" | "forbid"))).then(|| Finding {
        file: "Cargo.toml".to_owned(),
        line: None,
        text: "workspace.lints.rust: unsafe_code must be \"deny\"".to_owned(),
    })
}

/// Arrows between crates, and lints, of one `crates/*/Cargo.toml`.
fn check_manifest(file: &str, manifest: &toml::Table) -> Vec<Finding> {
    let finding = |text: String| Finding { file: file.to_owned(), line: None, text };
    let name = manifest.get("package").and_then(|package| package.get("name")?.as_str());
    let Some((name, allowed)) =
        name.and_then(|name| CRATES.iter().find(|(known, _)| *known == name))
    else {
        let name = name.unwrap_or("without a name");
        return vec![finding(format!(
            "crate {name} is not in the table of crates in xtask/src/layers.rs: place it there"
        ))];
    };
    let mut findings = Vec::new();
    for dependency in normal_dependencies(manifest) {
        let ours = dependency == "xtask" || CRATES.iter().any(|(known, _)| *known == dependency);
        if ours && !allowed.contains(&dependency) {
            findings.push(finding(format!(
                "{name} must not depend on {dependency}, only on {}",
                if allowed.is_empty() { "no crate of ours".to_owned() } else { allowed.join(", ") }
            )));
        }
        let reserved = COMMAND_LINE_ONLY.iter().any(|reserved| {
            dependency
                .strip_prefix(reserved)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '-']))
        });
        if reserved && *name != COMMAND_LINE {
            findings.push(finding(format!("{dependency} belongs to {COMMAND_LINE} alone")));
        }
    }
    let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
    if inherits != Some(true) {
        findings.push(finding("it must inherit the lints: [lints] workspace = true".to_owned()));
    }
    findings
}

/// Names of normal dependencies: those of development do not ship, so no arrow binds them.
fn normal_dependencies(manifest: &toml::Table) -> Vec<&str> {
    let tables = manifest.get("dependencies").into_iter().chain(
        manifest
            .get("target")
            .and_then(toml::Value::as_table)
            .into_iter()
            .flat_map(toml::Table::values)
            .filter_map(|target| target.get("dependencies")),
    );
    tables
        .filter_map(toml::Value::as_table)
        .flatten()
        // `name = { package = "other" }` depends on the other.
        .map(|(name, value)| value.get("package").and_then(toml::Value::as_str).unwrap_or(name))
        .collect()
}

/// Everything that one source file can break.
fn check_source(file: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(name) = nameless(file) {
        findings.push(Finding {
            file: file.to_owned(),
            line: None,
            text: format!("the name {name:?} says nothing of what is in it: name the noun"),
        });
    }
    let rules: [fn(&str, &Name) -> Option<String>; 3] = [unsafe_word, impure, upward];
    if let Some(text) = unplaced(file) {
        findings.push(Finding { file: file.to_owned(), line: None, text });
    }
    for name in source.names() {
        for text in rules.iter().filter_map(|rule| rule(file, name)) {
            findings.push(Finding { file: file.to_owned(), line: Some(name.line), text });
        }
    }
    findings
}

fn nameless(file: &str) -> Option<&str> {
    let stem = file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs"))?;
    let name = stem.rsplit('/').next()?;
    NAMELESS.contains(&name).then_some(name)
}

fn unsafe_word(file: &str, name: &Name) -> Option<String> {
    // The lint is denied, not forbidden, at the top of that library, so that its edge can lift it.
    let denied = file == "crates/heartbeat/src/lib.rs";
    if file.starts_with(UNSAFE_FOLDER) || file == UNSAFE_FILE || denied {
        return None;
    }
    match name.path.as_slice() {
        [word] if word == "unsafe" => {
            Some(format!("`unsafe` outside {UNSAFE_FOLDER}: wrap what is needed there"))
        }
        [word] if word == "unsafe_code" => {
            Some(format!("the lint unsafe_code may be lifted in {UNSAFE_FOLDER} alone"))
        }
        _ => None,
    }
}

fn impure(file: &str, name: &Name) -> Option<String> {
    if !file.starts_with(MODEL_FOLDER) {
        return None;
    }
    let hit = IMPURE.iter().find(|forbidden| {
        let parts = forbidden.iter().zip(&name.path);
        // A whole module taken in, by name or by `*`, hides what is used of it.
        let whole = match name.path.as_slice() {
            [std, module] => [std, module] == [forbidden[0], forbidden[1]],
            [std, module, star] => [std, module, star] == [forbidden[0], forbidden[1], "*"],
            _ => false,
        };
        whole || (name.path.len() >= forbidden.len() && parts.clone().all(|(a, b)| a == b))
    })?;
    Some(format!("the model is pure: {} has no place in it", hit.join("::")))
}

/// The module of the engine that a file belongs to; none for `lib.rs`, which only lists them.
fn engine_module(file: &str) -> Option<&str> {
    let inside = file.strip_prefix(ENGINE_FOLDER)?;
    let first = inside.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (name != "lib").then_some(name)
}

fn unplaced(file: &str) -> Option<String> {
    let name = engine_module(file)?;
    if ENGINE.iter().any(|(placed, _)| *placed == name) {
        return None;
    }
    Some(format!("module {name} is not in the table of xtask/src/layers.rs: place it there"))
}

fn upward(file: &str, name: &Name) -> Option<String> {
    let from = engine_module(file)?;
    let (from, level) = ENGINE.iter().find(|(module, _)| *module == from)?;
    let absolute = absolute(file, name)?;
    let (to, its_level) = ENGINE.iter().find(|(module, _)| absolute.first() == Some(module))?;
    if to == from || its_level < level {
        return None;
    }
    Some(format!("{from} (level {level}) must not name {to} (level {its_level})"))
}

/// A path that begins with `crate`, `self` or `super`, from the root of the crate; others: none.
fn absolute<'a>(file: &'a str, name: &'a Name) -> Option<Vec<&'a str>> {
    let words: Vec<&str> = name.path.iter().map(String::as_str).collect();
    if words.first() == Some(&"crate") {
        return Some(words[1..].to_vec());
    }
    let climbs = words.iter().take_while(|word| **word == "super").count();
    let own = usize::from(words.first() == Some(&"self"));
    if climbs + own == 0 {
        return None;
    }
    let inside = file.strip_prefix(ENGINE_FOLDER)?;
    let inside = inside.strip_suffix("/mod.rs").or_else(|| inside.strip_suffix(".rs"))?;
    let mut place: Vec<&str> = inside.split('/').collect();
    place.extend(name.inline_modules.iter().map(String::as_str));
    place.truncate(place.len().saturating_sub(climbs));
    place.extend(&words[climbs + own..]);
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> Vec<String> {
        check_source(file, &Source::of(text)).iter().map(ToString::to_string).collect()
    }

    fn manifest(text: &str) -> Vec<String> {
        let text = format!("{text}\n[lints]\nworkspace = true\n");
        let found = check_manifest("Cargo.toml", &text.parse().unwrap());
        found.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn an_upward_arrow_is_found_with_its_line() {
        let found = findings("crates/engine/src/lab/veth.rs", "\nuse crate::runner::Plan;\n");
        assert_eq!(
            found,
            ["crates/engine/src/lab/veth.rs:2: lab (level 4) must not name runner (level 6)"]
        );
    }

    #[test]
    fn a_downward_arrow_a_comment_and_a_text_are_fine() {
        let text = "//! crate::runner\n/* crate::runner */ use crate::clock::Clock;\n\
                    const HINT: &str = \"crate::runner\";";
        assert!(findings("crates/engine/src/load.rs", text).is_empty());
    }

    #[test]
    fn a_group_and_a_path_in_the_middle_of_code_are_seen() {
        let grouped = "use crate::{clock::Clock, experiments::{self, connect}};";
        assert_eq!(findings("crates/engine/src/observe/mod.rs", grouped).len(), 2);
        let inline = "fn f() -> u8 { crate::servers::nginx::start() }";
        assert_eq!(findings("crates/engine/src/load.rs", inline).len(), 1);
    }

    #[test]
    fn the_lab_makes_hosts_and_a_host_knows_no_lab() {
        assert!(findings("crates/engine/src/lab/init.rs", "use crate::host;").is_empty());
        assert_eq!(findings("crates/engine/src/host.rs", "use crate::lab::Lab;").len(), 1);
    }

    #[test]
    fn neighbours_of_one_level_do_not_name_each_other() {
        assert_eq!(findings("crates/engine/src/observe.rs", "use crate::load::X;").len(), 1);
        assert!(findings("crates/engine/src/load/a.rs", "use crate::load::b;").is_empty());
    }

    #[test]
    fn super_is_followed_to_where_it_leads() {
        let file = "crates/engine/src/lab/link/pump.rs";
        assert_eq!(findings(file, "use super::super::super::runner::Plan;").len(), 1);
        assert!(findings(file, "use super::super::runner::Plan;").is_empty());
        let inside_a_test_module = "mod tests { use super::runner; }";
        assert!(findings("crates/engine/src/load.rs", inside_a_test_module).is_empty());
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
            "use std::time::*;",
            "use std::time;",
            "fn f() { std::time::Instant::now(); }",
        ] {
            assert_eq!(findings(file, text).len().min(1), 1, "{text}");
        }
        let pure = "use std::{net::{IpAddr, Ipv4Addr}, time::Duration}; // std::fs\nuse std::io;";
        assert!(findings(file, pure).is_empty(), "{:?}", findings(file, pure));
        assert!(findings("crates/engine/src/clock.rs", "use std::time::Instant;").is_empty());
    }

    #[test]
    fn unsafe_belongs_to_the_kernel_crate() {
        let text = "fn f() { unsafe { g() } }";
        assert_eq!(findings("crates/report/src/html.rs", text).len(), 1);
        assert!(findings("crates/kernel/src/tun.rs", text).is_empty());
        assert!(findings("crates/report/src/html.rs", "// unsafe\nfn unsafely() {}").is_empty());
        assert_eq!(findings("crates/tcptoll/src/lib.rs", "#![allow(unsafe_code)]").len(), 1);
    }

    #[test]
    fn a_file_must_be_named_after_what_is_in_it() {
        assert_eq!(findings("crates/report/src/helpers.rs", "").len(), 1);
        assert_eq!(findings("crates/tcptoll/tests/common/mod.rs", "").len(), 1);
        assert!(findings("crates/model/src/common_cause.rs", "").is_empty());
    }

    #[test]
    fn crates_depend_downward() {
        let report = "[package]\nname = 'tcptoll-report'\n[dependencies]\n";
        assert!(manifest(&format!("{report}tcptoll-model.workspace = true")).is_empty());
        let upward = manifest(&format!("{report}tcptoll-engine.workspace = true"));
        assert_eq!(
            upward,
            ["tcptoll-report must not depend on tcptoll-engine, only on tcptoll-model"]
        );
        let renamed =
            manifest(&format!("{report}e = {{ package = 'tcptoll-kernel', version = '1' }}"));
        assert_eq!(renamed.len(), 1);
        let target =
            "[package]\nname = 'tcptoll-report'\n[target.'cfg(unix)'.dependencies]\ntcptoll = '1'";
        assert_eq!(manifest(target).len(), 1);
        let tests = "[package]\nname = 'tcptoll-report'\n[dev-dependencies]\ntcptoll-engine = '1'";
        assert!(manifest(tests).is_empty());
    }

    #[test]
    fn arguments_and_chains_of_causes_belong_to_the_command_line() {
        let kernel = "[package]\nname = 'tcptoll-kernel'\n[dependencies]\n";
        assert_eq!(manifest(&format!("{kernel}clap_mangen = '1'\nanyhow = '1'")).len(), 2);
        assert!(manifest("[package]\nname = 'tcptoll'\n[dependencies]\nclap = '4'").is_empty());
    }

    #[test]
    fn a_crate_must_be_placed_and_inherit_the_lints() {
        assert_eq!(manifest("[package]\nname = 'tcptoll-novelty'").len(), 1);
        let bare = "[package]\nname = 'tcptoll-model'".parse().unwrap();
        assert_eq!(check_manifest("Cargo.toml", &bare).len(), 1);
        let lax = "[workspace.lints.rust]\nunsafe_code = 'warn'".parse().unwrap();
        assert!(check_lints_of_workspace(&lax).is_some());
        let strict = "[workspace.lints.rust]\nunsafe_code = 'deny'".parse().unwrap();
        assert!(check_lints_of_workspace(&strict).is_none());
    }
}
