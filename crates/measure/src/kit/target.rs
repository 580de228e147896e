//! A server we do not control: its host and port, and which of its addresses a run uses.
//!
//! A name is resolved once for a run, by `Target::resolve`, before its first trial. The target of each plan
//! takes that answer (`Target::take`). Settings are read without any look-up. With look-ups in the parser and
//! rotating answers, 3 rounds of 2 arms asked 34 (`connect`), 7 (`http`) and 35 (`keepalive`) questions and
//! measured six servers; now one question, and one server.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use tcptoll_core::http::url::Url;
use tcptoll_core::record::Resolved;
use tcptoll_kernel::socket::Udp;

use super::TrialError;

/// Operations per second against an address that is not of this machine or its own network, unless
/// the user says other.
pub(crate) const PUBLIC_RATE_PER_S: f64 = 20.0;

/// A server we do not control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As typed.
    pub typed: String,
    /// What a message about its name begins with: `--to db.example:5432`.
    subject: String,
    /// Name in lower case, or address without brackets.
    host: String,
    port: u16,
    /// The address given, or that of the name if it has been resolved.
    address: Option<SocketAddr>,
}

impl Target {
    /// Reads `--to HOST:PORT`, or the server of a URL: http and https say their port themselves.
    ///
    /// Errors: it has another shape.
    pub(crate) fn of_to(typed: &str) -> Result<Self, TrialError> {
        let (scheme, rest) = typed.split_once("://").unwrap_or(("", typed));
        let end = if scheme.is_empty() { None } else { rest.find(['/', '?', '#']) };
        let server = &rest[..end.unwrap_or(rest.len())];
        let named = |port: u16| format!("{server}:{port}");
        let known = match (scheme.to_ascii_lowercase().as_str(), has_port(server)) {
            ("http", false) => Some(named(80)),
            ("https", false) => Some(named(443)),
            _ => None,
        };
        let server = known.as_deref().unwrap_or(server);
        let shape = || {
            let why = if has_port(server) { "" } else { "it has no port; " };
            TrialError::Setting(format!(
                "--to {typed}: {why}write HOST:PORT, like 192.0.2.1:443 or [2001:db8::1]:443"
            ))
        };
        let (host, number) = server.rsplit_once(':').ok_or_else(shape)?;
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        if host.is_empty() || !is_number {
            return Err(shape());
        }
        let port = number.parse().ok().filter(|port| *port > 0_u16).ok_or_else(|| {
            TrialError::Setting(format!("--to {typed}: port {number} is not from 1 to 65535"))
        })?;
        // An IPv6 address may stand in brackets and have a scope; a name has neither.
        let literal = server.parse().ok();
        Ok(Self::new(format!("--to {typed}"), typed, host, port, literal))
    }

    /// The server of a URL; `typed` is all that was typed.
    pub(crate) fn of_url(url: &Url, typed: &str) -> Self {
        Self::new(typed.to_owned(), typed, &url.host, url.port, None)
    }

