//! What follows from the arms of `keepalive`: the answer in a sentence, causes, advice, what next.

use super::{advice, causes};
use crate::checking::Mechanism;
use crate::experiments::conclusion::{
    Stated, capital, comparisons, explain, explanations, few, first_stated, stated, step, value,
};
use crate::record::{Arm, Comparison, Deaths, Keepalive, NextStep, PlaceKind, Summary};
use crate::units::{human_count, human_us};

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, causes::ALL, |_, _| None);
    if summary.causes.iter().all(|cause| cause.id != advice::UNNOTICED) {
        // Settings that a wanted detection time chose are shown with their proof.
        summary.advice.extend(advice::asked_for(summary));
    }
    summary.answer = answer(summary);
    summary.next = next(summary);
}

/// An arm and how it checked.
#[derive(Clone, Copy)]
struct Told<'a> {
    arm: &'a Arm,
    checked: &'a Keepalive,
    /// Whether the mechanism alone names it.
    unique: bool,
}

impl Told<'_> {
    fn mechanism(&self) -> Mechanism {
        self.checked.checking.mechanism
    }

    /// Its name in a sentence.
    fn name(&self) -> String {
        if !self.unique {
            return self.arm.name.clone();
        }
        match self.mechanism() {
            Mechanism::None => "only reading",
            Mechanism::Tcp => "the kernel's probes",
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

    /// Packets of an hour, in words: as measured, else by arithmetic.
    fn an_hour(&self) -> Option<String> {
        let by_arithmetic = || {
            let computed = self.checked.computed_packets_per_hour()?;
            Some(format!("{} by arithmetic", an_hour(computed)))
        };
        value(self.arm, "checking_packets_per_hour_per_socket").map(an_hour).or_else(by_arithmetic)
    }

    /// The same, to compare.
    fn packets_per_hour(&self) -> Option<f64> {
        value(self.arm, "checking_packets_per_hour_per_socket")
            .or_else(|| self.checked.computed_packets_per_hour())
    }
}

fn told(summary: &Summary) -> Vec<Told<'_>> {
    let checked: Vec<(&Arm, &Keepalive)> = summary
        .arms
        .iter()
        .filter(|arm| arm.failure.is_none())
        .filter_map(|arm| Some((arm, arm.own.keepalive.as_ref()?)))
        .collect();
    let count = |mechanism| {
        checked.iter().filter(|(_, checked)| checked.checking.mechanism == mechanism).count()
    };
    checked
        .iter()
        .map(|(arm, checked)| {
            let unique = count(checked.checking.mechanism) == 1;
            Told { arm, checked, unique }
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
        sentences.extend(known(&arms));
        sentences.extend(never(summary, &arms));
    } else {
        sentences.extend(rates(summary));
        sentences.extend(packets(&arms));
        sentences.extend(cpu(&arms));
    }
    sentences.extend(wrongly_closed(&arms));
    sentences.join(" ")
}

/// Packets of an hour, in words.
fn an_hour(packets: f64) -> String {
    match packets {
        0.0 => "no packet".to_owned(),
        packets if packets < 10.0 => format!("{packets:.1} packets an hour"),
        packets => format!("{} packets an hour", human_count(packets.round() as u64)),
    }
}

/// Who knew of deaths, when, and what a live connection paid for it.
fn known(arms: &[Told<'_>]) -> Option<String> {
    let knew: Vec<(&Told<'_>, [f64; 2])> = arms
        .iter()
        .filter(|told| told.deaths().is_some_and(|deaths| deaths.known > 0))
        .filter_map(|told| Some((told, told.detection_us()?)))
        .collect();
    let (knew, of) = match stated(knew, |(_, [_, last_us])| *last_us) {
        Stated::Each(all) => (all, None),
        Stated::Ends(quickest, slowest, of) => (vec![quickest, slowest], Some(of)),
    };
    let mut phrases = Vec::new();
    for (told, [min, max]) in &knew {
        let deaths = told.deaths()?;
        let last_us = *max;
        let (min, max) = (human_us(*min), human_us(*max));
        let when =
            if min == max { format!("{max} after") } else { format!("{min} to {max} after") };
        let mut phrase = format!("{} knew of {} {when}", told.name(), of_dead(deaths));
        if let Some(due) = deaths.due_s() {
            phrase += &format!(" (due within {})", human_us(due * 1e6));
            if deaths.late == 0 && last_us > due * 1e6 {
                phrase += ", because the machine ran it late";
            }
        }
        if deaths.late > 0 {
            phrase += &format!(", {} of them too late", human_count(deaths.late));
        }
        // What tells by itself costs nothing to know.
        let silent = !told_by_itself(deaths);
        if silent && told.mechanism() == Mechanism::Lazy {
            phrase += ", because others wanted the places: it sends nothing, and knows nothing, until then";
        } else if let Some(packets) = told.an_hour().filter(|_| silent) {
            phrase += &format!(", with {packets} for each live one");
        }
        phrases.push(phrase);
    }
    if phrases.is_empty() {
        return None;
    }
    let all = capital(&phrases.join("; "));
    Some(match of {
        None => format!("{all}."),
        Some(of) => format!("The quickest and the slowest of {of}: {all}."),
    })
}

/// Whether a RST or a FIN says so, whatever the mechanism.
fn told_by_itself(deaths: &Deaths) -> bool {
    matches!(deaths.fault.as_str(), "reset" | "close")
}

fn of_dead(deaths: &Deaths) -> String {
    let dead = human_count(deaths.dead);
    match (deaths.known, deaths.dead) {
        (1, 1) => "the dead connection".to_owned(),
        (known, all) if known == all => format!("all {dead} dead connections"),
        (known, _) => format!("{} of {dead} dead connections", human_count(known)),
    }
}

/// Who never knew, and why, from the causes: what several have in common is said once.
fn never(summary: &Summary, arms: &[Told<'_>]) -> Option<String> {
    let mut said: Vec<(&str, Vec<String>)> = Vec::new();
    for cause in summary.causes.iter().filter(|cause| cause.id == advice::UNNOTICED) {
        let Some(told) = arms.iter().find(|told| told.arm.name == cause.arm) else { continue };
        match said.iter_mut().find(|(text, _)| *text == cause.text) {
            Some((_, names)) => names.push(told.name()),
            None => said.push((&cause.text, vec![told.name()])),
        }
    }
    let sentences: Vec<String> = first_stated(&said)
        .iter()
        .map(|(text, names)| format!("With {} {text}", names.join(" and ")))
        .collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Live connections that were closed, against what arithmetic expects of the loss.
fn wrongly_closed(arms: &[Told<'_>]) -> Option<String> {
    let mut phrases = Vec::new();
    for told in arms {
        let of_fault = told.deaths().map_or(0, |deaths| deaths.wrongly_closed);
        let closed = told.arm.errors.get("closed-alive").copied().unwrap_or(0).max(of_fault);
        let expected = told.deaths().and_then(|deaths| Some((deaths, deaths.expected_wrongly?)));
        let phrase = match expected {
            Some((deaths, [least, mean, most])) => format!(
                "{} closed {} of {} live connections wrongly, where arithmetic expects {} ({} to {})",
                told.name(),
                human_count(closed),
                human_count(deaths.alive),
                few(mean),
                few(least),
                few(most)
            ),
            None if closed > 0 => format!(
                "{} closed {} live connections although nothing was to be lost",
                told.name(),
                human_count(closed)
            ),
            None => continue,
        };
        phrases.push(phrase);
    }
    (!phrases.is_empty()).then(|| capital(&phrases.join("; ")) + ".")
}

/// What checking leaves of the messages of the connection that writes.
fn rates(summary: &Summary) -> Option<String> {
    let one = |comparison: &Comparison| {
        let ratio = comparison.ratio?;
        let interval = comparison
            .ci95
            .map_or_else(String::new, |[low, high]| format!(" [{low:.3}, {high:.3}]"));
        let Comparison { a, b, verdict, .. } = comparison;
        Some(format!("{a} has {ratio:.3}{interval} of the messages of {b}: {verdict}"))
    };
    match comparisons(summary, "messages_per_s") {
        Stated::Each(all) => {
            let phrases: Vec<String> = all.into_iter().filter_map(one).collect();
            (!phrases.is_empty()).then(|| capital(&phrases.join("; ")) + ".")
        }
        Stated::Ends(least, most, of) => Some(format!(
            "Of {of} comparisons, the least: {}; the most: {}.",
            one(least)?,
            one(most)?
        )),
    }
}

/// One by one, or from the least to the most.
fn listed<T>(all: Vec<T>, size: impl Fn(&T) -> f64, phrase: impl Fn(&T) -> String) -> String {
    match stated(all, size) {
        Stated::Each(all) => all.iter().map(phrase).collect::<Vec<_>>().join(", "),
        Stated::Ends(least, most, _) => format!("from {} to {}", phrase(&least), phrase(&most)),
    }
}

/// What checking puts on the wire.
fn packets(arms: &[Told<'_>]) -> Option<String> {
    let counted: Vec<(&Told<'_>, f64)> = arms
        .iter()
        .filter(|told| told.mechanism() != Mechanism::None)
        .filter_map(|told| Some((told, told.packets_per_hour()?)))
        .collect();
    if counted.is_empty() {
        return None;
    }
    // Probes that were never due.
    let inert = |(told, _): &(&Told<'_>, f64)| {
        let period = told.checked.checking.period_s();
        told.mechanism() == Mechanism::Tcp
            && told.checked.probes.is_some_and(|probes| probes.packets == 0)
            && period.is_some_and(|s| s > told.checked.window_s)
    };
    if counted.iter().all(inert) {
        let idle = counted.iter().find_map(|(told, _)| told.checked.checking.period_s())?;
        return Some(format!(
            "Not one probe was sent: the idle time of {} s is longer than any trial.",
            human_count(idle as u64)
        ));
    }
    let phrase = |(told, _): &(&Told<'_>, f64)| {
        format!("{} with {}", told.an_hour().unwrap_or_default(), told.name())
    };
    let list = listed(counted, |(_, size)| *size, phrase);
    Some(format!("An idle connection takes {list}."))
}

/// CPU of checking: of the whole machine where nobody writes, else of the programs that check.
fn cpu(arms: &[Told<'_>]) -> Option<String> {
    let machine = |told: &Told<'_>| value(told.arm, "machine_cpu_us_per_s_per_1000_sockets");
    let whole = arms.iter().all(|told| machine(told).is_some());
    let fleets = |told: &Told<'_>| {
        let client = value(told.arm, "client_fleet_cpu_us_per_s_per_1000_sockets")?;
        Some(client + value(told.arm, "server_fleet_cpu_us_per_s_per_1000_sockets").unwrap_or(0.0))
    };
    let used: Vec<(&Told<'_>, f64)> = arms
        .iter()
        .filter_map(|told| Some((told, if whole { machine(told)? } else { fleets(told)? })))
        .collect();
    if used.is_empty() {
        return None;
    }
    let phrase = |(told, us): &(&Told<'_>, f64)| format!("{} with {}", human_us(*us), told.name());
    let list = listed(used, |(_, size)| *size, phrase);
    let who = if whole { "the machine, with all that ran on it," } else { "the programs" };
    Some(format!("Each 1,000 idle connections took {who} this much CPU a second: {list}."))
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let arms = told(summary);
    let mut steps = explanations(summary);
    match summary.study.as_deref() {
        Some("keepalive-2003") => {
            steps.push(step("tcptoll study keepalive-cost", "the same question for today"));
        }
        Some("keepalive-cost") => {
            steps.push(step("tcptoll study keepalive-sayings", "who learns of a death, and how"));
        }
        None if summary.place.kind == PlaceKind::Lab => steps.extend(next_in_lab(&arms)),
        Some(_) | None => {}
    }
    steps
}

fn next_in_lab(arms: &[Told<'_>]) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let faults = |name: &str| {
        arms.iter().filter_map(Told::deaths).any(|deaths| deaths.fault.starts_with(name))
    };
    if arms.iter().all(|told| told.deaths().is_none()) {
        steps.push(step("tcptoll keepalive --fault cut", "who learns of a death, and how soon"));
        return steps;
    }
    if faults("cut") && arms.iter().all(|told| told.checked.detect_within_s.is_none()) {
        steps.push(step(
            "tcptoll keepalive --detect-within 30s",
            "the cheapest settings that know in time, and the proof",
        ));
    }
    if faults("cut") && !faults("freeze") {
        steps.push(step(
            "tcptoll keepalive --mechanism heartbeat --evidence acknowledged,answered --fault freeze",
            "a stopped process on a running machine",
        ));
    }
    if faults("freeze") || faults("loss") {
        steps.push(step("tcptoll study keepalive-cost", "what checking 50,000 connections costs"));
    }
    steps
}

#[cfg(test)]
mod tests;
