//! The options of `worker-pool`, and its settings: from what was typed to what it means, without doing anything.

use std::time::Duration;

use super::SPEC;
use crate::kit::TrialError;
use crate::kit::hosts::OVERHEAD_S;
use crate::kit::settings::{LabSpec, SettingsReader, number, time_above_zero, wrong};
use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL, is_chosen, run_once,
};
use tcptoll_core::http::server::{BackendKind, Connection, FrontKind, Retries};
use tcptoll_core::number;
use tcptoll_core::stats::arrivals::Spread;
use tcptoll_core::study::{Settings, Study};
use tcptoll_core::units::{parse_share, parse_time, text_time};

const STALL: &str = "Stall";
/// Heading of the front service.
const FRONT: &str = "Front";
/// Heading of the backend, and of how the front service calls it.
const BACKEND: &str = "Backend";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &Opt::together(
        PLACE,
        "client-sysctl",
        "NAME=VALUE",
        "Set a sysctl on the client host in every arm, e.g. net.ipv4.tcp_syn_retries=2; may be \
         repeated. To compare values, write a study with client-sysctl in its arms",
    )
    .only(&[Only::Lab]),
    &SERVER_SYSCTL,
    &Opt::each(LOAD, "rate", "PER_SECOND", "Requests per second, at scheduled times (open loop)")
        .number()
        .by_default("100"),
    &Opt::one(
        LOAD,
        "arrivals",
        "even,poisson",
        "Spacing of the requests: even, or random like independent clients (poisson)",
    )
    .by_default("even"),
    &Opt::each(LOAD, "backend-share", "SHARE", "Share of requests that need the backend")
        .by_default("50%"),
    &Opt::one(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .by_default("5s"),
    &Opt::one(LOAD, "warmup", "TIME", "Time before the measured window").by_default("500ms"),
    &Opt::one(LOAD, "timeout", "TIME", "Timeout of a request, from its scheduled time")
        .by_default("10s"),
    &Opt::each(
        STALL,
        "stall",
        "TIME",
        "Time for which the backend neither accepts nor answers. 0 means no stall",
    )
    .by_default("2s"),
    &Opt::one(STALL, "stall-after", "TIME", "Time from the start of the window to the stall")
        .by_default("1s"),
    &Opt::each(
        FRONT,
        "front",
        "workers,php-fpm",
        "Front service: workers (tcptoll's own blocking workers) or php-fpm (PHP-FPM behind nginx)",
    )
    .by_default("workers"),
    &Opt::each(FRONT, "workers", "N", "Number of blocking workers of the front service")
        .number()
        .by_default("20"),
    &Opt::each(FRONT, "work", "TIME", "CPU time that a worker spends on each request")
        .by_default("0"),
    &Opt::each(
        FRONT,
        "cache",
        "TIME|off",
        "Time for which the front service answers from a local cache instead of the backend. One \
         worker at a time refreshes the cache",
    )
    .by_default("off"),
    &Opt::each(BACKEND, "backend", "redis,mariadb", "Backend that the workers call")
        .by_default("redis"),
    &Opt::each(BACKEND, "backend-backlog", "N", "Backlog that the backend passes to listen(2)")
        .number()
        .by_default("4"),
    &Opt::each(
        BACKEND,
        "abort-on-overflow",
        "on,off",
        "net.ipv4.tcp_abort_on_overflow of the backend's host. If on, a final ACK that meets a \
         full accept queue is answered with a reset",
    )
    .by_default("off"),
    &Opt::each(
        BACKEND,
        "connection",
        "per-request,pooled",
        "Connections to the backend: one per request, or one that each worker keeps open (pooled)",
    )
    .by_default("per-request"),
    &Opt::each(BACKEND, "connect-timeout", "TIME|none", "Timeout of connecting to the backend")
        .by_default("none"),
    &Opt::each(
        BACKEND,
        "answer-timeout",
        "TIME",
        "Timeout of the backend's answer on an established connection",
    )
    .derived("same as --timeout"),
    &Opt::each(BACKEND, "retries", "N", "Number of retries after a failed call of the backend")
        .number()
        .by_default("0"),
    &Opt::each(
        BACKEND,
        "backoff",
        "TIME",
        "Pause before the first retry, e.g. 200ms. It doubles before each further retry",
    )
    .by_default("0")
    .only(&[Only::With("retries", "N")]),
    &Opt::each(BACKEND, "jitter", "on,off", "Randomise each pause between 0 and its full length")
        .by_default("on")
        .only(&[Only::With("backoff", "TIME")]),
];

