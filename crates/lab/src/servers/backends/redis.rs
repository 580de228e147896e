//! Redis: its command line. It keeps nothing on disk.

use std::io;
use std::net::TcpStream;
use std::path::PathBuf;

use super::super::program;
use super::super::run_folder::RunFolder;
use super::{Prepared, answers};
use crate::messages::BackendSpec;

/// The key that front services read.
pub(crate) const KEY: &str = "tcptoll";

/// PING, then SET of [`KEY`], in the protocol of Redis (RESP).
const QUESTION: &[u8] = b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$7\r\ntcptoll\r\n$5\r\nvalue\r\n";

const ANSWER: &[u8] = b"+PONG\r\n+OK\r\n";

pub(super) fn find() -> Result<PathBuf, String> {
    program::find(&["redis-server"], "redis-server")
}

pub(super) fn prepare(spec: &BackendSpec, folder: &RunFolder) -> Result<Prepared, String> {
    let program = find()?;
    Ok(Prepared {
        name: "redis-server",
        version: program::version(&program, "--version")?,
        arguments: arguments(spec, folder),
        program,
        is_ready,
    })
}

fn arguments(spec: &BackendSpec, folder: &RunFolder) -> Vec<String> {
    let options = [
        ("port", spec.at.port().to_string()),
        ("bind", spec.at.ip().to_string()),
        ("tcp-backlog", spec.backlog.to_string()),
        ("save", String::new()),
        ("appendonly", "no".to_owned()),
        ("protected-mode", "no".to_owned()),
        // No probes of idle connections among the packets.
        ("tcp-keepalive", "0".to_owned()),
        ("loglevel", "warning".to_owned()),
        ("dir", folder.path().display().to_string()),
    ];
    options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
}

fn is_ready(stream: &mut TcpStream) -> io::Result<bool> {
    answers(stream, QUESTION, ANSWER)
}

#[cfg(test)]
mod tests {
    use super::super::tests::spec;
    use super::*;
    use crate::messages::BackendKind;

    #[test]
    fn the_backlog_is_set_and_nothing_is_written_to_disk() {
        let folder = RunFolder::temporary().unwrap();
        let words = arguments(&spec(BackendKind::Redis), &folder).join(" ");
        assert!(words.starts_with("--port 6379 --bind 10.77.0.2 --tcp-backlog 4 --save  "));
        assert!(words.contains("--appendonly no --protected-mode no"), "{words}");
    }

    #[test]
    fn the_key_that_is_set_is_the_one_that_is_read() {
        let question = String::from_utf8_lossy(QUESTION);
        assert!(question.contains(&format!("${}\r\n{KEY}\r\n", KEY.len())));
    }
}
