//! HAR files: what a browser recorded of a page, as a graph.
//!
//! HAR 1.2 (<http://www.softwareishard.com/blog/har-12-spec/>), with the fields that Chromium adds:
//! `_initiator`, `_priority`, `_resourceType`. Bodies are not looked at. Of several pages the first is
//! taken.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use super::resource::{Graph, Initiator, Kind, Priority, Resource};
use super::rules;
use super::waterfall::{Request as Loaded, Waterfall};

/// Longest time that a server may have taken, µs; a longer one is that of a stream.
const SERVER_MAX_US: f64 = 60e6;

#[derive(Deserialize)]
struct File {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    #[serde(default, deserialize_with = "lenient")]
    pages: Vec<HarPage>,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct HarPage {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default, deserialize_with = "lenient")]
    pageref: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    started_date_time: String,
    request: Request,
    #[serde(default, deserialize_with = "lenient")]
    response: Response,
    #[serde(default, deserialize_with = "lenient")]
    timings: Timings,
    /// An object of Chromium's, or the URL that `WebPageTest` and browsertime write.
    #[serde(default, rename = "_initiator")]
    initiator: Value,
    #[serde(default, rename = "_priority", deserialize_with = "lenient")]
    priority: Option<String>,
    #[serde(default, rename = "_resourceType", deserialize_with = "lenient")]
    resource_type: Option<String>,
}

#[derive(Deserialize)]
struct Request {
    method: String,
    url: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default, deserialize_with = "lenient")]
    status: i64,
    #[serde(default, deserialize_with = "lenient")]
    body_size: i64,
    #[serde(default, deserialize_with = "lenient")]
    content: Content,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    #[serde(default, deserialize_with = "lenient")]
    size: i64,
    #[serde(default, deserialize_with = "lenient")]
    mime_type: String,
}

#[derive(Default, Deserialize)]
struct Timings {
    #[serde(default, deserialize_with = "lenient")]
    wait: f64,
}

/// A value that one of the programs that write HAR files writes in a way of its own counts as absent: `null`, a
/// number as text, a private field of another type.
fn lenient<'de, D: serde::Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// Reads a HAR file: the resources of its first page, each after what named it. A request is left out
/// if it is no GET, has no answer, or is neither `http` nor `https`.
///
/// Errors: a clause that follows the file's name.
pub fn graph(text: &[u8]) -> Result<Graph, String> {
    // Programs of Windows begin a text with a byte order mark.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let file: File =
        serde_json::from_slice(text).map_err(|error| format!("it is no HAR file: {error}"))?;
    let first = file.log.pages.first().map(|page| page.id.clone());
    let of_page = |entry: &Entry| match (&first, &entry.pageref) {
        (Some(first), Some(own)) => own == first,
        _ => true,
    };
    let loaded = |entry: &Entry| {
        entry.request.method == "GET"
            && (200..600).contains(&entry.response.status)
            && Url::parse(&entry.request.url)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    };
    let mut entries: Vec<Entry> =
        file.log.entries.into_iter().filter(of_page).filter(loaded).collect();
    // RFC 3339 in one time zone sorts as text; another zone would only change the order.
    entries.sort_by(|a, b| a.started_date_time.cmp(&b.started_date_time));
    entries.truncate(rules::REQUESTS);
    if entries.is_empty() {
        return Err("it has no request that was answered".to_owned());
    }
    let mut known: BTreeMap<String, u32> = BTreeMap::new();
    let mut resources: Vec<Resource> = Vec::new();
    for entry in &entries {
        let number = resources.len() as u32;
        if known.contains_key(&entry.request.url) {
            continue;
        }
        known.insert(entry.request.url.clone(), number);
        let named_by = initiator_url(&entry.initiator).and_then(|url| known.get(url));
        let initiator = (number > 0).then(|| Initiator {
            resource: named_by.copied().filter(|by| *by < number).unwrap_or(0),
            // A document and a style sheet are read as they arrive; a script runs when it is whole.
            at_byte: None,
            delay_us: 0,
        });
        resources.push(entry.resource(initiator));
    }
    Ok(Graph { resources })
}

/// A server that takes less than this for a file does nothing for it but read it, µs.
const STATIC_US: u64 = 3_000;

