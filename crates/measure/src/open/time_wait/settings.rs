//! The options of `time-wait`, and from what was typed to what it means, without doing anything.

use std::net::IpAddr;
use std::time::Duration;

use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL};
use tcptoll_core::study::{Settings, Study};
use tcptoll_core::tcp::ports::assigned;
use tcptoll_core::units::{parse_count, parse_share, parse_time};
use tcptoll_lab::lab::{Addresses, client_address};
use tcptoll_lab::messages::{CloseFirst, WORKERS_MAX};

use super::SPEC;
use crate::kit::TrialError;
use crate::kit::hosts::{DEFAULT_PORTS, OVERHEAD_S, PORT_S};
use crate::kit::settings::{LabSpec, SettingsReader, time_above_zero, wrong};

/// Heading of local ports and what keeps them.
const PORTS: &str = "Ports";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &Opt::together(
        PLACE,
        "client-sysctl",
        "NAME=VALUE",
        "Set a sysctl on the client host in every arm, e.g. net.ipv4.tcp_timestamps=0; may be \
         repeated. To compare values, use --port-range, --tw-reuse or --max-tw-buckets",
    )
    .only(&[Only::Lab]),
    &SERVER_SYSCTL,
    &Opt::each(
        PORTS,
        "port-range",
        "LOW-HIGH",
        "net.ipv4.ip_local_port_range of the client host, e.g. 1024-65535",
    )
    .derived("kernel default, 32768-60999"),
    &Opt::each(
        PORTS,
        "tw-reuse",
        "0,1,2",
        "net.ipv4.tcp_tw_reuse of the client host: 0 (off), 1 (reuse ports in TIME-WAIT after 1s) \
         or 2 (the same on loopback only)",
    )
    .derived("kernel default, 2"),
    &Opt::each(
        PORTS,
        "max-tw-buckets",
        "N",
        "net.ipv4.tcp_max_tw_buckets of both hosts. Sockets beyond this number are closed \
         immediately, without TIME-WAIT",
    )
    .number()
    .derived("kernel default"),
    &Opt::each(PORTS, "sources", "N", "Number of source addresses of the client, used in turn")
        .number()
        .by_default("1"),
    &Opt::each(
        PORTS,
        "bind-no-port",
        "on,off",
        "IP_BIND_ADDRESS_NO_PORT of sockets that bind a source address. If on, connect(2) chooses \
         the port; if off, bind(2) does",
    )
    .by_default("on"),
    &Opt::each(
        PORTS,
        "close",
        "client,server,never",
        "Side that closes first and so holds TIME-WAIT. never: each worker keeps one long-lived \
         connection",
    )
    .by_default("client"),
    &Opt::each(
        PORTS,
        "held",
        "N|SHARE%",
        "Connections to open and close before the measurement, as a number or a share of the ports \
         of one source address. With --close client their ports are then in TIME-WAIT",
    )
    .number()
    .by_default("0"),
    &Opt::each(
        LOAD,
        "count",
        "N",
        "Operations per trial: connect, send a byte, receive one, close",
    )
    .letters(&['n'])
    .number()
    .derived("until the ports are used up; no limit with --duration"),
    &Opt::each(LOAD, "duration", "TIME", "Time during which each trial starts operations")
        .letters(&['d'])
        .derived("20s; no limit with --count"),
    &Opt::each(
        LOAD,
        "rate",
        "PER_SECOND",
        "Operations to start per second, whether or not earlier ones have ended (open loop). \
         Latency counts from the scheduled start of each",
    )
    .number(),
    &Opt::each(
        LOAD,
        "workers",
        "N",
        "Concurrent workers that use blocking calls, like processes of a web service",
    )
    .number()
    .by_default("4"),
    &Opt::each(LOAD, "work", "TIME", "CPU time that a worker spends before each connection")
        .by_default("0"),
    &Opt::one(LOAD, "timeout", "TIME", "Timeout of connecting, and of the answer")
        .by_default("10s"),
];

