//! How often is a live peer taken for dead because packets were lost?
//!
//! Each packet is lost with the same probability, whatever happened to the one before: what the
//! emulated link does. Losses of a real path come in bursts, and a burst longer than the test takes
//! all its packets at once; no arithmetic here covers that.

use super::retransmission::{rto_s, sends};
use super::{Checking, Mechanism};
use crate::stats::binomial;

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
    let at = |share| binomial::quantile(tests, probability, share) as f64;
    [at(0.005), tests as f64 * probability, at(0.995)]
}
