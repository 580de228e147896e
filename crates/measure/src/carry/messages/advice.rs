//! The advice that a well-known page of 2008 draws from its table, where the arms of this run support it,
//! and its correction where they do not:
//!
//! 1. with Nagle's algorithm on, blocks of 1 KiB or more are fine;
//! 2. with Nagle's algorithm off, batch small messages into 1 to 4 KiB;
//! 3. from 4 KiB a message, and where latency matters, turn Nagle's algorithm off.
//!
//! Each needs arms that differ in the size of their messages alone: a series, with the size from which on it fills
//! the link. A run that has none says nothing of it.

use tcptoll_core::experiment::figures::{GOODPUT, LATENCY};
use tcptoll_core::finding::Remedy;
use tcptoll_core::number;
use tcptoll_core::record::HistogramSummary;
use tcptoll_core::record::{Advice, Arm};
use tcptoll_core::study::level_text;
use tcptoll_core::units::text_size;

use super::Pattern;
use crate::kit::conclusion::{changed, value};

/// A block that is fine with Nagle's algorithm on, and the smallest block of a batch.
const KIB: u64 = 1_024;

/// The largest block of a batch, and the size from which Nagle's algorithm gains nothing.
const FOUR_KIB: u64 = 4 * KIB;

/// Two figures within this share of each other are alike: what one round on a busy machine may differ by.
const ALIKE: f64 = 0.1;

/// Advice of the run: its own figures, with the cost of a remedy and how to undo it.
fn figured(cause: &str, name: &str, change: String, proof: String) -> Advice {
    Remedy { change, proof: Some(proof), ..Remedy::named(cause, name) }.advice(cause)
}

fn blocks(change: String, proof: String) -> Advice {
    figured("message-overhead", "blocks", change, proof)
}

const NAGLE: &str = "nagle-delayed-ack";

/// What the arms support, corrected where they do not.
pub(super) fn advise(arms: &[Arm]) -> Vec<Advice> {
    let measured: Vec<&Arm> =
        arms.iter().filter(|arm| arm.failure.is_none() && arm.ok > 0).collect();
    let all = group(&measured);
    let best = best(&measured);
    let mut advice = Vec::new();
    if let Some(best) = best {
        advice.extend(blocks_with_nagle(&all, best));
        advice.extend(batches_without_nagle(&all));
        advice.extend(large_without_nagle(&all));
    }
    advice.extend(latency_without_nagle(&measured));
    advice
}

/// The only series of this kind. `None` also where there are several, as of two programs: what is true of
/// one of them may be false of the other.
fn only<'a, 'b>(all: &'b [Series<'a>], is: impl Fn(&Series<'a>) -> bool) -> Option<&'b Series<'a>> {
    let mut found = all.iter().filter(|one| is(one));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// 1: whether blocks of 1 KiB fill the link, or from which size on they do.
fn blocks_with_nagle(all: &[Series<'_>], best: Best) -> Option<Advice> {
    let series = only(all, |one| one.nagle && one.block_bytes.is_none() && one.points.len() > 1)?;
    let block = *series.points.iter().find(|point| point.bytes >= KIB)?;
    let smallest = *series.points.first()?;
    // Where no size fills the link, another limit decides.
    let from = series.fills_from(best.bytes_per_s)?;
    let share = |point: Point<'_>| {
        let percent = number::percent(point.bytes_per_s / best.bytes_per_s);
        format!("{} {percent}", number::size(point.bytes))
    };
    let change = if from == smallest.bytes {
        format!(
            "With Nagle's algorithm on, messages of {} or more need no buffering.",
            number::size(from)
        )
    } else if from <= block.bytes {
        format!(
            "With Nagle's algorithm on, write blocks of {} or more; buffer smaller messages.",
            number::size(from)
        )
    } else {
        format!(
            "With Nagle's algorithm on, write blocks of {} or more; {} is too small here.",
            number::size(from),
            number::size(block.bytes)
        )
    };
    let mut shown = vec![share(smallest)];
    shown.extend((block.bytes != smallest.bytes).then(|| share(block)));
    shown.extend(series.at(from).filter(|_| from > block.bytes).map(share));
    let reference = if best.is_link { "the link's rate" } else { "the best goodput" };
    Some(blocks(
        change,
        format!(
            "share of {reference} ({}): {}",
            number::bit_rate(best.bytes_per_s * 8.0),
            shown.join(", ")
        ),
    ))
}

/// 2: messages below 1 KiB, put together into blocks of 1 to 4 KiB with Nagle's algorithm off.
fn batches_without_nagle(all: &[Series<'_>]) -> Option<Advice> {
    let plain = only(all, |one| !one.nagle && one.block_bytes.is_none())?;
    let is_batch = |one: &&Series<'_>| {
        !one.nagle
            && one.block_bytes.is_some_and(|bytes| (KIB..=FOUR_KIB).contains(&bytes))
            && one.is_like(plain)
    };
    // The best of the ways to put messages together, at the smallest message that both have.
    let gain = |batch: &Series<'_>| {
        let alone = plain.points.iter().find(|p| p.bytes < KIB && batch.at(p.bytes).is_some())?;
        let together = batch.at(alone.bytes)?;
        Some((together.bytes_per_s / alone.bytes_per_s, alone.bytes))
    };
    let (batch, (ratio, bytes)) = all
        .iter()
        .filter(is_batch)
        .filter_map(|batch| Some((batch, gain(batch)?)))
        .max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let block = number::size(batch.block_bytes?);
    let change = if ratio >= 1.0 + ALIKE {
        format!(
            "With TCP_NODELAY, collect small messages in the program and write blocks of {block}."
        )
    } else {
        format!(
            "With TCP_NODELAY, do not batch messages of {} into {block}: it gains nothing here.",
            number::size(bytes)
        )
    };
    Some(blocks(
        change,
        format!(
            "messages of {} with {}: {} the messages/s of single writes",
            number::size(bytes),
            batch.name,
            number::times(ratio, None)[0]
        ),
    ))
}