/// Running out of ports is the question: connections that fail for want of one do not spoil the run.
pub(super) fn complete(study: &mut Study) {
    study.failures.get_or_insert_with(|| "expected".to_owned());
}

/// The most operations of one trial.
const COUNT_MAX: u64 = 10_000_000;

/// The longest time in which operations begin.
const DURATION_MAX: Duration = Duration::from_hours(1);

/// Time in which operations begin, unless `--count` or `--duration` says other.
const WITHIN: Duration = Duration::from_secs(20);

/// The most source addresses.
const SOURCES_MAX: u64 = 64;

/// The longest work of one operation.
const WORK_MAX: Duration = Duration::from_secs(1);

/// The most sockets in TIME-WAIT that a kernel can be told to keep.
const BUCKETS_MAX: u64 = i32::MAX as u64;

/// Sysctls that options of their own set.
pub(super) const PORT_RANGE: &str = "net.ipv4.ip_local_port_range";
pub(super) const TW_REUSE: &str = "net.ipv4.tcp_tw_reuse";
const MAX_TW_BUCKETS: &str = "net.ipv4.tcp_max_tw_buckets";

/// Time of one operation if the kernel finds a port quickly, and if it has to search, s (measured on
/// Linux 6.18, over veth). To estimate how long a trial takes.
const QUICK_S: f64 = 80e-6;
const SLOW_S: f64 = 1e-3;

/// Connections opened and closed before the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Held {
    /// This number.
    Count(u64),
    /// This share of the ports of one source address.
    Share(f64),
}

impl Held {
    /// How many, with this number of ports for each source address.
    pub(super) fn count(self, usable: u64) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Share(share) => (usable as f64 * share).round() as u64,
        }
    }
}

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct TimeWaitSettings {
    /// The lab, with the sysctls of the options.
    pub lab: LabSpec,
    /// The lowest and the highest local port, if they were set.
    pub(super) range: Option<(u16, u16)>,
    /// Limit of TIME-WAIT, if it was set.
    max_tw_buckets: Option<u64>,
    /// Addresses that are bound; none: the kernel chooses, and `bind(2)` is not called.
    pub(super) sources: Vec<IpAddr>,
    /// `IP_BIND_ADDRESS_NO_PORT`, where an address is bound.
    pub(super) late_port: bool,
    pub(super) close: CloseFirst,
    pub(super) held: Held,
    /// Operations, if it was said.
    pub(super) count: Option<u64>,
    /// Time in which operations begin, if it was said or nothing was.
    pub(super) duration: Option<Duration>,
    /// Whether the load is to end soon after the ports are used up: neither number nor time was said.
    pub(super) is_open_ended: bool,
    pub(super) rate: Option<f64>,
    pub(super) workers: u64,
    pub(super) work: Duration,
    pub(super) timeout: Duration,
}

