//! What does it cost to know of a death sooner? Time until a death is known over packets per hour: a computed
//! line per mechanism, measured arms as points with their range, as they stand on the page. And the words for
//! a way of checking.

use super::PACKETS;
use super::sheet::{detection_s, keepalive, traded, traffic};
use tcptoll_core::experiment::column::value;
use tcptoll_core::record::Arm;
use tcptoll_core::tcp::checking::{Checking, Evidence, Mechanism, Path, Point};
use tcptoll_show::figures::plural;
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Svg, arm_class};
use tcptoll_show::{clean, number};

/// Parts of a line between two points of a curve; more than a curve of thirty points needs.
const STEPS: u32 = 12;

/// An arm of the trade that has a place on logarithmic axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traded<'a> {
    /// Its place among the arms.
    pub(super) at: usize,
    pub(super) arm: &'a Arm,
    pub(super) mechanism: Mechanism,
    /// Packets for an hour and one healthy connection; above 0.
    pub(super) packets_per_hour: f64,
    /// Whether these are computed, because no measured figure can be had.
    pub(super) computed: bool,
    /// Least, middle and greatest time until a death was known, s; above 0.
    pub(super) known_s: [f64; 3],
}

/// The computed curve of a mechanism.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) mechanism: Mechanism,
    /// Place among the arms of the first that checked so.
    pub(super) at: usize,
    /// From the most packets and the shortest time on.
    pub(super) points: Vec<Point>,
}

impl Curve {
    /// Packets per hour and seconds along the curve, so close that what lies outside of a picture
    /// can be left out. Between two points the line is straight in logarithms.
    pub(super) fn line(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points.windows(2).flat_map(|pair| {
            (0..=STEPS).map(move |step| {
                let share = f64::from(step) / f64::from(STEPS);
                let between = |a: f64, b: f64| a.powf(1.0 - share) * b.powf(share);
                (
                    between(pair[0].packets_per_hour, pair[1].packets_per_hour),
                    between(pair[0].detect_s, pair[1].detect_s),
                )
            })
        })
    }
}

/// What is known sooner for more packets: arms, and a curve for each of their mechanisms.
#[derive(Clone, Debug)]
pub(super) struct Trade<'a> {
    /// Arms that have a place in the picture.
    pub(super) drawn: Vec<Traded<'a>>,
    pub(super) left_out: bool,
    /// Of arms without a place, why; of others, whether their packets are computed.
    pub(super) remarks: Vec<String>,
    pub(super) curves: Vec<Curve>,
    /// The path that these are for: that of the settings, where a time was to be kept.
    path: Path,
}

impl Trade<'_> {
    /// What the curves rest on, in words; `None` where there are none.
    pub(super) fn basis(&self) -> Option<String> {
        let words = format!(
            "computed for settings that wrongly close a live connection at most once in a million \
             checks, with {} loss in each direction",
            number::percent(self.path.loss)
        );
        (!self.curves.is_empty()).then_some(words)
    }
}

/// The trade, where two mechanisms at least have deaths that were known.
pub(super) fn trade(summary: &Run) -> Option<Trade<'_>> {
    let known: Vec<(usize, &Arm)> =
        summary.arms.iter().enumerate().filter(|(_, arm)| traded(arm)).collect();
    let mut mechanisms: Vec<(Mechanism, usize)> =
        known.iter().filter_map(|(at, arm)| Some((mechanism(arm)?, *at))).collect();
    mechanisms.sort();
    mechanisms.dedup_by_key(|(mechanism, _)| *mechanism);
    if mechanisms.len() < 2 {
        return None;
    }
    let path = known.iter().find_map(|(_, arm)| keepalive(arm)?.assumed).unwrap_or(Path::ASSUMED);
    let curve = |(mechanism, at)| {
        let points = tcptoll_core::tcp::checking::curve(mechanism, path);
        (points.len() > 1).then_some(Curve { mechanism, at, points })
    };
    let drawn: Vec<Traded<'_>> = known.iter().filter_map(|(at, arm)| place(*at, arm)).collect();
    Some(Trade {
        left_out: drawn.len() < known.len(),
        remarks: remarks(&known),
        curves: mechanisms.into_iter().filter_map(curve).collect(),
        path,
        drawn,
    })
}

