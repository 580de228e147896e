//! What cargo knows of the workspace: packages, their targets, and what they depend on.

use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::{Metadata, MetadataCommand};

/// The packages of the workspace alone.
pub(crate) fn packages() -> anyhow::Result<Metadata> {
    ask(MetadataCommand::new().no_deps())
}

fn ask(command: &mut MetadataCommand) -> anyhow::Result<Metadata> {
    if Path::new("Cargo.lock").exists() {
        command.other_options(["--locked".to_owned()]);
    }
    command.exec().context("asking `cargo metadata`")
}
