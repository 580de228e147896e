//! A listener's queues: an accept queue that overflows, is about to, or never empties, and a full SYN queue.
//!
//! An accept queue in use at nearly every look is a lasting overload: the server accepts more slowly than clients
//! come, and a longer queue is no fix for it. After `listen(4096)` a server that accepts 5 connections/s held 12 of
//! 4,096, and the median first byte took 2.6 s. So the only fix named is to accept faster. The diagnosis has a name of
//! its own (`accept-queue-standing`), with the wait by Little's law as a lower bound. A simulated acceptor, 50 to 90 %
//! busy, was not named in six hours.

use std::collections::BTreeMap;

use serde_json::Value;
use tcptoll_core::number;
use tcptoll_core::units::{echo, host_port};

use super::{evidence, rounded, subject};
use crate::watch::listeners::is_nearly_full;
use crate::watch::state::{ListenerState, Rates, Standing, State};
use tcptoll_core::finding::queues::{Overload, QueueFigures};
use tcptoll_core::finding::{Finding, Remedy, Severity};

pub(crate) const FULL: &str = "accept-queue-full";
pub(crate) const NEAR: &str = "accept-queue-near";

/// The subject where the listener cannot be told.
pub(crate) const UNKNOWN: &str = "a listener of this host";
/// What `listen(2)` is asked for in the end, at least: the default of `somaxconn` since Linux 5.4.
const BACKLOG_MIN: u32 = 4_096;
/// `somaxconn` and the backlog were 16 bits wide before Linux 4.1, and a longer queue than this is no
/// remedy.
const BACKLOG_MAX: u32 = 65_535;

/// Packets met a full accept queue in the interval.
pub(super) fn full(state: &State) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        groups(state).filter_map(|group| overflowed(state, &group)).collect();
    let Some(rates) = &state.rates else { return found };
    let attributed: f64 = state.listeners.iter().filter_map(|one| one.overflows_per_s).sum();
    // The host's counters are read a little later than those of the listeners.
    let late = 2.0 / state.interval_s.max(1e-3) + 0.05 * rates.overflows_per_s;
    let rest = rates.overflows_per_s - attributed;
    match found.first_mut() {
        // Of others, or of a burst between the two readings: no second fault.
        Some(named) if rest > late => {
            named.evidence.insert("overflows_elsewhere_per_s".into(), rounded(rest));
        }
        None if rest > 0.0 && !state.listeners.iter().any(was_full) => {
            found.push(unattributed(state, rest));
        }
        _ => {}
    }
    found
}

/// Whether its queue was full in the last seconds: what the host counts beyond it is told at the next look.
fn was_full(listener: &ListenerState) -> bool {
    listener.accept_queue_recent_peak > listener.accept_queue_limit
}

fn overflowed(state: &State, group: &Group<'_>) -> Option<Finding> {
    let hit = |one: &&&ListenerState| one.overflows_per_s.is_some_and(|rate| rate > 0.0);
    let rate: f64 = group.iter().filter(hit).filter_map(|one| one.overflows_per_s).sum();
    let by_rate = |a: &&&ListenerState, b: &&&ListenerState| {
        a.overflows_per_s.unwrap_or(0.0).total_cmp(&b.overflows_per_s.unwrap_or(0.0))
    };
    let worst = group.iter().filter(hit).max_by(by_rate)?;
    let subject = host_port(&worst.address, worst.port);
    let estimated = group.iter().filter(hit).any(|one| one.overflows_estimated);
    let (peak, limit) = (worst.accept_queue_recent_peak, worst.accept_queue_limit);
    let lasts = lasting(state, worst);
    let queue = if let Some(stands) = lasts {
        let (full, looks) = (stands.nearly_full, stands.looks);
        format!("lasting overload, queue > 80 % at {full}/{looks} looks")
    } else if peak > limit {
        format!("accept queue full, {} of {}", number::count(peak), number::count(limit))
    } else {
        format!("accept queue full between looks (limit {})", number::count(limit))
    };
    let about = if estimated { "~" } else { "" };
    let text = format!("{about}{} overflows/s at {subject}: {queue}", number::three(rate));
    let mut evidence = of_listener(state, group, worst);
    evidence.insert("overflows_per_s".into(), rounded(rate));
    if estimated {
        evidence.insert("overflows_estimated".into(), true.into());
    }
    // Requests wait half-open behind a full accept queue: their cookies and drops are no fault of their own.
    if let Some(rates) = &state.rates {
        let behind = [
            ("cookies_sent_per_s", rates.cookies_sent_per_s),
            ("syns_dropped_per_s", rates.syns_dropped_per_s),
        ];
        let behind = behind.into_iter().filter(|(_, rate)| *rate > 0.0);
        evidence.extend(behind.map(|(name, rate)| (name.to_owned(), rounded(rate))));
    }
    let remedies = vec![cure(state, worst)];
    Some(Finding {
        id: FULL.into(),
        severity: Severity::Problem,
        subject,
        text,
        evidence,
        remedies,
    })
}

