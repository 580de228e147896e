use tcptoll_core::record::{DropBalance, ListenerQueue, Outcome, RetryLadder, Summary};
use tcptoll_core::stats::Series;
use tcptoll_core::stats::histogram::Histogram;

use super::*;
use crate::experiments::REPORTS;
use tcptoll_show::clean;
use tcptoll_show::own::Block;
use tcptoll_show::run::Run;

fn series(values: &[f64]) -> Series {
    let points = values.iter().enumerate();
    Series {
        points: points.map(|(at, value)| [at as f64 / 10.0, *value, *value, *value]).collect(),
    }
}

/// 500 connections of which `waited` waited for a second SYN, and 12 for a second SYN-ACK.
fn arm(name: &str, limit: u32, waited: u64) -> Arm {
    let full = f64::from(limit) + 1.0;
    let listener = ListenerQueue {
        address: "10.77.0.2".into(),
        port: 80,
        limit,
        peak: if waited > 0 { limit + 1 } else { 100 },
        drops: Some(waited),
        drops_at_most: false,
        samples: 10,
        full_samples: u64::from(waited > 0),
        slices: 10,
        dropping_slices: u64::from(waited > 0),
        length: series(&[0.0, full / 2.0, if waited > 0 { full } else { 100.0 }, 0.0, 0.0, 0.0]),
        half_open_peak: Some(7),
        half_open_limit: Some(256),
        half_open: Some(series(&[0.0, 7.0, 0.0])),
        dropped_so_far: Some(series(&[0.0, waited as f64, waited as f64])),
    };
    let outcome = |count, us| Outcome { count, min_us: us / 2.0, p50_us: us, max_us: us * 2.0 };
    let mut outcomes = std::collections::BTreeMap::from([("ok".to_owned(), outcome(500, 9e3))]);
    if waited > 0 {
        outcomes.insert("timeout".to_owned(), outcome(30, 3e6));
        outcomes.insert("reset".to_owned(), outcome(20, 20e3));
    }
    let ladder = |at_s: &[f64], first| RetryLadder {
        at_s: at_s.to_vec(),
        connections: vec![first, 0],
        off: 0,
    };
    let queues = Queues {
        listeners: vec![listener],
        outcomes,
        syn_ladder: ladder(&[1.0, 2.0], waited),
        syn_ack_ladder: ladder(&[1.0, 3.0], if waited > 0 { 12 } else { 0 }),
        drops: Some(DropBalance {
            syns_unanswered: waited,
            syns_dropped: waited,
            acks_dropped: if waited > 0 { 14 } else { 0 },
            ..DropBalance::default()
        }),
        ..Queues::default()
    };
    let mut times = Histogram::new();
    for _ in 0..500 {
        times.record_ns(9_000_000);
    }
    let mut slow = times.clone();
    for _ in 0..waited {
        slow.record_ns(1_009_000_000);
    }
    Arm {
        name: name.into(),
        attempts: 550,
        ok: 500,
        histograms: [
            ("connect_us".to_owned(), times.summary_us()),
            ("first_byte_us".to_owned(), slow.summary_us()),
        ]
        .into(),
        own: Box::new(queues).into(),
        ..Arm::default()
    }
}

fn two() -> Run {
    let arms = vec![arm("backlog 128", 128, 246), arm("backlog 1024", 1_024, 0)];
    run(arms)
}

fn run(arms: Vec<Arm>) -> Run {
    REPORTS.cleaned(Summary { experiment: "accept-queue".into(), arms, ..Summary::default() })
}

/// The terminal's lines, without their tones.
fn lines(summary: &Run, width: usize) -> Vec<String> {
    let texts = |block: Block| match block {
        Block::Line(pieces) => vec![pieces.into_iter().map(|(_, text)| text).collect()],
        Block::Lines(lines, _) => lines.heads.into_iter().chain(lines.rows).collect(),
        Block::Prose(_, text, _) => vec![text],
        _ => vec![String::new()],
    };
    text::blocks(summary, width).into_iter().flat_map(texts).collect()
}

