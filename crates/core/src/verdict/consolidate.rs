//! Trials of several rounds become one arm each.
//!
//! Of each round the last trial that counts goes in; what does not count is listed in the arm's
//! rounds and is in no figure. Single figures are means over rounds: the round is the unit, because
//! the operations of one round share its luck. What the rounds allow one to say of two arms is in
//! [`crate::verdict::compare`].

use std::collections::{BTreeMap, BTreeSet};

use crate::record::merge::{Merge as _, merged, parts, sum, sum_of_some, summed, summed_by_place};
use crate::record::{
    Arm, Background, HistogramSummary, HostSummary, LinkMeasured, Listener, Metric, Own, Round,
    Softirq, Trial, Warmup, Wire,
};
use crate::stats::saturation;
use crate::stats::{Figure, Histogram, Unanswered, sample, sequence};
use crate::study::PlannedArm;

/// Probability that the interval of an arm's metric misses the truth.
const ALPHA: f64 = 0.05;

/// The figures of a histogram that are followed over rounds.
const FOLLOWED: [&str; 2] = ["_p50", "_p99"];

/// One arm per planned arm that has a trial, in the order of the plan.
///
/// An arm with one trial is that trial's arm, unchanged. Of several trials:
///
/// - counts (attempts, errors, counters, wire, time) are summed over the rounds that go in;
/// - distributions are merged, exactly; one that cannot be read back is left out;
/// - metrics are means over rounds with median and interval, and of each histogram that every
///   round has, p50 and p99 are metrics too: `connect_us_p99`;
/// - CPU and softirq time per operation are weighted by attempts, peaks are the greatest;
/// - what is not additive (timeline, series, link, TCP_INFO) is that of the first round that has it.
///
/// If no trial counts, those that were excluded or stopped go in, without intervals: there is
/// nothing to conclude from them. If all failed, the arm keeps the last failure.
pub fn arms(planned: &[PlannedArm], trials: &[Trial]) -> Vec<Arm> {
    let by_arm = by_arm(trials);
    planned
        .iter()
        .filter_map(|arm| by_arm.get(arm.name.as_str()))
        .map(|trials| one(trials))
        .collect()
}

/// One trial of a load that several machines shared, of the trial of each; `None`: there is none.
///
/// Counts and rates per second are summed, distributions merged, means of operations are of all operations, CPU
/// times per operation are weighted by attempts. A figure of which the whole does not follow from its parts, like
/// a peak, is left out.
#[must_use]
pub fn of_shares(shares: &[&Arm]) -> Option<Arm> {
    let trials: Vec<Trial> = shares
        .iter()
        .enumerate()
        .map(|(round, arm)| Trial { round: round as u32, arm: (*arm).clone(), ..Trial::default() })
        .collect();
    let mut whole = one(&trials.iter().collect::<Vec<_>>());
    let names = shares.first()?.metrics.keys();
    let metric = |name: &String| {
        let parts: Vec<&Metric> =
            shares.iter().map(|arm| arm.metrics.get(name)).collect::<Option<_>>()?;
        let unit = &parts.first()?.unit;
        let n = sum(parts.iter().map(|part| part.n));
        let value = if unit.ends_with("/s") {
            parts.iter().map(|part| part.value).sum()
        } else if let Some(histogram) = name.strip_suffix("_mean") {
            whole.histograms.get(histogram)?.mean?
        } else if name.ends_with("_us_per_op") {
            let weighted = shares.iter().zip(&parts);
            let weighted = weighted.map(|(arm, part)| arm.attempts as f64 * part.value);
            weighted.sum::<f64>() / whole.attempts.max(1) as f64
        } else {
            return None;
        };
        Some((name.clone(), Metric { value, unit: unit.clone(), ci95: None, median: None, n }))
    };
    whole.metrics = names.filter_map(metric).collect();
    whole.rounds.clear();
    // The machines' loads ran beside each other, not one after the other.
    let longest =
        |time: &dyn Fn(&&Arm) -> Option<f64>| shares.iter().filter_map(time).fold(0.0, f64::max);
    whole.elapsed_s = longest(&|arm| Some(arm.elapsed_s));
    if let Some(warmup) = &mut whole.warmup {
        warmup.elapsed_s = longest(&|arm| Some(arm.warmup.as_ref()?.elapsed_s));
    }
    Some(whole)
}