    fn new(
        subject: String,
        typed: &str,
        host: &str,
        port: u16,
        literal: Option<SocketAddr>,
    ) -> Self {
        let host = host.to_ascii_lowercase();
        let parsed = || host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port));
        let address = literal.or_else(parsed);
        Self { typed: typed.to_owned(), subject, host, port, address }
    }

    /// Takes the address that the name has in `resolved`, if it has one there.
    pub(crate) fn take(&mut self, resolved: &[Resolved]) {
        if self.address.is_none() {
            let entry = self.entry(resolved);
            self.address = entry.and_then(|entry| address_of(&entry.used, self.port));
        }
    }

    /// `host:port`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The address given, or that of the name if it has been resolved.
    pub(crate) fn known_address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The address to connect to.
    ///
    /// Errors: the name was not resolved before.
    pub(crate) fn address(&self) -> Result<SocketAddr, TrialError> {
        self.address.ok_or_else(|| {
            TrialError::Target(format!("{}: the run has no address for this name", self.subject))
        })
    }

    /// The address, if this machine has it: only then may a socket be bound to it.
    pub(super) fn listener_here(&self) -> Option<SocketAddr> {
        self.address.filter(|at| Udp::bind(SocketAddr::new(at.ip(), 0)).is_ok())
    }

    /// Whether it may belong to somebody else: by its address, or by its name alone as long as that
    /// has not been resolved. Then only `localhost` is taken for this machine.
    pub fn seems_public(&self) -> bool {
        if let Some(address) = self.address {
            return is_public(address.ip());
        }
        let name = self.host.strip_suffix('.').unwrap_or(&self.host);
        name != "localhost" && !name.ends_with(".localhost")
    }

    /// Whether its address is known, and not of this machine or its own network.
    pub(crate) fn is_public(&self) -> bool {
        self.address.is_some() && self.seems_public()
    }

    /// Resolves the name, unless `known` has it already, be it with another port; `None`: an address
    /// was given.
    ///
    /// Errors: the name has no address, or `known` has none that can be read.
    pub(crate) fn resolve(&self, known: &[Resolved]) -> Result<Option<Resolved>, TrialError> {
        let refuse = |why: String| Err(TrialError::Target(format!("{}: {why}", self.subject)));
        if let Some(entry) = self.entry(known).or_else(|| self.entry_of_host(known)) {
            if address_of(&entry.used, self.port).is_none() {
                return refuse(format!("the record holds `{}`, not an IP address", entry.used));
            }
            return Ok(Some(Resolved { name: self.name(), ..entry.clone() }));
        }
        if self.address.is_some() {
            return Ok(None);
        }
        let answer: Vec<SocketAddr> = match (self.host.as_str(), self.port).to_socket_addrs() {
            Ok(answer) => answer.collect(),
            Err(error) => {
                return refuse(format!(
                    "the name does not resolve ({error}): check its spelling, or write the address"
                ));
            }
        };
        let Some(used) = answer.iter().min_by_key(|address| address.is_ipv6()) else {
            return refuse("the name has no address".to_owned());
        };
        let mut addresses: Vec<String> = Vec::new();
        for address in answer.iter().map(text_of) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(Some(Resolved { name: self.name(), addresses, used: text_of(used) }))
    }

    fn entry<'a>(&self, resolved: &'a [Resolved]) -> Option<&'a Resolved> {
        let name = self.name();
        resolved.iter().find(|entry| entry.name == name)
    }

    /// The entry of the same host with another port.
    fn entry_of_host<'a>(&self, resolved: &'a [Resolved]) -> Option<&'a Resolved> {
        let host = |entry: &Resolved| entry.name.rsplit_once(':').map(|(host, _)| host.to_owned());
        resolved.iter().find(|entry| host(entry).as_ref() == Some(&self.host))
    }
}

/// Whether a server is written with a port: the colons of an address in brackets are its own.
fn has_port(server: &str) -> bool {
    server.rsplit(']').next().is_some_and(|end| end.contains(':'))
}

/// Whether an address may belong to somebody else: not loopback, not private, not link-local.
fn is_public(address: IpAddr) -> bool {
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

/// An address without its port, with its scope.
fn text_of(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        other => other.ip().to_string(),
    }
}

/// What [`text_of`] wrote.
fn address_of(text: &str, port: u16) -> Option<SocketAddr> {
    if text.contains(':') {
        return format!("[{text}]:{port}").parse().ok();
    }
    text.parse().ok().map(|ip| SocketAddr::new(ip, port))
}

/// What was tried without success.
pub(crate) struct Unreached<'a> {
    /// The option with the target, as typed: `--to HOST:PORT`.
    pub(crate) subject: String,
    /// What should have begun: `connection`.
    pub(crate) operation: &'static str,
    /// What failed: `no connection could be opened`.
    pub(crate) outcome: String,
    /// Failures by class.
    pub(crate) errors: &'a BTreeMap<String, u64>,
    /// The first error of each class, in words.
    pub(crate) first_errors: &'a BTreeMap<String, String>,
}

impl Unreached<'_> {
    /// One sentence with the most frequent failure. `own` has the advice on classes that mean
    /// something of their own to the experiment.
    pub(crate) fn sentence(&self, own: &[(&str, &str)]) -> String {
        let Self { subject, operation, outcome, errors, first_errors } = self;
        let Some((class, _)) = errors.iter().max_by_key(|(_, count)| **count) else {
            return format!("{subject}: no {operation} was started");
        };
        let words = first_errors.get(class).map_or("", String::as_str);
        let advice = own.iter().find(|(known, _)| known == class).map(|(_, advice)| *advice);
        let advice = advice.or(match class.as_str() {
            "connect-refused" => Some("nothing listens there: check the port, or start the server"),
            "connect-timeout" => Some(NO_ANSWER),
            "unreachable" => Some("there is no route to it: check the address"),
            "local-fds" => Some("raise the limit of open files: ulimit -n"),
            _ => None,
        });
        match advice {
            Some(advice) => format!("{subject}: {outcome} ({class}: {words}): {advice}"),
            None => format!("{subject}: {outcome} ({class}: {words})"),
        }
    }
}

