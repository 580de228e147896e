//! A load of a page as it is drawn: its requests with their phases, what is said of them, and what rules say of two.

use std::collections::BTreeMap;

use tcptoll_core::number;
use tcptoll_core::page::forecast::simple_saving_us;
use tcptoll_core::page::waterfall::{Critical, Phases, Request, Waterfall, critical};
use tcptoll_core::record::{Arm, PageLoads};
use tcptoll_show::run::Run;

/// A phase: its name, its letter, its class in pictures, and its time.
type Phase = (&'static str, char, &'static str, fn(&Phases) -> u64);

/// Phases in the order in which they follow each other.
pub(super) const PHASES: [Phase; 7] = [
    ("blocked", '.', "a8", |phases| phases.blocked_us),
    ("DNS", 'd', "a5", |phases| phases.dns_us),
    ("connect", 'c', "a1", |phases| phases.connect_us),
    ("TLS", 't', "a3", |phases| phases.tls_us),
    ("send", 's', "a4", |phases| phases.send_us),
    ("wait", '-', "a0", |phases| phases.wait_us),
    ("receive", '=', "a2", |phases| phases.receive_us),
];

/// An arm with a waterfall.
#[derive(Clone, Copy)]
pub(super) struct Drawn<'a> {
    pub(super) arm: &'a Arm,
    pub(super) loads: &'a PageLoads,
}

pub(super) fn drawn(summary: &Run) -> Vec<Drawn<'_>> {
    let with_requests = |arm| {
        let arm: &Arm = arm;
        let loads = arm.own.page.as_deref()?;
        (!loads.waterfall.requests.is_empty()).then_some(Drawn { arm, loads })
    };
    summary.arms.iter().filter_map(with_requests).collect()
}

/// What became of a request: its class of failure, or its status.
pub(super) fn outcome(request: &Request) -> String {
    match (request.error.as_deref(), request.status) {
        (None | Some("status"), Some(status)) => status.to_string(),
        (Some(class), _) => class.to_owned(),
        (None, None) => "no response".to_owned(),
    }
}

/// What was not loaded, and what was answered with something else than it.
pub(super) fn notes(page: &Waterfall) -> Vec<String> {
    let like = |url: Option<&str>| url.map_or(String::new(), |url| format!(", like {url}"));
    let mut notes: Vec<String> = page
        .left_out
        .iter()
        .map(|left| {
            let example = like(left.examples.first().map(String::as_str));
            format!("not loaded: {} ({}{example})", left.count, left.reason)
        })
        .collect();
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for request in &page.requests {
        if let Some(status) = request.status.filter(|&status| status >= 400) {
            by_status.entry(status).or_default().push(&request.url);
        }
    }
    notes.extend(by_status.iter().map(|(status, urls)| {
        format!("answered with status {status}: {}{}", urls.len(), like(urls.first().copied()))
    }));
    notes
}

/// Where a request ends, µs. A record may hold any number.
pub(super) fn end_us(request: &Request) -> u64 {
    let phases = PHASES.iter().map(|(_, _, _, time)| time(&request.phases));
    phases.fold(request.known_us, u64::saturating_add)
}

/// The end of the waterfall, at least 1 µs.
pub(super) fn last_us(page: &Waterfall) -> u64 {
    page.requests.iter().map(end_us).max().unwrap_or(0).max(1)
}

/// What the page waited for. None: the record's times cannot be those of a load.
pub(super) fn critical_of(page: &Waterfall) -> Option<Critical> {
    let possible = page.requests.iter().all(|one| end_us(one) < u64::MAX / 2);
    if possible { critical(page) } else { None }
}

/// The last part of a URL, or all of a short one.
pub(super) fn name_of(request: &Request) -> &str {
    let path = request.url.split_once("://").map_or(request.url.as_str(), |(_, rest)| rest);
    let path = path.find('/').map_or("/", |at| &path[at..]);
    let bare = path.split(['?', '#']).next().unwrap_or(path);
    match bare.trim_end_matches('/').rsplit('/').next() {
        Some(last) if !last.is_empty() => last,
        _ => "/",
    }
}

/// The forecast beside the measurement.
pub(super) fn forecast(one: &Drawn<'_>) -> Option<String> {
    let expected = one.loads.forecast.as_ref()?;
    // The median of the table; of few loads it has none.
    let of_table = one.arm.histograms.get("span_us").and_then(|span| span.p50);
    let measured = of_table.or_else(|| one.loads.median_us())?;
    let first = expected.connections.iter().map(|one| one.begun_us).min().unwrap_or(0);
    let of_this = last_us(expected).saturating_sub(first) as f64;
    // Of several rounds the table has the mean of the forecasts, which is said here too.
    let expected = one.arm.metrics.get("forecast_us").map_or(of_this, |metric| metric.value);
    Some(format!(
        "{} measured (median), {} forecast from round trips, slow start and server time ({:+.1} %)",
        number::time(measured),
        number::time(expected),
        (measured / expected.max(1.0) - 1.0) * 100.0
    ))
}

/// The option whose two settings the document compares.
const KEEPALIVE: &str = "keepalive";

/// The document's rule for each two arms that differ in nothing but KeepAlive.
pub(super) fn rules(drawn: &[Drawn<'_>]) -> Vec<String> {
    let set = |one: &Drawn<'_>, value: &str| {
        one.arm.factors.get(KEEPALIVE).and_then(|level| level.as_str()) == Some(value)
    };
    let others = |one: &Drawn<'_>| {
        let mut factors = one.arm.factors.clone();
        factors.remove(KEEPALIVE);
        factors
    };
    let offs = drawn.iter().filter(|one| set(one, "off"));
    offs.filter_map(|off| {
        let on = drawn.iter().find(|one| set(one, "on") && others(one) == others(off))?;
        rule(on, off)
    })
    .collect()
}

fn rule(on: &Drawn<'_>, off: &Drawn<'_>) -> Option<String> {
    let opened = |one: &Drawn<'_>| one.loads.waterfall.connections.len() as u64;
    let saved = opened(off).checked_sub(opened(on)).filter(|saved| *saved > 0)?;
    let rtt_us = on.loads.rtt_us.filter(|rtt| rtt.is_finite() && *rtt > 0.0)?;
    let measured = off.loads.median_us()? - on.loads.median_us()?;
    let critical = critical_of(&off.loads.waterfall)?;
    Some(format!(
        "{}: the rule of thumb expects a saving of {saved} connections × {} = {}; measured {} between the medians. {} of \
         its {} handshakes are on the critical path",
        off.arm.name,
        number::time(rtt_us),
        number::time(simple_saving_us(opened(off), opened(on), rtt_us as u64) as f64),
        number::time(measured),
        critical.handshakes,
        opened(off),
    ))
}
