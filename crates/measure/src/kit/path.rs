//! The path between hosts of the user's, where the lab has a certified link: its round trip, the clocks of its
//! ends, and what else the machines do.
//!
//! Counters of such hosts are the machine's. Those that others move are left out here: `HostSummary::counter`
//! then gives `None`, and no figure takes that for 0.

use std::collections::BTreeMap;
use std::time::Duration;

use tcptoll_core::link::clocks;
use tcptoll_core::link::clocks::{Exchange, Offset, drift_ppm};
use tcptoll_core::record::{Background, HostSummary, Path};
use tcptoll_core::tcp::counters::difference;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::certification::histogram;
use tcptoll_lab::lab::remote::{RemoteSpec, SshAddress};
use tcptoll_lab::lab::{Handle, Hosts, LabError};
use tcptoll_lab::messages::{AskClock, AskRoute, Reflect, ShiftClock, Snapshot, Token};
use tcptoll_lab::observe::is_same_value;

use super::hosts::{observe, read_sysctls};
use super::notes::Notes;
use super::settings::LabSpec;
use crate::kit::TrialError;
use crate::kit::plan::Context;

/// Connections that a load opened: tried, established.
pub(crate) type Opened = (u64, u64);

/// Datagrams before a load, and after it.
const EXCHANGES: u16 = 128;
/// Time between two, ns.
const INTERVAL_NS: u64 = 1_000_000;
/// One that takes longer is lost, ns.
const LIMIT_NS: u64 = 500_000_000;
/// If none of the first comes back, no more are sent.
const TRIED: u16 = 3;
/// The machines are watched for this long before a load, and after it.
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
    let (sent, exchanges, idle) = watched(hosts, notes)?;
    if context.interrupt.signal().is_some() {
        return Err(LabError::Interrupted.into());
    }
    let offset = clocks::best_offset(&exchanges);
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

/// Compares clocks, and watches the machines while nothing of the run is under way.
fn watched(
    hosts: &mut Hosts,
    notes: &Notes,
) -> Result<(u16, Vec<Exchange>, [Idle; 2]), TrialError> {
    let begun = hosts.time.now();
    let first = [observe(&mut hosts.client)?, observe(hosts.server()?)?];
    let (sent, exchanges) = exchange(hosts, notes)?;
    let left = IDLE.saturating_sub(hosts.time.since(begun));
    hosts.time.pause(left);
    let last = [observe(&mut hosts.client)?, observe(hosts.server()?)?];
    Ok((sent, exchanges, std::array::from_fn(|at| idle(&first[at], &last[at]))))
}

/// Compares the clocks once more, and watches the machines again for what began during the load. Instants of the
/// two hosts during the load compare within what is returned, ns; `None`: not known.
pub(super) fn after(
    hosts: &mut Hosts,
    notes: &mut Notes,
    before: &mut BeforeLoad,
) -> Result<Option<u64>, TrialError> {
    let (_, exchanges, idle) = watched(hosts, notes)?;
    for (seen, later) in before.idle.iter_mut().zip(idle) {
        quickest(seen, later);
    }
    let (Some(before), Some(after)) = (before.offset, clocks::best_offset(&exchanges)) else {
        return Ok(None);
    };
    let bound = clocks::bound_between(before, after);
    if let Some(path) = &mut notes.arm.path {
        (path.clock_drift_ppm, path.clock_drift_bound_ppm) = drift_ppm(before, after).unzip();
        path.clock_bound_us = Some(bound as f64 / 1e3);
    }
    Ok(Some(bound))
}

/// Of two windows each counter as it moved in the one in which it moved more, per time.
fn quickest(seen: &mut Idle, (time, later): Idle) {
    let scale = seen.0.as_secs_f64() / time.as_secs_f64();
    for (name, change) in later {
        let change = (change as f64 * scale).round() as i64;
        let known = seen.1.entry(name).or_default();
        if change.abs() > known.abs() {
            *known = change;
        }
    }
}

/// Leaves out counters that others move as well. `opened`: connections that the load opened, where it counts
/// them; `seconds`: between the readings of the counters.
pub(super) fn leave_out_others(
    notes: &mut Notes,
    before: &BeforeLoad,
    opened: Option<Opened>,
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
            .map_or(0.0, |(per_s, (tried, _))| per_s * seconds / tried.max(1) as f64);
        if per_s >= OTHERS_PER_S || share > SHARE_MAX {
            let left_out = found.left_out.len();
            notes.warn(&Warning::OtherTraffic { host, per_s, left_out });
        }
    }
}

fn background(
    host: &mut HostSummary,
    (time, idle): &Idle,
    opened: Option<Opened>,
    seconds: f64,
) -> Background {
    let idle_s = time.as_secs_f64();
    let per_s = |name: &str| idle.get(name).map_or(0.0, |&change| change as f64 / idle_s);
    let begun = ["TcpActiveOpens", "TcpPassiveOpens"];
    // Each apart: where both ends are one machine, a connection of the load is in both.
    let others = opened.map(|(tried, established)| {
        let beyond = |(name, own): (&str, u64)| {
            let counted = host.counters.get(name).map_or(0, |change| change.unsigned_abs());
            counted.saturating_sub(own)
        };
        begun.into_iter().zip([tried, established]).map(beyond).sum::<u64>()
    });
    let many = others
        .zip(opened)
        .is_some_and(|(others, (tried, _))| others as f64 > tried as f64 * OPENED_SHARE_MAX);
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
    let (target, running) = hosts.server()?.start(&reflect).map_err(|error| match error {
        LabError::Refused(why) => LabError::Refused(format!(
            "{}: {why}. --server-address must be an address of that host: behind NAT, and at link-local \
             addresses, it cannot be measured",
            notes.arm.path.as_ref().map_or("the server's host", |path| path.hosts[1].as_str())
        )),
        other => other,
    })?;
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
    // One that took longer was lost, also for a host that slept meanwhile.
    let in_time = |one: &Exchange| one.t4.checked_sub(one.t1).is_some_and(|ns| ns <= LIMIT_NS);
    exchanges.retain(in_time);
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
        let found = background(&mut host, &idle, Some((1_000, 1_000)), 2.0);
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
    fn what_begins_with_the_load_is_seen_after_it() {
        let mut seen = (Duration::from_millis(500), counts(&[("TcpExtListenDrops", 1)]));
        let later = counts(&[("TcpExtListenDrops", 30), ("TcpRetransSegs", 4)]);
        quickest(&mut seen, (Duration::from_secs(1), later));
        assert_eq!(seen.1, counts(&[("TcpExtListenDrops", 15), ("TcpRetransSegs", 2)]));
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
