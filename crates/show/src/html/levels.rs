//! How does the figure go with the factor? The metric of the run over the factor with the most levels,
//! a line per combination of the others; and the ratio of two arms over the levels they share.

use std::collections::BTreeMap;
use tcptoll_core::units::capital;

use serde_json::Value;
use tcptoll_core::record::{Arm, Comparison};

use super::chart::{self, Chart, Levels, Line, Point};
use super::plot::{Scale, Span};
use crate::effect::{self, Group};
use crate::run::Run;
use crate::svg::{Svg, arm_class};
use crate::{number, published, rounds};

/// A picture with its title.
pub(super) struct OverLevels {
    /// `requests per second, over connections`.
    pub(super) title: String,
    /// The drawing.
    pub(super) svg: Svg,
    /// One sentence that says what to see.
    pub(super) caption: String,
}

/// Levels of factors, as arms and comparisons have them.
type Settings = BTreeMap<String, Value>;

/// The levels of a factor in the order to be drawn: ascending numbers, or as they come.
fn levels<'a>(factor: &str, settings: impl Iterator<Item = &'a Settings>) -> Vec<&'a Value> {
    let mut levels: Vec<&Value> = Vec::new();
    for level in settings.filter_map(|settings| settings.get(factor)) {
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    if levels.iter().all(|level| rounds::numeric(level).is_some()) {
        levels.sort_by(|a, b| {
            rounds::numeric(a).partial_cmp(&rounds::numeric(b)).unwrap_or(std::cmp::Ordering::Equal)
        });
    }
    levels
}

fn axis(factor: &str, levels: &[&Value]) -> Levels {
    Levels {
        factor: factor.to_owned(),
        names: levels.iter().map(|level| rounds::level(level)).collect(),
        numbers: levels.iter().map(|level| rounds::numeric(level)).collect(),
    }
}

/// The factor with the most levels, two at least; of equals one of numbers.
fn widest<'a>(settings: &[&'a Settings]) -> Option<(&'a String, Vec<&'a Value>)> {
    let mut factors: Vec<&String> = settings.iter().flat_map(|s| s.keys()).collect();
    factors.sort();
    factors.dedup();
    let known =
        factors.into_iter().map(|factor| (factor, levels(factor, settings.iter().copied())));
    let rank = |levels: &[&Value]| {
        (levels.len(), levels.iter().all(|level| rounds::numeric(level).is_some()))
    };
    known.filter(|(_, l)| l.len() > 1).max_by(|a, b| rank(&a.1).cmp(&rank(&b.1)))
}

/// The other factors that differ between any of `settings`, in words.
fn others(mine: &Settings, factor: &str, all: &[&Settings]) -> String {
    let differs = |(other, level): &(&String, &Value)| {
        other.as_str() != factor && all.iter().any(|s| s.get(*other) != Some(*level))
    };
    effect::levels(mine.iter().filter(differs))
}

