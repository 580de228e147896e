//! What follows from the arms of `keepalive`: the answer, causes, advice, what next. Its causes are above all a
//! dead peer that was not detected.

use super::advice;
use crate::kit::compared::headline;
use crate::kit::conclusion::{
    Excerpt, answer_of, enumerated, explain, explanations, first_stated, stated, step, value,
};
use crate::kit::port_causes::LOCAL_PORTS_SCARCE;
use crate::kit::queue_causes::{ACCEPT_QUEUE_FULL, SYN_QUEUE_FULL};
use serde_json::Value;
use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::Finding;
use tcptoll_core::number;
use tcptoll_core::record::{Advice, Arm, Deaths, Keepalive, NextStep, PlaceKind, Summary};
use tcptoll_core::tcp::checking::{Checking, Evidence, Mechanism};
use tcptoll_core::units::{capital, first_sentence};
use tcptoll_core::verdict::names::Names;

/// Of at most this many arms the computed detection time is stated too.
const EXPECTED_STATED: usize = 2;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, ALL, |_, _| None);
    if summary.causes.iter().all(|cause| cause.id != advice::UNNOTICED) {
        // Settings that a wanted detection time chose are shown with their proof.
        let asked = advice::asked_for(summary).into_iter();
        summary.advice.extend(asked.map(|remedy| remedy.advice(advice::UNNOTICED)));
    }
    summary.answer = answer(summary);
    summary.next = next(summary);
}

/// An arm and how it checked.
#[derive(Clone)]
struct CheckedArm<'a> {
    arm: &'a Arm,
    /// By its levels.
    name: String,
    checked: &'a Keepalive,
    /// Whether the mechanism alone names it.
    unique: bool,
}

impl CheckedArm<'_> {
    fn mechanism(&self) -> Mechanism {
        self.checked.checking.mechanism
    }

    /// Its name in a sentence.
    fn name(&self) -> String {
        if !self.unique {
            return self.name.clone();
        }
        match self.mechanism() {
            Mechanism::None => "reading alone",
            Mechanism::Tcp => "kernel probes",
            Mechanism::Heartbeat => "heartbeats",
            Mechanism::Lazy => "lazy reaping",
            Mechanism::Write => "writing",
        }
        .to_owned()
    }

    fn deaths(&self) -> Option<&Deaths> {
        self.checked.deaths.as_ref()
    }

    /// The quickest and the slowest detection, µs.
    fn detection_us(&self) -> Option<[f64; 2]> {
        let detection = self.arm.histograms.get("detection_us")?;
        detection.min.zip(detection.max).map(|(min, max)| [min, max])
    }

    /// Packets per hour, in words: as measured, else as computed.
    fn an_hour(&self) -> Option<String> {
        let computed = || {
            let computed = self.checked.computed_packets_per_hour()?;
            Some(format!("{} (computed)", an_hour(computed)))
        };
        value(self.arm, "checking_packets_per_hour_per_socket").map(an_hour).or_else(computed)
    }

    /// The same, to compare.
    fn packets_per_hour(&self) -> Option<f64> {
        value(self.arm, "checking_packets_per_hour_per_socket")
            .or_else(|| self.checked.computed_packets_per_hour())
    }
}

fn told(summary: &Summary) -> Vec<CheckedArm<'_>> {
    let checked: Vec<(&Arm, &Keepalive)> = summary
        .arms
        .iter()
        .filter(|arm| arm.failure.is_none())
        .filter_map(|arm| Some((arm, arm.own.keepalive.as_ref()?)))
        .collect();
    let count = |mechanism| {
        checked.iter().filter(|(_, checked)| checked.checking.mechanism == mechanism).count()
    };
    let names = Names::new(&summary.arms);
    checked
        .iter()
        .map(|(arm, checked)| {
            let unique = count(checked.checking.mechanism) == 1;
            CheckedArm { arm, name: names.arm(arm), checked, unique }
        })
        .collect()
}

