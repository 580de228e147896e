//! What follows from the arms of `accept-queue`: the answer, causes, what next; and what to change against a
//! full accept queue, with the arm of the run that shows it changed.

use tcptoll_core::experiment::figures::{FAILURE, FIRST_BYTE};
use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::Remedy;
use tcptoll_core::finding::queues::Overload;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, NextStep, Summary};
use tcptoll_core::verdict::effective::same_effective;
use tcptoll_core::verdict::names::Names;

use super::sheet::listener;
use crate::kit::compared::{failures, headline};
use crate::kit::conclusion::{
    answer_of, cured, explain, explanations, in_arm, is_ill, step, variants,
};
use crate::kit::queue_causes::{ACCEPT_QUEUE_FULL, FULL, LONGER, figures, hit_by};

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, super::SPEC.causes, |_, _| None);
    summary.answer = answer(summary);
    for option in ["backlog", "somaxconn"] {
        let same = same_effective(&summary.arms, option, |arm| {
            Some(format!(
                "{} (the smaller of backlog and net.core.somaxconn)",
                listener(arm)?.limit
            ))
        });
        summary.warnings.extend(same.iter().map(|warning| warning.entry(None)));
    }
    summary.next = next(summary);
}

fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> =
        summary.arms.iter().filter(|arm| arm.failure.is_none() && arm.attempts > 0).collect();
    if measured.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    let mut sentences = Vec::new();
    if let Some((arm, well)) = ill(summary) {
        sentences.extend(hit(summary, &measured, arm, well));
        sentences.extend(well.and_then(|well| spared(&measured, well)));
        if well.is_none() {
            sentences.extend(told(arm));
        }
    } else {
        sentences.extend(failures(summary, &super::SPEC));
        sentences.extend(healthy(&measured));
        sentences.extend(headline(summary, &super::SPEC));
    }
    if sentences.is_empty() {
        sentences.push(format!(
            "{}{} of {} connections succeeded.",
            in_arm(&measured, measured[0]),
            number::count(measured[0].ok),
            number::count(measured[0].attempts)
        ));
    }
    answer_of(summary, sentences)
}

/// `With backlog 16, 160 of 400 connections failed and 111 waited for a retransmission: the accept queue (limit 16)
/// was full.` And with which backlog nobody would have waited, where an arm shows it.
fn hit(summary: &Summary, arms: &[&Arm], arm: &Arm, well: Option<&Arm>) -> Option<String> {
    let queue = listener(arm)?;
    let what = turned_away(arm)?;
    let how = match overflow(arm) {
        Some(Overload::Rare) => ", but only rarely",
        Some(Overload::Lasting) => " most of the time",
        _ => "",
    };
    let condition = in_arm(arms, arm);
    let Some(enough) = well.and_then(|_| longest(summary, arm)) else {
        return Some(format!(
            "{condition}{what}: the accept queue (limit {}) was full{how}.",
            number::count(queue.limit)
        ));
    };
    let names = Names::new(arms.iter().copied());
    let others = variants(summary, arm, LONGER).filter(|other| is_ill(summary, other, FULL));
    let others: Vec<String> = others
        .take(2)
        .filter_map(|other| Some(format!("; {}: {}", names.arm(other), turned_away(other)?)))
        .collect();
    let enough = number::count(enough);
    Some(format!(
        "{condition}{what}{how}{}; a backlog of {enough} would have been enough.",
        others.concat()
    ))
}

/// `160 of 400 connections failed and 111 waited for a retransmission`.
fn turned_away(arm: &Arm) -> Option<String> {
    let hit = hit_by(arm)?;
    let failed = (arm.attempts - arm.ok).min(hit);
    let (all, waited) = (number::count(arm.attempts), hit - failed);
    let share = number::percent(hit as f64 / arm.attempts as f64);
    Some(match (failed, waited) {
        (0, _) => {
            let hit = number::count(hit);
            format!("{hit} of {all} connections ({share}) waited for a retransmission")
        }
        (failed, 0) => format!("{} of {all} connections ({share}) failed", number::count(failed)),
        (failed, waited) => format!(
            "{} of {all} connections failed and {} waited for a retransmission",
            number::count(failed),
            number::count(waited)
        ),
    })
}

