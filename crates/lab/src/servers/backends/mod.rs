//! Backends: real servers that a front service calls. Each is started in the server host, and is
//! waited for until it answers in its own protocol.

mod mariadb;
mod redis;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::socket::reset_when_closed;

use super::Running;
use super::program;
use super::run_folder::RunFolder;
use crate::messages::{BackendKind, BackendServing, BackendSpec};
pub(in crate::servers) use redis::KEY;

/// What each backend needs to be started.
struct Prepared {
    /// As messages call it.
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    version: String,
    /// Asks one question on a new connection. False: the answer is not the one of a backend that is
    /// ready.
    is_ready: fn(&mut TcpStream) -> io::Result<bool>,
}

/// Whether a backend's program is on this machine.
///
/// Errors: a sentence that names its Debian package.
pub(super) fn installed(kind: BackendKind) -> Result<(), String> {
    match kind {
        BackendKind::Redis => redis::find(),
        BackendKind::Mariadb => mariadb::find(),
    }
    .map(drop)
}

/// Starts a backend and waits until it answers.
///
/// Only to be called in the server host of a lab: the folder of the backend's files is mounted over
/// one of this process's mount namespace.
///
/// Errors: a sentence for the user. A program that is missing is named with its Debian package.
pub(super) fn start(spec: &BackendSpec) -> Result<(Running, BackendServing), String> {
    let begun = Instant::now();
    program::refuse_taken_port(spec.at)?;
    let folder = RunFolder::make()?;
    let prepared = match spec.kind {
        BackendKind::Redis => redis::prepare(spec, &folder),
        BackendKind::Mariadb => mariadb::prepare(spec, &folder),
    }?;
    let Prepared { name, program, arguments, version, is_ready } = prepared;
    let configuration = format!("{} {}", program.display(), arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments);
    let mut running = Running { children: Vec::new(), folder, status: None };
    let log = running.folder.file("log");
    let child = program::spawn(command, &log).map_err(|error| format!("{name}: {error}"))?;
    running.children.push(child);
    program::wait_until((name, &spec.at.to_string()), &log, &mut running.children, |left| {
        // A port on which nothing listens yet refuses.
        Ok(ask(spec.at, left, is_ready).unwrap_or(false))
    })?;
    let ready_ns = begun.elapsed().as_nanos() as u64;
    let limit = limit(name, spec.at)?;
    Ok((running, BackendServing { at: spec.at, version, configuration, limit, ready_ns }))
}

/// Asks whether a backend is ready, on a connection that leaves no TIME-WAIT.
fn ask(
    at: SocketAddr,
    limit: Duration,
    is_ready: fn(&mut TcpStream) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&at, limit)?;
    reset_when_closed(&stream)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    is_ready(&mut stream)
}

/// Sends a question, and compares the beginning of the answer.
fn answers(stream: &mut TcpStream, question: &[u8], answer: &[u8]) -> io::Result<bool> {
    stream.write_all(question)?;
    let mut got = vec![0; answer.len()];
    stream.read_exact(&mut got)?;
    Ok(got == answer)
}

/// Effective backlog of the listener.
fn limit(name: &str, at: SocketAddr) -> Result<u32, String> {
    let listeners = SockDiag::open().and_then(|mut diag| diag.listeners());
    let listeners = listeners.map_err(|error| format!("{name}: {error}"))?;
    listeners
        .iter()
        .find(|listener| listener.address.port() == at.port())
        .map(|listener| listener.accept_queue_limit)
        .ok_or_else(|| format!("{name}: no listener on {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn spec(kind: BackendKind) -> BackendSpec {
        BackendSpec { kind, at: "10.77.0.2:6379".parse().unwrap(), backlog: 4 }
    }

    #[test]
    fn another_answer_than_the_expected_one_is_not_ready() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for answer in [b"+PONG\r\n", b"-LOADIN"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = [0; 4];
                stream.read_exact(&mut question).unwrap();
                stream.write_all(answer).unwrap();
            }
        });
        let second = Duration::from_secs(20);
        let ready = |stream: &mut TcpStream| answers(stream, b"PING", b"+PONG\r\n");
        assert!(ask(at, second, ready).unwrap());
        assert!(!ask(at, second, ready).unwrap());
        server.join().unwrap();
    }
}
