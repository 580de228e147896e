//! Runs a program that measures by itself: hands on its first line when it is ready, and its last
//! line when it has ended.
//!
//! The program is not trusted. What it prints, and the time it takes, are bounded; one that fails,
//! prints no JSON or does not end is an error that quotes the end of its standard error. What its
//! lines mean is for the experiment that starts it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::de::IgnoredAny;
use serde_json::Value;
use tcptoll_kernel::epoll::{Interest, Poller, readable};
use tcptoll_kernel::{SysError, process};

use super::program::{command, find};
use crate::channel::{Channel, Refusal};
use crate::files::RunFolder;
use crate::messages::{Launch, Perform, Performed, Request};

/// Most bytes that are taken of standard output: both lines, as an answer, fit a message.
const OUTPUT_MAX: usize = 32 << 10;

/// Bytes of standard error that an error quotes, the last ones.
const ERRORS_MAX: usize = 1_000;

/// Once its standard output has ended, the program ends within this.
const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// Numbers under which the poller knows what it waits for.
const CHANNEL: u64 = 0;
const OUTPUT: u64 = 1;
const ERRORS: u64 = 2;

/// Runs the program to its end, or until the parent says stop.
///
/// Only to be called in a host of a lab: the folder in which the program runs is mounted over one of
/// this process's mount namespace.
pub(crate) fn perform(order: &Perform, channel: &mut Channel) -> Result<Performed, Refusal> {
    let folder = RunFolder::make().map_err(Refusal)?;
    perform_in(&folder, order, channel)
}

fn perform_in(
    folder: &RunFolder,
    order: &Perform,
    channel: &mut Channel,
) -> Result<Performed, Refusal> {
    for (name, content) in &order.files {
        folder.write(name, content.as_bytes()).map_err(Refusal)?;
    }
    let mut program = Program::start(order, folder.path(), channel)?;
    let ready_limit = Duration::from_nanos(order.ready_limit_ns);
    let first = match program.line(channel, ready_limit)? {
        Heard::Line(line) => line,
        Heard::End => return Err(program.failed_early()),
        Heard::Stop => return Ok(Performed { result: None }),
        Heard::Silence => {
            let why = format!("it is not ready after {} s", ready_limit.as_secs());
            return Err(program.refusal(&why));
        }
    };
    channel.started::<Perform>(&program.json(&first)?)?;
    let end_limit = Duration::from_nanos(order.end_limit_ns);
    let begun = Instant::now();
    let mut last = None;
    loop {
        match program.line(channel, end_limit.saturating_sub(begun.elapsed()))? {
            Heard::Line(line) => last = Some(line),
            Heard::End => break,
            Heard::Stop => return Ok(Performed { result: None }),
            Heard::Silence => {
                let why = format!("it has not ended after {} s", end_limit.as_secs());
                return Err(program.refusal(&why));
            }
        }
    }
    let status = program.ended()?;
    if !status.success() {
        return Err(program.refusal(&format!("it failed ({status})")));
    }
    let Some(last) = last else { return Err(program.refusal("it printed no result")) };
    Ok(Performed { result: Some(program.json(&last)?) })
}

/// What comes of waiting for a line.
enum Heard {
    Line(String),
    /// Standard output has ended.
    End,
    /// The parent wants the program to end.
    Stop,
    /// The time is up.
    Silence,
}

/// The program while it runs; it is killed when this is dropped.
struct Program {
    /// As messages call it: `java`.
    name: String,
    child: Child,
    poller: Poller,
    /// Until its end.
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    /// Bytes taken of standard output.
    taken: usize,
    /// What is not handed on yet.
    pending: VecDeque<u8>,
    /// The end of standard error.
    said: VecDeque<u8>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // Also what it has started itself.
        process::kill_group(self.child.id());
        let _ = self.child.wait();
    }
}

