//! What do pictures of a listener's queues show? The queues over time against their limits, when each
//! connection was served on the steps of the retry ladders, and what clients were told.
//!
//! Experiments that record [`Queues`] share this: one fills the accept queue, another the SYN queue.

use tcptoll_core::record::{Arm, ListenerQueue, Outcome, Queues};
use tcptoll_core::sheet::{Align, Column, Part, Room, Table, Tone};
use tcptoll_core::stats::Series;
use tcptoll_core::units::host_port;
use tcptoll_show::html::of_arms;
use tcptoll_show::html::over_time::{Level, Line, Panel, Stack};
use tcptoll_show::run::Section;
use tcptoll_show::run::{Failed, Picture};
use tcptoll_show::run::{NONE, Own, Run};
use tcptoll_show::svg::arm_class;
use tcptoll_show::{clean, number};

use super::outcomes;
use super::outcomes::{recorded, told_shortly};

/// The parts of an experiment about queues.
pub(crate) const OWN: Own = Own {
    failed: Some(failed),
    answer_has_failures: Some("failed"),
    text_after: blocks,
    picture: outcomes::became,
    leads: |run| outcomes::became(run).is_some(),
    sections,
    details: queues_over_time,
    ..NONE
};

fn failed(Failed { failed, tried }: Failed) -> String {
    let [bad, all] = [failed, tried].map(number::count);
    format!("{bad} of {all} connections failed. Latencies cover only the others.")
}

fn sections(summary: &Run) -> Vec<Section> {
    let shown = |picture: Option<Picture>| picture.map(|picture| picture.part(summary));
    let waited =
        shown(outcomes::ladder(summary)).into_iter().chain(outcomes::ladder_table(summary));
    let told: Vec<Part> = shown(outcomes::outcomes(summary)).into_iter().collect();
    vec![
        Section::new("Connections that waited for a retransmission", waited.collect()),
        Section::new("Outcomes for clients, by time", told),
    ]
}

struct QueueSeries<'a> {
    title: String,
    series: &'a Series,
    /// What it may reach at most, and what that is called.
    limit: Option<(f64, &'static str)>,
}

/// Until when there is something to see, s: nothing changes from there on.
fn busy_until(series: &Series) -> f64 {
    let points = &series.points;
    let Some(end) = points.last() else { return 0.0 };
    let same =
        |point: &[f64; 4]| point[1..].iter().zip(&end[1..]).all(|(a, b)| a.total_cmp(b).is_eq());
    let idle = points.iter().rev().take_while(|point| same(point)).count();
    points.get(points.len() - idle).unwrap_or(end)[0]
}

fn queue_series(queues: &Queues) -> Vec<QueueSeries<'_>> {
    let mut all = Vec::new();
    let several = queues.listeners.len() > 1;
    for listener in &queues.listeners {
        let listener_name = if several {
            format!(" of {}", host_port(&listener.address, listener.port))
        } else {
            String::new()
        };
        if listener.length.points.len() > 1 {
            all.push(QueueSeries {
                title: format!("accept queue{listener_name}"),
                series: &listener.length,
                // listen(n) holds n + 1.
                limit: Some((f64::from(listener.limit) + 1.0, "capacity")),
            });
        }
        if let Some(series) = listener.half_open.as_ref().filter(|series| series.points.len() > 1)
            && listener.half_open_peak.unwrap_or(0) > 0
        {
            all.push(QueueSeries {
                title: format!("half-open requests{listener_name}"),
                series,
                limit: listener.half_open_limit.map(|limit| (f64::from(limit), "limit")),
            });
        }
        if let Some(series) =
            listener.dropped_so_far.as_ref().filter(|series| series.points.len() > 1)
            && listener.drops.unwrap_or(0) > 0
        {
            all.push(QueueSeries {
                title: format!("packets dropped so far{listener_name}"),
                series,
                limit: None,
            });
        }
    }
    all
}

