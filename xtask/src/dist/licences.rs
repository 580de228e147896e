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
/// What the bill of materials calls Rust's standard library.
pub(super) const STD: &str = "std";
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

/// SPDX expression of the binary: all of its crates' licences, each once.
pub(super) fn expression(target: &str) -> anyhow::Result<String> {
    let built_in = built_in(target)?;
    let metadata = workspace::with_dependencies(&[target])?;
    let mut terms = BTreeSet::new();
    for package in &metadata.packages {
        if built_in.contains(&format!("{} {}", package.name, package.version)) {
            let licence = package.license.as_deref();
            terms.extend(conditions(
                licence.with_context(|| format!("{} names none", package.name))?,
            ));
        }
    }
    let terms: Vec<String> = terms.into_iter().collect();
    Ok(terms.join(" AND "))
}

/// What all has to be met, of `A/B` or `(A OR B) AND C`; alternatives in the order of the alphabet.
fn conditions(licence: &str) -> BTreeSet<String> {
    let licence = licence.replace('/', " OR ");
    let mut parts = vec![String::new()];
    let mut depth = 0_i32;
    for word in licence.split_whitespace() {
        depth += word.matches('(').count() as i32 - word.matches(')').count() as i32;
        match parts.last_mut() {
            Some(_) if word == "AND" && depth == 0 => parts.push(String::new()),
            Some(part) if part.is_empty() => *part += word,
            Some(part) => *part += &format!(" {word}"),
            None => {}
        }
    }
    let ordered = |part: String| {
        let bare = part.strip_prefix('(').and_then(|part| part.strip_suffix(')')).unwrap_or(&part);
        if bare.contains('(') {
            return format!("({bare})");
        }
        let mut alternatives: Vec<&str> = bare.split(" OR ").collect();
        alternatives.sort_unstable();
        match alternatives.as_slice() {
            [only] => (*only).to_owned(),
            several => format!("({})", several.join(" OR ")),
        }
    };
    parts.into_iter().map(ordered).collect()
}

/// Version of Rust's standard library, whose crates no lock file has.
pub(super) fn standard_library() -> anyhow::Result<String> {
    let said = answer(&Line::new("rustc").arg("--version"))?;
    said.split_whitespace().nth(1).map(str::to_owned).context("rustc names no version")
}

/// Name and version of each crate that is compiled into the binary, as cargo resolves it. Procedural macros run in
/// the compiler, so they and what they need are none.
pub(super) fn built_in(target: &str) -> anyhow::Result<BTreeSet<String>> {
    let tree = Line::cargo("tree")
        .args(["-p", "tcptoll", "--edges", "normal,no-proc-macro", "--target", target])
        .args(["--prefix", "none"])
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
            } else if NAMES.iter().any(|known| name.starts_with(known)) {
                let text = fs::read(entry.path()).with_context(reading)?;
                texts.push(String::from_utf8_lossy(&text).replace("\r\n", "\n"));
            }
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_found_once_and_alternatives_in_order() {
        let joined = |licence| conditions(licence).into_iter().collect::<Vec<_>>().join(" AND ");
        assert_eq!(joined("MIT/Apache-2.0"), "(Apache-2.0 OR MIT)");
        assert_eq!(joined("MIT OR Apache-2.0"), "(Apache-2.0 OR MIT)");
        assert_eq!(
            joined("(MIT OR Apache-2.0) AND Unicode-3.0"),
            "(Apache-2.0 OR MIT) AND Unicode-3.0"
        );
        assert_eq!(joined("Apache-2.0 AND ISC"), "Apache-2.0 AND ISC");
        let with = "Apache-2.0 WITH LLVM-exception OR MIT";
        assert_eq!(joined(with), format!("({with})"));
        assert_eq!(joined("MPL-2.0"), "MPL-2.0");
        assert_eq!(joined("A AND (B OR (C AND D))"), "(B OR (C AND D)) AND A");
    }
}
