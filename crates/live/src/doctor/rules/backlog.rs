//! A configured backlog that the kernel does not grant.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::{Machine, Program, ServerConfig, Sourced};
use super::servers::{at_text, is_chosen, known, restart, sockets};
use super::{BACKLOG_NOT_IN_EFFECT, BACKLOG_OVER_SOMAXCONN};
use crate::diagnosis::{Diagnosis, Fix, Severity};
use crate::watch::diagnoses::{evidence, place};
use tcptoll_core::units::human_count;

/// A configured address, next to its socket in the kernel.
struct Granted<'m> {
    server: &'m ServerConfig,
    asked: &'m Sourced<u64>,
    /// Whether somebody wrote the backlog down.
    chosen: bool,
    /// Address and port of the socket with the shortest limit.
    on: String,
    limit: u64,
    peak: u64,
    somaxconn: u64,
}

/// Each configured backlog whose socket was found.
fn granted(machine: &Machine) -> Vec<Granted<'_>> {
    let somaxconn = machine.number("net.core.somaxconn");
    let Some(somaxconn) = somaxconn.or(machine.state.limits.somaxconn.map(Into::into)) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for server in known(machine) {
        for listen in &server.listens {
            let sockets = sockets(machine, server, listen);
            let least = sockets.iter().min_by_key(|one| one.accept_queue_limit);
            let (Some(asked), Some(least)) = (&listen.backlog, least) else { continue };
            let peak = sockets.iter().map(|one| one.accept_queue_peak).max().unwrap_or(0);
            all.push(Granted {
                server,
                asked,
                chosen: is_chosen(server, listen),
                on: place(&least.address, least.port),
                limit: least.accept_queue_limit.into(),
                peak: peak.into(),
                somaxconn,
            });
        }
    }
    all
}

/// A backlog above `somaxconn`: `listen(2)` clamps it without an error.
pub(super) fn over_somaxconn(machine: &Machine) -> Vec<Diagnosis> {
    let exceeds = |one: &Granted<'_>| {
        // A default that is clamped harms nobody until the queue fills.
        let matters = one.chosen || one.peak * 2 > one.limit;
        one.asked.value > one.somaxconn && one.limit < one.asked.value && matters
    };
    by_setting(granted(machine).into_iter().filter(exceeds), |first, on| {
        let Granted { server, asked, limit, somaxconn, .. } = first;
        let text = format!(
            "{} asks for a backlog of {}; somaxconn {} clamps it to {}",
            server.program.name(),
            human_count(asked.value),
            human_count(*somaxconn),
            human_count(*limit)
        );
        let fix = Fix {
            change: format!(
                "Raise net.core.somaxconn to the configured backlog, then restart {}.",
                server.program.name()
            ),
            commands: vec![
                format!("sysctl -w net.core.somaxconn={}", asked.value),
                restart(server),
            ],
            effect: format!(
                "The accept queue holds {} connections, as configured.",
                human_count(asked.value.saturating_add(1))
            ),
            risk: "The restart closes open connections. A waiting connection takes about 2.7 kB. The sysctl lasts \
                   until the next boot; a file in /etc/sysctl.d/ makes it stay."
                .to_owned(),
            undo: format!("sysctl -w net.core.somaxconn={somaxconn}, and restart again."),
        };
        diagnosis(BACKLOG_OVER_SOMAXCONN, text, first, on, fix)
    })
}

/// A backlog that `somaxconn` allows and the socket does not have: the server called `listen(2)` before
/// one of the two was changed.
pub(super) fn not_in_effect(machine: &Machine) -> Vec<Diagnosis> {
    let lacks = |one: &Granted<'_>| {
        one.chosen && one.asked.value <= one.somaxconn && one.limit < one.asked.value
    };
    by_setting(granted(machine).into_iter().filter(lacks), |first, on| {
        let Granted { server, asked, limit, .. } = first;
        let program = server.program.name();
        let text = format!(
            "{program} has a backlog of {} configured; its socket still has {}",
            human_count(asked.value),
            human_count(*limit)
        );
        let nginx = server.program == Program::Nginx;
        let fix = Fix {
            change: format!("Restart {program}: listen(2) was called before the change."),
            commands: vec![restart(server)],
            effect: format!(
                "The accept queue holds {} connections, as configured.",
                human_count(asked.value.saturating_add(1))
            ),
            risk: if nginx {
                "The restart closes open connections. A reload is enough where only the backlog was changed, not \
                 somaxconn."
            } else {
                "The restart closes open connections."
            }
            .to_owned(),
            undo: format!("Set the former backlog ({limit}), and restart again."),
        };
        diagnosis(BACKLOG_NOT_IN_EFFECT, text, first, on, fix)
    })
}

/// One diagnosis for each line of a configuration: it may be about several addresses.
fn by_setting<'m>(
    all: impl Iterator<Item = Granted<'m>>,
    say: impl Fn(&Granted<'m>, &[String]) -> Diagnosis,
) -> Vec<Diagnosis> {
    let mut groups: BTreeMap<(String, u32), Vec<Granted<'m>>> = BTreeMap::new();
    for one in all {
        groups.entry((at_text(one.asked), one.server.pid)).or_default().push(one);
    }
    let said = |mut group: Vec<Granted<'m>>| {
        group.sort_by(|a, b| (a.limit, &a.on).cmp(&(b.limit, &b.on)));
        let on: Vec<String> = group.iter().take(16).map(|one| one.on.clone()).collect();
        group.first().map(|first| say(first, &on))
    };
    groups.into_values().filter_map(said).collect()
}

fn diagnosis(id: &str, text: String, granted: &Granted<'_>, on: &[String], fix: Fix) -> Diagnosis {
    let evidence = evidence([
        ("backlog", Some(granted.asked.value.into())),
        ("configured_at", Some(at_text(granted.asked).into())),
        ("accept_queue_limit", Some(granted.limit.into())),
        ("accept_queue_peak", Some(granted.peak.into())),
        ("somaxconn", Some(granted.somaxconn.into())),
        ("listeners", Some(Value::from(on.to_vec()))),
        ("program", Some(granted.server.program.name().into())),
        ("pid", Some(granted.server.pid.into())),
    ]);
    // A default stands nowhere: then it is about the listener.
    let subject =
        if granted.asked.at.line.is_some() { at_text(granted.asked) } else { granted.on.clone() };
    Diagnosis {
        id: id.into(),
        severity: Severity::Warning,
        subject,
        text,
        evidence,
        fix: Some(fix),
    }
}
