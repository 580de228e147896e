//! Requests of an access log, in common and combined format.
//!
//! `HOST IDENT USER [TIME] "REQUEST" STATUS BYTES`, and in the combined format `"REFERER" "AGENT"`
//! after it; further fields, which many servers are told to write, are passed over. What a log
//! holds came from strangers: a request is kept only if it can be nothing but one request line.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// One request of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `GET` or `HEAD`; others are not replayed.
    pub method: String,
    /// Origin form: begins with `/`, visible ASCII only.
    pub path: String,
}

/// A log, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Requests in the order of the log.
    pub entries: Vec<Entry>,
    /// Lines with another method: they would need a body that the log does not have.
    pub other_methods: u64,
    /// Lines that are in neither format, or hold bytes that no request line may have.
    pub unreadable: u64,
    /// Requests after the first [`ENTRIES_MAX`]: good ones, but not kept.
    pub left_out: u64,
}

/// Most requests of a log.
pub const ENTRIES_MAX: usize = 1_000_000;

/// Longest line that is read, bytes; longer ones are unreadable.
pub const LINE_MAX: usize = 64 << 10;

/// Reads a log. Lines end in LF or CRLF; empty ones do not count.
pub fn read(text: &[u8]) -> Log {
    read_up_to(text, ENTRIES_MAX)
}

/// Lines that are not empty, without their ends.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty())
}

fn read_up_to(text: &[u8], entries_max: usize) -> Log {
    let mut log = Log::default();
    for line in lines(text) {
        match parse(line) {
            None => log.unreadable += 1,
            Some(Request::Other) => log.other_methods += 1,
            Some(Request::Kept(_)) if log.entries.len() >= entries_max => log.left_out += 1,
            Some(Request::Kept(entry)) => log.entries.push(entry),
        }
    }
    log
}

/// A page view or a file of it, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// Address and program of the visitor, hashed: the same number for the same two.
    pub visitor: u64,
    /// When, seconds since 1970.
    pub at_s: i64,
    /// Origin form, as in [`Entry`].
    pub path: String,
    /// Status of the response.
    pub status: u16,
    /// Content of the response. None: the log has none.
    pub bytes: Option<u64>,
    /// Whether its program calls itself a robot or a script.
    pub robot: bool,
}

/// A log, read for who came and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// `GET` requests in the order of the log, at most [`ENTRIES_MAX`].
    pub hits: Vec<Hit>,
    /// Lines in neither format, or without a time.
    pub unreadable: u64,
    /// Requests after the first [`ENTRIES_MAX`].
    pub left_out: u64,
}

/// Reads a log for who came and when. Other methods than `GET` are passed over.
pub fn hits(text: &[u8]) -> Hits {
    let mut hits = Hits::default();
    for line in lines(text) {
        match hit(line) {
            Err(Passed::Unreadable) => hits.unreadable += 1,
            Err(Passed::OtherMethod) => {}
            Ok(_) if hits.hits.len() >= ENTRIES_MAX => hits.left_out += 1,
            Ok(hit) => hits.hits.push(hit),
        }
    }
    hits
}

/// Words in the names of programs that are no visitors.
const ROBOTS: [&str; 11] = [
    "bot/", "bot;", "crawl", "spider", "slurp", "curl/", "wget/", "python", "monitor", "preview",
    "go-http",
];

/// Why a line is no hit.
enum Passed {
    /// It is in neither format, or has no time.
    Unreadable,
    /// It is no `GET`.
    OtherMethod,
}

fn hit(line: &[u8]) -> Result<Hit, Passed> {
    let fields = fields(line).ok_or(Passed::Unreadable)?;
    let entry = match request_line(&fields.request).ok_or(Passed::Unreadable)? {
        Request::Kept(entry) if entry.method == "GET" => entry,
        Request::Kept(_) | Request::Other => return Err(Passed::OtherMethod),
    };
    fields.hit(entry.path).ok_or(Passed::Unreadable)
}

enum Request {
    Kept(Entry),
    Other,
}

/// The fields of a line, as they stand there.
struct Fields<'a> {
    host: &'a [u8],
    time: &'a [u8],
    /// Without its escapes.
    request: Vec<u8>,
    status: &'a [u8],
    bytes: &'a [u8],
    /// From the blank after the bytes.
    rest: &'a [u8],
}

