//! What an experiment says of failures, of a distribution and in pictures. Where it goes says `run::Own`.

use tcptoll_core::record::Arm;
use tcptoll_core::stats::HistogramSummary;

use crate::svg::Svg;

/// How many operations failed; some succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// Operations that failed; above 0.
    pub failed: u64,
    /// Operations begun.
    pub tried: u64,
}

/// The words for a distribution that is not of operations.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The distribution.
    pub histogram: &'static str,
    /// Values that there are, and that there could be.
    pub counts: fn(&Arm) -> Option<(u64, u64)>,
    /// What its axis shows.
    pub share: &'static str,
    /// What became of the others.
    pub never: &'static str,
    /// What is to be seen of one arm, in a sentence.
    pub caption: fn(&HistogramSummary) -> String,
}

/// A picture with its caption.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The drawing.
    pub svg: Svg,
    /// One sentence that says what to see.
    pub caption: String,
    /// Places of the arms in it, whose colours are named above it.
    pub drawn: Vec<usize>,
}
