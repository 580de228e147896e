//! The table that is printed: what, goal, figure, met or not.

/// Rows as they come, printed at once.
pub(crate) struct Table {
    missed: usize,
    rows: usize,
}

impl Table {
    pub(crate) fn begin() -> Self {
        println!("| what | goal | measured | |");
        println!("| --- | --- | --- | --- |");
        Self { missed: 0, rows: 0 }
    }

    /// Prints one figure.
    pub(crate) fn row(&mut self, what: &str, goal: &str, measured: &str, met: bool) {
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

    pub(crate) fn all_met(&self) -> bool {
        self.missed == 0
    }

    pub(crate) fn end(&self) {
        println!("\n{} figures, {} missed", self.rows, self.missed);
    }
}
