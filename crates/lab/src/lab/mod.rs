//! The hosts of a run: two on this machine and the link between them, or this machine and a server
//! we do not control, or machines of the user's over ssh ([`remote`]).
//!
//! This file is the parent's side; it gives orders through a [`Handle`]. [`init`] is what the re-executed process does, [`pump`] the
//! emulated link, [`tap`] the witness of a direct one, [`certification`] how a link is measured
//! before it is trusted.

pub mod certification;
// Tests play it, here and in other crates.
#[allow(clippy::unwrap_used)]
pub mod conversation;
mod handle;
pub mod init;
pub mod pump;
pub mod remote;
pub mod tap;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use handle::{Answered, Begun, Handle};
use remote::{Agent, Hello, Part, Reach, RemoteSpec, SshAddress};
use serde::{Deserialize, Serialize};
use tcptoll_core::link::LinkSpec;
pub use tcptoll_core::link::MTU;
pub use tcptoll_core::link::lab_network::{
    Addresses, DEVICE, SILENT_ADDRESSES, client_address, is_silent, silent_address,
};
use tcptoll_kernel::process::{inherited_socket, spawn_with};

use crate::channel::{Channel, ChannelError};
use crate::clock::{MachineTime, Time};
use crate::host::Role;
use crate::load::idle;
use crate::messages::PROTOCOL;
use crate::servers::fronts::workers;
use crate::servers::{memory, null};

/// The hidden sub-command that makes a lab of the re-executed binary.
pub const LAB_COMMAND: &str = "__lab";

/// The hidden sub-command that makes one host, on the machine's own network, of it.
pub const HOST_COMMAND: &str = "__host";

/// A lab whose channels are closed ends by itself within this.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Why hosts cannot be had, or were lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The kernel, a setting or a command says no; the text is for the user.
    #[error("{0}")]
    Refused(String),
    /// A process of the lab ended on its own.
    #[error("the {host} ended unexpectedly")]
    Lost { host: &'static str },
    /// A message was not understood.
    #[error("the {host}: {error}")]
    Channel { host: &'static str, error: ChannelError },
    /// The host's program speaks another protocol.
    #[error(
        "the {host} speaks protocol {theirs} (tcptoll {version}), this program protocol {PROTOCOL} \
         (tcptoll {}): use the same version of tcptoll on both",
        env!("CARGO_PKG_VERSION")
    )]
    Protocol {
        host: &'static str,
        /// The host's protocol.
        theirs: u32,
        /// Version of the host's program.
        version: String,
    },
    /// A link is not what was asked for.
    #[error("{0}")]
    OutOfTolerance(String),
    /// The user stopped the run.
    #[error("stopped by a signal")]
    Interrupted,
}

/// The signal that asked the run to stop, if one did; set by the binary's signal handler.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// No signal yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where a signal handler puts the signal's number.
    pub fn flag(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0)
    }

    /// The signal's number, if one came.
    pub fn signal(&self) -> Option<usize> {
        Some(self.0.load(Ordering::SeqCst)).filter(|&signal| signal != 0)
    }
}

/// The hosts of a trial and the link between them.
#[derive(Debug)]
pub struct Hosts {
    pub client: Handle,
    /// The server host; absent when the server is not ours.
    pub server: Option<Handle>,
    /// The link; absent when the network is as it is.
    pub link: Option<Handle>,
    /// The hosts' addresses.
    pub addresses: Addresses,
    /// An echo that takes longer than this is lost.
    pub echo_limit: Duration,
    /// The time of the trial.
    pub time: Box<dyn Time>,
    /// What agents of hosts that are reached over ssh say of themselves, the client's first.
    pub agents: [Option<Hello>; 2],
    /// What its hosts run in; empty if nothing of this machine does.
    running: Vec<Running>,
}

/// Where the hosts of a trial come from.
pub trait HostSource {
    fn lab(&self, plan: &Plan, spec: &LinkSpec) -> Result<Hosts, LabError>;

    /// Makes one host on the machine's own network, for a server that is not ours.
    fn target(&self) -> Result<Hosts, LabError>;

    /// Makes hosts on machines of the user's.
    fn remote(&self, spec: &RemoteSpec) -> Result<Hosts, LabError> {
        let why = format!("{}: these hosts are not of this machine", spec.server);
        Err(LabError::Refused(why))
    }
}

/// Hosts that are processes of this machine. They run hidden sub-commands of a program.
#[derive(Debug, Default)]
pub struct Machine {
    /// The program's file; absent: the running program.
    program: Option<PathBuf>,
    /// Agents on hosts of the user's, for the whole run.
    agents: RefCell<BTreeMap<(Part, SshAddress, Reach), Agent>>,
}

impl Machine {
    /// A command that runs the program, which is to call [`reexecuted`].
    fn command(&self) -> Result<Command, LabError> {
        if let Some(program) = &self.program {
            return Ok(Command::new(program));
        }
        // The link in /proc names the running file even after it was replaced on disk.
        let path = std::env::current_exe()
            .map_err(|error| LabError::Refused(format!("/proc/self/exe: {error}")))?;
        Ok(Command::new(if path.exists() { path } else { "/proc/self/exe".into() }))
    }

