//! What does a comparison say? Effect, interval, margin and verdict in the words of every report.

use std::collections::BTreeMap;

use serde_json::Value;
use tcptoll_core::experiment::spec::{Better, Specs};
use tcptoll_core::record::{Arm, Comparison, Verdict};
use tcptoll_core::stats::sequence;
use tcptoll_core::stats::sequence::ROUNDS_TO_BE_NARROW;

use crate::number::{self, ABSENT, Estimate};
use crate::run::Run;
use crate::{figures, rounds};

/// The ratio and its interval apart: `×0.752`, `[0.740, 0.760]`; [`ABSENT`] where there is none.
pub fn ratio(c: &Comparison) -> [String; 2] {
    let absent = || ABSENT.to_owned();
    match (c.ratio, c.ci95) {
        (Some(ratio), Some(ci95)) => {
            let [ratio, low, high] = number::ratio_within(ratio, ci95);
            [format!("×{ratio}"), format!("[{low}, {high}]")]
        }
        (Some(ratio), None) => [number::ratio(ratio), absent()],
        (None, Some(ci95)) => {
            let [_, low, high] = number::ratio_within(ci95[1], ci95);
            [absent(), format!("[{low}, {high}]")]
        }
        (None, None) => [absent(), absent()],
    }
}

/// `×0.752 [0.740, 0.760]`; a missing interval is said.
pub(crate) fn ratio_with_interval(c: &Comparison) -> String {
    let [ratio, interval] = ratio(c);
    match (c.ratio, no_interval(c)) {
        (None, Some(why)) => why.to_owned(),
        (Some(_), Some(why)) => format!("{ratio}, {why}"),
        (_, None) => format!("{ratio} {interval}"),
    }
}

/// Rounds from which on one comparison has an interval, if no figure is missing.
const ROUNDS_OF_ONE: usize = 5;

/// The level of the interval of one comparison that stands alone.
const ALPHA_OF_ONE: f64 = 0.05;

/// Why there is no interval of the ratio; `None` if there is one.
pub(crate) fn no_interval(c: &Comparison) -> Option<&'static str> {
    // A level divided among many asks for more rounds.
    let needed = match c.alpha {
        alpha if !(alpha > 0.0 && alpha < ALPHA_OF_ONE) => ROUNDS_OF_ONE,
        // Of two runs, whose quantiles are drawn anew: more than a sequence needs, less than these.
        _ if c.a == c.b => ROUNDS_TO_BE_NARROW,
        alpha => sequence::fewest(alpha),
    };
    match (c.ratio, c.ci95) {
        (_, Some(_)) => None,
        (None, None) if c.rounds == 0 && c.points.is_some() => {
            Some("no point counts for both arms")
        }
        (Some(_), None) if c.points.as_ref().is_some_and(|points| c.rounds < points.least) => {
            Some("no interval: too few points")
        }
        (None, None) if c.rounds == 0 => Some("no round counts for both arms"),
        (None, None) => Some("no ratio: a figure is missing or not above 0"),
        (Some(_), None) if c.rounds as usize >= needed => {
            Some("no interval: a figure is missing in some rounds")
        }
        (Some(_), None) => Some("no interval yet"),
    }
}

/// Whether the interval lies within the margin already, after too few rounds to be believed.
pub(crate) fn narrow_too_soon(c: &Comparison) -> bool {
    let least = 1.0 + c.margin;
    c.verdict == Verdict::NotEnough
        && (c.rounds as usize) < ROUNDS_TO_BE_NARROW
        && c.ci95.is_some_and(|[low, high]| low >= 1.0 / least && high <= least)
}

/// From when on an interval within the margin says that there is no difference that matters.
pub(crate) fn shown_from() -> String {
    format!("the verdict '{}' needs {ROUNDS_TO_BE_NARROW} rounds", Verdict::NoDifference)
}

