//! A page, loaded as a browser loads it: what it is made of, what is asked for when, and over which
//! connection.
//!
//! Pure: bytes and time come in as arguments, and what is to be done on the network goes out.
//! [`loader`] decides, [`rules`] has the limits and orders of a browser in one place, [`waterfall`] is
//! what comes of a load, ours or a real browser's, [`graph`] is a page whose resources are known
//! before, [`visits`] is who comes to a site and when, [`traffic`] who came to one by its log. The engine carries out what the loader decides; a forecast does the same on a simulated
//! network.

pub mod critical;
pub mod devtools;
mod discovery;
pub mod forecast;
pub mod graph;
pub mod har;
pub mod ids;
pub mod loader;
pub mod resource;
pub mod rules;
pub mod site;
pub mod traffic;
pub mod visits;
pub mod waterfall;
