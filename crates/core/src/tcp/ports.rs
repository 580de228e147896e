//! How many connections can a client open before it runs out of local ports?
//!
//! Arithmetic, made before a run and held against what happened in it.
//!
//! A range of three ports gives two: `connect(2)` searches an even number of ports, so the third is never
//! assigned (measured with ranges of 3, 5 and 7).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A forecast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortForecast {
    /// Ports of `net.ipv4.ip_local_port_range` that the kernel assigns, without reserved ones: of a
    /// range of 3 ports it never assigns the last. In a larger range with an odd number of ports, one
    /// call may find no port while one is free.
    pub usable: u64,
    /// Source addresses the client uses.
    pub sources: u64,
    /// Destinations (address and port) the client connects to.
    pub destinations: u64,
    /// How long a connection keeps its port where the client closes first, s: 60 on Linux
    /// (`TCP_TIMEWAIT_LEN`); 1 (or `tcp_tw_reuse_delay`) with `tcp_tw_reuse` in force; 0 where the
    /// server closes first. Where the server closes late, the mean with FIN-WAIT-2, as long as was seen.
    pub held_s: f64,
    /// The part of it in FIN-WAIT-2, s, the mean of the connections, at least; absent: none was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fin_wait_2_s: Option<f64>,
    /// Connections that may be open or in TIME-WAIT at once: usable × sources × destinations.
    pub at_once: u64,
    /// Connections per second that can go on for ever; absent: ports do not limit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sustained_per_s: Option<f64>,
    /// In a sentence.
    pub text: String,
}

/// What the forecast rests on.
#[derive(Clone, Debug, Default)]
pub struct PortSettings {
    /// Sysctls of the client host, as read: `net.ipv4.ip_local_port_range`,
    /// `net.ipv4.ip_local_reserved_ports`, `net.ipv4.tcp_tw_reuse`; and, where they are there,
    /// `net.ipv4.tcp_tw_reuse_delay` (ms, since Linux 6.14) and `net.ipv4.tcp_timestamps`.
    pub sysctls: BTreeMap<String, String>,
    /// Source addresses.
    pub sources: u64,
    /// Destinations.
    pub destinations: u64,
    /// Which connections the client closes first.
    pub client_closes: ClientCloses,
    /// Whether the destination is on loopback: `tcp_tw_reuse` = 2 helps there alone.
    pub loopback: bool,
    /// Connections that the server has not closed; absent: there are none.
    pub half_closed: Option<HalfClosed>,
}

/// Connections in FIN-WAIT-2, of those that the client has closed first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HalfClosed {
    /// Share that was still there when they were counted, 0 to 1. Whether TIME-WAIT follows is not known:
    /// after `net.ipv4.tcp_fin_timeout` the kernel gives up without.
    pub share: f64,
    /// Time in FIN-WAIT-2 so far, s, the mean over all connections that the client has closed: a lower
    /// bound of the time for which they hold their ports before TIME-WAIT.
    pub mean_s: f64,
}

/// Which connections the client closes first, and so keeps the ports of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ClientCloses {
    /// None, as planned or as found.
    #[default]
    None,
    /// All, as planned or as found.
    All,
    /// This share of them was found, above 0 and below 1.
    Share(f64),
}

impl ClientCloses {
    /// From how many connections there were and how many of them the client closed first.
    ///
    /// What is all but for 1 in 200 counts as all, and up to 1 in 50 as none: so few limit no rate. None: there were no connections.
    pub fn found(by_client: u64, connections: u64) -> Option<Self> {
        let share = (connections > 0).then(|| by_client as f64 / connections as f64)?;
        Some(match share {
            share if share >= 0.995 => Self::All,
            share if share <= 0.02 => Self::None,
            share => Self::Share(share),
        })
    }
}

/// How long Linux keeps a connection in TIME-WAIT, s (`TCP_TIMEWAIT_LEN` in `net/tcp.h`).
const TIME_WAIT_S: f64 = 60.0;

