//! How is a metric drawn over a size? Both axes logarithmic, a line per way of sending with interval
//! bars, limits as thin dashed lines, published figures as hollow squares. Then which way of sending is the fastest
//! at each size: a cell per size and way, its goodput relative to the greatest of all, as a figure and as a colour.

use tcptoll_core::units::{capital, text_size};
use tcptoll_show::html::plot;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::run::Picture;
use tcptoll_show::svg::{Anchor, Svg, WIDTH};
use tcptoll_show::{clean, effect, figures, number};

use super::{Line, Lines, Point, Window, limits};

/// Width of the column of what the kernel chose.
const AUTO: f64 = 44.0;

/// A smaller size whose goodput is this share of the greatest is large enough.
const NEARLY: f64 = 0.95;

/// Sentences about lines; more would not be read.
const SENTENCES: usize = 3;

/// A limit with the part of it that lies in the picture.
struct Drawn<'a> {
    window: &'a Window,
    inside: Vec<(f64, f64)>,
}

/// The picture with its caption.
pub(super) fn picture(lines: &Lines<'_>) -> Picture {
    let label = format!("{} over {} size", capital(lines.shown.words), lines.size.noun);
    Picture {
        svg: draw(lines).labelled(&label),
        caption: caption(lines),
        // The lines are named below, with their colours.
        drawn: Vec::new(),
    }
}

/// A value of the metric in words.
fn words(lines: &Lines<'_>, value: f64) -> String {
    if lines.rate { number::bit_rate(value) } else { number::time(value) }
}

fn draw(lines: &Lines<'_>) -> Svg {
    let bottom = 230.0;
    let frame = Frame::across(80.0, 24.0, bottom);
    let auto = lines.points().any(|point| point.size.is_none());
    let right = if auto { frame.right - AUTO } else { frame.right };
    let ends = |point: &Point<'_>| {
        let [low, high] = point.bar.unwrap_or([point.value; 2]);
        [point.value, low, high, point.published.map_or(point.value, |(value, _)| value)]
    };
    let limits = limits(lines);
    let values = lines.points().flat_map(ends).chain(limits.links.iter().copied());
    let y = Scale::log(values, bottom - 6.0, frame.top + 6.0);
    let x = Scale::bytes(lines.sizes().into_iter(), frame.left + 8.0, right - 8.0);
    // On a short link a window allows more than there is to see.
    let windows: Vec<Drawn<'_>> = limits
        .windows
        .iter()
        .map(|window| Drawn { window, inside: below_top(window, y.most()) })
        .filter(|drawn| drawn.inside.len() > 1)
        .collect();
    let key = lines.all.len() + windows.len();
    let keyed = key > 1;
    let below = plot::TICKS_AND_LABEL + if keyed { plot::KEY * key as f64 } else { 0.0 };
    let mut plot = Plot::new(frame, below, x, y);
    let tick = |value| number::tick(value, if lines.rate { "bit/s" } else { "us" });
    plot.y_axis(8, tick);
    plot.x_ticks(8, true, |size| text_size(size as u64));
    let auto_at = frame.right - AUTO / 2.0 + 6.0;
    if auto {
        plot.svg.line("grid", (auto_at, frame.top), (auto_at, bottom));
        plot.svg.text("", (auto_at, bottom + 12.0), Anchor::Middle, "auto");
    }
    plot.base();
    plot.y_label(&format!("{} (log)", lines.shown.words));
    plot.x_label(&format!("{} (bytes, log)", lines.size.axis));
    for (at, rate) in limits.links.iter().enumerate() {
        link(&mut plot, lines, *rate, at);
    }
    for (at, drawn) in windows.iter().enumerate() {
        plot.group("echo", &window_name(lines, drawn.window), |plot| {
            plot.line(&format!("computed {}", dash(at)), drawn.inside.iter().copied());
        });
    }
    for line in &lines.all {
        one(&mut plot, lines, line, auto_at);
    }
    if keyed {
        let of_line = |line: &Line<'_>| {
            let name = if line.label.is_empty() { "measured" } else { line.label.as_str() };
            (format!("curve {} {}", line.dash, line.colour), clean::shorten(name, 60))
        };
        let of_window = |(at, drawn): (usize, &Drawn<'_>)| {
            (format!("computed echo {}", dash(at)), window_name(lines, drawn.window))
        };
        let names: Vec<(String, String)> = lines
            .all
            .iter()
            .map(of_line)
            .chain(windows.iter().enumerate().map(of_window))
            .collect();
        plot.key(names.iter().map(|(class, name)| (class.clone(), name.as_str())));
    }
    plot.svg
}

