//! Where did the time of one operation go? Its steps between client and server on an axis of time, and what
//! arithmetic expects of a handshake.

use tcptoll_core::number::ABSENT;
use tcptoll_core::record::{Arm, Step, Timeline};
use tcptoll_core::sheet::{Part, Table, Tone};
use tcptoll_show::html::of_arms;
use tcptoll_show::html::plot::{Frame, Plot, Scale, TICKS};
use tcptoll_show::run::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::run::Section;
use tcptoll_show::svg::{Anchor, Svg};
use tcptoll_show::{figures, number};

/// Least distance of two step numbers in one lane.
const APART: f64 = 17.0;

/// The picture; `None` without steps.
fn picture(timeline: &Timeline, arm: &str) -> Option<Svg> {
    let label = format!("Steps of the median operation of {arm} between client, wire and server");
    // Of two parts without an order between client and server there is nothing to draw.
    let is_whole = timeline.source != "tcp-info" && !timeline.steps.is_empty();
    is_whole.then(|| draw(timeline).labelled(&label))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    Client,
    Wire,
    Server,
}

fn lane(step: &Step) -> Lane {
    match step.at.as_str() {
        "client" => Lane::Client,
        "server" => Lane::Server,
        _ => Lane::Wire,
    }
}

const CLIENT: f64 = 32.0;
const SERVER: f64 = 108.0;
const BOTTOM: f64 = 140.0;

fn draw(timeline: &Timeline) -> Svg {
    let left = 54.0;
    // Numbers of short steps go beyond the last one.
    let frame = Frame::across(left, CLIENT - 20.0, BOTTOM).with_room(32.0);
    let end = timeline_end(timeline);
    let x = Scale::from_zero(end * 1.02, left, frame.right);
    let mut plot = Plot::of_rows(frame, TICKS, x);
    plot.time_axis(6);
    let mut svg = plot.svg;
    for (y, name) in
        [(CLIENT, "client"), (f64::midpoint(CLIENT, SERVER), "wire"), (SERVER, "server")]
    {
        svg.text("", (left - 8.0, y), Anchor::End, name);
    }
    svg.line("lane", (left, CLIENT), (x.to, CLIENT));
    svg.line("lane", (left, SERVER), (x.to, SERVER));
    let mut from_client = true;
    let mut taken = [f64::MIN; 3];
    for (at, step) in timeline.steps.iter().enumerate() {
        let (begin, finish) = (x.at(step.begins_us), x.at(step.begins_us + step.p50_us));
        let lane = lane(step);
        let middle = f64::midpoint(begin, finish);
        let tooltip = format!("{}. {} ({}): {}", at + 1, step.name, step.at, quantiles(step));
        svg.open(
            match lane {
                Lane::Client => "client",
                Lane::Wire => "wire",
                Lane::Server => "server",
            },
            &tooltip,
        );
        let number_y = match lane {
            Lane::Wire => {
                let (a, b) = if from_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
                svg.line("flight", (begin, a), (finish, b));
                from_client = !from_client;
                f64::midpoint(CLIENT, SERVER)
            }
            Lane::Client | Lane::Server => {
                from_client = lane == Lane::Client;
                let y = if from_client { CLIENT } else { SERVER };
                svg.rect("work", (begin, y - 3.5), ((finish - begin).max(2.0), 7.0), "");
                if from_client { CLIENT - 14.0 } else { SERVER + 14.0 }
            }
        };
        // Steps too short to see would have their numbers on top of each other.
        let place = middle.max(taken[lane as usize] + APART);
        taken[lane as usize] = place;
        svg.dot("bead", (place, number_y), 8.0, "");
        svg.text("number", (place, number_y), Anchor::Middle, &(at + 1).to_string());
        svg.close();
    }
    svg
}

/// Median and p99 of a step.
fn quantiles(step: &Step) -> String {
    let p99 = step.p99_us.map(|us| format!(", p99 {}", number::time(us))).unwrap_or_default();
    format!("median {}{p99}", number::time(step.p50_us))
}

/// One sentence that says what to see.
fn caption(timeline: &Timeline) -> String {
    let mut lanes = time_by_lane(timeline);
    let total: f64 = lanes.iter().map(|(_, us)| us).sum();
    lanes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut parts = lanes.iter().map(|(lane, us)| format!("{lane} {}", number::time(*us)));
    let Some(most) = parts.next() else { return String::new() };
    let share = number::percent(lanes[0].1 / total.max(f64::MIN_POSITIVE));
    let rest: Vec<String> = parts.collect();
    let rest = if rest.is_empty() { String::new() } else { format!(", {}", rest.join(", ")) };
    format!("The median steps add up to {}: {most} ({share}){rest}.", number::time(total))
}

