//! What checking idle connections cost, and what it found out.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::merge::{Merge, merged, parts, sum, summed};
use crate::tcp::checking::{Checking, Mechanism, Path, expected_false_alarms};
use crate::tcp::wire::Traffic;

/// What checking idle connections cost, and what it found out.
///
/// Counts are of the measured window, except those of [`Deaths`]; of several rounds they are sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Keepalive {
    /// How connections were checked.
    pub checking: Checking,
    /// The time within which deaths were to be known, s, where that chose the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect_within_s: Option<f64>,
    /// The path that those settings stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<Path>,
    /// Which host checked: `server`, `client` or `both`.
    pub side: String,
    /// Over IPv6, whose headers are 20 bytes longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ipv6: bool,
    /// Connections in all: the one that writes, if one did, and those that idle.
    pub sockets: u64,
    /// Of these, that idle.
    pub idle_sockets: u64,
    /// Processes of the fleet on each host, the client's first: as many as the limit of open
    /// files asks for.
    pub processes: [u64; 2],
    /// Length of the measured window, s.
    pub window_s: f64,
    /// Probes of the kernel, both directions, as the wire saw them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Traffic>,
    /// Answers to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_answers: Option<Traffic>,
    /// Segments with payload on idle connections: Null messages, and what answers them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeats: Option<Traffic>,
    /// Their acknowledgments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_acks: Option<Traffic>,
    /// Of the heartbeats, segments sent again.
    #[serde(default)]
    pub heartbeat_retransmissions: u64,
    /// Null messages that the program says it sent.
    #[serde(default)]
    pub nulls_sent: u64,
    /// Wake-ups of the fleet's timers.
    #[serde(default)]
    pub wakeups: u64,
    /// Share of the link's line rate that checking took in its busier direction, 0 to 1; absent on
    /// a link without a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_share: Option<f64>,
    /// What died, and when that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deaths: Option<Deaths>,
}

impl Keepalive {
    /// Packets that checking takes for an hour and one healthy connection, by arithmetic, at most:
    /// two sides that check send their own.
    ///
    /// None: a setting is missing, or the two sides check in different ways.
    pub fn computed_packets_per_hour(&self) -> Option<f64> {
        let sides = match self.side.as_str() {
            "both" if self.checking.mechanism == Mechanism::Lazy => return None,
            "both" => 2.0,
            _ => 1.0,
        };
        Some(self.checking.packets_per_hour()? * sides)
    }

    /// Bytes of these, from the IP header on, with time stamps.
    ///
    /// None: as of [`Self::computed_packets_per_hour`], or the size of messages is missing.
    pub fn computed_bytes_per_hour(&self) -> Option<f64> {
        const LONGER: f64 = 20.0;
        let packets = self.computed_packets_per_hour()?;
        let sides = if self.side == "both" { 2.0 } else { 1.0 };
        let longer = if self.ipv6 { LONGER * packets } else { 0.0 };
        Some(self.checking.bytes_per_hour()? * sides + longer)
    }
}

/// Connections that were made to die, and what was known of them; over all rounds.
///
/// How long each took to be known is the histogram `detection_us`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deaths {
    /// What was done: `cut`, `freeze`, `reset`, `close`, `loss=5%`.
    pub fault: String,
    /// Idle connections that it was done to.
    pub stricken: u64,
    /// Of these, those that truly died: with loss none did.
    pub dead: u64,
    /// Dead ones that were known to be dead.
    pub known: u64,
    /// By what: `ETIMEDOUT`, `ECONNRESET`, `read returned 0`, `no acknowledgment`, `no answer`.
    #[serde(default)]
    pub known_by: BTreeMap<String, u64>,
    /// What `read(2)` said on dead connections when it was asked after a test, before the
    /// mechanism knew: `EAGAIN`, `0`, `ETIMEDOUT`.
    #[serde(default)]
    pub read_said: BTreeMap<String, u64>,
    /// How long was waited for that, s, in each round.
    pub watched_s: f64,
    /// When each dead one has to be known, by arithmetic, s; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_s: Option<f64>,
    /// How much later the timers may fire, s: the kernel's wheel an eighth of each wait, the
    /// program's one tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granularity_s: Option<f64>,
    /// How much later than that the machine ran the checking program, as measured, s: twice its
    /// worst wake-up, for a Null and its verdict are two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_s: Option<f64>,
    /// Dead ones known later than [`Self::due_s`] and [`Self::behind_s`] together.
    pub late: u64,
    /// Idle connections that were alive all the time.
    pub alive: u64,
    /// Of these, those that the mechanism took for dead: false alarms.
    pub wrongly_closed: u64,
    /// Tests of live connections, as the wire saw them begin; absent: nothing was lost, or the
    /// mechanism has no tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<u64>,
    /// Probability, 0 to 1, that one such test fails, by arithmetic from the loss asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_probability: Option<f64>,
    /// False alarms to be expected from these two: least, mean, most; in 99
    /// of 100 runs the number lies between the first and the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_wrongly: Option<[f64; 3]>,
    /// Probes, Null messages and repeats that went to stricken connections, and what came back,
    /// from the fault on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// `lazy`: connections that arrived and found no room.
    #[serde(default)]
    pub arrivals: u64,
}