/// After how long `tcp_tw_reuse` lets a port be used again, s, where the kernel does not say.
const REUSE_S: f64 = 1.0;

/// Makes the forecast. None: the port range cannot be read.
///
/// What else cannot be read is taken for what gives fewer connections: no reserved ports are known,
/// but `tcp_tw_reuse` is taken for off.
pub fn forecast(settings: &PortSettings) -> Option<PortForecast> {
    let text = |name: &str| settings.sysctls.get(name).map(|value| value.trim());
    let reserved = text("net.ipv4.ip_local_reserved_ports").unwrap_or_default();
    let usable = u64::from(usable(text("net.ipv4.ip_local_port_range")?, reserved)?);
    let (sources, destinations) = (settings.sources.max(1), settings.destinations.max(1));
    let at_once = usable.saturating_mul(sources).saturating_mul(destinations);
    let reuse = reuse_after_s(settings);
    let half_closed = settings.half_closed.filter(|_| settings.client_closes != ClientCloses::None);
    let fin_wait_2_s = half_closed.map(|half_closed| half_closed.mean_s);
    let held_s = match reuse {
        _ if settings.client_closes == ClientCloses::None => 0.0,
        Some(after_s) => after_s,
        None => TIME_WAIT_S,
    };
    let held_s = half_closed
        .map_or(held_s, |half_closed| half_closed.mean_s + held_s * (1.0 - half_closed.share));
    let share = match settings.client_closes {
        ClientCloses::Share(share) => share,
        ClientCloses::None | ClientCloses::All => 1.0,
    };
    let sustained_per_s = (held_s > 0.0).then(|| at_once as f64 / held_s / share);
    let mut forecast = PortForecast {
        usable,
        sources,
        destinations,
        held_s,
        fin_wait_2_s,
        at_once,
        sustained_per_s,
        text: String::new(),
    };
    forecast.text = sentence(&forecast, reuse.is_some(), settings.client_closes);
    Some(forecast)
}

/// After how long a port in TIME-WAIT may be used for the same destination again, s; `None`: not
/// before TIME-WAIT ends.
///
/// Source: `tcp_twsk_unique` in `net/ipv4/tcp_ipv4.c`, Linux 6.14: it needs timestamps of the
/// connection, and 2 stands for loopback alone.
pub(crate) fn reuse_after_s(settings: &PortSettings) -> Option<f64> {
    let number = |name: &str| settings.sysctls.get(name)?.trim().parse::<u64>().ok();
    let in_force = match number("net.ipv4.tcp_tw_reuse")? {
        1 => true,
        2 => settings.loopback,
        _ => false,
    };
    let has_timestamps = number("net.ipv4.tcp_timestamps") != Some(0);
    let after_s = number("net.ipv4.tcp_tw_reuse_delay").map_or(REUSE_S, |ms| ms as f64 / 1e3);
    (in_force && has_timestamps).then_some(after_s.min(TIME_WAIT_S))
}

