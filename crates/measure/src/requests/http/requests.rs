//! Whom `http` asks, a server we do not control or one of the lab, and what for: method, paths, fields,
//! content, or the requests of an access log.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::SPEC;
use crate::kit::TrialError;
use crate::kit::settings::ReuseLimits;
use crate::kit::settings::{LabSpec, SettingsReader, wrong};
use crate::kit::target::Target;
use base64::Engine as _;
use tcptoll_core::http::access_log;
use tcptoll_core::http::url::Url;
use tcptoll_core::study::nearest;
use tcptoll_core::units::parse_size;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::files::{Shared, is_too_large, read_at_most};
use tcptoll_lab::messages::{HttpRequests, ServerKind};

/// Where the two ends stand.
#[derive(Clone, Debug)]
pub(super) enum Ends {
    /// A server we do not control, and what to ask it for: at least one URL, all of one origin.
    Target(Vec<Url>, Target),
    Lab(Box<LabSettings>),
}

/// The lab and its server.
#[derive(Clone, Debug)]
pub(super) struct LabSettings {
    pub spec: LabSpec,
    pub server: LabServer,
    /// What to ask it for; empty: what it says itself.
    pub paths: Vec<String>,
}

/// What answers in the lab.
#[derive(Clone, Debug)]
pub(super) enum LabServer {
    /// A server known by its name.
    Known(KnownServer),
    /// A line for the shell, and its port where it listens on several.
    Command(String, Option<u16>),
}

/// A server known by its name; see [`tcptoll_lab::messages::ServerSpec`].
#[derive(Clone, Debug)]
pub(super) struct KnownServer {
    pub kind: ServerKind,
    /// Whether it is the default, which nobody chose.
    is_default: bool,
    /// Why it is not the one that is the default.
    pub instead: Option<Warning>,
    /// Processes, or threads. None: as many as the connections need.
    pub workers: Option<u64>,
    /// What becomes of idle connections.
    pub kept: ReuseLimits,
    /// Bytes of content of a response.
    pub response_bytes: u64,
    /// Time the route works for.
    pub work: Duration,
    /// Of `listen(2)`.
    pub backlog: Option<u64>,
}

impl LabSettings {
    /// Looks for the server's program on this machine.
    pub(super) fn find_server(&mut self, tls: bool) -> Result<(), TrialError> {
        let LabServer::Known(server) = &mut self.server else { return Ok(()) };
        let may_be_ours = server.is_default && !tls;
        server.instead = self.spec.installed(&mut server.kind, may_be_ours)?;
        Ok(())
    }
}

/// How a study measures several servers.
const SEVERAL_SERVERS: &str =
    "Write an arm for each server:\n  [[arm]]\n  name = \"a\"\n  url = \"http://a.example/\"";

/// One URL. A comma is a byte of its path, so a list of URLs would be one odd path.
fn one_url(text: &str) -> Result<Url, TrialError> {
    let url = Url::typed(text).map_err(|error| wrong("url", text, error))?;
    let path = url.path.to_ascii_lowercase();
    if path.contains(",http://") || path.contains(",https://") {
        let why = format!(
            "in a study a comma does not separate URLs. Separate URLs of one server with blanks. {SEVERAL_SERVERS}"
        );
        return Err(wrong("url", text, why));
    }
    Ok(url)
}

pub(super) fn ends(reader: &SettingsReader<'_>) -> Result<Ends, TrialError> {
    let Some(typed) = reader.typed("url") else { return lab(reader) };
    let urls = typed.split_whitespace().map(one_url).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = urls.first() else {
        return Err(wrong("url", &typed, "write http://HOST:PORT/PATH"));
    };
    let origin = |url: &Url| (url.tls, url.host.clone(), url.port);
    if urls.iter().any(|url| origin(url) != origin(first)) {
        let why =
            format!("the URLs of one arm need the same scheme, host and port. {SEVERAL_SERVERS}");
        return Err(wrong("url", &typed, why));
    }
    let target = Target::of_url(first, &typed);
    Ok(Ends::Target(urls, target))
}

fn lab(reader: &SettingsReader<'_>) -> Result<Ends, TrialError> {
    let spec = LabSpec::from(reader)?;
    let server = server(reader)?;
    let paths = reader.typed("path").unwrap_or_default();
    let paths: Vec<String> = paths.split_whitespace().map(str::to_owned).collect();
    if let Some(wrong_one) = paths.iter().find(|path| !is_path(path)) {
        return Err(wrong("path", wrong_one, "write a path that begins with /"));
    }
    Ok(Ends::Lab(Box::new(LabSettings { spec, server, paths })))
}

