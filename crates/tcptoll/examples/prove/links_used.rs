//! Is a run over an emulated link valid, and is a connect as long as the link and its CPU stages?

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Context as _;
use tcptoll_core::record::Summary;
use tcptoll_core::stats::nearest_rank;

use crate::folder::Folder;
use crate::links::tcptoll;
use crate::table::Table;

const LINKS: [&str; 6] = ["0.25ms", "1ms", "10ms", "37ms", "100ms", "200ms"];

/// Runs of each link.
const RUNS: usize = 10;

/// Of the median connect from the round trip plus CPU, µs, on a quiet machine.
const OFF_MAX_US: f64 = 100.0;

pub(crate) fn links(table: &mut Table) -> anyhow::Result<()> {
    for busy in [false, true] {
        let _busy = busy.then(BusyLoop::begin);
        for rtt in LINKS {
            one(table, rtt, busy)?;
        }
    }
    Ok(())
}

fn one(table: &mut Table, rtt: &str, busy: bool) -> anyhow::Result<()> {
    let folder = Folder::new("links")?;
    let (mut valid, mut offs) = (0, Vec::new());
    for _ in 0..RUNS {
        // A refused link is a run that is not valid.
        let Some(summary) = connect(rtt, &folder.path("record.jsonl"))? else { continue };
        valid += usize::from(summary.valid);
        offs.extend(off_us(&summary));
    }
    offs.sort_by(f64::total_cmp);
    let median = nearest_rank(&offs, 1, 2);
    let off = median.map_or("no figure".to_owned(), |us| format!("{us:+.0} µs"));
    let (beside, least, goal) = if busy {
        ("beside one busy loop", RUNS * 9 / 10, "≥ 90 % valid".to_owned())
    } else {
        let goal = format!("all valid, median within {OFF_MAX_US:.0} µs of round trip and CPU");
        ("quiet", RUNS, goal)
    };
    let close = busy || median.is_some_and(|us| us.abs() <= OFF_MAX_US);
    table.row(
        &format!("connect --link rtt={rtt}, {beside}, {RUNS} runs"),
        &goal,
        &format!("{valid} of {RUNS} valid, median {off}"),
        valid >= least && close,
    );
    Ok(())
}

/// `None`: the link was refused.
fn connect(rtt: &str, record: &str) -> anyhow::Result<Option<Summary>> {
    let output = Command::new(tcptoll()?)
        .args(["connect", "--quiet", "--format", "json", "--out", record])
        .args(["--count", "100", "--link", &format!("rtt={rtt}")])
        .output()?;
    if output.stdout.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return if said.contains("round trip") { Ok(None) } else { Err(anyhow::Error::msg(said)) };
    }
    Ok(Some(serde_json::from_slice(&output.stdout).context("the summary")?))
}

/// The median connect above the round trip and the CPU of its stages, µs. Both are the timeline's:
/// the histogram's three digits are 131 µs at 200 ms.
fn off_us(summary: &Summary) -> Option<f64> {
    let arm = summary.arms.first()?;
    let views = &arm.timeline.as_ref()?.views;
    let client = views.iter().find(|view| view.name == "client")?;
    Some(client.p50_us - arm.expectation.as_ref()?.client_us)
}

/// A thread that never sleeps.
struct BusyLoop {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BusyLoop {
    fn begin() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for BusyLoop {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
