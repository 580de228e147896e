//! What to change where a buffer, a congestion window or a full link limits bandwidth, computed
//! from the run: the size that the link needs, and what the same run measured with it.

use tcptoll_core::number;
use tcptoll_core::record::{Advice, Arm, Buffer, Summary, Transfer, Way};
use tcptoll_core::units::text_size;
use tcptoll_core::verdict::throughput::{
    Direction, Limit, bandwidth_delay_product_bytes, limited_by, quiet_rtt_us,
};

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
    let of_arm = |arm| -> Option<_> {
        let transfer = transfer_of(arm)?;
        Some(Direction::used_in(transfer).filter_map(move |(direction, way)| {
            let goodput = way.goodput_bytes_per_s()?;
            Some(MeasuredDirection { arm, transfer, direction, way, goodput })
        }))
    };
    summary.arms.iter().filter_map(of_arm).flatten().collect()
}

fn transfer_of(arm: &Arm) -> Option<&Transfer> {
    arm.own.transfer.as_ref().filter(|_| arm.failure.is_none())
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
    all: &[MeasuredDirection<'a>],
    ill: &MeasuredDirection<'_>,
    options: &[&str],
) -> Option<MeasuredDirection<'a>> {
    let rest = |arm: &Arm| {
        let mut factors = arm.factors.clone();
        factors.retain(|name, _| !options.contains(&name.as_str()));
        factors
    };
    let better = |one: &MeasuredDirection<'_>| {
        one.arm.name != ill.arm.name
            && one.direction == ill.direction
            && rest(one.arm) == rest(ill.arm)
            && one.goodput > ill.goodput * (1.0 + SAME)
    };
    let better: Vec<MeasuredDirection<'_>> = all.iter().copied().filter(better).collect();
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

/// The names of one buffer.
struct Names {
    option: &'static str,
    socket: &'static str,
    autotuned: &'static str,
    maximum: &'static str,
    host: &'static str,
    /// The part of the buffer that is measured.
    measured: &'static str,
}

/// What makes a buffer larger: the kernel, or a size for this link.
fn buffer(
    ill: &MeasuredDirection<'_>,
    names: &Names,
    buffer: Buffer,
    window: Option<f64>,
) -> String {
    // How much of the buffer asked for is window, as measured in this arm.
    let share = window.zip(buffer.asked_bytes).map(|(window, asked)| window / asked.max(1) as f64);
    let needed = ill.product().zip(share).filter(|(_, share)| *share > 0.0);
    let size = needed.map(|(product, share)| (product, share, size_above(product / share)));
    let Names { socket, autotuned, maximum, host, option, measured } = names;
    let Some(_) = buffer.asked_bytes else {
        let to = match ill.product() {
            Some(product) => {
                format!(" to twice the bandwidth-delay product of {}", number::bytes(product))
            }
            None => String::new(),
        };
        return format!(
            "Raise the third value of {autotuned} on the {host}{to}. It limits the kernel's \
             autotuning."
        );
    };
    let mut text = format!("Leave {socket} to the kernel (--{option} auto) on the {host}");
    if let Some((product, share, size)) = size {
        let rtt = number::time(quiet_rtt_us(ill.transfer, &ill.way.sender).unwrap_or(0.0));
        text += &format!(
            ", or ask for at least {}: the bandwidth-delay product is {} at a round trip of {rtt}, \
             and {measured} was {share:.2} × the requested size here. The kernel silently reduces \
             requests above {maximum}",
            text_size(size),
            number::bytes(product)
        );
    }
    text + "."
}

/// Against a receive window that is too small.
pub(super) fn receive_window(summary: &Summary) -> Vec<Advice> {
    let all = all(summary);
    let (worst, closest) = (worst(&all, Limit::ReceiveWindow), closest(&all, Limit::ReceiveWindow));
    let Some((worst, ill)) = worst.zip(closest) else { return Vec::new() };
    let [_, receiver] = ill.direction.ends(ill.transfer);
    let names = Names {
        option: "receive-buffer",
        socket: "SO_RCVBUF",
        autotuned: "net.ipv4.tcp_rmem",
        maximum: "net.core.rmem_max",
        host: ill.direction.receiver(),
        measured: "the window",
    };
    let window = ill.way.sender.peer_window_bytes;
    vec![Advice {
        cause: Limit::ReceiveWindow.name().to_owned(),
        change: buffer(&ill, &names, receiver.receive_buffer, window),
        cost: "Kernel memory up to the buffer's size for each connection whose receiver falls \
               behind."
            .to_owned(),
        undo: "Restore the previous SO_RCVBUF (before connect(2) or listen(2)) and \
               net.ipv4.tcp_rmem."
            .to_owned(),
        proof: proof(better(&all, &worst, &["window", "receive-buffer"])),
    }]
}

