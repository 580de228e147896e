//! A listener's accept queue that overflows, or is about to.

use serde_json::Value;

use super::queues::{Group, groups, lasted, lasting, of_listener};
use super::standing_queue::faster;
use super::{evidence, per_s, place, rounded};
use crate::diagnosis::{Diagnosis, Fix, Severity};
use crate::watch::standing::is_nearly_full;
use crate::watch::state::{ListenerState, State};
use tcptoll_core::units::human_count;

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
pub(super) fn full(state: &State) -> Vec<Diagnosis> {
    let mut found: Vec<Diagnosis> =
        groups(state).filter_map(|group| overflowed(state, &group)).collect();
    let Some(rates) = &state.rates else { return found };
    let attributed: f64 = state.listeners.iter().filter_map(|one| one.overflows_per_s).sum();
    // The host's counters are read a little later than those of the listeners.
    let late = 2.0 / state.interval_s.max(1e-3) + 0.05 * rates.overflows_per_s;
    let rest = rates.overflows_per_s - attributed;
    if rest > 0.0 && (found.is_empty() || rest > late) {
        found.push(unattributed(state, rest));
    }
    found
}

fn overflowed(state: &State, group: &Group<'_>) -> Option<Diagnosis> {
    let hit = |one: &&&ListenerState| one.overflows_per_s.is_some_and(|rate| rate > 0.0);
    let rate: f64 = group.iter().filter(hit).filter_map(|one| one.overflows_per_s).sum();
    let by_rate = |a: &&&ListenerState, b: &&&ListenerState| {
        a.overflows_per_s.unwrap_or(0.0).total_cmp(&b.overflows_per_s.unwrap_or(0.0))
    };
    let worst = group.iter().filter(hit).max_by(by_rate)?;
    let subject = place(&worst.address, worst.port);
    let estimated = group.iter().filter(hit).any(|one| one.overflows_estimated);
    let (peak, limit) = (worst.accept_queue_recent_peak, worst.accept_queue_limit);
    let lasts = lasting(state, worst);
    let queue = if let Some(stands) = lasts {
        let (full, looks) = (stands.nearly_full, stands.looks);
        format!("lasting overload, queue > 80 % at {full}/{looks} looks")
    } else if peak > limit {
        format!("accept queue full, {} of {}", human_count(peak.into()), human_count(limit.into()))
    } else {
        format!("accept queue full between looks (limit {})", human_count(limit.into()))
    };
    let about = if estimated { "~" } else { "" };
    let text = format!("{about}{} overflows/s at {subject}: {queue}", per_s(rate));
    let mut evidence = of_listener(state, group, worst);
    evidence.insert("overflows_per_s".into(), rounded(rate));
    if estimated {
        evidence.insert("overflows_estimated".into(), true.into());
    }
    let fix = Some(if lasts.is_some() { faster(worst) } else { for_bursts(worst, state) });
    Some(Diagnosis { id: FULL.into(), severity: Severity::Problem, subject, text, evidence, fix })
}

/// The host counted overflows, and which listener had them cannot be told.
fn unattributed(state: &State, rate: f64) -> Diagnosis {
    let text = format!(
        "{} overflows/s at full accept queues; the kernel does not report at which listener",
        per_s(rate)
    );
    let dropping =
        state.listeners.iter().filter(|one| one.drops_per_s.is_some_and(|rate| rate > 0.0));
    let evidence = evidence([
        ("overflows_per_s", Some(rounded(rate))),
        ("listeners_that_dropped", Some(dropping.count().into())),
        ("somaxconn", state.limits.somaxconn.map(Value::from)),
    ]);
    Diagnosis {
        id: FULL.into(),
        severity: Severity::Problem,
        subject: UNKNOWN.into(),
        text,
        evidence,
        // A longer queue for a listener that nobody can name is no advice.
        fix: None,
    }
}

/// The queue passed 80 % of its limit in the last seconds, and nothing was dropped.
pub(super) fn near(state: &State) -> Vec<Diagnosis> {
    let near = |one: &&&ListenerState| {
        is_nearly_full(one.accept_queue_recent_peak, one.accept_queue_limit)
    };
    let diagnose = |group: Group<'_>| {
        let share = |one: &&&ListenerState| {
            f64::from(one.accept_queue_recent_peak) / f64::from(one.accept_queue_limit)
        };
        let worst = group.iter().filter(near).max_by(|a, b| share(a).total_cmp(&share(b)))?;
        let subject = place(&worst.address, worst.port);
        let (peak, limit) = (worst.accept_queue_recent_peak, worst.accept_queue_limit);
        let filled = format!("{} of {}", human_count(peak.into()), human_count(limit.into()));
        let queue = if peak > limit {
            format!("{filled} in the accept queue of {subject}, which is full")
        } else {
            let share = 100.0 * share(&worst);
            format!("accept queue of {subject} at {share:.0} % of its limit: {filled}")
        };
        // No look knows what was dropped before the first.
        let none = worst.drops == Some(0) && state.interval_s > 0.0 && state.at_s > 0.0;
        let text = if none { format!("{queue}, no drop in {}", lasted(state.at_s)) } else { queue };
        let lasts = lasting(state, worst).is_some();
        Some(Diagnosis {
            id: NEAR.into(),
            severity: Severity::Warning,
            subject,
            text,
            evidence: of_listener(state, &group, worst),
            fix: Some(if lasts { faster(worst) } else { for_bursts(worst, state) }),
        })
    };
    groups(state).filter_map(diagnose).collect()
}

/// What becomes of a burst's remedy where the overload lasts.
pub(crate) const OR_FASTER: &str = "If the queue stays full, accept faster instead.";

/// A longer queue, for a burst.
fn for_bursts(listener: &ListenerState, state: &State) -> Fix {
    let longer = longer(listener, state.limits.somaxconn);
    Fix { change: format!("{} {OR_FASTER}", longer.change), ..longer }
}

/// A longer queue. `listen(2)` clamps the application's backlog to `somaxconn`, so the limit says which
/// of the two is the smaller.
pub(super) fn longer(listener: &ListenerState, somaxconn: Option<u32>) -> Fix {
    let limit = listener.accept_queue_limit;
    let wanted = longer_than(limit);
    let by_application = somaxconn.is_some_and(|max| limit < max);
    let name = listener.process.as_ref().map_or("", |process| process.name.as_str());
    let setting = backlog_setting(name, &place(&listener.address, listener.port), wanted);
    let mut commands = Vec::new();
    let mut undo = format!("Set the former backlog (the limit was {limit})");
    if somaxconn.is_none_or(|max| max < wanted) {
        commands.push(format!("sysctl -w net.core.somaxconn={wanted}"));
        if let Some(max) = somaxconn {
            undo = format!("sysctl -w net.core.somaxconn={max}; set the former backlog");
        }
    }
    commands.push(setting);
    let change = match somaxconn {
        Some(max) if by_application => format!(
            "Raise the application's backlog, which limits the queue to {limit} (somaxconn is {max}), and restart it."
        ),
        Some(max) if limit == max => format!(
            "Raise net.core.somaxconn, which limits the queue to {max}, and the application's backlog; restart it."
        ),
        _ => "Raise net.core.somaxconn and the application's backlog, and restart it.".to_owned(),
    };
    let held = human_count(u64::from(wanted) + 1);
    Fix {
        change,
        commands,
        effect: format!("The queue holds {held} connections: a burst of that size is no longer dropped."),
        risk: "A server that accepts too slowly fills any queue, and clients wait longer. A waiting connection \
               takes about 2.7 kB."
            .to_owned(),
        undo: format!("{undo}, and restart the application."),
    }
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
