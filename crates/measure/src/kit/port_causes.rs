//! Causes that lie in the client's local ports: they ran out, or the search for a free one was long.
//!
//! What to change is worked out of the run, with the arms that prove it.

use serde_json::Value;
use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::{Evidence, Finding, Remedy};
use tcptoll_core::number;
use tcptoll_core::record::{Arm, PortUse, Summary};
use tcptoll_core::study::level_text;

use super::conclusion::{is_ill, proven};

/// The client ran out of local ports.
pub(crate) const LOCAL_PORTS_SCARCE: CauseSpec =
    CauseSpec::new(SCARCE, local_ports_scarce).remedied(|summary| remedies(summary, SCARCE));

/// The kernel searched long for a free local port; where there is none in the end, that is the same lack.
pub(crate) const PORTS_SEARCH_SLOW: CauseSpec = CauseSpec::new(SEARCH, ports_search_slow)
    .following(&[SCARCE])
    .remedied(|summary| remedies(summary, SEARCH));

const SCARCE: &str = "local-ports-scarce";
pub(crate) const SEARCH: &str = "ports-search-slow";

/// Error class of calls that found no local port.
const NO_PORT: &str = "local-ports";

/// Mean CPU time of `bind(2)` and `connect(2)`, µs.
const CONNECT_CPU: &str = "connect_cpu_us_mean";

/// A call without a search takes 5 to 20 µs of CPU (Linux 6.18); this much needs an explanation.
const SLOW_US: f64 = 50.0;

/// A search of the kernel takes at least this per port that it tries, µs: a lookup in two hash
/// tables. Measured on Linux 6.18: 0.04 to 0.1 µs.
const TRY_US_MIN: f64 = 0.01;

/// Ports that the first pass of the kernel's search tries, for one source address.
fn first_pass(arm: &Arm, used: &PortUse) -> Option<f64> {
    let sources = arm.ports.as_ref().map_or(1, |ports| ports.sources.max(1));
    used.cliff_expected.map(|all| all / sources as f64)
}

fn local_ports_scarce(arm: &Arm) -> Option<Finding> {
    let refused = arm.errors.get(NO_PORT).copied().filter(|&count| count > 0)?;
    // Those of this destination, where they were counted apart; the host's own are all there are in
    // the lab.
    let counted = arm.metrics.get("client_time_wait").map(|sockets| sockets.value.round() as u64);
    let of_host = || arm.client.sockstat.get("TCP_tw").copied().unwrap_or(0);
    let waiting = counted.unwrap_or_else(of_host);
    let name = if counted.is_some() { "client_time_wait" } else { "TCP_tw" };
    let mut evidence = Evidence::from([
        (NO_PORT.to_owned(), Value::from(refused)),
        (name.to_owned(), Value::from(waiting)),
    ]);
    let half_closed =
        arm.metrics.get("client_fin_wait_2").map(|sockets| sockets.value.round() as u64);
    let mut text = format!(
        "The client found no free local port {} times, and {} ports were in TIME-WAIT",
        number::count(refused),
        number::count(waiting)
    );
    if let Some(half_closed) = half_closed {
        evidence.insert("client_fin_wait_2".into(), half_closed.into());
        text += &format!(
            " and {} in FIN-WAIT-2, because the server has not closed its ends",
            number::count(half_closed)
        );
    }
    if let Some(ports) = &arm.ports {
        evidence.insert("usable_ports".into(), ports.usable.into());
        evidence.insert("connections_at_once".into(), ports.at_once.into());
        evidence.insert("held_s".into(), ports.held_s.into());
        text += &format!(
            ". The ports allow {} concurrent connections, {} per source address",
            number::count(ports.at_once),
            number::count(ports.usable)
        );
        if let Some(per_s) = ports.sustained_per_s {
            evidence.insert("sustained_per_s".into(), per_s.into());
            let held_s = match ports.fin_wait_2_s {
                Some(_) => format!("on average at least {:.1}", ports.held_s),
                None => format!("{:.0}", ports.held_s),
            };
            text += &format!(
                ". A closed connection holds its port for {held_s} s, so at most {} connections per \
                 second are sustainable",
                number::count(per_s as u64)
            );
        }
    }
    if let Some(after_s) = arm.own.port_use.as_ref().and_then(|used| used.lasts_expected_s) {
        evidence.insert("lasts_expected_s".into(), after_s.into());
        text += &format!(". At this rate the ports were expected to last {after_s:.1} s");
    }
    Some(Finding::new(text + ".", evidence))
}

