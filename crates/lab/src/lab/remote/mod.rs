//! Hosts on machines of the user's, over ssh: one connection to each for the whole run, a new host process
//! for each trial.
//!
//! ssh is the user's own, with all of its settings; nothing of its options is read here. `boot` gets this
//! program's binary there, [`agent`] is what runs there, `relay` carries what is said.
//!
//! Instants of all processes are on the client's clock here, too: the server's host shifts its own by the
//! offset that UDP datagrams show (`core::link::clock_offset`), so no experiment knows of two clocks. A step
//! between two hosts is shown from three times the error of the offset on. A host that is lost ends the load
//! on the other (`Handle::wait`).

pub mod agent;
mod boot;
mod relay;

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use boot::Binary;
pub use boot::SshAddress;
use relay::{Control, Event, Lost, Relay};
pub use relay::{Hello, Part};
use serde::{Deserialize, Serialize};
use tcptoll_core::experiment::option::{DefaultValue, Opt};
use tcptoll_core::experiment::options::{self, SSH_COMMAND};
use tcptoll_core::link::clocks::{Exchange, best_offset};
use tcptoll_core::units::parse_time;
use tcptoll_kernel::process::spawn_with;

use super::{Handle, LabError, within};
use crate::channel::Channel;
use crate::clock::{Time, monotonic_ns};
use crate::messages::Now;

/// A host has ended this long after it was told to, or is given up.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// How often a client is asked for its time.
const TIMES_ASKED: u32 = 16;
/// An agent says hello within this of its beginning.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// How hosts are reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reach {
    /// A command for the shell that takes a host and a command: `ssh`, `ssh -F my_config`.
    pub ssh: String,
    /// Path of this program on the hosts. Absent: it is copied there.
    pub program: Option<String>,
    /// Silence after which each end takes the other for dead.
    pub dead_after: Duration,
}

impl Default for Reach {
    fn default() -> Self {
        let text = |option: &Opt| match option.default {
            DefaultValue::Text(text) => text,
            DefaultValue::Nothing | DefaultValue::Words(_) => "",
        };
        Self {
            ssh: text(&SSH_COMMAND).to_owned(),
            program: None,
            dead_after: parse_time(text(&options::DEAD_AFTER)).expect("the default is a time"),
        }
    }
}

/// Two hosts of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSpec {
    /// The client's host. None: this machine.
    pub client: Option<SshAddress>,
    /// The server's host.
    pub server: SshAddress,
    /// The client's address on the measured path. None: the kernel chooses.
    pub client_address: Option<IpAddr>,
    /// The server's address on the measured path. None: the one that ssh uses.
    pub server_address: Option<IpAddr>,
    /// How they are reached.
    pub reach: Reach,
}

/// The time of a trial whose client is on another machine: that machine's, as far as it can be told over ssh.
///
/// The parent decides by it when to look, some 100 ms apart; what is measured has the hosts' own stamps.
#[derive(Debug)]
pub(super) struct ClientTime {
    /// The client's clock less this machine's, ns.
    ahead_ns: i64,
}

impl ClientTime {
    /// Asks some times, and believes the quickest answer.
    pub(super) fn ask(client: &mut Handle) -> Result<Self, LabError> {
        let mut exchanges = Vec::new();
        for _ in 0..TIMES_ASKED {
            let t1 = monotonic_ns();
            let there = client.ask(&Now)?;
            exchanges.push(Exchange { t1, t2: there, t3: there, t4: monotonic_ns() });
        }
        let ahead_ns = best_offset(&exchanges).map_or(0, |offset| offset.ns);
        Ok(Self { ahead_ns })
    }
}

