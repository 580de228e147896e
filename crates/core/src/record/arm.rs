//! What was observed of one arm, and what no run can have measured: a record may have been edited, or
//! damaged where no checksum looks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::{Metric, Round};
use super::connections::{Closing, Expectation};
use super::hosts::{HostSummary, LinkMeasured, Path, Softirq};
use super::parts::Own;
use crate::stats::saturation::Saturation;
use crate::stats::{HistogramSummary, Series, TOP_NS};
use crate::tcp::handshake::Timeline;
use crate::tcp::ports::PortForecast;
use crate::tcp::wire::Wire;

/// One combination of factor levels, with everything observed of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Unique within the run.
    pub name: String,
    /// Option name to level.
    pub factors: BTreeMap<String, serde_json::Value>,
    /// The link as measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkMeasured>,
    /// The path between machines of the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Box<Path>>,
    /// Single figures.
    pub metrics: BTreeMap<String, Metric>,
    /// Distributions; the name ends in the unit of the quantiles.
    pub histograms: BTreeMap<String, HistogramSummary>,
    /// Operations begun.
    pub attempts: u64,
    /// Operations that succeeded.
    pub ok: u64,
    /// Operations that failed, by class. `attempts` = `ok` + the sum of these.
    pub errors: BTreeMap<String, u64>,
    /// What the first failure of a class said, in the words of the system or of a library.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_errors: BTreeMap<String, String>,
    /// Responses by HTTP status, those that count as failures too; empty where none came.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statuses: BTreeMap<String, u64>,
    /// The client host.
    pub client: HostSummary,
    /// The server host, where it is ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<HostSummary>,
    /// CPU time that belongs to no process alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softirq: Option<Softirq>,
    /// Packets by kind as the wire saw them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// Where the time of one operation went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// What arithmetic expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation: Option<Expectation>,
    /// The times at which this host's kernel would send a SYN again, seconds after the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub syn_retry_ladder_s: Vec<f64>,
    /// Handshakes that stand on each rung of that ladder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rungs: Vec<u64>,
    /// Its rounds in order of running, excluded and failed ones too; empty if it ran once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Round>,
    /// What came before the measurement and is in none of its figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// Bounded time series by name; the name ends in the unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Series>,
    /// How connections were to be used again, where it was a matter of choice: `keep-alive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<String>,
    /// Connections begun, where operations are not connections themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_attempted: Option<u64>,
    /// Connections that were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_ok: Option<u64>,
    /// Who closed connections, and what that left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<Closing>,
    /// How many connections the client's ports allow, worked out before the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortForecast>,
    /// What the load engine waited with: `epoll` or `io_uring`, and how it was batched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<String>,
    /// More was due than was answered; absent: the schedule was kept, or there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Saturation>,
    /// What only its experiment records of it.
    #[serde(flatten)]
    pub own: Own,
    /// Wall time of the trial in seconds.
    pub elapsed_s: f64,
    /// The time limit in seconds that kept the load from its number of operations, where nobody asked
    /// for that time: the trial is whole. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_after_s: Option<f64>,
    /// Whether the trial was stopped before its plan was done.
    #[serde(default)]
    pub partial: bool,
    /// Why there is no result, where the trial failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Operations before the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Warmup {
    /// Operations begun.
    pub attempts: u64,
    /// Operations that succeeded.
    pub ok: u64,
    /// Operations that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// Wall time, s.
    pub elapsed_s: f64,
    /// Distributions, as in the arm.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, HistogramSummary>,
}

/// The longest time of a distribution, µs, a hundredfold: maxima are kept at their true length.
const LONGEST_US: f64 = TOP_NS as f64 / 1e3 * 100.0;

/// The greatest figure of any metric: a rate of 10^18 bytes/s is none.
const GREATEST: f64 = 1e18;

