//! The result of a search: the object that is printed as JSON, and shown by every report.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::{Cell, Setting};
use super::snippet::Snippet;
use tcptoll_core::number;
use tcptoll_core::page::visits::Traffic;
use tcptoll_core::record::{Comparison, Verdict};
use tcptoll_measure::pages::Server;

/// Version of this object.
pub const VERSION: u32 = 1;

/// The name of our own search.
pub const STRATEGY: &str = "search";

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// Version of this object.
    pub tune_version: u32,
    /// Version of the program.
    pub tcptoll_version: String,
    /// When the search began, RFC 3339.
    pub started_at: String,
    /// The command, word by word.
    pub command: Vec<String>,
    /// The server.
    pub server: Server,
    /// Name and version as the server states them. Absent: it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// Search strategy: `search`, `vps-2016`, `dedicated-2016`.
    pub strategy: String,
    /// Seed of the first visitors; the seeds of later visitors follow from it.
    pub seed: u64,
    /// Visitors and their page, as options of `tcptoll visitors`.
    pub load: BTreeMap<String, String>,
    /// The access log from which the load was derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// Memory limit of all processes together, bytes.
    pub memory_bytes: u64,
    /// What enforced this limit in the lab: `kernel`, or `watch` (tcptoll). Absent: nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limited_by: Option<String>,
    /// Memory of a worker. Absent: idle connections hold no worker, or it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// Limit of workers with which the search began.
    pub workers_limit: u64,
    /// Stages of the search, in the order in which they ran.
    pub stages: Vec<Stage>,
    /// All settings measured in the search, in their order.
    pub cells: Vec<Cell>,
    /// The setting found. Absent: nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Setting>,
    /// The fewest workers that did as well as the setting found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee_workers: Option<u64>,
    /// Other settings compared with the found one, with new visitors.
    pub compared: Vec<Compared>,
    /// The found setting in that comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_choice: Option<Cell>,
    /// Record of the comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_record: Option<String>,
    /// Whether it works behind a balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Behind>,
    /// The found setting as configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<Snippet>,
    /// Result on the user's own server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// Doubts, one sentence each.
    pub doubts: Vec<String>,
    /// Trials of the search.
    pub trials: u32,
    /// Time of the search, without the comparison after it, s.
    pub search_s: f64,
    /// Whether the search was stopped before its end.
    pub partial: bool,
}

/// Memory of a server's processes, measured with few workers and with more. All had run PHP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Weight {
    /// Memory without workers, bytes.
    pub base_bytes: u64,
    /// Memory of each worker, bytes.
    pub worker_bytes: u64,
    /// Workers that fit into the memory.
    pub fits: u64,
}

/// Share of the memory that is left free: the kernel counts sockets and files that were read to it as well.
const RESERVE: f64 = 0.05;

impl Weight {
    /// From workers and their memory, twice.
    ///
    /// None: more workers did not take more. `fits` may be 0.
    pub fn from_memory(limit_bytes: u64, [few, more]: [(u64, u64); 2]) -> Option<Self> {
        let workers = more.0.checked_sub(few.0).filter(|more| *more > 0)?;
        let worker_bytes = more.1.checked_sub(few.1)? / workers;
        let base_bytes = few.1.saturating_sub(worker_bytes * few.0);
        let room = ((limit_bytes as f64 * (1.0 - RESERVE)) as u64).saturating_sub(base_bytes);
        let fits = room.checked_div(worker_bytes)?;
        Some(Self { base_bytes, worker_bytes, fits })
    }

    /// Memory of this number of workers, bytes.
    pub fn bytes(&self, workers: u64) -> u64 {
        self.base_bytes + self.worker_bytes.saturating_mul(workers)
    }
}

/// Settings measured together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Purpose of the stage.
    pub why: String,
    /// The settings measured in it.
    pub cells: Vec<Cell>,
    /// Causes and failures of its settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Its duration, s.
    pub took_s: f64,
    /// Its record. Absent: it was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
}

/// A problem of a setting, and its cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// Name of the cause (`tcptoll explain NAME`), or `pages-failed`.
    pub id: String,
    /// The setting, by its name.
    pub setting: String,
    /// One or two sentences.
    pub text: String,
}

/// A setting next to the found one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Its name: an arm of the study, or where the setting comes from.
    pub name: String,
    /// The setting.
    pub setting: Setting,
    /// Its figures. Absent: nothing was measured that is not excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Cell>,
    /// Its page time relative to that of the found one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// The equal setting, because of which it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
}

/// Whether idle connections outlast a balancer's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Behind {
    /// The balancer closes idle connections after this, ms.
    pub balancer_ms: u64,
    /// The server closes idle connections after this, ms. Absent: KeepAlive is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_ms: Option<u64>,
    /// Whether the server keeps them longer, or has none.
    pub holds: bool,
}

