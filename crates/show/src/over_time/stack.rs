//! How do several quantities stand below each other on one axis of time? Panels of lines, with the stall
//! as a band through all of them.

use crate::html::plot::{self, Frame, KEY, Plot, Scale};
use crate::svg::{Anchor, Screen, Svg};
use crate::{clean, number};

/// Places of a panel that have a tooltip, at most.
const HITS: usize = 40;

/// A step of this many usual ones is a gap.
const GAP: f64 = 3.0;

/// All panels.
pub struct Stack {
    pub panels: Vec<Panel>,
    /// From when to when the backend stood still, s.
    pub stall: Option<[f64; 2]>,
    /// The end of the axis of time, s.
    pub last_s: f64,
}

/// A quantity over time.
pub struct Panel {
    pub title: String,
    /// Whether its axis is logarithmic; else it begins at 0.
    pub log: bool,
    /// A tick in words.
    pub tick: fn(f64) -> String,
    /// A value in words.
    pub words: fn(f64) -> String,
    pub levels: Vec<Level>,
    pub lines: Vec<Line>,
}

/// A value to hold the lines against.
pub struct Level {
    pub value: f64,
    pub text: String,
    /// The class of its dashes.
    pub dash: &'static str,
}

/// A line of a panel.
pub struct Line {
    /// The class of its colour.
    pub class: String,
    /// The class of its dashes, or nothing.
    pub dash: &'static str,
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Its name below the picture, where colours are not named above it.
    pub key: Option<String>,
}

impl Stack {
    pub fn draw(&self, screen: Screen) -> Svg {
        let wide = screen == Screen::Wide;
        let (left, height) = if wide { (64.0, 138.0) } else { (58.0, 124.0) };
        let keys: Vec<(String, &str)> = self.panels.iter().flat_map(Panel::keys).collect();
        let count = self.panels.len();
        let below = 28.0 + 8.0 + KEY * keys.len() as f64;
        let mut svg = Svg::new(height * count as f64 + below);
        for (n, panel) in self.panels.iter().enumerate() {
            let top = n as f64 * height + 34.0;
            let bottom = (n + 1) as f64 * height;
            let frame = Frame::between((left, screen.width() - 14.0), top, bottom);
            let x = Scale::from_zero(self.last_s, left, frame.right);
            let mut plot = Plot::on(svg, frame, x, panel.scale(bottom, top));
            self.shade(&mut plot, n == 0);
            panel.draw(&mut plot, screen);
            if n + 1 == count {
                plot.x_ticks(if wide { 8 } else { 4 }, false, plot::seconds);
                plot.key(40.0, 34.0, keys.iter().cloned());
            }
            svg = plot.svg;
        }
        svg
    }

    /// The stall, with its name in the first panel.
    fn shade(&self, plot: &mut Plot, named: bool) {
        let Some([from, until]) = self.stall else { return };
        let Frame { top, bottom, .. } = plot.frame;
        let (x0, x1) = (plot.x.at(from), plot.x.at(until));
        let s = number::trimmed;
        let tooltip = format!("stall from {} s to {} s", s(from), s(until));
        plot.svg.rect("margin", (x0, top), (x1 - x0, bottom - top), &tooltip);
        if named {
            plot.svg.text("tick", (f64::midpoint(x0, x1), top - 9.0), Anchor::Middle, "stall");
        }
    }
}

/// Points that follow each other: a line does not go on over a gap, as where no request succeeded.
pub fn pieces(points: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    let steps = points.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let usual = steps.clone().sum::<f64>() / steps.len().max(1) as f64;
    points.chunk_by(move |a, b| b.0 - a.0 <= usual * GAP)
}

impl Panel {
    fn keys(&self) -> impl Iterator<Item = (String, &str)> {
        self.lines.iter().filter_map(|line| {
            Some((format!("curve {} {}", line.dash, line.class), line.key.as_deref()?))
        })
    }

    fn scale(&self, bottom: f64, top: f64) -> Scale {
        let values = self.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let values = values.chain(self.levels.iter().map(|level| level.value));
        if self.log {
            Scale::log(values, bottom, top)
        } else {
            Scale::from_zero(values.fold(0.0, f64::max) * 1.08, bottom, top)
        }
    }

    fn draw(&self, plot: &mut Plot, screen: Screen) {
        let wide = screen == Screen::Wide;
        let Frame { left, right, top, .. } = plot.frame;
        plot.y_axis(if wide { 4 } else { 3 }, self.tick);
        plot.base();
        let title = clean::shorten(&self.title, if wide { 90 } else { 46 });
        plot.svg.text("label", (4.0, top - 9.0), Anchor::Start, &title);
        for level in &self.levels {
            plot.group("echo", &level.text, |plot| {
                plot.level(&format!("none {}", level.dash), level.value);
            });
            let place = (right - 4.0, plot.y.at(level.value) + 13.0);
            plot.svg.text("name", place, Anchor::End, &level.text);
        }
        for line in &self.lines {
            plot.group(&line.class, &line.name, |plot| {
                let class = format!("curve {}", line.dash);
                for piece in pieces(&line.points) {
                    match piece {
                        [alone] => plot.dot("full", *alone, 2.0, ""),
                        piece => plot.line(class.trim_end(), piece.iter().copied()),
                    }
                }
            });
        }
        if wide {
            self.hits(plot, (right - left) / HITS as f64);
        }
    }

    /// Something to point at: what each line is at an instant.
    fn hits(&self, plot: &mut Plot, width: f64) {
        let Frame { left, right, top, bottom, .. } = plot.frame;
        let Some(last) =
            self.lines.iter().filter_map(|line| line.points.last()).map(|p| p.0).reduce(f64::max)
        else {
            return;
        };
        for at in 0..HITS {
            let s = last * (at as f64 + 0.5) / HITS as f64;
            let near = |line: &Line| {
                let by =
                    |a: &&(f64, f64), b: &&(f64, f64)| (a.0 - s).abs().total_cmp(&(b.0 - s).abs());
                let nearest = line.points.iter().min_by(by)?;
                Some(format!("{}: {}", line.name, (self.words)(nearest.1)))
            };
            let all: Vec<String> = self.lines.iter().filter_map(near).collect();
            let tooltip = format!("at {} s: {}", number::trimmed(s), all.join(", "));
            let x = plot.x.at(s) - width / 2.0;
            let size = (width.min(right - left), bottom - top);
            plot.svg.rect("hit", (x, top), size, &tooltip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_does_not_go_on_where_nothing_succeeded() {
        let whole = |from: u32, to: u32| (from..to).map(|at| (f64::from(at), 1.0));
        let points: Vec<(f64, f64)> = whole(0, 10).chain(whole(20, 30)).collect();
        let lengths: Vec<usize> = pieces(&points).map(<[_]>::len).collect();
        assert_eq!(lengths, [10, 10]);
        assert_eq!(pieces(&points[..10]).count(), 1);
        assert_eq!(pieces(&[]).count(), 0);
    }
}
