//! What does `worker-pool` show of its own? How the pool went over time: busy workers, the backend's
//! queue, requests of both kinds, with the stall as a shaded band.
//!
//! `strip` draws with letters.

mod strip;

use crate::requests::worker_pool::{BACKEND, LOCAL, LOCAL_LATENCY};
use tcptoll_core::record::{Arm, RequestGroup, WorkerPool};
use tcptoll_core::stats::Series;

use tcptoll_show::over_time;
use tcptoll_show::over_time::{Level, Line, Panel, Stack};
use tcptoll_show::own::{Item, NONE, Own, Picture, Section};
use tcptoll_show::run::Run;
use tcptoll_show::svg::{arm_class, for_both};
use tcptoll_show::{clean, number};

/// Its parts.
pub(crate) const OWN: Own =
    Own { part: group, text_after: strip::blocks, picture, sections, details, ..NONE };

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
    let with_pool = |(at, arm)| Some(Drawn { at, arm, pool: pool(arm)? });
    summary.arms.iter().enumerate().filter_map(with_pool).collect()
}

/// What an arm recorded of its pool over time. None: nothing.
fn pool(arm: &Arm) -> Option<&WorkerPool> {
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
        dash: "",
        name: one.arm.name.clone(),
        points,
        key: None,
    };
    let busy = Panel {
        title: "busy workers".to_owned(),
        log: false,
        tick: number::trimmed,
        words: number::three,
        levels: vec![Level { value: workers, text: format!("{workers} workers"), dash: "d1" }],
        lines: drawn.iter().map(|one| line(one, over_time::whole(&one.pool.busy, last))).collect(),
    };
    let latency = |group: &'static str, title: &str| Panel {
        title: title.to_owned(),
        log: true,
        tick: number::tick,
        words: number::time,
        levels: Vec::new(),
        lines: drawn
            .iter()
            .filter_map(|one| {
                let group = one.pool.groups.get(group)?;
                Some(line(one, over_time::means(&group.latency_us, group.attempts, last)))
            })
            .collect(),
    };
    let stack = Stack {
        panels: vec![
            busy,
            latency(LOCAL, "latency without the backend, by due time (log)"),
            latency(BACKEND, "latency with the backend, by due time (log)"),
        ],
        stall: first.pool.stalled_s,
        last_s: last,
    };
    let label = "Busy workers and latency over time, per arm";
    Some(Picture {
        both_svg: for_both(label, |screen| stack.draw(screen)),
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
    vec![Section { title: "The pool over time", items: vec![Item::Lead] }]
}

/// Each arm with its panels.
fn details(summary: &Run) -> Vec<Section> {
    let arms: Vec<(usize, Vec<Item>)> =
        drawn(summary).iter().map(|one| (one.at, vec![Item::Picture(one_arm(*one))])).collect();
    let items = if arms.is_empty() { Vec::new() } else { vec![Item::Arms(arms)] };
    vec![Section { title: "Each arm over time", items }]
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
    };
    let mut levels = vec![Level {
        value: pool.workers as f64,
        text: format!("{} workers", pool.workers),
        dash: "d1",
    }];
    levels.extend(pool.stuck_expected.filter(|busy| *busy < pool.workers as f64 * 0.98).map(
        |busy| Level {
            value: busy,
            text: format!("expected: {}", number::three(busy)),
            dash: "d2",
        },
    ));
    let mut panels = vec![Panel {
        title: "busy workers".to_owned(),
        log: false,
        tick: number::trimmed,
        words: number::three,
        levels,
        lines: vec![line("busy workers", "", over_time::whole(&pool.busy, last), None)],
    }];
    if pool.backend_queue.points.len() > 1 {
        let limit = pool.backend_limit.map(|limit| f64::from(limit) + 1.0);
        panels.push(Panel {
            title: format!("accept queue of {}", pool.backend),
            log: false,
            tick: number::trimmed,
            words: number::three,
            levels: limit
                .map(|limit| Level { value: limit, text: format!("capacity {limit}"), dash: "d1" })
                .into_iter()
                .collect(),
            lines: vec![line("connections", "", over_time::whole(&pool.backend_queue, last), None)],
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
        title: "successes per second".to_owned(),
        log: false,
        tick: number::trimmed_ratio,
        words: number::three,
        levels: Vec::new(),
        lines: both(|group| &group.rate_per_s, false),
    });
    panels.push(Panel {
        title: "latency, by due time (log)".to_owned(),
        log: true,
        tick: number::tick,
        words: number::time,
        levels: Vec::new(),
        lines: both(|group| &group.latency_us, true),
    });
    let stack = Stack { panels, stall: pool.stalled_s, last_s: last };
    let label = format!(
        "Busy workers, queue, throughput and latency of {} over time",
        clean::shorten(&one.arm.name, 80)
    );
    Picture {
        both_svg: for_both(&label, |screen| stack.draw(screen)),
        caption: caption_of_one(one),
        drawn: Vec::new(),
    }
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

#[cfg(test)]
mod tests;