impl Program {
    fn start(order: &Perform, folder: &Path, channel: &Channel) -> Result<Self, Refusal> {
        let launch = &order.launch;
        let name = launch.words.first().cloned().unwrap_or_default();
        let mut words = launch.words.clone();
        if let (false, Some(first)) = (launch.shell, words.first_mut()) {
            *first = find(&[&name], &order.package).map_err(Refusal)?.display().to_string();
        }
        let failed = |error: std::io::Error| Refusal(format!("{name}: {error}"));
        let mut command = command(&Launch { words, ..launch.clone() });
        command.current_dir(folder).stdin(Stdio::null()).process_group(0);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let program = Self {
            name: name.rsplit('/').next().unwrap_or_default().to_owned(),
            child,
            poller: Poller::new(4)?,
            output,
            errors,
            taken: 0,
            pending: VecDeque::new(),
            said: VecDeque::new(),
        };
        program.poller.add(channel, CHANNEL, Interest::READ)?;
        // Closed streams leave the poller.
        if let Some(output) = &program.output {
            program.poller.add(output, OUTPUT, Interest::READ)?;
        }
        if let Some(errors) = &program.errors {
            program.poller.add(errors, ERRORS, Interest::READ)?;
        }
        Ok(program)
    }

    /// The next line that is not empty.
    fn line(&mut self, channel: &mut Channel, limit: Duration) -> Result<Heard, Refusal> {
        let begun = Instant::now();
        loop {
            while let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let bytes: Vec<u8> = self.pending.drain(..=end).collect();
                let line = String::from_utf8_lossy(&bytes).trim().to_owned();
                if !line.is_empty() {
                    return Ok(Heard::Line(line));
                }
            }
            if self.output.is_none() {
                // The last line may have no end.
                let bytes: Vec<u8> = self.pending.drain(..).collect();
                let line = String::from_utf8_lossy(&bytes).trim().to_owned();
                return Ok(if line.is_empty() { Heard::End } else { Heard::Line(line) });
            }
            let Some(left) = limit.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
            else {
                return Ok(Heard::Silence);
            };
            for event in self.poller.wait(Some(left))? {
                match event.token {
                    CHANNEL => {
                        return match channel.receive(None)? {
                            Request::Stop => Ok(Heard::Stop),
                            Request::Order::<IgnoredAny> { name, .. } => Err(Refusal(format!(
                                "order {name} while {} was running",
                                self.name
                            ))),
                        };
                    }
                    OUTPUT => self.take_output()?,
                    _ => self.take_errors(),
                }
            }
        }
    }

    fn take_output(&mut self) -> Result<(), Refusal> {
        let mut part = [0; 4_096];
        match self.output.as_mut().map(|output| output.read(&mut part)) {
            Some(Ok(length @ 1..)) => {
                self.taken += length;
                if self.taken > OUTPUT_MAX {
                    return Err(self.refusal(&format!("it printed more than {OUTPUT_MAX} bytes")));
                }
                self.pending.extend(&part[..length]);
            }
            Some(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
            _ => self.output = None,
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

    /// Waits for the exit status, once standard output has ended.
    fn ended(&mut self) -> Result<ExitStatus, Refusal> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.take_last_errors()?;
                return Ok(status);
            }
            if begun.elapsed() > EXIT_LIMIT {
                let seconds = EXIT_LIMIT.as_secs();
                return Err(self.refusal(&format!("it does not exit within {seconds} s")));
            }
            // Not for luck: the question is asked again until it is answered or time is up.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes what it said last, which is in the pipe.
    fn take_last_errors(&mut self) -> Result<(), SysError> {
        while let Some(errors) = &self.errors {
            if !readable(errors, Duration::ZERO)? {
                break;
            }
            self.take_errors();
        }
        Ok(())
    }

    /// The refusal of a program that ended before its first line.
    fn failed_early(&mut self) -> Refusal {
        match self.ended() {
            Ok(status) => self.refusal(&format!("it ended before it was ready ({status})")),
            Err(refusal) => refusal,
        }
    }

    /// A line as the object that it has to be.
    fn json(&self, line: &str) -> Result<Value, Refusal> {
        if let Ok(value @ Value::Object(_)) = serde_json::from_str(line) {
            return Ok(value);
        }
        let start: String = line.chars().take(100).collect();
        Err(self.refusal(&format!("it printed no JSON object: {start}")))
    }

    fn refusal(&self, why: &str) -> Refusal {
        let bytes: Vec<u8> = self.said.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let said = text.lines().filter(|line| !line.trim().is_empty());
        let said = said.fold(String::new(), |all, line| all + "\n  " + line.trim_end());
        Refusal(format!("{}: {why}{said}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use serde_json::json;

    use super::*;
    use crate::messages::Reply;

    const SECOND: u64 = 1_000_000_000;

    fn shell(line: &str) -> Perform {
        Perform {
            launch: Launch {
                words: vec![line.to_owned()],
                shell: true,
                environment: vec![("GREETING".to_owned(), "hello".to_owned())],
                ordinary_user: false,
            },
            package: "none".to_owned(),
            files: vec![("given".to_owned(), "content".to_owned())],
            ready_limit_ns: 20 * SECOND,
            end_limit_ns: 20 * SECOND,
        }
    }

    /// What comes of an order, and what the parent reads meanwhile; with `stop` it says so first.
    fn performed(order: &Perform, stop: bool) -> (Result<Performed, String>, Vec<Value>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut parent, mut host) = (Channel::new(ours), Channel::new(theirs));
        if stop {
            parent.send(&Request::<()>::Stop).unwrap();
        }
        let folder = RunFolder::temporary().unwrap();
        let performed = perform_in(&folder, order, &mut host).map_err(|Refusal(why)| why);
        drop(host);
        let replies = std::iter::from_fn(|| parent.receive::<Value>(None).ok()).collect();
        (performed, replies)
    }

    fn refusal(line: &str) -> String {
        performed(&shell(line), false).0.unwrap_err()
    }

    #[test]
    fn the_first_line_is_handed_on_and_the_last_one_is_the_result() {
        let order = shell(
            r#"echo '{"port":7}'; echo; echo ignored; echo "{\"got\":\"$(cat given) $GREETING\"}""#,
        );
        let (performed, replies) = performed(&order, false);
        assert_eq!(performed.unwrap().result, Some(json!({ "got": "content hello" })));
        assert_eq!(replies, [json!({ "started": { "port": 7 } })]);
        assert!(serde_json::from_value::<Reply<Performed, Value>>(replies[0].clone()).is_ok());
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let mut order = shell("no-such-program");
        order.launch.shell = false;
        order.package = "default-jdk-headless".to_owned();
        let error = performed(&order, false).0.unwrap_err();
        assert_eq!(error, "no-such-program is not installed: apt-get install default-jdk-headless");
    }

    #[test]
    fn one_that_ends_before_it_is_ready_is_an_error_that_quotes_it() {
        let error = refusal("echo 'out of memory' >&2; exit 3");
        assert!(error.contains("ended before it was ready (exit status: 3)"), "{error}");
        assert!(error.ends_with("\n  out of memory"), "{error}");
    }

    #[test]
    fn one_that_fails_after_its_result_is_an_error() {
        let error = refusal(r#"echo '{}'; echo '{"messages":1}'; echo crash >&2; kill -9 $$"#);
        assert!(error.contains("it failed (signal: 9 (SIGKILL))\n  crash"), "{error}");
    }

    #[test]
    fn nonsense_in_place_of_a_line_of_json_is_an_error() {
        assert!(refusal("echo hello").contains("no JSON object: hello"));
        assert!(refusal("echo '{}'; echo 17").contains("no JSON object: 17"));
        assert!(refusal("echo '{}'").contains("printed no result"));
    }

    #[test]
    fn more_output_than_may_be_is_an_error() {
        assert!(refusal("yes '{}'").contains("more than 32768 bytes"));
        assert!(refusal("tr '\\0' x < /dev/zero").contains("more than 32768 bytes"));
    }

    #[test]
    fn one_that_is_not_ready_or_does_not_end_in_time_is_killed_with_all_that_it_started() {
        let late = Perform { ready_limit_ns: SECOND / 20, ..shell("sleep 600 & sleep 600") };
        let begun = Instant::now();
        assert!(performed(&late, false).0.unwrap_err().contains("not ready after 0 s"));
        let endless = Perform { end_limit_ns: SECOND / 20, ..shell("echo '{}'; sleep 600") };
        assert!(performed(&endless, false).0.unwrap_err().contains("not ended after 0 s"));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn one_that_is_stopped_ends_without_a_result() {
        let (performed, _) = performed(&shell("echo '{}'; sleep 600"), true);
        assert_eq!(performed.unwrap().result, None);
    }

    #[test]
    fn nothing_that_was_started_is_left() {
        // The other process holds standard error, not standard output.
        let order = shell("sleep 600 >&- & echo \"{\\\"pid\\\":$!}\"; echo '{}'");
        let (performed, replies) = performed(&order, false);
        performed.unwrap();
        let pid = replies[0]["started"]["pid"].as_u64().unwrap();
        // It was killed: asked until the kernel has carried that out.
        let begun = Instant::now();
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{stat}");
            std::thread::yield_now();
        }
    }
}
