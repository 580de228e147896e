//! What to change where a buffer, a congestion window or a full link limits bandwidth, computed
//! from the run: the size that the link needs, and what the same run measured with it.

use tcptoll_core::finding::Remedy;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Buffer, Summary, Transfer, Way};
use tcptoll_core::units::text_size;
use tcptoll_core::verdict::throughput::{
    Direction, Limit, bandwidth_delay_product_bytes, limited_by, quiet_rtt_us,
};

use crate::kit::conclusion::variants;

/// Sizes are advised in steps of an eighth of the power of two below them.
const STEPS: u64 = 8;

/// From this ratio of the round trip under load to the quiet one on, the queue is worth a sentence.
const QUEUE_SHOWN: f64 = 1.5;

/// Arms within this share of each other carry the same.
const SAME: f64 = 0.03;

/// One direction of an arm and its limit.
#[derive(Clone, Copy)]
struct MeasuredDirection<'a> {
    arm: &'a Arm,
    transfer: &'a Transfer,
    direction: Direction,
    way: &'a Way,
    goodput: f64,
}

impl MeasuredDirection<'_> {
    fn is(&self, limit: Limit) -> bool {
        limited_by(self.transfer, self.direction, self.way).is_some_and(|one| one.is(limit))
    }

    fn rate(&self) -> String {
        number::bit_rate(self.goodput * 8.0)
    }

    fn product(&self) -> Option<f64> {
        bandwidth_delay_product_bytes(self.transfer, self.way)
    }
}

fn all(summary: &Summary) -> Vec<MeasuredDirection<'_>> {
    summary.arms.iter().flat_map(of_arm).collect()
}

fn of_arm(arm: &Arm) -> impl Iterator<Item = MeasuredDirection<'_>> {
    let transfer = arm.own.transfer.as_ref().filter(|_| arm.failure.is_none());
    transfer.into_iter().flat_map(move |transfer| {
        Direction::used_in(transfer).filter_map(move |(direction, way)| {
            let goodput = way.goodput_bytes_per_s()?;
            Some(MeasuredDirection { arm, transfer, direction, way, goodput })
        })
    })
}

/// The direction that one limit hit hardest.
fn worst<'a>(all: &[MeasuredDirection<'a>], limit: Limit) -> Option<MeasuredDirection<'a>> {
    let ill = all.iter().copied().filter(|one| one.is(limit));
    ill.min_by(|a, b| a.goodput.total_cmp(&b.goodput))
}

/// The one that came closest: its buffer says best how much of a size becomes window.
fn closest<'a>(all: &[MeasuredDirection<'a>], limit: Limit) -> Option<MeasuredDirection<'a>> {
    let ill = all.iter().copied().filter(|one| one.is(limit));
    ill.max_by(|a, b| a.goodput.total_cmp(&b.goodput))
}

/// The same direction of the best arm that differs from this one in nothing but these options.
fn better<'a>(
    summary: &'a Summary,
    ill: &MeasuredDirection<'_>,
    options: &[&str],
) -> Option<MeasuredDirection<'a>> {
    let better = |one: &MeasuredDirection<'_>| {
        one.direction == ill.direction && one.goodput > ill.goodput * (1.0 + SAME)
    };
    let better: Vec<MeasuredDirection<'_>> =
        variants(summary, ill.arm, options).flat_map(of_arm).filter(better).collect();
    let best = better.iter().copied().max_by(|a, b| a.goodput.total_cmp(&b.goodput))?;
    // What the kernel chose itself is the better proof, where it carries as much.
    let tuned = |one: &MeasuredDirection<'_>| {
        let [from, to] = one.direction.ends(one.transfer);
        [from.send_buffer, to.receive_buffer].iter().all(|buffer| buffer.asked_bytes.is_none())
    };
    let tuned =
        better.into_iter().find(|one| tuned(one) && one.goodput >= best.goodput * (1.0 - SAME));
    tuned.or(Some(best))
}

fn proof(better: Option<MeasuredDirection<'_>>) -> Option<String> {
    let better = better?;
    Some(format!("arm {}: {}", better.arm.name, better.rate()))
}

/// A size to ask for that is not below this.
fn size_above(bytes: f64) -> u64 {
    let bytes = (bytes.max(1.0).min(2f64.powi(40))).ceil() as u64;
    let step = (bytes.next_power_of_two() / 2 / STEPS).max(1);
    bytes.div_ceil(step) * step
}

/// What makes a buffer larger: the kernel, or a size for this link. `end` is the host that has it, in the words of the
/// page; `measured` the part of it that was measured.
fn buffer(
    limit: Limit,
    ill: &MeasuredDirection<'_>,
    buffer: Buffer,
    [end, host]: [&str; 2],
    (measured, window): (&str, Option<f64>),
) -> Remedy {
    let of = |name: &str| Remedy::named(limit.name(), name).with(end, format!("on the {host}"));
    // How much of the buffer asked for is window, as measured in this arm.
    let share = window.zip(buffer.asked_bytes).map(|(window, asked)| window / asked.max(1) as f64);
    let needed = ill.product().zip(share.filter(|share| *share > 0.0));
    if buffer.asked_bytes.is_none() {
        let product = ill.product().map(number::bytes);
        let product = product.map(|product| format!("The bandwidth-delay product is {product}."));
        let remedy = of("maximum");
        return product.map_or(remedy.clone(), |product| remedy.and(&product));
    }
    let Some((product, share)) = needed else { return of("tuned") };
    let rtt = number::time(quiet_rtt_us(ill.transfer, &ill.way.sender).unwrap_or(0.0));
    of("tuned").and(&format!(
        "Or ask for at least {}: the bandwidth-delay product is {} at a round trip of {rtt}, and {measured} was \
         {share:.2} × the requested size here.",
        text_size(size_above(product / share)),
        number::bytes(product)
    ))
}