/// The value of a metric in one arm of one trial: of `metrics`, or `connect_us_p99` of a histogram.
///
/// Range: finite. A histogram's name is followed by the ending of a figure. None: it was not measured, or a quantile has too few values beyond it.
pub fn value(arm: &Arm, metric: &str) -> Option<f64> {
    let of_histogram = || {
        let (histogram, figure) = figure(arm, metric)?;
        (figure.value)(histogram)
    };
    let value = arm.metrics.get(metric).map(|metric| metric.value).or_else(of_histogram);
    value.filter(|value| value.is_finite())
}

/// [`value`], where it is no lower bound: bounds have no mean and no difference.
pub(crate) fn exact(arm: &Arm, metric: &str) -> Option<f64> {
    value(arm, metric).filter(|value| sign(arm, metric, *value).is_empty())
}

/// `"≥ "` before a value that is a lower bound.
pub fn sign(arm: &Arm, metric: &str, value: f64) -> &'static str {
    let of_histogram = figure(arm, metric).filter(|_| !arm.metrics.contains_key(metric));
    of_histogram.map_or("", |(histogram, _)| histogram.sign(value))
}

/// The distribution and the figure that a metric names.
fn figure<'a>(arm: &'a Arm, metric: &str) -> Option<(&'a HistogramSummary, &'static Figure)> {
    let has = |name: &str| arm.histograms.contains_key(name);
    let (name, figure) = Figure::of_metric(metric, has)?;
    Some((arm.histograms.get(name)?, figure))
}

/// The unit of [`value`].
pub fn unit(arm: &Arm, metric: &str) -> Option<String> {
    if let Some(metric) = arm.metrics.get(metric) {
        return Some(metric.unit.clone());
    }
    let has = |name: &str| arm.histograms.contains_key(name);
    let (histogram, _) = Figure::of_metric(metric, has)?;
    Some(unit_in_name(histogram))
}

/// Trials by the name of their arm, in order of running.
pub(crate) fn by_arm(trials: &[Trial]) -> BTreeMap<&str, Vec<&Trial>> {
    let mut by_arm: BTreeMap<&str, Vec<&Trial>> = BTreeMap::new();
    for trial in trials {
        by_arm.entry(&trial.arm.name).or_default().push(trial);
    }
    for trials in by_arm.values_mut() {
        // What was stopped runs again in the same place after the run is resumed.
        let place = |trial: &Trial| (trial.round, trial.order, trial.attempt);
        trials.sort_by(|a, b| place(a).cmp(&place(b)).then(a.began_s.total_cmp(&b.began_s)));
    }
    by_arm
}

/// Of each round, the last trial that counts.
pub(crate) fn counting<'a>(trials: &[&'a Trial]) -> BTreeMap<u32, &'a Trial> {
    last_of_each_round(trials, Trial::counts)
}

/// Why a trial is in no figure, one clause.
pub(crate) fn left_out(trial: &Trial) -> Option<String> {
    let stopped = || trial.arm.partial.then(|| "stopped before it was complete".to_owned());
    trial.invalid.clone().or_else(|| trial.arm.failure.clone()).or_else(stopped)
}

fn last_of_each_round<'a>(
    trials: &[&'a Trial],
    goes_in: impl Fn(&Trial) -> bool,
) -> BTreeMap<u32, &'a Trial> {
    let mut last: BTreeMap<u32, &Trial> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| goes_in(trial)) {
        let before = last.entry(trial.round).or_insert(trial);
        if (trial.attempt, trial.order) >= (before.attempt, before.order) {
            *before = trial;
        }
    }
    last
}