impl Fields<'_> {
    /// A request of this path. None: a field is not what it should be.
    fn hit(&self, path: String) -> Option<Hit> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let at = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", self.time).ok()?;
        let agent = self.agent().unwrap_or_default();
        let program = text(&agent).to_ascii_lowercase();
        let mut hasher = DefaultHasher::new();
        (self.host, &agent).hash(&mut hasher);
        Some(Hit {
            visitor: hasher.finish(),
            at_s: at.to_timestamp().ok()?.as_second(),
            path,
            status: text(self.status).parse().ok()?,
            bytes: text(self.bytes).parse().ok(),
            robot: ROBOTS.iter().any(|word| program.contains(word)),
        })
    }

    /// The program of the visitor: the second text after the bytes.
    fn agent(&self) -> Option<Vec<u8>> {
        let (_referer, rest) = quoted(self.rest.strip_prefix(b" \"")?)?;
        let (agent, _) = quoted(rest.strip_prefix(b" \"")?)?;
        Some(agent)
    }
}

fn parse(line: &[u8]) -> Option<Request> {
    request_line(&fields(line)?.request)
}

fn fields(line: &[u8]) -> Option<Fields<'_>> {
    if line.len() > LINE_MAX {
        return None;
    }
    let (host, rest) = word(line)?;
    let (_ident, rest) = word(rest)?;
    // A user's name may have blanks in it; the time has none of these marks.
    let at = find(rest, b" [")?;
    let rest = &rest[at + 2..];
    let end = find(rest, b"] \"")?;
    let (time, rest) = (&rest[..end], &rest[end + 3..]);
    let (request, rest) = quoted(rest)?;
    let (status, rest) = word(rest.strip_prefix(b" ")?)?;
    let bytes = rest.split(|&byte| byte == b' ').next()?;
    let is_number = |text: &[u8]| text == b"-" || text.iter().all(u8::is_ascii_digit);
    if status.len() > 3 || !is_number(status) || bytes.is_empty() || !is_number(bytes) {
        return None;
    }
    Some(Fields { host, time, request, status, bytes, rest: &rest[bytes.len()..] })
}

/// `METHOD target HTTP/x.y`, one blank between.
fn request_line(line: &[u8]) -> Option<Request> {
    let mut parts = line.split(|&byte| byte == b' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !is_version(version) {
        return None;
    }
    if !matches!(method, b"GET" | b"HEAD") {
        let is_method = !method.is_empty() && method.iter().all(u8::is_ascii_graphic);
        return is_method.then_some(Request::Other);
    }
    let target = origin_form(target)?;
    if !target.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(Request::Kept(Entry { method: text(method)?, path: text(target)? }))
}

/// A target from its path on: a proxy logs the absolute form (RFC 9112, section 3.2.2). None: it is neither.
fn origin_form(target: &[u8]) -> Option<&[u8]> {
    if target.first() == Some(&b'/') {
        return Some(target);
    }
    let scheme =
        [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| target.strip_prefix(scheme));
    let authority = scheme.filter(|rest| !matches!(rest.first(), None | Some(b'/')))?;
    match authority.iter().position(|byte| b"/?".contains(byte)) {
        Some(at) => Some(&authority[at..]).filter(|path| path.first() == Some(&b'/')),
        // Without a path, that of the root is asked for.
        None => Some(b"/"),
    }
}

/// `HTTP/1.1`, and `HTTP/2` too: the request is replayed in HTTP/1 whatever it was sent in.
fn is_version(text: &[u8]) -> bool {
    match text.strip_prefix(b"HTTP/") {
        Some([major]) => major.is_ascii_digit(),
        Some([major, b'.', minor]) => major.is_ascii_digit() && minor.is_ascii_digit(),
        _ => false,
    }
}

/// What stands before the first blank, and after it; neither is empty.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&byte| byte == b' ')?;
    (end > 0).then(|| (&text[..end], &text[end + 1..]))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// The bytes up to the closing quote, as they were before the server escaped them, and the rest.
