//! Two hosts of a test in namespaces, and an `ssh` that reaches them without a login.
//!
//! Not the lab's namespaces: these stand for machines of the user's, which the program may not change.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::support::{Folder, tcptoll};

/// Address of the server's host.
pub(crate) const SERVER: &str = "10.78.0.2";

/// The hosts; they end when this is dropped.
pub(crate) struct Hosts {
    child: Child,
    /// Its end is theirs.
    _stdin: ChildStdin,
    pub(crate) client: String,
    pub(crate) server: String,
    pub(crate) folder: Folder,
    /// How `nsenter` gets into their namespaces.
    enter: &'static str,
}

/// The user namespace of the hosts, and their network.
const OWN_USERS: &str = "--user --preserve-credentials --net";

impl Hosts {
    /// In a user namespace: nobody has to be root.
    pub(crate) fn start() -> Self {
        Self::start_with(&["--user", "--map-root-user", "--net"], OWN_USERS)
    }

    /// In these namespaces, which `enter` leads into.
    pub(crate) fn start_with(namespaces: &[&str], enter: &'static str) -> Self {
        let folder = Folder::new();
        script(&folder, "ssh", include_str!("ssh.sh"));
        let hosts = script(&folder, "hosts.sh", include_str!("hosts.sh"));
        let mut child = Command::new("unshare")
            .args(namespaces)
            .args(["--fork", "--kill-child", "sh", &hosts])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is installed");
        let stdin = child.stdin.take().expect("it is a pipe");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the hosts say when they are ready");
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ready", client, server] = words.as_slice() else { panic!("the hosts say {line:?}") };
        let (client, server) = ((*client).to_owned(), (*server).to_owned());
        Self { child, _stdin: stdin, client, server, folder, enter }
    }

    /// The program with these arguments, both of its hosts here.
    pub(crate) fn tcptoll(&self, args: &[&str]) -> Command {
        self.tcptoll_over(&self.folder.path("ssh"), args)
    }

    /// As [`Hosts::tcptoll`], over another ssh.
    pub(crate) fn tcptoll_over(&self, ssh: &str, args: &[&str]) -> Command {
        let mut all = args.to_vec();
        all.extend(["--client", "ssh://client", "--server", "ssh://server"]);
        all.extend(["--server-address", SERVER, "--ssh", ssh, "--quiet"]);
        all.extend(["--format", "json", "--out", "/dev/null"]);
        self.with_hosts(tcptoll(&all))
    }

    /// What this command needs to reach the hosts.
    pub(crate) fn with_hosts(&self, mut command: Command) -> Command {
        command.env("HOSTS_CLIENT", &self.client).env("HOSTS_SERVER", &self.server);
        command.env("HOSTS_ENTER", self.enter);
        command.env("HOSTS_LOG", self.folder.path("log"));
        command.env("XDG_CACHE_HOME", self.folder.path("cache"));
        command.env_remove("SSH_CONNECTION");
        command
    }

    /// A command on the host of this process.
    pub(crate) fn on(&self, pid: &str, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", pid]).args(self.enter.split(' ')).args(words);
        command.stdin(Stdio::null());
        command
    }
}

/// What a process of a marked run has in its environment.
pub(crate) const MARK: &str = "TCPTOLL_TEST_MARK";

/// Processes with this mark, with their command lines.
pub(crate) fn marked(mark: &str) -> Vec<(u32, String)> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes()) {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// Writes a script that can be run; its path.
pub(crate) fn script(folder: &Folder, name: &str, text: &str) -> String {
    std::fs::write(folder.file(name), text).expect("the folder is writable");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.file(name), mode).expect("the file is ours");
    folder.path(name)
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
