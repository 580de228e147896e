//! The metrics of a watch, scraped by the real Prometheus, next to `ss`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tcptoll_kernel::process::{freeze, resume};

use super::{Running, row};
use crate::folder::Folder;
use crate::links::tcptoll;
use crate::watch_witness::{Load, by_others, ten_busy_listeners};

const METRICS: &str = "127.0.0.1:9464";
const PROMETHEUS: &str = "127.0.0.1:9465";
/// How long Prometheus scrapes, once a second.
const LASTS: Duration = Duration::from_mins(1);
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

pub(super) fn inside() -> anyhow::Result<()> {
    let folder = Folder::new("watch-prometheus")?;
    let load = Load::start(&[], &ten_busy_listeners())?;
    let _watch = quiet(Command::new(tcptoll()?).args(["watch", "--listen", METRICS]))?;
    let config = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: tcptoll\n    static_configs:\n      - targets: [\"{METRICS}\"]\n"
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
    sleep(LASTS);
    let window = LASTS.as_secs();
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
    let page = get(METRICS, "/metrics")?;
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
