//! Hosts of the user's over ssh: in network namespaces of this machine, with a real sshd.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::contest::Rounds;
use crate::hosts::{Hosts, script};
pub(crate) use crate::remote_cleanup::{bytes, cut, kills};
use crate::support::{Folder, program, tcptoll};
use crate::table::Proofs;
use tcptoll_core::record::{Arm, Summary};
use tcptoll_core::stats::nearest_rank;

/// Hosts in network namespaces alone, as root: sshd cannot separate its privileges in a user namespace.
pub(crate) fn of_root() -> anyhow::Result<Hosts> {
    ensure!(tcptoll_kernel::process::uid() == 0, "needs root, for sshd in a namespace");
    Ok(Hosts::start_with(&["--net"], "--net"))
}

/// The summary of a run that measured.
fn summary(command: &mut Command) -> anyhow::Result<Summary> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The only arm of a run.
fn arm(command: &mut Command) -> anyhow::Result<Arm> {
    summary(command)?.arms.into_iter().next().context("the summary has no arm")
}

/// What a login hands on to the command that it runs.
const HANDED_ON: &str = "XDG_CACHE_HOME TMPDIR TCPTOLL_TEST_MARK";

/// Keys and settings of an sshd and of an ssh that trusts it.
pub(crate) struct Sshd {
    pub(crate) folder: Folder,
}

impl Sshd {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let folder = Folder::new();
        let key = folder.path("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &key])
            .status()
            .context("ssh-keygen")?;
        ensure!(made.success(), "ssh-keygen: {made}");
        std::fs::copy(folder.file("key.pub"), folder.file("authorized"))?;
        if tcptoll_kernel::process::uid() == 0 {
            std::fs::create_dir_all("/run/sshd")?;
        }
        let settings = format!(
            "HostKey {key}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\nPort 2222\n\
             AcceptEnv {HANDED_ON}\n",
            folder.path("authorized")
        );
        std::fs::write(folder.file("sshd_config"), settings)?;
        Ok(Self { folder })
    }

    /// An `ssh` with these lines for its hosts.
    pub(crate) fn ssh(&self, hosts: &str) -> anyhow::Result<String> {
        let settings = format!(
            "{hosts}Host *\n  IdentityFile {}\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  \
             UserKnownHostsFile {}\n  LogLevel ERROR\n  SendEnv {HANDED_ON}\n",
            self.folder.path("key"),
            self.folder.path("known")
        );
        std::fs::write(self.folder.file("ssh_config"), settings)?;
        Ok(format!("ssh -F {}", self.folder.path("ssh_config")))
    }

    /// An `ssh` whose logins are answered by an sshd of their own in the hosts' namespaces.
    pub(crate) fn in_namespaces(&self, hosts: &Hosts) -> anyhow::Result<String> {
        let host_entry = |name: &str, pid: &str| {
            format!(
                "Host {name}\n  ProxyCommand nsenter --target {pid} --net /usr/sbin/sshd -i -f {}\n",
                self.folder.path("sshd_config")
            )
        };
        self.ssh(&(host_entry("client", &hosts.client) + &host_entry("server", &hosts.server)))
    }
}

// How long until a host of the user's is ready?

const RUNS: usize = 20;
const FIRST_MAX: f64 = 0.6;
const SECOND_MAX: f64 = 0.5;

/// A login, the program copied or found, its agent, and a host's process: until that has answered.
pub(crate) fn ready(table: &mut Proofs) -> anyhow::Result<()> {
    let sshd = Sshd::new()?;
    let proxy = format!(
        "Host here\n  ProxyCommand /usr/sbin/sshd -i -f {}\n",
        sshd.folder.path("sshd_config")
    );
    let ssh = sshd.ssh(&proxy)?;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for number in 0..RUNS {
        let cache = sshd.folder.path(&format!("cache-{number}"));
        for times in [&mut first, &mut second] {
            let mut command =
                tcptoll(&["doctor", "ssh://here", "--ssh", &ssh, "--quiet", "--format", "json"]);
            let output = command.env("XDG_CACHE_HOME", &cache).output()?;
            let found: Value = serde_json::from_slice(&output.stdout)
                .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
            times.push(found["ready_s"].as_f64().context("ready_s")?);
        }
    }
    let megabytes = std::fs::metadata(program())?.len() as f64 / 1e6;
    for (what, mut times, most) in [
        (format!("ready, {megabytes:.1} MB copied"), first, FIRST_MAX),
        ("ready, second run".to_owned(), second, SECOND_MAX),
    ] {
        times.sort_by(f64::total_cmp);
        let median = nearest_rank(&times, 50, 100).context("times")?;
        let slowest = *times.last().context("times")?;
        table.row(
            &format!("hosts over a real sshd: {what}, {RUNS} times: median, slowest"),
            &format!("median ≤ {most} s"),
            &format!("{median:.3} s, {slowest:.3} s"),
            median <= most,
        );
    }
    Ok(())
}

// Is the offset of two clocks as right as it says?

const CLOCK_RUNS: usize = 30;
/// How far the clock of the other time namespace is ahead, µs.
const AHEAD_US: f64 = 1e9;
/// On a quiet veth, µs.
const ERROR_MAX_US: f64 = 10.0;

/// Offsets against the truth: hosts of one kernel have one clock, or one that is 1,000 s ahead.
pub(crate) fn offsets(table: &mut Proofs) -> anyhow::Result<()> {
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
    table: &mut Proofs,
    over: &str,
    truth_us: f64,
    most_us: Option<f64>,
    run: impl Fn() -> Command,
) -> anyhow::Result<()> {
    let (mut within, mut worst, mut bounds) = (0, 0.0_f64, Vec::new());
    for _ in 0..CLOCK_RUNS {
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
        &format!("clock offset over {over}, {CLOCK_RUNS} trials: errors within their bound; worst error, widest bound"),
        &most_us.map_or("all".to_owned(), |most| format!("all; worst ≤ {most} µs")),
        &format!("{within}; {worst:.2} µs, {widest:.2} µs"),
        within == CLOCK_RUNS && most_us.is_none_or(|most| worst <= most),
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
        let relay = include_str!("remote/one_way.py");
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

// Does it measure over ssh what it measures in the lab, and is it disturbed by what else a machine does?

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
pub(crate) fn lab(table: &mut Proofs) -> anyhow::Result<()> {
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
    table: &mut Proofs,
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
pub(crate) fn traffic(table: &mut Proofs) -> anyhow::Result<()> {
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
