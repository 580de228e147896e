//! What `ss`, `nstat` and `/proc` show of the sockets of a namespace, and a load that counts for itself:
//! witnesses of a watch that share no code with it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tcptoll_live::watch::State;

/// The load: servers and their clients in one thread.
const LOAD: &str = include_str!("watch_load.py");

/// Figures by name.
pub(crate) type Figures = BTreeMap<String, i64>;

/// Runs a command and gives what it printed.
pub(crate) fn output_of(command: &[&str]) -> anyhow::Result<String> {
    let ran = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output();
    let ran = ran.with_context(|| command.join(" "))?;
    if !ran.status.success() {
        bail!("{}: {}", command.join(" "), String::from_utf8_lossy(&ran.stderr));
    }
    Ok(String::from_utf8(ran.stdout)?)
}

/// `*:80` of `ss` is `[::]:80`.
fn address(shown: &str) -> anyhow::Result<SocketAddr> {
    shown.replace("*:", "[::]:").parse().with_context(|| shown.to_owned())
}

/// The name of a figure of a listening socket.
pub(crate) fn of_listener(at: SocketAddr, inode: u64, figure: &str) -> String {
    format!("{figure} of {at} {inode}")
}

fn half_open_at(port: u16) -> String {
    format!("half-open at {port}")
}

/// Whether a state says that it does not know this figure: the half-open requests of sockets that share a port.
pub(crate) fn is_untold(name: &str, state: &State) -> bool {
    state.listeners.iter().any(|one| one.syn_queue_len.is_none() && name == half_open_at(one.port))
}

/// Every figure, as other programs show it. `within` is put before each command, such as `nsenter …`.
///
/// Of each listening socket its queue, limit and drops; half-open requests by port; sockets by state and by
/// destination; all counters of `nstat`; sockets and TIME-WAIT of sockstat.
pub(crate) fn by_others(within: &[&str]) -> anyhow::Result<Figures> {
    let run = |command: &[&str]| output_of(&[within, command].concat());
    let mut all = Figures::new();
    let mut listening: BTreeSet<u16> = BTreeSet::new();
    for line in run(&["ss", "-HltnmeO"])?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |mark| words.iter().find_map(|word| word.strip_prefix(mark));
        let memory = word("skmem:(").context("skmem")?.trim_end_matches(')');
        let drops = memory.rsplit_once(",d").context("d")?.1;
        let inode = word("ino:").context("ino")?.parse()?;
        let at = address(words[3])?;
        listening.insert(at.port());
        for (name, figure) in [("queue", words[1]), ("limit", words[2]), ("drops", drops)] {
            all.insert(of_listener(at, inode, name), figure.parse()?);
        }
    }
    let mut pairs: BTreeMap<(SocketAddr, IpAddr), [i64; 2]> = BTreeMap::new();
    for line in run(&["ss", "-Htan"])?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let state = match words[0] {
            "LISTEN" => continue,
            "ESTAB" => "ESTABLISHED",
            "SYN-RECV" => "SYN-RECEIVED",
            other => other,
        };
        *all.entry(format!("state {state}")).or_default() += 1;
        let (local, remote) = (address(words[3])?, address(words[4])?);
        if state == "SYN-RECEIVED" {
            *all.entry(half_open_at(local.port())).or_default() += 1;
        } else if !listening.contains(&local.port()) {
            let pair = pairs.entry((remote, local.ip())).or_default();
            pair[0] += 1;
            pair[1] += i64::from(state == "TIME-WAIT");
        }
    }
    // The source with the most ports, and of several the one with more in TIME-WAIT.
    let mut most: BTreeMap<SocketAddr, [i64; 2]> = BTreeMap::new();
    for ((to, _), counts) in pairs {
        let known = most.entry(to).or_default();
        *known = (*known).max(counts);
    }
    for (to, [ports, time_wait]) in most {
        all.insert(format!("ports to {to}"), ports);
        all.insert(format!("TIME-WAIT to {to}"), time_wait);
    }
    for line in run(&["nstat", "-asz"])?.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        all.insert(format!("nstat {}", words[0]), words[1].parse()?);
    }
    let sockstat = run(&["cat", "/proc/self/net/sockstat", "/proc/self/net/sockstat6"])?;
    for line in sockstat.lines().filter(|line| line.starts_with("TCP")) {
        // `TCP: inuse 5 orphan 0 tw 3 …`, `TCP6: inuse 2`: sockets of both families.
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words[1..].chunks_exact(2).filter(|pair| matches!(pair[0], "inuse" | "tw")) {
            *all.entry(format!("sockstat {}", pair[0])).or_default() += pair[1].parse::<i64>()?;
        }
    }
    Ok(all)
}

