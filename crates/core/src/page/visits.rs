//! When visitors come to a site, how many pages each looks at, and how long they think in between; and
//! who came to a site by its access log.
//!
//! Visits are known before anything is sent, so that a slow server cannot make visitors come later.
//! Between its own pages a visitor waits for the page first, as people do. A visitor whose next page
//! depended on a clock alone would ask for it while the former one still loads, which nobody does.
//!
//! A log shows requests. A visitor is an address with a program; a page is a document with the files that the same
//! visitor asks for after it. What a log cannot show is in [`UNKNOWN`].

use std::collections::{BTreeMap, HashMap};

use rand_xoshiro::Xoshiro256PlusPlus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::access_log::{Hit, Hits};
use crate::random::generator;
use crate::stats::arrivals::{Arrivals, Spread, even, exponential};

/// Pages of one visitor, at most.
pub const PAGES_MAX: usize = 100;

/// Who comes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Visitors {
    /// Visitors per second, above 0; between peaks, if there are any. They come independently of each
    /// other (a Poisson process).
    pub rate_per_s: f64,
    /// Pages of a visitor, mean, at least 1: after each page one goes on with the same probability.
    pub pages_mean: f64,
    /// From the end of a page to the next, mean, ns; exponential.
    pub think_mean_ns: u64,
    /// When they come in peaks.
    pub peaks: Option<Peaks>,
    /// For how long new visitors come, ns.
    pub duration_ns: u64,
    /// The same visitors for the same seed.
    pub seed: u64,
}

/// Times with more visitors, the first of which begins after one whole pause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// How many times as many come, above 1.
    pub factor: f64,
    /// From one beginning to the next, ns.
    pub every_ns: u64,
    /// How long each lasts, ns; shorter than that.
    pub for_ns: u64,
}

/// One visitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// When it comes, ns since the beginning.
    pub at_ns: u64,
    /// How long it thinks after each page but the last, ns: it looks at one page more.
    pub thinks_ns: Vec<u64>,
}

impl Visit {
    /// Pages that it looks at.
    pub fn pages(&self) -> u64 {
        self.thinks_ns.len() as u64 + 1
    }
}

impl Visitors {
    /// All visitors, in the order in which they come.
    pub fn visits(&self) -> Vec<Visit> {
        let highest = self.peaks.map_or(1.0, |peaks| peaks.factor.max(1.0));
        let mut arrivals =
            Arrivals::new(Spread::Poisson, self.rate_per_s * highest, self.seed, 0, 1);
        let mut random = generator(self.seed, [1, 2, u64::MAX]);
        let mut visits = Vec::new();
        loop {
            let at_ns = arrivals.take();
            if at_ns >= self.duration_ns {
                return visits;
            }
            // Of a process at the highest rate, as many are left out as come less at this time.
            if even(&mut random) * highest > self.factor_at(at_ns) {
                continue;
            }
            visits.push(Visit { at_ns, thinks_ns: self.thinks(&mut random) });
        }
    }

    /// How many times as many visitors as between peaks come at this time.
    pub fn factor_at(&self, at_ns: u64) -> f64 {
        match self.peaks {
            Some(Peaks { factor, every_ns, for_ns })
                if at_ns % every_ns.max(1) >= every_ns.saturating_sub(for_ns) =>
            {
                factor
            }
            _ => 1.0,
        }
    }

    fn thinks(&self, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let goes_on = 1.0 - 1.0 / self.pages_mean.max(1.0);
        let mut thinks = Vec::new();
        while thinks.len() + 1 < PAGES_MAX && even(random) <= goes_on {
            thinks.push(exponential(random, self.think_mean_ns as f64) as u64);
        }
        thinks
    }
}

/// A visitor that asks for nothing for longer than this comes anew, s: what web statistics use.
const VISIT_GAP_S: i64 = 30 * 60;

/// Files that a visitor asks for later than this after the document are not the page's, s.
const PAGE_S: i64 = 30;

/// Window in which the most visitors are looked for, s.
const PEAK_S: i64 = 60;

/// A larger content is a download or a slip, and part of no mean, bytes.
const BYTES_MAX: u64 = 64 << 20;

/// Pages that are named.
const NAMED: usize = 5;

