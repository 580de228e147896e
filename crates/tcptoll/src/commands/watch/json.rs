//! A watch as JSON Lines on standard output: one state a look.

use std::io::ErrorKind;

use tcptoll_live::watch::{State, WatchSummary};

use super::Sink;
use crate::cli::Format;
use crate::exit::NotStored;
use crate::stdout;

/// Prints on stdout. A failure is one of what was seen, not of the look.
///
/// Errors: [`NotStored`]; a closed pipe stays what it is, because its reader has seen enough.
pub(super) fn print(text: &str, format: Format) -> anyhow::Result<()> {
    let Err(error) = stdout::print(text, format) else { return Ok(()) };
    if is_closed(&error) {
        return Err(error);
    }
    Err(NotStored(format!("watched, but standard output cannot be written: {error:#}")).into())
}

/// Whether the reader of a pipe has gone.
fn is_closed(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Prints each state. It is over as soon as nothing can be printed any more.
#[derive(Debug, Default)]
pub(super) struct JsonLines {
    failure: Option<anyhow::Error>,
}

impl Sink for JsonLines {
    fn state(&mut self, state: &State) -> anyhow::Result<()> {
        let line = serde_json::to_string(state)? + "\n";
        self.failure = print(&line, Format::Json).err();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.failure.is_some()
    }

    fn end(&mut self, _: &WatchSummary) -> anyhow::Result<()> {
        let failure = self.failure.take().filter(|error| !is_closed(error));
        failure.map_or(Ok(()), Err)
    }
}
