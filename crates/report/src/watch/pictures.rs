//! Curves over the time of day, with what was wrong as bands behind them.

use serde::Serialize;
use tcptoll_model::diagnosis::Severity;
use tcptoll_model::watch::Interval;
use tcptoll_model::watch::review::{Episode, Series};

use super::{View, tables};
use crate::html::plot::{self, Frame, Plot, Scale};
use crate::html::svg::{Anchor, Screen, Svg, for_both};
use crate::{clean, number};

/// Bands behind a curve, at most.
const BANDS_MAX: usize = 100;
/// Rows of the timeline, at most.
const ROWS_MAX: usize = 24;
/// Steps of an axis of time, s.
const STEPS_S: [f64; 20] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0,
    10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0,
];

/// A picture on the page.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Picture {
    title: String,
    both_svg: String,
    caption: String,
    /// Whether it is shown only when it is asked for.
    folded: bool,
}

/// A value over an interval; absent: it is not known there.
struct Step {
    from_s: f64,
    to_s: f64,
    value: Option<f64>,
}

struct Line {
    name: String,
    class: String,
    steps: Vec<Step>,
    filled: bool,
}

struct Chart<'a> {
    label: String,
    lines: Vec<Line>,
    tick: fn(f64) -> String,
    /// The greatest value of the axis, where it is not that of the lines.
    most: Option<f64>,
    /// The listener that it is about, in the words of a diagnosis.
    subject: Option<String>,
    view: &'a View<'a>,
}

/// All pictures that have something to show, but the timeline.
pub(super) fn all(view: &View<'_>, series: &Series, raw: &[String]) -> Vec<Picture> {
    let points = &series.points;
    let mut pictures = queues(view, series);
    pictures.extend(dropped(view, points));
    pictures.extend(ports(view, points, raw));
    pictures.extend(sockets(view, points));
    pictures.extend(retransmitted(view, points));
    pictures.extend(memory(view, points));
    pictures
}

fn count_tick(value: f64) -> String {
    number::trimmed_ratio(value)
}

/// The accept queue of each of the busiest listeners, and its limit.
fn queues(view: &View<'_>, series: &Series) -> Vec<Picture> {
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
        let beyond = if near { "" } else { "; the limit is above the picture" };
        let caption = format!(
            "At most {} of {}{beyond}. It overflowed {} times and dropped {} packets.",
            number::whole(listener.accept_queue_peak.into()),
            number::whole(listener.accept_queue_limit.into()),
            number::whole(listener.overflows.round() as i64),
            number::whole(listener.drops as i64),
        );
        let chart = Chart {
            label: "connections that wait for accept(2)".to_owned(),
            lines,
            tick: count_tick,
            most: near.then_some(greatest.max(peak) * 1.08),
            subject: Some(name.clone()),
            view,
        };
        let title = format!("Accept queue of {name}{process}");
        let folded = pictures.len() >= 3 || listener.drops == 0 && peak * 2.0 < greatest;
        pictures.push(chart.picture(title, caption, folded && !pictures.is_empty()));
    }
    pictures
}

