//! Limits the user states: `--fail-if 'p99(connect_us) > 5000'`.

use anyhow::{Context as _, bail};
use tcptoll_model::consolidate;
use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::record::{Arm, Summary};
use tcptoll_model::stats::Figure;

/// Counts that every experiment has, beside its metrics.
const COUNTS: [&str; 3] = ["attempts", "errors", "ok"];

/// A limit that, where it holds, fails the run.
#[derive(Debug)]
pub(crate) struct Limit {
    text: String,
    /// The figure of a distribution; absent: `name` is a metric.
    figure: Option<&'static Figure>,
    name: String,
    above: bool,
    bound: f64,
}

impl Limit {
    /// Reads `NAME > NUMBER` or `p99(NAME) > NUMBER`, with `<` too; names are those of the
    /// experiment.
    pub(crate) fn parse(text: &str, spec: &Spec) -> anyhow::Result<Self> {
        let shape = || {
            format!(
                "--fail-if '{text}': write METRIC > NUMBER or p99(HISTOGRAM) > NUMBER, like 'p99(connect_us) > 5000'"
            )
        };
        let (left, above, right) = if let Some((left, right)) = text.split_once('>') {
            (left.trim(), true, right)
        } else if let Some((left, right)) = text.split_once('<') {
            (left.trim(), false, right)
        } else {
            bail!(shape());
        };
        let bound: f64 =
            right.trim().parse().ok().filter(|n: &f64| n.is_finite()).with_context(shape)?;
        let (figure, name) = match left.split_once('(') {
            None => (None, left),
            Some((word, rest)) => {
                // `p99.9` is written `p99_9` in names.
                let ending = format!("_{}", word.trim().replace('.', "_"));
                let figure = Figure::of_ending(&ending).with_context(shape)?;
                (Some(figure), rest.strip_suffix(')').with_context(shape)?.trim())
            }
        };
        let (known, shown) = if figure.is_some() {
            let names = spec.distributions();
            (names.contains(&name), names.clone())
        } else {
            let metrics = spec.single_metrics();
            let figures = spec.metric_names();
            let shown: Vec<&str> = metrics.iter().copied().chain(COUNTS).collect();
            (shown.contains(&name) || figures.iter().any(|figure| figure == name), shown)
        };
        if !known {
            bail!("--fail-if '{text}': {name} is not one of {}", shown.join(", "));
        }
        Ok(Self { text: text.to_owned(), figure, name: name.to_owned(), above, bound })
    }

    /// The arms that break the limit, as sentences.
    ///
    /// Errors: if no arm has the figure; a limit nobody can break is a mistake.
    pub(crate) fn broken(&self, summary: &Summary) -> anyhow::Result<Vec<String>> {
        let values: Vec<(&Arm, f64)> =
            summary.arms.iter().filter_map(|arm| Some((arm, self.value(arm)?))).collect();
        if values.is_empty() {
            bail!("--fail-if '{}': no arm of this run has that figure", self.text);
        }
        Ok(values
            .into_iter()
            .filter(|(_, value)| if self.above { *value > self.bound } else { *value < self.bound })
            .map(|(arm, value)| {
                format!("limit broken: {} in {}: it is {value:.1}", self.text, arm.name)
            })
            .collect())
    }

    fn value(&self, arm: &Arm) -> Option<f64> {
        let Some(figure) = self.figure else {
            return match self.name.as_str() {
                "ok" => Some(arm.ok as f64),
                "attempts" => Some(arm.attempts as f64),
                "errors" => Some(arm.errors.values().sum::<u64>() as f64),
                name => consolidate::value(arm, name),
            };
        };
        arm.histograms.get(&self.name).and_then(figure.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Limit> {
        Limit::parse(text, tcptoll_model::experiments::find("connect").unwrap())
    }

    #[test]
    fn a_limit_is_a_figure_and_a_bound() {
        let limit = parse("p99( connect_us ) > 5e3").unwrap();
        assert_eq!((limit.figure.unwrap().ending, limit.bound), ("_p99", 5000.0));
        assert_eq!(limit.name, "connect_us");
        for (text, ending) in [("p99.9(rtt_us) > 1", "_p99_9"), ("p99_9(rtt_us) > 1", "_p99_9")] {
            assert_eq!(parse(text).unwrap().figure.unwrap().ending, ending);
        }
    }

    #[test]
    fn anything_else_says_how_to_write_one() {
        for text in ["", "x", "p98(rtt_us) > 1", "ok > b", "p99(rtt_us > 1", "ok > NaN"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("write METRIC"), "{text}: {error}");
        }
    }

    #[test]
    fn a_figure_that_no_run_has_is_known_before_the_run() {
        for text in ["p99(latency) > 1", "latency > 1", "connect_us > 1", "connect_us_p98 > 1"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("is not one of") && error.contains("connect"), "{error}");
        }
        for text in ["connect_us_p99 > 1", "connections_per_s < 1", "errors > 0"] {
            parse(text).unwrap();
        }
    }
}