/// The same figures as a state of a watch has them, but for drops and counters, which it shows as changes.
pub(crate) fn by_the_watch(state: &State) -> anyhow::Result<Figures> {
    let mut all = Figures::new();
    ensure!(
        state.listeners_left_out == 0 && state.destinations_left_out == 0,
        "something left out"
    );
    for one in &state.listeners {
        let at = SocketAddr::new(one.address.parse()?, one.port);
        all.insert(of_listener(at, one.inode, "queue"), one.accept_queue_len.into());
        all.insert(of_listener(at, one.inode, "limit"), one.accept_queue_limit.into());
        if let Some(half_open) = one.syn_queue_len {
            *all.entry(half_open_at(one.port)).or_default() += i64::from(half_open);
        }
    }
    for (name, count) in &state.states {
        all.insert(format!("state {name}"), i64::try_from(*count)?);
    }
    for to in &state.destinations {
        let at = SocketAddr::new(to.address.parse()?, to.port);
        all.insert(format!("ports to {at}"), to.ports_in_use.into());
        all.insert(format!("TIME-WAIT to {at}"), to.time_wait.into());
    }
    for (name, count) in [("tw", state.counted.time_wait), ("inuse", state.counted.sockets)] {
        all.insert(format!("sockstat {name}"), i64::try_from(count.context(name)?)?);
    }
    Ok(all)
}

/// A running load.
pub(crate) struct Load {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// What it printed when it was ready.
    pub(crate) ready: Value,
}

impl Load {
    /// Starts a load and waits until it is ready. `within` is put before its command.
    pub(crate) fn start(within: &[&str], config: &Value) -> anyhow::Result<Self> {
        let words = [within, &["python3", "-c", LOAD]].concat();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .arg(config.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("python3")?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("stdout")?);
        let mut load = Self { child, stdin, stdout, ready: Value::Null };
        let mut line = String::new();
        load.stdout.read_line(&mut line)?;
        load.ready = serde_json::from_str(&line).context("the load did not begin")?;
        Ok(load)
    }

    /// Where its listeners are, in their order.
    pub(crate) fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let all: Vec<(IpAddr, u16)> = serde_json::from_value(self.ready.clone())?;
        Ok(all.into_iter().map(SocketAddr::from).collect())
    }

    /// Its process. Where `within` starts a process of its own, it is that one.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it; gives what it counted.
    pub(crate) fn finish(mut self) -> anyhow::Result<Value> {
        drop(self.stdin.take());
        let mut text = String::new();
        self.stdout.read_to_string(&mut text)?;
        ensure!(self.child.wait()?.success(), "the load failed");
        serde_json::from_str(&text).context("the load's counts")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ten listeners that show something of everything: full queues, slow servers, traffic, both families, sockets of
/// `SO_REUSEPORT`, half-open requests.
pub(crate) fn ten_busy_listeners() -> Value {
    serde_json::json!({"listeners": [
        {"at": "127.0.0.1", "backlog": 1, "accept_per_s": 0, "attempts_per_s": 20, "patience_s": 2.5},
        {"at": "127.0.0.1", "backlog": 128, "attempts_per_s": 100, "hold_s": 0.1, "talk": true},
        {"at": "::1", "backlog": 8, "accept_per_s": 10, "attempts_per_s": 30, "hold_s": 0.5, "talk": true,
         "patience_s": 1.5},
        {"at": "::", "backlog": 64, "accept_per_s": 40, "attempts_per_s": 50, "via": ["127.0.0.1", "::1"],
         "talk": true, "hold_s": 0.2, "patience_s": 1.5},
        {"at": "0.0.0.0", "backlog": 511, "accept_per_s": 30, "attempts_per_s": 40,
         "via": ["127.0.0.2", "127.0.0.4"], "by_server": true, "hold_s": 1},
        {"at": "127.0.0.1", "backlog": 16, "sockets": 2, "accept_per_s": 5, "attempts_per_s": 30, "hold_s": 0.3,
         "patience_s": 1.5},
        {"at": "::1", "backlog": 4096, "attempts_per_s": 10, "hold_s": 2, "talk": true},
        {"at": "127.0.0.3", "backlog": 5, "accept_per_s": 1, "attempts_per_s": 10, "patience_s": 0.4},
        {"at": "127.0.0.1", "backlog": 32, "defer": true, "attempts_per_s": 10, "hold_s": 1.5},
    ]})
}