/// The longest queue of all arms that a longer backlog cured.
fn longest(summary: &Summary, ill: &Arm) -> Option<u32> {
    cured(summary, ill, LONGER)?;
    let well = variants(summary, ill, LONGER)
        .filter(|arm| arm.ok == arm.attempts && !is_ill(summary, arm, FULL));
    well.filter_map(|arm| Some(listener(arm)?.peak)).max()
}

/// The arm that shows the fix.
fn spared(arms: &[&Arm], well: &Arm) -> Option<String> {
    let max = well.histograms.get(FIRST_BYTE.name).and_then(|h| h.max)?;
    Some(format!(
        "{}all {} received their first byte within {}.",
        in_arm(arms, well),
        number::count(well.ok),
        number::time(max)
    ))
}

/// Which errors clients got, and when.
fn told(arm: &Arm) -> Option<String> {
    let queues = arm.own.queues.as_deref()?;
    let outcome_of = |class: &str| queues.outcomes.get(class).filter(|outcome| outcome.count > 0);
    let mut parts = Vec::new();
    if let Some(reset) = outcome_of("reset") {
        parts.push(format!(
            "{} were reset after {} (median)",
            number::count(reset.count),
            number::time(reset.p50_us)
        ));
    }
    let silent: Vec<_> =
        ["connect-timeout", "timeout"].iter().filter_map(|class| outcome_of(class)).collect();
    if let Some(last) = silent.iter().map(|outcome| outcome.max_us).reduce(f64::max) {
        let count: u64 = silent.iter().map(|outcome| outcome.count).sum();
        parts.push(format!(
            "{} timed out without a response (after at most {})",
            number::count(count),
            number::time(last)
        ));
    }
    let mut late: Vec<String> = queues
        .syn_ladder
        .at_s
        .iter()
        .zip(&queues.syn_ladder.connections)
        .filter(|(_, count)| **count > 0)
        .take(3)
        .map(|(at, count)| format!("{} after {at} s", number::count(*count)))
        .collect();
    if parts.is_empty()
        && let Some(first) = late.first_mut()
    {
        *first = first.replacen(" after", " connected after", 1);
        parts.push(late.join(", "));
    }
    (!parts.is_empty()).then(|| format!("Of these, {}.", parts.join(", and ")))
}

/// No arm had a full queue that anybody felt.
fn healthy(arms: &[&Arm]) -> Option<String> {
    let max = |arm: &Arm| arm.histograms.get(FIRST_BYTE.name).and_then(|h| h.max);
    let slowest = arms
        .iter()
        .filter(|arm| arm.ok == arm.attempts && max(arm).is_some())
        .max_by(|a, b| max(a).unwrap_or(0.0).total_cmp(&max(b).unwrap_or(0.0)))?;
    if arms.iter().any(|arm| arm.ok < arm.attempts) {
        return None;
    }
    let queue = listener(slowest)?;
    Some(format!(
        "All {} connections received their first byte within {}{}; the accept queue held at most \
         {} of {}.",
        number::count(slowest.ok),
        number::time(max(slowest)?),
        if arms.len() > 1 {
            format!(" in the slowest arm, {}", Names::new(arms.iter().copied()).arm(slowest))
        } else {
            String::new()
        },
        number::count(queue.peak),
        number::count(u64::from(queue.limit) + 1)
    ))
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let ill: Vec<&Arm> = summary.arms.iter().filter(|arm| is_ill(summary, arm, FULL)).collect();
    if summary.study.is_none() {
        let varies = |option: &str| summary.arms.iter().any(|arm| arm.factors.contains_key(option));
        if !ill.is_empty() && !varies("abort-on-overflow") {
            steps.push(step(
                "tcptoll accept-queue --backlog 16 --link rtt=10ms --concurrency 500 --abort-on-overflow off,on --allow-errors 100%",
                "the effect of a reset instead of silence on clients that meet a full queue",
            ));
        }
        steps.push(step("tcptoll study queue-overflow-2021", "the published steps next to yours"));
    }
    steps.extend(explanations(summary));
    steps
}

