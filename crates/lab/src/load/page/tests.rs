use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tcptoll_core::page::resource::Kind;
use tcptoll_core::page::visits::Visitors;

use super::*;
use crate::messages::{ConnectionSeen, LoadVisits, NextPage, PageUser, TlsLoad};

/// What a server does with the connections that it accepts.
#[derive(Clone, Copy)]
struct Manner {
    /// Responses of a connection; the last one says `Connection: close`.
    responses: usize,
    /// Whether content ends before its length.
    cut: bool,
    /// How long it keeps an idle connection.
    idle: Duration,
}

const KEEPS: Manner = Manner { responses: 1_000, cut: false, idle: Duration::from_secs(10) };

struct Server {
    at: String,
    accepted: Arc<AtomicUsize>,
}

/// A page of 20 style sheets on a port of the kernel's choice.
fn serve(manner: Manner) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}/", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            let stream = stream.unwrap();
            std::thread::spawn(move || answer(stream, manner));
        }
    });
    Server { at, accepted }
}

fn answer(mut stream: std::net::TcpStream, manner: Manner) {
    stream.set_read_timeout(Some(manner.idle)).unwrap();
    let mut pending = Vec::new();
    let mut answered = 0;
    let mut input = [0; 4096];
    loop {
        while let Some(end) = pending.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = pending.drain(..end + 4).collect();
            let head = String::from_utf8(head).unwrap();
            let path = head.split(' ').nth(1).unwrap();
            let (status, body) = match path {
                "/" => {
                    let links = (1..=20).map(|n| format!("<link rel=stylesheet href={n}.css>"));
                    ("200 OK", format!("<title>x</title>{}", links.collect::<String>()))
                }
                "/moved" => ("302 Found\r\nLocation: /", String::new()),
                "/loop" => ("302 Found\r\nLocation: /loop", String::new()),
                _ => ("200 OK", "a{color:red}".to_owned()),
            };
            answered += 1;
            let kind = if path == "/" { "text/html" } else { "text/css" };
            let last = answered == manner.responses;
            let close = if last { "Connection: close\r\n" } else { "" };
            let length = body.len() + usize::from(manner.cut && path != "/") * 5;
            let response = format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{close}\r\n{body}"
            );
            if stream.write_all(response.as_bytes()).is_err() || last || manner.cut && path != "/" {
                return;
            }
        }
        match stream.read(&mut input) {
            Ok(length) if length > 0 => pending.extend_from_slice(&input[..length]),
            _ => return,
        }
    }
}

fn order(url: &str) -> LoadPage {
    LoadPage {
        start: PageStart::Url(url.to_owned()),
        names: Vec::new(),
        protocol: Protocol::Http1,
        connections_per_origin: 6,
        other_origins: false,
        compress: false,
        tls: TlsLoad { server_name: String::new(), insecure: true, ca: None, resume: true },
        next: None,
        timeout_ns: 20_000_000_000,
        user: PageUser::Tcptoll,
    }
}

/// Loads with a parent that never says anything.
fn load(order: &LoadPage) -> Visit {
    let (host, _parent) = UnixStream::pair().unwrap();
    let mut channel = Channel::new(host);
    run(order, "", &mut channel).unwrap()
}

fn all_ok(page: &Waterfall) -> bool {
    page.requests.iter().all(|one| one.error.is_none() && one.status == Some(200))
}

#[test]
fn a_page_of_21_files_takes_6_connections_if_the_server_keeps_them() {
    let server = serve(KEEPS);
    let visit = load(&order(&server.at));
    let page = &visit.pages[0];
    assert_eq!(page.requests.len(), 21);
    assert!(all_ok(page), "{page:?}");
    // Answers may come before all connections are needed.
    assert!((2..=6).contains(&page.connections.len()), "{}", page.connections.len());
    assert!(server.accepted.load(Ordering::SeqCst) <= page.connections.len());
    assert_eq!(page.requests.iter().filter(|one| one.kind == Kind::Stylesheet).count(), 20);
    assert_eq!(visit.resources.len(), 21);
}

