//! Sites of several files on real servers: what they answer, how they keep connections, and how long a
//! load takes on the wire.

use std::fs;
use std::os::unix::fs::symlink;

use tcptoll_core::page::resource::Kind;
use tcptoll_core::page::site::{MadePage, Site};
use tcptoll_core::tcp::wire::Span;
use tcptoll_lab::messages::{ServerKind, ServerSpec, TakeSpan, UPLOAD_MAX, Upload, Watch};

use crate::known_servers::{Lab, spec};
use crate::support::lacks;

const ALL: [ServerKind; 4] = [
    ServerKind::Nginx,
    ServerKind::ApacheEvent,
    ServerKind::ApacheWorker,
    ServerKind::ApachePrefork,
];

/// Asks for each path in turn, on one connection while the server keeps it, and prints status, length, type and
/// encoding of each answer, and the number of connections. `http://address:port name accept paths…`
const CLIENT: &str = r"
import http.client, ssl, sys, time
scheme, port, roots, name, accept = sys.argv[1:6]
made = 0
connection = None
for path in sys.argv[6:]:
    if connection is None:
        if scheme == 'https':
            context = ssl.create_default_context(cafile=roots)
            connection = http.client.HTTPSConnection(name, int(port), context=context, timeout=60)
            import socket
            raw = socket.create_connection(('10.77.0.2', int(port)))
            connection.sock = context.wrap_socket(raw, server_hostname=name)
        else:
            connection = http.client.HTTPConnection('10.77.0.2', int(port), timeout=60)
            connection.connect()
        made += 1
    begun = time.monotonic()
    connection.putrequest('GET', path, skip_host=True, skip_accept_encoding=True)
    connection.putheader('Host', name)
    connection.putheader('Accept-Encoding', accept)
    connection.endheaders()
    answer = connection.getresponse()
    length = len(answer.read())
    ms = round((time.monotonic() - begun) * 1000)
    print(answer.status, length, answer.getheader('Content-Type'), answer.getheader('Content-Encoding'), ms)
    if answer.will_close:
        connection = None
print(made)
";

fn page() -> MadePage {
    MadePage {
        resources: 4,
        kind: Kind::Stylesheet,
        resource_bytes: 3_000,
        page_bytes: 6_000,
        page_time_ns: 0,
        resource_time_ns: 0,
        shards: Vec::new(),
        tls: false,
        port: 80,
    }
}

fn serving(kind: ServerKind, site: Site) -> ServerSpec {
    ServerSpec { site: Some(site), ..spec(kind) }
}

/// Lines that the client printed.
fn ask(lab: &mut Lab, options: &str, paths: &str) -> Vec<String> {
    let script = lab.folder.file("client.py");
    fs::write(&script, CLIENT).unwrap();
    let line = format!("python3 {} {options} {paths}", script.display());
    lab.run(&line).lines().map(str::to_owned).collect()
}

#[test]
fn a_made_page_is_served_whole_with_and_without_keepalive_and_up_to_the_limit_of_requests() {
    if lacks(&["nginx", "apache2", "python3"]) {
        return;
    }
    for kind in ALL {
        let cases =
            [(true, None, "1"), (false, None, "5"), (true, Some(1), "5"), (true, Some(2), "3")];
        for (keepalive, keepalive_requests, connections) in cases {
            let mut lab = Lab::new(&format!("site-{kind:?}"));
            let site = Site::of_page(&page()).unwrap();
            let spec = ServerSpec { keepalive, keepalive_requests, ..serving(kind, site) };
            lab.serve(&spec);
            let paths = "/ /r/1.css /r/2.css /r/3.css /r/4.css";
            let lines = ask(&mut lab, "http 80 - page.test gzip", paths);
            let status = |line: &String| line.rsplit_once(' ').unwrap().0.to_owned();
            assert_eq!(status(&lines[0]), "200 6000 text/html None", "{kind:?}");
            for line in &lines[1..5] {
                assert_eq!(status(line), "200 3000 text/css None", "{kind:?}");
            }
            assert_eq!(lines[5], connections, "{kind:?} {keepalive} {keepalive_requests:?}");
            lab.kill();
        }
    }
}

