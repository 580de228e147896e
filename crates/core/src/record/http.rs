//! What only `http` records of an arm.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::merge::{Merge, sum};

/// Who closed connections first while the load ran. The sockets in TIME-WAIT that this left are the
/// metrics `client_time_wait` and `server_time_wait`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Closing {
    /// Connections that the client closed first: its FIN did not acknowledge the server's. Where
    /// `both` is absent, those are among them whose FINs crossed.
    pub by_client: u64,
    /// Connections that the server closed first, or reset.
    pub by_server: u64,
    /// Connections that both closed first: their FINs crossed and neither acknowledges the other, so
    /// both ends hold TIME-WAIT. Absent where only the client's end could be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both: Option<u64>,
    /// Of those that the server closed: while no request was under way on them, as its keep-alive
    /// time was over.
    pub while_idle: u64,
    /// Times the client asked with `Connection: close` and the server did not close: the client
    /// did, the first times after half a second, then at once.
    pub ignored: u64,
    /// Connections still open when the load ended. They are in no other count here; the client
    /// closed them before TIME-WAIT was counted, so their sockets are in `client_time_wait`.
    pub open_at_end: u64,
}

impl Closing {
    /// Connections that were closed while the load ran.
    pub fn closed(&self) -> u64 {
        self.by_client.saturating_add(self.by_server).saturating_add(self.both.unwrap_or(0))
    }
}

impl Merge for Closing {
    /// The sums.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let total = |count: fn(&Self) -> u64| sum(rounds.iter().map(|closing| count(closing)));
        // Where it is not known of every trial, what is known of some is not told apart either.
        let crossed: Option<Vec<u64>> = rounds.iter().map(|closing| closing.both).collect();
        let both = crossed.map(|counts| sum(counts.into_iter()));
        let unknown = if both.is_some() { 0 } else { sum(rounds.iter().filter_map(|c| c.both)) };
        (!rounds.is_empty()).then(|| Self {
            by_client: total(|closing| closing.by_client).saturating_add(unknown),
            by_server: total(|closing| closing.by_server),
            while_idle: total(|closing| closing.while_idle),
            ignored: total(|closing| closing.ignored),
            open_at_end: total(|closing| closing.open_at_end),
            both,
        })
    }
}
