//! Is who closed first, and whose TIME-WAIT, what the packets say?

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::first_fin::FirstFins;
use crate::http::{http, only};
use crate::links::tcptoll;
use crate::table::{Folder, Proofs};
use tcptoll_core::record::{Arm, ConnectionMemory, Summary};

const WAYS: [&str; 4] = ["keep-alive", "server-close", "client-close", "requests=10"];

/// A WSGI application for gunicorn.
const APPLICATION: &str = r#"
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]
"#;

/// A server of Python's own library, which closes after each response.
const HTTP_SERVER: &str = r#"
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *words):
        pass

class Server(ThreadingHTTPServer):
    request_queue_size = 128

Server(("0.0.0.0", 8000), Handler).serve_forever()
"#;

/// All servers, ways of reuse and ways of waiting, against captures read by tcpdump.
pub(crate) fn first_fins(table: &mut Proofs) -> anyhow::Result<()> {
    let folder = Folder::new("closing")?;
    folder.file("hello.py", APPLICATION)?;
    let script = folder.file("server.py", HTTP_SERVER)?;
    let here = folder.path("");
    // The server of a lab is an ordinary user.
    fs::set_permissions(&here, fs::Permissions::from_mode(0o755))?;
    let gunicorn = format!(
        "cd {here} && exec gunicorn --log-level critical --workers 2 --bind 0.0.0.0:8000 hello:application"
    );
    let python = format!("exec python3 {script}");
    let servers = [
        ("null", "null", 8080),
        ("nginx", "nginx", 8080),
        ("apache-event", "apache-event", 8080),
        ("puma", "puma", 8080),
        ("gunicorn, synchronous workers", gunicorn.as_str(), 8000),
        ("Python's http.server", python.as_str(), 8000),
    ];
    let capture = folder.path("run.pcapng");
    for (name, server, port) in servers {
        for reuse in WAYS {
            for io in ["epoll", "io-uring"] {
                row(table, (name, server, port), reuse, io, &capture)
                    .with_context(|| format!("{name}, {reuse}, {io}"))?;
            }
        }
    }
    Ok(())
}

fn row(
    table: &mut Proofs,
    (name, server, port): (&str, &str, u16),
    reuse: &str,
    io: &str,
    capture: &str,
) -> anyhow::Result<()> {
    let summary = http(&[
        "--server",
        server,
        "--reuse",
        reuse,
        "--io",
        io,
        "--rounds",
        "1",
        "--connections",
        "4",
        "--requests",
        "2000",
        "--warmup",
        "0",
        "--ramp",
        "0",
        "--tap",
        "--pcap",
        capture,
    ])?;
    let wire = FirstFins::read(Path::new(capture), port)?;
    let arm = only(&summary)?;
    let told = arm.closing.as_ref().context("closing")?;
    let drops = arm.wire.as_ref().context("wire")?.tap_drops;
    // What was open at the end the client closed.
    let ours = [Some(told.by_client + told.open_at_end), Some(told.by_server), told.both];
    let seen = [wire.by_client, wire.by_server, wire.both];
    let waiting = ["client_time_wait", "server_time_wait"].map(|side| sockets(arm, side));
    let text = |counts: &[Option<u64>]| {
        let counts = counts.iter().map(|count| count.map_or("—".to_owned(), |n| n.to_string()));
        counts.collect::<Vec<_>>().join(" / ")
    };
    table.row(
        &format!(
            "first FIN by client / server / both, and TIME-WAIT of client / server: {name}, \
             {reuse}, {io}; against tcpdump's reading of the packets"
        ),
        "equal; no tap drops",
        &format!(
            "{} against {}; {} against {}; tap drops {drops}",
            text(&ours),
            text(&seen.map(Some)),
            text(&waiting),
            text(&wire.time_wait.map(Some))
        ),
        ours == seen.map(Some)
            && waiting == wire.time_wait.map(Some)
            && wire.without == 0
            && drops == 0,
    );
    Ok(())
}

fn sockets(arm: &Arm, side: &str) -> Option<u64> {
    arm.metrics.get(side).map(|metric| metric.value as u64)
}

// Is the memory of open connections what the machine's own counters grew by?

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
pub(crate) fn connections(table: &mut Proofs) -> anyhow::Result<()> {
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
            Proofs::fact(
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
