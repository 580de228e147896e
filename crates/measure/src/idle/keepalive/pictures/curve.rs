//! How is the trade drawn? Time until a death is known over packets per hour: a computed line per
//! mechanism, arms as points with their range.

use tcptoll_core::tcp::checking::Mechanism;

use super::{Curve, Trade, Traded, setting};
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::svg::{Anchor, Screen, Svg, TwoScreens, arm_class, for_both};
use tcptoll_show::{clean, number};

/// Columns of an arm's name beside its point.
const NAME: usize = 24;

/// Lines are drawn up to this many times beyond the arms: they go on for decades, in which nothing
/// was measured.
const NEAR: f64 = 4.0;

/// Packets that differ by less are the same for a caption: late timers make up as much.
const ALIKE: f64 = 1.1;

/// Half of a mark at the end of a range; more than the dot, that it shows beside it.
const END: f64 = 8.0;

/// The picture, or `None` where there is nothing to draw.
pub(super) fn picture(trade: &Trade<'_>) -> Option<TwoScreens> {
    let label = "Detection time over packets per hour and connection, per mechanism";
    let empty = trade.drawn.is_empty() && trade.curves.is_empty();
    (!empty).then(|| for_both(label, |screen| draw(trade, screen)))
}

/// Lines have the colour of the first arm of their mechanism, and differ by their dashes too.
fn line_class(curve: &Curve) -> String {
    let dash = match curve.mechanism {
        Mechanism::None | Mechanism::Tcp => "d0",
        Mechanism::Heartbeat => "d1",
        Mechanism::Lazy => "d2",
        Mechanism::Write => "d3",
    };
    format!("computed {dash} {}", arm_class(curve.at))
}

/// Whether packets and seconds are near the arms; without any arm, everything is.
fn near(trade: &Trade<'_>) -> impl Fn(&(f64, f64)) -> bool {
    let about = |values: Vec<f64>| {
        let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(f64::INFINITY);
        least / NEAR..=most * NEAR
    };
    let packets = about(trade.drawn.iter().map(|arm| arm.packets_per_hour).collect());
    let times = about(trade.drawn.iter().flat_map(|arm| arm.known_s).collect());
    move |(p, s)| packets.contains(p) && times.contains(s)
}

fn draw(trade: &Trade<'_>, screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let [left, bottom] = if wide { [64.0, 330.0] } else { [60.0, 260.0] };
    let frame = Frame::across(screen, left, 26.0, bottom);
    let near = near(trade);
    let lines: Vec<(&Curve, Vec<(f64, f64)>)> = trade
        .curves
        .iter()
        .map(|curve| (curve, curve.line().filter(&near).collect::<Vec<_>>()))
        .filter(|(_, line)| line.len() > 1)
        .collect();
    let along = || lines.iter().flat_map(|(_, line)| line);
    let packets = along().map(|(packets, _)| *packets);
    let packets = packets.chain(trade.drawn.iter().map(|arm| arm.packets_per_hour));
    let times = along().map(|(_, s)| *s);
    let times = times.chain(trade.drawn.iter().flat_map(|arm| arm.known_s));
    let x = Scale::log(packets, left, frame.right);
    let y = Scale::log(times, bottom, frame.top);
    let mut plot = Plot::new(frame, 48.0 + plot::KEY * lines.len() as f64, x, y);
    plot.y_axis(8, |s| number::tick(s * 1e6));
    plot.x_ticks(if wide { 12 } else { 5 }, true, number::trimmed_ratio);
    plot.base();
    plot.y_label("detection time (log)");
    plot.x_label(
        34.0,
        if wide { "packets per hour and connection (log)" } else { "packets/h (log)" },
    );
    for (curve, line) in &lines {
        plot.group("", &format!("{}: computed", curve.mechanism), |plot| {
            plot.line(&line_class(curve), line.iter().copied());
        });
        if wide {
            hits(&mut plot, curve, &near);
        }
    }
    for arm in &trade.drawn {
        point(&mut plot, arm);
    }
    // On a phone the legend above names the colours.
    if wide {
        let mut names = Names::beside(trade, &plot);
        for arm in &trade.drawn {
            let place = plot.at((arm.packets_per_hour, arm.known_s[1]));
            let name = clean::shorten(&arm.arm.name, NAME);
            let (place, anchor) = names.free(place, clean::columns(&name), (left, frame.right));
            plot.svg.text("name", place, anchor, &name);
        }
    }
    let key: Vec<(String, String)> = lines
        .iter()
        .map(|(curve, _)| (line_class(curve), format!("{}, computed", curve.mechanism)))
        .collect();
    plot.key(48.0, 34.0, key.iter().map(|(class, name)| (class.clone(), name.as_str())));
    plot.svg
}

/// Something to point at along a curve, with the setting there.
fn hits(plot: &mut Plot, curve: &Curve, near: &impl Fn(&(f64, f64)) -> bool) {
    for p in curve.points.iter().filter(|p| near(&(p.packets_per_hour, p.detect_s))) {
        let tooltip = format!(
            "{}, computed: detected within {}, {} packets per hour ({})",
            curve.mechanism,
            number::time(p.detect_s * 1e6),
            number::three(p.packets_per_hour),
            setting(&p.checking)
        );
        plot.dot("hit", (p.packets_per_hour, p.detect_s), 6.0, &tooltip);
    }
}

