//! Is who closed first, and whose TIME-WAIT, what the packets say?

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use tcptoll_core::record::Arm;

use crate::first_fin::FirstFins;
use crate::folder::Folder;
use crate::http::{http, only};
use crate::table::Table;

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
pub(crate) fn first_fins(table: &mut Table) -> anyhow::Result<()> {
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
    table: &mut Table,
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