impl TimeWaitSettings {
    /// Checks the settings of one arm.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        let mut lab = LabSpec::from(&reader)?;
        let range = reader.typed_read("port-range", port_range)?;
        let max_tw_buckets = reader.typed_count("max-tw-buckets", 0, BUCKETS_MAX)?;
        let tw_reuse = reader.typed_count("tw-reuse", 0, 2)?;
        let own = [
            ("port-range", PORT_RANGE, range.map(|(low, high)| format!("{low} {high}")), false),
            ("tw-reuse", TW_REUSE, tw_reuse.map(|value| value.to_string()), false),
            ("max-tw-buckets", MAX_TW_BUCKETS, max_tw_buckets.map(|n| n.to_string()), true),
        ];
        for (key, name, value, both) in own {
            if let Some(value) = value {
                set(&reader, &mut lab, (key, name, &value), both)?;
            }
        }
        let count = reader.typed_count("count", 1, COUNT_MAX)?;
        let duration = reader.typed_read("duration", duration)?;
        let this = Self {
            range: range.or_else(|| set_range(&lab)),
            max_tw_buckets: max_tw_buckets.or_else(|| set_buckets(&lab)),
            sources: sources(&reader, &lab)?,
            late_port: reader.flag("bind-no-port")?,
            close: reader.read("close", close)?,
            held: reader.read("held", held)?,
            count,
            duration: duration.or(count.is_none().then_some(WITHIN)),
            is_open_ended: count.is_none() && duration.is_none(),
            rate: reader.rate("operations")?,
            workers: reader.count("workers", 1, WORKERS_MAX)?,
            work: reader.read("work", work)?,
            timeout: reader.read("timeout", timeout)?,
            lab,
        };
        this.check_held(&reader)?;
        Ok(this)
    }

    /// Source addresses, whether bound or chosen by the kernel.
    pub(super) fn source_count(&self) -> u64 {
        self.sources.len().max(1) as u64
    }

    /// Ports of one source address, as far as the settings say.
    fn expected_ports(&self) -> u64 {
        self.range.map_or(DEFAULT_PORTS, |(low, high)| {
            let (low, high) = assigned(low, high);
            u64::from(high - low) + 1
        })
    }

    /// Connections before the measurement cannot be more than ports, and long-lived ones leave none.
    fn check_held(&self, reader: &SettingsReader<'_>) -> Result<(), TrialError> {
        let ports = self.expected_ports().saturating_mul(self.source_count());
        let held = self.held.count(self.expected_ports());
        if held <= ports {
            return Ok(());
        }
        let typed = reader.typed("held").unwrap_or_default();
        Err(wrong(
            "held",
            &typed,
            format!("there are only {ports} local ports: write at most {ports}"),
        ))
    }

    /// Ports that are held when the measurement begins, with this number of them for each source
    /// address.
    pub(super) fn held_ports(&self, usable: u64) -> u64 {
        match self.close {
            CloseFirst::Client => {
                self.held.count(usable).min(self.max_tw_buckets.unwrap_or(u64::MAX))
            }
            CloseFirst::Server | CloseFirst::Never => 0,
        }
    }

    /// Operations, with this number of ports that are free: as asked, or a few more than there are
    /// ports, so that it shows what comes after the last one. None: as many as the time allows.
    pub(super) fn count_of(&self, free: u64) -> Option<u64> {
        let beyond = free.saturating_add((free / 200).max(1)).min(COUNT_MAX);
        self.count.or(self.is_open_ended.then_some(beyond))
    }

    /// How long the arm will take, s, if all goes well.
    pub(super) fn expected_s(&self) -> f64 {
        let usable = self.expected_ports() as f64;
        let ports = usable * self.source_count() as f64;
        let held = self.held_ports(self.expected_ports());
        let count = self.count_of((ports as u64).saturating_sub(held));
        let count = count.map_or(f64::INFINITY, |count| count as f64);
        let held = held as f64;
        let rtt = self.lab.link.rtt.as_secs_f64();
        // Two round trips an operation, of which the workers share the waiting.
        let wait = 2.0 * rtt / self.workers as f64 + self.work.as_secs_f64();
        let quick = (ports / 2.0 - held).max(0.0).min(count);
        let slow = if self.close == CloseFirst::Client { count - quick } else { 0.0 };
        let closed = match slow {
            slow if slow.is_finite() => (count - slow) * (QUICK_S + wait) + slow * (SLOW_S + wait),
            _ => f64::INFINITY,
        };
        let due = self.rate.map_or(0.0, |rate| count / rate);
        let limit = self.duration.map_or(PORT_S * 60.0, |long| long.as_secs_f64());
        OVERHEAD_S + 3.0 * rtt + held * (QUICK_S + rtt / 32.0) + closed.max(due).min(limit)
    }
}

