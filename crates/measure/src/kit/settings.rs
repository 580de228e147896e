//! One setting at a time: from text or a TOML value to what it means.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use tcptoll_core::experiment::option::{DefaultValue, Levels, Only, Opt};
use tcptoll_core::experiment::options::SSH;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::link::LinkSpec;
use tcptoll_core::study::{PlannedArm, Settings, did_you_mean};
use tcptoll_core::units::{parse_count, parse_time};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_kernel::socket::{ClientOptions, Tcp};
use tcptoll_lab::lab::remote::{Reach, RemoteSpec, SshAddress};
use tcptoll_lab::messages::ServerKind;
use tcptoll_lab::observe::{parse_sysctl, read_sysctl};
use tcptoll_lab::servers;

use super::TrialError;

/// Silence after which a host is lost: longer than a lost packet takes, and no longer than somebody waits.
const DEAD_AFTER_MIN: Duration = Duration::from_secs(1);
const DEAD_AFTER_MAX: Duration = Duration::from_mins(10);

/// How much comes before the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarmUp {
    /// So many operations.
    Operations(u64),
    /// Operations for so long.
    Time(Duration),
}

/// One setting as text, whatever TOML type it had.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The lab that a user asked for: its two hosts and the link between them.
#[derive(Clone, Debug)]
pub(crate) struct LabSpec {
    /// The link.
    pub link: LinkSpec,
    /// Use IPv6.
    pub ipv6: bool,
    /// Relay over AF_PACKET even where TUN can be had.
    pub packet_relay: bool,
    /// Whether a packet tap watches a link without an emulator.
    pub tap: bool,
    /// Whether the server reaches addresses that no host has over the link.
    pub silent_addresses: bool,
    /// Sysctls of the client host.
    pub client_sysctls: Vec<(String, String)>,
    /// Sysctls of the server host.
    pub server_sysctls: Vec<(String, String)>,
    /// Hosts of the user's instead. None: the lab's.
    pub remote: Option<Box<RemoteSpec>>,
}

impl LabSpec {
    /// Sees to it that a server's program is on the lab's machine; gives the doubt where tcptoll's own answers instead.
    ///
    /// `may_be_ours`: nobody chose the server, and ours can do what is asked.
    /// Errors: it is missing; a sentence with its package.
    pub(crate) fn installed(
        &self,
        kind: &mut ServerKind,
        may_be_ours: bool,
    ) -> Result<Option<Warning>, TrialError> {
        if self.remote.is_some() {
            return Ok(None);
        }
        match servers::installed(*kind) {
            Ok(()) => Ok(None),
            Err(why) if may_be_ours => {
                *kind = ServerKind::Null;
                Ok(Some(Warning::OwnServer { why }))
            }
            Err(why) => Err(TrialError::Setting(why)),
        }
    }

    pub(crate) fn from(reader: &SettingsReader<'_>) -> Result<Self, TrialError> {
        let remote = reader.remote()?;
        // The path of the user's is what it is.
        let link = if remote.is_some() { "direct".to_owned() } else { reader.value("link")? };
        let parsed = LinkSpec::parse(&link).map_err(|e| TrialError::Setting(e.to_string()))?;
        if parsed.loss >= 1.0 {
            let why = "nothing arrives over this link, so nothing can be measured; write less than 100%, like loss=5%";
            return Err(wrong("link", &link, why));
        }
        Ok(Self {
            link: parsed,
            // Not every experiment has these options.
            ipv6: reader.typed_flag("ipv6")?.unwrap_or(false),
            packet_relay: reader.typed_flag("packet-relay")?.unwrap_or(false),
            tap: reader.typed_flag("tap")?.unwrap_or(false),
            silent_addresses: false,
            client_sysctls: reader.sysctls("client-sysctl")?,
            server_sysctls: reader.sysctls("server-sysctl")?,
            remote: remote.map(Box::new),
        })
    }
}

/// An error of a setting: `--KEY TYPED: WHY`.
pub(crate) fn wrong(key: &str, typed: &str, why: impl std::fmt::Display) -> TrialError {
    let why = why.to_string();
    let meant = meant(typed, &why).map_or_else(String::new, |meant| format!("{meant} "));
    TrialError::Setting(format!("--{key} {typed}: {meant}{why}"))
}

