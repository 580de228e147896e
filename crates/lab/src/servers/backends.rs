//! Backends: real servers that a front service calls. Each is started in the server host, and is
//! waited for until it answers in its own protocol.
//!
//! MariaDB has no tables and no users: the front service asks `SELECT 1`. Without grant tables and without
//! InnoDB it starts in an empty folder, with no need of
//! mariadb-install-db: it answers after 0.2 s, where the installation alone takes seconds (measured
//! with 10.11). Redis keeps nothing on disk.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::socket::reset_when_closed;

use super::{Running, program};
use crate::files::RunFolder;
use crate::messages::{BackendKind, BackendServing, BackendSpec};

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
        BackendKind::Redis => find_redis(),
        BackendKind::Mariadb => find_mariadb(),
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
        BackendKind::Redis => prepare_redis(spec, &folder),
        BackendKind::Mariadb => prepare_mariadb(spec, &folder),
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

/// Clients at a time, beyond any number of workers: connections that workers have given up are still
/// accepted after a stall.
const CONNECTIONS_MAX: u32 = 100_000;

/// First byte of the greeting after its header: the version of the protocol.
const PROTOCOL: u8 = 10;

fn find_mariadb() -> Result<PathBuf, String> {
    program::find(&["mariadbd"], "mariadb-server-core")
}

fn prepare_mariadb(spec: &BackendSpec, folder: &RunFolder) -> Result<Prepared, String> {
    let program = find_mariadb()?;
    Ok(Prepared {
        name: "mariadbd",
        version: program::version(&program, "--version")?,
        arguments: arguments_mariadb(spec, folder),
        program,
        is_ready: is_ready_mariadb,
    })
}

fn arguments_mariadb(spec: &BackendSpec, folder: &RunFolder) -> Vec<String> {
    let folder = folder.path().display();
    let mut arguments = vec![
        // Only valid as the first: no file of the machine's own is read.
        "--no-defaults".to_owned(),
        format!("--datadir={folder}"),
        format!("--tmpdir={folder}"),
        format!("--socket={folder}/socket"),
        format!("--pid-file={folder}/pid"),
        format!("--port={}", spec.at.port()),
        format!("--bind-address={}", spec.at.ip()),
        format!("--back-log={}", spec.backlog),
        format!("--max-connections={CONNECTIONS_MAX}"),
        // Workers that give up count as errors of their host, which is blocked after 100 of them.
        "--max-connect-errors=4294967295".to_owned(),
    ];
    let fixed = [
        "--skip-grant-tables",
        "--skip-log-bin",
        "--skip-name-resolve",
        "--skip-innodb",
        "--default-storage-engine=Aria",
        "--aria-pagecache-buffer-size=131072",
        "--key-buffer-size=8",
        "--table-open-cache=10",
        "--performance-schema=OFF",
        "--log-warnings=0",
    ];
    arguments.extend(fixed.map(str::to_owned));
    arguments
}

/// The server speaks first: 3 bytes of length, a number, the protocol.
fn is_ready_mariadb(stream: &mut TcpStream) -> io::Result<bool> {
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting)?;
    Ok(greeting[3..] == [0, PROTOCOL])
}

/// The key that front services read.
pub(crate) const KEY: &str = "tcptoll";

/// PING, then SET of [`KEY`], in the protocol of Redis (RESP).
const QUESTION: &[u8] = b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$7\r\ntcptoll\r\n$5\r\nvalue\r\n";

const ANSWER: &[u8] = b"+PONG\r\n+OK\r\n";

fn find_redis() -> Result<PathBuf, String> {
    program::find(&["redis-server"], "redis-server")
}

fn prepare_redis(spec: &BackendSpec, folder: &RunFolder) -> Result<Prepared, String> {
    let program = find_redis()?;
    Ok(Prepared {
        name: "redis-server",
        version: program::version(&program, "--version")?,
        arguments: arguments_redis(spec, folder),
        program,
        is_ready: is_ready_redis,
    })
}

fn arguments_redis(spec: &BackendSpec, folder: &RunFolder) -> Vec<String> {
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

fn is_ready_redis(stream: &mut TcpStream) -> io::Result<bool> {
    answers(stream, QUESTION, ANSWER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::BackendKind;

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

    #[test]
    fn no_file_of_the_machine_is_read_and_the_backlog_is_set() {
        let folder = RunFolder::temporary().unwrap();
        let arguments = arguments_mariadb(&spec(BackendKind::Mariadb), &folder);
        assert_eq!(arguments[0], "--no-defaults");
        assert!(arguments.contains(&"--back-log=4".to_owned()));
        let own = arguments.iter().filter(|word| word.contains('/'));
        let path = folder.path().display().to_string();
        assert!(own.clone().count() >= 4 && own.into_iter().all(|word| word.contains(&path)));
    }

    #[test]
    fn the_backlog_is_set_and_nothing_is_written_to_disk() {
        let folder = RunFolder::temporary().unwrap();
        let words = arguments_redis(&spec(BackendKind::Redis), &folder).join(" ");
        assert!(words.starts_with("--port 6379 --bind 10.77.0.2 --tcp-backlog 4 --save  "));
        assert!(words.contains("--appendonly no --protected-mode no"), "{words}");
    }

    #[test]
    fn the_key_that_is_set_is_the_one_that_is_read() {
        let question = String::from_utf8_lossy(QUESTION);
        assert!(question.contains(&format!("${}\r\n{KEY}\r\n", KEY.len())));
    }
}
