//! What `connect` asks of its hosts, and how their answers are taken.

use std::collections::BTreeMap;
use std::time::Duration;

use tcptoll_model::handshake::{ClientRow, ServerRow, WireRow};
use tcptoll_model::ladder::{SynSysctls, syn_ladder};

use super::{Context, TrialError};
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

/// The server host before the load: as it was before the in-house server began, or with the
/// launched one waiting.
pub(super) fn look_at_server(
    place: &mut Place,
    server: &Server,
    idle: Snapshot,
) -> Result<Snapshot, TrialError> {
    match server {
        Server::Ours => Ok(idle),
        Server::Launched => Ok(observe(place.server()?)?),
    }
}

pub(super) fn end_serving(
    place: &mut Place,
    server: &Server,
    trace: &mut Trace,
) -> Result<(Snapshot, Option<GreetReport>), TrialError> {
    let host = place.server()?;
    match server {
        Server::Ours => {
            host.begin(&Ask::Stop)?;
            let Answered { tell, rows } = host.wait(&Interrupt::new(), &mut |_| {})?;
            trace.add(rows);
            match tell {
                Tell::Greeted(report) => Ok((observe(host)?, Some(*report))),
                other => Err(host.unexpected(&other).into()),
            }
        }
        Server::Launched => Ok((observe(host)?, None)),
    }
}

pub(super) fn drive(
    client: &mut Handle,
    load: &ConnectLoad,
    trace: &mut Trace,
    context: &mut Context<'_>,
) -> Result<ConnectReport, TrialError> {
    client.begin(&Ask::Connect(Box::new(load.clone())))?;
    let total = load.count;
    let progress = &mut context.progress;
    let answered = client.wait(context.interrupt, &mut |done| progress(done, total))?;
    trace.add(answered.rows);
    match answered.tell {
        Tell::Connected(report) => Ok(*report),
        other => Err(client.unexpected(&other).into()),
    }
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
