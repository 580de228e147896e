//! The record of a watch next to the kernel's own counters, and what becomes of it in each ending.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tcptoll_kernel::socket::{ClientOptions, Tcp};

use super::support::{Folder, lacks, not_root, refuses, run, tcptoll};
use super::watch_reading::in_own_network;

/// What a busy machine may need for a look.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until it is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A counter of `TcpExt` of this thread's namespace.
fn counter(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let at = lines[0].split_whitespace().position(|word| word == name).unwrap();
    lines[1].split_whitespace().nth(at).unwrap().parse().unwrap()
}

/// Whole lines of states in a record.
fn states(path: &str) -> usize {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.filter(|line| line.starts_with("{\"line\":\"state\"")).count()
}

fn report(path: &str) -> (Value, String) {
    let ran = run(&mut tcptoll(&["report", path, "--format", "json"]));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    (serde_json::from_str(&ran.stdout).unwrap(), ran.stderr)
}

fn watch(path: &str, more: &[&str]) -> Child {
    let mut args = vec!["watch", "--no-screen", "--no-owners", "--interval", "200ms"];
    args.extend(["--record", path]);
    args.extend(more);
    let null = Stdio::null;
    tcptoll(&args).stdout(null()).stderr(null()).spawn().unwrap()
}

/// Opens connections to a listener that nobody accepts from, and keeps them.
fn crowd(to: SocketAddr, count: usize) -> Vec<Tcp> {
    let open = |_| {
        let socket = Tcp::client(to, &ClientOptions::default()).unwrap();
        let _ = socket.connect(&to.into()).unwrap();
        socket
    };
    (0..count).map(open).collect()
}

#[test]
fn a_watch_that_was_killed_left_every_overflow_that_the_kernel_counted_at_the_listener_that_had_it()
{
    if not_root() || lacks(&["true"]) {
        return;
    }
    in_own_network(|| {
        let folder = Folder::new();
        let path = folder.path("night.jsonl");
        let listen = |backlog: i32| {
            let listener = Tcp::listener("127.0.0.1:0".parse().unwrap(), backlog, false).unwrap();
            let at = listener.local().unwrap();
            (listener, at)
        };
        let (_one, first) = listen(4);
        let (_two, second) = listen(9);
        let (_three, quiet) = listen(64);
        let mut watching = watch(&path, &[]);
        // The first look is what later ones are compared with.
        until("first state", || states(&path) > 0);
        assert_eq!(counter("ListenOverflows"), 0);
        let mut clients = crowd(first, 30);
        clients.extend(crowd(quiet, 3));
        // Retries after 1 s come on top.
        until("overflow of the first", || counter("ListenOverflows") >= 50);
        clients.extend(crowd(second, 20));
        until("overflow of the second", || counter("ListenOverflows") >= 70);
        drop(clients);
        let seen = states(&path);
        until("state after the last overflow", || states(&path) >= seen + 3);
        let [overflows, drops] = ["ListenOverflows", "ListenDrops"].map(counter);
        watching.kill().unwrap();
        watching.wait().unwrap();

        let (review, warned) = report(&path);
        assert_eq!(review["killed"], true);
        assert_eq!(review["cut"], !fs::read(&path).unwrap().ends_with(b"\n"), "{warned}");
        assert_eq!(review["counts"]["overflows"], overflows);
        assert_eq!(review["counts"]["drops"], drops);
        let listeners = review["listeners"].as_array().unwrap();
        let listener =
            |at: SocketAddr| listeners.iter().find(|one| one["port"] == at.port()).unwrap();
        let sum: u64 = listeners.iter().map(|one| one["drops"].as_u64().unwrap()).sum();
        assert_eq!(sum, drops, "sk_drops of all listeners: {listeners:?}");
        assert_eq!(
            (&listener(first)["accept_queue_peak"], &listener(second)["accept_queue_peak"]),
            (&5.into(), &10.into())
        );
        assert_eq!(
            (&listener(quiet)["drops"], &listener(quiet)["accept_queue_peak"]),
            (&0.into(), &3.into())
        );
        let episodes = review["episodes"].as_array().unwrap();
        let full = |at: SocketAddr| {
            episodes
                .iter()
                .any(|one| one["id"] == "accept-queue-full" && one["subject"] == at.to_string())
        };
        assert_eq!([full(first), full(second), full(quiet)], [true, true, false], "{episodes:?}");

        is_read_up_to_a_cut(&path, &folder);
    });
}

/// Every format is made from a record whose last line was cut.
fn is_read_up_to_a_cut(path: &str, folder: &Folder) {
    let whole = fs::read_to_string(path).unwrap();
    let end = whole.rfind('\n').unwrap();
    fs::write(path, &whole[..end - 9]).unwrap();
    let [html, csv, markdown] =
        ["page.html", "table.csv", "tables.md"].map(|name| folder.path(name));
    let ran = run(&mut tcptoll(&[
        "report",
        path,
        "--html",
        &html,
        "--csv",
        &csv,
        "--markdown",
        &markdown,
    ]));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: the last line is cut"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "", "files take the place of the text");
    for (file, has) in
        [(&html, "<svg"), (&csv, ",overflows,,"), (&markdown, "| accept-queue-full |")]
    {
        assert!(ran.stderr.contains(&format!("wrote {file}\n")), "{}", ran.stderr);
        assert!(fs::read_to_string(file).unwrap().contains(has), "{file}");
    }
    let text = run(&mut tcptoll(&["report", path]));
    assert!(text.stderr.contains("warning: the last line is cut"), "{}", text.stderr);
    assert!(text.stdout.contains("accept-queue-full"), "{}", text.stdout);
    fs::write(path, whole.replacen("{\"line\":\"state\"", "{\"line\":\"state", 2)).unwrap();
    let ran = run(&mut tcptoll(&["report", path]));
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.contains(" is damaged: "), "{}", ran.stderr);
}

