//! Answers as recorded hosts did, and holds every order against the recorded one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tcptoll_core::link::LinkSpec;

use super::{Event, Host, Line, Script, framed, unframed};
use crate::channel::{Carrier, Channel};
use crate::clock::Time;
use crate::lab::{HostSource, Hosts, LabError, Plan};

/// Fields of a [`Plan`] that follow from the machine: they are not compared. Everything else is, in
/// the plan and in every order; their times follow from the recorded ones.
const MASKED: &[&str] = &["/client_cpu", "/server_cpu"];

/// Hosts that are recorded.
#[derive(Debug)]
pub struct Replay(Arc<Mutex<Played>>);

/// How far it has come.
#[derive(Debug)]
struct Played {
    script: Script,
    /// Lines that are over.
    over: usize,
    /// The trial's time, ns.
    now_ns: u64,
    /// The first thing that was not as recorded.
    departure: Option<String>,
}

impl Replay {
    /// Of this conversation.
    pub fn new(script: Script) -> Self {
        Self(Arc::new(Mutex::new(Played { script, over: 0, now_ns: 0, departure: None })))
    }

    /// Whether the trial was as recorded, to the last line.
    ///
    /// Errors: the first thing that was not, one sentence.
    pub fn end(&self) -> Result<(), String> {
        let played = self.0.lock().unwrap();
        match (&played.departure, played.script.0.get(played.over)) {
            (Some(departure), _) => Err(departure.clone()),
            (None, Some(line)) => Err(format!(
                "the trial ended, and line {} of the recording follows: {}",
                played.over + 1,
                line.event
            )),
            (None, None) => Ok(()),
        }
    }

    fn channel(&self, host: Host) -> io::Result<Channel> {
        // Something that has a descriptor: nothing is read from it.
        let descriptor = File::open("/dev/null")?;
        let played = Arc::clone(&self.0);
        let (sent, read) = (Vec::new(), Vec::new());
        Ok(Channel::new(Replayed { host, played, descriptor, sent, read }))
    }

    fn time(&self) -> Box<dyn Time> {
        Box::new(ReplayedTime(Arc::clone(&self.0)))
    }

    fn make(&self, event: &Event) -> Result<[Channel; 3], LabError> {
        self.0.lock().unwrap().expect(event).map_err(LabError::Refused)?;
        let [client, server, link] = Host::ALL.map(|host| self.channel(host).unwrap());
        Ok([client, server, link])
    }
}

impl HostSource for Replay {
    fn lab(&self, plan: &Plan, spec: &LinkSpec) -> Result<Hosts, LabError> {
        let channels = self.make(&Event::Lab(serde_json::to_value(plan).unwrap()))?;
        Hosts::of_lab(plan, spec, channels, self.time(), Vec::new())
    }

    fn target(&self) -> Result<Hosts, LabError> {
        let [client, ..] = self.make(&Event::Target {})?;
        Hosts::of_target(client, self.time(), Vec::new())
    }
}

impl Played {
    /// The trial does this now.
    ///
    /// Errors: the recording goes on otherwise.
    fn expect(&mut self, event: &Event) -> Result<(), String> {
        match self.script.0.get(self.over) {
            Some(line) if masked(&line.event) == masked(event) => {
                self.step();
                Ok(())
            }
            Some(line) => Err(self.depart(&format!("{event}{}", difference(&line.event, event)))),
            None => Err(self.depart(&format!("{event}; the recording is over"))),
        }
    }

    /// The next message from this host.
    ///
    /// Errors: the recording goes on with something else.
    fn reply(&mut self, host: Host) -> Result<Value, String> {
        match self.script.0.get(self.over) {
            Some(Line { event: Event::From(from, reply), .. }) if *from == host => {
                let reply = reply.clone();
                self.step();
                Ok(reply)
            }
            Some(line) => {
                let event = format!("wait for the {host}; recorded: {}", line.event);
                Err(self.depart(&event))
            }
            None => Err(self.depart(&format!("wait for the {host}; the recording is over"))),
        }
    }