/// A load as a HAR file that [`graph`] reads again: URLs, sizes, order, and the time that the server took. The round
/// trip, the shortest handshake of the load, is not part of that time.
pub fn of_waterfall(load: &Waterfall) -> String {
    let answered = |request: &&Loaded| request.error.is_none() && request.status.is_some();
    let connects = load.requests.iter().map(|one| one.phases.connect_us).filter(|us| *us > 0);
    let rtt_us = connects.min().unwrap_or(0);
    let entries: Vec<serde_json::Value> = load
        .requests
        .iter()
        .filter(answered)
        .map(|request| {
            let server_us = request.phases.wait_us.saturating_sub(rtt_us);
            let server_us = if server_us < STATIC_US { 0 } else { server_us };
            let by = request.initiator.and_then(|by| load.requests.get(by as usize));
            json!({
                "startedDateTime": since_the_beginning(request.known_us),
                "request": {"method": "GET", "url": request.url},
                "response": {"status": request.status, "bodySize": request.body_bytes},
                "timings": {"wait": server_us as f64 / 1e3},
                "_initiator": by.map(|by| json!({"url": by.url})),
                "_priority": priority_name(request.priority),
                "_resourceType": type_name(request.kind),
            })
        })
        .collect();
    json!({"log": {"version": "1.2", "creator": {"name": "tcptoll"}, "entries": entries}})
        .to_string()
}

/// A time stamp of the first day there is: only its order matters.
fn since_the_beginning(us: u64) -> String {
    let s = us / 1_000_000;
    let (hours, minutes, seconds) = (s / 3_600 % 24, s / 60 % 60, s % 60);
    format!("1970-01-01T{hours:02}:{minutes:02}:{seconds:02}.{:06}Z", us % 1_000_000)
}

fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::VeryHigh => "VeryHigh",
        Priority::High => "High",
        Priority::Medium => "Medium",
        Priority::Low => "Low",
        Priority::VeryLow => "VeryLow",
    }
}

fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Document => "document",
        Kind::Stylesheet => "stylesheet",
        Kind::Script => "script",
        Kind::Font => "font",
        Kind::Image => "image",
        Kind::Other => "other",
    }
}

/// The URL that named a resource: the text itself, of an object its URL or that of the first call.
fn initiator_url(initiator: &Value) -> Option<&str> {
    let of_the_call = || initiator.pointer("/stack/callFrames/0/url");
    initiator.as_str().or_else(|| initiator.get("url").or_else(of_the_call)?.as_str())
}

impl Entry {
    fn resource(&self, initiator: Option<Initiator>) -> Resource {
        let kind = if initiator.is_none() { Kind::Document } else { self.kind() };
        let priority = match self.priority.as_deref() {
            Some("VeryHigh") => Priority::VeryHigh,
            Some("High") => Priority::High,
            Some("Medium") => Priority::Medium,
            Some("Low") => Priority::Low,
            Some("VeryLow") => Priority::VeryLow,
            _ => rules::priority(kind),
        };
        let Response { status, body_size, content } = &self.response;
        let bytes = if *body_size >= 0 { *body_size } else { content.size };
        let wait_us = (self.timings.wait * 1e3).clamp(0.0, SERVER_MAX_US);
        Resource {
            url: self.request.url.clone(),
            kind,
            priority,
            blocking: matches!(kind, Kind::Document | Kind::Stylesheet),
            initiator,
            status: u16::try_from(*status).unwrap_or(200),
            body_bytes: bytes.max(0) as u64,
            server_us: if wait_us.is_finite() { wait_us as u64 } else { 0 },
        }
    }

    fn kind(&self) -> Kind {
        let media = self.response.content.mime_type.to_ascii_lowercase();
        match self.resource_type.as_deref() {
            Some("document") => Kind::Other,
            Some("stylesheet") => Kind::Stylesheet,
            Some("script") => Kind::Script,
            Some("font") => Kind::Font,
            Some("image") => Kind::Image,
            _ if media.contains("css") => Kind::Stylesheet,
            _ if media.contains("javascript") => Kind::Script,
            _ if media.contains("font") => Kind::Font,
            _ if media.starts_with("image/") => Kind::Image,
            _ => Kind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(url: &str, more: &str) -> String {
        format!(
            r#"{{"startedDateTime":"2026-01-01T00:00:00.00{}Z","request":{{"method":"GET","url":"{url}"}},
            "response":{{"status":200,"bodySize":100,"content":{{"mimeType":"text/css","size":300}}}},
            "timings":{{"wait":12.5}}{more}}}"#,
            url.len() % 10
        )
    }

