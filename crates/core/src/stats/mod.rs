//! What do the numbers allow one to say?
//!
//! Quantiles by rank ([`quantile`]), whole distributions in bounded memory ([`histogram`]), exact
//! intervals of a share ([`binomial`]), time series of bounded length ([`series`]), what a record keeps of a
//! distribution ([`summary`]). Verdicts over rounds come from one method ([`sequence`]); what it takes for granted is looked at by [`diagnostics`] and
//! [`little`]. Plain descriptions are in [`sample`], two runs that were not paired in [`two_sample`],
//! statistics without a formula in [`mod@bootstrap`]. Nothing here knows what was measured, and nothing
//! is said of too few values: absent is `None`.

pub mod arrivals;
pub(crate) mod binomial;
pub mod bootstrap;
pub mod diagnostics;
pub mod histogram;
pub mod little;
mod quantile;
pub mod sample;
pub mod sequence;
pub mod series;
mod summary;
pub mod two_sample;

pub use binomial::exact_interval;
pub use histogram::{Histogram, TOP_NS};
pub use quantile::{enough, nearest_rank, need};
pub use series::{Series, SeriesBuilder};
pub use summary::{FIGURES, Figure, HistogramSummary, Unanswered};