impl Deaths {
    /// When each dead one has to be known by arithmetic, timers included, s; `None`: never.
    pub fn due_s(&self) -> Option<f64> {
        Some(self.bound_s? + self.granularity_s.unwrap_or(0.0))
    }
}

impl Merge for Keepalive {
    /// Counts and windows are summed; settings, bounds and the number of sockets are those of the
    /// first round.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        let total = |part: fn(&Self) -> u64| sum(rounds.iter().map(|round| part(round)));
        let traffic =
            |part: fn(&Self) -> Option<Traffic>| together(rounds.iter().copied().map(part));
        Some(Self {
            window_s: rounds.iter().map(|round| round.window_s).sum(),
            processes: [0, 1].map(|host| {
                rounds.iter().map(|round| round.processes[host]).max().unwrap_or_default()
            }),
            probes: traffic(|round| round.probes),
            probe_answers: traffic(|round| round.probe_answers),
            heartbeats: traffic(|round| round.heartbeats),
            heartbeat_acks: traffic(|round| round.heartbeat_acks),
            heartbeat_retransmissions: total(|round| round.heartbeat_retransmissions),
            nulls_sent: total(|round| round.nulls_sent),
            wakeups: total(|round| round.wakeups),
            link_share: link_share(rounds),
            deaths: merged(rounds, |round| round.deaths.as_ref()),
            ..first.clone()
        })
    }
}

impl Merge for Deaths {
    /// Counts are summed; the fault, bounds and times are those of the first round.
    fn merge(all: &[&Self]) -> Option<Self> {
        let first = *all.first()?;
        let total = |part: fn(&Self) -> u64| sum(all.iter().map(|deaths| part(deaths)));
        let tested: Vec<(u64, f64)> =
            all.iter().filter_map(|deaths| deaths.tests.zip(deaths.test_probability)).collect();
        let tests = sum(tested.iter().map(|(tests, _)| *tests));
        let expected: f64 = tested.iter().map(|(tests, p)| *tests as f64 * p).sum();
        // The rounds of an arm have one loss and one setting, and so one probability.
        let probability =
            if tests == 0 { first.test_probability } else { Some(expected / tests as f64) };
        let whole = !tested.is_empty() && tested.len() == all.len();
        let probability = probability.filter(|_| whole);
        Some(Self {
            stricken: total(|deaths| deaths.stricken),
            dead: total(|deaths| deaths.dead),
            known: total(|deaths| deaths.known),
            known_by: summed(&parts(all, |deaths| &deaths.known_by)),
            read_said: summed(&parts(all, |deaths| &deaths.read_said)),
            late: total(|deaths| deaths.late),
            alive: total(|deaths| deaths.alive),
            wrongly_closed: total(|deaths| deaths.wrongly_closed),
            tests: whole.then_some(tests),
            test_probability: probability,
            expected_wrongly: probability.map(|p| expected_false_alarms(tests, p)),
            traffic: together(all.iter().map(|deaths| deaths.traffic)),
            arrivals: total(|deaths| deaths.arrivals),
            ..first.clone()
        })
    }
}

