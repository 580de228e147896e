//! Writes down what the parent and the hosts of a real lab say.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tcptoll_core::link::LinkSpec;

use super::{Event, Host, Line, Script, framed, unframed};
use crate::channel::{Carrier, Channel};
use crate::clock::{Time, monotonic_ns};
use crate::lab::{HostSource, Hosts, LabError, Machine, Plan, Running};

/// Of each list of sockets in a snapshot this many are kept.
const SOCKETS_MAX: usize = 1;

/// Makes real labs, and records what is said with them.
#[derive(Debug)]
pub struct Recording {
    machine: Machine,
    log: Arc<Log>,
}

/// What has been said so far.
#[derive(Debug, Default)]
struct Log(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    script: Script,
    /// The trial's time, ns.
    now_ns: u64,
}

impl Recording {
    /// Labs run this program.
    pub fn running(program: PathBuf) -> Self {
        Self {
            machine: Machine { program: Some(program), ..Machine::default() },
            log: Arc::default(),
        }
    }

    /// What has been said.
    pub fn script(&self) -> Script {
        self.log.0.lock().unwrap().script.clone()
    }

    fn channel(&self, stream: UnixStream, host: Host) -> Channel {
        let log = Arc::clone(&self.log);
        Channel::new(Recorded { stream, host, log, sent: Vec::new(), read: Vec::new() })
    }

    fn time(&self) -> Box<dyn Time> {
        Box::new(RecordedTime(Arc::clone(&self.log)))
    }
}

impl HostSource for Recording {
    fn lab(&self, plan: &Plan, spec: &LinkSpec) -> Result<Hosts, LabError> {
        self.log.note(Event::Lab(serde_json::to_value(plan).unwrap()));
        let (process, [client, server, link]) = self.machine.start_lab(plan)?;
        let channels = [
            self.channel(client, Host::Client),
            self.channel(server, Host::Server),
            self.channel(link, Host::Link),
        ];
        Hosts::of_lab(plan, spec, channels, self.time(), vec![Running::Here(process)])
    }

    fn target(&self) -> Result<Hosts, LabError> {
        self.log.note(Event::Target {});
        let (process, client) = self.machine.start_host()?;
        Hosts::of_target(
            self.channel(client, Host::Client),
            self.time(),
            vec![Running::Here(process)],
        )
    }
}

impl Log {
    fn note(&self, event: Event) {
        let mut lines = self.0.lock().unwrap();
        lines.now_ns = lines.now_ns.max(monotonic_ns());
        let at_ns = lines.now_ns;
        lines.script.0.push(Line { at_ns, event });
    }
}

/// Time that goes on with what is said and with pauses, as that of a replay does.
#[derive(Debug)]
struct RecordedTime(Arc<Log>);

impl Time for RecordedTime {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.0.lock().unwrap().now_ns)
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
        self.0.0.lock().unwrap().now_ns += time.as_nanos() as u64;
    }
}

/// A socket to a host.
#[derive(Debug)]
struct Recorded {
    stream: UnixStream,
    host: Host,
    log: Arc<Log>,
    /// Written and not flushed.
    sent: Vec<u8>,
    /// Of a message that has come, what has not been read.
    read: Vec<u8>,
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.sent);
        let request = unframed(&frame).expect("a channel flushes whole messages")?;
        self.log.note(Event::To(self.host, request));
        self.stream.write_all(&frame)
    }
}

impl Read for Recorded {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.read.is_empty() {
            let mut length = [0; 4];
            self.stream.read_exact(&mut length)?;
            let mut message = vec![0; u32::from_be_bytes(length) as usize];
            self.stream.read_exact(&mut message)?;
            let mut reply = serde_json::from_slice(&message)?;
            trim(&mut reply);
            self.read = framed(&reply);
            self.log.note(Event::From(self.host, reply));
        }
        let read = self.read.as_slice().read(bytes)?;
        self.read.drain(..read);
        Ok(read)
    }
}

impl AsFd for Recorded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Carrier for Recorded {
    fn readable_within(&self, limit: Duration) -> io::Result<bool> {
        Ok(!self.read.is_empty() || self.stream.readable_within(limit)?)
    }

    fn close(&self) {
        self.stream.close();
    }
}

/// Takes the bulk off a snapshot, before the parent sees it: counters that are 0, and sockets
/// beyond the first.
fn trim(reply: &mut Value) {
    let Some(snapshot) = reply.get_mut("answer").and_then(Value::as_object_mut) else { return };
    let Some(counters) = snapshot.get_mut("counters").and_then(Value::as_object_mut) else {
        return;
    };
    counters.retain(|_, count| *count != 0);
    for sockets in ["connections", "listeners"] {
        if let Some(sockets) = snapshot.get_mut(sockets).and_then(Value::as_array_mut) {
            sockets.truncate(SOCKETS_MAX);
        }
    }
}
