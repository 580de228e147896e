//! Which setting finds a death in time with the fewest packets, and what has to be set for it?
//!
//! A setting tolerates a path and not a loss alone: a round trip of 200 ms, or the link's; the RTO of a
//! connection that has measured little, three round trips; timers an eighth late; an acknowledgment delayed
//! by 200 ms. With the RTO of a quiet path four transmissions were promised within 1.8 s and three were made
//! (at 0, 0.62 and 1.23 s). An advised user timeout ends after the probes' own timers, and not before them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::retransmission::{
    ASSUMED_RTT_S, DELAYED_ACK_S, first_retransmission_s, rto_s, sends, try_fails,
};
use super::{Checking, Evidence, Mechanism, WHEEL_SHARE};

/// A path that settings have to tolerate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// Share of packets lost each way, independently of each other, 0 to 1.
    pub loss: f64,
    /// Round-trip time, s.
    pub rtt_s: f64,
}

impl Path {
    /// What is assumed where nothing else is said: 1 % and 200 ms.
    pub const ASSUMED: Self = Self { loss: 0.01, rtt_s: ASSUMED_RTT_S };
}

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
/// connection fails on such a path.
///
/// - `tcp`: idle time and interval are whole seconds of at least 1, as the kernel takes them. The
///   interval is the least: what it does not take, the idle time gets, and that alone saves packets.
///   A probe whose answer would come after the last interval is no try, so there are more of them
///   where the round trip is long.
/// - `heartbeat`, `write`: times in tenths of a second. The answer time, or the user timeout, lasts
///   as long as the repeats take that are needed, by timers that are late, and the answer to the
///   last of them, which the peer's kernel may delay.
///
/// None: the time is too short, the loss too great, or the mechanism has no bound (`none`, `lazy`).
pub fn cheapest(mechanism: Mechanism, within_s: f64, path: Path) -> Option<Checking> {
    let tries = tries_needed(path.loss)?;
    let rto_s = rto_s(path.rtt_s);
    let last_try_s = sends(rto_s).nth(tries as usize - 1)? * (1.0 + WHEEL_SHARE);
    let answered_s = last_try_s + path.rtt_s + DELAYED_ACK_S;
    let in_vain = (path.rtt_s / PROBE_INTERVAL_S) as u32;
    let probes = tries.checked_add(in_vain).filter(|probes| *probes <= PROBES_MAX);
    let plain = Checking { mechanism, ..Checking::default() };
    let by_program =
        Checking { tick_s: Some(TICK_S), null_bytes: Some(NULL_BYTES), ..plain.clone() };
    // The longest wait is what the others leave of the time: each second of a wait adds the same.
    match mechanism {
        Mechanism::None | Mechanism::Lazy => None,
        Mechanism::Tcp => {
            let probes = Some(probes?);
            let with = |idle_s| Checking {
                idle_s: Some(idle_s),
                interval_s: Some(PROBE_INTERVAL_S),
                probes,
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

/// The shortest time, s, within which [`cheapest`] has a setting of this mechanism; in tenths.
///
/// None: it has none however long the time is.
pub fn soonest_s(mechanism: Mechanism, path: Path) -> Option<f64> {
    let knows = |tenths: u32| cheapest(mechanism, f64::from(tenths) / 10.0, path).is_some();
    let (mut low, mut high) = (0, (IDLE_MAX_S * 10.0) as u32);
    if !knows(high) {
        return None;
    }
    while high - low > 1 {
        let middle = u32::midpoint(low, high);
        if knows(middle) { high = middle } else { low = middle }
    }
    Some(f64::from(high) / 10.0)
}

/// The curve of one mechanism: the cheapest settings for wanted detection times of 1 s to 7200 s.
///
/// Shape: at most 30 points, detection time ascending, packets descending; none for a mechanism
/// without a bound.
pub fn curve(mechanism: Mechanism, path: Path) -> Vec<Point> {
    let [from, to] = CURVE_S;
    let within = |step| from * (to / from).powf(f64::from(step) / f64::from(CURVE_POINTS - 1));
    let point = |step| {
        let checking = cheapest(mechanism, within(step), path)?;
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

/// Where a setting is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Place")]
pub enum SettingPlace {
    /// `setsockopt(2)` on each connection.
    Socket,
    /// A sysctl of the host: for all sockets that only set `SO_KEEPALIVE`.
    Sysctl,
    /// A value of the crate `tcp-heartbeat`, as written in a program.
    Library,
    /// Something that the program itself has to do.
    Program,
}

/// One thing to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Where.
    pub place: SettingPlace,
    /// The name there: `TCP_KEEPIDLE`, `net.ipv4.tcp_keepalive_time`, `Timing`.
    pub name: String,
    /// The value as it is written there, in the unit that is meant there.
    pub value: String,
}

impl Checking {
    /// What to set, in order; empty if nothing needs setting.
    ///
    /// Times of the kernel's probes are rounded up to its whole seconds.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = match self.mechanism {
            Mechanism::None => Vec::new(),
            Mechanism::Tcp => self.of_the_kernel(),
            Mechanism::Heartbeat => self.of_heartbeats(),
            Mechanism::Lazy => self.of_the_reaper(),
            Mechanism::Write => {
                let every =
                    |s| setting(SettingPlace::Program, "write a message every", format!("{s} s"));
                self.interval_s.map(every).into_iter().collect()
            }
        };
        if let Some(limit) = self.user_timeout_s {
            let place = settings.iter().take_while(|one| one.place == SettingPlace::Socket).count();
            settings.insert(place, setting(SettingPlace::Socket, "TCP_USER_TIMEOUT", ms(limit)));
        }
        settings
    }

    fn of_the_kernel(&self) -> Vec<Setting> {
        let values = [
            ("TCP_KEEPIDLE", "net.ipv4.tcp_keepalive_time", self.idle_s),
            ("TCP_KEEPINTVL", "net.ipv4.tcp_keepalive_intvl", self.interval_s),
            ("TCP_KEEPCNT", "net.ipv4.tcp_keepalive_probes", self.probes.map(f64::from)),
        ];
        let whole = |value: f64| format!("{}", value.ceil());
        let on = setting(SettingPlace::Socket, "SO_KEEPALIVE", "1".to_owned());
        let options = values.iter().filter_map(|(option, _, value)| {
            Some(setting(SettingPlace::Socket, option, whole((*value)?)))
        });
        let sysctls = values.iter().filter_map(|(_, sysctl, value)| {
            Some(setting(SettingPlace::Sysctl, sysctl, whole((*value)?)))
        });
        std::iter::once(on).chain(options).chain(sysctls).collect()
    }

    fn of_heartbeats(&self) -> Vec<Setting> {
        let timing = self.idle_s.zip(self.answer_within_s).map(|(idle, within)| {
            let (idle, within) = (duration(idle), duration(within));
            let value = format!("Timing::new({idle}, {within})");
            setting(SettingPlace::Library, "timing", value)
        });
        let tick = self.tick_s.map(|tick| setting(SettingPlace::Library, "tick", duration(tick)));
        timing.into_iter().chain(tick).collect()
    }

    fn of_the_reaper(&self) -> Vec<Setting> {
        let Some(most) = self.most else { return Vec::new() };
        let reaping = setting(SettingPlace::Library, "reaping", format!("Reaping::new({most})"));
        let within = self
            .answer_within_s
            .map(|s| setting(SettingPlace::Library, "reaping.answer_within", duration(s)));
        [reaping].into_iter().chain(within).collect()
    }
}

fn setting(place: SettingPlace, name: &str, value: String) -> Setting {
    Setting { place, name: name.to_owned(), value }
}

fn ms(s: f64) -> String {
    format!("{}", (s * 1000.0).round())
}

fn duration(s: f64) -> String {
    format!("Duration::from_millis({})", ms(s))
}