/// A step in the cost of connecting, or a cost that only a search explains where the whole run was
/// beyond the expected step.
fn ports_search_slow(arm: &Arm) -> Option<Finding> {
    let used = arm.own.port_use.as_deref()?;
    let mut evidence = Evidence::from([
        ("held_ports".to_owned(), Value::from(used.held_ports)),
        ("client_time_wait".to_owned(), Value::from(used.client_time_wait)),
    ]);
    if let Some(expected) = used.cliff_expected {
        evidence.insert("cliff_expected_ports".into(), expected.into());
    }
    let text = if let Some(cliff) = used.cliff {
        evidence.insert("cliff_ports".into(), cliff.at_ports.into());
        evidence.insert("connect_cpu_us_below".into(), cliff.below_us.into());
        evidence.insert("connect_cpu_us_above".into(), cliff.above_us.into());
        evidence.insert("cliff_factor".into(), cliff.factor().into());
        let mut text = format!(
            "connect(2) takes {} of CPU beyond {} ports in use, {} times the {} below that",
            number::time(cliff.above_us),
            number::count(cliff.at_ports.round() as u64),
            number::three(cliff.factor()),
            number::time(cliff.below_us)
        );
        if let Some(tried) = first_pass(arm, used) {
            text += &format!(
                ". Each call first tries {} ports that are all taken",
                number::count(tried.round() as u64)
            );
        }
        text
    } else {
        let (expected, tried) = (used.cliff_expected?, first_pass(arm, used)?);
        let fewest = used.curve.iter().find(|point| point.connections > 0)?.ports;
        let mean = arm.metrics.get(CONNECT_CPU)?.value;
        if fewest < expected || mean < SLOW_US || mean < tried * TRY_US_MIN {
            return None;
        }
        evidence.insert(CONNECT_CPU.into(), mean.into());
        format!(
            "connect(2) takes {} of CPU with {} ports or more in use. Each call first tries {} ports \
             that are all taken",
            number::time(mean),
            number::count(fewest as u64),
            number::count(tried.round() as u64)
        )
    };
    Some(Finding::new(text + ".", evidence))
}

/// Options that decide how many ports there are, or which end keeps them.
const OPTIONS: [&str; 10] = [
    "bind",
    "bind-no-port",
    "client-sysctl",
    "close",
    "held",
    "max-tw-buckets",
    "port-range",
    "reuse",
    "sources",
    "tw-reuse",
];

/// Share of client CPU that was idle.
const IDLE: &str = "client_idle_share";

/// From this difference of the idle share on, it is worth a clause.
const IDLE_MIN: f64 = 0.05;

/// Remedies by their names in `docs/causes.md`, the one with the least to lose first.
const ALL: [&str; 7] =
    ["long-lived", "sources", "wider-range", "tw-reuse", "server-closes", "late-port", "buckets"];

/// The one change that makes this arm differ from another: the name of a remedy.
///
/// None: they differ in none, or in several.
fn between(ill: &Arm, well: &Arm) -> Option<&'static str> {
    let text = |arm: &Arm, option: &str| match option {
        "reuse" => arm.reuse.clone().or_else(|| arm.factors.get(option).map(level_text)),
        _ => arm.factors.get(option).map(level_text),
    };
    let changed = |option: &&&str| text(ill, option) != text(well, option);
    // How many ports are held before the measurement follows from the change.
    let mut found = OPTIONS.iter().filter(|option| **option != "held").filter(changed);
    let (option, None) = (*found.next()?, found.next()) else { return None };
    let to = text(well, option).unwrap_or_default();
    Some(match option {
        "close" if to == "never" => "long-lived",
        "reuse" if to.starts_with("keep-alive") => "long-lived",
        "close" if to == "server" => "server-closes",
        "reuse" if to == "server-close" => "server-closes",
        "sources" | "bind" => "sources",
        "port-range" => "wider-range",
        "tw-reuse" => "tw-reuse",
        "client-sysctl" if to.contains("ip_local_port_range") => "wider-range",
        "client-sysctl" if to.contains("tcp_tw_reuse") => "tw-reuse",
        "bind-no-port" => "late-port",
        "max-tw-buckets" => "buckets",
        _ => return None,
    })
}