#[test]
fn a_server_that_closes_after_each_response_gets_a_connection_for_each_file() {
    let server = serve(Manner { responses: 1, ..KEEPS });
    let page = load(&order(&server.at)).pages.remove(0);
    assert!(all_ok(&page), "{page:?}");
    assert_eq!(page.connections.iter().filter(|one| one.requests == 1).count(), 21);
}

#[test]
fn content_that_ends_early_is_no_success() {
    let server = serve(Manner { cut: true, ..KEEPS });
    let visit = load(&order(&server.at));
    assert_eq!(visit.report.errors.get("truncated"), Some(&20), "{:?}", visit.report);
}

#[test]
fn pipelined_requests_are_answered_although_connections_are_closed_between_them() {
    for responses in [1_000, 3] {
        let server = serve(Manner { responses, ..KEEPS });
        let wanted = LoadPage { protocol: Protocol::Pipelined, ..order(&server.at) };
        let page = load(&wanted).pages.remove(0);
        assert_eq!(page.requests.len(), 21);
        assert!(all_ok(&page), "{responses}: {page:?}");
    }
}

#[test]
fn redirects_are_followed_and_a_circle_of_them_ends() {
    let server = serve(KEEPS);
    let page = load(&order(&format!("{}moved", server.at))).pages.remove(0);
    assert_eq!(page.requests.len(), 22);
    assert_eq!(page.requests[0].status, Some(302));
    let page = load(&order(&format!("{}loop", server.at))).pages.remove(0);
    assert_eq!(page.requests.len(), 1);
    assert_eq!(page.left_out[0].reason, "cycle");
}

#[test]
fn a_page_that_nobody_answers_is_given_up_with_every_request_accounted_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let wanted = LoadPage { timeout_ns: 50_000_000, ..order(&url) };
    let visit = load(&wanted);
    assert_eq!(visit.report.errors.get("timeout"), Some(&1), "{:?}", visit.report);
    assert_eq!(visit.pages[0].everything_us, None);
    drop(listener);
    let visit = load(&order(&url));
    assert_eq!(visit.report.errors.get("connect-refused"), Some(&1), "{:?}", visit.report);
}

#[test]
fn the_next_page_uses_connections_that_are_still_open() {
    let server = serve(KEEPS);
    let next = Some(NextPage { after_ns: 1_000_000, url: Some(server.at.clone()) });
    let visit = load(&LoadPage { next, ..order(&server.at) });
    assert_eq!(visit.pages.len(), 2);
    assert!(all_ok(&visit.pages[1]), "{:?}", visit.pages[1]);
    assert!(visit.pages[1].requests[0].phases.connect_us == 0, "{:?}", visit.pages[1]);
}

#[test]
fn the_next_page_opens_connections_anew_after_the_servers_timeout() {
    let server = serve(Manner { idle: Duration::from_millis(20), ..KEEPS });
    let next = Some(NextPage { after_ns: 500_000_000, url: Some(server.at.clone()) });
    let visit = load(&LoadPage { next, ..order(&server.at) });
    assert!(all_ok(&visit.pages[1]), "{:?}", visit.pages[1]);
    let opened = |page: &Waterfall| page.requests[0].phases.connect_us > 0;
    assert!(opened(&visit.pages[0]) && opened(&visit.pages[1]));
}

/// Visitors of a server, for 2 s.
fn visitors(server: &Server, change: impl FnOnce(&mut LoadVisits)) -> super::visits::VisitCounts {
    let mut wanted = LoadVisits {
        page: order(&server.at),
        visitors: Visitors {
            rate_per_s: 20.0,
            pages_mean: 1.0,
            think_mean_ns: 200_000_000,
            peaks: None,
            duration_ns: 2_000_000_000,
            seed: 3,
        },
        warmup_ns: 0,
        leave_ns: None,
    };
    change(&mut wanted);
    let (host, _parent) = UnixStream::pair().unwrap();
    super::visits::run(&wanted, "", &mut Channel::new(host)).unwrap()
}

