use std::net::SocketAddr;
use std::sync::mpsc;

use super::*;

const PAGE: &str = "a_page 1\n";

fn bounds() -> Bounds {
    let long = Duration::from_mins(1);
    Bounds { head: long, exchange: long, idle: long, ..BOUNDS }
}

fn start(bounds: Bounds) -> SocketAddr {
    start_with(bounds, Arc::new(|_| Ok(Arc::from(PAGE))))
}

fn start_with(bounds: Bounds, pages: Arc<Pages>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let hosts = Hosts::new(&[]).unwrap();
    thread::spawn(move || serve(&listener, &hosts, bounds, &pages));
    at
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

/// Sends this, and reads until the server closes.
fn all(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(at);
    stream.write_all(bytes).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Reads one answer: its head, and as many bytes of its body as it says.
fn one(stream: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split("Content-Length: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LAST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn a_connection_serves_one_request_after_another_also_pipelined() {
    let at = start(bounds());
    let mut stream = connect(at);
    for _ in 0..3 {
        stream.write_all(GET).unwrap();
        let (head, body) = one(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body == PAGE, "{head}{body}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert!(head.contains("Cache-Control: no-store\r\n") && head.contains("\r\nDate: "));
        assert!(head.contains("Content-Security-Policy: default-src 'none'\r\n"));
    }
    let pipelined = [GET, GET, LAST, GET].concat();
    stream.write_all(&pipelined).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches(PAGE).count(), 3, "nothing is answered after the last: {rest}");
}

#[test]
fn a_connection_has_a_last_request_and_the_answer_says_so() {
    let at = start(Bounds { requests: 2, ..bounds() });
    let mut stream = connect(at);
    stream.write_all(GET).unwrap();
    assert!(!one(&mut stream).0.contains("Connection: close"));
    stream.write_all(GET).unwrap();
    assert!(one(&mut stream).0.contains("Connection: close"));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn head_has_no_body_old_versions_close_and_others_are_refused() {
    let at = start(bounds());
    let head = all(at, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let length = format!("Content-Length: {}\r\n", PAGE.len());
    assert!(head.contains(&length) && head.ends_with("\r\n\r\n"), "{head}");
    assert!(all(at, b"GET /metrics HTTP/1.0\r\n\r\n").ends_with(PAGE));
    assert!(all(at, b"GET / HTTP/1.0\r\n\r\n").contains("<a href=\"/metrics\">"));
    let post = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
    let refused = all(at, post);
    assert!(refused.starts_with("HTTP/1.1 405 ") && refused.contains("Allow: GET, HEAD\r\n"));
    let rebound = all(at, b"GET /metrics HTTP/1.1\r\nHost: attacker.example\r\n\r\n");
    assert!(rebound.starts_with("HTTP/1.1 403 ") && !rebound.contains("attacker"), "{rebound}");
    assert!(all(at, b"\x16\x03\x01\x02\x00\x01\n\r\n").starts_with("HTTP/1.1 400 "), "TLS");
}

#[test]
fn an_endless_head_is_refused_at_its_limit() {
    let at = start(bounds());
    let mut endless = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec();
    endless.resize(HEAD_MAX, b'x');
    assert!(all(at, &endless).starts_with("HTTP/1.1 431 "));
    assert!(all(at, &b"\r\n".repeat(HEAD_MAX / 2)).starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_client_that_drips_bytes_is_cut_at_the_deadline_of_its_head() {
    let head = Duration::from_millis(300);
    let at = start(Bounds { head, ..bounds() });
    let (mut stream, began) = (connect(at), Instant::now());
    let mut drip = stream.try_clone().unwrap();
    let (ended, end) = mpsc::channel::<()>();
    let dripping = thread::spawn(move || {
        while end.recv_timeout(Duration::from_millis(10)).is_err() {
            if drip.write_all(b"x").is_err() {
                break;
            }
        }
    });
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(began.elapsed() >= head);
    drop(ended);
    dripping.join().unwrap();
    // One that says nothing at all has no answer.
    assert_eq!(all(at, b""), "");
}

#[test]
fn a_client_that_does_not_read_is_cut_at_the_deadline() {
    let (cut, was_cut) = mpsc::channel();
    let cut = std::sync::Mutex::new(cut);
    let exchange = Duration::from_millis(300);
    let pages = move |_| {
        cut.lock().unwrap().send(()).unwrap();
        // More than the buffers of two sockets hold.
        Ok(Arc::from("x".repeat(64 << 20)))
    };
    let at = start_with(Bounds { exchange, clients: 1, ..bounds() }, Arc::new(pages));
    let mut stuck = connect(at);
    stuck.write_all(GET).unwrap();
    was_cut.recv().unwrap();
    // The only place is free again when the deadline has passed.
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let mut stream = connect(at);
        let answer = stream
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .and_then(|()| std::io::read_to_string(&mut stream));
        if answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 ")) {
            break;
        }
        assert!(Instant::now() < deadline, "the client that does not read keeps its place");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_client_too_many_takes_the_place_of_the_one_that_has_asked_for_nothing_for_longest() {
    let at = start(bounds());
    // They trickle: a byte each, and no request.
    let mut seated: Vec<TcpStream> = (0..BOUNDS.clients).map(|_| connect(at)).collect();
    for stream in &mut seated {
        stream.write_all(&GET[..1]).unwrap();
    }
    for _ in 0..3 {
        let mut scraper = connect(at);
        scraper.write_all(GET).unwrap();
        assert_eq!(one(&mut scraper).1, PAGE);
    }
    let closed = seated.iter_mut().filter_map(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        stream.read(&mut [0]).ok()
    });
    assert!((1..=3).contains(&closed.count()));
}

#[test]
fn one_client_too_many_is_told_so_where_all_are_being_answered() {
    let (release, held) = mpsc::channel::<()>();
    let (asked, is_asked) = mpsc::channel();
    let ends = Mutex::new((asked, held));
    let pages = move |_| {
        let ends = ends.lock().unwrap();
        ends.0.send(()).unwrap();
        let _released = ends.1.recv();
        Ok(Arc::from(PAGE))
    };
    let at = start_with(Bounds { clients: 1, ..bounds() }, Arc::new(pages));
    let mut served = connect(at);
    served.write_all(GET).unwrap();
    is_asked.recv().unwrap();
    let mut answer = String::new();
    connect(at).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    release.send(()).unwrap();
    drop(release);
    assert_eq!(one(&mut served).1, PAGE);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let at = start(Bounds { idle: Duration::from_millis(50), ..bounds() });
    let mut stream = connect(at);
    stream.write_all(GET).unwrap();
    one(&mut stream);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn where_there_is_no_page_the_answer_says_why() {
    let at = start_with(bounds(), Arc::new(|_| Err("The last look was long ago.".to_owned())));
    let answer = all(at, LAST);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("long ago.\n"), "{answer}");
}

#[test]
fn heads_end_at_an_empty_line_wherever_the_bytes_are_cut() {
    let whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert!(!ends_head(&whole[..whole.len() - 1]) && ends_head(whole));
    assert!(ends_head(b"\n\n") && !ends_head(b"\n") && !ends_head(b""));
    // What is looked at again begins two bytes before what is new.
    let at = start(bounds());
    let mut stream = connect(at);
    stream.set_nodelay(true).unwrap();
    for byte in whole {
        stream.write_all(&[*byte]).unwrap();
    }
    assert!(one(&mut stream).0.starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_page_is_served_while_it_is_new_and_made_once() {
    let page = MetricsPage::new(Duration::from_secs(2));
    let now = Instant::now();
    for format in [MetricsFormat::OpenMetrics, MetricsFormat::Classic] {
        assert!(page.get(format, now).unwrap_err().contains("first look"));
    }
    page.take(&State::default(), 1.0, now);
    let first = page.get(MetricsFormat::Classic, now + Duration::from_secs(6)).unwrap();
    let second = page.get(MetricsFormat::Classic, now).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert!(page.get(MetricsFormat::OpenMetrics, now).unwrap().ends_with("# EOF\n"));
    let late = now + Duration::from_millis(6_001);
    let why = page.get(MetricsFormat::Classic, late).unwrap_err();
    assert!(why.starts_with("The last look was 6.0 s ago"), "{why}");
    page.take(&State::default(), 7.0, late);
    let third = page.get(MetricsFormat::Classic, late).unwrap();
    assert!(third.contains("\ntcptoll_watch_looks_total 2\n"), "{third}");
}

#[test]
fn short_intervals_may_be_missed_for_five_seconds() {
    assert_eq!(MetricsPage::new(Duration::from_millis(100)).stale_after, Duration::from_secs(5));
    assert_eq!(MetricsPage::new(Duration::from_mins(1)).stale_after, Duration::from_mins(3));
}
