//! The dashboard, the alerts and the page of the docs, next to what a page of metrics has.

use std::collections::BTreeSet;

use crate::watch::diagnoses;
use serde_json::Value;

use super::tests::full;

const DASHBOARD: &str = include_str!("../../../../docs/watch/grafana.json");
const ALERTS: &str = include_str!("../../../../docs/watch/alerts.yml");
const TESTS: &str = include_str!("../../../../docs/watch/alerts.test.yml");
const DOCS: &str = include_str!("../../../../docs/watch/prometheus.md");

/// Words that begin like a metric.
fn metrics(text: &str) -> BTreeSet<&str> {
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
        let named = metrics(text);
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
    let named = metrics(DOCS);
    let documented =
        |name: &str| named.contains(name) || ends.iter().any(|end| name.ends_with(end));
    let missing: Vec<_> = on_page(&page).into_iter().filter(|name| !documented(name)).collect();
    assert!(missing.is_empty(), "not in prometheus.md: {missing:?}");
    // The rest of what the docs name must exist too.
    let unknown: Vec<_> = named.difference(&on_page(&page)).copied().collect();
    assert!(unknown.is_empty(), "only in prometheus.md: {unknown:?}");
    // Figures that a panel would not make clearer.
    let elsewhere = ["tcptoll_somaxconn", "tcptoll_watch_interval_seconds"];
    let shown = metrics(DASHBOARD);
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