/// Options that choose the arms: with any of them typed, nothing is swept.
const CHOSEN: [&str; 14] = [
    "abort-on-overflow",
    "answer-timeout",
    "backend",
    "backend-backlog",
    "backoff",
    "cache",
    "connect-timeout",
    "connection",
    "front",
    "jitter",
    "retries",
    "stall",
    "work",
    "workers",
];

/// The arms of a run without a choice, each with what it changes.
const SWEEP: [(&str, &[(&str, &str)]); 4] = [
    ("healthy", &[("stall", "0")]),
    ("stalled", &[]),
    ("connect time-out", &[("connect-timeout", "100ms")]),
    ("retries immediately", &[("connect-timeout", "100ms"), ("retries", "3")]),
];

/// Without a choice, one round over four arms that show the avalanche, a remedy and a false remedy.
pub(super) fn complete(study: &mut Study) {
    // Requests that fail are part of the question.
    study.failures.get_or_insert_with(|| "expected".to_owned());
    if !is_chosen(study, &CHOSEN) && study.factors.is_empty() {
        run_once(study, &SWEEP);
    }
}

/// The longest window, warm-up and request.
const TIME_MAX: Duration = Duration::from_mins(10);

/// The most workers: PHP-FPM has a process for each.
const WORKERS_MAX: u64 = 1_000;

/// The most connections that the load and the front service hold at a time. Each is two open files on
/// the client host.
const CONNECTIONS_MAX: u64 = 8_192;

/// The most further attempts.
const RETRIES_MAX: u64 = 100;

/// The share of requests is exact in these steps.
const SHARE_STEPS: u64 = 1_000;

/// The sysctl of `--abort-on-overflow`.
const ABORT: &str = "net.ipv4.tcp_abort_on_overflow";

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct PoolSettings {
    pub lab: LabSpec,
    /// What is asked of the front service.
    pub load: LoadSettings,
    /// When the backend stalls, if it does.
    pub stall: Option<StallSettings>,
    pub front: FrontSettings,
    /// The backend, and how the front service calls it.
    pub backend: BackendSettings,
}

/// Requests to the front service.
#[derive(Clone, Debug)]
pub(super) struct LoadSettings {
    pub rate_per_s: f64,
    /// How they are spread over time.
    pub spread: Spread,
    /// Requests that need the backend, of the second number: the smallest numbers with this ratio.
    pub share: (u64, u64),
    pub duration: Duration,
    /// Time before it.
    pub warmup: Duration,
    /// Of one request, from when it was due.
    pub timeout: Duration,
    /// Connections that suffice for every request that can wait at a time.
    pub connections: u64,
}

/// When the backend stalls.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallSettings {
    /// Time in the window before it.
    pub after: Duration,
    pub long: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FrontSettings {
    pub kind: FrontKind,
    pub workers: u64,
    /// CPU time of each request.
    pub work: Duration,
    /// How long an answer of the backend is served from a cache, if it is.
    pub cache: Option<Duration>,
}

/// The backend, and how the front service calls it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackendSettings {
    pub kind: BackendKind,
    /// The argument of its listen(2).
    pub backlog: u64,
    pub connection: Connection,
    /// Limit of one connect(2), if there is one.
    pub connect_timeout: Option<Duration>,
    /// Limit of one answer.
    pub answer_timeout: Duration,
    /// When a failed call is repeated.
    pub retries: Retries,
}

