//! Which figures stand in the tables of `worker-pool`: both kinds of requests apart, workers, recovery. And how
//! the pool went over time: busy workers, the backend's queue, requests of both kinds, with the stall as a
//! shaded band; `strip_blocks` draws with letters.

use super::effects::PoolArm;
use super::{
    BACKEND, BACKEND_FAILED, BACKEND_LATENCY, BACKEND_LATENCY_MEAN, BACKEND_RATE, LOCAL,
    LOCAL_FAILED, LOCAL_LATENCY, LOCAL_LATENCY_MEAN, LOCAL_RATE, RECOVERY, WORKERS_BUSY_PEAK,
    WORKERS_STUCK,
};
use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table, value};
use tcptoll_core::experiment::columns::{ECHO_P50, ERRORS, OK, figures, tidy};
use tcptoll_core::record::{Arm, RequestGroup, WorkerPool};
use tcptoll_core::sheet::{Part, Room, Tone};
use tcptoll_core::stats::Series;
use tcptoll_show::html::of_arms;
use tcptoll_show::html::over_time;
use tcptoll_show::html::over_time::{Level, Line, Panel, Stack};
use tcptoll_show::html::over_time::{NAME, cut, heading, letters, row};
use tcptoll_show::run::Picture;
use tcptoll_show::run::Section;
use tcptoll_show::run::{NONE, Own, Run};
use tcptoll_show::svg::arm_class;
use tcptoll_show::{clean, figures, number};

use Figure::{Count, Estimate, Number, Share, Words};
use Quantile::{Max, P50, P99};

/// Headings of the two kinds of requests.
const WITHOUT: &str = "without backend";
const WITH: &str = "with backend";
const BUSY: &str = "workers busy";

fn pool(arm: &Arm) -> Option<&WorkerPool> {
    arm.own.worker_pool.as_deref()
}

const LOCAL_MEAN: Column = Column::new(
    (WITHOUT, "mean"),
    "latency without backend, mean",
    tidy(&LOCAL_LATENCY_MEAN),
    Estimate(LOCAL_LATENCY_MEAN.unit),
)
.shown(Room::Always);
const LOCAL_P50: Column =
    Column::quantile((WITHOUT, "p50"), "latency without backend, p50", LOCAL_LATENCY.name, P50);
const LOCAL_P99: Column =
    Column::quantile((WITHOUT, "p99"), "latency without backend, p99", LOCAL_LATENCY.name, P99);
const LOCAL_MAX: Column =
    Column::quantile((WITHOUT, "max"), "latency without backend, max", LOCAL_LATENCY.name, Max);
const LOCAL_PER_S: Column =
    Column::new((WITHOUT, "per s"), "requests/s without backend", tidy(&LOCAL_RATE), Estimate(""));
const LOCAL_FAILS: Column = Column::new(
    (WITHOUT, "failed"),
    "failed without backend",
    tidy(&LOCAL_FAILED),
    Share(|arm| value(arm, LOCAL_FAILED.name)),
);
const BACKEND_MEAN: Column = Column::new(
    (WITH, "mean"),
    "latency with backend, mean",
    tidy(&BACKEND_LATENCY_MEAN),
    Estimate(BACKEND_LATENCY_MEAN.unit),
);
const BACKEND_P99: Column =
    Column::quantile((WITH, "p99"), "latency with backend, p99", BACKEND_LATENCY.name, P99);
const BACKEND_PER_S: Column =
    Column::new((WITH, "per s"), "requests/s with backend", tidy(&BACKEND_RATE), Estimate(""));
