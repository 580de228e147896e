//! What do the numbers allow one to say?
//!
//! Quantiles by rank and plain descriptions ([`sample`]), whole distributions in bounded memory
//! ([`histogram`]), what a record keeps of a distribution and of a quantity over time ([`summary`]), exact
//! intervals of a share ([`exact_interval`]). Verdicts over rounds come from one method ([`sequence`]); what
//! it takes for granted is looked at by [`diagnostics`]. Two runs that were not paired, and statistics
//! without a formula, are in [`two_sample`]. Nothing here knows what was measured, and nothing
//! is said of too few values: absent is `None`.

pub mod arrivals;
pub mod diagnostics;
pub mod histogram;
pub mod sample;
pub mod saturation;
pub mod sequence;
pub mod summary;
pub mod two_sample;

pub use histogram::{Histogram, TOP_NS};
pub use sample::{enough, exact_interval, nearest_rank, need};
pub use summary::{FIGURES, Figure, HistogramSummary, Series, SeriesBuilder, Unanswered};
