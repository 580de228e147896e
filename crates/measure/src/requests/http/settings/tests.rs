use serde_json::Value;

use tcptoll_lab::messages::ServerKind;

use super::super::requests::Body;
use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<HttpSettings, String> {
    let settings =
        pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Settings>();
    HttpSettings::from(&settings).map_err(|error| error.to_string())
}

/// What is refused only where files are looked at.
fn refused_here(pairs: &[(&str, &str)], starts: &str) {
    let error = read(pairs).unwrap().read_files(&mut Shared::default()).unwrap_err().to_string();
    assert!(error.starts_with(starts), "{error}");
}

fn refused(pairs: &[(&str, &str)], starts: &str, has: &str) {
    let error = read(pairs).expect_err(starts);
    assert!(error.starts_with(starts) && error.contains(has), "{error}");
}

#[test]
fn a_slip_is_refused_with_the_names_there_are() {
    refused(&[("conections", "5")], "conections: ", "connections");
}

#[test]
fn nothing_said_is_nginx_next_door_with_two_connections() {
    let settings = read(&[]).unwrap();
    let lab = settings.lab().unwrap();
    let LabServer::Known(server) = &lab.server else { panic!("{lab:?}") };
    assert_eq!(
        (server.kind, server.workers, server.response_bytes),
        (ServerKind::Nginx, Some(1), 13)
    );
    assert_eq!((settings.load.connections, settings.load.threads), (2, 1));
    assert_eq!(read(&[("rate", "100")]).unwrap().load.connections, 50);
    assert_eq!(read(&[("threads", "3")]).unwrap().load.connections, 3);
    assert_eq!((settings.load.reuse, settings.tls), (Reuse::KeepAlive, Tls::Off));
    assert_eq!((settings.requests.method.as_str(), lab.paths.len()), ("GET", 0));
}

#[test]
fn a_setting_without_effect_is_an_error_that_names_the_other() {
    let url = ("url", "http://127.0.0.1:8080/");
    refused(&[url, ("backlog", "4")], "--backlog needs the lab", "with a URL");
    refused(&[url, ("link", "metro")], "--link needs the lab", "with a URL");
    refused(&[url, ("tls", "full")], "--tls full: ", "https");
    refused(&[("server", "python3 x"), ("work", "1ms")], "--work 1ms: ", "known by name");
    refused(&[("port", "80")], "--port 80: ", "--server");
    refused(&[("spread", "poisson")], "--spread has no effect", "--rate");
    refused(&[("rate", "5"), ("ramp", "1s")], "--ramp 1s: ", "--rate");
    refused(&[("rate", "5"), ("reuse", "idle=1s")], "--reuse idle=1000ms: ", "--rate");
    refused(&[("threads", "4"), ("connections", "3")], "--threads 4: ", "3");
    refused(
        &[("keepalive", "off"), ("keepalive-requests", "5")],
        "--keepalive-requests 5: ",
        "--keepalive off",
    );
    refused(&[("body", "x"), ("method", "GET")], "--body x: ", "GET");
    refused(&[("insecure", "true")], "--insecure true: ", "--tls");
    refused(&[("tls", "full"), ("ca", "/dev/null")], "--ca /dev/null: ", "lab");
    refused(&[("access-log", "/dev/null"), ("path", "/a")], "--path /a: ", "--access-log");
}

#[test]
fn a_value_out_of_range_says_what_to_write() {
    refused(&[("connections", "0")], "--connections 0: ", "from 1");
    refused(&[("rate", "-1")], "--rate -1: ", "requests per second");
    refused(&[("reuse", "sometimes")], "--reuse sometimes: ", "keep-alive");
    refused(&[("io", "aio")], "--io aio: ", "epoll");
    refused(&[("tls", "1.3")], "--tls 1.3: ", "resumed");
    refused(&[("expect-sha256", "abc")], "--expect-sha256 abc: ", "64");
    refused(&[("expect-status", "abc")], "--expect-status abc: ", "2xx");
    refused(&[("duration", "0")], "--duration 0: ", "above 0");
    refused(&[("batch", "2s")], "--batch 2s: ", "1s");
    refused(&[("path", "hello")], "--path hello: ", "/");
    refused(&[("warmup", "some")], "--warmup some: ", "number of requests");
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_its_option_before_the_first_trial() {
    refused_here(&[("access-log", "/no/such.log")], "--access-log /no/such.log: ");
    refused_here(&[("body", "@/no/such")], "--body @/no/such: ");
    let https = ("url", "https://127.0.0.1/");
    refused_here(&[https, ("ca", "/no/such.pem")], "--ca /no/such.pem: ");
    let refuses = "--congestion telepathy: the kernel refuses it (";
    refused_here(&[("congestion", "telepathy")], refuses);
}

#[test]
fn content_makes_a_post_of_a_get() {
    let settings = read(&[("body", "a=1")]).unwrap();
    assert_eq!(
        (settings.requests.method.as_str(), settings.requests.body),
        ("POST", Some(Body::Text(b"a=1".to_vec())))
    );
}

#[test]
fn the_host_field_may_be_given() {
    let mut settings = Settings::new();
    settings.insert("header".into(), Value::from(vec!["Host: example.org", "Accept: a, b"]));
    let read = HttpSettings::from(&settings).unwrap().requests;
    assert_eq!(read.host.as_deref(), Some("example.org"));
    assert_eq!(read.fields, [("Accept".to_owned(), "a, b".to_owned())]);
}

#[test]
fn several_paths_are_asked_for_in_turn() {
    let settings = read(&[("path", "/a /b?c=d")]).unwrap();
    assert_eq!(settings.lab().unwrap().paths, ["/a", "/b?c=d"]);
}

#[test]
fn any_other_name_of_a_server_is_a_command() {
    let settings = read(&[("server", "python3 -m http.server 8000"), ("port", "8000")]).unwrap();
    let LabServer::Command(line, port) = &settings.lab().unwrap().server else { panic!() };
    assert_eq!((line.as_str(), *port), ("python3 -m http.server 8000", Some(8000)));
}

#[test]
fn urls_are_of_one_origin_and_https_speaks_tls() {
    let two = read(&[("url", "http://10.0.0.1:81/a http://10.0.0.1:81/b")]).unwrap();
    let Ends::Target(urls, _) = &two.ends else { panic!() };
    assert_eq!((urls.len(), two.tls), (2, Tls::Off));
    refused(&[("url", "http://10.0.0.1/a http://10.0.0.2/b")], "--url ", "an arm for each server");
    refused(&[("url", "http://a/,http://b/")], "--url ", "a comma does not separate URLs");
    refused(&[("url", "ftp://10.0.0.1/")], "--url ftp://10.0.0.1/: ", "");
    assert_eq!(read(&[("url", "https://10.0.0.1/")]).unwrap().tls, Tls::Resumed);
    let full = read(&[("url", "https://10.0.0.1/"), ("tls", "full"), ("insecure", "on")]);
    assert_eq!(full.unwrap().tls, Tls::Full);
    refused(&[("url", "https://10.0.0.1/"), ("tls", "off")], "--tls off: ", "https");
}
