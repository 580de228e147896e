#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[cfg(unix)]
pub mod blocking;
pub mod fleet;
pub mod frame;
#[cfg(unix)]
pub mod kernel;
#[cfg(unix)]
mod link;
mod queue;
pub mod reaper;
pub mod session;
mod timing;
#[cfg(all(unix, feature = "tokio"))]
pub mod tokio_net;

pub use fleet::Fleet;
pub use queue::Member;
pub use reaper::{Order, Reaper, Reaping, Stop};
pub use session::{Options, Session};
pub use timing::{Evidence, Null, Step, Timing};
