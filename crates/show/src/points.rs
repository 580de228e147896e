//! What do the vantage points of a merged record show? Each point as a row that tables and pictures of comparisons
//! can draw, the points themselves, and what is to be said about them.

use tcptoll_core::record::{Comparison, OverPoints, Passport, Point, PointRatio};
use tcptoll_core::sheet::{Align, Column, Table};

use crate::number::{self, ABSENT};
use crate::run::Run;
use crate::{figures, rounds};

/// Points that a text lists; a page has all.
pub(crate) const LISTED: usize = 20;

/// Whether figures and comparisons are over points: of a load that the points shared, they are over rounds.
pub(crate) fn are_units(summary: &Run) -> bool {
    summary.points.as_ref().is_some_and(|points| points.split.is_none())
}

/// How the points shared a load, a sentence each.
pub(crate) fn about_split(summary: &Run) -> Vec<String> {
    let Some(split) = summary.points.as_ref().and_then(|points| points.split.as_ref()) else {
        return Vec::new();
    };
    let (due, asked) = split.due.iter().fold((0_u64, 0_u64), |(due, asked), one| {
        (due.saturating_add(one.due), asked.saturating_add(one.asked))
    });
    let whole = split.due.iter().map(|one| one.rounds).min().unwrap_or(0);
    let rounds = figures::plural(u64::from(split.rounds), "round");
    let rounds = if whole == split.rounds { rounds } else { format!("{whole} of {rounds}") };
    let mut lines = vec![format!(
        "One load in {} shares, {} present. Due at the points together, in {rounds} with all shares: {} requests of {} asked for.",
        split.shares,
        split.present,
        number::count(due),
        number::count(asked)
    )];
    let time = |s: f64| number::time(s * 1e6);
    lines.push(match (split.apart_s, split.clock_bound_s) {
        (Some(apart), Some(bound)) => format!(
            "The loads began within {}: {} by the points' own clocks, whose difference is known to within {}.",
            time(apart + bound),
            time(apart),
            time(bound)
        ),
        (Some(apart), None) => format!(
            "By the points' own clocks, the loads began within {}. How far these clocks differ is not known.",
            time(apart)
        ),
        (None, _) => "Whether the loads began together is not known.".to_owned(),
    });
    lines
}

/// The ratio over all points and those of the points, from the lowest to the highest, as comparisons per point.
pub(crate) fn rows(c: &Comparison) -> Vec<Comparison> {
    let Some(points) = &c.points else { return Vec::new() };
    let per = |name: &str, value: String| [(name.to_owned(), value.into())].into();
    let over = Comparison {
        per: per("all", figures::plural(u64::from(c.rounds), "point")),
        points: Some(OverPoints { each: Vec::new(), ..points.clone() }),
        ..c.clone()
    };
    let mut each: Vec<&PointRatio> =
        points.each.iter().filter(|point| point.left_out.is_none()).collect();
    each.sort_by(|a, b| a.ratio.unwrap_or(f64::MAX).total_cmp(&b.ratio.unwrap_or(f64::MAX)));
    let own = |point: &PointRatio| Comparison {
        metric: c.metric.clone(),
        a: c.a.clone(),
        b: c.b.clone(),
        per: per("point", point.point.clone()),
        ratio: point.ratio,
        ci95: point.ci95,
        margin: c.margin,
        rounds: point.rounds,
        alpha: c.alpha / points.each.len().max(1) as f64,
        verdict: point.verdict,
        ..Comparison::default()
    };
    std::iter::once(over).chain(each.into_iter().map(own)).collect()
}

/// Of [`rows`] those that a text shows: all, or that over all points, the lowest and the highest.
pub(crate) fn listed(mut rows: Vec<Comparison>) -> Vec<Comparison> {
    if rows.len() > LISTED + 1 {
        let between = rows.len() - LISTED / 2;
        rows.drain(1 + LISTED / 2..between);
    }
    rows
}

