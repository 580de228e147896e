//! One navigation, put together from the events of the browser.

use std::collections::HashMap;

use super::{Event, Failed, Finished, Initiator, RequestWillBeSent, Responded, Response, Timing};
use crate::page::resource::{Kind, Priority, Protocol};
use crate::page::waterfall::{Connection, LeftOut, Phases, Request, Waterfall, fail_statuses};

/// Requests that are kept of a load; further ones are counted. A page of the web's largest percentile
/// has some 500.
pub const REQUESTS_MAX: usize = 10_000;

/// Longest URL that is kept, bytes; the rest is cut off.
pub const URL_MAX: usize = 2_048;

/// Longest name of a request, bytes; Chromium's are numbers or 32 hexadecimal digits.
const NAME_MAX: usize = 128;

/// Longest load, s: later times are cut to it.
const SECONDS_MAX: f64 = 86_400.0;

/// URLs that are quoted of what was left out, of each reason.
const EXAMPLES_MAX: usize = 5;

/// Collects the events of one navigation.
///
/// It begins with the first request for a document; what belongs to the page before is ignored.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Time of the navigation, s. None: it has not begun.
    zero: Option<f64>,
    waterfall: Waterfall,
    /// Number of the request that goes by this name now.
    open: HashMap<String, usize>,
    /// The last request for a URL.
    by_url: HashMap<String, usize>,
    /// Number of a connection by the browser's number.
    connections: HashMap<u64, usize>,
    /// Bytes of the head, by request.
    heads: Vec<u64>,
    /// Bytes of the content as the head says, by request.
    lengths: Vec<Option<u64>>,
    /// Time of the first byte, by request, µs.
    first_bytes: Vec<Option<u64>>,
    /// Whether its response closes the connection.
    closes: Vec<bool>,
    /// The document's request: the last step of its redirects.
    document: usize,
    /// The browser's names for the navigation and for where it is shown.
    navigation: (String, String),
}

