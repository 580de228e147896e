//! Page loads of an arm with their waterfalls and what was expected, and loads by visitors: pages over
//! time, and the workers of the server.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::merge::{Merge, sum, summed};
use crate::page::waterfall::Waterfall;
use crate::stats::Series;

/// Requests and connections of a waterfall that are kept.
const KEPT: usize = 300;

/// Spans that are kept of an arm.
const SPANS: usize = 1_000;

/// Loads of a page.
///
/// Of several rounds, the waterfalls are those of the round whose span is the median.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageLoads {
    /// Where spans are from: `wire` (first SYN to last byte, as the link carried them) or `client` (from the
    /// navigation to the last byte, as the client read them).
    pub span_from: String,
    /// The span of each load, in order of running, µs; at most 1,000.
    pub spans_us: Vec<f64>,
    /// The load with the median span; at most 300 requests of it.
    pub waterfall: Waterfall,
    /// Requests of it that are not kept.
    #[serde(default)]
    pub requests_left_out: u64,
    /// The second page of that visit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page: Option<Waterfall>,
    /// What the model of rounds, slow start and server time expects. Absent: it was not computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Waterfall>,
    /// Round trip on which the forecast rests, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<f64>,
    /// Congestion control of the server's host, on which it rests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Name and version of the browser that loaded the page. Absent: tcptoll did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub browser: Option<String>,
    /// Requests that were sent again because the server had closed an idle connection.
    #[serde(default)]
    pub repeats: u64,
}

impl PageLoads {
    /// As much of a waterfall as is kept, and how many requests are not.
    pub fn kept(mut waterfall: Waterfall) -> (Waterfall, u64) {
        let left_out = waterfall.requests.len().saturating_sub(KEPT) as u64;
        waterfall.requests.truncate(KEPT);
        waterfall.connections.truncate(KEPT);
        (waterfall, left_out)
    }

    /// The median span, µs. None: there is none.
    pub fn median_us(&self) -> Option<f64> {
        median(&self.spans_us)
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[count / 2]),
        count => Some(f64::midpoint(sorted[count / 2 - 1], sorted[count / 2])),
    }
}

impl Merge for PageLoads {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let mut order: Vec<&Self> = rounds.to_vec();
        let span = |loads: &Self| loads.median_us().unwrap_or(f64::INFINITY);
        order.sort_by(|a, b| span(a).total_cmp(&span(b)));
        let typical = order.get(order.len().saturating_sub(1) / 2)?;
        let spans = rounds.iter().flat_map(|round| round.spans_us.iter().copied());
        Some(Self {
            spans_us: spans.take(SPANS).collect(),
            repeats: sum(rounds.iter().map(|round| round.repeats)),
            ..(*typical).clone()
        })
    }
}

/// Visitors of a site, and what their connections hold on its server.
///
/// All times count from the beginning of the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SiteVisits {
    /// Visitors that came, during the warm-up too.
    pub visitors: u64,
    /// Length of the measured window, s.
    pub window_s: f64,
    /// Workers that the server may have for visitors; of nginx the connections.
    pub workers: u64,
    /// What a worker is there: `process`, `thread`, `connection`.
    pub worker: String,
    /// Whether an idle connection holds none.
    #[serde(default)]
    pub idle_is_free: bool,
    /// How long the server keeps an idle connection, s. Absent: it keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// First pages of visitors: `first`; all later ones: `next`.
    pub pages: BTreeMap<String, PageGroup>,
    /// Workers that hold a connection, over time, from the server's own status page.
    #[serde(default)]
    pub busy: Series,
    /// Connections that wait for another request, over time, from the same page.
    #[serde(default)]
    pub kept: Series,
    /// Connections in the accept queue of the server, over time.
    #[serde(default)]
    pub queue: Series,
    /// SYNs and ACKs that met a full accept queue, since the window began.
    #[serde(default)]
    pub refused: Series,
    /// Memory of all processes of the server (PSS) over time, bytes.
    #[serde(default)]
    pub memory_bytes: Series,
    /// What these may have together, if that was limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryLimit>,
    /// Readings of the status page.
    pub readings: u64,
    /// Readings that were not answered within 500 ms.
    pub readings_missed: u64,
    /// Workers that the schedule and the settings make hold a connection, mean over the window: for each
    /// connection, from its handshake to its last response as in a load without others, and the
    /// timeout after it, or the thinking if that is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_expected: Option<f64>,
    /// Connections that the visitors had open, mean over the window, by their own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by_clients: Option<f64>,
    /// Requests that were sent again because the server had closed an idle connection.
    #[serde(default)]
    pub repeats: u64,
}

