//! Which crate and which module may name which: the arrows of ARCHITECTURE.md, checked.
//!
//! It reads manifests and source text, and compiles nothing. Each rule has a file with its tables in
//! `layers/`; how source text becomes names is in `layers/source.rs`, and where a name leads in
//! `layers/tree.rs`.

mod circles;
mod crates;
mod experiments;
mod modules;
mod packages;
mod source;
mod tree;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::process::Outcome;
use crate::workspace;
use source::Source;
use tree::{Krate, Tree};

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

/// What one rule found.
struct Verdict {
    /// What was counted.
    summary: String,
    /// What does not hold, each with its details.
    faults: Vec<String>,
    /// What does not hold either, but is in the rule's table.
    known: Vec<String>,
}

/// `cargo xtask layers [--known]`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    let with_known = match arguments {
        [] => false,
        [only] if only == "--known" => true,
        _ => bail!("layers accepts only --known"),
    };
    let mut findings = Vec::new();
    let manifest = read(Path::new("Cargo.toml"))?;
    findings.extend(crates::check_lints_of_workspace(&manifest.parse().context("Cargo.toml")?));
    let metadata = workspace::packages()?;
    let root = metadata.workspace_root.as_std_path();
    let mut krates = Vec::new();
    for package in metadata.workspace_packages() {
        let path = package.manifest_path.as_std_path();
        let path = path.strip_prefix(root).unwrap_or(path);
        let file = path.display().to_string();
        let manifest = read(path)?.parse().with_context(|| file.clone())?;
        findings.extend(crates::check(&file, package));
        findings.extend(crates::check_lints(&file, &manifest));
        let folder = path.parent().unwrap_or(path).display().to_string();
        krates.push(Krate { folder, name: package.name.replace('-', "_") });
    }
    let tree = Tree::new(&krates, sources()?);
    for file in &tree.files {
        findings.extend(modules::check(&tree, file));
    }
    let arrows = Verdict {
        summary: format!("{} crates, {} source files", krates.len(), tree.files.len()),
        faults: findings.iter().map(ToString::to_string).collect(),
        known: Vec::new(),
    };
    let [common, between] = experiments::check(&tree);
    let verdicts = [arrows, circles::check(&tree), common, between, packages::check()?];
    Ok(print(&verdicts, with_known))
}

/// Details of faults first, then a line for each rule.
fn print(verdicts: &[Verdict], with_known: bool) -> Outcome {
    for verdict in verdicts {
        for known in verdict.known.iter().filter(|_| with_known) {
            println!("known: {known}");
        }
        for fault in &verdict.faults {
            println!("{fault}");
        }
    }
    for Verdict { summary, faults, .. } in verdicts {
        let ending = match faults.len() {
            0 => "holds".to_owned(),
            1 => "1 fault".to_owned(),
            many => format!("{many} faults"),
        };
        println!("layers: {summary}: {ending}");
    }
    if verdicts.iter().all(|verdict| verdict.faults.is_empty()) {
        Outcome::Passed
    } else {
        Outcome::Failed
    }
}

/// Every source file of the workspace, read.
fn sources() -> anyhow::Result<Vec<(String, Source)>> {
    let mut paths = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(Path::new(folder), &mut paths)?;
    }
    let mut sources = Vec::new();
    for path in paths {
        let file = path.display().to_string();
        let text = read(&path)?;
        let length = text.lines().count();
        if length > LINES_MAX {
            println!("warning: {file}: {length} lines; above {LINES_MAX} it may hold two subjects");
        }
        let source = Source::parse(&text).with_context(|| file.clone())?;
        sources.push((file, source));
    }
    Ok(sources)
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