/// A full accept queue, with every change that the run gives a reason for.
pub(super) const OVERFLOW: CauseSpec = ACCEPT_QUEUE_FULL.remedied(remedies);

/// Options that make the server accept faster.
const FASTER: &[&str] = &["accept-delay"];
/// Options that make fewer connections arrive at a time.
const SLOWER: &[&str] = &["arrivals", "concurrency", "pause", "pause-every", "rate"];
/// The option that turns silence into a reset.
const ABORT: &str = "abort-on-overflow";

/// Kernel memory of a connection in an accept queue, bytes: a `tcp_sock` and a request, 2,368 and 320
/// in /proc/slabinfo of Linux 6.18; without data that waits.
const CONNECTION_BYTES: u64 = 2_368 + 320;

/// How the overflow of an arm went on.
fn overflow(arm: &Arm) -> Option<Overload> {
    Overload::judge(figures(arm))
}

/// The first arm with the cause that has an arm which shows a fix, or else the first with the cause;
/// with the fix.
fn ill(summary: &Summary) -> Option<(&Arm, Option<&Arm>)> {
    let all = || summary.arms.iter().filter(|arm| is_ill(summary, arm, FULL));
    let fixed = |arm: &Arm| {
        [LONGER, FASTER, SLOWER].iter().find_map(|options| cured(summary, arm, options))
    };
    all().find_map(|arm| Some((arm, Some(fixed(arm)?)))).or_else(|| Some((all().next()?, None)))
}

/// Every change that this run gives a reason for.
fn remedies(summary: &Summary) -> Vec<Remedy> {
    let Some((arm, _)) = ill(summary) else { return Vec::new() };
    let of = |name: &str| Remedy::named(FULL, name);
    let how = overflow(arm);
    if how == Some(Overload::Rare) {
        return vec![of("tolerate")];
    }
    let proof = |options: &[&str]| cured(summary, arm, options).map(|well| proof(arm, well));
    let lasting = how == Some(Overload::Lasting);
    let faster = proof(FASTER);
    let mut all = vec![longer(summary, arm).proven(proof(LONGER))];
    if lasting || faster.is_some() {
        all.push(of("faster").proven(faster));
    }
    all.extend(proof(SLOWER).map(|proof| of("fewer").proven(Some(proof))));
    all.extend(abort(summary, arm));
    if lasting {
        // A longer queue only delays: it is the last resort then.
        all.rotate_left(1);
    }
    all
}

/// A longer queue, with the length that was enough and what a full one costs.
fn longer(summary: &Summary, arm: &Arm) -> Remedy {
    let remedy = Remedy::named(FULL, Overload::Bursts.remedy());
    let well = cured(summary, arm, LONGER);
    let limit =
        well.or(Some(arm)).and_then(listener).map_or(0, |listener| u64::from(listener.limit));
    let full = limit + 1;
    let memory = number::bytes((full * CONNECTION_BYTES) as f64);
    let mut cost =
        format!("{} A full queue of {} takes {memory}", remedy.cost, number::count(full));
    if let Some(us) = arm.own.queues.as_deref().and_then(|queues| queues.accept_interval_us) {
        cost += &format!(
            ", and its last connection waits {} × {} = {}",
            number::count(full),
            number::time(us),
            number::time(us * full as f64)
        );
    }
    let remedy = Remedy { cost: cost + ".", ..remedy };
    match longest(summary, arm).map(u64::from).map(number::count) {
        Some(peak) => {
            let backlog = "backlog of listen(2)";
            let more = format!("{backlog} to more than {peak} (the longest queue under this load)");
            remedy.with(backlog, more)
        }
        None => remedy,
    }
}

