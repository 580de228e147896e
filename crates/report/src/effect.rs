//! What does a comparison say? Effect, interval, margin and verdict in the words of every report.

use std::collections::BTreeMap;

use serde_json::Value;
use tcptoll_model::record::{Arm, Comparison, Summary, Verdict};

use crate::number::{self, ABSENT, Estimate};
use crate::{figures, findings};

/// The ratio and its interval apart: `×0.752`, `[0.740, 0.760]`; [`ABSENT`] where there is none.
pub(crate) fn ratio(c: &Comparison) -> [String; 2] {
    let absent = || ABSENT.to_owned();
    match (c.ratio, c.ci95) {
        (Some(ratio), Some(ci95)) => number::ratio_with_interval(ratio, ci95).into(),
        (Some(ratio), None) => [number::ratio(ratio), absent()],
        (None, Some(ci95)) => [absent(), number::ratio_with_interval(ci95[1], ci95).1],
        (None, None) => [absent(), absent()],
    }
}

/// `×0.752 [0.740, 0.760]`; a missing interval is said.
pub(crate) fn ratio_with_interval(c: &Comparison) -> String {
    let [ratio, interval] = ratio(c);
    match (c.ratio, c.ci95) {
        (None, None) => "no ratio: a figure is missing or not above 0".to_owned(),
        (_, None) => format!("{ratio}, no interval yet"),
        _ => format!("{ratio} {interval}"),
    }
}

/// a − b with its unit and interval: `-3,360 [-3,420, -3,300] /s`.
pub(crate) fn difference(c: &Comparison) -> Option<String> {
    c.difference.as_ref().map(|d| Estimate::signed(d.value, d.ci95, &d.unit).text())
}

/// The smallest effect of interest: `margin 1 %`; `None` if there is none.
pub(crate) fn margin(c: &Comparison) -> Option<String> {
    (c.margin > 0.0).then(|| format!("margin {}", number::plain_percent(c.margin)))
}

/// The ratios within the margin, of equal weight in both directions.
pub(crate) fn band(c: &Comparison) -> Option<[f64; 2]> {
    (c.margin > 0.0 && c.margin.is_finite()).then(|| [1.0 / (1.0 + c.margin), 1.0 + c.margin])
}

/// The verdict with what it rests on: `no difference found (margin 1 %)`.
pub(crate) fn verdict(c: &Comparison) -> String {
    let mut rests_on: Vec<String> = margin(c).into_iter().collect();
    if matches!(c.verdict, Verdict::Higher | Verdict::Lower) {
        return c.verdict.to_string();
    }
    if c.verdict == Verdict::NotEnough && c.rounds > 0 {
        let rounds = figures::plural(u64::from(c.rounds), "round");
        rests_on.push(format!("{rounds}: raise --rounds"));
    }
    if rests_on.is_empty() {
        c.verdict.to_string()
    } else {
        format!("{} ({})", c.verdict, rests_on.join(", "))
    }
}

/// The whole comparison: `×0.752 [0.740, 0.760] · -3,360 [-3,420, -3,300] /s · lower`.
pub(crate) fn sentence(c: &Comparison) -> String {
    let mut parts = vec![ratio_with_interval(c)];
    parts.extend(difference(c));
    parts.push(verdict(c));
    parts.join(" · ")
}

/// That the intervals hold together; `None` with fewer than two of them.
pub(crate) fn together(comparisons: &[Comparison]) -> Option<String> {
    let intervals = comparisons.iter().filter(|c| c.ci95.is_some()).count();
    (intervals > 1).then(|| {
        let all = match comparisons.len() {
            2 => "both".to_owned(),
            n => format!("all {n}"),
        };
        format!("The 95 % intervals hold for {all} comparisons together.")
    })
}

/// Levels in words: `connections 4, link metro`.
pub(crate) fn levels<'a>(levels: impl IntoIterator<Item = (&'a String, &'a Value)>) -> String {
    let words: Vec<String> = levels
        .into_iter()
        .map(|(factor, level)| format!("{factor} {}", findings::plain(level)))
        .collect();
    words.join(", ")
}

/// What tells the two arms apart: the levels in which they differ, or their names.
pub(crate) fn pair(summary: &Summary, c: &Comparison) -> [String; 2] {
    let find = |name: &str| summary.arms.iter().find(|arm| arm.name == name);
    let names = || [c.a.clone(), c.b.clone()];
    let (Some(a), Some(b)) = (find(&c.a), find(&c.b)) else { return names() };
    let differing = |arm: &Arm, other: &Arm| {
        let differs = |(factor, level): &(&String, &Value)| {
            !c.per.contains_key(*factor) && other.factors.get(*factor) != Some(*level)
        };
        levels(arm.factors.iter().filter(differs))
    };
    let labels = [differing(a, b), differing(b, a)];
    if labels.iter().any(String::is_empty) { names() } else { labels }
}