/// What already stands in the picture: from, to, top and bottom of each.
struct Names {
    taken: Vec<[f64; 4]>,
}

impl Names {
    /// None yet, beside the points with their ranges.
    fn beside(trade: &Trade<'_>, plot: &Plot) -> Self {
        let extent = |arm: &Traded<'_>| {
            let x = plot.x.at(arm.packets_per_hour);
            let [least, _, most] = arm.known_s.map(|s| plot.y.at(s));
            [x - END, x + END, most - 5.0, least + 5.0]
        };
        Self { taken: trade.drawn.iter().map(extent).collect() }
    }

    /// A place near a point where a name of so many columns touches nothing: right of it, else left,
    /// else higher or lower.
    fn free(
        &mut self,
        (x, y): (f64, f64),
        columns: usize,
        (left, right): (f64, f64),
    ) -> ((f64, f64), Anchor) {
        let room = columns as f64 * 7.0;
        let gap = END + 3.0;
        let sides = [(x + gap, x + gap + room), (x - gap - room, x - gap)];
        let inside = |(from, to): &(f64, f64)| *from >= left && *to <= right;
        let extent = |(from, to): (f64, f64), by: f64| [from, to, y + by - 8.0, y + by + 8.0];
        let places: Vec<[f64; 4]> = [0.0, 15.0, -15.0, 30.0, -30.0, 45.0, -45.0]
            .into_iter()
            .flat_map(|by| sides.into_iter().filter(inside).map(move |side| extent(side, by)))
            .collect();
        let free = |place: &[f64; 4]| {
            let [from, to, top, bottom] = *place;
            !self.taken.iter().any(|[a, b, c, d]| from < *b && *a < to && top < *d && *c < bottom)
        };
        let place = places.iter().copied().find(free).or(places.first().copied());
        let place = place.unwrap_or(extent(sides[0], 0.0));
        self.taken.push(place);
        let [from, to, top, _] = place;
        let base = top + 12.0;
        if from > x { ((from, base), Anchor::Start) } else { ((to, base), Anchor::End) }
    }
}

fn point(plot: &mut Plot, arm: &Traded<'_>) {
    let [least, middle, most] = arm.known_s;
    let tooltip = format!(
        "{}: detected after {} (from {} to {}), {} packets per hour{}",
        arm.arm.name,
        number::time(middle * 1e6),
        number::time(least * 1e6),
        number::time(most * 1e6),
        number::three(arm.packets_per_hour),
        if arm.computed { ", computed" } else { "" }
    );
    plot.group(&arm_class(arm.at), &tooltip, |plot| {
        plot.whisker(plot.x.at(arm.packets_per_hour), [least, most], END);
        let class = if arm.computed { "hollow" } else { "full" };
        plot.dot(class, (arm.packets_per_hour, middle), 4.5, "");
    });
}

/// One sentence that says what to see, and what cannot be seen.
pub(super) fn caption(trade: &Trade<'_>) -> String {
    let mut said: Vec<String> = Vec::new();
    said.extend(compared(trade));
    said.extend(trade.remarks.iter().cloned());
    if !trade.drawn.is_empty() {
        let hollow = if trade.drawn.iter().any(|arm| arm.computed) {
            "; hollow: packets computed"
        } else {
            ""
        };
        said.push(format!("Points: measured median, minimum and maximum{hollow}."));
    }
    if !trade.curves.is_empty() {
        said.push(
            "Lines, computed: the cheapest setting for each detection time, an upper bound."
                .to_owned(),
        );
    }
    said.join(" ")
}

/// Who was soonest and who took least; of a single point there is nothing to say.
fn compared(trade: &Trade<'_>) -> Option<String> {
    let by_packets =
        |a: &&Traded<'_>, b: &&Traded<'_>| a.packets_per_hour.total_cmp(&b.packets_per_hour);
    let by_time = |a: &&Traded<'_>, b: &&Traded<'_>| a.known_s[1].total_cmp(&b.known_s[1]);
    // Of equals the one that is better otherwise.
    let fewest = trade.drawn.iter().min_by(|a, b| by_packets(a, b).then(by_time(a, b)))?;
    let soonest = trade.drawn.iter().min_by(|a, b| by_time(a, b).then(by_packets(a, b)))?;
    let words = |arm: &Traded<'_>| {
        format!(
            "{} after {}, {} packets per hour and connection",
            arm.arm.name,
            number::time(arm.known_s[1] * 1e6),
            number::three(arm.packets_per_hour)
        )
    };
    if trade.drawn.len() < 2 {
        return None;
    }
    let fastest =
        if trade.left_out { "Fastest detection of those drawn" } else { "Fastest detection" };
    let few = if soonest.packets_per_hour <= fewest.packets_per_hour * ALIKE {
        "No arm sends clearly fewer packets".to_owned()
    } else {
        format!("Fewest packets: {}", words(fewest))
    };
    Some(format!("{fastest}: {}. {few}.", words(soonest)))
}
