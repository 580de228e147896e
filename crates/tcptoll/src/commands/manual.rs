//! Completions and man pages, from the definition of the command line.

use std::io::Write;
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
    let mut command = Cli::command();
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command, folder))
            .with_context(|| format!("--dir {}", folder.display()))?;
        crate::output::wrote(folder);
        return Ok(Status::Met);
    }
    // Only what is built knows that it is `tcptoll-study-list`.
    command.build();
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
    let mut bytes = Vec::new();
    clap_mangen::Man::new(page.clone()).render(&mut bytes)?;
    std::io::stdout().lock().write_all(&bytes)?;
    Ok(Status::Met)
}
