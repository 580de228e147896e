//! The settings that `connect` alone has: from text to what they mean.

use crate::kit::plan::TrialError;
use crate::kit::settings::{SettingsReader, wrong};

impl SettingsReader<'_> {
    pub(super) fn distance(&self) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.typed("distance-km") else { return Ok(None) };
        let why = "write kilometres, above 0 and at most 40000";
        let km = typed.parse::<f64>().ok().filter(|km| *km > 0.0 && *km <= 40_000.0);
        km.map(Some).ok_or_else(|| wrong("distance-km", &typed, why))
    }
}
