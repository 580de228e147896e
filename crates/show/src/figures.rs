//! What does a report say of an arm, whatever it looks like? Picks and derives figures; both the
//! terminal and the HTML report show these, so they cannot disagree.

use std::collections::BTreeSet;

use tcptoll_core::experiment::figures::{LATENESS, RESOLUTION_SHOWN, RTT};
use tcptoll_core::record::{Arm, LinkKind, LinkMeasured, Passport, Path, PlaceKind, Resolved};
use tcptoll_core::stats::HistogramSummary;

pub use tcptoll_core::units::plural;

use crate::number;
use crate::run::Run;

/// The distribution that carries the answer.
#[derive(Clone, Debug)]
pub(crate) struct Primary {
    /// Key in `histograms` and in `series`.
    pub key: String,
    /// What it is: `connect latency`.
    pub name: String,
}

/// The distributions that may carry the answer of a run.
pub fn answers(summary: &Run) -> Vec<&str> {
    if let Some(spec) = summary.spec() {
        return spec.answers.to_vec();
    }
    let keys = summary.arms.iter().flat_map(|arm| arm.histograms.keys()).map(String::as_str);
    keys.filter(|key| ![RTT.name, LATENESS.name].contains(key)).collect()
}

/// The distribution that carries the answer: the first that the run has of those that may. Of an
/// experiment that this build does not know, the first that was recorded.
pub(crate) fn primary(summary: &Run) -> Primary {
    let has = |key: &&&str| summary.arms.iter().any(|arm| arm.histograms.contains_key(**key));
    let answers = answers(summary);
    let key = answers.iter().find(has).or(answers.first());
    let key = key.map(|key| (*key).to_owned()).unwrap_or_default();
    Primary { name: summary.specs.words_of_histogram(&key), key }
}

/// p50, p99, p99.9 and maximum of a histogram of an arm.
pub fn quantiles(arm: &Arm, key: &str) -> [Option<f64>; 4] {
    match arm.histograms.get(key) {
        Some(h) => [h.p50, h.p99, h.p99_9, h.max],
        None => [None; 4],
    }
}

/// A rate with its resolution, where that is above 2 % of the rate: `97.9`, `27.3 ± 3.1`. A rate below
/// its resolution is only known not to be above both together: `≤ 53.6`. The resolution is what the
/// edges of the load may add or hide; over rounds there is an interval instead.
pub fn rate(arm: &Arm, key: &str) -> Option<String> {
    let rate = arm.metrics.get(key)?;
    let text = number::three(rate.value);
    let resolution = arm.metrics.get("rate_resolution_per_s").map_or(0.0, |m| m.value);
    if !arm.rounds.is_empty() || resolution <= RESOLUTION_SHOWN * rate.value {
        return Some(text);
    }
    Some(if resolution < rate.value {
        format!("{text} ± {}", number::three(resolution))
    } else {
        format!("≤ {}", number::three(rate.value + resolution))
    })
}

/// A middle of the distribution to compare arms by: the median, else the mean.
pub fn middle(histogram: &HistogramSummary) -> Option<f64> {
    histogram.p50.or(histogram.mean)
}

/// A metric of an arm by name, or a quantile of a histogram as `connect_us_p99`, with its unit.
pub(crate) fn value_of<'a>(arm: &'a Arm, metric: &str) -> Option<(f64, &'a str)> {
    if let Some(found) = arm.metrics.get(metric) {
        return Some((found.value, &found.unit));
    }
    let (key, histogram) = arm.histograms.iter().find(|(key, _)| {
        metric.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('_'))
    })?;
    let name = &metric[key.len() + 1..];
    let (_, value) = of_distribution(histogram).into_iter().find(|(known, _)| *known == name)?;
    value.map(|value| (value, "us"))
}

