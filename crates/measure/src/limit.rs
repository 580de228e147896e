//! Limits the user states: `--fail-if 'p99 > 5ms'`, `--fail-if 'requests_per_s lower'`.
//!
//! Pure: what is read is a text, what is judged a summary. [`broken`] judges the limits of the command that
//! a summary holds, so that a report says of an old run what its exit status said.

use tcptoll_core::experiment::spec::{Better, Spec, Specs};
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Comparison, Summary, Verdict};
use tcptoll_core::stats::Figure;
use tcptoll_core::study::did_you_mean;
use tcptoll_core::study::pairs::Pair;
use tcptoll_core::units::{parse_count, parse_share, parse_size, parse_time, plural};
use tcptoll_core::verdict::consolidate;

use crate::kit::conclusion::failed;

/// Counts that every experiment has, beside its metrics.
const COUNTS: [&str; 3] = ["attempts", "errors", "ok"];

/// The words of verdicts, as a limit has them; the last words may be left out.
const VERDICTS: [(&str, Verdict); 6] = [
    ("higher", Verdict::Higher),
    ("lower", Verdict::Lower),
    ("no difference", Verdict::NoDifference),
    ("no difference found", Verdict::NoDifference),
    ("not enough", Verdict::NotEnough),
    ("not enough evidence", Verdict::NotEnough),
];

/// A limit that, where it holds, fails the run.
#[derive(Debug)]
pub struct Limit {
    text: String,
    asks: Asks,
}

/// What a limit looks at.
#[derive(Debug)]
enum Asks {
    /// A figure of each arm.
    Figure(FigureLimit),
    /// The verdict of each comparison of a metric.
    Verdict { metric: String, verdict: Verdict },
}

/// A bound of a figure.
#[derive(Debug)]
struct FigureLimit {
    /// The figure of a distribution; absent: the name is a metric.
    figure: Option<&'static Figure>,
    /// A metric, or distributions of which the first counts that an arm has.
    names: Vec<String>,
    /// The unit of the figure, as records have it.
    unit: &'static str,
    above: bool,
    bound: f64,
}

/// What came of a limit.
#[derive(Debug, Default)]
pub struct Held {
    /// What breaks it, a sentence for each arm or comparison: `failed: p99 > 1ms, it is 4.78 ms`.
    pub broken: Vec<String>,
    /// The figure nearest to the limit, as a sentence, where nothing breaks it.
    pub met: Option<String>,
    /// Arms without the figure, as a sentence: of these nothing is known.
    pub absent: Option<String>,
}

/// What of a run breaks the limits that its command states, a sentence each. Empty: nothing does, or no limit
/// was stated.
pub fn broken(summary: &Summary, specs: Specs) -> Vec<String> {
    let Some(spec) = specs.find(&summary.experiment) else { return Vec::new() };
    let texts = stated(&summary.command);
    // A limit that this version cannot read was refused before a run, or is of another version.
    let limits = texts.iter().filter_map(|text| Limit::parse(text, spec).ok());
    limits.flat_map(|limit| limit.of_run(summary).broken).collect()
}

/// The limits of a command as it was typed.
pub fn stated(command: &[String]) -> Vec<String> {
    const OPTION: &str = "--fail-if";
    let next = command.iter().skip(1).map(Some).chain([None]);
    let given = |(word, next): (&String, Option<&String>)| match word.strip_prefix(OPTION)? {
        "" => next.cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    };
    command.iter().zip(next).filter_map(given).collect()
}

impl Limit {
    /// Reads `p99 > 5ms`, of the distribution that carries the answer; `p99(NAME) > 5ms`; `METRIC < NUMBER`;
    /// and `METRIC lower`, of verdicts. Names are those of the experiment.
    ///
    /// Errors: why it cannot be a limit, with what to write.
    pub fn parse(text: &str, spec: &Spec) -> Result<Self, String> {
        let asks = match of_verdict(text, spec) {
            Some(asks) => asks?,
            None => Asks::Figure(FigureLimit::parse(text, spec)?),
        };
        Ok(Self { text: text.to_owned(), asks })
    }

