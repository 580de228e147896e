//! Curves over the time of day, with what was wrong as bands behind them; and what was wrong when, as bars.

use tcptoll_core::sheet::Picture;
use tcptoll_core::units::plural;
use tcptoll_show::html::over_time::{Axis, Band, Level, Line, Panel, Stack};
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::svg::Anchor;
use tcptoll_show::{clean, number};

use super::{Dated, tables};
use crate::watch::{DATA_RETRANSMITTED, Episode, Interval, ListenerReview, Series};
use tcptoll_core::finding::Severity;

/// Bands behind a curve, at most.
const BANDS_MAX: usize = 100;
/// Ticks of an axis of time, at most.
const TICKS_MAX: f64 = 6.0;
/// Steps of an axis of time, s.
const STEPS_S: [f64; 20] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0,
    10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0,
];

/// Where the axis of time begins: in all pictures at one place, so that they can be compared.
const LEFT: f64 = 60.0;

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

/// A curve over the time of day, with what was wrong behind it. `subject`: the listener that it is about.
fn picture(
    view: &Dated<'_>,
    title: impl Into<String>,
    caption: String,
    mut panel: Panel,
    subject: Option<&str>,
) -> Picture {
    let title = title.into();
    if panel.lines.len() > 1 {
        panel.lines.iter_mut().for_each(|line| line.key = Some(line.name.clone()));
    }
    let label = format!("{title}: {} over time", panel.title);
    let stack = Stack {
        bands: bands(view, subject),
        last_s: view.review.lasted_s,
        ticks: ticks(view),
        left: LEFT,
        height: 134.0,
        hits: 0,
        ..Stack::new(vec![panel])
    };
    Picture { title, svg: stack.draw().labelled(&label).into(), caption, ..Picture::default() }
}

/// Lines of counts.
fn counts(label: &str, lines: Vec<Line>) -> Panel {
    Panel { lines, corners: true, ..Panel::new(label, number::plain, number::three) }
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
        let limit = limits.iter().zip(ends).enumerate().map(|(at, ((from_s, limit), to_s))| {
            // It is known from its first queue on, and was so before.
            ([if at == 0 { 0.0 } else { *from_s }, to_s], Some(f64::from(*limit)))
        });
        let peak = f64::from(listener.accept_queue_peak);
        let greatest = limits.iter().map(|(_, limit)| f64::from(*limit)).fold(0.0, f64::max);
        // A limit far above would press the queue to the ground.
        let near = greatest <= 8.0 * peak.max(1.0);
        let mut lines = vec![line("longest queue", "a0", &series.points, queue, true)];
        lines.extend(near.then(|| steps("limit", "limit", limit, false)));
        let panel = counts("connections that wait for accept(2)", lines);
        let process = listener.process.as_ref().map(|process| format!(" ({})", process.name));
        let title = format!("Accept queue of {name}{}", process.unwrap_or_default());
        let folded = pictures.len() >= 3 || listener.drops == 0 && peak * 2.0 < greatest;
        let folded = folded && !pictures.is_empty();
        let caption = queue_caption(listener, near);
        pictures.push((picture(view, title, caption, panel, Some(&name)), folded));
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
    let panel = counts("packets per second", lines);
    any.then(|| picture(view, "Drops and overflows", caption, panel, None))
}

/// The highest rate of one look in each point; and where looks were joined, the mean.
fn rates(points: &[Interval], key: &str, name: &str, class: &str, joined: bool) -> Vec<Line> {
    let mean = |point: &Interval| point.per_s(key);
    if !joined {
        return vec![line(name, class, points, mean, true)];
    }
    let peak = |point: &Interval| point.peak_per_s(key);
    let (most, faint) = (format!("{name}: highest second"), format!("{class} faint"));
    vec![
        line(&most, &faint, points, peak, false),
        line(&format!("{name}: mean"), class, points, mean, true),
    ]
}

