//! Which status codes count as success, and what to do about an error of the class that was most
//! frequent, as far as its words tell.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::UnitError;

/// Codes from the first to the second, both included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected(Vec<(u16, u16)>);

impl Default for Expected {
    /// 2xx and 3xx.
    fn default() -> Self {
        Self(vec![(200, 399)])
    }
}

impl Expected {
    /// Whether this code is a success.
    pub fn has(&self, status: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&status))
    }
}

impl FromStr for Expected {
    type Err = UnitError;

    /// Reads `200`, `2xx`, or several with `+` between: `2xx+404`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const REMEDY: &str =
            "write a code or a class, or several with + between: 200, 2xx, 2xx+404";
        let wrong = || UnitError::new(text, "is not a status code", REMEDY);
        let one = |part: &str| -> Option<(u16, u16)> {
            if let Some(class) = part.strip_suffix("xx") {
                let class: u16 = class.parse().ok().filter(|class| (2..=9).contains(class))?;
                return Some((class * 100, class * 100 + 99));
            }
            let code: u16 = part.parse().ok().filter(|code| (200..=999).contains(code))?;
            Some((code, code))
        };
        text.split('+')
            .map(|part| one(part.trim()).ok_or_else(wrong))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// What the words of rustls and of the parser of responses mean, and what to write then.
const REASONS: [(&str, &str, &str); 9] = [
    (
        "tls",
        "CaUsedAsEndEntity",
        "the certificate is an authority's and not a server's: make one with basicConstraints=CA:FALSE, or write --insecure",
    ),
    (
        "tls",
        "NotValidForName",
        "the certificate is for another name: write that name, or --insecure",
    ),
    (
        "tls",
        "not valid for name",
        "the certificate is for another name: write that name, or --insecure",
    ),
    ("tls", "xpired", "the certificate has expired: renew it, or write --insecure"),
    (
        "tls",
        "invalid peer certificate",
        "the certificate is not trusted: write --ca FILE with its authority, or --insecure",
    ),
    ("tls", "corrupt message", "the server does not speak TLS there: write http:// for https://"),
    ("malformed", "TLS", "the server speaks TLS there: write https:// for http://"),
    (
        "timeout",
        "TLS handshake",
        "if the server speaks plain HTTP there, write http:// for https://",
    ),
    // nginx and Apache answer so, each with other words in the body.
    (
        "status",
        "status 400",
        "plain HTTP to a TLS port is answered so: if it is one, write https://",
    ),
];

/// ` (the first: invalid peer certificate: UnknownIssuer); the certificate is not trusted: write …`
///
/// `words`: of the first error of this class. Empty: it says nothing more than its class.
#[must_use]
pub fn reason(class: &str, words: Option<&str>) -> String {
    let Some(words) = words else { return String::new() };
    let known =
        REASONS.iter().find(|(known_class, part, _)| *known_class == class && words.contains(part));
    match known {
        Some((_, _, advice)) => format!(" (the first: {words}); {advice}"),
        None if matches!(class, "tls" | "malformed") => format!(" (the first: {words})"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_classes_may_be_added() {
        let expected: Expected = "2xx+404".parse().unwrap();
        assert_eq!(
            [200, 299, 300, 404, 405].map(|code| expected.has(code)),
            [true, true, false, true, false]
        );
        assert!(Expected::default().has(304) && !Expected::default().has(404));
        for text in ["", "2x", "99", "1xx", "200,404", "abc"] {
            assert!(text.parse::<Expected>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_failed_handshake_says_what_to_write() {
        let tls = |words| reason("tls", Some(words));
        let untrusted = tls("invalid peer certificate: UnknownIssuer");
        assert!(
            untrusted.starts_with(" (the first: invalid peer certificate: UnknownIssuer); the")
        );
        assert!(untrusted.contains("--ca FILE") && untrusted.contains("--insecure"));
        assert!(tls("received corrupt message of type InvalidContentType").contains("http://"));
        assert!(tls("invalid peer certificate: Expired").contains("expired"));
        let name = "invalid peer certificate: certificate not valid for name \"a\"";
        assert!(tls(name).contains("another name"));
        let plain = reason("malformed", Some("a TLS record came instead of a status line"));
        assert!(plain.contains("https://"), "{plain}");
        let silent = reason("timeout", Some("no answer to the TLS handshake in time"));
        assert!(silent.ends_with("plain HTTP there, write http:// for https://"), "{silent}");
        assert!(reason("status", Some("status 400")).ends_with("write https://"));
        assert_eq!(reason("status", Some("status 503")), "");
        assert_eq!(reason("timeout", Some("no answer in time")), "");
        assert_eq!(reason("tls", None), "");
    }
}
