//! A load from the page's own clock: `performance.getEntriesByType`, asked for after the load.
//!
//! The events of the `Network` domain are exact and cost CPU time while the page loads (85 ms instead of
//! 68 ms in all processes of Chromium 156, for 21 requests); these entries are kept anyway. What they
//! lack is filled as far as it follows: a connection is new where it shows a handshake, else it is the
//! one of its origin that became free last; a priority is that of its kind. Times are rounded to
//! 0.1 ms. A redirect is part of the request that it led to, and another origin shows no phases
//! unless it allows it (`Timing-Allow-Origin`).
//!
//! Source: Resource Timing and Navigation Timing of the W3C, as Chromium 156 has them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    AskedFor, Event, Failed, Finished, Headers, Initiator, Malformed, RequestWillBeSent, Responded,
    Response, Timing,
};

/// What a page is asked for its entries: gives a string of JSON.
pub const EXPRESSION: &str =
    "JSON.stringify(['navigation','resource'].flatMap(kind=>performance.getEntriesByType(kind)))";

/// What a page does before it loads: more than 250 entries are kept.
pub const BEFORE: &str = "performance.setResourceTimingBufferSize(10000)";

/// One entry. Times are ms since the navigation began; 0 where a phase is not shown.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// Its URL.
    pub name: String,
    /// `navigation`, or what named it: `link`, `script`, `img`, `css` …
    pub initiator_type: String,
    /// The document or style sheet that named it, where the browser says so.
    pub initiator_url: Option<String>,
    /// `text/css` …
    pub content_type: String,
    /// `http/1.1`, `h2` …
    pub next_hop_protocol: String,
    /// `blocking` or `non-blocking`.
    pub render_blocking_status: String,
    /// When it became known.
    pub start_time: f64,
    /// Phases.
    pub domain_lookup_start: f64,
    /// End of the name's resolution.
    pub domain_lookup_end: f64,
    /// TCP, and TLS in it.
    pub connect_start: f64,
    /// Its end.
    pub connect_end: f64,
    /// TLS.
    pub secure_connection_start: f64,
    /// The request.
    pub request_start: f64,
    /// First byte of the response.
    pub response_start: f64,
    /// Last byte.
    pub response_end: f64,
    /// Content as received.
    pub encoded_body_size: f64,
    /// Head and content; 0: from a cache, or not shown.
    pub transfer_size: f64,
    /// Status; 0: not shown, or there was none.
    pub response_status: u16,
    /// The page's `load` event.
    pub load_event_start: f64,
}

/// The entries, as events in the order of their times.
///
/// Errors: not what [`EXPRESSION`] gives.
pub fn events(text: &str) -> Result<Vec<Event>, Malformed> {
    let mut entries: Vec<Entry> = serde_json::from_str(text)?;
    entries.truncate(super::load::REQUESTS_MAX + 1);
    let mut order: Vec<usize> = (0..entries.len()).collect();
    // Connections are given in the order in which requests were sent.
    order.sort_by(|&a, &b| entries[a].request_start.total_cmp(&entries[b].request_start));
    let mut connections = Connections::default();
    let mut on = vec![(0, false); entries.len()];
    for at in order {
        on[at] = connections.assign(&entries[at]);
    }
    let page = entries.first().map(|entry| entry.name.clone()).unwrap_or_default();
    let mut events = Vec::new();
    for (number, (entry, on)) in entries.iter().zip(on).enumerate() {
        if number > 0 && entry.start_time.total_cmp(&0.0).is_lt() {
            continue;
        }
        events.extend(events_of(number, entry, on, &page));
    }
    if let Some(entry) = entries.first().filter(|entry| entry.load_event_start > 0.0) {
        events.push(Event::Loaded(entry.load_event_start / 1e3));
    }
    Ok(events)
}

/// The events of a page that could not be loaded: the page remembers nothing of that.
pub fn failed(url: &str, why: &str, seconds: f64) -> Vec<Event> {
    let asked = RequestWillBeSent {
        request_id: DOCUMENT.to_owned(),
        loader_id: DOCUMENT.to_owned(),
        request: AskedFor { url: url.to_owned(), initial_priority: "VeryHigh".to_owned() },
        kind: "Document".to_owned(),
        ..RequestWillBeSent::default()
    };
    let (request_id, error_text) = (DOCUMENT.to_owned(), why.to_owned());
    let failed = Failed { request_id, timestamp: seconds, error_text };
    vec![Event::Asked(Box::new(asked)), Event::Failed(failed)]
}

/// A connection of an origin, while connections are given.
#[derive(Clone, Copy, Debug)]
struct Used {
    number: u32,
    /// When its last response ended, ms.
    free: f64,
}

/// Which connections there were.
#[derive(Debug, Default)]
struct Connections {
    by_origin: BTreeMap<String, Vec<Used>>,
    count: u32,
}