const BACKEND_FAILS: Column = Column::new(
    (WITH, "failed"),
    "failed with backend",
    tidy(&BACKEND_FAILED),
    Share(|arm| value(arm, BACKEND_FAILED.name)),
);
const BUSY_MEAN: Column = Column::new(
    (BUSY, "stall"),
    "workers busy during the stall",
    tidy(&WORKERS_STUCK),
    Number(|arm| PoolArm::from_arm(arm)?.busy(), 1.0),
);
const BUSY_EXPECTED: Column = Column::new(
    (BUSY, "expected"),
    "workers busy, expected",
    ("workers_stuck_expected", "workers"),
    Number(|arm| pool(arm)?.stuck_expected, 1.0),
);
const BUSY_EXPECTED_MAX: Column = Column::new(
    (BUSY, "at most"),
    "workers busy, expected at most",
    ("workers_stuck_expected_max", "workers"),
    Number(|arm| pool(arm)?.stuck_expected_max, 1.0),
)
.when(|summary| summary.arms.iter().filter_map(PoolArm::from_arm).any(PoolArm::expects_a_range));
const BUSY_PEAK: Column = Column::new(
    (BUSY, "peak"),
    "workers busy, peak",
    tidy(&WORKERS_BUSY_PEAK),
    Number(|arm| value(arm, WORKERS_BUSY_PEAK.name), 1.0),
);
const WORKERS: Column =
    Column::new((BUSY, "of"), "workers", ("workers", ""), Count(|arm| Some(pool(arm)?.workers)));
const QUEUE: Column = Column::new(
    ("backend queue", "peak of"),
    "backend queue, peak of what it holds",
    ("backend_queue", ""),
    Words(|arm| {
        let limit = u64::from(pool(arm)?.backend_limit?) + 1;
        Some(format!("{} of {limit}", PoolArm::from_arm(arm)?.queue_peak()?))
    }),
);
const DROPS: Column = Column::new(
    ("backend queue", "drops"),
    "drops at the backend",
    ("backend_drops", ""),
    Count(|arm| pool(arm)?.backend_drops),
);
const RECOVERED: Column = Column::new(
    ("", "recovery"),
    "recovery after the stall",
    tidy(&RECOVERY),
    Figure::Time(|arm| Some(value(arm, RECOVERY.name)? * 1e6)),
);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    figures(&[
        &[
            LOCAL_MEAN,
            LOCAL_P50.shown(Room::Page),
            LOCAL_P99,
            LOCAL_MAX.shown(Room::Page),
            LOCAL_PER_S.shown(Room::Page),
            LOCAL_FAILS,
        ],
        &[
            BACKEND_MEAN,
            BACKEND_P99.shown(Room::Page),
            BACKEND_PER_S.shown(Room::Page),
            BACKEND_FAILS,
        ],
        &[OK, ERRORS],
    ]),
    Table {
        id: "workers",
        title: "Workers and the backend's queue",
        has: |arm| pool(arm).is_some(),
        room: Room::Always,
        parts: &[
            &[BUSY_MEAN, BUSY_EXPECTED, BUSY_EXPECTED_MAX, BUSY_PEAK.shown(Room::Page), WORKERS],
            &[QUEUE, DROPS],
            &[RECOVERED, ECHO_P50.shown(Room::Page)],
        ],
    },
];

pub(crate) const OWN: Own =
    Own { part: group, text_after: strip_blocks, picture, sections, details, ..NONE };

/// Of the requests of one kind, how many were answered.
fn group(arm: &Arm, histogram: &str) -> Option<(u64, u64)> {
    let name = if histogram == LOCAL_LATENCY.name { LOCAL } else { BACKEND };
    let group = arm.own.worker_pool.as_ref()?.groups.get(name)?;
    Some((group.ok, group.attempts))
}

/// More lines than this cannot be told apart.
const ARMS: usize = 9;

/// An arm of a pool, and its place in the run.
#[derive(Clone, Copy)]
struct Drawn<'a> {
    at: usize,
    arm: &'a Arm,
    pool: &'a WorkerPool,
}

fn drawn(summary: &Run) -> Vec<Drawn<'_>> {
    let with_pool = |(at, arm)| Some(Drawn { at, arm, pool: pool_over_time(arm)? });
    summary.arms.iter().enumerate().filter_map(with_pool).collect()
}

/// What an arm recorded of its pool over time. None: nothing.
fn pool_over_time(arm: &Arm) -> Option<&WorkerPool> {
    arm.own.worker_pool.as_deref().filter(|pool| pool.busy.points.len() > 1)
}

/// The end of the window, s: that of its last slice.
fn last(pool: &WorkerPool) -> f64 {
    let end = |series: &Series| match series.points.as_slice() {
        [.., before, last] => 2.0 * last[0] - before[0],
        _ => 0.0,
    };
    pool.groups.values().map(|group| end(&group.rate_per_s)).fold(0.0, f64::max)
}

