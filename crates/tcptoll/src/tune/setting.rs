//! One setting of a server: what a search varies.
//!
//! A setting has the directive's value. Apache's `MaxKeepAliveRequests` n allows n + 1 responses, nginx's
//! `keepalive_requests` n. The option of `visitors` counts responses, so the translation is in one place
//! (`Setting::options`).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tcptoll_core::number;

use tcptoll_core::record::Arm;
use tcptoll_core::study::Settings;
use tcptoll_measure::pages::Server;

/// A setting, with the values of the configuration.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Setting {
    /// Idle timeout, ms: `KeepAliveTimeout`, `keepalive_timeout`. Absent: KeepAlive is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// `MaxKeepAliveRequests`, `keepalive_requests`; 0: no limit. Apache sends one response more than this.
    pub requests: u64,
    /// `MaxRequestWorkers`; for nginx the connections of all processes.
    pub workers: u64,
}

impl Setting {
    /// What the server has before anyone sets something.
    pub fn shipped(server: Server) -> Self {
        Self {
            timeout_ms: Some(server.own_timeout_ms()),
            requests: server.own_requests(),
            workers: server.own_workers(),
        }
    }

    /// A name for people, unique among the settings of a server: `2 s, 100 requests, 22 workers`.
    pub fn name(&self, server: Server) -> String {
        let workers = format!("{} {}", self.workers, server.workers());
        let Some(ms) = self.timeout_ms else { return format!("KeepAlive off, {workers}") };
        let requests = match self.requests {
            0 => "no request limit".to_owned(),
            requests => format!("{requests} requests"),
        };
        format!("{}, {requests}, {workers}", number::tick(ms as f64, "ms"))
    }

    /// The same as options of an arm.
    pub fn options(&self, server: Server) -> Settings {
        let mut options = Settings::new();
        let mut set = |name: &str, value: Value| options.insert(name.to_owned(), value);
        set("max-workers", self.workers.into());
        match self.timeout_ms {
            None => {
                set("keepalive", "off".into());
            }
            Some(ms) => {
                // The option counts responses, and so does nginx; Apache counts those after the first.
                let more = u64::from(self.requests > 0 && server != Server::Nginx);
                set("keepalive-timeout", format!("{ms}ms").into());
                set("keepalive-requests", (self.requests + more).into());
            }
        }
        options
    }
}

// What was measured of one setting, over all stages of a search.

/// The figure that is to be least.
pub const SOUGHT: &str = "page_us_p95";

/// The figure that decides among those whose [`SOUGHT`] is alike.
pub const SECOND: &str = "page_us_mean";

/// The largest number of workers that held a connection.
const PEAK: &str = "workers_held_peak";

/// Figures of one setting over its rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The setting.
    pub setting: Setting,
    /// Rounds measured.
    pub rounds: u32,
    /// Pages that visitors requested.
    pub pages: u64,
    /// Pages that were not complete.
    pub failed: u64,
    /// Processes that were killed at the memory limit.
    pub kills: u64,
    /// p95 page time, geometric mean over the rounds that have it, µs. Absent: no round has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_us_p95: Option<f64>,
    /// The same of its first round alone, in which all settings have the same visitors, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_us_p95: Option<f64>,
    /// Mean page time, geometric mean over the rounds that have it, µs. Absent: no round has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_us_mean: Option<f64>,
    /// Workers that held a connection, mean.
    pub workers_held_mean: f64,
    /// Workers that held a connection, peak.
    pub workers_held_peak: f64,
    /// Memory of all processes together, peak, bytes.
    pub memory_peak_bytes: u64,
}

