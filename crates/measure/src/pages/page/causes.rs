//! Causes that a run of page loads may name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    CONNECTIONS, CRITICAL_HANDSHAKE, CRITICAL_HANDSHAKES, HELD, NEXT_CONNECTIONS, REQUESTS,
};
use crate::kit::causes::queues::ACCEPT_QUEUE_FULL;
use crate::kit::conclusion::{differ_only_in, value};
use tcptoll_core::experiment::spec::{CauseSpec, Finding, Remedy};
use tcptoll_core::record::{Advice, Arm, Summary};
use tcptoll_core::units::human_us;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] =
    &[&ACCEPT_QUEUE_FULL, &CONNECTION_PER_RESOURCE, &NEXT_PAGE_RECONNECTS, &HEAD_OF_LINE];

/// The server closes after each response.
pub(super) const CONNECTION_PER_RESOURCE: CauseSpec = CauseSpec {
    id: "connection-per-resource",
    test: per_resource,
    remedy: Remedy::Setting {
        change: "Enable keep-alive on the server: `KeepAlive On` in Apache, `keepalive_timeout` \
                 above 0 in nginx",
        cost: "Until the keep-alive timeout, an idle connection occupies memory, and with Apache's \
               prefork or worker MPM also a process or thread",
        undo: "Set `KeepAlive Off` in Apache, `keepalive_timeout 0` in nginx",
    },
};

/// The second page finds its connections closed.
const NEXT_PAGE_RECONNECTS: CauseSpec = CauseSpec {
    id: "next-page-reconnects",
    test: reconnects,
    remedy: Remedy::Setting {
        change: "Make the server's keep-alive timeout longer than the visitors' think time between \
                 two pages: `KeepAliveTimeout` in Apache, `keepalive_timeout` in nginx",
        cost: "The server keeps idle connections longer",
        undo: "Restore the previous timeout",
    },
};

/// The name of [`HEAD_OF_LINE`].
const ID: &str = "page-head-of-line";

/// All requests share a connection, and their data waits for a lost segment of it.
const HEAD_OF_LINE: CauseSpec =
    CauseSpec { id: ID, test: held, remedy: Remedy::Computed(several_connections) };

/// Several connections, where the run did not compare them, or found them faster; else less loss.
fn several_connections(summary: &Summary) -> Vec<Advice> {
    let found = |arm: &&Arm| summary.causes.iter().any(|c| c.id == ID && c.arm == arm.name);
    let pair = summary.arms.iter().find(found).and_then(|one| {
        let same = |arm: &&Arm| !is_one_connection(arm) && differ_only_in(arm, one, &["protocol"]);
        Some((one, summary.arms.iter().find(same)?))
    });
    let mean = |arm: &Arm| value(arm, super::SPAN_MEAN.name);
    let times = pair.and_then(|(one, several)| Some((one, mean(one)?, several, mean(several)?)));
    let advice = |change: &str, cost: &str, undo: &str, proof| {
        let [cause, change, cost, undo] = [ID, change, cost, undo].map(str::to_owned);
        vec![Advice { cause, change, cost, undo, proof }]
    };
    let cost = "Each connection has a handshake and a congestion window of its own";
    let undo = "Use one HTTP/2 connection again";
    match times {
        None => advice(
            "Compare with HTTP/1.1 (--protocol http/1.1,h2), whose connections do not wait for each other",
            cost,
            undo,
            None,
        ),
        Some((one, of_one, several, of_several)) if of_several < of_one => {
            let proof = format!(
                "mean network span {} ({}), {} ({})",
                human_us(of_several),
                several.name,
                human_us(of_one),
                one.name
            );
            advice(
                "Use HTTP/1.1, whose connections do not wait for each other",
                cost,
                undo,
                Some(proof),
            )
        }
        // Several connections were no help: what is left is the loss itself.
        Some(_) => advice(
            "Find where the path loses packets: `tcptoll explain retransmissions`",
            "That depends on the cause",
            "Nothing was changed yet",
            None,
        ),
    }
}

/// Whether all requests of the page shared one connection, so that a lost segment delays all of them.
fn is_one_connection(arm: &Arm) -> bool {
    value(arm, CONNECTIONS.name).is_some_and(|opened| opened < 1.5)
        && value(arm, REQUESTS.name).is_some_and(|requests| requests > 1.5)
}