fn one(trials: &[&Trial]) -> Arm {
    if let [only] = trials {
        return only.arm.clone();
    }
    let counting = counting(trials);
    let measured = last_of_each_round(trials, |trial| trial.arm.failure.is_none());
    let concludes = !counting.is_empty();
    let failed = measured.is_empty();
    let chosen = [counting, measured].into_iter().find(|chosen| !chosen.is_empty());
    let chosen = chosen.unwrap_or_else(|| last_of_each_round(trials, |_| true));
    let arms: Vec<&Arm> = chosen.values().map(|trial| &trial.arm).collect();
    let Some(&first) = arms.first() else { return Arm::default() };

    let clients: Vec<_> = arms.iter().map(|arm| (&arm.client, arm.attempts)).collect();
    let servers: Vec<_> =
        arms.iter().filter_map(|arm| Some((arm.server.as_ref()?, arm.attempts))).collect();
    let softirqs: Vec<_> =
        arms.iter().filter_map(|arm| Some((arm.softirq.as_ref()?, arm.attempts))).collect();
    let wires: Vec<_> = arms.iter().filter_map(|arm| arm.wire.as_ref()).collect();
    Arm {
        name: first.name.clone(),
        factors: first.factors.clone(),
        link: link(&arms),
        path: arms.iter().find_map(|arm| arm.path.clone()),
        metrics: metrics(&arms, concludes),
        histograms: merged_histograms(&parts(&arms, |arm| &arm.histograms)),
        attempts: sum(arms.iter().map(|arm| arm.attempts)),
        ok: sum(arms.iter().map(|arm| arm.ok)),
        errors: summed(&parts(&arms, |arm| &arm.errors)),
        first_errors: arms.iter().rev().flat_map(|arm| arm.first_errors.clone()).collect(),
        statuses: summed(&parts(&arms, |arm| &arm.statuses)),
        client: host(&clients),
        server: (!servers.is_empty()).then(|| host(&servers)),
        softirq: softirq(&softirqs),
        wire: wire(&wires),
        timeline: merged(&arms, |arm| arm.timeline.as_ref()),
        expectation: merged(&arms, |arm| arm.expectation.as_ref()),
        syn_retry_ladder_s: first.syn_retry_ladder_s.clone(),
        rungs: summed_by_place(&parts(&arms, |arm| &arm.rungs)),
        rounds: rounds(trials),
        warmup: warmup(&arms),
        series: first.series.clone(),
        reuse: first.reuse.clone(),
        connections_attempted: sum_of_some(&arms, |arm| arm.connections_attempted),
        connections_ok: sum_of_some(&arms, |arm| arm.connections_ok),
        closing: merged(&arms, |arm| arm.closing.as_ref()),
        ports: merged(&arms, |arm| arm.ports.as_ref()),
        io: first.io.clone(),
        saturation: saturation::of_rounds(
            &arms.iter().map(|arm| arm.saturation.as_ref()).collect::<Vec<_>>(),
        ),
        own: Own::merge(&parts(&arms, |arm| &arm.own)).unwrap_or_default(),
        elapsed_s: arms.iter().map(|arm| arm.elapsed_s).sum(),
        cut_after_s: arms.iter().find_map(|arm| arm.cut_after_s),
        partial: stopped(trials),
        failure: trials.iter().rev().find_map(|t| t.arm.failure.clone()).filter(|_| failed),
    }
}

/// Whether a trial was stopped and did not run again when the run was resumed.
fn stopped(trials: &[&Trial]) -> bool {
    let whole = last_of_each_round(trials, |trial| !trial.arm.partial);
    trials.iter().any(|trial| trial.arm.partial && !whole.contains_key(&trial.round))
}

/// All trials, in order of running.
fn rounds(trials: &[&Trial]) -> Vec<Round> {
    let counting = counting(trials);
    let again = |trial: &Trial| {
        let last = counting.get(&trial.round).is_some_and(|last| std::ptr::eq(*last, trial));
        (!last).then(|| "repeated in the same round".to_owned())
    };
    let round = |trial: &&Trial| Round {
        round: trial.round,
        began_s: trial.began_s,
        left_out: left_out(trial).or_else(|| again(trial)),
        metrics: names(&[&trial.arm])
            .into_iter()
            .filter_map(|name| Some((name.clone(), exact(&trial.arm, &name)?)))
            .collect(),
    };
    trials.iter().map(round).collect()
}

/// Every metric of any of the arms, and p50 and p99 of every histogram.
fn names(arms: &[&Arm]) -> BTreeSet<String> {
    let followed = |histogram: &String| FOLLOWED.map(|ending| format!("{histogram}{ending}"));
    let metrics = arms.iter().flat_map(|arm| arm.metrics.keys().cloned());
    metrics.chain(arms.iter().flat_map(|arm| arm.histograms.keys().flat_map(followed))).collect()
}

