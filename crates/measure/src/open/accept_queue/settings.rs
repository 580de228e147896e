//! The options of `accept-queue`, and from what was typed to a checked plan, without doing anything.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use tcptoll_core::experiment::option::Opt;
use tcptoll_core::experiment::options::{
    ABORT_ON_OVERFLOW, ACCEPT_DELAY, ARRIVALS, BACKLOG, BIND, CLIENT_ADDRESS, CLIENT_HOST,
    CLIENT_SYSCTL_RETRIES, CONCURRENCY, CONNECT_COUNT, CONNECT_RATE, CONNECT_TIMEOUT, DEAD_AFTER,
    FIRST_BYTE, IPV6, LINK, LISTENERS, LOAD, MAX_SYN_BACKLOG, PACKET_RELAY, PAUSE, PAUSE_EVERY,
    REMOTE_BINARY, SERVER_ADDRESS, SERVER_HOST, SERVER_SYSCTL, SOMAXCONN, SSH_COMMAND, SYNCOOKIES,
    TAP,
};
use tcptoll_core::stats::arrivals::Spread;
use tcptoll_core::study::{RoundsAsked, Settings, Study};
use tcptoll_lab::load::greet::LISTENERS_MAX;

use super::SPEC;
use crate::kit::TrialError;
use crate::kit::hosts::{OVERHEAD_S, PORT_S};
use crate::kit::opening::Flow;
use crate::kit::settings::{LabSpec, SettingsReader, WarmUp, time_above_zero, wrong};

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL_RETRIES,
    &SERVER_SYSCTL,
    &SERVER_HOST,
    &CLIENT_HOST,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &CONNECT_COUNT.derived("500"),
    &Opt::each(
        LOAD,
        "duration",
        "TIME",
        "Time during which each trial starts connections, e.g. 10s, instead of --count",
    )
    .letters(&['d']),
    &Opt::each(
        LOAD,
        "warmup",
        "N|TIME",
        "Warm-up before the measurement, as a number of connections or a time. Its figures are \
         reported separately",
    )
    .number()
    .derived("20 connections, accepted without delay"),
    &CONCURRENCY,
    &CONNECT_RATE
        .derived("twice the server's accept rate, at most 10000; not used with --concurrency"),
    &ARRIVALS,
    &PAUSE_EVERY,
    &PAUSE,
    &CONNECT_TIMEOUT,
    &FIRST_BYTE,
    &BIND,
    &BACKLOG.by_default("128"),
    &SOMAXCONN,
    &MAX_SYN_BACKLOG,
    &LISTENERS,
    &ACCEPT_DELAY.by_default("1ms"),
    &ABORT_ON_OVERFLOW,
    &SYNCOOKIES,
    &TAP,
];

/// Options that choose what is compared, or how much arrives: with any of them typed, no backlogs are
/// added.
const CHOSEN: [&str; 13] = [
    "abort-on-overflow",
    "accept-delay",
    "backlog",
    "concurrency",
    "count",
    "duration",
    "first-byte",
    "max-syn-backlog",
    "pause-every",
    "rate",
    "server-sysctl",
    "somaxconn",
    "syncookies",
];

/// The two backlogs of a run without a choice. A burst of 500 at twice the rate of accept(2) leaves
/// about 250 in the queue: the first is too short for them, the second holds them.
const BACKLOGS: [u32; 2] = [128, 1024];

/// Rounds of a run without a choice: one more than an interval needs, as a round may be excluded.
const ROUNDS: u32 = 6;

/// Time limit of a connection in a run without a choice: a refused ACK of a SYN cookie is never answered,
/// and three seconds are enough for the first steps of both ladders.
const TIMEOUT: &str = "3s";

/// Without a choice, a backlog that is too short is compared with one that is not. Wherever backlogs are
/// compared, connections of the shorter ones are expected to fail.
pub(super) fn complete(study: &mut Study) {
    if study.values("backlog").len() > 1 {
        study.failures.get_or_insert_with(|| "expected".to_owned());
    }
    let typed = |option: &&str| !study.values(option).is_empty();
    if CHOSEN.iter().any(typed) {
        return;
    }
    study.factors.insert("backlog".to_owned(), BACKLOGS.map(Value::from).to_vec());
    if study.values("timeout").is_empty() {
        study.settings.insert("timeout".to_owned(), Value::from(TIMEOUT));
    }
    if study.failures.is_none() {
        study.failures = Some("expected".to_owned());
    }
    if study.rounds == RoundsAsked::default() {
        study.rounds.fixed = Some(ROUNDS);
    }
}

