//! Is the memory of open connections what the machine's own counters grew by?

use std::process::Command;

use anyhow::{Context as _, ensure};
use tcptoll_core::record::{Arm, ConnectionMemory, Summary};

use crate::links::tcptoll;
use crate::table::Table;

/// Connections of the rows that have a goal.
const CONNECTIONS: &str = "1000";

/// Runs of each of these rows.
const RUNS: usize = 3;

/// Buffers of those rows.
const WINDOWS: &str = "auto,32K,256K,512K";

/// Filled memory may differ from the growth of the machine's TCP memory by this much.
const FILLED: f64 = 0.10;

/// Idle memory may differ from the growth of its slabs by this much.
const IDLE: f64 = 0.15;

fn memory(args: &[&str]) -> anyhow::Result<Summary> {
    let mut command = Command::new(tcptoll()?);
    command.args(["stream", "--memory", "--quiet", "--format", "json", "--out", "/dev/null"]);
    let output = command.args(["--timeout", "2m"]).args(args).output()?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!("stream --memory {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr))
    })
}

fn connection_memory(arm: &Arm) -> anyhow::Result<&ConnectionMemory> {
    ensure!(arm.ok == arm.attempts, "{}: {:?}", arm.name, arm.errors);
    arm.own.connection_memory.as_ref().with_context(|| format!("{}: no memory", arm.name))
}

/// How far a figure is from its witness.
fn apart(figure: f64, witness: f64) -> f64 {
    if witness > 0.0 { figure / witness - 1.0 } else { f64::INFINITY }
}

fn mb(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

/// The run whose witness is the median: any other program that opens a file changes it.
fn middle(mut runs: Vec<[f64; 2]>) -> [f64; 2] {
    runs.sort_by(|a, b| a[1].total_cmp(&b[1]));
    runs[runs.len() / 2]
}

/// Gives the kernel's empty slabs back, as far as this user may: those of sockets that were closed
/// would serve the next connections, and the machine's slabs would grow less than these take.
fn give_slabs_back() {
    let Ok(kinds) = std::fs::read_dir("/sys/kernel/slab") else { return };
    for kind in kinds.flatten() {
        let _ = std::fs::write(kind.path().join("shrink"), "1");
    }
}

/// Filled against the growth of the machine's TCP memory, idle against that of its slabs.
pub(crate) fn connections(table: &mut Table) -> anyhow::Result<()> {
    for window in WINDOWS.split(',') {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            give_slabs_back();
            let summary = memory(&["--connections", CONNECTIONS, "--window", window])?;
            runs.push(connection_memory(summary.arms.first().context("an arm")?)?.clone());
        }
        let pressed = runs.iter().any(|memory| memory.pressure);
        let filled = |memory: &ConnectionMemory| {
            let state = memory.filled.as_ref().context("filled")?;
            anyhow::Ok([state.buffers_bytes(), state.machine_tcp_bytes])
        };
        let [held, grown] = middle(runs.iter().map(filled).collect::<Result<_, _>>()?);
        let difference = apart(held, grown);
        table.row(
            &format!("{CONNECTIONS} filled connections, window {window}: buffers against the growth of the machine's TCP memory"),
            "within 10 %",
            &format!(
                "{} against {}: {:+.1} %{}",
                mb(held),
                mb(grown),
                difference * 100.0,
                if pressed { ", under memory pressure" } else { "" }
            ),
            difference.abs() <= FILLED,
        );
        let idle = |memory: &ConnectionMemory| {
            [memory.in_total(&memory.idle), memory.idle.machine_slab_bytes]
        };
        let [held, grown] = middle(runs.iter().map(idle).collect());
        let difference = apart(held, grown);
        table.row(
            &format!("{CONNECTIONS} idle connections, window {window}: structures against the growth of the machine's slabs"),
            "within 15 %",
            &format!("{} against {}: {:+.1} %", mb(held), mb(grown), difference * 100.0),
            difference.abs() <= IDLE,
        );
    }
    for connections in ["1", "100", "1000", "10000"] {
        let summary = memory(&["--connections", connections, "--window", WINDOWS])?;
        for arm in &summary.arms {
            let memory = connection_memory(arm)?;
            let each = |bytes: Option<f64>| {
                bytes.map_or_else(
                    || "not known".to_owned(),
                    |bytes| format!("{:.1} kB", bytes / 1e3),
                )
            };
            let (idle, filled) = (Some(&memory.idle), memory.filled.as_ref());
            Table::fact(
                &format!("{connections} connections, {}", arm.name),
                &format!(
                    "client {} idle, {} filled; server {} idle, {} filled; all, both ends: {} idle, {} filled{}",
                    each(memory.at_client(idle)),
                    each(memory.at_client(filled)),
                    each(memory.at_server(idle)),
                    each(memory.at_server(filled)),
                    mb(memory.in_total(&memory.idle)),
                    filled.map_or_else(|| "not".to_owned(), |state| mb(memory.in_total(state))),
                    if memory.pressure { "; memory pressure" } else { "" }
                ),
            );
        }
    }
    Ok(())
}
