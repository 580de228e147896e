//! What follows from the arms of `syn-queue`: the answer, causes, advice, what next.

use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::Remedy;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, NextStep, Summary};
use tcptoll_core::verdict::bound;
use tcptoll_core::verdict::effective::same_effective;
use tcptoll_core::verdict::warning::Warning;

use super::CAUSES;
use super::sheet::{dropped, listener, of_server};
use crate::kit::compared::failures;
use crate::kit::conclusion::{
    answer_of, explain, explanations, ill, in_arm, is_well, step, variants,
};
use crate::kit::queue_causes::SYN_QUEUE_FULL;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, CAUSES, |_, _| None);
    summary.answer = answer(summary);
    let same = same_backlogs(&summary.arms);
    summary.warnings.extend(same.iter().map(|warning| warning.entry(None)));
    summary.next = next(summary);
}

/// A full SYN queue, with each way out of it that an arm of the run proves.
pub(super) const SYN_QUEUE: CauseSpec = SYN_QUEUE_FULL.remedied(remedies);

/// Options that keep a peer from filling the SYN queue, or let clients connect all the same.
const FIXES: &[&str] = &["backlog", "max-syn-backlog", "server-sysctl", "somaxconn", "syncookies"];

/// Requests that the peer opened, or half-open ones that were seen; 0 without a peer.
fn pressed(arm: &Arm) -> u32 {
    let peer = arm.own.queues.as_deref().and_then(|queues| queues.half_open_peer.as_ref());
    peer.map_or(0, |peer| u32::try_from(peer.sources).unwrap_or(u32::MAX))
}

/// Arms under at least the same peer in which everybody connected: the measured proof of a fix.
fn cured<'a>(summary: &'a Summary, ill: &'a Arm) -> impl Iterator<Item = &'a Arm> {
    variants(summary, ill, FIXES)
        .filter(move |arm| pressed(arm) >= pressed(ill).max(1))
        .filter(move |arm| arm.attempts > 0 && is_well(summary, arm))
}

/// How an arm that had the same peer got all of its connections.
fn means(arm: &Arm) -> &'static str {
    if with_cookies(arm) { "SYN cookies" } else { "a longer queue" }
}

fn with_cookies(arm: &Arm) -> bool {
    of_server(arm, "TcpExtSyncookiesSent").is_some()
}

fn typical(arm: &Arm) -> Option<String> {
    let connect = arm.histograms.get("connect_us")?;
    Some(match connect.p50 {
        Some(median) => format!("{} (median)", number::time(median)),
        None => format!("{} (mean)", number::time(connect.mean?)),
    })
}

/// Cookies, and a longer queue where an arm proves it.
fn remedies(summary: &Summary) -> Vec<Remedy> {
    let Some(ill) = ill(summary, SYN_QUEUE.id) else { return Vec::new() };
    let proof = |cookies: bool| {
        let arm = cured(summary, ill).find(|arm| with_cookies(arm) == cookies)?;
        let max = arm.histograms.get("connect_us")?.max?;
        let (name, all, slowest) = (&arm.name, number::count(arm.ok), slowest(arm, max));
        Some(format!("arm {name}: all {all} connected with {}, {slowest}", means(arm)))
    };
    let of = |name: &str| Remedy::named(SYN_QUEUE.id, name);
    let longer = proof(false).map(|proof| of("longer").proven(Some(proof)));
    let mut all = vec![of("cookies").proven(proof(true))];
    all.extend(longer);
    // What is proven stands first.
    all.sort_by_key(|one| one.proof.is_none());
    all
}

/// The slowest connection. In an open loop the time counts from when it was due, so it includes what the
/// client was late by.
fn slowest(arm: &Arm, max_us: f64) -> String {
    let took = number::time(max_us);
    if arm.histograms.contains_key("lateness_us") {
        format!("the slowest {took} after its scheduled start")
    } else {
        format!("the slowest in {took}")
    }
}