/// Local ports left to the busiest destinations.
fn ports(view: &Dated<'_>, points: &[Interval]) -> Option<Picture> {
    let destinations = view.review.destinations.iter().take(8).enumerate();
    let lines = destinations.filter(|(_, one)| one.ports_left.is_some()).map(|(at, one)| {
        // A dump is not made in each interval: the one before it holds until then.
        let mut last = None;
        let left = |point: &Interval| {
            let found = point.destinations.iter().find(|part| part.to == one.to);
            last = found.and_then(|part| part.ports_left).or(last);
            last.map(f64::from)
        };
        line(&clean::shorten(&one.to, 40), &format!("a{at}"), points, left, false)
    });
    let panel = counts("local ports left, of the source address with the fewest", lines.collect());
    let ports = view.review.limits.local_ports;
    let axis = ports.map_or(panel.axis, |ports| Axis::To(f64::from(ports) * 1.05));
    let least = view
        .review
        .destinations
        .iter()
        .filter_map(|one| Some((one.ports_left?, one)))
        .min_by_key(|one| one.0);
    let (left, to) = least?;
    let caption =
        format!("Minimum: {} left to {}, at {}.", number::count(left), to.to, view.at(to.at_s));
    let panel = Panel { axis, ..panel };
    Some(picture(view, "Local ports left by destination", caption, panel, None))
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
    Some(picture(view, "Sockets", caption, counts("sockets", lines), None))
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
    let panel = counts("segments per second, SYNs excluded", lines);
    Some(picture(view, "Retransmissions", caption, panel, None))
}

fn memory(view: &Dated<'_>, points: &[Interval]) -> Option<Picture> {
    let most = view.review.levels.memory_bytes?;
    let bytes = |point: &Interval| point.levels.memory_bytes.map(|bytes| bytes as f64);
    let pressure = view.review.limits.memory_pressure_bytes;
    let near = pressure.filter(|limit| *limit <= most.saturating_mul(8));
    let level = |limit: u64| Level::named(limit as f64, "memory pressure".to_owned(), "d1");
    let limit = pressure
        .map(|limit| format!(" Memory pressure begins at {}.", number::bytes(limit as f64)));
    let caption = format!("Maximum: {}.{}", number::bytes(most as f64), limit.unwrap_or_default());
    let panel = Panel {
        lines: vec![line("TCP memory", "a5", points, bytes, true)],
        levels: near.into_iter().map(level).collect(),
        tick: |bytes| number::tick(bytes, "bytes"),
        ..counts("of all sockets of the machine", Vec::new())
    };
    Some(picture(view, "TCP memory", caption, panel, None))
}

/// A line that keeps its value over each interval.
fn line(
    name: &str,
    class: &str,
    points: &[Interval],
    mut value: impl FnMut(&Interval) -> Option<f64>,
    filled: bool,
) -> Line {
    let step = |point: &Interval| ([point.at_s - point.interval_s, point.at_s], value(point));
    steps(name, class, points.iter().map(step), filled)
}

/// A line that keeps its value over each step, without corners that are on a straight line.
fn steps(
    name: &str,
    class: &str,
    steps: impl Iterator<Item = ([f64; 2], Option<f64>)>,
    filled: bool,
) -> Line {
    let mut points: Vec<[f64; 4]> = Vec::new();
    for ([from_s, to_s], value) in steps {
        let value = value.unwrap_or(f64::NAN);
        let least = if filled { 0.0 } else { value };
        let is_level = |point: &[f64; 4]| point[2].to_bits() == value.to_bits();
        if matches!(points.as_slice(), [.., a, b] if is_level(a) && is_level(b)) {
            points.pop();
        } else {
            points.push([from_s.max(0.0), least, value, value]);
        }
        points.push([to_s, least, value, value]);
    }
    let (name, class) = (name.to_owned(), class.to_owned());
    Line { name, class, points, band: filled, ..Line::default() }
}

