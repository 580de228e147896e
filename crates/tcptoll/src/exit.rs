//! How a run ends, as a script sees it.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use console::Term;

use crate::screen::{self, has_unicode, in_locale};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Measured, and every stated limit held.
    Met,
    /// Measured, and a stated limit was broken, the run is invalid, or some trials failed for good.
    Missed,
    /// Not measured: wrong input, no privilege, nothing reached.
    NotMeasured,
    /// Measured, but not stored.
    NotStored,
    /// Stopped by a signal, with a valid partial record.
    Stopped(u8),
    /// The exit status of a command that was run in the lab.
    Command(u8),
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(match status {
            Status::Met => 0,
            Status::Missed => 1,
            Status::NotMeasured => 2,
            Status::NotStored => 3,
            Status::Stopped(signal) => 128_u8.saturating_add(signal),
            Status::Command(status) => status,
        })
    }
}

/// What was measured could not be stored.
#[derive(Debug)]
pub(crate) struct NotStored(pub String);

impl std::fmt::Display for NotStored {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for NotStored {}

/// Sentences that wait for the end of a screen; none: there is no screen.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);
/// More sentences than this are not kept.
const HELD_MAX: usize = 100;

/// From now on sentences wait for [`release`]: stderr is the terminal that a screen is on.
pub(crate) fn hold() {
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
}

/// The last sentence that waits, so that the screen can show it.
pub(crate) fn held() -> Option<String> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.last().cloned()
}

/// Says what was held; from now on sentences are said immediately.
pub(crate) fn release() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    held.into_iter().flatten().for_each(|sentence| say(&sentence));
}

/// Writes a sentence for people on stderr. What a user or a peer put into it cannot steer the
/// terminal: see [`tcptoll_show::printable`]. On a terminal it is wrapped at its width.
pub(crate) fn say(sentence: &str) {
    let sentence = in_locale(&tcptoll_show::printable(sentence.trim_end()));
    if let Some(held) = &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
        if held.len() < HELD_MAX {
            held.push(sentence);
        }
        return;
    }
    match terminal() {
        Some(width) => eprintln!("{}", screen::narrowed(&sentence, screen::room(width))),
        None => eprintln!("{sentence}"),
    }
}

/// Columns of the terminal that stderr is; `None`: it is none.
fn terminal() -> Option<usize> {
    let term = Term::stderr();
    term.is_term().then(|| usize::from(term.size().1))
}

/// Prints help, the version or a mistake in the command line where it belongs, and gives its exit status.
#[must_use]
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    match terminal().filter(|_| error.use_stderr()) {
        Some(width) => {
            let text = error.render();
            let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let text = if plain { text.to_string() } else { text.ansi().to_string() };
            let text = in_locale(&text);
            eprint!("{}", screen::narrowed(&text, screen::room(width)));
        }
        // clap has wrapped help; what goes into a pipe stays as it is.
        None if has_unicode() => drop(error.print()),
        None => {
            let text = in_locale(&error.render().to_string());
            if error.use_stderr() {
                eprint!("{text}");
            } else {
                print!("{text}");
            }
        }
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Turns the outcome into an exit status, with the whole chain of causes on stderr.
#[must_use]
pub(crate) fn finish(outcome: anyhow::Result<Status>) -> ExitCode {
    let status = outcome.unwrap_or_else(|error| {
        // A reader that has seen enough closes the pipe; that is no failure.
        if error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
        }) {
            return Status::Met;
        }
        say(&format!("error: {error:#}"));
        if error.is::<NotStored>() { Status::NotStored } else { Status::NotMeasured }
    });
    status.into()
}
