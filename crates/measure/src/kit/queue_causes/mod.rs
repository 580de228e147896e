//! Causes that lie in a full queue of a server whose counters can be read.
//!
//! Named explanations are found in counters and latencies; each with the evidence it rests on. Here and in
//! `port_causes` are those that several experiments have; those of one experiment are in its folder, and its
//! description lists all that it may name. `docs/causes.md` says what each means and how to fix it.
//!
//! Whether an overflow of the accept queue was rare, came in bursts or lasted is core's rule
//! ([`tcptoll_core::finding::queues`]); here are the figures of a load.

use serde_json::Value;
use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::queues::{Overload, QueueFigures};
use tcptoll_core::finding::{Evidence, Finding, Remedy};
use tcptoll_core::number;
use tcptoll_core::record::{
    Arm, HostSummary, Listener, ListenerQueue, Queues, RetryLadder, Summary,
};
use tcptoll_core::stats::histogram::Histogram;
use tcptoll_core::units::{host_port, plural};

use super::conclusion::{cured, is_ill};

/// Connections arrived faster than the server accepted them.
pub(crate) const ACCEPT_QUEUE_FULL: CauseSpec =
    CauseSpec::new(FULL, accept_queue_full).remedied(against_overload);

/// Its name.
pub(crate) const FULL: &str = "accept-queue-full";

/// Handshakes began faster than they were completed, and SYN cookies are off.
pub(crate) const SYN_QUEUE_FULL: CauseSpec =
    CauseSpec::new("syn-queue-full", syn_queue_full).following(&[FULL]);

/// Options that make an accept queue longer.
pub(crate) const LONGER: &[&str] = &["backlog", "server-sysctl", "somaxconn"];

/// A longer queue for bursts; a faster server first where the overload lasted in an arm, and a longer queue then only
/// if an arm of the run shows that it helps.
fn against_overload(summary: &Summary) -> Vec<Remedy> {
    let ill = || summary.arms.iter().filter(|arm| is_ill(summary, arm, FULL));
    let how = |arm: &Arm| Overload::judge(figures(arm)).unwrap_or(Overload::Bursts);
    let lasts = ill().any(|arm| how(arm) == Overload::Lasting);
    let proof = ill().find_map(|arm| all_connected(cured(summary, arm, LONGER)?));
    let remedy = |overload: Overload| Remedy::named(FULL, overload.remedy());
    let longer = remedy(Overload::Bursts);
    match proof {
        _ if ill().all(|arm| how(arm) == Overload::Rare) => vec![remedy(Overload::Rare)],
        None if lasts => vec![remedy(Overload::Lasting)],
        proof if lasts => vec![remedy(Overload::Lasting), longer.proven(proof)],
        proof => vec![longer.proven(proof)],
    }
}

/// What an arm shows whose queue held all.
pub(crate) fn all_connected(well: &Arm) -> Option<String> {
    let max = well.histograms.get("connect_us").and_then(|connect| connect.max)?;
    Some(format!(
        "arm {}: all {} connected, the slowest in {}",
        well.name,
        number::count(well.ok),
        number::time(max)
    ))
}

/// The host that has the listener: the server host, or this machine where a server that is not ours
/// listens on it.
fn listening(arm: &Arm) -> Option<&HostSummary> {
    let own = || Some(&arm.client).filter(|client| !client.listeners.is_empty());
    arm.server.as_ref().or_else(own)
}

fn counter(arm: &Arm, name: &str) -> u64 {
    listening(arm)
        .and_then(|server| server.counters.get(name))
        .map_or(0, |&value| u64::try_from(value).unwrap_or(0))
}

fn evidence_of(arm: &Arm, names: &[&str]) -> Evidence {
    names
        .iter()
        .map(|name| ((*name).to_owned(), counter(arm, name)))
        .filter(|(_, value)| *value > 0)
        .map(|(name, value)| (name, Value::from(value)))
        .collect()
}

/// What the client felt: handshakes that waited for a retransmitted SYN, connections that never
/// heard the server, and how many waited on each rung of the ladder.
pub(crate) fn felt(arm: &Arm) -> (u64, u64, Vec<String>) {
    let late: u64 = arm.rungs.iter().sum();
    let silent = arm.errors.get("timeout").copied().unwrap_or(0);
    let ladder = arm
        .rungs
        .iter()
        .zip(&arm.syn_retry_ladder_s)
        .filter(|(count, _)| **count > 0)
        .map(|(count, at)| format!("{} at {at} s", number::count(*count)))
        .collect();
    (late, silent, ladder)
}

