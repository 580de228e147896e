//! Which arm is higher, and is it noise? Each comparison as a ratio with its 95 % interval against the
//! margin, and 1 as the line of no difference.

use tcptoll_core::record::{Comparison, Verdict};
use tcptoll_core::units::capital;

use super::plot::{self, Frame, Plot, Scale};
use crate::effect::{self, Group};
use crate::run::Run;
use crate::svg::{Anchor, Svg, WIDTH, arm_class};
use crate::{clean, number, points, published};

/// Rows of one picture at most; the table below has all.
const ROWS: usize = 120;

/// A comparison that can be drawn.
struct Interval<'a> {
    /// Place of its first arm, for the colour.
    arm: usize,
    c: &'a Comparison,
    /// As of [`effect::judgement`].
    judgement: Option<&'static str>,
    /// The comparison in words.
    sentence: String,
    ratio: f64,
    /// Of a vantage point there may be a ratio alone.
    ci95: Option<[f64; 2]>,
    /// The ratio of the published figures of both arms, and where they are from.
    published: Option<(f64, &'a str)>,
    /// What tells it from the other rows.
    label: String,
}

/// A picture of the comparisons in one metric, or of one pair of arms at several levels.
pub(super) struct Forest {
    /// What is compared.
    pub(super) title: String,
    /// The drawing.
    pub(super) svg: Svg,
    /// One sentence that says what to see.
    pub(super) caption: String,
}

/// A picture per group of comparisons that has an interval to draw.
pub(super) fn pictures(summary: &Run) -> Vec<Forest> {
    if points::are_units(summary) {
        return summary.comparisons.iter().filter_map(|c| of_points(summary, c)).collect();
    }
    let groups = effect::groups(summary, &summary.comparisons);
    groups.iter().filter_map(|group| picture(summary, group, false)).collect()
}

/// A picture of the points of a comparison, from the lowest to the highest.
fn of_points(summary: &Run, c: &Comparison) -> Option<Forest> {
    let rows = points::rows(c);
    let pair = Some([c.a.clone(), c.b.clone()]);
    let group = Group { metric: &c.metric, pair, rows: rows.iter().collect() };
    let forest = picture(summary, &group, true)?;
    let notes = points::notes(c).join(" ");
    let levels = effect::levels(&c.per);
    let title =
        if levels.is_empty() { forest.title } else { format!("{}, {levels}", forest.title) };
    Some(Forest { caption: format!("{} {notes}", forest.caption), title, ..forest })
}

fn picture(summary: &Run, group: &Group<'_>, dots: bool) -> Option<Forest> {
    let rows = rows(summary, group, dots);
    if rows.is_empty() {
        return None;
    }
    let title = title(summary, group);
    let label = format!("Ratios with their 95 % intervals: {title}");
    let shown = &rows[..rows.len().min(ROWS)];
    Some(Forest { svg: draw(shown).labelled(&label), caption: caption(&rows), title })
}

/// What a group compares, in words.
pub(super) fn title(summary: &Run, group: &Group<'_>) -> String {
    let metric = capital(&summary.specs.words_of_metric(group.metric));
    match &group.pair {
        Some([a, b]) => format!("{metric}: {a} against {b}"),
        None => metric,
    }
}

/// `dots`: also what has no interval.
fn rows<'a>(summary: &'a Run, group: &Group<'a>, dots: bool) -> Vec<Interval<'a>> {
    let row = |c: &&'a Comparison| {
        let ratio = c.ratio?;
        let ci95 = if dots { c.ci95 } else { Some(c.ci95?) };
        let figures = ci95.into_iter().flatten().chain([ratio]);
        let drawable = figures.clone().all(|v| v.is_finite() && v > 0.0);
        let arm = summary.arms.iter().position(|arm| arm.name == c.a).unwrap_or(0);
        let label = if group.pair.is_some() {
            effect::levels(&c.per)
        } else {
            let [a, b] = effect::pair(summary, c);
            effect::slash(&clean::shorten(&a, 24), &clean::shorten(&b, 24))
        };
        let published = published::ratio(summary, c);
        let judgement = effect::judgement(c, summary.specs);
        let sentence = effect::sentence(c, summary.specs);
        drawable.then_some(Interval { arm, c, judgement, sentence, ratio, ci95, published, label })
    };
    group.rows.iter().filter_map(row).collect()
}

/// Height of a row: its name and verdict, and below them its interval.
const ROW: f64 = 35.0;

