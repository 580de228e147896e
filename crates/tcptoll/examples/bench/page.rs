//! The page that is printed, line by line, and kept for a file.

use std::fmt::Write as _;

use tcptoll_kernel::cpu;

use crate::contest::Ratio;
use crate::contest::peers::version_of;

/// Of a table of comparisons: see [`row`].
pub(crate) const HEAD: &[&str] =
    &["figure", "tcptoll", "peer", "ratio", "95 % interval", "tcptoll's", "peer's", "rounds"];

/// Markdown as it grows.
#[derive(Debug, Default)]
pub(crate) struct Markdown(String);

impl Markdown {
    /// Adds a paragraph.
    pub(crate) fn say(&mut self, text: &str) {
        self.line(text);
        self.line("");
    }

    /// Adds a table.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.line(&format!("| {} |", head.join(" | ")));
        self.line(&format!("|{}", " --- |".repeat(head.len())));
        for row in rows {
            self.line(&format!("| {} |", row.join(" | ")));
        }
        self.line("");
    }

    pub(crate) fn text(&self) -> String {
        format!("{}\n", self.0.trim_end())
    }

    fn line(&mut self, text: &str) {
        println!("{text}");
        let _ = writeln!(self.0, "{text}");
    }
}

/// Says on what machine and beside which versions is measured. `peers`: program and package of each.
pub(crate) fn environment(page: &mut Markdown, peers: &[(&str, &str)]) {
    let passport = tcptoll_lab::passport::read();
    let mut rows = vec![
        ["kernel".to_owned(), passport.kernel],
        ["CPU".to_owned(), format!("{}, {} of them", passport.cpu, passport.cpus)],
        ["congestion control".to_owned(), passport.congestion_control.unwrap_or_default()],
        ["clock".to_owned(), passport.clock_source],
        [
            "open files".to_owned(),
            cpu::file_limit().map_or_else(|e| e.to_string(), |n| n.to_string()),
        ],
        ["tcptoll".to_owned(), env!("CARGO_PKG_VERSION").to_owned()],
    ];
    for (program, package) in peers {
        let missing = || format!("not here; it is in the package {package}");
        rows.push([(*program).to_owned(), version_of(program, package).unwrap_or_else(missing)]);
    }
    rows.push(["date".to_owned(), jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()]);
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    page.table(&["environment", ""], &rows);
}

/// A row below [`HEAD`].
pub(crate) fn row(
    what: &str,
    ours: &str,
    theirs: &str,
    ratio: &Ratio,
    shown: fn(f64) -> String,
) -> Vec<String> {
    vec![
        what.to_owned(),
        ours.to_owned(),
        theirs.to_owned(),
        format!("{:.3}", ratio.value),
        ratio.interval(),
        shown(ratio.ours),
        shown(ratio.theirs),
        ratio.rounds.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_cell_for_each_heading() {
        let mut page = Markdown::default();
        page.table(&["a", "b"], &[vec!["1".to_owned(), "2".to_owned()]]);
        assert_eq!(page.text(), "| a | b |\n| --- | --- |\n| 1 | 2 |\n");
    }
}
