//! A SYN queue that is full: SYNs are dropped, or answered with cookies.

use super::{accept_queue, evidence, per_s, rounded, sysctl};
use crate::diagnosis::{Diagnosis, Fix};
use crate::watch::state::{ListenerState, State};

pub(crate) const FULL: &str = "syn-queue-full";
/// The kernel has no count of it for each listener.
pub(crate) const SUBJECT: &str = "SYN queues of this host";
/// `net.ipv4.tcp_syncookies`: cookies for all, full or not.
const ALWAYS: u32 = 2;
const FLOOD: &str = "If SYNs come from addresses that never answer, it is a SYN flood, and cookies are the right \
                     answer.";

/// SYNs met a full queue of half-open requests in the interval.
pub(super) fn full(state: &State) -> Vec<Diagnosis> {
    let Some(rates) = &state.rates else { return Vec::new() };
    let dropped = rates.syns_dropped_per_s > 0.0;
    // With 2 a cookie is no sign of a full queue.
    let cookies = rates.cookies_sent_per_s > 0.0 && state.limits.syncookies != Some(ALWAYS);
    if !dropped && !cookies {
        return Vec::new();
    }
    let text = if dropped {
        format!("{} SYNs/s dropped: a SYN queue is full", per_s(rates.syns_dropped_per_s))
    } else {
        format!(
            "{} SYN cookies/s sent: a SYN queue is full; clients still connect",
            per_s(rates.cookies_sent_per_s)
        )
    };
    let longest = state.listeners.iter().max_by_key(|one| one.syn_queue_len);
    let longest = longest.filter(|one| one.syn_queue_len > Some(0));
    let evidence = evidence([
        ("syns_dropped_per_s", Some(rounded(rates.syns_dropped_per_s))),
        ("cookies_sent_per_s", Some(rounded(rates.cookies_sent_per_s))),
        ("tcp_syncookies", state.limits.syncookies.map(Into::into)),
        ("tcp_max_syn_backlog", state.limits.max_syn_backlog.map(Into::into)),
        ("longest_syn_queue", longest.and_then(|one| one.syn_queue_len).map(Into::into)),
        ("longest_syn_queue_of", longest.map(|one| super::subject(one).into())),
    ]);
    vec![Diagnosis {
        id: FULL.into(),
        severity: super::severity(dropped),
        subject: SUBJECT.into(),
        text,
        evidence,
        fix: Some(fix(state, longest.or_else(|| overflowing(state)))),
    }]
}

/// The only listener whose accept queue overflows. Its backlog limits its SYN queue too, and the table of
/// half-open requests may be some seconds old.
fn overflowing(state: &State) -> Option<&ListenerState> {
    let overflows = |one: &&ListenerState| one.overflows_per_s.is_some_and(|rate| rate > 0.0);
    let mut found = state.listeners.iter().filter(overflows);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

fn fix(state: &State, longest: Option<&ListenerState>) -> Fix {
    if state.limits.syncookies == Some(0) {
        return sysctl(
            "net.ipv4.tcp_syncookies",
            0,
            1,
            "Turn SYN cookies on.".to_owned(),
            "A SYN that meets a full queue is answered, and the client connects.",
            "Without TCP timestamps, a connection opened by a cookie has no SACK and no window scaling.",
        );
    }
    let somaxconn = state.limits.somaxconn;
    let effect = "More half-open requests fit, and fewer cookies are sent.".to_owned();
    let risk = "A half-open request takes about 300 bytes; a SYN flood fills any queue.".to_owned();
    if let Some(listener) = longest {
        // The same limit holds for both queues.
        let longer = accept_queue::longer(listener, somaxconn);
        return Fix { change: format!("{} {FLOOD}", longer.change), effect, risk, ..longer };
    }
    // Where a backlog is below somaxconn, somaxconn need not be the limit.
    let below = |max: &u32| state.listeners.iter().any(|one| one.accept_queue_limit < *max);
    if let Some(max) = somaxconn.filter(below) {
        return Fix {
            change: format!(
                "Raise the backlog of the listener whose SYN queue is full: it limits half-open requests. {FLOOD}"
            ),
            commands: vec![format!("listen(fd, {max})")],
            effect,
            risk,
            undo: "Set the former backlog, and restart the application.".to_owned(),
        };
    }
    let wanted = somaxconn.map_or(4_096, |max| max.saturating_mul(2).clamp(4_096, 65_535).max(max));
    Fix {
        change: format!(
            "Raise the backlog of the listener and net.core.somaxconn: they limit half-open requests. {FLOOD}"
        ),
        commands: vec![
            format!("sysctl -w net.core.somaxconn={wanted}"),
            format!("listen(fd, {wanted})"),
        ],
        effect,
        risk,
        undo: match somaxconn {
            Some(max) => {
                format!("sysctl -w net.core.somaxconn={max}; set the former backlog, and restart.")
            }
            None => "Set the former net.core.somaxconn and backlog, and restart.".to_owned(),
        },
    }
}
