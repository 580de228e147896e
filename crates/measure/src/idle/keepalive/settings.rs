//! The settings of `keepalive`: from what was typed to what it means, without doing anything.
//!
//! The window lasts one round of checks, unless that takes more than a minute; packets per hour are computed
//! where it does not. In 2 s of an idle time of 22 s, which the kernel's timer wheel makes up to an eighth
//! longer, 43 packets per hour were counted where 318 are sent.

use std::net::IpAddr;
use std::time::Duration;

use super::SPEC;
use crate::kit::TrialError;
use crate::kit::settings::{LabSpec, SettingsReader, number, unescape, wrong};
use crate::kit::target::Target;
use tcptoll_core::number;
use tcptoll_core::study::Settings;
use tcptoll_core::tcp::checking;
use tcptoll_core::tcp::checking::{Checking, Evidence, Mechanism, Path, WHEEL_SHARE};
use tcptoll_core::units::{parse_share, parse_size};
use tcptoll_lab::messages::Lazy;

/// The most connections of one trial.
const SOCKETS_MAX: u64 = 500_000;

/// `select(2)` knows descriptors below 1024 only; some are needed for other things.
const SELECT_MAX: u64 = 1_000;

/// What goes before the measured window where nothing is asked for, at least: time for the first
/// checks to spread out.
pub(super) const WARM_UP: Duration = Duration::from_millis(100);

/// The measured window where nothing is asked for, at least.
pub(super) const WINDOW: Duration = Duration::from_secs(2);

/// Both take the time between two checks where nothing is asked for, unless that is longer than this:
/// then no check is due in them.
const PERIOD_MAX: Duration = Duration::from_mins(1);

/// As many connections as died arrive within this, where nothing else is asked.
const ARRIVE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The one that accepted.
    Server,
    /// The one that connected.
    Client,
    Both,
}

impl Side {
    /// The name `--side` takes.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Both => "both",
        }
    }
}

/// What happens to idle connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// The link loses all their packets.
    Cut,
    /// The peer's process is stopped; its kernel goes on.
    Freeze,
    /// The peer resets them.
    Reset,
    /// The peer closes them in order.
    Close,
    /// The link loses this share of their packets; nobody dies.
    Loss(f64),
}

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct KeepaliveSettings {
    pub lab: LabSpec,
    /// A server we do not control.
    pub to: Option<Target>,
    /// Connections, the one that writes among them.
    pub sockets: u64,
    /// Whether one of them writes.
    pub writer: bool,
    /// Bytes of a message that is written.
    pub message_bytes: u64,
    /// Messages per second; absent: without pause.
    pub rate: Option<f64>,
    /// The program that writes holds the idle connections too, and asks `select(2)` about all of
    /// them before each message.
    pub selects: bool,
    /// How the others are checked.
    pub checking: Checking,
    /// Null message of a protocol that has one; empty: that of the library's framing.
    pub null: Vec<u8>,
    pub lazy: Lazy,
    /// What happens within this is handled in one wake-up.
    pub tick: Duration,
    /// Lazy reaping on both sides: the client's heartbeat.
    pub client_idle: Duration,
    pub side: Side,
    /// Before the measured window.
    pub warmup: Duration,
    pub duration: Duration,
    /// What happens after it, as typed and as meant.
    pub fault: Option<(String, Fault)>,
    /// Share of the idle connections it happens to.
    pub fault_share: f64,
    /// Connections that arrive per second after it.
    pub arrivals: Option<f64>,
    /// Nobody said how many arrive: as many as died.
    pub replaces: bool,
    /// How long is watched after it, if the user said.
    pub watch: Option<Duration>,
    /// A wanted detection time, which chose the settings of checking.
    pub detect_within: Option<Duration>,
    /// The path that those settings have to stand.
    pub assumed: Path,
    pub bind: Vec<IpAddr>,
    pub congestion: Option<String>,
}