/// Dashes of limits: none of them is a solid line.
fn dash(at: usize) -> &'static str {
    ["d2", "d3", "d1"][at % 3]
}

fn window_name(lines: &Lines<'_>, window: &Window) -> String {
    let rtt = number::time(window.rtt_us);
    let each = lines.points().any(|point| {
        point.arm.own.transfer.as_ref().is_some_and(|transfer| transfer.connections > 1)
    });
    let each = if each { " × connections" } else { "" };
    format!("limit: receive window / RTT of {rtt}{each}")
}

/// A limit up to the top of the frame: beyond it there is nothing to see.
fn below_top(window: &Window, top: f64) -> Vec<(f64, f64)> {
    let mut inside: Vec<(f64, f64)> = Vec::new();
    let mut last: Option<[f64; 2]> = None;
    for [size, _, rate] in window.points.iter().copied() {
        if rate <= top {
            inside.push((size, rate));
        } else {
            // Where the line crosses the top: straight in logarithms.
            let from = last.filter(|[_, before]| *before < top);
            inside.extend(from.map(|[before_size, before]| {
                let share = (top / before).ln() / (rate / before).ln();
                (before_size * (size / before_size).powf(share), top)
            }));
            break;
        }
        last = Some([size, rate]);
    }
    inside
}

fn link(plot: &mut Plot, lines: &Lines<'_>, rate: f64, at: usize) {
    let text = format!("link: {} of payload", words(lines, rate));
    let Frame { left, .. } = plot.frame;
    let y = plot.y.at(rate);
    plot.group("echo", &text, |plot| {
        plot.level(&format!("computed {}", dash(at)), rate);
    });
    plot.svg.text("name", (left + 8.0, y - 8.0), Anchor::Start, &text);
}

fn one(plot: &mut Plot, lines: &Lines<'_>, line: &Line<'_>, auto_at: f64) {
    let tooltip = if line.label.is_empty() { lines.shown.words } else { line.label.as_str() };
    plot.group(&line.colour, tooltip, |plot| {
        plot.line(
            &format!("curve {}", line.dash),
            line.sized().map(|(size, point)| (size, point.value)),
        );
    });
    for point in &line.points {
        let x = point.size.map_or(auto_at, |size| plot.x.at(size));
        let y = plot.y.at(point.value);
        plot.group(&line.colour, &told(lines, point), |plot| {
            if let Some(ends) = point.bar {
                plot.whisker(x, ends, 4.0);
            }
            plot.svg.dot("full", (x, y), 3.5, "");
        });
        if let Some((value, source)) = point.published {
            let text = format!("{}: published {} ({source})", point.arm.name, words(lines, value));
            let corner = (x - 3.5, plot.y.at(value) - 3.5);
            plot.group(&line.colour, "", |plot| {
                plot.svg.rect("hollow", corner, (7.0, 7.0), &text);
            });
        }
    }
}

/// What a point is, in words.
fn told(lines: &Lines<'_>, point: &Point<'_>) -> String {
    let bar = point.bar.map_or_else(String::new, |[low, high]| {
        if lines.rate {
            format!(" (95 % interval {} to {})", words(lines, low), words(lines, high))
        } else {
            format!(" (99th percentile {})", words(lines, high))
        }
    });
    format!("{}: {}{bar}", point.arm.name, words(lines, point.value))
}