#[test]
fn steps_are_counted_in_the_picture_in_its_caption_and_next_to_the_drops() {
    let picture = ladder::picture(&two()).unwrap();
    assert!(picture.both_svg.to_string().contains("SYN: 246"), "{}", picture.both_svg);
    assert!(picture.both_svg.to_string().contains("SYN-ACK: 12"));
    assert!(picture.both_svg.to_string().contains("retransmitted SYN 1 s after the first"));
    assert!(
        !picture.both_svg.to_string().contains("retransmitted SYN 2 s"),
        "nobody waited for it"
    );
    let waited = "backlog 128: connected after a retransmitted SYN: 246 at 1 s";
    assert!(picture.caption.contains(waited), "{}", picture.caption);
    let Some(Item::Rows(heads, rows, _)) = ladder::table(&two()) else { panic!("no table") };
    assert_eq!(heads.len(), 6);
    assert_eq!(
        rows,
        [
            ["backlog 128", "SYN", "246 at 1 s", "0", "246", "246"],
            ["backlog 128", "SYN-ACK", "12 at 1 s", "0", "—", "14"],
        ]
    );
}

#[test]
fn each_outcome_has_its_row_and_the_caption_says_what_those_that_failed_were_told() {
    let picture = outcomes::picture(&two()).unwrap();
    let expected = "backlog 128: 20 connections were reset (median: 20.0 ms). backlog 128: 30 \
                    connections timed out before the first byte (median: 3.00 s).";
    assert!(picture.caption.starts_with(expected), "{}", picture.caption);
    let well = run(vec![arm("a", 1_024, 0)]);
    let caption = outcomes::picture(&well).unwrap().caption;
    assert!(caption.starts_with("Every connection was served in the end."), "{caption}");
}

#[test]
fn a_queue_is_drawn_against_its_limit_unless_that_is_far_away() {
    let sections = over_time::sections(&two());
    let Some(Item::Arms(arms)) = sections[0].items.first() else { panic!("no arms") };
    let pictures: Vec<&Picture> = arms
        .iter()
        .flat_map(|(_, items)| items)
        .filter_map(|item| if let Item::Picture(picture) = item { Some(picture) } else { None })
        .collect();
    assert!(pictures[0].both_svg.to_string().contains("accept queue (dashed: capacity 129)"));
    assert!(pictures[0].both_svg.to_string().contains("half-open requests (limit 256)"));
    assert!(pictures[0].both_svg.to_string().contains("packets dropped so far"));
    assert!(pictures[0].caption.contains("peak 129 of 129, full in 10 % of 10 samples. 246"));
    // It reached 513 of 1,025 by the series' second point.
    assert!(pictures[1].both_svg.to_string().contains("capacity 1,025"));
    assert!(!pictures[1].both_svg.to_string().contains("packets dropped so far"));
    assert!(pictures[1].caption.contains("never full in 10 samples. No packet was dropped"));
}

#[test]
fn a_terminal_shows_each_queue_as_a_line_within_its_width_and_a_full_block_is_a_full_queue() {
    for width in [60, 80, 150] {
        let lines = lines(&two(), width);
        assert!(lines.iter().all(|line| clean::columns(line) <= width), "{width}: {lines:#?}");
        let full: Vec<&String> = lines.iter().filter(|line| line.contains('█')).collect();
        assert_eq!(full.len(), 1, "{lines:#?}");
        assert!(full[0].contains("backlog 128") && full[0].contains("129/129"), "{}", full[0]);
    }
    let told = lines(&two(), 80).join("\n");
    assert!(told.contains("no first byte") && told.contains("reset"), "{told}");
    let well = run(vec![arm("a", 1_024, 0)]);
    assert!(!lines(&well, 80).join("\n").contains("outcomes for clients"));
}

#[test]
fn a_record_without_queues_has_no_picture_and_no_lines() {
    let bare = run(vec![Arm { name: "a".into(), ..Arm::default() }]);
    assert!(ladder::picture(&bare).is_none() && outcomes::picture(&bare).is_none());
    assert!(ladder::table(&bare).is_none() && lines(&bare, 80).is_empty());
    assert!(over_time::sections(&bare).iter().all(|section| section.items.is_empty()));
    let empty = Arm { own: Box::<Queues>::default().into(), ..Arm::default() };
    let empty = run(vec![empty]);
    assert!(lines(&empty, 80).is_empty() && ladder::picture(&empty).is_none());
}
