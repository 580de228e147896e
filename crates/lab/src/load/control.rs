//! What a load and its parent say to each other while the load runs: progress, and a stop.

use std::time::Duration;

use serde::de::IgnoredAny;

use super::LoadError;
use crate::channel::Channel;
use crate::messages::Request;

/// The number under which a poller knows the control channel.
pub(super) const CHANNEL: u64 = u64::MAX;

/// Progress is reported this often.
pub(super) const PROGRESS: Duration = Duration::from_millis(200);

/// Takes the request that has come: the parent wants the load to end with what it has.
///
/// Errors: any order; the parent is gone.
pub(super) fn stop_requested(channel: &mut Channel) -> Result<(), LoadError> {
    match channel.receive(None)? {
        Request::Stop => Ok(()),
        Request::Order::<IgnoredAny> { name, .. } => Err(LoadError::Busy(name.into_owned())),
    }
}

/// When progress was reported last.
#[derive(Debug, Default)]
pub(super) struct Progress {
    reported_ns: u64,
}

impl Progress {
    /// Reports how many operations are done if a report is due.
    pub(super) fn report(
        &mut self,
        channel: &mut Channel,
        now_ns: u64,
        done: u64,
    ) -> Result<(), LoadError> {
        if now_ns >= self.reported_ns + PROGRESS.as_nanos() as u64 {
            self.reported_ns = now_ns;
            channel.progress(done)?;
        }
        Ok(())
    }
}
