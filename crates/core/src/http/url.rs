//! `http://HOST:PORT/PATH`, as far as a load needs it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::units::UnitError;

/// A URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// `https`.
    pub tls: bool,
    /// Host name in lower case, or address without brackets.
    pub host: String,
    /// Port: 80 or 443 unless given.
    pub port: u16,
    /// Path and query; begins with `/`, visible ASCII only.
    pub path: String,
}

impl Url {
    /// A URL as people type it: a server without a scheme is asked by http, as curl does.
    ///
    /// Errors: those of reading a URL. A word alone, like `ms`, is not taken for a server.
    pub fn typed(text: &str) -> Result<Self, UnitError> {
        let end = text.find(['/', '?', '#']).unwrap_or(text.len());
        let (authority, rest) = text.split_at(end);
        let has_scheme = authority.ends_with(':') && rest.starts_with("//");
        let is_server = authority.contains([':', '.'])
            || authority.eq_ignore_ascii_case("localhost")
            || (!authority.is_empty() && rest.starts_with('/'));
        if is_server && !has_scheme { format!("http://{text}").parse() } else { text.parse() }
    }

    /// What stands in the `Host` field: the port only where it is not the scheme's own.
    pub fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.tls) { host } else { format!("{host}:{}", self.port) }
    }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// Longest host name (RFC 1035, section 2.3.4) and its longest part.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

impl FromStr for Url {
    type Err = UnitError;

    /// Reads a URL; its fragment is dropped, as it is never sent.
    ///
    /// Errors: another scheme, a user or a password, no host or port that could be one, bytes that
    /// no request line may have.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const REMEDY: &str = "write http://HOST:PORT/PATH or https://HOST:PORT/PATH";
        let wrong =
            |problem: &'static str, remedy: &str| Err(UnitError::new(text, problem, remedy));
        let (tls, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => return wrong("is neither http nor https", REMEDY),
            None => return wrong("has no scheme", REMEDY),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if let Some((_, host)) = authority.rsplit_once('@') {
            // The message does not repeat a password.
            let shown = format!("{}://…@{host}{target}", if tls { "https" } else { "http" });
            let remedy = "write http://HOST:PORT/PATH, and the credentials as a header";
            return Err(UnitError::new(&shown, "has a user name", remedy));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let remedy = "write it percent-encoded in the path, like %20, and a host name as xn--…";
            return wrong("has a blank, a control character or a non-ASCII character", remedy);
        }
        let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
            let (address, after) = rest.split_once(']').unwrap_or((rest, "]"));
            let Ok(address) = address.parse::<Ipv6Addr>() else {
                return wrong(
                    "has no IPv6 address in its brackets",
                    "write http://[::1]:PORT/PATH",
                );
            };
            (address.to_string(), after)
        } else {
            let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            if port.matches(':').count() > 1 {
                let remedy = "write an IPv6 address in brackets: http://[::1]:PORT/PATH";
                return wrong("has more than one port", remedy);
            }
            if !is_host(name) {
                return wrong("has no host name or address", REMEDY);
            }
            (name.to_ascii_lowercase(), port)
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => default_port(tls),
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                match digits.parse() {
                    Ok(port @ 1..) => port,
                    _ => return wrong("has no port from 1 to 65535", REMEDY),
                }
            }
            _ => return wrong("has no port from 1 to 65535", REMEDY),
        };
        let target = target.split('#').next().unwrap_or_default();
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(Self { tls, host, port, path: format!("{slash}{target}") })
    }
}