/// Backlogs above `net.core.somaxconn` are clamped to it.
fn same_backlogs(arms: &[Arm]) -> Vec<Warning> {
    same_effective(arms, "backlog", |arm| {
        Some(format!("{} (net.core.somaxconn)", listener(arm)?.limit))
    })
}

fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> =
        summary.arms.iter().filter(|arm| arm.failure.is_none() && arm.attempts > 0).collect();
    if measured.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    let mut sentences = Vec::new();
    sentences.extend(bound::sentence(summary, "connections_per_s", "connections"));
    if let Some(ill) = ill(summary, SYN_QUEUE.id) {
        sentences.push(turned_away(&measured, ill));
        let mut named = Vec::new();
        for arm in cured(summary, ill) {
            if !named.contains(&means(arm)) {
                named.push(means(arm));
                sentences.extend(spared(arm));
            }
        }
    } else {
        sentences.extend(failures(summary, &super::SPEC));
        sentences.extend(measured.iter().take(2).map(|arm| unharmed(&measured, arm)));
    }
    answer_of(summary, sentences)
}

/// What a full queue did to the clients of an arm.
fn turned_away(arms: &[&Arm], arm: &Arm) -> String {
    let mut text = format!(
        "{}{} of {} clients connected",
        in_arm(arms, arm),
        number::count(arm.ok),
        number::count(arm.attempts)
    );
    if arm.ok > 0
        && let Some(max) = arm.histograms.get("connect_us").and_then(|connect| connect.max)
    {
        text += &format!(", {}", slowest(arm, max));
    }
    text += &match listener(arm).and_then(|queue| queue.half_open_peak) {
        Some(held) => {
            format!(": {} half-open requests filled the SYN queue", number::count(held))
        }
        None => ": the SYN queue was full".to_owned(),
    };
    if let Some(dropped) = dropped(arm) {
        text += &format!(", and the server dropped {} SYNs", number::count(dropped));
    }
    text + "."
}

/// What the same peer did where a fix was in place.
fn spared(arm: &Arm) -> Option<String> {
    let typical = typical(arm)?;
    Some(format!("With {}, all {} connected in {typical}.", means(arm), number::count(arm.ok)))
}

