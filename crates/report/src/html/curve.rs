//! How is the trade drawn? Time until a death is known over packets per hour: a computed line per
//! mechanism, measured arms as points with their range.

use tcptoll_model::keepalive::{Mechanism, Point};

use super::svg::{Anchor, Scale, Screen, Svg, arm_class, for_both};
use crate::keepalive::{Curve, Trade, Traded};
use crate::{clean, number};

/// Columns of an arm's name beside its point.
const NAME: usize = 24;

/// The picture, or `None` where there is nothing to draw.
pub(super) fn picture(trade: &Trade<'_>) -> Option<String> {
    let label = "Time until a death is known over packets per hour and connection, per mechanism";
    let empty = trade.measured.is_empty() && trade.curves.is_empty();
    (!empty).then(|| for_both(label, |screen| draw(trade, screen)))
}

/// Lines differ by their dashes: colours belong to arms.
fn dash(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::None | Mechanism::Tcp => "d0",
        Mechanism::Heartbeat => "d1",
        Mechanism::Lazy => "d2",
        Mechanism::Write => "d3",
    }
}

/// Places of both axes.
struct Axes {
    x: Scale,
    y: Scale,
}

impl Axes {
    fn at(&self, packets: f64, s: f64) -> (f64, f64) {
        (self.x.at(packets), self.y.at(s))
    }

    fn of(&self, points: &[Point]) -> Vec<(f64, f64)> {
        points.iter().map(|p| self.at(p.packets_per_hour, p.detect_s)).collect()
    }
}

fn draw(trade: &Trade<'_>, screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let (left, top) = (if wide { 64.0 } else { 60.0 }, 26.0);
    let right = screen.width() - 14.0;
    let bottom = if wide { 330.0 } else { 260.0 };
    let key = 18.0 * trade.curves.len() as f64;
    let mut svg = Svg::new(bottom + 48.0 + key);
    let points = || trade.curves.iter().flat_map(|curve| &curve.points);
    let packets = points().map(|p| p.packets_per_hour);
    let packets = packets.chain(trade.measured.iter().map(|arm| arm.packets_per_hour));
    let times = points().map(|p| p.detect_s);
    let times = times.chain(trade.measured.iter().flat_map(|arm| arm.known_s));
    let axes = Axes { x: Scale::log(packets, left, right), y: Scale::log(times, bottom, top) };
    for s in axes.y.ticks(8) {
        let at = axes.y.at(s);
        svg.line("grid", (left, at), (right, at));
        svg.text("tick", (left - 6.0, at + 4.0), Anchor::End, &number::tick(s * 1e6));
    }
    for packets in axes.x.ticks(if wide { 12 } else { 5 }) {
        let at = axes.x.at(packets);
        svg.line("grid", (at, top), (at, bottom));
        let anchor = if at > right - 14.0 { Anchor::End } else { Anchor::Middle };
        svg.text("tick", (at, bottom + 16.0), anchor, &number::trimmed_ratio(packets));
    }
    svg.line("axis", (left, bottom), (right, bottom));
    svg.text("label", (4.0, 12.0), Anchor::Start, "a death is known after (log)");
    let name = if wide { "packets per hour and connection (log)" } else { "packets/h (log)" };
    svg.text("label", (right, bottom + 34.0), Anchor::End, name);
    for curve in &trade.curves {
        svg.open("", &format!("{}: computed", curve.mechanism));
        svg.path(&format!("join {}", dash(curve.mechanism)), &axes.of(&curve.points), false);
        svg.close();
        if wide {
            hits(&mut svg, curve, &axes);
        }
    }
    let mut names = Names::default();
    for arm in &trade.measured {
        measured(&mut svg, arm, &axes, &mut names, (wide, right));
    }
    for (at, curve) in trade.curves.iter().enumerate() {
        let y = bottom + 48.0 + 18.0 * at as f64;
        svg.line(&format!("join {}", dash(curve.mechanism)), (6.0, y - 4.0), (40.0, y - 4.0));
        svg.text("name", (48.0, y), Anchor::Start, &format!("{}, computed", curve.mechanism));
    }
    svg
}

