use std::collections::BTreeMap;

use tcptoll_core::record::Summary;

use super::*;
use crate::experiments::REPORTS;
use tcptoll_show::own::Block;
use tcptoll_show::run::Run;

/// 5 s with a stall from 1 s to 3 s.
fn arm(name: &str, busy: f64, during_us: f64) -> Arm {
    let series = |value: &dyn Fn(bool) -> f64| Series {
        points: (0..200_i32)
            .map(|slice| {
                let s = f64::from(slice) / 40.0;
                let value = value((1.0..3.0).contains(&s));
                [s, value, value, value]
            })
            .collect(),
    };
    let group = || RequestGroup {
        attempts: 250,
        ok: 250,
        rate_per_s: series(&|stalled| if stalled { 0.0 } else { 50.0 }),
        latency_us: series(&|stalled| if stalled { during_us } else { 500.0 }),
        ..RequestGroup::default()
    };
    let pool = WorkerPool {
        workers: 20,
        backend: "redis".into(),
        stalled_s: Some([1.0, 3.0]),
        groups: BTreeMap::from([(LOCAL.to_owned(), group()), (BACKEND.to_owned(), group())]),
        busy: series(&|stalled| if stalled { busy } else { 0.0 }),
        backend_queue: series(&|stalled| if stalled { 5.0 } else { 0.0 }),
        backend_limit: Some(4),
        backend_drops: Some(41),
        stuck_measured: Some(busy),
        stuck_expected: Some(busy),
        recovery_s: Some(0.25),
        ..WorkerPool::default()
    };
    Arm { name: name.into(), own: Box::new(pool).into(), ..Arm::default() }
}

fn run(arms: Vec<Arm>) -> Run {
    REPORTS.cleaned(Summary { experiment: "worker-pool".into(), arms, ..Summary::default() })
}

fn lines(blocks: Vec<Block>) -> Vec<String> {
    let text = |block| match block {
        Block::Line(pieces) => pieces.into_iter().map(|(_, text)| text).collect(),
        Block::Prose(_, text, _) => text,
        _ => String::new(),
    };
    blocks.into_iter().map(text).collect()
}

#[test]
fn the_picture_of_all_arms_shades_the_stall_and_names_who_had_the_most_busy_workers() {
    let summary = run(vec![arm("stalled", 20.0, 800e3), arm("limit", 10.0, 520.0)]);
    let picture = picture(&summary).unwrap();
    assert_eq!(
        picture.caption,
        "During the stall 20.0 of 20 workers were busy in stalled, 10.0 of 20 workers were busy in \
         limit. Shaded: the stall."
    );
    let both = picture.both_svg.to_string();
    assert_eq!(both.matches("<svg").count(), 2);
    assert_eq!(both.matches("class=\"margin\"").count(), 6, "three panels on each screen");
    assert!(both.contains(">20 workers</text>") && both.contains(">stall</text>"), "{both}");
    assert_eq!(picture.drawn, [0, 1]);
}

#[test]
fn an_arm_shows_workers_queue_throughput_and_latency() {
    let summary = run(vec![arm("limit", 10.0, 520.0)]);
    let sections = details(&summary);
    let [Item::Arms(arms)] = sections[0].items.as_slice() else { panic!("no arms") };
    let [(0, items)] = arms.as_slice() else { panic!("one arm") };
    let [Item::Picture(picture)] = items.as_slice() else { panic!("one picture") };
    for text in ["capacity 5", "expected: 10.0", "successes per second", "with the backend"] {
        assert!(
            picture.both_svg.to_string().contains(&format!(">{text}")),
            "{text}: {}",
            picture.both_svg
        );
    }
    assert_eq!(
        picture.caption,
        "Busy workers during the stall: 10.0 (expected from the settings: 10.0). The backend's \
         kernel dropped 41 packets, because the accept queue was full. Recovery: 250 ms after the \
         end of the stall."
    );
}

#[test]
fn the_terminal_has_a_strip_per_arm_within_80_columns() {
    let summary = run(vec![arm("stalled", 20.0, 800e3), arm("limit", 10.0, 520.0)]);
    let shown = lines(strip::blocks(&summary, 80));
    assert!(shown.iter().all(|line| clean::columns(line) <= 80), "{shown:#?}");
    let stalled = shown.iter().find(|line| line.starts_with("  stalled")).unwrap();
    assert!(stalled.contains("██████████") && stalled.ends_with("peak 20 of 20"), "{stalled}");
    assert!(shown[2].contains("├──") && shown[2].ends_with("┤ stall"), "{shown:#?}");
    assert!(shown.iter().any(|line| line.ends_with("peak 800 ms")), "{shown:#?}");
    assert!(lines(strip::blocks(&summary, 50)).is_empty(), "no room");
}

#[test]
fn an_arm_without_readings_is_left_out() {
    let summary = run(vec![Arm { name: "failed".into(), ..Arm::default() }]);
    assert!(picture(&summary).is_none());
    assert!(details(&summary)[0].items.is_empty());
    assert!(strip::blocks(&summary, 80).is_empty());
}
