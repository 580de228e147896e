//! Tables and pictures of `page`: times, connections, what was expected. Its pictures are the waterfall of each
//! arm's median load, with the forecast beside, and the document's rule beside what was saved.

use std::collections::BTreeMap;

use tcptoll_core::experiment::column::{Column, Figure, Form, Quantile, Show, Table, value};
use tcptoll_core::experiment::columns::{ECHO_P50, ERRORS, OK, every, tidy};
use tcptoll_core::experiment::figures::FIRST_BYTE_MEAN;
use tcptoll_core::page::forecast::simple_saving_us;
use tcptoll_core::page::waterfall::{Critical, Phases, Request, Waterfall, critical};
use tcptoll_core::record::{Arm, PageLoads};
use tcptoll_show::number;
use tcptoll_show::run::{NONE, Own, Run};

use super::{
    BLOCKING, CONNECTIONS, CRITICAL_HANDSHAKES, EVERYTHING, FORECAST, GAPS, HELD, LOAD_EVENT,
    NEXT_CONNECTIONS, NEXT_PAGE, REQUESTS, RETRANSMISSIONS, SPAN, SPAN_MEAN, pictures,
};

use Figure::{Estimate, Number};
use Quantile::{Max, P50};

const SPAN_GROUP: &str = "network span";
const MEDIAN: Column =
    Column::quantile((SPAN_GROUP, "p50"), "network span p50", SPAN.name, P50).shown(Show::Always);
const LONGEST: Column = Column::quantile((SPAN_GROUP, "max"), "network span max", SPAN.name, Max);
const MEAN: Column = Column::new(
    (SPAN_GROUP, "mean"),
    "network span mean",
    tidy(&SPAN_MEAN),
    Estimate(SPAN_MEAN.unit),
);
const EXPECTED: Column = Column::new(
    (SPAN_GROUP, "forecast"),
    "network span forecast",
    tidy(&FORECAST),
    Estimate(FORECAST.unit),
);
const TIME_TO: &str = "time to";
const FIRST: Column = Column::new(
    (TIME_TO, "first byte"),
    "time to first byte",
    tidy(&FIRST_BYTE_MEAN),
    Estimate(FIRST_BYTE_MEAN.unit),
);
const BLOCKED: Column = Column::new(
    (TIME_TO, "blocking"),
    "time to the last blocking resource",
    tidy(&BLOCKING),
    Estimate(BLOCKING.unit),
);
const ALL: Column = Column::new(
    (TIME_TO, "all"),
    "time to the last resource",
    tidy(&EVERYTHING),
    Estimate(EVERYTHING.unit),
);
const EVENT: Column = Column::new(
    (TIME_TO, "load event"),
    "time to the load event",
    tidy(&LOAD_EVENT),
    Estimate(LOAD_EVENT.unit),
);
const CONNECTIONS_GROUP: &str = "connections";
const OPENED: Column = Column::new(
    (CONNECTIONS_GROUP, "opened"),
    "connections opened",
    tidy(&CONNECTIONS),
    Number(|arm| value(arm, CONNECTIONS.name), 1.0),
);
const CRITICAL: Column = Column::new(
    (CONNECTIONS_GROUP, "critical"),
    "handshakes on the critical path",
    tidy(&CRITICAL_HANDSHAKES),
    Number(|arm| value(arm, CRITICAL_HANDSHAKES.name), 1.0),
);
const ASKED: Column = Column::new(
    ("", "requests"),
    "requests",
    tidy(&REQUESTS),
    Number(|arm| value(arm, REQUESTS.name), 1.0),
);
const NEXT: &str = "next page";
const NEXT_TIME: Column =
    Column::new((NEXT, "time"), "next page", tidy(&NEXT_PAGE), Estimate(NEXT_PAGE.unit));
const NEXT_OPENED: Column = Column::new(
    (NEXT, "connections"),
    "connections opened for the next page",
    tidy(&NEXT_CONNECTIONS),
    Number(|arm| value(arm, NEXT_CONNECTIONS.name), 1.0),
);
const LOSS: &str = "per load";
const AGAIN: Column = Column::new(
    (LOSS, "retransmitted"),
    "retransmissions",
    tidy(&RETRANSMISSIONS),
    Number(|arm| value(arm, RETRANSMISSIONS.name).filter(|count| *count > 0.0), 1.0),
);
const BEHIND: Column = Column::new(
    (LOSS, "gaps"),
    "gaps that blocked later data",
    tidy(&GAPS),
    Number(|arm| value(arm, GAPS.name).filter(|count| *count > 0.0), 1.0),
);
const WAITED: Column = Column::new(
    (LOSS, "waited for them"),
    "head-of-line blocking time",
    tidy(&HELD),
    Figure::Time(|arm| value(arm, HELD.name).filter(|time| *time > 0.0)),
);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Text],
        has: every,
        parts: &[
            &[MEDIAN, LONGEST, EXPECTED],
            &[OPENED, CRITICAL],
            &[FIRST, BLOCKED, ALL, EVENT],
            &[NEXT_TIME, NEXT_OPENED],
            &[AGAIN, WAITED],
            &[ASKED, OK],
        ],
    },
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Page],
        has: every,
        parts: &[&[
            MEDIAN,
            LONGEST,
            MEAN,
            EXPECTED,
            OPENED,
            CRITICAL,
            FIRST,
            BLOCKED,
            ALL,
            EVENT,
            NEXT_TIME,
            NEXT_OPENED,
            AGAIN,
            BEHIND,
            WAITED,
            ASKED,
            OK,
            ERRORS,
            ECHO_P50,
        ]],
    },
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Markdown],
        has: every,
        parts: &[&[MEDIAN, MEAN, EXPECTED, OPENED, CRITICAL, FIRST, BLOCKED, ALL, NEXT_TIME, OK]],
    },
];