    /// Whether a run that compares these pairs can break it; `operations` are those of an arm, at most, and the
    /// option that says how many a trial has, where it has a number.
    ///
    /// Errors: it has no such comparison, or too few operations for the figure.
    pub fn check(
        &self,
        pairs: &[Pair],
        operations: Option<(u64, &str)>,
        spec: &Spec,
    ) -> Result<(), String> {
        let text = &self.text;
        let metric = match &self.asks {
            Asks::Verdict { metric, .. } => metric,
            Asks::Figure(limit) => return limit.check(text, operations, spec),
        };
        if pairs.iter().any(|pair| pair.metric == *metric) {
            return Ok(());
        }
        Err(match pairs.first() {
            None => format!(
                "--fail-if '{text}': this run compares nothing, so it has no verdict; give an option several \
                 values, or write a limit like '{metric} > 300'"
            ),
            Some(pair) => format!(
                "--fail-if '{text}': this run compares {other}; write '{other} {verdict}'",
                other = pair.metric,
                verdict = text.trim().trim_start_matches(metric.as_str()).trim()
            ),
        })
    }

    /// The limit held against each arm, or each comparison.
    pub fn of_run(&self, summary: &Summary) -> Held {
        match &self.asks {
            Asks::Figure(limit) => limit.of_arms(&self.text, summary),
            Asks::Verdict { metric, verdict } => self.of_comparisons(metric, *verdict, summary),
        }
    }

    fn of_comparisons(&self, metric: &str, verdict: Verdict, summary: &Summary) -> Held {
        let text = &self.text;
        let all = summary.comparisons.iter().filter(|comparison| comparison.metric == metric);
        let all: Vec<&Comparison> = all.collect();
        let said = |comparison: &Comparison| {
            let times = |ratio| number::times(ratio, comparison.ci95).concat();
            let ratio =
                comparison.ratio.map_or_else(String::new, |ratio| format!(" is {}", times(ratio)));
            format!("{} relative to {}{ratio}", comparison.a, comparison.b)
        };
        let broken: Vec<String> = all
            .iter()
            .filter(|comparison| comparison.verdict == verdict)
            .map(|comparison| format!("failed: {text}, {}", said(comparison)))
            .collect();
        let open = all.iter().filter(|comparison| comparison.verdict == Verdict::NotEnough).count();
        let is_decided = open == 0 || verdict == Verdict::NotEnough;
        let met = (broken.is_empty() && !all.is_empty()).then(|| {
            let all = plural(all.len() as u64, "comparison");
            if is_decided {
                format!("--fail-if '{text}' is false in {all}")
            } else {
                format!(
                    "--fail-if '{text}' is not known to be true: {open} of {all} had not enough evidence"
                )
            }
        });
        let absent =
            all.is_empty().then(|| format!("--fail-if '{text}': nothing was compared in {metric}"));
        Held { broken, met, absent }
    }
}

/// `METRIC lower`; `None`: it is no limit of a verdict.
fn of_verdict(text: &str, spec: &Spec) -> Option<Result<Asks, String>> {
    let text = text.trim();
    let read = |(words, verdict): &(&str, Verdict)| {
        let before = text.strip_suffix(words)?;
        let name = before.trim_end();
        (name.len() < before.len()).then_some((name, *verdict))
    };
    let (name, verdict) = VERDICTS.iter().find_map(read)?;
    let known = metric(name, spec).filter(|name| !COUNTS.contains(&name.as_str()));
    let asks = known.map(|metric| Asks::Verdict { metric, verdict });
    Some(asks.ok_or_else(|| unknown(text, name, spec)))
}

