//! Does a page take the connections and round trips that follow from its settings, ours and in Chromium?
//!
//! Counts are exact and times have lower bounds only: round trips that cannot be saved.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use tcptoll_core::page::waterfall::Waterfall;
use tcptoll_core::record::{Arm, PageLoads, Summary};

use crate::support::{Folder, TOLERANCE, checked_summary, lacks, only, run, tcptoll};

/// Loads a page once in each arm.
fn loaded(args: &[&str]) -> Summary {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["page", "--quiet", "--format", "json", "--out", &record, "--rounds", "1"];
    all.extend(["--link-tolerance", TOLERANCE, "--seed", "1", "--loads", "1"]);
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0 | 1)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    checked_summary(&ran.stdout)
}

fn loads(arm: &Arm) -> &PageLoads {
    assert_eq!((arm.ok, arm.attempts), (1, 1), "{}: {:?}", arm.name, arm.errors);
    arm.own.page.as_deref().expect("the arm has what was loaded")
}

fn page(arm: &Arm) -> &Waterfall {
    &loads(arm).waterfall
}

fn value(arm: &Arm, metric: &str) -> f64 {
    arm.metrics[metric].value
}

/// First SYNs on the wire, over both loads of the trial: the one that is not measured too.
fn syns(arm: &Arm) -> u64 {
    let wire = arm.wire.as_ref().unwrap();
    wire.client_to_server.syn
}

#[test]
fn keepalive_makes_six_connections_of_twenty_one() {
    if lacks(&["apache2"]) {
        return;
    }
    let summary = loaded(&["--link", "rtt=20ms", "--keepalive", "on,off"]);
    let [on, off] = summary.arms.as_slice() else { panic!("two arms") };
    for (arm, connections) in [(on, 6.0), (off, 21.0)] {
        assert_eq!(page(arm).requests.len(), 21);
        assert!((value(arm, "connections_opened") - connections).abs() < 1e-9, "{}", arm.name);
        assert!(syns(arm) as f64 >= 2.0 * connections, "{}", arm.name);
        assert_eq!(loads(arm).span_from, "wire");
        // A handshake, the document, and the style sheets in at least four turns of six.
        assert!(loads(arm).spans_us[0] > 5.0 * 19_000.0, "{}: {:?}", arm.name, loads(arm).spans_us);
        assert!(value(arm, "forecast_us") > 5.0 * 19_000.0);
        for request in &page(arm).requests {
            assert_eq!(request.status, Some(200));
            // A busy machine may stop the client between its write and the clock that ends the sending.
            assert!(request.phases.send_us + request.phases.wait_us > 19_000, "{request:?}");
        }
    }
    let handshakes = page(off).requests.iter().filter(|one| one.phases.connect_us > 19_000);
    assert_eq!(handshakes.count(), 21);
    assert_eq!(summary.causes.iter().filter(|one| one.id == "connection-per-resource").count(), 1);
}

#[test]
fn a_server_that_closes_after_three_responses_costs_a_connection_for_each_three() {
    if lacks(&["nginx"]) {
        return;
    }
    let summary = loaded(&["--server", "nginx", "--keepalive", "on", "--keepalive-requests", "3"]);
    let arm = only(&summary);
    assert_eq!(page(arm).requests.len(), 21);
    assert!(value(arm, "connections_opened") >= 7.0);
    assert!(page(arm).connections.iter().all(|one| one.requests <= 3));
}

#[test]
fn the_next_page_finds_its_connections_open_only_within_the_servers_timeout() {
    if lacks(&["apache2"]) {
        return;
    }
    let summary = loaded(&[
        "--link",
        "rtt=5ms",
        "--keepalive",
        "on",
        "--keepalive-timeout",
        "1s",
        "--next-page-after",
        "100ms,2500ms",
    ]);
    let [within, after] = summary.arms.as_slice() else { panic!("two arms") };
    // A machine that stood still for a second would have let the timeout pass.
    assert!(value(within, "next_page_connections") <= value(after, "next_page_connections"));
    assert!(value(after, "next_page_connections") >= 1.0);
    assert_eq!(loads(after).next_page.as_ref().unwrap().requests.len(), 21);
}

#[test]
fn http2_carries_a_page_over_one_connection() {
    if lacks(&["apache2", "nginx"]) {
        return;
    }
    for server in ["apache", "nginx"] {
        let summary = loaded(&["--server", server, "--protocol", "h2", "--link", "rtt=10ms"]);
        let arm = only(&summary);
        assert_eq!(page(arm).requests.len(), 21, "{server}");
        assert!((value(arm, "connections_opened") - 1.0).abs() < 1e-9, "{server}");
        assert!(page(arm).connections[0].secured_us.is_some());
    }
}

#[test]
fn php_takes_the_time_it_was_given() {
    if lacks(&["apache2", "php-fpm8.2"]) {
        return;
    }
    let summary = loaded(&["--keepalive", "on", "--work", "200ms"]);
    let arm = only(&summary);
    assert!(value(arm, "first_byte_us_mean") > 200_000.0);
    assert!(page(arm).requests[1].phases.wait_us < page(arm).requests[0].phases.wait_us);
}

