//! Names that a process or a configuration gives itself to steer a terminal: on no way out of `watch` and
//! `doctor` do they arrive, and all ways show the same name.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tcptoll_live::doctor::Examination;
use tcptoll_live::watch::State;

use crate::support::{Folder, Ran, lacks, run, tcptoll};

/// Calls itself CSI, DEL, right-to-left, zero width and an escape sequence, and overflows a listener on port
/// 7001. A child calls itself nginx, and its configuration has such a name too. Both end with its input.
const HOSTILE: &str = r"
import os,socket,sys
def called(name):
    with open('/proc/self/comm','wb') as file: file.write(name)
children=os.fork()
called(b'nginx' if children==0 else b'\xc2\x9b2J\x7f\xe2\x80\xae\xe2\x80\x8bx\x1b]0')
server=socket.socket()
server.bind(('127.0.0.1',7002 if children==0 else 7001))
server.listen(1)
clients=[]
for _ in range(6):
    client=socket.socket()
    client.setblocking(False)
    client.connect_ex(server.getsockname())
    clients.append(client)
if children: print('ready',flush=True)
sys.stdin.read()
";
/// What is left of that name.
const NAME: &str = "·2J·x·]0";
/// A file name and its like in a configuration.
const FILE: &str = "a\u{9b}2J\u{202e}b\u{7f}.conf";
const FILE_NAME: &str = "a·2Jb·.conf";

struct Machine {
    child: Child,
    folder: Folder,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine {
    fn start() -> Self {
        let folder = Folder::new();
        std::fs::write(folder.file("load.py"), HOSTILE).unwrap();
        let config = "events {}\nhttp {\n  server { listen 127.0.0.1:7002 backlog=9000; }\n}\n";
        std::fs::write(folder.file(FILE), config).unwrap();
        let mut command = Command::new("unshare");
        command.args([
            "-Urn",
            "--",
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
            "python3",
        ]);
        command.arg(folder.file("load.py")).arg("-c").arg(folder.file(FILE));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, folder }
    }

    /// Runs the program on its namespace; nothing that steers a terminal comes out of it.
    fn shown(&self, args: &[&str]) -> Ran {
        let pid = self.child.id().to_string();
        let ran = run(&mut tcptoll(&[args, &["--netns", &pid]].concat()));
        assert!(matches!(ran.status, Some(0 | 1)), "{args:?}: {}", ran.stderr);
        plain(&ran.stdout);
        plain(&ran.stderr);
        ran
    }
}

/// Has no character that a terminal obeys or does not show.
fn plain(text: &str) {
    let odd = text.chars().find(|c| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
    });
    assert_eq!(odd, None, "{text:?}");
}

#[test]
fn a_process_that_names_itself_to_steer_a_terminal_has_one_clean_name_everywhere() {
    if lacks(&["unshare", "python3", "ip"]) {
        return;
    }
    let machine = Machine::start();
    let once = ["watch", "--once", "--interval", "1s"];
    let json = machine.shown(&[&once[..], &["--format", "json"]].concat());
    let state: State = serde_json::from_str(&json.stdout).unwrap();
    let listener = state.listeners.iter().find(|one| one.port == 7001).unwrap();
    assert_eq!(listener.process.as_ref().map(|process| process.name.as_str()), Some(NAME));
    let named = state.diagnoses.iter().find(|one| one.subject == "127.0.0.1:7001").unwrap();
    assert_eq!(named.evidence["process"], NAME, "evidence and listener agree");
    assert!(machine.shown(&once).stdout.contains(NAME));
    let lines = ["watch", "--format", "json", "--interval", "200ms", "--duration", "1s"];
    assert!(machine.shown(&lines).stdout.lines().all(|line| line.contains(NAME)));
    let record = machine.folder.path("night.jsonl");
    let args = ["watch", "--record", &record, "--interval", "200ms", "--duration", "1s"];
    machine.shown(&args);
    let lines = std::fs::read_to_string(&record).unwrap();
    plain(&lines);
    assert!(lines.contains(NAME), "{lines}");
}

#[test]
fn a_hostile_name_of_a_process_or_a_configuration_is_clean_in_an_examination() {
    if lacks(&["unshare", "python3", "ip"]) {
        return;
    }
    let machine = Machine::start();
    let page = machine.folder.path("doctor.html");
    let args = ["doctor", "-q", "--duration", "1s", "--format", "json", "--html", &page];
    let ran = machine.shown(&args);
    let examination: Examination = serde_json::from_str(&ran.stdout).unwrap();
    let named = examination.examined.queues.iter().find(|one| one.port == 7001).unwrap();
    assert_eq!(named.process.as_ref().map(|process| process.name.as_str()), Some(NAME));
    let [server] = &examination.examined.servers[..] else { panic!("{}", ran.stdout) };
    assert!(server.files_read[0].ends_with(FILE_NAME), "{:?}", server.files_read);
    let found = |id: &str| examination.findings.iter().find(|one| one.id == id);
    let backlog = found("backlog-over-somaxconn").unwrap_or_else(|| panic!("{}", ran.stdout));
    let evidence = Value::from_iter(backlog.evidence.clone()).to_string() + &backlog.subject;
    assert!(evidence.contains(FILE_NAME), "{evidence}");
    plain(&std::fs::read_to_string(page).unwrap());
    // What is to be typed looks into the same namespace.
    let text = machine.shown(&["doctor", "-q", "--duration", "1s", "--details"]).stdout;
    let pid = machine.child.id();
    let prove = format!("tcptoll doctor --netns {pid} --prove backlog-over-somaxconn");
    assert!(text.contains(&prove), "{text}");
}
