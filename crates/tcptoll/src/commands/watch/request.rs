//! What a scraper asks for: bytes in, a request or a refusal out.

use std::net::IpAddr;

use httparse::{EMPTY_HEADER, Error, Header, Status};

use tcptoll_live::metrics::MetricsFormat;

/// Bytes of a request's head, at most.
pub(super) const HEAD_MAX: usize = 16 * 1024;
/// Fields of a request's head, at most.
const FIELDS_MAX: usize = 64;
/// What the absolute form of a target begins with.
const SCHEME: &str = "http://";
/// Characters of a host name, at most (RFC 1035).
const HOST_MAX: usize = 253;

/// A request that is answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// HEAD: the answer has no body.
    pub head_only: bool,
    pub target: Target,
    /// Whether the client goes on with this connection.
    pub keep_alive: bool,
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    Index,
    Metrics(MetricsFormat),
}

/// A request that is not answered as asked. The connection is closed afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Status and reason of the answer's first line.
    pub status: &'static str,
    /// One sentence; nothing of the request is repeated in it.
    pub text: &'static str,
}

const fn refusal(status: &'static str, text: &'static str) -> Refusal {
    Refusal { status, text }
}

pub(super) const TOO_LARGE: Refusal = refusal(
    "431 Request Header Fields Too Large",
    "The head of the request is longer than 16 KiB, or has more than 64 fields.",
);
pub(super) const TOO_SLOW: Refusal =
    refusal("408 Request Timeout", "The request did not arrive in time.");
const MALFORMED: Refusal = refusal("400 Bad Request", "This is not an HTTP/1.1 request.");
const VERSION: Refusal =
    refusal("505 HTTP Version Not Supported", "Only HTTP/1.0 and HTTP/1.1 are supported.");
const NO_HOST: Refusal =
    refusal("400 Bad Request", "The request needs exactly one Host field with a host and a port.");
const WRONG_HOST: Refusal = refusal(
    "403 Forbidden",
    "The Host field names another host. Start tcptoll watch with --allow-host HOST to allow it.",
);
const WRONG_METHOD: Refusal =
    refusal("405 Method Not Allowed", "Only GET and HEAD are allowed here.");
const BODY: Refusal = refusal("413 Content Too Large", "A request must not have a body here.");
const NOT_FOUND: Refusal = refusal("404 Not Found", "Only / and /metrics exist here.");

/// Hosts by which the endpoint may be asked: a page that an attacker's name leads here (DNS rebinding)
/// carries the attacker's name.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// `localhost`, and the names that a user allows. None: one of them is no host name; which one is given.
    pub(super) fn new(allowed: &[String]) -> Result<Self, &str> {
        let mut names = vec!["localhost".to_owned()];
        for name in allowed {
            let plain = name.trim_end_matches('.');
            let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let bare = plain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            if let Ok(address) = bare.unwrap_or(plain).parse::<IpAddr>() {
                names.push(address.to_canonical().to_string());
            } else if !plain.is_empty() && plain.len() <= HOST_MAX && plain.chars().all(letter) {
                names.push(plain.to_ascii_lowercase());
            } else {
                return Err(name);
            }
        }
        Ok(Self { names })
    }

    /// Whether a Host field is of this endpoint. `local`: the address that the client connected to.
    /// None: it is no host with a port.
    fn allow(&self, field: &str, local: IpAddr) -> Option<bool> {
        let (host, port) = match field.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => field.split_at(field.find(':').unwrap_or(field.len())),
        };
        let port = if port.is_empty() { "" } else { port.strip_prefix(':')? };
        if host.is_empty() || port.len() > 5 || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let Ok(address) = host.parse::<IpAddr>() else {
            return Some(self.names.contains(&host));
        };
        let address = address.to_canonical();
        let ours = address.is_loopback() || address == local.to_canonical();
        Some(ours || self.names.contains(&address.to_string()))
    }
}

/// The first request of these bytes, and how many bytes it takes. None: more bytes are needed.
///
/// `local`: the address that the client connected to.
pub(super) fn parse(
    bytes: &[u8],
    hosts: &Hosts,
    local: IpAddr,
) -> Option<(Result<Request, Refusal>, usize)> {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(bytes) {
        Ok(Status::Partial) => None,
        Ok(Status::Complete(taken)) => Some((judge(&head, hosts, local), taken)),
        Err(Error::TooManyHeaders) => Some((Err(TOO_LARGE), bytes.len())),
        Err(Error::Version) => Some((Err(VERSION), bytes.len())),
        Err(_) => Some((Err(MALFORMED), bytes.len())),
    }
}

