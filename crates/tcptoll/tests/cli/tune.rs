//! `tune` without a lab: wrong input, what would be done, and a result of before.

use std::fs;

use serde_json::Value;
use tcptoll::tune::found::{Found, VERSION};
use tcptoll::tune::setting::Cell;
use tcptoll::tune::setting::Setting;
use tcptoll_measure::pages::Server;

use crate::refused::refused;
use crate::tcptoll;

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let no_log = file("no.log", "this is no log\n\u{1b}[2J\n");
    let pictures = file(
        "pictures.log",
        "192.0.2.1 - - [22/Nov/2025:02:00:03 +0000] \"GET /a.png HTTP/1.1\" 200 9 \"-\" \"x\"\n",
    );
    let unset = file("unset.conf", "ServerName a\n");
    let cut = file("nginx.conf", "http { keepalive_timeout 5;");
    let object = file("object.json", "{\"tune_version\": 1}");
    let prove = ["--prove", "ftp://a/", "--mine", "--switch-found", "x", "--switch-present", "y"];
    for (args, names) in [
        (&["lighttpd"][..], "invalid value 'lighttpd'"),
        (&["apache", "--mpm", "itk"], "--mpm itk: write prefork, worker or event"),
        (&["nginx", "--mpm", "event"], "--mpm goes with `tune apache`"),
        (&["nginx", "--rate", "1,2"], "--rate 1,2: tune takes one value"),
        (&["nginx", "--rate", "0"], "--rate 0"),
        (&["nginx", "--memory", "1K"], "--memory 1K: no server starts with less than 32M"),
        (&["nginx", "--worker-memory", "20M"], "--worker-memory 20M: only --php worker"),
        (&["nginx", "--keepalive-timeout", "5s"], "--keepalive-timeout"),
        (&["nginx", "--compare-time", "soon"], "--compare-time soon"),
        (&["nginx", "--behind-timeout", "0s"], "--behind-timeout 0s: write the balancer's"),
        (&["nginx", "--site", "/no/such/folder"], "--site /no/such/folder"),
        (&["nginx", "--har", &no_log], "it is no HAR file"),
        (&["nginx", "--study", "backlog"], "--study backlog: it is a study of `connect`"),
        (&["nginx", "--study", "no-such-study"], "study no-such-study"),
        (&["nginx", "--access-log", "/no/such/log"], "--access-log /no/such/log"),
        (&["nginx", "--access-log", "/"], "not a regular file"),
        (&["nginx", "--access-log", &no_log], "it has no GET request of a visitor"),
        (&["nginx", "--access-log", &pictures], "it has no document"),
        (&["apache", "--present", "/no/such/file"], "--present /no/such/file"),
        (&["apache-event", "--present", &unset], "it sets none of KeepAliveTimeout"),
        (&["nginx", "--present", &cut], "--present"),
        (&["nginx", "--from", &no_log], "it is no result of tune"),
        (&["nginx", "--from", &object], "it is no result of tune"),
        (&["nginx", "--prove", "http://127.0.0.1/"], "--mine"),
        (&[&["nginx"], &prove[..]].concat(), "ftp://a/"),
        (&["nginx", "--html", "/no/such/folder/page.html"], "there is no folder /no/such/folder"),
        (&["nginx", "--snippet", "/"], "this is a folder; name a file in it"),
        (&["nginx", "--url", "http://a/", "--site", "/tmp"], "--site"),
    ] {
        refused(&[&["tune"], args].concat(), names);
    }
}

#[test]
fn a_log_becomes_a_load_and_what_it_cannot_show_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let mut text = String::new();
    for second in 0..60 {
        for path in ["/", "/a.css", "/b.js"] {
            text += &format!(
                "192.0.2.{second} - - [22/Nov/2025:03:00:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 4000 \"-\" \"Mozilla\"\n"
            );
        }
    }
    fs::write(&log, text).unwrap();
    let log = log.display().to_string();
    let ran = tcptoll(&["tune", "nginx", "--access-log", &log, "--dry-run"]);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    for part in [
        "rate 1.000\n",
        "resources 2\n",
        "resource-size 4000\n",
        "pages 1.00\n",
        "closed the tab",
        "60 visits",
    ] {
        assert!(ran.stdout.contains(part), "{part}:\n{}", ran.stdout);
    }
    // What is typed takes the place of what the log shows.
    let ran = tcptoll(&["tune", "nginx", "--access-log", &log, "--rate", "7", "--dry-run"]);
    assert!(ran.stdout.contains("rate 7\n"), "{}", ran.stdout);
}

#[test]
fn a_result_of_before_is_shown_again_and_the_object_is_what_the_schema_says() {
    let schema = tcptoll(&["schema", "tune"]);
    let schema: Value = serde_json::from_str(&schema.stdout).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let setting = Setting { timeout_ms: Some(2_000), requests: 100, workers: 900 };
    let cell = Cell { setting, rounds: 1, pages: 9, page_us_p95: Some(9e4), ..Cell::default() };
    let found = Found {
        tune_version: VERSION,
        server: Server::Nginx,
        choice: Some(setting),
        cells: vec![cell],
        server_version: Some("nginx\u{1b}[2J".to_owned()),
        ..Found::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (from, out, snippet) = (path("from.json"), path("out.json"), path("nginx.snippet"));
    fs::write(&from, serde_json::to_string(&found).unwrap()).unwrap();
    let files =
        ["--from", &from, "--out", &out, "--snippet", &snippet, "--distribution", "red-hat"];
    let ran =
        tcptoll(&[&["tune", "nginx", "--quiet", "--behind-timeout", "1s"], &files[..]].concat());
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("Set keepalive_timeout 2 s, keepalive_requests 100"),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains('\u{1b}'), "the name of a server cannot steer the terminal");
    assert!(fs::read_to_string(&snippet).unwrap().contains("worker_connections 904;"));
    let object: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let problems: Vec<String> = validator.iter_errors(&object).map(|one| one.to_string()).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    // Of another server it says nothing.
    refused(&["tune", "apache-event", "--from", &from], "it is of nginx, not of apache-event");
    // A balancer that keeps its connections for longer breaks the rule: status 1.
    let ran = tcptoll(&[
        "tune",
        "nginx",
        "-q",
        "--from",
        &from,
        "--out",
        &out,
        "--behind-timeout",
        "60s",
    ]);
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Set keepalive_timeout to 65 s"), "{}", ran.stdout);
}