impl Cell {
    /// From one arm of a stage. None: nothing was measured, or nothing that may be used.
    pub fn from_arm(setting: Setting, arm: &Arm) -> Option<Self> {
        let counted: Vec<_> = arm.rounds.iter().filter(|round| round.left_out.is_none()).collect();
        if arm.failure.is_some()
            || arm.attempts == 0
            || (counted.is_empty() && !arm.rounds.is_empty())
        {
            return None;
        }
        // Of one trial the arm has the figures, of several each round.
        let values = |name: &str| -> Vec<Option<f64>> {
            let single = || arm.metrics.get(name).map(|metric| metric.value);
            match counted.as_slice() {
                [] => vec![single()],
                rounds => rounds.iter().map(|round| round.metrics.get(name).copied()).collect(),
            }
        };
        // A round with too few pages for the figure says nothing about it; failures are counted apart.
        let geometric = |name: &str| {
            let us = values(name).into_iter().flatten().filter(|us| *us > 0.0);
            let logs: Vec<f64> = us.map(f64::ln).collect();
            (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
        };
        let limit = arm.own.site_visits.as_deref().and_then(|visits| visits.memory_limit.as_ref());
        let server = arm.server.as_ref();
        Some(Self {
            setting,
            rounds: counted.len().max(1) as u32,
            pages: arm.attempts,
            failed: arm.attempts.saturating_sub(arm.ok),
            kills: limit.map_or(0, |limit| limit.kills),
            page_us_p95: geometric(SOUGHT),
            first_us_p95: values(SOUGHT).first().copied().flatten().filter(|us| *us > 0.0),
            page_us_mean: geometric(SECOND),
            workers_held_mean: arm.metrics.get("workers_held_mean").map_or(0.0, |m| m.value),
            workers_held_peak: values(PEAK).into_iter().flatten().fold(0.0, f64::max),
            memory_peak_bytes: server.and_then(|server| server.memory_bytes).unwrap_or_default(),
        })
    }

    /// Whether a visitor was turned away, or a process killed.
    pub fn refuses(&self) -> bool {
        self.failed > 0 || self.kills > 0 || self.page_us_p95.is_none()
    }

    /// Whether all workers were taken at times.
    pub fn is_full(&self) -> bool {
        self.workers_held_peak >= self.setting.workers as f64
    }

    /// Adds more rounds of the same setting.
    fn add(&mut self, more: &Self) {
        let rounds = [f64::from(self.rounds), f64::from(more.rounds)];
        let mean =
            |both: [f64; 2]| (both[0] * rounds[0] + both[1] * rounds[1]) / (rounds[0] + rounds[1]);
        let geometric = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(mean([a.ln(), b.ln()]).exp()),
            (a, b) => a.or(b),
        };
        self.page_us_p95 = geometric(self.page_us_p95, more.page_us_p95);
        self.page_us_mean = geometric(self.page_us_mean, more.page_us_mean);
        self.workers_held_mean = mean([self.workers_held_mean, more.workers_held_mean]);
        self.workers_held_peak = self.workers_held_peak.max(more.workers_held_peak);
        self.memory_peak_bytes = self.memory_peak_bytes.max(more.memory_peak_bytes);
        self.pages += more.pages;
        self.failed += more.failed;
        self.kills += more.kills;
        self.rounds += more.rounds;
    }

    /// The better one is less: nobody refused, then fewer refused, then the shorter page time.
    fn order(&self, other: &Self) -> Ordering {
        let share = |cell: &Self| cell.failed as f64 / cell.pages.max(1) as f64;
        let us = |cell: &Self| cell.page_us_p95.unwrap_or(f64::INFINITY);
        self.refuses()
            .cmp(&other.refuses())
            .then(if self.refuses() && other.refuses() {
                share(self).total_cmp(&share(other)).then(self.kills.cmp(&other.kills))
            } else {
                Ordering::Equal
            })
            .then(us(self).total_cmp(&us(other)))
            .then(self.setting.cmp(&other.setting))
    }
}

/// Everything measured so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured(BTreeMap<Setting, Cell>);

impl Measured {
    /// Takes what a stage measured.
    pub fn take(&mut self, cell: Cell) {
        match self.0.get_mut(&cell.setting) {
            Some(known) => known.add(&cell),
            None => {
                self.0.insert(cell.setting, cell);
            }
        }
    }

    /// What is known of a setting.
    pub fn cell(&self, setting: &Setting) -> Option<&Cell> {
        self.0.get(setting)
    }

    /// The best first.
    pub fn ranked(&self) -> Vec<&Cell> {
        let mut all: Vec<&Cell> = self.0.values().collect();
        all.sort_by(|a, b| a.order(b));
        all
    }

    /// All, in the order of their settings.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::record::{Metric, Round};