///
/// Apache writes `\"`, `\\`, `\n` and `\xHH`, nginx `\xHH` alone.
fn quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut plain = Vec::new();
    let mut rest = text;
    loop {
        let byte;
        (byte, rest) = match rest {
            [b'"', after @ ..] => return Some((plain, after)),
            [b'\\', b'x', high, low, after @ ..] => {
                let digit = |byte: u8| (byte as char).to_digit(16);
                ((digit(*high)? << 4 | digit(*low)?) as u8, after)
            }
            [b'\\', mark @ (b'"' | b'\\'), after @ ..] => (*mark, after),
            [b'\\', b'b' | b'n' | b'r' | b't' | b'v', after @ ..] => (b'\n', after), // none is kept
            [b'\\', ..] | [] => return None,
            [byte, after @ ..] => (*byte, after),
        };
        plain.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(method: &str, path: &str) -> Entry {
        Entry { method: method.to_owned(), path: path.to_owned() }
    }

    /// A line around this request.
    fn around(request: &str) -> Vec<u8> {
        format!("192.0.2.7 - - [10/Oct/2025:13:55:36 +0200] \"{request}\" 200 512\n").into_bytes()
    }

    #[test]
    fn common_and_combined_lines_are_read_in_order() {
        let text = concat!(
            "127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /apache_pb.gif HTTP/1.0\" 200 2326\n",
            "2001:db8::7 - - [22/Nov/2025:03:00:01 +0000] \"HEAD /?q=a%20b&c=[1] HTTP/2.0\" 304 0 \"-\" \"curl/8.9.1\"\r\n",
            "\n",
            "192.0.2.1 - a b [22/Nov/2025:03:00:02 +0000] \"GET /a HTTP/1.1\" 200 - \"http://x/\\\"\" \"Mozilla/5.0 (X11) \\\"\" \"-\" 0.004\n",
            "192.0.2.1 - - [22/Nov/2025:03:00:02 +0000] \"POST /form HTTP/1.1\" 201 17 \"-\" \"-\"\n",
            "192.0.2.1 - - [22/Nov/2025:03:00:02 +0000] \"OPTIONS * HTTP/1.1\" 200 -\n",
            "192.0.2.1 - - [22/Nov/2025:03:00:03 +0000] \"GET /last HTTP/3\" 499 0",
        );
        let log = read(text.as_bytes());
        assert_eq!(
            log.entries,
            [
                entry("GET", "/apache_pb.gif"),
                entry("HEAD", "/?q=a%20b&c=[1]"),
                entry("GET", "/a"),
                entry("GET", "/last"),
            ]
        );
        assert_eq!((log.other_methods, log.unreadable, log.left_out), (2, 0, 0));
    }

    #[test]
    fn hits_have_their_time_their_visitor_and_their_size() {
        let text = concat!(
            "192.0.2.1 - - [22/Nov/2025:03:00:02 +0100] \"GET /a?b HTTP/1.1\" 200 512 \"-\" \"Mozilla/5.0\"\n",
            "192.0.2.1 - - [22/Nov/2025:02:00:03 +0000] \"GET /c.css HTTP/1.1\" 304 - \"-\" \"Mozilla/5.0\"\n",
            "192.0.2.1 - - [22/Nov/2025:02:00:03 +0000] \"GET / HTTP/1.1\" 200 9 \"-\" \"Googlebot/2.1\"\n",
            "192.0.2.1 - - [22/Nov/2025:02:00:03 +0000] \"POST / HTTP/1.1\" 200 9 \"-\" \"x\"\n",
            "192.0.2.1 - - [32/Nov/2025:02:00:03 +0000] \"GET / HTTP/1.1\" 200 9 \"-\" \"x\"\n",
            "192.0.2.9 - - [22/Nov/2025:02:00:04 +0000] \"GET / HTTP/1.1\" 200 9\n",
        );
        let read = hits(text.as_bytes());
        assert_eq!((read.hits.len(), read.unreadable, read.left_out), (4, 1, 0));
        let [a, b, robot, plain] = &read.hits[..] else { panic!() };
        assert_eq!((a.at_s, b.at_s), (1_763_776_802, 1_763_776_803), "in one time zone");
        assert_eq!((a.path.as_str(), a.status, a.bytes), ("/a?b", 200, Some(512)));
        assert_eq!((b.status, b.bytes), (304, None));
        assert_eq!(a.visitor, b.visitor);
        assert_ne!(a.visitor, robot.visitor);
        assert!(robot.robot && !a.robot && !plain.robot);
    }

    #[test]
    fn of_an_absolute_target_the_path_is_kept() {
        let log = read(
            &[&around("GET http://x:80/a?b HTTP/1.1")[..], &around("GET https://x HTTP/1.1")]
                .concat(),
        );
        assert_eq!(log.entries, [entry("GET", "/a?b"), entry("GET", "/")]);
    }

    #[test]
    fn escapes_are_undone() {
        let log = read(&around(r#"GET /a\"b\\c\x22d HTTP/1.1"#));
        assert_eq!(log.entries, [entry("GET", r#"/a"b\c"d"#)]);
    }

    #[test]
    fn what_could_be_more_than_one_request_line_is_unreadable() {
        let hostile = [
            r"GET /a\r\nX: y HTTP/1.1",
            r"GET /a\x0d\x0aX:y HTTP/1.1",
            r"GET /a\x20HTTP/1.1\x0d\x0a HTTP/1.1",
            r"GET /a\x00 HTTP/1.1",
            r"GET /a\t HTTP/1.1",
            r"GET /\xc3\xa9 HTTP/1.1",
            "GET /é HTTP/1.1",
            "GET /a\rb HTTP/1.1",
            "GET /a\x7f HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET  /a HTTP/1.1",
            "GET a HTTP/1.1",
            "GET http:///a HTTP/1.1",
            "GET http://x?/a HTTP/1.1",
            "GET ftp://x/a HTTP/1.1",
            "GET * HTTP/1.1",
            "GET /a",
            "GET /a HTTP/1.1 ",
            "GET /a HTTP/11",
            "GET /a FTP/1.1",
            r"\x16\x03\x01\x02",
            r"GET /a\xzz HTTP/1.1",
            r"GET /a\q HTTP/1.1",
            " /a HTTP/1.1",
            "-",
            "",
        ];
        for request in hostile {
            let log = read(&around(request));
            assert_eq!(
                (log.entries.len(), log.other_methods, log.unreadable),
                (0, 0, 1),
                "{request}"
            );
        }
        for line in [
            "GET / HTTP/1.1",
            "192.0.2.7 - - [10/Oct/2025:13:55:36 +0200] \"GET /a HTTP/1.1",
            "192.0.2.7 - - [10/Oct/2025:13:55:36 +0200] \"GET /a HTTP/1.1\"",
            "192.0.2.7 - - [10/Oct/2025:13:55:36 +0200] \"GET /a HTTP/1.1\" 200",
            "192.0.2.7 - - [10/Oct/2025:13:55:36 +0200] \"GET /a HTTP/1.1\" ok 5",
            "192.0.2.7 - - \"GET /a HTTP/1.1\" 200 5",
            "{\"request\":\"GET / HTTP/1.1\"}",
            "[] \"\"",
        ] {
            assert_eq!(read(line.as_bytes()).unreadable, 1, "{line}");
        }
    }

    #[test]
    fn long_lines_and_long_logs_have_an_end() {
        let long = |length: usize| around(&format!("GET /{} HTTP/1.1", "a".repeat(length)));
        let around = long(0).len() - 1;
        assert_eq!(read(&long(LINE_MAX - around)).entries.len(), 1);
        assert_eq!(read(&long(LINE_MAX - around + 1)).unreadable, 1);
        let log = read_up_to(&long(1).repeat(5), 3);
        assert_eq!((log.entries.len(), log.left_out), (3, 2));
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_what_is_kept_is_safe(
            text in prop::collection::vec(any::<u8>(), 0..200),
            request in concat!(
                "(GET |HEAD )?/?",
                r#"([ -~]|\\[xrntq"]|[\x00-\x1f]|é|\\x[0-9a-f]{2}){0,20}"#,
                r"( HTTP/1\.[01])?",
            ),
        ) {
            for text in [text, around(&request)] {
                prop_assert!(hits(&text).hits.iter().all(|hit| hit.path.starts_with('/')));
                for entry in read(&text).entries {
                    prop_assert!(matches!(entry.method.as_str(), "GET" | "HEAD"));
                    prop_assert!(entry.path.starts_with('/'));
                    prop_assert!(entry.path.bytes().all(|byte| byte.is_ascii_graphic()));
                }
            }
        }

        #[test]
        fn a_request_that_was_written_is_read(path in "/[!#-\\[\\]-~]{0,40}", user in "[a-z ]{1,9}") {
            let line = format!("h - {user} [t] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"-\"");
            prop_assert_eq!(read(line.as_bytes()).entries, [entry("GET", &path)]);
        }
    }
}