/// An arm whose clients felt no full queue.
fn unharmed(arms: &[&Arm], arm: &Arm) -> String {
    let within = typical(arm).map_or_else(String::new, |typical| format!(" in {typical}"));
    let cookies = of_server(arm, "TcpExtSyncookiesSent").map_or("", |_| " with SYN cookies");
    let held = listener(arm).and_then(|queue| queue.half_open_peak).filter(|held| *held > 0);
    let held = held.map_or_else(
        || ", without half-open requests".to_owned(),
        |held| format!(", next to {} half-open requests", number::count(held)),
    );
    format!(
        "{}{} of {} clients connected{within}{cookies}{held}.",
        in_arm(arms, arm),
        number::count(arm.ok),
        number::count(arm.attempts)
    )
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = explanations(summary);
    if summary.study.is_none() {
        steps.push(step(
            "tcptoll syn-queue --syncookies 0 --backlog 4096 --max-syn-backlog 1024,2048 --half-open 1000",
            "whether a larger tcp_max_syn_backlog is a fix",
        ));
    }
    steps
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::{DropBalance, HalfOpenPeer, HostSummary, ListenerQueue, Queues};
    use tcptoll_core::stats::HistogramSummary;

    use super::*;

    fn arm(name: &str, ok: u64, held: u32, peer: u64) -> Arm {
        let listener = ListenerQueue {
            limit: 128,
            half_open_peak: Some(held),
            half_open_limit: Some(129),
            ..ListenerQueue::default()
        };
        let queues = Queues {
            listeners: vec![listener],
            drops: Some(DropBalance {
                syns_dropped_half_open: 4 * (200 - ok),
                ..DropBalance::default()
            }),
            half_open_peer: (peer > 0)
                .then(|| HalfOpenPeer { sources: peer, ..HalfOpenPeer::default() }),
            ..Queues::default()
        };
        let mut arm = Arm {
            name: name.to_owned(),
            attempts: 200,
            ok,
            server: Some(HostSummary::default()),
            own: Box::new(queues).into(),
            ..Arm::default()
        };
        if ok < 200 {
            arm.errors.insert("connect-timeout".to_owned(), 200 - ok);
            let counters = &mut arm.server.as_mut().unwrap().counters;
            counters.insert("TcpExtTCPReqQFullDrop".to_owned(), 4 * (200 - ok) as i64);
        }
        if ok > 0 {
            let connect = HistogramSummary {
                count: ok,
                p50: Some(62.0),
                max: Some(190.0),
                ..HistogramSummary::default()
            };
            arm.histograms.insert("connect_us".to_owned(), connect);
        }
        arm
    }

    fn cookies(mut arm: Arm) -> Arm {
        let counters = &mut arm.server.as_mut().unwrap().counters;
        counters.insert("TcpExtSyncookiesSent".to_owned(), 200);
        arm
    }

    fn concluded(arms: Vec<Arm>) -> Summary {
        let mut summary = Summary { arms, ..Summary::default() };
        conclude(&mut summary);
        summary
    }

    #[test]
    fn the_answer_has_the_ill_arm_and_each_fix_in_three_sentences() {
        let summary = concluded(vec![
            arm("healthy", 200, 1, 0),
            arm("full", 0, 129, 129),
            cookies(arm("cookies", 200, 129, 129)),
            arm("longer", 200, 130, 129),
        ]);
        assert_eq!(
            summary.answer,
            "In arm full, 0 of 200 clients connected: 129 half-open requests filled the SYN queue, and the server dropped 800 SYNs. With SYN cookies, all 200 connected in 62.0 µs (median). With a longer queue, all 200 connected in 62.0 µs (median)."
        );
        assert!(summary.answer.chars().count() <= 400);
        let proofs: Vec<&str> =
            summary.advice.iter().filter_map(|one| one.proof.as_deref()).collect();
        assert!(
            proofs[0].starts_with("arm cookies: all 200 connected with SYN cookies"),
            "{proofs:?}"
        );
        assert!(
            proofs[1].starts_with("arm longer: all 200 connected with a longer queue"),
            "{proofs:?}"
        );
        assert!(summary.advice[1].change.starts_with("Raise the backlog"), "{:?}", summary.advice);
    }

    #[test]
    fn a_longer_queue_that_an_arm_proves_comes_before_cookies_that_none_does() {
        let summary = concluded(vec![arm("full", 0, 129, 129), arm("longer", 200, 130, 129)]);
        let [longer, cookies] = summary.advice.as_slice() else { panic!("{:?}", summary.advice) };
        assert!(longer.change.starts_with("Raise the backlog") && longer.proof.is_some());
        assert!(cookies.change.starts_with("Set net.ipv4.tcp_syncookies=1"), "{cookies:?}");
    }

    #[test]
    fn an_arm_without_the_peer_proves_no_fix() {
        let summary = concluded(vec![arm("healthy", 200, 1, 0), arm("full", 12, 129, 129)]);
        assert_eq!(summary.advice[0].proof, None);
        assert!(!summary.answer.contains("With "), "{}", summary.answer);
        assert!(summary.answer.contains("12 of 200 clients connected, the slowest in 190 µs"));
    }

    #[test]
    fn the_slowest_of_an_open_loop_counts_from_when_it_was_due() {
        let mut full = arm("full", 12, 129, 129);
        full.histograms.insert("lateness_us".to_owned(), HistogramSummary::default());
        let summary = concluded(vec![full]);
        let says = "connected, the slowest 190 µs after its scheduled start: ";
        assert!(summary.answer.contains(says), "{}", summary.answer);
    }

    #[test]
    fn where_nobody_was_turned_away_the_answer_says_so() {
        let summary = concluded(vec![cookies(arm("cookies", 200, 129, 129))]);
        assert!(summary.causes.is_empty());
        assert_eq!(
            summary.answer,
            "200 of 200 clients connected in 62.0 µs (median) with SYN cookies, next to 129 half-open requests."
        );
        assert_eq!(concluded(Vec::new()).answer, "Nothing was measured.");
    }
}
