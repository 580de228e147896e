//! Metric families, and their text in both formats that Prometheus reads.

use std::fmt::Write as _;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// Before the name of every family.
pub(super) const PREFIX: &str = "tcptoll";

/// Names and values of labels.
pub(super) type Labels = Vec<(&'static str, String)>;

/// What a family is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its samples end in `_total` and never go down.
    Counter,
    Gauge,
    /// Its samples end in `_info` and are 1: the labels are what counts.
    Info,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Count(u64),
    Real(f64),
}

/// Metrics of one name.
#[derive(Debug)]
pub(super) struct Family {
    /// Without the prefix, the unit and the suffix of its kind.
    pub name: &'static str,
    /// One sentence, without a backslash or a line feed: it is written as it is.
    pub help: &'static str,
    pub unit: Option<Unit>,
    pub kind: Kind,
    pub samples: Vec<(Labels, Value)>,
}

impl Family {
    pub(super) fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self { name, help, unit: None, kind, samples: Vec::new() }
    }

    pub(super) fn unit(self, unit: Unit) -> Self {
        Self { unit: Some(unit), ..self }
    }

    /// With one sample that has no labels; absent: with none.
    pub(super) fn single(mut self, value: Option<Value>) -> Self {
        self.samples.extend(value.map(|value| (Labels::new(), value)));
        self
    }

    /// With these samples.
    pub(super) fn each(mut self, samples: impl IntoIterator<Item = (Labels, Value)>) -> Self {
        self.samples.extend(samples);
        self
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Count(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Count(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// All families of a page.
#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        for family in self.0.iter().filter(|family| !family.samples.is_empty()) {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let unit = family.unit.as_ref();
            let mut metric = encoder.encode_descriptor(family.name, family.help, unit, kind)?;
            for (labels, value) in &family.samples {
                match family.kind {
                    Kind::Info => metric.encode_info(labels)?,
                    _ if labels.is_empty() => sample(&mut metric, family.kind, *value)?,
                    _ => sample(&mut metric.encode_family(labels)?, family.kind, *value)?,
                }
            }
        }
        Ok(())
    }
}

fn sample(metric: &mut MetricEncoder<'_>, kind: Kind, value: Value) -> std::fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Count(value)) => {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (Kind::Counter, Value::Real(value)) => {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (_, Value::Count(value)) => metric.encode_gauge(&value),
        (_, Value::Real(value)) => metric.encode_gauge(&value),
    }
}

/// The page in `OpenMetrics` 1.0.
pub(super) fn openmetrics(families: Vec<Family>) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Families(families)));
    let mut page = String::new();
    text::encode(&mut page, &registry).expect("a String takes everything that is written to it");
    page
}

/// An `OpenMetrics` page in Prometheus' own text format, version 0.0.4.
///
/// There a family has the name of its samples, suffix included, and neither units nor infos exist. A
/// label's value has the same escapes in both, and no line feed, so lines can be told apart.
pub(super) fn classic(openmetrics: &str) -> String {
    let mut page = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            if let Some((_, text)) = help.take() {
                let _never = writeln!(page, "# HELP {name}{suffix} {text}");
            }
            let _never = writeln!(page, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            page.push_str(line);
            page.push('\n');
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Vec<Family> {
        let labels = |value: &str| vec![("of", value.to_owned())];
        vec![
            Family::new(Kind::Info, "thing", "What it is.")
                .each([(labels("a \"b\" \\ c"), Value::Count(1))]),
            Family::new(Kind::Counter, "cpu", "Time.").unit(Unit::Seconds).single(Some(0.5.into())),
            Family::new(Kind::Counter, "looks", "Looks.")
                .each([(labels("x"), Value::Count(0)), (labels("# TYPE"), Value::Count(7))]),
            Family::new(Kind::Gauge, "gone", "Never seen.").single(None),
        ]
    }

    #[test]
    fn openmetrics_has_units_suffixes_and_an_end() {
        let expected = "\
# HELP tcptoll_thing What it is.
# TYPE tcptoll_thing info
tcptoll_thing_info{of=\"a \\\"b\\\" \\\\ c\"} 1
# HELP tcptoll_cpu_seconds Time.
# TYPE tcptoll_cpu_seconds counter
# UNIT tcptoll_cpu_seconds seconds
tcptoll_cpu_seconds_total 0.5
# HELP tcptoll_looks Looks.
# TYPE tcptoll_looks counter
tcptoll_looks_total{of=\"x\"} 0
tcptoll_looks_total{of=\"# TYPE\"} 7
# EOF
";
        assert_eq!(openmetrics(families()), expected);
    }

    #[test]
    fn the_classic_format_names_a_family_as_its_samples() {
        let expected = "\
# HELP tcptoll_thing_info What it is.
# TYPE tcptoll_thing_info gauge
tcptoll_thing_info{of=\"a \\\"b\\\" \\\\ c\"} 1
# HELP tcptoll_cpu_seconds_total Time.
# TYPE tcptoll_cpu_seconds_total counter
tcptoll_cpu_seconds_total 0.5
# HELP tcptoll_looks_total Looks.
# TYPE tcptoll_looks_total counter
tcptoll_looks_total{of=\"x\"} 0
tcptoll_looks_total{of=\"# TYPE\"} 7
";
        assert_eq!(classic(&openmetrics(families())), expected);
    }
}