/// The host counted overflows, and which listener had them cannot be told.
fn unattributed(state: &State, rate: f64) -> Finding {
    let text = format!(
        "{} overflows/s at full accept queues; the kernel does not report at which listener",
        number::three(rate)
    );
    let dropping =
        state.listeners.iter().filter(|one| one.drops_per_s.is_some_and(|rate| rate > 0.0));
    let evidence = evidence([
        ("overflows_per_s", Some(rounded(rate))),
        ("listeners_that_dropped", Some(dropping.count().into())),
        ("somaxconn", state.limits.somaxconn.map(Value::from)),
    ]);
    Finding {
        id: FULL.into(),
        severity: Severity::Problem,
        subject: UNKNOWN.into(),
        text,
        evidence,
        // A longer queue for a listener that nobody can name is no advice.
        remedies: Vec::new(),
    }
}

/// The queue passed 80 % of its limit in the last seconds, and nothing was dropped.
pub(super) fn near(state: &State) -> Vec<Finding> {
    let near = |one: &&&ListenerState| {
        is_nearly_full(one.accept_queue_recent_peak, one.accept_queue_limit)
    };
    let diagnose = |group: Group<'_>| {
        let share = |one: &&&ListenerState| {
            f64::from(one.accept_queue_recent_peak) / f64::from(one.accept_queue_limit)
        };
        let worst = group.iter().filter(near).max_by(|a, b| share(a).total_cmp(&share(b)))?;
        let subject = host_port(&worst.address, worst.port);
        let (peak, limit) = (worst.accept_queue_recent_peak, worst.accept_queue_limit);
        let filled = format!("{} of {}", number::count(peak), number::count(limit));
        let queue = if peak > limit {
            format!("{filled} in the accept queue of {subject}, which is full")
        } else {
            let share = number::percent(share(&worst));
            format!("accept queue of {subject} at {share} of its limit: {filled}")
        };
        // No look knows what was dropped before the first.
        let none = worst.drops == Some(0) && state.interval_s > 0.0 && state.at_s > 0.0;
        let text = if none {
            format!("{queue}, no drop in {}", number::duration(state.at_s))
        } else {
            queue
        };
        Some(Finding {
            id: NEAR.into(),
            severity: Severity::Warning,
            subject,
            text,
            evidence: of_listener(state, &group, worst),
            remedies: vec![cure(state, worst)],
        })
    };
    groups(state).filter_map(diagnose).collect()
}

/// A longer queue, for a burst. `listen(2)` clamps the application's backlog to `somaxconn`, so the limit says which
/// of the two is the smaller.
pub(super) fn longer(listener: &ListenerState, somaxconn: Option<u32>) -> Remedy {
    let limit = listener.accept_queue_limit;
    let wanted = longer_than(limit);
    let mut remedy = Remedy::named(FULL, "longer").with("BACKLOG", wanted);
    if somaxconn.is_some_and(|max| max >= wanted) {
        remedy = remedy.without_sysctl();
    }
    let name = listener.process.as_ref().map_or("", |process| process.name.as_str());
    let setting = backlog_setting(name, &host_port(&listener.address, listener.port), wanted);
    if let Some(line) = remedy.commands.last_mut() {
        *line = setting;
    }
    if let Some(max) = somaxconn {
        let by = if limit < max { "the application's backlog" } else { "net.core.somaxconn" };
        remedy.change += &format!(" Today {by} limits the queue to {limit} (somaxconn is {max}).");
    }
    remedy
}

/// The backlog that is proposed where this one is too short.
pub(crate) fn longer_than(limit: u32) -> u32 {
    limit.saturating_mul(2).clamp(BACKLOG_MIN, BACKLOG_MAX).max(limit)
}