impl KeepaliveSettings {
    /// Checks the settings of one arm.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let to = reader.typed("to").map(|to| Target::of_to(&to)).transpose()?;
        let lab = LabSpec::from(&reader)?;
        let link = &lab.link;
        let detect_within = reader.typed_time("detect-within")?;
        let assumed = assumed(&reader, link.rtt)?;
        let checking = match detect_within {
            Some(within) => cheapest(&reader, within, assumed)?,
            None => checking(&reader)?,
        };
        let side = match reader.value("side")?.as_str() {
            _ if to.is_some() => Side::Client,
            "server" => Side::Server,
            "client" => Side::Client,
            "both" => Side::Both,
            other => return Err(wrong("side", other, "write server, client or both")),
        };
        let lazy = checking.mechanism == Mechanism::Lazy;
        if lazy && side == Side::Client {
            return Err(TrialError::Setting(
                "--side client: lazy reaping is done where connections arrive; use --side server, or both (the client then has a heartbeat)".to_owned(),
            ));
        }
        let sockets = reader.count("sockets", 1, SOCKETS_MAX)?;
        let writer = reader.typed_flag("writer")?.unwrap_or(to.is_none());
        if !writer {
            for key in ["message", "rate"] {
                if settings.contains_key(key) {
                    let why = format!("--{key} has no effect with --writer off");
                    return Err(TrialError::Setting(why));
                }
            }
        }
        let fault = fault(&reader)?;
        let fault_share = match (reader.typed_read("fault-share", parse_share)?, &fault) {
            (_, None) => 0.0,
            (Some(share), Some(_)) => share,
            (None, Some((_, Fault::Loss(_)))) => 1.0,
            (None, Some(_)) => 0.1,
        };
        if fault.is_some() && side == Side::Both {
            return Err(TrialError::Setting(
                "--side both has no meaning with --fault: one side checks the faulted connections; write server or client"
                    .to_owned(),
            ));
        }
        let watch = reader.typed_time("watch")?;
        if checking.tries(link.rtt.as_secs_f64()) == Some(0) && to.is_none() {
            return Err(TrialError::Setting(format!(
                "every test would time out: the round trip of the link takes {}; raise --answer-within or --interval",
                number::time(link.rtt.as_secs_f64() * 1e6)
            )));
        }
        if let Some((typed, Fault::Cut | Fault::Loss(_))) = &fault
            && !link.is_emulated()
        {
            return Err(TrialError::Setting(match &lab.remote {
                None => {
                    format!(
                        "--fault {typed} needs an emulated link: add a delay, like --link rtt=0.25ms"
                    )
                }
                Some(_) => format!(
                    "--fault {typed} needs the lab: between machines of yours no packets are dropped; write freeze, reset or close"
                ),
            }));
        }
        let selects = match reader.value("wait")?.as_str() {
            "own" => false,
            "select" => true,
            other => return Err(wrong("wait", other, "write own or select")),
        };
        if selects && (!writer || sockets > SELECT_MAX || side != Side::Server || fault.is_some()) {
            return Err(TrialError::Setting(format!(
                "--wait select needs --writer on, at most {SELECT_MAX} --sockets, --side server and no --fault"
            )));
        }
        let period = period(&reader, &checking)?;
        let mut this = Self {
            selects,
            message_bytes: message(&reader)?,
            rate: reader.rate("messages")?,
            tick: reader.time("tick")?,
            client_idle: client_idle(&reader)?,
            null: null(&reader),
            lazy: lazy_of(&reader)?,
            warmup: reader.typed_time("warmup")?.unwrap_or(WARM_UP.max(period)),
            duration: reader.typed_time("duration")?.unwrap_or(WINDOW.max(period)),
            arrivals: reader.typed_read("arrivals", |typed| {
                let rate = number(typed).filter(|rate| *rate > 0.0 && *rate <= 1e5);
                rate.ok_or("write connections per second, above 0 and at most 100000")
            })?,
            watch,
            bind: reader.addresses("bind")?,
            congestion: reader.typed("congestion"),
            lab,
            to,
            sockets,
            writer,
            checking,
            side,
            fault,
            fault_share,
            detect_within,
            assumed,
            replaces: false,
        };
        // Lazy reaping learns of the dead when others want their places.
        if this.arrivals.is_none() && this.fault.is_some() && lazy {
            this.arrivals = Some(this.faulted() as f64 / ARRIVE.as_secs_f64());
            this.replaces = true;
        }
        if this.duration.is_zero() {
            return Err(TrialError::Setting(
                "--duration 0: nothing would be measured; write a time above 0, like 2s".to_owned(),
            ));
        }
        if this.fault.is_some() && this.faulted() == 0 {
            return Err(TrialError::Setting(format!(
                "--fault: {} % of {} idle connections is less than one; raise --sockets or --fault-share",
                this.fault_share * 100.0,
                this.idle_sockets()
            )));
        }
        Ok(this)
    }

    /// Connections that idle.
    pub(super) fn idle_sockets(&self) -> u64 {
        self.sockets - u64::from(self.writer)
    }

    /// Idle connections that the fault happens to.
    pub(super) fn faulted(&self) -> u64 {
        (self.idle_sockets() as f64 * self.fault_share).round() as u64
    }

    /// Connections that arrive in all.
    pub(super) fn arriving(&self) -> u64 {
        let Some(rate) = self.arrivals else { return 0 };
        if self.replaces {
            return self.faulted();
        }
        let time = if self.fault.is_some() { self.watched() } else { self.duration };
        ((rate * time.as_secs_f64()).ceil() as u64).clamp(1, SOCKETS_MAX)
    }

    /// How long is watched after the fault.
    pub(super) fn watched(&self) -> Duration {
        self.watched_by(&self.checking)
    }

    /// How long is watched after the fault with these settings of checking, which may hold what the
    /// kernel's sysctls say: until all have to be known, unless that takes very long.
    pub(super) fn watched_by(&self, checking: &Checking) -> Duration {
        const UNBOUNDED: Duration = Duration::from_secs(5);
        const LONGEST: Duration = Duration::from_mins(2);
        let room = || {
            let rounds = self.faulted().div_ceil(self.lazy.at_once.max(1)) as f64;
            Some(ARRIVE.as_secs_f64() + rounds * checking.answer_within_s?)
        };
        let known = match checking.mechanism {
            Mechanism::Lazy => room(),
            _ => checking.known_within_s(),
        };
        let known = known.map(|s| s + 1.0);
        let bounded = known.and_then(|s| Duration::try_from_secs_f64(s).ok());
        if self.fault.is_none() {
            return Duration::ZERO;
        }
        // Who wants to know within a time has the proof, however long that takes.
        let proves = |time: &Duration| *time <= LONGEST || self.detect_within.is_some();
        self.watch.or(bounded.filter(proves)).unwrap_or(UNBOUNDED)
    }

    /// How long the arm will take, s, if all goes well: opening goes at 8,000 connections a second
    /// (measured on Linux 6.18 with 2 CPUs), or 64 at once.
    pub(super) fn expected_s(&self) -> f64 {
        let rate = (64.0 / self.lab.link.rtt.as_secs_f64().max(1e-6)).min(8_000.0);
        let watched = match &self.fault {
            // What is known by all is not watched longer.
            Some((_, Fault::Reset | Fault::Close)) => 0.1,
            _ => self.watched().as_secs_f64(),
        };
        0.3 + self.sockets as f64 / rate + (self.warmup + self.duration).as_secs_f64() + watched
    }
}

