//! The advice that a well-known page of 2008 draws from its table, where the arms of this run support it,
//! and its correction where they do not:
//!
//! 1. with Nagle's algorithm on, blocks of 1 KiB or more are fine;
//! 2. with Nagle's algorithm off, batch small messages into 1 to 4 KiB;
//! 3. from 4 KiB a message, and where latency matters, turn Nagle's algorithm off.
//!
//! Each needs arms that differ in nothing else. A run that has none says nothing of it.

use tcptoll_core::record::{Advice, Arm};
use tcptoll_core::units::{human_rate, human_us};

use super::causes::typical_us;
use super::series::{self, Best, Point, Series, size_words as size};
use tcptoll_core::experiment::figures::LATENCY;

/// A block that is fine with Nagle's algorithm on, and the smallest block of a batch.
const KIB: u64 = 1_024;

/// The largest block of a batch, and the size from which Nagle's algorithm gains nothing.
const FOUR_KIB: u64 = 4 * KIB;

/// Two figures within this share of each other are alike: what one round on a busy machine may differ by.
const ALIKE: f64 = 0.1;

/// A change that is answered for by small messages.
const OVERHEAD: &str = "message-overhead";

/// What the arms support, corrected where they do not.
pub(super) fn advise(arms: &[Arm]) -> Vec<Advice> {
    let measured: Vec<&Arm> =
        arms.iter().filter(|arm| arm.failure.is_none() && arm.ok > 0).collect();
    let all = series::group(&measured);
    let best = series::best(&measured);
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
        let percent = point.bytes_per_s / best.bytes_per_s * 100.0;
        format!("{} {percent:.0} %", size(point.bytes))
    };
    let change = if from == smallest.bytes {
        format!("With Nagle's algorithm on, messages of {} or more need no buffering.", size(from))
    } else if from <= block.bytes {
        format!(
            "With Nagle's algorithm on, write blocks of {} or more; buffer smaller messages.",
            size(from)
        )
    } else {
        format!(
            "With Nagle's algorithm on, write blocks of {} or more; {} is too small here.",
            size(from),
            size(block.bytes)
        )
    };
    let mut shown = vec![share(smallest)];
    shown.extend((block.bytes != smallest.bytes).then(|| share(block)));
    shown.extend(series.at(from).filter(|_| from > block.bytes).map(share));
    let reference = if best.is_link { "the link's rate" } else { "the best goodput" };
    Some(Advice {
        cause: OVERHEAD.to_owned(),
        change,
        cost: "A message waits until its block is full or flushed.".to_owned(),
        undo: "Write each message separately.".to_owned(),
        proof: Some(format!(
            "share of {reference} ({}): {}",
            human_rate(best.bytes_per_s * 8.0),
            shown.join(", ")
        )),
    })
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
    let block = size(batch.block_bytes?);
    let change = if ratio >= 1.0 + ALIKE {
        format!(
            "With TCP_NODELAY, collect small messages in the program and write blocks of {block}."
        )
    } else {
        format!(
            "With TCP_NODELAY, do not batch messages of {} into {block}: it gains nothing here.",
            size(bytes)
        )
    };
    Some(Advice {
        cause: OVERHEAD.to_owned(),
        change,
        cost: "A message waits until its block is full or flushed.".to_owned(),
        undo: "Write each message separately.".to_owned(),
        proof: Some(format!(
            "messages of {} with {}: {}× the messages/s of single writes",
            size(bytes),
            batch.name,
            factor(ratio)
        )),
    })
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
    let smallest = size(ratios.first()?.0);
    let change = if ratio >= 1.0 - ALIKE {
        format!("For messages of {smallest} or more, set TCP_NODELAY: it costs no bandwidth.")
    } else {
        format!(
            "For messages of {}, leave Nagle's algorithm on: TCP_NODELAY costs bandwidth here.",
            size(bytes)
        )
    };
    Some(Advice {
        cause: "nagle-delayed-ack".to_owned(),
        change,
        cost:
            "With TCP_NODELAY, each small write becomes a separate segment: more packets and CPU."
                .to_owned(),
        undo: "Set TCP_NODELAY=0.".to_owned(),
        proof: Some(format!(
            "from {smallest} on, TCP_NODELAY has at least {}× the goodput of Nagle's algorithm",
            factor(ratio)
        )),
    })
}

/// 3: exchanges that differ in Nagle's algorithm alone.
fn latency_without_nagle(arms: &[&Arm]) -> Option<Advice> {
    let typical = |arm: &Arm| typical_us(arm.histograms.get(LATENCY.name)?);
    let nagle = |arm: &Arm| arm.own.transfer.as_ref().map(|transfer| transfer.nagle);
    let alike = |a: &Arm, b: &Arm| {
        let rest = |arm: &Arm| {
            let mut factors = arm.factors.clone();
            factors.remove("nagle");
            factors
        };
        // Which of its acknowledgments were seen differs from arm to arm.
        let sent = |arm: &Arm| {
            arm.own
                .message
                .clone()
                .map(|message| tcptoll_core::record::MessageWay { acks: None, ..message })
        };
        rest(a) == rest(b) && sent(a) == sent(b)
    };
    let pairs = arms.iter().filter(|arm| nagle(arm) == Some(true)).filter_map(|on| {
        let off = arms.iter().find(|off| nagle(off) == Some(false) && alike(on, off))?;
        Some((typical(on)?, typical(off)?))
    });
    let (on_us, off_us) = pairs.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))?;
    let proof = format!(
        "an exchange takes {} with Nagle's algorithm and {} with TCP_NODELAY (medians)",
        human_us(on_us),
        human_us(off_us)
    );
    let change = if off_us <= on_us * (1.0 - ALIKE) {
        "If latency matters, set TCP_NODELAY, or write each message with one call."
    } else {
        "Leave Nagle's algorithm on: TCP_NODELAY does not reduce latency here."
    };
    Some(Advice {
        cause: "nagle-delayed-ack".to_owned(),
        change: change.to_owned(),
        cost:
            "With TCP_NODELAY, each small write becomes a separate segment: more packets and CPU."
                .to_owned(),
        undo: "Set TCP_NODELAY=0.".to_owned(),
        proof: Some(proof),
    })
}

/// A ratio in words, with the digits that it deserves.
fn factor(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.0}") }
}
