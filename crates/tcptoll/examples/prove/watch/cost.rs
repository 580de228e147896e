//! CPU and memory of a watch of 1,000 listeners and 50,000 connections, as the kernel counts them.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;
use tcptoll_model::watch::State;

use super::{Running, interrupt, row, states};
use crate::folder::Folder;
use crate::links::tcptoll;
use crate::watch_witness::{Load, output_of, ten_busy_listeners};

const LISTENERS: usize = 1_000;
const CONNECTIONS: usize = 50_000;
/// Processes of each side: a process may open 20,000 files on many machines.
const PROCESSES: usize = 4;
const SERVER: &str = "10.77.9.1";
const CLIENT: &str = "10.77.9.2";
/// Ports below those that connect(2) chooses.
const FIRST_PORT: usize = 10_000;

/// How long a watch is measured.
const LASTS: Duration = Duration::from_secs(60);
const CPU_MAX: f64 = 0.02;
const MEMORY_MAX: u64 = 30 << 20;
/// What a watch says of its own CPU may differ from the kernel's count by this share.
const CLAIM_OFF: f64 = 0.10;

/// Listeners and connections; the clients are in a namespace of their own. Ten busy listeners are there too.
pub(super) struct Crowd {
    _loads: Vec<Load>,
    _clients: Running,
}

impl Crowd {
    pub(super) fn build() -> anyhow::Result<Self> {
        let holder = ["--net", "--", "sleep", "infinity"];
        let clients = Running(holder_of(Command::new("unshare").args(holder))?);
        let pid = clients.0.id().to_string();
        let within = ["nsenter", "-t", &pid, "-n", "--"];
        let veth = ["ip", "link", "add", "watch0", "type", "veth", "peer", "name", "watch1"];
        output_of(&[&veth[..], &["netns", &pid]].concat())?;
        output_of(&["ip", "addr", "add", &format!("{SERVER}/24"), "dev", "watch0"])?;
        output_of(&["ip", "link", "set", "watch0", "up"])?;
        let there = |command: &[&str]| output_of(&[&within, command].concat());
        there(&["ip", "addr", "add", &format!("{CLIENT}/24"), "dev", "watch1"])?;
        there(&["ip", "link", "set", "watch1", "up"])?;
        let (listeners, connections) = (LISTENERS / PROCESSES, CONNECTIONS / PROCESSES);
        let port = |process: usize| FIRST_PORT + process * listeners;
        let mut loads = Vec::new();
        for process in 0..PROCESSES {
            let crowd = json!({"listen": listeners, "at": SERVER, "port": port(process)});
            loads.push(Load::start(&[], &json!({"crowd": crowd}))?);
        }
        for process in 0..PROCESSES {
            let crowd = json!({"open": connections, "to": SERVER, "port": port(process), "ports": listeners});
            loads.push(Load::start(&within, &json!({"crowd": crowd}))?);
        }
        loads.push(Load::start(&[], &ten_busy_listeners())?);
        let lines = |command: &[&str]| anyhow::Ok(output_of(command)?.lines().count());
        let listening = lines(&["ss", "-Htln"])?;
        let established = lines(&["ss", "-Htn", "state", "established"])?;
        ensure!(
            listening >= LISTENERS && established >= CONNECTIONS,
            "{listening} listeners and {established} connections"
        );
        Ok(Self { _loads: loads, _clients: clients })
    }
}

/// Starts a command that moves into another network namespace, and waits until it is there.
fn holder_of(command: &mut Command) -> anyhow::Result<std::process::Child> {
    let child = command.stdin(Stdio::null()).spawn().context("unshare")?;
    let network = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net"));
    let (own, pid) = (network("self")?, child.id().to_string());
    let deadline = Instant::now() + Duration::from_secs(10);
    while network(&pid).is_ok_and(|other| other == own) {
        ensure!(Instant::now() < deadline, "no network namespace was made");
        sleep(Duration::from_millis(10));
    }
    Ok(child)
}

/// What the kernel counts of a process.
#[derive(Clone, Copy)]
pub(super) struct Used {
    pub(super) cpu_s: f64,
    pub(super) resident: u64,
    pub(super) most_resident: u64,
}

/// From `/proc/PID/stat` and `/proc/PID/status`.
pub(super) fn used(pid: u32) -> anyhow::Result<Used> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the name, which may contain anything: utime and stime are the 12th and 13th word.
    let words: Vec<&str> = stat.rsplit_once(')').context("stat")?.1.split_whitespace().collect();
    let ticks: u64 = words[11].parse::<u64>()? + words[12].parse::<u64>()?;
    let ticks_per_s: f64 = output_of(&["getconf", "CLK_TCK"])?.trim().parse()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kb = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("status")?;
        let kb: u64 = line.trim().trim_end_matches(" kB").parse()?;
        anyhow::Ok(kb << 10)
    };
    Ok(Used {
        cpu_s: ticks as f64 / ticks_per_s,
        resident: kb("VmRSS:")?,
        most_resident: kb("VmHWM:")?,
    })
}

pub(super) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

