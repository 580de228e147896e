//! What to do about an error of the class that was most frequent, as far as its words tell.

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
