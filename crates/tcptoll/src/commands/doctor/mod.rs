//! `doctor`: what is wrong with this machine's connections and servers, in one pass.

use anyhow::Context as _;
use tcptoll_engine::doctor::examine;
use tcptoll_engine::watch::Options;
use tcptoll_model::doctor::diagnose;
use tcptoll_model::units::parse_time;

use crate::cli::DoctorArgs;
use crate::exit::Status;

/// Does what `tcptoll doctor …` says.
pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<Status> {
    let lasts = parse_time(&args.duration).context("--duration")?;
    let network = super::watch::network(args.netns.as_deref())?;
    let options = Options { network, owners: true };
    let machine = examine(&options, lasts, &|| false, &mut |_| {})?;
    let found = diagnose(&machine);
    super::study::print(&(serde_json::to_string(&found)? + "\n"))?;
    Ok(if found.is_empty() { Status::Met } else { Status::Missed })
}
