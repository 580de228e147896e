//! Connections that the peer has closed and a program here has not (CLOSE-WAIT), by listening port or destination.

use std::collections::{BTreeMap, BTreeSet};

use tcptoll_kernel::connections::{Connection, Silence};

use super::Unclosed;
use super::look::UNCLOSED_MAX;

/// Groups while a dump is read, at most: sockets of further ones are not counted.
const GROUPS_MAX: usize = 1_024;
/// The age of a connection that a program has had time enough to close, s.
const OLD_S: f64 = 60.0;

/// Takes them one after the other.
#[derive(Debug)]
pub(super) struct UnclosedGroups {
    listening: BTreeSet<u16>,
    groups: BTreeMap<String, Unclosed>,
}

impl UnclosedGroups {
    pub(super) fn new(listening: impl Iterator<Item = u16>) -> Self {
        Self { listening: listening.collect(), groups: BTreeMap::new() }
    }

    /// A FIN brings an acknowledgment: since the last one the connection has been closed by the peer, and longer
    /// where probes were answered since.
    pub(super) fn add(&mut self, connection: &Connection, silence: Option<Silence>) {
        // One without a process waits in an accept queue, or is nobody's any more.
        let (Some(inode), Some(silence)) = (connection.inode, silence) else { return };
        let port = connection.local.port();
        let on = if self.listening.contains(&port) {
            format!("port {port}")
        } else {
            connection.remote.to_string()
        };
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&on) {
            return;
        }
        let age_s = silence.of_peer().as_secs_f64();
        let group =
            self.groups.entry(on.clone()).or_insert_with(|| Unclosed { on, ..Unclosed::default() });
        group.connections = group.connections.saturating_add(1);
        group.minute_old = group.minute_old.saturating_add(u32::from(age_s >= OLD_S));
        if age_s >= group.oldest_s {
            (group.oldest_s, group.inode) = (age_s, inode);
        }
    }

    /// The largest groups.
    pub(super) fn finish(self) -> Vec<Unclosed> {
        let mut all: Vec<Unclosed> = self.groups.into_values().collect();
        all.sort_by_key(|one| std::cmp::Reverse((one.minute_old, one.connections)));
        all.truncate(UNCLOSED_MAX);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn connection(local: &str, inode: Option<u64>) -> Connection {
        let remote = "10.0.0.9:443".parse().unwrap();
        Connection {
            state: 8,
            local: local.parse().unwrap(),
            remote,
            timer: None,
            expires: Duration::ZERO,
            retransmits: 0,
            receive_queue: 1,
            send_queue: 0,
            uid: 0,
            inode,
        }
    }

    #[test]
    fn they_are_counted_by_port_or_destination_with_the_age_of_the_last_packet() {
        let silent = |s| {
            let of = Duration::from_secs;
            Some(Silence { data_sent: of(900), data_received: of(900), ack_received: of(s) })
        };
        let mut groups = UnclosedGroups::new([80].into_iter());
        for (local, inode, s) in [
            ("10.0.0.1:80", 7, 59),
            ("10.0.0.1:80", 8, 60),
            ("10.0.0.1:80", 9, 61),
            ("10.0.0.1:5000", 5, 1),
        ] {
            groups.add(&connection(local, Some(inode)), silent(s));
        }
        groups.add(&connection("10.0.0.1:80", None), silent(99));
        let all = groups.finish();
        let [port, to] = &all[..] else { panic!("{all:?}") };
        assert_eq!((port.on.as_str(), port.connections, port.minute_old), ("port 80", 3, 2));
        assert_eq!((port.inode, port.oldest_s), (9, 61.0));
        assert_eq!((to.on.as_str(), to.minute_old), ("10.0.0.9:443", 0));
    }
}