/// `did you mean keep-alive?`, where a sentence lists the words that can be written.
fn meant(typed: &str, why: &str) -> Option<String> {
    const SHORTEST: usize = 3;
    let is_plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'/')
    };
    let (_, list) = why.rsplit_once("write ")?;
    let words: Vec<&str> = list
        .split([',', ';'])
        .flat_map(|part| part.split(" or "))
        .map(str::trim)
        .filter(|word| word.len() >= SHORTEST && word.bytes().all(is_plain))
        .collect();
    if words.len() < 2 || typed.len() < SHORTEST {
        return None;
    }
    did_you_mean(typed, &words)
}

/// Checks that this kernel has a congestion control of this name. It makes a socket and sends
/// nothing.
pub(crate) fn check_congestion(name: Option<&str>) -> Result<(), TrialError> {
    let Some(name) = name else { return Ok(()) };
    let options = ClientOptions { congestion: Some(name.to_owned()), ..ClientOptions::default() };
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    match Tcp::client(nowhere, &options) {
        Ok(_) => Ok(()),
        Err(error) => {
            let known = read_sysctl("net.ipv4.tcp_available_congestion_control");
            let has = known.map_or_else(|_| String::new(), |names| format!("; available: {names}"));
            Err(wrong("congestion", name, format!("the kernel refuses it ({error}){has}")))
        }
    }
}

fn read<T, E: std::fmt::Display>(
    key: &str,
    typed: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, TrialError> {
    parse(typed).map_err(|error| wrong(key, typed, error))
}

fn count(typed: &str, least: u64, most: u64) -> Result<u64, String> {
    match parse_count(typed).map_err(|error| error.to_string())? {
        count if count < least || count > most => {
            Err(format!("write a number from {least} to {most}"))
        }
        count => Ok(count),
    }
}

/// A number with a fraction, or one like `2k`.
pub(crate) fn number(typed: &str) -> Option<f64> {
    let count = || parse_count(typed).ok().map(|count| count as f64);
    typed.parse().ok().or_else(count).filter(|number: &f64| number.is_finite())
}

fn flag(typed: &str) -> Result<bool, &'static str> {
    match typed {
        "false" | "off" | "no" => Ok(false),
        "true" | "on" | "yes" => Ok(true),
        _ => Err("write on or off"),
    }
}

/// A time that is not zero.
pub(crate) fn time_above_zero(typed: &str) -> Result<Duration, String> {
    match parse_time(typed).map_err(|error| error.to_string().replace("37ms", "10s"))? {
        Duration::ZERO => Err("write a time above 0, like 10s".to_owned()),
        time => Ok(time),
    }
}

/// Refuses an option that has no effect in any of the arms that have it, because of the value of
/// another.
pub(crate) fn check_together(spec: &Spec, arms: &[PlannedArm]) -> Result<(), TrialError> {
    for option in spec.options {
        for only in option.only {
            let Only::When(other, values) = only else { continue };
            let mut having =
                arms.iter().filter(|arm| arm.settings.contains_key(option.name)).peekable();
            let is_there = having.peek().is_some();
            let mut others = having.filter_map(|arm| value(spec, &arm.settings, other));
            if is_there && !others.any(|value| values.contains(&value.as_str())) {
                return Err(TrialError::Setting(format!(
                    "--{} has no effect without --{other} {}",
                    option.name,
                    values.join(" or ")
                )));
            }
        }
    }
    Ok(())
}

/// What an arm has for an option, or else its default; `None`: neither is there.
fn value(spec: &Spec, settings: &Settings, key: &str) -> Option<String> {
    let default = || match spec.option(key)?.default {
        DefaultValue::Text(text) => Some(text.to_owned()),
        DefaultValue::Nothing | DefaultValue::Words(_) => None,
    };
    settings.get(key).map(text).or_else(default)
}

/// Whether somebody typed `user@host`, which is no command.
fn is_login(typed: &str) -> bool {
    let plain = |word: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !word.is_empty() && word.chars().all(fits)
    };
    typed.split_once('@').is_some_and(|(user, host)| plain(user) && plain(host))
}

