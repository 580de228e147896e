//! What `connect` asks of its hosts, and how their answers are taken.

use std::collections::BTreeMap;
use std::time::Duration;

use tcptoll_model::handshake::{ClientRow, ServerRow, WireRow};
use tcptoll_model::ladder::{SynSysctls, syn_ladder};
use tcptoll_model::link::LinkSpec;

use super::TrialError;
use crate::lab::{Answered, Handle, Interrupt, LabError, Place};
use crate::messages::{
    Ask, ConnectLoad, ConnectReport, Counted, GreetReport, Rows, Snapshot, Tell,
};

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

/// Who answers in the lab.
pub(super) enum Server {
    Ours,
    Launched,
}

pub(super) fn end_serving(
    place: &mut Place,
    server: &Server,
    trace: &mut Trace,
) -> Result<(Snapshot, Option<GreetReport>), TrialError> {
    let host = place.server()?;
    let greeted = match server {
        Server::Ours => Some(end_greeting(host, trace)?),
        Server::Launched => None,
    };
    Ok((observe(host)?, greeted))
}

pub(super) fn end_greeting(host: &mut Handle, trace: &mut Trace) -> Result<GreetReport, LabError> {
    host.begin(&Ask::Stop)?;
    let Answered { tell, rows } = host.wait(&Interrupt::new(), &mut |_| {})?;
    trace.add(rows);
    match tell {
        Tell::Greeted(report) => Ok(*report),
        other => Err(host.unexpected(&other)),
    }
}

pub(super) fn drive(
    client: &mut Handle,
    load: &ConnectLoad,
    trace: &mut Trace,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> Result<ConnectReport, TrialError> {
    client.begin(&Ask::Connect(Box::new(load.clone())))?;
    let answered = client.wait(interrupt, progress)?;
    trace.add(answered.rows);
    match answered.tell {
        Tell::Connected(report) => Ok(*report),
        other => Err(client.unexpected(&other).into()),
    }
}

/// Waits until the last FINs have come through, so that they are counted.
pub(super) fn settle(client: &mut Handle, link: &LinkSpec) -> Result<(), LabError> {
    // A server that is slow to close is not waited for longer.
    let limit = link.rtt * 2 + link.jitter + Duration::from_millis(30);
    client.ask(&Ask::Settle { limit_ns: limit.as_nanos() as u64 })?;
    // The client has the server's FIN; its ACK is on the way.
    std::thread::sleep(link.rtt / 2 + link.jitter + Duration::from_millis(2));
    Ok(())
}

pub(super) fn count(link: &mut Handle, trace: &mut Trace) -> Result<Counted, TrialError> {
    link.begin(&Ask::Counted)?;
    let answered = link.wait(&Interrupt::new(), &mut |_| {})?;
    trace.add(answered.rows);
    match answered.tell {
        Tell::Counted(counted) => Ok(*counted),
        other => Err(link.unexpected(&other).into()),
    }
}

pub(super) fn set_sysctls(
    host: &mut Handle,
    wanted: Vec<(String, String)>,
) -> Result<BTreeMap<String, String>, LabError> {
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    match host.ask(&Ask::Sysctls(wanted))? {
        Tell::Sysctls(got) => Ok(got.into_iter().collect()),
        other => Err(host.unexpected(&other)),
    }
}

pub(super) fn observe(host: &mut Handle) -> Result<Snapshot, LabError> {
    match host.ask(&Ask::Observe)? {
        Tell::Snapshot(snapshot) => Ok(*snapshot),
        other => Err(host.unexpected(&other)),
    }
}

/// The retry ladder of this host, from its own sysctls.
pub(super) fn ladder_of(host: &mut Handle) -> Result<Vec<Duration>, LabError> {
    const RETRIES: &str = "net.ipv4.tcp_syn_retries";
    const LINEAR: &str = "net.ipv4.tcp_syn_linear_timeouts";
    let names = vec![RETRIES.to_owned(), LINEAR.to_owned()];
    let got: BTreeMap<String, String> = match host.ask(&Ask::ReadSysctls(names))? {
        Tell::Sysctls(got) => got.into_iter().collect(),
        other => return Err(host.unexpected(&other)),
    };
    let number = |name: &str| got.get(name).and_then(|text| text.parse().ok());
    Ok(syn_ladder(&SynSysctls {
        syn_retries: number(RETRIES).unwrap_or(6),
        linear_timeouts: number(LINEAR).unwrap_or(0),
    }))
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