/// Counters that tell the shapes of an overflow apart.
const ACCEPT_COUNTERS: &[&str] = &[
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtSyncookiesSent",
    "TcpExtSyncookiesRecv",
    "TcpExtTCPReqQFullDoCookies",
    "TcpExtTCPReqQFullDrop",
];

/// The accept queue of a listener was full, and connections felt it.
fn accept_queue_full(arm: &Arm) -> Option<Finding> {
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
    finding.evidence.append(&mut evidence_of(arm, ACCEPT_COUNTERS));
    Some(finding)
}

/// Connections that this load opened, and all that a host of the user's accepted meanwhile, for any of its listeners.
///
/// None: the host is the lab's, where nobody else connects, or others move its counters.
fn opened(arm: &Arm) -> Option<[u64; 2]> {
    let host = listening(arm).filter(|host| arm.server.is_none() || host.background.is_some())?;
    let all = u64::try_from(host.counter("TcpPassiveOpens")?).ok().filter(|all| *all > 0)?;
    let handshakes = ["connect_us", "connect_of_failed_us"].iter();
    let handshakes = handshakes.filter_map(|name| arm.histograms.get(*name)).map(|one| one.count);
    let ours = handshakes.sum::<u64>().max(arm.connections_ok.unwrap_or(0));
    (ours > 0).then_some([ours, all])
}

/// Whose connections filled a queue of the user's, one sentence: `This load itself filled the accept queue`.
pub(crate) fn whose(arm: &Arm, queue: &str) -> Option<String> {
    let [ours, all] = opened(arm)?;
    let [opened, accepted] = [ours, all].map(number::count);
    let figures =
        format!("opened {opened} connections, and the host accepted {accepted} meanwhile");
    Some(if ours.saturating_mul(2) >= all {
        format!("This load itself filled the {queue}: it {figures}.")
    } else {
        format!("Other clients may fill the {queue} too: this load {figures}.")
    })
}

/// From counters and latencies alone: of loads that do not look at queues over time, and of records
/// before there were any that do.
fn counted(arm: &Arm, full: Option<&Listener>, first: Option<&Listener>) -> Finding {
    let (late, silent, ladder) = felt(arm);
    let gave_up = arm.errors.get("connect-timeout").copied().unwrap_or(0);
    let mut evidence = Evidence::new();
    if let Some(full) = full {
        evidence.insert("accept_queue_peak".into(), full.accept_queue_peak.into());
        evidence.insert("accept_queue_limit".into(), full.accept_queue_limit.into());
    }
    let queue = match first.map(|listener| listener.accept_queue_limit) {
        Some(limit) => format!("accept queue (backlog {limit})"),
        None => "accept queue".to_owned(),
    };
    let mut text = whose(arm, &queue).unwrap_or_else(|| format!("The {queue} was full."));
    if let Some(share) = figures(arm).full_share {
        evidence.insert("full_share".into(), share.into());
    }
    if let Some([ours, all]) = opened(arm) {
        evidence.insert("opened_by_this_load".into(), ours.into());
        evidence.insert("TcpPassiveOpens".into(), all.into());
    }
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
            number::count(silent)
        );
    }
    if gave_up > 0 {
        evidence.insert("gave_up_connecting".into(), gave_up.into());
        text += &format!(" {} connection attempts timed out.", number::count(gave_up));
    }
    Finding::new(text, evidence)
}

/// The listener that overflowed: of those that were full or dropped something the one with the most
/// drops; without any the first, which is the measured one.
pub(crate) fn overflowed(queues: &Queues) -> Option<&ListenerQueue> {
    let dropped = |listener: &&ListenerQueue| listener.drops.unwrap_or(0);
    let hit = |listener: &&ListenerQueue| listener.was_full() || dropped(listener) > 0;
    // Of equal ones the first: `max_by_key` takes the last.
    queues.listeners.iter().rev().filter(hit).max_by_key(dropped).or(queues.listeners.first())
}

