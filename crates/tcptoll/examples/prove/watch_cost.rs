//! CPU and memory of a watch of 1,000 listeners and 50,000 connections, as the kernel counts them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::watch::{Running, interrupt, intervals, row};
use crate::links::tcptoll;
use crate::table::Folder;
use crate::watch_witness::{Load, by_others, output_of, ten_busy_listeners};
use tcptoll_kernel::process::{freeze, resume};
use tcptoll_live::watch::Interval;

const LISTENERS: usize = 1_000;
const CONNECTIONS: usize = 50_000;
/// Processes of each side: a process may open 20,000 files on many machines.
const PROCESSES: usize = 4;
const SERVER: &str = "10.77.9.1";
const CLIENT: &str = "10.77.9.2";
/// Ports below those that connect(2) chooses.
const FIRST_PORT: usize = 10_000;

/// How long a watch is measured.
const LASTS: Duration = Duration::from_mins(1);
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
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
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
    /// Without the pages of the program itself.
    pub(super) anonymous: u64,
}

/// From `/proc/PID/stat` and `/proc/PID/status`.
pub(super) fn used(pid: u32) -> anyhow::Result<Used> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let stat = stat.with_context(|| format!("the watch, process {pid}, has ended"))?;
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
        anonymous: kb("RssAnon:")?,
    })
}

pub(super) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Where the watch serves its metrics, in the namespace of the group.
const METRICS: &str = "127.0.0.1:9464";
/// Prometheus asks this often.
const SCRAPE_EVERY: Duration = Duration::from_secs(15);

/// What a watch says of itself, from its metrics.
struct Claims {
    cpu_s: f64,
    table_age_s: f64,
    table_every_s: f64,
    bytes: usize,
    took: Duration,
}

fn scrape() -> anyhow::Result<Claims> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(METRICS).context(METRICS)?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {METRICS}\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    let took = began.elapsed();
    let value = |name: &str| -> anyhow::Result<f64> {
        let figure = |line: &str| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        Ok(page.lines().find_map(figure).with_context(|| name.to_owned())?.parse()?)
    };
    Ok(Claims {
        cpu_s: value("tcptoll_watch_cpu_seconds_total")?,
        table_age_s: value("tcptoll_watch_table_age_seconds")?,
        table_every_s: value("tcptoll_watch_table_interval_seconds")?,
        bytes: page.len(),
        took,
    })
}

pub(super) fn inside() -> anyhow::Result<()> {
    let folder = Folder::new("watch-cost")?;
    let _crowd = Crowd::build()?;
    let record = folder.path("metrics.jsonl");
    let program = Command::new(tcptoll()?)
        .args(["watch", "--listen", METRICS, "--record", &record])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let (began, mut program) = (Instant::now(), Running(program));
    let mut claims = Vec::new();
    while began.elapsed() + SCRAPE_EVERY <= LASTS {
        sleep(SCRAPE_EVERY);
        claims.push(scrape()?);
    }
    let (used, passed) = (used(program.0.id())?, began.elapsed());
    interrupt(&mut program)?;
    rows("metrics and record", &used, passed, &intervals(&record)?);
    claimed(&claims, &used)?;
    let record = folder.path("screen.jsonl");
    let screen = Screen::start(&record)?;
    let began = Instant::now();
    sleep(LASTS);
    let (used, passed) = (super::watch_cost::used(screen.pid)?, began.elapsed());
    let shown = screen.finish()?;
    rows("screen of 200 × 60 in tmux and record", &used, passed, &intervals(&record)?);
    let lines = shown.lines().filter(|line| !line.trim().is_empty()).count();
    let share = used.cpu_s / passed.as_secs_f64();
    // With one decimal it is off by up to 0.05 of a percent.
    let claim = shown.split_once("watching takes ").and_then(|(_, rest)| rest.split_once(" %"));
    let claim: f64 = claim.context("the screen states no cost")?.0.parse()?;
    row(
        "what the screen says of the CPU of the watch, against /proc/PID/stat",
        "within 10 %, and 0.05 points for its rounding",
        &format!("{claim} %, {:.2} %; {lines} lines on the screen", 100.0 * share),
        (claim - 100.0 * share).abs() <= 100.0 * share * CLAIM_OFF + 0.05,
    );
    Ok(())
}