/// A picture per arm that recorded a queue over time.
fn queues_over_time(summary: &Run) -> Vec<Section> {
    let pictures = |(at, arm, queues): (usize, &Arm, &Queues)| {
        let all = queue_series(queues);
        (!all.is_empty()).then(|| (at, vec![panels_picture(at, arm, queues, &all).part(summary)]))
    };
    let arms: Vec<(usize, Vec<Part>)> =
        recorded(summary).into_iter().filter_map(pictures).collect();
    let items = of_arms(summary, arms);
    vec![Section::new("Queues over time", items)]
}

fn panels_picture(at: usize, arm: &Arm, queues: &Queues, all: &[QueueSeries<'_>]) -> Picture {
    let label = format!("Queues of {} over time", arm.name);
    let last = all.iter().map(|one| busy_until(one.series)).fold(0.0, f64::max);
    let panels = all.iter().map(|one| panel(at, one, last)).collect();
    Picture {
        svg: Stack { height: 96.0, hits: 60, ..Stack::new(panels) }.draw().labelled(&label),
        caption: panels_caption(arm, queues),
        drawn: Vec::new(),
    }
}

fn panel(at: usize, one: &QueueSeries<'_>, last: f64) -> Panel {
    let points = one.series.points.iter().copied().filter(|point| point[0] <= last);
    let points: Vec<[f64; 4]> = points.collect();
    let reached = points.iter().map(|p| p[3]).fold(0.0, f64::max);
    let limit = one.limit.map(|(value, word)| {
        let text = format!("{word} {}", number::count(value as u64));
        Level { value, text, dash: "d1", named: false }
    });
    // A limit that is far away would flatten the line: it is named, and drawn where it is near.
    let near = limit.as_ref().is_some_and(|limit| limit.value <= reached * 4.0);
    let dashed = if near { "dashed: " } else { "" };
    let said = limit.as_ref().map_or_else(String::new, |l| format!(" ({dashed}{})", l.text));
    Panel {
        levels: limit.filter(|_| near).into_iter().collect(),
        lines: vec![Line::range(arm_class(at), points)],
        ..Panel::new(format!("{}{said}", one.title), number::plain, number::three)
    }
}

fn panels_caption(arm: &Arm, queues: &Queues) -> String {
    let mut said = Vec::new();
    for listener in &queues.listeners {
        let share = listener.full_share().map_or_else(String::new, |share| {
            if listener.full_samples == 0 {
                return format!(", never full in {} samples", number::count(listener.samples));
            }
            format!(
                ", full in {} of {} samples",
                number::percent(share),
                number::count(listener.samples)
            )
        });
        let drops = match listener.drops {
            Some(0) => ". No packet was dropped".to_owned(),
            Some(drops) => format!(
                ". {}{} packets were dropped, in {} of {} slices of 100 ms",
                if listener.drops_at_most { "At most " } else { "" },
                number::count(drops),
                number::count(listener.dropping_slices),
                number::count(listener.slices)
            ),
            None => String::new(),
        };
        said.push(format!(
            "Accept queue of {}: peak {} of {}{share}{drops}.",
            host_port(&listener.address, listener.port),
            number::count(listener.peak),
            number::count(u64::from(listener.limit) + 1)
        ));
    }
    if arm.rounds.len() > 1 {
        said.push("The picture shows the first round; counts cover all rounds.".to_owned());
    }
    said.join(" ")
}

/// Arms whose queue is drawn; more would push the answer off the screen.
const QUEUES: usize = 8;

const OUTCOMES: usize = 24;

/// Columns of an arm's name.
const NAME: usize = 24;

/// Columns of a queue over time, at least and at most.
const LINE: (usize, usize) = (16, 60);

/// Heights of a column.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// After the figures.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Part> {
    let arms = recorded(summary);
    let mut blocks = queue_lines(&arms, width);
    blocks.extend(outcome_lines(&arms, width));
    blocks
}

/// The listener that is drawn: the one that dropped the most.
fn drawn(queues: &Queues) -> Option<&ListenerQueue> {
    // Of equal ones the first: `max_by_key` takes the last.
    queues.listeners.iter().rev().max_by_key(|listener| listener.drops.unwrap_or(0))
}

