//! The table that is printed: what, goal, figure, met or not.

use std::fs;
use std::path::PathBuf;

/// Rows as they come, printed at once.
pub(crate) struct Proofs {
    missed: usize,
    rows: usize,
    /// Another table stands between these rows.
    broken_off: bool,
}

impl Proofs {
    pub(crate) fn begin() -> Self {
        head();
        Self { missed: 0, rows: 0, broken_off: false }
    }

    /// Prints one figure.
    pub(crate) fn row(&mut self, what: &str, goal: &str, measured: &str, met: bool) {
        if std::mem::take(&mut self.broken_off) {
            println!();
            head();
        }
        self.rows += 1;
        self.missed += usize::from(!met);
        println!("| {what} | {goal} | {measured} | {} |", if met { "met" } else { "MISSED" });
    }

    /// Prints a figure without a goal.
    pub(crate) fn fact(what: &str, measured: &str) {
        println!("| {what} | — | {measured} | |");
    }

    pub(crate) fn note(&mut self, text: &str) {
        self.missed += 1;
        println!("| {text} | | | MISSED |");
    }

    /// Prints a table of its own.
    pub(crate) fn matrix(&mut self, heads: &[&str], rows: &[Vec<String>]) {
        println!("\n| {} |", heads.join(" | "));
        println!("|{}", " --- |".repeat(heads.len()));
        for row in rows {
            println!("| {} |", row.join(" | "));
        }
        self.broken_off = true;
    }

    pub(crate) fn all_met(&self) -> bool {
        self.missed == 0
    }

    pub(crate) fn end(&self) {
        println!("\n{} figures, {} missed", self.rows, self.missed);
    }
}

fn head() {
    println!("| what | goal | measured | |");
    println!("| --- | --- | --- | --- |");
}

// A folder that goes when it is done with.

pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("tcptoll-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Where a file of this name would be.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file and says where it is.
    pub(crate) fn file(&self, name: &str, text: &str) -> anyhow::Result<String> {
        let path = self.path(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
