//! The commands that README and guides print, where every server is installed and where none is.

use std::fs;
use std::path::Path;
use std::process::Command;

use tcptoll_measure::experiments;

use crate::support::{lacks, not_root, on_a_bare_machine, run};

/// What a reader puts in place of a word in capitals.
const PLACES: [(&str, &str); 2] = [("HOST:PORT", "127.0.0.1:9"), ("URL", "http://127.0.0.1:9/")];
/// Commands about these begin with something that a reader has, and no test.
const OF_THE_READER: [&str; 4] = ["FOLDER", "NAME", ".toml", "ssh://"];

/// Commands of README, guides and pages of experiments: those of experiments as `--dry-run`, and what tells of studies.
fn documented() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = ["docs/guide", "docs/experiments"].iter().flat_map(|folder| {
        fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path())
    });
    let mut commands = Vec::new();
    for page in pages.chain([root.join("README.md")]) {
        let text = fs::read_to_string(page).unwrap().replace("\\\n", " ");
        let in_blocks = text
            .split("```sh\n")
            .skip(1)
            .flat_map(|block| block.split("```").next().unwrap_or_default().lines().map(str::trim));
        let in_tables = text
            .lines()
            .filter(|line| line.starts_with('|'))
            .flat_map(|line| line.split('`').skip(1).step_by(2));
        commands.extend(in_blocks.chain(in_tables).filter_map(tried));
    }
    commands.sort();
    commands.dedup();
    commands
}

/// What stands before a pipe, a redirection, a second command or a comment of the shell.
fn first_command(line: &str) -> &str {
    let mut quote = None;
    for (at, sign) in line.char_indices() {
        match quote {
            Some(open) => quote = (sign != open).then_some(open),
            None if matches!(sign, '\'' | '"') => quote = Some(sign),
            None if matches!(sign, '|' | '>' | ';' | '#') => return &line[..at],
            None => {}
        }
    }
    line
}

/// A printed line as it is tried, if it is one of those that are.
fn tried(line: &str) -> Option<String> {
    let line = first_command(line).trim();
    let name = line.strip_prefix("tcptoll ")?.split(' ').next()?;
    let mut line = line.to_owned();
    for (place, word) in PLACES {
        line = line.replace(place, word);
    }
    if OF_THE_READER.iter().any(|word| line.contains(word)) {
        return None;
    }
    let plans = experiments::find(name).is_some();
    if plans && !line.contains("--dry-run") {
        line += " --dry-run";
    }
    (plans || matches!(line.as_str(), "tcptoll study list" | "tcptoll runs" | "tcptoll explain"))
        .then_some(line)
}

#[test]
fn every_documented_command_is_accepted_or_names_the_package_that_it_needs() {
    if not_root() || lacks(&["unshare", "mount"]) {
        return;
    }
    let commands = documented();
    assert!(commands.len() > 30, "{}", commands.len());
    let mut without = 0;
    for line in &commands {
        let program = env!("CARGO_BIN_EXE_tcptoll");
        let script =
            format!("export XDG_DATA_HOME=/nowhere\ntcptoll() {{ '{program}' \"$@\"; }}\n{line}");
        let shell = ["/bin/sh", "-c", &script];
        let full = run(Command::new(shell[0]).args(&shell[1..]));
        assert_eq!(full.status, Some(0), "{line}: {}", full.stderr);
        let bare = on_a_bare_machine(&shell);
        let package = bare.stderr.contains(" is not installed: apt-get install ");
        assert!(
            bare.status == Some(0) || bare.status == Some(2) && package,
            "{line}: {}",
            bare.stderr
        );
        without += usize::from(bare.status == Some(0));
    }
    assert!(without * 10 > commands.len() * 9, "only {without} of {} need nothing", commands.len());
}
