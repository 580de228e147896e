//! Machines-in-a-namespace, each with one planted fault or without it: what `doctor` must find, and
//! nothing else.
//!
//! `machines.py` is the machine: real servers, clients and, where needed, a neighbour behind a gateway. It
//! runs in user, network and PID namespaces of its own, so all of it ends with it, and no privileges are
//! needed. A fault is a state that is held, or something done at a fixed rate.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, bail};
use tcptoll_live::doctor::Examination;
use tempfile::TempDir;

/// The program of all machines.
const FILES: [(&str, &str); 5] = [
    ("machines.py", include_str!("machines.py")),
    ("faults.py", include_str!("faults.py")),
    ("races.py", include_str!("races.py")),
    ("servers.py", include_str!("servers.py")),
    ("net.py", include_str!("net.py")),
];

/// A machine, and what is to be found on it.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Its name in `machines.py`; mostly the name of its finding.
    pub(crate) name: &'static str,
    /// What is found where the fault is planted; one fault may show in two ways.
    pub(crate) findings: &'static [&'static str],
    /// Programs that it runs.
    pub(crate) programs: &'static [&'static str],
}

const fn kind(name: &'static str, programs: &'static [&'static str]) -> Kind {
    Kind { name, findings: &[], programs }
}

/// A server behind nginx that closes first.
const fn races(name: &'static str, programs: &'static [&'static str]) -> Kind {
    Kind { name, findings: &["close-race"], programs }
}

/// All machines.
pub(crate) const KINDS: &[Kind] = &[
    kind("accept-queue-full", &["redis-server"]),
    kind("accept-queue-near", &["nginx"]),
    kind("workers-too-few", &["php-fpm8.2"]),
    kind("backlog-over-somaxconn", &["redis-server"]),
    kind("upstream-not-reused", &["nginx", "apache2"]),
    kind("close-race", &["nginx", "apache2"]),
    races("close-race-gunicorn", &["nginx", "gunicorn"]),
    races("close-race-node", &["nginx", "node"]),
    races("close-race-puma", &["nginx", "puma"]),
    kind("buffers-over-cap", &["haproxy"]),
    kind("local-ports-scarce", &[]),
    kind("port-range-too-small", &[]),
    // The same range is too small because no port is reused.
    Kind {
        name: "tw-reuse-loopback-only",
        findings: &["port-range-too-small", "tw-reuse-loopback-only"],
        programs: &[],
    },
    kind("conntrack-near-full", &[]),
    kind("syn-queue-full", &[]),
    Kind { name: "syn-queue-dropping", findings: &["syn-queue-full"], programs: &[] },
    kind("keepalive-beyond-nat", &["redis-server"]),
    kind("retransmissions", &[]),
];

impl Kind {
    /// What is to be found where the fault is planted.
    pub(crate) fn expected(&self) -> Vec<&'static str> {
        if self.findings.is_empty() { vec![self.name] } else { self.findings.to_vec() }
    }
}

/// A machine that runs; it ends when this is dropped.
pub(crate) struct Machine {
    child: Child,
    /// Its end is the machine's end.
    stdin: Option<ChildStdin>,
    /// Its first process.
    pub(crate) pid: u32,
    _folder: TempDir,
}

impl Machine {
    /// Starts a machine, with its fault or without, and waits until its state is reached.
    pub(crate) fn start(kind: &Kind, planted: bool) -> anyhow::Result<Self> {
        Self::begin(kind.name, if planted { "planted" } else { "healthy" })
    }

    /// The same for a machine by its name in `machines.py`: `planted`, `healthy` or `mended`.
    ///
    /// Errors: what the machine said when it ended.
    pub(crate) fn begin(name: &str, state: &str) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("tcptoll-machine-")?;
        for (file, text) in FILES {
            std::fs::write(folder.path().join(file), text)?;
        }
        let mut child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"])
            .args(["python3", "-B", "machines.py", name, state, "."])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("unshare")?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut machine = Self { child, stdin, pid: 0, _folder: folder };
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let Some(pid) = line.strip_prefix("ready ").and_then(|pid| pid.trim().parse().ok()) else {
            bail!("{name} {state} did not start: {}", machine.said());
        };
        machine.pid = pid;
        Ok(machine)
    }

    /// What it wrote to stderr, after its end.
    fn said(&mut self) -> String {
        drop(self.stdin.take());
        let _ = self.child.wait();
        let mut said = Vec::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.by_ref().take(1 << 16).read_to_end(&mut said);
        }
        String::from_utf8_lossy(&said).trim().to_owned()
    }

    /// Examines it with `tcptoll`, which is the binary with nothing typed; `more` are further options.
    pub(crate) fn examine(&self, mut tcptoll: Command, more: &[&str]) -> anyhow::Result<Examined> {
        let pid = self.pid.to_string();
        let output = tcptoll
            .args(["doctor", "--quiet", "--format", "json", "--netns", &pid])
            .args(more)
            .stdin(Stdio::null())
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let examination = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("doctor ended with {}: {stderr}", output.status))?;
        Ok(Examined { examination, status: output.status.code(), stderr })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// What came of an examination.
pub(crate) struct Examined {
    pub(crate) examination: Examination,
    pub(crate) status: Option<i32>,
    pub(crate) stderr: String,
}

impl Examined {
    /// Names of what was found, each once.
    pub(crate) fn found(&self) -> Vec<&str> {
        let mut ids: Vec<&str> =
            self.examination.findings.iter().map(|one| one.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}
