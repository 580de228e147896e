//! The options of `syn-queue`, and from what was typed to a checked plan, without doing anything.

use std::net::IpAddr;
use std::time::Duration;

use tcptoll_core::experiment::option::Opt;
use tcptoll_core::experiment::options::{
    BACKLOG, BIND, CLIENT_SYSCTL_RETRIES, CONCURRENCY, CONNECT_COUNT, CONNECT_RATE,
    CONNECT_TIMEOUT, IPV6, LINK, MAX_SYN_BACKLOG, PACKET_RELAY, SERVER_SYSCTL, SOMAXCONN,
    SYNCOOKIES, TAP, is_chosen, run_once,
};
use tcptoll_core::study::{Settings, Study};
use tcptoll_core::units::parse_count;
use tcptoll_lab::lab::is_silent;
use tcptoll_lab::load::half_open::{AGAIN_MIN, FIRST_PASS, RATE_MAX};

use super::{HALF_OPEN_MAX, SPEC};
use crate::kit::TrialError;
use crate::kit::hosts::{OVERHEAD_S, PORT_S};
use crate::kit::opening::Flow;
use crate::kit::settings::{LabSpec, SettingsReader, number, time_above_zero, wrong};

/// Heading of the peer that fills the queue.
const PEER: &str = "Half-open requests";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL_RETRIES,
    &SERVER_SYSCTL,
    &Opt::each(
        PEER,
        "half-open",
        "N|full",
        "Number of half-open requests that a peer keeps at the server, from addresses without a \
         host. full fills the SYN queue; 0 starts no peer",
    )
    .number()
    .by_default("full"),
    &Opt::each(
        PEER,
        "half-open-rate",
        "PER_SECOND",
        "Maximum number of SYNs that the peer sends per second",
    )
    .number()
    .derived("all sources send within 500ms, at most 20000 per second"),
    &Opt::each(
        PEER,
        "half-open-again",
        "TIME",
        "Time after which each source of the peer retransmits its SYN. Up to 900ms the server \
         keeps the request; after a longer time it may have timed out, and the SYN opens a new one",
    )
    .by_default("600ms"),
    &CONNECT_COUNT.worded("Total number of connections of ordinary clients").by_default("200"),
    &CONCURRENCY,
    &CONNECT_RATE.derived("100; not used with --concurrency"),
    &CONNECT_TIMEOUT.by_default("4s"),
    &BIND,
    &BACKLOG.by_default("128"),
    &SOMAXCONN,
    &MAX_SYN_BACKLOG,
    &SYNCOOKIES,
    &TAP,
];

/// Options that choose what is compared: with any of them typed, no arms are added.
const CHOSEN: [&str; 9] = [
    "backlog",
    "client-sysctl",
    "half-open",
    "half-open-again",
    "half-open-rate",
    "max-syn-backlog",
    "server-sysctl",
    "somaxconn",
    "syncookies",
];

/// The arms of a run without a choice, each with what it changes. The first two differ in the peer, and
/// each of the others is the second with one fix. 129 requests are what a backlog of 128 holds.
const ARMS: [(&str, &[(&str, &str)]); 4] = [
    (
        "no half-open requests",
        &[("half-open", "0"), ("syncookies", "0"), ("max-syn-backlog", "1024")],
    ),
    ("SYN queue full", &[("half-open", "129"), ("syncookies", "0"), ("max-syn-backlog", "1024")]),
    ("SYN cookies", &[("half-open", "129"), ("syncookies", "1"), ("max-syn-backlog", "1024")]),
    (
        "longer queue",
        &[
            ("half-open", "129"),
            ("syncookies", "0"),
            ("max-syn-backlog", "2048"),
            ("backlog", "1024"),
        ],
    ),
];

/// Without a choice, one round over a healthy arm, an ill one and two fixes.
pub(super) fn complete(study: &mut Study) {
    // Connections that fail are part of the question.
    study.failures.get_or_insert_with(|| "expected".to_owned());
    if !is_chosen(study, &CHOSEN) {
        run_once(study, &ARMS);
    }
}

