//! What cargo knows of the workspace: packages, their targets, and what they depend on.

use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::{CargoOpt, Metadata, MetadataCommand};

/// The packages of the workspace alone.
pub(crate) fn packages() -> anyhow::Result<Metadata> {
    ask(MetadataCommand::new().no_deps(), Vec::new())
}

/// The packages of the workspace with all that they build on for these targets, all features on.
pub(crate) fn with_dependencies(targets: &[&str]) -> anyhow::Result<Metadata> {
    let platforms = targets.iter().flat_map(|target| ["--filter-platform", target]);
    ask(
        MetadataCommand::new().features(CargoOpt::AllFeatures),
        platforms.map(str::to_owned).collect(),
    )
}

fn ask(command: &mut MetadataCommand, mut options: Vec<String>) -> anyhow::Result<Metadata> {
    if Path::new("Cargo.lock").exists() {
        options.push("--locked".to_owned());
    }
    command.other_options(options).exec().context("asking `cargo metadata`")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Component, PathBuf};

    use super::*;

    /// What a package lacks does not compile when it is built from its package.
    #[test]
    fn no_crate_includes_a_file_from_outside_of_its_folder() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
        let mut included = 0;
        let mut folders: Vec<PathBuf> =
            fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let Ok(text) = fs::read_to_string(&path) else { continue };
                // Tests are not built from a package.
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let is_test =
                    path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
                for part in code.split("include_").skip(1).filter(|_| !is_test) {
                    let name = part.split_once("!(\"").and_then(|(_, rest)| rest.split_once('"'));
                    let Some((name, _)) =
                        name.filter(|_| part.starts_with("str") || part.starts_with("bytes"))
                    else {
                        continue;
                    };
                    included += 1;
                    let ups =
                        Path::new(name).components().filter(|one| *one == Component::ParentDir);
                    let source = path.components().rev().position(|one| one.as_os_str() == "src");
                    assert!(ups.count() <= source.unwrap(), "{} includes {name}", path.display());
                }
            }
        }
        assert!(included > 30, "only {included} were found");
    }
}