    fn read(entries: &[String]) -> Result<Graph, String> {
        graph(format!(r#"{{"log":{{"entries":[{}]}}}}"#, entries.join(",")).as_bytes())
    }

    #[test]
    fn fields_that_other_programs_write_in_their_own_way_are_ignored() {
        let text = r#"{"log": {"pages": null, "entries": [
            {"pageref": 3, "startedDateTime": "2026-01-01T00:00:00", "timings": null,
             "request": {"method": "GET", "url": "http://a/"},
             "response": {"status": 200, "bodySize": null, "content": {"size": "12", "mimeType": null}}},
            {"startedDateTime": "2026-01-01T00:00:01", "timings": {"wait": "3"},
             "request": {"method": "GET", "url": "http://a/x.css"},
             "_initiator": "http://a/", "_priority": 4, "_resourceType": {},
             "response": {"status": 200, "bodySize": 7, "content": {}}},
            {"startedDateTime": "2026-01-01T00:00:02",
             "request": {"method": "GET", "url": "http://a/y.png"},
             "_initiator": {"type": "script", "stack": {"callFrames": [{"url": "http://a/x.css"}]}},
             "response": {"status": 200, "bodySize": 7}},
            {"request": {"method": "GET", "url": "http://a/never"}, "response": null}]}}"#;
        let graph = graph(format!("\u{feff}{text}").as_bytes()).unwrap();
        let named_by: Vec<_> = graph
            .resources
            .iter()
            .map(|one| one.initiator.as_ref().map(|by| by.resource))
            .collect();
        assert_eq!(named_by, [None, Some(0), Some(1)]);
    }

    #[test]
    fn resources_follow_what_named_them() {
        let found = read(&[
            entry("http://a.test/", ""),
            entry(
                "http://a.test/1",
                r#","_initiator":{"url":"http://a.test/"},"_priority":"VeryHigh""#,
            ),
            entry("http://a.test/22", r#","_initiator":{"url":"http://a.test/1"}"#),
            entry("data:,x", ""),
        ])
        .unwrap();
        let initiators: Vec<_> =
            found.resources.iter().map(|one| one.initiator.map(|by| by.resource)).collect();
        assert_eq!(initiators, [None, Some(0), Some(1)]);
        assert_eq!(found.resources[1].kind, Kind::Stylesheet);
        assert_eq!((found.resources[1].body_bytes, found.resources[1].server_us), (100, 12_500));
    }

    #[test]
    fn a_load_is_written_so_that_the_same_page_is_read() {
        use super::super::waterfall::Phases;
        let request = |url: &str, kind, wait_us, known_us| Loaded {
            url: url.to_owned(),
            kind,
            priority: Priority::High,
            initiator: (kind != Kind::Document).then_some(0),
            status: Some(200),
            body_bytes: 700,
            known_us,
            phases: Phases { connect_us: 15_000, wait_us, ..Phases::default() },
            ..Loaded::default()
        };
        let failed = Loaded {
            error: Some("timeout".to_owned()),
            ..request("http://a.test/x", Kind::Image, 0, 1)
        };
        let load = Waterfall {
            requests: vec![
                request("http://a.test/", Kind::Document, 65_000, 0),
                failed,
                request("http://a.test/a.css", Kind::Stylesheet, 15_900, 66_000_000),
            ],
            ..Waterfall::default()
        };
        let Graph { resources } = graph(of_waterfall(&load).as_bytes()).unwrap();
        let [document, style] = &resources[..] else { panic!("{resources:?}") };
        assert_eq!((document.kind, document.server_us), (Kind::Document, 50_000));
        assert_eq!((style.kind, style.server_us, style.body_bytes), (Kind::Stylesheet, 0, 700));
        assert_eq!(
            (style.initiator.map(|by| by.resource), style.priority),
            (Some(0), Priority::High)
        );
    }

    #[test]
    fn what_is_no_har_is_refused_in_words() {
        for text in ["", "{}", "[1]", r#"{"log":{"entries":[]}}"#, r#"{"log":{"entries":7}}"#] {
            assert!(graph(text.as_bytes()).is_err(), "{text}");
        }
    }
}
