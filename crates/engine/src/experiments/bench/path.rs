//! The path between hosts of the user's, where the lab has a certified link: its round trip, the clocks of its
//! ends, and what else the machines do.

use std::collections::BTreeMap;
use std::time::Duration;

use tcptoll_model::clock_offset::{self, Exchange, Offset, drift_ppm};
use tcptoll_model::counters::difference;
use tcptoll_model::record::{Background, HostSummary, Path};
use tcptoll_model::warning::Warning;

use super::hosts::{observe, read_sysctls};
use super::notes::Notes;
use super::settings::LabSpec;
use crate::experiments::{Context, TrialError};
use crate::lab::certification::histogram;
use crate::lab::remote::{RemoteSpec, SshAddress};
use crate::lab::{Handle, Hosts, LabError};
use crate::messages::{AskClock, Reflect, ShiftClock, Snapshot, Token};
use crate::observe::is_same_value;

/// Datagrams before a load, and after it.
const EXCHANGES: u16 = 128;
/// Time between two, ns.
const INTERVAL_NS: u64 = 1_000_000;
/// One that takes longer is lost, ns.
const LIMIT_NS: u64 = 500_000_000;
/// If none of the first comes back, no more are sent.
const TRIED: u16 = 3;
/// The machines are watched for this long before a load.
const IDLE: Duration = Duration::from_millis(500);
/// Others' share of a counter from which on it is not the run's.
const SHARE_MAX: f64 = 0.1;
/// Connections of others from which on they are worth a word, per second.
const OTHERS_PER_S: f64 = 5.0;

/// What was seen of a path before the load.
pub(super) struct BeforeLoad {
    /// Round trips, ns.
    pub(super) round_trips: Vec<u64>,
    /// Of the clocks, once the server's was shifted.
    offset: Option<Offset>,
    /// What counters did while nothing of the run was under way: client, server.
    idle: [Idle; 2],
}

/// Time, and the changes of counters in it.
type Idle = (Duration, BTreeMap<String, i64>);

impl Notes {
    /// Hosts of the user's; sysctls of theirs are read and never set.
    pub(super) fn remote(
        &mut self,
        lab: &LabSpec,
        spec: &RemoteSpec,
        context: &Context<'_>,
    ) -> Result<Hosts, TrialError> {
        let mut hosts = context.hosts.remote(spec)?;
        let client = spec.client.as_ref().map_or("this machine".to_owned(), SshAddress::to_string);
        let client_sysctls = as_wanted(&mut hosts.client, &client, &lab.client_sysctls)?;
        let server = spec.server.to_string();
        let server_sysctls = as_wanted(hosts.server()?, &server, &lab.server_sysctls)?;
        if let Some(address) = spec.client_address {
            hosts.addresses.client = address;
            if self.sources.is_empty() {
                self.sources.push(address);
            }
        }
        let passport =
            |at: usize| hosts.agents[at].as_ref().map(|hello| Box::new(hello.passport.clone()));
        self.arm.client.passport = passport(0);
        self.arm.client.sysctls = client_sysctls;
        self.arm.server = Some(HostSummary {
            passport: passport(1),
            sysctls: server_sysctls,
            ..HostSummary::default()
        });
        Ok(hosts)
    }
}

/// Reads the sysctls that a trial needs.
///
/// Errors: one has another value; how to set it.
fn as_wanted(
    host: &mut Handle,
    name: &str,
    wanted: &[(String, String)],
) -> Result<BTreeMap<String, String>, TrialError> {
    let names: Vec<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
    let found = read_sysctls(host, &names)?;
    for (sysctl, value) in wanted {
        let is = found.get(sysctl);
        if !is.is_some_and(|is| is_same_value(is, value)) {
            let is = is.map_or("absent", String::as_str);
            return Err(TrialError::Setting(format!(
                "{name}: {sysctl} is {is} and not {value}, and tcptoll changes no setting of a machine of yours. \
                 Set it there: sudo sysctl -w {sysctl}='{value}'"
            )));
        }
    }
    Ok(found)
}

