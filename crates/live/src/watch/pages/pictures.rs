//! Curves over the time of day, with what was wrong as bands behind them.
//!
//! `chart` draws curves of any kind, `timeline` what was wrong when.

use tcptoll_core::sheet::Picture;
use tcptoll_show::{clean, number};

use super::chart::{Chart, Line, Step};
use super::{Dated, tables};
use crate::watch::{DATA_RETRANSMITTED, Interval};
use crate::watch::{ListenerReview, Series};
use tcptoll_core::units::plural;

/// All pictures that have something to show, but the timeline; whether each is shown only when asked for.
pub(super) fn all(view: &Dated<'_>, series: &Series) -> Vec<(Picture, bool)> {
    let points = &series.points;
    let mut pictures = queues(view, series);
    let shown = [
        dropped(view, points),
        ports(view, points),
        sockets(view, points),
        retransmitted(view, points),
    ];
    pictures.extend(shown.into_iter().flatten().map(|picture| (picture, false)));
    pictures.extend(memory(view, points).map(|picture| (picture, true)));
    pictures
}

/// The accept queue of each of the busiest listeners, and its limit.
fn queues(view: &Dated<'_>, series: &Series) -> Vec<(Picture, bool)> {
    let mut pictures = Vec::new();
    for (place, limits) in &series.limits {
        let Some(listener) = view.review.listeners.get(*place as usize) else { continue };
        let queue = |point: &Interval| {
            let part = point.listeners.iter().find(|part| part.n == *place);
            Some(f64::from(part.map_or(0, |part| part.queue)))
        };
        let name = tables::name(listener);
        let last_s = view.review.lasted_s;
        let ends = limits.iter().skip(1).map(|(at_s, _)| *at_s).chain([last_s]);
        let limit = limits.iter().zip(ends).enumerate().map(|(at, ((from_s, limit), to_s))| Step {
            // It is known from its first queue on, and was so before.
            from_s: if at == 0 { 0.0 } else { *from_s },
            to_s,
            value: Some(f64::from(*limit)),
        });
        let limit: Vec<Step> = limit.collect();
        let peak = f64::from(listener.accept_queue_peak);
        let greatest = limit.iter().filter_map(|step| step.value).fold(0.0, f64::max);
        // A limit far above would press the queue to the ground.
        let near = greatest <= 8.0 * peak.max(1.0);
        let mut lines = vec![line("longest queue", "a0", &series.points, queue, true)];
        if near {
            let limit =
                Line { name: "limit".into(), class: "limit".into(), steps: limit, filled: false };
            lines.push(limit);
        }
        let process = listener.process.as_ref().map(|process| format!(" ({})", process.name));
        let process = process.unwrap_or_default();
        let caption = queue_caption(listener, near);
        let chart = Chart {
            label: "connections that wait for accept(2)".to_owned(),
            lines,
            tick: number::plain,
            most: near.then_some(greatest.max(peak) * 1.08),
            subject: Some(name.clone()),
            view,
        };
        let title = format!("Accept queue of {name}{process}");
        let folded = pictures.len() >= 3 || listener.drops == 0 && peak * 2.0 < greatest;
        let folded = folded && !pictures.is_empty();
        pictures.push((chart.picture(title, caption), folded));
    }
    pictures
}

fn queue_caption(listener: &ListenerReview, near: bool) -> String {
    let beyond = if near { "" } else { " (above the picture)" };
    let overflowed = if listener.overflows_unknown_s > 0.0 && listener.overflows <= 0.0 {
        "Its overflows could not be separated from those of other listeners. It".to_owned()
    } else {
        let times = plural(listener.overflows.round() as u64, "time");
        let about = if listener.overflows_estimated { "about " } else { "" };
        format!("It overflowed {about}{times} and")
    };
    format!(
        "Longest queue: {}. Limit: {}{beyond}. {overflowed} dropped {}.",
        number::count(listener.accept_queue_peak),
        number::count(listener.accept_queue_limit),
        plural(listener.drops, "packet"),
    )
}

/// What listeners dropped, per second.
fn dropped(view: &Dated<'_>, points: &[Interval]) -> Option<Picture> {
    let any = ["overflows", "drops"].iter().any(|key| view.review.counts.get(*key) > Some(&0));
    let joined = points.iter().any(|point| point.looks > 1);
    let mut lines = rates(points, "drops", "dropped by listeners", "a1 under", joined);
    lines.extend(rates(points, "overflows", "met a full accept queue", "a0", joined));
    let total = tables::figure(view.review, "drops").unwrap_or(0);
    let peak = view.review.peaks_per_s.get("drops").map_or(0.0, |peak| peak.value);
    let caption = format!(
        "Listeners dropped {} in all, at most {} per second.",
        plural(total, "packet"),
        number::three(peak)
    );
    let chart = Chart {
        label: "packets per second".into(),
        lines,
        tick: number::plain,
        most: None,
        subject: None,
        view,
    };
    any.then(|| chart.picture("Drops and overflows".to_owned(), caption))
}

/// The highest rate of one look in each point; and where looks were joined, the mean.
fn rates(points: &[Interval], key: &str, name: &str, class: &str, joined: bool) -> Vec<Line> {
    let peak = |point: &Interval| point.peak_per_s(key);
    let mean = |point: &Interval| point.per_s(key);
    let mut lines = Vec::new();
    if joined {
        lines.push(line(
            &format!("{name}: highest second"),
            &format!("{class} faint"),
            points,
            peak,
            false,
        ));
        lines.push(line(&format!("{name}: mean"), class, points, mean, true));
    } else {
        lines.push(line(name, class, points, mean, true));
    }
    lines
}

