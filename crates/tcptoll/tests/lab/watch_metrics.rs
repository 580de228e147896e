//! `tcptoll watch --listen`, scraped by the real Prometheus and checked by its own tool.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tcptoll_kernel::socket::Tcp;

use crate::support::{Folder, Ran, lacks, not_root, run, tcptoll};

/// What a busy machine may take for anything here.
const PATIENCE: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_millis(100);

/// A program that runs until the test ends, however it ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Starts a program and reads its stderr up to a line in which `find` finds something. The rest is read
/// and dropped, so that the program never waits.
fn start<T>(command: &mut Command, find: impl Fn(&str) -> Option<T>) -> (Running, T) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr: ChildStderr = child.stderr.take().unwrap();
    let running = Running(child);
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    let mut seen = Vec::new();
    let found = lines.by_ref().find_map(|line| {
        let found = find(&line);
        seen.push(line);
        found
    });
    let found = found.unwrap_or_else(|| panic!("{command:?} ended: {seen:#?}"));
    thread::spawn(move || lines.for_each(drop));
    (running, found)
}

/// Starts a watch; gives where its metrics are.
fn watch(args: &[&str]) -> (Running, SocketAddr) {
    let mut all = vec!["watch", "--listen", "127.0.0.1:0", "--interval", "500ms"];
    all.extend(args);
    start(&mut tcptoll(&all), |line| {
        line.strip_prefix("metrics http://")?.strip_suffix("/metrics")?.parse().ok()
    })
}

/// Head and body of an answer.
fn get(at: SocketAddr, path: &str, fields: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: {at}\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Asks again until there is something.
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::sleep(PAUSE);
    }
}

/// The page, once there was a look.
fn page(at: SocketAddr, fields: &str) -> (String, String) {
    until("the first look", || {
        Some(get(at, "/metrics", fields)).filter(|(head, _)| head.contains(" 200 OK"))
    })
}

fn value<'a>(page: &'a str, sample: &str) -> Option<&'a str> {
    page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))
}

/// Connections to a listener that nobody accepts, as many as its queue holds.
fn full_queue(listener: &Tcp, backlog: usize) -> (SocketAddr, Vec<TcpStream>) {
    let at = listener.local().unwrap();
    // The queue holds one more than its limit.
    (at, (0..=backlog).map(|_| TcpStream::connect(at).unwrap()).collect())
}

/// Recv-Q and Send-Q of `ss`.
fn by_ss(at: SocketAddr) -> (String, String) {
    let ran = run(Command::new("ss").args(["-Hltn", &format!("sport = :{}", at.port())]));
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    let [_, queue, limit, local, ..] = words[..] else { panic!("{}{}", ran.stdout, ran.stderr) };
    assert_eq!(local, at.to_string());
    (queue.to_owned(), limit.to_owned())
}

/// `docs/watch` of the repository.
fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/watch").canonicalize().unwrap()
}

fn promtool(args: &[&str]) -> Ran {
    run(Command::new("promtool").args(args).current_dir(docs()))
}

