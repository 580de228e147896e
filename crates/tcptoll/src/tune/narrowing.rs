//! The search of this program: timeouts from short to long while they may still help, then the best three again, the
//! best two several times more, then fewer workers and other limits of requests with the best timeout.

use super::setting::Setting;
use super::setting::{Cell, Measured};
use super::strategy::{ALIKE, Batch, REQUESTS_USUAL, Strategy, best};

/// Timeouts that are tried, ms, a group at a time; before them KeepAlive off.
const HOLDING_MS: [&[u64]; 3] = [&[100, 1_000], &[2_000, 3_000], &[5_000, 15_000]];

/// The same where an idle connection holds no worker: then long ones are cheap.
const FREE_MS: [&[u64]; 3] = [&[2_000, 5_000], &[15_000], &[65_000]];

/// Limits of requests that are tried with the best timeout; 0: none.
const REQUESTS: [u64; 2] = [30, 0];

/// Shares of the workers that fit, with the best timeout.
const WORKERS: [f64; 3] = [0.25, 0.5, 0.75];

/// Timeouts that are measured a second time.
const FINALISTS: usize = 3;

/// The best two of them are measured this often again: p95 of one round varies by some 20 %.
const FINAL_ROUNDS: u32 = 3;

/// The second best is measured again only if its p95 is at most this multiple of the best: after two rounds, three
/// times the standard error of their ratio.
const NEAR: f64 = 1.5;

/// Where processes are killed, this share of the workers is tried, at most twice.
const FEWER: f64 = 0.85;
const FEWER_MAX: u32 = 2;

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// KeepAlive off and short timeouts.
    Short,
    /// The group of longer timeouts with this number.
    Longer(usize),
    /// The best three again.
    Finalists,
    /// The best two several times more.
    Final,
    /// Fewer workers.
    Workers,
    /// Other limits of requests.
    Requests,
    /// Nothing.
    End,
}

/// Our search.
#[derive(Clone, Debug)]
pub(crate) struct Narrowing {
    timeouts_ms: [&'static [u64]; 3],
    /// Workers that the memory has room for.
    fits: u64,
    /// How often this number was lowered.
    lowered: u32,
    stage: Stage,
}

impl Narrowing {
    /// `fits`: the limit of workers, at least 1. `idle_holds`: whether an idle connection holds one.
    pub(crate) fn new(fits: u64, idle_holds: bool) -> Self {
        let timeouts_ms = if idle_holds { HOLDING_MS } else { FREE_MS };
        Self { timeouts_ms, fits: fits.max(1), lowered: 0, stage: Stage::Short }
    }

    fn with(&self, timeout_ms: Option<u64>) -> Setting {
        Setting { timeout_ms, requests: REQUESTS_USUAL, workers: self.fits }
    }

    fn group(&self, group: usize) -> Vec<Setting> {
        let all = self.timeouts_ms.get(group).copied().unwrap_or_default();
        all.iter().map(|&ms| self.with(Some(ms))).collect()
    }

    /// Cells with the workers that fit.
    fn fitting<'a>(&'a self, measured: &'a Measured) -> impl Iterator<Item = &'a Cell> {
        measured.cells().filter(|cell| cell.setting.workers == self.fits)
    }

    /// Whether a longer timeout may still help: with the longest one so far workers were left.
    fn longer_may_help(&self, measured: &Measured) -> bool {
        let longest = self.fitting(measured).max_by_key(|cell| cell.setting.timeout_ms);
        longest.is_some_and(|cell| !cell.is_full() && !cell.refuses())
    }

    /// Whether this number of workers is too large for the memory.
    fn kills(&self, measured: &Measured) -> bool {
        self.fitting(measured).any(|cell| cell.kills > 0)
    }

    fn ranked(measured: &Measured, count: usize) -> Vec<Setting> {
        measured.ranked().into_iter().take(count).map(|cell| cell.setting).collect()
    }