impl FigureLimit {
    fn parse(text: &str, spec: &Spec) -> Result<Self, String> {
        let shape =
            || format!("--fail-if '{text}': write FIGURE > NUMBER, like {}", examples(spec));
        let (left, above, right) = if let Some((left, right)) = text.split_once('>') {
            (left.trim(), true, right.trim())
        } else if let Some((left, right)) = text.split_once('<') {
            (left.trim(), false, right.trim())
        } else {
            return Err(shape());
        };
        let (figure, names) = match left.split_once('(') {
            None => match of_word(left).filter(|_| !spec.answers.is_empty()) {
                Some(figure) => {
                    (Some(figure), spec.answers.iter().map(|name| (*name).to_owned()).collect())
                }
                None => (None, vec![metric(left, spec).ok_or_else(|| unknown(text, left, spec))?]),
            },
            Some((word, rest)) => {
                let figure = of_word(word.trim()).ok_or_else(shape)?;
                let name = rest.strip_suffix(')').ok_or_else(shape)?.trim();
                let known = distribution(name, spec).ok_or_else(|| {
                    let others = spec.distributions();
                    let instead = did_you_mean(name, &others)
                        .unwrap_or_else(|| format!("this experiment has {}", others.join(", ")));
                    format!("--fail-if '{text}': there is no distribution {name}; {instead}")
                })?;
                (Some(figure), vec![known])
            }
        };
        let unit = unit(&names[0], spec);
        // A name with its unit is a number of it; of any other, nobody thinks of microseconds.
        if unit == "us"
            && !left.contains("_us")
            && right.parse().is_ok_and(|bound: f64| bound != 0.0 && bound.is_finite())
        {
            return Err(format!(
                "--fail-if '{text}': {right} has no unit; write e.g. {right}ms or {right}us"
            ));
        }
        let bound = bound(right, unit).ok_or_else(|| {
            let unit = if unit == "us" { "a time like 5ms" } else { "a number" };
            format!("--fail-if '{text}': \"{right}\" is not a limit for {left}: write {unit}")
        })?;
        Ok(Self { figure, names, unit, above, bound })
    }

    /// The limit held against each arm.
    fn of_arms(&self, text: &str, summary: &Summary) -> Held {
        let mut held = Held::default();
        let mut absent = Vec::new();
        let mut nearest: Option<(&Arm, f64)> = None;
        for arm in &summary.arms {
            match self.value(arm) {
                Some(value) if self.is_broken(value) => {
                    let arm = if summary.arms.len() > 1 {
                        format!(" in {}", arm.name)
                    } else {
                        String::new()
                    };
                    held.broken.push(format!("failed: {text}, it is {}{arm}", self.shown(value)));
                }
                Some(value) => {
                    let nearer = |(_, other): &(&Arm, f64)| (value > *other) == self.above;
                    if nearest.as_ref().is_none_or(nearer) {
                        nearest = Some((arm, value));
                    }
                }
                None => absent.push(arm.name.as_str()),
            }
        }
        if let Some((arm, value)) = nearest.filter(|_| held.broken.is_empty() && absent.is_empty())
        {
            let most = match (summary.arms.len(), self.above) {
                (1, _) => "",
                (_, true) => "at most ",
                (_, false) => "at least ",
            };
            let (shown, name) = (self.shown(value), &arm.name);
            held.met = Some(format!("--fail-if '{text}' is false: it is {most}{shown} ({name})"));
        }
        let all = absent.len() == summary.arms.len();
        held.absent = (all || !absent.is_empty()).then(|| {
            let why = if all {
                "no arm of this run has that figure".to_owned()
            } else {
                format!("that figure is missing in {}", absent.join(", "))
            };
            let need = self.need().map_or_else(String::new, |(name, values)| {
                format!(": {name} takes {}, so run longer", number::count(values))
            });
            format!(
                "--fail-if '{text}': {why}; it was not measured, or there were too few values{need}"
            )
        });
        held
    }

    /// A quantile, and how many values it takes: ten beyond it. `None`: any number will do.
    fn need(&self) -> Option<(String, u64)> {
        let name = self.figure?.ending.trim_start_matches('_').replace('_', ".");
        let share: f64 = name.strip_prefix('p')?.parse().ok().filter(|share| *share > 50.0)?;
        Some((name, (1_000.0 / (100.0 - share)).round() as u64))
    }

