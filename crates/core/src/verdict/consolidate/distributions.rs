//! Histograms of several rounds become one.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::HistogramSummary;
use crate::stats::{Histogram, Unanswered};

/// Each distribution that any round has, over all rounds; see [`merge`].
pub(super) fn merged(
    rounds: &[&BTreeMap<String, HistogramSummary>],
) -> BTreeMap<String, HistogramSummary> {
    let names: BTreeSet<&String> = rounds.iter().flat_map(|round| round.keys()).collect();
    let merged_by_name = |name: &String| {
        let summaries: Vec<_> = rounds.iter().filter_map(|round| round.get(name)).collect();
        Some((name.clone(), merge(&summaries)?))
    };
    names.into_iter().filter_map(merged_by_name).collect()
}

/// The distribution of all values together: count, least, mean and greatest value stay exact.
///
/// None: there is none, or one cannot be read back. What is left would be of other rounds than
/// the arm's other figures.
pub(super) fn merge(summaries: &[&HistogramSummary]) -> Option<HistogramSummary> {
    let mut all = Histogram::new();
    for summary in summaries.iter().filter(|summary| summary.count > 0) {
        let one = Histogram::from_summary(summary).ok()??;
        if one.count() != summary.count {
            return None;
        }
        all.merge(&one);
    }
    let unanswered = Unanswered::merged(summaries.iter().filter_map(|summary| summary.unanswered));
    (!summaries.is_empty()).then(|| all.summary_us().with_unanswered(unanswered))
}