#[test]
fn a_page_with_a_server_time_is_phps_and_takes_it() {
    if lacks(&["nginx", "apache2", "php-fpm8.2", "python3"]) {
        return;
    }
    for kind in ALL {
        let mut lab = Lab::new(&format!("site-php-{kind:?}"));
        let page = MadePage { page_time_ns: 250_000_000, ..page() };
        let mut site = Site::of_page(&page).unwrap();
        site.compress = true;
        let serving = lab.serve(&serving(kind, site));
        assert!(serving.version.contains("PHP "), "{}", serving.version);
        let lines = ask(&mut lab, "http 80 - page.test identity", "/ /index.html /r/1.css");
        for line in &lines[..2] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[..4], ["200", "6000", "text/html", "None"], "{kind:?}");
            assert!(words[4].parse::<u64>().unwrap() >= 250, "{kind:?}: {line}");
        }
        // One connection carries all, also after PHP's answers.
        assert_eq!(lines[3], "1", "{kind:?}");
        // Compressed, PHP's and the files.
        for line in &ask(&mut lab, "http 80 - page.test gzip", "/ /r/1.css")[..2] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[3], "gzip", "{kind:?}: {line}");
            assert!(words[1].parse::<u64>().unwrap() < 2_000, "{kind:?}: {line}");
        }
        lab.kill();
    }
}

#[test]
fn a_folder_is_served_with_its_types_and_no_link_out_of_it_is_followed() {
    if lacks(&["nginx", "apache2", "python3"]) {
        return;
    }
    for kind in ALL {
        let mut lab = Lab::new(&format!("site-folder-{kind:?}"));
        let outside = lab.folder.file("printed.secret");
        fs::write(&outside, "secret").unwrap();
        let root = lab.folder.file("printed.site");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(root.join("index.html"), "<p>hello").unwrap();
        fs::write(root.join("a/x.min.js"), "var x;").unwrap();
        fs::write(root.join("a/x.php"), "<?php echo 1;").unwrap();
        symlink(&outside, root.join("a/link.txt")).unwrap();
        symlink("/etc", root.join("etc")).unwrap();
        let folder = Some(root.to_str().unwrap().to_owned());
        lab.serve(&serving(kind, Site { folder, ..Site::default() }));
        let paths = "/ /a/x.min.js /a/x.php /a/link.txt /etc/passwd /../printed.secret /none.css";
        let lines = ask(&mut lab, "http 80 - page.test identity", paths);
        assert!(lines[0].starts_with("200 8 text/html"), "{lines:?}");
        assert!(lines[1].starts_with("200 6 text/javascript"), "{lines:?}");
        // As text, and not run.
        assert!(lines[2].starts_with("200 13 "), "{lines:?}");
        for line in &lines[3..7] {
            assert!(line.starts_with("403 ") || line.starts_with("40"), "{kind:?}: {lines:?}");
        }
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&outside).unwrap();
        lab.kill();
    }
}

#[test]
fn http2_and_the_names_of_shards_are_in_tls_and_prefork_refuses_http2() {
    if lacks(&["nginx", "apache2", "python3", "nghttp"]) {
        return;
    }
    for kind in ALL {
        let mut lab = Lab::new(&format!("site-h2-{kind:?}"));
        let shards = ["s0.test", "s1.test"].map(str::to_owned).to_vec();
        let page = MadePage { shards, tls: true, port: 443, ..page() };
        let site = Site { http2: true, ..Site::of_page(&page).unwrap() };
        let at = "10.77.0.2:443".parse().unwrap();
        let spec = ServerSpec { tls: true, at, ..serving(kind, site) };
        if kind == ServerKind::ApachePrefork {
            let error = lab.refused(&spec);
            assert!(error.contains("prefork has no HTTP/2"), "{error}");
            continue;
        }
        let serving = lab.serve(&spec);
        let roots = lab.folder.file("printed.pem");
        fs::write(&roots, serving.certificate.unwrap()).unwrap();
        for name in ["s0.test", "s1.test", "tcptoll.test"] {
            let options = format!("https 443 {} {name} identity", roots.display());
            let lines = ask(&mut lab, &options, "/ /r/1.css");
            assert!(lines[0].starts_with("200 6000 text/html"), "{kind:?}: {lines:?}");
            assert!(lines[1].starts_with("200 3000 text/css"), "{kind:?}: {lines:?}");
        }
        let printed =
            lab.run("nghttp -nvs https://10.77.0.2/index.html https://10.77.0.2/r/1.css 2>&1");
        assert!(printed.contains("The negotiated protocol: h2"), "{kind:?}: {printed}");
        assert_eq!(printed.matches(":status: 200").count(), 2, "{kind:?}: {printed}");
        fs::remove_file(&roots).unwrap();
        lab.kill();
    }
}