    /// Refuses a quantile that a run of so few operations does not have.
    fn check(
        &self,
        text: &str,
        operations: Option<(u64, &str)>,
        spec: &Spec,
    ) -> Result<(), String> {
        match (self.need(), operations) {
            (Some((name, values)), Some((most, option))) if values > most => Err(format!(
                "--fail-if '{text}': {name} takes {} {}, and this run has at most {}: write --{option} {values}",
                number::count(values),
                spec.operation.many,
                number::count(most),
            )),
            _ => Ok(()),
        }
    }

    fn is_broken(&self, value: f64) -> bool {
        if self.above { value > self.bound } else { value < self.bound }
    }

    fn shown(&self, value: f64) -> String {
        match self.unit {
            // Not as the bound itself, if it is beside it.
            "us" if number::time(value) == number::time(self.bound) => number::exact_time(value),
            "us" => number::time(value),
            "share" => number::percent(value),
            _ if value.fract() == 0.0 => number::fixed(value, 0),
            // Not on the other side of the bound.
            _ => {
                let digits = (1..6).find(|digits| {
                    let power = 10_f64.powi(*digits);
                    self.is_broken((value * power).round() / power) == self.is_broken(value)
                });
                number::fixed(value, digits.unwrap_or(6) as usize)
            }
        }
    }

    fn value(&self, arm: &Arm) -> Option<f64> {
        let Some(figure) = self.figure else {
            // Of an arm that was not measured nothing is known.
            let is_count = COUNTS.contains(&self.names[0].as_str());
            if is_count && (arm.attempts == 0 || arm.failure.is_some()) {
                return None;
            }
            return match self.names[0].as_str() {
                "ok" => Some(arm.ok as f64),
                "attempts" => Some(arm.attempts as f64),
                "errors" => Some(failed(arm) as f64),
                name => consolidate::value(arm, name),
            };
        };
        let histogram = self.names.iter().find_map(|name| arm.histograms.get(name))?;
        (figure.value)(histogram)
    }
}

/// `p99`, `p99.9`, `mean`.
fn of_word(word: &str) -> Option<&'static Figure> {
    // `p99.9` is written `p99_9` in names.
    Figure::of_ending(&format!("_{}", word.replace('.', "_")))
}

/// A metric, a figure of a distribution, or a count of this name.
fn metric(name: &str, spec: &Spec) -> Option<String> {
    let is_count = COUNTS.contains(&name);
    (is_count || spec.metric_names().iter().any(|known| known == name)).then(|| name.to_owned())
}

/// A distribution of this name, which may lack its unit.
fn distribution(name: &str, spec: &Spec) -> Option<String> {
    let is = |known: &&str| *known == name || known.strip_suffix("_us") == Some(name);
    spec.distributions().into_iter().find(is).map(str::to_owned)
}

/// The unit of a metric or distribution, as records have it.
fn unit(name: &str, spec: &Spec) -> &'static str {
    if let Some(metric) = spec.metrics.iter().find(|metric| metric.name == name) {
        return metric.unit;
    }
    // A distribution ends in its unit, one of its figures has it before the figure.
    let has_it = |histogram: &str| name.starts_with(histogram) && histogram.ends_with("_us");
    if spec.distributions().into_iter().any(has_it) { "us" } else { "" }
}

/// A limit in a unit: `5ms` is 5,000 µs.
fn bound(text: &str, unit: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    match unit {
        "us" => parse_time(text).ok().map(|time| time.as_nanos() as f64 / 1e3),
        "bytes" => parse_size(text).ok().map(|bytes| bytes as f64),
        "share" => parse_share(text).ok(),
        _ => parse_count(text).ok().map(|count| count as f64),
    }
}

/// `'p99 > 5ms' or 'requests_per_s < 300'`: limits that this experiment has.
pub fn examples(spec: &Spec) -> String {
    let primary = spec.metrics.iter().find(|metric| metric.name == spec.primary);
    let sign =
        if primary.is_some_and(|metric| metric.better == Better::Higher) { '<' } else { '>' };
    let of_primary = format!("'{} {sign} 300'", spec.primary);
    if spec.answers.is_empty() { of_primary } else { format!("'p99 > 5ms' or {of_primary}") }
}

