//! Which packages may enter: the licences, bans and sources of `deny.toml`, by what packages declare.
//!
//! It runs everywhere, as it needs nothing but cargo. cargo-deny goes further: it reads the texts of
//! the licences, knows exceptions, and looks for wildcards in versions.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context as _;
use cargo_metadata::Metadata;
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

use crate::workspace;

const FILE: &str = "deny.toml";
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The part of `deny.toml` that is checked here.
#[derive(Deserialize)]
struct Deny {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
    /// Packages that may depend on it all the same.
    #[serde(default)]
    wrappers: Vec<String>,
    reason: String,
}

/// What a package says of itself, and who depends on it.
#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// `None`: a member of the workspace.
    source: Option<String>,
    dependents: Vec<String>,
}

/// How many packages there are, and what does not hold.
pub(crate) fn check() -> anyhow::Result<(usize, Vec<String>)> {
    let deny: Deny = toml::from_str(&fs::read_to_string(FILE).context(FILE)?).context(FILE)?;
    let targets: Vec<&str> = deny.graph.targets.iter().map(String::as_str).collect();
    let packages = packages(&workspace::with_dependencies(&targets)?)?;
    Ok((packages.len(), faults(&deny, &packages)?))
}

fn packages(metadata: &Metadata) -> anyhow::Result<Vec<Package>> {
    let graph = metadata.resolve.as_ref().context("`cargo metadata` resolved nothing")?;
    let names: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (&package.id, package.name.to_string())).collect();
    let mut dependents: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for node in &graph.nodes {
        for dependency in &node.deps {
            dependents.entry(&dependency.pkg).or_default().extend(names.get(&node.id).cloned());
        }
    }
    let members = &metadata.workspace_members;
    let resolved = metadata.packages.iter().map(|package| {
        let elsewhere = || format!("the folder of {}", package.manifest_path);
        let path = (!members.contains(&package.id)).then(elsewhere);
        Package {
            name: package.name.to_string(),
            version: package.version.to_string(),
            license: package.license.clone(),
            source: package.source.as_ref().map(|source| source.repr.clone()).or(path),
            dependents: dependents.remove(&package.id).unwrap_or_default(),
        }
    });
    Ok(resolved.collect())
}

fn faults(deny: &Deny, packages: &[Package]) -> anyhow::Result<Vec<String>> {
    let allowed = deny.licenses.allow.iter().map(|license| {
        Licensee::parse(license).with_context(|| format!("{FILE}: licences: {license}"))
    });
    let allowed: Vec<Licensee> = allowed.collect::<Result<_, _>>()?;
    let mut faults = Vec::new();
    for package in packages {
        let mut fault = |text: String| {
            faults.push(format!("{} {}: {text}", package.name, package.version));
        };
        match package.license.as_deref() {
            None => fault("it declares no licence".to_owned()),
            Some(license) => match Expression::parse_mode(license, ParseMode::LAX) {
                Err(error) => {
                    fault(format!("its licence {license:?} cannot be parsed: {}", error.reason));
                }
                Ok(parsed) => {
                    if !parsed.evaluate(|wanted| allowed.iter().any(|one| one.satisfies(wanted))) {
                        fault(format!("its licence {license:?} is not in the list of {FILE}"));
                    }
                }
            },
        }
        if let Some(source) = package.source.as_deref().filter(|source| *source != CRATES_IO) {
            fault(format!("it comes from {source}; only crates.io is allowed"));
        }
        for banned in deny.bans.deny.iter().filter(|banned| banned.name == package.name) {
            let mut others = package.dependents.clone();
            others.retain(|name| !banned.wrappers.contains(name));
            if !others.is_empty() {
                fault(format!(
                    "it is banned, and used by {}: {}",
                    others.join(", "),
                    banned.reason
                ));
            }
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(change: impl FnOnce(&mut Package)) -> Option<String> {
        let deny = "graph.targets = []\nlicenses.allow = ['MIT', 'Apache-2.0 WITH LLVM-exception']\n\
            bans.deny = [{ crate = 'tokio', wrappers = ['heart'], reason = 'no' }]";
        let mut package = Package {
            name: "tokio".into(),
            version: "1.0.0".into(),
            license: Some("MIT".into()),
            source: Some(CRATES_IO.into()),
            dependents: vec!["heart".into()],
        };
        change(&mut package);
        let mut faults = faults(&toml::from_str(deny).unwrap(), &[package]).unwrap();
        assert!(faults.len() < 2, "{faults:?}");
        faults.pop()
    }

    #[test]
    fn licences_are_read_as_expressions_also_in_the_old_form() {
        let fault_with = |license: &str| fault(|package| package.license = Some(license.into()));
        for fine in ["MIT OR GPL-3.0", "GPL-3.0/MIT", "Apache-2.0 WITH LLVM-exception AND MIT"] {
            assert_eq!(fault_with(fine), None);
        }
        for not in ["Apache-2.0", "MIT AND GPL-3.0", "as you like"] {
            assert!(fault_with(not).is_some_and(|text| text.contains(not)), "{not}");
        }
        assert!(fault(|package| package.license = None).is_some());
    }

    #[test]
    fn packages_come_from_crates_io_or_the_workspace() {
        assert_eq!(fault(|package| package.source = None), None);
        let git = "git+https://example.org/tokio";
        assert!(fault(|package| package.source = Some(git.into())).unwrap().contains(git));
    }

    #[test]
    fn a_banned_package_enters_through_its_wrappers_alone() {
        let found = fault(|package| package.dependents.push("measure".into())).unwrap();
        assert_eq!(found, "tokio 1.0.0: it is banned, and used by measure: no");
    }

    #[test]
    fn the_list_of_this_project_can_be_read() {
        let deny: Deny = toml::from_str(include_str!("../../deny.toml")).unwrap();
        assert_eq!(faults(&deny, &[]).unwrap(), Vec::<String>::new());
        assert!(deny.bans.deny.iter().any(|banned| banned.name == "tokio"));
    }
}