/// The most connections one trial opens.
const COUNT_MAX: u64 = 1_000_000;

/// Connections of ordinary clients begun per second, where the user does not say.
const CLIENTS_PER_S: f64 = 100.0;

/// SYNs per second of the peer, at most, where the user does not say: a tenth of a CPU.
const PEER_PER_S: f64 = 20_000.0;

/// The first SYNs of all sources leave within this, where the user does not say.
const WITHIN: Duration = Duration::from_millis(500);

/// The longest time limit of one connection, and the longest time until a source sends again.
const TIME_MAX: Duration = Duration::from_hours(1);

/// Half-open requests that a peer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HalfOpen {
    /// This number; 0: there is no peer.
    Number(u64),
    /// As many as the SYN queue holds.
    Full,
}

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct SynQueueSettings {
    /// The lab, with the sysctls that options stand for.
    pub lab: LabSpec,
    pub count: u64,
    /// Closed loop: connections at a time.
    pub concurrency: Option<u64>,
    /// Begun per second; absent: closed loop.
    pub rate: Option<f64>,
    /// From start to end of one connection.
    pub timeout: Duration,
    /// Source addresses of ordinary clients.
    pub bind: Vec<IpAddr>,
    /// Of `listen(2)`.
    pub backlog: i32,
    /// Half-open requests of the peer.
    pub half_open: HalfOpen,
    /// SYNs of the peer per second, if the user said.
    pub half_open_rate: Option<f64>,
    /// Each source of the peer sends again after this.
    pub again: Duration,
}

impl SynQueueSettings {
    /// Checks the settings of one arm.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let mut lab = LabSpec::from(&reader)?;
        let half_open = reader.read("half-open", half_open)?;
        if lab.link.loopback && half_open != HalfOpen::Number(0) {
            let why = "on loopback this host has every address and would reset the half-open \
                       connections: write --link direct, or --half-open 0";
            return Err(wrong("link", &reader.value("link")?, why));
        }
        lab.silent_addresses = half_open != HalfOpen::Number(0);
        let half_open_rate = reader.typed_read("half-open-rate", peer_rate)?;
        let again = reader.read("half-open-again", peer_again)?;
        for option in ["half-open-rate", "half-open-again"] {
            if let (Some(typed), HalfOpen::Number(0)) = (reader.typed(option), half_open) {
                let why = "it has no effect with --half-open 0: leave one of them out";
                return Err(wrong(option, &typed, why));
            }
        }
        if let (Some(rate), HalfOpen::Number(number)) = (half_open_rate, half_open)
            && number as f64 / rate > FIRST_PASS.as_secs_f64()
        {
            let why = format!(
                "{number} half-open requests take more than {} s to open: write a higher rate",
                FIRST_PASS.as_secs()
            );
            return Err(wrong("half-open-rate", &rate.to_string(), why));
        }
        let most = i32::MAX as u64;
        for (option, name, greatest) in [
            ("somaxconn", "net.core.somaxconn", most),
            ("max-syn-backlog", "net.ipv4.tcp_max_syn_backlog", most),
            ("syncookies", "net.ipv4.tcp_syncookies", 2),
        ] {
            let Some(value) = reader.typed_count(option, 0, greatest)? else { continue };
            if lab.server_sysctls.iter().any(|(other, _)| other == name) {
                let why = format!("--server-sysctl {name} sets it too: leave one of them out");
                return Err(wrong(option, &value.to_string(), why));
            }
            lab.server_sysctls.push((name.to_owned(), value.to_string()));
        }
        let concurrency = reader.typed_count("concurrency", 1, 100_000)?;
        let asked = reader.rate("connections")?;
        if let (Some(typed), Some(_)) = (reader.typed("rate"), concurrency) {
            let why = "it has no effect together with --concurrency: leave one of them out";
            return Err(wrong("rate", &typed, why));
        }
        let bind = reader.addresses("bind")?;
        if let Some(taken) = bind.iter().find(|address| is_silent(**address)) {
            let why = "the peer's half-open requests come from this address, so no host may have it: \
                       write another address";
            return Err(wrong("bind", &taken.to_string(), why));
        }
        Ok(Self {
            lab,
            count: reader.count("count", 1, COUNT_MAX)?,
            concurrency,
            rate: concurrency.is_none().then(|| asked.unwrap_or(CLIENTS_PER_S)),
            timeout: reader.read("timeout", limited)?,
            bind,
            backlog: reader.count("backlog", 0, most)? as i32,
            half_open,
            half_open_rate,
            again,
        })
    }

    /// How connections follow each other.
    pub(super) fn flow(&self) -> Flow {
        Flow {
            rate: self.rate,
            at_once: self.concurrency.unwrap_or(1).min(self.count),
            pause_every: None,
        }
    }

    /// SYNs per second of a peer with this number of sources.
    pub(super) fn peer_rate(&self, number: u64) -> f64 {
        let within = number as f64 / WITHIN.as_secs_f64();
        self.half_open_rate.unwrap_or_else(|| within.clamp(1.0, PEER_PER_S))
    }

    /// Connections that begin per second, if all goes well.
    fn per_s(&self) -> f64 {
        let one_s = 2.0 * self.lab.link.rtt.as_secs_f64() + 80e-6;
        self.rate.unwrap_or_else(|| self.flow().at_once as f64 / one_s)
    }

    /// Local ports in use at a time: those of the last minute.
    pub(super) fn ports(&self) -> u64 {
        self.count.min((self.per_s() * PORT_S).ceil() as u64)
    }

    /// How long the arm will take, s. With a peer the last connections may take all of their time.
    pub(super) fn expected_s(&self) -> f64 {
        let link_s = 5.0 * self.lab.link.rtt.as_secs_f64();
        let number = match self.half_open {
            HalfOpen::Number(number) => number,
            HalfOpen::Full => self.backlog.unsigned_abs().min(4_096).into(),
        };
        let waits_s = if number > 0 { self.timeout.as_secs_f64() } else { 0.0 };
        let fill_s = number as f64 / self.peer_rate(number);
        OVERHEAD_S + link_s + self.count as f64 / self.per_s() + fill_s + waits_s
    }
}

