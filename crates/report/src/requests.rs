//! What does a report say of requests and of the connections that carried them? Who closed, what
//! that left behind, how many ports there were.

use tcptoll_model::record::{Arm, Summary};

use crate::number::{self, ABSENT};
use crate::{clean, figures};

/// Metrics of requests that have a place of their own in every report.
pub(crate) const RATE: &str = "requests_per_s";
/// Rate that the schedule of an open loop asked for.
pub(crate) const INTENDED: &str = "intended_per_s";
/// Rate that it came to.
pub(crate) const ACHIEVED: &str = "achieved_per_s";
/// Kernel memory of the sockets of an open connection.
pub(crate) const KERNEL_MEMORY: &str = "kernel_bytes_per_connection";
/// What a connection adds to the client's own memory.
pub(crate) const CLIENT_MEMORY: &str = "client_bytes_per_connection";
/// Segments that each host sent per request.
pub(crate) const SEGMENTS: [&str; 2] = ["client_segments_per_op", "server_segments_per_op"];
/// Sockets in TIME-WAIT on each host after a load.
const TIME_WAIT: [&str; 2] = ["client_time_wait", "server_time_wait"];
/// Requests that a connection carried, as counted.
pub(crate) const PER_CONNECTION: &str = "requests_per_connection";

/// Forecasts that are told apart; more would push the answer off the screen.
const FORECASTS: usize = 3;

/// Columns that an arm's name may take in a sentence.
const NAME: usize = 26;

/// Whether the operations of a run are requests, and not connections.
pub(crate) fn any(summary: &Summary) -> bool {
    summary.arms.iter().any(are)
}

/// Whether the operations of an arm are requests; messages beside idle connections are not.
pub(crate) fn are(arm: &Arm) -> bool {
    let requests = arm.connections_attempted.is_some() || arm.metrics.contains_key(RATE);
    requests && arm.own.keepalive.is_none()
}

/// The value of a metric.
pub(crate) fn metric(arm: &Arm, name: &str) -> Option<f64> {
    arm.metrics.get(name).map(|metric| metric.value).filter(|value| value.is_finite())
}

/// Who closed first: `client`, `server`, `both`, or the share of the one that did most often.
pub(crate) fn closer(arm: &Arm) -> Option<String> {
    let closing = arm.closing.as_ref()?;
    let all = closing.closed();
    if all == 0 {
        return None;
    }
    let classes = [
        ("both", closing.both.unwrap_or(0)),
        ("client", closing.by_client),
        ("server", closing.by_server),
    ];
    let (who, most) = classes.into_iter().max_by_key(|(_, count)| *count)?;
    let share = most as f64 / all as f64;
    // What rounds to all of them is all but a few; the exact counts stand in the record.
    if share >= 0.995 {
        return Some(who.to_owned());
    }
    Some(format!("{who} {:.0} %", share * 100.0))
}

/// TIME-WAIT left on the client host and on the server host: of several rounds the mean.
pub(crate) fn time_wait(arm: &Arm) -> [Option<u64>; 2] {
    TIME_WAIT.map(|name| metric(arm, name).map(|sockets| sockets.round() as u64))
}

/// A count, or a dash.
pub(crate) fn count_or_absent(count: Option<u64>) -> String {
    count.map_or_else(|| ABSENT.to_owned(), number::count)
}

/// Doubts about who closed: a header that was ignored.
pub(crate) fn ignored(arm: &Arm) -> Option<String> {
    let ignored = arm.closing.as_ref().map_or(0, |closing| closing.ignored);
    (ignored > 0).then(|| {
        format!(
            "server: ignored Connection: close {}; the client closed, half a second later",
            times(ignored)
        )
    })
}

fn times(n: u64) -> String {
    figures::plural(n, "time")
}

/// Everything counted about closing, a label and a figure each.
pub(crate) fn closing(arm: &Arm) -> Vec<[String; 2]> {
    let Some(closing) = &arm.closing else { return Vec::new() };
    let mut rows = vec![
        ["connections closed by the client first".to_owned(), number::count(closing.by_client)],
        ["connections closed by the server first".to_owned(), number::count(closing.by_server)],
        ["of these while no request was under way".to_owned(), number::count(closing.while_idle)],
    ];
    rows.extend(
        closing.both.map(|both| ["closed by both, FINs crossed".to_owned(), number::count(both)]),
    );
    rows.push([
        "still open when the load ended, then closed by the client".to_owned(),
        number::count(closing.open_at_end),
    ]);
    if closing.ignored > 0 {
        rows.push(["Connection: close ignored by the server".to_owned(), times(closing.ignored)]);
    }
    let mean = if arm.rounds.is_empty() { "" } else { ", mean over rounds" };
    for (side, n) in ["client", "server"].into_iter().zip(time_wait(arm)) {
        let label = format!("{side} sockets in TIME-WAIT after the load{mean}");
        rows.extend(n.map(|n| [label, number::count(n)]));
    }
    rows
}

