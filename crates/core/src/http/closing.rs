//! Who closed first, from the sockets that the kernels kept?
//!
//! A socket whose FIN did not answer another one ends in TIME-WAIT (RFC 9293, section 3.6). So of
//! connections that both ends closed by FIN, with `C` closed by the client first, `S` by the server
//! first and `B` by both (their FINs crossed), the client had `C + B` sockets in TIME-WAIT, the
//! server `S + B`, and `C + S + B` connections were made. Whether a load's connections are such is
//! decided where they are counted.

/// What was counted of one load, whose connections have all been closed by FINs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Connections that the client closed while the load ran, before it had seen the server's FIN.
    pub by_client: u64,
    /// Connections that the client closed after the server's FIN had arrived.
    pub by_server: u64,
    /// Connections still open when the load ended, which the client then closed.
    pub open_at_end: u64,
    /// Of these, connections on which the server's FIN had arrived before.
    pub ended_at_end: u64,
    /// Sockets that went into TIME-WAIT on the client, of all connections.
    pub client_time_wait: u64,
    /// Connections that left a socket in TIME-WAIT on both ends; absent if not known.
    pub both: Option<u64>,
}

impl Counted {
    /// Connections, each of which has been closed.
    pub fn made(&self) -> u64 {
        self.by_client + self.by_server + self.open_at_end
    }
}

/// Who closed first, of the connections that were closed while the load ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// The client; also both, where that is not known.
    pub by_client: u64,
    /// The server.
    pub by_server: u64,
    /// Both: their FINs crossed.
    pub both: Option<u64>,
}

/// The sockets in TIME-WAIT cannot be those of these connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Sockets in TIME-WAIT on the client that its own count of FINs allows at most.
    pub at_most: u64,
    /// Sockets in TIME-WAIT on the client.
    pub found: u64,
}

/// Connections that left a socket in TIME-WAIT on both ends, from how many each end had.
///
/// None: these are not all sockets of so many connections, which leave one at least.
pub fn crossed(made: u64, client_time_wait: u64, server_time_wait: u64) -> Option<u64> {
    client_time_wait.checked_add(server_time_wait)?.checked_sub(made)
}

/// Solves the equations of this module.
///
/// Connections that were open at the end are taken to have been closed first by the client, but for
/// those whose server's FIN had arrived.
///
/// Errors: the client has more sockets in TIME-WAIT than connections on which it saw no FIN of the
/// server, or fewer than the connections that both closed.
pub fn first(counted: &Counted) -> Result<First, Disagreement> {
    let Counted { by_client, by_server, client_time_wait: found, both, .. } = *counted;
    // A FIN that had arrived before the client closed came first; some it did not see.
    let at_most = by_client + counted.open_at_end.saturating_sub(counted.ended_at_end);
    let solved = || {
        let unseen = at_most.checked_sub(found)?;
        let by_client = by_client.checked_sub(unseen)?.checked_sub(both.unwrap_or(0))?;
        Some(First { by_client, by_server: by_server + unseen, both })
    };
    solved().ok_or(Disagreement { at_most, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_counts_give_three_classes() {
        // 100 closed and 4 open: 60 by the client first, 30 by the server, 10 by both; of the 30
        // FINs of the server the client saw 28.
        let counted = Counted {
            by_client: 72,
            by_server: 28,
            open_at_end: 4,
            ended_at_end: 0,
            client_time_wait: 60 + 10 + 4,
            both: crossed(104, 60 + 10 + 4, 30 + 10),
        };
        let wanted = Ok(First { by_client: 60, by_server: 30, both: Some(10) });
        assert_eq!((counted.both, first(&counted)), (Some(10), wanted));
        // On one of the four the server's FIN had come.
        let counted = Counted { ended_at_end: 1, client_time_wait: 60 + 10 + 3, ..counted };
        assert_eq!(first(&counted), wanted);
    }

    #[test]
    fn the_client_s_end_alone_tells_the_server_from_the_rest() {
        let counted =
            Counted { by_client: 72, by_server: 28, client_time_wait: 70, ..Counted::default() };
        assert_eq!(first(&counted), Ok(First { by_client: 70, by_server: 30, both: None }));
    }

    #[test]
    fn one_end_alone_may_close_all_of_them() {
        let closed_first = |by_client, by_server, client_time_wait, server_time_wait| {
            let both = crossed(by_client + by_server, client_time_wait, server_time_wait);
            first(&Counted { by_client, by_server, client_time_wait, both, ..Counted::default() })
        };
        let wanted =
            |by_client, by_server, both| Ok(First { by_client, by_server, both: Some(both) });
        assert_eq!(closed_first(0, 9, 0, 9), wanted(0, 9, 0));
        assert_eq!(closed_first(9, 0, 9, 0), wanted(9, 0, 0));
        assert_eq!(closed_first(9, 0, 9, 9), wanted(0, 0, 9));
        assert_eq!(closed_first(9, 0, 0, 9), wanted(0, 9, 0));
        assert_eq!(closed_first(0, 0, 0, 0), wanted(0, 0, 0));
    }

    #[test]
    fn sockets_that_cannot_be_of_these_connections_are_a_disagreement() {
        let counted = Counted { by_client: 5, by_server: 5, ..Counted::default() };
        let many = Counted { client_time_wait: 6, ..counted };
        assert_eq!(first(&many), Err(Disagreement { at_most: 5, found: 6 }));
        let crossed_more = Counted { client_time_wait: 3, both: Some(4), ..counted };
        assert_eq!(first(&crossed_more), Err(Disagreement { at_most: 5, found: 3 }));
        // Fewer than the connections that were open: more than the closed ones lack.
        let few = Counted { open_at_end: 4, client_time_wait: 3, ..counted };
        assert_eq!(first(&few), Err(Disagreement { at_most: 9, found: 3 }));
        assert_eq!(crossed(10, 4, 5), None);
    }
}