#[test]
fn a_site_longer_than_a_message_is_uploaded() {
    if lacks(&["apache2", "python3"]) {
        return;
    }
    let mut lab = Lab::new("site-uploaded");
    let page = MadePage { resources: 2_000, resource_bytes: 100, ..page() };
    let text = serde_json::to_string(&Site::of_page(&page).unwrap()).unwrap();
    assert!(text.len() > 65_536);
    for piece in text.as_bytes().chunks(UPLOAD_MAX) {
        lab.server.ask(&Upload(String::from_utf8(piece.to_vec()).unwrap())).unwrap();
    }
    lab.serve(&ServerSpec { site_uploaded: true, ..spec(ServerKind::ApacheEvent) });
    let lines = ask(&mut lab, "http 80 - page.test identity", "/r/2000.css");
    assert!(lines[0].starts_with("200 100 text/css"), "{lines:?}");
    lab.kill();
}

#[test]
fn servers_without_sites_say_so() {
    if lacks(&["puma"]) {
        return;
    }
    let mut lab = Lab::new("site-none");
    let error = lab.refused(&serving(ServerKind::Puma, Site::of_page(&page()).unwrap()));
    assert!(error.contains("cannot serve a site"), "{error}");
    let folder = Site { folder: Some("/usr".to_owned()), ..Site::default() };
    let error = lab.refused(&serving(ServerKind::Null, folder));
    assert!(error.contains("neither serves a folder"), "{error}");
    lab.kill();
}

/// What a link sees of a page of five files, and what it takes at least.
fn span_over(link: &str, keepalive: bool) -> Span {
    let mut lab = Lab::over(link, "site-span");
    lab.serve(&ServerSpec {
        keepalive,
        ..serving(ServerKind::Nginx, Site::of_page(&page()).unwrap())
    });
    assert_eq!(lab.link.ask(&TakeSpan).unwrap(), None);
    lab.link.ask(&Watch { spans: true, tap: link == "direct", ..Watch::default() }).unwrap();
    let paths = "/ /r/1.css /r/2.css /r/3.css /r/4.css";
    ask(&mut lab, "http 80 - page.test identity", paths);
    let span = lab.link.ask(&TakeSpan).unwrap().unwrap();
    let empty = lab.link.ask(&TakeSpan).unwrap().unwrap();
    assert_eq!((empty.connections, empty.span_us), (0, None));
    lab.kill();
    span
}

#[test]
fn the_span_of_a_load_has_its_connections_its_bytes_and_at_least_its_round_trips() {
    if lacks(&["nginx", "python3"]) {
        return;
    }
    for link in ["direct", "rtt=40ms"] {
        for (keepalive, connections, round_trips) in [(true, 1, 6), (false, 5, 10)] {
            let span = span_over(link, keepalive);
            assert_eq!((span.connections, span.active), (connections, connections), "{link}");
            assert_eq!((span.refused, span.rows.len() as u64), (0, connections), "{link}");
            // 18,000 bytes of content, and five heads.
            assert!((18_500..20_500).contains(&span.server_bytes), "{link}: {span:?}");
            let least_us = if link == "direct" { 0.0 } else { f64::from(round_trips) * 40_000.0 };
            // The link's own delay is right within 100 µs each way.
            let span_us = span.span_us.unwrap();
            assert!(span_us > least_us - 2_000.0, "{link}: {span_us}");
        }
    }
}

