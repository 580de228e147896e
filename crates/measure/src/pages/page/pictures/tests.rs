use tcptoll_core::page::waterfall::{Connection, LeftOut};
use tcptoll_core::record::Summary;

use super::*;
use crate::reports::REPORTS;
use tcptoll_show::own::{Block, Item};
use tcptoll_show::run::Run;

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
    strip::blocks(summary, width).iter().map(line).collect::<Vec<String>>().join("\n")
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
        for section in picture::sections(&summary) {
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
        loads.spans_us = vec![if browser == "on" { 1e6 } else { 0.0 } + connections as f64 * 1e3];
        run.summary.arms.push(arm);
    }
    let rules = rules(&drawn(&run));
    assert_eq!(rules.len(), 2, "{rules:?}");
    // 15 connections, whoever loads the page; the browser's own second is in neither.
    assert!(rules.iter().all(|rule| rule.contains("measured 15.0 ms")), "{rules:?}");
}
