//! Is a client that stood still named, in every experiment, and one that ran in none?

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tcptoll_core::record::Summary;
use tcptoll_kernel::cpu::children_of;

use crate::links::tcptoll;
use crate::table::Table;

/// Each load lasts six seconds; its lab takes two at most before.
const LOADS: [&[&str]; 6] = [
    &["http", "--server", "null", "--duration", "6s", "--io", "io-uring"],
    &["http", "--server", "null", "--duration", "6s", "--io", "epoll"],
    &["stream", "--duration", "6s"],
    &["messages", "--duration", "6s", "--message", "64", "--nagle", "off"],
    &["page", "--server", "nginx", "--link", "rtt=5ms", "--keepalive", "on", "--loads", "200"],
    &["keepalive", "--duration", "6s", "--connections", "50", "--idle", "1s", "--mechanism", "tcp"],
];

/// When it is stopped, after it was started.
const AFTER: Duration = Duration::from_secs(4);

/// Runs without a stop, each of which must say nothing.
const CONTROLS: usize = 20;

/// A process and all that it started.
fn tree(pid: u32) -> Vec<u32> {
    std::iter::once(pid).chain(children_of(pid).into_iter().flat_map(tree)).collect()
}

fn signal(name: &str, pids: &[u32]) -> anyhow::Result<()> {
    let pids = pids.iter().map(u32::to_string);
    // Some may have ended.
    Command::new("kill").arg(name).args(pids).stderr(Stdio::null()).status()?;
    Ok(())
}

fn ran(args: &[&str], stop: Option<Duration>) -> anyhow::Result<bool> {
    let mut command = Command::new(tcptoll()?);
    command.args(args).args(["--quiet", "--format", "json", "--out", "/dev/null"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    if let Some(stop) = stop {
        thread::sleep(AFTER);
        let pids = tree(child.id());
        signal("-STOP", &pids)?;
        thread::sleep(stop);
        signal("-CONT", &pids)?;
    }
    let output = child.wait_with_output()?;
    let summary: Summary =
        serde_json::from_slice(&output.stdout).with_context(|| args.join(" "))?;
    Ok(summary.warnings.iter().any(|warning| warning.id == "stood-still"))
}

pub(crate) fn stalls(table: &mut Table) -> anyhow::Result<()> {
    for args in LOADS {
        let mut missed = Vec::new();
        for ms in [500, 1_000, 2_000] {
            if !ran(args, Some(Duration::from_millis(ms)))? {
                missed.push(format!("{ms} ms"));
            }
        }
        table.row(
            &format!("{}: all of it stopped for 0.5, 1 and 2 s", args.join(" ")),
            "named in 3 of 3",
            &format!("missed: {missed:?}"),
            missed.is_empty(),
        );
        let paused = ran(args, Some(Duration::from_millis(40)))?;
        table.row(
            &format!("{}: all of it stopped for 40 ms", args.join(" ")),
            "not named",
            if paused { "named" } else { "not named" },
            !paused,
        );
        let mut alarms = 0;
        for _ in 0..CONTROLS {
            alarms += usize::from(ran(args, None)?);
        }
        table.row(
            &format!("{}: not stopped", args.join(" ")),
            &format!("named in 0 of {CONTROLS}"),
            &format!("named in {alarms}"),
            alarms == 0,
        );
    }
    Ok(())
}