/// A remedy with the levels of the arm that proves it.
fn as_in(name: &str, well: &Arm) -> Remedy {
    let remedy = Remedy::named(if name == "late-port" { SEARCH } else { SCARCE }, name);
    let level = |option: &str| well.factors.get(option).map(level_text);
    match name {
        "sources" => match level("sources") {
            Some(sources) => remedy.with("several", sources),
            None => remedy,
        },
        "wider-range" => match level("port-range") {
            Some(range) => remedy.with("1024 65535", range.replace('-', " ")),
            None => remedy,
        },
        _ => remedy,
    }
}

/// What to change: every change that an arm of the run proves, or else the first.
fn remedies(summary: &Summary, cause: &str) -> Vec<Remedy> {
    let ill = || summary.arms.iter().filter(|arm| is_ill(summary, arm, cause));
    let of_run = ALL.into_iter().filter_map(|name| {
        ill().find_map(|ill| {
            let well = proven(summary, ill, &OPTIONS, |well| {
                !is_ill(summary, well, cause) && is_well(well) && between(ill, well) == Some(name)
            })?;
            Some(as_in(name, well).proven(Some(proof(summary, cause, ill, well))))
        })
    });
    let of_run: Vec<Remedy> = of_run.collect();
    if of_run.is_empty() { Remedy::first_of(SCARCE).into_iter().collect() } else { of_run }
}

/// Whether the arm shows that a change works.
fn is_well(arm: &Arm) -> bool {
    arm.failure.is_none() && arm.ok > 0 && arm.ok == arm.attempts
}

/// What the run measured with the change.
fn proof(summary: &Summary, cause: &str, ill: &Arm, well: &Arm) -> String {
    let value = |arm: &Arm, metric: &str| arm.metrics.get(metric).map(|metric| metric.value);
    let both = |metric| value(well, metric).zip(value(ill, metric));
    let mut parts = Vec::new();
    if cause == SCARCE {
        let refused = ill.errors.get(NO_PORT).copied().unwrap_or(0);
        let over = well.connections_ok.map(|n| format!(" over {} connections", number::count(n)));
        parts.push(format!(
            "all {} operations succeeded{}; in arm {}, {} of {} found no free port",
            number::count(well.ok),
            over.unwrap_or_default(),
            ill.name,
            number::count(refused),
            number::count(ill.attempts)
        ));
    } else if let Some((with, without)) = both(CONNECT_CPU) {
        parts.push(format!(
            "connect(2) takes {} of CPU, compared with {} in arm {}{}",
            number::time(with),
            number::time(without),
            ill.name,
            interval(summary, CONNECT_CPU, ill, well)
        ));
    }
    if let Some((with, without)) = both(IDLE).filter(|(with, without)| with - without >= IDLE_MIN) {
        parts.push(format!(
            "the client's CPU is idle for {} instead of {}",
            number::percent(with),
            number::percent(without)
        ));
    }
    format!("arm {}: {}", well.name, parts.join("; "))
}