/// Busy workers and the latency of requests that need no backend, a line per arm.
fn picture(summary: &Run) -> Option<Picture> {
    let mut drawn = drawn(summary);
    let more = drawn.len().saturating_sub(ARMS);
    drawn.truncate(ARMS);
    let first = drawn.iter().find(|one| one.pool.stalled_s.is_some()).or(drawn.first())?;
    let last = drawn.iter().map(|one| last(one.pool)).fold(0.0, f64::max);
    let workers = drawn.iter().map(|one| one.pool.workers).max()? as f64;
    let line = |one: &Drawn<'_>, points| Line {
        class: arm_class(one.at),
        name: one.arm.name.clone(),
        points,
        ..Line::default()
    };
    let busy = Panel {
        levels: vec![Level::named(workers, format!("{workers} workers"), "d1")],
        lines: drawn.iter().map(|one| line(one, over_time::whole(&one.pool.busy, last))).collect(),
        ..Panel::count("busy workers")
    };
    let latency = |group: &'static str, title: &str| Panel {
        lines: drawn
            .iter()
            .filter_map(|one| {
                let group = one.pool.groups.get(group)?;
                Some(line(one, over_time::means(&group.latency_us, group.attempts, last)))
            })
            .collect(),
        ..Panel::time(title)
    };
    let panels = vec![
        busy,
        latency(LOCAL, "latency without the backend, by due time (log)"),
        latency(BACKEND, "latency with the backend, by due time (log)"),
    ];
    let stack = Stack { stall: first.pool.stalled_s, last_s: last, ..Stack::new(panels) };
    let label = "Busy workers and latency over time, per arm";
    Some(Picture {
        svg: stack.draw().labelled(label),
        caption: caption(&drawn, more),
        drawn: drawn.iter().map(|one| one.at).collect(),
    })
}

