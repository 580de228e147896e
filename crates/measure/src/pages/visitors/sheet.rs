//! Tables and pictures of `visitors`: page times, workers, connections. Its pictures show how the server went over
//! time, workers that hold a connection, and how long pages took; in a terminal the same with letters.

use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table, value};
use tcptoll_core::experiment::columns::{ECHO_P50, ERRORS, OK, QUEUE_PEAK, figures, tidy};
use tcptoll_core::record::{Arm, SiteVisits};
use tcptoll_core::sheet::{Part, Room, Tone};
use tcptoll_core::stats::Series;
use tcptoll_show::html::of_arms;
use tcptoll_show::html::over_time;
use tcptoll_show::html::over_time::{HEIGHTS, NAME, cut, heading, letters, row};
use tcptoll_show::html::over_time::{Level, Line, Panel, Stack};
use tcptoll_show::run::Picture;
use tcptoll_show::run::Section;
use tcptoll_show::run::{NONE, Own, Run};
use tcptoll_show::svg::arm_class;
use tcptoll_show::{clean, figures, number};

use super::{
    CONNECTIONS, FIRST_PAGE_MEAN, NEXT_PAGE_MEAN, PAGE, PAGE_MEAN, PAGE_P95, PAGES_RATE,
    WORKERS_BUSY, WORKERS_BUSY_PEAK, WORKERS_KEPT,
};
use crate::pages::visitors;

use Figure::{Count, Estimate, Number};
use Quantile::{Max, P50};

fn visits(arm: &Arm) -> Option<&SiteVisits> {
    arm.own.site_visits.as_deref()
}

/// Absent where an idle connection holds no worker.
fn workers_expected(visits: &SiteVisits) -> Option<f64> {
    visits.held_expected.filter(|_| !visits.idle_is_free)
}

const TIME: &str = "page time";
const MEAN: Column =
    Column::new((TIME, "mean"), "page time, mean", tidy(&PAGE_MEAN), Estimate(PAGE_MEAN.unit))
        .shown(Room::Always);
const MEDIAN: Column = Column::quantile((TIME, "p50"), "page time p50", PAGE.name, P50);
const P95: Column =
    Column::new((TIME, "p95"), "page time p95", tidy(&PAGE_P95), Estimate(PAGE_P95.unit));
const LONGEST: Column = Column::quantile((TIME, "max"), "page time max", PAGE.name, Max);
const FIRST: Column = Column::new(
    (TIME, "first"),
    "time of first pages",
    tidy(&FIRST_PAGE_MEAN),
    Estimate(FIRST_PAGE_MEAN.unit),
);
const NEXT: Column = Column::new(
    (TIME, "later"),
    "time of later pages",
    tidy(&NEXT_PAGE_MEAN),
    Estimate(NEXT_PAGE_MEAN.unit),
);
const WORKERS: &str = "workers";
const BUSY: Column = Column::new(
    (WORKERS, "held"),
    "workers that hold a connection",
    tidy(&WORKERS_BUSY),
    Number(|arm| value(arm, WORKERS_BUSY.name), 1.0),
);
const EXPECTED: Column = Column::new(
    (WORKERS, "expected"),
    "expected workers that hold a connection",
    ("held_expected", "workers"),
    Number(|arm| workers_expected(visits(arm)?), 1.0),
);
const PEAK: Column = Column::new(
    (WORKERS, "peak"),
    "peak of workers that hold a connection",
    tidy(&WORKERS_BUSY_PEAK),
    Number(|arm| value(arm, WORKERS_BUSY_PEAK.name), 1.0),
);
const LIMIT: Column = Column::new(
    (WORKERS, "limit"),
    "maximum number of workers",
    ("workers_limit", "workers"),
    // Of a server that is not ours it is not known.
    Count(|arm| Some(visits(arm)?.workers).filter(|workers| *workers > 0)),
);
const KEPT: Column = Column::new(
    (WORKERS, "idle"),
    "open idle connections",
    tidy(&WORKERS_KEPT),
    Number(|arm| value(arm, WORKERS_KEPT.name), 1.0),
);
const OPENED: Column = Column::new(
    ("", "connections per page"),
    "connections per page",
    tidy(&CONNECTIONS),
    Number(|arm| value(arm, CONNECTIONS.name), 1.0),
);
const MEMORY: Column = Column::new(
    ("memory MiB", "peak"),
    "peak memory of the server, MiB",
    ("server_memory_bytes", "bytes"),
    Number(|arm| Some(arm.server.as_ref()?.memory_bytes? as f64), MIB),
);
const KILLED: Column = Column::new(
    ("memory MiB", "killed"),
    "processes killed for lack of memory",
    ("memory_kills", "processes"),
    Count(|arm| Some(visits(arm)?.memory_limit.as_ref()?.kills)),
);
const MIB: f64 = 1.0 / (1 << 20) as f64;
const RATE: Column =
    Column::new(("", "pages/s"), "pages per second", tidy(&PAGES_RATE), Estimate(""));

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[figures(&[
    &[MEAN, MEDIAN.shown(Room::Page), P95, LONGEST, FIRST, NEXT],
    &[BUSY, EXPECTED, PEAK, LIMIT, KEPT],
    &[OPENED, RATE, QUEUE_PEAK],
    &[MEMORY, KILLED, OK, ERRORS],
    &[ECHO_P50.shown(Room::Page)],
])];

