//! The settings of `connect`: from what was typed to what it means, without doing anything.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;
use tcptoll_model::link::LinkSpec;
use tcptoll_model::study::Settings;
use tcptoll_model::units::{parse_count, parse_time};

use super::TrialError;

/// Everything `--…` of `connect` that makes a difference between arms.
pub const OPTIONS: &[&str] = &[
    "accept-delay",
    "backlog",
    "bind",
    "client-sysctl",
    "concurrency",
    "congestion",
    "count",
    "distance-km",
    "fast-open",
    "first-byte",
    "ipv6",
    "link",
    "packet-relay",
    "pause",
    "pause-every",
    "port",
    "rate",
    "send",
    "server",
    "server-sysctl",
    "tap",
    "timeout",
    "to",
];

/// The most connections one trial opens.
const COUNT_MAX: u64 = 10_000_000;

/// Against an address that is not of this machine or its own network, unless `--rate` says other.
pub const PUBLIC_RATE_PER_S: f64 = 20.0;
/// As many connections, unless `--count` says other.
pub const PUBLIC_COUNT: u64 = 100;

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub struct ConnectSettings {
    /// The link of the lab.
    pub link: LinkSpec,
    /// Use IPv6 in the lab.
    pub ipv6: bool,
    /// Relay over AF_PACKET even where TUN can be had.
    pub packet_relay: bool,
    /// A server we do not control: `host:port` as typed, and its address.
    pub to: Option<(String, SocketAddr)>,
    /// A real server to start on the server host.
    pub server: Option<String>,
    /// Its port, where it listens on several.
    pub port: Option<u16>,
    /// Connections in all.
    pub count: u64,
    /// At once, at most; absent: chosen from the link.
    pub concurrency: Option<u64>,
    /// Begun per second; absent: closed loop.
    pub rate: Option<f64>,
    /// Pause after so many.
    pub pause_every: Option<u64>,
    /// Length of a pause.
    pub pause: Duration,
    /// Of `listen(2)`.
    pub backlog: i32,
    /// Work before each accept.
    pub accept_delay: Duration,
    /// Data with the SYN.
    pub fast_open: bool,
    /// Wait for the server's first byte before closing.
    pub first_byte: bool,
    /// Source addresses.
    pub bind: Vec<IpAddr>,
    /// From start to end of one operation.
    pub timeout: Duration,
    /// Congestion control.
    pub congestion: Option<String>,
    /// Bytes to send once connected, to a server that does not speak first.
    pub send: Vec<u8>,
    /// Sysctls of the client host.
    pub client_sysctls: Vec<(String, String)>,
    /// Sysctls of the server host.
    pub server_sysctls: Vec<(String, String)>,
    /// Whether a packet tap rides along on a link without an emulator.
    pub tap: bool,
    /// Distance for the physical floor.
    pub distance_km: Option<f64>,
    /// Whether the target lies outside this machine's own networks.
    pub public_target: bool,
}