/// Runs `promtool check metrics` on a page.
fn check_metrics(page: &str) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert_eq!((output.status.code(), String::from_utf8(said).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn rules_their_tests_and_the_configuration_pass_the_tool_of_prometheus() {
    if lacks(&["promtool"]) {
        return;
    }
    for args in [
        &["check", "rules", "alerts.yml"][..],
        &["test", "rules", "alerts.test.yml"],
        &["check", "config", "prometheus.yml"],
    ] {
        let ran = promtool(args);
        assert_eq!(ran.status, Some(0), "{args:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("SUCCESS"), "{args:?}: {}", ran.stdout);
    }
}

#[test]
fn the_real_page_passes_the_tool_of_prometheus_in_both_formats() {
    if lacks(&["promtool"]) {
        return;
    }
    let (_watch, at) = watch(&[]);
    let (head, text) = page(at, "");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    check_metrics(&text);
    // What the tool reads is what it would find fault with.
    let wrong = text.replace("tcptoll_watch_looks_total", "tcptoll_watchLooks");
    let refused = thread::spawn(move || check_metrics(&wrong)).join();
    assert!(refused.is_err(), "a check that cannot fail");
    let (head, open) = page(at, "Accept: application/openmetrics-text; version=1.0.0\r\n");
    assert!(head.contains("Content-Type: application/openmetrics-text"), "{head}");
    assert!(open.ends_with("# EOF\n"));
    let names = |page: &str| -> Vec<String> {
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    // Listeners of other programs come and go; what the program says of itself does not.
    for own in names(&open).iter().filter(|name| name.starts_with("tcptoll_watch_")) {
        assert!(names(&text).contains(own) || own.contains("table"), "{own}");
    }
}

/// Starts Prometheus with its data and its configuration in a folder of the test.
fn prometheus(folder: &Folder, target: SocketAddr) -> (Running, SocketAddr) {
    let config = std::fs::read_to_string(docs().join("prometheus.yml")).unwrap();
    let rules = docs().join("alerts.yml").display().to_string();
    let config = config
        .replace("127.0.0.1:9464\"]", &format!("{target}\"]"))
        .replace("15s", "1s")
        .replace("alerts.yml", &rules);
    assert!(config.contains(&target.to_string()) && config.contains(&rules), "{config}");
    let file = folder.path("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new("prometheus");
    command.args(["--web.listen-address=127.0.0.1:0", "--log.level=info"]);
    command.arg(format!("--config.file={file}"));
    command.arg(format!("--storage.tsdb.path={}", folder.path("data")));
    // `msg="Listening on" address=127.0.0.1:41234`
    start(command.current_dir(folder.0.path()), |line| {
        let address = line.split_once("Listening on")?.1.split_once("address=")?.1;
        address.split_whitespace().next()?.parse().ok().filter(|at: &SocketAddr| at.port() != 0)
    })
}

/// The data of an answer of Prometheus' API; none while it answers with an error.
fn api(at: SocketAddr, path: &str) -> Option<Value> {
    let (head, body) = get(at, path, "");
    let answer: Value = serde_json::from_str(&body).ok()?;
    assert!(!head.contains(" 400 "), "{path}: {body}");
    (answer["status"] == "success").then(|| answer["data"].clone())
}

/// The value of the only series of a query; none while there is none.
fn query(at: SocketAddr, query: &str) -> Option<String> {
    let escaped: String = query
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect();
    let data = api(at, &format!("/api/v1/query?query={escaped}"))?;
    match &data["result"].as_array()?[..] {
        [] => None,
        [only] => Some(only["value"][1].as_str()?.to_owned()),
        more => panic!("{query}: {more:?}"),
    }
}

#[test]
fn prometheus_has_the_queue_that_ss_shows_and_evaluates_every_alert() {
    if lacks(&["prometheus", "ss"]) {
        return;
    }
    // What this test asks of Prometheus are connections too, and a watch only knows how many there were in
    // all: among them a short queue may be one that moves.
    let listener = Tcp::listener("127.0.0.1:0".parse().unwrap(), 63, false).unwrap();
    let (planted, _waiting) = full_queue(&listener, 63);
    let (_watch, metrics) = watch(&[]);
    page(metrics, "");
    let folder = Folder::new();
    let (_prometheus, at) = prometheus(&folder, metrics);
    let series = |metric: &str| format!("tcptoll_{metric}{{listener=\"{planted}\"}}");
    let asked = |metric: &str| until(metric, || query(at, &series(metric)));
    let before = by_ss(planted);
    let scraped = (
        asked("listener_accept_queue_connections"),
        asked("listener_accept_queue_limit_connections"),
    );
    assert_eq!((&before, &scraped), (&scraped, &by_ss(planted)), "before, scraped, after");
    assert_eq!(scraped, ("64".to_owned(), "63".to_owned()));
    let ratio: f64 = asked("listener_accept_queue_fill_ratio").parse().unwrap();
    assert!((ratio - 64.0 / 63.0).abs() < 1e-6, "{ratio}");
    assert_eq!(asked("listener_dropped_packets_total"), "0");
    // Nobody accepts: after some looks the queue that is near its limit is one that never empties.
    let diagnosis =
        format!("tcptoll_diagnosis{{id=\"accept-queue-standing\",subject=\"{planted}\"}}");
    assert_eq!(until("the diagnosis", || query(at, &diagnosis)), "1");
    assert_eq!(query(at, "up{job=\"tcptoll\"}").as_deref(), Some("1"));
    // Every rule was evaluated without an error, and the one of this queue fires.
    let alert = format!(
        "ALERTS{{alertname=\"TcptollAcceptQueueStanding\",alertstate=\"firing\",subject=\"{planted}\",severity=\"critical\"}}"
    );
    assert_eq!(until("the alert", || query(at, &alert)), "1");
    let rules = until("the evaluation of all rules", || {
        let groups = api(at, "/api/v1/rules")?["groups"].as_array()?.clone();
        let rules: Vec<Value> =
            groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    assert!(rules.len() >= 12, "{rules:?}");
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    // Metadata arrived, so the format was OpenMetrics and each family is known by its name.
    let metadata = api(at, "/api/v1/metadata").unwrap();
    let family = &metadata["tcptoll_watch_resident_memory_bytes"][0];
    assert_eq!((&family["type"], &family["unit"]), (&"gauge".into(), &"bytes".into()), "{family}");
}

/// A process with a namespace of its own, in which it listens on port 7777 with a full queue.
const HOLDER: &str = "import socket, sys, fcntl, struct
control = socket.socket()
request = bytearray(struct.pack('16sH14s', b'lo', 1, b''))
fcntl.ioctl(control, 0x8914, request)
listener = socket.socket()
listener.bind(('127.0.0.1', 7777))
listener.listen(3)
waiting = [socket.create_connection(('127.0.0.1', 7777)) for _ in range(4)]
print('ready', flush=True)
sys.stdin.read()";

#[test]
fn another_namespace_is_watched_and_this_one_is_listened_in() {
    if not_root() || lacks(&["unshare", "python3"]) {
        return;
    }
    let mut holder = Command::new("unshare")
        .args(["-n", "--", "python3", "-c", HOLDER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let holder = Running(holder);
    assert_eq!(line, "ready\n");
    let (_watch, at) = watch(&["--netns", &holder.0.id().to_string()]);
    let (_, page) = page(at, "");
    let queue = "tcptoll_listener_accept_queue_connections{listener=\"127.0.0.1:7777\"}";
    assert_eq!(value(&page, queue), Some("4"), "{page}");
    let sockets = page.lines().filter(|line| line.starts_with("tcptoll_listener_sockets{"));
    assert_eq!(sockets.count(), 1, "of the other namespace alone: {page}");
}

#[test]
fn an_address_that_is_taken_is_refused_and_one_that_is_not_loopback_is_warned_of() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let ran = run(&mut tcptoll(&["watch", "--listen", &at]));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with(&format!(
            "error: --listen {at}: another program listens on this port. Choose"
        )),
        "{}",
        ran.stderr
    );
    let args = ["watch", "--listen", "127.0.0.1:0", "--allow-host", "http://x"];
    let ran = run(&mut tcptoll(&args));
    assert_eq!(ran.status, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: --allow-host http://x: write a host name"));
    for (listen, warned) in [("0.0.0.0:0", true), ("[::]:0", true), ("127.0.0.1:0", false)] {
        let args = ["watch", "--listen", listen, "--interval", "100ms", "--duration", "300ms"];
        let ran = run(&mut tcptoll(&args));
        if listen.starts_with('[') && ran.stderr.contains("Address family not supported") {
            continue; // a machine without IPv6
        }
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
        assert_eq!(ran.stderr.contains("is not a loopback address"), warned, "{}", ran.stderr);
        assert!(ran.stderr.contains("metrics http://"), "{}", ran.stderr);
    }
}

#[test]
fn the_unit_is_valid_and_gives_away_little_with_and_without_owners() {
    if lacks(&["systemd-analyze"]) {
        return;
    }
    let folder = Folder::new();
    let place = |from: &str, to: &str| {
        let unit = std::fs::read_to_string(docs().join(from)).unwrap();
        let placed = unit.replace("/usr/local/bin/tcptoll", env!("CARGO_BIN_EXE_tcptoll"));
        assert_ne!(unit, placed);
        let to = folder.file(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(to, placed).unwrap();
    };
    place("tcptoll-watch.service", "tcptoll-watch.service");
    let file = folder.path("tcptoll-watch.service");
    // Exposure is in tenths of 10: 1.5 is "OK", the best word that there is.
    for (owners, exposure) in [(false, "15"), (true, "25")] {
        if owners {
            place("owners.conf", "tcptoll-watch.service.d/owners.conf");
        }
        let ran = run(Command::new("systemd-analyze").args(["verify", &file]));
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
        let ran = run(Command::new("systemd-analyze").args([
            "security",
            "--offline=true",
            "--no-pager",
            &format!("--threshold={exposure}"),
            &file,
        ]));
        assert_eq!(ran.status, Some(0), "{}{}", ran.stdout, ran.stderr);
    }
}