/// The most connections one trial opens.
const COUNT_MAX: u64 = 1_000_000;

/// Connections of a trial, unless the user says otherwise.
const COUNT: u64 = 500;

/// Connections opened before any is measured, unless `--warmup` says otherwise.
const WARM_UP: u64 = 20;

/// Connections begun per second, at most, where the user does not say: with one CPU the client begins
/// no more than three times as many.
const RATE_MAX: f64 = 10_000.0;

/// The longest pause, time limit, and time that the server works before each accept(2).
const TIME_MAX: Duration = Duration::from_hours(1);

/// The first step of the client's ladder, to estimate how long a trial takes, s.
const FIRST_STEP_S: f64 = 1.0;

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct AcceptQueueSettings {
    /// The lab, with the sysctls that options stand for.
    pub lab: LabSpec,
    /// Connections in all, at most.
    pub count: u64,
    /// No connection begins after this time.
    pub duration: Option<Duration>,
    pub warmup: WarmUp,
    /// Closed loop: connections at a time.
    pub concurrency: Option<u64>,
    /// Begun per second; absent: closed loop.
    pub rate: Option<f64>,
    /// Spacing of connections of a rate.
    pub arrivals: Spread,
    /// Connections between two pauses.
    pub pause_every: Option<u64>,
    /// Length of a pause.
    pub pause: Duration,
    /// From start to end of one connection.
    pub timeout: Duration,
    /// Whether a connection lasts until the server's first byte.
    pub first_byte: bool,
    pub bind: Vec<IpAddr>,
    /// Of `listen(2)`.
    pub backlog: i32,
    /// Listeners of the server.
    pub listeners: u8,
    /// Time that the server works before each accept(2) at the first listener.
    pub accept_delay: Duration,
    /// `net.ipv4.tcp_abort_on_overflow`, by whichever option.
    pub aborts: bool,
}