fn sentence(forecast: &PortForecast, reuse: bool, closes: ClientCloses) -> String {
    let &PortForecast { usable, sources, destinations, held_s, at_once, sustained_per_s, .. } =
        forecast;
    let count = crate::number::count;
    let ports = format!(
        "{} local port{} × {} source address{}",
        count(usable),
        if usable == 1 { "" } else { "s" },
        count(sources),
        if sources == 1 { "" } else { "es" }
    );
    let to = match destinations {
        1 => " to one destination".to_owned(),
        n => format!(" × {} destinations", count(n)),
    };
    let at_once = count(at_once);
    let Some(per_s) = sustained_per_s else {
        return format!(
            "{ports}{to}: at most {at_once} connections open at a time; \
             where the server closes first, a port is free again immediately"
        );
    };
    // What is a bound must not be rounded up.
    let per_s = if per_s < 10.0 { crate::number::three(per_s) } else { count(per_s as u64) };
    if forecast.fin_wait_2_s.is_some() {
        let first = match closes {
            ClientCloses::Share(share) => {
                let share = crate::number::percent(share);
                format!("the client closed first on {share} of the connections")
            }
            ClientCloses::None | ClientCloses::All => "the client closes first".to_owned(),
        };
        return format!(
            "{ports}{to}; {first}, and the server closes late, so FIN-WAIT-2 and TIME-WAIT hold a port \
             for at least {held_s:.2} s on average: at most {per_s} connections per second for long, and \
             fewer the later the server closes"
        );
    }
    if let ClientCloses::Share(share) = closes {
        return format!(
            "{ports}{to}; the client closed first on {} of the connections, and keeps the \
             port of each of these for {held_s} s: at most {per_s} connections per second for long",
            crate::number::percent(share)
        );
    }
    if reuse {
        return format!(
            "{ports}{to}; the client closes first, and net.ipv4.tcp_tw_reuse \
             lets a port be used again after {held_s} s: \
             at most {per_s} connections per second for long, {at_once} at once"
        );
    }
    format!(
        "{ports}{to}; the client closes first, so each is held {held_s} s: \
         at most {per_s} connections per second for long, {at_once} within the first minute"
    )
}

/// The ports of a range that connect(2) and bind(2) ever assign: all, but the last one of three.
///
/// Both calls search n - 1 ports if n is odd, every second port in each of two passes, and begin at an
/// even offset below n - 1 (`bind(2)`: odd). With n = 3 the only offset is 0, so the passes try the
/// first and the second port. With n = 5 or more the offset changes from call to call. A pass then
/// leaves out the first or the last port, and both are assigned in the course of time.
///
/// Source: `__inet_hash_connect()` in `net/ipv4/inet_hashtables.c`, `inet_csk_find_open_port()` in
/// `net/ipv4/inet_connection_sock.c`. Measured on Linux 6.18: with 3 ports 2 connections, or 2 per
/// second with `tcp_tw_reuse=1`; with 5 and 7 ports 5 and 7 connections.
pub fn assigned(low: u16, high: u16) -> (u16, u16) {
    if high.checked_sub(low) == Some(2) { (low, high - 1) } else { (low, high) }
}

/// Ports that connect(2) may choose, by `net.ipv4.ip_local_port_range` and
/// `net.ipv4.ip_local_reserved_ports`. None: the range is not one.
pub fn usable(range_text: &str, reserved_text: &str) -> Option<u32> {
    let (low, high) = range(range_text)?;
    let (low, high) = assigned(low, high);
    let reserved = reserved_within(reserved_text, low, high);
    Some(u32::from(high - low) + 1 - u32::try_from(reserved).ok()?)
}

/// Reads `32768  60999`.
pub(crate) fn range(text: &str) -> Option<(u16, u16)> {
    let mut ends = text.split_whitespace().map(str::parse);
    let (low, high) = (ends.next()?.ok()?, ends.next()?.ok()?);
    (ends.next().is_none() && low <= high).then_some((low, high))
}

/// How many ports of a list like `8080,9000-9010` lie from `low` to `high`, each counted once.
fn reserved_within(list: &str, low: u16, high: u16) -> u64 {
    reserved(list, low, high).iter().map(|&(first, last)| u64::from(last - first) + 1).sum()
}