/// What was wrong, and where nothing was seen, behind the curves.
///
/// Behind a listener's queue: what was wrong with it. Elsewhere problems of all kinds, and warnings as a strip
/// above them.
fn bands(view: &Dated<'_>, subject: Option<&str>) -> Vec<Band> {
    let band = |class, strip| move |span_s| Band { class, span_s, strip, tooltip: String::new() };
    let spans = |severity: Severity| {
        let about = |one: &&Episode| subject.is_none_or(|subject| one.subject == subject);
        let episodes = view.review.episodes.iter().filter(|one| one.severity == severity);
        union(episodes.filter(about).map(|one| [one.from_s, one.to_s]).collect()).into_iter()
    };
    let warned = spans(Severity::Warning).map(band("warned", subject.is_none()));
    let problems = spans(Severity::Problem).map(band("problem", false));
    let gaps = view.review.gaps.iter().take(BANDS_MAX);
    let gaps = gaps.map(|gap| [gap.at_s - gap.lasted_s, gap.at_s]).map(band("margin", false));
    warned.chain(problems).chain(gaps).collect()
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

/// Round times of day for the axis.
fn ticks(view: &Dated<'_>) -> Vec<(f64, String)> {
    let lasted_s = view.review.lasted_s.min(1e9);
    let step = STEPS_S.into_iter().find(|step| lasted_s / step <= TICKS_MAX);
    // Of more than some weeks: as many days as it takes.
    let step = step.unwrap_or_else(|| (lasted_s / TICKS_MAX / 86_400.0).ceil() * 86_400.0);
    let first = (view.clock.second_of_day() / step).ceil() * step - view.clock.second_of_day();
    let count = ((lasted_s - first) / step).floor().max(-1.0) as i64;
    let tick = |number: i64| {
        let at_s = first + number as f64 * step;
        // A tick is at a whole second, and a sum of steps may be a little below it.
        let written = |format| view.clock.written(at_s + 0.001, format);
        let text = match written("%H:%M") {
            _ if step < 60.0 => written("%H:%M:%S"),
            midnight if midnight == "00:00" => written("%-d %b"),
            time => time,
        };
        (at_s, text)
    };
    (0..=count.min(TICKS_MAX as i64 + 1)).map(tick).collect()
}

/// Rows of the timeline, at most.
const ROWS_MAX: usize = 24;

/// What was wrong when: a row for each cause and subject, each bar a link to its article.
pub(super) fn timeline(view: &Dated<'_>) -> Option<Picture> {
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
    let height = 29.0;
    let frame = Frame::across(LEFT, 0.0, 4.0 + height * rows.len() as f64);
    let x = Scale::from_zero(view.review.lasted_s, frame.left, frame.right);
    let mut plot = Plot::of_rows(frame, plot::TICKS, x);
    plot.x_marks(true, ticks(view));
    plot.base();
    for (at, ((id, subject), all)) in rows.iter().enumerate() {
        let top = height * at as f64;
        let name = clean::shorten(&format!("{id}: {subject}"), 60);
        plot.svg.text("name", (0.0, top + 9.0), Anchor::Start, &name);
        plot.svg.line("lane", (frame.left, top + 22.0), (frame.right, top + 22.0));
        for one in all.iter().take(BANDS_MAX) {
            let (from, to) = (plot.x.at(one.from_s), plot.x.at(one.to_s));
            let tooltip = format!("{} to {}: {}", view.at(one.from_s), view.at(one.to_s), one.text);
            plot.svg.open_link(&format!("#{}", anchor(one)));
            let size = ((to - from).max(2.0), 8.0);
            plot.svg.rect(&format!("{} solid", class(one)), (from, top + 18.0), size, &tooltip);
            plot.svg.close_link();
        }
    }
    let more = if more > 0 { format!(" {more} more are in the table.") } else { String::new() };
    let caption = format!(
        "Red: connections were harmed. Yellow: a warning, nothing was harmed yet. A bar links to its explanation and fix.{more}"
    );
    let svg = plot.svg.labelled("What was wrong over time").into();
    Some(Picture { svg, caption, ..Picture::default() })
}

/// Where the article of a cause is on the page. Names of causes are kebab case; a record may hold others.
pub(super) fn anchor(one: &Episode) -> String {
    let kept = |c: char| c.is_ascii_lowercase() || c == '-';
    format!("cause-{}", one.id.chars().filter(|c| kept(*c)).take(60).collect::<String>())
}

fn class(one: &Episode) -> &'static str {
    if one.severity == Severity::Problem { "problem" } else { "warned" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_are_one_band() {
        let spans = vec![[5.0, 9.0], [1.0, 3.0], [2.0, 4.0], [9.0, 10.0]];
        assert_eq!(union(spans), [[1.0, 4.0], [5.0, 10.0]]);
        let many = (0..500).map(|n| [f64::from(n), f64::from(n) + 0.5]).collect();
        assert_eq!(union(many).len(), BANDS_MAX);
    }

    #[test]
    fn a_level_is_two_corners_however_many_steps_it_has_and_a_hole_is_a_hole() {
        let levels = [Some(5.0), Some(5.0), Some(5.0), Some(7.0), None, None, Some(7.0)];
        let all = (0_u32..).zip(levels).map(|(at, value)| ([at.into(), (at + 1).into()], value));
        let line = steps("", "", all, true);
        let at = [0.0, 3.0, 3.0, 4.0, 4.0, 6.0, 6.0, 7.0];
        assert_eq!(line.points.iter().map(|p| p[0]).collect::<Vec<_>>(), at);
        assert_eq!(line.points.iter().filter(|p| p[2].is_nan()).count(), 2);
    }
}