/// Reads the settings of one arm. Where nothing is typed, an option has the default of its
/// description.
pub(crate) struct SettingsReader<'a> {
    spec: &'static Spec,
    /// What was typed; `server` is a command or a name, wherever it runs.
    settings: Cow<'a, Settings>,
    /// The server's host, where it is one of the user's.
    server_host: Option<String>,
}

impl<'a> SettingsReader<'a> {
    /// A reader of settings that this experiment has, where they have an effect.
    ///
    /// Errors: an unknown name, an option that needs the lab on a server that is not ours, or one
    /// without the other that it needs.
    pub(crate) fn new(spec: &'static Spec, settings: &'a Settings) -> Result<Self, TrialError> {
        let typed = settings.get("server").map(text).filter(|typed| typed.starts_with(SSH));
        let mut settings = Cow::Borrowed(settings);
        if typed.is_some() {
            let settings = settings.to_mut();
            settings.remove("server");
        }
        let mut reader = Self { spec, settings, server_host: typed };
        let target = spec.target.and_then(|name| spec.option(name));
        let target = target.filter(|target| reader.typed(target.name).is_some());
        if let (Some(server), Some(target)) = (&reader.server_host, target) {
            let why = format!("it has no effect with {}: leave one of them out", target.named());
            return Err(wrong("server", server, why));
        }
        if let Some(server) = reader.typed("server").filter(|typed| is_login(typed)) {
            let why = format!("it is a command; for a server on that host write ssh://{server}");
            return Err(wrong("server", &server, why));
        }
        if let Some(unknown) = reader.settings.keys().find(|key| spec.option(key).is_none()) {
            return Err(TrialError::Setting(format!(
                "{unknown}: `{}` has no such setting; it has {}",
                spec.name,
                spec.option_names().join(", ")
            )));
        }
        let typed = || spec.options.iter().filter(|option| reader.typed(option.name).is_some());
        if let Some(why) = typed().find_map(|option| reader.without_effect(option)) {
            return Err(TrialError::Setting(why));
        }
        // From here on what runs there is read as what runs in the lab.
        if let Some(serve) = reader.settings.get("serve").cloned() {
            reader.settings.to_mut().insert("server".to_owned(), serve);
        }
        Ok(reader)
    }

    /// The hosts of the user's, if the server's is one.
    fn remote(&self) -> Result<Option<RemoteSpec>, TrialError> {
        let Some(server) = &self.server_host else { return Ok(None) };
        if self.spec.option("ssh").is_none() {
            let why = format!("`{}` runs in the lab only", self.spec.name);
            return Err(wrong("server", server, why));
        }
        let client = self.typed("client");
        let client = client.map(|typed| read("client", &typed, SshAddress::parse)).transpose()?;
        let address = |key: &str| {
            let parsed = |typed: String| {
                typed.parse().map_err(|_| wrong(key, &typed, "write an IP address"))
            };
            self.typed(key).map(parsed).transpose()
        };
        Ok(Some(RemoteSpec {
            client,
            server: read("server", server, SshAddress::parse)?,
            client_address: address("client-address")?,
            server_address: address("server-address")?,
            reach: Reach {
                ssh: self.value("ssh")?,
                program: self.typed("remote-binary"),
                dead_after: self.read("dead-after", |typed| match time_above_zero(typed)? {
                    time if (DEAD_AFTER_MIN..=DEAD_AFTER_MAX).contains(&time) => Ok(time),
                    _ => Err("write a time from 1s to 10m".to_owned()),
                })?,
            },
        }))
    }

