//! What goes over one ssh connection, and how both its ends carry it: control messages, and the bytes
//! between the parent and the host of a trial.
//!
//! The framing and the heartbeat are those of `tcp-heartbeat`: an end that shows no sign of life is dead
//! for the other, also if ssh does not know it. The agent and the parent run the same loop.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tcp_heartbeat::{Evidence, Options, Session, Timing, Turn};
use tcptoll_core::record::Passport;
use tcptoll_kernel::epoll::{Wanted, ready};

use crate::messages::PROTOCOL;

/// Longest message, bytes.
const MESSAGE_MAX: usize = 256 << 10;
/// Bytes that wait for ssh, at most: then no more are read from the host.
const QUEUED_MAX: usize = 1 << 20;
/// Bytes that wait for a host or the parent, at most: then no more are read from ssh.
const HELD_MAX: usize = 4 << 20;
/// Most bytes read at a time.
const PIECE: usize = 32 << 10;

/// First byte of a message.
const CONTROL: u8 = 0;
const BYTES: u8 = 1;

/// Which end of a trial a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Opens connections.
    Client,
    /// Accepts them.
    Server,
}

/// What parent and agent tell each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Control {
    /// The agent's first message.
    Hello(Box<Hello>),
    /// Begin a host of this number.
    Open {
        /// Each has its own; those that follow are larger.
        host: u32,
        /// Which end it is.
        part: Part,
    },
    /// End a host.
    Close {
        /// Which.
        host: u32,
    },
    /// A host and everything that it began has ended.
    Closed {
        /// Which.
        host: u32,
    },
    /// A host could not be begun; a sentence for the user.
    Failed {
        /// Which.
        host: u32,
        /// Why.
        why: String,
    },
}

/// What an agent says of itself and its machine.
///
/// The first two fields keep their names in every protocol, so that any two versions of the program find
/// out that they differ.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::messages::PROTOCOL`] of its program.
    pub protocol: u32,
    /// Version of its program: `0.1.0`.
    pub version: String,
    /// Its machine.
    pub passport: Passport,
    /// `x86_64`.
    pub architecture: String,
    /// Random number of the machine's start. Absent: it is not told.
    pub boot_id: Option<String>,
    /// Whether it has a PID namespace of its own: everything in it ends with it, however it ends.
    pub own_processes: bool,
    /// Which of its addresses ssh uses. Absent: ssh does not tell.
    pub address: Option<std::net::IpAddr>,
    /// Why the kernel does not tell of sockets there. Absent: it does.
    pub no_sock_diag: Option<String>,
}

/// What every version of the program says first, whatever else it says then.
#[derive(Deserialize)]
struct AnyHello {
    hello: AnyVersion,
}

#[derive(Deserialize)]
struct AnyVersion {
    protocol: u32,
    version: String,
}

/// A control message. Errors: it is of another version, or none.
fn control(json: &[u8]) -> Result<Control, Lost> {
    let other = |hello: AnyVersion| Lost::Version {
        protocol: hello.protocol,
        version: hello.version.chars().filter(|c| !c.is_control()).take(40).collect(),
    };
    match serde_json::from_slice(json) {
        Ok(Control::Hello(hello)) if hello.protocol != PROTOCOL => {
            Err(other(AnyVersion { protocol: hello.protocol, version: hello.version }))
        }
        Ok(control) => Ok(control),
        Err(error) => Err(match serde_json::from_slice::<AnyHello>(json) {
            Ok(AnyHello { hello }) if hello.protocol != PROTOCOL => other(hello),
            _ => Lost::Unreadable(error.to_string()),
        }),
    }
}

/// Why the other end cannot be spoken with any longer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// It has ended the connection.
    #[error("the connection has ended")]
    Ended,
    /// It is silent.
    #[error("no sign of life for {0:?}")]
    Silent(Duration),
    /// It is another version of the program.
    #[error(
        "it speaks protocol {protocol} (tcptoll {version}), this program protocol {PROTOCOL} (tcptoll {}): use the \
         same version of tcptoll on both",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Its protocol.
        protocol: u32,
        /// `0.1.0`.
        version: String,
    },
    /// It speaks something else.
    #[error("it does not speak this protocol: {0}")]
    Unreadable(String),
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Self::Ended,
            _ => Self::Io(error),
        }
    }
}

/// What a turn of the loop gave.
#[derive(Debug)]
pub(super) enum Event {
    /// The other end said this.
    Control(Control),
    /// The near end of this host's bytes was closed.
    NearEnded(u32),
}

/// A near end: the host's process here, or the parent's channel.
#[derive(Debug)]
struct Near {
    host: u32,
    stream: UnixStream,
    /// Bytes that it has not taken yet.
    held: Vec<u8>,
}

/// One end of an ssh connection.
#[derive(Debug)]
pub(super) struct Relay<I, O> {
    session: Session,
    /// Silence that ends it.
    dead_after: Duration,
    started: Instant,
    input: I,
    output: O,
    near: Option<Near>,
}

