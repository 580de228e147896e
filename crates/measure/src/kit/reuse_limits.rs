//! What a server of the lab does with idle connections: `--keepalive`, `--keepalive-timeout`, `--keepalive-requests`.

use std::time::Duration;

use super::settings::{SettingsReader, time_above_zero, wrong};
use crate::kit::plan::TrialError;

/// How long a connection is kept, and for how many requests. None: as the server has it by itself.
#[derive(Clone, Debug)]
pub(crate) struct ReuseLimits {
    pub(crate) on: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) requests: Option<u64>,
}

impl ReuseLimits {
    /// Errors: a limit of connections that are not kept.
    pub(crate) fn from(reader: &SettingsReader<'_>) -> Result<Self, TrialError> {
        let on = reader.typed_flag("keepalive")?.unwrap_or(true);
        for key in ["keepalive-requests", "keepalive-timeout"] {
            if let (false, Some(typed)) = (on, reader.typed(key)) {
                let why =
                    "it has no effect with --keepalive off: leave it out, or write --keepalive on";
                return Err(wrong(key, &typed, why));
            }
        }
        Ok(Self {
            on,
            timeout: reader.typed_read("keepalive-timeout", time_above_zero)?,
            requests: reader.typed_count("keepalive-requests", 0, u64::from(u32::MAX) / 2)?,
        })
    }

    /// Whether a second request of a connection is answered.
    pub(crate) fn keeps(&self) -> bool {
        self.on && self.requests != Some(1)
    }

    /// As orders have it. Settings are hours at most.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        self.timeout.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}
