//! A host: waits for the parent's orders on its control channel and carries them out one by one.

mod closed;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tcptoll_kernel::process;
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::socket::Stamping;
use tcptoll_kernel::{SysError, cpu};

use crate::channel::{Channel, ChannelError, ROWS_MAX};
use crate::clock::monotonic_ns;
use crate::load::idle::group::Group;
use crate::load::{LoadError, connect, greet, http, probes, socket_memory};
use crate::messages::{Ask, IdleOrder, Launch, Ready, Rows, Tell};
use crate::observe::{Observer, cpu_times, read_sysctl, set_sysctls};
use crate::servers::{self, Running, SERVER_UID};

/// A real server must listen within this.
const LAUNCH_LIMIT: Duration = Duration::from_secs(30);

/// Longest text that is uploaded in pieces, bytes: a million requests of an access log.
const UPLOADED_MAX: usize = 512 << 20;

/// Which end a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens connections.
    Client,
    /// Accepts them; its listening sockets are looked at while it does.
    Server,
}

/// Serves the parent until it is gone; gives the exit status of the process.
pub fn run(mut channel: Channel, cpu_number: Option<u32>, role: Role) -> i32 {
    let all_cpus = cpu::allowed();
    let pinned_cpu = cpu_number.filter(|&number| cpu::pin(number).is_ok());
    let _ = cpu::exact_timers();
    let _ = process::adopt_orphans();
    let ready = Ready { pinned_cpu, packet_fallback: false };
    if channel.send(&Tell::Ready(Box::new(ready))).is_err() {
        return 1;
    }
    let observer = match role {
        Role::Client => Observer::idle(),
        Role::Server => Observer::start(pinned_cpu.map_or(all_cpus, |cpu| vec![cpu])),
    };
    // Begun long before a load that wants its packets stamped: the kernel takes its time.
    let _stamping = (role == Role::Client).then(Stamping::begin);
    let mut host = Host {
        observer,
        children: Vec::new(),
        servers: Vec::new(),
        fleets: BTreeMap::new(),
        role,
        uploaded: String::new(),
    };
    loop {
        let ask = match channel.receive(None) {
            Ok(ask) => ask,
            // The parent has ended: so does the host, and with the last host the lab.
            Err(ChannelError::Closed) => return 0,
            Err(_) => return 1,
        };
        // What it was to stop has ended meanwhile.
        if matches!(ask, Ask::Stop) {
            continue;
        }
        let tell = host.answer(ask, &mut channel).unwrap_or_else(Tell::Failed);
        if channel.send(&tell).is_err() {
            return 1;
        }
    }
}

struct Host {
    observer: Observer,
    children: Vec<Child>,
    /// Those known by name.
    servers: Vec<Running>,
    /// Groups of connections that stay open, by name.
    fleets: BTreeMap<String, Group>,
    role: Role,
    /// A long text that the next order refers to, as far as it has come.
    uploaded: String,
}