/// More rounds than this are no advice: longer trials cost less.
pub const MOST_ROUNDS: u64 = 1_000;

/// Rounds after which the interval is about as narrow as the margin, if its width goes on falling
/// with the root of their number; rounded up to two digits.
///
/// None: there is no interval or no margin yet, or the interval is narrow enough and lies across the
/// end of the margin, where nobody can say how many it takes.
pub fn rounds_needed(c: &Comparison) -> Option<u64> {
    let [low, high] = c.ci95?;
    let half_width = (high / low).ln() / 2.0;
    let margin = (c.margin > 0.0).then(|| c.margin.ln_1p())?;
    let needed = (f64::from(c.rounds) * (half_width / margin).powi(2)).ceil();
    let usable = needed.is_finite() && low > 0.0;
    let needed = (needed as u64).max(ROUNDS_TO_BE_NARROW as u64);
    if !usable || needed <= u64::from(c.rounds) {
        return None;
    }
    let step = 10_u64.pow(needed.ilog10().saturating_sub(1));
    Some(needed.div_ceil(step).saturating_mul(step))
}

/// What gives the evidence that lacks, for all of `open` or for those of which it can be said.
pub(crate) fn more_rounds(open: &[&Comparison]) -> String {
    if open.iter().any(|c| c.points.is_some()) {
        return "add points".to_owned();
    }
    let needed = || open.iter().filter_map(|c| rounds_needed(c));
    match (needed().min(), needed().max()) {
        (Some(least), Some(most)) if most > MOST_ROUNDS => {
            let some = if least > MOST_ROUNDS { "" } else { " for some" };
            format!(
                "{} rounds would still be too few for 'no difference found'{some}: use longer trials \
                 or a wider --margin",
                number::count(MOST_ROUNDS)
            )
        }
        (_, Some(most)) => format!("try --rounds {most}"),
        _ => "raise --rounds".to_owned(),
    }
}

/// a − b with its unit and interval: `-3,360 [-3,420, -3,300] /s`.
pub fn difference(c: &Comparison) -> Option<String> {
    c.difference.as_ref().map(|d| Estimate::signed(d.value, d.ci95, &d.unit).text())
}

/// That ratio and means tell different stories, where they do: a ratio is of the rounds' logarithms, a
/// difference of their values, and a few rounds far from the others move the difference more.
pub(crate) fn of_two_means(rows: &[&Comparison]) -> Option<&'static str> {
    let beyond = |[low, high]: [f64; 2], none: f64| low > none || high < none;
    let apart = |c: &&Comparison| {
        if c.points.is_some() {
            return false;
        }
        let difference = c.difference.as_ref();
        let sides = c.ratio.zip(difference).is_some_and(|(ratio, d)| (ratio - 1.0) * d.value < 0.0);
        let decided = c.ci95.zip(difference.and_then(|d| d.ci95));
        sides || decided.is_some_and(|(ratio, d)| beyond(ratio, 1.0) != beyond(d, 0.0))
    };
    rows.iter().any(apart).then_some(
        "The verdict is of the ratio, the geometric mean over the rounds. The difference is of the \
         arithmetic means, which a few rounds far from the others move more.",
    )
}

/// The smallest effect of interest: `margin 1 %`; `None` if there is none.
pub fn margin(c: &Comparison) -> Option<String> {
    (c.margin > 0.0).then(|| format!("margin {}", number::percent(c.margin)))
}

/// The ratios within the margin, of equal weight in both directions.
pub fn band(c: &Comparison) -> Option<[f64; 2]> {
    (c.margin > 0.0 && c.margin.is_finite()).then(|| [1.0 / (1.0 + c.margin), 1.0 + c.margin])
}