pub(super) fn inside() -> anyhow::Result<()> {
    let folder = Folder::new("watch-cost")?;
    let _crowd = Crowd::build()?;
    let record = folder.path("lines.jsonl");
    let program = Command::new(tcptoll()?)
        .args(["watch", "--no-screen", "--record", &record])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let (began, mut program) = (Instant::now(), Running(program));
    sleep(LASTS);
    let (used, passed) = (used(program.0.id())?, began.elapsed());
    interrupt(&mut program)?;
    rows("without a screen", &used, passed, &states(&record)?);
    let record = folder.path("screen.jsonl");
    let screen = Screen::start(&record)?;
    let began = Instant::now();
    sleep(LASTS);
    let (used, passed) = (super::cost::used(screen.pid)?, began.elapsed());
    let shown = screen.finish()?;
    rows("on a screen of 200 × 60 in tmux", &used, passed, &states(&record)?);
    super::fact("the screen, lines that are not empty", &shown.to_string());
    Ok(())
}

fn rows(what: &str, used: &Used, passed: Duration, states: &[State]) {
    let share = used.cpu_s / passed.as_secs_f64();
    row(
        &format!("watch of 1,000 listeners and 50,000 connections, {what}: CPU (/proc/PID/stat)"),
        "≤ 2 % of one CPU",
        &format!("{:.2} % ({:.2} s in {:.0} s)", 100.0 * share, used.cpu_s, passed.as_secs_f64()),
        share <= CPU_MAX,
    );
    row(
        &format!("{what}: memory, at most (VmHWM)"),
        "≤ 30 MiB",
        &mib(used.most_resident),
        used.most_resident <= MEMORY_MAX,
    );
    let claim = states.last().map_or(f64::NAN, |state| state.cost.cpu_share);
    row(
        &format!("{what}: what it says of its own CPU"),
        "within 10 % of the kernel's count",
        &format!("{:.2} %: {:+.1} %", 100.0 * claim, 100.0 * (claim / share - 1.0)),
        (claim / share - 1.0).abs() <= CLAIM_OFF,
    );
    let listed =
        states.iter().map(|state| state.listeners.len() as u64 + state.listeners_left_out).min();
    let longest = states.iter().map(|state| state.interval_s).fold(0.0, f64::max);
    let due = passed.as_secs();
    row(
        &format!("{what}: looks at the listeners"),
        "every second, all of them",
        &format!(
            "{} in {due} s, longest interval {longest:.2} s; {} listeners at least",
            states.len(),
            listed.unwrap_or(0)
        ),
        states.len() as u64 + 1 >= due && listed >= Some(LISTENERS as u64),
    );
    let every = states.iter().map(|state| state.cost.table_every_s);
    let (least, most) = every.fold((f64::INFINITY, 0.0_f64), |(l, m), s| (l.min(s), m.max(s)));
    let oldest = states.iter().filter_map(|state| state.table_age_s).fold(0.0, f64::max);
    let aged = states.iter().filter(|state| state.table_age_s.is_some()).count();
    let seen = states.iter().filter_map(|state| state.states.get("ESTABLISHED")).min();
    row(
        &format!("{what}: the table of all sockets"),
        "its age in each state, within its interval and one look",
        &format!(
            "every {least:.1} to {most:.1} s; age {oldest:.1} s at most, in {aged} of {} states; {} ESTABLISHED at least",
            states.len(),
            seen.copied().unwrap_or(0)
        ),
        aged == states.len()
            && oldest <= most + 1.5
            && seen.is_some_and(|n| *n >= CONNECTIONS as u64),
    );
}

/// A watch in a terminal of tmux, with a server of its own.
struct Screen {
    socket: String,
    pid: u32,
}

impl Screen {
    fn start(record: &str) -> anyhow::Result<Self> {
        let socket = format!("tcptoll-watch-cost-{}", std::process::id());
        let line = format!("exec '{}' watch --record '{record}'", tcptoll()?.display());
        let size = ["-x", "200", "-y", "60"];
        output_of(
            &[
                &["tmux", "-L", &socket, "-f", "/dev/null", "new-session", "-d"],
                &size[..],
                &[&line],
            ]
            .concat(),
        )?;
        let mut screen = Self { socket, pid: 0 };
        screen.pid = screen.tmux(&["display-message", "-p", "#{pane_pid}"])?.trim().parse()?;
        Ok(screen)
    }

    fn tmux(&self, words: &[&str]) -> anyhow::Result<String> {
        output_of(&[&["tmux", "-L", &self.socket], words].concat())
    }

    /// Lines of the screen that are not empty; then the watch ends.
    fn finish(self) -> anyhow::Result<usize> {
        let text = self.tmux(&["capture-pane", "-p"])?;
        self.tmux(&["send-keys", "q"])?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::path::Path::new(&format!("/proc/{}", self.pid)).exists() {
            ensure!(Instant::now() < deadline, "q did not end the watch");
            sleep(Duration::from_millis(50));
        }
        Ok(text.lines().filter(|line| !line.trim().is_empty()).count())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}
