use std::net::Ipv4Addr;

use super::*;

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
    for host in ["", ":9464", "localhost:", "localhost:http", "localhost:1:2", "[::1", "[::1]x"] {
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
    assert!(matches!(absolute("http://localhost/metrics?a/b").unwrap().target, Target::Metrics(_)));
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
    for name in ["", "http://x", "x:9464", "x/y", "x y", "*", "münchen", "[::1", &"x".repeat(254)]
    {
        let refused = Hosts::new(&[name.to_owned()]).err().map(str::to_owned);
        assert_eq!(refused.as_deref(), Some(name));
    }
    assert!(Hosts::new(&["[2001:db8::1]".to_owned(), "a-b_c.example.".to_owned()]).is_ok());
}
