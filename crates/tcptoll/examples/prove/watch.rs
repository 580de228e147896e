//! Is what `tcptoll watch` shows true, and what does it cost?
//!
//! Each group runs in a user and network namespace of its own: the example starts itself there with a hidden
//! word, and that process prints its rows as JSON lines.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::links::tcptoll;
use crate::table::{Folder, Proofs};
use crate::watch_cost::{Crowd, mib, used};
use tcptoll_kernel::netlink::Netlink;
use tcptoll_live::watch::{Destination, History, Interval, ListenerLook, Look, Process, WatchLine};

/// The hidden word; the name of a group follows.
const INSIDE: &str = "watch-inside";

/// What a group does in its namespace.
type Inside = fn() -> anyhow::Result<()>;

const INSIDES: &[(&str, Inside)] = &[
    ("watch-equal", crate::watch_equal::inside),
    ("watch-overflow", crate::watch_equal::inside_overflow),
    ("watch-cost", crate::watch_cost::inside),
    ("watch-day", inside),
    ("watch-prometheus", crate::watch_cost::inside_prometheus),
    (CLOCK, sped_up),
];

/// Every figure of ten busy listeners is that of `ss` and `nstat`: 90 s.
pub(crate) fn equal(table: &mut Proofs) -> anyhow::Result<()> {
    run(table, "watch-equal")
}

/// Overflows are named soon, at the right listener, with the right rate: 90 s.
pub(crate) fn overflow(table: &mut Proofs) -> anyhow::Result<()> {
    run(table, "watch-overflow")
}

/// What a watch of 1,000 listeners and 50,000 connections costs: 3 minutes.
pub(crate) fn cost(table: &mut Proofs) -> anyhow::Result<()> {
    run(table, "watch-cost")
}

/// A day, by a run of ten minutes and by a clock sped up: 13 minutes.
pub(crate) fn day(table: &mut Proofs) -> anyhow::Result<()> {
    run(table, "watch-day")?;
    run(table, CLOCK)
}

/// What the real Prometheus has of a watch: 80 s.
pub(crate) fn prometheus(table: &mut Proofs) -> anyhow::Result<()> {
    run(table, "watch-prometheus")
}

/// Is the part of a group in its namespace, if the arguments say so.
pub(crate) fn is_asked_for(words: &[String]) -> Option<anyhow::Result<()>> {
    let [word, group] = words else { return None };
    let (_, inside) = INSIDES.iter().find(|(name, _)| word == INSIDE && name == group)?;
    Some(lo_up().and_then(|()| inside()))
}

fn lo_up() -> anyhow::Result<()> {
    let mut netlink = Netlink::open()?;
    let lo = netlink.index("lo")?;
    Ok(netlink.set_up(lo)?)
}

/// Runs a group in its namespace, and puts its rows into the table.
fn run(table: &mut Proofs, group: &str) -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let mut child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(own)
        .args([INSIDE, group])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("unshare")?;
    let stdout = child.stdout.take().context("stdout")?;
    for line in BufReader::new(stdout).lines() {
        let row: Value = serde_json::from_str(&line?).context("a row")?;
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        match row["met"].as_bool() {
            Some(met) => table.row(text("what"), text("goal"), text("measured"), met),
            None => Proofs::fact(text("what"), text("measured")),
        }
    }
    ensure!(child.wait()?.success(), "it failed in its namespace");
    Ok(())
}

/// Hands a row to the table.
pub(crate) fn row(what: &str, goal: &str, measured: &str, met: bool) {
    println!("{}", json!({"what": what, "goal": goal, "measured": measured, "met": met}));
}

/// Hands a figure without a goal to the table.
pub(crate) fn fact(what: &str, measured: &str) {
    println!("{}", json!({"what": what, "measured": measured}));
}

/// A process that ends with its owner.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks a watch to end, as a terminal's Ctrl+C does.
pub(crate) fn interrupt(child: &mut Running) -> anyhow::Result<()> {
    let pid = child.0.id().to_string();
    ensure!(Command::new("kill").args(["-INT", &pid]).status()?.success(), "kill -INT {pid}");
    child.0.wait()?;
    Ok(())
}