/// Longest path that is named, bytes.
const NAME_MAX: usize = 200;

/// What a log cannot show, a sentence each.
pub const UNKNOWN: [&str; 3] = [
    "A log does not show whether a visitor thinks or has closed the tab: the time between pages is known of visitors \
     who came back, and nobody knows how long the others kept their connections.",
    "Files that a browser has in its cache are not in the log, so first pages may have more of them than the mean.",
    "Visitors behind one address with the same program are one visitor here, and the log has no time that the server \
     takes for a page.",
];

/// Visitors and pages of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Requests that were used.
    pub requests: u64,
    /// Requests of robots and scripts, by their own names.
    pub requests_of_robots: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Requests beyond the most that are read.
    pub left_out: u64,
    /// From the first request to the last, s.
    pub span_s: f64,
    /// Visits: a visitor who is away for 30 minutes comes anew.
    pub visits: u64,
    /// Pages.
    pub pages: u64,
    /// Visits per second in the minute with the most of them.
    pub rate_per_s_busiest: f64,
    /// Visits per second over the whole log.
    pub rate_per_s_mean: f64,
    /// Pages of a visit, mean.
    pub pages_mean: f64,
    /// From the last file of a page to the next page, mean, s. Absent: no visit has two pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think_s_mean: Option<f64>,
    /// Files of a page besides the document, mean.
    pub resources_mean: f64,
    /// Content of a document, mean, bytes. Absent: the log has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_bytes_mean: Option<f64>,
    /// Content of another file, mean, bytes. Absent: the log has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_bytes_mean: Option<f64>,
    /// The pages that were asked for most, with how often.
    pub top_pages: BTreeMap<String, u64>,
}

/// A mean that is not known of nothing.
#[derive(Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn push(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// What one visitor did last.
struct LastHit {
    /// When its page was asked for.
    page_s: i64,
    /// When it asked for anything.
    last_s: i64,
}

impl Traffic {
    /// From the requests of a log.
    ///
    /// Errors: a clause that follows the file's name.
    pub fn from_log(log: &Hits) -> Result<Self, String> {
        let mut hits: Vec<&Hit> = log.hits.iter().filter(|hit| !hit.robot).collect();
        let size = |hit: &Hit| hit.bytes.filter(|bytes| hit.status != 304 && *bytes <= BYTES_MAX);
        // Servers write a line when a response ends.
        hits.sort_by_key(|hit| hit.at_s);
        let (Some(first), Some(last)) = (hits.first(), hits.last()) else {
            return Err(format!(
                "it has no GET request of a visitor in common or combined format ({} requests of robots, {} lines \
                 unreadable)",
                log.hits.len(),
                log.unreadable
            ));
        };
        let mut traffic = Self {
            requests: hits.len() as u64,
            requests_of_robots: (log.hits.len() - hits.len()) as u64,
            unreadable: log.unreadable,
            left_out: log.left_out,
            span_s: (last.at_s - first.at_s) as f64,
            ..Self::default()
        };
        let mut seen: HashMap<u64, LastHit> = HashMap::new();
        let mut came: Vec<i64> = Vec::new();
        let mut top: HashMap<&str, u64> = HashMap::new();
        let mut files = 0_u64;
        let [mut thinks, mut page_bytes, mut file_bytes] = [(); 3].map(|()| Mean::default());
        for hit in hits.iter().filter(|hit| matches!(hit.status, 200..=299 | 304)) {
            let path = hit.path.split(['?', '#']).next().unwrap_or_default();
            let before = seen.get_mut(&hit.visitor);
            // A document within a second of the one before is part of it: a frame, or what a script asks for.
            let begins =
                is_document(path) && before.as_ref().is_none_or(|seen| hit.at_s - seen.page_s > 1);
            if !begins {
                let Some(seen) = before else { continue };
                seen.last_s = hit.at_s;
                if hit.at_s - seen.page_s <= PAGE_S {
                    files += 1;
                    // A confirmation of what is cached has no content.
                    if let Some(bytes) = size(hit) {
                        file_bytes.push(bytes as f64);
                    }
                }
                continue;
            }
            match before {
                Some(seen) if hit.at_s - seen.last_s <= VISIT_GAP_S => {
                    thinks.push((hit.at_s - seen.last_s) as f64);
                }
                _ => came.push(hit.at_s),
            }
            seen.insert(hit.visitor, LastHit { page_s: hit.at_s, last_s: hit.at_s });
            traffic.pages += 1;
            *top.entry(path).or_default() += 1;
            if let Some(bytes) = size(hit) {
                page_bytes.push(bytes as f64);
            }
        }
        if traffic.pages == 0 {
            return Err(
                "it has no document: no GET of a page, like / or /index.html, succeeded".to_owned()
            );
        }
        traffic.visits = came.len() as u64;
        // A log that is shorter than a minute has no whole one.
        // Its stamps are whole seconds.
        let minute_s = (traffic.span_s + 1.0).min(PEAK_S as f64);
        traffic.rate_per_s_busiest = busiest(&came) as f64 / minute_s;
        traffic.rate_per_s_mean = came.len() as f64 / traffic.span_s.max(PEAK_S as f64);
        traffic.pages_mean = traffic.pages as f64 / came.len().max(1) as f64;
        traffic.think_s_mean = thinks.value();
        traffic.resources_mean = files as f64 / traffic.pages as f64;
        traffic.page_bytes_mean = page_bytes.value();
        traffic.resource_bytes_mean = file_bytes.value();
        let mut top: Vec<(&str, u64)> = top.into_iter().collect();
        top.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let name = |path: &str| path[..path.floor_char_boundary(NAME_MAX)].to_owned();
        traffic.top_pages =
            top.into_iter().take(NAMED).map(|(path, count)| (name(path), count)).collect();
        Ok(traffic)
    }
}

