//! When does unacknowledged data go again, when is it given up, and how often is a live peer taken for
//! dead because packets were lost?
//!
//! Linux only: the first repeat is a tail-loss probe, and `tcp_retries2` is a time and not a count.
//!
//! For false alarms, each packet is lost with the same probability, whatever happened to the one before:
//! what the emulated link does. Losses of a real path come in bursts, and a burst longer than the test takes
//! all its packets at once; no arithmetic here covers that.

use std::iter;

use super::{Checking, Mechanism};
use crate::stats::sample;

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

/// What rounding may take from a sum of waits, s.
const ROUNDING_S: f64 = 1e-9;

impl Checking {
    /// How often one test of a live peer asks, so that an answer can still be in time.
    ///
    /// `tcp`: probes whose answer arrives before the last interval ends. `heartbeat`, `lazy`,
    /// `write`: the first sending of the message and its repeats by the kernel, see [`sends`],
    /// at the RTO of a connection that has measured little.
    ///
    /// Range: 0 if the round trip takes longer than the test.
    /// None: nothing is tested, or a setting is missing.
    pub fn tries(&self, rtt_s: f64) -> Option<u32> {
        if self.mechanism == Mechanism::Tcp {
            let (probes, interval) = (self.probes_in_a_test()?, self.interval_s?);
            let in_time = |left: &u32| f64::from(*left) * interval + ROUNDING_S >= rtt_s;
            return Some((1..=probes).filter(in_time).count() as u32);
        }
        Some(tries_within(self.test_s(rtt_s)?, rtt_s))
    }

    /// From the message to the verdict, s.
    fn test_s(&self, rtt_s: f64) -> Option<f64> {
        match self.mechanism {
            Mechanism::Heartbeat | Mechanism::Lazy => self.answer_within_s,
            Mechanism::Write => self.gives_up_s(rtt_s),
            Mechanism::None | Mechanism::Tcp => None,
        }
    }

    /// Probability that one test of a live connection fails, if the link loses each packet with
    /// probability `loss` in each direction.
    ///
    /// A try fails with `q = 1 - (1 - loss)²`, and a test if all its tries do. Where the peer's
    /// program has to answer, its answer is sent again by itself: the sum over the try that first
    /// arrives.
    ///
    /// Range: 0 to 1; `loss` is taken as within 0 to 1.
    /// None: nothing is tested, or a setting is missing.
    pub fn false_alarm(&self, loss: f64, rtt_s: f64) -> Option<f64> {
        let loss = loss.clamp(0.0, 1.0);
        let tries = self.tries(rtt_s)?;
        if !self.answered() {
            return Some(try_fails(loss).powi(tries.cast_signed()));
        }
        let within = self.test_s(rtt_s)?;
        let (mut fails, mut none_arrived) = (0.0, 1.0);
        for asked_at in sends(rto_s(rtt_s)).take(tries as usize) {
            let answers = tries_within(within - asked_at, rtt_s);
            fails += none_arrived * (1.0 - loss) * loss.powi(answers.cast_signed());
            none_arrived *= loss;
        }
        Some((fails + none_arrived).min(1.0))
    }

    /// Tests that were begun, from what the wire saw sent to live connections: probes of the
    /// kernel, repeats and all; of other mechanisms the messages, without their repeats.
    ///
    /// Each probe is followed by another one with the probability `q` that it fails, so that a test
    /// takes `1 + q + … + q^(n-1)` probes.
    ///
    /// None: nothing is tested, or a setting is missing.
    pub fn tests_of(&self, sent: u64, loss: f64) -> Option<u64> {
        match self.mechanism {
            Mechanism::None => None,
            Mechanism::Heartbeat | Mechanism::Lazy | Mechanism::Write => Some(sent),
            Mechanism::Tcp => {
                let q = try_fails(loss.clamp(0.0, 1.0));
                let probes = (0..self.probes_in_a_test()?).map(|n| q.powi(n.cast_signed()));
                let a_test: f64 = probes.sum();
                (a_test > 0.0).then(|| (sent as f64 / a_test).round() as u64)
            }
        }
    }
}

/// Probability that a packet or its answer is lost.
pub(super) fn try_fails(loss: f64) -> f64 {
    loss * (2.0 - loss)
}

/// Sendings of one message whose answer returns within so many seconds.
fn tries_within(within_s: f64, rtt_s: f64) -> u32 {
    let in_time = |at: &f64| at + rtt_s <= within_s + ROUNDING_S;
    sends(rto_s(rtt_s)).take_while(in_time).count() as u32
}

/// False alarms to be expected of so many tests, each failing with `probability`.
///
/// Shape: least, mean, most. In 99 of 100 runs the number lies between the first and the last, both
/// among them: the quantiles 0.5 % and 99.5 % of the binomial distribution.
pub fn expected_false_alarms(tests: u64, probability: f64) -> [f64; 3] {
    let probability = probability.clamp(0.0, 1.0);
    let at = |share| sample::binomial_quantile(tests, probability, share) as f64;
    [at(0.005), tests as f64 * probability, at(0.995)]
}