/// Whether it may stand in a request line: what a URI is made of (RFC 3986) and no blank.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

fn server(reader: &SettingsReader<'_>) -> Result<LabServer, TrialError> {
    let typed = reader.value("server")?;
    let Some(kind) = ServerKind::named(&typed) else {
        if typed.is_empty() {
            return Err(wrong("server", "''", "write a server's name or a command"));
        }
        for option in SPEC.options.iter().filter(|option| option.depends_on("server")) {
            if let Some(value) = reader.typed(option.name) {
                let why = "it works with servers known by name: with a command, set it in that server's own configuration";
                return Err(wrong(option.name, &value, why));
            }
        }
        let port = reader.typed_count("port", 1, 65_535)?.map(|port| port as u16);
        return Ok(LabServer::Command(typed, port));
    };
    if let Some(port) = reader.typed("port") {
        let why = "it has no effect without --server 'command': leave it out";
        return Err(wrong("port", &port, why));
    }
    let works = SPEC.option("work").is_none_or(|work| work.applies_where("server", &typed));
    if let (false, Some(work)) = (works, reader.typed("work")) {
        let why =
            format!("{typed} answers immediately: leave it out, or write --server puma or null");
        return Err(wrong("work", &work, why));
    }
    Ok(LabServer::Known(KnownServer {
        kind,
        is_default: reader.typed("server").is_none(),
        instead: None,
        workers: match reader.typed_count("workers", 1, 1024)? {
            // A process of prefork serves one connection.
            None if kind == ServerKind::ApachePrefork => None,
            typed => Some(typed.unwrap_or(1)),
        },
        kept: ReuseLimits::from(reader)?,
        response_bytes: reader.read("response", parse_size)?,
        work: reader.time("work")?,
        backlog: reader.typed_count("backlog", 1, i32::MAX as u64)?,
    }))
}

/// Longest content of a request, bytes.
const BODY_MAX: u64 = 1 << 20;

/// Longest access log, bytes.
const LOG_MAX: u64 = 256 << 20;

/// What is asked for, as far as it is known before a server runs.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestSettings {
    /// Of every request that is not of a log.
    pub method: String,
    /// Fields besides `Host` and those that the way of reuse sets.
    pub fields: Vec<(String, String)>,
    /// The `Host` field, if it was given.
    pub host: Option<String>,
    /// Content, if there is any.
    pub body: Option<Body>,
    /// File of requests to repeat, if there is one.
    pub access_log: Option<AccessLog>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body {
    /// As typed.
    Text(Vec<u8>),
    /// The name of a file, and what is in it once it has been read.
    File(String, Option<Rc<Vec<u8>>>),
}

impl Body {
    /// Its bytes, as far as they are known.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(bytes) => bytes,
            Self::File(_, content) => content.as_ref().map_or(&[], |content| content),
        }
    }
}

/// A file of requests to repeat, and what is in it once it has been read.
#[derive(Clone, Debug)]
pub(super) struct AccessLog {
    file: String,
    requests: Option<Rc<Lines>>,
}

impl RequestSettings {
    /// Reads what was typed; files are left to [`Self::read_files`].
    pub(super) fn from(reader: &SettingsReader<'_>, ends: &Ends) -> Result<Self, TrialError> {
        let access_log = reader.typed("access-log");
        if access_log.is_some() {
            check_log(reader, ends)?;
        }
        let access_log = access_log.map(|file| AccessLog { file, requests: None });
        let body = reader.typed("body").map(|typed| body(&typed)).transpose()?;
        let without = |method: &str| matches!(method, "GET" | "HEAD");
        let method = match reader.typed("method") {
            Some(typed) => method(&typed)?,
            None => if body.is_some() { "POST" } else { "GET" }.to_owned(),
        };
        if let (Some(typed), true) = (reader.typed("body"), without(&method)) {
            let why = format!("a {method} request has no content: leave one of them out");
            return Err(wrong("body", &typed, why));
        }
        let mut fields = Vec::new();
        let mut host = None;
        for typed in reader.texts("header") {
            let (name, value) = field(&typed)?;
            if name.eq_ignore_ascii_case("host") {
                host = Some(value);
            } else {
                fields.push((name, value));
            }
        }
        Ok(Self { method, fields, host, body, access_log })
    }

