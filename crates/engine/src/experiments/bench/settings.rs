//! One setting at a time: from text or a TOML value to what it means.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use tcptoll_kernel::socket::{ClientOptions, Tcp};
use tcptoll_model::study::Settings;
use tcptoll_model::units::{parse_count, parse_time};

use crate::experiments::TrialError;
use crate::observe::{parse_sysctl, read_sysctl};

/// How much comes before the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// So many operations.
    Operations(u64),
    /// Operations for so long.
    Time(Duration),
}

/// One setting as text, whatever TOML type it had.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// An error of a setting: `--KEY TYPED: WHY`.
pub(in crate::experiments) fn wrong(
    key: &str,
    typed: &str,
    why: impl std::fmt::Display,
) -> TrialError {
    TrialError::Setting(format!("--{key} {typed}: {why}"))
}

/// Checks that this kernel has a congestion control of this name. It makes a socket and sends
/// nothing.
pub(in crate::experiments) fn check_congestion(name: Option<&str>) -> Result<(), TrialError> {
    let Some(name) = name else { return Ok(()) };
    let options = ClientOptions { congestion: Some(name.to_owned()), ..ClientOptions::default() };
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    match Tcp::client(nowhere, &options) {
        Ok(_) => Ok(()),
        Err(error) => {
            let known = read_sysctl("net.ipv4.tcp_available_congestion_control");
            let has = known.map_or_else(|_| String::new(), |names| format!("; it has {names}"));
            Err(wrong("congestion", name, format!("the kernel refuses it ({error}){has}")))
        }
    }
}

/// Reads the settings of one arm.
pub(in crate::experiments) struct Reader<'a>(pub(in crate::experiments) &'a Settings);

impl Reader<'_> {
    /// Refuses what an experiment has no setting for.
    pub(in crate::experiments) fn check_names(
        &self,
        experiment: &str,
        options: &[&str],
    ) -> Result<(), TrialError> {
        match self.0.keys().find(|key| !options.contains(&key.as_str())) {
            Some(unknown) => Err(TrialError::Setting(format!(
                "{unknown}: `{experiment}` has no such setting; it has {}",
                options.join(", ")
            ))),
            None => Ok(()),
        }
    }

    /// Refuses, beside a server that is not ours, options that need the lab.
    pub(in crate::experiments) fn refuse_with_target(
        &self,
        lab_only: &[&str],
    ) -> Result<(), TrialError> {
        match lab_only.iter().find(|key| self.0.contains_key(**key)) {
            Some(key) => Err(TrialError::Setting(format!(
                "--{key} needs the lab: it has no effect with --to, leave one of them out"
            ))),
            None => Ok(()),
        }
    }

    pub(in crate::experiments) fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).map(text)
    }

    /// One setting by a function that reads it.
    pub(in crate::experiments) fn read<T, E: std::fmt::Display>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, TrialError> {
        self.get(key)
            .map(|typed| parse(&typed).map_err(|error| wrong(key, &typed, error)))
            .transpose()
    }

    pub(in crate::experiments) fn count(
        &self,
        key: &str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, TrialError> {
        let Some(typed) = self.get(key) else { return Ok(None) };
        let count = parse_count(&typed).map_err(|error| wrong(key, &typed, error))?;
        if count < least || count > most {
            let why = format!("write a number from {least} to {most}");
            return Err(wrong(key, &typed, why));
        }
        Ok(Some(count))
    }

    pub(in crate::experiments) fn time(&self, key: &str) -> Result<Option<Duration>, TrialError> {
        self.read(key, parse_time)
    }

    pub(in crate::experiments) fn flag(
        &self,
        key: &str,
        otherwise: bool,
    ) -> Result<bool, TrialError> {
        match self.get(key).as_deref() {
            None => Ok(otherwise),
            Some("false" | "off" | "no") => Ok(false),
            Some("true" | "on" | "yes") => Ok(true),
            Some(other) => Err(wrong(key, other, "write on or off")),
        }
    }

    /// `--rate`; `what` goes by it: `connections`.
    pub(in crate::experiments) fn rate(&self, what: &str) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.get("rate") else { return Ok(None) };
        let rate = typed.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= 1e6);
        let why = || format!("write {what} per second, above 0 and at most 1000000");
        rate.map(Some).ok_or_else(|| wrong("rate", &typed, why()))
    }

    pub(in crate::experiments) fn list(&self, key: &str) -> Vec<String> {
        match self.0.get(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => values.iter().map(text).collect(),
            Some(value) => text(value).split(',').map(|part| part.trim().to_owned()).collect(),
        }
    }

    /// As [`Reader::list`], of values that may hold commas: only a TOML list has several.
    pub(in crate::experiments) fn texts(&self, key: &str) -> Vec<String> {
        match self.0.get(key) {
            Some(Value::Array(values)) => values.iter().map(text).collect(),
            Some(value) => vec![text(value)],
            None => Vec::new(),
        }
    }

    pub(in crate::experiments) fn addresses(&self, key: &str) -> Result<Vec<IpAddr>, TrialError> {
        let one =
            |typed: &String| typed.parse().map_err(|_| wrong(key, typed, "write an IP address"));
        self.list(key).iter().map(one).collect()
    }

    /// `--warmup`: at most so many operations, which go by `what`, or a time.
    pub(in crate::experiments) fn warm_up(
        &self,
        what: &str,
        most: u64,
    ) -> Result<Option<WarmUp>, TrialError> {
        let Some(typed) = self.get("warmup") else { return Ok(None) };
        let read = match parse_count(&typed) {
            Ok(count) if count <= most => Some(WarmUp::Operations(count)),
            Ok(_) => None,
            Err(_) => parse_time(&typed).ok().map(WarmUp::Time),
        };
        let why =
            || format!("write a number of {what} from 0 to {most}, like 1000, or a time, like 2s");
        read.map(Some).ok_or_else(|| wrong("warmup", &typed, why()))
    }

    pub(in crate::experiments) fn sysctls(
        &self,
        key: &str,
    ) -> Result<Vec<(String, String)>, TrialError> {
        let one = |typed: &String| {
            parse_sysctl(typed)
                .ok_or_else(|| wrong(key, typed, "write NAME=VALUE, like net.core.somaxconn=128"))
        };
        self.texts(key).iter().map(one).collect()
    }
}

/// `\r`, `\n`, `\t`, `\0`, `\\` and `\xHH` as the bytes they mean; anything else as it is.
pub(in crate::experiments) fn unescape(text: &str) -> Vec<u8> {
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

/// Whether an address may belong to somebody else: not loopback, not private, not link-local.
pub(in crate::experiments) fn is_public(address: IpAddr) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_bytes() {
        assert_eq!(unescape("PING\\r\\n\\x41\\\\\\q"), b"PING\r\nA\\\\q");
    }
}