/// The line of the configuration that sets the backlog, by the name of the process.
pub(crate) fn backlog_setting(name: &str, place: &str, wanted: u32) -> String {
    match name {
        "nginx" => format!("listen {place} backlog={wanted};"),
        "redis-server" | "valkey-server" => format!("tcp-backlog {wanted}"),
        "haproxy" => format!("bind {place} backlog {wanted}"),
        "apache2" | "httpd" => format!("ListenBackLog {wanted}"),
        "mariadbd" | "mysqld" => format!("back_log = {wanted}"),
        _ if name.starts_with("php-fpm") => format!("listen.backlog = {wanted}"),
        _ => format!("listen(fd, {wanted})"),
    }
}

pub(crate) const STANDING: &str = "accept-queue-standing";

/// A queue of one is a connection that came just now.
const SHORTEST_MIN: u32 = 2;
/// Time that clients wait, at least, s. A server that is busy for 0.6 of the time with connections of 0.1 s each
/// makes them wait for 0.2 s at ten looks in a row every few minutes, and for 1 s never in hours.
const WAIT_S: f64 = 1.0;
/// A longer wait needs fewer looks.
const LONG_WAIT_S: f64 = 2.0;
/// A queue that empties within this time at its pace was filled by a burst, s.
const DRAINS_S: f64 = 30.0;
/// Looks in a row with ten connections or more that need no time: at an acceptor that is busy for 0.97 of
/// the time they have a probability of 0.97^(30 × 11) = 4e-5.
const LONG_LOOKS_MIN: u32 = 30;

/// What makes a queue a standing one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stands {
    /// Each client waits this long, at least, s.
    WaitS(f64),
    /// It is long at all of these looks; how long clients wait is not known.
    Looks(u32),
}

fn stands(one: &Standing) -> Option<Stands> {
    if one.shortest < SHORTEST_MIN || one.empties_within(DRAINS_S) {
        return None;
    }
    let enough = |looks, over_s| one.looks >= looks && one.over_s >= over_s;
    let wait_s = one.wait_at_least_s().filter(|wait_s| {
        *wait_s >= WAIT_S && enough(LOOKS_MIN, OVER_MIN_S)
            || *wait_s >= LONG_WAIT_S && enough(FEW_LOOKS_MIN, FEW_OVER_MIN_S)
    });
    let long = (one.long_looks >= LONG_LOOKS_MIN).then_some(Stands::Looks(one.long_looks));
    wait_s.map(Stands::WaitS).or(long)
}

/// Clients wait in the queue at every look, and it does not empty.
pub(super) fn standing(state: &State) -> Vec<Finding> {
    groups(state).filter_map(|group| diagnose(state, &group)).collect()
}

fn diagnose(state: &State, group: &Group<'_>) -> Option<Finding> {
    let all = group.iter().filter_map(|one| {
        let queue = one.stands.as_deref()?;
        Some((one, queue, stands(queue)?))
    });
    let (worst, queue, how) = all.max_by_key(|(_, queue, _)| queue.shortest)?;
    let subject = host_port(&worst.address, worst.port);
    let clients = number::count(queue.shortest);
    let (text, severity) = match how {
        Stands::WaitS(wait_s) => (
            format!(
                "{clients} clients wait at {subject} at each look ({} in {:.0} s): ≥ {} at this rate",
                queue.looks,
                queue.over_s,
                number::duration(wait_s)
            ),
            Severity::Problem,
        ),
        Stands::Looks(looks) => (
            format!(
                "{clients} clients wait at {subject} at every look ({looks} looks): accept(2) is slow"
            ),
            Severity::Warning,
        ),
    };
    let mut evidence = of_listener(state, group, worst);
    evidence.extend(evidence_of(queue));
    Some(Finding {
        id: STANDING.into(),
        severity,
        subject,
        text,
        evidence,
        remedies: vec![faster(worst)],
    })
}

/// What the last looks say of a queue.
fn evidence_of(stands: &Standing) -> BTreeMap<String, Value> {
    evidence([
        ("looks", Some(stands.looks.into())),
        ("looks_over_s", Some(rounded(stands.over_s))),
        ("accept_queue_shortest", Some(stands.shortest.into())),
        ("accept_queue_longest", Some(stands.longest.into())),
        ("accepted_at_most", stands.accepted_at_most.map(Into::into)),
        ("wait_at_least_s", stands.wait_at_least_s().map(rounded)),
    ])
}