/// The figures of a distribution, by the endings of their names in metrics: `p50`, `max`.
pub(crate) fn of_distribution(h: &HistogramSummary) -> [(&'static str, Option<f64>); 7] {
    [
        ("min", h.min),
        ("mean", h.mean),
        ("p50", h.p50),
        ("p90", h.p90),
        ("p99", h.p99),
        ("p99_9", h.p99_9),
        ("max", h.max),
    ]
}

/// Whether a metric is a quantile by its name: `connect_us_p99`, `connect_us_p99_9`, `rtt_us_max`.
pub(crate) fn is_quantile(metric: &str) -> bool {
    let is_figure = |word: &str| {
        let digits = word.strip_prefix('p').unwrap_or_default();
        let percent = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        percent || matches!(word, "min" | "median" | "max")
    };
    let tail = metric.trim_end_matches("_9").rsplit('_').next();
    tail.is_some_and(is_figure)
}

/// The place in a few words each: kind, link asked and measured, lateness, congestion control, CPUs.
pub fn place(summary: &Run) -> Vec<String> {
    let mut words: Vec<String> = vantage_points(summary).into_iter().collect();
    words.extend(match (summary.place.kind, &summary.place.target) {
        (PlaceKind::Lab, _) => vec!["lab".to_owned()],
        (PlaceKind::Remote, _) => paths(summary),
        (PlaceKind::Target, Some(target)) => vec![format!("target {target}")],
        (PlaceKind::Target, None) => vec!["several targets".to_owned()],
    });
    words.extend(links(summary));
    let worst = |all: &mut dyn Iterator<Item = f64>| all.reduce(f64::max);
    let link_late = worst(
        &mut summary.arms.iter().filter_map(|arm| arm.link.as_ref()?.lateness_us.as_ref()?.p99),
    );
    let client_late =
        worst(&mut summary.arms.iter().filter_map(|arm| arm.histograms.get("lateness_us")?.p99));
    // A warning has it already, with what to do.
    let warned = |id: &str| summary.warnings.iter().any(|warning| warning.id == id);
    if let Some(us) = link_late.filter(|_| !warned("link-late")) {
        words.push(format!("link late p99 {}", number::time(us)));
    }
    if let Some(us) = client_late.filter(|_| !warned("generator-late")) {
        words.push(format!("client late p99 {}", number::time(us)));
    }
    let (client, server) = machines(summary);
    words.extend(congestion(summary).or_else(|| client.congestion_control.clone()));
    // Of a merged record each point has its own.
    words.extend((summary.points.is_none()).then(|| match server {
        Some(server) => format!("{} and {} CPUs", client.cpus, server.cpus),
        None => plural(u64::from(client.cpus), "CPU"),
    }));
    words.extend(servers(summary));
    words.extend(engines(summary));
    words
}

/// The congestion control in effect, as the sockets told it.
fn congestion(summary: &Run) -> Option<String> {
    let name = |arm: &Arm| {
        let of_transfer = arm.own.transfer.as_ref().map(|all| all.client.congestion.clone());
        of_transfer.or_else(|| arm.client.tcp_info.as_ref()?.congestion.clone())
    };
    let names: BTreeSet<String> =
        summary.arms.iter().filter_map(name).filter(|name| !name.is_empty()).collect();
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(", "))
}

/// The point's name, or how many points there are, for the line of the place.
fn vantage_points(summary: &Run) -> Option<String> {
    let Some(points) = &summary.points else {
        return Some(format!("vantage point {}", summary.vantage.as_ref()?));
    };
    let with = points.points.len();
    let missing = points.missing.len();
    let words = plural(with as u64, "vantage point");
    Some(if missing == 0 { words } else { format!("{words} of {}", with + missing) })
}

/// Between which hosts of the user's, over what, and how well their clocks compare; each once.
pub fn paths(summary: &Run) -> Vec<String> {
    let paths: Vec<&Path> = summary.arms.iter().filter_map(|arm| arm.path.as_deref()).collect();
    let between = |path: &&Path| {
        let [client, server] = &path.hosts;
        format!("{client} → {server} ({})", path.server_address)
    };
    let hosts: Vec<String> = paths.iter().map(between).collect();
    let mut words = distinct(hosts.iter().map(String::as_str));
    let Some(first) = paths.first() else { return words };
    if let Some(us) = first.round_trip_us.as_ref().and_then(|all| all.p50) {
        words.push(format!("round trip {} over UDP", number::time(us)));
    }
    if let Some(route) = &first.route {
        let gateway = route.gateway.as_ref().map(|via| format!(" via {via}"));
        let mtu = route.mtu_bytes.map(|bytes| format!(", MTU {bytes}"));
        let (gateway, mtu) = (gateway.unwrap_or_default(), mtu.unwrap_or_default());
        words.push(format!("{}{gateway}{mtu}", route.device));
    }
    let bounds = paths.iter().filter_map(|path| path.clock_bound_us);
    if let Some(us) = bounds.reduce(f64::max) {
        words.push(format!("clocks within {}", number::time(us)));
    }
    words
}

