//! Which address of a name a run uses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name of a server we do not control, resolved once for the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resolved {
    /// `host:port`, the host in lower case: `db.example:5432`.
    pub name: String,
    /// Every address, in the order of the resolver's answer; an IPv6 address may have a `%scope`.
    pub addresses: Vec<String>,
    /// The address that every trial connects to: the first IPv4 address, or else the first.
    pub used: String,
}