/// The metric of the run over the levels of its widest factor; `None` without such a factor.
pub(super) fn of_metric(summary: &Run) -> Option<OverLevels> {
    let metric = rounds::metric(summary)?;
    let unit = rounds::unit(summary, metric);
    let arms: Vec<(usize, &Arm, rounds::Measured<'_>)> = summary
        .arms
        .iter()
        .enumerate()
        .filter(|(_, arm)| !arm.factors.is_empty())
        .filter_map(|(at, arm)| Some((at, arm, rounds::measured(arm, metric)?)))
        .collect();
    let settings: Vec<&Settings> = arms.iter().map(|(_, arm, _)| &arm.factors).collect();
    let (factor, levels) = widest(&settings)?;
    // Rates are drawn in bits, so that the axis has round figures in the reader's unit.
    let (factor_of_unit, drawn_unit) =
        if matches!(unit, "bytes/s" | "bytes_per_s") { (8.0, "bit/s") } else { (1.0, unit) };
    let mut lines: Vec<Line> = Vec::new();
    for (at, arm, measured) in &arms {
        let Some(level) = arm.factors.get(factor) else { continue };
        let Some(level) = levels.iter().position(|known| *known == level) else { continue };
        let label = others(&arm.factors, factor, &settings);
        let theirs = published::figure(summary, &arm.name, metric).map(|p| {
            let value = number::metric(p.value, unit);
            (p.value * factor_of_unit, format!("{}: published {value} ({})", arm.name, p.source))
        });
        let point = Point {
            level,
            value: measured.value * factor_of_unit,
            ci95: measured.ci95.map(|ci| ci.map(|end| end * factor_of_unit)),
            class: arm_class(*at),
            tooltip: format!("{}: {}", arm.name, measured.estimate().text()),
            published: theirs,
        };
        add(&mut lines, label, point)?;
    }
    lines.iter().any(|line| line.points.len() > 1).then_some(())?;
    let name = summary.specs.words_of_metric(metric);
    let has_interval = lines.iter().flat_map(|line| &line.points).any(|p| p.ci95.is_some());
    let (cut, span) = axis_of(chart::values(&lines));
    let caption = caption_of_metric(&lines, factor, cut);
    let title = format!("{name} over {factor}");
    let chart = Chart {
        levels: axis(factor, &levels),
        lines,
        span,
        tick: &|value| number::tick(value, drawn_unit),
        label: if has_interval { format!("{name}, 95 % interval") } else { name.clone() },
        margin: None,
        one: false,
    };
    let svg = chart::draw(&chart).labelled(&title);
    Some(OverLevels { title: capital(&title), svg, caption })
}

/// Adds a point to its line; `None` if the line has that level already: then the factors do not
/// tell the arms apart.
fn add(lines: &mut Vec<Line>, label: String, point: Point) -> Option<()> {
    match lines.iter_mut().find(|line| line.label == label) {
        Some(line) => {
            if line.points.iter().any(|known| known.level == point.level) {
                return None;
            }
            line.points.push(point);
            line.points.sort_by_key(|point| point.level);
        }
        None => lines.push(Line { label, points: vec![point] }),
    }
    Some(())
}

/// A vertical axis for values, and whether it is linear without 0: from 0 where that hides nothing,
/// logarithmic over decades.
fn axis_of(values: Vec<f64>) -> (bool, Span) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if least >= 0.0 && most < least * 20.0 && most > least * 1.25 {
        return (false, Span::FromZero(most * 1.06));
    }
    let cut = !Scale::fit(values.iter().copied(), 0.0, 1.0).is_log();
    (cut, Span::Fit(values))
}

fn caption_of_metric(lines: &[Line], factor: &str, cut: bool) -> String {
    let spread = |line: &Line| {
        let values = line.points.iter().map(|p| p.value);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        (least > 0.0).then(|| {
            let joint = if line.label.is_empty() { "" } else { " for " };
            format!("{}{joint}{}", number::ratio(most / least), line.label)
        })
    };
    let spreads: Vec<String> = lines.iter().filter_map(spread).take(4).collect();
    let zero = if cut { " The axis does not begin at 0." } else { "" };
    let theirs = if lines.iter().flat_map(|l| &l.points).any(|p| p.published.is_some()) {
        " Hollow squares: published."
    } else {
        ""
    };
    let spreads = spreads.join(", ");
    format!("Over {factor}, largest value relative to the smallest: {spreads}.{theirs}{zero}")
}

/// The ratio over the levels that both arms share, a picture per metric and set of factors.
pub(super) fn of_ratio(summary: &Run) -> Vec<OverLevels> {
    let groups = effect::groups(summary, &summary.comparisons);
    let mut done: Vec<(&str, Vec<&String>)> = Vec::new();
    let mut pictures = Vec::new();
    for group in groups.iter().filter(|group| group.pair.is_some()) {
        let key = (group.metric, group.rows[0].per.keys().collect::<Vec<_>>());
        if !done.contains(&key) {
            let alike = groups.iter().filter(|other| {
                other.pair.is_some()
                    && other.metric == key.0
                    && other.rows[0].per.keys().eq(key.1.iter().copied())
            });
            pictures.extend(ratio_picture(summary, &alike.collect::<Vec<_>>()));
            done.push(key);
        }
    }
    pictures
}