/// One setting as text, whatever TOML type it had.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl ConnectSettings {
    /// Checks the settings of one arm.
    pub fn from(settings: &Settings) -> Result<Self, TrialError> {
        if let Some(unknown) = settings.keys().find(|key| !OPTIONS.contains(&key.as_str())) {
            return Err(TrialError::Setting(format!(
                "{unknown}: `connect` has no such setting; it has {}",
                OPTIONS.join(", ")
            )));
        }
        let reader = Reader(settings);
        let to = reader.get("to").map(|to| resolve(&to)).transpose()?;
        let public_target = to.as_ref().is_some_and(|(_, address)| is_public(address.ip()));
        let link_text = reader.get("link").unwrap_or_else(|| "direct".to_owned());
        let link = LinkSpec::parse(&link_text).map_err(|e| TrialError::Setting(e.to_string()))?;
        if to.is_some() {
            for key in [
                "link",
                "server",
                "backlog",
                "accept-delay",
                "server-sysctl",
                "client-sysctl",
                "ipv6",
                "packet-relay",
                "tap",
            ] {
                if settings.contains_key(key) {
                    return Err(TrialError::Setting(format!(
                        "--{key} needs the lab: it has no effect with --to, leave one of them out"
                    )));
                }
            }
        }
        if settings.contains_key("rate") && settings.contains_key("concurrency") {
            return Err(TrialError::Setting(
                "--concurrency has no effect with --rate: an open loop begins on schedule, leave one of them out".to_owned(),
            ));
        }
        let count = reader.count("count", 1, COUNT_MAX)?;
        let pause_every = reader.count("pause-every", 1, COUNT_MAX)?;
        let pause = reader.time("pause")?;
        if pause.is_some() && pause_every.is_none() {
            return Err(TrialError::Setting(
                "--pause has no effect without --pause-every N".to_owned(),
            ));
        }
        if reader.get("port").is_some() && reader.get("server").is_none() {
            return Err(TrialError::Setting(
                "--port has no effect without --server 'command'".to_owned(),
            ));
        }
        for key in ["backlog", "accept-delay"] {
            if settings.contains_key(key) && settings.contains_key("server") {
                return Err(TrialError::Setting(format!(
                    "--{key} is of tcptoll's own server: with --server set it in that server's configuration"
                )));
            }
        }
        let public_default = public_target && !settings.contains_key("rate");
        Ok(Self {
            link,
            ipv6: reader.flag("ipv6", false)?,
            packet_relay: reader.flag("packet-relay", false)?,
            to,
            server: reader.get("server"),
            port: reader.count("port", 1, 65_535)?.map(|port| port as u16),
            count: count.unwrap_or(if public_target { PUBLIC_COUNT } else { 1_000 }),
            concurrency: reader.count("concurrency", 1, 100_000)?,
            rate: match reader.rate()? {
                None if public_default => Some(PUBLIC_RATE_PER_S),
                rate => rate,
            },
            pause_every,
            pause: pause.unwrap_or(Duration::from_secs(1)),
            backlog: reader.count("backlog", 0, i32::MAX as u64)?.map_or(4096, |n| n as i32),
            accept_delay: reader.time("accept-delay")?.unwrap_or_default(),
            fast_open: reader.flag("fast-open", false)?,
            first_byte: reader.flag("first-byte", true)?,
            bind: reader.addresses("bind")?,
            timeout: reader.time("timeout")?.unwrap_or(Duration::from_secs(10)),
            congestion: reader.get("congestion"),
            send: unescape(&reader.get("send").unwrap_or_default()),
            client_sysctls: reader.sysctls("client-sysctl")?,
            server_sysctls: reader.sysctls("server-sysctl")?,
            tap: reader.flag("tap", false)?,
            distance_km: reader.distance()?,
            public_target,
        })
    }

    /// Operations at once: as asked, or so many that about 500 begin per second.
    pub fn at_once(&self) -> u64 {
        const PER_SECOND: f64 = 500.0;
        self.concurrency
            .unwrap_or_else(|| (self.link.rtt.as_secs_f64() * PER_SECOND).ceil().max(1.0) as u64)
            .min(self.count)
    }

    /// How long the arm will take, seconds, if all goes well.
    pub fn expected_s(&self) -> f64 {
        let one = self.link.rtt.as_secs_f64() * 2.0 + 100e-6;
        let busy = match self.rate {
            Some(rate) => self.count as f64 / rate,
            None => {
                self.count as f64 * one.max(self.accept_delay.as_secs_f64()) / self.at_once() as f64
            }
        };
        let pauses = self
            .pause_every
            .map_or(0.0, |every| ((self.count - 1) / every) as f64 * self.pause.as_secs_f64());
        busy.max(self.accept_delay.as_secs_f64() * self.count as f64) + pauses + 1.5
    }
}

struct Reader<'a>(&'a Settings);

impl Reader<'_> {
    fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).map(text)
    }

    fn count(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>, TrialError> {
        let Some(typed) = self.get(key) else { return Ok(None) };
        let say = |why: String| TrialError::Setting(format!("--{key} {typed}: {why}"));
        let count = parse_count(&typed).map_err(|error| say(error.to_string()))?;
        if count < least || count > most {
            return Err(say(format!("write a number from {least} to {most}")));
        }
        Ok(Some(count))
    }

    fn time(&self, key: &str) -> Result<Option<Duration>, TrialError> {
        self.get(key)
            .map(|typed| {
                parse_time(&typed)
                    .map_err(|error| TrialError::Setting(format!("--{key} {typed}: {error}")))
            })
            .transpose()
    }

    fn flag(&self, key: &str, otherwise: bool) -> Result<bool, TrialError> {
        match self.get(key).as_deref() {
            None => Ok(otherwise),
            Some("false" | "off" | "no") => Ok(false),
            Some("true" | "on" | "yes") => Ok(true),
            Some(other) => Err(TrialError::Setting(format!("--{key} {other}: write on or off"))),
        }
    }

    fn rate(&self) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.get("rate") else { return Ok(None) };
        typed.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= 1e6).map(Some).ok_or_else(
            || {
                TrialError::Setting(format!(
                    "--rate {typed}: write connections per second, above 0 and at most 1000000"
                ))
            },
        )
    }

    fn distance(&self) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.get("distance-km") else { return Ok(None) };
        typed.parse::<f64>().ok().filter(|km| *km > 0.0 && *km <= 40_000.0).map(Some).ok_or_else(
            || {
                TrialError::Setting(format!(
                    "--distance-km {typed}: write kilometres, above 0 and at most 40000"
                ))
            },
        )
    }

    fn list(&self, key: &str) -> Vec<String> {
        match self.0.get(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => values.iter().map(text).collect(),
            Some(value) => text(value).split(',').map(|part| part.trim().to_owned()).collect(),
        }
    }

    fn addresses(&self, key: &str) -> Result<Vec<IpAddr>, TrialError> {
        self.list(key)
            .iter()
            .map(|typed| {
                typed.parse().map_err(|_| {
                    TrialError::Setting(format!("--{key} {typed}: write an IP address"))
                })
            })
            .collect()
    }

    fn sysctls(&self, key: &str) -> Result<Vec<(String, String)>, TrialError> {
        let one = |typed: &String| match typed.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(TrialError::Setting(format!(
                "--{key} {typed}: write NAME=VALUE, like net.core.somaxconn=128"
            ))),
        };
        match self.0.get(key) {
            // A value may hold blanks and commas, so only a TOML list has several.
            Some(Value::Array(values)) => values.iter().map(text).map(|t| one(&t)).collect(),
            Some(value) => Ok(vec![one(&text(value))?]),
            None => Ok(Vec::new()),
        }
    }
}