/// Sets a sysctl for an option.
///
/// Errors: `--client-sysctl` or `--server-sysctl` sets it too.
fn set(
    reader: &SettingsReader<'_>,
    lab: &mut LabSpec,
    (key, name, value): (&str, &str, &str),
    both: bool,
) -> Result<(), TrialError> {
    let hosts = [
        ("client-sysctl", &mut lab.client_sysctls, true),
        ("server-sysctl", &mut lab.server_sysctls, both),
    ];
    for (other, sysctls, applies) in hosts {
        if let Some((_, also)) = sysctls.iter().find(|(known, _)| applies && known == name) {
            let typed = reader.typed(key).unwrap_or_default();
            let why = format!("--{other} {name}={also} sets it too: leave one of them out");
            return Err(wrong(key, &typed, why));
        }
        if applies {
            sysctls.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(())
}

/// What `--client-sysctl` sets.
fn sysctl<'a>(lab: &'a LabSpec, name: &str) -> Option<&'a str> {
    lab.client_sysctls.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn set_range(lab: &LabSpec) -> Option<(u16, u16)> {
    let (low, high) = sysctl(lab, PORT_RANGE)?.split_once(char::is_whitespace)?;
    let (low, high) = (low.parse().ok()?, high.trim().parse().ok()?);
    (low <= high).then_some((low, high))
}

fn set_buckets(lab: &LabSpec) -> Option<u64> {
    sysctl(lab, MAX_TW_BUCKETS)?.parse().ok()
}

/// The addresses to bind: several, or the host's own if the port is to be chosen in a certain way.
fn sources(reader: &SettingsReader<'_>, lab: &LabSpec) -> Result<Vec<IpAddr>, TrialError> {
    let count = reader.count("sources", 1, SOURCES_MAX)?;
    let (loopback, ipv6) = (lab.link.loopback, lab.ipv6);
    if loopback && count > 1 {
        let why = "on loopback all connections come from one address: write another --link";
        return Err(wrong("sources", &count.to_string(), why));
    }
    let binds = count > 1 || reader.typed("bind-no-port").is_some();
    let own = binds.then(|| Addresses::new(loopback, ipv6).client);
    let further = (1..count).map(|number| client_address(number as u16, ipv6));
    Ok(own.into_iter().chain(further).collect())
}

fn port_range(typed: &str) -> Result<(u16, u16), String> {
    let why =
        || "write two ports from 1 to 65535, the lower one first, like 32768-60999".to_owned();
    let (low, high) = typed.split_once('-').ok_or_else(why)?;
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    port(low).zip(port(high)).filter(|(low, high)| low <= high).ok_or_else(why)
}

fn close(typed: &str) -> Result<CloseFirst, &'static str> {
    match typed {
        "client" => Ok(CloseFirst::Client),
        "server" => Ok(CloseFirst::Server),
        "never" => Ok(CloseFirst::Never),
        _ => Err("write client, server or never"),
    }
}

fn held(typed: &str) -> Result<Held, String> {
    if typed.trim_end().ends_with('%') {
        return parse_share(typed).map(Held::Share).map_err(|error| error.to_string());
    }
    parse_count(typed).map(Held::Count).map_err(|error| error.to_string())
}

fn duration(typed: &str) -> Result<Duration, String> {
    match time_above_zero(typed)? {
        long if long > DURATION_MAX => Err("write a time of at most 1h".to_owned()),
        long => Ok(long),
    }
}

fn timeout(typed: &str) -> Result<Duration, String> {
    match time_above_zero(typed)? {
        long if long > Duration::from_mins(10) => Err("write a time of at most 10m".to_owned()),
        long => Ok(long),
    }
}

fn work(typed: &str) -> Result<Duration, String> {
    match parse_time(typed).map_err(|error| error.to_string())? {
        long if long > WORK_MAX => Err("write a time of at most 1s".to_owned()),
        long => Ok(long),
    }
}
