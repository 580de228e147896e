//! What an experiment is described with: options, metrics, columns, causes. It names none.

pub mod brief;
pub mod column;
pub mod columns;
pub mod figures;
pub mod option;
pub mod options;
pub mod spec;
