//! How long until a host of the user's is ready?

use anyhow::Context as _;
use serde_json::Value;
use tcptoll_core::stats::nearest_rank;

use super::Sshd;
use crate::support::{program, tcptoll};
use crate::table::Table;

const RUNS: usize = 20;
const FIRST_MAX: f64 = 0.6;
const SECOND_MAX: f64 = 0.5;

/// A login, the program copied or found, its agent, and a host's process: until that has answered.
pub(crate) fn ready(table: &mut Table) -> anyhow::Result<()> {
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
