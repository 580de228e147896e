//! Do local ports run out exactly where arithmetic says, who keeps TIME-WAIT, and what does each fix do?
//!
//! The range has few ports, so that each test is short. Counts are exact: ports, sockets in TIME-WAIT
//! by `sock_diag`, and counters of the kernel. No test asserts an upper limit of a time.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tcptoll_core::record::{Arm, PortUse, Summary};

use crate::isolation::{MARK, marked};
use crate::support::{
    Folder, TOLERANCE, checked_summary, last_line, measured, no_lab, only, run, tcptoll,
};

/// A range of 1,000 ports.
const RANGE: &str = "32768-33767";

/// Runs `time-wait` once with the small range.
fn waited(args: &[&str]) -> Summary {
    ranged(RANGE, args)
}

/// Runs `time-wait` once with this range of ports.
fn ranged(range: &str, args: &[&str]) -> Summary {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["time-wait", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--link-tolerance", TOLERANCE, "--seed", "1", "--allow-errors", "100%"]);
    all.extend(["--port-range", range, "--rounds", "1"]);
    // A FIN that is retransmitted, as the server was held up, is answered with a reset. It must not end
    // TIME-WAIT (RFC 1337), so that counts are exact.
    all.extend(["--client-sysctl", "net.ipv4.tcp_rfc1337=1"]);
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0 | 1)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    checked_summary(&ran.stdout)
}

/// What a run is refused with.
fn refused(args: &[&str]) -> String {
    let ran = run(&mut tcptoll(&[&["time-wait", "--quiet", "--dry-run"], args].concat()));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
    ran.stderr
}

fn port_use(arm: &Arm) -> &PortUse {
    arm.own.port_use.as_ref().expect("the arm has what its ports showed")
}

/// Every operation succeeded or failed for want of a port.
fn no_port(arm: &Arm) -> u64 {
    let failed = arm.errors.get("local-ports").copied().unwrap_or(0);
    assert_eq!(arm.attempts, arm.ok + failed, "{:?}", arm.errors);
    failed
}

#[test]
fn ports_run_out_exactly_at_the_number_that_the_forecast_has() {
    if no_lab() {
        return;
    }
    let summary = waited(&["--count", "1100"]);
    let arm = only(&summary);
    let forecast = arm.ports.as_ref().unwrap();
    assert_eq!((forecast.usable, forecast.at_once, forecast.held_s), (1_000, 1_000, 60.0));
    // Nothing is free again within the run, and what fails is told apart from everything else.
    assert_eq!((arm.ok, no_port(arm)), (1_000, 100));
    let ports = port_use(arm);
    assert_eq!((ports.client_time_wait, ports.server_time_wait), (1_000, 0));
    assert_eq!((ports.time_wait_overflows, ports.time_wait_reused), (0, 0));
    let point = |count: fn(&tcptoll_core::record::PortPoint) -> u64| {
        ports.curve.iter().map(count).sum::<u64>()
    };
    assert_eq!((point(|p| p.connections), point(|p| p.failed)), (arm.ok, no_port(arm)));
    assert_eq!(ports.cliff_expected, Some(500.0));
    assert!(
        !summary.warnings.iter().any(|w| w.id == "witness-disagrees"),
        "{:?}",
        summary.warnings
    );
}

#[test]
fn of_three_ports_the_kernel_assigns_two_and_of_five_all() {
    if no_lab() {
        return;
    }
    // connect(2) and bind(2) alike, and with an odd lowest port too.
    for (range, bind) in [("32768-32770", "on"), ("32769-32771", "on"), ("32768-32770", "off")] {
        let summary = ranged(range, &["--count", "6", "--workers", "1", "--bind-no-port", bind]);
        let arm = only(&summary);
        let forecast = arm.ports.as_ref().unwrap();
        assert_eq!((forecast.usable, forecast.at_once), (2, 2), "{range}");
        assert_eq!((arm.ok, no_port(arm)), (2, 4), "{range} {bind}");
    }
    // All that the kernel assigns can be held.
    let summary = ranged("32768-32770", &["--held", "100%", "--count", "3", "--workers", "1"]);
    let arm = only(&summary);
    assert_eq!((port_use(arm).held_ports, arm.ok, no_port(arm)), (2, 0, 3));
    let summary = ranged("32768-32772", &["--count", "60", "--workers", "1"]);
    let arm = only(&summary);
    assert_eq!(arm.ports.as_ref().unwrap().usable, 5);
    // A call leaves out the first or the last port, so the last one free may stay free.
    assert!((4..=5).contains(&arm.ok), "{}", arm.ok);
}

