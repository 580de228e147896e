//! Two hosts of a direct link, each on a CPU of its own, and programs that run on them.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use tcptoll_core::link::LinkSpec;
use tcptoll_kernel::cpu;
use tcptoll_lab::lab::plan::Plan;
use tcptoll_lab::lab::{Handle, HostSource as _, Hosts, Interrupt, Machine};
use tcptoll_lab::messages::{Launch, Observe, Run};

/// A lab of two hosts.
pub(crate) struct Pair {
    pub(crate) hosts: Hosts,
    /// What a command prints.
    output: Output,
}

/// What came of a command.
pub(crate) struct Ran {
    /// What it printed on both streams.
    pub(crate) output: String,
    /// CPU time of it and of its children, µs, from its first instruction on.
    pub(crate) cpu_us: u64,
    /// CPU time of all that the server host has started, during the command, µs.
    pub(crate) server_cpu_us: u64,
}

impl Pair {
    /// Makes the lab. `addresses`: further ones of the client host.
    pub(crate) fn open(addresses: &[IpAddr]) -> anyhow::Result<Self> {
        let cpus = cpu::allowed();
        let [client, server, ..] = cpus.as_slice() else {
            bail!("two CPUs are needed, one for each host; there is {}", cpus.len());
        };
        let plan = Plan {
            link: "direct".to_owned(),
            ipv6: false,
            seed: 7,
            force_packet: false,
            client_cpu: Some(*client),
            server_cpu: Some(*server),
            client_addresses: addresses.to_vec(),
            silent_addresses: false,
        };
        let hosts = Machine::default().lab(&plan, &LinkSpec::parse("direct")?)?;
        Ok(Self { hosts, output: Output::new()? })
    }

    /// The server host's address.
    pub(crate) fn server_address(&self) -> IpAddr {
        self.hosts.addresses.server
    }

    /// Runs a line of shell on the client host, for as long as it takes.
    ///
    /// Errors: it ended with another status than 0.
    pub(crate) fn shell(&mut self, line: &str) -> anyhow::Result<Ran> {
        let path = self.output.0.display();
        let words = format!("{{ {line}; }} > {path} 2>&1 < /dev/null");
        let before = self.children_cpu_us()?;
        let status = run(&mut self.hosts.client, words)?;
        let after = self.children_cpu_us()?;
        let output = fs::read(&self.output.0)
            .with_context(|| format!("reading {}", self.output.0.display()))?;
        let output = String::from_utf8_lossy(&output).into_owned();
        if status != 0 {
            bail!("{line} ended with status {status}: {output}");
        }
        let [cpu_us, server_cpu_us] = [0, 1].map(|host| after[host] - before[host]);
        Ok(Ran { output, cpu_us, server_cpu_us })
    }

    /// Starts a server on the server host, which runs until the lab ends; waits until it listens on
    /// this port.
    ///
    /// Errors: it does not within 10 s.
    pub(crate) fn serve(&mut self, line: &str, port: u16) -> anyhow::Result<()> {
        let words = format!(
            "{line} > /dev/null 2>&1 < /dev/null & \
             for look in $(seq 500); do \
             ss -Hltn 'sport = :{port}' | grep -q . && exit 0; sleep 0.02; \
             done; exit 1"
        );
        let status = run(self.hosts.server()?, words)?;
        if status != 0 {
            bail!("{line}: it does not listen on port {port}");
        }
        Ok(())
    }

    /// CPU time of all that each host has started, µs: client, server.
    fn children_cpu_us(&mut self) -> anyhow::Result<[u64; 2]> {
        let (user, system) = self.hosts.client.ask(&Observe)?.children_cpu_us;
        let (server_user, server_system) = self.hosts.server()?.ask(&Observe)?.children_cpu_us;
        Ok([user + system, server_user + server_system])
    }
}

/// Runs a line of shell on a host and gives its exit status.
fn run(host: &mut Handle, line: String) -> anyhow::Result<i32> {
    let launch =
        Launch { words: vec![line], shell: true, environment: Vec::new(), ordinary_user: false };
    let begun = host.begin(&Run(launch))?;
    Ok(host.wait(begun, &Interrupt::new(), &mut |_| {})?.answer)
}

/// A file for what a command prints; it goes with the lab.
struct Output(PathBuf);

impl Output {
    fn new() -> anyhow::Result<Self> {
        let name = format!("tcptoll-contest-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "").with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