impl AcceptQueueSettings {
    /// Checks the settings of one arm.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let mut lab = LabSpec::from(&reader)?;
        let server = &mut lab.server_sysctls;
        let mut kernel = |option: &str, name: &str, value: Option<String>| {
            let Some(value) = value else { return Ok(()) };
            if server.iter().any(|(other, _)| other == name) {
                let typed = reader.typed(option).unwrap_or_default();
                let why = format!("--server-sysctl {name} sets it too: leave one of them out");
                return Err(wrong(option, &typed, why));
            }
            server.push((name.to_owned(), value));
            Ok(())
        };
        let most = i32::MAX as u64;
        let number = |option: &str, least, most| -> Result<Option<String>, TrialError> {
            Ok(reader.typed_count(option, least, most)?.map(|count| count.to_string()))
        };
        // A listener of no length at all is not what anybody means by somaxconn; the kernel takes 0.
        kernel("somaxconn", "net.core.somaxconn", number("somaxconn", 0, most)?)?;
        let syn_backlog = number("max-syn-backlog", 0, most)?;
        kernel("max-syn-backlog", "net.ipv4.tcp_max_syn_backlog", syn_backlog)?;
        kernel("syncookies", "net.ipv4.tcp_syncookies", number("syncookies", 0, 2)?)?;
        let abort = reader.typed_flag("abort-on-overflow")?;
        let value = abort.map(|on| u8::from(on).to_string());
        kernel("abort-on-overflow", ABORT, value)?;
        let aborts = lab.server_sysctls.iter().any(|(name, value)| name == ABORT && value != "0");
        let accept_delay = reader.read("accept-delay", limited)?;
        let duration = reader.typed_read("duration", time_above_zero)?;
        let concurrency = reader.typed_count("concurrency", 1, 100_000)?;
        let asked = reader.rate("connections")?;
        if let (Some(typed), Some(_)) = (reader.typed("rate"), concurrency) {
            let why = "it has no effect together with --concurrency: leave one of them out";
            return Err(wrong("rate", &typed, why));
        }
        let arrivals = reader.read("arrivals", spread)?;
        if let (Some(typed), Some(_)) = (reader.typed("arrivals"), concurrency) {
            let why = "it needs --rate: with --concurrency a connection begins when another ends";
            return Err(wrong("arrivals", &typed, why));
        }
        let rate = match concurrency {
            Some(_) => None,
            None => Some(asked.unwrap_or_else(|| twice(accept_delay))),
        };
        let count = reader.typed_count("count", 1, COUNT_MAX)?.unwrap_or(match (duration, rate) {
            // What is due at the very end does not begin any more.
            (Some(long), Some(rate)) => {
                ((long.as_secs_f64() * rate).ceil() as u64).clamp(1, COUNT_MAX)
            }
            (Some(_), None) => COUNT_MAX,
            (None, _) => COUNT,
        });
        Ok(Self {
            count,
            duration,
            warmup: reader
                .warm_up("connections", COUNT_MAX)?
                .unwrap_or(WarmUp::Operations(WARM_UP)),
            concurrency,
            rate,
            arrivals,
            pause_every: reader.typed_count("pause-every", 1, COUNT_MAX)?,
            pause: reader.read("pause", limited)?,
            timeout: reader.read("timeout", |typed| time_above_zero(typed).and_then(in_limits))?,
            first_byte: reader.flag("first-byte")?,
            bind: reader.addresses("bind")?,
            backlog: reader.count("backlog", 0, most)? as i32,
            listeners: reader.count("listeners", 1, u64::from(LISTENERS_MAX))? as u8,
            accept_delay,
            aborts,
            lab,
        })
    }

    /// How connections follow each other.
    pub(super) fn flow(&self) -> Flow {
        Flow {
            rate: self.rate,
            at_once: self.concurrency.unwrap_or(1).min(self.count),
            pause_every: self.pause_every,
        }
    }

    /// Connections that begin per second while there is no pause, if all goes well.
    fn per_s(&self) -> f64 {
        let closed = || {
            let one_s = 2.0 * self.lab.link.rtt.as_secs_f64() + 80e-6;
            let by_client = self.flow().at_once as f64 / one_s;
            let by_server = 1.0 / self.accept_delay.as_secs_f64().max(30e-6);
            by_client.min(by_server)
        };
        self.rate.unwrap_or_else(closed)
    }

    /// Connections that will be opened, if all goes well.
    pub(super) fn expected_count(&self) -> u64 {
        let Some(long) = self.duration else { return self.count };
        let in_time = long.as_secs_f64() * self.per_s();
        self.count.min(in_time.ceil().max(1.0) as u64)
    }

    /// Local ports in use at a time: those of the last minute.
    pub(super) fn ports(&self) -> u64 {
        let warmup = match self.warmup {
            WarmUp::Operations(count) => count,
            WarmUp::Time(long) => (long.as_secs_f64() * self.per_s()) as u64,
        };
        self.expected_count().min((self.per_s() * PORT_S).ceil() as u64) + warmup
    }

    /// How long the arm will take, s: arrivals, the server's work for each, and a step of the ladder
    /// where the queue will overflow.
    pub(super) fn expected_s(&self) -> f64 {
        let count = self.expected_count();
        let pauses = self
            .pause_every
            .map_or(0.0, |every| ((count - 1) / every) as f64 * self.pause.as_secs_f64());
        let arriving_s = count as f64 / self.per_s();
        let delay_s = self.accept_delay.as_secs_f64();
        let burst = self.pause_every.unwrap_or(count).min(count) as f64;
        let taken = burst / self.per_s() / delay_s.max(1e-9);
        let limit_s = self.timeout.as_secs_f64();
        let overflows = burst - taken > f64::from(self.backlog) + 1.0;
        let step_s = if overflows { FIRST_STEP_S.min(limit_s) } else { 0.0 };
        let served_s = (count as f64 * delay_s).min(arriving_s + pauses + limit_s);
        let warm_s = match self.warmup {
            WarmUp::Operations(count) => count as f64 / self.per_s(),
            WarmUp::Time(long) => long.as_secs_f64(),
        };
        let rtt_s = self.lab.link.rtt.as_secs_f64();
        OVERHEAD_S + 5.0 * rtt_s + warm_s + (arriving_s + pauses).max(served_s) + step_s
    }
}

/// Resets instead of silence when the last ACK meets a full queue.
const ABORT: &str = "net.ipv4.tcp_abort_on_overflow";

/// Twice what the server can accept per second.
fn twice(accept_delay: Duration) -> f64 {
    let delay_s = accept_delay.as_secs_f64();
    if delay_s > 0.0 { (2.0 / delay_s).min(RATE_MAX) } else { RATE_MAX }
}

fn limited(typed: &str) -> Result<Duration, String> {
    in_limits(tcptoll_core::units::parse_time(typed).map_err(|error| error.to_string())?)
}

fn in_limits(time: Duration) -> Result<Duration, String> {
    if time <= TIME_MAX { Ok(time) } else { Err("write at most 1h".to_owned()) }
}