/// Against a send buffer that is too small.
pub(super) fn send_buffer(summary: &Summary) -> Vec<Advice> {
    let all = all(summary);
    let (worst, closest) = (worst(&all, Limit::SendBuffer), closest(&all, Limit::SendBuffer));
    let Some((worst, ill)) = worst.zip(closest) else { return Vec::new() };
    let [sender, _] = ill.direction.ends(ill.transfer);
    let names = Names {
        option: "send-buffer",
        socket: "SO_SNDBUF",
        autotuned: "net.ipv4.tcp_wmem",
        maximum: "net.core.wmem_max",
        host: ill.direction.sender(),
        measured: "data in flight",
    };
    let held = ill.way.sender.in_flight_max_bytes;
    vec![Advice {
        cause: Limit::SendBuffer.name().to_owned(),
        change: buffer(&ill, &names, sender.send_buffer, held),
        cost: "Kernel memory up to the buffer's size for each connection with unacknowledged data."
            .to_owned(),
        undo: "Restore the previous SO_SNDBUF and net.ipv4.tcp_wmem.".to_owned(),
        proof: proof(better(&all, &worst, &["window", "send-buffer"])),
    }]
}

/// Against a congestion window that stays small.
pub(super) fn congestion(summary: &Summary) -> Vec<Advice> {
    let all = all(summary);
    let Some(ill) = worst(&all, Limit::Congestion) else { return Vec::new() };
    let better = better(&all, &ill, &["congestion"]);
    let [sender, _] = ill.direction.ends(ill.transfer);
    let again = ill.way.sender.retransmitted_segments;
    let (change, cost, undo) = if again > 0 {
        let other = better.map(|one| one.direction.ends(one.transfer)[0].congestion.clone());
        let try_other = match other {
            Some(other) => format!("TCP_CONGESTION={other} on the {}", ill.direction.sender()),
            None if sender.congestion == "bbr" => "more connections".to_owned(),
            None => format!("TCP_CONGESTION=bbr on the {}", ill.direction.sender()),
        };
        (
            format!(
                "Find where the {} segments were lost: each loss makes {} reduce its window. If \
                 the losses are not congestion, try {try_other}.",
                number::count(again),
                if sender.congestion.is_empty() { "TCP" } else { &sender.congestion }
            ),
            "BBR retransmits more, and may take more than its share from other connections.",
            "Restore the previous TCP_CONGESTION.",
        )
    } else {
        (
            "Keep connections open, and set net.ipv4.tcp_slow_start_after_idle=0 if they pause. No \
             segment was lost: the window was still growing."
                .to_owned(),
            "After a pause, a connection sends a whole window in one burst.",
            "Set net.ipv4.tcp_slow_start_after_idle=1.",
        )
    };
    vec![Advice {
        cause: Limit::Congestion.name().to_owned(),
        change,
        cost: cost.to_owned(),
        undo: undo.to_owned(),
        proof: proof(better),
    }]
}

/// The largest super-packet, bytes.
const SUPER_PACKET: f64 = 65_536.0;

/// On a full link nothing carries more; but windows above its product make every round trip longer.
pub(super) fn link_rate(summary: &Summary) -> Vec<Advice> {
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
    let bbr = if end.congestion == "bbr" {
        ""
    } else {
        "a congestion control that keeps the queue short (TCP_CONGESTION=bbr), or "
    };
    // Without distance the product is a few segments, and the hosts need more than that.
    let near = if product >= SUPER_PACKET {
        format!(", near {}", number::bytes(product))
    } else {
        String::new()
    };
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
    vec![Advice {
        cause: Limit::LinkRate.name().to_owned(),
        change: format!(
            "If latency matters, use {bbr}a smaller receive window{near}. The bandwidth-delay \
             product is {} at the quiet round trip of {}. With up to {} in flight ({}), the queue \
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
        ),
        cost: "A window that fits this link limits bandwidth on a longer or faster link."
            .to_owned(),
        undo: "Leave SO_RCVBUF unset, and restore the previous TCP_CONGESTION.".to_owned(),
        proof,
    }]
}
