//! What modules that the lab's tests share with these figures stand on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Where `cargo xtask dist` leaves the binary that users install: it is much smaller than a developer's.
pub(crate) const SHIPPED: &str = "target/dist-stage/root/usr/bin/tcptoll";

/// A folder that goes when it is done with.
pub(crate) struct Folder(pub(crate) TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::with_prefix("tcptoll-prove-").expect("a temporary folder can be made"))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }
}

/// The program as users have it, if it was packed, or else as developers have it.
pub(crate) fn program() -> PathBuf {
    if Path::new(SHIPPED).exists() {
        SHIPPED.into()
    } else {
        crate::links::tcptoll().expect("the program was built")
    }
}

pub(crate) fn tcptoll(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null());
    command
}