fn spread(typed: &str) -> Result<Spread, &'static str> {
    match typed {
        "even" => Ok(Spread::Constant),
        "poisson" => Ok(Spread::Poisson),
        _ => Err("write even or poisson"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(typed: &[(&str, &str)]) -> Study {
        let mut study = Study {
            question: "What?".to_owned(),
            experiment: "accept-queue".to_owned(),
            ..Study::default()
        };
        for (option, value) in typed {
            study.settings.insert((*option).to_owned(), Value::from(*value));
        }
        complete(&mut study);
        study
    }

    #[test]
    fn without_a_choice_a_short_backlog_is_compared_with_a_long_one() {
        let plain = study(&[]);
        assert_eq!(plain.values("backlog"), [Value::from(128), Value::from(1024)]);
        assert_eq!((plain.arms().unwrap().len(), plain.rounds.fixed), (2, Some(6)));
        let link = study(&[("link", "metro"), ("tap", "true")]);
        assert_eq!(link.arms().unwrap().len(), 2, "a link is no choice");
        assert_eq!(plain.values("timeout"), [Value::from("3s")]);
        assert_eq!(plain.failures.as_deref(), Some("expected"));
        assert_eq!(study(&[("timeout", "9s")]).values("timeout"), [Value::from("9s")]);
    }

    #[test]
    fn with_a_choice_nothing_is_added() {
        for option in CHOSEN {
            let one = study(&[(option, "1")]);
            assert_eq!((one.arms().unwrap().len(), one.rounds.fixed), (1, None), "{option}");
        }
        assert_eq!(study(&[]).rounds.max_time, None);
    }

    fn read(pairs: &[(&str, &str)]) -> Result<AcceptQueueSettings, String> {
        let settings =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Settings>();
        AcceptQueueSettings::from(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn without_options_connections_arrive_twice_as_fast_as_they_are_accepted() {
        let plain = read(&[]).unwrap();
        assert_eq!((plain.count, plain.backlog, plain.listeners), (500, 128, 1));
        assert_eq!(plain.rate, Some(2.0 / plain.accept_delay.as_secs_f64()));
        assert_eq!(read(&[("accept-delay", "0")]).unwrap().rate, Some(RATE_MAX));
        let closed = read(&[("concurrency", "7")]).unwrap();
        assert_eq!((closed.rate, closed.flow().at_once), (None, 7));
        assert_eq!(read(&[("rate", "50"), ("duration", "2s")]).unwrap().count, 100);
    }

    #[test]
    fn options_of_the_kernel_become_sysctls_of_the_server_host() {
        let set = read(&[
            ("somaxconn", "256"),
            ("max-syn-backlog", "2048"),
            ("syncookies", "0"),
            ("abort-on-overflow", "on"),
        ])
        .unwrap();
        let sysctls: Vec<(&str, &str)> =
            set.lab.server_sysctls.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let expected = [
            ("net.core.somaxconn", "256"),
            ("net.ipv4.tcp_max_syn_backlog", "2048"),
            ("net.ipv4.tcp_syncookies", "0"),
            ("net.ipv4.tcp_abort_on_overflow", "1"),
        ];
        assert_eq!(sysctls, expected);
        assert!(set.aborts && !read(&[]).unwrap().aborts);
        assert!(read(&[("server-sysctl", "net.ipv4.tcp_abort_on_overflow=1")]).unwrap().aborts);
    }

    #[test]
    fn a_setting_given_twice_or_without_effect_is_an_error_that_names_both() {
        let cases = [
            (
                ("somaxconn", "1"),
                ("server-sysctl", "net.core.somaxconn=2"),
                "leave one of them out",
            ),
            (("rate", "5"), ("concurrency", "3"), "--concurrency"),
            (("arrivals", "poisson"), ("concurrency", "3"), "--rate"),
        ];
        for (one, other, words) in cases {
            let error = read(&[one, other]).unwrap_err();
            assert!(error.starts_with(&format!("--{} {}: ", one.0, one.1)), "{error}");
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn an_impossible_value_names_what_is_possible() {
        for (key, value) in [
            ("listeners", "0"),
            ("listeners", "9"),
            ("syncookies", "3"),
            ("count", "0"),
            ("timeout", "0"),
            ("accept-delay", "2h"),
            ("arrivals", "often"),
            ("backlog", "-1"),
        ] {
            let error = read(&[(key, value)]).unwrap_err();
            assert!(error.starts_with(&format!("--{key} {value}: ")), "{error}");
        }
    }

    #[test]
    fn the_expected_time_has_a_step_of_the_ladder_where_the_queue_overflows() {
        let short = read(&[("backlog", "16")]).unwrap().expected_s();
        let long = read(&[("backlog", "1024")]).unwrap().expected_s();
        assert!((short - long - 1.0).abs() < 1e-9, "{short} {long}");
    }
}
