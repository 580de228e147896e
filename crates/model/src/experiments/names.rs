//! What metrics and distributions are called, and their units: as described, or else as their names
//! say.

use super::spec::{Better, HistogramSpec, MetricSpec};
use super::{ALL, find};

/// The description of a metric: its words are the same in every experiment that has it, its unit may
/// differ.
pub fn metric(name: &str) -> Option<&'static MetricSpec> {
    ALL.iter().flat_map(|spec| spec.metrics).copied().find(|metric| metric.name == name)
}

/// The description of a distribution; the same in every experiment that has it.
pub fn histogram(name: &str) -> Option<&'static HistogramSpec> {
    ALL.iter().flat_map(|spec| spec.histograms).copied().find(|histogram| histogram.name == name)
}

/// The direction in which a metric gets better; of a quantile that of its distribution.
pub fn better(name: &str) -> Better {
    if let Some(metric) = metric(name) {
        return metric.better;
    }
    let is_its_figure = |spec: &&HistogramSpec| {
        name.strip_prefix(spec.name).is_some_and(|figure| figure.starts_with('_'))
    };
    let mut histograms = ALL.iter().flat_map(|spec| spec.histograms).copied();
    histograms.find(is_its_figure).map_or(Better::Neither, |histogram| histogram.better)
}

/// A metric in words: `mean connect latency`, `connections per second`.
pub fn words_of_metric(name: &str) -> String {
    metric(name).map_or_else(|| words(name), |metric| metric.words.to_owned())
}

/// What a distribution holds, in words: `connect latency`.
pub fn words_of_histogram(name: &str) -> String {
    histogram(name).map_or_else(|| words(name), |histogram| histogram.words.to_owned())
}

/// The unit of a metric in an experiment; empty where neither a description nor its name has one.
pub fn unit_of_metric(experiment: &str, name: &str) -> &'static str {
    let own = find(experiment).and_then(|spec| spec.metrics.iter().find(|m| m.name == name));
    own.copied().or_else(|| metric(name)).map_or_else(|| unit(name), |metric| metric.unit)
}

/// The words in a name, without its unit: `requests_per_s` is `requests per second`.
fn words(name: &str) -> String {
    let name = name.trim_end_matches("_bytes_per_s").trim_end_matches("_us").replace("_us_", " ");
    let name = match name.strip_suffix("_per_s") {
        Some(what) => format!("{what} per second"),
        None => name.replace("_per_s_", " per second "),
    };
    name.replace('_', " ")
}

/// The unit in a name.
fn unit(name: &str) -> &'static str {
    match name {
        m if m.contains("_us_per_s") => "us/s",
        m if m.ends_with("bytes_per_s") => "bytes/s",
        m if m.ends_with("_per_s") => "1/s",
        m if m.contains("_us") => "us",
        m if m.ends_with("_bytes") => "bytes",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_meaning_in_all_experiments() {
        for spec in ALL {
            for known in spec.metrics {
                let first = metric(known.name).unwrap();
                assert_eq!(
                    (first.words, first.better),
                    (known.words, known.better),
                    "{}",
                    spec.name
                );
                assert_eq!(unit_of_metric(spec.name, known.name), known.unit);
            }
            for known in spec.histograms {
                assert_eq!(histogram(known.name), Some(*known), "{}", spec.name);
            }
        }
    }

    #[test]
    fn what_nobody_described_is_called_by_its_name() {
        assert_eq!(words_of_metric("steps_per_s"), "steps per second");
        assert_eq!(words_of_metric("steps_bytes_per_s"), "steps");
        assert_eq!(words_of_metric("steps_per_socket"), "steps per socket");
        assert_eq!(words_of_metric("connect_us_p99"), "connect p99");
        assert_eq!(words_of_histogram("step_us"), "step");
        assert_eq!(unit_of_metric("http", "step_us_mean"), "us");
        assert_eq!(unit_of_metric("http", "steps_bytes_per_s"), "bytes/s");
        assert_eq!(unit_of_metric("http", "steps"), "");
    }
}
