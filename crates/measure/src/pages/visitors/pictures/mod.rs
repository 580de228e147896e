//! What does `visitors` show of its own? How the server went over time: workers that hold a connection,
//! and how long pages took. `strip` draws the same with letters.

mod strip;

use crate::pages::visitors::{FIRST, NEXT};
use tcptoll_core::record::{Arm, SiteVisits};
use tcptoll_core::stats::Series;

use tcptoll_show::over_time;
use tcptoll_show::over_time::{Level, Line, Panel, Stack};
use tcptoll_show::own::{Item, NONE, Own, Picture, Section};
use tcptoll_show::run::Run;
use tcptoll_show::svg::{arm_class, for_both};
use tcptoll_show::{clean, figures, number};

/// Its parts.
pub(crate) const OWN: Own = Own { text_after: strip::blocks, picture, sections, details, ..NONE };

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

fn count(title: impl Into<String>) -> Panel {
    Panel {
        title: title.into(),
        log: false,
        tick: number::trimmed,
        words: number::three,
        levels: Vec::new(),
        lines: Vec::new(),
    }
}

fn time(title: &str) -> Panel {
    Panel { log: true, tick: number::tick, words: number::time, ..count(title) }
}

fn limit(visits: &SiteVisits) -> Level {
    let text = format!("limit: {} {}", visits.workers, workers(visits));
    Level { value: visits.workers as f64, text, dash: "d1" }
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
        dash: "",
        name: one.arm.name.clone(),
        points,
        key: None,
    };
    let same = drawn.iter().all(|one| one.visits.workers == first.visits.workers);
    let held = Panel {
        // A limit that nobody comes near would press all lines to the ground.
        levels: near_limit(&drawn).filter(|_| same).map(limit).into_iter().collect(),
        lines: drawn
            .iter()
            .map(|one| line(one, over_time::whole(&one.visits.busy, last)))
            .collect(),
        ..count("workers that hold a connection")
    };
    let pages = Panel {
        lines: drawn.iter().map(|one| line(one, pages_of(one.visits, last))).collect(),
        ..time("page time, by request time (log)")
    };
    let stack = Stack { panels: vec![held, pages], stall: None, last_s: last };
    let label = "Workers that hold a connection, and page time, over time, per arm";
    Some(Picture {
        both_svg: for_both(label, |screen| stack.draw(screen)),
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
fn pages_of(visits: &SiteVisits, last: f64) -> Vec<(f64, f64)> {
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
    vec![Section { title: "The server over time", items: vec![Item::Lead] }]
}

/// Each arm with its panels.
fn details(summary: &Run) -> Vec<Section> {
    let arms: Vec<(usize, Vec<Item>)> =
        drawn(summary).iter().map(|one| (one.at, vec![Item::Picture(one_arm(*one))])).collect();
    let items = if arms.is_empty() { Vec::new() } else { vec![Item::Arms(arms)] };
    vec![Section { title: "Each arm over time", items }]
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
    };
    let mut levels: Vec<Level> = near_limit(&[one]).map(limit).into_iter().collect();
    levels.extend(visits.held_expected.filter(|held| *held < visits.workers as f64).map(|held| {
        Level { value: held, text: format!("expected: {}", number::three(held)), dash: "d2" }
    }));
    let mut panels = vec![Panel {
        levels,
        lines: vec![
            line("hold a connection", "", over_time::whole(&visits.busy, last), true),
            line("idle connections", "d1", over_time::whole(&visits.kept, last), true),
        ],
        ..count(workers(visits))
    }];
    if visits.queue.peak().is_some_and(|peak| peak > 0.0) {
        panels.push(Panel {
            lines: vec![line("connections", "", over_time::whole(&visits.queue, last), false)],
            ..count("accept queue")
        });
    }
    if visits.refused.peak().is_some_and(|peak| peak > 0.0) {
        panels.push(Panel {
            lines: vec![line("packets", "", over_time::whole(&visits.refused, last), false)],
            ..count("SYNs and ACKs that met a full accept queue (cumulative)")
        });
    }
    if visits.memory_bytes.points.len() > 1 {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let points = over_time::whole(&visits.memory_bytes, last);
        let points = points.into_iter().map(|(s, bytes)| (s, mib(bytes))).collect();
        let limit = visits.memory_limit.as_ref().map(|limit| Level {
            value: mib(limit.bytes as f64),
            text: format!("limit: {} MiB", number::three(mib(limit.bytes as f64))),
            dash: "d1",
        });
        panels.push(Panel {
            levels: limit.into_iter().collect(),
            lines: vec![line("memory", "", points, false)],
            ..count("memory of the server, MiB")
        });
    }
    let pages = [(FIRST, "", "first pages"), (NEXT, "d1", "later pages")];
    let pages = pages.into_iter().filter_map(|(name, dash, words)| {
        let group = visits.pages.get(name)?;
        Some(line(words, dash, over_time::means(&group.page_us, group.ok, last), true))
    });
    panels.push(Panel { lines: pages.collect(), ..time("page time, by request time (log)") });
    let label =
        format!("Workers, queue, memory and page time of {}", clean::shorten(&one.arm.name, 80));
    let stack = Stack { panels, stall: None, last_s: last };
    Picture {
        both_svg: for_both(&label, |screen| stack.draw(screen)),
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

#[cfg(test)]
mod tests;