pub(crate) const OWN: Own =
    Own { text_after: pictures::blocks, sections: pictures::sections, ..NONE };

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

#[cfg(test)]
mod tests {
    use tcptoll_core::page::waterfall::{Connection, LeftOut};
    use tcptoll_core::record::Summary;
    use tcptoll_show::own::{Block, Item};

    use crate::experiments::REPORTS;

    use super::*;

    fn request(known_us: u64, phases: Phases) -> Request {
        Request {
            url: "http://page.test/r/<script>\u{1b}[31m.css".to_owned(),
            known_us,
            phases,
            ..Request::default()
        }
    }

    fn summary(requests: Vec<Request>) -> Run {
        let waterfall = Waterfall {
            requests,
            connections: vec![Connection::default()],
            left_out: vec![LeftOut {
                reason: "scheme".to_owned(),
                count: u64::MAX,
                examples: vec!["<b>".to_owned()],
            }],
            ..Waterfall::default()
        };
        let loads = PageLoads {
            spans_us: vec![30_000.0],
            forecast: Some(waterfall.clone()),
            waterfall,
            rtt_us: Some(15_000.0),
            requests_left_out: 7,
            ..PageLoads::default()
        };
        let mut arm = Arm { name: "<arm>".to_owned(), ..Arm::default() };
        arm.own.page = Some(Box::new(loads));
        REPORTS.cleaned(Summary { arms: vec![arm], ..Summary::default() })
    }

    fn text(summary: &Run, width: usize) -> String {
        let line = |block: &Block| match block {
            Block::Line(pieces) => pieces.iter().map(|(_, text)| text.as_str()).collect(),
            Block::Prose(_, text, _) => text.clone(),
            _ => String::new(),
        };
        pictures::blocks(summary, width).iter().map(line).collect::<Vec<String>>().join("\n")
    }

    #[test]
    fn a_bar_shows_its_phases_where_they_were() {
        let phases = Phases { connect_us: 15_000, wait_us: 15_000, ..Phases::default() };
        let drawn = text(&summary(vec![request(0, phases)]), 80);
        let bar = drawn.lines().find(|line| line.contains('c')).unwrap().to_owned();
        let bar = drawn.lines().find(|line| line.contains("cccc")).unwrap_or(&bar);
        let (connect, wait) = (bar.matches('c').count(), bar.matches('-').count());
        assert!(connect.abs_diff(wait) <= 4 && connect > 10, "{bar}");
        assert!(drawn.lines().all(|line| tcptoll_show::clean::columns(line) <= 400));
        assert!(!drawn.contains('\u{1b}'), "{drawn}");
    }

    #[test]
    fn records_with_impossible_times_are_drawn_and_escaped() {
        for (known, time) in [(0, 0), (u64::MAX, u64::MAX), (5, u64::MAX)] {
            let phases = Phases { blocked_us: time, receive_us: time, ..Phases::default() };
            let summary = summary(vec![request(known, phases); 3]);
            text(&summary, 80);
            text(&summary, 10);
            for section in pictures::sections(&summary) {
                for item in section.items {
                    let Item::Picture(picture) = item else { continue };
                    assert!(!picture.both_svg.to_string().contains("<script>"));
                    assert!(
                        !picture.both_svg.to_string().contains("NaN")
                            && !picture.both_svg.to_string().contains("inf")
                    );
                }
            }
        }
    }

    #[test]
    fn a_name_is_the_last_part_of_its_path() {
        let name =
            |url: &str| name_of(&Request { url: url.to_owned(), ..Request::default() }).to_owned();
        assert_eq!(name("http://a.test/css/main.css?v=1"), "main.css");
        assert_eq!(name("http://a.test/"), "/");
        assert_eq!(name("http://a.test/docs/"), "docs");
        assert_eq!(name(""), "/");
    }

    #[test]
    fn the_rule_of_thumb_is_stated_for_arms_that_differ_in_keepalive_alone() {
        let phases = Phases { connect_us: 15_000, wait_us: 15_000, ..Phases::default() };
        let mut run = summary(vec![request(0, phases)]);
        let arm = run.summary.arms.remove(0);
        for (level, browser, connections) in
            [("on", "off", 6), ("off", "off", 21), ("on", "on", 6), ("off", "on", 21)]
        {
            let mut arm = arm.clone();
            arm.factors.insert("keepalive".to_owned(), level.into());
            arm.factors.insert("browser".to_owned(), browser.into());
            arm.name = format!("{level} {browser}");
            let loads = arm.own.page.as_mut().unwrap();
            loads.waterfall.connections = vec![Connection::default(); connections];
            loads.spans_us =
                vec![if browser == "on" { 1e6 } else { 0.0 } + connections as f64 * 1e3];
            run.summary.arms.push(arm);
        }
        let rules = rules(&drawn(&run));
        assert_eq!(rules.len(), 2, "{rules:?}");
        // 15 connections, whoever loads the page; the browser's own second is in neither.
        assert!(rules.iter().all(|rule| rule.contains("measured 15.0 ms")), "{rules:?}");
    }
}
