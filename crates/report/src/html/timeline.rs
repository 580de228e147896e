//! Where did the time of one operation go? Its steps between client and server, on an axis of time.

use tcptoll_model::record::{Step, Timeline};

use super::svg::{Anchor, Scale, Screen, Svg, for_both};
use crate::{figures, number};

/// Least distance of two step numbers in one lane.
const APART: f64 = 19.0;

/// The picture; `None` without steps.
pub(super) fn picture(timeline: &Timeline, arm: &str) -> Option<String> {
    let label = format!("Steps of the median operation of {arm} between client, wire and server");
    (!timeline.steps.is_empty()).then(|| for_both(&label, |screen| draw(timeline, screen)))
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

/// Heights of the lanes.
const CLIENT: f64 = 46.0;
const SERVER: f64 = 150.0;
const BOTTOM: f64 = 192.0;

fn draw(timeline: &Timeline, screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let left = if wide { 64.0 } else { 48.0 };
    let mut svg = Svg::new(BOTTOM + 24.0);
    let end = figures::timeline_end(timeline);
    let x = Scale::from_zero(end * 1.02, left, screen.width() - 36.0);
    svg.time_axis(&x, CLIENT - 28.0, BOTTOM, if wide { 8 } else { 3 });
    for (y, name) in
        [(CLIENT, "client"), (f64::midpoint(CLIENT, SERVER), "wire"), (SERVER, "server")]
    {
        svg.text("label", (left - 8.0, y + 4.0), Anchor::End, name);
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
                svg.rect("work", (begin, y - 5.0), ((finish - begin).max(2.5), 10.0), "");
                if from_client { CLIENT - 16.0 } else { SERVER + 18.0 }
            }
        };
        // Steps too short to see would have their numbers on top of each other.
        let place = middle.max(taken[lane as usize] + APART);
        taken[lane as usize] = place;
        svg.dot("bead", (place, number_y), 8.5, "");
        svg.text("number", (place, number_y + 4.0), Anchor::Middle, &(at + 1).to_string());
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
pub(super) fn caption(timeline: &Timeline) -> String {
    let mut lanes = figures::time_by_lane(timeline);
    let total: f64 = lanes.iter().map(|(_, us)| us).sum();
    lanes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut parts = lanes.iter().map(|(lane, us)| format!("{lane} {}", number::time(*us)));
    let Some(most) = parts.next() else { return String::new() };
    let share = number::percent(lanes[0].1 / total.max(f64::MIN_POSITIVE));
    let rest: Vec<String> = parts.collect();
    let rest = if rest.is_empty() { String::new() } else { format!(", {}", rest.join(", ")) };
    format!("The median steps add up to {}: {most} ({share}){rest}.", number::time(total))
}