fn evidence<const N: usize>(values: [(&str, f64); N]) -> BTreeMap<String, Value> {
    values.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

fn per_resource(arm: &Arm) -> Option<Finding> {
    let connections = value(arm, CONNECTIONS.name)?;
    let requests = value(arm, REQUESTS.name)?;
    // Each request has its own connection, and there are enough of them to matter.
    if requests < 3.0 || connections < 0.9 * requests {
        return None;
    }
    // Two are on the critical path with keep-alive too: of the document, and of what it names.
    let critical = value(arm, CRITICAL_HANDSHAKES.name).filter(|count| *count >= 2.5)?;
    let time = value(arm, CRITICAL_HANDSHAKE.name)?;
    let text = format!(
        "{requests:.0} requests opened {connections:.0} connections. {critical:.0} of these handshakes \
         were on the critical path and took {}",
        human_us(time)
    );
    let evidence = evidence([
        (CONNECTIONS.name, connections),
        (REQUESTS.name, requests),
        (CRITICAL_HANDSHAKES.name, critical),
        (CRITICAL_HANDSHAKE.name, time),
    ]);
    Some(Finding { text, evidence })
}

fn reconnects(arm: &Arm) -> Option<Finding> {
    let opened = value(arm, NEXT_CONNECTIONS.name).filter(|opened| *opened >= 1.0)?;
    let first = value(arm, CONNECTIONS.name)?;
    let requests = value(arm, REQUESTS.name)?;
    // Where nothing is kept, the other cause says so.
    if first >= 0.9 * requests {
        return None;
    }
    let text = format!(
        "The next page opened {opened:.0} new connections, because the server had closed those of \
         the first page"
    );
    let evidence = evidence([(NEXT_CONNECTIONS.name, opened), (CONNECTIONS.name, first)]);
    Some(Finding { text, evidence })
}

/// Held data is named from this share of the span on.
const HELD_SHARE: f64 = 0.05;

fn held(arm: &Arm) -> Option<Finding> {
    let held = value(arm, HELD.name)?;
    let span = value(arm, super::SPAN_MEAN.name)?;
    if span <= 0.0 || held < HELD_SHARE * span || !is_one_connection(arm) {
        return None;
    }
    let text = format!(
        "All requests shared one connection. Per load, received data waited {} on it for lost segments",
        human_us(held)
    );
    let evidence = evidence([(HELD.name, held), (super::SPAN_MEAN.name, span)]);
    Some(Finding { text, evidence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::record::Metric;

    fn arm(figures: &[(&str, f64)]) -> Arm {
        let metric = |value| Metric { value, ..Metric::default() };
        let metrics = figures.iter().map(|(name, value)| ((*name).to_owned(), metric(*value)));
        Arm { metrics: metrics.collect(), ..Arm::default() }
    }

    #[test]
    fn a_connection_for_each_request_is_named_and_six_for_all_are_not() {
        let figures = |connections| {
            arm(&[
                (CONNECTIONS.name, connections),
                (REQUESTS.name, 21.0),
                (CRITICAL_HANDSHAKES.name, 5.0),
                (CRITICAL_HANDSHAKE.name, 75_000.0),
            ])
        };
        let found = per_resource(&figures(21.0)).unwrap();
        assert!(found.text.contains("5 of these handshakes"), "{}", found.text);
        assert_eq!(per_resource(&figures(6.0)), None);
    }

    #[test]
    fn a_next_page_that_finds_its_connections_open_is_not_named() {
        let figures = |next| {
            arm(&[(NEXT_CONNECTIONS.name, next), (CONNECTIONS.name, 6.0), (REQUESTS.name, 21.0)])
        };
        assert!(reconnects(&figures(6.0)).is_some());
        assert_eq!(reconnects(&figures(0.0)), None);
    }

    #[test]
    fn data_that_waits_for_a_hundredth_of_the_span_is_not_named() {
        let figures = |held| of_page(held, 1.0);
        assert!(held(&figures(20e3)).is_some());
        assert_eq!(held(&figures(1e3)), None);
    }

    fn of_page(held: f64, connections: f64) -> Arm {
        arm(&[
            (HELD.name, held),
            (super::super::SPAN_MEAN.name, 100e3),
            (CONNECTIONS.name, connections),
            (REQUESTS.name, 21.0),
        ])
    }

    #[test]
    fn requests_that_share_no_connection_do_not_wait_for_each_other() {
        assert_eq!(held(&of_page(20e3, 6.0)), None);
    }

    #[test]
    fn the_fix_is_what_the_run_measured_and_never_the_command_just_run() {
        let named = |name: &str, mut arm: Arm| {
            arm.name = name.to_owned();
            arm.factors.insert("protocol".to_owned(), name.into());
            arm
        };
        let h2 = named("h2", of_page(20e3, 1.0));
        let cause = HEAD_OF_LINE.explain(&h2).unwrap();
        let advice = |arms: Vec<Arm>| {
            let causes = vec![cause.clone()];
            several_connections(&Summary { arms, causes, ..Summary::default() }).remove(0)
        };
        assert!(advice(vec![h2.clone()]).change.contains("--protocol http/1.1,h2"));
        let mut six = named("http/1.1", of_page(0.0, 6.0));
        let slower = advice(vec![h2.clone(), six.clone()]);
        assert_eq!(slower.proof, None);
        assert!(slower.change.contains("explain retransmissions"), "{}", slower.change);
        six.metrics.get_mut(super::super::SPAN_MEAN.name).unwrap().value = 50e3;
        let faster = advice(vec![h2, six]);
        assert!(faster.change.starts_with("Use HTTP/1.1"), "{}", faster.change);
        assert_eq!(
            faster.proof.as_deref(),
            Some("mean network span 50.0 ms (http/1.1), 100 ms (h2)")
        );
    }
}