fn queue_lines(arms: &[(usize, &Arm, &Queues)], width: usize) -> Vec<Part> {
    let all: Vec<(&Arm, &ListenerQueue)> = arms
        .iter()
        .filter_map(|(_, arm, queues)| Some((*arm, drawn(queues)?)))
        .filter(|(_, listener)| listener.length.points.len() > 1)
        .take(QUEUES)
        .collect();
    if all.is_empty() {
        return Vec::new();
    }
    let several = arms.len() > 1;
    let names: Vec<String> = all.iter().map(|(arm, _)| clean::shorten(&arm.name, NAME)).collect();
    let figures: Vec<String> = all
        .iter()
        .map(|(_, listener)| {
            let [peak, holds] =
                [listener.peak, listener.limit + 1].map(u64::from).map(number::count);
            format!("{peak}/{holds}")
        })
        .collect();
    let widest =
        |texts: &[String]| texts.iter().map(|text| clean::columns(text)).max().unwrap_or(0);
    let (name, figure) = (if several { widest(&names) + 2 } else { 0 }, widest(&figures));
    let room = width.saturating_sub(2 + name + 2 + figure + 9).clamp(LINE.0, LINE.1);
    let end = all.iter().map(|(_, listener)| busy_until(&listener.length)).fold(0.0, f64::max);
    let heading = format!(
        "accept queue over {} s (peak/capacity, drops)",
        number::plain((end * 100.0).round() / 100.0)
    );
    let mut blocks =
        vec![Part::Blank, Part::pieces(vec![(Tone::Strong, clean::shorten(&heading, width))])];
    for (((_, listener), label), figure_text) in all.iter().zip(&names).zip(&figures) {
        let line = line(&listener.length, f64::from(listener.limit) + 1.0, end, room);
        let bound = if listener.drops_at_most { "≤ " } else { "" };
        let drops = listener
            .drops
            .map_or_else(String::new, |drops| format!("{bound}{}", number::count(drops)));
        let label = if several {
            format!("  {label}{}", " ".repeat(name - clean::columns(label)))
        } else {
            "  ".to_owned()
        };
        let tail = format!("  {figure_text:>figure$}  {drops:>6}");
        let tone = if listener.was_full() { Tone::Bad } else { Tone::Plain };
        blocks.push(Part::pieces(vec![(Tone::Plain, label), (tone, line), (Tone::Plain, tail)]));
    }
    blocks
}

/// The greatest length in each column, as blocks; a full block is a full queue, a blank an empty one.
fn line(series: &Series, holds: f64, end: f64, room: usize) -> String {
    let mut most = vec![0.0_f64; room];
    let points: Vec<[f64; 4]> = series.points.iter().copied().filter(|p| p[0] <= end).collect();
    let place =
        |s: f64| if end > 0.0 { ((s / end) * (room - 1) as f64).round() as usize } else { 0 };
    for pair in points.windows(2) {
        // A point holds until the next one.
        for cell in &mut most[place(pair[0][0])..=place(pair[1][0]).min(room - 1)] {
            *cell = cell.max(pair[0][3]);
        }
    }
    if let Some(last) = points.last() {
        let cell = &mut most[place(last[0]).min(room - 1)];
        *cell = cell.max(last[3]);
    }
    most.into_iter()
        .map(|length| {
            if length <= 0.0 {
                return ' ';
            }
            let eighths = (length / holds.max(1.0) * 8.0).ceil().clamp(1.0, 8.0);
            // Only a queue that holds all it can is a full block.
            let eighths = if length < holds { eighths.min(7.0) } else { 8.0 };
            BLOCKS[eighths as usize - 1]
        })
        .collect()
}