#[test]
fn every_visitor_of_the_schedule_comes_and_opens_connections_of_its_own() {
    let server = serve(KEEPS);
    let mut scheduled = 0;
    let seen = visitors(&server, |order| scheduled = order.visitors.visits().len());
    assert_eq!((seen.report.visitors, seen.pages.len()), (scheduled as u64, scheduled));
    assert!(seen.pages.iter().all(|page| page.error.is_none() && page.first), "{seen:?}");
    let opened: u32 = seen.pages.iter().map(|page| page.connections).sum();
    assert_eq!(opened as usize, server.accepted.load(Ordering::SeqCst));
    assert_eq!(opened as usize, seen.connections.len());
    assert!(seen.connections.iter().all(|one| one.opened_ns <= one.last_ns));
    // Nobody leaves and the server keeps them.
    assert!(seen.connections.iter().all(|one| one.closed_ns.is_none()), "{seen:?}");
}

#[test]
fn connections_last_until_the_server_closes_them_or_the_visitor_leaves() {
    let idle = Duration::from_millis(200);
    let server = serve(Manner { idle, ..KEEPS });
    let seen = visitors(&server, |order| order.visitors.duration_ns = 1_500_000_000);
    let closed = |one: &&ConnectionSeen| one.closed_ns.is_some_and(|at_ns| at_ns >= one.last_ns);
    assert!(seen.connections.iter().filter(closed).count() > 6, "{seen:?}");
    let server = serve(KEEPS);
    let seen = visitors(&server, |order| {
        order.visitors.duration_ns = 1_000_000_000;
        order.leave_ns = Some(0);
    });
    assert!(seen.connections.iter().filter(closed).count() > 6, "{seen:?}");
}

#[test]
fn a_visitor_of_several_pages_thinks_and_uses_its_connections_again() {
    let server = serve(KEEPS);
    let seen = visitors(&server, |order| order.visitors.pages_mean = 4.0);
    let (first, later): (Vec<_>, Vec<_>) = seen.pages.iter().partition(|page| page.first);
    assert!(later.len() > first.len() / 2, "{} and {}", first.len(), later.len());
    assert!(first.iter().all(|page| page.connections > 0));
    assert!(later.iter().all(|page| page.connections == 0), "{later:?}");
}

#[test]
fn a_visitor_whose_page_fails_leaves_and_is_no_success() {
    let server = serve(Manner { cut: true, ..KEEPS });
    let seen = visitors(&server, |order| order.visitors.pages_mean = 4.0);
    assert!(!seen.pages.is_empty());
    for page in &seen.pages {
        assert_eq!((page.error.as_deref(), page.first), (Some("truncated"), true));
    }
    assert!(seen.report.first_errors.contains_key("truncated"), "{:?}", seen.report);
}

#[test]
fn every_part_of_what_visitors_did_fits_a_message() {
    let page = crate::messages::PageSeen {
        at_ns: u64::MAX,
        us: u64::MAX,
        first: false,
        connections: u32::MAX,
        error: Some("connect-refused".to_owned()),
    };
    let connection = crate::messages::ConnectionSeen {
        opened_ns: u64::MAX,
        last_ns: u64::MAX,
        closed_ns: Some(u64::MAX),
    };
    for part in crate::messages::VisitPart::parts(&vec![page; 1_000], &vec![connection; 1_000]) {
        let bytes = serde_json::to_vec(&crate::messages::Reply::<()>::Rows(
            crate::messages::Rows::Visit(part),
        ))
        .unwrap();
        assert!(bytes.len() < crate::channel::MESSAGE_MAX, "{}", bytes.len());
    }
}
