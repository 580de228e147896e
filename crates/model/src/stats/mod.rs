//! What do the numbers allow one to say?
//!
//! Quantiles by rank ([`quantile`]), whole distributions in bounded memory ([`histogram`]), exact
//! intervals of a share ([`binomial`]), time series of bounded length ([`series`]). Nothing here knows
//! what was measured, and nothing is said of too few values: absent is `None`.

pub mod binomial;
pub mod histogram;
pub mod quantile;
pub mod series;

pub use binomial::exact_interval;
pub use histogram::Histogram;
pub use quantile::{enough, nearest_rank, need};
pub use series::SeriesBuilder;
