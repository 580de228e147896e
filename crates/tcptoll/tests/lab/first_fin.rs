//! Who sent the first FIN of each connection, by the packets of a capture as `tcpdump` reads them.
//!
//! The classes do not depend on where the capture was taken: if one end's FIN acknowledges the
//! other's, the other was first; if neither does, they crossed.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// What a capture says of all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstFins {
    pub(crate) by_client: u64,
    pub(crate) by_server: u64,
    pub(crate) both: u64,
    /// Connections that lack the FIN of one end, or of both.
    pub(crate) without: u64,
    /// Sockets that must be in TIME-WAIT on the client and on the server: of the last connection of
    /// each port, as a new one takes the place of the one before.
    pub(crate) time_wait: [u64; 2],
}

/// The end of a FIN in the sequence space of its sender, and what it acknowledges.
#[derive(Clone, Copy)]
struct Fin {
    end: u32,
    acknowledges: u32,
}

#[derive(Default)]
struct Connection {
    initial: u32,
    /// Of the client and of the server; what is sent again does not count.
    fins: [Option<Fin>; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum First {
    Client,
    Server,
    Both,
}

impl Connection {
    fn first(&self) -> Option<First> {
        let [client, server] = self.fins;
        let (client, server) = (client?, server?);
        // Sequence numbers wrap.
        let covers = |fin: Fin, other: Fin| fin.acknowledges.wrapping_sub(other.end) < 1 << 31;
        Some(if covers(client, server) {
            First::Server
        } else if covers(server, client) {
            First::Client
        } else {
            First::Both
        })
    }
}

impl FirstFins {
    /// Of the connections to a port.
    pub(crate) fn read(capture: &Path, port: u16) -> anyhow::Result<Self> {
        let filter = format!("tcp port {port} and tcp[tcpflags] & (tcp-syn|tcp-fin) != 0");
        let output =
            Command::new("tcpdump").args(["-nn", "-S", "-r"]).arg(capture).arg(filter).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let server = format!(".{port}");
        let mut ports: HashMap<String, Vec<Connection>> = HashMap::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            read(line, &server, &mut ports).with_context(|| line.to_owned())?;
        }
        let mut all = Self::default();
        for connections in ports.values() {
            for first in connections.iter().map(Connection::first) {
                match first {
                    Some(First::Client) => all.by_client += 1,
                    Some(First::Server) => all.by_server += 1,
                    Some(First::Both) => all.both += 1,
                    None => all.without += 1,
                }
            }
            let last = connections.last().and_then(Connection::first);
            all.time_wait[0] += u64::from(matches!(last, Some(First::Client | First::Both)));
            all.time_wait[1] += u64::from(matches!(last, Some(First::Server | First::Both)));
        }
        Ok(all)
    }
}

/// Reads a line like `… IP 10.0.0.1.40000 > 10.0.0.2.8080: Flags [F.], seq 7:9, ack 5, …`.
fn read(
    line: &str,
    server: &str,
    ports: &mut HashMap<String, Vec<Connection>>,
) -> anyhow::Result<()> {
    let word_after = |mark: &str| {
        let (_, rest) = line.split_once(mark)?;
        rest.split([' ', ',', ':', ']']).next()
    };
    let (before, after) = line.split_once(" > ").context("no >")?;
    let from = before.rsplit(' ').next().context("no sender")?;
    let to = after.split(": ").next().context("no receiver")?;
    let by_client = to.ends_with(server);
    let connections = ports.entry(if by_client { from } else { to }.to_owned()).or_default();
    let flags = word_after("Flags [").context("no flags")?;
    let begin: u32 = word_after("seq ").context("no seq")?.parse()?;
    if flags == "S" {
        if connections.last().is_none_or(|last| last.initial != begin) {
            connections.push(Connection { initial: begin, ..Connection::default() });
        }
    } else if flags.contains('F') {
        let last: u32 = match line.split_once(&format!("seq {begin}:")) {
            Some((_, rest)) => rest.split(',').next().context("no end")?.parse()?,
            None => begin,
        };
        let acknowledges = word_after("ack ").context("no ack")?.parse()?;
        let connection = connections.last_mut().context("a FIN before a SYN")?;
        let fin = Fin { end: last.wrapping_add(1), acknowledges };
        connection.fins[usize::from(!by_client)].get_or_insert(fin);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fins_are_told_apart_by_what_they_acknowledge() {
        let first = |client: (u32, u32), server: (u32, u32)| {
            let fin = |(end, acknowledges)| Some(Fin { end, acknowledges });
            Connection { initial: 0, fins: [fin(client), fin(server)] }.first()
        };
        // The server's FIN ends at 50, the client's at 20.
        assert!(first((20, 49), (50, 20)) == Some(First::Client));
        assert!(first((20, 50), (50, 19)) == Some(First::Server));
        assert!(first((20, 49), (50, 19)) == Some(First::Both));
        assert!(first((20, 3), (u32::MAX, 19)) == Some(First::Server), "3 is after the wrap");
        assert!(Connection::default().first().is_none());
    }
}