fn draw(rows: &[Interval<'_>]) -> Svg {
    let frame = Frame::across(14.0, 4.0, 4.0 + rows.len() as f64 * ROW);
    let bands = rows.iter().filter_map(|row| effect::band(row.c)).flatten();
    let values = rows.iter().flat_map(|row| row.ci95.into_iter().flatten().chain([row.ratio]));
    let values = values.chain(rows.iter().filter_map(|row| Some(row.published?.0)));
    let x = Scale::log(values.chain(bands).chain([1.0]), frame.left, frame.right);
    let mut plot = Plot::of_rows(frame, plot::TICKS_AND_LABEL, x);
    let tops = (0..rows.len()).map(|at| frame.top + at as f64 * ROW);
    for (row, top) in rows.iter().zip(tops.clone()) {
        if let Some([low, high]) = effect::band(row.c) {
            let tooltip = effect::margin(row.c).unwrap_or_default();
            plot.svg.rect("margin", (x.at(low), top), (x.at(high) - x.at(low), ROW), &tooltip);
        }
    }
    plot.x_ticks(6, true, |ratio| format!("×{}", number::plain(ratio)));
    plot.svg.line("none", (x.at(1.0), frame.top), (x.at(1.0), frame.bottom));
    plot.x_label("ratio, log axis; grey: within the margin");
    for (row, top) in rows.iter().zip(tops) {
        one(&mut plot, row, top);
    }
    plot.svg
}

fn one(plot: &mut Plot, row: &Interval<'_>, top: f64) {
    let (c, x) = (row.c, plot.x);
    let svg = &mut plot.svg;
    svg.open(&arm_class(row.arm), &format!("{} against {}: {}", c.a, c.b, row.sentence));
    let verdict = row.judgement.map_or_else(|| c.verdict.to_string(), str::to_owned);
    let strong = matches!(c.verdict, Verdict::Higher | Verdict::Lower);
    let class = match row.judgement {
        Some("better") => "name strong better",
        Some(_) => "name strong worse",
        None if strong => "name strong",
        None => "name",
    };
    let [ratio, _] = effect::ratio(c);
    let text = if strong { format!("{verdict} {ratio}") } else { verdict };
    svg.text("name", (0.0, top + 9.0), Anchor::Start, &clean::shorten(&row.label, 45));
    svg.text(class, (WIDTH, top + 9.0), Anchor::End, &text);
    let y = top + 24.0;
    if let Some([low, high]) = row.ci95 {
        svg.line("bar", (x.at(low), y), (x.at(high), y));
    }
    svg.dot("mark", (x.at(row.ratio), y), 3.5, "");
    if let Some((ratio, source)) = row.published {
        let tooltip = format!("published: {} ({source})", number::ratio(ratio));
        svg.rect("hollow", (x.at(ratio) - 3.5, y - 3.5), (7.0, 7.0), &tooltip);
    }
    svg.close();
}

/// One sentence that says what to see.
fn caption(rows: &[Interval<'_>]) -> String {
    let count = |verdict: Verdict| rows.iter().filter(|row| row.c.verdict == verdict).count();
    let clear = count(Verdict::Higher) + count(Verdict::Lower);
    let within = count(Verdict::NoDifference);
    let mut parts = Vec::new();
    if clear > 0 {
        parts.push(format!("{clear} of {} exclude ×1", rows.len()));
    }
    if within > 0 {
        parts.push(format!("{within} entirely within the margin (no difference found)"));
    }
    let too_soon = rows.iter().filter(|row| effect::narrow_too_soon(row.c)).count();
    if too_soon > 0 {
        parts.push(format!("{too_soon} within the margin, but {}", effect::shown_from()));
    }
    let bare = rows.iter().filter(|row| row.ci95.is_none()).count();
    let open = count(Verdict::NotEnough).saturating_sub(too_soon + bare);
    if open > 0 {
        parts.push(format!("{open} too wide for a verdict"));
    }
    if bare > 0 {
        parts.push(format!("{bare} without an interval yet"));
    }
    let more = match rows.len().saturating_sub(ROWS) {
        0 => String::new(),
        n => format!(" {n} more are in the table."),
    };
    let theirs = if rows.iter().any(|row| row.published.is_some()) {
        " Hollow squares: the ratio of the published figures."
    } else {
        ""
    };
    format!("Bars: 95 % intervals of the ratios. Result: {}.{theirs}{more}", parts.join("; "))
}