    /// Reads the files that were named.
    ///
    /// Errors: a file cannot be read, is too long, or the log has no request in it.
    pub(super) fn read_files(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        if let Some(Body::File(file, content)) = &mut self.body {
            *content = Some(files.read(file, body_in)?);
        }
        if let Some(AccessLog { file, requests }) = &mut self.access_log {
            *requests = Some(files.read(file, from_log)?);
        }
        Ok(())
    }

    /// The requests, `paths` being what to ask for unless there is a log; with a warning if lines
    /// of the log were left out. The files have been read.
    pub(super) fn all(&self, authority: &str, paths: &[String]) -> (HttpRequests, Option<Warning>) {
        let line = |path: &String| (self.method.clone(), path.clone());
        let log = self.access_log.as_ref().and_then(|log| log.requests.as_deref());
        let (lines, warning) =
            log.cloned().unwrap_or_else(|| (paths.iter().map(line).collect(), None));
        let body = self.body.as_ref().map_or(&[][..], Body::bytes);
        let requests = HttpRequests {
            lines,
            fields: self.fields.clone(),
            authority: self.host.clone().unwrap_or_else(|| authority.to_owned()),
            body: base64::engine::general_purpose::STANDARD.encode(body),
            groups: Vec::new(),
        };
        (requests, warning)
    }
}

fn check_log(reader: &SettingsReader<'_>, ends: &Ends) -> Result<(), TrialError> {
    for key in ["body", "method", "path"] {
        if let Some(typed) = reader.typed(key) {
            let why = "--access-log names the requests: leave one of them out";
            return Err(wrong(key, &typed, why));
        }
    }
    if let Ends::Target(urls, target) = ends
        && (urls.len() > 1 || urls.iter().any(|url| url.path != "/"))
    {
        let why = "--access-log names the paths: write one URL without a path";
        return Err(wrong("url", &target.typed, why));
    }
    Ok(())
}

fn too_long_a_log() -> String {
    format!(
        "it is larger than {} MiB, the limit for a log: shorten it with head or tail",
        LOG_MAX >> 20
    )
}

/// Requests, and a warning if lines were left out.
type Lines = (Vec<(String, String)>, Option<Warning>);

fn from_log(file: &Path) -> Result<Lines, TrialError> {
    let refuse = |why: String| wrong("access-log", &file.display().to_string(), why);
    let text = read_at_most(file, LOG_MAX).map_err(|error| {
        refuse(if is_too_large(&error) { too_long_a_log() } else { error.to_string() })
    })?;
    let log = access_log::read(&text);
    if log.entries.is_empty() {
        let why = "no line of it is a GET or HEAD request in common or combined format";
        return Err(refuse(why.to_owned()));
    }
    let read = log.entries.len() as u64;
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64;
    // What comes after the most that is kept is not looked at.
    let too_many = lines.saturating_sub(read + log.other_methods + log.unreadable);
    let warning = Warning::AccessLogCut {
        kept: read,
        other_methods: log.other_methods,
        unreadable: log.unreadable,
        too_many,
    };
    let cut = log.other_methods + log.unreadable + too_many > 0;
    let lines = log.entries.into_iter().map(|entry| (entry.method, entry.path)).collect();
    Ok((lines, cut.then_some(warning)))
}

/// TEXT as it is, or @FILE.
fn body(typed: &str) -> Result<Body, TrialError> {
    if let Some(file) = typed.strip_prefix('@') {
        return Ok(Body::File(file.to_owned(), None));
    }
    let is_long = typed.len() as u64 > BODY_MAX;
    if is_long { Err(wrong_body(typed, &too_long_a_body())) } else { Ok(Body::Text(typed.into())) }
}

/// The content of the file of `@FILE`.
fn body_in(file: &Path) -> Result<Vec<u8>, TrialError> {
    read_at_most(file, BODY_MAX).map_err(|error| {
        let why = if is_too_large(&error) { too_long_a_body() } else { error.to_string() };
        wrong_body(&format!("@{}", file.display()), &why)
    })
}

fn wrong_body(typed: &str, why: &str) -> TrialError {
    let short: String = typed.chars().take(60).collect();
    wrong("body", &short, why)
}