/// What listeners dropped, per second.
fn dropped(view: &View<'_>, points: &[Interval]) -> Option<Picture> {
    let any = ["overflows", "drops"].iter().any(|key| view.review.counts.get(*key) > Some(&0));
    let joined = points.iter().any(|point| point.looks > 1);
    let mut lines = rates(points, "drops", "dropped by listeners", "a1", joined);
    lines.extend(rates(points, "overflows", "met a full accept queue", "a0", joined));
    let total = tables::figure(&view.review, "drops").unwrap_or(0);
    let peak = view.review.peaks_per_s.get("drops").map_or(0.0, |peak| peak.value);
    let caption = format!(
        "{} packets in all, at most {} in one second.",
        number::whole(total as i64),
        number::three(peak)
    );
    let chart = Chart {
        label: "packets per second".into(),
        lines,
        tick: count_tick,
        most: None,
        subject: None,
        view,
    };
    any.then(|| chart.picture("Drops and overflows".to_owned(), caption, false))
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
fn ports(view: &View<'_>, points: &[Interval], raw: &[String]) -> Option<Picture> {
    let destinations = view.review.destinations.iter().zip(raw).take(8);
    let lines = destinations.enumerate().filter(|(_, (one, _))| one.ports_left.is_some()).map(
        |(at, (one, raw))| {
            // A dump is not made in each interval: the one before it holds until then.
            let mut last = None;
            let steps = points.iter().map(|point| {
                let found = point.destinations.iter().find(|part| part.to == *raw);
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
        },
    );
    let lines: Vec<Line> = lines.collect();
    let least = view
        .review
        .destinations
        .iter()
        .filter_map(|one| Some((one.ports_left?, one)))
        .min_by_key(|one| one.0);
    let (left, to) = least?;
    let caption =
        format!("Fewest: {} for {}, at {}.", number::whole(left.into()), to.to, view.at(to.at_s));
    let chart = Chart {
        label: "local ports left, of the source address with the fewest".into(),
        lines,
        tick: count_tick,
        most: view.review.limits.local_ports.map(|ports| f64::from(ports) * 1.05),
        subject: None,
        view,
    };
    Some(chart.picture("Local ports left by destination".into(), caption, false))
}

fn sockets(view: &View<'_>, points: &[Interval]) -> Option<Picture> {
    let levels = &view.review.levels;
    levels.sockets.or(levels.time_wait)?;
    let of = |value: Option<u64>| value.map(|value| value as f64);
    let lines = vec![
        line("sockets in use", "a2", points, |point| of(point.levels.sockets), false),
        line("in TIME-WAIT", "a3", points, |point| of(point.levels.time_wait), false),
    ];
    let most = |n: Option<u64>| n.map_or_else(|| "—".to_owned(), |n| number::whole(n as i64));
    let caption = format!(
        "At most {} in use and {} in TIME-WAIT.",
        most(levels.sockets),
        most(levels.time_wait)
    );
    let chart =
        Chart { label: "sockets".into(), lines, tick: count_tick, most: None, subject: None, view };
    Some(chart.picture("Sockets".into(), caption, false))
}

fn retransmitted(view: &View<'_>, points: &[Interval]) -> Option<Picture> {
    let again = tables::figure(&view.review, "retransmitted").filter(|n| *n > 0)?;
    let sent = tables::figure(&view.review, "segments_out").unwrap_or(0);
    let joined = points.iter().any(|point| point.looks > 1);
    let lines = rates(points, "retransmitted", "retransmitted segments", "a4", joined);
    let caption = format!(
        "{} segments retransmitted, {} of all that were sent.",
        number::whole(again as i64),
        number::percent(again as f64 / (again + sent).max(1) as f64)
    );
    let chart = Chart {
        label: "segments per second".into(),
        lines,
        tick: count_tick,
        most: None,
        subject: None,
        view,
    };
    Some(chart.picture("Retransmissions".into(), caption, false))
}

fn memory(view: &View<'_>, points: &[Interval]) -> Option<Picture> {
    let most = view.review.levels.memory_bytes?;
    let of = |point: &Interval| point.levels.memory_bytes.map(|bytes| bytes as f64);
    let mut lines = vec![line("TCP memory", "a5", points, of, true)];
    let pressure = view.review.limits.memory_pressure_bytes;
    if let Some(limit) = pressure.filter(|limit| *limit <= most.saturating_mul(8)) {
        let value = Some(limit as f64);
        let steps = vec![Step { from_s: 0.0, to_s: view.review.lasted_s, value }];
        lines.push(Line {
            name: "memory pressure from here".into(),
            class: "limit".into(),
            steps,
            filled: false,
        });
    }
    let limit =
        pressure.map(|limit| format!("; the kernel saves memory from {} on", number::bytes(limit)));
    let caption = format!("At most {}{}.", number::bytes(most), limit.unwrap_or_default());
    let chart = Chart {
        label: "of all sockets of the machine".into(),
        lines,
        tick: number::bytes_tick,
        most: None,
        subject: None,
        view,
    };
    Some(chart.picture("TCP memory".into(), caption, true))
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

impl Chart<'_> {
    fn picture(&self, title: String, caption: String, folded: bool) -> Picture {
        let label = format!("{title}: {} over time", self.label);
        Picture { both_svg: for_both(&label, |screen| self.draw(screen)), title, caption, folded }
    }

    fn draw(&self, screen: Screen) -> Svg {
        let wide = screen == Screen::Wide;
        let [left, bottom] = if wide { [72.0, 190.0] } else { [60.0, 160.0] };
        let frame = Frame::of(screen, left, 24.0, bottom);
        let values = self.lines.iter().flat_map(|line| &line.steps).filter_map(|step| step.value);
        let most = self.most.unwrap_or_else(|| values.fold(0.0, f64::max) * 1.08);
        let y = Scale::from_zero(if most > 0.0 { most } else { 1.0 }, bottom, frame.top);
        let x = Scale::from_zero(self.view.review.lasted_s, left, frame.right);
        let several = self.lines.len() > 1;
        let key = if several { 8.0 + plot::KEY * self.lines.len() as f64 } else { 0.0 };
        let mut plot = Plot::new(frame, 26.0 + key, x, y);
        bands(&mut plot, self.view, self.subject.as_deref());
        plot.y_axis(5, self.tick);
        time_axis(&mut plot, self.view, if wide { 8 } else { 4 });
        plot.base();
        plot.y_label(&self.label);
        for line in &self.lines {
            plot.group(&line.class, "", |plot| {
                for run in runs(&line.steps) {
                    if line.filled {
                        plot.band("band", run.iter().map(|(x, y)| [*x, 0.0, *y]));
                    }
                    plot.line("curve", run.iter().copied());
                }
            });
        }
        if several {
            let lines = self.lines.iter();
            plot.key(
                44.0,
                28.0,
                lines.map(|line| (format!("curve {}", line.class), line.name.as_str())),
            );
        }
        plot.svg
    }
}

/// Corners of a line that keeps its value over each step, without those that are on a straight line.
fn runs(steps: &[Step]) -> Vec<Vec<(f64, f64)>> {
    let mut runs: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut open = false;
    for step in steps {
        let Some(value) = step.value else {
            open = false;
            continue;
        };
        if !open {
            runs.push(Vec::new());
            open = true;
        }
        let Some(run) = runs.last_mut() else { continue };
        let level = |at: usize| run.get(run.len().wrapping_sub(at)).map(|(_, y)| y.to_bits());
        if level(1) == Some(value.to_bits()) && level(2) == Some(value.to_bits()) {
            run.pop();
        } else {
            run.push((step.from_s.max(0.0), value));
        }
        run.push((step.to_s, value));
    }
    runs
}

/// What was wrong, and where nothing was seen, behind the curves.
///
/// Behind a listener's queue: what was wrong with it. Elsewhere problems of all kinds, and warnings as a strip
/// above them: bands over bands would hide the curves.
fn bands(plot: &mut Plot, view: &View<'_>, subject: Option<&str>) {
    let Frame { top, bottom, .. } = plot.frame;
    let mut band = |class: &str, [from_s, to_s]: [f64; 2], height: f64| {
        let (from, to) = (plot.x.at(from_s), plot.x.at(to_s));
        plot.svg.rect(class, (from, top), ((to - from).max(1.5), height), "");
    };
    let of = |severity: Severity| {
        let about = |one: &&Episode| subject.is_none_or(|subject| one.subject == subject);
        let episodes = view.review.episodes.iter().filter(|one| one.severity == severity);
        union(episodes.filter(about).map(|one| [one.from_s, one.to_s]).collect())
    };
    let height = if subject.is_some() { bottom - top } else { 5.0 };
    for span in of(Severity::Warning) {
        band("warned", span, height);
    }
    for span in of(Severity::Problem) {
        band("problem", span, bottom - top);
    }
    for gap in view.review.gaps.iter().take(BANDS_MAX) {
        band("margin", [gap.at_s - gap.lasted_s, gap.at_s], bottom - top);
    }
}

/// Spans of time without overlaps, in order, at most [`BANDS_MAX`].
fn union(mut spans: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    spans.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let mut joined: Vec<[f64; 2]> = Vec::new();
    for [from, to] in spans {
        match joined.last_mut() {
            Some(last) if from <= last[1] => last[1] = last[1].max(to),
            _ => joined.push([from, to]),
        }
    }
    joined.truncate(BANDS_MAX);
    joined
}

fn class(one: &Episode) -> &'static str {
    if one.severity == Severity::Problem { "problem" } else { "warned" }
}

/// Round times of day below the axis.
fn time_axis(plot: &mut Plot, view: &View<'_>, most: usize) {
    let Frame { top, bottom, .. } = plot.frame;
    let lasted_s = view.review.lasted_s.min(1e9);
    let step = STEPS_S.into_iter().find(|step| lasted_s / step <= most as f64);
    // Of more than some weeks: as many days as it takes.
    let step = step.unwrap_or_else(|| (lasted_s / most as f64 / 86_400.0).ceil() * 86_400.0);
    let first = (view.clock.second_of_day() / step).ceil() * step - view.clock.second_of_day();
    let count = ((lasted_s - first) / step).floor().max(-1.0) as i64;
    for number in 0..=count.min(most as i64 + 1) {
        let at_s = first + number as f64 * step;
        let x = plot.x.at(at_s);
        plot.svg.line("grid", (x, top), (x, bottom));
        // A tick is at a whole second, and a sum of steps may be a little below it.
        let time = view.clock.text(at_s + 0.001, false);
        let text = match (step >= 60.0, time.as_str()) {
            (true, "00:00:00") => {
                let date = view.clock.date_text(at_s + 0.001);
                date.rsplit_once(' ').map_or(date.clone(), |(day, _)| day.to_owned())
            }
            (true, time) => time[..5].to_owned(),
            (false, time) => time.to_owned(),
        };
        plot.svg.text("tick", (x, bottom + 16.0), Anchor::Middle, &text);
    }
}

/// What was wrong when: a row for each cause and subject, each bar a link to its article.
pub(super) fn timeline(view: &View<'_>) -> Option<Picture> {
    let mut rows: Vec<((&str, &str), Vec<&Episode>)> = Vec::new();
    for one in &view.review.episodes {
        let key = (one.id.as_str(), one.subject.as_str());
        match rows.iter_mut().find(|(known, _)| *known == key) {
            Some((_, all)) => all.push(one),
            None => rows.push((key, vec![one])),
        }
    }
    if rows.is_empty() {
        return None;
    }
    let worst = |all: &[&Episode]| all.iter().map(|one| one.severity).min();
    rows.sort_by_key(|(_, all)| worst(all));
    let more = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let draw = |screen: Screen| {
        let height = 34.0;
        let frame = Frame::of(screen, 14.0, 8.0, 14.0 + height * rows.len() as f64);
        let x = Scale::from_zero(view.review.lasted_s, frame.left, frame.right);
        let mut plot = Plot::of_rows(frame, 26.0, x);
        time_axis(&mut plot, view, if screen == Screen::Wide { 8 } else { 4 });
        plot.base();
        for (at, ((id, subject), all)) in rows.iter().enumerate() {
            let top = frame.top + height * at as f64;
            let width = if screen == Screen::Wide { 110 } else { 46 };
            let name = clean::shorten(&format!("{id}: {subject}"), width);
            plot.svg.text("name", (frame.left, top + 14.0), Anchor::Start, &name);
            plot.svg.line("lane", (frame.left, top + 23.0), (frame.right, top + 23.0));
            for one in all.iter().take(BANDS_MAX) {
                let (from, to) = (plot.x.at(one.from_s), plot.x.at(one.to_s));
                let tooltip =
                    format!("{} to {}: {}", view.at(one.from_s), view.at(one.to_s), one.text);
                plot.svg.open_link(&format!("#{}", anchor(one)));
                let size = ((to - from).max(3.0), 10.0);
                plot.svg.rect(&format!("{} solid", class(one)), (from, top + 18.0), size, &tooltip);
                plot.svg.close_link();
            }
        }
        plot.svg
    };
    let more = if more > 0 { format!(" {more} more are in the table.") } else { String::new() };
    let caption = format!(
        "Red: connections were harmed. Yellow: a warning, nothing was harmed yet. A bar links to its explanation and fix.{more}"
    );
    let both_svg = for_both("What was wrong over time", draw);
    Some(Picture { title: "What was wrong".into(), both_svg, caption, folded: false })
}

/// Where the article of a cause is on the page. Names of causes are kebab case; a record may hold others.
pub(super) fn anchor(one: &Episode) -> String {
    let kept = |c: char| c.is_ascii_lowercase() || c == '-';
    format!("cause-{}", one.id.chars().filter(|c| kept(*c)).take(60).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from_s: f64, to_s: f64, value: Option<f64>) -> Step {
        Step { from_s, to_s, value }
    }

    #[test]
    fn spans_that_overlap_are_one_band() {
        let spans = vec![[5.0, 9.0], [1.0, 3.0], [2.0, 4.0], [9.0, 10.0]];
        assert_eq!(union(spans), [[1.0, 4.0], [5.0, 10.0]]);
        let many = (0..500).map(|n| [f64::from(n), f64::from(n) + 0.5]).collect();
        assert_eq!(union(many).len(), BANDS_MAX);
    }

    #[test]
    fn a_level_is_two_corners_however_many_steps_it_has_and_a_hole_is_a_hole() {
        let steps = [
            step(0.0, 1.0, Some(5.0)),
            step(1.0, 2.0, Some(5.0)),
            step(2.0, 3.0, Some(5.0)),
            step(3.0, 4.0, Some(7.0)),
            step(4.0, 5.0, None),
            step(5.0, 6.0, Some(7.0)),
        ];
        let runs = runs(&steps);
        assert_eq!(runs[0], [(0.0, 5.0), (3.0, 5.0), (3.0, 7.0), (4.0, 7.0)]);
        assert_eq!(runs[1], [(5.0, 7.0), (6.0, 7.0)]);
    }
}