impl Time for ClientTime {
    fn now(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_add_signed(self.ahead_ns))
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A host that the parent's thread is to begin.
struct Wish {
    host: u32,
    part: Part,
    stream: UnixStream,
    ended: Sender<()>,
    /// Why it is lost, once it is.
    lost: Arc<OnceLock<String>>,
}

/// A host that the parent's thread has begun.
struct Running {
    host: u32,
    ended: Sender<()>,
    lost: Arc<OnceLock<String>>,
    /// The parent has ended it.
    told: bool,
}

/// A host of the user's with its agent, for a whole run.
#[derive(Debug)]
pub struct Agent {
    /// What it says of itself.
    pub hello: Hello,
    wishes: Option<Sender<Wish>>,
    /// A byte here makes the thread look for wishes.
    wake: UnixStream,
    next_host: u32,
    /// Why it is lost, once it is.
    lost: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<()>>,
    ssh: Child,
}

impl Agent {
    /// Logs in, brings the program there if need be, and waits until its agent speaks.
    ///
    /// Must be called from the main thread: the kernel ends ssh with the thread that began it.
    ///
    /// Errors: `Refused` with the host's name and what to do; `Protocol`.
    pub fn begin(address: &SshAddress, reach: &Reach) -> Result<Self, LabError> {
        let refuse = |why: String| LabError::Refused(format!("{address}: {why}"));
        let binary = match &reach.program {
            Some(_) => None,
            None => Some(own_binary().map_err(|error| refuse(format!("the own binary: {error}")))?),
        };
        let command = match (&binary, &reach.program) {
            (Some(binary), _) => binary.command(reach.dead_after),
            (None, program) => {
                let program = program.as_deref().unwrap_or_default();
                boot::command_of(program, reach.dead_after)
                    .map_err(|why| refuse(format!("--remote-binary: {why}")))?
            }
        };
        let (stream, theirs) = super::pair()?;
        let mut ssh = spawn_ssh(&reach.ssh, address, &command, theirs)
            .map_err(|error| refuse(format!("`{}` cannot be run: {error}", reach.ssh)))?;
        match Self::greet(&stream, binary.as_ref(), reach.dead_after) {
            Ok((relay, hello)) => Self::run(address, relay, hello, ssh)
                .map_err(|error| refuse(format!("a thread for it: {error}"))),
            Err(why) => {
                drop(stream);
                // It has said why on the terminal.
                let status = within(Duration::from_secs(1), || ssh.try_wait().ok().flatten());
                let _ = ssh.kill();
                let _ = ssh.wait();
                // 255 is ssh's own.
                Err(refuse(match status.and_then(|status| status.code()) {
                    Some(255) => format!(
                        "ssh could not log in; try: {} {}",
                        reach.ssh,
                        address.words().join(" ")
                    ),
                    _ => why,
                }))
            }
        }
    }

    /// From the login to the agent's hello.
    fn greet(
        stream: &UnixStream,
        binary: Option<&Binary>,
        dead_after: Duration,
    ) -> Result<(Relay<UnixStream, UnixStream>, Hello), String> {
        boot::begin(stream, binary)?;
        let failed = |error: io::Error| format!("reading from ssh failed: {error}");
        stream.set_nonblocking(true).map_err(failed)?;
        let both = (stream.try_clone().map_err(failed)?, stream.try_clone().map_err(failed)?);
        let mut relay = Relay::new(both.0, both.1, dead_after.min(HELLO_LIMIT));
        loop {
            let mut events = relay.turn(None).map_err(|lost| lost.to_string())?.into_iter();
            if let Some(event) = events.next() {
                let Event::Control(Control::Hello(hello)) = event else {
                    return Err("its agent did not say hello".to_owned());
                };
                return Ok((relay, *hello));
            }
        }
    }

    fn run(
        address: &SshAddress,
        relay: Relay<UnixStream, UnixStream>,
        hello: Hello,
        ssh: Child,
    ) -> io::Result<Self> {
        let (wishes, to_do) = channel();
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let lost = Arc::new(OnceLock::new());
        let told = Arc::clone(&lost);
        let name = address.to_string();
        let thread = std::thread::Builder::new().name("ssh".to_owned()).spawn(move || {
            let (mut relay, mut running) = (relay, None);
            // Told before the channels close, so that who sees them closed finds why.
            if let Err(why) = carry(&mut relay, &woken, &to_do, &mut running, &name) {
                let why = format!("{name}: {why}");
                let begun = running.map(|Running { lost, .. }| lost);
                let wanted = to_do.try_iter().map(|wish| wish.lost);
                for lost in begun.into_iter().chain(wanted).chain([told]) {
                    let _ = lost.set(why.clone());
                }
            }
        })?;
        Ok(Self {
            hello,
            wishes: Some(wishes),
            wake,
            next_host: 1,
            lost,
            thread: Some(thread),
            ssh,
        })
    }