/// The timeline of an arm: its picture, steps and views.
fn items(summary: &Run, arm: &Arm) -> Option<Vec<Part>> {
    let timeline = arm.timeline.as_ref()?;
    if timeline.steps.is_empty() {
        return None;
    }
    let picture = picture(timeline, &arm.name)
        .map(|svg| Picture { svg, caption: caption(timeline), drawn: Vec::new() }.part(summary));
    let rtt = reference_rtt(arm);
    let steps = timeline.steps.iter().enumerate().map(|(at, step)| {
        vec![
            (at + 1).to_string(),
            step.name.clone(),
            step.at.clone(),
            number::time(step.begins_us),
            number::time(step.p50_us),
            step.p99_us.map_or_else(|| ABSENT.to_owned(), number::time),
        ]
    });
    let views = timeline.views.iter().map(|view| {
        let expected = rtt.map(|rtt| rtt * view.expected_rtts);
        let off = expected.filter(|us| *us > 0.0).map(|us| number::percent_off(view.p50_us / us));
        vec![
            view.name.clone(),
            view.span.clone(),
            number::exact_time(view.p50_us),
            format!("{} RTT", number::plain(view.expected_rtts)),
            expected.map_or_else(|| ABSENT.to_owned(), number::exact_time),
            off.unwrap_or_else(|| ABSENT.to_owned()),
        ]
    });
    let floor = floor(arm).map_or_else(String::new, |floor| format!(" {floor}."));
    let in_words = expected(arm).map(|e| {
        format!(
            "Expected at the client: {} = {}, with the RTT from {}. Measured: {} ({}).{floor}",
            e.formula(),
            number::exact_time(e.theory_us),
            e.rtt_from,
            number::exact_time(e.measured_us),
            e.off()
        )
    });
    let matched = figures::plural(timeline.matched, "operation");
    let witness = match timeline.source.as_str() {
        "witness" => " They are from a shorter trial with a packet tap.",
        "tcp-info" => " They are from TCP_INFO of the client's kernel.",
        _ => "",
    };
    let source = match timeline.unmatched {
        0 => format!("Medians of {matched}, all of them matched.{witness}"),
        n => format!(
            "Medians of {matched}. {} more are excluded, because a timestamp was missing or a packet was retransmitted.{witness}",
            number::count(n)
        ),
    };
    let steps =
        Part::Table(Table::texts(&["", "step", "at", "begins", "median", "p99"], &[1, 2], steps));
    let mut items: Vec<Part> = picture.into_iter().collect();
    items.push(steps);
    items.extend(in_words.map(|text| Part::prose(0, text, Tone::Plain)));
    if !timeline.views.is_empty() {
        let heads =
            vec!["seen by", "from … to", "median", "expected", "expected time", "deviation"];
        items.push(Part::Table(Table::texts(&heads, &[1], views)));
    }
    items.push(Part::prose(0, source, Tone::Dim));
    Some(items)
}

/// A timeline for each arm that has one.
pub(super) fn sections(summary: &Run) -> Vec<Section> {
    let arms = summary.arms.iter().enumerate();
    let timelines: Vec<(usize, Vec<Part>)> =
        arms.filter_map(|(at, arm)| Some((at, items(summary, arm)?))).collect();
    if timelines.is_empty() {
        return Vec::new();
    }
    vec![Section::new("Where the time went", of_arms(summary, timelines))]
}

/// Expected against measured, of one arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// What arithmetic expects of the client, µs.
    pub(crate) theory_us: f64,
    /// The measured median, µs.
    pub(crate) measured_us: f64,
    /// Where the round trip of the arithmetic is from.
    pub(crate) rtt_from: &'a str,
    /// Whether CPU time is part of it.
    with_cpu: bool,
}

impl Expected<'_> {
    /// The formula: `1 RTT + CPU`.
    pub(crate) fn formula(&self) -> &'static str {
        if self.with_cpu { "1 RTT + CPU" } else { "1 RTT" }
    }

    /// Whether the round trip can be a yardstick: a handshake takes one at least.
    pub(crate) fn is_possible(&self) -> bool {
        self.with_cpu || self.measured_us >= self.theory_us
    }

    /// Distance of the measured from the expected: `+0.03 %`.
    pub(crate) fn off(&self) -> String {
        number::percent_off(self.measured_us / self.theory_us)
    }
}

/// The least round trip that physics allows over the distance the user gave.
pub(crate) fn floor(arm: &Arm) -> Option<String> {
    let expectation = arm.expectation.as_ref()?;
    Some(format!(
        "Over {} km, light needs {} in fibre and {} in vacuum for a round trip",
        number::plain(expectation.distance_km?),
        number::exact_time(expectation.floor_fibre_us?),
        number::exact_time(expectation.floor_vacuum_us?)
    ))
}

/// Expected against measured connect latency; `None` where either is missing.
pub(crate) fn expected(arm: &Arm) -> Option<Expected<'_>> {
    let expectation = arm.expectation.as_ref()?;
    let measured_us = arm.histograms.get("connect_us")?.p50?;
    (expectation.client_us > 0.0).then_some(Expected {
        theory_us: expectation.client_us,
        measured_us,
        rtt_from: &expectation.rtt_from,
        with_cpu: expectation.cpu_us.is_some(),
    })
}

/// The round trip that views of an arm are held against, µs.
pub(super) fn reference_rtt(arm: &Arm) -> Option<f64> {
    arm.expectation.as_ref().map(|e| e.rtt_us).filter(|rtt| *rtt > 0.0)
}

/// Median time at the client, on the wire and at the server, µs: sums of the steps.
fn time_by_lane(timeline: &Timeline) -> Vec<(&str, f64)> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for step in &timeline.steps {
        match sums.iter_mut().find(|(lane, _)| *lane == step.at) {
            Some((_, sum)) => *sum += step.p50_us,
            None => sums.push((&step.at, step.p50_us)),
        }
    }
    sums
}

/// When the last step of a timeline ends, µs.
pub(super) fn timeline_end(timeline: &Timeline) -> f64 {
    timeline.steps.iter().map(|step| step.begins_us + step.p50_us).fold(0.0, f64::max)
}

/// Whether two timelines tell the same story: the same steps within a fifth or 5 µs.
pub(super) fn same_story(a: &Timeline, b: &Timeline) -> bool {
    a.steps.len() == b.steps.len()
        && a.steps.iter().zip(&b.steps).all(|(x, y)| {
            let near = (x.p50_us - y.p50_us).abs() <= 5.0_f64.max(0.2 * x.p50_us.max(y.p50_us));
            x.name == y.name && near
        })
}
