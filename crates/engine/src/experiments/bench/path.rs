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
use crate::messages::{AskClock, AskRoute, Reflect, ShiftClock, Snapshot, Token};
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
const SHARE_MAX: f64 = 0.01;
/// Others' share of the connections from which on no counter of TCP is the run's.
const OPENED_SHARE_MAX: f64 = 0.1;
/// Connections of others from which on they are worth a word, per second.
const OTHERS_PER_S: f64 = 5.0;
/// What the connections over ssh move while a load runs, which nobody can tell from the load's own.
const OF_SSH: [&str; 2] = ["TcpInSegs", "TcpOutSegs"];

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
        self.arm.path = Some(Box::new(Path { hosts: [client, server], ..Path::default() }));
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
    let (to, from) = (hosts.addresses.server, notes.sources.first().copied());
    let path = notes.arm.path.get_or_insert_default();
    path.server_address = to.to_string();
    path.route = hosts.client.ask(&AskRoute { to, from })?;
    path.round_trip_us = Some(histogram(&round_trips).summary_us()).filter(|all| all.count > 0);
    path.datagrams = [u64::from(sent), exchanges.len() as u64];
    path.clock_offset_us = offset.map(|offset| offset.ns as f64 / 1e3);
    path.clock_offset_bound_us = offset.map(|offset| offset.bound_ns as f64 / 1e3);
    Ok(BeforeLoad { round_trips, offset: offset.map(|offset| Offset { ns: 0, ..offset }), idle })
}

/// Compares the clocks once more: instants of the two hosts during the load compare within what is returned,
/// ns; `None`: not known.
pub(super) fn compare_clocks(
    hosts: &mut Hosts,
    notes: &mut Notes,
    before: &BeforeLoad,
) -> Result<Option<u64>, TrialError> {
    let Some(before) = before.offset else { return Ok(None) };
    let (_, exchanges) = exchange(hosts, notes)?;
    let Some(after) = clock_offset::best(&exchanges) else { return Ok(None) };
    let bound = clock_offset::bound_between(before, after);
    if let Some(path) = &mut notes.arm.path {
        (path.clock_drift_ppm, path.clock_drift_bound_ppm) = drift_ppm(before, after).unzip();
        path.clock_bound_us = Some(bound as f64 / 1e3);
    }
    Ok(Some(bound))
}

/// Leaves out counters that others move as well. `opened`: connections that the load opened, where it counts
/// them; `seconds`: between the readings of the counters.
pub(super) fn leave_out_others(
    notes: &mut Notes,
    before: &BeforeLoad,
    opened: Option<u64>,
    seconds: f64,
) {
    let [client, server] = &before.idle;
    // This machine, where it is the client, is as little the run's own as the others.
    let client = background(&mut notes.arm.client, client, opened, seconds);
    let server = notes.arm.server.as_mut().map(|host| background(host, server, opened, seconds));
    for (host, found) in [("client", Some(client)), ("server", server)] {
        let Some(found) = found else { continue };
        let per_s = found.connections_per_s.max(found.during_load_per_s.unwrap_or(0.0));
        let share = found
            .during_load_per_s
            .zip(opened)
            .map_or(0.0, |(per_s, opened)| per_s * seconds / opened.max(1) as f64);
        if per_s >= OTHERS_PER_S || share > SHARE_MAX {
            let left_out = found.left_out.len();
            notes.warn(&Warning::OtherTraffic { host, per_s, left_out });
        }
    }
}

fn background(
    host: &mut HostSummary,
    (time, idle): &Idle,
    opened: Option<u64>,
    seconds: f64,
) -> Background {
    let idle_s = time.as_secs_f64();
    let per_s = |name: &str| idle.get(name).map_or(0.0, |&change| change as f64 / idle_s);
    let begun = ["TcpActiveOpens", "TcpPassiveOpens"];
    // Each apart: where both ends are one machine, a connection of the load is in both.
    let others = opened.map(|opened| {
        let beyond = |name: &&str| {
            let counted = host.counters.get(*name).map_or(0, |change| change.unsigned_abs());
            counted.saturating_sub(opened)
        };
        begun.iter().map(beyond).sum::<u64>()
    });
    let many = others
        .zip(opened)
        .is_some_and(|(others, opened)| others as f64 > opened as f64 * OPENED_SHARE_MAX);
    let mut left_out = Vec::new();
    for (name, change) in &host.counters {
        let share = per_s(name).abs() * seconds > change.unsigned_abs() as f64 * SHARE_MAX;
        if share || many || OF_SSH.contains(&name.as_str()) {
            left_out.push(name.clone());
        }
    }
    for name in &left_out {
        host.counters.remove(name);
    }
    let found = Background {
        seconds: idle_s,
        connections_per_s: begun.into_iter().map(per_s).sum(),
        during_load_per_s: others.map(|others| others as f64 / seconds),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(&str, i64)]) -> BTreeMap<String, i64> {
        all.iter().map(|(name, change)| ((*name).to_owned(), *change)).collect()
    }

    /// Half a second of idling, then a load of 2 s that opened 1,000 connections.
    fn seen(idle: &[(&str, i64)], load: &[(&str, i64)]) -> (HostSummary, Background) {
        let mut host = HostSummary { counters: counts(load), ..HostSummary::default() };
        let idle = (Duration::from_millis(500), counts(idle));
        let found = background(&mut host, &idle, Some(1_000), 2.0);
        (host, found)
    }

    #[test]
    fn a_quiet_machine_keeps_its_counters_but_those_that_ssh_moves() {
        let (host, found) = seen(&[], &[("TcpActiveOpens", 1_000), ("TcpOutSegs", 4_000)]);
        assert_eq!(host.counter("TcpActiveOpens"), Some(1_000));
        assert_eq!(host.counter("TcpOutSegs"), None);
        assert_eq!((found.connections_per_s, found.during_load_per_s), (0.0, Some(0.0)));
    }

    #[test]
    fn a_counter_that_moves_without_the_load_is_left_out_from_a_hundredth_on() {
        // 1 in half a second is 4 in 2 s: of 1,000 too few, of 300 too many.
        let idle = [("TcpActiveOpens", 1), ("TcpExtTCPTimeouts", 1)];
        let (host, found) = seen(&idle, &[("TcpActiveOpens", 1_004), ("TcpExtTCPTimeouts", 300)]);
        assert_eq!(host.counter("TcpActiveOpens"), Some(1_004));
        assert_eq!(host.counter("TcpExtTCPTimeouts"), None);
        assert_eq!((found.connections_per_s, found.during_load_per_s), (2.0, Some(2.0)));
        assert!(!host.counts_alone());
    }

    #[test]
    fn others_that_come_with_the_load_are_seen_by_what_the_load_did_not_open() {
        let (host, found) = seen(&[], &[("TcpPassiveOpens", 1_600), ("TcpExtListenDrops", 3)]);
        assert_eq!(found.during_load_per_s, Some(300.0));
        assert_eq!(host.counter("TcpExtListenDrops"), None);
        // Both ends on one machine: the load's own connections are in both counters.
        let both = [("TcpActiveOpens", 1_000), ("TcpPassiveOpens", 1_000)];
        assert_eq!(seen(&[], &both).1.during_load_per_s, Some(0.0));
    }
}