/// Measures the quiet path, watches the idle machines, and brings the clocks together.
pub(super) fn before(
    hosts: &mut Hosts,
    notes: &mut Notes,
    context: &Context<'_>,
) -> Result<BeforeLoad, TrialError> {
    let begun = hosts.time.now();
    let first = [observe(&mut hosts.client)?, observe(hosts.server()?)?];
    let (sent, exchanges) = exchange(hosts, notes)?;
    let left = IDLE.saturating_sub(hosts.time.since(begun));
    hosts.time.pause(left);
    let last = [observe(&mut hosts.client)?, observe(hosts.server()?)?];
    if context.interrupt.signal().is_some() {
        return Err(LabError::Interrupted.into());
    }
    let idle = std::array::from_fn(|at| idle(&first[at], &last[at]));
    let offset = clock_offset::best(&exchanges);
    // From here on the server's instants are on the client's clock.
    if let Some(offset) = offset {
        hosts.server()?.ask(&ShiftClock { ns: offset.ns.saturating_neg() })?;
    }
    let round_trips: Vec<u64> = exchanges.iter().filter_map(Exchange::round_trip_ns).collect();
    if round_trips.is_empty() {
        notes.warn(&Warning::NoRoundTrip { sent: u64::from(sent) });
    }
    notes.arm.path = Some(Box::new(Path {
        server_address: hosts.addresses.server.to_string(),
        round_trip_us: Some(histogram(&round_trips).summary_us()).filter(|all| all.count > 0),
        datagrams: [u64::from(sent), exchanges.len() as u64],
        clock_offset_us: offset.map(|offset| offset.ns as f64 / 1e3),
        clock_offset_bound_us: offset.map(|offset| offset.bound_ns as f64 / 1e3),
        clock_drift_ppm: None,
        clock_drift_bound_ppm: None,
    }));
    Ok(BeforeLoad { round_trips, offset: offset.map(|offset| Offset { ns: 0, ..offset }), idle })
}

/// Compares the clocks once more, and leaves out counters that others move as well. `seconds`: between the
/// readings of the counters.
pub(super) fn after(
    hosts: &mut Hosts,
    notes: &mut Notes,
    before: &BeforeLoad,
    seconds: f64,
) -> Result<(), TrialError> {
    leave_out_others(notes, &before.idle, seconds);
    if let Some(before) = before.offset {
        let (_, exchanges) = exchange(hosts, notes)?;
        let drift = clock_offset::best(&exchanges).and_then(|after| drift_ppm(before, after));
        if let (Some(path), Some((ppm, bound))) = (&mut notes.arm.path, drift) {
            (path.clock_drift_ppm, path.clock_drift_bound_ppm) = (Some(ppm), Some(bound));
        }
    }
    Ok(())
}

fn leave_out_others(notes: &mut Notes, [client, server]: &[Idle; 2], seconds: f64) {
    // This machine, where it is the client, is as little the run's own as the others.
    let client = background(&mut notes.arm.client, client, seconds);
    let server = notes.arm.server.as_mut().map(|host| background(host, server, seconds));
    for (host, found) in [("client", Some(client)), ("server", server)] {
        let Some(found) = found else { continue };
        if found.connections_per_s >= OTHERS_PER_S {
            notes.warn(&Warning::OtherTraffic {
                host,
                per_s: found.connections_per_s,
                left_out: found.left_out.len(),
            });
        }
    }
}

fn background(host: &mut HostSummary, (time, idle): &Idle, seconds: f64) -> Background {
    let idle_s = time.as_secs_f64();
    let per_s = |name: &str| idle.get(name).map_or(0.0, |&change| change as f64 / idle_s);
    let mut left_out = Vec::new();
    for (name, change) in &host.counters {
        if per_s(name).abs() * seconds > change.unsigned_abs() as f64 * SHARE_MAX {
            left_out.push(name.clone());
        }
    }
    for name in &left_out {
        host.counters.remove(name);
    }
    let found = Background {
        seconds: idle_s,
        connections_per_s: per_s("TcpActiveOpens") + per_s("TcpPassiveOpens"),
        left_out,
    };
    host.background = Some(Box::new(found.clone()));
    found
}

/// How many datagrams were sent, and those that came back.
fn exchange(hosts: &mut Hosts, notes: &Notes) -> Result<(u16, Vec<Exchange>), TrialError> {
    let token = token()?;
    let from = notes.sources.first().copied();
    let reflect = Reflect { at: hosts.addresses.server, peer: from, token };
    let (target, running) = hosts.server()?.start(&reflect)?;
    let ask = |count| AskClock {
        target,
        from,
        token,
        count,
        interval_ns: INTERVAL_NS,
        limit_ns: LIMIT_NS,
    };
    let mut sent = TRIED;
    let mut exchanges = hosts.client.ask(&ask(TRIED))?;
    if !exchanges.is_empty() {
        sent += EXCHANGES;
        exchanges.extend(hosts.client.ask(&ask(EXCHANGES))?);
    }
    hosts.server()?.stop(running)?;
    Ok((sent, exchanges))
}

/// What nobody else knows.
fn token() -> Result<Token, LabError> {
    let mut token = [0; 16];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut token)
        .map_err(|_| LabError::Refused("the kernel gives no random numbers".to_owned()))?;
    Ok(token)
}

fn idle(first: &Snapshot, last: &Snapshot) -> Idle {
    let time = Duration::from_nanos(last.at_ns.saturating_sub(first.at_ns).max(1));
    (time, difference(&first.counters, &last.counters))
}