/// The client's machine, and the server's where it is another one.
pub fn machines(summary: &Run) -> (&Passport, Option<&Passport>) {
    let hosts = summary.arms.iter().map(|arm| (&arm.client, arm.server.as_ref()));
    let client = hosts.clone().find_map(|(client, _)| client.passport.as_deref());
    let server = hosts.filter_map(|(_, server)| server).find_map(|host| host.passport.as_deref());
    (client.unwrap_or(&summary.passport), server)
}

/// Versions of the servers, each once.
pub fn servers(summary: &Run) -> Vec<String> {
    distinct(summary.arms.iter().filter_map(|arm| arm.server.as_ref()?.version.as_deref()))
}

/// What the load engine waited with, each once.
pub(crate) fn engines(summary: &Run) -> Vec<String> {
    distinct(summary.arms.iter().filter_map(|arm| arm.io.as_deref()))
}

fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in words.filter(|word| !word.is_empty()) {
        if !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
    found
}

/// Which of several addresses of a name the run used, one line a name.
pub fn addresses(summary: &Run) -> Vec<String> {
    let several = summary.resolved.iter().filter(|entry| entry.addresses.len() > 1);
    several
        .map(|Resolved { name, addresses, used }| {
            format!("{name} is {used} (1 of {} addresses)", addresses.len())
        })
        .collect()
}

/// The links of all arms in one or two phrases.
fn links(summary: &Run) -> Vec<String> {
    let links: Vec<&LinkMeasured> =
        summary.arms.iter().filter_map(|arm| arm.link.as_ref()).collect();
    let Some(first) = links.first() else {
        return summary
            .place
            .link
            .iter()
            .filter(|link| link.rtt_us > 0.0)
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
        Some(number::range(&least, &most))
    };
    let emulated = matches!(link.kind, LinkKind::EmulatedTun | LinkKind::EmulatedPacket);
    let measured = words(if emulated { number::exact_time } else { number::time });
    match (emulated, measured) {
        (true, Some(measured)) => {
            format!("rtt {} asked, {measured} measured", number::time(link.asked.rtt_us))
        }
        (true, None) => format!("rtt {} asked, not measured", number::time(link.asked.rtt_us)),
        (false, Some(measured)) => format!("{}, ICMP echo {measured}", link_kind(link.kind)),
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
        LinkKind::Network => "network, not emulated",
    }
}

/// Median round trip of a link before the run, µs.
pub(crate) fn measured_rtt(link: &LinkMeasured) -> Option<f64> {
    link.rtt_us.as_ref().and_then(middle)
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::Summary;

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
        let summary = Summary { arms: vec![over(37_020.0)], ..Summary::default() };
        let mut summary = Run::from(summary);
        assert_eq!(links(&summary), ["rtt 37.0 ms asked, 37.02 ms measured"]);
        summary.summary.arms.push(over(37_610.0));
        assert_eq!(links(&summary), ["rtt 37.0 ms asked, 37.02 to 37.61 ms measured"]);
    }

    #[test]
    fn a_rate_that_its_edges_can_change_by_more_than_2_percent_says_by_how_much() {
        let metric = |value| tcptoll_core::record::Metric {
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
        assert_eq!(text(&with(150.0)).as_deref(), Some("≤ 250"));
        let rounds = vec![tcptoll_core::record::Round::default()];
        assert_eq!(text(&Arm { rounds, ..with(3.3) }).as_deref(), Some("100"));
        assert_eq!(text(&Arm::default()), None);
    }

    #[test]
    fn a_quantile_is_known_by_its_name() {
        let quantiles = ["connect_us_p99", "connect_us_p99_9", "latency_us_max"];
        assert!(quantiles.iter().all(|metric| is_quantile(metric)));
        let others = ["connect_us_mean", "connections_per_s", "steps_p", "rtt_us", ""];
        assert!(others.iter().all(|metric| !is_quantile(metric)));
    }
}
