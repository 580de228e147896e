//! Which settings are measured next, and which one is chosen.
//!
//! Settings whose p95 is within 5 % are alike; then the mean decides, then the workers held. Of 35 pages the
//! p95 rests on two: with p95 alone the choice between timeouts that leave workers free was a draw of lots.

use super::setting::{Cell, Measured, Setting};
use tcptoll_measure::pages::Server;

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

// The procedure of "KeepAlive on or off? Apache Tuning" (2016), one step after the other.
//
// A problem is a page that fails, a process that is killed, or a moment at which all workers are taken. The
// document names the directions, and no numbers for the steps; these are ours.

/// Which example of the document is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Example {
    /// Little memory, visitors spread out. Without problems raise `KeepAliveTimeout`; with problems lower
    /// `MaxKeepAliveRequests`.
    Vps,
    /// Much memory, visitors in peaks. Without problems raise `MaxKeepAliveRequests`; with problems lower
    /// `KeepAliveTimeout` to 2 to 3 s, then `MaxKeepAliveRequests`.
    Dedicated,
}

/// The document's search.
#[derive(Clone, Debug)]
pub(crate) struct Procedure {
    example: Example,
    workers: u64,
    tried: Vec<Setting>,
}

const LONGER_MS: [u64; 5] = [1_000, 2_000, 3_000, 5_000, 8_000];
const FEWER: [u64; 4] = [300, 120, 60, 30];
const MORE: [u64; 3] = [300, 600, 1_200];

impl Procedure {
    /// The document says nothing about the number of workers: it is this one.
    pub(crate) fn new(example: Example, workers: u64) -> Self {
        Self { example, workers, tried: Vec::new() }
    }

    fn setting(&self, timeout_ms: u64, requests: u64) -> Setting {
        Setting { timeout_ms: Some(timeout_ms), requests, workers: self.workers }
    }

    /// The next step after what the last one showed.
    fn step(&self, measured: &Measured) -> Option<Setting> {
        let Some(last) = self.tried.last() else {
            let timeout_ms = if self.example == Example::Vps { 1_000 } else { 5_000 };
            return Some(self.setting(timeout_ms, 300));
        };
        let problem = measured.cell(last).is_none_or(|cell| cell.refuses() || cell.is_full());
        let timeout_ms = last.timeout_ms.unwrap_or_default();
        let next = |all: &[u64], now: u64| {
            let at = all.iter().position(|one| *one == now)?;
            all.get(at + 1).copied()
        };
        let had_problem = self.tried.windows(2).any(|pair| {
            pair[1].requests < pair[0].requests || pair[1].timeout_ms < pair[0].timeout_ms
        });
        match (self.example, problem) {
            // It went back already: the step that helped stays.
            (_, false) if had_problem => None,
            (Example::Vps, false) => {
                next(&LONGER_MS, timeout_ms).map(|ms| self.setting(ms, last.requests))
            }
            // The last raise was one too many.
            (Example::Vps, true) if timeout_ms > LONGER_MS[0] => None,
            (Example::Dedicated, false) => {
                next(&MORE, last.requests).map(|requests| self.setting(timeout_ms, requests))
            }
            (Example::Dedicated, true) if timeout_ms > 2_000 => {
                let shorter = if timeout_ms > 3_000 { 3_000 } else { 2_000 };
                Some(self.setting(shorter, last.requests))
            }
            (_, true) => next(&FEWER, last.requests.min(FEWER[0]))
                .map(|requests| self.setting(timeout_ms, requests)),
        }
    }
}

impl Strategy for Procedure {
    fn next(&mut self, measured: &Measured) -> Option<Batch> {
        let setting = self.step(measured)?;
        self.tried.push(setting);
        let why = format!("step {}: {}", self.tried.len(), setting.name(Server::ApachePrefork));
        Some(Batch::new(&why, vec![setting], 1))
    }

    /// The last one without a problem; else the last one.
    fn choice(&self, measured: &Measured) -> Option<Setting> {
        let cell = |setting: &Setting| measured.cell(setting);
        let good = |setting: &&Setting| {
            cell(setting).is_some_and(|cell| !cell.refuses() && !cell.is_full())
        };
        let tried = || self.tried.iter().rev();
        tried().find(good).or_else(|| tried().find(|one| cell(one).is_some())).copied()
    }
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

    #[test]
    fn the_timeout_is_raised_until_there_is_a_problem_and_goes_one_back() {
        let (found, trials, _) = run(&mut Procedure::new(Example::Vps, 22), measure(6.0));
        assert_eq!((found.timeout_ms, found.requests), (Some(2_000), 300));
        assert_eq!(trials, 3);
    }

    #[test]
    fn requests_are_lowered_where_there_are_problems_and_it_ends() {
        let (found, trials, _) = run(&mut Procedure::new(Example::Vps, 22), measure(40.0));
        assert_eq!((found.timeout_ms, found.requests), (Some(1_000), 30), "no step helped");
        assert_eq!(trials, 4);
    }

    #[test]
    fn on_a_dedicated_server_the_timeout_is_lowered_first() {
        let (found, ..) = run(&mut Procedure::new(Example::Dedicated, 22), measure(6.0));
        assert_eq!((found.timeout_ms, found.requests), (Some(2_000), 300));
        let (found, ..) = run(&mut Procedure::new(Example::Dedicated, 400), measure(6.0));
        assert_eq!((found.timeout_ms, found.requests), (Some(5_000), 1_200));
    }
}