/// Bytes of a message that is written.
fn message(reader: &SettingsReader<'_>) -> Result<u64, TrialError> {
    const MOST: u64 = 1 << 20;
    let bytes = reader.read("message", parse_size)?;
    if !(1..=MOST).contains(&bytes) {
        let typed = reader.value("message")?;
        return Err(wrong("message", &typed, "write a size from 1 to 1M bytes"));
    }
    Ok(bytes)
}

fn lazy_of(reader: &SettingsReader<'_>) -> Result<Lazy, TrialError> {
    let one_of = |key: &str, names: [&str; 2]| match reader.value(key)? {
        typed if typed == names[0] => Ok(false),
        typed if typed == names[1] => Ok(true),
        typed => Err(wrong(key, &typed, format!("write {} or {}", names[0], names[1]))),
    };
    Ok(Lazy {
        most: reader.typed_count("most", 1, SOCKETS_MAX)?.unwrap_or(0),
        unused_for_ns: reader.typed_time("unused-for")?.map(|time| time.as_nanos() as u64),
        at_once: reader.count("at-once", 1, 10_000)?,
        whole_set: one_of("until", ["below", "all-tested"])?,
        by_age: one_of("order", ["last-use", "age"])?,
    })
}

fn fault(reader: &SettingsReader<'_>) -> Result<Option<(String, Fault)>, TrialError> {
    let Some(typed) = reader.typed("fault") else { return Ok(None) };
    let fault = match typed.as_str() {
        "none" => return Ok(None),
        "cut" => Fault::Cut,
        "freeze" => Fault::Freeze,
        "reset" => Fault::Reset,
        "close" => Fault::Close,
        other => {
            let why = "write cut, freeze, reset, close or loss=5%";
            let share = other.strip_prefix("loss=").ok_or_else(|| wrong("fault", &typed, why))?;
            Fault::Loss(parse_share(share).map_err(|error| wrong("fault", &typed, error))?)
        }
    };
    Ok(Some((typed, fault)))
}

