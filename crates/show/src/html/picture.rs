//! A picture on the page: both forms, its caption, and the colours that are named above it.

use serde::Serialize;
use tcptoll_core::record::Arm;

use super::arm::{ArmName, each_arm, name};
use crate::own;
use crate::run::Run;
use crate::svg::TwoScreens;

/// A picture.
#[derive(Clone, Serialize)]
pub(super) struct Picture {
    both_svg: TwoScreens,
    caption: String,
    /// Arms in it, where their colours are named above it.
    legend: Vec<ArmName>,
}

impl Picture {
    /// A picture without a legend.
    pub(super) fn new(both_svg: TwoScreens, caption: &str) -> Self {
        Self { both_svg, caption: keep_units(caption), legend: Vec::new() }
    }

    /// The same, with a legend of the arms that are drawn, where there are several to tell apart.
    pub(super) fn of_arms(self, summary: &Run, drawn: impl Fn(usize, &Arm) -> bool) -> Self {
        let legend = each_arm(summary, |at, arm| drawn(at, arm).then(|| name(at, arm)));
        if summary.arms.len() > 1 { Self { legend, ..self } } else { self }
    }

    /// Drawn for both screens.
    pub(super) fn both_svg(&self) -> &TwoScreens {
        &self.both_svg
    }

    /// One sentence that says what to see.
    pub(super) fn caption(&self) -> &str {
        &self.caption
    }

    /// Arms whose colours are named above it.
    pub(super) fn legend(&self) -> &[ArmName] {
        &self.legend
    }

    /// That of an experiment.
    pub(super) fn from_own(picture: own::Picture, summary: &Run) -> Self {
        let drawn = picture.drawn;
        Self::new(picture.both_svg, &picture.caption).of_arms(summary, |at, _| drawn.contains(&at))
    }
}

/// A number and its unit stay on one line.
pub(super) fn keep_units(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split(' ') {
        let unit =
            matches!(word.trim_matches(|c: char| ".,;:()".contains(c)), "µs" | "ms" | "s" | "%");
        let after_digit = out.ends_with(|c: char| c.is_ascii_digit());
        if !out.is_empty() {
            out.push(if unit && after_digit { '\u{a0}' } else { ' ' });
        }
        out.push_str(word);
    }
    out
}