fn judge(
    head: &httparse::Request<'_, '_>,
    hosts: &Hosts,
    local: IpAddr,
) -> Result<Request, Refusal> {
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Err(MALFORMED);
    };
    let mut values = values(head.headers, "host");
    let host = match (values.next(), values.next()) {
        (Some(host), None) => Some(host?),
        (None, None) if version == 0 => None,
        _ => return Err(NO_HOST),
    };
    // A target has no fragment (RFC 9112, 3.2).
    if target.contains('#') {
        return Err(MALFORMED);
    }
    // The absolute form names the host itself, and that name counts alone (RFC 9112, 3.2.2). Its path may be
    // empty, and a query may follow immediately (RFC 3986, 3.2).
    let absolute = target.get(..SCHEME.len()).filter(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
    let (named, path) = if absolute.is_some() {
        let rest = &target[SCHEME.len()..];
        let (named, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        (Some(named), if path.starts_with('/') { path } else { "/" })
    } else {
        (None, target)
    };
    let host = host.map(|host| hosts.allow(host, local).ok_or(NO_HOST)).transpose()?;
    let named = named.map(|named| hosts.allow(named, local).ok_or(NO_HOST)).transpose()?;
    if named.or(host) == Some(false) {
        return Err(WRONG_HOST);
    }
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err(WRONG_METHOD),
    };
    let mut lengths = self::values(head.headers, "content-length");
    if self::values(head.headers, "transfer-encoding").next().is_some()
        || lengths.any(|length| length != Ok("0"))
    {
        return Err(BODY);
    }
    let target = match path.split('?').next() {
        Some("/") => Target::Index,
        Some("/metrics") => Target::Metrics(format(head.headers)),
        _ => return Err(NOT_FOUND),
    };
    let close = self::values(head.headers, "connection").any(|value| {
        let mut words = value.unwrap_or("close").split(',');
        words.any(|word| word.trim().eq_ignore_ascii_case("close"))
    });
    Ok(Request { head_only, target, keep_alive: version == 1 && !close })
}

/// Values of a field; a value that is no UTF-8 is a refusal.
fn values<'a>(
    fields: &'a [Header<'a>],
    name: &'static str,
) -> impl Iterator<Item = Result<&'a str, Refusal>> {
    let all = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    all.map(|field| std::str::from_utf8(field.value).map(str::trim).map_err(|_| MALFORMED))
}

