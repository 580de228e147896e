//! What can no run have measured? A record may have been edited, or damaged where no checksum looks.

use super::{Arm, HistogramSummary, Metric};
use crate::stats::TOP_NS;

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
