//! Is the offset of two clocks as right as it says?

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::arm;
use crate::hosts::{Hosts, script};
use crate::support::{Folder, tcptoll};
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
    // 100 bytes take 8 ms at 100 kbit/s: almost all of the round trip is one way.
    let link = "rtt=2ms,rate=100kbit/100mbit";
    let lab = Emulated::start(link)?;
    let one_way = || lab.tcptoll(&["connect", "--count", "20"]);
    shown(table, &format!("an asymmetric link, {link}"), 0.0, None, one_way)
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

/// Hosts of the lab's emulated link, which `nsenter` gets into.
struct Emulated {
    lab: Child,
    folder: Folder,
    client: u32,
    server: u32,
}

impl Emulated {
    fn start(link: &str) -> anyhow::Result<Self> {
        let folder = Folder::new();
        script(&folder, "ssh", include_str!("../../../tests/lab/hosts/ssh.sh"));
        // Its process is known by this length of its sleep.
        let [client, server] = [1, 2].map(|end| format!("{}.{end}", 10_000 + std::process::id()));
        let lab = tcptoll(&["lab", "--quiet", "--link", link])
            .args(["--server", &format!("sleep {server}"), "--", "sleep", &client])
            .stdout(Stdio::null())
            .spawn()?;
        let mut all = Self { lab, folder, client: 0, server: 0 };
        all.client = process_of(&client)?;
        all.server = process_of(&server)?;
        Ok(all)
    }

    fn tcptoll(&self, args: &[&str]) -> Command {
        let ssh = self.folder.path("ssh");
        let mut command = tcptoll(args);
        command.args(["--client", "ssh://client", "--server", "ssh://server", "--ssh", &ssh]);
        command.args(["--server-address", &self.address(), "--quiet", "--format", "json"]);
        command.args(["--out", "/dev/null"]);
        command.env("HOSTS_CLIENT", self.client.to_string());
        command.env("HOSTS_SERVER", self.server.to_string());
        command.env("HOSTS_ENTER", "--user --preserve-credentials --net");
        command.env("XDG_CACHE_HOME", self.folder.path("cache")).env_remove("SSH_CONNECTION");
        command
    }

    /// The lab tells its processes.
    fn address(&self) -> String {
        let environment =
            std::fs::read(format!("/proc/{}/environ", self.client)).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        let found = variables.find_map(|one| one.strip_prefix(b"TCPTOLL_SERVER="));
        String::from_utf8_lossy(found.unwrap_or_default()).into_owned()
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = self.lab.kill();
        let _ = self.lab.wait();
    }
}

/// The process that sleeps for so long.
fn process_of(seconds: &str) -> anyhow::Result<u32> {
    let wanted = format!("sleep\0{seconds}\0");
    let begun = Instant::now();
    loop {
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if line == wanted.as_bytes() {
                let name = entry.file_name();
                let pid = Path::new(&name).display().to_string();
                return pid.parse().context("/proc");
            }
        }
        ensure!(begun.elapsed() < Duration::from_secs(20), "the lab did not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
}
