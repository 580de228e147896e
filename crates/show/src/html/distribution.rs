//! The picture of the answer: how latency is distributed in each arm.
//!
//! Cumulative, with an axis that stretches the slow tail: from one gridline to the next, nine of
//! ten operations that were slower are left behind. A plain axis would hide p99 and beyond.

use tcptoll_core::record::Arm;
use tcptoll_core::stats::HistogramSummary;
use tcptoll_core::stats::histogram::Histogram;

use super::plot::{self, Frame, Plot, Scale};
use crate::figures::{self, Primary};
use crate::number;
use crate::run::Answer;
use crate::run::{Own, Run};
use crate::svg::{Anchor, Svg, arm_class};

/// Points of a curve at most; with nine arms twice this is still a small file.
const POINTS: usize = 160;

/// A curve: µs and the share of values up to there.
struct Curve<'a> {
    class: String,
    /// Share of the attempts that succeeded: where the curve ends.
    answered: f64,
    name: &'a str,
    histogram: &'a HistogramSummary,
    points: Vec<(f64, f64)>,
}

/// The points of a distribution: the whole histogram, and its quantiles so that marks lie on the line.
fn points(histogram: &HistogramSummary) -> Vec<(f64, f64)> {
    let known = [
        (histogram.min, 1.0 / histogram.count.max(1) as f64),
        (histogram.p50, 0.5),
        (histogram.p90, 0.9),
        (histogram.p99, 0.99),
        (histogram.p99_9, 0.999),
        (histogram.max, 1.0),
    ];
    let mut points: Vec<(f64, f64)> =
        known.into_iter().filter_map(|(us, share)| Some((us?, share))).collect();
    if let Ok(Some(whole)) = Histogram::from_summary(histogram) {
        points.extend(whole.points_us(POINTS));
    }
    points.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.total_cmp(&b.0)));
    // A bucket's edge may lie a little beyond the exact value; time never goes back along the line.
    let mut longest = 0.0_f64;
    for point in &mut points {
        longest = longest.max(point.0);
        point.0 = longest;
    }
    points
}

/// Share of what was tried that has a value.
fn answered(arm: &Arm, own: &Own, primary: &Primary) -> f64 {
    let counts = special(own, primary).and_then(|answer| (answer.counts)(arm));
    let part = counts.or_else(|| (own.part)(arm, &primary.key));
    let (ok, tried) = part.unwrap_or((arm.ok, arm.attempts));
    if tried == 0 { 1.0 } else { (ok as f64 / tried as f64).min(1.0) }
}

/// What the distribution is of, where it is not of operations.
fn special(own: &Own, primary: &Primary) -> Option<&'static Answer> {
    own.answer.filter(|answer| answer.histogram == primary.key)
}

fn curves<'a>(summary: &'a Run, primary: &Primary) -> Vec<Curve<'a>> {
    let curve = |(at, arm): (usize, &'a Arm)| {
        let histogram = arm.histograms.get(&primary.key)?;
        let points = points(histogram);
        let answered = answered(arm, summary.own, primary);
        let class = arm_class(at);
        let name = &arm.name;
        (!points.is_empty()).then_some(Curve { class, answered, name, histogram, points })
    };
    let mut curves: Vec<Curve<'a>> = summary.arms.iter().enumerate().filter_map(curve).collect();
    // With one arm there is room for what the network alone takes.
    if let [arm] = summary.arms.as_slice()
        && special(summary.own, primary).is_none()
        && let Some(histogram) = arm.histograms.get("rtt_us").filter(|h| h.count > 0)
    {
        let points = points(histogram);
        let class = "echo".to_owned();
        curves.push(Curve { class, answered: 1.0, name: "ICMP echo", histogram, points });
    }
    curves
}

/// Whether an arm has a curve.
pub(super) fn is_drawn(arm: &Arm, primary: &Primary) -> bool {
    let histogram = arm.histograms.get(&primary.key);
    histogram.is_some_and(|known| known.max.is_some() || !points(known).is_empty())
}

/// The picture, or `None` if no arm has the distribution.
pub(super) fn picture(summary: &Run, primary: &Primary) -> Option<Svg> {
    let answer = special(summary.own, primary);
    let curves = curves(summary, primary);
    if curves.is_empty() {
        return None;
    }
    let label = format!("Cumulative distribution of {} per arm", primary.name);
    Some(draw(&curves, primary, answer).labelled(&label))
}