    fn step(&mut self) {
        self.now_ns = self.now_ns.max(self.script.0[self.over].at_ns);
        self.over += 1;
    }

    /// Notes what the trial does otherwise than recorded. Gives the first such thing.
    fn depart(&mut self, what: &str) -> String {
        let line = self.over + 1;
        let text = format!("line {line} of the recording: the trial wants to {what}");
        self.departure.get_or_insert(text).clone()
    }
}

/// An event without what differs from machine to machine.
fn masked(event: &Event) -> Event {
    let mut event = event.clone();
    if let Event::Lab(plan) = &mut event {
        for field in MASKED {
            plan.pointer_mut(field).map(Value::take);
        }
    }
    event
}

/// How what a trial does differs from what was recorded.
fn difference(recorded: &Event, done: &Event) -> String {
    let bodies = match (recorded, done) {
        (Event::To(a, recorded), Event::To(b, done)) if a == b => Some((recorded, done)),
        (Event::Lab(recorded), Event::Lab(done)) => Some((recorded, done)),
        _ => None,
    };
    match bodies.and_then(|(recorded, done)| differing(recorded, done)) {
        Some((field, recorded, done)) => format!(": {field} is {done}; recorded: {recorded}"),
        None => format!("; recorded: {recorded}"),
    }
}

/// The first field that differs, with its recorded value and the other; `None` if these are
/// orders of different names.
fn differing<'a>(recorded: &'a Value, done: &'a Value) -> Option<(String, &'a Value, &'a Value)> {
    if super::name_of(recorded) != super::name_of(done) {
        return None;
    }
    let (mut path, mut pair) = (String::new(), (recorded, done));
    loop {
        let next = match pair {
            (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => a
                .iter()
                .zip(b.values())
                .find(|((_, a), b)| a != b)
                .map(|((key, a), b)| (key.clone(), (a, b))),
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                let mut both = a.iter().zip(b).enumerate();
                both.find(|(_, (a, b))| a != b).map(|(at, pair)| (at.to_string(), pair))
            }
            _ => None,
        };
        let Some((key, inner)) = next else { return Some((path, pair.0, pair.1)) };
        if !matches!(key.as_str(), "order" | "body") {
            path = if path.is_empty() { key } else { format!("{path}.{key}") };
        }
        pair = inner;
    }
}

/// Time that goes on with what was said and with pauses; a pause takes none.
#[derive(Debug)]
struct ReplayedTime(Arc<Mutex<Played>>);

impl Time for ReplayedTime {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.lock().unwrap().now_ns)
    }

    fn pause(&self, time: Duration) {
        self.0.lock().unwrap().now_ns += time.as_nanos() as u64;
    }
}

/// A channel to a recorded host.
#[derive(Debug)]
struct Replayed {
    host: Host,
    played: Arc<Mutex<Played>>,
    descriptor: File,
    /// Written and not flushed.
    sent: Vec<u8>,
    /// Of a message that has come, what has not been read.
    read: Vec<u8>,
}

impl Write for Replayed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sent.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.sent);
        let request = unframed(&frame).expect("a channel flushes whole messages")?;
        let event = Event::To(self.host, request);
        self.played.lock().unwrap().expect(&event).map_err(io::Error::other)
    }
}

impl Read for Replayed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.read.is_empty() {
            let reply = self.played.lock().unwrap().reply(self.host).map_err(io::Error::other)?;
            self.read = framed(&reply);
        }
        let read = self.read.as_slice().read(bytes)?;
        self.read.drain(..read);
        Ok(read)
    }
}

impl AsFd for Replayed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Carrier for Replayed {
    fn readable_within(&self, _: Duration) -> io::Result<bool> {
        // A message is there, or none ever comes: reading says which.
        Ok(true)
    }

    fn close(&self) {}
}