/// Wall-clock time of a state, s since 1970.
pub(crate) fn wall_s(time: &str) -> anyhow::Result<f64> {
    let at: jiff::Timestamp = time.parse().with_context(|| time.to_owned())?;
    Ok(at.as_nanosecond() as f64 / 1e9)
}

/// Intervals of a record, complete or not.
pub(crate) fn intervals(record: &str) -> anyhow::Result<Vec<Interval>> {
    let text = std::fs::read_to_string(record).with_context(|| record.to_owned())?;
    let mut intervals = Vec::new();
    for line in text.lines() {
        if let WatchLine::State(interval) = serde_json::from_str(line)? {
            intervals.push(*interval);
        }
    }
    if intervals.is_empty() {
        bail!("{record} has no intervals");
    }
    Ok(intervals)
}

// Does a watch that runs for a day stay within its memory, and how long is its record?

/// The group of the clock sped up.
pub(super) const CLOCK: &str = "watch-day-sped-up";
/// With this in the environment a tenth is run, to see that the group works.
const SHORT: &str = "TCPTOLL_PROVE_SHORT";

const DAY_S: u64 = 86_400;
const MEMORY_MAX: u64 = 30 << 20;
/// Memory may grow by this much from the first minute to the tenth: the history fills until then.
const GROWTH_MAX: u64 = 12 << 20;
/// Once the history is full, memory may grow by this much: heaps fragment.
const FULL_GROWTH_MAX: u64 = 2 << 20;

fn is_short() -> bool {
    std::env::var_os(SHORT).is_some()
}

pub(super) fn inside() -> anyhow::Result<()> {
    let minute = Duration::from_secs(if is_short() { 6 } else { 60 });
    let folder = Folder::new("watch-day")?;
    let _crowd = Crowd::build()?;
    let record = folder.path("day.jsonl");
    let program = Command::new(tcptoll()?)
        .args(["watch", "--no-screen", "--record", &record])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let (began, mut program) = (Instant::now(), Running(program));
    let mut seen = Vec::new();
    for minutes in [1, 5, 10] {
        sleep((minute * minutes).saturating_sub(began.elapsed()));
        seen.push((minutes, used(program.0.id())?));
    }
    let passed = began.elapsed().as_secs_f64();
    interrupt(&mut program)?;
    let [first, .., last] = &seen[..] else { unreachable!("three readings") };
    let text = |(minutes, used): &(u32, crate::watch_cost::Used)| {
        format!("{} at {} s", mib(used.resident), (minute * *minutes).as_secs())
    };
    row(
        "a watch of ten minutes, 1,000 listeners, 50,000 connections: resident memory",
        "≤ 30 MiB, grows by ≤ 12 MiB while the history fills",
        &format!(
            "{}; {} at most, of which the heap is {}; {:.2} % of a CPU",
            seen.iter().map(text).collect::<Vec<_>>().join(", "),
            mib(last.1.most_resident),
            mib(last.1.anonymous),
            100.0 * last.1.cpu_s / passed
        ),
        last.1.most_resident <= MEMORY_MAX
            && last.1.resident.saturating_sub(first.1.resident) <= GROWTH_MAX,
    );
    let bytes = std::fs::metadata(&record)?.len();
    let looks: u32 = intervals(&record)?.iter().map(|one| one.looks).sum();
    let per_look = bytes as f64 / f64::from(looks);
    fact(
        "its record",
        &format!(
            "{bytes} bytes for {looks} looks: {:.2} kB each, so {:.0} MB for 86,400 if none were joined; --record-limit (64 MB by default) joins older intervals",
            per_look / 1e3,
            per_look * DAY_S as f64 / 1e6
        ),
    );
    limited(&folder)
}

