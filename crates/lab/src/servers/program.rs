//! Programs of others: found, asked for their version, started, waited for.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tcptoll_kernel::process;
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::socket::reset_when_closed;

use super::SERVER_UID;
use super::certificate::Certificate;
use crate::messages::Launch;

/// A server must answer within this. Puma on a slow machine needs seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Lines of the log that a failure quotes.
const QUOTED: usize = 6;

/// Folders of servers that ordinary users often do not have in their `PATH`.
const SERVER_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Finds the first of these programs.
///
/// Errors: what to type where none is there.
pub(super) fn find(names: &[&str], package: &str) -> Result<PathBuf, String> {
    find_in(&env::var_os("PATH").unwrap_or_default(), &SERVER_FOLDERS, names, package)
}

fn find_in(
    path: &OsStr,
    further: &[&str],
    names: &[&str],
    package: &str,
) -> Result<PathBuf, String> {
    let folders: Vec<PathBuf> =
        env::split_paths(path).chain(further.iter().map(PathBuf::from)).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            let name = names.first().copied().unwrap_or_default();
            format!("{name} is not installed: apt-get install {package}")
        })
}

/// First line that a program prints of its version, wherever it prints it.
pub(super) fn version(program: &Path, argument: &str) -> Result<String, String> {
    let output = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{} {argument}: {error}", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned())
}

/// A line for the shell, or a program and its arguments.
pub(crate) fn command(launch: &Launch) -> Command {
    let mut command = match launch.words.as_slice() {
        [line] if launch.shell => {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            shell
        }
        words => {
            let mut program = Command::new(words.first().map_or("", String::as_str));
            program.args(words.get(1..).unwrap_or_default());
            program
        }
    };
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    if launch.ordinary_user {
        process::as_ordinary_user(&mut command, SERVER_UID);
    } else {
        process::restore_signals(&mut command);
    }
    command
}

/// Starts a server as an ordinary user and the leader of a process group; what it prints goes to
/// its log.
pub(super) fn spawn(mut command: Command, log: &Path) -> io::Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    process::as_ordinary_user(&mut command, SERVER_UID);
    command.spawn().map_err(|error| match error.kind() {
        // What a limit of namespaces looks like, which has nothing to do with a disk.
        io::ErrorKind::StorageFull => io::Error::other(
            "user.max_user_namespaces is reached, so it cannot run as an ordinary user: sudo sysctl \
             user.max_user_namespaces=10000",
        ),
        _ => error,
    })
}

/// Refuses a port on which something listens already: with `SO_REUSEPORT` the kernel would let a
/// second server have it too, and spread connections over both.
pub(super) fn refuse_taken_port(at: SocketAddr) -> Result<(), String> {
    let mut diag = SockDiag::open().map_err(|error| error.to_string())?;
    let listeners = diag.listeners().map_err(|error| error.to_string())?;
    if listeners.iter().any(|one| one.address.port() == at.port()) {
        return Err(format!("port {} of the server host is already in use", at.port()));
    }
    Ok(())
}

/// Waits until every process listens and a request is answered with success.
pub(super) fn wait_until_it_answers(
    name: &str,
    (at, path): (SocketAddr, &str),
    tls: Option<&Certificate>,
    log: &Path,
    children: &mut [Child],
) -> Result<(), String> {
    let mut diag = SockDiag::open().map_err(|error| error.to_string())?;
    let processes = children.len();
    wait_until((name, &at.to_string()), log, children, |left| {
        let listeners = diag.listeners().map_err(|error| format!("listeners: {error}"))?;
        let ours = listeners.iter().filter(|one| one.address.port() == at.port()).count();
        if ours < processes {
            return Ok(false);
        }
        match answer((at, path), tls, left) {
            Ok(status) if status == b"HTTP/1.1 200" => Ok(true),
            Ok(status) if !status.is_empty() => {
                let status = String::from_utf8_lossy(&status).into_owned();
                Err(format!("answers {status:?} to the first request"))
            }
            // Not there yet.
            Ok(_) | Err(_) => Ok(false),
        }
    })
}

/// Asks again and again whether a server is ready, and gives the question the time that is left.
///
/// Errors: the server ended or was not ready in time, or the question failed. Each quotes the log.
pub(super) fn wait_until(
    (name, at): (&str, &str),
    log: &Path,
    children: &mut [Child],
    mut is_ready: impl FnMut(Duration) -> Result<bool, String>,
) -> Result<(), String> {
    let failed = |what: String| format!("{name} {what}{}", quoted(log));
    let begun = Instant::now();
    loop {
        for child in &mut *children {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                return Err(failed(format!("ended before it answered ({status})")));
            }
        }
        let Some(left) = ANSWER_LIMIT.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
        else {
            let limit = ANSWER_LIMIT.as_secs();
            return Err(failed(format!("does not answer on {at} within {limit} s")));
        };
        if is_ready(left).map_err(failed)? {
            return Ok(());
        }
        // Not for luck: the question is asked again until it is answered or time is up.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The first 12 bytes that come back for a request, fewer if the server closes.
fn answer(
    (at, path): (SocketAddr, &str),
    tls: Option<&Certificate>,
    limit: Duration,
) -> io::Result<Vec<u8>> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut stream = TcpStream::connect_timeout(&at, limit)?;
    // No TIME-WAIT of this question is left on the host that is about to be measured.
    reset_when_closed(&stream)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let mut status = Vec::new();
    let Some(certificate) = tls else {
        stream.write_all(request.as_bytes())?;
        stream.take(12).read_to_end(&mut status)?;
        return Ok(status);
    };
    let mut session = certificate.client(at.ip()).map_err(io::Error::other)?;
    let mut stream = rustls::Stream::new(&mut session, &mut stream);
    stream.write_all(request.as_bytes())?;
    stream.take(12).read_to_end(&mut status)?;
    Ok(status)
}

/// The end of a log, for a message.
fn quoted(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // Indented lines are where in a program it happened.
    let said = |line: &&str| line.starts_with(|first: char| !first.is_whitespace());
    let lines: Vec<&str> = text.lines().filter(said).collect();
    let last = lines.iter().skip(lines.len().saturating_sub(QUOTED));
    last.fold(String::new(), |text, line| text + "\n  " + line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = find_in(OsStr::new(""), &[], &["nginx"], "nginx-light").unwrap_err();
        assert_eq!(error, "nginx is not installed: apt-get install nginx-light");
    }

    #[test]
    fn a_program_is_found_outside_the_path_too() {
        let found = find_in(OsStr::new(""), &["/nonexistent", "/bin"], &["none", "sh"], "-");
        assert_eq!(found, Ok(PathBuf::from("/bin/sh")));
    }

    #[test]
    fn a_failure_quotes_the_end_of_the_log() {
        assert_eq!(quoted(Path::new("/nonexistent")), "");
        let log = env::temp_dir().join(format!("tcptoll-quoted-{}", std::process::id()));
        fs::write(&log, "1\n2\n\n3\n4\n5\n6\n7\n\tfrom line 7\n").unwrap();
        let text = quoted(&log);
        fs::remove_file(&log).unwrap();
        assert_eq!(text, "\n  2\n  3\n  4\n  5\n  6\n  7");
    }
}