fn answer(summary: &Summary) -> String {
    let arms = told(summary);
    if arms.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    let mut sentences = Vec::new();
    if arms.iter().any(|told| told.deaths().is_some()) {
        let (detected, all) = detected(&arms);
        sentences.extend(settings(summary, |asked| asked.proof.is_some()));
        sentences.extend(known(&detected, all));
        sentences.extend(wrongly_closed(&arms));
        sentences.extend(never(summary, &arms));
        sentences.extend(price(&detected));
    } else {
        sentences.extend(settings(summary, |_| true));
        sentences.extend(wrongly_closed(&arms));
        sentences.extend(headline(summary, &super::SPEC));
        sentences.extend(packets(&arms));
        sentences.extend(cpu(&arms));
    }
    if sentences.is_empty() {
        sentences.extend(arms.first().map(held));
    }
    answer_of(summary, sentences)
}

/// What is left to say where nothing was compared, counted or detected.
fn held(told: &CheckedArm<'_>) -> String {
    let CheckedArm { arm, checked, .. } = told;
    let (ok, all) = (number::count(arm.ok), number::count(arm.attempts));
    let time = number::time(checked.window_s * 1e6);
    let sent = if told.mechanism() == Mechanism::None {
        ", and nothing was sent on them: a dead peer would stay undetected"
    } else {
        ""
    };
    format!("{ok} of {all} idle connections stayed open for {time}{sent}.")
}

/// The unit of packets in a sentence.
const UNIT: &str = " packets per hour";

/// Packets per hour, in words.
fn an_hour(packets: f64) -> String {
    match packets {
        0.0 => "no packets".to_owned(),
        packets => format!("{}{UNIT}", number::three(packets)),
    }
}

fn range_us([min, max]: [f64; 2]) -> String {
    number::range(&number::time(min), &number::time(max))
}

/// An arm, and its quickest and slowest detection, µs.
type Detected<'a, 'b> = (&'b CheckedArm<'a>, [f64; 2]);

/// The arms that detected deaths; of many the fastest and the slowest, and how many there are.
fn detected<'a, 'b>(arms: &'b [CheckedArm<'a>]) -> (Vec<Detected<'a, 'b>>, Option<usize>) {
    let all: Vec<Detected<'a, 'b>> = arms
        .iter()
        .filter(|told| told.deaths().is_some_and(|deaths| deaths.known > 0))
        .filter_map(|told| Some((told, told.detection_us()?)))
        .collect();
    match stated(all, |(_, [_, last_us])| *last_us) {
        Excerpt::Each(all) => (all, None),
        Excerpt::Ends(fastest, slowest, count) => (vec![fastest, slowest], Some(count)),
    }
}

/// Which arms detected deaths, and after which time.
fn known(detected: &[Detected<'_, '_>], all: Option<usize>) -> Option<String> {
    let which = if all.is_some() { ", which" } else { "" };
    let mut phrases: Vec<String> = Vec::new();
    let mut before = String::new();
    for (told, detection_us) in detected {
        let deaths = told.deaths()?;
        let dead = of_dead(deaths);
        // What the arm before detected too is not repeated.
        let what = match (before == dead, all) {
            (false, _) => format!("{which} detected {dead}"),
            (true, Some(_)) => ",".to_owned(),
            (true, None) => String::new(),
        };
        let expected = detected.len() <= EXPECTED_STATED;
        let when = when(told.mechanism(), deaths, *detection_us, expected);
        phrases.push(format!("{}{what} after {when}", told.name()));
        before = dead;
    }
    match (phrases.as_slice(), all) {
        ([], _) => None,
        ([fastest, slowest], Some(count)) => {
            Some(format!("Of {count} arms, the fastest was {fastest}, and the slowest {slowest}."))
        }
        (all, _) => Some(capital(&enumerated(all)) + "."),
    }
}

/// `3.10 to 4.09 s (expected: within 4.51 s)`.
fn when(mechanism: Mechanism, deaths: &Deaths, detection_us: [f64; 2], expected: bool) -> String {
    let [_, last_us] = detection_us;
    let mut remarks: Vec<String> = Vec::new();
    if let Some(due) = deaths.due_s().filter(|_| expected || deaths.late > 0) {
        let ran_late = deaths.late == 0 && last_us > due * 1e6;
        let but = if ran_late { ", but the machine ran late" } else { "" };
        remarks.push(format!("expected: within {}{but}", number::time(due * 1e6)));
    }
    if deaths.late > 0 {
        remarks.push(format!("{} of them too late", number::count(deaths.late)));
    }
    if mechanism == Mechanism::Lazy && !told_by_itself(deaths) {
        remarks.push("when new connections needed places".to_owned());
    }
    let when = range_us(detection_us);
    if remarks.is_empty() { when } else { format!("{when} ({})", remarks.join("; ")) }
}