    #[test]
    fn a_setting_has_a_name_of_its_own_and_the_options_of_an_arm() {
        let setting = Setting { timeout_ms: Some(1_500), requests: 0, workers: 22 };
        let prefork = Server::ApachePrefork;
        assert_eq!(setting.name(prefork), "1.5 s, no request limit, 22 workers");
        assert_eq!(setting.options(prefork)["keepalive-timeout"], "1500ms");
        assert_eq!(setting.options(prefork)["keepalive-requests"], 0);
        let off = Setting { timeout_ms: None, requests: 100, workers: 22 };
        assert_eq!(off.name(Server::Nginx), "KeepAlive off, 22 connections");
        assert!(!off.options(prefork).contains_key("keepalive-requests"), "it would be refused");
    }

    #[test]
    fn apache_counts_the_requests_after_the_first() {
        let setting = Setting { timeout_ms: Some(1_000), requests: 100, workers: 9 };
        assert_eq!(setting.options(Server::ApacheEvent)["keepalive-requests"], 101);
        assert_eq!(setting.options(Server::Nginx)["keepalive-requests"], 100);
    }

    fn cell(workers: u64, p95: f64, failed: u64) -> Cell {
        Cell {
            setting: Setting { timeout_ms: Some(1_000), requests: 100, workers },
            rounds: 1,
            pages: 100,
            failed,
            page_us_p95: Some(p95),
            ..Cell::default()
        }
    }

    #[test]
    fn nobody_refused_comes_before_a_shorter_page_time() {
        let mut measured = Measured::default();
        for one in [cell(1, 9.0, 0), cell(2, 1.0, 1), cell(3, 8.0, 0), cell(4, 5.0, 50)] {
            measured.take(one);
        }
        let workers: Vec<u64> = measured.ranked().iter().map(|cell| cell.setting.workers).collect();
        assert_eq!(workers, [3, 1, 2, 4]);
    }

    #[test]
    fn rounds_of_several_stages_are_one_cell() {
        let mut measured = Measured::default();
        measured.take(cell(1, 100.0, 0));
        measured.take(Cell { rounds: 3, ..cell(1, 10_000.0, 2) });
        let one = measured.ranked()[0];
        assert_eq!((one.rounds, one.pages, one.failed), (4, 200, 2));
        assert!((one.page_us_p95.unwrap() - 10f64.powf(3.5)).abs() < 1e-6);
    }

    #[test]
    fn a_round_without_a_figure_leaves_that_of_others_and_its_failures_count() {
        let mut measured = Measured::default();
        measured.take(cell(1, 100.0, 0));
        measured.take(Cell { page_us_p95: None, ..cell(1, 0.0, 0) });
        assert!(!measured.ranked()[0].refuses());
        assert_eq!(measured.ranked()[0].page_us_p95, Some(100.0));
        measured.take(Cell { page_us_p95: None, failed: 100, ..cell(1, 0.0, 0) });
        assert!(measured.ranked()[0].refuses());
    }

    #[test]
    fn rounds_that_are_excluded_are_in_no_figure_and_an_arm_of_them_alone_is_no_cell() {
        let round = |p95: f64, peak: f64, left_out: Option<&str>| Round {
            left_out: left_out.map(str::to_owned),
            metrics: [(SOUGHT, p95), (PEAK, peak)].map(|(n, v)| (n.to_owned(), v)).into(),
            ..Round::default()
        };
        let mut arm = Arm {
            attempts: 10,
            ok: 10,
            rounds: vec![
                round(100.0, 7.0, None),
                round(1.0, 99.0, Some("steal")),
                round(10_000.0, 9.0, None),
            ],
            ..Arm::default()
        };
        let setting = Setting::default();
        let cell = Cell::from_arm(setting, &arm).unwrap();
        assert_eq!((cell.rounds, cell.workers_held_peak), (2, 9.0));
        assert!((cell.page_us_p95.unwrap() - 1_000.0).abs() < 1e-9);
        arm.rounds.retain(|round| round.left_out.is_some());
        assert_eq!(Cell::from_arm(setting, &arm), None);
        let single = Arm {
            attempts: 1,
            metrics: [(SOUGHT.to_owned(), Metric { value: 5.0, ..Metric::default() })].into(),
            ..Arm::default()
        };
        assert_eq!(Cell::from_arm(setting, &single).unwrap().failed, 1);
        assert_eq!(Cell::from_arm(setting, &Arm { failure: Some("gone".into()), ..single }), None);
    }
}