/// What to see, of up to three lines, and what the marks are.
fn caption(lines: &Lines<'_>) -> String {
    let mut said: Vec<String> = Vec::new();
    if lines.rate {
        said.extend(lines.all.iter().filter_map(|line| enough(lines, line)).take(SENTENCES));
    } else {
        said.extend(lines.all.iter().filter_map(|line| ends(lines, line)).take(SENTENCES));
    }
    said.extend(apart(lines));
    if !lines.rate && lines.points().any(|point| point.bar.is_some()) {
        said.push("Bars: up to the 99th percentile.".to_owned());
    }
    if lines.points().any(|point| point.published.is_some()) {
        said.push("Hollow squares: published.".to_owned());
    }
    if lines.more > 0 {
        said.push(format!("{} not drawn.", figures::plural(lines.more as u64, "more line")));
    }
    said.join(" ")
}

/// The smallest size that gives nearly the greatest goodput of its line.
fn enough(lines: &Lines<'_>, line: &Line<'_>) -> Option<String> {
    let (largest, best) = line.sized().max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let (size, point) = line.sized().find(|(_, point)| point.value >= best.value * NEARLY)?;
    let (least, first) = line.sized().next()?;
    let noun = lines.size.noun;
    let text = if size.total_cmp(&largest).is_eq() {
        format!(
            "a {noun} of {} gives the most, {}",
            number::size(size as u64),
            words(lines, best.value)
        )
    } else {
        let share = match (point.value / best.value * 100.0).floor() {
            percent if percent < 100.0 => format!("{percent} % of the greatest"),
            _ => "as much as any other".to_owned(),
        };
        format!(
            "a {noun} of {} gives {}, {share}",
            number::size(size as u64),
            words(lines, point.value)
        )
    };
    let from = if least < size {
        format!("; {} gives {}", number::size(least as u64), words(lines, first.value))
    } else {
        String::new()
    };
    let auto = line.points.iter().find(|point| point.size.is_none());
    let text = match auto {
        // To the digits that are shown.
        Some(auto)
            if auto.value > best.value && words(lines, auto.value) != words(lines, best.value) =>
        {
            let most = words(lines, auto.value);
            format!("auto gives the most, {most}; of the fixed sizes, {text}{from}")
        }
        Some(auto) => format!("{text}{from}; auto gives {}", words(lines, auto.value)),
        None => format!("{text}{from}"),
    };
    Some(sentence(&format!("{}{text}", line.before())))
}

/// A time at the smallest and the largest size of a line.
fn ends(lines: &Lines<'_>, line: &Line<'_>) -> Option<String> {
    let (least, first) = line.sized().next()?;
    let (most, last) = line.sized().last()?;
    (least < most).then_some(())?;
    Some(sentence(&format!(
        "{}the median {} is {} for {} and {} for {}",
        line.before(),
        lines.shown.words,
        words(lines, first.value),
        number::size(least as u64),
        words(lines, last.value),
        number::size(most as u64)
    )))
}

/// The size at which two lines are furthest apart.
fn apart(lines: &Lines<'_>) -> Option<String> {
    let at = |size: f64| {
        let values = lines.all.iter().filter_map(|line| Some((line, line.of_size(size)?.value)));
        let most = values.clone().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let least = values.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((size, most, least, most.1 / least.1))
    };
    let all = lines.sizes().into_iter().filter_map(at);
    let (size, (high, _), (low, _), ratio) = all.max_by(|a, b| a.3.total_cmp(&b.3))?;
    (high.label != low.label).then(|| {
        format!(
            "The lines are furthest apart at {}: {} has {} the {} of {}.",
            number::size(size as u64),
            high.label,
            number::ratio(ratio),
            lines.shown.words,
            low.label
        )
    })
}

/// A capital at the start unless a label stands there, and a full stop.
fn sentence(text: &str) -> String {
    format!("{}.", capital(text))
}

/// Shades of the colour.
const SHADES: f64 = 10.0;

/// Ways whose goodput differs by less are alike for a caption.
const ALIKE: f64 = 1.05;

