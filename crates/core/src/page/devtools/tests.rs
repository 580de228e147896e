//! Events of real loads (Chromium 156, Apache, RTT 15 ms; heads of requests left out), and hostile ones.

use proptest::prelude::*;

use super::load::{Load, REQUESTS_MAX, URL_MAX};
use super::{
    Answer, AskedFor, Event, Failed, Finished, Message, RequestWillBeSent, Responded, Response,
    Timing,
};
use super::{decode, timing};
use crate::page::resource::{Kind, Priority, Protocol};
use crate::page::waterfall::{Request, Waterfall};

/// A document asked for without its last slash, a style sheet, a script that adds an image, a missing
/// image; each over a connection of its own.
const KEEPALIVE_OFF: &str = include_str!("events/redirect-keepalive-off.jsonl");
/// The same page without the redirect, over connections that stay open.
const KEEPALIVE_ON: &str = include_str!("events/keepalive-on.jsonl");
/// The same, as the page itself remembers it.
const ENTRIES: &str = include_str!("events/entries-keepalive-on.json");
/// A page that could not be loaded: the browser shows one of its own, and tries again.
const REFUSED: &str = include_str!("events/refused.jsonl");

fn events(text: &str) -> Vec<Event> {
    let decoded = text.lines().map(|line| decode(line.as_bytes()).unwrap());
    decoded
        .filter_map(|message| match message {
            Message::Event(event) => Some(event),
            Message::Answer { .. } => None,
        })
        .collect()
}

fn waterfall(events: &[Event]) -> Waterfall {
    let mut load = Load::default();
    for event in events {
        load.take(event);
    }
    load.into_waterfall(None)
}

fn paths(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(|one| one.url.splitn(4, '/').nth(3).unwrap_or_default()).collect()
}

#[test]
fn a_real_load_without_keep_alive_has_a_connection_for_each_request() {
    let page = waterfall(&events(KEEPALIVE_OFF));
    let expected =
        ["small", "small/", "small/1.css", "small/a.js", "small/missing.png", "small/late.png"];
    assert_eq!(paths(&page.requests), expected);
    let statuses: Vec<_> = page.requests.iter().map(|one| one.status).collect();
    assert_eq!(statuses, [301, 200, 200, 200, 404, 404].map(Some));
    assert_eq!(page.connections.len(), 6);
    assert!(page.connections.iter().all(|one| one.requests == 1 && one.closed_us.is_some()));
    assert_eq!(page.connections[0].origin, "http://10.92.0.1:8081");
    assert_eq!(page.connections[0].protocol, Protocol::Http1);
    let blocking: Vec<_> = page.requests.iter().map(|one| one.blocking).collect();
    assert_eq!(blocking, [true, true, true, true, false, false]);
    assert_eq!(page.requests[1].initiator, None);
    assert_eq!(page.requests[2].initiator, Some(1));
    assert_eq!(
        (page.requests[2].kind, page.requests[2].priority),
        (Kind::Stylesheet, Priority::VeryHigh)
    );
    assert_eq!((page.requests[3].kind, page.requests[3].priority), (Kind::Script, Priority::High));
    // The file has 1,980 bytes.
    assert_eq!(page.requests[2].body_bytes, 1_980);
    // The two pages of error have 236.
    assert_eq!((page.requests[4].body_bytes, page.requests[5].body_bytes), (236, 236));
    // By hand: timestamp 5347.203891 of the step, request 5347.204824 + 33.331 ms, navigation at 5347.135435.
    assert_eq!(page.first_byte_us, Some(102_720));
    assert!(page.load_event_us > page.blocking_us);
}

#[test]
fn a_handshake_is_with_the_request_for_which_it_was_made() {
    let page = waterfall(&events(KEEPALIVE_ON));
    let fresh = page.requests.iter().filter(|one| one.phases.connect_us > 0).count();
    assert_eq!((page.requests.len(), page.connections.len()), (5, fresh));
    assert!(fresh < 5);
    for connection in &page.connections {
        // 15 ms of a round trip at least.
        assert!(connection.connected_us.unwrap() - connection.begun_us >= 15_000);
        assert_eq!(connection.closed_us, None);
    }
    let carried: u32 = page.connections.iter().map(|one| one.requests).sum();
    assert_eq!(carried, 5);
}

#[test]
fn a_page_that_cannot_be_loaded_has_one_failed_request() {
    let page = waterfall(&events(REFUSED));
    assert_eq!(page.requests.len(), 1, "{:?}", page.requests);
    assert_eq!(page.requests[0].error.as_deref(), Some("other"));
    assert_eq!((page.first_byte_us, page.blocking_us), (None, None));
    assert!(page.left_out.is_empty());
}