/// A server that accepts faster: where the overload lasts, a longer queue is no remedy.
pub(super) fn faster(listener: &ListenerState) -> Remedy {
    let remedy = Remedy::named(FULL, "faster");
    match &listener.process {
        Some(process) => remedy.with("PID", process.pid),
        None => {
            Remedy { commands: vec![format!("ss -ltnp 'sport = :{}'", listener.port)], ..remedy }
        }
    }
}

/// What cures a queue that is full, or nearly: one for an overload that lasts, one for bursts.
fn cure(state: &State, listener: &ListenerState) -> Remedy {
    match overload(state, listener) {
        Some(Overload::Lasting) => faster(listener),
        Some(_) => longer(listener, state.limits.somaxconn),
        None => Remedy::named(FULL, "either"),
    }
}

/// Looks and seconds without an empty queue from which on a queue says something.
pub(super) const LOOKS_MIN: u32 = 10;
pub(super) const OVER_MIN_S: f64 = 8.0;
/// The same where the wait is long, or where there are no more looks.
pub(super) const FEW_LOOKS_MIN: u32 = 5;
pub(super) const FEW_OVER_MIN_S: f64 = 3.5;

/// Sockets of one address and port.
pub(super) type Group<'a> = Vec<&'a ListenerState>;

pub(super) fn groups(state: &State) -> impl Iterator<Item = Group<'_>> {
    let mut groups: BTreeMap<(&str, u16), Group<'_>> = BTreeMap::new();
    for one in &state.listeners {
        groups.entry((one.address.as_str(), one.port)).or_default().push(one);
    }
    groups.into_values()
}

/// From one look to the next, at most, s.
const LOOK_S: f64 = 1.5;

/// Whether the queue overflows in bursts, or the overload lasts. None: there were too few looks to tell.
fn overload(state: &State, listener: &ListenerState) -> Option<Overload> {
    let Some(stands) = listener.stands.as_deref() else {
        return (listener.accept_queue_len == 0).then_some(Overload::Bursts);
    };
    let nearly_full_share = Some(f64::from(stands.nearly_full) / f64::from(stands.looks));
    let figures = QueueFigures { nearly_full_share, ..QueueFigures::default() };
    let kind = Overload::judge(figures)?;
    let enough = stands.looks >= FEW_LOOKS_MIN && stands.over_s >= FEW_OVER_MIN_S;
    if kind != Overload::Lasting || enough {
        return Some(kind);
    }
    // An examination that began before these looks saw the queue empty.
    let before_s = state.interval_s - stands.over_s;
    (before_s > LOOK_S && state.interval_s >= FEW_OVER_MIN_S).then_some(Overload::Bursts)
}

/// The looks at a queue whose overload lasts.
fn lasting<'l>(state: &State, listener: &'l ListenerState) -> Option<&'l Standing> {
    let lasts = overload(state, listener) == Some(Overload::Lasting);
    listener.stands.as_deref().filter(|_| lasts)
}

pub(super) fn of_listener(
    state: &State,
    group: &Group<'_>,
    worst: &ListenerState,
) -> BTreeMap<String, Value> {
    let full = group.iter().filter(|one| was_full(one));
    // As the overflows are: of all sockets. The queue is that of the worst.
    let drops_per_s: Option<f64> = group.iter().map(|one| one.drops_per_s).sum();
    let mut all = evidence([
        ("accept_queue_len", Some(worst.accept_queue_len.into())),
        ("accept_queue_recent_peak", Some(worst.accept_queue_recent_peak.into())),
        ("accept_queue_limit", Some(worst.accept_queue_limit.into())),
        ("somaxconn", state.limits.somaxconn.map(Value::from)),
        ("drops_per_s", drops_per_s.map(rounded)),
        ("deferred_per_s", worst.deferred_per_s.filter(|per_s| *per_s > 0.0).map(rounded)),
        ("deferred_at_most", worst.deferred_at_most.then(|| true.into())),
        ("process", worst.process.as_ref().map(|process| echo(&process.name).into())),
        ("pid", worst.process.as_ref().map(|process| process.pid.into())),
        ("sockets", (group.len() > 1).then(|| group.len().into())),
        ("sockets_full", (group.len() > 1).then(|| full.count().into())),
    ]);
    if let Some(kind) = overload(state, worst) {
        all.insert("overload".into(), kind.name().into());
    }
    if let Some(stands) = lasting(state, worst) {
        all.insert("looks".into(), stands.looks.into());
        all.insert("looks_nearly_full".into(), stands.nearly_full.into());
    }
    all
}

