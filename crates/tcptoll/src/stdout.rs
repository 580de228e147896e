//! Standard output: what every sub-command prints goes through here, in the characters of the user's locale.

use std::io;
use std::io::Write as _;

use crate::cli::Format;
use crate::exit::Status;
use tcptoll_lab::standard_output;

/// Prints a result: text for people, or JSON for programs.
///
/// Errors: as [`text`].
pub(crate) fn print(result: &str, format: Format) -> anyhow::Result<Status> {
    match format {
        Format::Text => text(result),
        Format::Json => data(result),
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

/// Text for people in the characters of their locale: ASCII where that has no Unicode.
pub(crate) fn in_locale(text: &str) -> String {
    if has_unicode() { text.to_owned() } else { tcptoll_show::ascii(text) }
}

/// Whether the locale has Unicode. Where no variable names a locale, as in most containers, it is taken to have it.
pub(crate) fn has_unicode() -> bool {
    let value = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let named = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(value);
    named.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