impl PoolSettings {
    /// Checks the settings of one arm.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let mut lab = LabSpec::from(&reader)?;
        if reader.flag("abort-on-overflow")? {
            if lab.server_sysctls.iter().any(|(name, _)| name == ABORT) {
                let why = format!("--server-sysctl sets {ABORT} too: leave one of them out");
                return Err(wrong("abort-on-overflow", "on", why));
            }
            lab.server_sysctls.push((ABORT.to_owned(), "1".to_owned()));
        }
        let load = load(&reader)?;
        let stall = stall(&reader, &load)?;
        let (front, backend) = (front(&reader)?, backend(&reader, &load)?);
        if front.kind == FrontKind::Workers && backend.kind != BackendKind::Redis {
            let why = "--front workers supports only redis: add --front php-fpm";
            return Err(wrong("backend", backend.kind.name(), why));
        }
        Ok(Self { lab, load, stall, front, backend })
    }

    /// Connections of the front service to the backend in a trial, at most.
    pub(super) fn backend_connections(&self) -> u64 {
        match self.backend.connection {
            Connection::Pooled => self.front.workers,
            Connection::PerRequest => {
                let time_s = (self.load.warmup + self.load.duration).as_secs_f64();
                let calls = self.load.backend_per_s() * time_s;
                (calls * (self.backend.retries.count + 1) as f64).ceil() as u64
            }
        }
    }

    /// How long the arm will take, s, if all goes well.
    pub(super) fn expected_s(&self) -> f64 {
        // Measured: Redis and our own front service are ready within 0.1 s, PHP-FPM with nginx within
        // 0.5 s, MariaDB within 3 s.
        let front_s = if self.front.kind == FrontKind::PhpFpm { 0.5 } else { 0.1 };
        let backend_s = if self.backend.kind == BackendKind::Mariadb { 3.0 } else { 0.1 };
        let load = &self.load;
        OVERHEAD_S + front_s + backend_s + (load.warmup + load.duration).as_secs_f64()
    }
}

impl LoadSettings {
    /// Requests due per second that need the backend.
    pub(super) fn backend_per_s(&self) -> f64 {
        let (some, all) = self.share;
        self.rate_per_s * some as f64 / all as f64
    }

    /// Which requests of a cycle need the backend: evenly interleaved, and exactly the share.
    pub(super) fn cycle(&self) -> Vec<bool> {
        let (some, all) = self.share;
        (0..all).map(|at| (at + 1) * some / all > at * some / all).collect()
    }
}

fn load(reader: &SettingsReader<'_>) -> Result<LoadSettings, TrialError> {
    let typed = reader.value("rate")?;
    let rate_per_s = number(&typed).filter(|rate| *rate > 0.0 && *rate <= 1e5);
    let why = "write requests per second, above 0 and at most 100000";
    let rate_per_s = rate_per_s.ok_or_else(|| wrong("rate", &typed, why))?;
    let spread = match reader.value("arrivals")?.as_str() {
        "even" => Spread::Constant,
        "poisson" => Spread::Poisson,
        other => return Err(wrong("arrivals", other, "write even or poisson")),
    };
    let duration = reader.read("duration", |typed| limited(time_above_zero(typed)?))?;
    let warmup = reader.read("warmup", time)?;
    let timeout = reader.read("timeout", |typed| limited(time_above_zero(typed)?))?;
    let connections = connections(rate_per_s, spread, timeout.min(warmup + duration));
    if connections > CONNECTIONS_MAX {
        let why = format!(
            "requests that wait for up to {} (--timeout) need {} connections, more than the limit of \
             {}: lower --rate or --timeout",
            text_time(timeout),
            number::count(connections),
            number::count(CONNECTIONS_MAX)
        );
        return Err(wrong("rate", &typed, why));
    }
    Ok(LoadSettings {
        rate_per_s,
        spread,
        share: reader.read("backend-share", share)?,
        duration,
        warmup,
        timeout,
        connections,
    })
}

/// Connections that suffice if no request is answered before its time limit. Random arrivals come in
/// bursts: of a mean of n, the probability of more than n + 6 √n is below 1e-8.
fn connections(rate_per_s: f64, spread: Spread, wait: Duration) -> u64 {
    let mean = rate_per_s * wait.as_secs_f64();
    let burst = if spread == Spread::Poisson { 6.0 * mean.sqrt() } else { 0.0 };
    (mean + burst).ceil() as u64 + 16
}

