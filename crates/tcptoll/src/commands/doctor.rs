//! `doctor`: what is wrong with this machine's connections and servers, in one pass.

use anyhow::bail;

use crate::cli::DoctorArgs;
use crate::exit::Status;

/// Does what `tcptoll doctor …` says.
pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<Status> {
    let _ = super::watch::network(args.netns.as_deref())?;
    bail!("nothing is examined yet")
}
