//! What the options of `doctor` ask for, checked before anything is examined.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tcptoll_core::study::did_you_mean;
use tcptoll_core::units::parse_time;
use tcptoll_live::doctor::rules::ids;

use super::prove::{ALL, PROVABLE, why_not};
use crate::cli::DoctorArgs;
use crate::output::{check_place, check_writable};

/// Rates need some time, and a signal ends a long examination.
const DURATION: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(1);

/// How long to look.
///
/// Errors: one sentence about the first option that makes no sense.
pub(super) fn duration(args: &DoctorArgs) -> anyhow::Result<Duration> {
    let text = &args.duration;
    let lasts = parse_time(text).with_context(|| format!("--duration {text}"))?;
    if !DURATION.contains(&lasts) {
        bail!("--duration {text}: write a time from 1s to 1h");
    }
    if let Some(path) = &args.html {
        page(path)?;
    }
    if let Some(name) = args.prove.as_deref().filter(|name| *name != ALL) {
        finding(name)?;
    }
    Ok(lasts)
}

/// Whether the page can be written.
fn page(path: &Path) -> anyhow::Result<()> {
    let option = format!("--html {}", path.display());
    check_place(&option, path)?;
    check_writable(path).context(option)
}

/// Whether the lab can hold this finding.
fn finding(name: &str) -> anyhow::Result<()> {
    if PROVABLE.contains(&name) {
        return Ok(());
    }
    if let Some(why) = why_not(name) {
        bail!("--prove {name}: {why}");
    }
    let list = PROVABLE.join(", ");
    if ids().any(|id| id == name) {
        bail!("--prove {name}: the lab cannot re-create this finding; it can re-create {list}");
    }
    let all: Vec<&str> = ids().collect();
    let meant = did_you_mean(name, &all).map(|meant| format!("; {meant}"));
    let meant = meant.unwrap_or_else(|| ".".to_owned());
    bail!("--prove {name}: no finding has this name{meant} The lab can re-create {list}")
}
