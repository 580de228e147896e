//! Standard output: what every sub-command prints goes through here, in the characters of the user's locale.

use std::io;
use std::io::Write as _;

use crate::cli::Format;
use crate::exit::Status;
use crate::screen::in_locale;
use tcptoll_core::printable;
use tcptoll_lab::standard_output;

/// Prints a result: text for people, or JSON for programs.
///
/// Errors: as [`text`].
pub(crate) fn print(result: &str, format: Format) -> anyhow::Result<Status> {
    match format {
        Format::Text => text(result),
        Format::Json => data(&printable::json(result)),
    }
}

/// Prints text for people, in the characters of their locale.
///
/// Errors: standard output is closed or takes nothing. A reader that closes the pipe early is an error that ends well.
pub(crate) fn text(text: &str) -> anyhow::Result<Status> {
    data(&in_locale(text))
}

/// Prints text for programs, as it is.
///
/// Errors: as [`text`].
pub(crate) fn data(text: &str) -> anyhow::Result<Status> {
    if standard_output::was_closed() {
        return Err(io::Error::other("standard output was closed before tcptoll started").into());
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(Status::Met)
}
