//! What is left on hosts of the user's when a run ends in any other way than by itself?

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::remote::{Sshd, of_root};
use crate::hosts::{Hosts, MARK, marked};
use crate::support::{Folder, tcptoll};
use crate::table::Proofs;

/// A run begins within this.
const BEGIN_LIMIT: Duration = Duration::from_secs(30);
/// Nothing is waited for longer.
const END_LIMIT: Duration = Duration::from_secs(40);

/// A run over ssh with folders of its own.
struct Run {
    mark: String,
    folder: Folder,
    child: Child,
}

impl Run {
    fn start(command: &mut Command, number: u64) -> anyhow::Result<Self> {
        let folder = Folder::new();
        let mark = format!("{}-{number}", std::process::id());
        for name in ["cache", "temporary"] {
            std::fs::create_dir(folder.file(name))?;
        }
        let child = command
            .env(MARK, &mark)
            .env("XDG_CACHE_HOME", folder.file("cache"))
            .env("TMPDIR", folder.file("temporary"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { mark, folder, child })
    }

    /// Its processes, with their command lines.
    fn processes(&self) -> Vec<(u32, String)> {
        marked(&self.mark)
    }

    /// Files that it has left, but the program's cached copy.
    fn files(&self) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.file("cache"), self.folder.file("temporary")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                match entry.file_type()?.is_dir() {
                    true if name == "tcptoll" => folders.push(entry.path()),
                    false if name.starts_with("tcptoll-") && name.len() == 40 => {}
                    _ => found.push(name),
                }
            }
        }
        Ok(found)
    }

    fn end(mut self) -> anyhow::Result<Option<i32>> {
        Ok(self.child.wait()?.code())
    }
}

/// Sockets of a host that listen or are established on the measured path.
fn sockets(pid: &str) -> anyhow::Result<usize> {
    const LISTEN: &str = "0A";
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string(Path::new("/proc").join(pid).join("net/tcp"))?;
    let on_path = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        // 10.78.0.0/24, as the kernel writes it.
        let ours = words.next().is_some_and(|local| local[2..].starts_with("004E0A"));
        ours && words.nth(1).is_some_and(|state| [LISTEN, ESTABLISHED].contains(&state))
    };
    Ok(table.lines().filter(on_path).count())
}

fn load(hosts: &Hosts, ssh: &str) -> Command {
    hosts.tcptoll_over(ssh, &["http", "--serve", "null", "--duration", "60s", "--connections", "8"])
}

