//! The setting of a web server that gives its visitors the shortest pages within its memory.
//!
//! [`server`] is whose setting it is, [`setting`] is what is varied, [`cell`] what was measured of one setting,
//! [`strategy`] says what to measure next ([`narrowing`] is ours, [`procedure`] that of a document of 2016), [`snippet`]
//! writes a setting as configuration, [`found`] is the result. Nothing here measures.

pub mod cell;
pub mod found;
pub(crate) mod narrowing;
pub mod pages;
pub(crate) mod procedure;
pub mod setting;
pub mod snippet;
pub(crate) mod strategy;
