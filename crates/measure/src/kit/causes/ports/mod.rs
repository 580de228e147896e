//! Causes that lie in the client's local ports: they ran out, or the search for a free one was long.
//!
//! What to change is in `fixes`: it is worked out of the run, with the arms that prove it.

mod fixes;

use std::collections::BTreeMap;

use serde_json::Value;

use tcptoll_core::experiment::spec::{CauseSpec, Finding, Remedy};
use tcptoll_core::record::{Arm, PortUse};
use tcptoll_core::units::{human_count, human_us};

/// The client ran out of local ports.
pub(crate) const LOCAL_PORTS_SCARCE: CauseSpec = CauseSpec {
    id: SCARCE,
    test: local_ports_scarce,
    remedy: Remedy::Computed(|summary| fixes::advice(summary, SCARCE)),
};

/// The kernel searched long for a free local port.
pub(crate) const PORTS_SEARCH_SLOW: CauseSpec = CauseSpec {
    id: SEARCH,
    test: ports_search_slow,
    remedy: Remedy::Computed(|summary| fixes::advice(summary, SEARCH)),
};

const SCARCE: &str = "local-ports-scarce";
const SEARCH: &str = "ports-search-slow";

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
    let mut evidence = BTreeMap::from([
        (NO_PORT.to_owned(), Value::from(refused)),
        (name.to_owned(), Value::from(waiting)),
    ]);
    let half_closed =
        arm.metrics.get("client_fin_wait_2").map(|sockets| sockets.value.round() as u64);
    let mut text = format!(
        "The client found no free local port {} times, and {} ports were in TIME-WAIT",
        human_count(refused),
        human_count(waiting)
    );
    if let Some(half_closed) = half_closed {
        evidence.insert("client_fin_wait_2".into(), half_closed.into());
        text += &format!(
            " and {} in FIN-WAIT-2, because the server has not closed its ends",
            human_count(half_closed)
        );
    }
    if let Some(ports) = &arm.ports {
        evidence.insert("usable_ports".into(), ports.usable.into());
        evidence.insert("connections_at_once".into(), ports.at_once.into());
        evidence.insert("held_s".into(), ports.held_s.into());
        text += &format!(
            ". The ports allow {} concurrent connections, {} per source address",
            human_count(ports.at_once),
            human_count(ports.usable)
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
                human_count(per_s as u64)
            );
        }
    }
    if let Some(after_s) = arm.own.port_use.as_ref().and_then(|used| used.lasts_expected_s) {
        evidence.insert("lasts_expected_s".into(), after_s.into());
        text += &format!(". At this rate the ports were expected to last {after_s:.1} s");
    }
    Some(Finding { text: text + ".", evidence })
}

/// A step in the cost of connecting, or a cost that only a search explains where the whole run was
/// beyond the expected step.
fn ports_search_slow(arm: &Arm) -> Option<Finding> {
    let used = arm.own.port_use.as_deref()?;
    let mut evidence = BTreeMap::from([
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
            human_us(cliff.above_us),
            human_count(cliff.at_ports.round() as u64),
            times(cliff.factor()),
            human_us(cliff.below_us)
        );
        if let Some(tried) = first_pass(arm, used) {
            text += &format!(
                ". Each call first tries {} ports that are all taken",
                human_count(tried.round() as u64)
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
            human_us(mean),
            human_count(fewest as u64),
            human_count(tried.round() as u64)
        )
    };
    Some(Finding { text: text + ".", evidence })
}

/// A factor in words: whole from ten on.
fn times(factor: f64) -> String {
    if factor < 10.0 { format!("{factor:.1}") } else { human_count(factor.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::record::{Cliff, Metric, PortPoint};
    use tcptoll_core::tcp::ports::PortForecast;

    pub(super) fn arm(name: &str, used: PortUse) -> Arm {
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

    pub(super) fn metric(value: f64) -> Metric {
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
}