/// Two labels with a slash: what they begin with is said once, `reuse none / keep-alive`.
pub(crate) fn slash(a: &str, b: &str) -> String {
    format!("{a} / {}", &b[common_words(&[a, b])..])
}

/// Bytes of the whole words that all of `texts` begin with; something is left of each.
pub(crate) fn common_words(texts: &[&str]) -> usize {
    let Some((first, rest)) = texts.split_first() else { return 0 };
    let ends = first.match_indices(' ').map(|(at, _)| at + 1);
    ends.take_while(|end| {
        rest.iter().all(|text| text.len() > *end && text.starts_with(&first[..*end]))
    })
    .last()
    .unwrap_or(0)
}

/// Comparisons that belong in one table or picture.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    /// Metric compared.
    pub(crate) metric: &'a str,
    /// What tells the two arms apart, where there is one row per level of other factors.
    pub(crate) pair: Option<[String; 2]>,
    /// In the order of the study.
    pub(crate) rows: Vec<&'a Comparison>,
}

/// By metric, and with levels also by pair of arms; in the order of the study.
pub(crate) fn groups<'a>(summary: &'a Summary, comparisons: &'a [Comparison]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for c in comparisons {
        let pair = (!c.per.is_empty()).then(|| pair(summary, c));
        let same = |g: &&mut Group<'_>| {
            g.metric == c.metric && g.pair == pair && same_keys(&g.rows[0].per, &c.per)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.rows.push(c),
            None => groups.push(Group { metric: &c.metric, pair, rows: vec![c] }),
        }
    }
    groups
}

fn same_keys(a: &BTreeMap<String, Value>, b: &BTreeMap<String, Value>) -> bool {
    a.keys().eq(b.keys())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(verdict: Verdict) -> Comparison {
        Comparison { margin: 0.01, rounds: 5, verdict, ..Comparison::default() }
    }

    #[test]
    fn what_is_not_known_is_said_with_what_to_do() {
        let c = comparison(Verdict::NotEnough);
        assert_eq!(verdict(&c), "not enough evidence (margin 1 %, 5 rounds: raise --rounds)");
        assert_eq!(ratio_with_interval(&c), "no ratio: a figure is missing or not above 0");
        let one = Comparison { ratio: Some(1.05), ..c };
        assert_eq!(ratio_with_interval(&one), "×1.05, no interval yet");
    }

    #[test]
    fn no_difference_names_its_margin() {
        assert_eq!(verdict(&comparison(Verdict::NoDifference)), "no difference found (margin 1 %)");
        assert_eq!(verdict(&comparison(Verdict::Lower)), "lower");
    }

    #[test]
    fn what_two_labels_share_is_said_once() {
        assert_eq!(slash("reuse none", "reuse keep-alive"), "reuse none / keep-alive");
        assert_eq!(slash("a", "b"), "a / b");
        assert_eq!(slash("a b", "a b"), "a b / b");
    }

    #[test]
    fn a_pair_is_named_by_the_levels_in_which_it_differs() {
        let arm = |name: &str, reuse: &str| Arm {
            name: name.into(),
            factors: [("reuse".to_owned(), reuse.into()), ("connections".to_owned(), 4.into())]
                .into(),
            ..Arm::default()
        };
        let json = serde_json::json!({
            "record_version": 1, "tcptoll_version": "", "experiment": "", "question": "",
            "answer": "", "command": [], "started_at": "", "place": {"kind": "lab"},
            "passport": tcptoll_model::record::Passport::default(),
            "arms": [arm("a", "none"), arm("b", "keep-alive")], "comparisons": [],
            "published": [], "causes": [], "advice": [], "warnings": [], "next": [],
            "partial": false, "valid": true,
        });
        let summary: Summary = serde_json::from_value(json).unwrap();
        let c = Comparison { a: "a".into(), b: "b".into(), ..Comparison::default() };
        assert_eq!(pair(&summary, &c), ["reuse none", "reuse keep-alive"]);
        let c = Comparison { b: "gone".into(), ..c };
        assert_eq!(pair(&summary, &c), ["a", "gone"]);
    }
}