impl<I: Read + AsFd, O: Write + AsFd> Relay<I, O> {
    /// Takes over both directions, which must not block. A silence of `dead_after` is taken for death.
    pub(super) fn new(input: I, output: O, dead_after: Duration) -> Self {
        // No test begins while one runs, so the bound is the sum of equal halves.
        let mut options = Options::default();
        options.timing = Timing::new(dead_after / 2, dead_after / 2);
        options.evidence = Evidence::Answered;
        options.max_message_len = MESSAGE_MAX;
        options.max_queued_len = QUEUED_MAX + 2 * MESSAGE_MAX;
        let session = Session::new(options, Duration::ZERO);
        Self { session, dead_after, started: Instant::now(), input, output, near: None }
    }

    /// From now on bytes of this host go to and come from this stream.
    pub(super) fn join(&mut self, host: u32, stream: UnixStream) -> Result<(), Lost> {
        stream.set_nonblocking(true)?;
        self.near = Some(Near { host, stream, held: Vec::new() });
        Ok(())
    }

    /// Gives up the near end, if it is this host's.
    pub(super) fn part_with(&mut self, host: u32) {
        self.near.take_if(|near| near.host == host);
    }

    /// Queues a control message.
    pub(super) fn tell(&mut self, control: &Control) -> Result<(), Lost> {
        let mut message = vec![CONTROL];
        serde_json::to_writer(&mut message, control)
            .map_err(|error| Lost::Unreadable(error.to_string()))?;
        let full = |_| Lost::Io(io::Error::other("the other end takes nothing"));
        self.session.send(&message).map_err(full)
    }

    /// Waits until something can be moved, and moves it; returns at once after `wake` can be read.
    pub(super) fn turn(&mut self, wake: Option<BorrowedFd<'_>>) -> Result<Vec<Event>, Lost> {
        let now = self.started.elapsed();
        let turn = self.session.next(now);
        let judges = turn == Some(Turn::Judge);
        let limit = match self.session.next_due() {
            _ if judges => Some(Duration::ZERO),
            Some(due) => Some(due.saturating_sub(now)),
            None => None,
        };
        let reads = self.near.as_ref().is_none_or(|near| near.held.len() < HELD_MAX);
        let takes = self.session.outgoing().len() < QUEUED_MAX;
        let near = self.near.as_ref();
        let wanted = [
            Wanted::new(self.input.as_fd()).to_read(reads),
            Wanted::new(self.output.as_fd()).to_write(!self.session.outgoing().is_empty()),
            Wanted::maybe(near.map(|near| near.stream.as_fd()))
                .to_read(takes)
                .to_write(near.is_some_and(|near| !near.held.is_empty())),
            Wanted::maybe(wake).to_read(true),
        ];
        let [input, output, near, _] =
            ready(&wanted, limit).map_err(|error| Lost::from(error.source))?;
        let mut events = Vec::new();
        if input.readable {
            self.read_far(&mut events)?;
        }
        if judges && self.session.is_tested() {
            return Err(Lost::Silent(self.dead_after));
        }
        if near.readable {
            self.read_near(&mut events)?;
        }
        if near.writable {
            self.write_near(&mut events);
        }
        if output.writable || !self.session.outgoing().is_empty() {
            self.write_far()?;
        }
        Ok(events)
    }

