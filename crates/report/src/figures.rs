//! What does a report say of an arm, whatever it looks like? Picks and derives figures; both the
//! terminal and the HTML report show these, so they cannot disagree.

use tcptoll_model::experiments::figures::RESOLUTION_SHOWN;
use tcptoll_model::record::{
    Arm, HistogramSummary, LinkKind, LinkMeasured, PlaceKind, Resolved, Summary, Timeline,
};

use crate::{keepalive, number, requests, rounds};

/// The distribution that carries the answer.
#[derive(Clone, Debug)]
pub(crate) struct Primary {
    /// Key in `histograms` and in `series`.
    pub(crate) key: String,
    /// What it is: `connect latency`.
    pub(crate) name: String,
}

/// The distribution that carries the answer: latency of requests where there are any, else that of
/// connecting, which requests have too.
pub(crate) fn primary(summary: &Summary) -> Primary {
    let has = |key: &str| summary.arms.iter().any(|arm| arm.histograms.contains_key(key));
    // Where peers were made to die, the answer is when that was known.
    let known = [keepalive::DETECTION, "latency_us", "connect_us", "first_byte_us"];
    let known = known.into_iter().find(|key| has(key));
    let other = || {
        let keys = summary.arms.iter().flat_map(|arm| arm.histograms.keys());
        keys.map(String::as_str)
            .find(|key| !matches!(*key, "rtt_us" | "lateness_us" | "connect_of_failed_us"))
    };
    let key = known.or_else(other).unwrap_or("connect_us").to_owned();
    Primary { name: histogram_name(&key), key }
}

/// What a histogram holds, in words.
pub(crate) fn histogram_name(key: &str) -> String {
    match key {
        "connect_us" => "connect latency".to_owned(),
        "connect_of_failed_us" => "connect latency of connections that failed later".to_owned(),
        "latency_us" => "latency".to_owned(),
        "first_byte_us" => "time to first byte".to_owned(),
        "tls_us" => "TLS handshake".to_owned(),
        "idle_close_us" => "idle time until the server closed".to_owned(),
        "detection_us" => "time from the fault to knowing it".to_owned(),
        "arrival_us" => "wait of an arrival for room".to_owned(),
        "rtt_us" => "ICMP echo".to_owned(),
        "lateness_us" => "lateness of the client".to_owned(),
        other => other.strip_suffix("_us").unwrap_or(other).replace('_', " "),
    }
}

/// p50, p99, p99.9 and maximum of a histogram of an arm.
pub(crate) fn quantiles(arm: &Arm, key: &str) -> [Option<f64>; 4] {
    match arm.histograms.get(key) {
        Some(h) => [h.p50, h.p99, h.p99_9, h.max],
        None => [None; 4],
    }
}

/// The 90th percentile of a histogram of an arm.
pub(crate) fn p90(arm: &Arm, key: &str) -> Option<f64> {
    arm.histograms.get(key)?.p90
}

/// Share of the handshakes that waited for a retransmitted SYN, where any did.
pub(crate) fn waited(arm: &Arm) -> Option<f64> {
    arm.metrics.get("waited_share").map(|share| share.value).filter(|share| *share > 0.0)
}

/// A rate with its resolution, where that is above 2 % of the rate: `97.9`, `27.3 ± 3.1`. The
/// resolution is what the edges of the load may add or hide; over rounds there is an interval
/// instead.
pub(crate) fn rate(arm: &Arm, key: &str) -> Option<String> {
    let rate = arm.metrics.get(key)?;
    let text = number::three(rate.value);
    let resolution = arm.metrics.get("rate_resolution_per_s").map_or(0.0, |m| m.value);
    let coarse = arm.rounds.is_empty() && resolution > RESOLUTION_SHOWN * rate.value;
    Some(if coarse { format!("{text} ± {}", number::three(resolution)) } else { text })
}

/// A middle of the distribution to compare arms by: the median, else the mean.
pub(crate) fn middle(histogram: &HistogramSummary) -> Option<f64> {
    histogram.p50.or(histogram.mean)
}

/// How many operations succeeded, of how many: `all 30,000`, `18 of 500`, `none of 500`.
pub(crate) fn ok_of_attempts(arm: &Arm) -> String {
    match (arm.ok, arm.attempts) {
        (0, 0) => "none tried".to_owned(),
        (0, tried) => format!("none of {}", number::count(tried)),
        (ok, tried) if ok == tried => format!("all {}", number::count(ok)),
        (ok, tried) => format!("{} of {}", number::count(ok), number::count(tried)),
    }
}