/// A host name, or an IPv4 address in its four numbers: what looks like one has to be one.
fn is_host(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_part = |part: &str| {
        (1..=LABEL_MAX).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<Ipv4Addr>().is_ok();
    }
    name.len() <= NAME_MAX && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_parts_of_a_url_are_read() {
        let cases = [
            ("http://localhost", (false, "localhost", 80, "/", "localhost")),
            ("http://localhost:80/", (false, "localhost", 80, "/", "localhost")),
            ("https://example.org/a?b=c#d", (true, "example.org", 443, "/a?b=c", "example.org")),
            ("https://example.org:80", (true, "example.org", 80, "/", "example.org:80")),
            (
                "HTTP://Example.ORG.:8080?q",
                (false, "example.org.", 8080, "/?q", "example.org.:8080"),
            ),
            ("http://192.0.2.1:65535/%20", (false, "192.0.2.1", 65535, "/%20", "192.0.2.1:65535")),
            ("http://[::1]:8080/a@b:c", (false, "::1", 8080, "/a@b:c", "[::1]:8080")),
            ("https://[2001:DB8::0:7]#x", (true, "2001:db8::7", 443, "/", "[2001:db8::7]")),
            ("http://my_host-1/a//b/../c", (false, "my_host-1", 80, "/a//b/../c", "my_host-1")),
        ];
        for (text, (tls, host, port, path, authority)) in cases {
            let url: Url = text.parse().unwrap();
            let expected = Url { tls, host: host.to_owned(), port, path: path.to_owned() };
            assert_eq!(url, expected, "{text}");
            assert_eq!(url.authority(), authority, "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_told_what_to_write() {
        let cases = [
            ("localhost:8080/", "has no scheme"),
            ("", "has no scheme"),
            ("ftp://host/", "is neither http nor https"),
            ("http:// host/", "has a blank"),
            ("http://host/a b", "has a blank"),
            ("http://host/\r\nX: y", "has a blank"),
            ("http://h\u{f6}st/", "has a blank"),
            ("http://host/\u{e9}", "has a blank"),
            ("http://", "has no host name"),
            ("http:///path", "has no host name"),
            ("http://:80/", "has no host name"),
            ("http://a..b/", "has no host name"),
            ("http://a,b/", "has no host name"),
            ("http://a%41/", "has no host name"),
            ("http://1.2.3/", "has no host name"),
            ("http://1.2.3.256/", "has no host name"),
            ("http://host:0/", "has no port"),
            ("http://host:65536/", "has no port"),
            ("http://host:/", "has no port"),
            ("http://host:+80/", "has no port"),
            ("http://[::1]80/", "has no port"),
            ("http://::1/", "has more than one port"),
            ("http://[::1/", "has no port"),
            ("http://[1.2.3.4]/", "has no IPv6"),
            ("http://[fe80::1%eth0]/", "has no IPv6"),
        ];
        for (text, problem) in cases {
            let error = text.parse::<Url>().unwrap_err();
            assert!(error.problem().contains(problem), "{text}: {error}");
            assert!(error.remedy().starts_with("write "), "{error}");
        }
        let long = format!("http://{}/", "a".repeat(64));
        assert!(long.parse::<Url>().is_err());
    }

    #[test]
    fn a_server_without_a_scheme_is_asked_by_http() {
        for (text, url) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
            ("localhost", "http://localhost/"),
            ("example.org?u=ftp://x", "http://example.org/?u=ftp://x"),
            ("[::1]:80/a", "http://[::1]/a"),
            ("web/a", "http://web/a"),
            ("HTTPS://web", "https://web/"),
        ] {
            assert_eq!(Url::typed(text), url.parse(), "{text}");
        }
        for (text, problem) in [
            ("ms", "has no scheme"),
            ("/index.html", "has no scheme"),
            ("ftp://web", "is neither http nor https"),
            ("web:0", "has no port"),
        ] {
            assert!(Url::typed(text).unwrap_err().problem().contains(problem), "{text}");
        }
        let error = Url::typed("me:secret@host").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        let error = "http://me:secret@host/".parse::<Url>().unwrap_err().to_string();
        assert!(error.contains("has a user name") && !error.contains("secret"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_what_is_kept_is_safe(
            text in "(http://)?([a-z0-9.:/?#@\\[\\]]|.|\\s){0,30}",
        ) {
            if let Ok(url) = text.parse::<Url>() {
                let safe = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
                prop_assert!(url.path.starts_with('/') && safe(&url.path));
                prop_assert!(!url.path.contains('#'));
                prop_assert!(safe(&url.authority()) && url.port > 0);
                let scheme = if url.tls { "https" } else { "http" };
                let again = format!("{scheme}://{}{}", url.authority(), url.path);
                prop_assert_eq!(again.parse::<Url>(), Ok(url));
            }
        }
    }
}