impl Host {
    fn answer(&mut self, ask: Ask, channel: &mut Channel) -> Result<Tell, String> {
        let failed = |error: LoadError| error.to_string();
        let send = |channel: &mut Channel, rows: Rows| {
            channel.send(&Tell::Rows(rows)).map_err(|error| error.to_string())
        };
        Ok(match ask {
            Ask::Sysctls(wanted) => Tell::Sysctls(set_sysctls(&wanted)?),
            Ask::ReadSysctls(names) => Tell::Sysctls(
                names
                    .into_iter()
                    .filter_map(|name| read_sysctl(&name).ok().map(|value| (name, value)))
                    .collect(),
            ),
            Ask::Observe => Tell::Snapshot(Box::new(self.observer.snapshot())),
            Ask::LookAway => {
                self.observer.look_away();
                Tell::Done
            }
            Ask::WatchListener(at) => {
                self.observer = Observer::of_listener(at);
                Tell::Done
            }
            Ask::Forget => {
                self.observer.forget();
                Tell::Done
            }
            Ask::Settle { limit_ns } => {
                settle(limit_ns).map_err(|error| error.to_string())?;
                Tell::Done
            }
            Ask::CountClosed(wanted) => Tell::ClosedSockets(closed::count(&wanted)),
            Ask::Ping(ping) => Tell::Echoes(probes::ping(&ping).map_err(failed)?),
            Ask::Sink { at } => Tell::Arrivals(probes::sink(at, channel).map_err(failed)?),
            Ask::Train(train) => Tell::Sent { packets: probes::train(&train).map_err(failed)? },
            Ask::Greet(greet) => {
                let (report, rows) = greet::run(&greet, channel).map_err(failed)?;
                for part in rows.chunks(ROWS_MAX) {
                    send(channel, Rows::Server(part.to_vec()))?;
                }
                Tell::Greeted(Box::new(report))
            }
            Ask::Upload(piece) => {
                self.upload(&piece)?;
                Tell::Done
            }
            Ask::Http(load) => {
                let requests = std::mem::take(&mut self.uploaded);
                let (report, histograms) = http::run(&load, &requests, channel).map_err(failed)?;
                for (name, histogram) in histograms {
                    let (name, histogram) = (name.to_owned(), Box::new(histogram));
                    channel
                        .send(&Tell::Histogram { name, histogram })
                        .map_err(|error| error.to_string())?;
                }
                Tell::Requested(Box::new(report))
            }
            Ask::Connect(load) => {
                let (report, rows) = connect::run(&load, channel).map_err(failed)?;
                for part in rows.chunks(ROWS_MAX) {
                    send(channel, Rows::Client(part.to_vec()))?;
                }
                Tell::Connected(Box::new(report))
            }
            Ask::Idle { group, ask } => {
                let over = matches!(*ask, IdleOrder::End);
                let tell = self.fleets.entry(group.clone()).or_default().answer(*ask)?;
                if over {
                    self.fleets.remove(&group);
                }
                Tell::Idle(Box::new(tell))
            }
            Ask::Cpu => Tell::Cpu(cpu_times()),
            Ask::SocketMemory => {
                let (sockets, bytes_each) = socket_memory().map_err(|error| error.to_string())?;
                Tell::SocketMemory { sockets, bytes_each }
            }
            Ask::Launch(launch) => self.launch(&launch)?,
            Ask::Serve(spec) if self.role == Role::Server => {
                let (running, serving) = servers::start(&spec)?;
                self.servers.push(running);
                Tell::Serving(Box::new(serving))
            }
            Ask::Run(launch) => {
                let status = command(&launch)
                    .status()
                    .map_err(|error| format!("{}: {error}", launch.words.join(" ")))?;
                let signal = status.signal().map_or(1, |signal| 128 + signal);
                Tell::Exited { status: status.code().unwrap_or(signal) }
            }
            other => return Err(format!("a host cannot do {other:?}")),
        })
    }

    /// Keeps a piece of a text that the following order refers to.
    fn upload(&mut self, piece: &str) -> Result<(), String> {
        if self.uploaded.len() + piece.len() > UPLOADED_MAX {
            self.uploaded = String::new();
            return Err(format!("more than {UPLOADED_MAX} bytes were uploaded"));
        }
        self.uploaded.push_str(piece);
        Ok(())
    }

    /// Starts a real server and waits until it listens.
    fn launch(&mut self, launch: &Launch) -> Result<Tell, String> {
        let name = launch.words.join(" ");
        let failed = |error: std::io::Error| format!("--server {name}: {error}");
        // What a server says is for people; standard output is the run's own.
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        let mut child =
            command(launch).stdin(Stdio::null()).stdout(stderr).spawn().map_err(failed)?;
        let begun = Instant::now();
        let mut diag = SockDiag::open().map_err(|error: SysError| error.to_string())?;
        loop {
            let listeners = diag.listeners().map_err(|error| error.to_string())?;
            if let Some(listener) = listeners.first() {
                self.children.push(child);
                return Ok(Tell::Listening { at: listener.address });
            }
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("--server {name}: it ended before it listened ({status})"));
            }
            if begun.elapsed() > LAUNCH_LIMIT {
                let _ = child.kill();
                return Err(format!("--server {name}: it listens on no TCP port after 30 s"));
            }
            // Not for luck: the question is asked again until it is answered or time is up.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Waits until no connection is being closed any more, at most so long.
///
/// Not for luck: the question is asked again until it is answered or time is up. Connections that
/// nobody closes, of a server that keeps them, do not count.
fn settle(limit_ns: u64) -> Result<(), SysError> {
    /// FIN-WAIT-1, FIN-WAIT-2, LAST-ACK and CLOSING of `include/net/tcp_states.h`.
    const CLOSING: [u8; 4] = [4, 5, 9, 11];
    let deadline = monotonic_ns() + limit_ns;
    let mut diag = SockDiag::open()?;
    while monotonic_ns() < deadline {
        let mut closing = 0;
        for state in CLOSING {
            closing += diag.count_in_state(state, None)?;
        }
        if closing == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A line for the shell, or a program and its arguments.
fn command(launch: &Launch) -> Command {
    let mut command = match launch.words.as_slice() {
        [line] if launch.shell => {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            shell
        }
        words => {
            let mut program = Command::new(words.first().map_or("", String::as_str));
            program.args(words.get(1..).unwrap_or_default());
            program
        }
    };
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    if launch.ordinary_user {
        process::as_ordinary_user(&mut command, SERVER_UID);
    } else {
        process::restore_signals(&mut command);
    }
    command
}
