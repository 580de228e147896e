//! The sentence of a study that the answer fills.
//!
//! Between braces stands what was measured:
//!
//! | placeholder | becomes |
//! | --- | --- |
//! | `{ARM: METRIC}` | the value with its unit: `37.1 ms`, `13,500/s` |
//! | `{A / B: METRIC}` | the ratio with its interval: `×0.520 [0.510, 0.540]` |
//! | `{A ? B: METRIC}` | the verdict: `higher`, `no difference found (margin 1 %)` |
//!
//! Without `: METRIC` the primary metric is meant. Names of arms may hold any sign: a placeholder
//! is read by the names there are.

use crate::number;
use crate::record::{Comparison, Summary, Verdict};
use crate::study::pairs::pairs;
use crate::study::{Study, StudyError, suggestion};
use crate::units::echo;
use crate::verdict::consolidate;

/// Stands where there is no figure of an arm.
const ABSENT: &str = "not measured";
/// Stands where both arms have their figures, and no comparison of them.
const NOT_COMPARED: &str = "not compared";

/// What a placeholder asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Placeholder<'a> {
    Value(&'a str),
    Ratio(&'a str, &'a str),
    Verdict(&'a str, &'a str),
}

/// Checks every `{…}` of a study's answer: arms and metrics must be there, and what is put in
/// relation must be compared. `metrics` are those of the experiment, see
/// [`crate::study::metric_names`].
///
/// Where the study names no primary metric, any metric may be that of its comparisons.
pub fn check(study: &Study, metrics: &[&str]) -> Result<(), StudyError> {
    let Some(sentence) = &study.answer else { return Ok(()) };
    let arms = study.arms()?;
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let pairs = pairs(study, &arms, study.metric.as_deref().unwrap_or_default())?;
    for piece in pieces(sentence) {
        let Piece::Placeholder(text) = piece else { continue };
        let refuse = |problem: String| StudyError::text("answer", &format!("{{{text}}}"), problem);
        let Some((asked, metric)) = read(text, &names) else {
            return Err(refuse(no_arm(text, &names)));
        };
        if let Some(unknown) = metric.filter(|metric| !metrics.contains(metric)) {
            let problem =
                format!("there is no metric {}; {}", echo(unknown), suggestion(unknown, metrics));
            return Err(refuse(problem));
        }
        let metric = metric.or(study.metric.as_deref()).unwrap_or_default();
        let (Placeholder::Ratio(a, b) | Placeholder::Verdict(a, b)) = asked else { continue };
        let compared = |a: &str, b: &str| {
            pairs.iter().any(|pair| {
                let right = metric.is_empty() || pair.metric.is_empty() || pair.metric == metric;
                right && names[pair.a] == a && names[pair.b] == b
            })
        };
        if compared(b, a) && !compared(a, b) {
            let problem = "the arms are compared the other way round; swap the two names";
            return Err(refuse(problem.to_owned()));
        }
        if !compared(a, b) {
            return Err(refuse(format!(
                "these arms are not compared{}; add them to [[compare]]",
                if metric.is_empty() { String::new() } else { format!(" in {metric}") }
            )));
        }
    }
    Ok(())
}

fn no_arm(text: &str, names: &[&str]) -> String {
    let arms = metric_apart(text).map_or(text, |(arms, _)| arms);
    let unknown =
        arms.split(['/', '?']).map(str::trim).find(|name| !names.contains(name)).unwrap_or(arms);
    format!("there is no arm {}; {}", echo(unknown), suggestion(unknown, names))
}

/// Fills the sentence; what was not measured or not compared is said to be so.
/// `metric` is the primary one, which placeholders without a metric mean.
pub fn fill(sentence: &str, summary: &Summary, metric: &str) -> String {
    let names: Vec<&str> = summary.arms.iter().map(|arm| arm.name.as_str()).collect();
    let filled = pieces(sentence).map(|piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Placeholder(text) => {
            let Some((asked, own)) = read(text, &names) else { return ABSENT.to_owned() };
            let metric = own.unwrap_or(metric);
            one(asked, metric, summary).unwrap_or_else(|| absent(asked, metric, summary).to_owned())
        }
    });
    filled.collect()
}