/// Expected against measured, of one arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// What arithmetic expects of the client, µs.
    pub(crate) theory_us: f64,
    /// The measured median, µs.
    pub(crate) measured_us: f64,
    /// Where the round trip of the arithmetic is from.
    pub(crate) rtt_from: &'a str,
    /// Whether CPU time is part of it.
    pub(crate) with_cpu: bool,
}

impl Expected<'_> {
    /// The formula: `1 RTT + CPU`.
    pub(crate) fn formula(&self) -> &'static str {
        if self.with_cpu { "1 RTT + CPU" } else { "1 RTT" }
    }

    /// Distance of the measured from the expected: `+0.03 %`.
    pub(crate) fn off(&self) -> String {
        number::percent_off(self.measured_us / self.theory_us)
    }
}

/// The least round trip that physics allows over the distance the user gave.
pub(crate) fn floor(arm: &Arm) -> Option<String> {
    let expectation = arm.expectation.as_ref()?;
    Some(format!(
        "Over {} km light needs {} in fibre and {} in vacuum, there and back",
        number::trimmed(expectation.distance_km?),
        number::exact_time(expectation.floor_fibre_us?),
        number::exact_time(expectation.floor_vacuum_us?)
    ))
}

/// Expected against measured connect latency; `None` where either is missing.
pub(crate) fn expected(arm: &Arm) -> Option<Expected<'_>> {
    let expectation = arm.expectation.as_ref()?;
    let measured_us = arm.histograms.get("connect_us")?.p50?;
    (expectation.client_us > 0.0).then_some(Expected {
        theory_us: expectation.client_us,
        measured_us,
        rtt_from: &expectation.rtt_from,
        with_cpu: expectation.cpu_us.is_some(),
    })
}

/// The round trip that views of an arm are held against, µs.
pub(crate) fn reference_rtt(arm: &Arm) -> Option<f64> {
    arm.expectation.as_ref().map(|e| e.rtt_us).filter(|rtt| *rtt > 0.0)
}

/// Median time at the client, on the wire and at the server, µs: sums of the steps.
pub(crate) fn time_by_lane(timeline: &Timeline) -> Vec<(&str, f64)> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for step in &timeline.steps {
        match sums.iter_mut().find(|(lane, _)| *lane == step.at) {
            Some((_, sum)) => *sum += step.p50_us,
            None => sums.push((&step.at, step.p50_us)),
        }
    }
    sums
}

/// When the last step of a timeline ends, µs.
pub(crate) fn timeline_end(timeline: &Timeline) -> f64 {
    timeline.steps.iter().map(|step| step.begins_us + step.p50_us).fold(0.0, f64::max)
}

/// Whether two timelines tell the same story: the same steps within a fifth or 5 µs.
pub(crate) fn same_story(a: &Timeline, b: &Timeline) -> bool {
    a.steps.len() == b.steps.len()
        && a.steps.iter().zip(&b.steps).all(|(x, y)| {
            let near = (x.p50_us - y.p50_us).abs() <= 5.0_f64.max(0.2 * x.p50_us.max(y.p50_us));
            x.name == y.name && near
        })
}

/// A published figure beside ours.
#[derive(Clone, Debug)]
pub(crate) struct Beside<'a> {
    /// The arm.
    pub(crate) arm: &'a str,
    /// The metric in words.
    pub(crate) metric: String,
    /// Ours with its unit; with the standard deviation of rounds, where theirs has one.
    pub(crate) ours: String,
    /// Theirs with its unit, and its standard deviation if the source states one.
    pub(crate) published: String,
    /// Whether theirs has a standard deviation.
    pub(crate) has_sd: bool,
    /// Ours / theirs.
    pub(crate) ratio: Option<f64>,
    /// Where it was published.
    pub(crate) source: &'a str,
    /// What the source says of it.
    pub(crate) note: Option<&'a str>,
}

/// Published figures beside ours, in the order of the study.
pub(crate) fn published(summary: &Summary) -> Vec<Beside<'_>> {
    let row = |p| {
        let p: &tcptoll_model::record::Published = p;
        let arm = summary.arms.iter().find(|arm| arm.name == p.arm);
        let ours = arm.and_then(|arm| value_of(arm, &p.metric));
        let unit = ours.map_or_else(|| unit_of(&p.metric), |(_, unit)| unit);
        Beside {
            arm: &p.arm,
            metric: metric_name(&p.metric),
            ours: ours.map_or_else(
                || number::ABSENT.to_owned(),
                |(value, _)| with_sd(value, p.sd.and(sd_of_rounds(arm, &p.metric)), unit),
            ),
            published: with_sd(p.value, p.sd, unit),
            has_sd: p.sd.is_some(),
            ratio: ours.filter(|_| p.value > 0.0).map(|(value, _)| value / p.value),
            source: &p.source,
            note: p.note.as_deref(),
        }
    };
    summary.published.iter().map(row).collect()
}

