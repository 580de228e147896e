//! A page, loaded as a browser loads it: what it is made of, what is asked for when, and over which
//! connection.
//!
//! Pure: bytes and time come in as arguments, and what is to be done on the network goes out.
//! [`loader`] decides, [`rules`] has the limits and orders of a browser in one place, [`waterfall`] is
//! what comes of a load, ours or a real browser's, [`resource`] what a page is made of, [`visits`] who
//! comes to a site and when, and who came to one by its log. The lab carries out what the loader decides;
//! a forecast does the same on a simulated network.

pub mod devtools;
mod discovery;
pub mod forecast;
pub mod har;
pub mod loader;
pub mod resource;
pub mod rules;
pub mod site;
pub mod visits;
pub mod waterfall;