/// Why a placeholder has no figure.
fn absent(asked: Placeholder<'_>, metric: &str, summary: &Summary) -> &'static str {
    let (Placeholder::Ratio(a, b) | Placeholder::Verdict(a, b)) = asked else { return ABSENT };
    let measured = |name: &str| {
        let arm = summary.arms.iter().find(|arm| arm.name == name)?;
        consolidate::value(arm, metric)
    };
    if measured(a).and(measured(b)).is_some() { NOT_COMPARED } else { ABSENT }
}

/// What one placeholder becomes; `None` if it was not measured, or not compared.
fn one(asked: Placeholder<'_>, metric: &str, summary: &Summary) -> Option<String> {
    let comparison = |a: &str, b: &str| {
        summary.comparisons.iter().find(|c| c.metric == metric && c.a == a && c.b == b)
    };
    match asked {
        Placeholder::Value(name) => {
            let arm = summary.arms.iter().find(|arm| arm.name == name)?;
            let unit = consolidate::unit(arm, metric)?;
            let value = consolidate::value(arm, metric)?;
            let sign = consolidate::sign(arm, metric, value);
            Some(format!("{sign}{}", with_unit(value, &unit)))
        }
        Placeholder::Ratio(a, b) => ratio(comparison(a, b)?),
        Placeholder::Verdict(a, b) => comparison(a, b).map(verdict),
    }
}

/// `×0.520 [0.510, 0.540]`, with as many digits as its interval deserves.
fn ratio(comparison: &Comparison) -> Option<String> {
    let ratio = comparison.ratio.filter(|ratio| ratio.is_finite())?;
    let Some([low, high]) = comparison.ci95 else {
        let few = if comparison.points.is_some() { "points" } else { "rounds" };
        return Some(format!("{} (too few {few} for an interval)", number::ratio(ratio)));
    };
    let [ratio, low, high] = number::ratio_within(ratio, [low, high]);
    Some(format!("×{ratio} [{low}, {high}]"))
}

fn verdict(comparison: &Comparison) -> String {
    match comparison.verdict {
        Verdict::NoDifference => {
            format!("{} (margin {})", comparison.verdict, number::percent(comparison.margin))
        }
        verdict => verdict.to_string(),
    }
}

/// CPU time of a second is a time: the sentence says so.
fn with_unit(value: f64, unit: &str) -> String {
    number::metric(value, if unit == "us/s" { "us" } else { unit })
}

/// A part of the sentence.
enum Piece<'a> {
    Text(&'a str),
    /// What stands between the braces.
    Placeholder(&'a str),
}

/// The parts in order. A brace without its partner is text.
fn pieces(sentence: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = sentence;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some((inner, after)) = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'))
        {
            rest = after;
            return Some(Piece::Placeholder(inner.trim()));
        }
        // Beyond the first sign: a brace that stands there has no partner.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let end = rest[first..].find('{').map_or(rest.len(), |at| at + first);
        let (text, after) = rest.split_at(end);
        rest = after;
        Some(Piece::Text(text))
    })
}

/// What a placeholder asks for, and the metric it names; `None` if no arms fit.
fn read<'a>(text: &'a str, names: &[&'a str]) -> Option<(Placeholder<'a>, Option<&'a str>)> {
    // A name may end in what looks like a metric, so the whole is tried first.
    if let Some(asked) = of_arms(text, names) {
        return Some((asked, None));
    }
    let (arms, metric) = metric_apart(text)?;
    of_arms(arms, names).map(|asked| (asked, Some(metric)))
}

/// `A / B: METRIC` is `A / B` and `METRIC`.
fn metric_apart(text: &str) -> Option<(&str, &str)> {
    let (arms, metric) = text.rsplit_once(':')?;
    let metric = metric.trim();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!metric.is_empty() && metric.chars().all(plain)).then_some((arms.trim(), metric))
}