/// A figure with its standard deviation, if there is one: `13,577 ± 303 /s`.
fn with_sd(value: f64, sd: Option<f64>, unit: &str) -> String {
    match sd {
        None => number::metric(value, unit),
        Some(sd) if unit == "1/s" => {
            format!("{} ± {} /s", number::three(value), number::three(sd))
        }
        Some(sd) => format!("{} ± {}", number::metric(value, unit), number::metric(sd, unit)),
    }
}

/// Standard deviation of a metric over the rounds that count; at least two.
fn sd_of_rounds(arm: Option<&Arm>, metric: &str) -> Option<f64> {
    let counted = |round| rounds::counted(round, metric);
    let values: Vec<f64> = arm?.rounds.iter().filter_map(counted).collect();
    tcptoll_model::stats::sample::sd(&values)
}

/// What the figures after a ± are, where published ones have them.
pub(crate) fn about_sd(rows: &[Beside<'_>]) -> Option<String> {
    let mut with_sd = rows.iter().filter(|row| row.has_sd).peekable();
    with_sd.peek()?;
    let note = with_sd.find_map(|row| row.note);
    let theirs = note.map(|note| format!(" ({note})")).unwrap_or_default();
    Some(format!("± is the standard deviation: ours of rounds, theirs as published{theirs}"))
}

/// A metric of an arm by name, or a quantile of a histogram as `connect_us_p99`, with its unit.
pub(crate) fn value_of<'a>(arm: &'a Arm, metric: &str) -> Option<(f64, &'a str)> {
    if let Some(found) = arm.metrics.get(metric) {
        return Some((found.value, &found.unit));
    }
    let (key, histogram) = arm.histograms.iter().find(|(key, _)| {
        metric.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('_'))
    })?;
    let value = match &metric[key.len() + 1..] {
        "min" => histogram.min,
        "mean" => histogram.mean,
        "p50" => histogram.p50,
        "p90" => histogram.p90,
        "p99" => histogram.p99,
        "p99_9" => histogram.p99_9,
        "max" => histogram.max,
        _ => None,
    };
    value.map(|value| (value, "us"))
}

/// Whether a metric is a quantile by its name: `connect_us_p99`, `connect_us_p99_9`, `rtt_us_max`.
pub(crate) fn is_quantile(metric: &str) -> bool {
    let of = |word: &str| {
        let digits = word.strip_prefix('p').unwrap_or_default();
        let percent = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        percent || matches!(word, "min" | "median" | "max")
    };
    let tail = metric.trim_end_matches("_9").rsplit('_').next();
    tail.is_some_and(of)
}

/// The unit in the name of a metric.
pub(crate) fn unit_of(metric: &str) -> &'static str {
    match metric {
        m if m.contains("_us_per_s") => "us/s",
        m if m.ends_with("bytes_per_s") => "bytes/s",
        m if m.ends_with("_per_s") => "1/s",
        m if m.contains("_us") => "us",
        m if m.ends_with("_bytes") => "bytes",
        _ => "",
    }
}

/// A metric in words: `mean connect latency`, `connections per second`.
pub(crate) fn metric_name(metric: &str) -> String {
    match metric {
        "connect_us_mean" => "mean connect latency".to_owned(),
        "latency_us_mean" => "mean latency".to_owned(),
        "first_byte_us_mean" => "mean time to first byte".to_owned(),
        "client_cpu_us_per_op" => "client CPU per operation".to_owned(),
        "server_cpu_us_per_op" => "server CPU per operation".to_owned(),
        "rtt_us" => "round trip (ICMP echo)".to_owned(),
        "rate_resolution_per_s" => "resolution of the rate".to_owned(),
        "waited_share" => "share that waited for a retransmitted SYN".to_owned(),
        "machine_cpu_us_per_s_per_1000_sockets" => "machine CPU per 1,000 sockets".to_owned(),
        "client_fleet_cpu_us_per_s_per_1000_sockets" => "client CPU per 1,000 sockets".to_owned(),
        "server_fleet_cpu_us_per_s_per_1000_sockets" => "server CPU per 1,000 sockets".to_owned(),
        "checking_packets_per_hour_per_socket" => "packets per hour and socket".to_owned(),
        "checking_bytes_per_hour_per_socket" => "bytes per hour and socket".to_owned(),
        other => other
            .trim_end_matches("_bytes_per_s")
            .trim_end_matches("_us")
            .replace("_us_", " ")
            .replace("_per_s", " per second")
            .replace('_', " "),
    }
}

