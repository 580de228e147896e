//! MariaDB: its command line. It has no tables and no users: the front service asks `SELECT 1`.
//!
//! Without grant tables and without InnoDB it starts in an empty folder, with no need of
//! mariadb-install-db: it answers after 0.2 s, where the installation alone takes seconds (measured
//! with 10.11).

use std::io::{self, Read};
use std::net::TcpStream;
use std::path::PathBuf;

use super::super::program;
use super::super::run_folder::RunFolder;
use super::Prepared;
use crate::messages::BackendSpec;

/// Clients at a time, beyond any number of workers: connections that workers have given up are still
/// accepted after a stall.
const CONNECTIONS_MAX: u32 = 100_000;

/// First byte of the greeting after its header: the version of the protocol.
const PROTOCOL: u8 = 10;

pub(super) fn find() -> Result<PathBuf, String> {
    program::find(&["mariadbd"], "mariadb-server-core")
}

pub(super) fn prepare(spec: &BackendSpec, folder: &RunFolder) -> Result<Prepared, String> {
    let program = find()?;
    Ok(Prepared {
        name: "mariadbd",
        version: program::version(&program, "--version")?,
        arguments: arguments(spec, folder),
        program,
        is_ready,
    })
}

fn arguments(spec: &BackendSpec, folder: &RunFolder) -> Vec<String> {
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
fn is_ready(stream: &mut TcpStream) -> io::Result<bool> {
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting)?;
    Ok(greeting[3..] == [0, PROTOCOL])
}

#[cfg(test)]
mod tests {
    use super::super::tests::spec;
    use super::*;
    use crate::messages::BackendKind;

    #[test]
    fn no_file_of_the_machine_is_read_and_the_backlog_is_set() {
        let folder = RunFolder::temporary().unwrap();
        let arguments = arguments(&spec(BackendKind::Mariadb), &folder);
        assert_eq!(arguments[0], "--no-defaults");
        assert!(arguments.contains(&"--back-log=4".to_owned()));
        let own = arguments.iter().filter(|word| word.contains('/'));
        let path = folder.path().display().to_string();
        assert!(own.clone().count() >= 4 && own.into_iter().all(|word| word.contains(&path)));
    }
}
