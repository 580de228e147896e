//! Completions and man pages, from the definition of the command line.

use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory;

use crate::cli::Cli;
use crate::exit::Status;

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<Status> {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tcptoll", &mut bytes);
    std::io::stdout().lock().write_all(&bytes)?;
    Ok(Status::Met)
}

pub(crate) fn man(folder: Option<&Path>) -> anyhow::Result<Status> {
    if let Some(folder) = folder {
        clap_mangen::generate_to(Cli::command(), folder)
            .with_context(|| format!("--dir {}", folder.display()))?;
    } else {
        let mut bytes = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut bytes)?;
        std::io::stdout().lock().write_all(&bytes)?;
    }
    Ok(Status::Met)
}
