//! `--memory`: the figures of an arm, next to the rule of thumb for socket buffers.

mod answer;
pub(super) mod columns;

use tcptoll_core::record::{Arm, ConnectionMemory};

pub(super) use answer::conclude;

/// The memory of an arm's connections.
pub(super) fn connection_memory(arm: &Arm) -> Option<&ConnectionMemory> {
    arm.own.connection_memory.as_ref()
}

/// The rule of thumb that is in use since at least 2008: a socket takes two buffers of the size that
/// the program asked for, one to send and one to receive. Of all sockets of one host, bytes.
///
/// None: the kernel chose a buffer.
fn rule_bytes(memory: &ConnectionMemory) -> Option<f64> {
    let sockets = &memory.server;
    let asked = sockets.send_buffer.asked_bytes? + sockets.receive_buffer.asked_bytes?;
    Some(asked as f64 * memory.connections as f64)
}

/// The window that an arm asked for, if it asked the same of both buffers.
fn window_bytes(memory: &ConnectionMemory) -> Option<u64> {
    let sockets = &memory.server;
    let (send, receive) = (sockets.send_buffer.asked_bytes?, sockets.receive_buffer.asked_bytes?);
    (send == receive).then_some(send)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tcptoll_core::record::{Buffer, MemoryHeld, MemorySockets, MemoryState};

    /// An arm of connections of which a filled one queues, and keeps unread, this much of each byte
    /// asked for; `None` asked: tuned, and 700 kB and 130 kB.
    pub(crate) fn arm(name: &str, connections: u64, asked: Option<u64>, filled: f64) -> Arm {
        let sockets = |structures| MemorySockets {
            send_buffer: Buffer::new(asked, asked.map_or(87_040, |bytes| bytes * 2)),
            receive_buffer: Buffer::new(asked, asked.map_or(131_072, |bytes| bytes * 2)),
            congestion: "cubic".to_owned(),
            structures_bytes: Some(structures),
        };
        let n = connections as f64;
        let each = asked.map_or([700e3, 130e3], |bytes| [bytes as f64 * filled; 2]);
        let memory = ConnectionMemory {
            connections,
            client: sockets(4_085.0),
            server: sockets(3_829.0),
            filled: Some(MemoryState {
                client: MemoryHeld { queued_bytes: each[0] * n, ..MemoryHeld::default() },
                server: MemoryHeld { received_bytes: each[1] * n, ..MemoryHeld::default() },
                payload_bytes: each[0] * n,
                ..MemoryState::default()
            }),
            ..ConnectionMemory::default()
        };
        Arm {
            name: name.to_owned(),
            attempts: connections,
            ok: connections,
            own: memory.into(),
            ..Arm::default()
        }
    }

    #[test]
    fn the_rule_of_thumb_is_two_buffers_for_each_connection() {
        let rule = |arm: &Arm| connection_memory(arm).and_then(rule_bytes);
        // The sums of the article of 2008: 100 MB and 1 GB, counted in 1024.
        assert_eq!(rule(&arm("a", 100, Some(512 << 10), 2.1)), Some(100.0 * 1_048_576.0));
        assert_eq!(rule(&arm("a", 1_000, Some(512 << 10), 2.1)), Some(1_000.0 * 1_048_576.0));
        assert_eq!(rule(&arm("a", 100, None, 2.1)), None);
    }
}
