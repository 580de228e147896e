//! A page whose resources are known before it is loaded: of a HAR file, of a load that was
//! measured, or of a page that the lab makes.

use serde::{Deserialize, Serialize};

use super::resource::{Kind, Priority};

/// A page's resources and what each waits for. The first one is the document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// In an order in which each comes after its initiator.
    pub resources: Vec<Resource>,
}

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Its URL.
    pub url: String,
    /// What it is to the page.
    pub kind: Kind,
    /// How urgent.
    pub priority: Priority,
    /// Whether rendering waits for it.
    pub blocking: bool,
    /// What makes it known. None: it is the document.
    pub initiator: Option<Initiator>,
    /// Status of its response.
    pub status: u16,
    /// Content on the wire, bytes.
    pub body_bytes: u64,
    /// Time that the server takes before the first byte, µs.
    pub server_us: u64,
}

/// When a resource becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Initiator {
    /// The resource that names it, by number; smaller than its own.
    pub resource: u32,
    /// Bytes of that one's content that must have arrived. None: all of it.
    pub at_byte: Option<u64>,
    /// Time after that, µs: a script's, as a HAR file shows it.
    pub delay_us: u64,
}