    /// Why an option that was typed has no effect beside the others of this arm; `None`: it has.
    fn without_effect(&self, option: &Opt) -> Option<String> {
        let target = self.spec.target.and_then(|name| self.spec.option(name));
        let in_lab = target.is_none_or(|target| self.typed(target.name).is_none());
        let name = option.name;
        let host = self.server_host.as_deref();
        option.only.iter().find_map(|only| match (only, target) {
            (Only::OwnNetwork, _) if let Some(host) = host => Some(format!(
                "--{name} needs the lab, so it has no effect with --server {host}: leave one of them out"
            )),
            (Only::OverSsh, _) if host.is_none() => {
                Some(format!("--{name} has no effect without --server ssh://HOST"))
            }
            // The command that runs there, or what the lab would run.
            (Only::With("server", _), _) if host.is_some() => None,
            (Only::Lab, Some(target)) if !in_lab => Some(format!(
                "--{name} needs the lab, so it has no effect with {}: leave one of them out",
                target.named()
            )),
            (Only::Target, Some(target)) if in_lab => {
                Some(format!("--{name} is for a server of yours: it needs {}", target.typed()))
            }
            (Only::With(other, value), _) if self.is_absent(other) => {
                Some(format!("--{name} has no effect without --{other} {value}").trim_end().into())
            }
            _ => None,
        })
    }

    /// Whether an option was not typed, or typed as nothing.
    fn is_absent(&self, key: &str) -> bool {
        self.typed(key).is_none_or(|typed| typed == "none")
    }

    /// What was typed, or `None`.
    pub(crate) fn typed(&self, key: &str) -> Option<String> {
        self.settings.get(key).map(text)
    }

    /// What was typed, or else the default.
    ///
    /// Errors: neither is there.
    pub(crate) fn value(&self, key: &str) -> Result<String, TrialError> {
        let missing = || TrialError::Setting(format!("--{key} has no default: write a value"));
        value(self.spec, &self.settings, key).ok_or_else(missing)
    }

    /// What was typed, by a function that reads it.
    pub(crate) fn typed_read<T, E: std::fmt::Display>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, TrialError> {
        self.typed(key).map(|typed| read(key, &typed, parse)).transpose()
    }

    /// What was typed, or else the default, by a function that reads it.
    pub(crate) fn read<T, E: std::fmt::Display>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, TrialError> {
        read(key, &self.value(key)?, parse)
    }

    /// A number, if one was typed.
    pub(crate) fn typed_count(
        &self,
        key: &str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, TrialError> {
        self.typed_read(key, |typed| count(typed, least, most))
    }

    /// A number, typed or by default.
    pub(crate) fn count(&self, key: &str, least: u64, most: u64) -> Result<u64, TrialError> {
        self.read(key, |typed| count(typed, least, most))
    }

    /// A time, if one was typed.
    pub(crate) fn typed_time(&self, key: &str) -> Result<Option<Duration>, TrialError> {
        self.typed_read(key, parse_time)
    }

    /// A time, typed or by default.
    pub(crate) fn time(&self, key: &str) -> Result<Duration, TrialError> {
        self.read(key, parse_time)
    }

    /// On or off, if one of them was typed.
    pub(crate) fn typed_flag(&self, key: &str) -> Result<Option<bool>, TrialError> {
        self.typed_read(key, flag)
    }

    /// On or off, typed or by default; a flag without values is off.
    pub(crate) fn flag(&self, key: &str) -> Result<bool, TrialError> {
        match self.spec.option(key).map(|option| option.levels) {
            Some(Levels::Flag) => Ok(self.typed_flag(key)?.unwrap_or(false)),
            _ => self.read(key, flag),
        }
    }

    /// `--rate`; `what` goes by it: `connections`.
    pub(crate) fn rate(&self, what: &str) -> Result<Option<f64>, TrialError> {
        let Some(typed) = self.typed("rate") else { return Ok(None) };
        let rate = number(&typed).filter(|rate| *rate > 0.0 && *rate <= 1e6);
        let why = || format!("write {what} per second, above 0 and at most 1000000");
        rate.map(Some).ok_or_else(|| wrong("rate", &typed, why()))
    }

    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        match self.settings.get(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => values.iter().map(text).collect(),
            Some(value) => text(value).split(',').map(|part| part.trim().to_owned()).collect(),
        }
    }

    /// As [`SettingsReader::list`], of values that may hold commas: only a TOML list has several.
    pub(crate) fn texts(&self, key: &str) -> Vec<String> {
        match self.settings.get(key) {
            Some(Value::Array(values)) => values.iter().map(text).collect(),
            Some(value) => vec![text(value)],
            None => Vec::new(),
        }
    }

