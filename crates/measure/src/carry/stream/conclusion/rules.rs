//! Rules of a published study on socket buffers (2008), advised only where this run supports them
//! and corrected with the evidence where it does not.

use super::several::Sizes;
use super::{QUEUE_SHOWN, SAME, TransferArm, rate, told};
use tcptoll_core::record::{Advice, Summary};
use tcptoll_core::tcp::throughput::Limit;
use tcptoll_core::units::{human_us, text_size};

/// The buffer that the study calls enough.
const ENOUGH: u64 = 32 << 10;

/// The factors above the measured optimum that it calls safe.
const SAFETY: [u64; 2] = [2, 4];

/// What this run shows about the rules; nothing where its arms are not sizes of one buffer.
pub(super) fn advice(summary: &Summary) -> Vec<Advice> {
    let arms = told(summary);
    let Some(sizes) = Sizes::from_arms(&arms).filter(|sizes| sizes.option != "message") else {
        return Vec::new();
    };
    [enough(&sizes), safety(&sizes)].into_iter().flatten().collect()
}

fn of_cause(change: String, cost: &str, proof: String) -> Advice {
    Advice {
        cause: Limit::ReceiveWindow.name().to_owned(),
        change,
        cost: cost.to_owned(),
        undo: "Leave SO_SNDBUF and SO_RCVBUF unset, so that the kernel tunes them.".to_owned(),
        proof: Some(proof),
    }
}

/// Whether 32 KiB are enough.
fn enough(sizes: &Sizes<'_>) -> Option<Advice> {
    let (_, told) = sizes.fixed.iter().find(|(size, _)| *size == ENOUGH)?;
    let best = sizes.best();
    let share = told.goodput / best;
    let seen = |told: &TransferArm<'_>| {
        format!("arm {}: {}, {:.0} % of the best arm", told.arm.name, told.of_link(), share * 100.0)
    };
    Some(if share >= 1.0 - SAME {
        of_cause(
            "With many connections, buffers of 32 KiB are enough on this link, as a rule of 2008 \
             states."
                .to_owned(),
            "They limit bandwidth on a longer or faster link, which needs larger windows.",
            seen(told),
        )
    } else {
        of_cause(
            format!(
                "Do not set buffers of 32 KiB for this link. A rule of 2008 calls them enough, but \
                 the best arm carries {}.",
                rate(best)
            ),
            "Kernel memory for each connection with queued data.",
            seen(told),
        )
    })
}

/// Whether two to four times the measured optimum are safe.
fn safety(sizes: &Sizes<'_>) -> Option<Advice> {
    let (optimum, least) = sizes.enough()?;
    // The smallest size of all may already be more than is needed.
    let (smallest, _) = sizes.fixed.first()?;
    let [low, high] = SAFETY.map(|factor| optimum.saturating_mul(factor));
    let (size, told) = sizes.fixed.iter().rev().find(|(size, _)| (low..=high).contains(size))?;
    if optimum == *smallest || least.goodput < sizes.best() * (1.0 - SAME) {
        return None;
    }
    let ([_, before], [_, after]) = (least.round_trips()?, told.round_trips()?);
    let (before_text, after_text) = (human_us(before), human_us(after));
    let proof = format!(
        "arm {}: {} at a round trip of {before_text}; arm {}: {} at {after_text}",
        least.arm.name,
        least.rate(),
        told.arm.name,
        told.rate()
    );
    let (optimum, size) = (text_size(optimum), text_size(*size));
    Some(if after >= before * QUEUE_SHOWN {
        of_cause(
            format!(
                "Do not ask for more than {optimum} on this link. A rule of 2008 advises two to \
                 four times the measured optimum, but {size} carries no more and makes each round \
                 trip {} longer.",
                human_us(after - before)
            ),
            "There is no reserve: a longer round trip needs a larger buffer in proportion.",
            proof,
        )
    } else {
        of_cause(
            format!(
                "If a program must set buffers, two to four times the measured optimum of \
                 {optimum} are safe here, as a rule of 2008 states. {size} carries as much without \
                 a longer round trip."
            ),
            "Kernel memory up to the buffers' size for each connection with queued data.",
            proof,
        )
    })
}