/// Asks once over TLS, prints when the response was there, ns on the monotonic clock, and waits until the
/// server closes.
const UNTIL_CLOSED: &str = r"
import socket, ssl, sys, time
context = ssl.create_default_context(cafile=sys.argv[1])
raw = socket.create_connection(('10.77.0.2', 443))
s = context.wrap_socket(raw, server_hostname='tcptoll.test')
s.sendall(b'GET /r/1.css HTTP/1.1\r\nHost: tcptoll.test\r\n\r\n')
got = b''
while got.count(b'\n') < 20 or not got.endswith(b' ' * 8):
    more = s.recv(65536)
    if not more:
        break
    got += more
    if b'\r\n\r\n' in got and len(got.split(b'\r\n\r\n', 1)[1]) >= 3000:
        break
print(time.monotonic_ns())
assert s.recv(1) == b''
";

#[test]
fn a_server_that_closes_after_its_idle_timeout_does_not_lengthen_the_span() {
    if lacks(&["nginx", "apache2", "python3"]) {
        return;
    }
    for kind in [ServerKind::Nginx, ServerKind::ApacheEvent] {
        let mut lab = Lab::over("rtt=10ms", &format!("span-close-{kind:?}"));
        let at = "10.77.0.2:443".parse().unwrap();
        let site = Site::of_page(&page()).unwrap();
        let keepalive_timeout_ns = Some(1_000_000_000);
        let spec = ServerSpec { tls: true, at, keepalive_timeout_ns, ..serving(kind, site) };
        let serving = lab.serve(&spec);
        let [script, roots] = ["client.py", "printed.pem"].map(|name| lab.folder.file(name));
        fs::write(&script, UNTIL_CLOSED).unwrap();
        fs::write(&roots, serving.certificate.unwrap()).unwrap();
        lab.link.ask(&Watch { spans: true, ..Watch::default() }).unwrap();
        let printed = lab.run(&format!("python3 {} {}", script.display(), roots.display()));
        let read_ns: u64 = printed.trim().parse().unwrap();
        let span = lab.link.ask(&TakeSpan).unwrap().unwrap();
        assert_eq!(span.connections, 1);
        assert!(span.last_byte_ns.unwrap() <= read_ns, "{kind:?}: {read_ns} {span:?}");
        fs::remove_file(&roots).unwrap();
        lab.kill();
    }
}

#[test]
fn lost_segments_are_seen_to_hold_back_others_and_without_loss_none_are() {
    if lacks(&["nginx", "python3"]) {
        return;
    }
    for (link, lossy) in [("rtt=4ms,loss=10%", true), ("rtt=4ms", false)] {
        let mut lab = Lab::over(link, "span-loss");
        let page = MadePage { resources: 2, resource_bytes: 2_000_000, ..page() };
        lab.serve(&serving(ServerKind::Nginx, Site::of_page(&page).unwrap()));
        lab.link.ask(&Watch { spans: true, ..Watch::default() }).unwrap();
        ask(&mut lab, "http 80 - page.test identity", "/r/1.css /r/2.css");
        let span = lab.link.ask(&TakeSpan).unwrap().unwrap();
        let held = span.head_of_line;
        println!("{link}: {} retransmissions, {held:?}", span.server_retransmissions);
        // What was retransmitted is counted once: twice the content, and two heads.
        assert!((4_000_100..4_001_000).contains(&span.server_bytes), "{}", span.server_bytes);
        if lossy {
            assert!(span.server_retransmissions > 0 && held.gaps > 0, "{span:?}");
            assert!(held.held_bytes > 0 && held.held_ns > 1_000_000, "{held:?}");
        } else {
            assert_eq!((held.gaps, held.held_bytes, held.held_ns), (0, 0, 0));
        }
        lab.kill();
    }
}
