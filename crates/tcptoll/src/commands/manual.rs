//! What the program says of itself: man pages and completion scripts from the definition of the command line, the named
//! links, its version.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Command, CommandFactory, ValueHint};

use super::explain;
use crate::cli::Cli;
use crate::exit::Status;
use crate::studies;
use tcptoll_core::link::{KEYS, PROFILES};
use tcptoll_core::study::suggestion;
use tcptoll_lab::files::{Mark, write_own};
use tcptoll_lab::passport;
use tcptoll_measure::experiments;

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

// Completion scripts, from the definition of the command line, with the values that options accept.

/// Placeholders of values that are files; every other one completes to no file name.
const FILES: [&str; 10] = [
    "COMMAND",
    "FILE",
    "FOLDER",
    "NAME|FILE",
    "NEW",
    "OLD",
    "PATH",
    "PID|FILE",
    "RECORD",
    "TARGET",
];

/// Prints the script of a shell.
pub(super) fn completions(shell: clap_complete::Shell) -> anyhow::Result<Status> {
    let mut bytes = Vec::new();
    let mut command = Cli::command();
    // Only what is built has all of its arguments.
    command.build();
    clap_complete::generate(shell, &mut with_values(command, ""), "tcptoll", &mut bytes);
    crate::stdout::data(&String::from_utf8(bytes)?)
}

/// The command with the values of its arguments and those of its sub-commands.
fn with_values(command: Command, above: &str) -> Command {
    let name = command.get_name().to_owned();
    let argument = |argument: Arg| {
        let accepted = values(&name, above, &argument);
        let placeholder = argument.get_value_names().and_then(|names| names.first());
        let is_file = placeholder.is_some_and(|name| FILES.contains(&name.as_str()));
        if !accepted.is_empty() {
            let accepted = accepted.into_iter().map(PossibleValue::new);
            argument.value_parser(PossibleValuesParser::new(accepted))
        } else if is_file || !argument.get_possible_values().is_empty() {
            argument
        } else {
            argument.value_hint(ValueHint::Other)
        }
    };
    command.mut_args(argument).mut_subcommands(|inner| with_values(inner, &name))
}

/// What an argument accepts, as far as it has names.
fn values(command: &str, above: &str, argument: &Arg) -> Vec<&'static str> {
    let id = argument.get_id().as_str();
    let of_experiment = experiments::find(command).and_then(|spec| spec.option(id));
    match (above, command) {
        _ if id == "link" => PROFILES.iter().map(|profile| profile.name).collect(),
        ("study", "run" | "show" | "check") | (_, "study") if argument.is_positional() => {
            studies::BUILT_IN.iter().map(|(name, _)| *name).collect()
        }
        (_, "explain") if argument.is_positional() => explain::all().collect(),
        _ => {
            let placeholder = of_experiment.map_or("", |option| option.value);
            let words: Vec<&str> = placeholder.split(',').collect();
            let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
            let are_words = words.len() > 1 && words.iter().all(is_word);
            if are_words && !placeholder.contains('=') { words } else { Vec::new() }
        }
    }
}

// `tcptoll links`: the named links, and where each figure is from.

pub(crate) fn links() -> anyhow::Result<Status> {
    let name = PROFILES.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for profile in PROFILES {
        let _ = writeln!(text, "{:name$}  {}", profile.name, profile.what);
        if profile.spec != profile.name {
            let _ = writeln!(text, "{:name$}  --link {}", "", profile.spec);
        }
        let _ = writeln!(text, "{:name$}  from: {}", "", profile.source);
    }
    text += "\nKeys, alone or after a name (--link metro,loss=1%):\n";
    for (key, what, how) in KEYS {
        let _ = writeln!(text, "{key:name$}  {what}\n{:name$}  {how}", "");
    }
    crate::stdout::text(&text)?;
    Ok(Status::Met)
}

// `tcptoll --version --verbose`: which binary is this?

/// What the environment of the build said of it. None: it was built by hand.
const COMMIT: Option<&str> = option_env!("TCPTOLL_COMMIT");

/// The profile of a build that is released.
const PROFILE: Option<&str> = option_env!("TCPTOLL_PROFILE");

/// The version; `verbose`: with commit, target, C library and what this kernel offers it.
pub(super) fn version(verbose: bool) -> String {
    let mut version = format!("tcptoll {}\n", env!("CARGO_PKG_VERSION"));
    if verbose {
        let by_hand = if cfg!(debug_assertions) { "debug" } else { "release" };
        let profile = PROFILE.unwrap_or(by_hand);
        let rows = [
            ("commit", COMMIT.unwrap_or("not recorded, built by hand").to_owned()),
            ("build", format!("{profile}, for {}", target())),
            ("libc", passport::libc().unwrap_or_else(|| "not known".to_owned())),
            ("features", features()),
        ];
        for (name, value) in rows {
            let _ = writeln!(version, "{name:<9} {value}");
        }
    }
    version
}

/// Architecture, system and C library that it was compiled for.
fn target() -> String {
    let env = if cfg!(target_env = "musl") { "musl, static" } else { "glibc" };
    format!("{} {} ({env})", std::env::consts::ARCH, std::env::consts::OS)
}

/// What is compiled in, and whether this machine allows what it may refuse.
fn features() -> String {
    let io_uring = match passport::io_uring() {
        Ok(()) => "io_uring (usable here)".to_owned(),
        Err(why) => format!("io_uring (not usable here: {why}; epoll is used)"),
    };
    format!("TLS, HTTP/2, {io_uring}")
}