fn too_long_a_body() -> String {
    format!("it is longer than {BODY_MAX} bytes, the limit for the content of a request")
}

fn is_token(text: &str) -> bool {
    let is = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is)
}

/// Methods in use: those of HTTP, `WebDAV` and caches.
const METHODS: [&str; 17] = [
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LOCK",
    "MKCOL",
    "MOVE",
    "OPTIONS",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "PUT",
    "QUERY",
    "REPORT",
    "UNLOCK",
];

/// A method: any word but those that make a connection into something else, and slips of the finger.
fn method(typed: &str) -> Result<String, TrialError> {
    let meant = || {
        let names = METHODS.map(str::to_lowercase);
        nearest(typed, names.iter().map(String::as_str)).map(str::to_uppercase)
    };
    match typed {
        "CONNECT" | "TRACE" => Err(wrong(
            "method",
            typed,
            "its response has no content to measure: write another method, like GET or POST",
        )),
        _ if METHODS.contains(&typed) => Ok(typed.to_owned()),
        // Methods are case-sensitive (RFC 9110, section 9.1).
        _ if is_token(typed) && !typed.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            match meant() {
                Some(meant) => Err(wrong("method", typed, format!("did you mean {meant}?"))),
                None => Ok(typed.to_owned()),
            }
        }
        _ => Err(wrong("method", typed, "write one word in capitals, like GET or POST")),
    }
}

/// `Name: value`.
fn field(typed: &str) -> Result<(String, String), TrialError> {
    let refuse = |why: &str| Err(wrong("header", &typed.escape_debug().to_string(), why));
    let Some((name, value)) = typed.split_once(':') else {
        return refuse("write NAME: VALUE, like Accept: text/html");
    };
    let value = value.trim();
    if !is_token(name) {
        return refuse("the name before the colon is not valid: use letters, digits and hyphens");
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return refuse("the value must not contain line breaks or control characters");
    }
    match name.to_ascii_lowercase().as_str() {
        "connection" => refuse("--reuse sets this field: leave it out"),
        "content-length" | "transfer-encoding" => {
            refuse("tcptoll sets it from the length of --body: leave it out")
        }
        _ => Ok((name.to_owned(), value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_the_way_of_reuse_sets_are_refused() {
        for typed in ["Connection: close", "content-length: 3", "TRANSFER-ENCODING: chunked"] {
            let error = field(typed).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--header {typed}: ")), "{error}");
        }
        for typed in ["Accept", "Ac cept: x", ": x", "X: a\r\nY: b"] {
            assert!(field(typed).is_err(), "{typed}");
        }
        assert_eq!(field("X-A:  b: c ").unwrap(), ("X-A".to_owned(), "b: c".to_owned()));
    }

    #[test]
    fn a_file_without_an_end_is_no_content_of_a_request_and_no_log() {
        let error = body_in(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.starts_with("--body @/dev/zero: it is longer than 1048576"), "{error}");
        assert!(body(&"x".repeat(1 << 20)).is_ok() && body(&"x".repeat((1 << 20) + 1)).is_err());
    }

    #[test]
    fn arms_that_name_one_log_share_what_was_read_and_every_trial_asks_for_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("access.log");
        let line = r#"h - - [01/Jan/2026:00:00:00 +0000] "GET /a HTTP/1.1" 200 5"#;
        std::fs::write(&log, format!("{line}\n")).unwrap();
        let file = log.display().to_string();
        let mut files = Shared::default();
        let mut arms = [(); 2].map(|()| RequestSettings {
            access_log: Some(AccessLog { file: file.clone(), requests: None }),
            ..RequestSettings::default()
        });
        for arm in &mut arms {
            arm.read_files(&mut files).unwrap();
        }
        // A server may write to its log while it is measured.
        std::fs::write(&log, format!("{line}\n{line}\n")).unwrap();
        let read = |arm: &RequestSettings| arm.access_log.clone().unwrap().requests.unwrap();
        assert!(Rc::ptr_eq(&read(&arms[0]), &read(&arms[1])));
        assert_eq!(arms[1].all("host", &[]).0.lines, [("GET".to_owned(), "/a".to_owned())]);
    }

    #[test]
    fn methods_are_words_in_capitals() {
        assert!(method("get").is_err() && method("CONNECT").is_err() && method("A B").is_err());
        assert_eq!(method("PATCH").unwrap(), "PATCH");
    }
}