/// Idle time of the client's heartbeat; the default where that of the other end is left to its
/// kernel.
fn client_idle(reader: &SettingsReader<'_>) -> Result<Duration, TrialError> {
    match reader.value("idle")?.as_str() {
        "kernel" => SettingsReader::new(&SPEC, &Settings::new())?.time("idle"),
        _ => reader.time("idle"),
    }
}

/// From one check to the next, at most; zero where that is not waited for.
fn period(reader: &SettingsReader<'_>, checking: &Checking) -> Result<Duration, TrialError> {
    let period = match checking.mechanism {
        // As long as those it stands beside.
        Mechanism::None if reader.typed("idle").is_some_and(|idle| idle != "kernel") => {
            reader.typed_time("idle")?
        }
        _ => checking.period_s().and_then(|s| Duration::try_from_secs_f64(s).ok()),
    };
    let period = period.unwrap_or_default();
    // The kernel's timers may be late.
    Ok(if period <= PERIOD_MAX { period.mul_f64(1.0 + WHEEL_SHARE) } else { Duration::ZERO })
}

const TICK_MAX: Duration = Duration::from_secs(1);

/// Bytes of a Null message of the library's framing.
const NULL_BYTES: u32 = 4;

/// The Null message of a protocol that has one; empty: that of the library's framing.
fn null(reader: &SettingsReader<'_>) -> Vec<u8> {
    unescape(&reader.typed("null").unwrap_or_default())
}

fn mechanism(reader: &SettingsReader<'_>) -> Result<Mechanism, TrialError> {
    let typed = reader.typed("mechanism").unwrap_or_else(|| "none".to_owned());
    let names = Mechanism::ALL.map(Mechanism::name);
    let known = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == typed);
    known.ok_or_else(|| wrong("mechanism", &typed, format!("write one of {}", names.join(", "))))
}

