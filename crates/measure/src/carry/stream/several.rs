//! The answer of several arms: the lowest goodput and its reason, the size from which goodput rises
//! no more, the kernel's own tuning, and the queue. And the rules of a published study on socket buffers (2008),
//! advised only where this run supports them and corrected with the evidence where it does not.

use std::collections::BTreeMap;

use tcptoll_core::finding::Remedy;
use tcptoll_core::number;
use tcptoll_core::record::{Buffer, Summary};
use tcptoll_core::study::level_text;
use tcptoll_core::units::text_size;
use tcptoll_core::verdict::names::Names;
use tcptoll_core::verdict::throughput::{Direction, Limit};

use crate::kit::conclusion::{Excerpt, STATED, enumerated, stated};

use super::transfer_arm::{QUEUE_SHOWN, SAME, SIZES, TransferArm, queue, told};

/// Arms that differ in one size alone, the smallest first, and those without a size: `auto`.
pub(super) struct Sizes<'a> {
    pub(super) option: &'static str,
    /// Arms of a size.
    pub(super) fixed: Vec<(u64, TransferArm<'a>)>,
    /// The arm that the kernel tunes.
    pub(super) auto: Option<TransferArm<'a>>,
}

impl<'a> Sizes<'a> {
    /// None: the arms differ in something else, or in fewer than two sizes.
    fn from_arms(arms: &[TransferArm<'a>]) -> Option<Self> {
        let first = arms.first()?;
        let mut keys = first.arm.factors.keys();
        let (key, None) = (keys.next()?, keys.next()) else { return None };
        let option = SIZES.into_iter().find(|option| option == key)?;
        let mut fixed = Vec::new();
        let mut auto = None;
        for told in arms {
            match told.size(option) {
                Some(size) => fixed.push((size, *told)),
                None => auto = Some(*told),
            }
        }
        fixed.sort_by_key(|(size, _)| *size);
        (fixed.len() > 1).then_some(Self { option, fixed, auto })
    }

    pub(super) fn best(&self) -> f64 {
        let all = self.fixed.iter().map(|(_, told)| told).chain(&self.auto);
        all.map(|told| told.goodput).fold(0.0, f64::max)
    }

    /// The smallest size from which on every one is as good as the best of them.
    pub(super) fn enough(&self) -> Option<(u64, TransferArm<'a>)> {
        let best = self.fixed.iter().map(|(_, told)| told.goodput).fold(0.0, f64::max);
        let good = |(_, told): &&(u64, TransferArm<'_>)| told.goodput >= best * (1.0 - SAME);
        self.fixed.iter().rev().take_while(good).last().copied()
    }
}

/// The sentences of an answer, the most important first. `compared` is what comparisons say.
pub(super) fn sentences(arms: &[TransferArm<'_>], compared: Vec<String>) -> Vec<String> {
    let by_goodput = |a: &&TransferArm<'_>, b: &&TransferArm<'_>| a.goodput.total_cmp(&b.goodput);
    let Some((least, best)) = arms.iter().min_by(by_goodput).zip(arms.iter().max_by(by_goodput))
    else {
        return Vec::new();
    };
    let names = Names::new(arms.iter().map(|told| told.arm));
    let mut sentences = Vec::new();
    if least.goodput >= best.goodput * (1.0 - SAME) {
        // Whether they differ is for the verdicts to say, which may see more.
        match compared.into_iter().next() {
            Some(first) if first.starts_with("No difference") => sentences.push(first),
            _ => sentences.push(alike(arms, least, best)),
        }
        sentences.extend(queues(arms, &names));
        sentences.extend(same_buffers(arms));
        return sentences;
    }
    let is_open = compared.len() > 1;
    if compared.is_empty() {
        sentences.push(goodput(arms, &names));
    }
    sentences.extend(compared);
    if is_open {
        return sentences;
    }
    let suffices = Sizes::from_arms(arms).and_then(|sizes| {
        let from = from_on(&sizes, least);
        Some(match (from, tuned(&sizes, least, &names)) {
            (Some(from), Some(Tuned::AsGood(tuned))) if arms.len() > STATED => {
                format!("{from}, and {tuned}.")
            }
            (Some(from), _) => from + ".",
            // Its figure was stated with the others.
            (None, Some(Tuned::AsGood(_))) if arms.len() <= STATED => return None,
            (None, Some(Tuned::AsGood(text) | Tuned::Differs(text))) => text + ".",
            (None, None) => return None,
        })
    });
    sentences.extend(suffices);
    sentences.extend(same_buffers(arms));
    sentences.push(limited(least, &names));
    sentences.extend(queues(arms, &names));
    sentences
}

/// The goodput of all arms; of many, the most and the least.
fn goodput(arms: &[TransferArm<'_>], names: &Names<'_>) -> String {
    let each = |told: &TransferArm<'_>| format!("{} ({})", told.rate(), names.arm(told.arm));
    let carries = match stated(arms.to_vec(), |told| told.goodput) {
        Excerpt::Each(all) => enumerated(&all.iter().map(each).collect::<Vec<_>>()),
        Excerpt::Ends(least, most, _) => {
            format!("{} at best and {} at worst", each(&most), each(&least))
        }
    };
    format!("The connection carries {carries}.")
}

/// The reason of the arm that carries least.
fn limited(told: &TransferArm<'_>, names: &Names<'_>) -> String {
    let reason = told.reason().unwrap_or_else(|| told.unknown());
    format!("{}{reason}.", names.with(told.arm))
}

/// Arms that carry the same.
fn alike(arms: &[TransferArm<'_>], least: &TransferArm<'_>, best: &TransferArm<'_>) -> String {
    let full = arms.iter().all(|told| told.is(Limit::LinkRate));
    let link =
        best.transfer.link_bytes_per_s.map(|link| link * best.transfer.ways().count() as f64);
    let link = match link {
        Some(link) if !full => format!(" of the link's {}", number::metric(link, "bytes/s")),
        _ => String::new(),
    };
    let (low, high) = (least.rate(), best.rate());
    let range = match low.split_once(' ').zip(high.split_once(' ')) {
        _ if low == high => high,
        // One unit is enough: `9.39 to 9.46 Mbit/s`.
        Some(((figure, one), (_, other))) if one == other => format!("{figure} to {high}"),
        _ => format!("{low} to {high}"),
    };
    let reason = best
        .reason()
        .filter(|reason| arms.iter().all(|told| told.reason().as_ref() == Some(reason)));
    let reason = if full {
        ": the link is full".to_owned()
    } else {
        reason.map_or_else(String::new, |reason| format!(": {reason}"))
    };
    format!("All {} arms carry {range}{link}{reason}.", arms.len())
}

/// From which size on goodput rises no more, without the full stop.
fn from_on(sizes: &Sizes<'_>, least: &TransferArm<'_>) -> Option<String> {
    let (size, told) = sizes.enough()?;
    let (largest, last) = sizes.fixed.last()?;
    if told.arm.name == least.arm.name {
        return None;
    }
    let level = level_text(told.arm.factors.get(sizes.option)?);
    if size == *largest {
        return last
            .is(Limit::LinkRate)
            .then(|| format!("Of these sizes, only {level} fills the link"));
    }
    let rest: Vec<&TransferArm<'_>> =
        sizes.fixed.iter().filter(|(other, _)| *other >= size).map(|(_, told)| told).collect();
    if rest.iter().all(|told| told.is(Limit::LinkRate)) {
        return Some(format!("From {level} on, the link is full"));
    }
    let reason = last.reason().unwrap_or_else(|| last.unknown());
    Some(format!("Sizes above {level} carry no more ({}): {reason}", last.rate()))
}

/// The arm that the kernel tunes next to the best size, without the full stop.
enum Tuned {
    AsGood(String),
    Differs(String),
}

/// The kernel's own tuning compared with the best size.
fn tuned(sizes: &Sizes<'_>, least: &TransferArm<'_>, names: &Names<'_>) -> Option<Tuned> {
    let auto = sizes.auto.as_ref().filter(|auto| auto.arm.name != least.arm.name)?;
    let (_, best) = sizes.fixed.iter().max_by(|(_, a), (_, b)| a.goodput.total_cmp(&b.goodput))?;
    let ratio = auto.goodput / best.goodput;
    let name = names.arm(auto.arm);
    Some(if (1.0 - SAME..=1.0 + SAME).contains(&ratio) {
        let rate = auto.rate();
        Tuned::AsGood(format!("{name} (tuned by the kernel) carries about as much, {rate}"))
    } else if ratio > 1.0 {
        Tuned::Differs(format!(
            "{name} (tuned by the kernel) carries {}, {} more than the best of the fixed sizes ({})",
            auto.rate(),
            number::percent(ratio - 1.0),
            names.arm(best.arm)
        ))
    } else {
        let reason = auto.reason().unwrap_or_else(|| auto.unknown());
        Tuned::Differs(format!(
            "{name} (tuned by the kernel) carries {}, {} less than {}: {reason}",
            auto.rate(),
            number::percent(1.0 - ratio),
            names.arm(best.arm)
        ))
    })
}

/// The queue of the arm that lengthens its round trip most.
fn queues(arms: &[TransferArm<'_>], names: &Names<'_>) -> Option<String> {
    let full = arms.iter().filter(|told| told.is(Limit::LinkRate) && told.queue().is_some());
    let longest =
        full.max_by(|a, b| a.queue().unwrap_or(0.0).total_cmp(&b.queue().unwrap_or(0.0)))?;
    queue(longest, &names.arm(longest.arm))
}

/// An arm with the send and the receive buffer that it asked for.
type AskedBuffers<'a> = (&'a str, [Option<u64>; 2]);

/// Arms that asked for different buffers and got the same.
fn same_buffers(arms: &[TransferArm<'_>]) -> Option<String> {
    let mut by_size: BTreeMap<[u64; 2], Vec<AskedBuffers<'_>>> = BTreeMap::new();
    for told in arms {
        let (direction, _) = Direction::used_in(told.transfer).next()?;
        let [from, to] = direction.ends(told.transfer);
        let both: [Buffer; 2] = [from.send_buffer, to.receive_buffer];
        let asked = both.map(|buffer| buffer.asked_bytes);
        if asked.iter().any(Option::is_some) {
            let got = both.map(|buffer| buffer.effective_bytes);
            by_size.entry(got).or_default().push((&told.arm.name, asked));
        }
    }
    let same = |arms: &Vec<AskedBuffers<'_>>| arms.iter().any(|(_, asked)| *asked != arms[0].1);
    let ([send, receive], arms) = by_size.into_iter().find(|(_, arms)| same(arms))?;
    let mut names: Vec<&str> = arms.into_iter().map(|(name, _)| name).collect();
    let last = names.pop()?;
    Some(format!(
        "{} and {last} are identical: the kernel sets their buffers to {} (send) and {} (receive).",
        names.join(", "),
        number::bytes(send as f64),
        number::bytes(receive as f64)
    ))
}

/// The buffer that the study calls enough.
const ENOUGH: u64 = 32 << 10;

/// The factors above the measured optimum that it calls safe.
const SAFETY: [u64; 2] = [2, 4];

/// What this run shows about the rules; nothing where its arms are not sizes of one buffer.
pub(super) fn rules(summary: &Summary) -> Vec<Remedy> {
    let arms = told(summary);
    let Some(sizes) = Sizes::from_arms(&arms).filter(|sizes| sizes.option != "message") else {
        return Vec::new();
    };
    [enough(&sizes), safety(&sizes)].into_iter().flatten().collect()
}

fn rule(name: &str) -> Remedy {
    Remedy::named(Limit::ReceiveWindow.name(), name)
}

/// Whether 32 KiB are enough.
fn enough(sizes: &Sizes<'_>) -> Option<Remedy> {
    let (_, told) = sizes.fixed.iter().find(|(size, _)| *size == ENOUGH)?;
    let best = sizes.best();
    let share = told.goodput / best;
    let seen = format!(
        "arm {}: {}, {} of the best arm",
        told.arm.name,
        told.of_link(),
        number::percent(share)
    );
    let remedy = if share >= 1.0 - SAME {
        rule("rule-32-kib")
    } else {
        let best = number::metric(best, "bytes/s");
        rule("not-32-kib").and(&format!("The best arm carries {best}."))
    };
    Some(remedy.proven(Some(seen)))
}

/// Whether two to four times the measured optimum are safe.
fn safety(sizes: &Sizes<'_>) -> Option<Remedy> {
    let (optimum, least) = sizes.enough()?;
    // The smallest size of all may already be more than is needed.
    let (smallest, _) = sizes.fixed.first()?;
    let [low, high] = SAFETY.map(|factor| optimum.saturating_mul(factor));
    let (size, told) = sizes.fixed.iter().rev().find(|(size, _)| (low..=high).contains(size))?;
    if optimum == *smallest || least.goodput < sizes.best() * (1.0 - SAME) {
        return None;
    }
    let ([_, before], [_, after]) = (least.round_trips()?, told.round_trips()?);
    let (before_text, after_text) = (number::time(before), number::time(after));
    let proof = format!(
        "arm {}: {} at a round trip of {before_text}; arm {}: {} at {after_text}",
        least.arm.name,
        least.rate(),
        told.arm.name,
        told.rate()
    );
    let (optimum, size) = (text_size(optimum), text_size(*size));
    let remedy = if after >= before * QUEUE_SHOWN {
        let longer = number::time(after - before);
        rule("no-reserve")
            .and(&format!("Here {size} carries no more and makes each round trip {longer} longer."))
    } else {
        rule("rule-reserve").and(&format!("{size} carries as much without a longer round trip."))
    };
    Some(remedy.with("SIZE", optimum).proven(Some(proof)))
}
