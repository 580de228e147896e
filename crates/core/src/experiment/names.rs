//! What metrics and distributions are called, and their units: as described, or else as their names
//! say.

use super::spec::{Better, HistogramSpec, MetricSpec, Spec};

/// What is known of experiments: their descriptions, in alphabetical order.
#[derive(Clone, Copy, Debug)]
pub struct Specs(pub &'static [&'static Spec]);

impl Specs {
    /// The experiment of this name.
    ///
    /// None: this build does not know it; a newer one may have made the record.
    pub fn find(self, name: &str) -> Option<&'static Spec> {
        self.0.iter().copied().find(|spec| spec.name == name)
    }

    /// The description of a metric: its words are the same in every experiment that has it, its unit may
    /// differ.
    pub fn metric(self, name: &str) -> Option<&'static MetricSpec> {
        self.0.iter().flat_map(|spec| spec.metrics).copied().find(|metric| metric.name == name)
    }

    /// The description of a distribution; the same in every experiment that has it.
    pub fn histogram(self, name: &str) -> Option<&'static HistogramSpec> {
        let mut all = self.0.iter().flat_map(|spec| spec.histograms).copied();
        all.find(|histogram| histogram.name == name)
    }

    /// The direction in which a metric gets better; of a quantile that of its distribution.
    pub fn better(self, name: &str) -> Better {
        if let Some(metric) = self.metric(name) {
            return metric.better;
        }
        let is_quantile = |spec: &&HistogramSpec| {
            name.strip_prefix(spec.name).is_some_and(|figure| figure.starts_with('_'))
        };
        let mut histograms = self.0.iter().flat_map(|spec| spec.histograms).copied();
        histograms.find(is_quantile).map_or(Better::Neither, |histogram| histogram.better)
    }

    /// A metric in words: `mean connect latency`, `connections per second`.
    pub fn words_of_metric(self, name: &str) -> String {
        self.metric(name).map_or_else(|| words(name), |metric| metric.words.to_owned())
    }

    /// What a distribution holds, in words: `connect latency`.
    pub fn words_of_histogram(self, name: &str) -> String {
        self.histogram(name).map_or_else(|| words(name), |histogram| histogram.words.to_owned())
    }

    /// The unit of a metric in an experiment; empty where neither a description nor its name has one.
    pub fn unit_of_metric(self, experiment: &str, name: &str) -> &'static str {
        let own =
            self.find(experiment).and_then(|spec| spec.metrics.iter().find(|m| m.name == name));
        own.copied().or_else(|| self.metric(name)).map_or_else(|| unit(name), |metric| metric.unit)
    }
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
    fn what_nobody_described_is_called_by_its_name() {
        let none = Specs(&[]);
        assert_eq!(none.words_of_metric("steps_per_s"), "steps per second");
        assert_eq!(none.words_of_metric("steps_bytes_per_s"), "steps");
        assert_eq!(none.words_of_metric("steps_per_socket"), "steps per socket");
        assert_eq!(none.words_of_metric("connect_us_p99"), "connect p99");
        assert_eq!(none.words_of_histogram("step_us"), "step");
        assert_eq!(none.unit_of_metric("http", "step_us_mean"), "us");
        assert_eq!(none.unit_of_metric("http", "steps_bytes_per_s"), "bytes/s");
        assert_eq!(none.unit_of_metric("http", "steps"), "");
    }
}
