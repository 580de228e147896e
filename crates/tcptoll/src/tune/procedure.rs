//! The procedure of "KeepAlive on or off? Apache Tuning" (2016), one step after the other.
//!
//! A problem is a page that fails, a process that is killed, or a moment at which all workers are taken. The
//! document names the directions, and no numbers for the steps; these are ours.

use super::cell::Measured;
use super::setting::Setting;
use super::strategy::{Batch, Strategy};
use tcptoll_measure::pages::Server;

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
mod tests {
    use super::super::strategy::tests::{measure, run};
    use super::*;

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