/// Against a receive window that is too small.
pub(super) fn receive_window(summary: &Summary) -> Vec<Remedy> {
    let (all, limit) = (all(summary), Limit::ReceiveWindow);
    let Some((worst, ill)) = worst(&all, limit).zip(closest(&all, limit)) else {
        return Vec::new();
    };
    let [_, receiver] = ill.direction.ends(ill.transfer);
    let measured = ("the window", ill.way.sender.peer_window_bytes);
    let end = ["on the receiver", ill.direction.receiver()];
    let remedy = buffer(limit, &ill, receiver.receive_buffer, end, measured);
    vec![remedy.proven(proof(better(summary, &worst, &["window", "receive-buffer"])))]
}

/// Against a send buffer that is too small.
pub(super) fn send_buffer(summary: &Summary) -> Vec<Remedy> {
    let (all, limit) = (all(summary), Limit::SendBuffer);
    let Some((worst, ill)) = worst(&all, limit).zip(closest(&all, limit)) else {
        return Vec::new();
    };
    let [sender, _] = ill.direction.ends(ill.transfer);
    let measured = ("data in flight", ill.way.sender.in_flight_max_bytes);
    let end = ["on the sender", ill.direction.sender()];
    let remedy = buffer(limit, &ill, sender.send_buffer, end, measured);
    vec![remedy.proven(proof(better(summary, &worst, &["window", "send-buffer"])))]
}

/// Against a congestion window that stays small.
pub(super) fn congestion(summary: &Summary) -> Vec<Remedy> {
    let all = all(summary);
    let Some(ill) = worst(&all, Limit::Congestion) else { return Vec::new() };
    let better = better(summary, &ill, &["congestion"]);
    let [sender, _] = ill.direction.ends(ill.transfer);
    let lost = ill.way.sender.retransmitted_segments;
    let of = |name: &str| Remedy::named(Limit::Congestion.name(), name).proven(proof(better));
    if lost == 0 {
        return vec![of("keep-open")];
    }
    let control = if sender.congestion.is_empty() { "TCP" } else { &sender.congestion };
    let other = match better.map(|one| one.direction.ends(one.transfer)[0].congestion.as_str()) {
        None if sender.congestion == "bbr" => "more connections".to_owned(),
        other => format!("TCP_CONGESTION={}", other.unwrap_or("bbr")),
    };
    let remedy = of("losses").with("sender", ill.direction.sender());
    let remedy = remedy.with("segments", format!("the {} segments", number::count(lost)));
    vec![remedy.with("the congestion control", control).with("TCP_CONGESTION=bbr", other)]
}

/// On a full link nothing carries more; but windows above its product make every round trip longer.
pub(super) fn link_rate(summary: &Summary) -> Vec<Remedy> {
    let all = all(summary);
    let queue = |one: &MeasuredDirection<'_>| {
        let sender = &one.way.sender;
        Some(sender.rtt_us? / quiet_rtt_us(one.transfer, sender)?)
    };
    let full: Vec<MeasuredDirection<'_>> =
        all.iter().copied().filter(|one| one.is(Limit::LinkRate)).collect();
    let longest = full
        .iter()
        .filter(|one| queue(one).is_some_and(|ratio| ratio >= QUEUE_SHOWN))
        .max_by(|a, b| queue(a).unwrap_or(0.0).total_cmp(&queue(b).unwrap_or(0.0)));
    let Some(ill) = longest else { return Vec::new() };
    let sender = &ill.way.sender;
    let Some((product, rtt)) = ill.product().zip(sender.rtt_us) else { return Vec::new() };
    let quiet = quiet_rtt_us(ill.transfer, sender).unwrap_or(0.0);
    let [end, _] = ill.direction.ends(ill.transfer);
    let name = if end.congestion == "bbr" { "smaller-window" } else { "shorter-queue" };
    // An arm that fills the link too, with a shorter queue.
    let short = full
        .iter()
        .filter(|one| one.direction == ill.direction && one.goodput >= ill.goodput * (1.0 - SAME))
        .filter(|one| one.transfer.link_bytes_per_s == ill.transfer.link_bytes_per_s)
        .filter(|one| one.way.sender.rtt_us.is_some_and(|us| us * QUEUE_SHOWN <= rtt))
        .min_by(|a, b| {
            let rtt_us =
                |one: &&MeasuredDirection<'_>| one.way.sender.rtt_us.unwrap_or(f64::INFINITY);
            rtt_us(a).total_cmp(&rtt_us(b))
        });
    let proof = short.and_then(|one| {
        let rtt = number::time(one.way.sender.rtt_us?);
        Some(format!("arm {}: {} at a round trip of {rtt}", one.arm.name, one.rate()))
    });
    let remedy = Remedy::named(Limit::LinkRate.name(), name)
        .and(&format!(
            "The bandwidth-delay product is {} at the quiet round trip of {}. With up to {} in flight ({}), the queue \
             adds {} to the round trip and no throughput.",
            number::bytes(product),
            number::time(quiet),
            number::bytes(
                sender
                    .peer_window_bytes
                    .unwrap_or(0.0)
                    .min(sender.congestion_window_bytes.unwrap_or(f64::INFINITY))
            ),
            ill.direction.name(),
            number::time(rtt - quiet)
        ));
    vec![remedy.proven(proof)]
}
