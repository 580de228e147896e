//! What only page loads record of an arm: waterfalls, and what was expected.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page::waterfall::Waterfall;
use crate::record::merge::Merge;

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
            repeats: crate::record::merge::sum(rounds.iter().map(|round| round.repeats)),
            ..(*typical).clone()
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
}