/// Something to point at along a curve, with the setting there.
fn hits(svg: &mut Svg, curve: &Curve, axes: &Axes) {
    for p in &curve.points {
        let tooltip = format!(
            "{}, computed: known after {} at most for {} packets per hour ({})",
            curve.mechanism,
            number::time(p.detect_s * 1e6),
            number::three(p.packets_per_hour),
            crate::keepalive::setting(&p.checking)
        );
        svg.dot("hit", axes.at(p.packets_per_hour, p.detect_s), 6.0, &tooltip);
    }
}

/// Where names already stand.
#[derive(Default)]
struct Names {
    taken: Vec<(f64, f64, f64)>,
}

impl Names {
    /// A height near `y` where a name from `from` to `to` touches no other.
    fn free(&mut self, (from, to): (f64, f64), y: f64) -> f64 {
        let touches = |y: f64| {
            self.taken.iter().any(|(a, b, at)| *a < to && from < *b && (at - y).abs() < 15.0)
        };
        let tries = [0.0, 15.0, -15.0, 30.0, -30.0, 45.0, -45.0];
        let y = tries.into_iter().map(|by| y + by).find(|y| !touches(*y)).unwrap_or(y);
        self.taken.push((from, to, y));
        y
    }
}

fn measured(
    svg: &mut Svg,
    arm: &Traded<'_>,
    axes: &Axes,
    names: &mut Names,
    (wide, right): (bool, f64),
) {
    let [least, middle, most] = arm.known_s;
    let (x, y) = axes.at(arm.packets_per_hour, middle);
    let tooltip = format!(
        "{}: known after {}, from {} to {}, for {} packets per hour",
        arm.arm.name,
        number::time(middle * 1e6),
        number::time(least * 1e6),
        number::time(most * 1e6),
        number::three(arm.packets_per_hour)
    );
    svg.open(&arm_class(arm.at), &tooltip);
    svg.line("whisker", (x, axes.y.at(least)), (x, axes.y.at(most)));
    for end in [least, most] {
        svg.line("whisker", (x - 4.0, axes.y.at(end)), (x + 4.0, axes.y.at(end)));
    }
    svg.dot("full", (x, y), 5.0, "");
    // On a phone the legend above names the colours.
    if wide {
        let name = clean::shorten(&arm.arm.name, NAME);
        let room = clean::columns(&name) as f64 * 7.0 + 12.0;
        let (anchor, at, span) = if x + room > right {
            (Anchor::End, x - 10.0, (x - room, x))
        } else {
            (Anchor::Start, x + 10.0, (x, x + room))
        };
        let y = names.free(span, y + 4.0);
        svg.text("name", (at, y), anchor, &name);
    }
    svg.close();
}

/// One sentence that says what to see.
pub(super) fn caption(trade: &Trade<'_>) -> String {
    let lines = match trade.curves.len() {
        0 => String::new(),
        _ => " Lines: the cheapest setting for a time, computed; each is what it takes at most."
            .to_owned(),
    };
    let by_packets =
        |a: &Traded<'_>, b: &Traded<'_>| a.packets_per_hour.total_cmp(&b.packets_per_hour);
    let by_time = |a: &Traded<'_>, b: &Traded<'_>| a.known_s[1].total_cmp(&b.known_s[1]);
    // Of equals the one that is better otherwise.
    let cheapest = |a: &&Traded<'_>, b: &&Traded<'_>| by_packets(a, b).then(by_time(a, b));
    let fastest = |a: &&Traded<'_>, b: &&Traded<'_>| by_time(a, b).then(by_packets(a, b));
    let Some((cheap, fast)) =
        trade.measured.iter().min_by(cheapest).zip(trade.measured.iter().min_by(fastest))
    else {
        return lines.trim_start().to_owned();
    };
    let words = |arm: &Traded<'_>| {
        format!(
            "{} for {} packets per hour and connection",
            number::time(arm.known_s[1] * 1e6),
            number::three(arm.packets_per_hour)
        )
    };
    let said = if cheap.at == fast.at {
        format!("{} is both cheapest and soonest: {}", cheap.arm.name, words(cheap))
    } else {
        format!(
            "Soonest is {} with {}; cheapest {} with {}",
            fast.arm.name,
            words(fast),
            cheap.arm.name,
            words(cheap)
        )
    };
    format!("{said}. Points: measured median, with least and greatest.{lines}")
}