impl Load {
    /// Takes one event.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Asked(asked) => self.asked(asked),
            Event::Responded(responded) => self.responded(responded),
            Event::Finished(finished) => self.finished(finished),
            Event::Failed(failed) => self.failed(failed),
            Event::Loaded(time) if self.zero.is_some() => {
                self.waterfall.load_event_us = Some(self.us(*time));
            }
            Event::Loaded(_) | Event::Begun | Event::Idle | Event::Crashed | Event::Other => {}
        }
    }

    /// Requests that have not ended.
    pub fn outstanding(&self) -> usize {
        self.open.len()
    }

    /// Requests that became known.
    pub fn requests(&self) -> usize {
        self.waterfall.requests.len()
    }

    /// Whether the page's `load` event has come.
    pub fn is_loaded(&self) -> bool {
        self.waterfall.load_event_us.is_some()
    }

    /// Whether the document could not be loaded: nothing else follows.
    pub fn has_no_document(&self) -> bool {
        self.waterfall.requests.get(self.document).is_some_and(|one| one.error.is_some())
    }

    /// The waterfall of what has come; `gave_up`: requests without an end have failed with this class.
    pub fn into_waterfall(mut self, gave_up: Option<&str>) -> Waterfall {
        let class = gave_up.unwrap_or("truncated");
        for number in std::mem::take(&mut self.open).into_values() {
            self.waterfall.requests[number].error = Some(class.to_owned());
        }
        fail_statuses(&mut self.waterfall.requests, Some(self.document));
        if self.has_no_document() {
            // It would be that of the browser's own error page.
            self.waterfall.load_event_us = None;
        }
        let Self { mut waterfall, first_bytes, document, .. } = self;
        waterfall.first_byte_us = first_bytes.get(document).copied().flatten();
        let blocking: Vec<&Request> =
            waterfall.requests.iter().filter(|one| one.blocking).collect();
        let all_came = !blocking.is_empty() && blocking.iter().all(|one| one.error.is_none());
        waterfall.blocking_us =
            blocking.iter().map(|one| one.ended_us()).max().filter(|_| all_came);
        waterfall.everything_us = match gave_up {
            Some(_) => None,
            None => waterfall.requests.iter().map(Request::ended_us).max(),
        };
        waterfall
    }

    /// µs since the navigation began.
    fn us(&self, seconds: f64) -> u64 {
        let since = seconds - self.zero.unwrap_or(seconds);
        // Not a number becomes 0 here.
        (since.clamp(0.0, SECONDS_MAX) * 1e6).round() as u64
    }

    fn asked(&mut self, asked: &RequestWillBeSent) {
        let is_document = asked.kind == "Document" && asked.request_id == asked.loader_id;
        if self.zero.is_none() {
            if !is_document || !asked.timestamp.is_finite() {
                return;
            }
            self.zero = Some(asked.timestamp);
            self.navigation = (asked.loader_id.clone(), asked.frame_id.clone());
        } else if asked.frame_id == self.navigation.1 && asked.loader_id != self.navigation.0 {
            // The page went elsewhere by itself, or was tried again: another navigation.
            return;
        }
        if self.has_no_document() {
            // What the browser's own error page is made of.
            return;
        }
        if let Some(number) = self.open.remove(&asked.request_id) {
            // A step of a redirect: the former one ends where this one begins.
            if let Some(response) = &asked.redirect_response {
                self.head(number, response);
            }
            self.end(number, asked.timestamp);
        }
        let url = visible(&asked.request.url);
        if origin(&url).is_none() {
            return self.leave_out("scheme", &url);
        }
        if self.waterfall.requests.len() >= REQUESTS_MAX || asked.request_id.len() > NAME_MAX {
            return self.leave_out("too-many", &url);
        }
        let number = self.waterfall.requests.len();
        let kind = kind(&asked.kind);
        let priority = priority(&asked.request.initial_priority);
        let blocking = match asked.render_blocking_behavior.as_deref() {
            _ if is_document && asked.loader_id == self.navigation.0 => true,
            Some(behavior) => behavior == "Blocking",
            None => kind == Kind::Stylesheet && priority == Priority::VeryHigh,
        };
        if is_document && asked.frame_id == self.navigation.1 {
            self.document = number;
        }
        self.waterfall.requests.push(Request {
            kind,
            priority,
            blocking,
            initiator: self.initiator(&asked.initiator).filter(|_| number > 0),
            known_us: self.us(asked.timestamp),
            url: url.clone(),
            ..Request::default()
        });
        self.heads.push(0);
        self.lengths.push(None);
        self.first_bytes.push(None);
        self.closes.push(false);
        self.open.insert(asked.request_id.clone(), number);
        self.by_url.insert(url, number);
    }

    /// The request that named this one, if it was seen.
    fn initiator(&self, initiator: &Initiator) -> Option<u32> {
        let script = || Some(&initiator.stack.as_ref()?.call_frames.first()?.url);
        let url = initiator.url.as_ref().or_else(script)?;
        self.by_url.get(&visible(url)).map(|&number| number as u32)
    }

    fn responded(&mut self, responded: &Responded) {
        if let Some(&number) = self.open.get(&responded.request_id) {
            self.head(number, &responded.response);
        }
    }

    /// Takes over the head of a response: status, connection and phases up to the first byte.
    fn head(&mut self, number: usize, response: &Response) {
        self.waterfall.requests[number].status = Some(response.status).filter(|&status| status > 0);
        self.heads[number] = bytes(response.encoded_data_length);
        self.lengths[number] =
            response.headers.content_length.as_ref().and_then(|text| text.parse().ok());
        let says = response.headers.connection.as_deref().unwrap_or_default();
        self.closes[number] = says.eq_ignore_ascii_case("close");
        let Some(timing) = &response.timing else { return };
        let known = self.waterfall.requests[number].known_us;
        let at = |milliseconds: f64| self.us(timing.request_time + milliseconds / 1e3);
        let phases = phases(known, timing, at);
        let head = known + phases.total_us();
        let connection =
            self.connection(number, response, timing, known + phases.blocked_us + phases.dns_us);
        self.first_bytes[number] = Some(head);
        let request = &mut self.waterfall.requests[number];
        request.phases = phases;
        request.connection = connection;
    }

    /// The connection that carried a request, by number.
    fn connection(
        &mut self,
        number: usize,
        response: &Response,
        timing: &Timing,
        begun_us: u64,
    ) -> Option<u32> {
        // The browser's number is an integer in a field of floats.
        if response.from_disk_cache || response.connection_id.total_cmp(&1.0).is_lt() {
            return None;
        }
        let origin = origin(&self.waterfall.requests[number].url)?;
        let opened = |at: f64| at >= 0.0 && !response.connection_reused;
        let when = |at: f64| opened(at).then(|| self.us(timing.request_time + at / 1e3));
        let secured_us = when(timing.ssl_end);
        let connected_us =
            if secured_us.is_some() { when(timing.ssl_start) } else { when(timing.connect_end) };
        let connections = &mut self.waterfall.connections;
        let at = *self.connections.entry(response.connection_id as u64).or_insert_with(|| {
            let protocol = match response.protocol.as_deref() {
                Some("h2") => Protocol::Http2,
                _ => Protocol::Http1,
            };
            connections.push(Connection {
                origin,
                protocol,
                begun_us,
                connected_us: connected_us.or(Some(begun_us)),
                secured_us,
                ..Connection::default()
            });
            connections.len() - 1
        });
        connections[at].requests += 1;
        Some(at as u32)
    }

    fn finished(&mut self, finished: &Finished) {
        if let Some(number) = self.open.remove(&finished.request_id) {
            self.end(number, finished.timestamp);
            let received = bytes(finished.encoded_data_length);
            // Of some responses, 404s for instance, Chromium counts the content alone.
            let said = self.lengths[number].filter(|&length| length <= received);
            self.waterfall.requests[number].body_bytes =
                said.unwrap_or(received.saturating_sub(self.heads[number]));
        }
    }

    fn failed(&mut self, failed: &Failed) {
        let Some(number) = self.open.remove(&failed.request_id) else { return };
        self.end(number, failed.timestamp);
        self.waterfall.requests[number].error = Some(class_of(&failed.error_text).to_owned());
    }

    /// The response ends now: what is left is its last phase, or all of it without a response.
    fn end(&mut self, number: usize, seconds: f64) {
        let ended = self.us(seconds);
        let request = &mut self.waterfall.requests[number];
        let rest = ended.saturating_sub(request.ended_us());
        match self.first_bytes[number] {
            Some(_) => request.phases.receive_us += rest,
            None => request.phases.blocked_us += rest,
        }
        let ended = request.ended_us();
        if self.closes[number]
            && let Some(connection) = request.connection
        {
            self.waterfall.connections[connection as usize].closed_us = Some(ended);
        }
    }

    fn leave_out(&mut self, reason: &str, url: &str) {
        let list = &mut self.waterfall.left_out;
        let at = list.iter().position(|one| one.reason == reason).unwrap_or_else(|| {
            list.push(LeftOut { reason: reason.to_owned(), count: 0, examples: Vec::new() });
            list.len() - 1
        });
        let entry = &mut list[at];
        entry.count += 1;
        if entry.examples.len() < EXAMPLES_MAX {
            entry.examples.push(url.chars().take(80).collect());
        }
    }
}