fn claimed(claims: &[Claims], used: &Used) -> anyhow::Result<()> {
    let last = claims.last().context("a scrape")?;
    let off = last.cpu_s / used.cpu_s - 1.0;
    row(
        "what the watch says of its own CPU, against /proc/PID/stat",
        "within 10 %",
        &format!("{:.2} s of {:.2} s: {:+.1} %", last.cpu_s, used.cpu_s, 100.0 * off),
        off.abs() <= CLAIM_OFF,
    );
    let late = claims.iter().filter(|one| one.table_age_s > one.table_every_s + 1.5).count();
    let ages: Vec<String> = claims
        .iter()
        .map(|one| format!("{:.1} s old, every {:.1} s", one.table_age_s, one.table_every_s))
        .collect();
    row(
        "the age of the table that the watch states",
        "at most its interval and a look",
        &ages.join("; "),
        late == 0,
    );
    let slowest = claims.iter().map(|one| one.took).max().unwrap_or_default();
    super::watch::fact(
        "its page of metrics",
        &format!(
            "{:.0} kB, at most {:.1} ms a scrape",
            last.bytes as f64 / 1e3,
            slowest.as_secs_f64() * 1e3
        ),
    );
    Ok(())
}

fn rows(what: &str, used: &Used, passed: Duration, intervals: &[Interval]) {
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
        &format!("{}; heap {}", mib(used.most_resident), mib(used.anonymous)),
        used.most_resident <= MEMORY_MAX,
    );
    let listed = intervals.iter().map(|one| {
        let others = one.others.map_or(0, |others| others.listeners);
        u64::from(one.idle) + one.listeners.len() as u64 + others
    });
    let listed = listed.min().unwrap_or(0);
    let looks: u32 = intervals.iter().map(|one| one.looks).sum();
    let longest = intervals.iter().map(|one| one.longest_s.unwrap_or(one.interval_s));
    let longest = longest.fold(0.0, f64::max);
    let due = passed.as_secs();
    row(
        &format!("{what}: looks at the listeners"),
        "every second, all of them",
        &format!(
            "{looks} in {due} s, longest interval {longest:.2} s; {listed} listeners at least"
        ),
        u64::from(looks) + 1 >= due && listed >= LISTENERS as u64,
    );
    let dumps: Vec<&Interval> = intervals.iter().filter(|one| !one.states.is_empty()).collect();
    let apart = dumps.windows(2).map(|two| two[1].at_s - two[0].at_s);
    let (least, most) = apart.fold((f64::INFINITY, 0.0_f64), |(l, m), s| (l.min(s), m.max(s)));
    let seen = dumps.iter().filter_map(|one| one.states.get("ESTABLISHED")).min();
    let seen = seen.copied().unwrap_or(0);
    row(
        &format!("{what}: dumps of all sockets"),
        "all connections, at least every 60 s",
        &format!(
            "{} in {due} s, {least:.1} to {most:.1} s apart; {seen} ESTABLISHED at least",
            dumps.len()
        ),
        seen >= CONNECTIONS as u64 && most <= 61.0 && dumps.len() > 1,
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

    /// What the screen shows; then the watch ends.
    fn finish(self) -> anyhow::Result<String> {
        let text = self.tmux(&["capture-pane", "-p"])?;
        self.tmux(&["send-keys", "q"])?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::path::Path::new(&format!("/proc/{}", self.pid)).exists() {
            ensure!(Instant::now() < deadline, "q did not end the watch");
            sleep(Duration::from_millis(50));
        }
        Ok(text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

// The metrics of a watch, scraped by the real Prometheus, next to `ss`.

const ADDRESS: &str = "127.0.0.1:9464";
const PROMETHEUS: &str = "127.0.0.1:9465";
/// How long Prometheus scrapes, once a second.
const SCRAPED_FOR: Duration = Duration::from_mins(1);
/// A scrape has the newest look, which is up to an interval old; both are of 1 s.
const SETTLED: Duration = Duration::from_secs(4);

fn quiet(command: &mut Command) -> anyhow::Result<Running> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Running(command.spawn().with_context(|| format!("{command:?}"))?))
}

fn get(at: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(at).context(at.to_owned())?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {at}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").context("an answer")?.1.to_owned())
}

/// Series of a query: the value of a label and that of the series.
fn query(expression: &str, label: &str) -> anyhow::Result<Vec<(String, f64)>> {
    let escape = |byte: u8| {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    let escaped: String = expression.bytes().map(escape).collect();
    let answer: Value =
        serde_json::from_str(&get(PROMETHEUS, &format!("/api/v1/query?query={escaped}"))?)?;
    let series =
        answer["data"]["result"].as_array().with_context(|| format!("{expression}: {answer}"))?;
    let one = |one: &Value| {
        let value = one["value"][1].as_str().context("a value")?.parse()?;
        Ok((one["metric"][label].as_str().unwrap_or_default().to_owned(), value))
    };
    series.iter().map(one).collect()
}

fn promtool(args: &[&str], input: &str) -> anyhow::Result<(bool, String)> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/watch");
    let mut child = Command::new("promtool")
        .args(args)
        .current_dir(docs)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("promtool")?;
    child.stdin.take().context("stdin")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((output.status.success(), said.split_whitespace().collect::<Vec<_>>().join(" ")))
}

pub(super) fn inside_prometheus() -> anyhow::Result<()> {
    let folder = Folder::new("watch-prometheus")?;
    let load = Load::start(&[], &ten_busy_listeners())?;
    let _watch = quiet(Command::new(tcptoll()?).args(["watch", "--listen", ADDRESS]))?;
    let config = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: tcptoll\n    static_configs:\n      - targets: [\"{ADDRESS}\"]\n"
    );
    let file = folder.path("prometheus.yml");
    std::fs::write(&file, config)?;
    let _prometheus = quiet(
        Command::new("prometheus")
            .arg(format!("--config.file={file}"))
            .arg(format!("--storage.tsdb.path={}", folder.path("data")))
            .arg(format!("--web.listen-address={PROMETHEUS}")),
    )?;
    let began = Instant::now();
    sleep(SCRAPED_FOR);
    let window = SCRAPED_FOR.as_secs();
    let one = |expression: &str| -> anyhow::Result<f64> {
        Ok(query(expression, "job")?.first().with_context(|| format!("{expression}: nothing"))?.1)
    };
    let scrapes = one(&format!("count_over_time(up[{window}s])"))?;
    let failed = scrapes - one(&format!("sum_over_time(up[{window}s])"))?;
    let longest = one(&format!("max_over_time(scrape_duration_seconds[{window}s])"))?;
    let samples = one("scrape_samples_scraped")?;
    row(
        "Prometheus scrapes a watch of ten busy listeners once a second",
        "no scrape fails",
        &format!(
            "{scrapes:.0} scrapes in {:.0} s, {failed:.0} failed; {:.1} ms at most, {samples:.0} samples each",
            began.elapsed().as_secs_f64(),
            longest * 1e3
        ),
        failed == 0.0 && scrapes >= 30.0,
    );
    freeze(load.pid())?;
    sleep(SETTLED);
    let before = by_others(&[])?;
    let queues = query("tcptoll_listener_accept_queue_connections", "listener")?;
    let limits = query("tcptoll_listener_accept_queue_limit_connections", "listener")?;
    let time_wait = query("tcptoll_time_wait_sockets", "job")?;
    let after = by_others(&[])?;
    resume(load.pid())?;
    // The queues of sockets that share an address are one sum there; their limit too.
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (figure, series) in [("queue", &queues), ("limit", &limits)] {
        ensure!(!series.is_empty(), "Prometheus has no {figure}");
        for (listener, value) in series {
            let start = format!("{figure} of {listener} ");
            let sum = |all: &crate::watch_witness::Figures| -> i64 {
                all.iter().filter(|(name, _)| name.starts_with(&start)).map(|(_, n)| n).sum()
            };
            compared += 1;
            let ends = (sum(&before), sum(&after));
            let figure = *value as i64;
            if !(ends.0.min(ends.1)..=ends.0.max(ends.1)).contains(&figure) {
                wrong.push(format!("{start}{figure}, not {ends:?}"));
            }
        }
    }
    let tw = (before["sockstat tw"], after["sockstat tw"]);
    let ours = time_wait.first().context("TIME-WAIT")?.1 as i64;
    // TIME-WAIT falls while the load is frozen, and the scrape is older than the first reading: no goal.
    row(
        "queue and limit of each listener in Prometheus, load frozen",
        "equal to ss, or between its two readings",
        &format!(
            "{} of {compared}{}; TIME-WAIT {ours}, sockstat {} to {}",
            compared - wrong.len(),
            if wrong.is_empty() { String::new() } else { format!(", WRONG {}", wrong.join("; ")) },
            tw.0,
            tw.1
        ),
        wrong.is_empty(),
    );
    let page = get(ADDRESS, "/metrics")?;
    for (what, args, input) in [
        ("check metrics", &["check", "metrics"][..], page.as_str()),
        ("check rules", &["check", "rules", "alerts.yml"], ""),
        ("test rules", &["test", "rules", "alerts.test.yml"], ""),
    ] {
        let (passed, said) = promtool(args, input)?;
        let said = if said.is_empty() { "nothing to say".to_owned() } else { said };
        row(&format!("promtool {what}"), "passes", &said, passed);
    }
    Ok(())
}