/// The port forecasts, one line for all arms that share one: `ports: …`.
pub(crate) fn forecasts(arms: &[Arm]) -> Vec<String> {
    let mut texts: Vec<(&str, Vec<&str>)> = Vec::new();
    for arm in arms {
        let Some(ports) = arm.ports.as_ref().filter(|ports| !ports.text.is_empty()) else {
            continue;
        };
        match texts.iter_mut().find(|(text, _)| *text == ports.text) {
            Some((_, names)) => names.push(&arm.name),
            None => texts.push((&ports.text, vec![&arm.name])),
        }
    }
    let alone = texts.len() == 1;
    let mut lines: Vec<String> = texts
        .iter()
        .take(FORECASTS)
        .map(|(text, names)| {
            let of = match names.as_slice() {
                _ if alone => String::new(),
                [] => String::new(),
                [one] => format!(" ({})", clean::shorten(one, NAME)),
                [one, ..] => {
                    format!(" ({} and {} more)", clean::shorten(one, NAME), names.len() - 1)
                }
            };
            format!("ports{of}: {text}")
        })
        .collect();
    if texts.len() > FORECASTS {
        lines.push(format!("ports: {} more forecasts in the record", texts.len() - FORECASTS));
    }
    lines
}

/// Versions of the servers, each once.
pub(crate) fn servers(summary: &Summary) -> Vec<String> {
    distinct(summary.arms.iter().filter_map(|arm| arm.server.as_ref()?.version.as_deref()))
}

/// What the load engine waited with, each once.
pub(crate) fn engines(summary: &Summary) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use tcptoll_model::ports::PortForecast;
    use tcptoll_model::record::{Closing, Metric};

    use super::*;

    fn arm(name: &str, by_client: u64, by_server: u64, text: &str) -> Arm {
        Arm {
            name: name.into(),
            closing: Some(Closing { by_client, by_server, ..Closing::default() }),
            ports: Some(PortForecast { text: text.into(), ..PortForecast::default() }),
            ..Arm::default()
        }
    }

    #[test]
    fn the_closer_is_named_and_a_share_is_said_where_both_closed() {
        assert_eq!(closer(&arm("a", 1_000, 0, "")).as_deref(), Some("client"));
        assert_eq!(closer(&arm("a", 3, 997, "")).as_deref(), Some("server"));
        assert_eq!(closer(&arm("a", 400, 600, "")).as_deref(), Some("server 60 %"));
        assert_eq!(closer(&arm("a", 0, 0, "")), None);
        let both = |by_client, by_server, both| {
            let mut arm = arm("a", by_client, by_server, "");
            arm.closing.as_mut().unwrap().both = Some(both);
            closer(&arm)
        };
        assert_eq!(both(0, 0, 7).as_deref(), Some("both"));
        assert_eq!(both(10, 20, 70).as_deref(), Some("both 70 %"));
        assert_eq!(both(60, 20, 20).as_deref(), Some("client 60 %"));
        assert_eq!(closer(&Arm::default()), None);
    }

    #[test]
    fn time_wait_of_rounds_is_their_mean_wherever_it_is_said() {
        let metric =
            |value| Metric { value, unit: "sockets".into(), ci95: None, median: None, n: 3 };
        let mut arm = arm("a", 722, 1, "");
        arm.metrics.insert("client_time_wait".into(), metric(240.7));
        assert_eq!(time_wait(&arm), [Some(241), None]);
        let label = "client sockets in TIME-WAIT after the load";
        assert!(closing(&arm).contains(&[label.to_owned(), "241".to_owned()]));
        arm.rounds = vec![tcptoll_model::record::Round::default()];
        let label = format!("{label}, mean over rounds");
        assert!(closing(&arm).contains(&[label, "241".to_owned()]));
    }

    #[test]
    fn a_forecast_that_arms_share_is_said_once() {
        let shared = [arm("a", 0, 0, "x"), arm("b", 0, 0, "x")];
        assert_eq!(forecasts(&shared), ["ports: x"]);
        let apart = [arm("a", 0, 0, "x"), arm("b", 0, 0, "y"), arm("c", 0, 0, "y")];
        assert_eq!(forecasts(&apart), ["ports (a): x", "ports (b and 1 more): y"]);
    }
}
