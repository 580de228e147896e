//! The browser's DevTools pipe: commands out, answers and events in, each ended by a NUL byte.
//!
//! A pipe instead of a port: nobody else can reach it, and nothing of it is on the network that is
//! measured. The browser is not trusted: the length of a message, the number of messages and bytes
//! of a load and the time of an answer are bounded. While the pipe is waited for, so are the
//! parent's control channel and the browser's standard error.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tcptoll_core::page::devtools;
use tcptoll_core::page::devtools::{Answer, Event, Message};
use tcptoll_kernel::epoll::{Interest, Poller};

use super::super::LoadError;
use super::super::control::{CHANNEL, stop_requested};
use crate::channel::Channel;

/// Longest message, bytes: a request's event repeats its URL, which may be a `data:` URL of 2 MiB,
/// four times.
const MESSAGE_MAX: usize = 16 << 20;

/// Bytes of all messages that one browser may send: a load of 10,000 requests makes some 60 MiB.
const BYTES_MAX: u64 = 512 << 20;

/// Bytes of standard error that an error quotes, the last ones.
const ERRORS_MAX: usize = 1_000;

/// Numbers under which the poller knows what it waits for.
const ANSWERS: u64 = 0;
const ERRORS: u64 = 1;

/// What comes of waiting.
#[derive(Debug)]
pub(super) enum Heard {
    /// Something happened.
    Event(Event),
    /// The navigation failed, in the browser's words.
    Failed(String),
    /// The parent wants the load to end.
    Stop,
    /// The time is up.
    Silence,
    /// The browser has ended.
    End,
}

/// The pipe.
pub(super) struct Pipe {
    poller: Poller,
    commands: ChildStdin,
    answers: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    /// Commands sent.
    sent: u64,
    /// Bytes taken of answers and events.
    taken: u64,
    /// The message that has begun; no NUL before `searched`.
    pending: Vec<u8>,
    searched: usize,
    /// Messages that have come and are not read.
    complete: VecDeque<Message>,
    /// The end of standard error.
    said: VecDeque<u8>,
    /// Page that commands are for.
    session: Option<String>,
    /// The parent has said stop.
    stopped: bool,
}

impl Pipe {
    /// Takes over the ends that the browser was started with.
    pub(super) fn new(
        commands: ChildStdin,
        answers: ChildStdout,
        errors: ChildStderr,
        channel: &Channel,
    ) -> Result<Self, LoadError> {
        let poller = Poller::new(4)?;
        poller.add(channel, CHANNEL, Interest::READ)?;
        poller.add(&answers, ANSWERS, Interest::READ)?;
        poller.add(&errors, ERRORS, Interest::READ)?;
        Ok(Self {
            poller,
            commands,
            answers: Some(answers),
            errors: Some(errors),
            sent: 0,
            taken: 0,
            pending: Vec::new(),
            searched: 0,
            complete: VecDeque::new(),
            said: VecDeque::new(),
            session: None,
            stopped: false,
        })
    }

    /// From now on commands are for this page.
    pub(super) fn attach(&mut self, session: String) {
        self.session = Some(session);
    }

    /// The end of what the browser has said on standard error, its last lines.
    pub(super) fn said(&mut self) -> String {
        let bytes: Vec<u8> = self.said.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.iter().skip(lines.len().saturating_sub(4));
        last.fold(String::new(), |text, line| text + "\n  " + &tcptoll_core::printable::line(line))
    }

    /// Sends a command to the page, or to the browser before a page is attached; gives its number.
    pub(super) fn send(&mut self, method: &str, params: &Value) -> Result<u64, LoadError> {
        self.sent += 1;
        let mut command = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        // Commands are few and short: they fit into the pipe's 64 KiB.
        match self.commands.write_all(&bytes) {
            Ok(()) => Ok(self.sent),
            Err(error) => Err(self.refused(&format!("accepts no command ({error})"))),
        }
    }

