//! What an experiment is described with: options, metrics, columns, causes. It names none.

pub mod cause;
pub mod column;
pub mod columns;
pub mod figures;
pub mod names;
pub mod option;
pub mod options;
pub mod spec;
