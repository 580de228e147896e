//! Every ending has the exit status that the documentation says, in every experiment.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::isolation::{MARK, marked};
use super::keepalive_many::{has_probed, is_server};
use super::support::{Folder, TOLERANCE, lacks, no_lab, run, tcptoll};

const PAGE: &str = include_str!("../../../../docs/guide/exit-status.md");

const EXPERIMENTS: [&str; 3] = ["connect", "http", "keepalive"];

/// A server of `capacity.py` on loopback, until it is dropped.
struct Server(Child, u16);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(folder: &Folder, kind: &str) -> Self {
        let program = folder.file("capacity.py");
        std::fs::write(&program, include_str!("capacity.py")).unwrap();
        let mut child = Command::new("python3")
            .arg(&program)
            .args(["127.0.0.1", "0", "50", "0", &folder.path("log"), kind])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().parse().unwrap())
    }
}

/// A short run in the lab.
fn in_lab(experiment: &str) -> Vec<String> {
    let own: &[&str] = match experiment {
        "connect" => &["--count", "20"],
        "http" => &["--server", "null", "--requests", "100", "--warmup", "0"],
        _ => &[
            "--mechanism",
            "tcp",
            "--sockets",
            "20",
            "--duration",
            "300ms",
            "--rounds",
            "1",
            "--link",
            "rtt=0.25ms",
            "--link-tolerance",
            TOLERANCE,
        ],
    };
    own.iter().map(|word| (*word).to_owned()).collect()
}

/// A short run on a server of this machine.
fn at(experiment: &str, host: &str, port: u16) -> Vec<String> {
    let (target, url) = (format!("{host}:{port}"), format!("http://{host}:{port}/"));
    let own: Vec<&str> = match experiment {
        "connect" => {
            vec![
                "--to",
                &target,
                "--count",
                "20",
                "--send",
                r"GET / HTTP/1.1\r\n\r\n",
                "--timeout",
                "2s",
            ]
        }
        "http" => vec![
            "--requests",
            "20",
            "--warmup",
            "0",
            "--connections",
            "2",
            "--timeout",
            "2s",
            "--reuse",
            "client-close",
            &url,
        ],
        _ => vec![
            "--to",
            &target,
            "--mechanism",
            "tcp",
            "--sockets",
            "20",
            "--writer",
            "off",
            "--duration",
            "1s",
            "--rounds",
            "1",
        ],
    };
    own.into_iter().map(str::to_owned).collect()
}

const CLOSED: &str = "standard output is closed (`>&-`)";
const NO_FOLDER: &str = "the folder for records cannot be created";

/// What a run of this ending is, in one experiment: its options. None: it needs more than options.
fn options(ending: &str, experiment: &str, server: &dyn Fn(&str) -> u16) -> Option<Vec<String>> {
    let with = |mut options: Vec<String>, more: &[&str]| {
        options.extend(more.iter().map(|word| (*word).to_owned()));
        Some(options)
    };
    let replaced = |mut options: Vec<String>, option: &str, value: &str| {
        let at = options.iter().position(|word| word == option).unwrap();
        value.clone_into(&mut options[at + 1]);
        options
    };
    let lab = || in_lab(experiment);
    let few_ports = ["--client-sysctl", "net.ipv4.ip_local_port_range=20000 20019"];
    match ending {
        "everything succeeded" | "standard output is full" | CLOSED | NO_FOLDER => Some(lab()),
        "the condition of `--fail-if` is false" => with(lab(), &["--fail-if", "attempts < 1"]),
        "the condition of `--fail-if` is true" => with(lab(), &["--fail-if", "attempts > 1"]),
        "a condition on a figure that does not exist" => {
            with(lab(), &["--fail-if", "telepathy > 1"])
        }
        "an option that does not exist" => with(lab(), &["--telepathy", "1"]),
        "a value that makes no sense" => with(lab(), &["--duration", "soon"]),
        "only planned (`--dry-run`)" => with(lab(), &["--dry-run"]),
        "the name does not resolve" => Some(at(experiment, "name.invalid", 80)),
        "nothing listens there" => Some(at(experiment, "127.0.0.1", 1)),
        "every connection is reset" => Some(at(experiment, "127.0.0.1", server("reset"))),
        // Every operation takes the whole timeout.
        "the server never answers" => {
            Some(replaced(at(experiment, "127.0.0.1", server("silent")), "--timeout", "300ms"))
        }
        "every second connection is reset" => Some(at(experiment, "127.0.0.1", server("half"))),
        "the same with `--allow-errors 100%`" => {
            with(at(experiment, "127.0.0.1", server("half")), &["--allow-errors", "100%"])
        }
        "the client runs out of local ports" => match experiment {
            "connect" => {
                with(lab(), &[&["--warmup", "0", "--count", "60"][..], &few_ports].concat())
            }
            "http" => with(lab(), &[&["--reuse", "client-close"][..], &few_ports].concat()),
            _ => with(replaced(lab(), "--sockets", "60"), &few_ports),
        },
        "the record that `--out` names cannot be created" => {
            with(lab(), &["--out", "/nonexistent/record.jsonl"])
        }
        "the disk is full" => with(lab(), &["--out", "/dev/full"]),
        _ => None,
    }
}