fn metrics(arms: &[&Arm], concludes: bool) -> BTreeMap<String, Metric> {
    let metric = |name: String| {
        let values: Vec<f64> = arms.iter().filter_map(|arm| exact(arm, &name)).collect();
        // A quantile lacks where values are few: the mean of the others would be of other rounds.
        let whole = values.len() == arms.len();
        if !whole && !arms.iter().any(|arm| arm.metrics.contains_key(&name)) {
            return None;
        }
        let metric = Metric {
            value: sample::mean(&values)?,
            unit: arms.iter().find_map(|arm| unit(arm, &name))?,
            ci95: concludes.then(|| sequence::interval(&values, ALPHA)).flatten().map(|ends| {
                // The mean of what is never below 0 is not below 0 either.
                if values.iter().all(|value| *value >= 0.0) {
                    ends.map(|end| end.max(0.0))
                } else {
                    ends
                }
            }),
            median: sample::median(&values),
            n: values.len() as u64,
        };
        Some((name, metric))
    };
    names(arms).into_iter().filter_map(metric).collect()
}

/// The first link, with the lateness and the unwanted drops of all.
fn link(arms: &[&Arm]) -> Option<LinkMeasured> {
    let links: Vec<&LinkMeasured> = arms.iter().filter_map(|arm| arm.link.as_ref()).collect();
    let late: Vec<_> = links.iter().filter_map(|link| link.lateness_us.as_ref()).collect();
    links.first().map(|&first| LinkMeasured {
        lateness_us: merged_histogram(&late),
        unwanted_drops: sum(links.iter().map(|link| link.unwanted_drops)),
        ..first.clone()
    })
}

fn warmup(arms: &[&Arm]) -> Option<Warmup> {
    let warmups: Vec<&Warmup> = arms.iter().filter_map(|arm| arm.warmup.as_ref()).collect();
    (!warmups.is_empty()).then(|| Warmup {
        attempts: sum(warmups.iter().map(|warmup| warmup.attempts)),
        ok: sum(warmups.iter().map(|warmup| warmup.ok)),
        errors: summed(&parts(&warmups, |warmup| &warmup.errors)),
        elapsed_s: warmups.iter().map(|warmup| warmup.elapsed_s).sum(),
        histograms: merged_histograms(&parts(&warmups, |warmup| &warmup.histograms)),
    })
}

/// `us` of `connect_us`.
fn unit_in_name(histogram: &str) -> String {
    histogram.rsplit('_').next().unwrap_or_default().to_owned()
}

fn host(rounds: &[(&HostSummary, u64)]) -> HostSummary {
    let hosts = || rounds.iter().map(|(host, _)| *host);
    let per_op = |part: fn(&HostSummary) -> Option<f64>| {
        weighted(rounds.iter().filter_map(|(host, ops)| Some((part(host)?, *ops))))
    };
    // A short trial does not tell user from system time: these two are given where they add up.
    let split = hosts()
        .all(|host| host.cpu_us_per_op.is_none() == host.cpu_user_us_per_op.is_none())
        && hosts().all(|host| host.cpu_us_per_op.is_none() == host.cpu_system_us_per_op.is_none());
    let split = |part| if split { per_op(part) } else { None };
    HostSummary {
        cpu_us_per_op: per_op(|host| host.cpu_us_per_op),
        cpu_user_us_per_op: split(|host| host.cpu_user_us_per_op),
        cpu_system_us_per_op: split(|host| host.cpu_system_us_per_op),
        rss_peak_bytes: hosts().filter_map(|host| host.rss_peak_bytes).max(),
        counters: counters(hosts()),
        sockstat: hosts().next_back().map(|host| host.sockstat.clone()).unwrap_or_default(),
        sysctls: hosts().next().map(|host| host.sysctls.clone()).unwrap_or_default(),
        listeners: listeners(hosts()),
        tcp_info: hosts().find_map(|host| host.tcp_info.clone()),
        processes: hosts().filter_map(|host| host.processes).max(),
        memory_bytes: hosts().filter_map(|host| host.memory_bytes).max(),
        version: hosts().find_map(|host| host.version.clone()),
        pinned_cpu: hosts().find_map(|host| host.pinned_cpu),
        passport: hosts().find_map(|host| host.passport.clone()),
        background: background(&hosts()),
    }
}