fn stall(
    reader: &SettingsReader<'_>,
    load: &LoadSettings,
) -> Result<Option<StallSettings>, TrialError> {
    let long = reader.read("stall", time)?;
    let after = reader.read("stall-after", time)?;
    if long.is_zero() {
        return Ok(None);
    }
    if after + long >= load.duration {
        let why = format!(
            "a stall that begins {} into the window (--stall-after) must end within --duration {}: \
             shorten the stall, or raise --duration",
            text_time(after),
            text_time(load.duration)
        );
        return Err(wrong("stall", &reader.value("stall")?, why));
    }
    Ok(Some(StallSettings { after, long }))
}

fn front(reader: &SettingsReader<'_>) -> Result<FrontSettings, TrialError> {
    let named = |typed: &str| FrontKind::named(typed).ok_or("write workers or php-fpm");
    Ok(FrontSettings {
        kind: reader.read("front", named)?,
        workers: reader.count("workers", 1, WORKERS_MAX)?,
        work: reader.read("work", time)?,
        cache: reader.read("cache", |typed| match typed {
            "off" | "none" => Ok(None),
            typed => time_above_zero(typed).and_then(limited).map(Some),
        })?,
    })
}

fn backend(
    reader: &SettingsReader<'_>,
    load: &LoadSettings,
) -> Result<BackendSettings, TrialError> {
    let kind = |typed: &str| BackendKind::named(typed).ok_or("write redis or mariadb");
    let connection = |typed: &str| Connection::named(typed).ok_or("write per-request or pooled");
    let retries = Retries {
        count: reader.count("retries", 0, RETRIES_MAX)?,
        backoff_ns: reader.read("backoff", time)?.as_nanos() as u64,
        jitter: reader.flag("jitter")?,
    };
    let answer_timeout =
        reader.typed_read("answer-timeout", |typed| limited(time_above_zero(typed)?))?;
    Ok(BackendSettings {
        kind: reader.read("backend", kind)?,
        backlog: reader.count("backend-backlog", 1, 65_535)?,
        connection: reader.read("connection", connection)?,
        connect_timeout: reader.read("connect-timeout", time_limit)?,
        answer_timeout: answer_timeout.unwrap_or(load.timeout),
        retries,
    })
}

