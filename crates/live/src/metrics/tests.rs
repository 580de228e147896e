use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::watch::{
    Counted, DestinationState, Limits, ListenerState, LookCost, Process, Totals, diagnoses,
};
use tcptoll_core::finding::Finding;
use tcptoll_core::finding::Severity;

/// A name that would steer a terminal, end a label or begin a line.
const HOSTILE: &str = "\u{1b}[2J\"} 1\n# EOF\n\\ \u{202e}x";

fn listener(address: &str, port: u16, inode: u64, queue: u32, drops: Option<u64>) -> ListenerState {
    ListenerState {
        address: address.to_owned(),
        port,
        inode,
        accept_queue_len: queue,
        accept_queue_peak: queue,
        accept_queue_limit: 128,
        drops,
        ..ListenerState::default()
    }
}

fn destination(address: &str, ports_in_use: u32) -> DestinationState {
    DestinationState {
        address: address.to_owned(),
        port: 443,
        ports_in_use,
        time_wait: ports_in_use / 2,
        ports_left: Some(28_232 - ports_in_use),
        ..DestinationState::default()
    }
}

fn diagnosis(id: &str, severity: Severity, subject: &str) -> Finding {
    Finding {
        id: id.to_owned(),
        severity,
        subject: subject.to_owned(),
        text: "It is so".to_owned(),
        evidence: BTreeMap::from([("figure".to_owned(), json!(1))]),
        remedies: Vec::new(),
    }
}

/// Two sockets of one port, a listener without what may be absent, hostile names, and what was left out.
fn state() -> State {
    let hostile = Process { pid: 7, name: HOSTILE.to_owned() };
    let mut first = listener("10.0.0.7", 443, 11, 129, Some(40));
    first.process = Some(Process { pid: 9, name: "nginx".to_owned() });
    first.syn_queue_len = Some(3);
    let second = ListenerState {
        syn_queue_len: Some(4),
        process: Some(hostile),
        ..listener("10.0.0.7", 443, 12, 1, Some(2))
    };
    let bare = ListenerState { accept_queue_limit: 0, ..listener("fd00::7", 22, 13, 0, None) };
    State {
        at_s: 12.0,
        diagnoses: vec![
            diagnosis("accept-queue-full", Severity::Problem, "10.0.0.7:443"),
            diagnosis("syn-queue-full", Severity::Warning, HOSTILE),
        ],
        diagnoses_left_out: 1,
        listeners: vec![first, second, bare],
        listeners_left_out: 5,
        destinations: vec![destination("192.0.2.1", 20_000), destination("192.0.2.2", 9)],
        destinations_left_out: 2,
        states: BTreeMap::from([("ESTABLISHED".to_owned(), 12), ("TIME-WAIT".to_owned(), 3)]),
        table_age_s: Some(0.5),
        totals: Totals {
            overflows: Some(42),
            drops: Some(42),
            segments_out: Some(1_000_000),
            retransmitted: Some(0),
            ..Totals::default()
        },
        counted: Counted { time_wait: Some(3), memory_bytes: Some(8_192), ..Counted::default() },
        limits: Limits {
            somaxconn: Some(4_096),
            local_ports: Some(28_232),
            memory_max_bytes: Some(1 << 30),
            ..Limits::default()
        },
        cost: LookCost {
            cpu_s: 0.25,
            cpu_share: 0.01,
            resident_bytes: 20 << 20,
            table_every_s: 2.0,
        },
        ..State::default()
    }
}

/// A page that lacks nothing.
pub(super) fn full() -> String {
    let count = Some(1);
    let state = State {
        totals: Totals {
            active_opens: count,
            passive_opens: count,
            failed_opens: count,
            segments_out: count,
            retransmitted: count,
            timeouts: count,
            syns_retransmitted: count,
            overflows: count,
            drops: count,
            cookies_sent: count,
            syns_dropped: count,
            resets: count,
            aborted_for_memory: count,
            time_wait_overflows: count,
        },
        counted: Counted {
            sockets: count,
            time_wait: count,
            orphans: count,
            memory_bytes: count,
            tracked: count,
        },
        limits: Limits {
            somaxconn: Some(1),
            local_ports: Some(1),
            max_tw_buckets: count,
            max_orphans: count,
            memory_max_bytes: count,
            memory_pressure_bytes: count,
            tracked_max: count,
            ..Limits::default()
        },
        ..state()
    };
    let mut metrics = metrics();
    metrics.take(&state, 1.0);
    page(&metrics)
}