/// Where an arm stands; nothing at or below 0 has a place on a logarithmic axis.
fn place(at: usize, arm: &Arm) -> Option<Traded<'_>> {
    let measured = packets_per_hour(arm).filter(|packets| *packets > 0.0);
    let packets_per_hour = measured.or_else(|| computed(arm)).filter(|packets| *packets > 0.0)?;
    let [least, middle, most] = detection_s(arm);
    let known_s = [least.filter(|s| *s > 0.0)?, middle?, most?];
    let mechanism = mechanism(arm)?;
    Some(Traded { at, arm, mechanism, packets_per_hour, computed: measured.is_none(), known_s })
}

fn mechanism(arm: &Arm) -> Option<Mechanism> {
    keepalive(arm).map(|keepalive| keepalive.checking.mechanism)
}

fn computed(arm: &Arm) -> Option<f64> {
    keepalive(arm)?.computed_packets_per_hour()
}

/// What is to be said of arms that are not simply a point of what was measured; what several share
/// is said once.
fn remarks(known: &[(usize, &Arm)]) -> Vec<String> {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for (at, arm) in known {
        let Some(text) = remark(*at, arm) else { continue };
        match said.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(&arm.name),
            None => said.push((text, vec![&arm.name])),
        }
    }
    said.into_iter().map(|(text, names)| format!("{}: {text}.", who(&names))).collect()
}

fn remark(at: usize, arm: &Arm) -> Option<&'static str> {
    let idle = computed(arm) == Some(0.0);
    Some(match place(at, arm) {
        Some(traded) if !traded.computed => return None,
        Some(_) if keepalive(arm).and_then(traffic).is_some() => {
            "packets are computed, because the window was shorter than the time between two checks"
        }
        Some(_) => "packets are computed, because none were counted",
        None if idle && mechanism(arm) == Some(Mechanism::Lazy) => {
            "costs no packets and detects only when room is needed; not drawn"
        }
        None if idle => "costs no packets; not drawn",
        None => "not drawn, because packets or detection time are unknown",
    })
}

/// Columns of an arm's name beside its point.
const NAME: usize = 24;

/// Lines are drawn up to this many times beyond the arms: they go on for decades, in which nothing
/// was measured.
const NEAR: f64 = 4.0;

/// Packets that differ by less are the same for a caption: late timers make up as much.
const ALIKE: f64 = 1.1;

/// Half of a mark at the end of a range; more than the dot, that it shows beside it.
const END: f64 = 6.0;

