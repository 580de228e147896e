//! What `connect` asks of its hosts, and how their answers are taken.

use tcptoll_model::handshake::{ClientRow, ServerRow, WireRow};

use crate::experiments::TrialError;
use crate::experiments::bench::unreached::Unreached;
use crate::lab::{Begun, Handle, Interrupt, LabError};
use crate::messages::{ConnectLoad, ConnectReport, Greet, GreetReport, Rows};

/// The rows of all three points of view.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) client: Vec<ClientRow>,
    pub(super) server: Vec<ServerRow>,
    pub(super) wire: Vec<WireRow>,
}

impl Trace {
    pub(super) fn add(&mut self, parts: Vec<Rows>) {
        for part in parts {
            match part {
                Rows::Client(rows) => self.client.extend(rows),
                Rows::Server(rows) => self.server.extend(rows),
                Rows::Wire(rows) => self.wire.extend(rows),
                // Of a load that sends requests.
                Rows::Group(_) => {}
            }
        }
    }
}

pub(super) fn end_greeting(
    host: &mut Handle,
    greeting: Begun<Greet>,
    trace: &mut Trace,
) -> Result<GreetReport, LabError> {
    let answered = host.stop(greeting)?;
    trace.add(answered.rows);
    Ok(answered.answer)
}

pub(super) fn drive(
    client: &mut Handle,
    load: &ConnectLoad,
    trace: &mut Trace,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> Result<ConnectReport, TrialError> {
    let begun = client.begin(load)?;
    let answered = client.wait(begun, interrupt, progress)?;
    trace.add(answered.rows);
    Ok(answered.answer)
}

/// Why a target gave nothing, with what to do about it.
pub(super) fn nothing_reached(name: &str, report: &ConnectReport) -> String {
    let unreached = Unreached {
        subject: format!("--to {name}"),
        operation: "connection",
        outcome: format!("none of {} connections was made", report.attempts),
        errors: &report.errors,
        first_errors: &report.first_errors,
    };
    unreached.sentence(&[
        ("bind", "--bind names an address that this host does not have"),
        ("local-ports", "no local port is free: add --bind addresses, or wait a minute"),
        ("timeout", "it accepts but does not speak: give it something with --send"),
    ])
}
