//! What modules that the lab's tests share with these figures stand on.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

/// Where `cargo xtask dist` leaves the binary that users install: it is much smaller than a developer's.
const SHIPPED: &str = "target/dist-stage/root/usr/bin/tcptoll";

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

/// The program as users have it, if this commit was packed.
pub(crate) fn shipped() -> Option<PathBuf> {
    static FOUND: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let said = |program: &str, words: [&str; 2]| {
            let output = Command::new(program).args(words).output().ok()?;
            String::from_utf8(output.stdout).ok()
        };
        let version = said(SHIPPED, ["--version", "--verbose"])?;
        let commit = version.lines().find_map(|line| line.strip_prefix("commit"))?;
        let head = said("git", ["rev-parse", "HEAD"])?;
        (commit.trim() == head.trim()).then(|| SHIPPED.into())
    });
    FOUND.clone()
}

/// The same, or else the program as developers have it.
pub(crate) fn program() -> PathBuf {
    shipped().unwrap_or_else(|| crate::links::tcptoll().expect("the program was built"))
}

pub(crate) fn tcptoll(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null());
    command
}