/// `kill -9` of each process of a run at random moments.
pub(crate) fn kills(table: &mut Proofs) -> anyhow::Result<()> {
    const KILLS: u64 = 100;
    const LEFT_AFTER: Duration = Duration::from_millis(500);
    let hosts = of_root()?;
    let sshd = Sshd::new()?;
    let ssh = sshd.in_namespaces(&hosts)?;
    // What the process's command line has. The controller is known by its number.
    let victims = ["controller", "ssh client", "ssh server", "__agent", "__host"];
    let (mut late, mut slowest) = (Vec::new(), Duration::ZERO);
    // The moments come from a fixed recurrence (Knuth's MMIX), from the login to the load.
    let mut state: u64 = 20_261_126;
    for number in 0..KILLS {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wait = Duration::from_micros((state >> 33) % 2_000_000);
        let victim = victims[number as usize % victims.len()];
        let run = Run::start(&mut load(&hosts, &ssh), number)?;
        std::thread::sleep(wait);
        let pid = found(&run, victim, state)?;
        let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status()?;
        ensure!(killed.success(), "kill: {killed}");
        let begun = Instant::now();
        let left = loop {
            // A dead process is there until its parent has asked for its status.
            let own = run.child.id();
            let processes = run.processes();
            let left: Vec<&String> =
                processes.iter().filter(|(pid, _)| *pid != own).map(|(_, line)| line).collect();
            let open = sockets(&hosts.client)? + sockets(&hosts.server)?;
            let files = run.files()?;
            if left.is_empty() && open == 0 && files.is_empty() {
                break begun.elapsed();
            }
            if begun.elapsed() > END_LIMIT {
                bail!("{victim}, after {wait:?}: left {left:?}, {open} sockets, {files:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        slowest = slowest.max(left);
        if left > LEFT_AFTER {
            late.push(format!(
                "{victim} after {:.2} s: {:.2} s",
                wait.as_secs_f64(),
                left.as_secs_f64()
            ));
        }
        ensure!(run.end()? != Some(0), "a run without its {victim} ended with 0");
    }
    table.row(
        "kill -9 of controller, each ssh, agents and host processes at random moments, 100 times: runs of which a process, file or socket was left after 0.5 s; slowest",
        "0",
        &format!("{} of {KILLS}; {:.3} s {}", late.len(), slowest.as_secs_f64(), late.join(", ")),
        late.is_empty(),
    );
    Ok(())
}

/// The process to end; of several the one that `chance` chooses.
fn found(run: &Run, victim: &str, chance: u64) -> anyhow::Result<u32> {
    if victim == "controller" {
        return Ok(run.child.id());
    }
    let begun = Instant::now();
    loop {
        let fits = |line: &str| match victim.strip_prefix("ssh ") {
            Some(host) => line.starts_with("ssh ") && line.contains(&format!(" {host} ")),
            None => line.contains(&format!(" {victim} ")) && !line.contains("tcptoll-boot"),
        };
        let all = run.processes();
        let fitting: Vec<u32> =
            all.iter().filter(|(_, line)| fits(line)).map(|(pid, _)| *pid).collect();
        if !fitting.is_empty() {
            return Ok(fitting[(chance >> 40) as usize % fitting.len()]);
        }
        ensure!(begun.elapsed() < BEGIN_LIMIT, "no {victim} among {all:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The link to the controller is cut under load, the measured path is not.
pub(crate) fn cut(table: &mut Proofs) -> anyhow::Result<()> {
    for (dead_after, most) in [(2, 3.0), (10, 11.0)] {
        let (load, nothing) = one_cut(dead_after)?;
        table.row(
            &format!(
                "control link cut under load, --dead-after {dead_after}s: load gone; nothing left"
            ),
            &format!("≤ {most} s; ≤ 11 s"),
            &format!("{load:.2} s; {nothing:.2} s"),
            load <= most && nothing <= 11.0,
        );
    }
    Ok(())
}

/// A child that ends with this.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Seconds until the load was gone, and until nothing was left on the hosts.
fn one_cut(dead_after: u64) -> anyhow::Result<(f64, f64)> {
    let hosts = of_root()?;
    let sshd = Sshd::new()?;
    let mut control = Command::new("unshare");
    control.args(["--net", "--fork", "--kill-child", "sleep", "3600"]).stdin(Stdio::null());
    let control = ChildGuard(control.spawn()?);
    let control = within_its_network(&control)?;
    // A link from the controller to each host, and an sshd there.
    let mut names = String::new();
    let mut daemons = Vec::new();
    for (number, name, host) in [(1, "client", &hosts.client), (2, "server", &hosts.server)] {
        let (near, far) = (format!("10.79.{number}.1/24"), format!("10.79.{number}.2"));
        ip(
            None,
            &format!(
                "link add k{number} netns {control} type veth peer name h{number} netns {host}"
            ),
        )?;
        ip(Some(&control), &format!("address add {near} dev k{number}"))?;
        ip(Some(&control), &format!("link set k{number} up"))?;
        ip(Some(host), &format!("address add {far}/24 dev h{number}"))?;
        ip(Some(host), &format!("link set h{number} up"))?;
        let config = sshd.folder.path("sshd_config");
        let mut daemon = hosts.on(host, &["/usr/sbin/sshd", "-D", "-f", &config]);
        daemons.push(ChildGuard(daemon.stderr(Stdio::null()).spawn()?));
        names += &format!("Host {name}\n  HostName {far}\n  Port 2222\n");
    }
    let ssh = sshd.ssh(&names)?;
    let typed = load(&hosts, &ssh);
    let mut command = Command::new("nsenter");
    command.args(["--target", &control, "--net"]).arg(typed.get_program()).args(typed.get_args());
    command.args(["--dead-after", &format!("{dead_after}s")]);
    let run = Run::start(&mut command, 1_000 + dead_after)?;
    let begun = Instant::now();
    while sockets(&hosts.server)? < 9 {
        ensure!(begun.elapsed() < BEGIN_LIMIT, "the load did not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The load is under way on both ends.
    std::thread::sleep(Duration::from_secs(1));
    for number in [1, 2] {
        ip(Some(&control), &format!("link set k{number} down"))?;
    }
    let begun = Instant::now();
    let mut load_gone = None;
    let nothing = loop {
        if load_gone.is_none() && sockets(&hosts.client)? == 0 {
            load_gone = Some(begun.elapsed());
        }
        // The command line of ssh has the whole script.
        let there = |(_, line): &(u32, String)| {
            let ours = line.contains(" __agent ") || line.contains(" __host ");
            ours && !line.contains("tcptoll-boot")
        };
        let left = run.processes().iter().filter(|one| there(one)).count();
        let open = sockets(&hosts.client)? + sockets(&hosts.server)?;
        if left == 0 && open == 0 {
            break begun.elapsed();
        }
        ensure!(begun.elapsed() < END_LIMIT, "left: {:?}, {open} sockets", run.processes());
        std::thread::sleep(Duration::from_millis(10));
    };
    let status = run.end()?;
    ensure!(status == Some(2), "the run ended with {status:?}");
    drop(daemons);
    Ok((load_gone.unwrap_or(nothing).as_secs_f64(), nothing.as_secs_f64()))
}

/// The number of a process in the namespace that this child makes.
fn within_its_network(child: &ChildGuard) -> anyhow::Result<String> {
    let own = std::fs::read_link("/proc/self/ns/net")?;
    let begun = Instant::now();
    let pid = child.0.id().to_string();
    while std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|other| other == own) {
        ensure!(begun.elapsed() < BEGIN_LIMIT, "no network namespace was made");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(pid)
}

fn ip(within: Option<&str>, words: &str) -> anyhow::Result<()> {
    let mut command = Command::new(if within.is_some() { "nsenter" } else { "ip" });
    if let Some(pid) = within {
        command.args(["--target", pid, "--net", "ip"]);
    }
    let status = command.args(words.split(' ')).status()?;
    ensure!(status.success(), "ip {words}: {status}");
    Ok(())
}

/// Agents are told random bytes, and messages that were cut short.
pub(crate) fn bytes(table: &mut Proofs) -> anyhow::Result<()> {
    const AGENTS: u64 = 10_000;
    // What a parent says first: begin a host. Before it the header of tcp-heartbeat's framing.
    let order = b"\0{\"open\":{\"host\":1,\"part\":\"client\"}}";
    let mut whole = (order.len() as u32 + 1).to_be_bytes().to_vec();
    whole.extend(order);
    let mut state: u64 = 20_261_127;
    let mut chance = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let (mut statuses, mut by_signal) = ([0, 0], 0);
    for number in 0..AGENTS {
        let mut said = whole.clone();
        match number % 3 {
            0 => said = (0..chance() % 200).map(|_| chance() as u8).collect(),
            1 => said.truncate(chance() as usize % whole.len()),
            _ => {
                let place = chance() as usize % said.len();
                said[place] = chance() as u8;
            }
        }
        let mut agent = tcptoll(&["__agent", "10000"]);
        let mut agent =
            agent.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        // An agent that has ended already takes nothing.
        let _ = agent.stdin.take().context("stdin")?.write_all(&said);
        match agent.wait()?.code() {
            Some(0) => statuses[0] += 1,
            Some(1) => statuses[1] += 1,
            _ => by_signal += 1,
        }
    }
    table.row(
        "agents that were told 10,000 random and truncated messages: ended with 0 and 1; otherwise",
        "10,000; 0",
        &format!("{} and {}; {by_signal}", statuses[0], statuses[1]),
        by_signal == 0,
    );
    Ok(())
}