fn draw(curves: &[Curve<'_>], primary: &Primary, answer: Option<&Answer>) -> Svg {
    let frame = Frame::across(62.0, 24.0, 215.0);
    let values = curves.iter().flat_map(|c| c.points.iter().map(|p| p.0));
    let x = Scale::fit(values, frame.left, frame.right);
    let most = curves.iter().map(|c| c.histogram.count).max().unwrap_or(1).max(10) as f64;
    let y = Scale::from_zero(most.log10() + 0.15, frame.bottom, frame.top);
    let mut plot = Plot::new(frame, plot::TICKS_AND_LABEL, x, y);
    let shares = SHARES.into_iter().filter(|(share, _)| 1.0 - share >= 0.999 / most);
    plot.y_ticks(shares.map(|(share, name)| (-(1.0 - share).log10(), name.to_owned())));
    plot.time_axis(6);
    plot.y_label(answer.map_or("share of attempts that took at most …", |answer| answer.share));
    plot.x_label(&format!("{}{}", primary.name, plot::log_note(&x)));
    for curve in curves.iter().rev() {
        draw_curve(&mut plot, curve);
        if curve.answered < 1.0 {
            unanswered(&mut plot, curve, answer.map_or("failed", |answer| answer.never));
        }
    }
    plot.svg
}

/// Shares of the vertical axis, which stretches towards 100 %.
const SHARES: [(f64, &str); 6] = [
    (0.0, "0 %"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
];

/// The height of a share on that axis: the slowest of n values is drawn where 1/n are left, not at
/// infinity.
fn height(share: f64, count: u64) -> f64 {
    -(1.0 - share).max(1.0 / count.max(1) as f64).log10()
}

/// Where the curve stays for good: attempts that failed never reach more.
fn unanswered(plot: &mut Plot, curve: &Curve<'_>, what: &str) {
    let last = curve.points.last().map_or(plot.x.from, |(us, _)| plot.x.at(*us));
    let y = plot.y.at(height(curve.answered, u64::MAX));
    let text = format!("{} {what}", number::percent(1.0 - curve.answered));
    let end = plot.frame.right;
    plot.group(&curve.class, &format!("{}: {text}", curve.name), |plot| {
        plot.svg.line("never", (last, y), (end, y));
        // Small shares of failures would only clutter the top.
        if curve.answered < 0.9 {
            let text = format!("ends here: {text}");
            plot.svg.text("name", (end, y - 9.0), Anchor::End, &text);
        }
    });
}

fn draw_curve(plot: &mut Plot, curve: &Curve<'_>) {
    let h = curve.histogram;
    let marks = [
        ("p50", h.p50, 0.5),
        ("p90", h.p90, 0.9),
        ("p99", h.p99, 0.99),
        ("p99.9", h.p99_9, 0.999),
        ("max", h.max, 1.0),
    ];
    let quantiles: Vec<String> = marks
        .iter()
        .filter_map(|(q, us, _)| Some((q, (*us)?)))
        .map(|(q, us)| format!("{q} {}{}", h.sign(us), number::exact_time(us)))
        .collect();
    let name = curve.name;
    let place = |us: f64, share: f64| (us, height(share * curve.answered, h.count));
    plot.group(&curve.class, &format!("{name}: {}", quantiles.join(", ")), |plot| {
        let start = curve.points.first().map(|(us, _)| place(*us, 0.0));
        let points = curve.points.iter().map(|(us, share)| place(*us, *share));
        plot.line("curve", start.into_iter().chain(points));
        for (quantile, us, share) in marks {
            if let Some(us) = us {
                let time = number::exact_time(us);
                let tooltip = format!("{name}: {quantile} {}{time}", h.sign(us));
                plot.dot("mark", place(us, share), 3.0, &tooltip);
            }
        }
    });
}

/// One sentence that says what to see.
pub(super) fn caption(summary: &Run, primary: &Primary) -> String {
    let median = |arm: &Arm| arm.histograms.get(&primary.key).and_then(figures::middle);
    let mut arms: Vec<(&str, f64)> =
        summary.arms.iter().filter_map(|arm| Some((arm.name.as_str(), median(arm)?))).collect();
    arms.sort_by(|a, b| a.1.total_cmp(&b.1));
    let medians = summary.arms.iter().filter_map(|arm| arm.histograms.get(&primary.key));
    let at = if medians.into_iter().all(|h| h.p50.is_some()) {
        "At the median,"
    } else {
        "At the median (the mean where values are few),"
    };
    match (arms.as_slice(), summary.arms.as_slice()) {
        ([], _) => "There are too few values to draw.".to_owned(),
        ([_], [arm]) => one(arm, primary, special(summary.own, primary)),
        ([(name, us)], _) => {
            format!("Only {name} has values. {at} {} is {}.", primary.name, number::time(*us))
        }
        // Which arm is lower is for the comparisons to say, with their intervals.
        ([(_, least), .., (_, most)], _) if !summary.comparisons.is_empty() => {
            format!("{at} the arms range from {} to {}.", number::time(*least), number::time(*most))
        }
        ([(fast, least), .., (slow, most)], _) => format!(
            "{at} {fast} is fastest with {}, {slow} slowest with {} ({}).",
            number::time(*least),
            number::time(*most),
            number::ratio(most / least)
        ),
    }
}

fn one(arm: &Arm, primary: &Primary, answer: Option<&Answer>) -> String {
    let Some(h) = arm.histograms.get(&primary.key) else { return String::new() };
    let mut parts = Vec::new();
    if let Some(answer) = answer {
        return (answer.caption)(h);
    }
    let (who, them) = if arm.ok < arm.attempts {
        parts.push(format!(
            "{} of {} attempts succeeded",
            number::count(arm.ok),
            number::count(arm.attempts)
        ));
        ("half of these", "99 % of these")
    } else {
        ("half of the operations", "99 % of them")
    };
    let quantiles = [(h.p50, who), (h.p99, them)];
    for (us, who) in quantiles {
        parts.extend(us.map(|us| format!("{who} took at most {}", number::time(us))));
    }
    parts.extend(
        h.max.map(|us| {
            format!("the slowest of {} took {}", number::count(h.count), number::time(us))
        }),
    );
    let sentence = parts.join(", ");
    let mut letters = sentence.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let echo = arm.histograms.get("rtt_us").filter(|h| h.count > 0).and_then(figures::middle);
    let echo = echo.map_or(String::new(), |us| {
        format!(" Grey: ICMP echo, the network alone ({}).", number::time(us))
    });
    format!("{first}{}.{echo}", letters.as_str())
}
