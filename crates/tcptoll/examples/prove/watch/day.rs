//! Does a watch that runs for a day stay within its memory, and how long is its record?

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tcptoll_live::watch::{Destination, History, ListenerLook, Look, Process, Table};

use super::cost::{Crowd, mib, used};
use super::{Running, fact, interrupt, intervals, row};
use crate::folder::Folder;
use crate::links::tcptoll;

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
    let text = |(minutes, used): &(u32, super::cost::Used)| {
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
        table: Some(Table {
            at_s: second as f64,
            took_s: 0.04,
            states: [("ESTABLISHED".to_owned(), 50_000), ("TIME-WAIT".to_owned(), 20_000 + second)]
                .into(),
            destinations: (0..64).map(destination).collect(),
            destinations_left_out: 5,
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