    fn read_far(&mut self, events: &mut Vec<Event>) -> Result<(), Lost> {
        let mut piece = vec![0; PIECE];
        match self.input.read(&mut piece) {
            Ok(0) => return Err(Lost::Ended),
            Ok(read) => self.session.received(&piece[..read], self.started.elapsed()),
            Err(error) if passes(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        while let Some(message) =
            self.session.next_message().map_err(|error| Lost::Unreadable(error.to_string()))?
        {
            match message.split_first() {
                Some((&CONTROL, json)) => {
                    events.push(Event::Control(control(json)?));
                }
                Some((&BYTES, rest)) => {
                    let Some((host, bytes)) = rest.split_first_chunk::<4>() else {
                        return Err(Lost::Unreadable("bytes of no host".to_owned()));
                    };
                    // What comes after a host was given up is nobody's.
                    if let Some(near) = &mut self.near
                        && near.host == u32::from_be_bytes(*host)
                    {
                        near.held.extend_from_slice(bytes);
                    }
                }
                _ => return Err(Lost::Unreadable("a message of an unknown kind".to_owned())),
            }
        }
        self.write_near(events);
        Ok(())
    }

    fn read_near(&mut self, events: &mut Vec<Event>) -> Result<(), Lost> {
        let Some(near) = &mut self.near else { return Ok(()) };
        let host = near.host;
        let mut message = vec![BYTES];
        message.extend_from_slice(&host.to_be_bytes());
        let head = message.len();
        message.resize(head + PIECE, 0);
        match near.stream.read(&mut message[head..]) {
            Ok(0) => self.near_ended(events),
            Ok(read) => {
                message.truncate(head + read);
                let full = |_| Lost::Io(io::Error::other("the other end takes nothing"));
                self.session.send(&message).map_err(full)?;
            }
            Err(error) if passes(&error) => {}
            Err(_) => self.near_ended(events),
        }
        Ok(())
    }

    fn write_near(&mut self, events: &mut Vec<Event>) {
        let Some(near) = &mut self.near else { return };
        while !near.held.is_empty() {
            match near.stream.write(&near.held) {
                Ok(written) => drop(near.held.drain(..written)),
                Err(error) if passes(&error) => return,
                Err(_) => return self.near_ended(events),
            }
        }
    }

    fn near_ended(&mut self, events: &mut Vec<Event>) {
        if let Some(near) = self.near.take() {
            events.push(Event::NearEnded(near.host));
        }
    }

    fn write_far(&mut self) -> Result<(), Lost> {
        while !self.session.outgoing().is_empty() {
            match self.output.write(self.session.outgoing()) {
                Ok(written) => self.session.sent(written),
                Err(error) if passes(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    type UnixRelay = Relay<UnixStream, UnixStream>;

    fn pair(dead_after: Duration) -> (UnixRelay, UnixRelay) {
        let (a, b) = UnixStream::pair().unwrap();
        let end = |stream: UnixStream| {
            stream.set_nonblocking(true).unwrap();
            Relay::new(stream.try_clone().unwrap(), stream, dead_after)
        };
        (end(a), end(b))
    }

    #[test]
    fn bytes_of_a_host_come_through_in_both_directions_and_its_end_is_told() {
        let (mut a, mut b) = pair(Duration::from_secs(10));
        let (mut parent, near_a) = UnixStream::pair().unwrap();
        let (mut host, near_b) = UnixStream::pair().unwrap();
        a.join(7, near_a).unwrap();
        b.join(7, near_b).unwrap();
        parent.write_all(b"order").unwrap();
        a.turn(None).unwrap();
        b.turn(None).unwrap();
        let mut got = [0; 5];
        host.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"order");
        host.write_all(b"reply").unwrap();
        b.turn(None).unwrap();
        a.turn(None).unwrap();
        parent.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"reply");
        drop(host);
        assert!(matches!(b.turn(None).unwrap()[..], [Event::NearEnded(7)]));
    }

    #[test]
    fn bytes_of_a_host_that_was_given_up_are_nobodys() {
        let (mut a, mut b) = pair(Duration::from_secs(10));
        let (mut parent, near_a) = UnixStream::pair().unwrap();
        let (mut host, near_b) = UnixStream::pair().unwrap();
        a.join(1, near_a).unwrap();
        b.join(2, near_b).unwrap();
        parent.write_all(b"late").unwrap();
        a.turn(None).unwrap();
        b.turn(None).unwrap();
        host.set_nonblocking(true).unwrap();
        assert_eq!(host.read(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn an_end_that_is_silent_is_dead_after_the_time_said() {
        let (mut a, _silent) = pair(Duration::from_millis(400));
        let begun = Instant::now();
        let lost = loop {
            if let Err(lost) = a.turn(None) {
                break lost;
            }
        };
        assert!(matches!(lost, Lost::Silent(_)), "{lost}");
        assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    }

    #[test]
    fn an_agent_of_another_version_is_told_by_name_whatever_else_its_hello_has() {
        let lost = control(br#"{"hello":{"protocol":7,"version":"9.1.0\u001b","news":[1]}}"#);
        let text = lost.unwrap_err().to_string();
        assert!(text.starts_with("it speaks protocol 7 (tcptoll 9.1.0)"), "{text}");
        assert!(text.contains(&format!("this program protocol {PROTOCOL}")), "{text}");
        let same = format!(r#"{{"hello":{{"protocol":{PROTOCOL},"version":"9.1.0"}}}}"#);
        assert!(matches!(control(same.as_bytes()), Err(Lost::Unreadable(_))));
    }

    #[test]
    fn an_end_that_answers_lives_on() {
        let (mut a, mut b) = pair(Duration::from_secs(4));
        let answering = std::thread::spawn(move || while b.turn(None).is_ok() {});
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            a.turn(None).unwrap();
        }
        drop(a);
        answering.join().unwrap();
    }

    #[test]
    fn ten_thousand_messages_of_chance_end_in_an_error_and_no_panic() {
        // A generator of its own, so that the test says the same each time.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut chance = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..10_000 {
            let (far, near) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let mut relay = Relay::new(near.try_clone().unwrap(), near, Duration::from_secs(10));
            let length = (chance() % 64) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| chance() as u8).collect();
            // Half of them have a header that fits, so that what follows is looked at.
            if chance().is_multiple_of(2) && length > 5 {
                let announced = (length - 4) as u32;
                bytes[..4].copy_from_slice(&announced.to_be_bytes());
                bytes[4] = (chance() % 3) as u8;
            }
            (&far).write_all(&bytes).unwrap();
            drop(far);
            while relay.turn(None).is_ok() {}
        }
    }
}
