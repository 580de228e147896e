//! Limits the user states: `--fail-if 'p99 > 5ms'`.

use anyhow::{Context as _, bail};
use tcptoll_core::experiment::spec::{Better, Spec};
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Summary};
use tcptoll_core::stats::Figure;
use tcptoll_core::study::did_you_mean;
use tcptoll_core::units::{parse_count, parse_share, parse_size, parse_time};
use tcptoll_core::verdict::consolidate;

/// Counts that every experiment has, beside its metrics.
const COUNTS: [&str; 3] = ["attempts", "errors", "ok"];

/// A limit that, where it holds, fails the run.
#[derive(Debug)]
pub(crate) struct Limit {
    text: String,
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
pub(crate) struct Held {
    /// The arms that break it, as sentences.
    pub(crate) broken: Vec<String>,
    /// The figure nearest to the limit, as a sentence, where no arm breaks it.
    pub(crate) met: Option<String>,
    /// Arms without the figure, as a sentence: of these nothing is known.
    pub(crate) absent: Option<String>,
}

impl Limit {
    /// Reads `p99 > 5ms`, of the distribution that carries the answer; `p99(NAME) > 5ms`; and
    /// `METRIC < NUMBER`. Names are those of the experiment.
    pub(crate) fn parse(text: &str, spec: &Spec) -> anyhow::Result<Self> {
        let shape =
            || format!("--fail-if '{text}': write FIGURE > NUMBER, like {}", examples(spec));
        let (left, above, right) = if let Some((left, right)) = text.split_once('>') {
            (left.trim(), true, right.trim())
        } else if let Some((left, right)) = text.split_once('<') {
            (left.trim(), false, right.trim())
        } else {
            bail!(shape());
        };
        let (figure, names) = match left.split_once('(') {
            None => match of_word(left).filter(|_| !spec.answers.is_empty()) {
                Some(figure) => {
                    (Some(figure), spec.answers.iter().map(|name| (*name).to_owned()).collect())
                }
                None => {
                    (None, vec![metric(left, spec).with_context(|| unknown(text, left, spec))?])
                }
            },
            Some((word, rest)) => {
                let figure = of_word(word.trim()).with_context(shape)?;
                let name = rest.strip_suffix(')').with_context(shape)?.trim();
                let known = distribution(name, spec).with_context(|| {
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
            bail!("--fail-if '{text}': {right} has no unit; write e.g. {right}ms or {right}us");
        }
        let bound = bound(right, unit).with_context(|| {
            let unit = if unit == "us" { "a time like 5ms" } else { "a number" };
            format!("--fail-if '{text}': \"{right}\" is not a limit for {left}: write {unit}")
        })?;
        Ok(Self { text: text.to_owned(), figure, names, unit, above, bound })
    }

    /// The limit held against each arm.
    pub(crate) fn of_run(&self, summary: &Summary) -> Held {
        let mut held = Held::default();
        let mut absent = Vec::new();
        let mut nearest: Option<(&Arm, f64)> = None;
        for arm in &summary.arms {
            match self.value(arm) {
                Some(value) if self.is_broken(value) => held.broken.push(self.sentence(arm, value)),
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
            let (text, shown, name) = (&self.text, self.shown(value), &arm.name);
            held.met = Some(format!("--fail-if '{text}' is false: it is {most}{shown} ({name})"));
        }
        let all = absent.len() == summary.arms.len();
        held.absent = (all || !absent.is_empty()).then(|| {
            let why = if all {
                "no arm of this run has that figure".to_owned()
            } else {
                format!("that figure is missing in {}", absent.join(", "))
            };
            format!(
                "--fail-if '{}': {why}; it was not measured, or there were too few values{}",
                self.text,
                self.need()
            )
        });
        held
    }

    /// How many values a quantile takes: ten beyond it.
    fn need(&self) -> String {
        let name =
            self.figure.map(|figure| figure.ending.trim_start_matches('_').replace('_', "."));
        let share = name.as_deref().and_then(|name| name.strip_prefix('p')?.parse::<f64>().ok());
        match (name, share) {
            (Some(name), Some(share)) if share > 50.0 => {
                let values = number::count((1_000.0 / (100.0 - share)).round() as u64);
                format!(": {name} takes {values}, so run longer")
            }
            _ => String::new(),
        }
    }

    fn is_broken(&self, value: f64) -> bool {
        if self.above { value > self.bound } else { value < self.bound }
    }

    fn sentence(&self, arm: &Arm, value: f64) -> String {
        format!("--fail-if '{}' is true in {}: it is {}", self.text, arm.name, self.shown(value))
    }

    fn shown(&self, value: f64) -> String {
        match self.unit {
            // Not as the bound itself, if it is beside it.
            "us" if number::time(value) == number::time(self.bound) => number::exact_time(value),
            "us" => number::time(value),
            _ => number::fixed(value, 1),
        }
    }

    fn value(&self, arm: &Arm) -> Option<f64> {
        let Some(figure) = self.figure else {
            return match self.names[0].as_str() {
                "ok" => Some(arm.ok as f64),
                "attempts" => Some(arm.attempts as f64),
                "errors" => Some(arm.errors.values().sum::<u64>() as f64),
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
pub(crate) fn examples(spec: &Spec) -> String {
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

    fn parse(text: &str) -> anyhow::Result<Limit> {
        Limit::parse(text, tcptoll_measure::experiments::find("connect").unwrap())
    }

    #[test]
    fn a_limit_is_a_figure_and_a_bound_with_its_unit() {
        let limit = parse("p99( connect_us ) > 5e3").unwrap();
        assert_eq!((limit.figure.unwrap().ending, limit.bound), ("_p99", 5000.0));
        assert_eq!(limit.names, ["connect_us"]);
        for (text, ending) in [("p99.9(rtt_us) > 1", "_p99_9"), ("p99_9(rtt) > 1ms", "_p99_9")] {
            assert_eq!(parse(text).unwrap().figure.unwrap().ending, ending);
        }
        for (text, bound) in [
            ("p99 > 5ms", 5_000.0),
            ("mean(connect) > 0.25s", 250_000.0),
            ("connect_us_p99 > 37ms", 37_000.0),
            ("connections_per_s < 2k", 2_000.0),
            ("connections_per_s < 2.5", 2.5),
            ("errors > 0", 0.0),
        ] {
            assert!((parse(text).unwrap().bound - bound).abs() < 1e-9, "{text}");
        }
        assert_eq!(parse("p99 > 5ms").unwrap().names[0], "connect_us");
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
    fn anything_else_says_how_to_write_one() {
        for text in ["", "x", "p98(rtt_us) > 1", "p99(rtt_us > 1"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("write FIGURE > NUMBER, like 'p99 > 5ms'"), "{text}: {error}");
        }
        for (text, says) in [
            ("ok > b", "\"b\" is not a limit for ok: write a number"),
            ("ok > NaN", "is not a limit"),
            ("p99 > 5", "5 has no unit; write e.g. 5ms or 5us"),
            ("p99 > 5 parsecs", "write a time like 5ms"),
            ("connections_per_s < 5ms", "write a number"),
        ] {
            let error = parse(text).unwrap_err().to_string();
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
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        for text in ["connect_us_p99 > 1", "connections_per_s < 1", "errors > 0"] {
            parse(text).unwrap();
        }
    }
}
