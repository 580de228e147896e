//! `--prove`: findings re-created in the lab, without and with their fix.

use tcptoll_model::diagnosis::Diagnosis;
use tcptoll_model::doctor::Proof;

/// Findings that the lab can hold.
pub(super) const PROVABLE: &[&str] = &[];

/// Re-creates those of these findings that are called `which`, or each that the lab can hold; hands
/// each proof to `shown` as soon as it is there.
///
/// A signal ends it with the proofs so far.
pub(super) fn run(
    _findings: &[Diagnosis],
    _which: &str,
    _quiet: bool,
    _shown: &mut dyn FnMut(&Proof) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Proof>> {
    Ok(Vec::new())
}
