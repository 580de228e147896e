//! How did the queues of an arm go over time? Accept queue and half-open requests against their
//! limits, and the packets that were dropped, below each other on one axis of time.

use tcptoll_core::record::{Arm, ListenerQueue, Queues};
use tcptoll_core::stats::Series;

use super::recorded;
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::number;
use tcptoll_show::own::{Item, Picture, Section};
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Screen, Svg, arm_class, for_both};

/// Most places of a panel that have a tooltip.
const HITS: usize = 60;

/// A quantity over time.
struct Panel<'a> {
    title: String,
    series: &'a Series,
    /// What it may reach at most, and what that is called.
    limit: Option<(f64, &'static str)>,
}

fn place(listener: &ListenerQueue) -> String {
    let ListenerQueue { address, port, .. } = listener;
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Until when there is something to see, s: nothing changes from there on.
pub(super) fn busy_until(series: &Series) -> f64 {
    let points = &series.points;
    let Some(end) = points.last() else { return 0.0 };
    let same =
        |point: &[f64; 4]| point[1..].iter().zip(&end[1..]).all(|(a, b)| a.total_cmp(b).is_eq());
    let idle = points.iter().rev().take_while(|point| same(point)).count();
    points.get(points.len() - idle).unwrap_or(end)[0]
}

fn panels(queues: &Queues) -> Vec<Panel<'_>> {
    let mut all = Vec::new();
    let several = queues.listeners.len() > 1;
    for listener in &queues.listeners {
        let listener_name =
            if several { format!(" of {}", place(listener)) } else { String::new() };
        if listener.length.points.len() > 1 {
            all.push(Panel {
                title: format!("accept queue{listener_name}"),
                series: &listener.length,
                // listen(n) holds n + 1.
                limit: Some((f64::from(listener.limit) + 1.0, "capacity")),
            });
        }
        if let Some(series) = listener.half_open.as_ref().filter(|series| series.points.len() > 1)
            && listener.half_open_peak.unwrap_or(0) > 0
        {
            all.push(Panel {
                title: format!("half-open requests{listener_name}"),
                series,
                limit: listener.half_open_limit.map(|limit| (f64::from(limit), "limit")),
            });
        }
        if let Some(series) =
            listener.dropped_so_far.as_ref().filter(|series| series.points.len() > 1)
            && listener.drops.unwrap_or(0) > 0
        {
            all.push(Panel {
                title: format!("packets dropped so far{listener_name}"),
                series,
                limit: None,
            });
        }
    }
    all
}

/// A picture per arm that recorded a queue over time.
pub(super) fn sections(summary: &Run) -> Vec<Section> {
    let pictures = |(at, arm, queues): (usize, &Arm, &Queues)| {
        let panels = panels(queues);
        (!panels.is_empty()).then(|| (at, vec![Item::Picture(picture(at, arm, queues, &panels))]))
    };
    let arms: Vec<(usize, Vec<Item>)> =
        recorded(summary).into_iter().filter_map(pictures).collect();
    let items = if arms.is_empty() { Vec::new() } else { vec![Item::Arms(arms)] };
    vec![Section { title: "Queues over time", items }]
}

fn picture(at: usize, arm: &Arm, queues: &Queues, panels: &[Panel<'_>]) -> Picture {
    let label = format!("Queues of {} over time", arm.name);
    Picture {
        both_svg: for_both(&label, |screen| draw(at, panels, screen)),
        caption: caption(arm, queues),
        drawn: Vec::new(),
    }
}

fn draw(at: usize, panels: &[Panel<'_>], screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let (left, height) = if wide { (84.0, 128.0) } else { (58.0, 114.0) };
    let last = panels.iter().map(|one| busy_until(one.series)).fold(0.0, f64::max);
    let mut svg = Svg::new(height * panels.len() as f64 + 28.0);
    for (n, panel) in panels.iter().enumerate() {
        let (top, bottom) = (n as f64 * height + 36.0, (n + 1) as f64 * height);
        let frame = Frame::between((left, screen.width() - 14.0), top, bottom);
        let points: Vec<[f64; 4]> =
            panel.series.points.iter().copied().filter(|p| p[0] <= last).collect();
        let reached = points.iter().map(|p| p[3]).fold(0.0, f64::max);
        // A limit that is far away would flatten the line: it is named, and drawn where it is near.
        let near = panel.limit.filter(|(limit, _)| *limit <= reached * 4.0);
        let most = reached.max(near.map_or(0.0, |(limit, _)| limit)).max(1.0);
        let x = Scale::from_zero(last, left, frame.right);
        let y = Scale::from_zero(most * 1.08, bottom, top);
        let mut plot = Plot::on(svg, frame, x, y);
        plot.y_axis(if wide { 4 } else { 3 }, number::trimmed);
        plot.base();
        if let Some((limit, word)) = near {
            let text = format!("{word} {}", number::count(limit as u64));
            plot.group("echo", &text, |plot| plot.level("computed d1", limit));
        }
        let words = match panel.limit {
            Some((limit, word)) if near.is_some() => {
                format!(" (dashed: {word} {})", number::count(limit as u64))
            }
            Some((limit, word)) => format!(" ({word} {})", number::count(limit as u64)),
            None => String::new(),
        };
        let title = format!("{}{words}", panel.title);
        plot.svg.text("label", (4.0, top - 10.0), Anchor::Start, &title);
        plot.group(&arm_class(at), "", |plot| {
            plot.band("band", points.iter().map(|p| [p[0], p[1], p[3]]));
            plot.line("curve", points.iter().map(|p| (p[0], p[2])));
            let every = points.len().div_ceil(HITS).max(1);
            let step = (frame.right - left) * every as f64 / points.len() as f64;
            for [s, least, mean, most] in points.iter().step_by(every).filter(|_| wide) {
                let [least, mean, most] = [least, mean, most].map(|value| number::figure(*value));
                let text =
                    format!("at {} s: mean {mean}, min {least}, max {most}", number::trimmed(*s));
                plot.svg.rect("hit", (x.at(*s) - step / 2.0, top), (step, bottom - top), &text);
            }
        });
        if n + 1 == panels.len() {
            plot.x_ticks(if wide { 8 } else { 4 }, false, plot::seconds);
        }
        svg = plot.svg;
    }
    svg
}

fn caption(arm: &Arm, queues: &Queues) -> String {
    let mut said = Vec::new();
    for listener in &queues.listeners {
        let share = listener.full_share().map_or_else(String::new, |share| {
            if listener.full_samples == 0 {
                return format!(", never full in {} samples", number::count(listener.samples));
            }
            format!(
                ", full in {} of {} samples",
                number::plain_percent(share),
                number::count(listener.samples)
            )
        });
        let drops = match listener.drops {
            Some(0) => ". No packet was dropped".to_owned(),
            Some(drops) => format!(
                ". {}{} packets were dropped, in {} of {} slices of 100 ms",
                if listener.drops_at_most { "At most " } else { "" },
                number::count(drops),
                number::count(listener.dropping_slices),
                number::count(listener.slices)
            ),
            None => String::new(),
        };
        said.push(format!(
            "Accept queue of {}: peak {} of {}{share}{drops}.",
            place(listener),
            number::count(u64::from(listener.peak)),
            number::count(u64::from(listener.limit) + 1)
        ));
    }
    if arm.rounds.len() > 1 {
        said.push("The picture shows the first round; counts cover all rounds.".to_owned());
    }
    said.join(" ")
}