/// The picture, or `None` where there is nothing to draw.
pub(super) fn picture(trade: &Trade<'_>) -> Option<Svg> {
    let label = "Detection time over packets per hour and connection, per mechanism";
    let empty = trade.drawn.is_empty() && trade.curves.is_empty();
    (!empty).then(|| draw(trade).labelled(label))
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

fn draw(trade: &Trade<'_>) -> Svg {
    let frame = Frame::across(56.0, 24.0, 230.0);
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
    let x = Scale::log(packets, frame.left, frame.right);
    let y = Scale::log(times, frame.bottom, frame.top);
    let below = plot::TICKS_AND_LABEL + plot::KEY * lines.len() as f64;
    let mut plot = Plot::new(frame, below, x, y);
    plot.y_axis(8, |s| number::tick(s * 1e6, "us"));
    plot.x_ticks(8, true, number::plain);
    plot.base();
    plot.y_label("detection time (log)");
    plot.x_label("packets per hour and connection (log)");
    for (curve, line) in &lines {
        plot.group("", &format!("{}: computed", curve.mechanism), |plot| {
            plot.line(&line_class(curve), line.iter().copied());
        });
        hits(&mut plot, curve, &near);
    }
    for arm in &trade.drawn {
        point(&mut plot, arm);
    }
    let mut names = Names::beside(trade, &plot);
    for arm in &trade.drawn {
        let place = plot.at((arm.packets_per_hour, arm.known_s[1]));
        let name = clean::shorten(&arm.arm.name, NAME);
        // Where there is no room the legend says it.
        if let Some((place, anchor)) = names.free(place, clean::columns(&name), &frame) {
            plot.svg.text("name", place, anchor, &name);
        }
    }
    let key: Vec<(String, String)> = lines
        .iter()
        .map(|(curve, _)| (line_class(curve), format!("{}, computed", curve.mechanism)))
        .collect();
    plot.key(key.iter().map(|(class, name)| (class.clone(), name.as_str())));
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
        plot.dot("hit", (p.packets_per_hour, p.detect_s), 4.5, &tooltip);
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
            [x - END, x + END, most - 4.0, least + 4.0]
        };
        Self { taken: trade.drawn.iter().map(extent).collect() }
    }

    /// A place near a point where a name of so many columns touches nothing: right of it, else left,
    /// else higher or lower.
    fn free(
        &mut self,
        (x, y): (f64, f64),
        columns: usize,
        frame: &Frame,
    ) -> Option<((f64, f64), Anchor)> {
        let room = columns as f64 * 7.4;
        let gap = END + 3.0;
        let sides = [(x + gap, x + gap + room), (x - gap - room, x - gap)];
        let inside = |(from, to): &(f64, f64)| *from >= frame.left && *to <= frame.right;
        let places = [0.0, 14.0, -14.0, 28.0, -28.0, 42.0, -42.0].into_iter().flat_map(|by| {
            let (top, bottom) = (y + by - 7.0, y + by + 7.0);
            sides.into_iter().filter(inside).map(move |(from, to)| [from, to, top, bottom])
        });
        let free = |place: &[f64; 4]| {
            let [from, to, top, bottom] = *place;
            !self.taken.iter().any(|[a, b, c, d]| from < *b && *a < to && top < *d && *c < bottom)
        };
        let place = places.filter(|[.., bottom]| *bottom <= frame.bottom).find(free)?;
        self.taken.push(place);
        let [from, to, top, _] = place;
        let middle = top + 7.0;
        Some(if from > x { ((from, middle), Anchor::Start) } else { ((to, middle), Anchor::End) })
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
        plot.dot(class, (arm.packets_per_hour, middle), 3.5, "");
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

/// Packets that checking took for an hour and one connection, as measured.
///
/// None: it was not counted, or the window was shorter than the time between two checks. Then the
/// counts of the window say nothing of an hour.
fn packets_per_hour(arm: &Arm) -> Option<f64> {
    value(arm, PACKETS.name)
}

/// A setting alone, without who checks.
pub(super) fn setting(checking: &Checking) -> String {
    let mut parts: Vec<String> = Vec::new();
    let evidence = match checking.evidence.unwrap_or_default() {
        Evidence::Acknowledged => "an acknowledgment",
        Evidence::Answered => "an answer",
    };
    let judged = checking
        .answer_within_s
        .map(|s| format!("dead if {evidence} takes more than {}", number::tick(s, "s")));
    match checking.mechanism {
        Mechanism::None => parts.push("nothing is sent".to_owned()),
        Mechanism::Tcp => {
            parts.extend(
                checking
                    .idle_s
                    .map(|s| format!("probes after {} of silence", number::tick(s, "s"))),
            );
            let apart = checking.interval_s.map(|s| format!(", {} apart", number::tick(s, "s")));
            // With a user timeout the kernel does not count its probes.
            let many = checking.probes.filter(|_| checking.user_timeout_s.is_none());
            parts.extend(many.map(|n| {
                format!("dead after {}{}", plural(n.into(), "probe"), apart.unwrap_or_default())
            }));
        }
        Mechanism::Heartbeat => {
            let null = checking.null_bytes.map(|n| format!(" of {}", plural(n.into(), "byte")));
            parts.extend(checking.idle_s.map(|s| {
                format!(
                    "a heartbeat{} after {} of silence",
                    null.unwrap_or_default(),
                    number::tick(s, "s")
                )
            }));
            parts.extend(judged);
        }
        Mechanism::Lazy => {
            let most = checking.most.map(|n| format!(" from {} on", plural(n, "connection")));
            let variant = checking.variant.as_ref().map(|words| format!(": {words}"));
            parts.push(format!(
                "tests idle connections{}{}",
                most.unwrap_or_default(),
                variant.unwrap_or_default()
            ));
            parts.extend(judged);
        }
        Mechanism::Write => {
            parts.extend(
                checking.interval_s.map(|s| format!("a message every {}", number::tick(s, "s"))),
            );
            parts.extend(
                checking
                    .retransmission_s
                    .filter(|_| checking.user_timeout_s.is_none())
                    .map(|s| format!("retransmission gives up after {}", number::tick(s, "s"))),
            );
        }
    }
    parts.extend(
        checking.user_timeout_s.map(|s| format!("TCP_USER_TIMEOUT {}", number::tick(s, "s"))),
    );
    parts.join("; ")
}

/// The arms that something is said of; of many the first three.
pub(super) fn who(names: &[&str]) -> String {
    match names {
        [one, another, third, rest @ ..] if !rest.is_empty() => {
            format!("{one}; {another}; {third} and {} more", rest.len())
        }
        few => few.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiments::REPORTS;
    use tcptoll_core::record::{Deaths, Keepalive, Metric, Summary};
    use tcptoll_core::stats::HistogramSummary;
    use tcptoll_core::tcp::wire::Traffic;

    fn arm(mechanism: Mechanism, idle_s: Option<f64>, measured: Option<f64>) -> Arm {
        let known = HistogramSummary {
            count: 2,
            min: Some(1e6),
            p50: Some(2e6),
            max: Some(3e6),
            ..HistogramSummary::default()
        };
        let metric = |value| Metric { value, unit: "1/h".into(), ci95: None, median: None, n: 1 };
        Arm {
            name: mechanism.name().into(),
            metrics: measured
                .map(|value| (super::super::PACKETS.name.to_owned(), metric(value)))
                .into_iter()
                .collect(),
            histograms: BTreeMap::from([(super::super::DETECTION.name.to_owned(), known)]),
            own: Keepalive {
                checking: Checking {
                    mechanism,
                    idle_s,
                    interval_s: Some(1.0),
                    ..Checking::default()
                },
                probes: Some(Traffic { packets: 12, bytes: 624 }),
                window_s: 5.0,
                idle_sockets: 100,
                deaths: Some(Deaths { fault: "cut".into(), known: 2, ..Deaths::default() }),
                ..Keepalive::default()
            }
            .into(),
            ..Arm::default()
        }
    }

    fn of_arms(arms: Vec<Arm>) -> Run {
        REPORTS.run(Summary { arms, ..Summary::default() })
    }

    #[test]
    fn a_window_shorter_than_the_time_between_two_checks_gives_no_packets_of_an_hour() {
        let summary = of_arms(vec![
            arm(Mechanism::Tcp, Some(20.0), None),
            arm(Mechanism::Heartbeat, Some(10.0), Some(700.0)),
        ]);
        assert_eq!(packets_per_hour(&summary.arms[0]), None);
        let trade = trade(&summary).unwrap();
        let drawn: Vec<(f64, bool)> =
            trade.drawn.iter().map(|arm| (arm.packets_per_hour, arm.computed)).collect();
        // Two packets every 20 s.
        assert_eq!(drawn, [(360.0, true), (700.0, false)]);
        assert_eq!(
            trade.remarks,
            [
                "tcp: packets are computed, because the window was shorter than the time between two \
              checks."
            ]
        );
        assert!(!trade.left_out);
    }

    #[test]
    fn what_sends_nothing_has_no_place_and_is_not_forgotten() {
        let summary = of_arms(vec![
            arm(Mechanism::Tcp, Some(1.0), Some(7_200.0)),
            arm(Mechanism::Lazy, None, Some(0.0)),
        ]);
        let trade = trade(&summary).unwrap();
        assert_eq!((trade.drawn.len(), trade.left_out), (1, true));
        assert_eq!(
            trade.remarks,
            ["lazy: costs no packets and detects only when room is needed; not drawn."]
        );
    }

    #[test]
    fn a_curve_is_followed_through_all_of_its_points() {
        let points = tcptoll_core::tcp::checking::curve(Mechanism::Tcp, Path::ASSUMED);
        let curve = Curve { mechanism: Mechanism::Tcp, at: 0, points };
        for point in &curve.points {
            let near = |(packets, s): (f64, f64)| {
                (packets / point.packets_per_hour - 1.0).abs() < 1e-9
                    && (s / point.detect_s - 1.0).abs() < 1e-9
            };
            assert!(curve.line().any(near), "{point:?}");
        }
    }
}