/// Whether A is better or worse than B; `None`: neither was found, or the metric has no better side.
pub(crate) fn judgement(c: &Comparison, specs: Specs) -> Option<&'static str> {
    match (c.verdict, specs.better(&c.metric)) {
        (Verdict::Higher, Better::Higher) | (Verdict::Lower, Better::Lower) => Some("better"),
        (Verdict::Higher, Better::Lower) | (Verdict::Lower, Better::Higher) => Some("worse"),
        _ => None,
    }
}

/// The verdict with its judgement: `lower (worse)`.
pub fn judged(c: &Comparison, specs: Specs) -> String {
    match judgement(c, specs) {
        Some(word) => format!("{} ({word})", c.verdict),
        None => c.verdict.to_string(),
    }
}

/// The verdict with what it rests on: `no difference found (margin 1 %)`.
pub fn verdict(c: &Comparison, specs: Specs) -> String {
    let mut rests_on: Vec<String> = margin(c).into_iter().collect();
    if matches!(c.verdict, Verdict::Higher | Verdict::Lower) {
        return judged(c, specs);
    }
    if narrow_too_soon(c) {
        let margin = margin(c).map(|margin| format!("{margin}, ")).unwrap_or_default();
        let rounds = figures::plural(u64::from(c.rounds), unit(c));
        let (from, more) = (shown_from(), more_rounds(&[c]));
        return format!("{} ({margin}{rounds}; {from}: {more})", c.verdict);
    }
    if c.verdict == Verdict::NotEnough && c.rounds > 0 {
        let rounds = figures::plural(u64::from(c.rounds), unit(c));
        rests_on.push(format!("{rounds}: {}", more_rounds(&[c])));
    }
    if rests_on.is_empty() {
        c.verdict.to_string()
    } else {
        format!("{} ({})", c.verdict, rests_on.join(", "))
    }
}

/// What a comparison has as many of as `rounds` says.
fn unit(c: &Comparison) -> &'static str {
    if c.points.is_some() { "point" } else { "round" }
}

/// The whole comparison: `×0.752 [0.740, 0.760] · -3,360 [-3,420, -3,300] /s · lower`.
pub fn sentence(c: &Comparison, specs: Specs) -> String {
    let mut parts = vec![ratio_with_interval(c)];
    parts.extend(difference(c));
    parts.push(verdict(c, specs));
    parts.join(" · ")
}

/// That the intervals hold together; `None` with fewer than two of them.
pub fn together(comparisons: &[Comparison]) -> Option<String> {
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
pub fn levels<'a>(levels: impl IntoIterator<Item = (&'a String, &'a Value)>) -> String {
    let words: Vec<String> = levels
        .into_iter()
        .map(|(factor, level)| format!("{factor} {}", rounds::level(level)))
        .collect();
    words.join(", ")
}

/// What tells the two arms apart: the levels in which they differ, or their names, which may say something else.
pub fn pair(summary: &Run, c: &Comparison) -> [String; 2] {
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
    // `reuse none`, and in the name of the arm perhaps `none` alone.
    let says = |own: &str, level: &str| {
        own == level || level.split_once(' ').is_some_and(|(_, value)| own == value)
    };
    let is_of_name = |(arm, label): (&Arm, &String)| {
        let named = |level: &str| arm.name.split(", ").any(|own| says(own, level));
        !label.is_empty() && label.split(", ").all(named)
    };
    if [a, b].into_iter().zip(&labels).all(is_of_name) { labels } else { names() }
}

/// Two labels with a slash: what they begin with is said once, `reuse none / keep-alive`.
pub(crate) fn slash(a: &str, b: &str) -> String {
    // Of `10 ms again / 10 ms` nothing can be left out.
    let begins = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let common = if begins(a, b) || begins(b, a) { 0 } else { common_words(&[a, b]) };
    format!("{a} / {}", &b[common..])
}

/// Bytes of the whole words that all of `texts` begin with; something is left of each.
pub fn common_words(texts: &[&str]) -> usize {
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
pub struct Group<'a> {
    /// Metric compared.
    pub metric: &'a str,
    /// What tells the two arms apart, where there is one row per level of other factors.
    pub pair: Option<[String; 2]>,
    /// In the order of the study.
    pub rows: Vec<&'a Comparison>,
}