/// Local ports left to the busiest destinations.
fn ports(view: &Dated<'_>, points: &[Interval]) -> Option<Picture> {
    let destinations = view.review.destinations.iter().take(8);
    let lines =
        destinations.enumerate().filter(|(_, one)| one.ports_left.is_some()).map(|(at, one)| {
            // A dump is not made in each interval: the one before it holds until then.
            let mut last = None;
            let steps = points.iter().map(|point| {
                let found = point.destinations.iter().find(|part| part.to == one.to);
                last = found.and_then(|part| part.ports_left).or(last);
                Step {
                    from_s: point.at_s - point.interval_s,
                    to_s: point.at_s,
                    value: last.map(f64::from),
                }
            });
            let steps = steps.collect();
            Line {
                name: clean::shorten(&one.to, 40),
                class: format!("a{at}"),
                steps,
                filled: false,
            }
        });
    let lines: Vec<Line> = lines.collect();
    let least = view
        .review
        .destinations
        .iter()
        .filter_map(|one| Some((one.ports_left?, one)))
        .min_by_key(|one| one.0);
    let (left, to) = least?;
    let caption =
        format!("Minimum: {} left to {}, at {}.", number::count(left), to.to, view.at(to.at_s));
    let chart = Chart {
        label: "local ports left, of the source address with the fewest".into(),
        lines,
        tick: number::plain,
        most: view.review.limits.local_ports.map(|ports| f64::from(ports) * 1.05),
        subject: None,
        view,
    };
    Some(chart.picture("Local ports left by destination".into(), caption))
}

fn sockets(view: &Dated<'_>, points: &[Interval]) -> Option<Picture> {
    let levels = &view.review.levels;
    levels.sockets.or(levels.time_wait)?;
    let as_f64 = |value: Option<u64>| value.map(|value| value as f64);
    let lines = vec![
        line("sockets in use", "a2", points, |point| as_f64(point.levels.sockets), false),
        line("in TIME-WAIT", "a3", points, |point| as_f64(point.levels.time_wait), false),
    ];
    let most = |n: Option<u64>| n.map_or_else(|| "—".to_owned(), number::count);
    let caption = format!(
        "Maximum: {} in use, {} in TIME-WAIT.",
        most(levels.sockets),
        most(levels.time_wait)
    );
    let chart = Chart {
        label: "sockets".into(),
        lines,
        tick: number::plain,
        most: None,
        subject: None,
        view,
    };
    Some(chart.picture("Sockets".into(), caption))
}

fn retransmitted(view: &Dated<'_>, points: &[Interval]) -> Option<Picture> {
    let again = tables::figure(view.review, DATA_RETRANSMITTED).filter(|n| *n > 0)?;
    let sent = tables::figure(view.review, "segments_out").unwrap_or(0);
    let joined = points.iter().any(|point| point.looks > 1);
    let lines = rates(points, DATA_RETRANSMITTED, "retransmitted segments", "a4", joined);
    let caption = format!(
        "{} retransmitted, SYNs excluded: {} of all segments sent.",
        plural(again, "segment"),
        number::percent(again as f64 / (again + sent).max(1) as f64)
    );
    let chart = Chart {
        label: "segments per second, SYNs excluded".into(),
        lines,
        tick: number::plain,
        most: None,
        subject: None,
        view,
    };
    Some(chart.picture("Retransmissions".into(), caption))
}

fn memory(view: &Dated<'_>, points: &[Interval]) -> Option<Picture> {
    let most = view.review.levels.memory_bytes?;
    let bytes = |point: &Interval| point.levels.memory_bytes.map(|bytes| bytes as f64);
    let mut lines = vec![line("TCP memory", "a5", points, bytes, true)];
    let pressure = view.review.limits.memory_pressure_bytes;
    if let Some(limit) = pressure.filter(|limit| *limit <= most.saturating_mul(8)) {
        let value = Some(limit as f64);
        let steps = vec![Step { from_s: 0.0, to_s: view.review.lasted_s, value }];
        lines.push(Line {
            name: "memory pressure".into(),
            class: "limit".into(),
            steps,
            filled: false,
        });
    }
    let limit = pressure
        .map(|limit| format!(" Memory pressure begins at {}.", number::bytes(limit as f64)));
    let caption = format!("Maximum: {}.{}", number::bytes(most as f64), limit.unwrap_or_default());
    let chart = Chart {
        label: "of all sockets of the machine".into(),
        lines,
        tick: |bytes| number::tick(bytes, "bytes"),
        most: None,
        subject: None,
        view,
    };
    Some(chart.picture("TCP memory".into(), caption))
}

fn line(
    name: &str,
    class: &str,
    points: &[Interval],
    value: impl Fn(&Interval) -> Option<f64>,
    filled: bool,
) -> Line {
    let steps = points.iter().map(|point| Step {
        from_s: point.at_s - point.interval_s,
        to_s: point.at_s,
        value: value(point),
    });
    Line { name: name.to_owned(), class: class.to_owned(), steps: steps.collect(), filled }
}