/// 3: what Nagle's algorithm gains from 4 KiB on.
fn large_without_nagle(all: &[Series<'_>]) -> Option<Advice> {
    let on = only(all, |one| one.nagle && one.block_bytes.is_none())?;
    let is_pair = |one: &&Series<'_>| !one.nagle && one.block_bytes.is_none() && one.is_like(on);
    let off = all.iter().find(is_pair)?;
    let ratios: Vec<(u64, f64)> = on
        .points
        .iter()
        .filter(|point| point.bytes >= FOUR_KIB)
        .filter_map(|point| {
            Some((point.bytes, off.at(point.bytes)?.bytes_per_s / point.bytes_per_s))
        })
        .collect();
    let worst = ratios.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (bytes, ratio) = worst;
    let smallest = number::size(ratios.first()?.0);
    let change = if ratio >= 1.0 - ALIKE {
        format!("For messages of {smallest} or more, set TCP_NODELAY: it costs no bandwidth.")
    } else {
        format!(
            "For messages of {}, leave Nagle's algorithm on: TCP_NODELAY costs bandwidth here.",
            number::size(bytes)
        )
    };
    let proof = format!(
        "from {smallest} on, TCP_NODELAY has at least {} the goodput of Nagle's algorithm",
        number::times(ratio, None)[0]
    );
    Some(figured(NAGLE, "nodelay", change, proof))
}

/// 3: exchanges that differ in Nagle's algorithm alone.
fn latency_without_nagle(arms: &[&Arm]) -> Option<Advice> {
    let typical = |arm: &Arm| typical_us(arm.histograms.get(LATENCY.name)?);
    let nagle = |arm: &Arm| arm.own.transfer.as_ref().map(|transfer| transfer.nagle);
    let alike = |a: &Arm, b: &Arm| {
        // Which of its acknowledgments were seen differs from arm to arm.
        let sent = |arm: &Arm| {
            arm.own
                .message
                .clone()
                .map(|message| tcptoll_core::record::MessageWay { acks: None, ..message })
        };
        changed(a, b).iter().all(|option| *option == "nagle") && sent(a) == sent(b)
    };
    let pairs = arms.iter().filter(|arm| nagle(arm) == Some(true)).filter_map(|on| {
        let off = arms.iter().find(|off| nagle(off) == Some(false) && alike(on, off))?;
        Some((typical(on)?, typical(off)?))
    });
    let (on_us, off_us) = pairs.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))?;
    let proof = format!(
        "an exchange takes {} with Nagle's algorithm and {} with TCP_NODELAY (medians)",
        number::time(on_us),
        number::time(off_us)
    );
    let gains = off_us <= on_us * (1.0 - ALIKE);
    let remedy = Remedy::named(NAGLE, if gains { "nodelay" } else { "keep-nagle" });
    Some(remedy.proven(Some(proof)).advice(NAGLE))
}

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
    block_bytes: Option<u64>,
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
    pub(super) bytes_per_s: f64,
    pub(super) arm: &'a Arm,
}

/// What a goodput is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Best {
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
        if us > 0.0 { format!("{name} {}", number::time(us)) } else { String::new() }
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
    fn is_like(&self, other: &Self) -> bool {
        self.rest == other.rest
    }
}

/// A typical exchange, µs.
pub(super) fn typical_us(latency: &HistogramSummary) -> Option<f64> {
    latency.p50.or(latency.mean)
}
