//! Which settings are measured next, and which one is chosen.
//!
//! Settings whose p95 is within 5 % are alike; then the mean decides, then the workers held. Of 35 pages the
//! p95 rests on two: with p95 alone the choice between timeouts that leave workers free was a draw of lots.

use super::cell::{Cell, Measured};
use super::setting::Setting;

/// Limit of responses where none is tried: Apache's default.
pub(crate) const REQUESTS_USUAL: u64 = 100;

/// Figures within this share of the least are alike.
pub(crate) const ALIKE: f64 = 0.05;

/// Settings that are measured together, in rounds with the same visitors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Batch {
    /// What it is to show, for people.
    pub why: String,
    /// Each differs from the others.
    pub settings: Vec<Setting>,
    /// Rounds of each.
    pub rounds: u32,
}

impl Batch {
    /// Of these settings, with the reason for measuring them.
    pub(crate) fn new(why: &str, settings: Vec<Setting>, rounds: u32) -> Self {
        Self { why: why.to_owned(), settings, rounds }
    }

    /// Which visitors come: with the same number the same ones as before. A setting that is measured again gets
    /// others, and new settings get those that the first ones had.
    pub(crate) fn visitors(&self, measured: &Measured) -> u32 {
        let rounds = |setting| measured.cell(setting).map_or(0, |cell| cell.rounds);
        self.settings.iter().map(rounds).max().unwrap_or(0)
    }
}

/// A way to search.
pub(crate) trait Strategy {
    /// What to measure next. None: the search has ended.
    fn next(&mut self, measured: &Measured) -> Option<Batch>;

    /// The setting that it recommends of what was measured. None: nothing was.
    fn choice(&self, measured: &Measured) -> Option<Setting>;
}

/// Those whose figure is at most [`ALIKE`] above the least; all, if none has it.
pub(super) fn alike<'a>(cells: &[&'a Cell], figure: fn(&Cell) -> Option<f64>) -> Vec<&'a Cell> {
    let least = cells.iter().filter_map(|cell| figure(cell)).min_by(f64::total_cmp);
    let Some(least) = least else { return cells.to_vec() };
    let near = |cell: &&&Cell| figure(cell).is_some_and(|us| us <= least * (1.0 + ALIKE));
    cells.iter().filter(near).copied().collect()
}

/// Of these, those that refuse nobody and whose p95 is alike, and of these those whose mean is alike.
pub(super) fn best<'a>(cells: &[&'a Cell]) -> Vec<&'a Cell> {
    let none: Vec<&Cell> = cells.iter().filter(|cell| !cell.refuses()).copied().collect();
    alike(&alike(&none, |cell| cell.page_us_p95), |cell| cell.page_us_mean)
}

/// The fewest workers that do as well as the chosen setting, where the others of it are the same.
pub(crate) fn knee(measured: &Measured, choice: &Setting) -> Option<u64> {
    let chosen = measured.cell(choice).filter(|cell| !cell.refuses())?;
    // With the same visitors: later rounds had others.
    let most_us = chosen.first_us_p95? * (1.0 + ALIKE);
    let same = |cell: &&Cell| {
        let as_good = cell.first_us_p95.is_some_and(|us| us <= most_us);
        (cell.setting.timeout_ms, cell.setting.requests) == (choice.timeout_ms, choice.requests)
            && as_good
            && !cell.refuses()
    };
    measured.cells().filter(same).map(|cell| cell.setting.workers).min()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A server with 22 workers: `load` connections a second are each held for 0.4 s and the timeout.
    pub(crate) fn measure(load: f64) -> impl Fn(Setting) -> Cell {
        move |setting: Setting| {
            let timeout_s = setting.timeout_ms.unwrap_or_default() as f64 / 1e3;
            let wanted = load * (0.4 + timeout_s);
            let workers = setting.workers as f64;
            let off = if setting.timeout_ms.is_none() { 1.6 } else { 1.0 };
            let short = if timeout_s < 2.0 { 1.1 } else { 1.0 };
            let over = (wanted / workers).max(1.0).powi(3);
            Cell {
                setting,
                rounds: 1,
                pages: 100,
                page_us_p95: Some(200_000.0 * off * short * over),
                first_us_p95: Some(200_000.0 * off * short * over),
                page_us_mean: Some(150_000.0 * off * short * over),
                workers_held_mean: wanted.min(workers),
                workers_held_peak: (wanted * 1.2).min(workers),
                ..Cell::default()
            }
        }
    }

    /// What a search finds, and in how many trials.
    pub(crate) fn run(
        strategy: &mut dyn Strategy,
        server: impl Fn(Setting) -> Cell,
    ) -> (Setting, u32, Measured) {
        let mut measured = Measured::default();
        let mut trials = 0;
        while let Some(batch) = strategy.next(&measured) {
            assert!(!batch.settings.is_empty() && batch.rounds > 0);
            for setting in batch.settings {
                trials += batch.rounds;
                measured.take(Cell { rounds: batch.rounds, ..server(setting) });
            }
            assert!(trials < 100, "it ends");
        }
        (strategy.choice(&measured).unwrap(), trials, measured)
    }

    #[test]
    fn settings_that_are_measured_again_get_other_visitors() {
        let cell = measure(1.0)(Setting { timeout_ms: Some(1_000), requests: 100, workers: 9 });
        let other = Setting { timeout_ms: Some(2_000), ..cell.setting };
        let mut measured = Measured::default();
        assert_eq!(Batch::new("", vec![cell.setting], 1).visitors(&measured), 0);
        measured.take(Cell { rounds: 3, ..cell.clone() });
        assert_eq!(Batch::new("", vec![other], 1).visitors(&measured), 0);
        assert_eq!(Batch::new("", vec![other, cell.setting], 1).visitors(&measured), 3);
    }

    #[test]
    fn the_knee_is_the_fewest_workers_that_do_as_well() {
        let mut measured = Measured::default();
        let choice = Setting { timeout_ms: Some(2_000), requests: 100, workers: 400 };
        for workers in [5, 15, 100, 400] {
            measured.take(measure(6.0)(Setting { workers, ..choice }));
        }
        assert_eq!(knee(&measured, &choice), Some(15));
        assert_eq!(knee(&measured, &Setting { workers: 7, ..choice }), None);
    }
}