/// The picture; `None` with fewer than two ways or sizes, and of times.
pub(super) fn cells(lines: &Lines<'_>) -> Option<Picture> {
    let drawn = lines.rate && lines.all.len() > 1 && lines.sizes().len() > 1;
    let best = lines.points().map(|point| point.value).reduce(f64::max).filter(|_| drawn)?;
    let label =
        format!("Goodput per {} and way of sending, relative to the greatest", lines.size.noun);
    Some(Picture {
        svg: draw_cells(lines, best).labelled(&label),
        caption: caption_of_cells(lines, best),
        drawn: Vec::new(),
    })
}

/// Labels without the words that all begin with.
fn names<'a>(lines: &'a Lines<'_>) -> Vec<&'a str> {
    let labels: Vec<&str> = lines.all.iter().map(|line| line.label.as_str()).collect();
    // `nagle on` and `nagle off` keep their word.
    let long = labels.iter().any(|label| clean::columns(label) > 18);
    let from = if long { effect::common_words(&labels) } else { 0 };
    labels.into_iter().map(|label| &label[from..]).collect()
}

fn draw_cells(lines: &Lines<'_>, best: f64) -> Svg {
    const HEIGHT: f64 = 20.0;
    let sizes = lines.sizes();
    let names = names(lines);
    let (left, top) = (46.0, 18.0);
    let mut svg = Svg::new(top + HEIGHT * sizes.len() as f64);
    let cell = (WIDTH - left) / names.len() as f64;
    let middle = |way: usize| left + (way as f64 + 0.5) * cell;
    for (way, name) in names.iter().enumerate() {
        let name = clean::shorten(name, ((cell / 7.2) as usize).max(3));
        svg.text("", (middle(way), top - 10.0), Anchor::Middle, &name);
    }
    for (at, bytes) in sizes.iter().enumerate() {
        let row = top + at as f64 * HEIGHT;
        let y = row + HEIGHT / 2.0;
        svg.text("", (left - 8.0, y), Anchor::End, &text_size(*bytes as u64));
        for (way, line) in lines.all.iter().enumerate() {
            let Some(point) = line.of_size(*bytes) else { continue };
            let share = point.value / best;
            svg.open("", &format!("{}: {}", point.arm.name, number::bit_rate(point.value)));
            let shade = (share * SHADES).ceil().clamp(0.0, SHADES);
            let corner = (left + way as f64 * cell + 1.0, row + 1.0);
            svg.rect(&format!("heat h{shade}"), corner, (cell - 2.0, HEIGHT - 2.0), "");
            svg.text("cell", (middle(way), y), Anchor::Middle, &percent(share));
            svg.close();
        }
    }
    svg
}

/// A share in at most four columns: `100`, `3.4`, `0.04`.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = match percent {
        p if p >= 9.95 => 0,
        p if p >= 0.095 => 1,
        p if p >= 0.01 => 2,
        _ => return "0".to_owned(),
    };
    format!("{percent:.decimals$}")
}

/// From which size on the ways are alike, and where they are not.
fn caption_of_cells(lines: &Lines<'_>, best: f64) -> String {
    let range = |size: f64| -> Option<f64> {
        let values: Vec<f64> = lines
            .all
            .iter()
            .filter_map(|line: &Line<'_>| Some(line.of_size(size)?.value))
            .collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        (values.len() > 1).then_some(most / least)
    };
    let ranges: Vec<(f64, f64)> =
        lines.sizes().into_iter().filter_map(|size| Some((size, range(size)?))).collect();
    let unlike = ranges.iter().rposition(|(_, ratio)| *ratio > ALIKE);
    let alike = match unlike {
        None => "At every size the ways of sending are within 5 % of each other.".to_owned(),
        Some(last) => ranges.get(last + 1).map_or_else(
            || {
                let ratio = ranges[last].1;
                format!(
                    "At the largest size the ways of sending differ by {}.",
                    number::ratio(ratio)
                )
            },
            |(size, _)| {
                format!(
                    "From {} on, the ways of sending are within 5 % of each other.",
                    number::size(*size as u64)
                )
            },
        ),
    };
    format!(
        "{alike} Cells: percent of the greatest {}, {}.",
        lines.shown.words,
        number::bit_rate(best)
    )
}