/// The first letter as a capital.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    first + letters.as_str()
}

/// The place in a few words each: kind, link asked and measured, lateness, congestion control, CPUs.
pub(crate) fn place(summary: &Summary) -> Vec<String> {
    let mut words = vec![match (summary.place.kind, &summary.place.target) {
        (PlaceKind::Lab, _) => "lab".to_owned(),
        (PlaceKind::Target, Some(target)) => format!("target {target}"),
        (PlaceKind::Target, None) => "target".to_owned(),
    }];
    words.extend(links(summary));
    let worst = |all: &mut dyn Iterator<Item = f64>| all.reduce(f64::max);
    let link_late = worst(
        &mut summary.arms.iter().filter_map(|arm| arm.link.as_ref()?.lateness_us.as_ref()?.p99),
    );
    let client_late =
        worst(&mut summary.arms.iter().filter_map(|arm| arm.histograms.get("lateness_us")?.p99));
    if let Some(us) = link_late {
        words.push(format!("link late p99 {}", number::time(us)));
    }
    if let Some(us) = client_late {
        words.push(format!("client late p99 {}", number::time(us)));
    }
    words.extend(summary.passport.congestion_control.clone());
    words.push(plural(u64::from(summary.passport.cpus), "CPU"));
    words.extend(requests::servers(summary));
    words.extend(requests::engines(summary));
    words
}

/// Which of several addresses of a name the run used, one line a name.
pub(crate) fn addresses(summary: &Summary) -> Vec<String> {
    let several = summary.resolved.iter().filter(|entry| entry.addresses.len() > 1);
    several
        .map(|Resolved { name, addresses, used }| {
            format!("{name} is {used} (1 of {} addresses)", addresses.len())
        })
        .collect()
}

/// The links of all arms in one or two phrases.
fn links(summary: &Summary) -> Vec<String> {
    let links: Vec<&LinkMeasured> =
        summary.arms.iter().filter_map(|arm| arm.link.as_ref()).collect();
    let Some(first) = links.first() else {
        return summary
            .place
            .link
            .iter()
            .map(|l| format!("rtt {} asked", number::time(l.rtt_us)))
            .collect();
    };
    if links.iter().all(|link| link.asked == first.asked && link.kind == first.kind) {
        return vec![link_words(first, links.iter().filter_map(|l| measured_rtt(l)))];
    }
    let rtts: Vec<f64> = links.iter().filter_map(|link| measured_rtt(link)).collect();
    let least = rtts.iter().copied().reduce(f64::min);
    let most = rtts.iter().copied().reduce(f64::max);
    let range = least.zip(most).map(|(least, most)| {
        format!(", rtt {} to {} measured", number::time(least), number::time(most))
    });
    vec![format!("links differ by arm{}", range.unwrap_or_default())]
}

/// One link asked and measured: `rtt 37.0 ms asked, 37.02 ms measured`, or `37.02 to 37.61 ms
/// measured` where it was measured more than once.
fn link_words(link: &LinkMeasured, rtts: impl Iterator<Item = f64>) -> String {
    let rtts: Vec<f64> = rtts.collect();
    let words = |time: fn(f64) -> String| {
        let least = time(rtts.iter().copied().reduce(f64::min)?);
        let most = time(rtts.iter().copied().reduce(f64::max)?);
        if least == most {
            return Some(least);
        }
        // The unit once, where both have the same.
        let unit = most.split_once(' ').map_or("", |(_, unit)| unit);
        let least = least.strip_suffix(unit).map_or(&*least, str::trim_end);
        Some(format!("{least} to {most}"))
    };
    let emulated = matches!(link.kind, LinkKind::EmulatedTun | LinkKind::EmulatedPacket);
    let measured = words(if emulated { number::exact_time } else { number::time });
    match (emulated, measured) {
        (true, Some(measured)) => {
            format!("rtt {} asked, {measured} measured", number::time(link.asked.rtt_us))
        }
        (true, None) => format!("rtt {} asked, not measured", number::time(link.asked.rtt_us)),
        (false, Some(measured)) => format!("{}, rtt {measured} measured", link_kind(link.kind)),
        (false, None) => link_kind(link.kind).to_owned(),
    }
}