/// Requests that need the backend, as the smallest numbers with the ratio of a share.
fn share(typed: &str) -> Result<(u64, u64), String> {
    let share = parse_share(typed).map_err(|error| error.to_string())?;
    let steps = share * SHARE_STEPS as f64;
    let some = steps.round() as u64;
    if (steps - steps.round()).abs() > 1e-6 || some == 0 || some >= SHARE_STEPS {
        return Err("write a share from 0.1% to 99.9% in steps of 0.1%, like 50%".to_owned());
    }
    let divisor = greatest_divisor(some, SHARE_STEPS);
    Ok((some / divisor, SHARE_STEPS / divisor))
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

fn time(typed: &str) -> Result<Duration, String> {
    limited(parse_time(typed).map_err(|error| error.to_string())?)
}

/// `none`, or a time above 0.
fn time_limit(typed: &str) -> Result<Option<Duration>, String> {
    if typed == "none" { Ok(None) } else { limited(time_above_zero(typed)?).map(Some) }
}

fn limited(time: Duration) -> Result<Duration, String> {
    if time > TIME_MAX { Err("write a time of at most 10m".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn study(settings: &[(&str, &str)]) -> Study {
        let mut study = Study {
            question: "What?".to_owned(),
            experiment: super::super::SPEC.name.to_owned(),
            ..Study::default()
        };
        for (option, value) in settings {
            study.settings.insert((*option).to_owned(), Value::from(*value));
        }
        complete(&mut study);
        study
    }

    #[test]
    fn without_a_choice_four_arms_run_once() {
        let plain = study(&[("rate", "50")]);
        let arms = plain.arms().unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["healthy", "stalled", "connect time-out", "retries immediately"]);
        assert_eq!(plain.rounds.fixed, Some(1));
        assert!(!(super::super::SPEC.compares)(&plain), "one round gives no interval");
        assert_eq!(arms[0].settings["stall"], "0");
        assert_eq!(arms[0].settings["rate"], "50");
    }

    #[test]
    fn a_typed_option_of_the_front_service_or_the_backend_leaves_one_arm() {
        for option in CHOSEN {
            let one = study(&[(option, "1")]);
            assert_eq!((one.arms().unwrap().len(), one.rounds.fixed), (1, None), "{option}");
        }
    }

    #[test]
    fn every_option_that_chooses_or_is_swept_is_an_option() {
        let known = |name: &str| OPTIONS.iter().any(|option| option.name == name);
        assert!(CHOSEN.iter().all(|name| known(name)));
        for (_, settings) in SWEEP {
            assert!(settings.iter().all(|(name, _)| CHOSEN.contains(name)));
        }
    }

    fn read(typed: &[(&str, &str)]) -> Result<PoolSettings, TrialError> {
        let one = |(name, value): &(&str, &str)| ((*name).to_owned(), Value::from(*value));
        PoolSettings::from(&typed.iter().map(one).collect())
    }

    #[test]
    fn nothing_typed_is_half_of_100_requests_a_second_on_20_workers_with_a_stall() {
        let settings = read(&[]).unwrap();
        assert!((settings.load.backend_per_s() - 50.0).abs() < 1e-9);
        assert_eq!((settings.front.workers, settings.front.cache), (20, None));
        assert_eq!(settings.backend.connect_timeout, None);
        let stall = settings.stall.unwrap();
        assert!(stall.after + stall.long < settings.load.duration);
        // All that is due in 5.5 s may wait, and it may not wait in the client.
        assert!(settings.load.connections >= 550);
        assert!(settings.lab.server_sysctls.is_empty());
    }

    #[test]
    fn requests_of_both_kinds_are_interleaved_evenly_and_exactly() {
        let cycle = |share| read(&[("backend-share", share)]).unwrap().load.cycle();
        assert_eq!(cycle("50%"), [false, true]);
        assert_eq!(cycle("25%"), [false, false, false, true]);
        let odd = cycle("37.3%");
        assert_eq!((odd.len(), odd.iter().filter(|needs| **needs).count()), (1_000, 373));
        // No two neighbours of ten differ by more than one.
        let tens: Vec<usize> =
            odd.chunks(10).map(|ten| ten.iter().filter(|needs| **needs).count()).collect();
        assert!(tens.iter().all(|count| (3..=4).contains(count)), "{tens:?}");
    }

    #[test]
    fn a_value_that_cannot_be_is_refused_with_its_option_and_the_reason() {
        for (option, value, why) in [
            ("backend-share", "100%", "steps of 0.1%"),
            ("backend-share", "0.05%", "steps of 0.1%"),
            ("stall", "4s", "must end within --duration 5s"),
            ("rate", "5000", "connections"),
            ("rate", "0", "above 0"),
            ("workers", "0", "from 1"),
            ("front", "apache", "workers or php-fpm"),
            ("backend", "mariadb", "--front php-fpm"),
            ("connect-timeout", "0", "above 0"),
            ("duration", "11m", "10m"),
        ] {
            let error = read(&[(option, value)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--{option} {value}: ")), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn resets_on_overflow_are_a_sysctl_of_the_backend_and_said_once() {
        let settings = read(&[("abort-on-overflow", "on")]).unwrap();
        assert_eq!(settings.lab.server_sysctls, [(ABORT.to_owned(), "1".to_owned())]);
        let sysctl = format!("{ABORT}=0");
        let error = read(&[("abort-on-overflow", "on"), ("server-sysctl", &sysctl)]).unwrap_err();
        assert!(error.to_string().contains("leave one of them out"), "{error}");
    }

    #[test]
    fn connections_to_the_backend_are_one_for_each_attempt_or_one_for_each_worker() {
        let retried = read(&[("connect-timeout", "100ms"), ("retries", "3")]).unwrap();
        assert_eq!(retried.backend_connections(), 50 * 11 / 2 * 4);
        assert_eq!(read(&[("connection", "pooled")]).unwrap().backend_connections(), 20);
    }
}
