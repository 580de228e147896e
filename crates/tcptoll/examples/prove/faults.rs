//! What is left when a run is killed, and how long a newcomer waits.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::links::tcptoll;
use crate::table::Table;

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

pub(crate) fn kills(table: &mut Table) -> anyhow::Result<()> {
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

pub(crate) fn clone(table: &mut Table) -> anyhow::Result<()> {
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
