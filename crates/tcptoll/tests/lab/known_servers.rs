//! Servers known by name: each answers, keeps and closes connections as it was told, and leaves
//! nothing.
//!
//! These speak to the hosts of a lab over the control channel, as the experiments do, and ask the
//! servers through a client in Python that counts what it gets on one connection.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use tcptoll_kernel::process::spawn_with;
use tcptoll_lab::channel::Channel;
use tcptoll_lab::lab::{Handle, LAB_COMMAND, Plan};
use tcptoll_lab::messages::{
    Launch, Observe, Run, ServerKind, ServerSpec, Serving, SetSysctls, Snapshot,
};

use crate::isolation::{MARK, gone_soon};
use crate::support::{Folder, lacks};

/// A client that asks on one connection until it is closed, at most so often, and prints how many
/// answers of how many bytes it got, whether the server closed, and after how many ms.
const CLIENT: &str = r"
import socket, sys, time
host, port, path, most, version, field = sys.argv[1:7]
s = socket.create_connection((host, int(port)))
s.settimeout(60)
f = s.makefile('rb')
answers = length = 0
closed = False
begun = time.monotonic()
try:
    for _ in range(int(most)):
        s.sendall(f'GET {path} HTTP/{version}\r\nHost: x\r\n{field}\r\n'.encode().replace(b'\\r\\n', b'\r\n'))
        line = f.readline()
        if not line:
            closed = True
            break
        assert line.split()[1] == b'200', line
        length = 0
        while (head := f.readline()) not in (b'\r\n', b''):
            name, value = head.split(b':', 1)
            if name.lower() == b'content-length':
                length = int(value)
        assert len(f.read(length)) == length
        answers += 1
        if sys.argv[8] == 'idle':
            break
    if not closed:
        s.settimeout(float(sys.argv[7]))
        closed = s.recv(1) == b''
except (ConnectionResetError, BrokenPipeError):
    closed = True
except TimeoutError:
    pass
print(answers, length, 'closed' if closed else 'open', round((time.monotonic() - begun) * 1000))
";

/// Two hosts of a lab, spoken with as the runner does.
pub(crate) struct Lab {
    client: Handle,
    pub(crate) server: Handle,
    // It ends when its channel is closed.
    pub(crate) link: Handle,
    process: Child,
    pub(crate) folder: Folder,
    mark: String,
}

/// What the client printed.
#[derive(Debug)]
struct Got {
    answers: u64,
    length: u64,
    closed: bool,
    ms: u64,
}

impl Lab {
    pub(crate) fn new(name: &str) -> Self {
        Self::over("direct", name)
    }