/// What is impossible about an arm, a clause; absent: it may be true.
#[must_use]
pub fn impossible(arm: &Arm) -> Option<String> {
    let failed = arm.errors.values().try_fold(0_u64, |sum, count| sum.checked_add(*count));
    if failed.and_then(|failed| failed.checked_add(arm.ok)) != Some(arm.attempts) {
        return Some(format!(
            "{} attempts are not {} successes and the errors",
            arm.attempts, arm.ok
        ));
    }
    let metrics = arm.metrics.iter().filter(|(_, metric)| !is_metric(metric));
    let all = arm.histograms.iter().filter(|(_, histogram)| !is_distribution(histogram));
    let name = metrics.map(|(name, _)| name).chain(all.map(|(name, _)| name)).next()?;
    Some(format!("{name} has a figure that cannot be measured"))
}

fn is_metric(metric: &Metric) -> bool {
    let least = if is_never_below_0(&metric.unit) { 0.0 } else { -GREATEST };
    let figure = |value: f64| (least..=GREATEST).contains(&value);
    let ends = metric.ci95.is_none_or(|[low, high]| low <= high && figure(low) && figure(high));
    figure(metric.value) && metric.median.is_none_or(figure) && ends
}

/// Times, rates, sizes and counts; a difference has no such unit.
fn is_never_below_0(unit: &str) -> bool {
    matches!(unit, "us" | "s" | "1/s" | "bytes" | "bytes/s" | "sockets" | "connections")
}

fn is_distribution(all: &HistogramSummary) -> bool {
    let figures = [all.min, all.p50, all.p90, all.p99, all.p99_9, all.max];
    let ascending = figures.iter().flatten().is_sorted();
    let mut times = figures.iter().flatten().chain(&all.mean);
    let within = |us: &f64| (0.0..=LONGEST_US).contains(us);
    let bounded = all.unanswered.is_none_or(|unanswered| {
        (1..=all.count).contains(&unanswered.count) && within(&unanswered.at_least)
    });
    // The ends are rounded to three digits, the mean is not.
    let between = |mean: f64| {
        all.min.is_none_or(|min| mean >= min * 0.999)
            && all.max.is_none_or(|max| mean <= max * 1.001)
    };
    bounded
        && ascending
        && all.mean.is_none_or(between)
        && times.all(within)
        && (all.count > 0 || figures.iter().all(Option::is_none))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm() -> Arm {
        let metric =
            Metric { value: 5.0, unit: "us".into(), ci95: Some([4.0, 6.0]), median: None, n: 3 };
        let histogram = HistogramSummary {
            count: 3,
            min: Some(1.0),
            mean: Some(2.0),
            p50: Some(2.0),
            max: Some(3.0),
            ..HistogramSummary::default()
        };
        Arm {
            attempts: 4,
            ok: 3,
            errors: [("reset".to_owned(), 1)].into(),
            metrics: [("latency_us_mean".to_owned(), metric)].into(),
            histograms: [("latency_us".to_owned(), histogram)].into(),
            ..Arm::default()
        }
    }

    #[test]
    fn what_a_run_can_have_measured_is_possible() {
        assert_eq!(impossible(&arm()), None);
        assert_eq!(impossible(&Arm::default()), None);
    }

    #[test]
    fn what_no_run_can_have_measured_is_named() {
        let spoilt = |spoil: fn(&mut Arm)| {
            let mut arm = arm();
            spoil(&mut arm);
            impossible(&arm).unwrap_or_default()
        };
        assert!(spoilt(|arm| arm.ok = 7).starts_with("4 attempts are not 7 successes"));
        let of_metric = |spoil| spoilt(spoil).starts_with("latency_us_mean has a figure");
        assert!(of_metric(|arm| arm.metrics.get_mut("latency_us_mean").unwrap().value = -5.0));
        assert!(of_metric(|arm| arm.metrics.get_mut("latency_us_mean").unwrap().value = 1e308));
        assert!(of_metric(|arm| arm.metrics.get_mut("latency_us_mean").unwrap().value = f64::NAN));
        let of_histogram = |spoil| spoilt(spoil).starts_with("latency_us has a figure");
        assert!(of_histogram(|arm| arm.histograms.get_mut("latency_us").unwrap().min = Some(-1.0)));
        assert!(of_histogram(|arm| arm.histograms.get_mut("latency_us").unwrap().p50 = Some(9.0)));
        assert!(of_histogram(|arm| arm.histograms.get_mut("latency_us").unwrap().count = 0));
        assert!(of_histogram(|arm| arm.histograms.get_mut("latency_us").unwrap().mean = Some(4.0)));
    }
}
