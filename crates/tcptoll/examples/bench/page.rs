//! The page that is printed, line by line, and kept for a file.

use std::fmt::Write as _;

/// Markdown as it grows.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

impl Page {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_cell_for_each_heading() {
        let mut page = Page::default();
        page.table(&["a", "b"], &[vec!["1".to_owned(), "2".to_owned()]]);
        assert_eq!(page.text(), "| a | b |\n| --- | --- |\n| 1 | 2 |\n");
    }
}
