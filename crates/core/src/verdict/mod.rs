//! What may be said of trials: which of them count, what they are together, how two arms compare, and
//! what is in doubt.

pub mod answer;
pub mod between;
pub mod bound;
pub mod compare;
pub mod consolidate;
pub mod drops;
pub mod effective;
pub mod names;
pub mod points;
pub mod port_cliff;
mod stop;
pub mod throughput;
pub mod validity;
pub mod warning;
