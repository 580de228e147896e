//! A program that measures by itself and reports in lines of JSON: a JVM.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::host::Launch;
use super::{Service, order};

/// Start a program that prints a line of JSON when it is ready, and another with its result when it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Perform {
    /// The program. Its standard output is read, at most 64 KiB; its standard error goes to the run's.
    pub launch: Launch,
    /// Files to write into the folder in which it runs, before it starts: name and content.
    pub files: Vec<(String, String)>,
    /// It is ended if it is not ready within this, ns.
    pub ready_limit_ns: u64,
}

order!(Perform => Performed, "perform");

impl Service for Perform {
    /// Its first line.
    type Started = Value;
}

/// What came of a [`Perform`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Performed {
    /// Its last line; absent: it printed none.
    pub result: Option<Value>,
    /// Its exit status, 128 + signal if a signal ended it.
    pub status: i32,
}