#[test]
fn what_a_page_remembers_gives_the_same_requests_as_the_events() {
    let remembered = waterfall(&timing::events(ENTRIES).unwrap());
    let heard = waterfall(&events(KEEPALIVE_ON));
    assert_eq!(paths(&remembered.requests), paths(&heard.requests));
    let same = |request: &Request| {
        (request.blocking, request.status, request.initiator, request.body_bytes)
    };
    assert!(remembered.requests.iter().map(same).eq(heard.requests.iter().map(same)));
    let fresh = remembered.requests.iter().filter(|one| one.phases.connect_us > 0).count();
    assert_eq!(remembered.connections.len(), fresh);
    let carried: u32 = remembered.connections.iter().map(|one| one.requests).sum();
    assert_eq!(carried, 5);
    // `loadEventStart` and `responseStart` of the document in the file, ms.
    assert!(remembered.load_event_us >= remembered.everything_us);
    assert!(remembered.first_byte_us.unwrap() >= 30_000);
}

#[test]
fn a_page_that_was_never_loaded_has_the_reason() {
    let page = waterfall(&timing::failed("http://a.test/", "net::ERR_CONNECTION_REFUSED", 0.25));
    assert_eq!(page.requests[0].error.as_deref(), Some("connect-refused"));
    assert_eq!((page.everything_us, page.load_event_us), (Some(250_000), None));
}

#[test]
fn a_request_of_another_origin_that_shows_nothing_has_not_failed() {
    let text = r#"[{"name":"http://a.test/","requestStart":30,"connectEnd":30,"connectStart":15,
        "responseStart":45,"responseEnd":46,"responseStatus":200,"transferSize":300},
        {"name":"http://b.test/x.png","initiatorType":"img","startTime":50,"responseEnd":80},
        {"name":"http://a.test/y.png","initiatorType":"img","startTime":50,"responseEnd":90}]"#;
    let page = waterfall(&timing::events(text).unwrap());
    let errors: Vec<_> = page.requests.iter().map(|one| one.error.as_deref()).collect();
    assert_eq!(errors, [None, None, Some("other")]);
    assert_eq!(page.requests[1].phases.total_us(), 30_000);
    assert_eq!(page.requests[1].connection, None);
    assert!(timing::events("").is_err());
    assert!(timing::events("{}").is_err());
    assert!(timing::events("[]").unwrap().is_empty());
}

