//! More connections than one process may hold, and what a run that is stopped leaves.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::isolation::{MARK, gone_soon, marked};
use crate::keepalive::{keepalive_by, told};
use crate::support::{
    Folder, TOLERANCE, checked_summary, errors, last_line, no_lab, only, tcptoll,
};

/// The binary where a process may have this many files open, and not raise that.
fn with_few_files(words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 500; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tcptoll")]);
    command.args(words).stdin(Stdio::null());
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env_remove("COLUMNS");
    command
}

pub(crate) fn is_server(pid: u32) -> bool {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    comm.trim() == "tcptoll-server"
}

/// Whether this process lives in a network whose kernel has sent probes.
pub(crate) fn has_probed(pid: u32) -> bool {
    let netstat = fs::read_to_string(format!("/proc/{pid}/net/netstat")).unwrap_or_default();
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return false };
    let mut counters = names.split_whitespace().zip(values.split_whitespace());
    counters.any(|(name, value)| name == "TCPKeepAlive" && value != "0")
}

/// Stops a run in the middle, by a signal to the program alone or to its group as a terminal does.
fn stopped(group: bool) {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mark = format!("keepalive-{group}-{}", std::process::id());
    let mut command = tcptoll(&["keepalive", "--mechanism", "tcp", "--duration", "1h"]);
    command.args(["--quiet", "--format", "json", "--sockets", "300", "--rounds", "1"]);
    command.args(["--writer", "off", "--warmup", "0", "--link", "rtt=0.25ms"]);
    command.args(["--link-tolerance", TOLERANCE, "--out", &record]);
    command.env(MARK, &mark).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    // A first probe goes a second after checking began, and the window lasts an hour.
    while !marked(&mark).iter().any(|pid| is_server(*pid) && has_probed(*pid)) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let to = if group { format!("-{}", child.id()) } else { child.id().to_string() };
    let kill = format!("kill -s INT -- {to}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    gone_soon(&mark);
    let summary = checked_summary(&String::from_utf8(output.stdout).unwrap());
    let arm = only(&summary);
    assert!(summary.partial && arm.partial);
    assert_eq!((arm.attempts, arm.ok), (300, 300), "{:?}", arm.errors);
    assert!(told(arm).window_s > 0.0 && told(arm).probes.unwrap().packets > 0, "{:?}", told(arm));
    assert_eq!(last_line(record.as_ref()), Some(summary));
}

#[test]
fn an_interrupt_keeps_what_was_measured_and_leaves_no_process() {
    if no_lab() {
        return;
    }
    stopped(false);
}

#[test]
fn an_interrupt_from_the_terminal_to_all_processes_does_so_too() {
    if no_lab() {
        return;
    }
    stopped(true);
}

/// A thousand checked connections need the CPU, or live peers answer too late.
mod alone {
    use super::*;

    #[test]
    fn connections_beyond_the_limit_of_open_files_are_held_by_several_processes() {
        if no_lab() {
            return;
        }
        for mechanism in ["tcp", "heartbeat"] {
            // That every probe is counted, also of several processes, `keepalive_by` sees to.
            let args = ["--mechanism", mechanism, "--sockets", "1000"];
            let summary = keepalive_by(with_few_files, &args);
            let arm = only(&summary);
            let told = told(arm);
            assert!(told.processes.iter().all(|count| *count >= 3), "{:?}", told.processes);
            assert_eq!((arm.ok, errors(arm)), (1_000, 0), "{mechanism}: {:?}", arm.errors);
            let checks = told.probes.unwrap().packets + told.heartbeats.unwrap().packets;
            assert!(checks > 500, "{mechanism}: {checks} checks of 1000 in {} s", told.window_s);
        }
    }

    #[test]
    fn deaths_are_known_by_each_of_several_processes() {
        if no_lab() {
            return;
        }
        let args = ["--mechanism", "heartbeat", "--sockets", "1000", "--fault", "cut"];
        let summary = keepalive_by(with_few_files, &args);
        let deaths = told(only(&summary)).deaths.clone().unwrap();
        assert_eq!((deaths.dead, deaths.known), (100, 100), "{deaths:?}");
        assert_eq!((deaths.late, deaths.wrongly_closed), (0, 0), "{deaths:?}");
    }
}