/// Figures that need more than a few operations.
const RATES: [&str; 5] = [
    "operations_per_s",
    "busy_workers_mean",
    "client_idle_share",
    "client_idle_share_first",
    "client_idle_share_last",
];

#[test]
fn rates_and_idle_cpu_of_a_few_operations_are_left_out_with_the_reason() {
    if no_lab() {
        return;
    }
    let has = |arm: &Arm| RATES.map(|name| arm.metrics.contains_key(name));
    let left_out = |summary: &Summary| {
        let all = summary.warnings.iter().filter(|warning| warning.id == "figures-left-out");
        all.map(|warning| warning.text.clone()).collect::<Vec<_>>()
    };
    let few = waited(&["--rate", "0.1", "--duration", "1s"]);
    assert_eq!((only(&few).ok, has(only(&few))), (1, [false; 5]));
    let warned = left_out(&few);
    assert!(warned.len() == 1 && warned[0].contains("only 1 of the 20 operations"), "{warned:?}");
    let used = port_use(only(&few));
    assert!(used.rate_per_s.points.is_empty() && used.idle_share.is_none(), "{used:?}");
    // What a connection costs is measured all the same.
    assert!(only(&few).metrics.contains_key("connect_cpu_us_mean"));
    let enough = waited(&["--rate", "40", "--duration", "1s"]);
    assert_eq!((only(&enough).ok, has(only(&enough))[0]), (40, true));
    assert!(left_out(&enough).is_empty(), "{:?}", left_out(&enough));
}

