//! Arms that differ in the size of their messages alone, and from which size they fill the link.

use crate::kit::conclusion::value;
use tcptoll_core::record::Arm;
use tcptoll_core::study::level_text;
use tcptoll_core::units::{human_us, text_size};

use super::Pattern;
use tcptoll_core::experiment::figures::GOODPUT;

/// From this share of the best goodput on, or of the link's rate, a size fills the link.
pub(super) const FILLED: f64 = 0.9;

/// Arms of one way to send, by the size of their messages.
#[derive(Debug)]
pub(super) struct Series<'a> {
    /// What tells it from the others of the run: `Nagle on`.
    pub(super) name: String,
    /// Whether Nagle's algorithm is on.
    pub(super) nagle: bool,
    /// How messages are put together; `None`: each is written alone.
    pub(super) block_bytes: Option<u64>,
    /// Everything but Nagle's algorithm and blocks: arms of two series are alike where it is equal.
    rest: Vec<String>,
    /// In ascending order of their sizes.
    pub(super) points: Vec<Point<'a>>,
}

/// One size of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point<'a> {
    /// Size of a message.
    pub(super) bytes: u64,
    /// Its goodput.
    pub(super) bytes_per_s: f64,
    /// The arm.
    pub(super) arm: &'a Arm,
}

/// What a goodput is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Best {
    /// Goodput.
    pub(super) bytes_per_s: f64,
    /// Whether it is what the link's rate allows, and not what an arm reached.
    pub(super) is_link: bool,
}

/// The settings of an arm besides the size of its messages, in words: Nagle's algorithm, blocks, and the
/// rest. Empty: as by default.
fn settings(arm: &Arm) -> Option<(String, String, Vec<String>)> {
    let message = arm.own.message.as_ref()?;
    let transfer = arm.own.transfer.as_ref()?;
    let nagle = if transfer.nagle { "Nagle on" } else { "Nagle off" };
    let block = message
        .coalesce_bytes
        .map_or_else(String::new, |bytes| format!("{} of {}", message.coalesce, text_size(bytes)));
    let program = match &message.encoding {
        Some(encoding) => format!("{} {encoding}", message.program),
        None => message.program.clone(),
    };
    let work = |name: &str, us: f64| {
        if us > 0.0 { format!("{name} {}", human_us(us)) } else { String::new() }
    };
    let window = transfer.client.send_buffer.asked_bytes.map(text_size);
    let rest = vec![
        program,
        work("work", message.work_us),
        work("receiver work", message.receiver_work_us),
        window.map_or_else(String::new, |size| format!("window {size}")),
        transfer.client.congestion.clone(),
        arm.factors.get("link").map_or_else(String::new, level_text),
    ];
    Some((nagle.to_owned(), block, rest))
}

/// A size in a sentence: `1 byte`, `1500 bytes`, `16 KiB`.
pub(super) fn size_words(bytes: u64) -> String {
    let text = text_size(bytes);
    match (bytes, text.split_at(text.len().saturating_sub(1))) {
        (1, _) => "1 byte".to_owned(),
        (_, (count, unit @ ("K" | "M" | "G"))) => format!("{count} {unit}iB"),
        _ => format!("{text} bytes"),
    }
}

/// The series of arms whose messages nobody answers, in order of their first arms.
pub(super) fn group<'a>(arms: &[&'a Arm]) -> Vec<Series<'a>> {
    let mut found: Vec<(Vec<String>, Series<'a>)> = Vec::new();
    for &arm in arms {
        let Some(message) = &arm.own.message else { continue };
        let (Some((nagle, block, rest)), Some(goodput)) = (settings(arm), value(arm, GOODPUT.name))
        else {
            continue;
        };
        if message.pattern != Pattern::OneWay.name() {
            continue;
        }
        let point = Point { bytes: message.bytes, bytes_per_s: goodput, arm };
        let key: Vec<String> = [nagle.clone(), block].into_iter().chain(rest.clone()).collect();
        if let Some((_, series)) = found.iter_mut().find(|(other, _)| *other == key) {
            series.points.push(point);
            continue;
        }
        let series = Series {
            name: nagle,
            nagle: arm.own.transfer.as_ref().is_some_and(|transfer| transfer.nagle),
            block_bytes: message.coalesce_bytes,
            rest,
            points: vec![point],
        };
        found.push((key, series));
    }
    let keys: Vec<Vec<String>> = found.iter().map(|(key, _)| key.clone()).collect();
    let mut all: Vec<Series<'a>> = found
        .into_iter()
        .map(|(key, series)| Series { name: name(&key, &keys).unwrap_or(series.name), ..series })
        .collect();
    for series in &mut all {
        series.points.sort_by_key(|point| point.bytes);
    }
    all
}

/// The settings that are not the same in all series; `None`: there is none.
fn name(key: &[String], keys: &[Vec<String>]) -> Option<String> {
    let differs = |at: usize| keys.iter().any(|other| other[at] != key[at]);
    let differing: Vec<&str> = key
        .iter()
        .enumerate()
        .filter(|(at, text)| differs(*at) && !text.is_empty())
        .map(|(_, text)| text.as_str())
        .collect();
    (!differing.is_empty()).then(|| differing.join(", "))
}

/// The link's rate where all arms have the same one, else the best goodput of any; `None`: arms of several
/// links are not held against one.
pub(super) fn best(arms: &[&Arm]) -> Option<Best> {
    let links: Vec<Option<f64>> = arms
        .iter()
        .filter_map(|arm| arm.own.transfer.as_ref())
        .map(|transfer| transfer.link_bytes_per_s)
        .collect();
    let first = *links.first()?;
    let is_same = |other: &Option<f64>| match (first, *other) {
        (None, None) => true,
        (Some(a), Some(b)) => (a / b - 1.0).abs() < 0.01,
        _ => false,
    };
    if !links.iter().all(is_same) {
        return None;
    }
    if let Some(bytes_per_s) = first {
        return Some(Best { bytes_per_s, is_link: true });
    }
    let most = arms.iter().filter_map(|arm| value(arm, GOODPUT.name)).reduce(f64::max)?;
    Some(Best { bytes_per_s: most, is_link: false })
}

impl<'a> Series<'a> {
    /// The smallest size from which on every size fills the link.
    pub(super) fn fills_from(&self, best_bytes_per_s: f64) -> Option<u64> {
        let fills = |point: &&Point<'_>| point.bytes_per_s >= best_bytes_per_s * FILLED;
        self.points.iter().rev().take_while(fills).last().map(|point| point.bytes)
    }

    /// Its point of this size.
    pub(super) fn at(&self, bytes: u64) -> Option<Point<'a>> {
        self.points.iter().find(|point| point.bytes == bytes).copied()
    }

    /// Whether both send alike but for Nagle's algorithm and blocks.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.rest == other.rest
    }
}