    pub(crate) fn addresses(&self, key: &str) -> Result<Vec<IpAddr>, TrialError> {
        let one =
            |typed: &String| typed.parse().map_err(|_| wrong(key, typed, "write an IP address"));
        self.list(key).iter().map(one).collect()
    }

    /// `--warmup`: at most so many operations, which go by `what`, or a time.
    pub(crate) fn warm_up(&self, what: &str, most: u64) -> Result<Option<WarmUp>, TrialError> {
        let Some(typed) = self.typed("warmup") else { return Ok(None) };
        let read = match parse_count(&typed) {
            Ok(count) if count <= most => Some(WarmUp::Operations(count)),
            Ok(_) => None,
            Err(_) => parse_time(&typed).ok().map(WarmUp::Time),
        };
        let why =
            || format!("write a number of {what} from 0 to {most}, like 1000, or a time, like 2s");
        read.map(Some).ok_or_else(|| wrong("warmup", &typed, why()))
    }

    pub(crate) fn sysctls(&self, key: &str) -> Result<Vec<(String, String)>, TrialError> {
        let one = |typed: &String| {
            parse_sysctl(typed)
                .ok_or_else(|| wrong(key, typed, "write NAME=VALUE, like net.core.somaxconn=128"))
        };
        self.texts(key).iter().map(one).collect()
    }
}

/// `\r`, `\n`, `\t`, `\0`, `\\` and `\xHH` as the bytes they mean; anything else as it is.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
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

/// How long a connection is kept, and for how many requests. None: as the server has it by itself.
#[derive(Clone, Debug)]
pub(crate) struct ReuseLimits {
    pub(crate) on: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) requests: Option<u64>,
}

impl ReuseLimits {
    /// Errors: a limit of connections that are not kept.
    pub(crate) fn from(reader: &SettingsReader<'_>) -> Result<Self, TrialError> {
        let on = reader.typed_flag("keepalive")?.unwrap_or(true);
        for key in ["keepalive-requests", "keepalive-timeout"] {
            if let (false, Some(typed)) = (on, reader.typed(key)) {
                let why =
                    "it has no effect with --keepalive off: leave it out, or write --keepalive on";
                return Err(wrong(key, &typed, why));
            }
        }
        Ok(Self {
            on,
            timeout: reader.typed_read("keepalive-timeout", time_above_zero)?,
            requests: reader.typed_count("keepalive-requests", 0, u64::from(u32::MAX) / 2)?,
        })
    }

    /// Whether a second request of a connection is answered.
    pub(crate) fn keeps(&self) -> bool {
        self.on && self.requests != Some(1)
    }

    /// As orders have it. Settings are hours at most.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        self.timeout.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use tcptoll_core::experiment::options::LINK;

    use super::*;
    use crate::open::connect;

    /// An experiment without a target, with the link as its only option.
    static LAB_ALONE: Spec = Spec { target: None, options: &[&LINK], ..connect::SPEC };

    #[test]
    fn a_lab_is_read_from_the_options_that_an_experiment_has() {
        let settings: Settings = [("link".to_owned(), Value::from("rtt=3ms"))].into();
        let lab = LabSpec::from(&SettingsReader::new(&LAB_ALONE, &settings).unwrap()).unwrap();
        assert_eq!(lab.link.rtt, Duration::from_millis(3));
        assert!(!lab.ipv6 && !lab.packet_relay && !lab.tap);
    }

    #[test]
    fn a_link_over_which_nothing_arrives_is_refused() {
        let settings: Settings = [("link".to_owned(), Value::from("rtt=3ms,loss=100%"))].into();
        let lab = LabSpec::from(&SettingsReader::new(&LAB_ALONE, &settings).unwrap());
        let error = lab.unwrap_err().to_string();
        assert!(error.starts_with("--link rtt=3ms,loss=100%: nothing arrives"), "{error}");
    }

    #[test]
    fn escapes_become_bytes() {
        assert_eq!(unescape("PING\\r\\n\\x41\\\\\\q"), b"PING\r\nA\\\\q");
    }
}