/// Phases up to the first byte: each begins where the one before ends, whatever the browser says.
fn phases(known: u64, timing: &Timing, at: impl Fn(f64) -> u64) -> Phases {
    let happened = |start: f64, end: f64| start >= 0.0 && end >= start;
    let (dns, connect, tls) = (
        happened(timing.dns_start, timing.dns_end),
        happened(timing.connect_start, timing.connect_end),
        happened(timing.ssl_start, timing.ssl_end),
    );
    let mut cut = known;
    // Moves the cut to this instant, never back, and gives the time between.
    let mut to = |milliseconds: f64| {
        let next = at(milliseconds).max(cut);
        let phase = next - cut;
        cut = next;
        phase
    };
    let blocked_us = to(if dns {
        timing.dns_start
    } else if connect {
        timing.connect_start
    } else {
        timing.send_start
    });
    let dns_us = if dns { to(timing.dns_end) } else { 0 };
    let connect_us = match (connect, tls) {
        (true, true) => to(timing.ssl_start),
        (true, false) => to(timing.connect_end),
        _ => 0,
    };
    let tls_us = if tls { to(timing.ssl_end) } else { 0 };
    let send_us = to(timing.send_end);
    let first = timing.receive_headers_start;
    let wait_us = to(if first > 0.0 { first } else { timing.receive_headers_end });
    Phases { blocked_us, dns_us, connect_us, tls_us, send_us, wait_us, receive_us: 0 }
}

/// A count of bytes; absurd ones are 0.
fn bytes(count: f64) -> u64 {
    count.clamp(0.0, (1_u64 << 50) as f64) as u64
}

/// Visible ASCII, cut short: everything else is percent-encoded.
fn visible(url: &str) -> String {
    let mut text = String::new();
    for byte in url.bytes().take(URL_MAX) {
        if byte.is_ascii_graphic() {
            text.push(byte as char);
        } else {
            text += &format!("%{byte:02X}");
        }
        if text.len() >= URL_MAX {
            break;
        }
    }
    text.truncate(URL_MAX);
    text
}

/// Scheme, host and port. None: not on the network.
fn origin(url: &str) -> Option<String> {
    let scheme = ["http://", "https://"].into_iter().find(|scheme| url.starts_with(scheme))?;
    let host = url[scheme.len()..].split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    (!host.is_empty()).then(|| format!("{scheme}{host}"))
}

fn kind(name: &str) -> Kind {
    match name {
        "Document" => Kind::Document,
        "Stylesheet" => Kind::Stylesheet,
        "Script" => Kind::Script,
        "Font" => Kind::Font,
        "Image" => Kind::Image,
        _ => Kind::Other,
    }
}

fn priority(name: &str) -> Priority {
    match name {
        "VeryHigh" => Priority::VeryHigh,
        "High" => Priority::High,
        "Medium" => Priority::Medium,
        "VeryLow" => Priority::VeryLow,
        _ => Priority::Low,
    }
}

/// The class of a failure, of those in `docs/causes.md`.
fn class_of(error: &str) -> &'static str {
    match error.strip_prefix("net::ERR_").unwrap_or_default() {
        "CONNECTION_REFUSED" => "connect-refused",
        "CONNECTION_TIMED_OUT" => "connect-timeout",
        "TIMED_OUT" => "timeout",
        "CONNECTION_RESET" => "reset",
        "CONNECTION_CLOSED"
        | "EMPTY_RESPONSE"
        | "CONTENT_LENGTH_MISMATCH"
        | "INCOMPLETE_CHUNKED_ENCODING" => "truncated",
        "ADDRESS_UNREACHABLE" | "INTERNET_DISCONNECTED" => "unreachable",
        name if name.starts_with("CERT_") || name.starts_with("SSL_") => "tls",
        name if name.starts_with("NAME_") => "dns",
        _ => "other",
    }
}