pub(crate) const SYN_FULL: &str = "syn-queue-full";
/// The kernel has no count of it for each listener.
pub(crate) const SYN_SUBJECT: &str = "SYN queues of this host";
/// `net.ipv4.tcp_syncookies`: cookies for all, full or not.
const COOKIES_ALWAYS: u32 = 2;

/// SYNs met a full queue of half-open requests in the interval.
pub(super) fn syn_full(state: &State) -> Vec<Finding> {
    let Some(rates) = &state.rates else { return Vec::new() };
    let dropped = rates.syns_dropped_per_s > 0.0;
    // With 2 a cookie is no sign of a full queue.
    let cookies = rates.cookies_sent_per_s > 0.0 && state.limits.syncookies != Some(COOKIES_ALWAYS);
    if !dropped && !cookies {
        return Vec::new();
    }
    let text = if dropped {
        format!("{} SYNs/s dropped: a SYN queue is full", number::three(rates.syns_dropped_per_s))
    } else {
        format!(
            "{} SYN cookies/s sent: a SYN queue is full; clients still connect",
            number::three(rates.cookies_sent_per_s)
        )
    };
    let longest = state.listeners.iter().max_by_key(|one| one.syn_queue_len);
    let longest = longest.filter(|one| one.syn_queue_len > Some(0));
    if is_shadow(rates, longest) {
        return Vec::new();
    }
    let evidence = evidence([
        ("syns_dropped_per_s", Some(rounded(rates.syns_dropped_per_s))),
        ("cookies_sent_per_s", Some(rounded(rates.cookies_sent_per_s))),
        ("tcp_syncookies", state.limits.syncookies.map(Into::into)),
        ("tcp_max_syn_backlog", state.limits.max_syn_backlog.map(Into::into)),
        ("longest_syn_queue", longest.and_then(|one| one.syn_queue_len).map(Into::into)),
        ("longest_syn_queue_of", longest.map(|one| subject(one).into())),
    ]);
    vec![Finding {
        id: SYN_FULL.into(),
        severity: Severity::harming(dropped),
        subject: SYN_SUBJECT.into(),
        text,
        evidence,
        remedies: vec![syn_fix(state, longest.or_else(|| overflowing(state)))],
    }]
}

/// Whether half-open requests wait because the accept queue behind them is full: as many as met it, and no more.
fn is_shadow(rates: &Rates, longest: Option<&ListenerState>) -> bool {
    let here = longest.is_none_or(|one| one.overflows_per_s.is_some_and(|rate| rate > 0.0));
    here && rates.syns_dropped_per_s + rates.cookies_sent_per_s <= rates.overflows_per_s
}

/// The only listener whose accept queue overflows. Its backlog limits its SYN queue too, and the table of
/// half-open requests may be some seconds old.
fn overflowing(state: &State) -> Option<&ListenerState> {
    let overflows = |one: &&ListenerState| one.overflows_per_s.is_some_and(|rate| rate > 0.0);
    let mut found = state.listeners.iter().filter(overflows);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

fn syn_fix(state: &State, longest: Option<&ListenerState>) -> Remedy {
    if state.limits.syncookies == Some(0) {
        return Remedy::named(SYN_FULL, "cookies");
    }
    let remedy = Remedy::named(SYN_FULL, "longer");
    let somaxconn = state.limits.somaxconn;
    // The same limit holds for both queues.
    let commands = if let Some(listener) = longest {
        longer(listener, somaxconn).commands
    } else {
        // Where a backlog is below somaxconn, that need not be the limit.
        let below = |max: &u32| state.listeners.iter().any(|one| one.accept_queue_limit < *max);
        let wanted = somaxconn.filter(below).unwrap_or_else(|| longer_than(somaxconn.unwrap_or(0)));
        let raise =
            (Some(wanted) != somaxconn).then(|| format!("sysctl -w net.core.somaxconn={wanted}"));
        raise.into_iter().chain([format!("listen(fd, {wanted})")]).collect()
    };
    Remedy { commands, ..remedy }
}