/// By metric, and with levels also by pair of arms; the metric of the run first, then in the order of
/// the study.
pub fn groups<'a>(summary: &'a Run, comparisons: &'a [Comparison]) -> Vec<Group<'a>> {
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
    groups.sort_by_key(|group| rounds::metric(summary) != Some(group.metric));
    groups
}

fn same_keys(a: &BTreeMap<String, Value>, b: &BTreeMap<String, Value>) -> bool {
    a.keys().eq(b.keys())
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::Summary;

    use super::*;

    fn comparison(verdict: Verdict) -> Comparison {
        Comparison { margin: 0.01, rounds: 5, verdict, ..Comparison::default() }
    }

    #[test]
    fn what_is_not_known_is_said_with_what_to_do() {
        let c = comparison(Verdict::NotEnough);
        assert_eq!(
            verdict(&c, Specs(&[])),
            "not enough evidence (margin 1 %, 5 rounds: raise --rounds)"
        );
        assert_eq!(ratio_with_interval(&c), "no ratio: a figure is missing or not above 0");
        let one = Comparison { ratio: Some(1.05), ..c };
        assert_eq!(
            ratio_with_interval(&one),
            "×1.05, no interval: a figure is missing in some rounds"
        );
        let early = Comparison { rounds: 4, ..one.clone() };
        assert_eq!(ratio_with_interval(&early), "×1.05, no interval yet");
        let of_many = Comparison { alpha: 0.05 / 28.0, a: "a".into(), rounds: 7, ..one };
        assert_eq!(ratio_with_interval(&of_many), "×1.05, no interval yet");
        let missing = "no interval: a figure is missing in some rounds";
        assert_eq!(no_interval(&Comparison { rounds: 8, ..of_many.clone() }), Some(missing));
        let of_two_runs = Comparison { b: "a".into(), rounds: 14, ..of_many };
        assert_eq!(no_interval(&of_two_runs), Some("no interval yet"));
    }

    #[test]
    fn arms_without_a_common_round_have_no_ratio_for_that_reason() {
        let c = Comparison { rounds: 0, ..comparison(Verdict::NotEnough) };
        assert_eq!(
            sentence(&c, Specs(&[])),
            "no round counts for both arms · not enough evidence (margin 1 %)"
        );
    }

    #[test]
    fn an_interval_within_the_margin_is_not_believed_before_its_rounds() {
        let narrow = Comparison {
            ratio: Some(1.0),
            ci95: Some([0.995, 1.005]),
            rounds: 8,
            ..comparison(Verdict::NotEnough)
        };
        assert_eq!(
            verdict(&narrow, Specs(&[])),
            "not enough evidence (margin 1 %, 8 rounds; the verdict 'no difference found' needs 15 \
             rounds: try --rounds 15)"
        );
        let no_margin = Comparison { margin: 0.0, ci95: Some([1.0, 1.0]), ..narrow.clone() };
        assert_eq!(
            verdict(&no_margin, Specs(&[])),
            "not enough evidence (8 rounds; the verdict 'no difference found' needs 15 rounds: raise \
             --rounds)"
        );
        let wide = Comparison { ci95: Some([0.98, 1.005]), ..narrow };
        assert_eq!(
            verdict(&wide, Specs(&[])),
            "not enough evidence (margin 1 %, 8 rounds: try --rounds 15)"
        );
    }

    #[test]
    fn advice_names_a_number_of_rounds_only_if_it_can_be_run() {
        let comparison =
            |ci95| Comparison { ci95: Some(ci95), rounds: 12, ..Comparison::default() };
        let with_margin = |ci95| Comparison { margin: 0.01, ..comparison(ci95) };
        // Half the width is ln(1.05): 12 · (0.04879 / 0.00995)² = 288.5.
        let wide = with_margin([1.0 / 1.05, 1.05]);
        assert_eq!(more_rounds(&[&wide]), "try --rounds 290");
        let hopeless = with_margin([0.5, 2.0]);
        let longer = "use longer trials or a wider --margin";
        assert_eq!(
            more_rounds(&[&hopeless]),
            format!("1,000 rounds would still be too few for 'no difference found': {longer}")
        );
        assert_eq!(
            more_rounds(&[&wide, &hopeless]),
            format!(
                "1,000 rounds would still be too few for 'no difference found' for some: {longer}"
            )
        );
        let across = Comparison { rounds: 40, ..with_margin([1.005, 1.015]) };
        let no_margin = comparison([0.9, 1.1]);
        let broken = with_margin([0.0, 1.1]);
        assert_eq!(more_rounds(&[&across, &no_margin, &broken]), "raise --rounds");
    }

    #[test]
    fn levels_stand_as_they_were_written() {
        let written = [("b".to_owned(), 4096.into()), ("keep".to_owned(), true.into())];
        let written: BTreeMap<String, Value> = written.into();
        assert_eq!(levels(&written), "b 4096, keep true");
    }

    #[test]
    fn no_difference_names_its_margin() {
        assert_eq!(
            verdict(&comparison(Verdict::NoDifference), Specs(&[])),
            "no difference found (margin 1 %)"
        );
        assert_eq!(verdict(&comparison(Verdict::Lower), Specs(&[])), "lower");
    }

    #[test]
    fn that_ratio_and_difference_disagree_is_said_only_if_they_do() {
        let comparison = |ratio, ci95, value, interval| {
            let metric = tcptoll_core::record::Metric {
                value,
                ci95: Some(interval),
                ..tcptoll_core::record::Metric::default()
            };
            Comparison {
                ratio: Some(ratio),
                ci95: Some(ci95),
                difference: Some(metric),
                ..Comparison::default()
            }
        };
        let agree = comparison(0.8, [0.7, 0.9], -5.0, [-8.0, -2.0]);
        assert_eq!(of_two_means(&[&agree]), None);
        let open = comparison(0.8, [0.7, 0.9], -5.0, [-8.0, 2.0]);
        assert!(of_two_means(&[&agree, &open]).is_some());
        let sides = comparison(0.997, [0.6, 1.5], 3_461.0, [-2_000.0, 9_000.0]);
        assert!(of_two_means(&[&sides]).is_some());
    }

    #[test]
    fn what_two_labels_share_is_said_once() {
        assert_eq!(slash("reuse none", "reuse keep-alive"), "reuse none / keep-alive");
        assert_eq!(slash("a", "b"), "a / b");
        assert_eq!(slash("a b", "a b"), "a b / a b");
        assert_eq!(slash("backlog 4096", "backlog 4"), "backlog 4096 / 4");
        assert_eq!(slash("10 ms again", "10 ms"), "10 ms again / 10 ms");
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
            "passport": tcptoll_core::record::Passport::default(),
            "arms": [arm("reuse none, connections 4", "none"), arm("keep-alive, far", "keep-alive"),
                arm("as it was", "none")],
            "comparisons": [],
            "published": [], "causes": [], "advice": [], "warnings": [], "next": [],
            "partial": false, "valid": true,
        });
        let summary: Summary = serde_json::from_value(json).unwrap();
        let summary = Run::from(summary);
        let names = |a: &str, b: &str| {
            pair(&summary, &Comparison { a: a.into(), b: b.into(), ..Comparison::default() })
        };
        let [none, far] = ["reuse none, connections 4", "keep-alive, far"];
        assert_eq!(names(none, far), ["reuse none", "reuse keep-alive"]);
        assert_eq!(names("as it was", far), ["as it was", far], "names that say something else");
        assert_eq!(names(none, "gone"), [none, "gone"]);
    }
}