/// What a live connection costs in the arms that detected deaths.
fn price(detected: &[Detected<'_, '_>]) -> Option<String> {
    let mut costs: Vec<(String, Vec<String>)> = Vec::new();
    for (told, _) in detected {
        // A RST or a FIN costs nothing, and lazy reaping sends nothing by itself.
        let is_free = told.deaths().is_none_or(told_by_itself);
        if is_free || told.mechanism() == Mechanism::Lazy {
            continue;
        }
        let Some(packets) = told.an_hour() else { continue };
        match costs.iter_mut().find(|(known, _)| *known == packets) {
            Some((_, names)) => names.push(told.name()),
            None => costs.push((packets, vec![told.name()])),
        }
    }
    let mut phrases: Vec<String> = Vec::new();
    for (packets, names) in &costs {
        // One unit is enough.
        let again = if phrases.is_empty() { UNIT } else { "" };
        let figure = packets.replacen(UNIT, again, 1);
        phrases.push(format!("{figure} with {}", enumerated(names)));
    }
    (!phrases.is_empty()).then(|| format!("A live connection costs {}.", phrases.join(", ")))
}

/// Whether a RST or a FIN reports the death, whatever the mechanism.
fn told_by_itself(deaths: &Deaths) -> bool {
    matches!(deaths.fault.as_str(), "reset" | "close")
}

fn of_dead(deaths: &Deaths) -> String {
    let dead = number::count(deaths.dead);
    match (deaths.known, deaths.dead) {
        (1, 1) => "the dead connection".to_owned(),
        (known, all) if known == all => format!("all {dead} dead connections"),
        (known, _) => format!("{} of {dead} dead connections", number::count(known)),
    }
}