/// The reset instead of silence: another choice, with a cost of its own.
fn abort(summary: &Summary, arm: &Arm) -> Option<Remedy> {
    let on = |arm: &&Arm| arm.factors.get(ABORT).and_then(|level| level.as_str()) == Some("on");
    let other = variants(summary, arm, &[ABORT]).find(on);
    let silent = ["timeout", "connect-timeout"].iter().any(|class| arm.errors.contains_key(*class));
    let lasting = overflow(arm) == Some(Overload::Lasting);
    if other.is_none() && !on(&arm) && !(silent && lasting) {
        return None;
    }
    let after = |arm: &Arm| {
        let failed = arm.histograms.get(FAILURE.name).filter(|failed| failed.count > 0)?;
        Some((failed.count, number::time(failed.p50.or(failed.mean)?)))
    };
    let proof = other.map(|other| {
        let with = |arm: &Arm| match after(arm) {
            Some((count, time)) => {
                format!("{} connections failed (median after {time})", number::count(count))
            }
            None => "no connection failed".to_owned(),
        };
        let resets = other.errors.get("reset").copied().unwrap_or(0);
        format!(
            "arm {}: {}, {} of them with a reset; arm {}: {}",
            other.name,
            with(other),
            number::count(resets),
            arm.name,
            with(arm)
        )
    });
    Some(Remedy::named(FULL, "abort").proven(proof))
}