/// How idle connections are checked, as asked for.
fn checking(reader: &SettingsReader<'_>) -> Result<Checking, TrialError> {
    let mechanism = mechanism(reader)?;
    let seconds = |key: &str| reader.time(key).map(|time| Some(time.as_secs_f64()));
    let evidence = match reader.value("evidence")?.as_str() {
        "acknowledged" => Evidence::Acknowledged,
        "answered" => Evidence::Answered,
        other => return Err(wrong("evidence", other, "write acknowledged or answered")),
    };
    let mut checking = Checking {
        mechanism,
        user_timeout_s: reader.typed_time("user-timeout")?.map(|time| time.as_secs_f64()),
        ..Checking::default()
    };
    let judged = matches!(mechanism, Mechanism::Heartbeat | Mechanism::Lazy);
    if judged {
        checking.answer_within_s = seconds("answer-within")?;
        checking.evidence = Some(evidence);
    }
    if judged || mechanism == Mechanism::Write {
        let null = null(reader);
        let framed = null.is_empty();
        checking.null_bytes = Some(if framed { NULL_BYTES } else { null.len() as u32 });
        checking.tick_s = seconds("tick")?;
    }
    match mechanism {
        Mechanism::None | Mechanism::Lazy => {}
        // What is left to the kernel is read from the host's sysctls before the trial.
        Mechanism::Tcp => {
            checking.idle_s = kernel_time(reader, "idle")?;
            checking.interval_s = kernel_time(reader, "interval")?;
            checking.probes = match reader.value("probes")?.as_str() {
                "kernel" => None,
                _ => Some(reader.count("probes", 1, 127)? as u32),
            };
        }
        Mechanism::Heartbeat => checking.idle_s = seconds("idle")?,
        Mechanism::Write => checking.interval_s = seconds("interval")?,
    }
    if judged
        && let Some((limit, within)) = checking.user_timeout_s.zip(checking.answer_within_s)
        && limit < within
    {
        return Err(TrialError::Setting(
            "--user-timeout must not be shorter than --answer-within: the kernel would give up first".to_owned(),
        ));
    }
    if checking.tick_s.is_some_and(|tick| tick > TICK_MAX.as_secs_f64()) {
        let typed = reader.value("tick")?;
        return Err(wrong(
            "tick",
            &typed,
            "write at most 1s: tests that are due wait for the next tick",
        ));
    }
    if [checking.idle_s, checking.interval_s, checking.answer_within_s]
        .into_iter()
        .flatten()
        .any(|time| time <= 0.0)
    {
        return Err(TrialError::Setting(
            "--idle, --interval and --answer-within must be above 0".to_owned(),
        ));
    }
    Ok(checking)
}

/// A time of the kernel's probes: whole seconds, or `kernel` for what the host's sysctl says.
fn kernel_time(reader: &SettingsReader<'_>, key: &str) -> Result<Option<f64>, TrialError> {
    let typed = reader.value(key)?;
    if typed == "kernel" {
        return Ok(None);
    }
    let time = reader.time(key)?;
    let why = "the kernel takes whole seconds from 1s to 32767s; write `kernel` to use its sysctl";
    let refused = || wrong(key, &typed, why);
    checking::probe_seconds(time).ok_or_else(refused).map(Some)
}

/// The cheapest way of this mechanism to know in time.
fn cheapest(
    reader: &SettingsReader<'_>,
    within: Duration,
    path: Path,
) -> Result<Checking, TrialError> {
    const CHOSEN: [&str; 7] =
        ["idle", "interval", "probes", "answer-within", "evidence", "tick", "user-timeout"];
    for key in CHOSEN {
        if reader.typed(key).is_some() {
            return Err(TrialError::Setting(format!(
                "--{key} has no effect with --detect-within, which sets it: leave one of them out"
            )));
        }
    }
    let mechanism = mechanism(reader)?;
    // They know of no time: as they are.
    if matches!(mechanism, Mechanism::None | Mechanism::Lazy) {
        return checking(reader);
    }
    checking::cheapest(mechanism, within.as_secs_f64(), path).ok_or_else(|| {
        let path_is = format!(
            "{} packet loss and a round trip of {}",
            number::percent(path.loss),
            number::time(path.rtt_s * 1e6)
        );
        let why = match checking::soonest_s(mechanism, path) {
            Some(s) => format!(
                "{mechanism} needs at least {}: write a longer time. With {path_is}, a shorter time closes live connections in more than one of a million tests",
                number::time(s * 1e6)
            ),
            None => format!("{mechanism} has no setting for {path_is}: lower --assumed-loss"),
        };
        wrong("detect-within", &reader.typed("detect-within").unwrap_or_default(), why)
    })
}

/// The path that settings for a wanted detection time have to stand: not a shorter one than assumed.
fn assumed(reader: &SettingsReader<'_>, rtt: Duration) -> Result<Path, TrialError> {
    let loss = reader.read("assumed-loss", parse_share)?;
    Ok(Path { loss, rtt_s: rtt.as_secs_f64().max(Path::ASSUMED.rtt_s) })
}