/// What to say of a name that no figure has.
fn unknown(text: &str, name: &str, spec: &Spec) -> String {
    let metrics = spec.single_metrics();
    let names: Vec<&str> = metrics.into_iter().chain(COUNTS).collect();
    let distributions = spec.distributions();
    let is_quantile = name.strip_prefix('p').is_some_and(|share| share.parse::<f64>().is_ok());
    if is_quantile && of_word(name).is_some() && !distributions.is_empty() {
        return format!("--fail-if '{text}': {name} of what? Write {name}({})", distributions[0]);
    }
    if is_quantile && !distributions.is_empty() {
        return format!(
            "--fail-if '{text}': {name} is not computed; write p50, p90, p99, p99.9, mean, min or max"
        );
    }
    let instead = match (did_you_mean(name, &names), distributions.is_empty()) {
        (Some(meant), _) => meant,
        (None, true) => format!("this experiment has {}", names.join(", ")),
        (None, false) => format!(
            "this experiment has {}; and p50, p90, p99, p99.9, mean, min and max of {}, like p99({})",
            names.join(", "),
            distributions.join(", "),
            distributions[0]
        ),
    };
    format!("--fail-if '{text}': there is no figure {name}; {instead}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::SPECS;
    use tcptoll_core::study::Settings;

    fn parse(text: &str) -> Result<Limit, String> {
        Limit::parse(text, SPECS.find("connect").unwrap())
    }

    fn figure(text: &str) -> FigureLimit {
        FigureLimit::parse(text, SPECS.find("connect").unwrap()).unwrap()
    }

    #[test]
    fn a_limit_is_a_figure_and_a_bound_with_its_unit() {
        let limit = figure("p99( connect_us ) > 5e3");
        assert_eq!((limit.figure.unwrap().ending, limit.bound), ("_p99", 5000.0));
        assert_eq!(limit.names, ["connect_us"]);
        for (text, ending) in [("p99.9(rtt_us) > 1", "_p99_9"), ("p99_9(rtt) > 1ms", "_p99_9")] {
            assert_eq!(figure(text).figure.unwrap().ending, ending);
        }
        for (text, bound) in [
            ("p99 > 5ms", 5_000.0),
            ("mean(connect) > 0.25s", 250_000.0),
            ("connect_us_p99 > 37ms", 37_000.0),
            ("connections_per_s < 2k", 2_000.0),
            ("connections_per_s < 2.5", 2.5),
            ("errors > 0", 0.0),
        ] {
            assert!((figure(text).bound - bound).abs() < 1e-9, "{text}");
        }
        assert_eq!(figure("p99 > 5ms").names[0], "connect_us");
    }

    #[test]
    fn an_arm_without_the_figure_is_named_and_does_not_pass() {
        use tcptoll_core::stats::HistogramSummary;
        let arm = |name: &str, p99| {
            let histogram = HistogramSummary { p99, ..HistogramSummary::default() };
            let histograms = [("connect_us".to_owned(), histogram)].into();
            Arm { name: name.to_owned(), histograms, ..Arm::default() }
        };
        let judged = |arms| {
            let held = parse("p99 > 5ms").unwrap().of_run(&Summary { arms, ..Summary::default() });
            assert_eq!(held.met.is_some(), held.broken.is_empty() && held.absent.is_none());
            (held.broken, held.absent)
        };
        let absent = |why: &str| {
            Some(format!(
                "--fail-if 'p99 > 5ms': {why}; it was not measured, or there were too few values: p99 takes \
                 1,000, so run longer"
            ))
        };
        assert_eq!(judged(vec![arm("a", Some(4_000.0))]), (Vec::new(), None));
        let one = judged(vec![arm("a", Some(4_000.0)), arm("b", None)]);
        assert_eq!(one, (Vec::new(), absent("that figure is missing in b")));
        let both = judged(vec![arm("a", Some(6_000.0)), arm("b", None)]);
        assert_eq!((both.0.len(), both.1.is_some()), (1, true));
        let none = absent("no arm of this run has that figure");
        assert_eq!(judged(vec![arm("b", None)]), (Vec::new(), none.clone()));
        assert_eq!(judged(Vec::new()), (Vec::new(), none));
    }

    #[test]
    fn a_quantile_that_the_run_cannot_have_is_refused_before_it() {
        let spec = SPECS.find("connect").unwrap();
        let check = |text: &str, most| parse(text).unwrap().check(&[], Some((most, "count")), spec);
        let says = "--fail-if 'p99 > 5ms': p99 takes 1,000 connections, and this run has at most 100: write --count 1000";
        assert_eq!(check("p99 > 5ms", 100).unwrap_err(), says);
        check("p99 > 5ms", 1_000).unwrap();
        check("p90 > 5ms", 100).unwrap();
        check("p50 > 5ms", 1).unwrap();
        check("max > 5ms", 1).unwrap();
        check("errors > 0", 1).unwrap();
    }

    #[test]
    fn anything_else_says_how_to_write_one() {
        for text in ["", "x", "p98(rtt_us) > 1", "p99(rtt_us > 1"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("write FIGURE > NUMBER, like 'p99 > 5ms'"), "{text}: {error}");
        }
        for (text, says) in [
            ("ok > b", "\"b\" is not a limit for ok: write a number"),
            ("ok > NaN", "is not a limit"),
            ("p99 > 5", "5 has no unit; write e.g. 5ms or 5us"),
            ("p99 > 5 parsecs", "write a time like 5ms"),
            ("connections_per_s < 5ms", "write a number"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_figure_that_no_run_has_is_known_before_the_run() {
        for (text, says) in [
            (
                "p99(latency) > 1",
                "there is no distribution latency; this experiment has connect_of",
            ),
            ("latency > 1", "there is no figure latency; this experiment has "),
            ("connect_us > 1", "there is no figure connect_us; "),
            ("conections_per_s > 1", "did you mean connections_per_s?"),
            (
                "p99.99 > 1ms",
                "p99.99 is not computed; write p50, p90, p99, p99.9, mean, min or max",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        for text in ["connect_us_p99 > 1", "connections_per_s < 1", "errors > 0"] {
            parse(text).unwrap();
        }
    }

    fn compared(metric: &str, verdict: Verdict) -> Comparison {
        let (a, b, ratio) = ("B".to_owned(), "A".to_owned(), Some(0.523));
        let ci95 = Some([0.5, 0.55]);
        Comparison {
            metric: metric.to_owned(),
            a,
            b,
            ratio,
            ci95,
            verdict,
            ..Comparison::default()
        }
    }

    #[test]
    fn a_limit_may_be_the_verdict_of_a_comparison() {
        let run = |verdict| Summary {
            comparisons: vec![
                compared("connections_per_s", verdict),
                compared("rtt_us_mean", Verdict::Lower),
            ],
            ..Summary::default()
        };
        for (words, verdict) in VERDICTS {
            let limit = parse(&format!("connections_per_s  {words}")).unwrap();
            let held = limit.of_run(&run(verdict));
            assert_eq!(
                held.broken,
                [format!(
                    "failed: connections_per_s  {words}, B relative to A is 0.523× (95 % CI 0.500–0.550)"
                )]
            );
            assert!(held.met.is_none() && held.absent.is_none());
        }
        let held = parse("connections_per_s lower").unwrap().of_run(&run(Verdict::NotEnough));
        assert!(held.broken.is_empty() && held.absent.is_none());
        let held = parse("connections_per_s lower").unwrap().of_run(&run(Verdict::NoDifference));
        let met = "--fail-if 'connections_per_s lower' is false in 1 comparison";
        assert_eq!(held.met.as_deref(), Some(met));
        let held = parse("connect_us_p99 lower").unwrap().of_run(&run(Verdict::Lower));
        assert!(held.absent.is_some(), "nothing is known of what was not compared");
        assert!(parse("conections_per_s lower").unwrap_err().contains("did you mean"));
        assert!(parse("errors lower").unwrap_err().contains("there is no figure errors"));
    }

    #[test]
    fn a_verdict_that_no_run_can_have_is_refused_before_the_run() {
        let check = |limit: &Limit, pairs: &[Pair]| {
            limit.check(pairs, None, SPECS.find("connect").unwrap())
        };
        let limit = parse("connections_per_s lower").unwrap();
        assert!(check(&limit, &[]).unwrap_err().contains("compares nothing"));
        let pair =
            |metric: &str| Pair { metric: metric.to_owned(), a: 1, b: 0, per: Settings::default() };
        let other = check(&limit, &[pair("connect_us_mean")]).unwrap_err();
        assert!(other.ends_with("write 'connect_us_mean lower'"), "{other}");
        check(&limit, &[pair("connect_us_mean"), pair("connections_per_s")]).unwrap();
        check(&parse("p99 > 5ms").unwrap(), &[]).unwrap();
    }

    #[test]
    fn the_limits_of_a_command_are_judged_from_the_summary_alone() {
        let words = |line: &str| -> Vec<String> { line.split('|').map(str::to_owned).collect() };
        let line = "tcptoll|connect|--fail-if|errors > 0|--count|9|--fail-if=ok < 8|--fail-if";
        assert_eq!(stated(&words(line)), ["errors > 0", "ok < 8"]);
        assert!(stated(&words("tcptoll|http|--fail-ifs|x")).is_empty());
        let arm = |name: &str, ok| Arm { name: name.to_owned(), ok, attempts: 9, ..Arm::default() };
        let mut summary = Summary {
            experiment: "connect".to_owned(),
            command: words(line),
            arms: vec![arm("a", 7)],
            ..Summary::default()
        };
        assert_eq!(broken(&summary, SPECS), ["failed: ok < 8, it is 7"]);
        summary.arms.push(arm("b", 8));
        assert_eq!(broken(&summary, SPECS), ["failed: ok < 8, it is 7 in a"]);
        summary.arms.remove(0);
        assert!(broken(&summary, SPECS).is_empty());
    }

    #[test]
    fn of_an_arm_that_was_not_measured_no_count_is_known_and_what_a_signal_stopped_has_not_failed()
    {
        let none = Arm { name: "down".into(), failure: Some("refused".into()), ..Arm::default() };
        let errors = [("interrupted".to_owned(), 2)].into();
        let stopped = Arm { name: "up".into(), attempts: 9, ok: 7, errors, ..Arm::default() };
        let limit = parse("errors > 0").unwrap();
        let held =
            limit.of_run(&Summary { arms: vec![none, stopped.clone()], ..Summary::default() });
        assert!(held.broken.is_empty() && held.met.is_none(), "{held:?}");
        assert!(held.absent.unwrap().contains("missing in down"));
        let held = limit.of_run(&Summary { arms: vec![stopped], ..Summary::default() });
        assert!(held.met.unwrap().contains("is false"));
    }

    #[test]
    fn without_evidence_a_verdict_is_not_known_to_be_false() {
        let metric = "connections_per_s".to_owned();
        let open = Comparison { metric, verdict: Verdict::NotEnough, ..Comparison::default() };
        let summary = Summary { comparisons: vec![open], ..Summary::default() };
        let met = |text: &str| parse(text).unwrap().of_run(&summary).met;
        let said = met("connections_per_s lower").unwrap();
        assert!(said.contains("is not known to be true: 1 of 1 comparison"), "{said}");
    }

    #[test]
    fn a_figure_is_not_shown_on_the_other_side_of_its_bound() {
        let arm = |value| {
            let metric = tcptoll_core::record::Metric {
                value,
                unit: "1/s".to_owned(),
                ci95: None,
                median: None,
                n: 1,
            };
            let metrics = [("connections_per_s".to_owned(), metric)].into();
            Arm { name: "a".into(), attempts: 9, ok: 9, metrics, ..Arm::default() }
        };
        let limit = parse("connections_per_s > 42.86").unwrap();
        let held = limit.of_run(&Summary { arms: vec![arm(42.8571)], ..Summary::default() });
        assert!(held.met.unwrap().contains("it is 42.86 "), "as 42.9 it would be above");
    }
}