/// The ratio of a metric with its interval, where the run has it: ` (0.0085×, 95 % CI 0.008–0.009)`.
fn interval(summary: &Summary, metric: &str, ill: &Arm, well: &Arm) -> String {
    let is_of_the_pair = |one: &&tcptoll_core::record::Comparison| {
        one.metric == metric && one.a == well.name && one.b == ill.name
    };
    let found = summary.comparisons.iter().find(is_of_the_pair);
    let with_interval = found.and_then(|one| one.ratio.zip(one.ci95));
    with_interval.map_or_else(String::new, |(ratio, ends)| {
        let [ratio, low, high] = number::ratio_within(ratio, ends);
        format!(" ({ratio}×, 95 % CI {low}–{high})")
    })
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::{Advice, Cliff, Comparison, Metric, PortPoint};
    use tcptoll_core::tcp::ports::PortForecast;

    use super::*;

    fn arm(name: &str, used: PortUse) -> Arm {
        let ports = PortForecast {
            usable: 28_232,
            sources: 1,
            destinations: 1,
            held_s: 60.0,
            fin_wait_2_s: None,
            at_once: 28_232,
            sustained_per_s: Some(470.5),
            text: String::new(),
        };
        let own = Box::new(used).into();
        Arm { name: name.into(), ports: Some(ports), own, attempts: 100, ok: 100, ..Arm::default() }
    }

    fn metric(value: f64) -> Metric {
        Metric { value, unit: "us".into(), ci95: None, median: None, n: 1 }
    }

    fn cliff() -> PortUse {
        PortUse {
            cliff_expected: Some(14_116.0),
            cliff: Some(Cliff { at_ports: 14_110.4, below_us: 7.0, above_us: 840.0 }),
            ..PortUse::default()
        }
    }

    /// An arm whose run began with this many ports in use, and what a call cost.
    fn held(ports: u64, mean_us: f64) -> Arm {
        let point = PortPoint { ports: ports as f64, connections: 10, ..PortPoint::default() };
        let mut arm = arm(
            "held",
            PortUse {
                held_ports: ports,
                curve: vec![point],
                cliff_expected: Some(14_116.0),
                ..PortUse::default()
            },
        );
        arm.metrics.insert(CONNECT_CPU.into(), metric(mean_us));
        arm
    }

    #[test]
    fn a_step_in_the_cost_is_a_slow_search_and_states_its_factor() {
        let found = ports_search_slow(&arm("a", cliff())).unwrap();
        assert_eq!(
            found.text,
            "connect(2) takes 840 µs of CPU beyond 14,110 ports in use, 120 times the 7.00 µs below \
             that. Each call first tries 14,116 ports that are all taken."
        );
        assert_eq!(found.evidence["cliff_factor"], 120.0);
    }

    #[test]
    fn a_run_beyond_the_step_is_a_slow_search_if_its_cost_is_one() {
        let found = ports_search_slow(&held(17_000, 845.0)).unwrap();
        assert!(found.text.contains("17,000 ports or more in use"), "{}", found.text);
        assert_eq!(ports_search_slow(&held(17_000, 9.0)), None, "it was not slow");
        assert_eq!(ports_search_slow(&held(14_000, 845.0)), None, "it began below the step");
        assert_eq!(ports_search_slow(&held(17_000, 60.0)), None, "too fast for 14,116 tries");
    }

    #[test]
    fn without_a_step_or_a_record_there_is_no_slow_search() {
        assert_eq!(ports_search_slow(&Arm::default()), None);
        assert_eq!(ports_search_slow(&arm("a", PortUse::default())), None);
    }

    #[test]
    fn ports_in_fin_wait_2_are_counted_beside_those_in_time_wait() {
        let mut short = arm("a", PortUse::default());
        short.errors.insert(NO_PORT.into(), 9_705);
        short.metrics.insert("client_time_wait".into(), metric(0.0));
        short.metrics.insert("client_fin_wait_2".into(), metric(1_000.0));
        let found = local_ports_scarce(&short).unwrap();
        assert!(
            found.text.contains(
                "9,705 times, and 0 ports were in TIME-WAIT and 1,000 in FIN-WAIT-2, because the \
                 server has not closed its ends."
            ),
            "{}",
            found.text
        );
        assert_eq!(found.evidence["client_fin_wait_2"], 1_000);
    }

    #[test]
    fn ports_that_ran_out_are_counted_and_the_forecast_is_stated() {
        let mut short = arm("a", PortUse { lasts_expected_s: Some(14.116), ..PortUse::default() });
        assert_eq!(local_ports_scarce(&short), None);
        short.errors.insert(NO_PORT.into(), 1_200);
        let found = local_ports_scarce(&short).unwrap();
        assert_eq!(
            found.text,
            "The client found no free local port 1,200 times, and 0 ports were in TIME-WAIT. The \
             ports allow 28,232 concurrent connections, 28,232 per source address. A closed \
             connection holds its port for 60 s, so at most 470 connections per second are \
             sustainable. At this rate the ports were expected to last 14.1 s."
        );
    }

    fn with(name: &str, factors: &[(&str, &str)], cpu_us: f64) -> Arm {
        let mut arm = arm(name, PortUse::default());
        let level = |(option, level): &(&str, &str)| ((*option).into(), Value::from(*level));
        arm.factors = factors.iter().map(level).collect();
        arm.metrics.insert(CONNECT_CPU.into(), metric(cpu_us));
        arm
    }

    fn slow(name: &str, factors: &[(&str, &str)]) -> Arm {
        let mut arm = with(name, factors, 840.0);
        let cliff = Some(Cliff { at_ports: 14_116.0, below_us: 7.0, above_us: 840.0 });
        arm.own = Box::new(PortUse { cliff, ..PortUse::default() }).into();
        arm
    }

    fn advised(arms: Vec<Arm>) -> Vec<Advice> {
        let causes = arms.iter().filter_map(|arm| PORTS_SEARCH_SLOW.explain(arm)).collect();
        let ci95 = Some([0.0081, 0.0087]);
        let (a, b) = ("two".to_owned(), "one".to_owned());
        let metric = CONNECT_CPU.to_owned();
        let comparisons =
            vec![Comparison { metric, a, b, ratio: Some(0.0084), ci95, ..Comparison::default() }];
        let summary = Summary { causes, arms, comparisons, ..Summary::default() };
        PORTS_SEARCH_SLOW.advice(&summary, None)
    }

    #[test]
    fn each_fix_is_advised_with_the_arm_that_proves_it() {
        let advice = advised(vec![
            slow("one", &[]),
            with("wide", &[("port-range", "1024-65535")], 7.2),
            with("two", &[("sources", "2")], 7.1),
            with("kept", &[("close", "never"), ("held", "0")], 8.0),
        ]);
        let changes: Vec<&str> = advice.iter().map(|one| one.change.as_str()).collect();
        assert_eq!(changes.len(), 3, "{changes:?}");
        assert!(changes[0].starts_with("Keep connections open"), "{changes:?}");
        assert!(changes[1].starts_with("Connect from 2 source addresses"), "{changes:?}");
        assert!(changes[2].contains("ip_local_port_range to 1024 65535."), "{changes:?}");
        assert_eq!(
            advice[1].proof.as_deref().unwrap(),
            "arm two: connect(2) takes 7.10 µs of CPU, compared with 840 µs in arm one \
             (0.0084×, 95 % CI 0.0081–0.0087)"
        );
    }

    #[test]
    fn an_arm_that_differs_in_more_proves_nothing() {
        let advice = advised(vec![
            slow("one", &[("rate", "2000")]),
            with("slower", &[("rate", "100"), ("sources", "2")], 7.0),
            with("both", &[("rate", "2000"), ("sources", "2"), ("port-range", "1-2")], 7.0),
            slow("still", &[("rate", "2000"), ("sources", "3")]),
        ]);
        assert!(advice.iter().all(|one| one.proof.is_none()), "{advice:?}");
        assert_eq!(advice.len(), 1);
    }

    #[test]
    fn an_arm_whose_ports_did_not_run_out_proves_it_for_those_that_did() {
        let mut ill = with("short", &[("reuse", "client-close")], 7.0);
        (ill.ok, ill.attempts) = (64, 100);
        ill.errors.insert(NO_PORT.into(), 36);
        let mut well = with("kept", &[("reuse", "keep-alive")], 7.0);
        well.connections_ok = Some(4);
        let mut failing = with("failing", &[("reuse", "server-close")], 7.0);
        failing.ok = 99;
        let mut summary = tcptoll_core::record::Summary::default();
        summary.causes.extend(LOCAL_PORTS_SCARCE.explain(&ill));
        summary.arms = vec![ill, well, failing];
        let advice = LOCAL_PORTS_SCARCE.advice(&summary, None);
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert_eq!(
            advice[0].proof.as_deref().unwrap(),
            "arm kept: all 100 operations succeeded over 4 connections; in arm short, 36 \
             of 100 found no free port"
        );
    }
}