/// `OpenMetrics` where it is asked for, and not less than text; else the text format that all versions read.
fn format(fields: &[Header<'_>]) -> MetricsFormat {
    let (mut open, mut text) = (0.0_f32, 0.0_f32);
    for range in values(fields, "accept").flatten().flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut known) = (1.0, true);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim_matches('"');
            match name.to_ascii_lowercase().as_str() {
                "q" => quality = value.parse().unwrap_or(0.0),
                "version" => known = matches!(value, "0.0.1" | "1.0.0" | "0.0.4"),
                _ => {}
            }
        }
        match kind.as_str() {
            "application/openmetrics-text" if known => open = open.max(quality),
            "text/plain" if known => text = text.max(quality),
            _ => {}
        }
    }
    if open > 0.0 && open >= text { MetricsFormat::OpenMetrics } else { MetricsFormat::Classic }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    fn asked(text: &str) -> Result<Request, Refusal> {
        let hosts = Hosts::new(&["metrics.example".to_owned(), "192.0.2.9".to_owned()]).unwrap();
        let (request, taken) = parse(text.as_bytes(), &hosts, LOCAL).expect("the head is complete");
        if request.is_ok() {
            assert_eq!(taken, text.len());
        }
        request
    }

    fn get(fields: &str) -> Result<Request, Refusal> {
        asked(&format!("GET /metrics HTTP/1.1\r\n{fields}\r\n"))
    }

    fn accept(value: &str) -> MetricsFormat {
        match get(&format!("Host: localhost\r\nAccept: {value}\r\n")).unwrap().target {
            Target::Metrics(format) => format,
            Target::Index => panic!("the index"),
        }
    }

    #[test]
    fn openmetrics_is_for_those_who_ask_and_text_for_all_others() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                          version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;\
                     version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for value in [prometheus, newer, "Application/OpenMetrics-Text"] {
            assert_eq!(accept(value), MetricsFormat::OpenMetrics, "{value}");
        }
        for value in [
            "*/*",
            "text/html, */*;q=0.8",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0.1,text/plain;version=0.0.4;q=0.9",
            ";;=,;q",
        ] {
            assert_eq!(accept(value), MetricsFormat::Classic, "{value}");
        }
        let plain = get("Host: localhost\r\n").unwrap();
        assert_eq!(plain.target, Target::Metrics(MetricsFormat::Classic));
    }

    #[test]
    fn only_names_of_this_endpoint_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST.:9464",
            "127.0.0.1:9464",
            "127.3.2.1",
            "[::1]:9464",
            "[::ffff:127.0.0.1]",
            "10.0.0.7:9464",
            "metrics.example:1",
            "Metrics.Example.",
            "192.0.2.9",
        ] {
            assert!(get(&format!("Host: {host}\r\n")).is_ok(), "{host}");
        }
        for host in [
            "rebound.attacker.example:9464",
            "localhost.attacker.example",
            "10.0.0.8",
            "[2001:db8::1]",
            "xmetrics.example",
            "0.0.0.0",
            "127.0.0.1.attacker.example",
        ] {
            assert_eq!(get(&format!("Host: {host}\r\n")), Err(WRONG_HOST), "{host}");
        }
        for host in ["", ":9464", "localhost:", "localhost:http", "localhost:1:2", "[::1", "[::1]x"]
        {
            let got = get(&format!("Host: {host}\r\n"));
            let empty_port = host == "localhost:";
            assert_eq!(got.err(), (!empty_port).then_some(NO_HOST), "{host}");
        }
        assert_eq!(get(""), Err(NO_HOST), "HTTP/1.1 needs one");
        assert_eq!(get("Host: localhost\r\nHost: localhost\r\n"), Err(NO_HOST));
        let absolute =
            |target: &str| asked(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(absolute("http://127.0.0.1:9464/metrics").is_ok());
        for index in [
            "http://127.0.0.1",
            "http://localhost?x",
            "HTTP://localhost:9464?/metrics",
            "http://[::1]/?x",
        ] {
            assert_eq!(absolute(index).unwrap().target, Target::Index, "{index}");
        }
        assert!(matches!(
            absolute("http://localhost/metrics?a/b").unwrap().target,
            Target::Metrics(_)
        ));
        assert_eq!(absolute("http://attacker.example/metrics"), Err(WRONG_HOST));
        assert_eq!(absolute("http://attacker.example?http://localhost/"), Err(WRONG_HOST));
        for none in ["http://?x", "http:///metrics", "http://:9464/"] {
            assert_eq!(absolute(none), Err(NO_HOST), "{none}");
        }
        assert_eq!(absolute("http://localhost#/metrics"), Err(MALFORMED));
        // The name in the target counts, and the field only has to be one (RFC 9112, 3.2.2).
        let with =
            |host: &str| asked(&format!("GET http://localhost/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(with("proxy.example").is_ok());
        assert_eq!(with("[::1"), Err(NO_HOST));
        assert_eq!(absolute("https://127.0.0.1/metrics"), Err(NOT_FOUND));
    }

    #[test]
    fn methods_bodies_and_paths_that_are_not_served_are_refused() {
        let host = "Host: localhost\r\n\r\n";
        for (line, refused) in [
            ("POST /metrics HTTP/1.1", WRONG_METHOD),
            ("OPTIONS * HTTP/1.1", WRONG_METHOD),
            ("CONNECT localhost:22 HTTP/1.1", WRONG_METHOD),
            ("get /metrics HTTP/1.1", WRONG_METHOD),
            ("GET /metrics/ HTTP/1.1", NOT_FOUND),
            ("GET /../etc/passwd HTTP/1.1", NOT_FOUND),
            ("GET //metrics HTTP/1.1", NOT_FOUND),
            ("GET /metrics HTTP/2.0", VERSION),
            ("GET /metrics", MALFORMED),
            ("\u{1b}[2J /metrics HTTP/1.1", MALFORMED),
        ] {
            assert_eq!(asked(&format!("{line}\r\n{host}")), Err(refused), "{line}");
        }
        for field in ["Content-Length: 1", "Content-Length: -1", "Transfer-Encoding: chunked"] {
            assert_eq!(get(&format!("Host: localhost\r\n{field}\r\n")), Err(BODY), "{field}");
        }
        assert!(get("Host: localhost\r\nContent-Length: 0\r\n").is_ok());
        assert_eq!(get("Host : localhost\r\n"), Err(MALFORMED));
        assert_eq!(get("Host: localhost\r\n folded: x\r\n"), Err(MALFORMED));
        let many = "a: b\r\n".repeat(FIELDS_MAX);
        assert_eq!(get(&format!("Host: localhost\r\n{many}")), Err(TOO_LARGE));
    }

    #[test]
    fn connections_are_kept_as_the_version_and_the_client_say() {
        let kept = |text: &str| asked(text).unwrap().keep_alive;
        assert!(kept("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(!kept("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: TE, Close\r\n\r\n"));
        assert!(!kept("GET / HTTP/1.0\r\n\r\n"), "a scraper of HTTP/1.0 need not send a host");
        assert!(asked("HEAD /metrics?x=y HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap().head_only);
    }

    #[test]
    fn what_is_not_whole_is_waited_for_and_what_follows_stays() {
        let hosts = Hosts::new(&[]).unwrap();
        let two = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /metrics HTTP/1.1\r\n";
        let (first, taken) = parse(two, &hosts, LOCAL).unwrap();
        assert_eq!(first.unwrap().target, Target::Index);
        assert_eq!(parse(&two[taken..], &hosts, LOCAL), None);
    }

    #[test]
    fn a_name_that_is_no_host_is_refused_at_the_start() {
        for name in
            ["", "http://x", "x:9464", "x/y", "x y", "*", "münchen", "[::1", &"x".repeat(254)]
        {
            let refused = Hosts::new(&[name.to_owned()]).err().map(str::to_owned);
            assert_eq!(refused.as_deref(), Some(name));
        }
        assert!(Hosts::new(&["[2001:db8::1]".to_owned(), "a-b_c.example.".to_owned()]).is_ok());
    }
}