/// The status that a signal gives, before the load has begun or after.
fn signalled(experiment: &str, ending: &str, folder: &Folder) -> Option<i32> {
    let mark = format!("exits-{experiment}-{}-{}", ending.len(), std::process::id());
    let early = ending.contains("before");
    let own: &[&str] = match experiment {
        "connect" => &["--count", "1000000"],
        "http" => &["--server", "null", "--duration", "300s", "--warmup", "0"],
        _ => &["--mechanism", "tcp", "--sockets", "20", "--duration", "300s", "--warmup", "100ms"],
    };
    let warm: &[&str] = match experiment {
        "connect" => &["--count", "1000000", "--warmup", "300s"],
        "http" => &["--server", "null", "--duration", "300s", "--warmup", "300s"],
        _ => &["--mechanism", "tcp", "--sockets", "20", "--warmup", "300s"],
    };
    let mut command = tcptoll(&[experiment]);
    command.args(if early { warm } else { own });
    command.args(["--rounds", "1", "--link", "rtt=5ms", "--link-tolerance", TOLERANCE]);
    command.args(["--quiet", "--out", &folder.path("record.jsonl")]).env(MARK, &mark);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Once the server has sent a probe, the warm-up of 100 ms is over. 50 connections that were opened
    // have received at most 100 segments before the first response.
    let begun = |pid: u32| match experiment {
        _ if early => tcp(pid, ACTIVE_OPENS) > 1,
        "keepalive" => is_server(pid) && has_probed(pid),
        _ => tcp(pid, IN_SEGS) > 200,
    };
    while !marked(&mark).iter().any(|pid| begun(*pid)) {
        assert!(child.try_wait().unwrap().is_none(), "{experiment}, {ending}: it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let signal = ending.split(' ').next().unwrap();
    let kill = format!("kill -s {} {}", signal.trim_start_matches("SIG"), child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    child.wait().unwrap().code()
}

/// Columns of `Tcp:` in `/proc/net/snmp`: connections opened, and segments received.
const ACTIVE_OPENS: usize = 5;
pub(crate) const IN_SEGS: usize = 10;

/// A counter of the client host of a lab; 0 for every other process.
pub(crate) fn tcp(pid: u32, column: usize) -> u64 {
    let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    if read("comm").trim() != "tcptoll-client" {
        return 0;
    }
    let snmp = read("net/snmp");
    let values = snmp.lines().rfind(|line| line.starts_with("Tcp:"));
    values.and_then(|line| line.split_whitespace().nth(column)?.parse().ok()).unwrap_or(0)
}

/// The table's lines: an ending, and the status of each experiment where there is one.
fn table() -> Vec<(&'static str, Vec<Option<i32>>)> {
    let rows = PAGE.split("## Every ending").nth(1).unwrap().lines();
    let rows = rows.filter(|line| line.starts_with("| ") && !line.starts_with("| ending"));
    rows.filter(|line| !line.starts_with("| ---"))
        .map(|line| {
            let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
            let ending = cells.next().unwrap();
            (ending, cells.map(|cell| cell.trim_end_matches(" |").trim().parse().ok()).collect())
        })
        .collect()
}

#[test]
fn every_ending_has_the_status_that_the_documentation_says() {
    if lacks(&["python3"]) {
        return;
    }
    let table = table();
    assert!(table.len() >= 20 && table.iter().all(|(_, expected)| expected.len() == 3));
    // Only the status is looked at, so the experiments run side by side.
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let handles: Vec<_> = EXPERIMENTS
            .into_iter()
            .enumerate()
            .map(|(at, experiment)| {
                let rows = table.iter().filter_map(move |(ending, all)| Some((*ending, all[at]?)));
                let rows: Vec<(&str, i32)> = rows.collect();
                scope.spawn(move || {
                    rows.into_iter().filter_map(|row| wrong(experiment, row)).collect::<Vec<_>>()
                })
            })
            .collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// How an ending of an experiment differs from what is expected of it.
fn wrong(experiment: &str, (ending, expected): (&str, i32)) -> Option<String> {
    let folder = Folder::new();
    let server = std::cell::RefCell::new(None);
    let start = |kind: &str| {
        let started = Server::start(&folder, kind);
        let port = started.1;
        *server.borrow_mut() = Some(started);
        port
    };
    let (status, stderr) = match options(ending, experiment, &start) {
        None => (signalled(experiment, ending, &folder), String::new()),
        Some(options) => {
            let program = env!("CARGO_BIN_EXE_tcptoll");
            let mut command = match ending {
                CLOSED => std::process::Command::new("sh"),
                _ => tcptoll(&[experiment, "--quiet"]),
            };
            if ending == CLOSED {
                command.args(["-c", "exec \"$@\" >&-", "sh", program, experiment, "--quiet"]);
            }
            if ending == NO_FOLDER {
                command.env("XDG_DATA_HOME", "/dev/null");
            } else if !options.iter().any(|word| word == "--out") {
                command.args(["--out", &folder.path("record.jsonl")]);
            }
            command.args(&options);
            if ending == "standard output is full" {
                command.stdout(File::create("/dev/full").unwrap());
            }
            let output = command.stderr(Stdio::piped()).output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    // A machine that is busy with other things may make any run invalid.
    let busy = expected == 0 && status == Some(1);
    (status != Some(expected) && !busy)
        .then(|| format!("{experiment}, {ending}: {status:?} for {expected}: {stderr}"))
}

#[test]
fn a_queue_whose_every_connection_times_out_ends_alike_with_one_arm_and_with_two() {
    if no_lab() {
        return;
    }
    // Half of a round trip: no handshake can end in time.
    let late = ["--link", "rtt=40ms", "--timeout", "20ms", "--count", "30", "--warmup", "0"];
    let ended = |arms: &str, more: &[&str]| {
        let folder = Folder::new();
        let record = folder.path("record.jsonl");
        let mut all = vec!["accept-queue", "--quiet", "--rounds", "1", "--out", &record];
        all.extend(["--link-tolerance", TOLERANCE, "--backlog", arms]);
        all.extend(late);
        all.extend(more);
        let ran = run(&mut tcptoll(&all));
        assert!(!ran.stdout.is_empty(), "{}", ran.stderr);
        let nothing = ran.stderr.starts_with("error: nothing was measured: ");
        (ran.status, nothing)
    };
    for arms in ["4", "4,8"] {
        // Where backlogs are compared, failures are expected unless a limit is given.
        assert_eq!(ended(arms, &["--allow-errors", "1%"]), (Some(2), true), "{arms}");
        assert_eq!(ended(arms, &["--allow-errors", "100%"]), (Some(0), false), "{arms}");
    }
}