/// `host:port` as an address, IPv4 first; the name stays for the report.
fn resolve(to: &str) -> Result<(String, SocketAddr), TrialError> {
    let shape = || {
        TrialError::Setting(format!(
            "--to {to}: write HOST:PORT, like 192.0.2.1:443 or [2001:db8::1]:443"
        ))
    };
    let (_, port) = to.rsplit_once(':').ok_or_else(shape)?;
    let port: u16 = port.parse().map_err(|_| shape())?;
    if port == 0 {
        return Err(shape());
    }
    let mut addresses: Vec<SocketAddr> = to
        .to_socket_addrs()
        .map_err(|error| {
            TrialError::Target(format!(
                "--to {to}: the name does not resolve ({error}): check its spelling, or write the address"
            ))
        })?
        .collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses
        .first()
        .map(|address| (to.to_owned(), *address))
        .ok_or_else(|| TrialError::Target(format!("--to {to}: the name has no address")))
}

/// Whether an address may belong to somebody else: not loopback, not private, not link-local.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => {
            !(ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified())
        }
        IpAddr::V6(ip) => {
            !(ip.is_loopback()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || ip.is_unspecified())
        }
    }
}

/// `\r`, `\n`, `\t`, `\0`, `\\` and `\xHH` as the bytes they mean; anything else as it is.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, used) = match (first, tail) {
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'0', ..]) => (0, 2),
            (b'\\', [b'\\', ..]) => (b'\\', 2),
            (b'\\', [b'x', high, low, ..]) => {
                let digits = [*high, *low];
                let value =
                    std::str::from_utf8(&digits).ok().and_then(|d| u8::from_str_radix(d, 16).ok());
                value.map_or((b'\\', 1), |value| (value, 4))
            }
            (byte, _) => (*byte, 1),
        };
        bytes.push(byte);
        rest = &rest[used..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<ConnectSettings, String> {
        let settings =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Settings>();
        ConnectSettings::from(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_sorted_so_that_errors_list_them_in_order() {
        assert!(OPTIONS.is_sorted());
    }

    #[test]
    fn a_setting_without_effect_is_an_error() {
        assert!(read(&[("pause", "1s")]).unwrap_err().contains("--pause-every"));
        assert!(read(&[("port", "80")]).unwrap_err().contains("--server"));
        assert!(read(&[("to", "127.0.0.1:9"), ("backlog", "4")]).unwrap_err().contains("lab"));
    }

    #[test]
    fn an_impossible_rate_names_what_is_possible() {
        for rate in ["0", "-1", "fast", "NaN", "1e9"] {
            let error = read(&[("rate", rate)]).unwrap_err();
            assert!(error.starts_with(&format!("--rate {rate}: ")), "{error}");
        }
    }

    #[test]
    fn a_target_needs_host_and_port() {
        for to in ["localhost", "localhost:", "localhost:0", "localhost:99999", ":"] {
            assert!(read(&[("to", to)]).is_err(), "{to}");
        }
        assert_eq!(read(&[("to", "127.0.0.1:80")]).unwrap().count, 1_000);
    }

    #[test]
    fn a_public_target_gets_a_modest_rate_unless_told_otherwise() {
        let modest = read(&[("to", "192.0.2.1:80")]).unwrap();
        assert_eq!((modest.rate, modest.count), (Some(PUBLIC_RATE_PER_S), PUBLIC_COUNT));
        let told = read(&[("to", "192.0.2.1:80"), ("rate", "500"), ("count", "9")]).unwrap();
        assert_eq!((told.rate, told.count), (Some(500.0), 9));
    }

    #[test]
    fn escapes_become_bytes() {
        assert_eq!(unescape("PING\\r\\n\\x41\\\\\\q"), b"PING\r\nA\\\\q");
    }

    #[test]
    fn concurrency_follows_the_round_trip() {
        assert_eq!(read(&[("link", "cross-region")]).unwrap().at_once(), 19);
        assert_eq!(read(&[]).unwrap().at_once(), 1);
        assert_eq!(read(&[("concurrency", "7"), ("count", "3")]).unwrap().at_once(), 3);
    }
}
