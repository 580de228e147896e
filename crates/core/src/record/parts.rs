//! What experiments record of an arm beyond what every arm has, and how several rounds of it become one.
//!
//! An experiment adds its type with [`super::merge::Merge`] to a file beside this one, and a line to the table
//! below. Neither [`super::Arm`] nor [`crate::verdict::consolidate`], which puts the arm together, changes.
//! The names are keys of the arm in the JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::connections::{MessageWay, PortUse};
use super::keepalive::Keepalive;
use super::merge::{Merge, merged};
use super::pages::{PageLoads, SiteVisits};
use super::queues::{Queues, WorkerPool};
use super::transfers::{ConnectionMemory, Transfer};

/// Makes [`Own`] and its [`Merge`] of a table: the key in the JSON, and the type.
macro_rules! own {
    ($($(#[$doc:meta])* $key:ident: $part:ty,)*) => {
        /// What the arm's experiment records of it; the parts of all others are absent.
        // A struct of options, not an enum: serde reads a flattened enum that is damaged as none at
        // all, and the schema names each part.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        pub struct Own {
            $(
                $(#[$doc])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$part>,
            )*
        }

        $(
            impl From<$part> for Own {
                fn from(part: $part) -> Self {
                    Self { $key: Some(part), ..Self::default() }
                }
            }
        )*

        impl Merge for Own {
            fn merge(rounds: &[&Self]) -> Option<Self> {
                (!rounds.is_empty()).then(|| Self {
                    $($key: merged(rounds, |own| own.$key.as_ref()),)*
                })
            }
        }
    };
}

own! {
    /// How idle connections were checked, and what that found out.
    keepalive: Keepalive,
    /// Bulk data: buffers, bytes, what limited it.
    transfer: Transfer,
    /// Kernel memory of open connections.
    connection_memory: ConnectionMemory,
    /// How messages were sent and answered.
    message: MessageWay,
    /// Loads of a page.
    page: Box<PageLoads>,
    /// Queues of listeners, and what clients experienced.
    queues: Box<Queues>,
    /// Cost of connecting over the local ports in use.
    port_use: Box<PortUse>,
    /// Blocking workers and their backend.
    worker_pool: Box<WorkerPool>,
    /// Visitors of a site, and the workers of its server.
    site_visits: Box<SiteVisits>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Arm;

    #[test]
    fn a_part_is_a_key_of_the_arm_and_is_read_back_with_every_number() {
        let checked = Keepalive {
            window_s: 0.1 + 0.2,
            sockets: u64::MAX,
            processes: [1, 2],
            link_share: Some(1e-300),
            ..Keepalive::default()
        };
        let arm = Arm {
            own: checked.into(),
            errors: [("1".to_owned(), 7)].into(),
            elapsed_s: 1.0 / 3.0,
            ..Arm::default()
        };
        let json = serde_json::to_string(&arm).unwrap();
        assert_eq!(serde_json::from_str::<Arm>(&json).unwrap(), arm);
        let value = serde_json::to_value(&arm).unwrap();
        assert_eq!(value["keepalive"]["sockets"], u64::MAX);
        assert!(value.get("own").is_none());
    }

    #[test]
    fn a_damaged_part_is_an_error_and_an_unknown_one_is_ignored() {
        let mut json = serde_json::to_value(Arm::default()).unwrap();
        assert!(json.get("keepalive").is_none());
        json["telepathy"] = serde_json::json!({ "at": [1, 2] });
        assert_eq!(serde_json::from_value::<Arm>(json.clone()).unwrap(), Arm::default());
        json["keepalive"] = serde_json::json!({ "sockets": "many" });
        assert!(serde_json::from_value::<Arm>(json).is_err());
    }
}
