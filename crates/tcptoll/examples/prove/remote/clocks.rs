//! Is the offset of two clocks as right as it says?

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};

use super::arm;
use crate::hosts::{Hosts, script};
use crate::support::tcptoll;
use crate::table::Table;

const RUNS: usize = 30;
/// How far the clock of the other time namespace is ahead, µs.
const AHEAD_US: f64 = 1e9;
/// On a quiet veth, µs.
const ERROR_MAX_US: f64 = 10.0;

/// Offsets against the truth: hosts of one kernel have one clock, or one that is 1,000 s ahead.
pub(crate) fn offsets(table: &mut Table) -> anyhow::Result<()> {
    let hosts = Hosts::start();
    let ssh = hosts.folder.path("ssh");
    let veth = || hosts.tcptoll_over(&ssh, &["connect", "--count", "20"]);
    shown(table, "a veth", 0.0, Some(ERROR_MAX_US), veth)?;
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = client ] || export HOSTS_WITHIN='unshare --time --monotonic 1000'\n\
         exec {ssh} \"$@\"\n"
    );
    let ahead = script(&hosts.folder, "ssh-ahead", &text);
    let other = || hosts.tcptoll_over(&ahead, &["connect", "--count", "20"]);
    shown(table, "a veth, the server's clock 1,000 s ahead", AHEAD_US, Some(ERROR_MAX_US), other)?;
    let _link = OneWayLate::start(&hosts)?;
    let one_way = || OneWayLate::tcptoll(&hosts, &["connect", "--count", "20"]);
    let over = format!("a link that is late by {LATE_S} s in one direction only");
    shown(table, &over, 0.0, None, one_way)
}

fn shown(
    table: &mut Table,
    over: &str,
    truth_us: f64,
    most_us: Option<f64>,
    run: impl Fn() -> Command,
) -> anyhow::Result<()> {
    let (mut within, mut worst, mut bounds) = (0, 0.0_f64, Vec::new());
    for _ in 0..RUNS {
        let path = arm(&mut run())?.path.context("the arm has no path")?;
        let offset = path.clock_offset_us.context("no offset")?;
        let bound = path.clock_offset_bound_us.context("no bound")?;
        let error = (offset - truth_us).abs();
        within += usize::from(error <= bound);
        worst = worst.max(error);
        bounds.push(bound);
    }
    let widest = bounds.iter().copied().fold(0.0, f64::max);
    table.row(
        &format!("clock offset over {over}, {RUNS} trials: errors within their bound; worst error, widest bound"),
        &most_us.map_or("all".to_owned(), |most| format!("all; worst ≤ {most} µs")),
        &format!("{within}; {worst:.2} µs, {widest:.2} µs"),
        within == RUNS && most_us.is_none_or(|most| worst <= most),
    );
    Ok(())
}

/// Addresses of the link that is late in one direction: of the client and the server.
const LATE: [&str; 2] = ["10.80.0.1", "10.80.0.2"];
const LATE_S: &str = "0.008";

/// A link of ours between the hosts.
struct OneWayLate(Child);

impl OneWayLate {
    fn start(hosts: &Hosts) -> anyhow::Result<Self> {
        let relay = include_str!("one_way.py");
        let [client, server] = LATE;
        let words = ["python3", "-c", relay, &hosts.server, client, server, LATE_S];
        let mut child = hosts.on(&hosts.client, &words).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("it is a pipe")?;
        let link = Self(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "up\n", "the link says {line:?}");
        Ok(link)
    }

    fn tcptoll(hosts: &Hosts, args: &[&str]) -> Command {
        let mut command = tcptoll(args);
        let ssh = hosts.folder.path("ssh");
        command.args(["--client", "ssh://client", "--server", "ssh://server", "--ssh", &ssh]);
        command.args(["--server-address", LATE[1], "--quiet", "--format", "json"]);
        command.args(["--out", "/dev/null"]);
        hosts.with_hosts(command)
    }
}

impl Drop for OneWayLate {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