/// A record that reaches its limit.
fn limited(folder: &Folder) -> anyhow::Result<()> {
    const LIMIT: u64 = 2 << 20;
    let record = folder.path("limited.jsonl");
    let lasts = if is_short() { "6s" } else { "3m" };
    let status = Command::new(tcptoll()?)
        .args(["watch", "--no-screen", "--interval", "100ms", "--duration", lasts])
        .args(["--record", &record, "--record-limit", "2M"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    let bytes = std::fs::metadata(&record)?.len();
    let intervals = intervals(&record)?;
    let looks: u32 = intervals.iter().map(|one| one.looks).sum();
    let longest = intervals.iter().map(|one| one.interval_s).fold(0.0, f64::max);
    row(
        &format!("the same, a look each 100 ms for {lasts}, --record-limit 2M"),
        "≤ 2 MiB",
        &format!(
            "{bytes} bytes: {looks} looks in {} intervals, the longest of {longest:.1} s",
            intervals.len()
        ),
        status.success() && bytes <= LIMIT,
    );
    Ok(())
}

/// A look of a busy machine: 1,000 listeners, of which 40 overflow, one of them new each hour; 64 destinations.
fn look(second: u64) -> Look {
    let listener = |number: u64| ListenerLook {
        address: ([10, 0, (number >> 8) as u8, number as u8], 10_000 + number as u16).into(),
        inode: number + if number == second / 3_600 { 1_000_000 + second / 3_600 } else { 0 },
        process: Some(Process { pid: 40_000 + number as u32, name: "a-name-of-15-by".to_owned() }),
        accept_queue_len: if number < 40 { 129 } else { (number as u32 + second as u32) % 3 },
        accept_queue_limit: 128,
        syn_queue_len: Some(0),
        drops: Some(if number < 40 { second as u32 * 7 } else { 0 }),
    };
    let destination = |number: u8| Destination {
        to: ([10, 1, number, (second / 60) as u8], 443).into(),
        sources: 1,
        ports_in_use: 27_000,
        time_wait: 20_000,
        syn_sent: 1,
        here: false,
    };
    let mut look = Look {
        at_s: second as f64,
        time: "2026-01-01T03:00:00.000Z".to_owned(),
        listeners: (0..1_000).map(listener).collect(),
        table: Some(tcptoll_live::watch::SocketDump {
            at_s: second as f64,
            took_s: 0.04,
            states: [("ESTABLISHED".to_owned(), 50_000), ("TIME-WAIT".to_owned(), 20_000 + second)]
                .into(),
            destinations: (0..64).map(destination).collect(),
            destinations_left_out: 5,
            unclosed: Vec::new(),
        }),
        ..Look::default()
    };
    for name in NAMES {
        look.counters.insert((*name).to_owned(), 40 * 7 * second as i64);
    }
    look.limits.somaxconn = Some(4_096);
    look.limits.local_ports = Some(28_232);
    look
}

const NAMES: &[&str] = &[
    "TcpActiveOpens",
    "TcpPassiveOpens",
    "TcpOutSegs",
    "TcpRetransSegs",
    "TcpExtTCPSynRetrans",
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtSyncookiesSent",
    "TcpExtTCPReqQFullDrop",
    "TcpEstabResets",
    "TcpExtTCPAbortOnMemory",
    "TcpExtTCPTimeWaitOverflow",
    "TcpExtTCPDeferAcceptDrop",
];

/// A day of looks, as fast as they can be taken.
pub(super) fn sped_up() -> anyhow::Result<()> {
    let looks = if is_short() { DAY_S / 20 } else { DAY_S };
    let me = std::process::id();
    let empty = used(me)?.resident;
    let mut history = History::new("a-busy-machine", 0.0);
    let (mut full, mut diagnoses, mut text) = (0, 0, 0);
    for second in 0..looks {
        let state = history.push(look(second));
        diagnoses = diagnoses.max(state.diagnoses.len());
        if second % 3_600 == 0 {
            text = serde_json::to_value(state).map_or(0, |value: Value| value.to_string().len());
        }
        if second == 1_200 {
            full = used(me)?.resident;
        }
    }
    let last = used(me)?;
    row(
        &format!("{looks} looks of a busy machine with 1,000 listeners, by the library"),
        "≤ 30 MiB of memory, grows by ≤ 2 MiB once the history is full",
        &format!(
            "{} before, {} after 1,200 looks, {} after {looks}, {} at most; {} states held, {diagnoses} diagnoses, {:.0} kB of JSON a state",
            mib(empty),
            mib(full),
            mib(last.resident),
            mib(last.most_resident),
            history.len(),
            text as f64 / 1e3
        ),
        last.most_resident <= MEMORY_MAX
            && last.resident <= full + FULL_GROWTH_MAX
            && diagnoses > 0,
    );
    Ok(())
}