#[test]
fn a_folder_is_loaded_with_its_styles_fonts_and_images_and_nothing_outside_it() {
    if lacks(&["apache2"]) {
        return;
    }
    let folder = Folder::new();
    let write = |name: &str, text: &str| fs::write(folder.file(name), text).unwrap();
    write(
        "index.html",
        "<link rel=stylesheet href=a.css><img src=pic.svg><img src=../../../../etc/hostname>\
         <a href=other.html>no</a><script src=s.js></script><img src=https://elsewhere.test/x.png>",
    );
    write(
        "a.css",
        "@import 'b.css'; @font-face{font-family:F;src:url(f.woff2)} @font-face{font-family:G;src:url(g.woff2)} \
         body{font-family:F} .none{background:url(unused.png)} img{background:url(used.png)}",
    );
    write("b.css", "@import 'a.css';");
    for name in ["pic.svg", "s.js", "f.woff2", "g.woff2", "used.png", "unused.png"] {
        write(name, "x");
    }
    let site = folder.0.path().display().to_string();
    let summary = loaded(&["--keepalive", "on", "--site", &site]);
    let page = page(only(&summary));
    let mut names: Vec<&str> =
        page.requests.iter().map(|one| one.url.rsplit('/').next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["", "a.css", "b.css", "f.woff2", "hostname", "pic.svg", "s.js", "used.png"]);
    let outside = page.requests.iter().find(|one| one.url.ends_with("hostname")).unwrap();
    assert_eq!(outside.status, Some(404));
    let other = page.left_out.iter().find(|left| left.reason == "other-origin").unwrap();
    assert_eq!(other.count, 1);
}

#[test]
fn ten_thousand_links_are_bounded_and_accounted_for() {
    if lacks(&["nginx"]) {
        return;
    }
    let folder = Folder::new();
    let links: Vec<String> = (0..10_000).map(|n| format!("<img src=\"i{n}.png\">")).collect();
    fs::write(folder.file("index.html"), links.concat()).unwrap();
    let site = folder.0.path().display().to_string();
    let summary =
        loaded(&["--server", "nginx", "--link", "direct", "--keepalive", "on", "--site", &site]);
    let arm = only(&summary);
    assert!((value(arm, "requests") - 2_000.0).abs() < 1e-9);
    let page = page(arm);
    let beyond = page.left_out.iter().find(|left| left.reason == "too-many").unwrap();
    assert_eq!(beyond.count, 8_001);
    assert_eq!(page.requests.len() as u64 + loads(arm).requests_left_out, 2_000);
}

#[test]
fn a_har_file_is_replayed_in_its_order_and_no_name_of_it_becomes_a_path() {
    if lacks(&["apache2"]) {
        return;
    }
    let entry = |at: u32, url: &str, by: &str| {
        format!(
            r#"{{"startedDateTime":"2026-01-01T00:00:00.{at:03}Z","request":{{"method":"GET","url":"{url}"}},
            "response":{{"status":200,"bodySize":2000,"content":{{"mimeType":"text/css"}}}},
            "timings":{{"wait":1}},"_initiator":{{"url":"{by}"}}}}"#
        )
    };
    let first = "https://a.test/../../x";
    let entries = [
        entry(0, first, ""),
        entry(1, "https://b.test/%2e%2e/etc/passwd", first),
        entry(2, "https://a.test/y.css", "https://b.test/%2e%2e/etc/passwd"),
    ];
    let folder = Folder::new();
    let har = folder.path("page.har");
    fs::write(&har, format!(r#"{{"log":{{"entries":[{}]}}}}"#, entries.join(","))).unwrap();
    let summary = loaded(&["--keepalive", "on", "--har", &har]);
    let page = page(only(&summary));
    let initiators: Vec<_> = page.requests.iter().map(|one| one.initiator).collect();
    assert_eq!(initiators, [None, Some(0), Some(1)]);
    assert!(page.requests.iter().all(|one| !one.url.contains("passwd")), "{page:?}");
    assert!(page.requests[2].known_us >= page.requests[1].ended_us());
    let ran = run(&mut tcptoll(&["page", "--quiet", "--har", "/dev/null"]));
    assert_eq!(ran.status, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("--har /dev/null: it is not a regular file"), "{}", ran.stderr);
}

#[test]
fn a_page_of_a_server_that_runs_already_is_loaded_over_the_machines_own_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/dir/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 2_048];
            let length = stream.read(&mut head).unwrap_or(0);
            let text = String::from_utf8_lossy(&head[..length]).into_owned();
            let body = if text.starts_with("GET /dir/ ") { "<img src=a.png>" } else { "x" };
            let _ = stream.write_all(
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )
                .as_bytes(),
            );
        }
    });
    let summary = loaded(&[&url]);
    let arm = only(&summary);
    assert_eq!(page(arm).requests.len(), 2);
    assert_eq!(loads(arm).span_from, "client");
    assert!(page(arm).requests[1].url.ends_with("/dir/a.png"));
}

/// Chromium uses all CPUs for a second.
mod alone {
    use super::*;

    #[test]
    fn chromium_opens_as_many_connections_for_the_same_page_as_tcptoll() {
        if lacks(&["apache2", "chromium"]) {
            return;
        }
        let args = ["--link", "rtt=20ms", "--browser", "off,on", "--keepalive", "on,off"];
        let summary = loaded(&args);
        assert_eq!(summary.arms.len(), 4);
        for arm in &summary.arms {
            let connections = if arm.name.ends_with("off") { 21.0 } else { 6.0 };
            assert!((value(arm, "connections_opened") - connections).abs() < 1e-9, "{}", arm.name);
            assert_eq!(page(arm).requests.len(), 21, "{}", arm.name);
            assert!(loads(arm).spans_us[0] > 5.0 * 19_000.0, "{}", arm.name);
        }
        let browsers: Vec<_> =
            summary.arms.iter().filter(|arm| loads(arm).browser.is_some()).collect();
        assert_eq!(browsers.len(), 2);
        let urls = |arm: &Arm| {
            let mut urls: Vec<String> =
                page(arm).requests.iter().map(|one| one.url.clone()).collect();
            urls.sort();
            urls
        };
        assert_eq!(urls(browsers[0]), urls(&summary.arms[0]));
    }
}