    /// Sends a command and waits for its answer; hands over the events that come meanwhile.
    pub(super) fn ask(
        &mut self,
        method: &str,
        params: &Value,
        limit: Duration,
        channel: &mut Channel,
        mut on_event: impl FnMut(&Event),
    ) -> Result<Answer, LoadError> {
        let number = self.send(method, params)?;
        let begun = Instant::now();
        loop {
            match self.message(limit.saturating_sub(begun.elapsed()), channel)? {
                Ok(Message::Answer { id, result }) if id == number => {
                    return result.map_err(|why| {
                        let why = tcptoll_core::printable::line(&why);
                        LoadError::Refused(format!("chromium refuses {method}: {why}"))
                    });
                }
                Ok(Message::Answer { .. }) => {}
                Ok(Message::Event(event)) => on_event(&event),
                Err(Heard::Stop) => {
                    return Err(LoadError::Refused("the load was stopped".to_owned()));
                }
                Err(Heard::End) => return Err(self.ended()),
                Err(_) => {
                    let seconds = limit.as_secs();
                    let what = format!("does not answer {method} within {seconds} s");
                    return Err(self.refused(&what));
                }
            }
        }
    }

    /// Waits for the next event.
    pub(super) fn event(
        &mut self,
        limit: Duration,
        channel: &mut Channel,
    ) -> Result<Heard, LoadError> {
        let begun = Instant::now();
        loop {
            match self.message(limit.saturating_sub(begun.elapsed()), channel)? {
                Ok(Message::Event(Event::Other)) => {}
                Ok(Message::Event(event)) => return Ok(Heard::Event(event)),
                Ok(Message::Answer {
                    result: Ok(Answer { error_text: Some(why), .. }), ..
                }) => {
                    return Ok(Heard::Failed(why));
                }
                Ok(Message::Answer { .. }) => {}
                Err(heard) => return Ok(heard),
            }
        }
    }

    /// Whether the parent has said stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The sentence for a browser that has ended.
    pub(super) fn ended(&mut self) -> LoadError {
        self.refused("ended before the page was loaded")
    }

    /// An error with the end of standard error.
    pub(super) fn refused(&mut self, what: &str) -> LoadError {
        self.take_last_errors();
        let said = self.said();
        LoadError::Refused(format!("chromium {what}{said}"))
    }

    /// The next message, or why there is none.
    fn message(
        &mut self,
        limit: Duration,
        channel: &mut Channel,
    ) -> Result<Result<Message, Heard>, LoadError> {
        let begun = Instant::now();
        loop {
            if let Some(message) = self.complete.pop_front() {
                return Ok(Ok(message));
            }
            if self.stopped {
                return Ok(Err(Heard::Stop));
            }
            if self.answers.is_none() {
                return Ok(Err(Heard::End));
            }
            let left = limit.saturating_sub(begun.elapsed());
            for event in self.poller.wait(Some(left))? {
                match event.token {
                    ANSWERS => self.take_answers()?,
                    ERRORS => self.take_errors(),
                    _ => {
                        stop_requested(channel)?;
                        self.stopped = true;
                    }
                }
            }
            if left.is_zero() && self.complete.is_empty() {
                return Ok(Err(Heard::Silence));
            }
        }
    }

    fn take_answers(&mut self) -> Result<(), LoadError> {
        let mut part = [0; 16_384];
        match self.answers.as_mut().map(|answers| answers.read(&mut part)) {
            Some(Ok(length @ 1..)) => {
                self.taken += length as u64;
                if self.taken > BYTES_MAX {
                    return Err(self.refused("sends too much over its DevTools pipe"));
                }
                self.pending.extend_from_slice(&part[..length]);
                self.cut()
            }
            Some(Err(error)) if error.kind() == ErrorKind::Interrupted => Ok(()),
            _ => {
                self.answers = None;
                Ok(())
            }
        }
    }

    /// Takes complete messages out of what has come.
    fn cut(&mut self) -> Result<(), LoadError> {
        while let Some(end) = self.pending[self.searched..].iter().position(|&byte| byte == 0) {
            let end = self.searched + end;
            let message = devtools::decode(&self.pending[..end]);
            self.pending.drain(..=end);
            self.searched = 0;
            match message {
                Ok(message) => self.complete.push_back(message),
                Err(error) => return Err(self.refused(&format!("sent a message that is {error}"))),
            }
        }
        self.searched = self.pending.len();
        if self.pending.len() > MESSAGE_MAX {
            return Err(self.refused(&format!("sent a message of more than {MESSAGE_MAX} bytes")));
        }
        Ok(())
    }