fn of_arms<'a>(text: &'a str, names: &[&'a str]) -> Option<Placeholder<'a>> {
    if names.contains(&text) {
        return Some(Placeholder::Value(text));
    }
    text.match_indices(['/', '?']).find_map(|(at, sign)| {
        let (a, b) = (text[..at].trim(), text[at + 1..].trim());
        let known = names.contains(&a) && names.contains(&b);
        known.then_some(if sign == "/" {
            Placeholder::Ratio(a, b)
        } else {
            Placeholder::Verdict(a, b)
        })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const PRIMARY: &str = "connect_us_mean";
    use crate::record::{Arm, HistogramSummary, Metric};

    pub(crate) fn summary() -> Summary {
        let metric = |value, unit: &str| Metric {
            value,
            unit: unit.to_owned(),
            ci95: None,
            median: None,
            n: 1,
        };
        let arm = |name: &str, us, per_s| Arm {
            name: name.to_owned(),
            metrics: [
                ("connect_us_mean".to_owned(), metric(us, "us")),
                ("connections_per_s".to_owned(), metric(per_s, "1/s")),
            ]
            .into(),
            histograms: [(
                "connect_us".to_owned(),
                HistogramSummary { p99: Some(41_000.0), ..HistogramSummary::default() },
            )]
            .into(),
            ..Arm::default()
        };
        let compared = |metric: &str, ratio, ci95, verdict| Comparison {
            metric: metric.to_owned(),
            a: "backlog 16, link a/b".to_owned(),
            b: "backlog 4096, link a/b".to_owned(),
            ratio: Some(ratio),
            ci95,
            margin: 0.01,
            verdict,
            ..Comparison::default()
        };
        Summary {
            experiment: "connect".into(),
            primary_metric: Some("connect_us_mean".into()),
            arms: vec![
                arm("backlog 16, link a/b", 37_100.0, 13_500.0),
                arm("backlog 4096, link a/b", 48.1, 27.0),
            ],
            comparisons: vec![
                compared("connect_us_mean", 0.52, Some([0.51, 0.54]), Verdict::Lower),
                compared(
                    "connections_per_s",
                    1.0004,
                    Some([0.9982, 1.0021]),
                    Verdict::NoDifference,
                ),
            ],
            valid: true,
            ..Summary::default()
        }
    }

    #[test]
    fn a_sentence_is_filled_with_values_ratios_and_verdicts() {
        for (sentence, filled) in [
            ("It takes {backlog 16, link a/b: connect_us_mean}.", "It takes 37.1 ms."),
            ("{backlog 4096, link a/b} each", "48.1 µs each"),
            ("{ backlog 16, link a/b : connections_per_s }", "13,500/s"),
            ("{backlog 16, link a/b: connect_us_p99}", "41.0 ms"),
            ("{backlog 16, link a/b / backlog 4096, link a/b}", "×0.520 [0.510, 0.540]"),
            (
                "{backlog 16, link a/b / backlog 4096, link a/b: connections_per_s}",
                "×1.000 [0.998, 1.002]",
            ),
            ("{backlog 16, link a/b ? backlog 4096, link a/b}", "lower"),
            (
                "{backlog 16, link a/b ? backlog 4096, link a/b: connections_per_s}",
                "no difference found (margin 1 %)",
            ),
            ("no braces, é", "no braces, é"),
            ("a { stays {", "a { stays {"),
            ("", ""),
        ] {
            assert_eq!(fill(sentence, &summary(), PRIMARY), filled, "{sentence}");
        }
    }

    #[test]
    fn arms_that_were_measured_and_not_compared_are_said_to_be_so() {
        let mut summary = summary();
        let sentences = [
            "{backlog 16, link a/b / backlog 4096, link a/b}",
            "{backlog 16, link a/b / backlog 4096, link a/b: connections_per_s}",
        ];
        // No round in which both arms count: there is no ratio.
        summary.comparisons.iter_mut().for_each(|comparison| comparison.ratio = None);
        let said = sentences.map(|sentence| fill(sentence, &summary, PRIMARY));
        assert_eq!(said, ["not compared"; 2]);
        summary.comparisons.clear();
        let said = sentences.map(|sentence| fill(sentence, &summary, PRIMARY));
        assert_eq!(said, ["not compared"; 2]);
        let verdict = "{backlog 16, link a/b ? backlog 4096, link a/b}";
        assert_eq!(fill(verdict, &summary, PRIMARY), "not compared");
        // One of them has no figure.
        summary.arms[1].metrics.clear();
        assert_eq!(fill(verdict, &summary, PRIMARY), "not measured");
        assert_eq!(
            sentences.map(|sentence| fill(sentence, &summary, PRIMARY)),
            ["not measured"; 2]
        );
    }

    #[test]
    fn what_was_not_measured_is_said_to_be_so() {
        let mut summary = summary();
        summary.comparisons.clear();
        for sentence in [
            "{backlog 8}",
            "{backlog 16, link a/b: first_byte_us_mean}",
            "{backlog 16, link a/b: connect_us_p99_9}",
            "{backlog 16, link a/b / backlog 4096, link a/b: connect_us_p99_9}",
        ] {
            assert_eq!(fill(sentence, &summary, PRIMARY), "not measured", "{sentence}");
        }
    }

    #[test]
    fn a_ratio_far_below_one_keeps_two_digits() {
        for (value, interval, text) in [
            (0.0047, [0.0002, 0.419], "×0.0047 [0.0002, 0.4190]"),
            (0.0312, [0.03, 0.04], "×0.0312 [0.0300, 0.0400]"),
            (0.52, [0.513, 0.541], "×0.520 [0.513, 0.541]"),
            (0.0, [0.0, 0.1], "×0.000 [0.000, 0.100]"),
        ] {
            let one =
                Comparison { ratio: Some(value), ci95: Some(interval), ..Comparison::default() };
            assert_eq!(ratio(&one).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_placeholder_that_nothing_can_fill_is_refused_with_what_there_is() {
        let check = |answer: &str| {
            let study = Study::from_toml(&format!(
                "question = 'what?'\nexperiment = 'connect'\nmetric = 'rtt_us'\nanswer = '''{answer}'''\n\
                 [factors]\nbacklog = [16, 128, 4096]\n[[compare]]\nagainst = 'backlog 16'\n",
            ))
            .unwrap();
            super::check(&study, &["connect_us_mean", "rtt_us"])
        };
        check("{backlog 16} {backlog 128 / backlog 16} {backlog 4096 ? backlog 16: rtt_us} {")
            .unwrap();
        for (answer, says) in [
            (
                "{bcklog 16}",
                "answer \"{bcklog 16}\": there is no arm bcklog 16; did you mean backlog 16?",
            ),
            ("{backlog 16 / x}", "there is no arm x; available: backlog 16, backlog 128"),
            (
                "{backlog 16: rtt_us_p98}",
                "there is no metric rtt_us_p98; available: connect_us_mean, rtt_us",
            ),
            ("{backlog 16 / backlog 128}", "the other way round"),
            ("{backlog 4096 / backlog 128}", "not compared in rtt_us; add them to [[compare]]"),
            ("{backlog 128 ? backlog 16: connect_us_mean}", "not compared in connect_us_mean"),
        ] {
            let error = check(answer).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
