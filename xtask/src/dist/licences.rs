//! The licences of what is compiled into the binary: their texts, each once, with the crates under it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;
use cargo_metadata::Package;

use super::answer;
use crate::process::Line;
use crate::workspace;

/// Names of files that are a licence or belong to one.
const NAMES: [&str; 5] = ["LICEN", "COPYING", "COPYRIGHT", "NOTICE", "UNLICEN"];

/// The texts for the binary of a target.
pub(super) fn of_binary(target: &str) -> anyhow::Result<String> {
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
        let _ = writeln!(list, "{name}: {licence}");
        for text in files(package)? {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let mut all = format!("Crates compiled into tcptoll, and their licences:\n\n{list}");
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
    for entry in fs::read_dir(folder).with_context(|| format!("reading {folder}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|of| name.starts_with(of)) {
            let text =
                fs::read(entry.path()).with_context(|| format!("reading a file of {folder}"))?;
            texts.push(String::from_utf8_lossy(&text).replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}