fn metrics() -> Metrics {
    Metrics::new("1.2.3", 1.0)
}

fn page(metrics: &Metrics) -> String {
    metrics.page(MetricsFormat::Classic).unwrap()
}

/// The value of a sample; none if the page lacks it.
fn value(page: &str, sample: &str) -> Option<String> {
    page.lines().find_map(|line| Some(line.strip_prefix(sample)?.strip_prefix(' ')?.to_owned()))
}

fn count(page: &str, metric: &str) -> usize {
    page.lines().filter(|line| line.starts_with(&format!("{metric}{{"))).count()
}

#[test]
fn a_page_has_what_a_state_has_and_nothing_that_is_absent() {
    let mut metrics = metrics();
    assert_eq!(metrics.page(MetricsFormat::OpenMetrics), None, "there is no state yet");
    metrics.failed();
    metrics.take(&state(), 1_763_886_255.25);
    insta::assert_snapshot!(metrics.page(MetricsFormat::OpenMetrics).unwrap());
}

#[test]
fn a_hostile_name_cannot_leave_its_label() {
    let mut metrics = metrics();
    let mut state = state();
    state.listeners.truncate(2);
    state.listeners.remove(0);
    state.diagnoses[1].subject = format!("{HOSTILE}{}", "z".repeat(10_000));
    metrics.take(&state, 0.0);
    for format in [MetricsFormat::OpenMetrics, MetricsFormat::Classic] {
        let page = metrics.page(format).unwrap();
        assert!(page.chars().all(|c| c == '\n' || !c.is_control()) && !page.contains('\u{202e}'));
        let eofs = page.lines().filter(|line| *line == "# EOF").count();
        assert_eq!(eofs, usize::from(format == MetricsFormat::OpenMetrics));
        assert!(page.lines().all(|line| line.starts_with("# ") || line.starts_with("tcptoll_")));
        assert!(page.lines().all(|line| line.chars().count() < 400), "labels have a bound");
        assert!(page.contains("process=\"·[2J\\\"} 1 # EOF \\\\ x\"} 1\n"), "{page}");
    }
}