    /// Over this link.
    pub(crate) fn over(link: &str, name: &str) -> Self {
        let plan = Plan {
            link: link.to_owned(),
            ipv6: false,
            seed: 1,
            force_packet: false,
            client_cpu: None,
            server_cpu: None,
            client_addresses: Vec::new(),
            silent_addresses: false,
        };
        let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
        let mark = format!("known-{name}-{}", std::process::id());
        let folder = Folder::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tcptoll"));
        command.arg(LAB_COMMAND).arg(serde_json::to_string(&plan).unwrap());
        command.args(pairs.each_ref().map(|pair| pair.1.as_raw_fd().to_string()));
        command.env(MARK, &mark).env("TMPDIR", folder.0.path());
        let process =
            spawn_with(&mut command, &pairs.each_ref().map(|pair| pair.1.as_fd())).unwrap();
        let [client, server, link] = pairs.map(|(ours, _)| Channel::new(ours));
        let client = Handle::new(client, "client host").unwrap();
        let mut server = Handle::new(server, "server host").unwrap();
        let link = Handle::new(link, "link").unwrap();
        let free = ("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned());
        server.ask(&SetSysctls(vec![free])).unwrap();
        Self { client, server, link, process, folder, mark }
    }

    pub(crate) fn serve(&mut self, spec: &ServerSpec) -> Serving {
        self.server.ask(spec).unwrap()
    }

    /// Why a server is not started.
    pub(crate) fn refused(&mut self, spec: &ServerSpec) -> String {
        self.server.ask(spec).unwrap_err().to_string()
    }

    fn snapshot(&mut self) -> Snapshot {
        self.server.ask(&Observe).unwrap()
    }

    /// Runs a shell line on the client host and gives what it printed.
    pub(crate) fn run(&mut self, line: &str) -> String {
        let file = self.folder.file("printed");
        let line = format!("({line}) > '{}'", file.display());
        let launch = Launch {
            words: vec![line.clone()],
            shell: true,
            environment: Vec::new(),
            ordinary_user: false,
        };
        assert_eq!(self.client.ask(&Run(launch)).unwrap(), 0, "{line}");
        fs::read_to_string(file).unwrap()
    }

    /// Asks on one connection, at most so often. A server that is to close may take its time; one
    /// that is not to is watched for long enough that it would have.
    fn ask(
        &mut self,
        serving: &Serving,
        most: u64,
        version: &str,
        field: &str,
        closes: bool,
    ) -> Got {
        self.ask_for(serving, most, version, field, if closes { 20.0 } else { 0.3 }, "busy")
    }

    fn ask_for(
        &mut self,
        serving: &Serving,
        most: u64,
        version: &str,
        field: &str,
        limit_s: f64,
        mode: &str,
    ) -> Got {
        let script = self.folder.file("client.py");
        fs::write(&script, CLIENT).unwrap();
        let printed = self.run(&format!(
            "python3 {} {} {} {} {most} {version} '{field}' {limit_s} {mode}",
            script.display(),
            serving.at.ip(),
            serving.at.port(),
            serving.path,
        ));
        let words: Vec<&str> = printed.split_whitespace().collect();
        Got {
            answers: words[0].parse().unwrap(),
            length: words[1].parse().unwrap(),
            closed: words[2] == "closed",
            ms: words[3].parse().unwrap(),
        }
    }

    /// Ends the lab like a crash and looks for what it left.
    pub(crate) fn kill(mut self) {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        gone_soon(&self.mark);
        assert_eq!(fs::read_to_string("/proc/mounts").unwrap(), mounts);
        let left: Vec<_> = fs::read_dir(self.folder.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !["client.py", "printed"].contains(&name.as_str()))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        for folder in ["/mnt", "/media", "/srv", "/opt", "/var/local", "/usr/games"] {
            assert!(!fs::exists(format!("{folder}/server-0")).unwrap(), "{folder}");
        }
    }
}

pub(crate) fn spec(kind: ServerKind) -> ServerSpec {
    ServerSpec {
        kind,
        at: "10.77.0.2:80".parse().unwrap(),
        workers: None,
        keepalive: true,
        keepalive_timeout_ns: None,
        keepalive_requests: None,
        tls: false,
        body_bytes: 12,
        work_ns: 0,
        backlog: None,
        connections: 50,
        site: None,
        site_uploaded: false,
        limits: None,
    }
}

/// All of them, with the program each needs and the beginning of what it says of itself.
const ALL: [(ServerKind, &str, &str); 6] = [
    (ServerKind::Nginx, "nginx", "nginx/"),
    (ServerKind::ApacheEvent, "apache2", "Apache/"),
    (ServerKind::ApacheWorker, "apache2", "Apache/"),
    (ServerKind::ApachePrefork, "apache2", "Apache/"),
    (ServerKind::Puma, "puma", "puma/"),
    (ServerKind::Null, "python3", "tcptoll/"),
];

const PROGRAMS: [&str; 4] = ["nginx", "apache2", "puma", "python3"];

#[test]
fn every_server_answers_keeps_connections_and_is_seen_with_its_processes() {
    if lacks(&PROGRAMS) {
        return;
    }
    for (kind, _, version) in ALL {
        let mut lab = Lab::new(&format!("{kind:?}"));
        let serving = lab.serve(&ServerSpec { backlog: Some(77), workers: Some(2), ..spec(kind) });
        assert!(serving.version.starts_with(version), "{}", serving.version);
        let before = lab.snapshot();
        let got = lab.ask(&serving, 100, "1.1", "", false);
        assert_eq!((got.answers, got.length, got.closed), (100, 12, false), "{kind:?}: {got:?}");
        let got = lab.ask(&serving, 3, "1.1", "Connection: close\\r\\n", true);
        assert_eq!((got.answers, got.closed), (1, true), "{kind:?}: {got:?}");
        let got = lab.ask(&serving, 3, "1.0", "", true);
        assert_eq!((got.answers, got.closed), (1, true), "{kind:?}: {got:?}");
        let got = lab.ask(&serving, 3, "1.0", "Connection: keep-alive\\r\\n", false);
        assert_eq!((got.answers, got.closed), (3, false), "{kind:?}: {got:?}");

        let after = lab.snapshot();
        // Two workers, and a master above them where they are not ours.
        let masters = u64::from(kind != ServerKind::Null);
        assert_eq!(after.children, 2 + masters, "{kind:?}");
        let each = after.children_memory_bytes / after.children;
        assert!((50_000..200_000_000).contains(&each), "{kind:?}: {each} bytes");
        let used = |snapshot: &Snapshot| snapshot.children_cpu_us.0 + snapshot.children_cpu_us.1;
        // 107 answers cost more than nothing, and were given within the test.
        let cpu_us = used(&after) - used(&before);
        assert!((100..60_000_000).contains(&cpu_us), "{kind:?}: {cpu_us} µs");
        let limits: Vec<u32> = after.listeners.iter().map(|one| one.accept_queue_limit).collect();
        assert!(!limits.is_empty() && limits.iter().all(|&limit| limit == 77), "{limits:?}");
        lab.kill();
    }
}

#[test]
fn without_keepalive_every_answer_closes() {
    if lacks(&PROGRAMS) {
        return;
    }
    for (kind, ..) in ALL {
        let mut lab = Lab::new(&format!("close-{kind:?}"));
        let serving = lab.serve(&ServerSpec { keepalive: false, ..spec(kind) });
        let got = lab.ask(&serving, 3, "1.1", "", true);
        assert_eq!((got.answers, got.closed), (1, true), "{kind:?}: {got:?}");
    }
}

#[test]
fn a_connection_ends_after_its_number_of_requests_and_its_idle_time() {
    if lacks(&PROGRAMS) {
        return;
    }
    for (kind, ..) in ALL {
        let mut lab = Lab::new(&format!("limit-{kind:?}"));
        let serving = lab.serve(&ServerSpec {
            keepalive_timeout_ns: Some(1_000_000_000),
            keepalive_requests: Some(2),
            ..spec(kind)
        });
        if kind == ServerKind::Puma {
            // It has no such limit: only where its threads do not suffice.
            let got = lab.ask(&serving, 5, "1.1", "", false);
            assert_eq!((got.answers, got.closed), (5, false), "{got:?}");
        } else {
            let got = lab.ask(&serving, 5, "1.1", "", true);
            assert_eq!((got.answers, got.closed), (2, true), "{kind:?}: {got:?}");
        }
        let got = lab.ask_for(&serving, 1, "1.1", "", 20.0, "idle");
        assert!(got.closed && got.ms >= 900, "{kind:?}: {got:?}");
    }
}

#[test]
fn large_content_comes_whole() {
    if lacks(&PROGRAMS) {
        return;
    }
    for (kind, ..) in ALL {
        let mut lab = Lab::new(&format!("large-{kind:?}"));
        let serving = lab.serve(&ServerSpec { body_bytes: 3 << 20, ..spec(kind) });
        let got = lab.ask(&serving, 2, "1.1", "", false);
        assert_eq!((got.answers, got.length), (2, 3 << 20), "{kind:?}");
    }
}

#[test]
fn the_servers_that_work_take_that_long_and_the_others_refuse() {
    if lacks(&PROGRAMS) {
        return;
    }
    for (kind, ..) in ALL {
        let mut lab = Lab::new(&format!("work-{kind:?}"));
        let spec = ServerSpec { work_ns: 200_000_000, ..spec(kind) };
        if matches!(kind, ServerKind::Puma | ServerKind::Null) {
            let serving = lab.serve(&spec);
            let got = lab.ask_for(&serving, 1, "1.1", "Connection: close\\r\\n", 20.0, "busy");
            assert!(got.answers == 1 && got.ms >= 200, "{kind:?}: {got:?}");
        } else {
            let error = lab.refused(&spec);
            assert!(error.ends_with("puma and null can"), "{error}");
        }
    }
}

#[test]
fn over_tls_the_certificate_names_the_server_s_address_and_sessions_resume() {
    if lacks(&["nginx", "apache2", "puma", "python3"]) {
        return;
    }
    // Verifies the certificate by address and by name, and asks once.
    let client = "import socket, ssl, sys\n\
        for name in ('10.77.0.2', 'localhost', 'tcptoll.test'):\n    \
            c = ssl.create_default_context(cafile=sys.argv[1])\n    \
            s = c.wrap_socket(socket.create_connection(('10.77.0.2', 443)), server_hostname=name)\n    \
            s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n    \
            assert s.recv(100).startswith(b'HTTP/1.1 200')\n    \
            t = c.wrap_socket(socket.create_connection(('10.77.0.2', 443)), server_hostname=name, session=s.session)\n    \
            print('resumed' if t.session_reused else 'full')\n";
    for (kind, ..) in ALL {
        let mut lab = Lab::new(&format!("tls-{kind:?}"));
        let at = "10.77.0.2:443".parse().unwrap();
        let spec = ServerSpec { tls: true, at, ..spec(kind) };
        if kind == ServerKind::Null {
            let error = lab.refused(&spec);
            assert!(error.contains("does not support TLS"), "{error}");
            continue;
        }
        let serving = lab.serve(&spec);
        let [script, roots] = ["client.py", "printed.pem"].map(|name| lab.folder.file(name));
        fs::write(&script, client).unwrap();
        fs::write(&roots, serving.certificate.unwrap()).unwrap();
        let line = format!("python3 {} {}", script.display(), roots.display());
        let printed = lab.run(&line);
        assert_eq!(printed, "resumed\n".repeat(3), "{kind:?}");
    }
}

#[test]
fn a_server_that_cannot_start_is_said_with_the_end_of_its_log() {
    if lacks(&PROGRAMS) {
        return;
    }
    let mut lab = Lab::new("refused");
    for (kind, name) in [
        (ServerKind::Nginx, "nginx"),
        (ServerKind::ApacheEvent, "apache2"),
        (ServerKind::Puma, "puma"),
        (ServerKind::Null, "null"),
    ] {
        // Nobody's address.
        let at = "10.77.0.99:80".parse().unwrap();
        let error = lab.refused(&ServerSpec { at, ..spec(kind) });
        assert!(error.starts_with(&format!("{name} ended before it answered")), "{error}");
        assert!(error.to_lowercase().contains("assign requested address"), "{error}");
    }
    assert_eq!(lab.snapshot().children, 0);
}

#[test]
fn a_second_server_on_a_port_is_refused() {
    if lacks(&["nginx"]) {
        return;
    }
    let mut lab = Lab::new("taken");
    lab.serve(&ServerSpec { workers: Some(2), ..spec(ServerKind::Null) });
    let error = lab.refused(&spec(ServerKind::Nginx));
    assert_eq!(error, "port 80 of the server host is already in use");
}