fn outcome_lines(arms: &[(usize, &Arm, &Queues)], _width: usize) -> Vec<Part> {
    let failed = |queues: &Queues| {
        queues.outcomes.iter().any(|(name, times)| name != "ok" && times.count > 0)
    };
    if !arms.iter().any(|(_, _, queues)| failed(queues)) {
        return Vec::new();
    }
    let mut rows: Vec<(String, &str, &Outcome)> = Vec::new();
    for (_, arm, queues) in arms {
        let mut all: Vec<(&String, &Outcome)> =
            queues.outcomes.iter().filter(|(_, times)| times.count > 0).collect();
        all.sort_by_key(|(name, _)| name.as_str() != "ok");
        for (n, (name, times)) in all.into_iter().enumerate() {
            let arm = if n == 0 && arms.len() > 1 {
                clean::shorten(&arm.name, NAME)
            } else {
                String::new()
            };
            rows.push((arm, told_shortly(name), times));
        }
    }
    let more = rows.len().saturating_sub(OUTCOMES);
    rows.truncate(OUTCOMES);
    let times = |time: fn(&Outcome) -> f64| {
        number::times(&rows.iter().map(|row| Some(time(row.2))).collect::<Vec<_>>())
    };
    let times = [times(|t| t.min_us), times(|t| t.p50_us), times(|t| t.max_us)];
    let columns = vec![
        Column::names(""),
        Column::new("outcome", Align::Left),
        Column::new("connections", Align::Right),
        Column::new("first", Align::Right).room(Room::Wide),
        Column::new("median", Align::Right),
        Column::new("last", Align::Right).room(Room::Wide),
    ];
    let row = |(at, (arm, outcome, told)): (usize, &(String, &str, &Outcome))| {
        let [first, median, last] = [0, 1, 2].map(|which: usize| times[which][at].clone());
        let count = number::count(told.count);
        [arm.clone(), (*outcome).to_owned(), count, first, median, last]
    };
    let table = Table::new(columns, rows.iter().enumerate().map(row));
    let mut blocks = vec![
        Part::Blank,
        Part::pieces(vec![(Tone::Strong, "outcomes for clients, by time".to_owned())]),
        Part::Table(table),
    ];
    if more > 0 {
        blocks.push(Part::prose(2, format!("{more} more rows in the HTML report"), Tone::Dim));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::{DropBalance, RetryLadder, Summary};
    use tcptoll_core::stats::histogram::Histogram;

    use tcptoll_core::sheet::{Forms, Parts};
    use tcptoll_show::TextStyle;

    use super::*;
    use crate::experiments::REPORTS;
    use tcptoll_core::sheet::{Row, Table};

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
            length: series(&[
                0.0,
                full / 2.0,
                if waited > 0 { full } else { 100.0 },
                0.0,
                0.0,
                0.0,
            ]),
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
        REPORTS.run(Summary { experiment: "accept-queue".into(), arms, ..Summary::default() })
    }

    fn texts(table: &Table) -> Vec<Vec<&str>> {
        fn cells(row: &Row) -> Vec<&str> {
            match row {
                Row::Cells { cells, .. } => cells.iter().map(|cell| cell.text.as_str()).collect(),
                Row::Group { .. } => Vec::new(),
            }
        }
        table.rows.iter().map(cells).collect()
    }

    /// The terminal's lines, without their tones.
    fn lines(summary: &Run, width: usize) -> Vec<String> {
        let mut parts = Parts::default();
        parts.extend(Forms::TEXT, blocks(summary, width));
        let text = tcptoll_show::sheet::parts(&parts, TextStyle { colour: false, width });
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn steps_are_counted_in_the_picture_in_its_caption_and_next_to_the_drops() {
        let picture = outcomes::ladder(&two()).unwrap();
        assert!(picture.svg.to_string().contains("SYN: 246"), "{}", picture.svg);
        assert!(picture.svg.to_string().contains("SYN-ACK: 12"));
        assert!(picture.svg.to_string().contains("retransmitted SYN 1 s after the first"));
        assert!(!picture.svg.to_string().contains("retransmitted SYN 2 s"), "nobody waited for it");
        let waited = "backlog 128: connected after a retransmitted SYN: 246 at 1 s";
        assert!(picture.caption.contains(waited), "{}", picture.caption);
        let Some(Part::Table(table)) = outcomes::ladder_table(&two()) else { panic!("no table") };
        assert_eq!(table.columns.len(), 6);
        assert_eq!(
            texts(&table),
            [
                ["backlog 128", "SYN", "246 at 1 s", "0", "246", "246"],
                ["backlog 128", "SYN-ACK", "12 at 1 s", "0", "—", "14"],
            ]
        );
    }

    #[test]
    fn connections_are_divided_into_served_waited_and_failed_and_none_is_counted_twice() {
        // 500 and `waited` first bytes, of which all but the first 500 came after a second.
        let mut full = arm("backlog 16", 16, 246);
        full.ok = 746;
        full.attempts = 800;
        let picture = outcomes::became(&run(vec![full, arm("backlog 1024", 1_024, 0)])).unwrap();
        let svg = picture.svg.to_string();
        let said = "backlog 16: 500 served within 1 s, 246 served after 1 s or more, 54 failed";
        assert!(svg.contains(said), "{svg}");
        assert!(svg.contains("backlog 1024: 500 served within 1 s, 50 failed"), "{svg}");
        assert!(picture.caption.starts_with("backlog 16: 54 of 800 connections failed, 246 more"));
    }

    #[test]
    fn of_many_arms_the_worst_are_drawn_and_the_caption_is_of_all() {
        let mut arms: Vec<Arm> = (0..9).map(|at| arm(&format!("well {at}"), 1_024, 0)).collect();
        for arm in &mut arms {
            arm.attempts = arm.ok;
        }
        let mut ill = arm("ill", 16, 0);
        ill.attempts = 643;
        arms.push(ill);
        let picture = outcomes::became(&run(arms)).unwrap();
        assert!(
            picture.caption.starts_with("ill: 143 of 643 connections failed"),
            "{}",
            picture.caption
        );
        assert!(picture.svg.to_string().contains("ill: 500 served within 1 s, 143 failed"));
    }

    #[test]
    fn each_outcome_has_its_row_and_the_caption_says_what_those_that_failed_were_told() {
        let picture = outcomes::outcomes(&two()).unwrap();
        let expected = "backlog 128: 20 connections were reset (median: 20.0 ms). backlog 128: 30 \
                        connections timed out before the first byte (median: 3.00 s).";
        assert!(picture.caption.starts_with(expected), "{}", picture.caption);
        let well = run(vec![arm("a", 1_024, 0)]);
        let caption = outcomes::outcomes(&well).unwrap().caption;
        assert!(caption.starts_with("Every connection was served in the end."), "{caption}");
    }

    #[test]
    fn a_queue_is_drawn_against_its_limit_unless_that_is_far_away() {
        let sections = queues_over_time(&two());
        let [_, Part::Picture(first), Part::Folded { parts, .. }] = &sections[0].parts[..] else {
            panic!("the first of two arms is open")
        };
        let [Part::Picture(second)] = &parts[..] else { panic!("a picture") };
        let pictures = [first, second];
        assert!(pictures[0].svg.0.contains("accept queue (dashed: capacity 129)"));
        assert!(pictures[0].svg.0.contains("half-open requests (limit 256)"));
        assert!(pictures[0].svg.0.contains("packets dropped so far"));
        assert!(
            pictures[0].caption.contains("peak 129 of 129, full in 10\u{a0}% of 10 samples. 246")
        );
        // It reached 513 of 1,025 by the series' second point.
        assert!(pictures[1].svg.0.contains("capacity 1,025"));
        assert!(!pictures[1].svg.0.contains("packets dropped so far"));
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
        assert!(outcomes::ladder(&bare).is_none() && outcomes::outcomes(&bare).is_none());
        assert!(outcomes::ladder_table(&bare).is_none() && lines(&bare, 80).is_empty());
        assert!(queues_over_time(&bare).iter().all(|section| section.parts.is_empty()));
        let empty = Arm { own: Box::<Queues>::default().into(), ..Arm::default() };
        let empty = run(vec![empty]);
        assert!(lines(&empty, 80).is_empty() && outcomes::ladder(&empty).is_none());
    }
}