/// The most of these times within [`PEAK_S`]; they are in order.
fn busiest(came: &[i64]) -> usize {
    let mut from = 0;
    let mut most = 0;
    for (at, time) in came.iter().enumerate() {
        while time - came[from] >= PEAK_S {
            from += 1;
        }
        most = most.max(at + 1 - from);
    }
    most
}

/// Whether a path looks like a document: its last part has no ending, or one of a page.
fn is_document(path: &str) -> bool {
    const PAGES: [&str; 8] = ["html", "htm", "xhtml", "php", "asp", "aspx", "jsp", "shtml"];
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.')
        .is_none_or(|(_, ending)| PAGES.contains(&ending.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn visitors() -> Visitors {
        Visitors {
            rate_per_s: 10.0,
            pages_mean: 3.0,
            think_mean_ns: 5 * S,
            peaks: None,
            duration_ns: 1_000 * S,
            seed: 7,
        }
    }

    #[test]
    fn visitors_come_at_the_rate_asked_for_and_look_at_so_many_pages() {
        let visits = visitors().visits();
        // 10,000 ± 4 standard deviations.
        assert!((9_600..10_400).contains(&visits.len()), "{}", visits.len());
        assert!(visits.is_sorted_by_key(|visit| visit.at_ns));
        let pages: u64 = visits.iter().map(Visit::pages).sum();
        let mean = pages as f64 / visits.len() as f64;
        assert!((2.9..3.1).contains(&mean), "{mean}");
        let thinks: Vec<u64> = visits.iter().flat_map(|visit| visit.thinks_ns.clone()).collect();
        let mean_s = thinks.iter().sum::<u64>() as f64 / thinks.len() as f64 / 1e9;
        assert!((4.8..5.2).contains(&mean_s), "{mean_s}");
        assert_eq!(visitors().visits(), visits, "the same for the same seed");
        assert_ne!(Visitors { seed: 8, ..visitors() }.visits(), visits);
    }

    #[test]
    fn in_peaks_so_many_times_as_many_come_and_in_between_as_many_as_without() {
        let peaks = Peaks { factor: 5.0, every_ns: 10 * S, for_ns: 2 * S };
        let visitors = Visitors { peaks: Some(peaks), ..visitors() };
        let (within, between): (Vec<Visit>, Vec<Visit>) =
            visitors.visits().into_iter().partition(|visit| visit.at_ns % (10 * S) >= 8 * S);
        // 200 s with 50 a second, and 800 s with 10.
        assert!((9_600..10_400).contains(&within.len()), "{}", within.len());
        assert!((7_640..8_360).contains(&between.len()), "{}", between.len());
    }

    #[test]
    fn a_visitor_of_one_page_does_not_think_and_none_looks_at_more_than_a_hundred() {
        let single = Visitors { pages_mean: 1.0, ..visitors() };
        assert!(single.visits().iter().all(|visit| visit.pages() == 1));
        let many = Visitors { pages_mean: 1e9, duration_ns: 10 * S, ..visitors() };
        assert!(many.visits().iter().all(|visit| visit.pages() == PAGES_MAX as u64));
    }

    fn hit(visitor: u64, at_s: i64, path: &str) -> Hit {
        Hit { visitor, at_s, path: path.to_owned(), status: 200, bytes: Some(1_000), robot: false }
    }

    fn traffic(hits: Vec<Hit>) -> Result<Traffic, String> {
        Traffic::from_log(&Hits { hits, ..Hits::default() })
    }

    #[test]
    fn a_page_is_a_document_with_the_files_after_it_and_visits_end_with_a_long_gap() {
        let traffic = traffic(vec![
            hit(1, 0, "/"),
            hit(1, 1, "/a.css"),
            hit(1, 1, "/b.js?v=2"),
            hit(2, 5, "/index.php?id=3"),
            // 19 s after its last file.
            hit(1, 20, "/next"),
            // Long after the page.
            hit(1, 200, "/beacon.gif"),
            // A visitor again.
            hit(1, 4_000, "/"),
        ])
        .unwrap();
        assert_eq!((traffic.visits, traffic.pages, traffic.requests), (3, 4, 7));
        assert_eq!(traffic.think_s_mean, Some(19.0));
        assert!((traffic.resources_mean - 0.5).abs() < 1e-9);
        assert!((traffic.rate_per_s_busiest - 2.0 / 60.0).abs() < 1e-9);
        assert!((traffic.pages_mean - 4.0 / 3.0).abs() < 1e-9);
        assert_eq!(traffic.top_pages["/"], 2);
        assert_eq!(traffic.resource_bytes_mean, Some(1_000.0));
    }

    #[test]
    fn failures_confirmations_and_robots_are_no_pages() {
        let mut missing = hit(1, 0, "/gone");
        missing.status = 404;
        let mut robot = hit(9, 0, "/");
        robot.robot = true;
        assert!(traffic(vec![missing.clone()]).unwrap_err().contains("no document"));
        assert!(traffic(vec![robot.clone()]).unwrap_err().contains("no GET request"));
        assert!(traffic(Vec::new()).is_err());
        let mut cached = hit(1, 2, "/a.css");
        (cached.status, cached.bytes) = (304, Some(0));
        let traffic = traffic(vec![missing, robot, hit(1, 1, "/"), cached]).unwrap();
        assert_eq!((traffic.pages, traffic.requests_of_robots), (1, 1));
        assert_eq!(traffic.think_s_mean, None, "nobody came back");
        assert_eq!((traffic.resources_mean, traffic.resource_bytes_mean), (1.0, None));
    }

    #[test]
    fn a_document_right_after_another_is_part_of_it() {
        let traffic =
            traffic(vec![hit(1, 0, "/"), hit(1, 1, "/frame"), hit(1, 3, "/other")]).unwrap();
        assert_eq!(traffic.pages, 2);
    }

    proptest! {
        #[test]
        fn any_log_gives_figures_that_a_load_can_have(
            hits in prop::collection::vec(
                (0_u64..5, -1_000_000_000_000..1_000_000_000_000_i64, "/[a-z.é]{0,9}", any::<Option<u64>>()),
                1..40,
            ),
        ) {
            let hits = hits.into_iter().map(|(visitor, at_s, path, bytes)| Hit {
                visitor, at_s, path, status: 200, bytes, robot: false,
            });
            if let Ok(traffic) = traffic(hits.collect()) {
                prop_assert!(traffic.visits > 0 && traffic.visits <= traffic.pages);
                prop_assert!(traffic.pages_mean >= 1.0 && traffic.rate_per_s_busiest > 0.0);
                prop_assert!(traffic.think_s_mean.is_none_or(|s| s >= 0.0));
            }
        }
    }
}