/// What the run measured with a change in place.
fn proof(ill: &Arm, well: &Arm) -> String {
    let max = |arm: &Arm| arm.histograms.get(FIRST_BYTE.name).and_then(|h| h.max).map(number::time);
    let slowest = match (max(well), max(ill)) {
        (Some(well), Some(before)) => {
            format!(", the slowest after {well} (arm {}: {before})", ill.name)
        }
        (Some(well), None) => format!(", the slowest after {well}"),
        _ => String::new(),
    };
    let held = match listener(well) {
        Some(queue) => format!(
            "; the queue held at most {} of {}",
            number::count(queue.peak),
            number::count(u64::from(queue.limit) + 1)
        ),
        None => String::new(),
    };
    format!(
        "arm {}: all {} connections received their first byte{slowest}{held}",
        well.name,
        number::count(well.ok)
    )
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::{
        DropBalance, HostSummary, ListenerQueue, Outcome, Queues, RetryLadder,
    };
    use tcptoll_core::stats::HistogramSummary;

    use super::*;
    use crate::kit::conclusion::ANSWER_MAX;

    fn histogram(count: u64, max: f64) -> HistogramSummary {
        HistogramSummary { count, p50: Some(max / 2.0), max: Some(max), ..<_>::default() }
    }

    fn queues(limit: u32, peak: u32, waited: u64) -> Queues {
        let listener = ListenerQueue {
            address: "10.77.0.2".into(),
            port: 80,
            limit,
            peak,
            drops: Some(waited),
            samples: 1_000,
            full_samples: if peak > limit { 60 } else { 0 },
            slices: 12,
            dropping_slices: if waited > 0 { 2 } else { 0 },
            ..ListenerQueue::default()
        };
        Queues {
            listeners: vec![listener],
            syn_ladder: RetryLadder { at_s: vec![1.0, 2.0], connections: vec![waited, 0], off: 0 },
            drops: Some(DropBalance { syns_dropped: waited, ..DropBalance::default() }),
            accept_interval_us: Some(500.0),
            ..Queues::default()
        }
    }

    /// An arm of 500 connections of which `waited` waited for a second SYN.
    fn arm(name: &str, factors: &[(&str, &str)], queues: Queues) -> Arm {
        let waited = queues.syn_ladder.connections[0];
        let slowest = if waited > 0 { 1_050_000.0 } else { 131_000.0 };
        Arm {
            name: name.into(),
            factors: factors.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect(),
            attempts: 500,
            ok: 500,
            syn_retry_ladder_s: vec![1.0, 2.0],
            rungs: vec![waited, 0],
            histograms: [("first_byte_us".to_owned(), histogram(500, slowest))].into(),
            server: Some(HostSummary {
                counters: [("TcpExtListenOverflows".to_owned(), waited as i64)].into(),
                ..HostSummary::default()
            }),
            own: Box::new(queues).into(),
            ..Arm::default()
        }
    }

    fn concluded(arms: Vec<Arm>) -> Summary {
        let mut summary = Summary { arms, ..Summary::default() };
        conclude(&mut summary);
        summary
    }

    fn short() -> Arm {
        arm("backlog 128", &[("backlog", "128")], queues(128, 129, 246))
    }

    fn long() -> Arm {
        arm("backlog 1024", &[("backlog", "1024")], queues(1_024, 251, 0))
    }

    #[test]
    fn the_answer_begins_with_the_connections_that_waited_and_then_names_the_arm_that_was_spared() {
        let summary = concluded(vec![short(), long()]);
        assert_eq!(
            summary.answer,
            "With backlog 128, 246 of 500 connections (49.2 %) waited for a retransmission; a backlog of 251 \
             would have been enough. With backlog 1024, all 500 received their first byte within 131 ms."
        );
        let advice = &summary.advice[0];
        assert!(advice.change.contains("to more than 251 (the longest queue"), "{}", advice.change);
        assert!(advice.cost.contains("1,025 × 500 µs = 512 ms"), "{}", advice.cost);
        let proof = advice.proof.as_deref().unwrap();
        assert!(proof.starts_with("arm backlog 1024: all 500 connections"), "{proof}");
        assert_eq!(summary.advice.len(), 1, "{:?}", summary.advice);
    }

    #[test]
    fn of_several_backlogs_that_were_too_small_each_is_stated() {
        let mut shorter = arm("backlog 16", &[("backlog", "16")], queues(16, 17, 430));
        shorter.ok = 450;
        shorter.errors.insert("timeout".to_owned(), 50);
        let answer = concluded(vec![shorter, short(), long()]).answer;
        let says = "With backlog 16, 50 of 500 connections failed and 430 waited for a retransmission; backlog 128: \
                    246 of 500 connections (49.2 %) waited for a retransmission; a backlog of 251 would have been \
                    enough.";
        assert!(answer.starts_with(says), "{answer}");
    }

    #[test]
    fn an_arm_that_differs_in_another_option_too_is_no_proof() {
        let other =
            arm("both", &[("backlog", "1024"), ("accept-delay", "1us")], queues(1_024, 2, 0));
        let summary = concluded(vec![short(), other]);
        assert_eq!(summary.advice[0].proof, None);
        let faster = arm("fast", &[("backlog", "128"), ("accept-delay", "1us")], queues(128, 2, 0));
        let slow = Arm {
            factors: [("backlog".into(), "128".into()), ("accept-delay".into(), "1ms".into())]
                .into(),
            ..short()
        };
        let summary = concluded(vec![slow, faster]);
        let proven = summary.advice.iter().find(|advice| advice.proof.is_some()).unwrap();
        assert!(proven.change.starts_with("Accept faster"), "{}", proven.change);
    }

    #[test]
    fn what_clients_were_told_is_stated_where_no_arm_was_spared() {
        let outcome = |count, us| Outcome { count, p50_us: us, max_us: us, ..Outcome::default() };
        let mut told = queues(16, 17, 30);
        told.outcomes = [
            ("ok".to_owned(), outcome(420, 900.0)),
            ("reset".to_owned(), outcome(30, 1_200.0)),
            ("timeout".to_owned(), outcome(50, 10e6)),
        ]
        .into();
        let errors = [("reset".to_owned(), 30), ("timeout".to_owned(), 50)];
        let reset = Arm {
            ok: 420,
            errors: errors.into(),
            histograms: [("failure_us".to_owned(), histogram(80, 10e6))].into(),
            ..arm("on", &[("abort-on-overflow", "on")], told)
        };
        let summary = concluded(vec![reset.clone()]);
        assert_eq!(
            summary.answer,
            "80 of 500 connections failed and 30 waited for a retransmission: the \
             accept queue (limit 16) was full. Of these, 30 were reset after 1.20 ms (median), and 50 \
             timed out without a response (after at most 10.0 s)."
        );
        let off = Arm {
            factors: [("abort-on-overflow".into(), "off".into())].into(),
            name: "off".into(),
            ..reset.clone()
        };
        let summary = concluded(vec![off, reset]);
        let abort = summary.advice.iter().find(|advice| advice.change.starts_with("Alternative"));
        let proof = abort.and_then(|advice| advice.proof.as_deref()).unwrap();
        assert!(
            proof.contains("arm on: 80 connections failed (median after 5.00 s), 30 of them"),
            "{proof}"
        );
    }

    #[test]
    fn a_rare_overflow_needs_no_change_and_a_lasting_one_a_faster_server_first() {
        let mut rare = Arm { attempts: 100_000, ok: 100_000, rungs: vec![9, 0], ..short() };
        let queue = rare.own.queues.as_deref_mut().unwrap();
        queue.syn_ladder.connections = vec![9, 0];
        queue.listeners[0].full_samples = 10;
        queue.listeners[0].dropping_slices = 1;
        let summary = concluded(vec![rare]);
        assert!(summary.answer.contains("was full, but only rarely."), "{}", summary.answer);
        assert!(
            summary.advice[0].change.starts_with("No change is needed"),
            "{:?}",
            summary.advice
        );
        let mut lasting = short();
        let queue = lasting.own.queues.as_deref_mut().unwrap();
        queue.listeners[0].full_samples = 900;
        queue.listeners[0].dropping_slices = 11;
        let summary = concluded(vec![lasting]);
        assert!(summary.answer.contains("was full most of the time."), "{}", summary.answer);
        assert!(summary.advice[0].change.starts_with("Accept faster"), "{:?}", summary.advice);
    }

    #[test]
    fn a_queue_that_nobody_felt_is_stated_with_its_peak() {
        let summary = concluded(vec![long()]);
        assert_eq!(
            summary.answer,
            "All 500 connections received their first byte within 131 ms; the accept queue held at most \
             251 of 1,025."
        );
        assert!(summary.advice.is_empty());
    }

    #[test]
    fn without_a_figure_the_answer_says_so() {
        let failed = Arm { failure: Some("no".into()), ..Arm::default() };
        assert_eq!(concluded(vec![failed]).answer, "Nothing was measured.");
        let bare = Arm { name: "a".into(), attempts: 5, ok: 5, ..Arm::default() };
        assert_eq!(concluded(vec![bare]).answer, "5 of 5 connections succeeded.");
    }

    #[test]
    fn backlogs_that_the_kernel_clamped_to_one_value_are_said_to_be_the_same() {
        let clamped = arm("backlog=4096", &[("backlog", "4096")], queues(128, 129, 246));
        let summary = concluded(vec![short(), clamped]);
        let same = summary.warnings.iter().any(|warning| warning.id == "same-effective-value");
        assert!(same, "{:?}", summary.warnings);
    }

    #[test]
    fn an_answer_never_exceeds_its_room() {
        let named = |mut arm: Arm, letter: char| {
            arm.name = letter.to_string().repeat(120);
            arm
        };
        let summary = concluded(vec![named(short(), 'a'), named(long(), 'b')]);
        assert!(summary.answer.chars().count() <= ANSWER_MAX, "{}", summary.answer);
        assert!(summary.answer.ends_with('.'));
    }
}