#[test]
fn answers_and_their_failures_are_told_apart() {
    let answer = decode(br#"{"id":3,"result":{"targetId":"T","frameTree":{}}}"#).unwrap();
    let target_id = Some("T".to_owned());
    let result = Ok(Answer { target_id, ..Answer::default() });
    assert_eq!(answer, Message::Answer { id: 3, result });
    let failure = decode(br#"{"id":4,"error":{"code":-32000,"message":"no such page"}}"#).unwrap();
    assert_eq!(failure, Message::Answer { id: 4, result: Err("no such page".to_owned()) });
    assert!(decode(b"").is_err());
    assert!(decode(br#"{"method":"Network.loadingFinished","params":{}}"#).is_err());
    assert_eq!(decode(br#"{"method":"Unknown.event"}"#).unwrap(), Message::Event(Event::Other));
}

#[test]
fn a_load_that_is_given_up_keeps_what_it_has() {
    let events = events(KEEPALIVE_OFF);
    let whole = waterfall(&events);
    let mut load = Load::default();
    for event in &events[..events.len() / 2] {
        load.take(event);
    }
    let outstanding = load.outstanding();
    assert!(outstanding > 0);
    let page = load.into_waterfall(Some("timeout"));
    let failed = page.requests.iter().filter(|one| one.error.as_deref() == Some("timeout")).count();
    assert_eq!(failed, outstanding);
    assert_eq!((page.everything_us, page.blocking_us), (None, None));
    assert!(page.requests.len() <= whole.requests.len());
}

#[test]
fn requests_beyond_the_limit_are_counted() {
    let mut load = Load::default();
    for number in 0..REQUESTS_MAX + 7 {
        load.take(&asked(&number.to_string(), "http://a.test/", number == 0));
    }
    assert_eq!((load.requests(), load.outstanding()), (REQUESTS_MAX, REQUESTS_MAX));
    let page = load.into_waterfall(None);
    assert_eq!((page.left_out[0].reason.as_str(), page.left_out[0].count), ("too-many", 7));
}

#[test]
fn a_url_of_any_bytes_becomes_short_and_visible() {
    let mut load = Load::default();
    load.take(&asked("0", "http://a.test/\u{1b}[2J\u{202e}", true));
    load.take(&asked("2", &format!("http://a.test/{}", "\n".repeat(9_000)), false));
    load.take(&asked("3", "data:text/html,\u{7}", false));
    let page = load.into_waterfall(None);
    assert_eq!(page.requests[0].url, "http://a.test/%1B[2J%E2%80%AE");
    assert_eq!(page.requests[1].url.len(), URL_MAX);
    assert_eq!(page.left_out[0].examples, ["data:text/html,%07"]);
}

fn asked(id: &str, url: &str, document: bool) -> Event {
    Event::Asked(Box::new(RequestWillBeSent {
        request_id: id.to_owned(),
        loader_id: "0".to_owned(),
        request: AskedFor { url: url.to_owned(), initial_priority: "High".to_owned() },
        kind: if document { "Document".to_owned() } else { String::new() },
        ..RequestWillBeSent::default()
    }))
    .named_as_document(document)
}

impl Event {
    /// A document's request has the name of its navigation.
    fn named_as_document(mut self, document: bool) -> Self {
        if let (Self::Asked(asked), true) = (&mut self, document) {
            asked.loader_id.clone_from(&asked.request_id);
        }
        self
    }
}

/// Any time, also none.
fn time() -> impl Strategy<Value = f64> {
    prop_oneof![Just(-1.0), -1e3..1e3, any::<f64>()]
}

fn timing() -> impl Strategy<Value = Timing> {
    proptest::collection::vec(time(), 11).prop_map(|t| Timing {
        request_time: t[0],
        dns_start: t[1],
        dns_end: t[2],
        connect_start: t[3],
        connect_end: t[4],
        ssl_start: t[5],
        ssl_end: t[6],
        send_start: t[7],
        send_end: t[8],
        receive_headers_start: t[9],
        receive_headers_end: t[10],
    })
}

fn event() -> impl Strategy<Value = Event> {
    let id = || (0..4_u8).prop_map(|id| id.to_string());
    let response = || {
        (any::<u16>(), time(), any::<bool>(), time(), proptest::option::of(timing())).prop_map(
            |(status, connection_id, connection_reused, encoded_data_length, timing)| Response {
                status,
                connection_id,
                connection_reused,
                encoded_data_length,
                timing,
                ..Response::default()
            },
        )
    };
    let responded = (id(), response()).prop_map(|(request_id, response)| {
        Event::Responded(Box::new(Responded { request_id, response }))
    });
    let again = (id(), id(), time(), proptest::option::of(response())).prop_map(
        |(request_id, loader_id, timestamp, redirect_response)| {
            Event::Asked(Box::new(RequestWillBeSent {
                request_id,
                loader_id,
                timestamp,
                redirect_response,
                request: AskedFor {
                    url: "https://a.test/".into(),
                    initial_priority: String::new(),
                },
                kind: "Document".to_owned(),
                ..RequestWillBeSent::default()
            }))
        },
    );
    let finished =
        (id(), time(), time()).prop_map(|(request_id, timestamp, encoded_data_length)| {
            Event::Finished(Finished { request_id, timestamp, encoded_data_length })
        });
    let failed = (id(), time()).prop_map(|(request_id, timestamp)| {
        Event::Failed(Failed { request_id, timestamp, error_text: "net::ERR_X".to_owned() })
    });
    prop_oneof![again, responded, finished, failed, time().prop_map(Event::Loaded)]
}

/// µs.
const DAY_US: u64 = 86_400_000_000;

proptest! {
    #[test]
    fn any_events_make_a_waterfall_within_a_day(
        events in proptest::collection::vec(event(), 0..60),
        gave_up in any::<bool>(),
    ) {
        let mut load = Load::default();
        load.take(&asked("0", "http://a.test/", true));
        for event in &events {
            load.take(event);
        }
        let page = load.into_waterfall(gave_up.then_some("timeout"));
        for request in &page.requests {
            prop_assert!(request.ended_us() <= DAY_US);
            if let Some(number) = request.connection {
                prop_assert!((number as usize) < page.connections.len());
            }
        }
        let carried = page.requests.iter().filter(|one| one.connection.is_some()).count();
        let counted: u32 = page.connections.iter().map(|one| one.requests).sum();
        prop_assert!(counted as usize >= carried);
        prop_assert_eq!(page.everything_us.is_none(), gave_up);
    }

    #[test]
    fn any_times_of_entries_make_a_waterfall(
        times in proptest::collection::vec(proptest::collection::vec(-1e5..1e9_f64, 9), 0..30),
    ) {
        let entry = |t: &Vec<f64>| serde_json::json!({
            "name": "http://a.test/", "startTime": t[0], "domainLookupStart": t[1],
            "domainLookupEnd": t[2], "connectStart": t[3], "connectEnd": t[4],
            "secureConnectionStart": t[5], "requestStart": t[6], "responseStart": t[7],
            "responseEnd": t[8], "responseStatus": 200, "transferSize": 1,
        });
        let text = serde_json::Value::from(times.iter().map(entry).collect::<Vec<_>>()).to_string();
        let page = waterfall(&timing::events(&text).unwrap());
        prop_assert!(page.requests.len() <= times.len());
        let carried = page.requests.iter().filter(|one| one.connection.is_some()).count();
        let counted: u32 = page.connections.iter().map(|one| one.requests).sum();
        prop_assert_eq!(counted as usize, carried);
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn a_real_message_with_any_byte_changed_is_a_message_or_an_error(
        line in 0_usize..20,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut text = KEEPALIVE_OFF.lines().nth(line).unwrap().as_bytes().to_vec();
        let at = at.index(text.len());
        text[at] = byte;
        if let Ok(Message::Event(event)) = decode(&text) {
            let mut load = Load::default();
            load.take(&event);
        }
    }
}