pub(crate) const OWN: Own = Own { text_after: blocks, picture, sections, details, ..NONE };

/// More lines than this cannot be told apart.
const ARMS: usize = 9;

/// An arm with what was recorded of its server over time, and its place in the run.
#[derive(Clone, Copy)]
struct Drawn<'a> {
    at: usize,
    arm: &'a Arm,
    visits: &'a SiteVisits,
}

fn drawn(summary: &Run) -> Vec<Drawn<'_>> {
    let arms = summary.arms.iter().enumerate();
    arms.filter_map(|(at, arm)| {
        let visits = arm.own.site_visits.as_deref()?;
        (visits.busy.points.len() > 1).then_some(Drawn { at, arm, visits })
    })
    .collect()
}

/// What holds a connection there, in the plural.
fn workers(visits: &SiteVisits) -> &'static str {
    match visits.worker.as_str() {
        "connection" => "connections",
        "thread" => "threads",
        _ => "processes",
    }
}

fn limit(visits: &SiteVisits) -> Level {
    let text = format!("limit: {} {}", visits.workers, workers(visits));
    Level::named(visits.workers as f64, text, "d1")
}

/// Workers that hold a connection and page times, a line per arm.
fn picture(summary: &Run) -> Option<Picture> {
    let mut drawn = drawn(summary);
    let more = drawn.len().saturating_sub(ARMS);
    drawn.truncate(ARMS);
    let first = drawn.first()?;
    let last = drawn.iter().map(|one| one.visits.window_s).fold(0.0, f64::max);
    let line = |one: &Drawn<'_>, points| Line {
        class: arm_class(one.at),
        name: one.arm.name.clone(),
        points,
        ..Line::default()
    };
    let same = drawn.iter().all(|one| one.visits.workers == first.visits.workers);
    let held = Panel {
        // A limit that nobody comes near would press all lines to the ground.
        levels: near_limit(&drawn).filter(|_| same).map(limit).into_iter().collect(),
        lines: drawn
            .iter()
            .map(|one| line(one, over_time::whole(&one.visits.busy, last)))
            .collect(),
        ..Panel::count("workers that hold a connection")
    };
    let pages = Panel {
        lines: drawn.iter().map(|one| line(one, pages_of(one.visits, last))).collect(),
        ..Panel::time("page time, by request time (log)")
    };
    let stack = Stack { last_s: last, ..Stack::new(vec![held, pages]) };
    let label = "Workers that hold a connection, and page time, over time, per arm";
    Some(Picture {
        svg: stack.draw().labelled(label),
        caption: caption(&drawn, more),
        drawn: drawn.iter().map(|one| one.at).collect(),
    })
}

fn near_limit<'a>(drawn: &[Drawn<'a>]) -> Option<&'a SiteVisits> {
    drawn
        .iter()
        .map(|one| one.visits)
        .find(|visits| visits.busy.peak().is_some_and(|peak| peak > visits.workers as f64 / 3.0))
}

/// First and later pages together.
fn pages_of(visits: &SiteVisits, last: f64) -> Vec<[f64; 4]> {
    let mut points: Vec<[f64; 4]> =
        visits.pages.values().flat_map(|group| group.page_us.points.clone()).collect();
    points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let all = visits.pages.values().map(|group| group.ok).sum();
    over_time::means(&Series { points }, all, last)
}

