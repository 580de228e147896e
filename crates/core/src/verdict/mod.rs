//! What may be said of trials: which of them count, what they are together, how two arms compare, and
//! what is in doubt.

pub mod bound;
pub mod compare;
pub mod consolidate;
pub mod effective;
pub mod saturation;
pub mod validity;
pub mod warning;