#[test]
fn drops_never_go_down_when_sockets_of_a_port_come_and_go() {
    let sample = "tcptoll_listener_dropped_packets_total{listener=\"10.0.0.7:443\"}";
    let mut metrics = metrics();
    let mut look = |at_s: f64, sockets: &[(u64, Option<u64>)]| {
        let sockets =
            sockets.iter().map(|(inode, drops)| listener("10.0.0.7", 443, *inode, 0, *drops));
        let state = State { at_s, listeners: sockets.collect(), ..State::default() };
        metrics.take(&state, at_s);
        value(&page(&metrics), sample)
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(look(0.0, &[(1, Some(0)), (2, Some(0))]), some("0"));
    assert_eq!(look(1.0, &[(1, Some(5)), (2, Some(1))]), some("6"));
    assert_eq!(look(2.0, &[(2, Some(3))]), some("8"), "one socket was closed");
    assert_eq!(look(3.0, &[(2, Some(3)), (3, Some(2))]), some("10"), "another was opened");
    assert_eq!(look(4.0, &[(2, None), (3, Some(2))]), None, "half a sum is no sum");
    assert_eq!(look(5.0, &[]), None, "what is gone is not exported");
    assert_eq!(look(6.0, &[(4, Some(1))]), some("11"), "the server was restarted");
}

#[test]
fn a_listener_that_was_exported_stays_while_others_become_busier() {
    let quiet = |n: u64| listener(&format!("10.1.{}.{}", n / 250, n % 250), 80, n, 0, Some(0));
    let mut metrics = metrics();
    let all: Vec<_> = (0..300).map(quiet).collect();
    metrics.take(&State { listeners: all.clone(), ..State::default() }, 0.0);
    let first = page(&metrics);
    assert_eq!(count(&first, "tcptoll_listener_sockets"), 200);
    assert_eq!(value(&first, "tcptoll_watch_listeners_left_out"), Some("100".to_owned()));
    // The last ones become busy, and the state has them first; one of them is in trouble.
    let mut busy: Vec<_> = all.iter().rev().cloned().collect();
    busy[0].accept_queue_len = 100;
    busy[1].accept_queue_len = 129;
    let subject = place(&busy[1].address, 80);
    let wrong = diagnosis("accept-queue-full", Severity::Problem, &subject);
    let state = State { at_s: 1.0, listeners: busy, diagnoses: vec![wrong], ..State::default() };
    metrics.take(&state, 1.0);
    let second = page(&metrics);
    assert_eq!(count(&second, "tcptoll_listener_sockets"), 201);
    let names = |page: &str| -> BTreeSet<String> {
        let lines = page.lines().filter(|line| line.starts_with("tcptoll_listener_sockets{"));
        lines.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
    };
    let new: Vec<String> = names(&second).difference(&names(&first)).cloned().collect();
    assert_eq!(new, [subject]);
    assert!(names(&second).is_superset(&names(&first)));
}

#[test]
fn queues_between_two_scrapes_are_seen_in_the_peak() {
    let mut metrics = metrics();
    for (at_s, queue) in [(0.0, 0), (1.0, 64), (2.0, 3)] {
        let listeners = vec![listener("10.0.0.7", 80, 1, queue, Some(0))];
        metrics.take(&State { at_s, listeners, ..State::default() }, at_s);
    }
    let page = page(&metrics);
    let sample =
        |name: &str| value(&page, &format!("tcptoll_listener_{name}{{listener=\"10.0.0.7:80\"}}"));
    assert_eq!(sample("accept_queue_connections").as_deref(), Some("3"));
    assert_eq!(sample("accept_queue_peak_connections").as_deref(), Some("64.0"));
    assert_eq!(sample("accept_queue_fill_peak_ratio").as_deref(), Some("0.5"));
    assert_eq!(sample("syn_queue_connections"), None, "no dump was made");
}

#[test]
fn a_diagnosis_is_exported_for_a_minute_after_it_was_seen() {
    let mut metrics = metrics();
    let wrong = diagnosis("ports-scarce", Severity::Problem, "192.0.2.1:443");
    metrics.take(&State { diagnoses: vec![wrong], ..State::default() }, 0.0);
    let sample =
        "tcptoll_diagnosis{id=\"ports-scarce\",severity=\"problem\",subject=\"192.0.2.1:443\"}";
    for (at_s, expected) in [(0.0, true), (60.0, true), (60.5, false)] {
        if at_s > 0.0 {
            metrics.take(&State { at_s, ..State::default() }, at_s);
        }
        assert_eq!(value(&page(&metrics), sample).is_some(), expected, "{at_s}");
    }
}

#[test]
fn a_process_that_renames_itself_at_each_look_makes_no_series_a_look() {
    let mut metrics = metrics();
    let mut names = BTreeSet::new();
    for second in 0..1_200_u32 {
        let mut one = listener("10.0.0.7", 80, 1, 0, Some(0));
        one.process = Some(Process { pid: 1, name: format!("name-{second}") });
        let state = State { at_s: second.into(), listeners: vec![one], ..State::default() };
        metrics.take(&state, 0.0);
        let page = page(&metrics);
        let info = page.lines().find(|line| line.starts_with("tcptoll_listener_info{")).unwrap();
        names.insert(info.to_owned());
    }
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn the_largest_page_has_a_bound() {
    let mut metrics = metrics();
    let address = |n: u64| format!("2001:db8:ffff:ffff:ffff:ffff:ffff:{n:x}");
    let listeners = (0..2_000).map(|n| ListenerState {
        process: Some(Process { pid: 1, name: "x".repeat(5_000) }),
        syn_queue_len: Some(1),
        ..listener(&address(n), 65_535, n, u32::MAX, Some(u64::MAX))
    });
    let destinations = (0..2_000).map(|n| destination(&address(n), 28_000));
    let name =
        |n: u64| format!("[{}]:{}", address(n % 2_000), if n < 1_000 { 65_535 } else { 443 });
    let diagnoses =
        (0..2_000).rev().map(|n| diagnosis(&"i".repeat(500), Severity::Problem, &name(n)));
    let state = State {
        listeners: listeners.collect(),
        destinations: destinations.collect(),
        diagnoses: diagnoses.collect(),
        ..State::default()
    };
    metrics.take(&state, 1e9);
    let page = page(&metrics);
    assert_eq!(count(&page, "tcptoll_listener_sockets"), 256);
    assert_eq!(count(&page, "tcptoll_destination_time_wait_sockets"), 80);
    assert_eq!(count(&page, "tcptoll_diagnosis"), DIAGNOSES);
    assert!(page.lines().count() < 2_800 && page.len() < 400_000, "{}", page.len());
}

#[test]
fn a_diagnosis_that_became_another_is_exported_as_the_other_alone() {
    let mut metrics = Metrics::new("1", 1.0);
    let subject = "10.0.0.7:443";
    let mut look = |at_s: f64, ids: &[&str]| {
        let found = ids.iter().map(|id| diagnosis(id, Severity::Problem, subject));
        metrics.take(&State { at_s, diagnoses: found.collect(), ..State::default() }, at_s);
        let page = metrics.page(MetricsFormat::OpenMetrics).unwrap();
        let lines = page.lines().filter(|line| line.starts_with("tcptoll_diagnosis{"));
        lines.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(look(1.0, &["accept-queue-near"]), ["accept-queue-near"]);
    assert_eq!(look(2.0, &["accept-queue-full"]), ["accept-queue-full"], "no scrape sees both");
    assert_eq!(look(40.0, &["accept-queue-near"]), ["accept-queue-full"], "it held 38 s ago");
    assert_eq!(look(70.0, &["accept-queue-near"]), ["accept-queue-near"]);
}

const DASHBOARD: &str = include_str!("../../../../docs/watch/grafana.json");
const ALERTS: &str = include_str!("../../../../docs/watch/alerts.yml");
const TESTS: &str = include_str!("../../../../docs/watch/alerts.test.yml");
const DOCS: &str = include_str!("../../../../docs/watch/prometheus.md");

/// Words that begin like a metric.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c: char| !letter(c));
    words.filter(|word| word.starts_with("tcptoll_")).collect()
}

fn on_page(page: &str) -> BTreeSet<&str> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_is_on_the_page() {
    let page = full();
    let there = on_page(&page);
    for (file, text) in [("grafana.json", DASHBOARD), ("alerts.yml", ALERTS), ("its test", TESTS)] {
        let named = metrics_in(text);
        assert!(!named.is_empty(), "{file}");
        let missing: Vec<_> = named.difference(&there).collect();
        assert!(missing.is_empty(), "{file} names what no page has: {missing:?}");
    }
}

#[test]
fn every_metric_of_the_page_is_in_the_docs_and_on_the_dashboard() {
    let page = full();
    // The docs shorten names that follow another one to `…_end`.
    let ends: Vec<&str> =
        DOCS.split("`…_").skip(1).filter_map(|rest| rest.split('`').next()).collect();
    let named = metrics_in(DOCS);
    let documented =
        |name: &str| named.contains(name) || ends.iter().any(|end| name.ends_with(end));
    let missing: Vec<_> = on_page(&page).into_iter().filter(|name| !documented(name)).collect();
    assert!(missing.is_empty(), "not in prometheus.md: {missing:?}");
    // The rest of what the docs name must exist too.
    let unknown: Vec<_> = named.difference(&on_page(&page)).copied().collect();
    assert!(unknown.is_empty(), "only in prometheus.md: {unknown:?}");
    // Figures that a panel would not make clearer.
    let elsewhere = ["tcptoll_somaxconn", "tcptoll_watch_interval_seconds"];
    let shown = metrics_in(DASHBOARD);
    let hidden: Vec<_> = on_page(&page)
        .into_iter()
        .filter(|name| !shown.contains(name) && !elsewhere.contains(name))
        .collect();
    let ratio = ["tcptoll_listener_accept_queue_fill_ratio"];
    assert_eq!(hidden, ratio, "the panel shows its peak");
}

#[test]
fn every_diagnosis_has_an_alert_that_names_its_explanation() {
    for id in diagnoses::ids() {
        assert!(ALERTS.contains(&format!("tcptoll_diagnosis{{id=\"{id}\"}}")), "{id}");
        assert!(ALERTS.contains(&format!("runbook: \"tcptoll explain {id}\"")), "{id}");
    }
    let named = ALERTS.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let known: BTreeSet<&str> = diagnoses::ids().collect();
    let named: BTreeSet<&str> = named.collect();
    assert_eq!(named, known);
    for alert in ALERTS.split("- alert: ").skip(1).filter_map(|rest| rest.lines().next()) {
        assert!(TESTS.contains(&format!("alertname: {alert}\n")), "{alert} has no test");
    }
}

#[test]
fn the_dashboard_is_whole_and_needs_no_plugin() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        let kind = panel["type"].as_str().unwrap();
        assert!(["row", "stat", "table", "timeseries"].contains(&kind), "{title}: {kind}");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && taken.insert((x, y)), "{title} lies on another panel");
            }
        }
        if kind == "row" {
            continue;
        }
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}");
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            assert!(
                target["expr"].as_str().unwrap().contains("instance=~\"$instance\""),
                "{title}"
            );
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "instance", "listener"]);
}
