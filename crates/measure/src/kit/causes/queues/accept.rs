//! A full accept queue: which listener, how often, which packets were dropped, what clients were
//! told.

use serde_json::Value;

use super::overflow::{Overflow, hit_by};
use super::{evidence_of, felt, listening};
use tcptoll_core::experiment::spec::Finding;
use tcptoll_core::record::{Arm, Listener, ListenerQueue, Queues, RetryLadder};
use tcptoll_core::units::{human_count, human_share, human_us, plural};

/// Counters that tell the shapes of an overflow apart.
const COUNTERS: &[&str] = &[
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtSyncookiesSent",
    "TcpExtSyncookiesRecv",
    "TcpExtTCPReqQFullDoCookies",
    "TcpExtTCPReqQFullDrop",
];

/// The accept queue of a listener was full, and connections felt it.
pub(super) fn accept_queue_full(arm: &Arm) -> Option<Finding> {
    let host = listening(arm)?;
    let full = host.listeners.iter().find(|listener| {
        // listen(n) holds n + 1.
        listener.accept_queue_peak > listener.accept_queue_limit
    });
    // On a machine of the user's the counters are those of all listeners: its own row must show it, too.
    let own_row = || {
        let mut observed = arm.own.queues.iter().flat_map(|queues| &queues.listeners);
        // It is looked at now and then, and may have been longer in between.
        let near = |one: &Listener| one.accept_queue_peak >= one.accept_queue_limit.max(1);
        host.listeners.iter().any(near) || observed.any(|one| one.was_full() || one.drops > Some(0))
    };
    let waited = || {
        let (late, silent, _) = felt(arm);
        late > 0 || silent > 0 || arm.errors.contains_key("connect-timeout")
    };
    // It may have been full for a moment: without an overflow nobody was turned away.
    let turned_away = match host.counter("TcpExtListenOverflows") {
        Some(0) => false,
        Some(_) if arm.server.is_some() && host.background.is_none() => true,
        // Beside a server on this machine others overflow too.
        Some(_) if host.background.is_none() => own_row() || waited(),
        Some(_) | None => own_row() && waited(),
    };
    if !turned_away {
        return None;
    }
    let mut finding = match arm.own.queues.as_deref() {
        Some(queues) if !queues.listeners.is_empty() => observed(arm, queues),
        _ => counted(arm, full, host.listeners.first()),
    };
    finding.evidence.append(&mut evidence_of(arm, COUNTERS));
    Some(finding)
}

/// From counters and latencies alone: of loads that do not look at queues over time, and of records
/// before there were any that do.
fn counted(arm: &Arm, full: Option<&Listener>, first: Option<&Listener>) -> Finding {
    let (late, silent, ladder) = felt(arm);
    let gave_up = arm.errors.get("connect-timeout").copied().unwrap_or(0);
    let mut evidence = std::collections::BTreeMap::<String, Value>::new();
    if let Some(full) = full {
        evidence.insert("accept_queue_peak".into(), full.accept_queue_peak.into());
        evidence.insert("accept_queue_limit".into(), full.accept_queue_limit.into());
    }
    let mut text = match first.map(|listener| listener.accept_queue_limit) {
        Some(limit) => format!("The accept queue (backlog {limit}) was full."),
        None => "The accept queue was full.".to_owned(),
    };
    if late > 0 {
        evidence.insert("handshakes_on_the_ladder".into(), late.into());
        text += &format!(
            " The server dropped SYNs, and {} waited for a retransmitted SYN ({}).",
            plural(late, "handshake"),
            ladder.join(", ")
        );
    }
    if silent > 0 {
        evidence.insert("never_answered".into(), silent.into());
        text += &format!(
            " {} connections were established for the client but never got a byte, because the server had dropped their last ACK.",
            human_count(silent)
        );
    }
    if gave_up > 0 {
        evidence.insert("gave_up_connecting".into(), gave_up.into());
        text += &format!(" {} connection attempts timed out.", human_count(gave_up));
    }
    Finding { text, evidence }
}

/// The listener that overflowed: of those that were full or dropped something the one with the most
/// drops; without any the first, which is the measured one.
pub(crate) fn overflowed(queues: &Queues) -> Option<&ListenerQueue> {
    let dropped = |listener: &&ListenerQueue| listener.drops.unwrap_or(0);
    let hit = |listener: &&ListenerQueue| listener.was_full() || dropped(listener) > 0;
    // Of equal ones the first: `max_by_key` takes the last.
    queues.listeners.iter().rev().filter(hit).max_by_key(dropped).or(queues.listeners.first())
}

