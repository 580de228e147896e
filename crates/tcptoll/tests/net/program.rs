//! Runs the program in an empty folder, with an environment that is the same on every machine.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// After this a kernel that refuses a congestion control says what it has.
const AVAILABLE: &str = "(os error 2)); available: ";

/// Servers that are looked for, so that it does not matter which ones this machine has. They only say a version.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/net/programs");

/// The program in a folder of its own, which is its home too.
pub(crate) struct Program {
    folder: TempDir,
}

/// What came of a command.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ran {
    /// `None`: a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.folder().join(name), content).unwrap();
    }

    /// Without a terminal: 100 columns for help, 80 for all else.
    pub(crate) fn run<S: AsRef<str>>(&self, args: &[S]) -> Ran {
        self.run_in("C.UTF-8", args)
    }

    pub(crate) fn run_in<S: AsRef<str>>(&self, locale: &str, args: &[S]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_tcptoll"))
            .arg0("tcptoll")
            .args(args.iter().map(AsRef::as_ref))
            .env_clear()
            .envs([("COLUMNS", "100"), ("LC_ALL", locale), ("TZ", "UTC"), ("TERM", "dumb")])
            .env("HOME", self.folder())
            .env("PATH", PROGRAMS)
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let ran = Ran {
            status: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran.anywhere(self.folder())
    }

    /// What a command prints that has to succeed.
    pub(crate) fn printed<S: AsRef<str>>(&self, args: &[S]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{}", line(args));
        ran.stdout
    }
}

impl Ran {
    /// Without what this folder and this kernel are called.
    fn anywhere(mut self, folder: &Path) -> Self {
        self.stdout = self.stdout.replace(folder.to_str().unwrap(), "FOLDER");
        self.stderr = self.stderr.replace(folder.to_str().unwrap(), "FOLDER");
        if let Some((before, names)) = self.stderr.split_once(AVAILABLE) {
            let after = names.find('\n').map_or("", |at| &names[at..]);
            self.stderr = format!("{before}{AVAILABLE}…{after}");
        }
        self
    }

    /// Both streams, and the status unless it is 0.
    pub(crate) fn said(&self) -> String {
        let mut said = self.stdout.clone() + &self.stderr;
        if !said.is_empty() && !said.ends_with('\n') {
            said.push_str("(no end of line)\n");
        }
        match self.status {
            Some(0) => {}
            Some(status) => writeln!(said, "exit status {status}").unwrap(),
            None => said.push_str("ended by a signal\n"),
        }
        said
    }
}

/// The words as they would be typed, as far as a reader needs.
pub(crate) fn line<S: AsRef<str>>(words: &[S]) -> String {
    let quoted = |word: &str| {
        let plain = !word.is_empty() && !word.contains(|c: char| c == ' ' || c.is_control());
        if plain { word.to_owned() } else { format!("'{}'", word.escape_debug()) }
    };
    words.iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// A command, and what came of it.
pub(crate) fn entry<S: AsRef<str>>(program: &Program, args: &[S]) -> String {
    format!("$ tcptoll {}\n{}\n", line(args), program.run(args).said())
}
