//! Does it measure over ssh what it measures in the lab, and is it disturbed by what else a machine does?

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use tcptoll_core::record::Arm;

use super::{arm, summary};
use crate::contest::rounds::Rounds;
use crate::hosts::{Hosts, script};
use crate::support::tcptoll;
use crate::table::Table;

/// A difference up to here is none.
const MARGIN: f64 = 0.05;

/// What is compared, with how many rounds.
struct Case {
    what: &'static str,
    args: &'static [&'static str],
    rounds: u32,
    figure: fn(&Arm) -> Option<f64>,
}

const CASES: [Case; 3] = [
    Case {
        what: "connect: median latency",
        args: &["connect", "--count", "5000", "--rounds", "1"],
        rounds: 40,
        figure: |arm| arm.histograms.get("connect_us")?.p50,
    },
    Case {
        what: "http: client CPU per request",
        args: &["http", "--connections", "50", "--duration", "2s", "--rounds", "1"],
        rounds: 30,
        figure: |arm| Some(arm.metrics.get("client_cpu_us_per_op")?.value),
    },
    Case {
        what: "keepalive: median detection of a reset",
        args: &[
            "keepalive",
            "--sockets",
            "200",
            "--mechanism",
            "heartbeat",
            "--fault",
            "reset",
            "--side",
            "client",
            "--rounds",
            "1",
        ],
        rounds: 10,
        figure: |arm| arm.histograms.get("detection_us")?.p50,
    },
];

/// The same experiments on the same kind of link, each host on a CPU of its own as in the lab.
pub(crate) fn lab(table: &mut Table) -> anyhow::Result<()> {
    let cpus = tcptoll_kernel::cpu::allowed();
    ensure!(cpus.len() > 1, "needs two CPUs");
    let hosts = Hosts::start();
    let text = format!(
        "#!/bin/sh\ncpu={}; [ \"$1\" = client ] && cpu={}\nHOSTS_WITHIN=\"taskset -c $cpu\" exec {} \"$@\"\n",
        cpus[1],
        cpus[0],
        hosts.folder.path("ssh")
    );
    let ssh = script(&hosts.folder, "ssh-pinned", &text);
    for case in CASES {
        let rounds = Rounds::run(&["over ssh", "in the lab"], case.rounds, |place| {
            let mut command = if place == 0 {
                hosts.tcptoll_over(&ssh, case.args)
            } else {
                let mut command = tcptoll(case.args);
                command.args(["--link", "direct", "--quiet", "--format", "json"]);
                command.args(["--out", "/dev/null"]);
                command
            };
            (case.figure)(&arm(&mut command)?).context("the arm lacks the figure")
        })?;
        compared(table, case.what, &rounds, ["over ssh", "in the lab"])?;
    }
    Ok(())
}

fn compared(
    table: &mut Table,
    what: &str,
    rounds: &Rounds<f64>,
    [ours, theirs]: [&str; 2],
) -> anyhow::Result<()> {
    let ratio = rounds.ratio(ours, theirs, |figure| *figure).context("no figures")?;
    let none = |[low, high]: [f64; 2]| low <= 1.0 + MARGIN && high >= 1.0 - MARGIN;
    let within = |[low, high]: [f64; 2]| low >= 1.0 - MARGIN && high <= 1.0 + MARGIN;
    let word = match ratio.ci95 {
        Some(interval) if within(interval) => "equal within 5 %",
        Some(interval) if none(interval) => "not told apart",
        _ => "different",
    };
    table.row(
        &format!("{what}, {ours} against {theirs}, interleaved"),
        "no difference found (5 %)",
        &format!(
            "{:.3} {}, {:.2} against {:.2}, {} rounds: {word}",
            ratio.value,
            ratio.interval(),
            ratio.ours,
            ratio.theirs,
            ratio.rounds
        ),
        ratio.ci95.is_some_and(none),
    );
    Ok(())
}

/// Opens and accepts 300 connections/s on the loopback device of its host.
const TRAFFIC: &str = "import socket,time
s = socket.create_server(('127.0.0.1', 0))
due = time.monotonic()
while True:
    c = socket.create_connection(s.getsockname())
    a, _ = s.accept()
    c.close()
    a.close()
    due += 1 / 300
    time.sleep(max(0, due - time.monotonic()))
";

/// Others open 300 connections/s on the client's machine.
pub(crate) fn traffic(table: &mut Table) -> anyhow::Result<()> {
    const ROUNDS: u32 = 30;
    let hosts = Hosts::start();
    let (mut warned, mut falsely, mut wrong) = (0, 0, 0);
    let names = ["with traffic", "without"];
    let rounds = Rounds::run(&names, ROUNDS, |place| {
        let mut others = None;
        if place == 0 {
            let mut command = hosts.on(&hosts.client, &["python3", "-c", TRAFFIC]);
            others = Some(command.stdout(Stdio::null()).spawn().context("python3")?);
        }
        let ran = summary(&mut load(&hosts));
        if let Some(others) = &mut others {
            others.kill()?;
            others.wait()?;
        }
        let ran = ran?;
        let told = ran.warnings.iter().any(|warning| warning.id == "other-traffic");
        let arm = ran.arms.first().context("no arm")?;
        let opened = arm.client.counter("TcpActiveOpens");
        // Right or absent.
        wrong += usize::from(opened.is_some_and(|opened| opened != arm.attempts as i64));
        match place {
            0 => warned += usize::from(told),
            _ => falsely += usize::from(told),
        }
        arm.histograms.get("connect_us").and_then(|all| all.p50).context("no latency")
    })?;
    table.row(
        "300 connections/s of others on the client's machine: warned with them, without them; wrong counts of opened connections",
        &format!("{ROUNDS}, 0; 0"),
        &format!("{warned}, {falsely}; {wrong}"),
        warned == ROUNDS as usize && falsely == 0 && wrong == 0,
    );
    compared(table, "connect: median latency", &rounds, names)
}

fn load(hosts: &Hosts) -> Command {
    hosts.tcptoll(&["connect", "--count", "3000", "--rate", "2000", "--rounds", "1"])
}