/// Which arm had the most busy workers in the stall, and which the fewest.
fn caption(drawn: &[Drawn<'_>], more: usize) -> String {
    let busy =
        |one: &Drawn<'_>| Some((one.arm.name.clone(), one.pool.stuck_measured?, one.pool.workers));
    let mut all: Vec<_> = drawn.iter().filter_map(busy).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words = |(name, busy, workers): &(String, f64, u64)| {
        format!("{} of {workers} workers were busy in {name}", number::three(*busy))
    };
    let mut text = match all.as_slice() {
        [] => "No arm has a stall with a steady part.".to_owned(),
        [one] => format!("During the stall {}.", words(one)),
        [most, .., least] => format!("During the stall {}, {}.", words(most), words(least)),
    };
    if drawn.iter().any(|one| one.pool.stalled_s.is_some()) {
        text += " Shaded: the stall.";
    }
    if drawn.iter().any(|one| one.arm.rounds.len() > 1) {
        text += " The picture shows the first round.";
    }
    if more > 0 {
        text += &format!(" {} not drawn.", tcptoll_show::figures::plural(more as u64, "more arm"));
    }
    text
}

/// The picture of all arms, where the page did not begin with it.
fn sections(_: &Run) -> Vec<Section> {
    vec![Section::led("The pool over time", Vec::new())]
}

/// Each arm with its panels.
fn details(summary: &Run) -> Vec<Section> {
    let arms: Vec<(usize, Vec<Part>)> =
        drawn(summary).iter().map(|one| (one.at, vec![one_arm(*one).part(summary)])).collect();
    let items = of_arms(summary, arms);
    vec![Section::new("Each arm over time", items)]
}

/// Workers, queue, throughput and latency of one arm.
fn one_arm(one: Drawn<'_>) -> Picture {
    let pool = one.pool;
    let last = last(pool);
    let class = arm_class(one.at);
    let line = |name: &str, dash, points, key: Option<&str>| Line {
        class: class.clone(),
        dash,
        name: name.to_owned(),
        points,
        key: key.map(str::to_owned),
        band: false,
    };
    let workers = pool.workers as f64;
    let mut levels = vec![Level::named(workers, format!("{} workers", pool.workers), "d1")];
    levels.extend(
        pool.stuck_expected
            .filter(|busy| *busy < workers * 0.98)
            .map(|busy| Level::named(busy, format!("expected: {}", number::three(busy)), "d2")),
    );
    let mut panels = vec![Panel {
        levels,
        lines: vec![line("busy workers", "", over_time::whole(&pool.busy, last), None)],
        ..Panel::count("busy workers")
    }];
    if pool.backend_queue.points.len() > 1 {
        let limit = pool.backend_limit.map(|limit| f64::from(limit) + 1.0);
        panels.push(Panel {
            levels: limit
                .map(|limit| Level::named(limit, format!("capacity {limit}"), "d1"))
                .into_iter()
                .collect(),
            lines: vec![line("connections", "", over_time::whole(&pool.backend_queue, last), None)],
            ..Panel::count(format!("accept queue of {}", pool.backend))
        });
    }
    let both = |series: fn(&RequestGroup) -> &Series, keyed: bool| {
        [(LOCAL, "", "without the backend"), (BACKEND, "d1", "with the backend")]
            .into_iter()
            .filter_map(|(name, dash, words)| {
                let group = pool.groups.get(name)?;
                let points = over_time::means(series(group), group.attempts, last);
                Some(line(words, dash, points, keyed.then_some(words)))
            })
            .collect::<Vec<_>>()
    };
    panels.push(Panel {
        lines: both(|group| &group.rate_per_s, false),
        ..Panel::new("successes per second", number::plain, number::three)
    });
    panels.push(Panel {
        lines: both(|group| &group.latency_us, true),
        ..Panel::time("latency, by due time (log)")
    });
    let stack = Stack { stall: pool.stalled_s, last_s: last, ..Stack::new(panels) };
    let label = format!(
        "Busy workers, queue, throughput and latency of {} over time",
        clean::shorten(&one.arm.name, 80)
    );
    Picture { svg: stack.draw().labelled(&label), caption: caption_of_one(one), drawn: Vec::new() }
}

fn caption_of_one(one: Drawn<'_>) -> String {
    let pool = one.pool;
    let mut parts = Vec::new();
    if let (Some(measured), Some(expected)) = (pool.stuck_measured, pool.stuck_expected) {
        let serving =
            pool.stuck_expected_max.filter(|most| number::three(*most) != number::three(expected));
        let serving = serving.map_or_else(String::new, |most| {
            format!(", or up to {} including those that serve requests", number::three(most))
        });
        parts.push(format!(
            "Busy workers during the stall: {} (expected from the settings: {}{serving}).",
            number::three(measured),
            number::three(expected)
        ));
    }
    if let Some(drops) = pool.backend_drops.filter(|drops| *drops > 0) {
        parts.push(format!(
            "The backend's kernel dropped {}, because the accept queue was full.",
            tcptoll_show::figures::plural(drops, "packet")
        ));
    }
    parts.extend(
        pool.recovery_s
            .map(|s| format!("Recovery: {} after the end of the stall.", number::time(s * 1e6))),
    );
    parts.join(" ")
}

/// Arms whose strips are shown; the page has all.
const SHOWN: usize = 8;

/// Both strips of each arm.
fn strip_blocks(summary: &Run, width: usize) -> Vec<Part> {
    let mut all = drawn(summary);
    let Some(cells) = over_time::cells(width).filter(|_| !all.is_empty()) else {
        return Vec::new();
    };
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let last = all.iter().map(|one| last(one.pool)).fold(0.0, f64::max);
    let names: Vec<&str> = all.iter().map(|one| one.arm.name.as_str()).collect();
    let names = clean::shorten_all(&names, NAME);
    let time = format!("over {} s", number::plain(last));
    let mut blocks = vec![Part::Blank];
    blocks.push(heading(&format!("busy workers {time}"), ""));
    blocks.extend(stall(&all, last, cells));
    for (one, name) in all.iter().zip(&names) {
        let strip = cut(&one.pool.busy, last, cells);
        let peak = one.pool.busy.peak().unwrap_or_default();
        let full = one.pool.workers as f64;
        let strip = letters(&strip, |busy| busy / full);
        let behind = format!("peak {} of {}", number::plain(peak), one.pool.workers);
        blocks.push(row(name, &strip, &behind));
    }
    let latencies: Vec<Vec<Option<f64>>> =
        all.iter().map(|one| latency(one, last, cells)).collect();
    blocks.extend(over_time::times("latency without the backend, by due time", &names, &latencies));
    if more > 0 {
        let text = format!("{} in the HTML report", figures::plural(more as u64, "more arm"));
        blocks.push(Part::prose(2, text, Tone::Dim));
    }
    blocks
}

fn latency(one: &Drawn<'_>, last: f64, cells: usize) -> Vec<Option<f64>> {
    one.pool.groups.get(LOCAL).map_or_else(Vec::new, |group| cut(&group.latency_us, last, cells))
}

/// The stall above the strips: `├──────┤ stall`.
fn stall(all: &[Drawn<'_>], last: f64, cells: usize) -> Option<Part> {
    let [from, until] = all.iter().find_map(|one| one.pool.stalled_s)?;
    let cell = |s: f64| ((s / last * cells as f64) as usize).min(cells - 1);
    let (from, until) = (cell(from), cell(until));
    let line = if until > from { "─".repeat(until - from - 1) } else { String::new() };
    let end = if until > from { "┤" } else { "" };
    let text = format!("{}├{line}{end} stall", " ".repeat(2 + NAME + 2 + from));
    Some(Part::pieces(vec![(Tone::Dim, text)]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiments::REPORTS;
    use tcptoll_core::record::Summary;
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
        REPORTS.run(Summary { experiment: "worker-pool".into(), arms, ..Summary::default() })
    }

    fn lines(parts: Vec<Part>) -> Vec<String> {
        let text = |part| match part {
            Part::Line { pieces } => pieces.into_iter().map(|(_, text)| text).collect(),
            Part::Prose { text, .. } => text,
            _ => String::new(),
        };
        parts.into_iter().map(text).collect()
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
        let svg = picture.svg.to_string();
        assert_eq!(svg.matches("class=\"margin\"").count(), 3, "three panels");
        assert!(svg.contains(">20 workers</text>") && svg.contains(">stall</text>"), "{svg}");
        assert_eq!(picture.drawn, [0, 1]);
    }

    #[test]
    fn an_arm_shows_workers_queue_throughput_and_latency() {
        let summary = run(vec![arm("limit", 10.0, 520.0)]);
        let sections = details(&summary);
        let [Part::Picture(picture)] = &sections[0].parts[..] else { panic!("one picture") };
        for text in ["capacity 5", "expected: 10.0", "successes per second", "with the backend"] {
            assert!(picture.svg.0.contains(&format!(">{text}")), "{text}: {}", picture.svg.0);
        }
        assert_eq!(
            picture.caption,
            "Busy workers during the stall: 10.0 (expected from the settings: 10.0). The backend's \
             kernel dropped 41 packets, because the accept queue was full. Recovery: 250\u{a0}ms after the \
             end of the stall."
        );
    }

    #[test]
    fn the_terminal_has_a_strip_per_arm_within_80_columns() {
        let summary = run(vec![arm("stalled", 20.0, 800e3), arm("limit", 10.0, 520.0)]);
        let shown = lines(strip_blocks(&summary, 80));
        assert!(shown.iter().all(|line| clean::columns(line) <= 80), "{shown:#?}");
        let stalled = shown.iter().find(|line| line.starts_with("  stalled")).unwrap();
        assert!(stalled.contains("██████████") && stalled.ends_with("peak 20 of 20"), "{stalled}");
        assert!(shown[2].contains("├──") && shown[2].ends_with("┤ stall"), "{shown:#?}");
        assert!(shown.iter().any(|line| line.ends_with("peak 800 ms")), "{shown:#?}");
        assert!(lines(strip_blocks(&summary, 50)).is_empty(), "no room");
    }

    #[test]
    fn an_arm_without_readings_is_left_out() {
        let summary = run(vec![Arm { name: "failed".into(), ..Arm::default() }]);
        assert!(picture(&summary).is_none());
        assert!(details(&summary)[0].parts.is_empty());
        assert!(strip_blocks(&summary, 80).is_empty());
    }
}