    /// Starts a lab: its process, and the channels of client, server and link.
    fn start_lab(&self, plan: &Plan) -> Result<(Process, [UnixStream; 3]), LabError> {
        let [client, server, link] = [pair()?, pair()?, pair()?];
        let mut command = self.command()?;
        command.arg(LAB_COMMAND).arg(serde_json::to_string(plan).unwrap_or_default());
        let theirs = [&client.1, &server.1, &link.1];
        command.args(theirs.map(|stream| stream.as_raw_fd().to_string()));
        let process = spawn_with(&mut command, &theirs.map(AsFd::as_fd))
            .map_err(|error| LabError::Refused(format!("the lab cannot be started: {error}")))?;
        Ok((Process(process), [client.0, server.0, link.0]))
    }

    /// Starts one host: its process, and its channel.
    fn start_host(&self) -> Result<(Process, UnixStream), LabError> {
        let (ours, theirs) = pair()?;
        let mut command = self.command()?;
        command.arg(HOST_COMMAND).arg(theirs.as_raw_fd().to_string());
        let process = spawn_with(&mut command, &[theirs.as_fd()])
            .map_err(|error| LabError::Refused(format!("the client cannot be started: {error}")))?;
        Ok((Process(process), ours))
    }
}

impl Machine {
    /// Begins a host on a machine of the user's, over the connection of the whole run.
    fn open(
        &self,
        part: Part,
        address: &SshAddress,
        reach: &Reach,
    ) -> Result<(UnixStream, remote::Open, Hello), LabError> {
        let mut agents = self.agents.borrow_mut();
        // A host that was lost may be back.
        agents.retain(|_, agent| !agent.is_lost());
        let key = (part, address.clone(), reach.clone());
        let agent = match agents.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Agent::begin(address, reach)?),
        };
        let (channel, open) = agent.open(part)?;
        Ok((channel, open, agent.hello.clone()))
    }
}

impl HostSource for Machine {
    /// Must be called from the main thread, while that thread lives as long as the lab: the kernel
    /// kills the lab when the thread that started it ends.
    fn lab(&self, plan: &Plan, spec: &LinkSpec) -> Result<Hosts, LabError> {
        let (process, channels) = self.start_lab(plan)?;
        let time = Box::new(MachineTime);
        let running = vec![Running::Here(process)];
        Hosts::of_lab(plan, spec, channels.map(Channel::new), time, running)
    }

    fn target(&self) -> Result<Hosts, LabError> {
        let (process, channel) = self.start_host()?;
        let running = vec![Running::Here(process)];
        Hosts::of_target(Channel::new(channel), Box::new(MachineTime), running)
    }

    /// Must be called from the main thread, as [`HostSource::lab`].
    fn remote(&self, spec: &RemoteSpec) -> Result<Hosts, LabError> {
        let (channel, client, hello) = match &spec.client {
            None => {
                let (process, channel) = self.start_host()?;
                (channel, Running::Here(process), None)
            }
            Some(address) => {
                let (channel, open, hello) = self.open(Part::Client, address, &spec.reach)?;
                (channel, Running::There(open), Some(hello))
            }
        };
        let mut hosts =
            Hosts::of_target(Channel::new(channel), Box::new(MachineTime), vec![client])?;
        let (channel, open, there) = self.open(Part::Server, &spec.server, &spec.reach)?;
        let server = Handle::over(Channel::new(channel), "server host", Some(open.lost()))?;
        hosts.client.needs(open.lost());
        hosts.running.push(Running::There(open));
        hosts.server = Some(server);
        let address = spec.server_address.or(there.address).ok_or_else(|| {
            LabError::Refused(format!(
                "{}: ssh does not tell which of its addresses it uses; name the one to measure with \
                 --server-address",
                spec.server
            ))
        })?;
        hosts.addresses.server = address;
        if hello.is_some() {
            hosts.time = Box::new(remote::ClientTime::ask(&mut hosts.client)?);
        }
        hosts.agents = [hello, Some(there)];
        Ok(hosts)
    }
}

impl Hosts {
    /// A lab with the channels of client, server and link.
    fn of_lab(
        plan: &Plan,
        spec: &LinkSpec,
        [client, server, link]: [Channel; 3],
        time: Box<dyn Time>,
        running: Vec<Running>,
    ) -> Result<Self, LabError> {
        // The link speaks first: it is also where a failed start is told.
        let link = Handle::new(link, "link")?;
        Ok(Self {
            client: Handle::new(client, "client host")?,
            server: Some(Handle::new(server, "server host")?),
            link: Some(link),
            addresses: Addresses::new(spec.loopback, plan.ipv6),
            echo_limit: spec.rtt + spec.jitter + Duration::from_millis(100),
            time,
            agents: [None, None],
            running,
        })
    }

