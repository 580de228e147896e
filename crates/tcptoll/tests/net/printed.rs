//! What is printed for the asking: help, schemas, man pages, completions, studies, links, explanations.

use std::fmt::Write as _;
use std::path::Path;

use crate::program::{Program, entry, line};
use crate::{concurrently, frozen, pretty};

/// Every command and sub-command, the program itself first, as its own help lists them.
pub(crate) fn commands() -> Vec<Vec<String>> {
    let program = Program::new();
    let mut found = vec![Vec::new()];
    let mut at = 0;
    while at < found.len() {
        let words: Vec<String> = found[at].clone();
        let help = program.printed(&long_help(&words));
        let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let lines = lines.take_while(|line| !line.is_empty());
        let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let names = names.filter(|name| !name.is_empty() && *name != "help");
        found.extend(names.map(|name| [words.clone(), vec![name.to_owned()]].concat()));
        at += 1;
    }
    assert!(found.len() > 25, "{found:?}");
    found
}

/// The command line that prints all of a command's help: that of the program itself is a screen.
fn long_help(words: &[String]) -> Vec<String> {
    if words.is_empty() {
        return vec!["help".to_owned()];
    }
    [words, &["--help".to_owned()]].concat()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// Length and fingerprint of what is long and follows from what is frozen elsewhere.
pub(crate) fn mark(text: &str) -> String {
    format!("{:7} bytes {}", text.len(), pretty::fingerprint(text))
}

/// Lines of a table: a command, and the mark of what it prints.
fn marks(locale: &str, commands: &[Vec<String>]) -> String {
    let rows = concurrently(commands, |program, words| {
        let ran = program.run_in(locale, words);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{words:?}");
        format!("{} {}\n", mark(&ran.stdout), line(words))
    });
    rows.concat()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn long_help_is_that_of_the_reference() {
    let reference = std::fs::read_to_string(repository().join("docs/reference/cli.md")).unwrap();
    let commands = commands();
    let texts = concurrently(&commands, |program, words| {
        let help = program.printed(&long_help(words));
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let title = [vec!["tcptoll".to_owned()], words.clone()].concat().join(" ");
        format!("\n## {title}\n\n```text\n{}\n```\n", lines.join("\n").trim_end())
    });
    let (_, sections) = reference.split_once("\n## ").unwrap();
    are_sections(&texts, sections, &commands);
}

/// Each section is there, and nothing else.
fn are_sections(texts: &[String], sections: &str, commands: &[Vec<String>]) {
    let sections = format!("\n## {sections}");
    for (text, words) in texts.iter().zip(commands) {
        assert!(sections.contains(text), "{words:?}; `cargo xtask docs` writes:\n{text}");
    }
    assert_eq!(sections.len(), texts.iter().map(String::len).sum::<usize>(), "a section too many");
}

#[test]
fn schemas_are_those_of_the_reference() {
    let program = Program::new();
    for name in ["doctor", "study", "summary", "tune", "watch", "watch-report"] {
        let path = repository().join(format!("docs/reference/{name}.schema.json"));
        let published = std::fs::read_to_string(path).unwrap();
        assert_eq!(program.printed(&["schema", name]).trim_end(), published.trim_end(), "{name}");
    }
    assert_eq!(program.printed(&["schema"]), program.printed(&["schema", "summary"]));
}

/// Texts of the help stand in the reference.
#[test]
fn experiments_are_described_as_before() {
    let whole = Program::new().printed(&["schema", "experiments"]);
    let in_help = ["\"help\":", "\"examples\":", "\"about\":"];
    let rest =
        whole.lines().filter(|line| !in_help.iter().any(|key| line.trim_start().starts_with(key)));
    let rest: Vec<&str> = rest.collect();
    frozen("experiments", &format!("{} in whole\n{}\n", mark(&whole), rest.join("\n")));
}

/// What follows from the long help and the descriptions of experiments.
#[test]
fn short_help_man_pages_completions_and_ascii_are_as_before() {
    let shells = ["bash", "elvish", "fish", "powershell", "zsh"];
    let mut all: Vec<_> = shells.map(|shell| words(&format!("completions {shell}"))).into();
    for command in commands() {
        all.push([command.clone(), words("-h")].concat());
        all.push([words("man"), command].concat());
    }
    let help = commands().into_iter().map(|command| [command, words("--help")].concat());
    let others = ["study list", "links", "explain", "study check backlog", "connect --dry-run"];
    let in_ascii: Vec<_> = help.chain(others.map(words)).collect();
    let program = Program::new();
    assert_eq!(program.run(&["man", "--dir", "pages"]).status, Some(0));
    let mut pages: Vec<_> = std::fs::read_dir(program.folder().join("pages")).unwrap().collect();
    pages.sort_by_key(|page| page.as_ref().unwrap().file_name());
    let pages = pages.into_iter().map(|page| {
        let page = page.unwrap();
        let text = std::fs::read_to_string(page.path()).unwrap();
        format!("{} {}\n", mark(&text), page.file_name().display())
    });
    let (unicode, ascii) = (marks("C.UTF-8", &all), marks("C", &in_ascii));
    let pages: String = pages.collect();
    frozen("marks", &format!("{unicode}\nLC_ALL=C\n{ascii}\nman --dir\n{pages}"));
}

/// Every name that the index has.
fn explained() -> Vec<String> {
    let index = Program::new().printed(&["explain"]);
    // A name and its phrase, which begins in column 31.
    let rows = index.lines().filter(|line| line.get(29..31) == Some("  "));
    let names: Vec<String> =
        rows.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert!(names.len() > 90, "{names:?}");
    names
}

#[test]
fn every_name_is_explained_as_before() {
    let mut all = vec![vec!["explain".to_owned()]];
    for name in explained() {
        all.push(vec!["explain".to_owned(), name.clone()]);
        all.push(["explain", &name, "--long"].map(str::to_owned).into());
    }
    frozen("explain", &concurrently(&all, |program, words| entry(program, words)).concat());
}

#[test]
fn errors_of_the_kernel_are_explained_as_before() {
    let errors = [
        "EADDRNOTAVAIL",
        "EADDRINUSE",
        "ECONNREFUSED",
        "ECONNRESET",
        "ETIMEDOUT",
        "EPIPE",
        "EMFILE",
        "ENFILE",
        "EHOSTUNREACH",
        "ENETUNREACH",
        "ENOBUFS",
        "ENOMEM",
        "EAGAIN",
        "ECONNABORTED",
        "EACCES",
        "ENOTCONN",
        "99",
        "connection refused",
        "Connection reset by peer",
        "Cannot assign requested address",
        "broken pipe",
        "too many open files",
        "connection timed out",
        "no route to host",
        "possible SYN flooding",
        "nf_conntrack: table full, dropping packet",
        "upstream timed out",
        "502",
        "CLOSE_WAIT",
        "TIME-WAIT",
        "sH--",
        "ECONNRFUSED",
        "ephemeral port",
        "x",
        "",
        "accept-quue-full",
    ];
    let said = concurrently(&errors, |program, error| entry(program, &["explain", error]));
    frozen("explain-errors", &said.concat());
}

/// Names of the built-in studies.
fn studies(program: &Program) -> Vec<String> {
    let list = program.printed(&["study", "list"]);
    // After a head and an empty line; the studies of the tour are one line.
    let names = list.lines().skip_while(|line| !line.is_empty()).skip(1);
    let names = names.filter_map(|line| line.split(' ').next());
    let mut names: Vec<String> =
        names.filter(|name| *name != "tour-*").map(str::to_owned).collect();
    for part in
        ["buffers", "connect", "dead-peer", "nagle", "page", "ports", "queue", "reuse", "verdict"]
    {
        names.push(format!("tour-{part}"));
    }
    assert!(names.len() > 30, "{names:?}");
    names
}

#[test]
fn studies_are_listed_and_checked_as_before() {
    let program = Program::new();
    let plans = concurrently(&studies(&program), |program, name| {
        let plan = program.printed(&["study", "check", name, "--format", "json"]);
        let mut said = entry(program, &["study", "check", name]);
        writeln!(said, "as JSON:\n{}\n", pretty::json(plan.trim_end())).unwrap();
        said
    });
    let lists = entry(&program, &["study", "list"]) + &entry(&program, &["links"]);
    frozen("studies", &(lists + &plans.concat()));
}

#[test]
fn a_study_is_shown_as_its_file() {
    let program = Program::new();
    for name in studies(&program) {
        let file = repository().join(format!("studies/{name}.toml"));
        assert_eq!(
            program.printed(&["study", "show", &name]),
            std::fs::read_to_string(file).unwrap()
        );
    }
}

#[test]
fn the_version_is_printed_as_before() {
    let version = concat!("tcptoll ", env!("CARGO_PKG_VERSION"), "\n");
    for option in ["--version", "-V"] {
        assert_eq!(Program::new().printed(&[option]), version);
    }
}