/// What carried the packets, in words.
pub(crate) fn link_kind(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Direct => "direct link (veth)",
        LinkKind::Loopback => "loopback",
        LinkKind::EmulatedTun => "emulated link (TUN)",
        LinkKind::EmulatedPacket => "emulated link (AF_PACKET)",
        LinkKind::Network => "the network as it is",
    }
}

/// Median round trip of a link before the run, µs.
pub(crate) fn measured_rtt(link: &LinkMeasured) -> Option<f64> {
    link.rtt_us.as_ref().and_then(middle)
}

/// `1 CPU`, `2 CPUs`.
pub(crate) fn plural(n: u64, word: &str) -> String {
    format!("{} {word}{}", number::count(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_of_one_link_are_both_shown() {
        let over = |p50| {
            let link = serde_json::json!({
                "kind": "emulated-tun",
                "asked": {"spec": "cross-region", "rtt_us": 37_000.0, "jitter_us": 0.0, "loss": 0.0},
                "rtt_us": {"count": 100, "p50": p50},
                "unwanted_drops": 0,
            });
            Arm { link: serde_json::from_value(link).unwrap(), ..Arm::default() }
        };
        let mut summary = Summary { arms: vec![over(37_020.0)], ..Summary::default() };
        assert_eq!(links(&summary), ["rtt 37.0 ms asked, 37.02 ms measured"]);
        summary.arms.push(over(37_610.0));
        assert_eq!(links(&summary), ["rtt 37.0 ms asked, 37.02 to 37.61 ms measured"]);
    }

    #[test]
    fn a_rate_that_its_edges_can_change_by_more_than_2_percent_says_by_how_much() {
        let metric = |value| tcptoll_model::record::Metric {
            value,
            unit: "1/s".to_owned(),
            ci95: None,
            median: None,
            n: 10,
        };
        let with = |resolution| Arm {
            metrics: [
                ("connections_per_s".to_owned(), metric(100.0)),
                ("rate_resolution_per_s".to_owned(), metric(resolution)),
            ]
            .into(),
            ..Arm::default()
        };
        let text = |arm: &Arm| rate(arm, "connections_per_s");
        assert_eq!(text(&with(2.0)).as_deref(), Some("100"));
        assert_eq!(text(&with(3.3)).as_deref(), Some("100 ± 3.30"));
        let rounds = vec![tcptoll_model::record::Round::default()];
        assert_eq!(text(&Arm { rounds, ..with(3.3) }).as_deref(), Some("100"));
        assert_eq!(text(&Arm::default()), None);
    }

    #[test]
    fn a_published_standard_deviation_has_ours_of_rounds_beside_it() {
        let round = |value: f64, left_out: Option<&str>| tcptoll_model::record::Round {
            metrics: [("requests_per_s".to_owned(), value)].into(),
            left_out: left_out.map(str::to_owned),
            ..tcptoll_model::record::Round::default()
        };
        // Of 15,800, 16,200 and 16,600 the standard deviation is 400; the round left out is not in it.
        let rounds = [(15_800.0, None), (16_200.0, None), (9.0, Some("late")), (16_600.0, None)];
        let arm = Arm { rounds: rounds.map(|(v, l)| round(v, l)).to_vec(), ..Arm::default() };
        let sd = sd_of_rounds(Some(&arm), "requests_per_s");
        assert_eq!(sd, Some(400.0));
        assert_eq!(with_sd(16_200.0, sd, "1/s"), "16,200 ± 400 /s");
        assert_eq!(with_sd(1_500.0, Some(20.0), "us"), "1.50 ms ± 20.0 µs");
        assert_eq!(with_sd(13_577.0, None, "1/s"), "13,577 /s");
        assert_eq!(sd_of_rounds(None, "requests_per_s"), None);
    }

    #[test]
    fn a_quantile_is_known_by_its_name() {
        let quantiles = ["connect_us_p99", "connect_us_p99_9", "latency_us_max"];
        assert!(quantiles.iter().all(|metric| is_quantile(metric)));
        let others = ["connect_us_mean", "connections_per_s", "steps_p", "rtt_us", ""];
        assert!(others.iter().all(|metric| !is_quantile(metric)));
    }
}
