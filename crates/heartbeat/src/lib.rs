#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[cfg(unix)]
pub mod blocking;
mod fleet;
pub mod frame;
#[cfg(unix)]
pub mod kernel;
#[cfg(unix)]
mod link;
mod queue;
mod reaper;
mod session;
mod timing;
#[cfg(all(unix, feature = "tokio"))]
pub mod tokio_net;

pub use fleet::{Fleet, FleetStep};
pub use queue::Member;
pub use reaper::{Order, Reaper, ReaperStep, Reaping, Stop};
pub use session::{Options, Session, Turn};
pub use timing::{Evidence, Null, Timing};