fn ratio_picture(summary: &Run, groups: &[&Group<'_>]) -> Option<OverLevels> {
    let comparisons: Vec<&Comparison> =
        groups.iter().flat_map(|group| group.rows.iter().copied()).collect();
    let settings: Vec<&Settings> = comparisons.iter().map(|c| &c.per).collect();
    let (factor, levels) = widest(&settings)?;
    let mut lines: Vec<Line> = Vec::new();
    for group in groups {
        let [a, b] = group.pair.as_ref()?;
        for c in &group.rows {
            let Some(ratio) = c.ratio.filter(|r| r.is_finite() && *r > 0.0) else { continue };
            let level = c.per.get(factor)?;
            let level = levels.iter().position(|known| *known == level)?;
            let rest = others(&c.per, factor, &settings);
            let rest = if rest.is_empty() { String::new() } else { format!(", {rest}") };
            let arm = summary.arms.iter().position(|arm| arm.name == c.a).unwrap_or(0);
            let drawable = |ci: &[f64; 2]| ci.iter().all(|end| end.is_finite() && *end > 0.0);
            let point = Point {
                level,
                value: ratio,
                ci95: c.ci95.filter(drawable),
                class: arm_class(arm),
                tooltip: format!("{} against {}: {}", c.a, c.b, effect::sentence(c, summary.specs)),
                published: published_ratio(summary, c),
            };
            add(&mut lines, format!("{}{rest}", effect::slash(a, b)), point)?;
        }
    }
    lines.iter().any(|line| line.points.len() > 1).then_some(())?;
    let margin = comparisons
        .iter()
        .filter_map(|c| effect::band(c))
        .reduce(|a, b| [a[0].max(b[0]), a[1].min(b[1])]);
    let values = chart::values(&lines);
    let bands = margin.into_iter().flatten();
    let all: Vec<f64> = values.into_iter().chain(bands).chain([1.0]).collect();
    let name = summary.specs.words_of_metric(groups[0].metric);
    let title = match groups {
        [group] => {
            let [a, b] = group.pair.as_ref()?;
            format!("ratio of {name}, {a} against {b}, per {factor}")
        }
        _ => format!("ratio of {name} per {factor}"),
    };
    let caption = caption_of_ratio(&lines, factor, margin.is_some());
    let chart = Chart {
        levels: axis(factor, &levels),
        lines,
        span: Span::Log(all),
        tick: &|ratio| format!("×{}", number::plain(ratio)),
        label: "ratio, 95 % interval (log)".to_owned(),
        margin,
        one: true,
    };
    let svg = chart::draw(&chart).labelled(&title);
    Some(OverLevels { title: capital(&title), svg, caption })
}

/// The ratio of the published figures of both arms.
fn published_ratio(summary: &Run, c: &Comparison) -> Option<(f64, String)> {
    let (ratio, source) = published::ratio(summary, c)?;
    Some((ratio, format!("published: {} ({source})", number::ratio(ratio))))
}

fn caption_of_ratio(lines: &[Line], factor: &str, margin: bool) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let furthest = points().max_by(|a, b| a.value.ln().abs().total_cmp(&b.value.ln().abs()));
    let furthest = furthest
        .map_or_else(String::new, |p| format!(" Furthest from ×1: {}.", number::ratio(p.value)));
    let theirs = points().any(|p| p.published.is_some());
    let theirs = if theirs { " Hollow squares: the ratio of the published figures." } else { "" };
    let margin = if margin { " Grey: within the margin." } else { "" };
    format!("One point per level of {factor}.{furthest}{margin}{theirs}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_ordered_as_numbers_and_the_factor_with_most_levels_is_the_axis() {
        let settings = [json!(64), json!("4"), json!(1)]
            .map(|n| Settings::from([("n".to_owned(), n), ("mode".to_owned(), json!("x"))]));
        let all: Vec<&Settings> = settings.iter().collect();
        let (factor, levels) = widest(&all).unwrap();
        assert_eq!(factor, "n");
        assert_eq!(axis(factor, &levels).numbers, Some(vec![1.0, 4.0, 64.0]));
        assert_eq!(others(all[0], "n", &all), "");
    }
}