/// `10.77.0.2:80`, `[fd77::2]:80`.
pub(crate) fn place(listener: &ListenerQueue) -> String {
    let ListenerQueue { address, port, .. } = listener;
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// From the queue over time, the drops of each listener, and the outcome of each connection.
fn observed(arm: &Arm, queues: &Queues) -> Finding {
    let Some(listener) = overflowed(queues) else { return counted(arm, None, None) };
    let mut evidence = std::collections::BTreeMap::<String, Value>::new();
    let mut note = |name: &str, value: Value| evidence.insert(name.to_owned(), value);
    note("listener", place(listener).into());
    note("accept_queue_peak", listener.peak.into());
    note("accept_queue_limit", listener.limit.into());
    let (late, silent, _) = felt(arm);
    note("handshakes_on_the_ladder", late.into());
    note("never_answered", silent.into());
    let mut text = vec![queue(listener)];
    if queues.listeners.len() > 1 {
        let others = queues.listeners.iter().filter(|other| !std::ptr::eq(*other, listener));
        let others: Option<u64> = others.map(|other| other.drops).sum();
        if let (Some(drops), Some(others)) = (listener.drops, others) {
            note("listener_drops", drops.into());
            note("drops_of_other_listeners", others.into());
            let at_most = queues.listeners.iter().any(|listener| listener.drops_at_most);
            note("drops_at_most", at_most.into());
            text.push(attributed(queues.listeners.len(), drops, others, at_most));
        }
    }
    if let Some(share) = listener.full_share() {
        note("full_share", share.into());
    }
    if let Some(share) = listener.dropping_share() {
        note("dropping_share", share.into());
    }
    if let (Some(overflow), Some(hit)) = (Overflow::judge(arm, listener), hit_by(arm)) {
        note("overflow", overflow.name().into());
        note("delayed_or_failed", hit.into());
        text.push(severity(overflow, hit, arm.attempts, listener));
    }
    if let Some(drops) = &queues.drops {
        note("syns_dropped", drops.syns_dropped.into());
        note("last_acks_dropped", drops.acks_dropped.into());
        note("cookie_acks_refused", drops.cookie_acks_refused.into());
        note("resets_sent", drops.resets_sent.into());
    }
    text.extend(dropped(queues));
    text.extend(told(arm, queues));
    Finding { text: text.join(" "), evidence }
}

fn queue(listener: &ListenerQueue) -> String {
    let held = human_count(u64::from(listener.limit) + 1);
    let full = match listener.full_share() {
        Some(share) if listener.full_samples > 0 => {
            format!("was full in {} of the samples", human_share(share))
        }
        _ if listener.was_full() => "was full".to_owned(),
        _ => format!("overflowed between two samples (longest sampled: {})", listener.peak),
    };
    format!(
        "The accept queue of {} (limit {}, holds {held}) {full}.",
        place(listener),
        listener.limit
    )
}

fn attributed(listeners: usize, drops: u64, others: u64, at_most: bool) -> String {
    let bound = if at_most { "at most " } else { "" };
    match others {
        0 => format!(
            "Of {listeners} listeners, only this one dropped packets ({}).",
            human_count(drops)
        ),
        others => format!(
            "It dropped {bound}{} packets, and the other {} listeners {bound}{}.",
            human_count(drops),
            listeners - 1,
            human_count(others)
        ),
    }
}

fn severity(overflow: Overflow, hit: u64, attempts: u64, listener: &ListenerQueue) -> String {
    let how = match overflow {
        Overflow::Rare => "The overflow was rare and may be tolerated",
        Overflow::Bursts => "It overflowed in bursts",
        Overflow::Lasting => "The overflow lasted",
    };
    let share = if attempts > 0 { hit as f64 / attempts as f64 } else { 0.0 };
    let slices = match listener.slices {
        0 => String::new(),
        all => format!(
            ", and packets were dropped in {} of {} slices of 100 ms",
            human_count(listener.dropping_slices),
            human_count(all)
        ),
    };
    format!(
        "{how}: {} of {} connections ({}) were delayed or failed{slices}.",
        human_count(hit),
        human_count(attempts),
        human_share(share)
    )
}

/// `246 at 1 s, 3 at 2 s`; empty where nobody waited.
fn steps(ladder: &RetryLadder) -> String {
    let steps = ladder.at_s.iter().zip(&ladder.connections).filter(|(_, count)| **count > 0);
    let steps = steps.map(|(at, count)| format!("{} at {at} s", human_count(*count)));
    steps.collect::<Vec<_>>().join(", ")
}

/// Which packets were dropped, and whose ladder brought the connections on.
fn dropped(queues: &Queues) -> Option<String> {
    let drops = queues.drops.as_ref()?;
    let with = |what: String, who: &str, ladder: &RetryLadder| match steps(ladder).as_str() {
        "" => what,
        steps => format!("{what} (connected after a retransmitted {who}: {steps})"),
    };
    let mut parts = Vec::new();
    if drops.syns_dropped > 0 {
        let what = format!("{} SYNs", human_count(drops.syns_dropped));
        parts.push(with(what, "SYN", &queues.syn_ladder));
    }
    if drops.acks_dropped > 0 {
        let what = format!("{} last ACKs", human_count(drops.acks_dropped));
        parts.push(with(what, "SYN-ACK", &queues.syn_ack_ladder));
    }
    let mut text = match parts.as_slice() {
        [] => Vec::new(),
        parts => vec![format!("The server dropped {}.", parts.join(" and "))],
    };
    if drops.cookie_acks_refused > 0 {
        text.push(format!(
            "It silently dropped {} ACKs of SYN cookies.",
            human_count(drops.cookie_acks_refused)
        ));
    }
    (!text.is_empty()).then(|| text.join(" "))
}

/// What became of the connections that failed, and after how long.
fn told(arm: &Arm, queues: &Queues) -> Option<String> {
    let after = |class: &str| {
        let outcome = queues.outcomes.get(class).filter(|outcome| outcome.count > 0)?;
        Some((human_count(outcome.count), human_us(outcome.p50_us)))
    };
    let mut text = Vec::new();
    if let Some((count, us)) = after("reset") {
        text.push(format!("{count} connections were reset after {us} (median)"));
    }
    if let Some((count, us)) = after("timeout") {
        text.push(format!(
            "{count} clients connected, but received no first byte and timed out after {us}"
        ));
    }
    if let Some((count, us)) = after("connect-timeout") {
        text.push(format!("{count} clients could not connect and timed out after {us}"));
    }
    if text.is_empty() {
        let failed = arm.ok < arm.attempts;
        return (!failed && arm.ok > 0)
            .then(|| "All connections were served in the end.".to_owned());
    }
    Some(text.join(". ") + ".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::causes;
    use crate::kit::causes::queues::ACCEPT_QUEUE_FULL;
    use tcptoll_core::record::{DropBalance, HostSummary, Outcome};

    fn listener(port: u16, drops: u64) -> ListenerQueue {
        ListenerQueue {
            address: "10.77.0.2".into(),
            port,
            limit: 128,
            peak: if drops > 0 { 129 } else { 1 },
            drops: Some(drops),
            samples: 1_000,
            full_samples: if drops > 0 { 60 } else { 0 },
            slices: 12,
            dropping_slices: u64::from(drops > 0),
            ..ListenerQueue::default()
        }
    }

    /// 500 connections, of which 246 waited for a second SYN.
    fn arm() -> Arm {
        let queues = Queues {
            listeners: vec![listener(80, 246), listener(81, 0), listener(82, 0)],
            syn_ladder: RetryLadder { at_s: vec![1.0, 2.0], connections: vec![246, 0], off: 0 },
            drops: Some(DropBalance { syns_dropped: 246, ..DropBalance::default() }),
            ..Queues::default()
        };
        Arm {
            name: "a".into(),
            attempts: 500,
            ok: 500,
            syn_retry_ladder_s: vec![1.0, 2.0],
            rungs: vec![246, 0],
            server: Some(HostSummary {
                counters: [("TcpExtListenOverflows".to_owned(), 246)].into(),
                ..HostSummary::default()
            }),
            own: Box::new(queues).into(),
            ..Arm::default()
        }
    }

    fn queues(arm: &mut Arm) -> &mut Queues {
        arm.own.queues.as_deref_mut().unwrap()
    }

    fn text(arm: &Arm) -> String {
        accept_queue_full(arm).unwrap().text
    }

    #[test]
    fn on_a_machine_of_the_users_the_listeners_own_row_must_show_it() {
        use tcptoll_core::record::Background;
        let there = |left_out: &[&str], with_row: bool| {
            let mut arm = arm();
            let left_out = left_out.iter().map(|name| (*name).to_owned()).collect();
            let background = Background { left_out, ..Background::default() };
            let host = arm.server.as_mut().unwrap();
            if !background.left_out.is_empty() {
                host.counters.clear();
            }
            host.background = Some(Box::new(background));
            if !with_row {
                queues(&mut arm).listeners = vec![listener(80, 0)];
            }
            accept_queue_full(&arm).is_some()
        };
        assert!(there(&[], true));
        // Another listener of that machine overflowed.
        assert!(!there(&[], false));
        // Others move the counter, and the connections of the load waited.
        assert!(there(&["TcpExtListenOverflows"], true));
        assert!(!there(&["TcpExtListenOverflows"], false));
    }

    #[test]
    fn a_burst_states_its_listener_its_drops_and_the_steps() {
        let found = accept_queue_full(&arm()).unwrap();
        assert_eq!(
            found.text,
            "The accept queue of 10.77.0.2:80 (limit 128, holds 129) was full in 6 % of the \
             samples. Of 3 listeners, only this one dropped packets (246). It overflowed in bursts: \
             246 of 500 connections (49.2 %) were delayed or failed, and packets were dropped in 1 \
             of 12 slices of 100 ms. The server dropped 246 SYNs (connected after a retransmitted SYN: \
             246 at 1 s). All connections were served in the end."
        );
        assert_eq!(found.evidence["overflow"], "bursts");
        assert_eq!(found.evidence["listener"], "10.77.0.2:80");
        assert_eq!(found.evidence["drops_of_other_listeners"], 0);
        assert_eq!(found.evidence["TcpExtListenOverflows"], 246);
    }

    #[test]
    fn of_several_listeners_the_one_with_the_most_drops_is_named_wherever_it_stands() {
        let mut arm = arm();
        queues(&mut arm).listeners = vec![listener(80, 0), listener(81, 246), listener(82, 3)];
        let said = text(&arm);
        assert!(said.starts_with("The accept queue of 10.77.0.2:81"), "{said}");
        assert!(said.contains("It dropped 246 packets, and the other 2 listeners 3."), "{said}");
        queues(&mut arm).listeners[1].address = "fd77::2".into();
        assert!(text(&arm).contains("of [fd77::2]:81 "));
    }

    #[test]
    fn a_rare_overflow_says_that_it_may_be_tolerated_and_a_lasting_one_does_not() {
        let mut rare = Arm { attempts: 100_000, ok: 100_000, rungs: vec![90, 0], ..arm() };
        queues(&mut rare).syn_ladder.connections = vec![90, 0];
        queues(&mut rare).listeners.truncate(1);
        queues(&mut rare).listeners[0].full_samples = 10;
        let said = text(&rare);
        assert!(
            said.contains("rare and may be tolerated: 90 of 100,000 connections (0.09 %)"),
            "{said}"
        );
        let mut lasting = arm();
        queues(&mut lasting).listeners[0].full_samples = 900;
        queues(&mut lasting).listeners[0].dropping_slices = 11;
        let said = text(&lasting);
        assert!(said.contains("The overflow lasted: 246 of 500"), "{said}");
    }

    #[test]
    fn syns_last_acks_refused_cookies_and_resets_are_apart() {
        let mut arm = Arm { ok: 420, ..arm() };
        let outcome = |count, p50_us| Outcome { count, p50_us, ..Outcome::default() };
        let all = queues(&mut arm);
        all.syn_ack_ladder = RetryLadder { at_s: vec![1.0, 3.0], connections: vec![0, 12], off: 0 };
        all.drops = Some(DropBalance {
            syns_dropped: 246,
            acks_dropped: 40,
            cookie_acks_refused: 7,
            resets_sent: 30,
            ..DropBalance::default()
        });
        all.outcomes = [
            ("ok".to_owned(), outcome(420, 900.0)),
            ("reset".to_owned(), outcome(30, 1_200.0)),
            ("timeout".to_owned(), outcome(50, 10e6)),
        ]
        .into();
        let said = text(&arm);
        assert!(
            said.contains("40 last ACKs (connected after a retransmitted SYN-ACK: 12 at 3 s)."),
            "{said}"
        );
        assert!(said.contains("It silently dropped 7 ACKs of SYN cookies."), "{said}");
        assert!(said.contains("30 connections were reset after 1.20 ms (median)."), "{said}");
        assert!(said.contains("50 clients connected, but received no first byte"), "{said}");
        assert!(!said.contains("All connections were served"), "{said}");
    }

    #[test]
    fn a_queue_that_was_full_and_turned_nobody_away_is_no_cause() {
        let mut spared = Arm { rungs: vec![0, 0], ..arm() };
        spared.server = Some(HostSummary::default());
        assert!(causes::supported(&spared, &[&ACCEPT_QUEUE_FULL]).is_empty());
    }
}
