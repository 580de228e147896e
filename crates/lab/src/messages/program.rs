//! A program that measures by itself and reports in lines of JSON: a JVM.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::host::Launch;
use super::{Service, order};

/// Start a program that prints a line of JSON when it is ready, and another with its result when it ends.
///
/// It ends by itself, or is killed when it is stopped, when its time is up, or with the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Perform {
    /// The program. Its standard output is read, at most 32 KiB; an error quotes the end of its
    /// standard error.
    pub launch: Launch,
    /// Debian's package of the program, for the error where it is not installed.
    pub package: String,
    /// Files to write into the folder in which it runs, before it starts: name and content.
    pub files: Vec<(String, String)>,
    /// It is killed if it is not ready within this, ns.
    pub ready_limit_ns: u64,
    /// It is killed if it has not ended within this after it was ready, ns.
    pub end_limit_ns: u64,
}

order!(Perform => Performed, "perform");

impl Service for Perform {
    /// Its first line.
    type Started = Value;
}

/// What came of a [`Perform`]. A program that fails, or prints no result, is a refusal instead.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Performed {
    /// Its last line; absent: it was stopped before its end.
    pub result: Option<Value>,
}