fn caption(drawn: &[Drawn<'_>], more: usize) -> String {
    let mut all: Vec<(f64, &Drawn<'_>)> =
        drawn.iter().filter_map(|one| Some((one.visits.busy.mean()?, one))).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let words = |(mean, one): &(f64, &Drawn<'_>)| {
        let noun = workers(one.visits);
        format!("{} of {} {noun} in {}", number::three(*mean), one.visits.workers, one.arm.name)
    };
    let mut text = match all.as_slice() {
        [] => String::new(),
        [one] => format!("Connections held {} on average.", words(one)),
        [most, .., least] => {
            format!("Connections held {} on average, {}.", words(most), words(least))
        }
    };
    if drawn.iter().any(|one| one.arm.rounds.len() > 1) {
        text += " The picture shows the first round.";
    }
    if more > 0 {
        text += &format!(" {} not drawn.", figures::plural(more as u64, "more arm"));
    }
    text
}

/// The picture of all arms, where the page did not begin with it.
fn sections(_: &Run) -> Vec<Section> {
    vec![Section::led("The server over time", Vec::new())]
}

/// Each arm with its panels.
fn details(summary: &Run) -> Vec<Section> {
    let arms: Vec<(usize, Vec<Part>)> =
        drawn(summary).iter().map(|one| (one.at, vec![one_arm(*one).part(summary)])).collect();
    let items = of_arms(summary, arms);
    vec![Section::new("Each arm over time", items)]
}

/// Workers, queue, memory and page times of one arm.
fn one_arm(one: Drawn<'_>) -> Picture {
    let visits = one.visits;
    let last = visits.window_s;
    let class = arm_class(one.at);
    let line = |name: &str, dash, points, keyed: bool| Line {
        class: class.clone(),
        dash,
        name: name.to_owned(),
        points,
        key: keyed.then(|| name.to_owned()),
        band: false,
    };
    let mut levels: Vec<Level> = near_limit(&[one]).map(limit).into_iter().collect();
    levels.extend(
        visits
            .held_expected
            .filter(|held| *held < visits.workers as f64)
            .map(|held| Level::named(held, format!("expected: {}", number::three(held)), "d2")),
    );
    let mut panels = vec![Panel {
        levels,
        lines: vec![
            line("hold a connection", "", over_time::whole(&visits.busy, last), true),
            line("idle connections", "d1", over_time::whole(&visits.kept, last), true),
        ],
        ..Panel::count(workers(visits))
    }];
    if visits.queue.peak().is_some_and(|peak| peak > 0.0) {
        panels.push(Panel {
            lines: vec![line("connections", "", over_time::whole(&visits.queue, last), false)],
            ..Panel::count("accept queue")
        });
    }
    if visits.refused.peak().is_some_and(|peak| peak > 0.0) {
        panels.push(Panel {
            lines: vec![line("packets", "", over_time::whole(&visits.refused, last), false)],
            ..Panel::count("SYNs and ACKs that met a full accept queue (cumulative)")
        });
    }
    if visits.memory_bytes.points.len() > 1 {
        let mib = 1.0 / f64::from(1 << 20);
        let points = over_time::whole(&visits.memory_bytes, last);
        let points = points.into_iter().map(|point| over_time::scaled(point, mib)).collect();
        let limit = visits.memory_limit.as_ref().map(|limit| {
            let limit = limit.bytes as f64 * mib;
            Level::named(limit, format!("limit: {} MiB", number::three(limit)), "d1")
        });
        panels.push(Panel {
            levels: limit.into_iter().collect(),
            lines: vec![line("memory", "", points, false)],
            ..Panel::count("memory of the server, MiB")
        });
    }
    let pages = [(visitors::FIRST, "", "first pages"), (visitors::NEXT, "d1", "later pages")];
    let pages = pages.into_iter().filter_map(|(name, dash, words)| {
        let group = visits.pages.get(name)?;
        Some(line(words, dash, over_time::means(&group.page_us, group.ok, last), true))
    });
    panels
        .push(Panel { lines: pages.collect(), ..Panel::time("page time, by request time (log)") });
    let label =
        format!("Workers, queue, memory and page time of {}", clean::shorten(&one.arm.name, 80));
    let stack = Stack { last_s: last, ..Stack::new(panels) };
    Picture {
        svg: stack.draw().labelled(&label),
        caption: caption_of_one(visits),
        drawn: Vec::new(),
    }
}

fn caption_of_one(visits: &SiteVisits) -> String {
    let mut parts = vec![format!(
        "{} arrived, including the warm-up.",
        figures::plural(visits.visitors, "visitor")
    )];
    if let Some(limit) = &visits.memory_limit {
        let by = match &limit.why {
            None => "the kernel (a control group)".to_owned(),
            Some(why) => format!("tcptoll, because the kernel could not enforce it ({why})"),
        };
        parts.push(format!("Memory was limited by {by}."));
        if limit.kills > 0 {
            parts.push(format!("{} killed at this limit.", were(limit.kills)));
        }
    }
    if visits.readings_missed > 0 {
        parts.push(format!(
            "{} of the status page failed.",
            figures::plural(visits.readings_missed, "reading")
        ));
    }
    parts.join(" ")
}

fn were(processes: u64) -> String {
    if processes == 1 {
        "One process was".to_owned()
    } else {
        format!("{processes} processes were")
    }
}

/// Arms that are shown; the page has all.
const SHOWN: usize = 6;

/// Both strips of each arm.
pub(super) fn blocks(summary: &Run, width: usize) -> Vec<Part> {
    let mut all = drawn(summary);
    let Some(cells) = over_time::cells(width).filter(|_| !all.is_empty()) else {
        return Vec::new();
    };
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let last = all.iter().map(|one| one.visits.window_s).fold(0.0, f64::max);
    let names: Vec<&str> = all.iter().map(|one| one.arm.name.as_str()).collect();
    let names = clean::shorten_all(&names, NAME);
    // All strips have one scale: the limit, or what is held at most where nobody comes near it.
    let most = all.iter().filter_map(|one| one.visits.busy.peak()).fold(1.0, f64::max);
    let time = format!("over {} s", number::plain(last));
    let full = format!("{} {}", HEIGHTS[7], number::plain(most));
    let mut blocks =
        vec![Part::Blank, heading(&format!("workers that hold a connection {time}"), &full)];
    for (one, name) in all.iter().zip(&names) {
        let strip = letters(&cut(&one.visits.busy, last, cells), |busy| busy / most);
        let peak = one.visits.busy.peak().unwrap_or_default();
        let behind = format!("peak {} of {}", number::plain(peak), one.visits.workers);
        blocks.push(row(name, &strip, &behind));
    }
    blocks.extend(pages(&all, &names, last, cells));
    if more > 0 {
        let text = format!("{} in the HTML report", figures::plural(more as u64, "more arm"));
        blocks.push(Part::prose(2, text, Tone::Dim));
    }
    blocks
}

/// Page times by when the pages were asked for.
fn pages(all: &[Drawn<'_>], names: &[String], last: f64, cells: usize) -> Vec<Part> {
    let times: Vec<Vec<Option<f64>>> = all
        .iter()
        .map(|one| {
            let points = pages_of(one.visits, last);
            cut(&Series { points }, last, cells)
        })
        .collect();
    over_time::times("page time, by request time", names, &times)
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::Summary;

    use crate::experiments::REPORTS;

    use super::*;

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
            pages: [(visitors::FIRST.to_owned(), group)].into(),
            held_expected: Some(busy),
            ..SiteVisits::default()
        };
        Arm { name: name.to_owned(), own: Box::new(visits).into(), ..Arm::default() }
    }

    fn summary(arms: Vec<Arm>) -> Run {
        REPORTS.run(Summary { experiment: "visitors".to_owned(), arms, ..Summary::default() })
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
        let lines = blocks(&all, 80)
            .into_iter()
            .filter_map(|block| match block {
                Part::Line { pieces: parts } => {
                    Some(parts.into_iter().map(|part| part.1).collect::<String>())
                }
                _ => None,
            })
            .collect::<Vec<_>>();
        assert_eq!(lines.len(), 6);
        assert!(lines.iter().all(|line| clean::columns(line) <= 80), "{lines:?}");
        assert!(blocks(&all, 40).is_empty());
        assert!(blocks(&summary(vec![Arm::default()]), 80).is_empty());
        assert!(picture(&summary(vec![Arm::default()])).is_none());
    }
}