/// From the queue over time, the drops of each listener, and the outcome of each connection.
fn observed(arm: &Arm, queues: &Queues) -> Finding {
    let Some(listener) = overflowed(queues) else { return counted(arm, None, None) };
    let mut evidence = Evidence::new();
    let mut note = |name: &str, value: Value| evidence.insert(name.to_owned(), value);
    note("listener", host_port(&listener.address, listener.port).into());
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
    if let (Some(overflow), Some(hit)) = (Overload::judge(figures(arm)), hit_by(arm)) {
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
    Finding::new(text.join(" "), evidence)
}

fn queue(listener: &ListenerQueue) -> String {
    let held = number::count(u64::from(listener.limit) + 1);
    let full = match listener.full_share() {
        Some(share) if listener.full_samples > 0 => {
            format!("was full in {} of the samples", number::percent(share))
        }
        _ if listener.was_full() => "was full".to_owned(),
        _ => format!("overflowed between two samples (longest sampled: {})", listener.peak),
    };
    format!(
        "The accept queue of {} (limit {}, holds {held}) {full}.",
        host_port(&listener.address, listener.port),
        listener.limit
    )
}

fn attributed(listeners: usize, drops: u64, others: u64, at_most: bool) -> String {
    let bound = if at_most { "at most " } else { "" };
    match others {
        0 => format!(
            "Of {listeners} listeners, only this one dropped packets ({}).",
            number::count(drops)
        ),
        others => format!(
            "It dropped {bound}{} packets, and the other {} listeners {bound}{}.",
            number::count(drops),
            listeners - 1,
            number::count(others)
        ),
    }
}

fn severity(overflow: Overload, hit: u64, attempts: u64, listener: &ListenerQueue) -> String {
    let how = match overflow {
        Overload::Rare => "The overflow was rare and may be tolerated",
        Overload::Bursts => "It overflowed in bursts",
        Overload::Lasting => "The overflow lasted",
    };
    let share = if attempts > 0 { hit as f64 / attempts as f64 } else { 0.0 };
    let slices = match listener.slices {
        0 => String::new(),
        all => format!(
            ", and packets were dropped in {} of {} slices of 100 ms",
            number::count(listener.dropping_slices),
            number::count(all)
        ),
    };
    format!(
        "{how}: {} of {} connections ({}) were delayed or failed{slices}.",
        number::count(hit),
        number::count(attempts),
        number::percent(share)
    )
}

/// `246 at 1 s, 3 at 2 s`; empty where nobody waited.
fn steps(ladder: &RetryLadder) -> String {
    let steps = ladder.at_s.iter().zip(&ladder.connections).filter(|(_, count)| **count > 0);
    let steps = steps.map(|(at, count)| format!("{} at {at} s", number::count(*count)));
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
        let what = format!("{} SYNs", number::count(drops.syns_dropped));
        parts.push(with(what, "SYN", &queues.syn_ladder));
    }
    if drops.acks_dropped > 0 {
        let what = format!("{} last ACKs", number::count(drops.acks_dropped));
        parts.push(with(what, "SYN-ACK", &queues.syn_ack_ladder));
    }
    let mut text = match parts.as_slice() {
        [] => Vec::new(),
        parts => vec![format!("The server dropped {}.", parts.join(" and "))],
    };
    if drops.cookie_acks_refused > 0 {
        text.push(format!(
            "It silently dropped {} ACKs of SYN cookies.",
            number::count(drops.cookie_acks_refused)
        ));
    }
    (!text.is_empty()).then(|| text.join(" "))
}

