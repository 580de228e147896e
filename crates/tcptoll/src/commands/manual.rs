//! Man pages, from the definition of the command line.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::CommandFactory;
use tcptoll_core::study::suggestion;
use tcptoll_lab::files::{Mark, write_own};

use crate::cli::Cli;
use crate::exit::Status;

/// Writes all pages into a folder, or prints the one of a sub-command: `words` are `study`, `list`.
pub(crate) fn man(words: &[String], folder: Option<&Path>) -> anyhow::Result<Status> {
    let mut command = Cli::command().disable_help_subcommand(folder.is_some());
    // Only what is built knows that it is `tcptoll-study-list`.
    command.build();
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)
            .and_then(|()| write_pages(&command, folder))
            .with_context(|| format!("--dir {}", folder.display()))?;
        crate::output::wrote(folder);
        return Ok(Status::Met);
    }
    let mut page = &command;
    for word in words {
        let Some(inner) = page.find_subcommand(word) else {
            let names: Vec<&str> = page.get_subcommands().map(clap::Command::get_name).collect();
            if names.is_empty() {
                bail!("man {}: {} has no sub-commands", words.join(" "), page.get_name());
            }
            bail!("man {}: no such sub-command; {}", words.join(" "), suggestion(word, &names));
        };
        page = inner;
    }
    crate::stdout::data(&text(&manual_page(page))?)
}

fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, folder)?;
    }
    let page = manual_page(command);
    let path = folder.join(page.get_filename());
    write_own(&path, &text(&page)?, Mark::Beginning)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn manual_page(command: &clap::Command) -> clap_mangen::Man {
    // clap_mangen leaves out the help of what the short help does not list, unless it has a long one.
    let command = command.clone().mut_args(|argument| {
        let help = argument.get_help().filter(|_| argument.is_hide_short_help_set()).cloned();
        match help {
            Some(help) => argument.long_help(help),
            None => argument,
        }
    });
    clap_mangen::Man::new(command)
        // Without a date, what follows would be taken for it.
        .date(" ")
        .source(concat!("tcptoll ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands")
}

/// The page, with the headings that man-pages(7) gives to what our help ends with.
fn text(page: &clap_mangen::Man) -> io::Result<String> {
    let mut bytes = Vec::new();
    page.render(&mut bytes)?;
    let text = String::from_utf8(bytes).map_err(io::Error::other)?;
    Ok(match text.split_once("\n.SH EXTRA\n") {
        Some((before, end)) => format!("{before}\n{}", end_of_page(end)),
        None => text,
    })
}

/// What our help ends with: lines without a blank before them that end with a colon are headings, and lines with
/// one stay as they are, because commands among them are copied.
fn end_of_page(end: &str) -> String {
    let mut text = String::new();
    let mut is_filled = true;
    for (at, line) in end.lines().enumerate() {
        let heading = line.strip_suffix(':').filter(|_| !line.starts_with(' '));
        let fills = !line.starts_with(' ');
        if fills != is_filled {
            text += if fills { ".fi\n" } else { ".nf\n" };
            is_filled = fills;
        }
        match heading {
            Some("Examples") => text += ".SH EXAMPLES\n",
            Some("Exit status") => text += ".SH EXIT STATUS\n",
            Some(words) => {
                let _ = writeln!(text, ".SS {words}");
            }
            None => {
                if at == 0 {
                    text += ".SH NOTES\n";
                }
                text += line;
                text.push('\n');
            }
        }
    }
    if !is_filled {
        text += ".fi\n";
    }
    text
}