/// A run of two rounds whose client host holds ports at this moment, after so many recorded trials.
fn holding(folder: &Folder, trials: usize) -> Child {
    let mark = format!("hold-{trials}-{}", std::process::id());
    let record = folder.path("record.jsonl");
    let mut command = tcptoll(&["time-wait", "--format", "json", "--out", &record]);
    // 128 connections at a time, of 0.2 s and more each: ten times.
    command.args(["--link", "rtt=100ms", "--link-tolerance", TOLERANCE, "--rounds", "2"]);
    command.args([
        "--port-range",
        RANGE,
        "--held",
        "100%",
        "--count",
        "5",
        "--allow-errors",
        "100%",
    ]);
    command.env(MARK, &mark).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    loop {
        let lines = std::fs::read_to_string(&record).map_or(0, |text| text.lines().count());
        // A load has four workers; ports are held by 128 threads.
        let threads = marked(&mark).into_iter().map(threads_of_client).max().unwrap_or(0);
        // The record begins with the first trial: a header and its line.
        let recorded = lines.saturating_sub(1) >= trials && (trials > 0 || lines == 0);
        if recorded && threads > 100 {
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(begun.elapsed() < Duration::from_mins(2), "ports are not held");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Threads of a client host, 0 of another process.
fn threads_of_client(pid: u32) -> usize {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    if comm.trim() == "tcptoll-client" { threads() } else { 0 }
}

fn interrupted(child: Child) -> (String, String) {
    let kill = format!("kill -s INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    (stdout, stderr)
}

#[test]
fn an_interrupt_while_ports_are_held_ends_the_run_with_what_was_measured_before() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let (stdout, stderr) = interrupted(holding(&folder, 0));
    assert!(stdout.is_empty(), "{stdout}");
    assert!(stderr.contains("stopped before anything was measured"), "{stderr}");
    assert!(!folder.file("record.jsonl").exists(), "there is nothing to record");
    let folder = Folder::new();
    let (stdout, _) = interrupted(holding(&folder, 1));
    let summary = checked_summary(&stdout);
    assert!(summary.partial, "{}", summary.answer);
    assert_eq!(only(&summary).attempts, 5, "one whole trial");
    assert_eq!(last_line(&folder.file("record.jsonl")), Some(summary));
}

#[test]
fn time_wait_is_on_the_host_that_closes_first_and_nowhere_with_long_lived_connections() {
    if no_lab() {
        return;
    }
    let waiting = |close: &str| {
        let summary = waited(&["--close", close, "--count", "300", "--workers", "2"]);
        let arm = only(&summary).clone();
        assert_eq!((arm.ok, no_port(&arm)), (300, 0), "{close}");
        let ports = port_use(&arm);
        (ports.client_time_wait, ports.server_time_wait, arm.connections_ok.unwrap())
    };
    assert_eq!(waiting("client"), (300, 0, 300));
    let (client, server, connections) = waiting("server");
    // The server's TIME-WAIT ends when the client comes again from the same port.
    assert_eq!((client, connections), (0, 300));
    assert!((1..=300).contains(&server), "{server}");
    let (client, server, connections) = waiting("never");
    // They end with the run: the client's workers close them.
    assert!(connections <= 2 && client == connections && server == 0, "{connections}: {client}");
}

#[test]
fn tw_reuse_lets_the_load_go_on_with_ports_that_are_a_second_old() {
    if no_lab() {
        return;
    }
    // 990 of 1,000 ports are in TIME-WAIT.
    let with = |reuse| {
        let summary = waited(&["--held", "99%", "--count", "300", "--tw-reuse", reuse]);
        let arm = only(&summary).clone();
        let taken_over = port_use(&arm).time_wait_reused;
        (arm.ok, no_port(&arm), taken_over, arm.ports.unwrap().held_s)
    };
    // Over veth 2 is as good as off.
    for reuse in ["0", "2"] {
        assert_eq!(with(reuse), (10, 290, 0, 60.0), "{reuse}");
    }
    let summary = waited(&["--held", "99%", "--count", "300", "--tw-reuse", "1"]);
    let arm = only(&summary);
    assert_eq!((arm.ok, no_port(arm)), (300, 0));
    assert!((arm.ports.as_ref().unwrap().held_s - 1.0).abs() < 1e-9);
    let taken_over = port_use(arm).time_wait_reused;
    assert!((290..=300).contains(&taken_over), "{taken_over}");
}

#[test]
fn a_second_source_address_doubles_the_ports() {
    if no_lab() {
        return;
    }
    let summary = waited(&["--sources", "2", "--count", "2050"]);
    let arm = only(&summary);
    assert_eq!(arm.ports.as_ref().unwrap().at_once, 2_000);
    assert_eq!((arm.ok, no_port(arm)), (2_000, 50));
    let ports = port_use(arm);
    assert_eq!((ports.client_time_wait, ports.cliff_expected), (2_000, Some(1_000.0)));
}

#[test]
fn time_wait_beyond_max_tw_buckets_ends_early_and_is_counted() {
    if no_lab() {
        return;
    }
    let summary = waited(&["--max-tw-buckets", "100", "--count", "1500"]);
    let arm = only(&summary);
    assert_eq!((arm.ok, no_port(arm)), (1_500, 0), "ports are free again immediately");
    let ports = port_use(arm);
    let ended = ports.client_time_wait + ports.time_wait_overflows;
    assert_eq!(ended, 1_500, "{ports:?}");
    assert!((1..=100).contains(&ports.client_time_wait), "{ports:?}");
}

#[test]
fn held_ports_are_there_when_the_measurement_begins_whoever_chooses_the_port() {
    if no_lab() {
        return;
    }
    for bind_no_port in ["on", "off"] {
        let summary = waited(&["--held", "60%", "--bind-no-port", bind_no_port, "--count", "50"]);
        let arm = only(&summary);
        let ports = port_use(arm);
        assert_eq!((ports.held_ports, arm.ok), (600, 50), "{bind_no_port}: {:?}", arm.errors);
        assert_eq!(ports.client_time_wait, 650, "{bind_no_port}");
        assert_eq!(ports.cliff_expected, Some(500.0), "{bind_no_port}");
        let least = ports.curve.iter().map(|point| point.ports).fold(f64::INFINITY, f64::min);
        assert!(least >= 600.0, "{bind_no_port}: {least}");
    }
    let summary = waited(&["--held", "60%", "--close", "server", "--count", "50"]);
    assert_eq!(port_use(only(&summary)).held_ports, 0, "the server holds what it closes first");
}

#[test]
fn operations_that_no_worker_begins_in_time_are_failures_of_their_own_class() {
    if no_lab() {
        return;
    }
    // 100 due in 1 s, each of 50 ms: one worker begins at most 20.
    let load = ["--rate", "100", "--duration", "1s", "--work", "50ms", "--workers", "1"];
    let summary = waited(&load);
    let arm = only(&summary);
    let unsent = arm.errors.get("unsent").copied().unwrap_or(0);
    assert_eq!((arm.attempts, arm.ok + unsent), (100, 100), "{:?}", arm.errors);
    assert!(unsent >= 80, "{unsent}");
}

#[test]
fn open_files_that_run_out_are_told_apart_from_ports() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let script = "ulimit -n 40 && exec \"$0\" \"$@\"";
    let mut program = std::process::Command::new("sh");
    program.args(["-c", script, env!("CARGO_BIN_EXE_tcptoll"), "time-wait", "--quiet"]);
    program.args(["--format", "json", "--out", &record, "--link-tolerance", TOLERANCE]);
    program.args(["--rounds", "1", "--close", "never", "--workers", "60", "--count", "2000"]);
    let ran = run(&mut program);
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    let summary = checked_summary(&ran.stdout);
    let arm = only(&summary);
    let failed = arm.errors.get("local-fds").copied().unwrap_or(0);
    assert!(failed > 0 && !arm.errors.contains_key("local-ports"), "{:?}", arm.errors);
    assert!(!summary.valid);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let both = ["--tw-reuse", "1", "--client-sysctl", "net.ipv4.tcp_tw_reuse=0"];
    let error = refused(&both);
    assert!(error.contains("--tw-reuse 1: --client-sysctl net.ipv4.tcp_tw_reuse=0"), "{error}");
    let error = refused(&["--port-range", "2000-1000"]);
    assert!(error.contains("--port-range 2000-1000: write two ports"), "{error}");
    let error = refused(&["--port-range", "1000-1999", "--held", "1001"]);
    assert!(error.contains("--held 1001: there are only 1000 local ports"), "{error}");
    let error = refused(&["--link", "loopback", "--sources", "2"]);
    assert!(error.contains("--sources 2: on loopback"), "{error}");
    let error = refused(&["--workers", "1001"]);
    assert!(error.contains("--workers 1001: "), "{error}");
}

/// Nothing of it depends on the machine being quiet but the place of the cliff, which is printed.
#[test]
fn the_cliff_of_the_default_range_is_near_half_of_it() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["time-wait", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--link-tolerance", TOLERANCE, "--seed", "1", "--count", "15500"]);
    let ran = run(&mut tcptoll(&all));
    assert!(measured(&ran), "{:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    let ports = port_use(only(&summary));
    assert_eq!(ports.cliff_expected, Some(14_116.0));
    let found = ports.cliff.expect("the cost rises in a step");
    println!(
        "cliff at {:.0} ports instead of 14,116 ({:+.2} %): {:.1} µs below, {:.1} µs above ({:.0} times)",
        found.at_ports,
        (found.at_ports / 14_116.0 - 1.0) * 100.0,
        found.below_us,
        found.above_us,
        found.factor()
    );
    assert!(found.factor() > 2.0, "{found:?}");
}