    /// The timeouts that were measured most often, so with the same visitors, and that refuse nobody; the best first.
    fn compared<'a>(&self, measured: &'a Measured) -> Vec<&'a Cell> {
        let usual = |cell: &&Cell| {
            cell.setting.workers == self.fits && cell.setting.requests == REQUESTS_USUAL
        };
        let ranked = measured.ranked().into_iter().filter(usual).filter(|cell| !cell.refuses());
        let timeouts: Vec<&Cell> = ranked.collect();
        let rounds = timeouts.iter().map(|cell| cell.rounds).max().unwrap_or(0);
        timeouts.into_iter().filter(|cell| cell.rounds == rounds).collect()
    }

    /// The best two of them, if they are near each other.
    fn near(&self, measured: &Measured) -> Vec<Setting> {
        match self.compared(measured)[..] {
            [best, second, ..]
                if second.page_us_p95 <= best.page_us_p95.map(|best_us| best_us * NEAR) =>
            {
                vec![best.setting, second.setting]
            }
            _ => Vec::new(),
        }
    }

    /// The batch of a stage, and the stage after it.
    fn stage(&mut self, measured: &Measured) -> (Batch, Stage) {
        let batch = |why: &str, settings: Vec<Setting>, rounds| Batch::new(why, settings, rounds);
        match self.stage {
            Stage::Short => {
                let all = [self.with(None)].into_iter().chain(self.group(0)).collect();
                (batch("KeepAlive off and short timeouts", all, 1), Stage::Longer(1))
            }
            Stage::Longer(group) => {
                let next = if group == 1 { Stage::Longer(2) } else { Stage::Finalists };
                if self.longer_may_help(measured) {
                    (batch("longer timeouts", self.group(group), 1), next)
                } else {
                    (batch("", Vec::new(), 1), next)
                }
            }
            Stage::Finalists => {
                let all = Self::ranked(measured, FINALISTS);
                (batch("the best three again, with other visitors", all, 1), Stage::Final)
            }
            Stage::Final => {
                let why = "the best two several times more";
                (batch(why, self.near(measured), FINAL_ROUNDS), Stage::Workers)
            }
            Stage::Workers => {
                let fewer = self.choice(measured).map(|best| {
                    let with = |share: f64| ((best.workers as f64 * share) as u64).max(1);
                    let mut all =
                        WORKERS.map(|share| Setting { workers: with(share), ..best }).to_vec();
                    all.dedup();
                    all
                });
                (batch("fewer workers", fewer.unwrap_or_default(), 1), Stage::Requests)
            }
            Stage::Requests => {
                let best = self.choice(measured).filter(|best| best.timeout_ms.is_some());
                let other =
                    best.map(|best| REQUESTS.map(|requests| Setting { requests, ..best }).to_vec());
                (batch("other request limits", other.unwrap_or_default(), 1), Stage::End)
            }
            Stage::End => (batch("", Vec::new(), 1), Stage::End),
        }
    }
}

impl Strategy for Narrowing {
    fn next(&mut self, measured: &Measured) -> Option<Batch> {
        if self.kills(measured) && self.lowered < FEWER_MAX && self.fits > 1 {
            self.lowered += 1;
            self.fits = ((self.fits as f64 * FEWER) as u64).max(1);
            self.stage = Stage::Longer(1);
            let all = [self.with(None)].into_iter().chain(self.group(0)).collect();
            return Some(Batch::new("fewer workers, because processes were killed", all, 1));
        }
        while self.stage != Stage::End {
            let again = matches!(self.stage, Stage::Finalists | Stage::Final);
            let (mut batch, next) = self.stage(measured);
            self.stage = next;
            batch.settings.retain(|setting| again || measured.cell(setting).is_none());
            if !batch.settings.is_empty() {
                return Some(batch);
            }
        }
        None
    }

    /// Of the timeouts that were measured most often, so with the same visitors: one that is alike in p95 and mean, with
    /// workers left, that holds the fewest. Another limit of workers or requests only if it is better by more than
    /// [`ALIKE`] with the first visitors. If all refuse visitors, the one that refuses the fewest.
    fn choice(&self, measured: &Measured) -> Option<Setting> {
        let compared = self.compared(measured);
        // Thousandths: a mean over time has no more.
        let order =
            |cell: &&&Cell| (cell.is_full(), (cell.workers_held_mean * 1e3) as u64, cell.setting);
        let Some(chosen) = best(&compared).iter().min_by_key(order).copied() else {
            return measured.ranked().first().map(|cell| cell.setting);
        };
        let first_us = |cell: &Cell| cell.first_us_p95.unwrap_or(f64::INFINITY);
        let limit_us = first_us(chosen) * (1.0 - ALIKE);
        let better = measured.cells().filter(|cell| {
            cell.setting.timeout_ms == chosen.setting.timeout_ms
                && cell.setting.workers <= self.fits
                && !cell.refuses()
                && first_us(cell) < limit_us
        });
        let better = better.min_by(|a, b| first_us(a).total_cmp(&first_us(b)));
        Some(better.unwrap_or(chosen).setting)
    }
}

#[cfg(test)]
mod tests {
    use super::super::strategy::tests::{measure, run};
    use super::*;

    #[test]
    fn the_longest_timeout_is_found_for_which_workers_are_left() {
        // 6 × (0.4 + 2) = 14 of 22; with 3 s 20.4, which are full at the peak.
        let (found, trials, _) = run(&mut Narrowing::new(22, true), measure(6.0));
        assert_eq!(found.timeout_ms, Some(2_000), "{found:?}");
        assert_eq!((found.requests, found.workers), (REQUESTS_USUAL, 22));
        assert!(trials <= 22, "a fifth of 24 cells × 5 rounds, and two for the weight: {trials}");
    }