    fn take_errors(&mut self) {
        let mut part = [0; 4_096];
        match self.errors.as_mut().map(|errors| errors.read(&mut part)) {
            Some(Ok(length @ 1..)) => {
                self.said.extend(&part[..length]);
                let more = self.said.len().saturating_sub(ERRORS_MAX);
                self.said.drain(..more);
            }
            Some(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
            _ => self.errors = None,
        }
    }

    /// Takes what was said last, at most a second of it.
    fn take_last_errors(&mut self) {
        let begun = Instant::now();
        while let Some(errors) = &self.errors
            && begun.elapsed() < Duration::from_secs(1)
            && tcptoll_kernel::epoll::readable(errors, Duration::from_millis(20)).unwrap_or(false)
        {
            self.take_errors();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A program in place of the browser, and the parent's end of the channel.
    struct Fake {
        child: Child,
        pipe: Pipe,
        channel: Channel,
        parent: Channel,
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn fake(script: &str) -> Fake {
        let (parent, host) = UnixStream::pair().unwrap();
        let (parent, channel) = (Channel::new(parent), Channel::new(host));
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let ends = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = ends else { panic!("no ends") };
        let pipe = Pipe::new(stdin, stdout, stderr, &channel).unwrap();
        Fake { child, pipe, channel, parent }
    }

    const LONG: Duration = Duration::from_mins(1);

    fn asked(fake: &mut Fake, limit: Duration) -> Result<Answer, String> {
        let Fake { pipe, channel, .. } = fake;
        pipe.ask("Page.enable", &json!({}), limit, channel, |_| {}).map_err(|why| why.to_string())
    }

    #[test]
    fn an_answer_is_taken_and_events_before_it_are_handed_over() {
        let mut fake = fake(
            r#"printf '{"method":"Page.loadEventFired","params":{"timestamp":1.5}}\0{"id":1,"result":{"targetId":"T"}}\0'; cat >/dev/null"#,
        );
        let Fake { pipe, channel, .. } = &mut fake;
        let mut seen = Vec::new();
        let answer =
            pipe.ask("X", &json!({}), LONG, channel, |event| seen.push(event.clone())).unwrap();
        assert_eq!(answer.target_id.as_deref(), Some("T"));
        assert_eq!(seen, [Event::Loaded(1.5)]);
    }

    #[test]
    fn a_browser_that_crashes_is_quoted_without_its_control_characters() {
        let mut fake = fake(r"printf 'first\nno libnss3\033[2J.so\n' >&2; exit 1");
        // Either the command or its answer fails.
        let error = asked(&mut fake, LONG).unwrap_err();
        assert!(error.starts_with("chromium "), "{error}");
        assert!(error.contains("no libnss3") && !error.contains('\u{1b}'), "{error}");
    }

    #[test]
    fn a_browser_that_says_nothing_is_given_up_after_its_time() {
        let mut fake = fake("cat >/dev/null");
        let error = asked(&mut fake, Duration::from_millis(10)).unwrap_err();
        assert!(error.starts_with("chromium does not answer Page.enable within"), "{error}");
    }

    #[test]
    fn a_message_without_an_end_is_refused() {
        let mut fake = fake("head -c 17000000 /dev/zero | tr '\\0' x; cat >/dev/null");
        let error = asked(&mut fake, LONG).unwrap_err();
        assert!(error.contains("a message of more than 16777216 bytes"), "{error}");
    }

    #[test]
    fn a_message_that_is_no_json_is_refused() {
        let mut fake = fake("printf 'hello\\0'; cat >/dev/null");
        let error = asked(&mut fake, LONG).unwrap_err();
        assert!(error.contains("not a message of the DevTools protocol"), "{error}");
    }

    #[test]
    fn a_stop_of_the_parent_ends_the_wait() {
        let mut fake = fake("cat >/dev/null");
        fake.parent.send(&crate::messages::Request::<()>::Stop).unwrap();
        assert!(asked(&mut fake, LONG).is_err());
        assert!(fake.pipe.is_stopped());
    }
}
