//! What `-h` shows of a command: the options that nine users in ten need, and three examples. `--help` has all.

/// The one screen of a command.
#[derive(Clone, Copy, Debug)]
pub struct Brief {
    /// Where the list of commands has it.
    pub group: Group,
    /// What it is for, in the list of commands.
    pub line: &'static str,
    /// Options, those of every run too: name and one line.
    pub options: &'static [Row<'static>],
    /// Commands without the program's name, and what each is for.
    pub examples: &'static [Row<'static>],
}

/// What a user wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Examine this machine.
    Diagnose,
    /// Measure a server, the user's or one in the lab.
    Load,
    /// See in the lab what a setting changes.
    Setting,
    /// Read what was measured.
    Results,
}

/// A name and a line about it.
pub type Row<'a> = (&'a str, &'a str);

impl Brief {
    /// Of nothing.
    pub const NONE: Self = Self { group: Group::Setting, line: "", options: &[], examples: &[] };
}

/// The emulated link.
pub const LINK: Row<'static> = ("link", "a name (tcptoll links) or rtt=40ms,loss=1%");
/// A gate for scripts.
pub const FAIL_IF: Row<'static> = ("fail-if", "exit with 1 if it holds: 'p99 > 5ms'");
/// A page to send to others.
pub const HTML: Row<'static> = ("html", "also write a report with charts");
/// How often.
pub const ROUNDS: Row<'static> = ("rounds", "run every arm N times");
/// How long.
pub const MAX_TIME: Row<'static> =
    ("max-time", "start no round that would end after this, e.g. 2m");
/// The plan alone.
pub const DRY_RUN: Row<'static> = ("dry-run", "print what would run, and the expected time");
