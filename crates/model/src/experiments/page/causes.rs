//! Causes that a run of page loads may name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    CONNECTIONS, CRITICAL_HANDSHAKE, CRITICAL_HANDSHAKES, HELD, NEXT_CONNECTIONS, REQUESTS,
};
use crate::causes::spec::{CauseSpec, Finding, Remedy};
use crate::experiments::conclusion::value;
use crate::record::Arm;
use crate::units::human_us;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] =
    &[&CONNECTION_PER_RESOURCE, &NEXT_PAGE_RECONNECTS, &HEAD_OF_LINE];

/// The server closes after each response.
const CONNECTION_PER_RESOURCE: CauseSpec = CauseSpec {
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

/// Data waits for a lost segment of its own connection.
const HEAD_OF_LINE: CauseSpec = CauseSpec {
    id: "page-head-of-line",
    test: held,
    remedy: Remedy::Setting {
        change: "Compare with HTTP/1.1 (--protocol http/1.1,h2), whose six connections do not wait for \
                 each other, or use HTTP/3, whose streams do not",
        cost: "Each connection has a handshake and a congestion window of its own",
        undo: "Use one HTTP/2 connection again",
    },
};

fn evidence<const N: usize>(of: [(&str, f64); N]) -> BTreeMap<String, Value> {
    of.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
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
    if span <= 0.0 || held < HELD_SHARE * span {
        return None;
    }
    let text = format!(
        "Per load, received data waited {} for a lost segment of the same connection",
        human_us(held)
    );
    let evidence = evidence([(HELD.name, held), (super::SPAN_MEAN.name, span)]);
    Some(Finding { text, evidence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Metric;

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
        let figures = |held| arm(&[(HELD.name, held), (super::super::SPAN_MEAN.name, 100e3)]);
        assert!(held(&figures(20e3)).is_some());
        assert_eq!(held(&figures(1e3)), None);
    }
}