/// The ports of a list like `8080,9000-9010` that lie from `low` to `high`, as ranges with both
/// ends, ascending; no port is in two of them.
pub(crate) fn reserved(list: &str, low: u16, high: u16) -> Vec<(u16, u16)> {
    let mut ranges: Vec<(u16, u16)> = list
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let first: u16 = first.parse().ok()?;
            let last: u16 = last.parse().ok()?;
            Some((first.max(low), last.min(high)))
        })
        .filter(|(first, last)| first <= last)
        .collect();
    ranges.sort_unstable();
    let mut apart: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match apart.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => apart.push((first, last)),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(sysctls: &[(&str, &str)]) -> PortSettings {
        let sysctls = sysctls
            .iter()
            .map(|(name, value)| (format!("net.ipv4.{name}"), (*value).to_owned()))
            .collect();
        PortSettings {
            sysctls,
            sources: 1,
            destinations: 1,
            client_closes: ClientCloses::All,
            ..PortSettings::default()
        }
    }

    #[test]
    fn a_server_that_closes_late_holds_the_ports_in_fin_wait_2() {
        let forecast_with = |share, mean_s| {
            let settings = PortSettings {
                half_closed: Some(HalfClosed { share, mean_s }),
                ..settings(&[("ip_local_port_range", "1000 1999"), ("tcp_tw_reuse", "1")])
            };
            forecast(&settings).unwrap()
        };
        // None has reached TIME-WAIT, and none may.
        assert_eq!(
            (forecast_with(1.0, 4.0).held_s, forecast_with(1.0, 4.0).sustained_per_s),
            (4.0, Some(250.0))
        );
        // 1,000 ports, 4.5 s in FIN-WAIT-2 on average, and half of them 1 s in TIME-WAIT.
        let forecast = forecast_with(0.5, 4.5);
        assert_eq!((forecast.held_s, forecast.sustained_per_s), (5.0, Some(200.0)));
        assert_eq!(
            forecast.text,
            "1,000 local ports × 1 source address to one destination; the client closes first, and \
             the server closes late, so FIN-WAIT-2 and TIME-WAIT hold a port for at least 5.00 s on \
             average: at most 200 connections per second for long, and fewer the later the server \
             closes"
        );
    }

    const RANGE: (&str, &str) = ("ip_local_port_range", "32768\t60999\n");

    #[test]
    fn ports_that_the_client_closes_are_held_for_a_minute() {
        // 60999 - 32768 + 1 = 28,232; / 60 = 470.5.
        let forecast = forecast(&settings(&[RANGE, ("tcp_tw_reuse", "2")])).unwrap();
        assert_eq!((forecast.usable, forecast.at_once, forecast.held_s), (28_232, 28_232, 60.0));
        assert!((forecast.sustained_per_s.unwrap() - 470.53).abs() < 0.01);
        assert_eq!(
            forecast.text,
            "28,232 local ports × 1 source address to one destination; \
             the client closes first, so each is held 60 s: \
             at most 470 connections per second for long, 28,232 within the first minute"
        );
    }

    #[test]
    fn sources_and_destinations_multiply_and_reserved_ports_do_not_count() {
        // 100 ports; 5 reserved within, 3 of them named twice, the others outside: 95 × 4 × 2.
        let reserved = "999,1003-1005,1004,1098-1200,,8080,x,7-5";
        let mut settings = settings(&[
            ("ip_local_port_range", "1000 1099"),
            ("ip_local_reserved_ports", reserved),
        ]);
        (settings.sources, settings.destinations) = (4, 2);
        let forecast = forecast(&settings).unwrap();
        assert_eq!((forecast.usable, forecast.at_once), (95, 760));
        assert!(
            forecast
                .text
                .starts_with("95 local ports × 4 source addresses × 2 destinations; the client"),
            "{}",
            forecast.text
        );
    }

    #[test]
    fn where_the_server_closes_a_port_is_free_at_once() {
        let settings = PortSettings {
            client_closes: ClientCloses::None,
            ..settings(&[RANGE, ("tcp_tw_reuse", "1")])
        };
        let forecast = forecast(&settings).unwrap();
        assert_eq!((forecast.held_s, forecast.sustained_per_s), (0.0, None));
        assert_eq!(
            forecast.text,
            "28,232 local ports × 1 source address to one destination: at most 28,232 connections open at a time; \
             where the server closes first, a port is free again immediately"
        );
    }

    #[test]
    fn a_share_that_was_found_leaves_room_for_more() {
        // 28,232 / 60 / 0.25 = 1,882.1.
        let closes = ClientCloses::found(500, 2_000).unwrap();
        let settings = PortSettings { client_closes: closes, ..settings(&[RANGE]) };
        let forecast = forecast(&settings).unwrap();
        assert!((forecast.sustained_per_s.unwrap() - 1_882.13).abs() < 0.01);
        assert_eq!(
            forecast.text,
            "28,232 local ports × 1 source address to one destination; the client closed first on \
             25 % of the connections, and keeps the port of each of these for 60 s: at most 1,882 \
             connections per second for long"
        );
        assert_eq!(ClientCloses::found(1, 2_000), Some(ClientCloses::None));
        assert_eq!(ClientCloses::found(1_999, 2_000), Some(ClientCloses::All));
        assert_eq!(ClientCloses::found(0, 0), None);
    }

    #[test]
    fn reuse_of_time_wait_needs_its_setting_and_timestamps() {
        let held_ms = |reuse: &[(&str, &str)], loopback| {
            let settings = PortSettings { loopback, ..settings(&[&[RANGE], reuse].concat()) };
            (forecast(&settings).unwrap().held_s * 1e3) as u64
        };
        assert_eq!(held_ms(&[("tcp_tw_reuse", "0")], true), 60_000);
        assert_eq!(held_ms(&[("tcp_tw_reuse", "1")], false), 1_000);
        assert_eq!(held_ms(&[("tcp_tw_reuse", "2")], false), 60_000);
        assert_eq!(held_ms(&[("tcp_tw_reuse", "2\n")], true), 1_000);
        assert_eq!(held_ms(&[("tcp_tw_reuse", "1"), ("tcp_timestamps", "0")], false), 60_000);
        assert_eq!(held_ms(&[("tcp_tw_reuse", "1"), ("tcp_timestamps", "1")], false), 1_000);
        assert_eq!(held_ms(&[("tcp_tw_reuse", "1"), ("tcp_tw_reuse_delay", "250")], false), 250);
        assert_eq!(held_ms(&[], true), 60_000);
        let reused = forecast(&settings(&[RANGE, ("tcp_tw_reuse", "1")])).unwrap();
        assert_eq!(
            reused.text,
            "28,232 local ports × 1 source address to one destination; the client closes first, and \
             net.ipv4.tcp_tw_reuse lets a port be used again after 1 s: \
             at most 28,232 connections per second for long, 28,232 at once"
        );
    }

    #[test]
    fn without_a_range_there_is_no_forecast() {
        assert_eq!(forecast(&settings(&[])), None);
        for range in ["", "1000", "1000 x", "2000 1000", "1 2 3", "1 70000"] {
            assert_eq!(forecast(&settings(&[("ip_local_port_range", range)])), None, "{range}");
        }
        let three = |reserved| {
            let sysctls = [
                ("ip_local_port_range", "1000 1002"),
                ("ip_local_reserved_ports", reserved),
                ("tcp_tw_reuse", "1"),
            ];
            let forecast = forecast(&settings(&sysctls)).unwrap();
            (forecast.usable, forecast.sustained_per_s)
        };
        assert_eq!(three(""), (2, Some(2.0)), "the last of three ports is never assigned");
        assert_eq!((three("1002").0, three("1001").0), (2, 1));
        let one = forecast(&settings(&[("ip_local_port_range", "1000 1000")])).unwrap();
        assert!(one.usable == 1 && one.text.starts_with("1 local port ×"));
        let none =
            settings(&[("ip_local_port_range", "1 65535"), ("ip_local_reserved_ports", "1-65535")]);
        let none = forecast(&none).unwrap();
        assert_eq!((none.usable, none.sustained_per_s), (0, Some(0.0)));
    }
}