    /// One host with this channel.
    fn of_target(
        client: Channel,
        time: Box<dyn Time>,
        running: Vec<Running>,
    ) -> Result<Self, LabError> {
        let lost = running.iter().find_map(|running| match running {
            Running::Here(_) => None,
            Running::There(open) => Some(open.lost()),
        });
        Ok(Self {
            client: Handle::over(client, "client host", lost)?,
            server: None,
            link: None,
            addresses: Addresses::new(false, false),
            echo_limit: Duration::from_secs(3),
            time,
            agents: [None, None],
            running,
        })
    }

    /// Whether the server's host is a machine of the user's.
    pub fn is_remote(&self) -> bool {
        self.agents[1].is_some()
    }

    pub fn server(&mut self) -> Result<&mut Handle, LabError> {
        self.server.as_mut().ok_or(LabError::Lost { host: "server host" })
    }

    pub fn link(&mut self) -> Result<&mut Handle, LabError> {
        self.link.as_mut().ok_or(LabError::Lost { host: "link" })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Without their channels the hosts end, with the first of them the init, and with the init
        // everything: when the process has been waited for, nothing of the lab is left to disturb
        // the next one.
        for handle in [Some(&self.client), self.server.as_ref(), self.link.as_ref()] {
            handle.inspect(|handle| handle.close());
        }
        for running in &mut self.running {
            running.wait();
        }
    }
}

/// What a host runs in.
#[derive(Debug)]
enum Running {
    /// A process of this machine.
    Here(Process),
    /// One of an agent's.
    There(remote::Open),
}

impl Running {
    /// Waits until it has ended; its channels have been closed before.
    fn wait(&mut self) {
        let process = match self {
            Self::Here(Process(process)) => process,
            Self::There(open) => return open.wait(),
        };
        within(END_LIMIT, || process.try_wait().transpose());
    }
}

/// Asks again and again until there is an answer or the time has passed.
fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        match ask() {
            Some(answer) => return Some(answer),
            None if begun.elapsed() > limit => return None,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// A process that ends with this.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The kernel kills the init of its PID namespace with it, and everything with that. Nothing
        // happens to a process that has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pair() -> Result<(UnixStream, UnixStream), LabError> {
    UnixStream::pair().map_err(|error| LabError::Refused(format!("socketpair: {error}")))
}

/// Becomes a part of the lab if the arguments say so, and gives its exit status when it ends.
///
/// Must be called first of all, while the process has one thread.
pub fn reexecuted(arguments: impl Iterator<Item = OsString>) -> Option<i32> {
    let words: Vec<String> =
        arguments.skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let channel = |text: &String| {
        let stream = inherited_socket(text.parse().ok()?).ok()?;
        Some(Channel::new(stream))
    };
    match words.as_slice() {
        [command, plan, client, server, link] if command == LAB_COMMAND => {
            let plan = serde_json::from_str(plan).ok()?;
            let channels = init::Channels {
                client: channel(client)?,
                server: channel(server)?,
                link: channel(link)?,
            };
            Some(init::run(&plan, channels))
        }
        [command, stream, part @ ..] if command == HOST_COMMAND => {
            let role = match part {
                [] => Role::Outside,
                [part] if part == "client" => Role::Outside,
                [part] if part == "server" => Role::OutsideServer,
                _ => return None,
            };
            let channel = channel(stream)?;
            let _ = tcptoll_kernel::process::ignore_stop_signals();
            Some(crate::host::run(channel, None, role))
        }
        [command, limit] if command == remote::agent::AGENT_COMMAND => {
            let limit = limit.parse().ok().filter(|limit| (100..=600_000).contains(limit))?;
            Some(remote::agent::run(Duration::from_millis(limit)))
        }
        [command, orders] if command == null::RESPOND_COMMAND => Some(null::run(orders)),
        [command, orders] if command == workers::FRONT_COMMAND => Some(workers::run(orders)),
        [command, bytes] if command == memory::KEEP_COMMAND => Some(memory::keep(bytes)),
        [command, stream] if command == idle::COMMAND => {
            let shift = std::env::var(idle::CLOCK_SHIFT).ok().and_then(|text| text.parse().ok());
            tcptoll_kernel::clock::shift(shift.unwrap_or(0));
            Some(idle::run(inherited_socket(stream.parse().ok()?).ok()?))
        }
        _ => None,
    }
}

/// Packets a device may hold, above the number of sockets that act at once: at 500, 20,000 sockets
/// probing once a second lost a third of their probes (Linux 6.18).
pub const DEVICE_QUEUE: u32 = 100_000;

/// Everything the lab process needs to know; handed over as JSON on its command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The link, in the form `--link` takes.
    pub link: String,
    pub ipv6: bool,
    /// Seed of loss and jitter.
    pub seed: u64,
    /// Relay over AF_PACKET even where `/dev/net/tun` can be opened.
    pub force_packet: bool,
    /// CPU of the client host.
    pub client_cpu: Option<u32>,
    /// CPU of the server host.
    pub server_cpu: Option<u32>,
    /// Further addresses of the client host.
    pub client_addresses: Vec<IpAddr>,
    /// Whether the server is to reach the addresses of [`silent_address`] over the link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent_addresses: bool,
}
