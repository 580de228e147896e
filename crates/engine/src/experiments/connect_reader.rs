//! The settings that `connect` alone has: from text to what they mean.

use std::net::{SocketAddr, ToSocketAddrs};

use super::TrialError;
use super::reader::{Reader, wrong};

impl Reader<'_> {
    pub(super) fn distance(&self) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.get("distance-km") else { return Ok(None) };
        let why = "write kilometres, above 0 and at most 40000";
        let km = typed.parse::<f64>().ok().filter(|km| *km > 0.0 && *km <= 40_000.0);
        km.map(Some).ok_or_else(|| wrong("distance-km", &typed, why))
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