/// None: no round has it.
fn softirq(rounds: &[(&Softirq, u64)]) -> Option<Softirq> {
    let cpus = rounds.iter().map(|(softirq, _)| softirq.per_cpu_us_per_op.len()).max()?;
    let on = |cpu| {
        let with_weight = |(softirq, ops): &(&Softirq, u64)| {
            (softirq.per_cpu_us_per_op.get(cpu).copied().unwrap_or(0.0), *ops)
        };
        weighted(rounds.iter().map(with_weight))
    };
    Some(Softirq {
        per_cpu_us_per_op: (0..cpus).map(on).collect::<Option<_>>()?,
        us_per_op: weighted(rounds.iter().map(|(softirq, ops)| (softirq.us_per_op, *ops)))?,
        // Of the time of all rounds together, as each may be off by its own.
        resolution_us: rounds.iter().map(|(softirq, _)| softirq.resolution_us).sum(),
    })
}

/// None: no round has it.
fn wire(rounds: &[&Wire]) -> Option<Wire> {
    rounds.iter().copied().cloned().reduce(|sum, wire| sum.plus(&wire))
}

fn counters<'a>(hosts: impl Iterator<Item = &'a HostSummary> + Clone) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (name, change) in hosts.clone().flat_map(|host| &host.counters) {
        let sum: &mut i64 = sums.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*change);
    }
    // What is not the run's alone in one round is not in the sum.
    for name in hosts.filter_map(|host| host.background.as_ref()).flat_map(|one| &one.left_out) {
        sums.remove(name);
    }
    sums
}

/// The busiest of all rounds. None: the machine was the lab's.
fn background<'a>(
    hosts: &(impl Iterator<Item = &'a HostSummary> + Clone),
) -> Option<Box<Background>> {
    let all = || hosts.clone().filter_map(|host| host.background.as_deref());
    let busiest = all().max_by(|a, b| a.connections_per_s.total_cmp(&b.connections_per_s))?;
    let left_out: BTreeSet<&String> = all().flat_map(|one| &one.left_out).collect();
    let left_out = left_out.into_iter().cloned().collect();
    Some(Box::new(Background { left_out, ..busiest.clone() }))
}

/// One per address and port, with its greatest queues.
fn listeners<'a>(hosts: impl Iterator<Item = &'a HostSummary>) -> Vec<Listener> {
    let mut listeners: Vec<Listener> = Vec::new();
    for one in hosts.flat_map(|host| &host.listeners) {
        let same = |seen: &&mut Listener| (&seen.address, seen.port) == (&one.address, one.port);
        if let Some(seen) = listeners.iter_mut().find(same) {
            seen.accept_queue_peak = seen.accept_queue_peak.max(one.accept_queue_peak);
            seen.syn_queue_peak = seen.syn_queue_peak.max(one.syn_queue_peak);
            let sum = |a: Option<u64>, b| Some(a? + b?);
            seen.samples = sum(seen.samples, one.samples);
            seen.full_samples = sum(seen.full_samples, one.full_samples);
        } else {
            listeners.push(one.clone());
        }
    }
    listeners
}

/// The mean of figures per operation, each with its operations. None: no operation.
fn weighted(figures: impl Iterator<Item = (f64, u64)>) -> Option<f64> {
    let (total, ops) = figures
        .map(|(figure, ops)| (figure * ops as f64, ops as f64))
        .fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    (ops > 0.0).then(|| total / ops)
}

/// Each distribution that any round has, over all rounds; see [`merge`].
fn merged_histograms(
    rounds: &[&BTreeMap<String, HistogramSummary>],
) -> BTreeMap<String, HistogramSummary> {
    let names: BTreeSet<&String> = rounds.iter().flat_map(|round| round.keys()).collect();
    let merged_by_name = |name: &String| {
        let summaries: Vec<_> = rounds.iter().filter_map(|round| round.get(name)).collect();
        Some((name.clone(), merged_histogram(&summaries)?))
    };
    names.into_iter().filter_map(merged_by_name).collect()
}

/// The distribution of all values together: count, least, mean and greatest value stay exact.
///
/// None: there is none, or one cannot be read back. What is left would be of other rounds than
/// the arm's other figures.
fn merged_histogram(summaries: &[&HistogramSummary]) -> Option<HistogramSummary> {
    let mut all = Histogram::new();
    for summary in summaries.iter().filter(|summary| summary.count > 0) {
        let one = Histogram::from_summary(summary).ok()??;
        if one.count() != summary.count {
            return None;
        }
        all.merge(&one);
    }
    let unanswered = Unanswered::merged(summaries.iter().filter_map(|summary| summary.unanswered));
    (!summaries.is_empty()).then(|| all.summary_us().with_unanswered(unanswered))
}

#[cfg(test)]
mod tests;
