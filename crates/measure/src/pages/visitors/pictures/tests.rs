use tcptoll_core::record::Summary;

use super::*;
use crate::reports::REPORTS;
use tcptoll_show::own::Block;
use tcptoll_show::run::Run;

fn arm(name: &str, busy: f64, killed: u64) -> Arm {
    let series = |value: f64| Series {
        points: (0..20).map(|at| [f64::from(at) / 2.0, value, value, value]).collect(),
    };
    let group = tcptoll_core::record::PageGroup {
        attempts: 20,
        ok: 20,
        page_us: series(300_000.0),
        ..tcptoll_core::record::PageGroup::default()
    };
    let visits = SiteVisits {
        window_s: 10.0,
        workers: 60,
        worker: "process".to_owned(),
        busy: series(busy),
        kept: series(busy / 2.0),
        memory_bytes: series(1e8),
        memory_limit: Some(tcptoll_core::record::MemoryLimit {
            bytes: 1 << 28,
            by: "watch".to_owned(),
            why: Some("no <cgroup>".to_owned()),
            kills: killed,
        }),
        pages: [(FIRST.to_owned(), group)].into(),
        held_expected: Some(busy),
        ..SiteVisits::default()
    };
    Arm { name: name.to_owned(), own: Box::new(visits).into(), ..Arm::default() }
}

fn summary(arms: Vec<Arm>) -> Run {
    REPORTS.cleaned(Summary { experiment: "visitors".to_owned(), arms, ..Summary::default() })
}

#[test]
fn the_caption_states_who_holds_most_and_who_least() {
    let summary = summary(vec![arm("15s", 50.0, 0), arm("2s", 20.0, 0)]);
    let picture = picture(&summary).unwrap();
    assert_eq!(
        picture.caption,
        "Connections held 50.0 of 60 processes in 15s on average, 20.0 of 60 processes in 2s."
    );
}

#[test]
fn the_details_say_who_limited_the_memory_and_why_and_what_was_killed() {
    let one = arm("15s", 50.0, 2);
    let caption = caption_of_one(one.own.site_visits.as_deref().unwrap());
    assert!(caption.contains("tcptoll, because the kernel could not enforce it (no <cgroup>)"));
    assert!(caption.contains("2 processes were killed"), "{caption}");
}

#[test]
fn the_terminal_has_strips_within_80_columns_and_none_where_nothing_was_recorded() {
    let all = summary(vec![arm("15s", 50.0, 0), arm("2s", 20.0, 0)]);
    let lines = strip::blocks(&all, 80)
        .into_iter()
        .filter_map(|block| match block {
            Block::Line(parts) => Some(parts.into_iter().map(|part| part.1).collect::<String>()),
            _ => None,
        })
        .collect::<Vec<_>>();
    assert_eq!(lines.len(), 6);
    assert!(lines.iter().all(|line| clean::columns(line) <= 80), "{lines:?}");
    assert!(strip::blocks(&all, 40).is_empty());
    assert!(strip::blocks(&summary(vec![Arm::default()]), 80).is_empty());
    assert!(picture(&summary(vec![Arm::default()])).is_none());
}
