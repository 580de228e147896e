//! What is left when a run is killed, and how long a newcomer waits.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::answers::unfounded;
use crate::contest::Rounds;
use crate::links::tcptoll;
use crate::support::shipped;
use crate::table::{Folder, Proofs};
use tcptoll_core::record::{Summary, Verdict};

/// What a killed run could leave: processes of ours, network namespaces, devices, files.
#[derive(Debug, PartialEq)]
struct Traces {
    processes: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    devices: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Traces {
    fn look(folder: &str) -> anyhow::Result<Self> {
        let names = |path: &str| -> anyhow::Result<BTreeSet<String>> {
            Ok(fs::read_dir(path)?
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect())
        };
        let mut processes = BTreeSet::new();
        let mut namespaces = BTreeSet::new();
        for pid in names("/proc")?.iter().filter(|name| name.parse::<u32>().is_ok()) {
            // Everything a run starts inherits its working directory; a dead process whose parent
            // has not yet asked for its status has none.
            let here = fs::read_link(format!("/proc/{pid}/cwd"))
                .is_ok_and(|cwd| cwd.as_path() == std::path::Path::new(folder));
            if here {
                let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                processes.insert(format!("{pid} {}", comm.trim()));
                for kind in ["net", "user", "pid", "mnt"] {
                    if let Ok(link) = fs::read_link(format!("/proc/{pid}/ns/{kind}")) {
                        namespaces.insert(link.display().to_string());
                    }
                }
            }
        }
        let files = names(folder)?;
        Ok(Self { processes, namespaces, devices: names("/sys/class/net")?, files })
    }
}

pub(crate) fn kills(table: &mut Proofs) -> anyhow::Result<()> {
    const KILLS: u32 = 50;
    let folder = std::env::temp_dir().join(format!("tcptoll-kills-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let name = folder.display().to_string();
    let before = Traces::look(&name)?;
    let mut left = 0;
    // The moments come from a fixed recurrence (Knuth's MMIX), spread over start-up and load.
    let mut state: u64 = 20_261_121;
    for number in 0..KILLS {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wait = Duration::from_micros((state >> 33) % 2_500_000);
        let link = ["direct", "cross-region", "lan-100m"][number as usize % 3];
        let mut child = Command::new(tcptoll()?)
            .args(["connect", "--quiet", "--count", "100000", "--link", link, "--out", "/dev/null"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        std::thread::sleep(wait);
        child.kill()?;
        child.wait()?;
        let killed = Instant::now();
        loop {
            let now = Traces::look(&name)?;
            let clean = now.processes.is_subset(&before.processes)
                && now.namespaces.is_subset(&before.namespaces)
                && now.devices == before.devices
                && now.files == before.files;
            if clean {
                break;
            }
            if killed.elapsed() > Duration::from_secs(2) {
                eprintln!("after kill {number} at {wait:?}: {now:?}");
                left += 1;
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    fs::remove_dir_all(&folder)?;
    table.row(
        "kill -9 at random moments, 50 times: runs that left a process, namespace, link or file after 2 s",
        "0",
        &format!("{left} of {KILLS}"),
        left == 0,
    );
    Ok(())
}

pub(crate) fn clone(table: &mut Proofs) -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("tcptoll-clone-{}", std::process::id()));
    let source = std::env::current_dir()?;
    let run = |command: &mut Command| -> anyhow::Result<()> {
        let output = command.output()?;
        if !output.status.success() {
            bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    };
    let begun = Instant::now();
    run(Command::new("git").arg("clone").arg("--quiet").arg(&source).arg(&folder))?;
    // An empty folder of crates too: a newcomer downloads them.
    let crates = folder.join("crates-downloaded");
    let config = std::env::var_os("CARGO_HOME")
        .map(std::path::PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
        .context("CARGO_HOME")?;
    fs::create_dir_all(&crates)?;
    for name in ["config.toml", "config", "credentials.toml"] {
        if config.join(name).exists() {
            fs::copy(config.join(name), crates.join(name))?;
        }
    }
    run(Command::new("cargo")
        .args(["build", "--release"])
        .env("CARGO_HOME", &crates)
        .env_remove("CARGO_TARGET_DIR")
        .current_dir(&folder))?;
    let built = begun.elapsed();
    run(Command::new("cargo")
        .args(["run", "--release"])
        .env("CARGO_HOME", &crates)
        .env_remove("CARGO_TARGET_DIR")
        .current_dir(&folder))?;
    let done = begun.elapsed();
    let report = folder.join("tcptoll-report.html").exists();
    fs::remove_dir_all(&folder)?;
    let tour = done.checked_sub(built).unwrap_or_default();
    table.row(
        "from a fresh clone to the tour's report, crates downloaded anew",
        "under 5 minutes, the tour about 1",
        &format!("{:.0} s, of which the tour {:.0} s", done.as_secs_f64(), tour.as_secs_f64()),
        report && done < Duration::from_mins(5),
    );
    Ok(())
}

// Is what users install as fast as what developers build?

/// As many as the interval needs to become narrower than what counts as a difference.
const ROUNDS: u32 = 100;
/// A difference within this factor does not matter.
const MARGIN: f64 = 1.03;

/// Client CPU of the shipped binary against that of `cargo build --release`, in turns.
pub(crate) fn cost(table: &mut Proofs) -> anyhow::Result<()> {
    let shipped =
        shipped().context("no binary of this commit was packed: cargo xtask dist first")?;
    let built = tcptoll()?;
    let cases: [(&str, &[&str]); 3] = [
        ("connection of `connect`", &["connect", "--count", "10000"]),
        ("request of `http`", &["http", "--connections", "50", "--duration", "1s"]),
        (
            "request of `http` with a TLS handshake",
            &["http", "--tls", "full", "--reuse", "server-close", "--duration", "1s"],
        ),
    ];
    for (what, arguments) in cases {
        let names = ["shipped", "built"];
        let rounds = Rounds::run(&names, ROUNDS, |place| {
            cpu_us(if place == 0 { &shipped } else { &built }, arguments)
        })?;
        let ratio = rounds.ratio("shipped", "built", |cpu_us| *cpu_us).context("no CPU time")?;
        let verdict = ratio.ci95.and_then(verdict);
        let figures = format!(
            "{}: {:.3} {}, {:.2} µs against {:.2} µs, {} rounds",
            verdict.unwrap_or("not enough evidence"),
            ratio.value,
            ratio.interval(),
            ratio.ours,
            ratio.theirs,
            ratio.rounds
        );
        table.row(
            &format!("client CPU per {what}: the shipped binary against the developer's build"),
            &format!("no difference found ({MARGIN}), or the factor"),
            &figures,
            verdict.is_some(),
        );
    }
    Ok(())
}

/// What an interval of the ratio says. None: not enough.
fn verdict([low, high]: [f64; 2]) -> Option<&'static str> {
    if low >= 1.0 / MARGIN && high <= MARGIN {
        Some("no difference found")
    } else if low > 1.0 {
        Some("slower by this factor")
    } else {
        (high < 1.0).then_some("faster by this factor")
    }
}

fn cpu_us(program: &Path, arguments: &[&str]) -> anyhow::Result<f64> {
    let mut command = Command::new(program);
    command.args(arguments).args(["--quiet", "--format", "json", "--out", "/dev/null"]);
    let output = command.output().with_context(|| format!("running {}", program.display()))?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    let summary: Summary = serde_json::from_slice(&output.stdout).with_context(said)?;
    ensure!(output.status.success() && summary.valid && !summary.partial, "no figure: {}", said());
    let arm = summary.arms.first().context("the summary has no arm")?;
    Ok(arm.metrics.get("client_cpu_us_per_op").context("no client_cpu_us_per_op")?.value)
}

// Fleets and tables in Python: benches of the package, which print their figures as rows of this table.

/// Where `cargo xtask setup` installs what the package's tests need.
const PYTHON: &str = "target/python/bin/python";

/// A scheduler and five workers in namespaces, of which two are killed and one never returns.
pub(crate) fn fleet_kills(table: &mut Proofs) -> anyhow::Result<()> {
    bench(table, &["fleet_namespaces.py", &program()?])
}

/// One load over three machines in namespaces, against nginx' own log.
pub(crate) fn split(table: &mut Proofs) -> anyhow::Result<()> {
    bench(table, &["split_namespaces.py", &program()?])
}

/// 100 workers in one process, and what the scheduler's memory depends on.
pub(crate) fn workers(table: &mut Proofs) -> anyhow::Result<()> {
    bench(table, &["workers.py"])
}

/// 6,000 trials into frames.
pub(crate) fn frames(table: &mut Proofs) -> anyhow::Result<()> {
    bench(table, &["frames.py", "--engine", "polars"])?;
    bench(table, &["frames.py", "--engine", "pandas"])
}

fn program() -> anyhow::Result<String> {
    Ok(tcptoll()?.display().to_string())
}

fn bench(table: &mut Proofs, words: &[&str]) -> anyhow::Result<()> {
    ensure!(Path::new(PYTHON).exists(), "{PYTHON} is not there: cargo xtask setup first");
    let script = words[0];
    let mut command = Command::new(PYTHON);
    command.arg(format!("python/bench/{script}")).args(&words[1..]);
    let output = command.stderr(Stdio::inherit()).output().context("running Python")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("figure: ")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [what, goal, measured, met] = cells.as_slice() else { bail!("row: {line}") };
        table.row(what, goal, measured, *met == "met");
        rows += 1;
    }
    ensure!(rows > 0, "{script} printed no figure ({}): {text}", output.status);
    Ok(())
}

// Does the tour give its answers in time, in one report, and is every number of them in its record?

const ANSWERS_MIN: usize = 6;
const SECONDS_MAX: f64 = 90.0;

/// Runs the tour once, as its first user would.
pub(crate) fn tour(table: &mut Proofs) -> anyhow::Result<()> {
    let folder = Folder::new("tour")?;
    let report = folder.path("report.html");
    let mut command = Command::new(tcptoll()?);
    command.args(["tour", "--format", "json", "--quiet", "--html", &report]);
    command.env("XDG_DATA_HOME", &folder.0);
    let begun = Instant::now();
    let output = command.output()?;
    let seconds = begun.elapsed().as_secs_f64();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the tour ended with {}: {errors}", output.status);

    let printed = String::from_utf8(output.stdout)?;
    let summaries: Vec<serde_json::Value> = printed
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .context("the tour's JSON")?;
    table.row("tour: time", "at most 90 s", &format!("{seconds:.1} s"), seconds <= SECONDS_MAX);
    let mut answered = 0;
    for json in &summaries {
        let summary: Summary = serde_json::from_value(json.clone())?;
        let absent = unfounded(json);
        let open = summary.comparisons.iter().filter(|c| c.verdict == Verdict::NotEnough).count();
        answered += usize::from(summary.valid && !summary.answer.is_empty());
        let validity = if summary.valid { "valid" } else { "not valid" };
        let compared = summary.comparisons.len();
        let absent = absent.join(" ");
        table.row(
            &format!("{}: {}", summary.study.as_deref().unwrap_or("tour"), summary.answer),
            "valid; each number stands in its record; no comparison left open",
            &format!(
                "{validity}; not in the record: [{absent}]; {open} of {compared} comparisons open"
            ),
            summary.valid && absent.is_empty() && open == 0,
        );
    }
    table.row("tour: answers", "at least 6", &answered.to_string(), answered >= ANSWERS_MIN);
    let html = fs::read_to_string(&report)?;
    let parts =
        (1..=summaries.len()).filter(|part| html.contains(&format!("id=\"run-{part}\""))).count();
    table.row(
        "tour: answers in its one report",
        "all of them",
        &format!("{parts} of {}", summaries.len()),
        parts == summaries.len(),
    );
    Ok(())
}
