//! When does unacknowledged data go again, and when is it given up?
//!
//! Linux only: the first repeat is a tail-loss probe, and `tcp_retries2` is a time and not a count.

use std::iter;

/// The least wait before a repeat, s: `TCP_RTO_MIN`, and `net.ipv4.tcp_rto_min_us` of 200,000.
pub const RTO_MIN_S: f64 = 0.2;

/// No wait is longer, s: `TCP_RTO_MAX`.
const RTO_MAX_S: f64 = 120.0;

/// Round-trip time, s, that is assumed where none was measured: an intercontinental path.
pub const ASSUMED_RTT_S: f64 = 0.2;

/// A kernel acknowledges what arrives alone within this, s: `TCP_DELACK_MAX`.
pub(super) const DELAYED_ACK_S: f64 = 0.2;

/// The RTO of a connection that has measured little: an idle one.
///
/// The first round trip sets the variation to half of it, and four times that come on top; no less
/// than 0.2 s. On a path of few milliseconds the floor is all.
/// Source: RFC 6298, section 2.2; Linux `net/ipv4/tcp_input.c` `tcp_rtt_estimator`. Measured on 6.18
///         over a round trip of 0.2 s: sendings at 0, 0.62 and 1.23 s.
pub fn rto_s(rtt_s: f64) -> f64 {
    rtt_s + (2.0 * rtt_s).max(RTO_MIN_S)
}

/// When one segment goes on the wire as long as nobody acknowledges it, and nothing else is on the
/// way.
///
/// Shape:   endless, ascending; the first sending, then the tail-loss probe one RTO later, then the
///          first repeat by RTO another one later (the probe starts the timer anew), then waits
///          of 2, 4, 8 … RTO: at 0, 1, 2, 4, 8, 16 … RTO, until a wait reaches 120 s.
/// Unit:    s since the first sending; the timers add up to an eighth of each wait.
/// Source:  Linux `net/ipv4/tcp_output.c` `tcp_schedule_loss_probe` (for a single segment twice the
///          round-trip time and 200 ms, but no later than the RTO), `tcp_timer.c`
///          `tcp_retransmit_timer`. Measured on 6.18 over loopback: 0.206, 0.413, 0.853, 1.685,
///          3.349, 6.805, 13.462 s.
pub fn sends(rto_s: f64) -> impl Iterator<Item = f64> {
    let doubling = iter::successors(Some(rto_s), |wait| Some((wait * 2.0).min(RTO_MAX_S)));
    let waits = iter::once(rto_s).chain(doubling);
    iter::once(0.0).chain(waits.scan(0.0, |at, wait| {
        *at += wait;
        Some(*at)
    }))
}

/// When the first repeat by RTO goes, s since the first sending.
///
/// From here on, and not from the first sending, the kernel counts `tcp_retries2` and
/// `TCP_USER_TIMEOUT`; the tail-loss probe does not begin it.
/// Source: `tcp_timer.c` `retransmits_timed_out`, `tcp_clamp_rto_to_user_timeout` (`retrans_stamp`);
///         measured on 6.18 over loopback: user timeouts of 0.5, 1, 3 and 10 s end 0.918, 1.431,
///         3.417 and 10.646 s after the message.
pub(super) fn first_retransmission_s(rto_s: f64) -> f64 {
    2.0 * rto_s
}

/// For how long the kernel goes on sending data again: what doubling from `rto_s` up to 120 s would
/// take for `retries2` repeats, and the wait after the last.
///
/// The kernel always takes 0.2 s for `rto_s` here, whatever the RTO of the path is, and it counts
/// from the first repeat: the program hears of it later, see [`given_up_by_s`].
///
/// Unit:    s; 15 retries from 0.2 s are 924.6 s.
/// Range:   `retries2` up to 255, what its kernel type can hold.
/// Source:  Linux `net/ipv4/tcp_timer.c` `tcp_model_timeout`.
pub fn give_up_s(retries2: u32, rto_s: f64) -> f64 {
    let retries2 = retries2.min(255);
    let doublings = ((RTO_MAX_S / rto_s) as u64).checked_ilog2().unwrap_or(0).min(retries2);
    let below_max = ((2_u64 << doublings) - 1) as f64 * rto_s;
    below_max + f64::from(retries2 - doublings) * RTO_MAX_S
}

/// When the program hears at the latest that data was given up, without `TCP_USER_TIMEOUT`.
///
/// The kernel looks only when it would send again: at the first such moment that lies
/// [`give_up_s`] past the first repeat.
///
/// Unit:    s since the first sending, without the granularity of timers.
/// Range:   `rto_s` below 0.201 is taken as that: the kernel rounds a round trip up to a tick.
/// Source:  Linux `net/ipv4/tcp_timer.c` `tcp_write_timeout`. Measured on 6.18 over loopback with
///          `tcp_retries2` of 4 and an RTO of 0.208 s: 6.69 s, by arithmetic 6.66 s.
pub fn given_up_by_s(retries2: u32, rto_s: f64) -> f64 {
    let rto_s = rto_s.clamp(RTO_MIN_S + 0.001, RTO_MAX_S);
    let first = first_retransmission_s(rto_s);
    let patience = give_up_s(retries2, RTO_MIN_S);
    let late_enough = |at: &f64| at - first >= patience;
    sends(rto_s).skip(3).find(late_enough).unwrap_or(first + patience)
}
