//! The licences of what is compiled into the binary: their texts, each once, with the crates under it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, ensure};
use cargo_metadata::Package;

use super::answer;
use crate::process::Line;
use crate::workspace;

/// What the file of them is called in every package.
pub(super) const FILE: &str = "THIRD-PARTY-LICENSES.txt";
/// Where it is written first.
pub(super) const WRITTEN: &str = "target/dist-stage/THIRD-PARTY-LICENSES.txt";
/// Folders below a crate's own in which licences of others' code are.
const DEPTH: usize = 3;

/// Names of files that are a licence or belong to one.
const NAMES: [&str; 5] = ["LICEN", "COPYING", "COPYRIGHT", "NOTICE", "UNLICEN"];

/// Writes the texts for the binary of a target.
pub(super) fn write(target: &str) -> anyhow::Result<()> {
    fs::write(WRITTEN, of_binary(target)?).with_context(|| format!("writing {WRITTEN}"))
}

fn of_binary(target: &str) -> anyhow::Result<String> {
    let built_in = built_in(target)?;
    let metadata = workspace::with_dependencies(&[target])?;
    // A text, and the crates that have it.
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        if package.source.is_none() || !built_in.contains(&name) {
            continue;
        }
        let licence = package.license.as_deref().unwrap_or("see its file");
        let found = files(package)?;
        let bare = if found.is_empty() { "; its package has no text of it" } else { "" };
        let source = package.repository.as_deref().unwrap_or("the registry of crates");
        let _ = writeln!(list, "{name}: {licence}; sources: {source}{bare}");
        for text in found {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    ensure!(!texts.is_empty(), "no licence was found for {target}");
    let mut all = format!(
        "Crates compiled into tcptoll, their licences, and where their sources are:\n\n{list}\n\
         Rust's standard library: MIT OR Apache-2.0; sources: https://github.com/rust-lang/rust\n"
    );
    for (text, crates) in texts {
        let crates: Vec<String> = crates.into_iter().collect();
        let _ =
            write!(all, "\n{}\n{}:\n\n{}\n", "-".repeat(78), crates.join(", "), text.trim_end());
    }
    Ok(all)
}

/// Name and version of each crate that is compiled into the binary, as cargo resolves it.
pub(super) fn built_in(target: &str) -> anyhow::Result<BTreeSet<String>> {
    let tree = Line::cargo("tree")
        .args(["-p", "tcptoll", "--edges", "normal", "--target", target, "--prefix", "none"])
        .args(["--format", "{p}"])
        .locked();
    let said = answer(&tree)?;
    let lines = said.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?.trim_start_matches('v')))
    });
    Ok(lines.collect())
}

fn files(package: &Package) -> anyhow::Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
    let mut texts = Vec::new();
    let mut folders = vec![(folder.as_std_path().to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let reading = || format!("reading {}", folder.display());
        let entries = fs::read_dir(&folder).with_context(reading)?;
        let mut entries = entries.collect::<Result<Vec<_>, _>>().with_context(reading)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name().to_string_lossy().to_uppercase();
            if entry.file_type()?.is_dir() {
                if depth < DEPTH {
                    folders.push((entry.path(), depth + 1));
                }
            } else if NAMES.iter().any(|of| name.starts_with(of)) {
                let text = fs::read(entry.path()).with_context(reading)?;
                texts.push(String::from_utf8_lossy(&text).replace("\r\n", "\n"));
            }
        }
    }
    Ok(texts)
}