fn half_open(typed: &str) -> Result<HalfOpen, String> {
    if typed == "full" {
        return Ok(HalfOpen::Full);
    }
    match parse_count(typed) {
        Ok(number) if number <= HALF_OPEN_MAX => Ok(HalfOpen::Number(number)),
        _ => Err(format!("write a number from 0 to {HALF_OPEN_MAX}, or full")),
    }
}

fn limited(typed: &str) -> Result<Duration, String> {
    match time_above_zero(typed)? {
        time if time > TIME_MAX => Err("write at most 1h".to_owned()),
        time => Ok(time),
    }
}

fn peer_again(typed: &str) -> Result<Duration, String> {
    match limited(typed)? {
        time if time < AGAIN_MIN => Err(format!("write at least {} ms", AGAIN_MIN.as_millis())),
        time => Ok(time),
    }
}

fn peer_rate(typed: &str) -> Result<f64, String> {
    let rate = number(typed).filter(|rate| *rate > 0.0 && *rate <= RATE_MAX);
    rate.ok_or_else(|| format!("write SYNs per second, above 0 and at most {RATE_MAX}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn study(typed: &[(&str, &str)]) -> Study {
        let mut study = Study {
            question: "What?".to_owned(),
            experiment: super::SPEC.name.to_owned(),
            ..Study::default()
        };
        for (option, value) in typed {
            study.settings.insert((*option).to_owned(), Value::from(*value));
        }
        complete(&mut study);
        study
    }

    #[test]
    fn without_a_choice_an_ill_arm_stands_between_a_healthy_one_and_two_fixes() {
        let arms = study(&[("link", "rtt=10ms")]).arms().unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ARMS.map(|(name, _)| name));
        let ill = &arms[1].settings;
        assert_eq!((&ill["half-open"], &ill["syncookies"]), (&"129".into(), &"0".into()));
        assert_eq!(ill["link"], "rtt=10ms", "a link is no choice");
        assert_eq!(study(&[]).rounds.fixed, Some(1));
    }

    #[test]
    fn with_a_choice_nothing_is_added_and_failures_are_expected() {
        for option in CHOSEN {
            let one = study(&[(option, "1")]);
            assert_eq!((one.arms().unwrap().len(), one.rounds.fixed), (1, None), "{option}");
            assert_eq!(one.failures.as_deref(), Some("expected"));
        }
    }

    fn read(pairs: &[(&str, &str)]) -> Result<SynQueueSettings, String> {
        let settings =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Settings>();
        SynQueueSettings::from(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_choice_a_peer_fills_the_queue_and_100_clients_connect_per_second() {
        let plain = read(&[]).unwrap();
        assert_eq!((plain.half_open, plain.count, plain.rate), (HalfOpen::Full, 200, Some(100.0)));
        assert!(plain.lab.silent_addresses);
        assert!((plain.peer_rate(129) - 258.0).abs() < 1e-9, "all within 500 ms");
        assert_eq!(plain.again, Duration::from_millis(600));
        assert!((plain.peer_rate(65_536) - 20_000.0).abs() < 1e-9);
        assert!((plain.peer_rate(0) - 1.0).abs() < 1e-9, "a rate of 0 never ends");
        // 2 s of arrivals, 4 s for the last, and the first pass of the peer.
        assert!((6.0..8.0).contains(&plain.expected_s()), "{}", plain.expected_s());
    }

    #[test]
    fn no_option_names_a_server_of_the_user() {
        assert_eq!(SPEC.target, None);
        for option in ["to", "server", "port", "url", "target"] {
            let refused = read(&[(option, "192.0.2.1:80")]).unwrap_err();
            assert!(refused.contains("has no such setting"), "{refused}");
        }
    }

    #[test]
    fn the_peer_is_bounded_in_number_and_rate() {
        for (option, typed) in [
            ("half-open", "65537"),
            ("half-open", "-1"),
            ("half-open", "fully"),
            ("half-open-rate", "0"),
            ("half-open-rate", "50001"),
            ("half-open-rate", "NaN"),
            ("half-open-again", "50ms"),
            ("half-open-again", "2h"),
        ] {
            let refused = read(&[(option, typed)]).unwrap_err();
            assert!(refused.starts_with(&format!("--{option} {typed}: write ")), "{refused}");
        }
        let slow = read(&[("half-open", "1000"), ("half-open-rate", "30")]).unwrap_err();
        assert!(slow.contains("take more than 30 s to open"), "{slow}");
    }

    #[test]
    fn a_link_without_strangers_and_an_address_of_the_peer_are_refused() {
        let loopback = read(&[("link", "loopback")]).unwrap_err();
        assert!(loopback.starts_with("--link loopback: on loopback"), "{loopback}");
        assert!(read(&[("link", "loopback"), ("half-open", "0")]).is_ok());
        let bound = read(&[("bind", "10.77.0.1,10.77.254.3")]).unwrap_err();
        assert!(bound.starts_with("--bind 10.77.254.3: "), "{bound}");
        let unused = read(&[("half-open", "0"), ("half-open-rate", "9")]).unwrap_err();
        assert!(unused.contains("no effect with --half-open 0"), "{unused}");
    }

    #[test]
    fn a_sysctl_has_one_value() {
        let twice = [("syncookies", "0"), ("server-sysctl", "net.ipv4.tcp_syncookies=1")];
        assert!(read(&twice).unwrap_err().contains("leave one of them out"));
        let set = read(&[("max-syn-backlog", "2048")]).unwrap().lab.server_sysctls;
        assert_eq!(set, [("net.ipv4.tcp_max_syn_backlog".to_owned(), "2048".to_owned())]);
        assert!(read(&[("syncookies", "3")]).unwrap_err().starts_with("--syncookies 3: "));
        assert!(read(&[("rate", "5"), ("concurrency", "5")]).is_err());
    }
}