    #[test]
    fn where_every_timeout_takes_all_workers_keep_alive_is_off() {
        let (found, ..) = run(&mut Narrowing::new(22, true), measure(60.0));
        assert_eq!(found.timeout_ms, None);
    }

    #[test]
    fn with_many_workers_longer_timeouts_are_tried_and_the_shortest_that_does_as_well_is_chosen() {
        let (found, trials, measured) = run(&mut Narrowing::new(400, true), measure(6.0));
        let tried: Vec<Option<u64>> =
            measured.cells().map(|cell| cell.setting.timeout_ms).collect();
        assert!(tried.contains(&Some(15_000)), "{tried:?}");
        assert_eq!((found.timeout_ms, found.workers), (Some(2_000), 400), "it holds the fewest");
        assert!(trials <= 22, "{trials}");
    }

    #[test]
    fn where_idle_connections_are_free_long_timeouts_are_tried() {
        let (_, _, measured) = run(&mut Narrowing::new(20_000, false), measure(6.0));
        assert!(measured.cells().any(|cell| cell.setting.timeout_ms == Some(65_000)));
    }

    #[test]
    fn visitors_that_only_one_setting_had_make_it_neither_better_nor_worse() {
        // Those who come later are harder: settings that were measured again look worse.
        let server = measure(6.0);
        let mut narrowing = Narrowing::new(22, true);
        let mut measured = Measured::default();
        while let Some(batch) = narrowing.next(&measured) {
            let harder = if batch.visitors(&measured) > 0 { 1.5 } else { 1.0 };
            for setting in batch.settings {
                let cell = server(setting);
                let us = cell.page_us_p95.map(|us| us * harder);
                let mean = cell.page_us_mean.map(|us| us * harder);
                measured.take(Cell {
                    rounds: batch.rounds,
                    page_us_p95: us,
                    first_us_p95: us,
                    page_us_mean: mean,
                    ..cell
                });
            }
        }
        let found = narrowing.choice(&measured).unwrap();
        assert_eq!((found.timeout_ms, found.workers), (Some(2_000), 22), "{found:?}");
    }

    #[test]
    fn the_best_two_are_measured_again_until_visitors_no_longer_decide_between_them() {
        // KeepAlive off is 60 % slower here: far. 1 s and 2 s differ by 10 %: near.
        let (_, trials, measured) = run(&mut Narrowing::new(22, true), measure(6.0));
        let rounds = |timeout_ms| {
            let usual = |cell: &&Cell| {
                let setting = cell.setting;
                (setting.timeout_ms, setting.requests, setting.workers)
                    == (timeout_ms, REQUESTS_USUAL, 22)
            };
            measured.cells().find(usual).map(|cell| cell.rounds)
        };
        let most = measured.cells().map(|cell| cell.rounds).max();
        assert_eq!(most, Some(2 + FINAL_ROUNDS));
        assert_eq!(rounds(Some(2_000)), most);
        assert_eq!(measured.cells().filter(|cell| Some(cell.rounds) == most).count(), 2);
        assert!(rounds(None) < most, "it is far from the best");
        assert!(trials <= 22, "{trials}");
        // Where the second best is far, nothing is measured more than twice.
        let far = |setting: Setting| {
            let factor = if setting.timeout_ms == Some(1_000) { 1.0 } else { 2.0 };
            let us = Some(2e5 * factor);
            let cell = measure(6.0)(setting);
            Cell { page_us_p95: us, first_us_p95: us, page_us_mean: us, ..cell }
        };
        let (found, _, measured) = run(&mut Narrowing::new(22, true), far);
        assert_eq!(found.timeout_ms, Some(1_000));
        assert!(measured.cells().all(|cell| cell.rounds <= 2));
    }

    #[test]
    fn workers_that_are_killed_are_fewer_the_next_time() {
        let server = measure(6.0);
        let kills =
            |setting: Setting| Cell { kills: u64::from(setting.workers > 19), ..server(setting) };
        let (found, trials, _) = run(&mut Narrowing::new(22, true), kills);
        assert_eq!(found.workers, 18, "{found:?}");
        assert!(trials <= 25, "{trials}");
        // However few there are, it ends.
        let always = |setting: Setting| Cell { kills: 1, ..server(setting) };
        let (found, trials, _) = run(&mut Narrowing::new(22, true), always);
        assert!(found.workers <= 22 && trials < 40, "{found:?} {trials}");
    }
}