#[test]
fn a_watch_that_ends_closes_its_record_and_never_replaces_a_file() {
    let folder = Folder::new();
    let path = folder.path("short.jsonl");
    let args = ["watch", "--no-screen", "--interval", "100ms", "--duration", "1s", "--record"];
    let record = |to: &str| run(tcptoll(&args).arg(to));
    let ran = record(&path);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let (review, _) = report(&path);
    assert_eq!((&review["killed"], &review["cut"]), (&false.into(), &false.into()));
    assert_eq!(review["looks"], states(&path));
    assert!(review["missed"].is_u64(), "{review}");
    let before = fs::read(&path).unwrap();
    let ran = record(&path);
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.contains("this file exists and is not empty"), "{}", ran.stderr);
    assert_eq!(fs::read(&path).unwrap(), before);

    let compared = run(&mut tcptoll(&["compare", &path, &path]));
    assert_eq!(compared.status, Some(2));
    assert!(compared.stderr.contains("it is the record of a watch"), "{}", compared.stderr);
    let data = folder.path("");
    let place = Path::new(&data).join("tcptoll");
    fs::create_dir(&place).unwrap();
    fs::rename(&path, place.join("short.jsonl")).unwrap();
    let listed = run(tcptoll(&["runs"]).env("XDG_DATA_HOME", &data));
    assert_eq!(listed.status, Some(0), "{}", listed.stderr);
    assert!(listed.stdout.contains("tcptoll report latest\n"), "{}", listed.stdout);
}

/// Stops a watch as a user does; gives its exit status and what it said.
fn stopped(watching: Child) -> (Option<i32>, String) {
    let kill = format!("kill -s INT {}", watching.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let ran = watching.wait_with_output().unwrap();
    (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
}

#[test]
fn a_record_that_is_deleted_while_it_is_written_is_an_error_that_says_what_is_lost() {
    let folder = Folder::new();
    let path = folder.path("gone.jsonl");
    let args = ["watch", "--no-screen", "--no-owners", "--interval", "100ms", "--record", &path];
    let start = || tcptoll(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let watching = start();
    until("state", || states(&path) > 0);
    fs::remove_file(&path).unwrap();
    let (status, said) = stopped(watching);
    assert_eq!(status, Some(3), "{said}");
    let lost = "the file was deleted, and everything recorded until then is lost";
    assert!(said.contains(lost), "{said}");
    assert!(!Path::new(&path).exists());

    let watching = start();
    until("state", || states(&path) > 0);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    let (status, said) = stopped(watching);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("its name belongs to another file now"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

/// Fills the disk under a watch, frees it again, ends the watch, and prints the report.
const FULL_DISK: &str = r#"
    mount -t tmpfs -o size=128k tmpfs "$2" && cd "$2" || exit 90
    "$1" watch --no-screen --no-owners --interval 100ms --record night.jsonl >/dev/null 2>../said &
    watch=$!
    until grep -q '"line":"state"' night.jsonl 2>/dev/null; do kill -0 $watch || exit 91; sleep .05; done
    cat /dev/zero >filler 2>/dev/null
    until grep -q 'is incomplete' ../said; do kill -0 $watch || exit 92; sleep .05; done
    rm filler
    kill -s INT $watch
    wait $watch
    echo "status $?" >&2
    "$1" report night.jsonl --format json && "$1" report night.jsonl >&2
"#;

#[test]
fn a_record_whose_disk_was_full_for_a_time_says_so_itself() {
    if lacks(&["unshare", "mount"]) || refuses(&["unshare", "-Urm", "true"]) {
        return;
    }
    let folder = Folder::new();
    let disk = folder.path("disk");
    fs::create_dir(&disk).unwrap();
    let program = env!("CARGO_BIN_EXE_tcptoll");
    let args = ["-Urm", "sh", "-c", FULL_DISK, "sh", program, &disk];
    let ran = run(Command::new("unshare").args(args).stdin(Stdio::null()));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("status 3\n"), "{}", ran.stderr);
    let review: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&review["killed"], &review["cut"]), (&false.into(), &false.into()), "{review}");
    assert!(review["looks"].as_u64().unwrap() >= 1);
    let reason = review["stopped"].as_str().unwrap();
    assert!(reason.starts_with("No space left on device"), "{reason}");
    assert!(ran.stderr.contains("Recording stopped after "), "{}", ran.stderr);
    assert!(!ran.stderr.contains("killed"), "{}", ran.stderr);
}

#[test]
fn a_watch_whose_record_does_not_fit_goes_on_and_ends_with_status_3() {
    let ran = run(&mut tcptoll(&[
        "watch",
        "--no-screen",
        "--interval",
        "100ms",
        "--duration",
        "500ms",
        "--record",
        "/dev/full",
    ]));
    assert_eq!(ran.status, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("the record /dev/full is incomplete: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("the watch goes on"), "{}", ran.stderr);
    for (limit, why) in [("1M", "write a size from 2M to 4G"), ("64parsecs", "--record-limit")] {
        let ran = run(&mut tcptoll(&["watch", "--record", "/dev/null", "--record-limit", limit]));
        assert_eq!(ran.status, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}
