//! One setting of `connect` at a time: from text or a TOML value to what it means.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;
use tcptoll_model::study::Settings;
use tcptoll_model::units::{parse_count, parse_time};

use super::TrialError;
use super::connect_settings::{COUNT_MAX, WarmUp};
use crate::observe::parse_sysctl;

/// One setting as text, whatever TOML type it had.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) struct Reader<'a>(pub(super) &'a Settings);

impl Reader<'_> {
    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).map(text)
    }

    pub(super) fn count(
        &self,
        key: &str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, TrialError> {
        let Some(typed) = self.get(key) else { return Ok(None) };
        let say = |why: String| TrialError::Setting(format!("--{key} {typed}: {why}"));
        let count = parse_count(&typed).map_err(|error| say(error.to_string()))?;
        if count < least || count > most {
            return Err(say(format!("write a number from {least} to {most}")));
        }
        Ok(Some(count))
    }

    pub(super) fn time(&self, key: &str) -> Result<Option<Duration>, TrialError> {
        self.get(key)
            .map(|typed| {
                parse_time(&typed)
                    .map_err(|error| TrialError::Setting(format!("--{key} {typed}: {error}")))
            })
            .transpose()
    }

    pub(super) fn flag(&self, key: &str, otherwise: bool) -> Result<bool, TrialError> {
        match self.get(key).as_deref() {
            None => Ok(otherwise),
            Some("false" | "off" | "no") => Ok(false),
            Some("true" | "on" | "yes") => Ok(true),
            Some(other) => Err(TrialError::Setting(format!("--{key} {other}: write on or off"))),
        }
    }

    pub(super) fn rate(&self) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.get("rate") else { return Ok(None) };
        typed.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= 1e6).map(Some).ok_or_else(
            || {
                TrialError::Setting(format!(
                    "--rate {typed}: write connections per second, above 0 and at most 1000000"
                ))
            },
        )
    }

    pub(super) fn distance(&self) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.get("distance-km") else { return Ok(None) };
        typed.parse::<f64>().ok().filter(|km| *km > 0.0 && *km <= 40_000.0).map(Some).ok_or_else(
            || {
                TrialError::Setting(format!(
                    "--distance-km {typed}: write kilometres, above 0 and at most 40000"
                ))
            },
        )
    }

    pub(super) fn list(&self, key: &str) -> Vec<String> {
        match self.0.get(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => values.iter().map(text).collect(),
            Some(value) => text(value).split(',').map(|part| part.trim().to_owned()).collect(),
        }
    }

    pub(super) fn addresses(&self, key: &str) -> Result<Vec<IpAddr>, TrialError> {
        self.list(key)
            .iter()
            .map(|typed| {
                typed.parse().map_err(|_| {
                    TrialError::Setting(format!("--{key} {typed}: write an IP address"))
                })
            })
            .collect()
    }

    pub(super) fn warm_up(&self) -> Result<Option<WarmUp>, TrialError> {
        let Some(typed) = self.get("warmup") else { return Ok(None) };
        let read = match parse_count(&typed) {
            Ok(count) if count <= COUNT_MAX => Some(WarmUp::Operations(count)),
            Ok(_) => None,
            Err(_) => parse_time(&typed).ok().map(WarmUp::Time),
        };
        read.map(Some).ok_or_else(|| {
            TrialError::Setting(format!(
                "--warmup {typed}: write a number of connections from 0 to {COUNT_MAX}, like 1000, or a time, like 2s"
            ))
        })
    }

    pub(super) fn sysctls(&self, key: &str) -> Result<Vec<(String, String)>, TrialError> {
        let one = |typed: &String| {
            parse_sysctl(typed).ok_or_else(|| {
                TrialError::Setting(format!(
                    "--{key} {typed}: write NAME=VALUE, like net.core.somaxconn=128"
                ))
            })
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
pub(super) fn resolve(to: &str) -> Result<(String, SocketAddr), TrialError> {
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
pub(super) fn is_public(address: IpAddr) -> bool {
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
pub(super) fn unescape(text: &str) -> Vec<u8> {
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

    #[test]
    fn escapes_become_bytes() {
        assert_eq!(unescape("PING\\r\\n\\x41\\\\\\q"), b"PING\r\nA\\\\q");
    }
}