/// How much longer than the balancer's a server's timeout should be, ms: clocks and a packet under way.
const BEHIND_MORE_MS: u64 = 5_000;

impl Behind {
    /// A server whose idle connections end first may close one that the balancer is about to use.
    pub fn new(balancer_ms: u64, setting: &Setting) -> Self {
        let server_ms = setting.timeout_ms;
        // Without idle connections there is none to reuse.
        let holds = server_ms.is_none_or(|ms| ms > balancer_ms);
        Self { balancer_ms, server_ms, holds }
    }

    /// In two or three sentences, with the remedy.
    pub fn words(&self, server: Server) -> String {
        let [directive, ..] = server.directives();
        let balancer = number::tick(self.balancer_ms as f64, "ms");
        match self.server_ms {
            None => "KeepAlive is off, so the balancer opens a connection for each request. It \
                     cannot reuse an idle connection that the server closes."
                .to_owned(),
            Some(_) if self.holds => format!(
                "The server keeps idle connections longer than the balancer ({balancer}), so the \
                 balancer closes first."
            ),
            Some(ms) => format!(
                "The server closes idle connections after {}, before the balancer does \
                 ({balancer}). A request that the balancer sends at that moment fails (502). Set \
                 {directive} to {} if only the balancer connects to the server, or set the \
                 balancer's idle timeout below {}.",
                number::tick(ms as f64, "ms"),
                number::tick((self.balancer_ms + BEHIND_MORE_MS) as f64, "ms"),
                number::tick(ms as f64, "ms"),
            ),
        }
    }
}

/// The found setting and the present one in turn, on a server of the user's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The loaded page.
    pub url: String,
    /// The found setting relative to the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// The result in one or two sentences.
    pub text: String,
    /// Its record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
}

impl Found {
    /// What is sought, in a sentence or two.
    pub fn sought(&self) -> &'static str {
        if self.strategy != STRATEGY {
            return "The procedure changes the setting step by step, while there is a problem or \
                    until there is one. A problem is a page that fails, a process that is killed, \
                    or a moment at which all workers are busy. The procedure recommends the last \
                    step without a problem, otherwise the last step.";
        }
        "The search looks for the lowest p95 page time within the memory, with no visitor refused. \
         Timeouts within 5 % of the lowest p95, and among them within 5 % of the lowest mean page \
         time, count as equal. Among equal timeouts, one that leaves workers free is chosen; of \
         several, the one that holds the fewest workers. Another limit of workers or requests is chosen only if it \
         is more than 5 % better with the same visitors."
    }

    /// Why it cannot be what a search wrote. None: it can.
    pub fn damage(&self) -> Option<String> {
        const DAY_MS: u64 = 24 * 3_600_000;
        let wrong = |cell: &Cell| {
            let times =
                [cell.page_us_p95, cell.first_us_p95, cell.page_us_mean].into_iter().flatten();
            let held = [cell.workers_held_mean, cell.workers_held_peak];
            let figures =
                times.map(|us| us > 0.0 && us < 1e12).chain(held.map(|n| (0.0..1e9).contains(&n)));
            let Setting { timeout_ms, requests, workers } = cell.setting;
            !figures.into_iter().all(|fits| fits)
                || cell.failed > cell.pages
                || timeout_ms.is_some_and(|ms| ms == 0 || ms > DAY_MS)
                || requests > u64::from(u32::MAX)
                || !(1..=1_000_000).contains(&workers)
                || cell.memory_peak_bytes > 1 << 50
        };
        if let Some(cell) = self.cells.iter().find(|cell| wrong(cell)) {
            return Some(format!("impossible figures of {}", cell.setting.name(self.server)));
        }
        if self.chosen().is_none() {
            return Some("the found setting was not measured".to_owned());
        }
        (!(0.0..1e9).contains(&self.search_s)).then(|| "impossible time of the search".to_owned())
    }

    /// The cell of the found setting.
    pub fn chosen(&self) -> Option<&Cell> {
        let choice = self.choice.as_ref()?;
        self.cells.iter().find(|cell| cell.setting == *choice)
    }

    /// The answer: at most three sentences.
    pub fn answer(&self) -> String {
        let Some(cell) = self.chosen() else {
            return "No setting was measured. The doubts below give the reasons.".to_owned();
        };
        let [timeout, requests, workers] = self.server.directives();
        let setting = &cell.setting;
        let limit = format!("{workers} {}", setting.workers);
        let set = match setting.timeout_ms {
            None if self.server == Server::Nginx => format!("{timeout} 0 (KeepAlive off), {limit}"),
            None => format!("KeepAlive Off, {limit}"),
            Some(ms) => format!(
                "{timeout} {}, {requests} {}, {limit}",
                number::tick(ms as f64, "ms"),
                if setting.requests == 0 {
                    "unlimited".to_owned()
                } else {
                    setting.requests.to_string()
                }
            ),
        };
        let p95 = cell.page_us_p95.map_or_else(
            || "No round had a complete page".to_owned(),
            |us| format!("95 % of the pages took at most {}", number::time(us)),
        );
        if cell.refuses() {
            return format!(
                "Every setting refused visitors. The best is {set}: {} of {} pages failed, and {} \
                 processes were killed. {p95}.",
                cell.failed, cell.pages, cell.kills
            );
        }
        let one = cell.workers_held_mean.round() as u64 == 1;
        let what = match (self.server, one) {
            (Server::Nginx, true) => "connection was open",
            (Server::Nginx, false) => "connections were open",
            (_, true) => "worker held a connection",
            (_, false) => "workers held a connection",
        };
        let held = format!(
            "On average {:.0} {what}, at the peak {:.0}",
            cell.workers_held_mean, cell.workers_held_peak
        );
        let memory = match cell.memory_peak_bytes {
            0 => String::new(),
            bytes => format!(", with {} of memory", number::bytes(bytes as f64)),
        };
        format!("Set {set}. {p95}. {held}{memory}.")
    }
}