impl Connections {
    /// Number from 1, and whether it carried a request before; 0: not known.
    fn assign(&mut self, entry: &Entry) -> (u32, bool) {
        if entry.request_start <= 0.0 {
            return (0, false);
        }
        let origin = entry.name.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        let used = self.by_origin.entry(origin).or_default();
        // An instant of the same 0.1 ms is not later.
        let fits = |one: &&mut Used| {
            entry.next_hop_protocol == "h2" || one.free <= entry.request_start + 0.1
        };
        let is_new = entry.connect_end > entry.connect_start;
        let free = used.iter_mut().filter(fits).max_by(|a, b| a.free.total_cmp(&b.free));
        if let Some(one) = free.filter(|_| !is_new) {
            one.free = entry.response_end;
            return (one.number, true);
        }
        self.count += 1;
        used.push(Used { number: self.count, free: entry.response_end });
        (self.count, false)
    }
}

/// Name of the navigation, of its document's request and of where it is shown.
const DOCUMENT: &str = "document";

fn events_of(
    number: usize,
    entry: &Entry,
    (connection, reused): (u32, bool),
    page: &str,
) -> Vec<Event> {
    let request_id = if number == 0 { DOCUMENT.to_owned() } else { number.to_string() };
    let kind = if number == 0 { "Document" } else { kind(entry) };
    let blocking = if entry.render_blocking_status == "blocking" { "Blocking" } else { "" };
    let initiator = entry.initiator_url.clone().unwrap_or_else(|| page.to_owned());
    let asked = Event::Asked(Box::new(RequestWillBeSent {
        request_id: request_id.clone(),
        loader_id: DOCUMENT.to_owned(),
        request: AskedFor {
            url: entry.name.clone(),
            initial_priority: priority(kind, blocking).to_owned(),
        },
        timestamp: entry.start_time / 1e3,
        initiator: Initiator { url: Some(initiator), stack: None },
        kind: kind.to_owned(),
        render_blocking_behavior: Some(blocking.to_owned()),
        ..RequestWillBeSent::default()
    }));
    let timestamp = entry.response_end / 1e3;
    // What is not shown of another origin may have succeeded.
    let is_shown = entry.request_start > 0.0;
    let is_ours = page.splitn(4, '/').take(3).eq(entry.name.splitn(4, '/').take(3));
    if entry.response_status == 0 && (is_shown || is_ours) && entry.transfer_size == 0.0 {
        let failed = Failed { request_id, timestamp, error_text: String::new() };
        return vec![asked, Event::Failed(failed)];
    }
    let response = Response {
        status: entry.response_status,
        connection_id: f64::from(connection),
        connection_reused: reused,
        protocol: Some(entry.next_hop_protocol.clone()),
        timing: is_shown.then(|| phases(entry, reused)),
        headers: Headers::default(),
        ..Response::default()
    };
    let encoded_data_length = entry.encoded_body_size;
    vec![
        asked,
        Event::Responded(Box::new(Responded { request_id: request_id.clone(), response })),
        Event::Finished(Finished { request_id, timestamp, encoded_data_length }),
    ]
}

fn phases(entry: &Entry, reused: bool) -> Timing {
    let opened = |time: f64| if reused { -1.0 } else { time };
    let tls = entry.secure_connection_start > 0.0;
    Timing {
        request_time: 0.0,
        dns_start: opened(entry.domain_lookup_start),
        dns_end: opened(entry.domain_lookup_end),
        connect_start: opened(entry.connect_start),
        connect_end: opened(entry.connect_end),
        ssl_start: if tls { opened(entry.secure_connection_start) } else { -1.0 },
        ssl_end: if tls { opened(entry.connect_end) } else { -1.0 },
        send_start: entry.request_start,
        send_end: entry.request_start,
        receive_headers_start: entry.response_start,
        receive_headers_end: entry.response_start,
    }
}

/// The kind by content, or by what named it where the content is not shown.
fn kind(entry: &Entry) -> &'static str {
    let path = entry.name.split(['?', '#']).next().unwrap_or_default();
    let ends = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
    match (entry.content_type.as_str(), entry.initiator_type.as_str()) {
        ("text/css", _) => "Stylesheet",
        (content, _) if content.starts_with("font/") => "Font",
        (content, _) if content.ends_with("javascript") => "Script",
        (content, _) if content.starts_with("image/") => "Image",
        (_, "script") => "Script",
        (_, "link" | "css") if ends(&[".css"]) => "Stylesheet",
        (_, "css") if ends(&[".woff2", ".woff", ".ttf", ".otf"]) => "Font",
        (_, "img" | "css") => "Image",
        _ => "Other",
    }
}

/// The priority that the kind has, if nothing changes it.
fn priority(kind: &str, blocking: &str) -> &'static str {
    match kind {
        "Document" | "Stylesheet" | "Font" => "VeryHigh",
        "Script" if blocking == "Blocking" => "High",
        _ => "Low",
    }
}
