//! Which setting finds a death in time with the fewest packets?

use super::chance::try_fails;
use super::retransmission::{ASSUMED_RTT_S, first_retransmission_s, rto_s, sends};
use super::{Checking, Evidence, Mechanism};

/// Share of packets, 0 to 1, that a path is assumed to lose where nothing else is said.
pub const ASSUMED_LOSS: f64 = 0.01;

/// Tests of live connections that may fail, at the loss assumed: with a test every minute one
/// connection is closed wrongly in two years.
const FALSE_ALARM_MAX: f64 = 1e-6;

/// The kernel takes no more probes (`MAX_TCP_KEEPCNT`).
const PROBES_MAX: u32 = 127;

/// The kernel takes no longer idle time, s (`MAX_TCP_KEEPIDLE`).
const IDLE_MAX_S: f64 = 32_767.0;

/// The least interval between probes that the kernel takes, s: it counts whole seconds.
const PROBE_INTERVAL_S: f64 = 1.0;

/// The tick that is proposed to programs, s: two of them are little beside any answer time below,
/// and ten wake-ups a second are nothing beside one per connection.
const TICK_S: f64 = 0.1;

/// A Null of `tcp-heartbeat`'s framing.
const NULL_BYTES: u32 = 4;

/// Wanted detection times of a curve, s, and how many.
const CURVE_S: [f64; 2] = [1.0, 7200.0];
const CURVE_POINTS: u32 = 30;

/// One point of the trade between knowing early and sending little.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Of one healthy idle connection, both directions together.
    pub packets_per_hour: f64,
    /// From death to knowing it at most, with granularity, s.
    pub detect_s: f64,
    /// The setting.
    pub checking: Checking,
}

/// The setting of a mechanism with the fewest packets an hour that knows each death within
/// `within_s`, the timers' granularity among it, and that at most one test in a million of a live
/// connection fails on a path that loses the share `loss` of packets each way ([`ASSUMED_LOSS`]).
///
/// - `tcp`: idle time and interval are whole seconds of at least 1, as the kernel takes them. The
///   interval is the least: what it does not take, the idle time gets, and that alone saves packets.
/// - `heartbeat`, `write`: times in tenths of a second; round-trip time assumed [`ASSUMED_RTT_S`].
///   The answer time, or the user timeout, lasts as long as the repeats take that are needed.
///
/// None: the time is too short, the loss too great, or the mechanism has no bound (`none`, `lazy`).
pub fn cheapest(mechanism: Mechanism, within_s: f64, loss: f64) -> Option<Checking> {
    let tries = tries_needed(loss)?;
    let rto_s = rto_s(ASSUMED_RTT_S);
    let answered_s = sends(rto_s).nth(tries as usize - 1)? + ASSUMED_RTT_S;
    let plain = Checking { mechanism, ..Checking::default() };
    let by_program =
        Checking { tick_s: Some(TICK_S), null_bytes: Some(NULL_BYTES), ..plain.clone() };
    // The longest wait is what the others leave of the time: each second of a wait adds the same.
    match mechanism {
        Mechanism::None | Mechanism::Lazy => None,
        Mechanism::Tcp => {
            let with = |idle_s| Checking {
                idle_s: Some(idle_s),
                interval_s: Some(PROBE_INTERVAL_S),
                probes: Some(tries),
                ..plain.clone()
            };
            longest(within_s, 1.0, with)
        }
        Mechanism::Heartbeat => {
            let with = |idle_s| Checking {
                idle_s: Some(idle_s),
                answer_within_s: Some(tenths_up(answered_s)),
                evidence: Some(Evidence::Acknowledged),
                ..by_program.clone()
            };
            longest(within_s, 10.0, with)
        }
        Mechanism::Write => {
            let user_timeout_s = (answered_s - first_retransmission_s(rto_s)).max(TICK_S);
            let with = |interval_s| Checking {
                interval_s: Some(interval_s),
                user_timeout_s: Some(tenths_up(user_timeout_s)),
                ..by_program.clone()
            };
            longest(within_s, 10.0, with)
        }
    }
}

/// The curve of one mechanism: the cheapest settings for wanted detection times of 1 s to 7200 s.
///
/// Shape: at most 30 points, detection time ascending, packets descending; none for a mechanism
/// without a bound.
pub fn curve(mechanism: Mechanism, loss: f64) -> Vec<Point> {
    let [from, to] = CURVE_S;
    let within = |step| from * (to / from).powf(f64::from(step) / f64::from(CURVE_POINTS - 1));
    let point = |step| {
        let checking = cheapest(mechanism, within(step), loss)?;
        Some(Point {
            packets_per_hour: checking.packets_per_hour()?,
            detect_s: checking.known_within_s()?,
            checking,
        })
    };
    let mut points: Vec<Point> = (0..CURVE_POINTS).filter_map(point).collect();
    points.dedup();
    points
}

/// Tries of a test that fail together rarely enough. None: more than any setting has.
fn tries_needed(loss: f64) -> Option<u32> {
    let q = try_fails(loss.clamp(0.0, 1.0));
    (1..=PROBES_MAX).find(|tries| q.powi(tries.cast_signed()) <= FALSE_ALARM_MAX)
}

/// The setting with the longest wait, a multiple of 1 / `parts` of a second, that knows in time.
///
/// By bisection over the multiples: a longer wait is never known earlier.
fn longest(within_s: f64, parts: f64, with: impl Fn(f64) -> Checking) -> Option<Checking> {
    let fits = |count: u32| {
        let checking = with(f64::from(count) / parts);
        checking.known_within_s().is_some_and(|known| known <= within_s).then_some(checking)
    };
    let mut best = fits(1)?;
    let (mut low, mut high) = (1, (IDLE_MAX_S * parts) as u32 + 1);
    while high - low > 1 {
        let middle = u32::midpoint(low, high);
        match fits(middle) {
            Some(checking) => (best, low) = (checking, middle),
            None => high = middle,
        }
    }
    Some(best)
}

/// Rounded up to a tenth of a second; what is one but for rounding stays.
fn tenths_up(s: f64) -> f64 {
    (s * 10.0 - 1e-6).ceil() / 10.0
}
