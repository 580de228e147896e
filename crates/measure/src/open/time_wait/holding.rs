//! Connections opened and closed before the measurement: what a service would have left behind.
//!
//! They are closed in the arm's own way. Where the client closes first they hold its ports; where the
//! server does they hold none; long-lived connections leave none at all.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::tcp::ports::{PortForecast, assigned};
use tcptoll_lab::lab::{Hosts, LabError};
use tcptoll_lab::messages::{CloseFirst, Echo, HoldPorts, PortsHeld};

use super::settings::TimeWaitSettings;
use crate::kit::plan::{Context, TrialError};

/// Ports in TIME-WAIT may be reused after the kernel's delay; this much later all of them may.
const REUSE_SLACK: Duration = Duration::from_millis(20);

/// A kernel keeps TIME-WAIT this long, s.
const TIME_WAIT_S: f64 = 60.0;

/// Backlog of the server: more than workers there can be.
const BACKLOG: i32 = 4_096;

impl TimeWaitSettings {
    /// The server.
    pub(super) fn echo(&self, at: SocketAddr) -> Echo {
        Echo { at, backlog: BACKLOG, closes: self.close == CloseFirst::Server }
    }

    /// Opens and closes connections before the measurement; gives how many local ports they hold.
    ///
    /// Errors: the kernel does not hold as many as asked.
    pub(super) fn hold(
        &self,
        hosts: &mut Hosts,
        (target, range): (SocketAddr, (u16, u16)),
        forecast: &PortForecast,
        context: &Context<'_>,
    ) -> Result<u64, TrialError> {
        let count = self.held.count(forecast.usable);
        if count == 0 || self.close == CloseFirst::Never {
            return Ok(0);
        }
        let wanted = self.held_ports(forecast.usable);
        let (_, serving) = hosts.server()?.start(&self.echo(target))?;
        let order = HoldPorts {
            target,
            sources: self.sources.clone(),
            range: assigned(range.0, range.1),
            count,
            late_port: self.late_port,
            close: self.close,
            expected: wanted,
            timeout_ns: self.timeout.as_nanos() as u64,
        };
        let begun = hosts.client.begin(&order)?;
        let held = hosts.client.wait(begun, context.interrupt, &mut |_| {})?.answer;
        hosts.server()?.stop(serving)?;
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        if held.closed < count || held.time_wait != wanted {
            return Err(LabError::Refused(too_few(&held, count, wanted)).into());
        }
        // With tcp_tw_reuse in force all of them are old enough to be reused, as in a service.
        if forecast.held_s > 0.0 && forecast.held_s < TIME_WAIT_S {
            hosts.time.pause(Duration::from_secs_f64(forecast.held_s) + REUSE_SLACK);
        }
        Ok(held.time_wait)
    }
}

/// Why the measurement cannot begin.
fn too_few(held: &PortsHeld, count: u64, wanted: u64) -> String {
    let errors: Vec<_> =
        held.errors.iter().map(|(class, count)| format!("{count} {class}")).collect();
    let failed =
        if errors.is_empty() { String::new() } else { format!(" ({} failed)", errors.join(", ")) };
    format!(
        "--held {count}: only {} of {wanted} ports are in TIME-WAIT, after {} connections were closed in \
         {:.1} s{failed}: write a smaller --held, or a shorter --link",
        held.time_wait,
        held.closed,
        held.took_ns as f64 / 1e9
    )
}