/// What is to be said below the rows of a comparison.
pub(crate) fn notes(c: &Comparison) -> Vec<String> {
    let Some(points) = &c.points else { return Vec::new() };
    let counted = points.each.iter().filter(|point| point.left_out.is_none()).count();
    let mut notes = Vec::new();
    if counted > LISTED {
        notes.push(format!(
            "{} points between the lowest and the highest are not listed; --csv and the page of --html have all.",
            counted - LISTED
        ));
    }
    if let Some(spread) = points.spread_log.filter(|_| counted > 1) {
        let relative = spread.exp_m1();
        notes.push(if relative <= 0.0 {
            "The points do not differ by more than the scatter of their rounds explains.".to_owned()
        } else {
            let percent = number::percent(relative);
            format!("Spread between points, without the scatter of their rounds: {percent} (standard deviation).")
        });
    }
    if points.opposite > 0 {
        let own = match points.opposite_verdicts {
            0 => "none by a verdict of its own".to_owned(),
            n => format!("{n} by a verdict of its own"),
        };
        let show = if points.opposite == 1 { "shows" } else { "show" };
        notes.push(format!(
            "{} of {counted} points {show} the opposite direction, {own}.",
            points.opposite
        ));
    }
    if (c.rounds as usize) < points.least as usize {
        notes.push(format!(
            "A verdict over points needs {} points. Until then the verdicts are of each point by itself.",
            points.least
        ));
    }
    if points.each.iter().filter(|point| point.ci95.is_some()).count() > 1 {
        notes.push("The intervals of all points hold together with 95 % confidence.".to_owned());
    }
    for point in &points.each {
        if let Some(why) = &point.left_out {
            notes.push(format!("{} does not count: {why}.", point.point.trim_end_matches('.')));
        }
    }
    notes
}

/// The points: name, figures of the arms in the primary metric, rounds, state, machine.
pub(crate) fn table(summary: &Run) -> Option<Table> {
    let points = summary.points.as_ref()?;
    let metric = rounds::metric(summary);
    let arms: Vec<&str> = summary.arms.iter().map(|arm| arm.name.as_str()).collect();
    let mut columns = vec![Column::names("point")];
    if let Some(metric) = metric {
        let unit = rounds::unit(summary, metric);
        let unit = if number::is_time(unit) { "µs" } else { unit };
        let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
        let words = summary.specs.words_of_metric(metric);
        let head = |arm: &&str| Column::new(format!("{arm}: {words}{unit}"), Align::Right);
        columns.extend(arms.iter().map(head));
    }
    columns.extend(["rounds", "excluded"].map(|head| Column::new(head, Align::Right)));
    columns.extend(["state", "machine", "began"].map(|head| Column::new(head, Align::Left)));
    let row = |point: &Point| {
        let mut cells = vec![point.name.clone()];
        if let Some(metric) = metric {
            let value = |name: &&str| {
                let arm = point.arms.iter().find(|arm| arm.name == **name)?;
                arm.metrics.get(metric).map(|value| number::three(*value))
            };
            cells.extend(arms.iter().map(|arm| value(arm).unwrap_or_else(|| ABSENT.to_owned())));
        }
        cells.extend([
            point.rounds.to_string(),
            format!("{} of {}", point.excluded + point.failed, point.trials),
            state(point),
            machine(&point.passport),
            point.started_at.clone(),
        ]);
        cells
    };
    let mut rows: Vec<Vec<String>> = points.points.iter().map(row).collect();
    for missing in &points.missing {
        let mut cells = vec![ABSENT.to_owned(); columns.len()];
        cells[0].clone_from(&missing.point);
        let at = columns.len() - 3;
        cells[at] = format!("no record: {}", missing.reason);
        rows.push(cells);
    }
    Some(Table::new(columns, rows))
}

fn state(point: &Point) -> String {
    match (&point.left_out, point.partial) {
        (Some(why), _) => why.clone(),
        (None, true) => "stopped before its plan was complete".to_owned(),
        (None, false) => "complete".to_owned(),
    }
}

fn machine(p: &Passport) -> String {
    let cpus = if p.cpus > 0 { format!(", {} × {}", p.cpus, p.cpu) } else { String::new() };
    format!("{}{cpus}", p.kernel)
}