/// A limit of the server's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLimit {
    /// Bytes of all processes together.
    pub bytes: u64,
    /// Who kept it: `kernel` (a control group, which counts files in memory too), or `watch` (tcptoll summed
    /// up the processes' PSS several times a second).
    pub by: String,
    /// Why the kernel did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Processes that were killed because of it, during the load.
    pub kills: u64,
}

/// Pages of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageGroup {
    /// Pages that were asked for in the window.
    pub attempts: u64,
    /// Pages that came whole.
    pub ok: u64,
    /// Pages that did not, by class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// Connections that were opened for them.
    pub connections: u64,
    /// Their time over time, by when they were asked for, µs.
    #[serde(default)]
    pub page_us: Series,
}

impl Merge for SiteVisits {
    /// Counts are added, means are means; series are those of the first round.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        let mean = |value: fn(&Self) -> Option<f64>| {
            let all: Vec<f64> = rounds.iter().filter_map(|round| value(round)).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        };
        let mut pages: BTreeMap<String, Vec<&PageGroup>> = BTreeMap::new();
        for (name, group) in rounds.iter().flat_map(|round| &round.pages) {
            pages.entry(name.clone()).or_default().push(group);
        }
        Some(Self {
            visitors: sum(rounds.iter().map(|round| round.visitors)),
            pages: pages
                .into_iter()
                .filter_map(|(name, all)| Some((name, PageGroup::merge(&all)?)))
                .collect(),
            readings: sum(rounds.iter().map(|round| round.readings)),
            readings_missed: sum(rounds.iter().map(|round| round.readings_missed)),
            memory_limit: first.memory_limit.clone().map(|limit| MemoryLimit {
                kills: sum(rounds
                    .iter()
                    .filter_map(|round| Some(round.memory_limit.as_ref()?.kills))),
                ..limit
            }),
            held_expected: mean(|round| round.held_expected),
            held_by_clients: mean(|round| round.held_by_clients),
            repeats: sum(rounds.iter().map(|round| round.repeats)),
            ..first.clone()
        })
    }
}

impl Merge for PageGroup {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        let errors: Vec<&BTreeMap<String, u64>> =
            rounds.iter().map(|round| &round.errors).collect();
        Some(Self {
            attempts: sum(rounds.iter().map(|round| round.attempts)),
            ok: sum(rounds.iter().map(|round| round.ok)),
            errors: summed(&errors),
            connections: sum(rounds.iter().map(|round| round.connections)),
            ..first.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_with_the_median_span_gives_the_waterfall_and_all_give_their_spans() {
        let round = |span: f64| PageLoads {
            spans_us: vec![span, span + 1.0],
            rtt_us: Some(span),
            repeats: 1,
            ..PageLoads::default()
        };
        let rounds = [round(30.0), round(10.0), round(20.0)];
        let merged = PageLoads::merge(&rounds.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(merged.rtt_us, Some(20.0));
        assert_eq!(merged.spans_us, [30.0, 31.0, 10.0, 11.0, 20.0, 21.0]);
        assert_eq!(merged.repeats, 3);
        assert_eq!(merged.median_us(), Some(20.5));
        assert_eq!(PageLoads::merge(&[]), None);
    }

    #[test]
    fn counts_of_rounds_are_added_and_means_are_means() {
        let round = |ok: u64| SiteVisits {
            visitors: ok,
            pages: [("first".to_owned(), PageGroup { attempts: 3, ok, ..PageGroup::default() })]
                .into(),
            held_expected: Some(ok as f64),
            ..SiteVisits::default()
        };
        let merged = SiteVisits::merge(&[&round(1), &round(3)]).unwrap();
        assert_eq!((merged.visitors, merged.held_expected), (4, Some(2.0)));
        assert_eq!((merged.pages["first"].attempts, merged.pages["first"].ok), (6, 4));
        assert_eq!(SiteVisits::merge(&[]), None);
    }
}