/// The share of all windows together. None: no round has one.
fn link_share(rounds: &[&Keepalive]) -> Option<f64> {
    let shares: Vec<(f64, f64)> =
        rounds.iter().filter_map(|round| Some((round.link_share?, round.window_s))).collect();
    let length: f64 = shares.iter().map(|(_, window)| window).sum();
    let used: f64 = shares.iter().map(|(share, window)| share * window).sum();
    (length > 0.0).then(|| used / length)
}

/// The sum of what some rounds have. None: none has it.
fn together(rounds: impl Iterator<Item = Option<Traffic>>) -> Option<Traffic> {
    rounds.flatten().reduce(Traffic::plus)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn counted(name: &str, count: u64) -> BTreeMap<String, u64> {
        [(name.to_owned(), count)].into()
    }

    fn round(window_s: f64, probes: u64, known: u64, tests: Option<u64>) -> Keepalive {
        Keepalive {
            checking: Checking { mechanism: Mechanism::Tcp, ..Checking::default() },
            sockets: 51,
            idle_sockets: 50,
            processes: [1, 1],
            window_s,
            probes: Some(Traffic { packets: probes, bytes: 52 * probes }),
            nulls_sent: probes,
            link_share: Some(1.0 / window_s),
            deaths: Some(Deaths {
                stricken: 10,
                dead: 10,
                known,
                known_by: counted("ETIMEDOUT", known),
                watched_s: 30.0,
                bound_s: Some(13.0),
                tests,
                test_probability: tests.map(|_| 0.001),
                traffic: Some(Traffic { packets: 3, bytes: 156 }),
                ..Deaths::default()
            }),
            ..Keepalive::default()
        }
    }

    fn consolidated(rounds: &[Keepalive]) -> Keepalive {
        Keepalive::merge(&rounds.iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn counts_are_summed_and_settings_kept() {
        let all = consolidated(&[round(10.0, 100, 9, None), round(30.0, 300, 10, None)]);
        assert_eq!((all.sockets, all.idle_sockets, all.processes), (51, 50, [1, 1]));
        assert_eq!((all.probes.unwrap().packets, all.probes.unwrap().bytes), (400, 20_800));
        assert_eq!((all.nulls_sent, all.heartbeats), (400, None));
        assert!((all.window_s - 40.0).abs() < 1e-12);
        // 1 s of the link in each round: 2 of 40 s.
        assert!((all.link_share.unwrap() - 0.05).abs() < 1e-12);
        let deaths = all.deaths.unwrap();
        assert_eq!((deaths.stricken, deaths.known, deaths.known_by["ETIMEDOUT"]), (20, 19, 19));
        assert_eq!((deaths.watched_s, deaths.bound_s), (30.0, Some(13.0)));
        assert_eq!(deaths.traffic, Some(Traffic { packets: 6, bytes: 312 }));
        assert_eq!((deaths.tests, deaths.expected_wrongly), (None, None));
    }

    #[test]
    fn expected_false_alarms_are_those_of_all_tests_together() {
        // 100,000 tests at 0.001: about 100, and not the sum of two ranges.
        let rounds = [round(1.0, 1, 1, Some(60_000)), round(1.0, 1, 1, Some(40_000))];
        let deaths = consolidated(&rounds).deaths.unwrap();
        assert_eq!(deaths.tests, Some(100_000));
        assert!((deaths.test_probability.unwrap() - 0.001).abs() < 1e-15);
        let expected = deaths.expected_wrongly.unwrap();
        assert_eq!([expected[0] as u64, expected[2] as u64], [75, 127]);
        assert!((expected[1] - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_round_that_could_not_count_its_tests_leaves_no_expectation() {
        let rounds = [round(1.0, 1, 1, Some(60_000)), round(1.0, 1, 1, None)];
        let deaths = consolidated(&rounds).deaths.unwrap();
        assert_eq!(
            (deaths.tests, deaths.test_probability, deaths.expected_wrongly),
            (None, None, None)
        );
    }

    #[test]
    fn without_a_round_there_is_none() {
        assert_eq!(Keepalive::merge(&[]), None);
    }
}