    /// Begins a host for a trial; its end of the channel, and what tells of its end.
    pub fn open(&mut self, part: Part) -> Result<(UnixStream, Open), LabError> {
        let (ours, theirs) = super::pair()?;
        let (ended, end) = channel();
        let host = self.next_host;
        self.next_host += 1;
        let gone = || LabError::Refused(self.why_lost());
        let wishes = self.wishes.as_ref().ok_or_else(gone)?;
        let lost = Arc::new(OnceLock::new());
        let wish = Wish { host, part, stream: theirs, ended, lost: Arc::clone(&lost) };
        wishes.send(wish).map_err(|_| gone())?;
        let _ = io::Write::write(&mut &self.wake, &[1]);
        Ok((ours, Open { end, lost }))
    }

    /// Begins a host and ends it again, as a trial does.
    pub fn try_host(&mut self, part: Part) -> Result<(), LabError> {
        let (channel, open) = self.open(part)?;
        let host = Handle::over(Channel::new(channel), "host", Some(open.lost()))?;
        drop(host);
        open.wait();
        Ok(())
    }

    /// Whether the connection was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    fn why_lost(&self) -> String {
        self.lost.get().cloned().unwrap_or_else(|| "the connection over ssh has ended".to_owned())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The thread sees that there are no more wishes, closes its end, and ssh ends with that.
        self.wishes = None;
        let _ = io::Write::write(&mut &self.wake, &[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        within(Duration::from_secs(1), || self.ssh.try_wait().ok().flatten());
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// A host that runs for a trial.
#[derive(Debug)]
pub struct Open {
    end: Receiver<()>,
    lost: Arc<OnceLock<String>>,
}

impl Open {
    /// Waits until it and all that it began has ended; its channel has been closed before.
    pub(super) fn wait(&self) {
        let _ = self.end.recv_timeout(CLOSE_LIMIT);
    }

    /// Why the connection to it was lost, once it is.
    pub(super) fn lost(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.lost)
    }
}

/// The parent's thread: carries wishes and bytes until nobody needs the agent, or it is lost. `name`: the host's.
fn carry(
    relay: &mut Relay<UnixStream, UnixStream>,
    woken: &UnixStream,
    to_do: &Receiver<Wish>,
    running: &mut Option<Running>,
    name: &str,
) -> Result<(), Lost> {
    loop {
        for event in relay.turn(Some(woken.as_fd()))? {
            match event {
                Event::NearEnded(host) => {
                    if let Some(one) = running.as_mut().filter(|one| one.host == host) {
                        one.told = true;
                    }
                    relay.tell(&Control::Close { host })?;
                }
                Event::Control(Control::Closed { host }) => {
                    if let Some(one) = running.take_if(|one| one.host == host) {
                        if !one.told {
                            let _ = one.lost.set(format!("{name}: its process ended unexpectedly"));
                        }
                        let _ = one.ended.send(());
                    }
                    relay.part_with(host);
                }
                Event::Control(Control::Failed { host, why }) => {
                    relay.part_with(host);
                    return Err(Lost::Io(io::Error::other(why)));
                }
                Event::Control(_) => {
                    return Err(Lost::Unreadable(
                        "a message that an agent does not send".to_owned(),
                    ));
                }
            }
        }
        while matches!(io::Read::read(&mut &*woken, &mut [0; 16]), Ok(read) if read > 0) {}
        loop {
            match to_do.try_recv() {
                Ok(Wish { host, part, stream, ended, lost }) => {
                    *running = Some(Running { host, ended, lost, told: false });
                    relay.join(host, stream)?;
                    relay.tell(&Control::Open { host, part })?;
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
}

fn own_binary() -> io::Result<Binary> {
    // The link names the running file even after it was replaced on disk.
    Binary::read("/proc/self/exe".as_ref())
}

/// Starts the user's ssh; one end of a socket is its standard input and output.
fn spawn_ssh(
    ssh: &str,
    address: &SshAddress,
    command: &str,
    theirs: UnixStream,
) -> io::Result<Child> {
    let input = theirs.as_fd().try_clone_to_owned()?;
    let mut line = Command::new("sh");
    line.args(["-c", &format!("exec {ssh} \"$@\""), "ssh"]).args(address.words()).arg(command);
    line.stdin(Stdio::from(input)).stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    spawn_with(&mut line, &[])
}