impl Compared {
    /// The verdict in a clause.
    pub fn words(&self) -> String {
        if let Some(other) = &self.same_as {
            return format!("the same setting as {other}");
        }
        let Some(comparison) = &self.comparison else { return "not measured".to_owned() };
        let ratio = match (comparison.ratio, comparison.ci95) {
            (Some(ratio), ci95) => {
                let [times, interval] = number::times(ratio, ci95);
                format!("{times} the page time{interval}: ")
            }
            _ => String::new(),
        };
        let verdict = match comparison.verdict {
            Verdict::Higher => "longer",
            Verdict::Lower => "shorter",
            Verdict::NoDifference => "no difference found",
            Verdict::NotEnough => "not enough evidence",
        };
        format!("{ratio}{verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(timeout_ms: Option<u64>) -> Setting {
        Setting { timeout_ms, requests: 100, workers: 22 }
    }

    #[test]
    fn workers_that_fit_follow_from_two_sums_of_memory() {
        // 4 workers take 98 MB together with the rest, 12 take 258 MB: 20 MB each, 18 MB for the rest.
        let mb = 1_000_000;
        let measured = [(4, 98 * mb), (12, 258 * mb)];
        let weight = Weight::from_memory(500 * mb, measured).unwrap();
        assert_eq!((weight.base_bytes, weight.worker_bytes), (18 * mb, 20 * mb));
        // (475 − 18) / 20
        assert_eq!(weight.fits, 22);
        assert_eq!(weight.bytes(2), 58 * mb);
        assert_eq!(Weight::from_memory(10 * mb, measured).unwrap().fits, 0, "not even the rest");
        assert_eq!(Weight::from_memory(30 * mb, measured).unwrap().fits, 0, "not one worker");
        assert_eq!(Weight::from_memory(500 * mb, [(4, 30 * mb), (12, 22 * mb)]), None);
        assert_eq!(Weight::from_memory(500 * mb, [(4, 30 * mb), (12, 30 * mb)]), None);
    }

    #[test]
    fn a_server_behind_a_balancer_keeps_its_connections_for_longer() {
        let with = |timeout_ms| Behind::new(60_000, &setting(timeout_ms));
        assert!(!with(Some(60_000)).holds);
        assert!(with(Some(65_000)).holds);
        assert!(with(None).holds);
        let words = with(Some(2_000)).words(Server::Nginx);
        assert!(words.contains("Set keepalive_timeout to 65 s"), "{words}");
    }

    #[test]
    fn the_answer_is_the_setting_and_what_it_was_measured_to_do() {
        let cell = Cell {
            setting: setting(Some(2_000)),
            rounds: 3,
            pages: 100,
            page_us_p95: Some(141_000.0),
            workers_held_mean: 13.2,
            workers_held_peak: 20.0,
            memory_peak_bytes: 400 << 20,
            ..Cell::default()
        };
        let found =
            Found { choice: Some(cell.setting), cells: vec![cell.clone()], ..Found::default() };
        assert_eq!(
            found.answer(),
            "Set KeepAliveTimeout 2 s, MaxKeepAliveRequests 100, MaxRequestWorkers 22. 95 % of the \
             pages took at most 141 ms. On average 13 workers held a connection, at the peak 20, \
             with 419 MB of memory."
        );
        let refused = Cell { setting: setting(None), failed: 9, kills: 2, ..cell };
        let found =
            Found { choice: Some(refused.setting), cells: vec![refused], ..Found::default() };
        let answer = found.answer();
        assert!(answer.contains("The best is KeepAlive Off, MaxRequestWorkers 22: "), "{answer}");
        assert!(answer.contains("9 of 100 pages failed, and 2 processes"), "{answer}");
        assert!(answer.len() <= 400, "{}", answer.len());
        assert!(Found::default().answer().starts_with("No setting was measured"));
    }
}
