//! Completions and man pages, from the definition of the command line.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::CommandFactory;
use tcptoll_model::study::suggestion;

use crate::cli::Cli;
use crate::exit::Status;

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<Status> {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tcptoll", &mut bytes);
    std::io::stdout().lock().write_all(&bytes)?;
    Ok(Status::Met)
}

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
    std::io::stdout().lock().write_all(text(&manual_page(page))?.as_bytes())?;
    Ok(Status::Met)
}

fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, folder)?;
    }
    let page = manual_page(command);
    std::fs::write(folder.join(page.get_filename()), text(&page)?)
}

fn manual_page(command: &clap::Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command.clone())
        // Without a date, what follows would be taken for it.
        .date(" ")
        .source(concat!("tcptoll ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands")
}

/// The page, with the heading that man-pages(7) gives to what our help ends with. Commands in it have neither hyphens
/// nor blanks that were not typed.
fn text(page: &clap_mangen::Man) -> io::Result<String> {
    let mut bytes = Vec::new();
    page.render(&mut bytes)?;
    let text = String::from_utf8(bytes).map_err(io::Error::other)?;
    Ok(text.replace("\n.SH EXTRA\n", "\n.SH EXAMPLES\n.nh\n.ad l\n"))
}