/// What became of the connections that failed, and after how long.
fn told(arm: &Arm, queues: &Queues) -> Option<String> {
    let after = |class: &str| {
        let outcome = queues.outcomes.get(class).filter(|outcome| outcome.count > 0)?;
        Some((number::count(outcome.count), number::time(outcome.p50_us)))
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

/// Fewer samples than this do not show that an overload lasted: 1 s of looks at the peaks of queues.
const SAMPLES_MIN: u64 = 100;

/// The figures of the listener that overflowed: over time where the load recorded that, else from the looks at its
/// peak.
pub(crate) fn figures(arm: &Arm) -> QueueFigures {
    // Where nobody looked at the waits of handshakes, nobody knows how many it hit.
    let looked = arm.own.queues.is_some() || !arm.rungs.is_empty();
    let hit = hit_by(arm).filter(|_| looked);
    let hit_share = hit.map(|hit| hit as f64 / arm.attempts as f64);
    if let Some(listener) = arm.own.queues.as_deref().and_then(overflowed) {
        return QueueFigures {
            hit_share,
            full_share: listener.full_share(),
            dropping_share: listener.dropping_share(),
            dropping_slices: listener.dropping_slices,
            nearly_full_share: None,
        };
    }
    let listeners = listening(arm).map_or(&[][..], |host| &host.listeners);
    let shares = listeners.iter().filter_map(|one| {
        let samples = one.samples.filter(|samples| *samples >= SAMPLES_MIN)?;
        Some(one.full_samples? as f64 / samples as f64)
    });
    QueueFigures { hit_share, full_share: shares.reduce(f64::max), ..QueueFigures::default() }
}

/// Classes of failures that a full queue brings about.
const CLASSES: [&str; 3] = ["connect-timeout", "reset", "timeout"];

/// Connections that waited for a retransmission of either side, or failed as a full queue makes them
/// fail.
///
/// A connection may wait on both ladders, and then fail: added up they are too many. Where the whole
/// distribution of those that succeeded is there, those that took at least the first step bound the
/// waits too, and the smaller figure is taken.
///
/// None: nothing was attempted.
pub(crate) fn hit_by(arm: &Arm) -> Option<u64> {
    let waited: u64 = match &arm.own.queues {
        Some(queues) => {
            let ladders = [&queues.syn_ladder, &queues.syn_ack_ladder];
            ladders.iter().flat_map(|ladder| &ladder.connections).sum()
        }
        None => arm.rungs.iter().sum(),
    };
    let failed: u64 = CLASSES.iter().filter_map(|class| arm.errors.get(*class)).sum();
    let waited = slow(arm).map_or(waited, |slow| waited.min(slow));
    // Of more connections than packets dropped, the others waited for another reason: loss, say.
    let dropped = match counter(arm, "TcpExtListenDrops") {
        0 => u64::MAX,
        dropped => dropped,
    };
    (arm.attempts > 0).then(|| waited.saturating_add(failed).min(dropped).min(arm.attempts))
}

/// A bucket of a distribution is this exact.
const BUCKET: f64 = 0.995;

/// Connections that succeeded and took at least the first step of either ladder.
///
/// None: no ladder or no whole distribution is there.
fn slow(arm: &Arm) -> Option<u64> {
    let queues = arm.own.queues.as_deref()?;
    let first = [&queues.syn_ladder, &queues.syn_ack_ladder]
        .into_iter()
        .filter_map(|ladder| ladder.at_s.first().copied())
        .reduce(f64::min)?;
    let times = ["first_byte_us", "connect_us"]
        .into_iter()
        .find_map(|name| arm.histograms.get(name).filter(|histogram| histogram.count > 0))?;
    let whole = Histogram::from_summary(times).ok()??;
    let late = |(ns, _): &(u64, u64)| *ns as f64 >= first * 1e9 * BUCKET;
    Some(whole.buckets_ns().iter().filter(|bucket| late(bucket)).map(|(_, count)| count).sum())
}

/// Counters that tell what the kernel did with SYNs that met a full queue.
const SYN_COUNTERS: &[&str] = &[
    "TcpExtListenDrops",
    "TcpExtListenOverflows",
    "TcpExtSyncookiesFailed",
    "TcpExtSyncookiesRecv",
    "TcpExtSyncookiesSent",
    "TcpExtTCPReqQFullDoCookies",
    "TcpExtTCPReqQFullDrop",
];

/// SYNs that were dropped for the SYN queue.
struct Dropped {
    syns: u64,
    /// Whether the queue was not full, but three quarters of `tcp_max_syn_backlog` were.
    last_quarter: bool,
}

/// The kernel dropped SYNs because the SYN queue was full and SYN cookies are off, and clients felt it.
fn syn_queue_full(arm: &Arm) -> Option<Finding> {
    let queues = arm.own.queues.as_deref();
    let listener = queues.and_then(|queues| queues.listeners.first());
    let Dropped { syns, last_quarter } = syns_dropped(arm, listener)?;
    let (late, silent, ladder) = felt(arm);
    let gave_up = arm.errors.get("connect-timeout").copied().unwrap_or(0);
    let peer = queues.and_then(|queues| queues.half_open_peer.as_ref());
    if peer.is_some() && late + silent + gave_up == 0 {
        // The peer's own SYNs were dropped, and no client's.
        return None;
    }
    let mut evidence = evidence_of(arm, SYN_COUNTERS);
    let mut note = |name: &str, value: Value| evidence.insert(name.to_owned(), value);
    note("handshakes_on_the_ladder", late.into());
    note("never_answered", silent.into());
    if gave_up > 0 {
        note("gave_up_connecting", gave_up.into());
    }
    if let Some(peak) = listener.and_then(|listener| listener.half_open_peak) {
        note("half_open_peak", peak.into());
    }
    if let Some(limit) = listener.and_then(|listener| listener.half_open_limit) {
        note("half_open_limit", limit.into());
    }
    if let Some(peer) = peer {
        note("half_open_peer_syns", peer.syns_sent.into());
    }
    let held = listener
        .and_then(|listener| listener.half_open_peak)
        .map_or_else(String::new, |peak| format!(" ({} half-open requests)", number::count(peak)));
    let what = if last_quarter {
        format!(
            "Three quarters of tcp_max_syn_backlog were in use{held} and SYN cookies are off, so the \
             server dropped {} SYNs of clients that it does not know from earlier connections",
            number::count(syns)
        )
    } else {
        format!(
            "The SYN queue was full{held} and SYN cookies are off, so the server dropped {} SYNs",
            number::count(syns)
        )
    };
    if lossy(arm) {
        // Each client that waited or gave up lost at least one packet. The kernel counted these drops; the
        // link may have lost any of the packets, too.
        let delayed = late + gave_up;
        let explained = delayed.min(syns);
        evidence.insert("delayed_or_gave_up".to_owned(), delayed.into());
        evidence.insert("explained_by_drops_at_most".to_owned(), explained.into());
        let clients = if delayed == 0 {
            String::new()
        } else {
            format!(
                " {} handshakes waited for a retransmitted SYN or timed out. These drops explain at \
                 most {} of them, because the link also loses packets.",
                number::count(delayed),
                number::count(explained)
            )
        };
        return Some(Finding::new(format!("{what}.{clients}"), evidence));
    }
    let waited = (!ladder.is_empty())
        .then(|| format!(". Handshakes waited for a retransmitted SYN ({})", ladder.join(", ")));
    let lost = (gave_up > 0)
        .then(|| format!(". {} connection attempts timed out", number::count(gave_up)));
    let text = [what, waited.unwrap_or_default(), lost.unwrap_or_default()].concat();
    Some(Finding::new(text + ".", evidence))
}

/// Whether packets were lost on the link as well, by its settings or as counted.
fn lossy(arm: &Arm) -> bool {
    let by_link =
        arm.link.as_ref().is_some_and(|link| link.asked.loss > 0.0 || link.unwanted_drops > 0);
    let on_wire =
        arm.wire.as_ref().is_some_and(|wire| wire.lost_on_purpose > 0 || wire.queue_drops > 0);
    by_link || on_wire
}

/// None: the kernel dropped no SYN for its SYN queue.
fn syns_dropped(arm: &Arm, listener: Option<&ListenerQueue>) -> Option<Dropped> {
    let counted = counter(arm, "TcpExtTCPReqQFullDrop");
    // The last quarter has no counter of its own: what was dropped for neither queue, while as many
    // requests were held as three quarters allow.
    let others = counter(arm, "TcpExtListenDrops")
        .saturating_sub(counter(arm, "TcpExtListenOverflows"))
        .saturating_sub(counted);
    let was_at_limit = listener
        .and_then(|listener| Some(listener.half_open_peak? >= listener.half_open_limit?))
        .unwrap_or(false);
    let cookies_off = listening(arm)
        .and_then(|host| host.sysctls.get("net.ipv4.tcp_syncookies"))
        .is_some_and(|value| value == "0");
    let last_quarter = counted == 0 && others > 0 && was_at_limit && cookies_off;
    let syns = if last_quarter { others } else { counted };
    (syns > 0).then_some(Dropped { syns, last_quarter })
}

#[cfg(test)]
mod tests;
