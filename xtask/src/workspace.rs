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