/// Which arms missed deaths, and why, from the causes: what several have in common is stated once.
fn never(summary: &Summary, arms: &[CheckedArm<'_>]) -> Vec<String> {
    let mut said: Vec<(&str, Vec<String>)> = Vec::new();
    for cause in summary.causes.iter().filter(|cause| cause.id == advice::UNNOTICED) {
        let Some(told) = arms.iter().find(|told| told.arm.name == cause.arm) else { continue };
        match said.iter_mut().find(|(text, _)| *text == cause.text) {
            Some((_, names)) => names.push(told.name()),
            None => said.push((&cause.text, vec![told.name()])),
        }
    }
    first_stated(&said)
        .iter()
        .map(|(text, names)| format!("With {}, {text}", enumerated(names)))
        .collect()
}

/// Live connections that an arm closed.
struct Closed {
    name: String,
    count: u64,
    /// Live connections, and the number that the loss makes likely: least, mean, most.
    expected: Option<(u64, [f64; 3])>,
}

/// Live connections that were closed, next to the number computed from the loss.
fn wrongly_closed(arms: &[CheckedArm<'_>]) -> Option<String> {
    let closed = |told: &CheckedArm<'_>| {
        let of_fault = told.deaths().map_or(0, |deaths| deaths.wrongly_closed);
        let count = told.arm.errors.get("closed-alive").copied().unwrap_or(0).max(of_fault);
        let expected =
            told.deaths().and_then(|deaths| Some((deaths.alive, deaths.expected_wrongly?)));
        let shown = count > 0 || expected.is_some();
        shown.then(|| Closed { name: told.name(), count, expected })
    };
    let all: Vec<Closed> = arms.iter().filter_map(closed).collect();
    let phrase = |one: &Closed| {
        let (name, count) = (&one.name, number::count(one.count));
        match one.expected {
            Some((alive, [least, mean, most])) => {
                let alive = number::count(alive);
                let [least, mean, most] = [least, mean, most].map(number::plain);
                format!(
                    "{name} closed {count} of {alive} live connections (expected: {mean}; \
                     {least} to {most} in 99 of 100 runs)"
                )
            }
            None => format!("{name} closed {count} live connections (false alarms)"),
        }
    };
    match stated(all, |one| one.count as f64) {
        Excerpt::Each(all) if all.is_empty() => None,
        Excerpt::Each(all) => {
            let phrases: Vec<String> = all.iter().map(phrase).collect();
            Some(capital(&enumerated(&phrases)) + ".")
        }
        Excerpt::Ends(least, most, count) => Some(format!(
            "Of {count} arms, {}, the fewest, and {}, the most.",
            phrase(&least),
            phrase(&most)
        )),
    }
}

/// The settings that `--detect-within` asked for; where to set them is in the advice.
fn settings(summary: &Summary, counts: fn(&Advice) -> bool) -> Option<String> {
    let is_asked = |one: &&Advice| one.cause == advice::UNNOTICED && counts(one);
    let change = first_sentence(&summary.advice.iter().find(is_asked)?.change);
    let (settings, _) = change.split_once(" on each connection").unwrap_or((change, ""));
    Some(settings.trim_end_matches('.').to_owned() + ".")
}

/// One by one, or from the least to the most.
fn listed<T>(all: Vec<T>, size: impl Fn(&T) -> f64, phrase: impl Fn(&T) -> String) -> String {
    match stated(all, size) {
        Excerpt::Each(all) => all.iter().map(phrase).collect::<Vec<_>>().join(", "),
        Excerpt::Ends(least, most, _) => format!("from {} to {}", phrase(&least), phrase(&most)),
    }
}

/// What checking puts on the wire.
fn packets(arms: &[CheckedArm<'_>]) -> Option<String> {
    let counted: Vec<(&CheckedArm<'_>, f64)> = arms
        .iter()
        .filter(|told| told.mechanism() != Mechanism::None)
        .filter_map(|told| Some((told, told.packets_per_hour()?)))
        .collect();
    if counted.is_empty() {
        return None;
    }
    // Probes that were never due.
    let inert = |(told, _): &(&CheckedArm<'_>, f64)| {
        let period = told.checked.checking.period_s();
        told.mechanism() == Mechanism::Tcp
            && told.checked.probes.is_some_and(|probes| probes.packets == 0)
            && period.is_some_and(|s| s > told.checked.window_s)
    };
    if counted.iter().all(inert) {
        let idle = counted.iter().find_map(|(told, _)| told.checked.checking.period_s())?;
        return Some(format!(
            "No probe was sent because the idle time of {} s is longer than any trial.",
            number::count(idle as u64)
        ));
    }
    let phrase = |(told, _): &(&CheckedArm<'_>, f64)| {
        format!("{} with {}", told.an_hour().unwrap_or_default(), told.name())
    };
    let list = listed(counted, |(_, size)| *size, phrase);
    // One unit is enough.
    let list = match list.find(UNIT).map(|at| list.split_at(at + UNIT.len())) {
        Some((first, others)) => {
            format!("{first}{}", others.replace(UNIT, "").replace("no packets", "none"))
        }
        None => list,
    };
    Some(format!("An idle connection costs {list}."))
}

/// CPU time of the mechanisms: of the whole machine where nothing is written, else of the programs
/// that hold the connections.
fn cpu(arms: &[CheckedArm<'_>]) -> Option<String> {
    let machine = |told: &CheckedArm<'_>| value(told.arm, "machine_cpu_us_per_s_per_1000_sockets");
    let whole = arms.iter().all(|told| machine(told).is_some());
    let fleets = |told: &CheckedArm<'_>| {
        let client = value(told.arm, "client_fleet_cpu_us_per_s_per_1000_sockets")?;
        Some(client + value(told.arm, "server_fleet_cpu_us_per_s_per_1000_sockets").unwrap_or(0.0))
    };
    let used: Vec<(&CheckedArm<'_>, f64)> = arms
        .iter()
        .filter_map(|told| Some((told, if whole { machine(told)? } else { fleets(told)? })))
        .collect();
    if used.is_empty() {
        return None;
    }
    let phrase = |(told, us): &(&CheckedArm<'_>, f64)| {
        let us = number::time(*us);
        match told.mechanism() {
            Mechanism::None if told.unique => format!("{us}/s unchecked"),
            _ => format!("{us}/s with {}", told.name()),
        }
    };
    let list = listed(used, |(_, size)| *size, phrase);
    let scope = if whole { "whole machine" } else { "programs only" };
    Some(format!("CPU per 1,000 idle connections ({scope}): {list}."))
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let arms = told(summary);
    let mut steps = explanations(summary);
    match summary.study.as_deref() {
        Some("keepalive-2003") => {
            steps.push(step(
                "tcptoll study keepalive-cost",
                "the same question with 50,000 connections today",
            ));
        }
        Some("keepalive-cost") => {
            steps.push(step(
                "tcptoll study keepalive-sayings",
                "how programs detect a dead peer: common claims, tested",
            ));
        }
        None if summary.place.kind == PlaceKind::Lab => steps.extend(next_in_lab(&arms)),
        Some(_) | None => {}
    }
    steps
}

fn next_in_lab(arms: &[CheckedArm<'_>]) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let faults = |name: &str| {
        arms.iter().filter_map(CheckedArm::deaths).any(|deaths| deaths.fault.starts_with(name))
    };
    if arms.iter().all(|told| told.deaths().is_none()) {
        steps.push(step(
            "tcptoll keepalive --fault cut",
            "which mechanism detects a dead peer, and how fast",
        ));
        return steps;
    }
    if faults("cut") && arms.iter().all(|told| told.checked.detect_within_s.is_none()) {
        steps.push(step(
            "tcptoll keepalive --detect-within 30s",
            "the cheapest settings that detect a dead peer in time, tested",
        ));
    }
    if faults("cut") && !faults("freeze") {
        steps.push(step(
            "tcptoll keepalive --mechanism heartbeat --evidence acknowledged,answered --fault freeze",
            "a stopped process whose kernel still answers",
        ));
    }
    if faults("freeze") || faults("loss") {
        steps.push(step(
            "tcptoll study keepalive-cost",
            "what testing 50,000 idle connections costs",
        ));
    }
    steps
}

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] =
    &[&ACCEPT_QUEUE_FULL, &SYN_QUEUE_FULL, &LOCAL_PORTS_SCARCE, &DEAD_PEER_UNNOTICED];

/// Peers died, and this was not detected.
const DEAD_PEER_UNNOTICED: CauseSpec =
    CauseSpec::new(advice::UNNOTICED, dead_peer_unnoticed).remedied(advice::remedies);

/// Connections died, and some of them were not detected before watching ended.
pub(super) fn dead_peer_unnoticed(arm: &Arm) -> Option<Finding> {
    let keepalive = arm.own.keepalive.as_ref()?;
    let deaths = keepalive.deaths.as_ref().filter(|deaths| deaths.known < deaths.dead)?;
    let evidence = [
        ("fault", Value::from(deaths.fault.clone())),
        ("dead", Value::from(deaths.dead)),
        ("known", Value::from(deaths.known)),
        ("watched_s", Value::from(deaths.watched_s)),
    ];
    let why = why(&keepalive.checking, deaths);
    let text = format!(
        "{} of {} dead connections were not detected within {}: {why}.",
        number::count(deaths.dead - deaths.known),
        number::count(deaths.dead),
        number::time(deaths.watched_s * 1e6)
    );
    Some(Finding::new(text, evidence))
}

/// Why a mechanism does not detect such a death, one clause.
fn why(checking: &Checking, deaths: &Deaths) -> String {
    let frozen = deaths.fault == "freeze";
    let by_kernel = checking.evidence != Some(Evidence::Answered);
    match checking.mechanism {
        Mechanism::None => "nothing is sent that could fail".to_owned(),
        Mechanism::Tcp if frozen => "the stopped peer's kernel answers probes".to_owned(),
        Mechanism::Heartbeat | Mechanism::Lazy if frozen && by_kernel => {
            "the stopped peer's kernel acknowledges heartbeats".to_owned()
        }
        Mechanism::Write if frozen => {
            "the stopped peer's kernel acknowledges written data until its receive buffer is full"
                .to_owned()
        }
        Mechanism::Lazy if deaths.arrivals == 0 => {
            "no new connection needed their places".to_owned()
        }
        Mechanism::Lazy => "too few new connections needed their places".to_owned(),
        _ => match deaths.bound_s.filter(|bound| *bound > deaths.watched_s) {
            Some(bound) if checking.mechanism == Mechanism::Write => format!(
                "the kernel still retransmits, for up to {} after the death (computed)",
                number::time(bound * 1e6)
            ),
            Some(bound) => {
                format!("detection takes up to {} (computed)", number::time(bound * 1e6))
            }
            None => "detection was due, but did not come; look at the packets (--pcap)".to_owned(),
        },
    }
}