/// Advice where a target does not answer at all.
pub(crate) const NO_ANSWER: &str = "nothing answers there: check address and firewall, or its accept queue is full (`ss -lnt`); or raise --timeout";

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, addresses: &[&str], used: &str) -> Resolved {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        Resolved { name: name.to_owned(), addresses, used: used.to_owned() }
    }

    fn to(typed: &str, resolved: &[Resolved]) -> Target {
        let mut target = Target::of_to(typed).unwrap();
        target.take(resolved);
        target
    }

    #[test]
    fn an_address_is_known_without_a_look_up() {
        for (typed, address) in [
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("2001:db8::1:443", "[2001:db8::1]:443"),
            ("[fe80::1%3]:9", "[fe80::1%3]:9"),
            ("http://192.0.2.1/a:b", "192.0.2.1:80"),
            ("HTTPS://192.0.2.1", "192.0.2.1:443"),
            ("http://[2001:db8::1]/", "[2001:db8::1]:80"),
            ("redis://192.0.2.1:6379/0", "192.0.2.1:6379"),
        ] {
            let target = to(typed, &[]);
            assert_eq!(target.address().unwrap().to_string(), address);
            assert_eq!(target.resolve(&[]).unwrap(), None);
        }
    }

    #[test]
    fn a_server_without_a_port_is_told_so() {
        for typed in ["192.0.2.1", "redis://192.0.2.1/", "[2001:db8::1]"] {
            let error = Target::of_to(typed).unwrap_err().to_string();
            assert!(error.contains("it has no port; write HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn a_name_has_the_address_that_was_recorded_and_no_other() {
        let known = [
            entry("db.example:5432", &["2001:db8::1", "192.0.2.7"], "192.0.2.7"),
            entry("near.example:1", &["fe80::1%3"], "fe80::1%3"),
        ];
        let target = to("DB.example:5432", &known);
        assert_eq!(target.address().unwrap().to_string(), "192.0.2.7:5432");
        // Nothing in this test may be asked for: `.example` has no address.
        assert_eq!(target.resolve(&known).unwrap().as_ref(), Some(&known[0]));
        assert_eq!(to("near.example:1", &known).address().unwrap().to_string(), "[fe80::1%3]:1");
        assert!(to("db.example:5433", &known).address().is_err());
        let other_port = to("db.example:5433", &[]).resolve(&known).unwrap().unwrap();
        assert_eq!(
            (other_port.name.as_str(), &other_port.used),
            ("db.example:5433", &known[0].used)
        );
        let url = "http://db.example:5432/x".parse().unwrap();
        let mut target = Target::of_url(&url, "http://db.example:5432/x");
        target.take(&known);
        assert_eq!(target.address().unwrap().to_string(), "192.0.2.7:5432");
    }

    #[test]
    fn a_recorded_address_that_cannot_be_read_is_refused_and_not_replaced() {
        let known = [entry("db.example:5432", &["here"], "here")];
        let target = to("db.example:5432", &known);
        assert!(target.address().is_err());
        let error = target.resolve(&known).unwrap_err().to_string();
        assert_eq!(error, "--to db.example:5432: the record holds `here`, not an IP address");
    }

    #[test]
    fn a_name_is_taken_as_public_until_its_address_is_known() {
        assert!(to("db.example:5432", &[]).seems_public());
        assert!(to("192.0.2.1:80", &[]).seems_public());
        let private = [entry("db.example:5432", &["10.0.0.1"], "10.0.0.1")];
        assert!(!to("db.example:5432", &private).seems_public());
        for typed in ["localhost:1", "LOCALHOST.:1", "a.localhost:1", "127.0.0.1:1", "[::1]:1"] {
            assert!(!to(typed, &[]).seems_public(), "{typed}");
        }
    }

    #[test]
    fn localhost_resolves_to_this_machine_and_ipv4_is_used_first() {
        let resolved = to("localhost:80", &[]).resolve(&[]).unwrap().unwrap();
        assert_eq!((resolved.name.as_str(), resolved.used.as_str()), ("localhost:80", "127.0.0.1"));
        assert!(resolved.addresses.contains(&resolved.used));
    }

    fn sentence(classes: &[(&str, u64)], own: &[(&str, &str)]) -> String {
        let errors = classes.iter().map(|(class, count)| ((*class).to_owned(), *count)).collect();
        let first_errors = [("connect-refused".to_owned(), "Connection refused".to_owned())].into();
        Unreached {
            subject: "--to db.example:1".to_owned(),
            operation: "connection",
            outcome: "no connection could be opened".to_owned(),
            errors: &errors,
            first_errors: &first_errors,
        }
        .sentence(own)
    }

    #[test]
    fn the_most_frequent_failure_is_named_with_its_words_and_what_to_do() {
        assert_eq!(
            sentence(&[("connect-refused", 2), ("unreachable", 1)], &[]),
            "--to db.example:1: no connection could be opened (connect-refused: Connection refused): \
             nothing listens there: check the port, or start the server"
        );
        let own = [("unreachable", "look here")];
        assert!(sentence(&[("unreachable", 1)], &own).ends_with("(unreachable: ): look here"));
        assert_eq!(sentence(&[], &own), "--to db.example:1: no connection was started");
    }
}
