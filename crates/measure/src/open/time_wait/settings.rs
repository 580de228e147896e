//! The settings of `time-wait`: from what was typed to what it means, without doing anything.

use std::net::IpAddr;
use std::time::Duration;

use crate::open::time_wait::SPEC;
use tcptoll_core::study::Settings;
use tcptoll_core::tcp::ports::assigned;
use tcptoll_core::units::{parse_count, parse_share, parse_time};
use tcptoll_lab::lab::plan::{Addresses, client_address};
use tcptoll_lab::messages::{CloseFirst, WORKERS_MAX};

use crate::kit::hosts::{DEFAULT_PORTS, OVERHEAD_S, PORT_S};
use crate::kit::plan::TrialError;
use crate::kit::settings::{LabSpec, SettingsReader, time_above_zero, wrong};

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
pub(super) const MAX_TW_BUCKETS: &str = "net.ipv4.tcp_max_tw_buckets";

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
    pub(super) max_tw_buckets: Option<u64>,
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
