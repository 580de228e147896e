//! What `connect` asks of its hosts, and how their answers are taken.

use tcptoll_model::handshake::{ClientRow, ServerRow, WireRow};

use crate::experiments::TrialError;
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
    let Some((class, _)) = report.errors.iter().max_by_key(|(_, count)| **count) else {
        return format!("--to {name}: no connection was begun");
    };
    let words = report.first_errors.get(class).map_or("", String::as_str);
    let advice = match class.as_str() {
        "connect-refused" => "nothing listens there: check the port, or start the server",
        "connect-timeout" => {
            "nothing answers there: check address and firewall, or raise --timeout"
        }
        "unreachable" => "there is no route to it: check the address",
        "bind" => "--bind names an address that this host does not have",
        "local-fds" => "raise the limit of open files: ulimit -n",
        "local-ports" => "no local port is free: add --bind addresses, or wait a minute",
        "timeout" => "it accepts but does not speak: give it something with --send",
        _ => "see the error",
    };
    format!(
        "--to {name}: none of {} connections was made ({class}: {words}): {advice}",
        report.attempts
    )
}
