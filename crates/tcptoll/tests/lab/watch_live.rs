//! `tcptoll watch --netns PID` on hosts that are busy, overflow, restart their servers and disappear.
//!
//! The load counts for itself, and `ss` and `nstat` are asked in its namespace.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tcptoll_kernel::process::{freeze, resume};
use tcptoll_live::watch::reader::{Network, Options, Watch};
use tcptoll_live::watch::{ListenerState, State};

use crate::support::{lacks, not_root, run, tcptoll};
use crate::watch_witness::{
    Figures, Load, by_others, by_the_watch, is_untold, of_listener, ten_busy_listeners,
};

/// Makes a user and network namespace, and runs the rest of its command there.
const OWN_NETWORK: &[&str] =
    &["unshare", "-Urn", "--", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
/// A test that waits for a line this long has failed.
const PATIENCE: Duration = Duration::from_mins(2);

fn lacks_tools() -> bool {
    lacks(&["unshare", "nsenter", "ip", "ss", "nstat", "python3"])
}

/// A load in a namespace of its own, by the PID of its process.
fn load(listeners: &Value) -> Load {
    Load::start(OWN_NETWORK, listeners).unwrap()
}

fn seen_by_others(pid: u32) -> Figures {
    let pid = pid.to_string();
    by_others(&["nsenter", "--preserve-credentials", "-U", "-n", "-t", &pid, "--"]).unwrap()
}

/// One state of `watch --once`.
fn once(pid: u32, more: &[&str]) -> State {
    let pid = pid.to_string();
    let args = ["watch", "--once", "--format", "json", "--netns", &pid, "--interval", "500ms"];
    let ran = run(&mut tcptoll(&[&args, more].concat()));
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""));
    serde_json::from_str(&ran.stdout).unwrap()
}

fn at(state: &State, address: SocketAddr) -> &ListenerState {
    state.listeners.iter().find(|one| one.port == address.port()).unwrap()
}

/// Of three listeners the second overflows: 40 connections a second, of which it accepts 5.
fn one_of_three_overflows() -> Value {
    json!({"listeners": [
        {"at": "127.0.0.1", "backlog": 128, "attempts_per_s": 40},
        {"at": "127.0.0.1", "backlog": 4, "accept_per_s": 5, "attempts_per_s": 40},
        {"at": "::1", "backlog": 128, "attempts_per_s": 40, "talk": true, "hold_s": 0.05},
    ]})
}

#[test]
fn every_level_that_watch_prints_is_that_of_ss_in_the_same_namespace() {
    if lacks_tools() {
        return;
    }
    let load = load(&ten_busy_listeners());
    thread::sleep(Duration::from_secs(2));
    // Only the kernel's timers go on, and they change each figure one way.
    freeze(load.pid()).unwrap();
    let before = seen_by_others(load.pid());
    let state = once(load.pid(), &[]);
    let after = seen_by_others(load.pid());
    resume(load.pid()).unwrap();
    let ours = by_the_watch(&state).unwrap();
    assert_eq!(state.listeners.len(), 10);
    let levels = |name: &&String| {
        !name.starts_with("nstat") && !name.starts_with("drops of") && !is_untold(name, &state)
    };
    let figure = |all: &Figures, name: &str| all.get(name).copied().unwrap_or(0);
    for name in ours.keys().chain(before.keys()).filter(levels) {
        let ends = (figure(&before, name), figure(&after, name));
        let range = ends.0.min(ends.1)..=ends.0.max(ends.1);
        assert!(range.contains(&figure(&ours, name)), "{name}: {}, {ends:?}", figure(&ours, name));
    }
    assert!(state.listeners.iter().any(|one| one.accept_queue_len > one.accept_queue_limit));
    assert!(
        state.states["SYN-RECEIVED"] > 0 && state.states["TIME-WAIT"] > 0,
        "{:?}",
        state.states
    );
    // All of them are the load's.
    for one in &state.listeners {
        assert_eq!(one.process.as_ref().map(|process| process.pid), Some(load.pid()));
    }
    load.finish().unwrap();
}

#[test]
fn an_overflow_is_put_on_the_listener_that_overflows_and_on_no_other() {
    if lacks_tools() {
        return;
    }
    let load = load(&one_of_three_overflows());
    let addresses = load.addresses().unwrap();
    let before = seen_by_others(load.pid());
    let states: Vec<State> = (0..3).map(|_| once(load.pid(), &[])).collect();
    let after = seen_by_others(load.pid());
    let counted = after["nstat TcpExtListenOverflows"] - before["nstat TcpExtListenOverflows"];
    let mut ours = 0.0;
    for state in &states {
        for (number, address) in addresses.iter().enumerate() {
            let one = at(state, *address);
            let rate = one.overflows_per_s.unwrap();
            assert_eq!(rate > 0.0, number == 1, "{address}: {rate}");
            assert!(!one.overflows_estimated);
            assert_eq!(one.drops_per_s.unwrap() > 0.0, number == 1);
            ours += rate * state.interval_s;
        }
        let full: Vec<&str> = state
            .diagnoses
            .iter()
            .filter(|one| one.id == "accept-queue-full")
            .map(|one| one.subject.as_str())
            .collect();
        assert_eq!(full, [addresses[1].to_string()]);
    }
    assert!(ours >= 3.0 && ours <= counted as f64 + 1e-6, "{ours} of {counted}");
    let counts = load.finish().unwrap();
    // Each attempt that was refused has met the full queue, at least once.
    let refused = counts[1]["refused"].as_array().unwrap().len() as f64;
    assert!(
        refused > 0.0 && counts[0]["refused"] == json!([]) && counts[2]["refused"] == json!([])
    );
}

/// Lines of a running watch.
struct Lines {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lines {
    fn start(pid: u32, args: &[&str]) -> Self {
        let pid = pid.to_string();
        let args = [&["watch", "--no-screen", "--netns", &pid], args].concat();
        let mut child =
            tcptoll(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// All lines up to the first with this text.
    fn until(&self, text: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            seen.push(
                self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{text}: {seen:#?}")),
            );
            if seen.last().unwrap().contains(text) {
                return seen;
            }
        }
    }
}

#[test]
fn a_watch_names_an_overflow_and_goes_on_after_the_last_process_of_the_namespace_ended() {
    if lacks_tools() {
        return;
    }
    let load = load(&one_of_three_overflows());
    let full = load.addresses().unwrap()[1];
    let mut watch = Lines::start(load.pid(), &["--interval", "200ms"]);
    let seen = watch.until(&format!("overflows/s at {full}: accept queue full"));
    let strange: Vec<&String> = seen
        .iter()
        .filter(|line| line.contains(" accept-queue-") && !line.contains(&full.to_string()))
        .collect();
    assert!(strange.is_empty(), "{strange:#?}");
    load.finish().unwrap();
    // The watch is in the namespace itself, so that it stays. Its evidence ends.
    let rest = watch.until(&format!("accept-queue-full: {full}: ended after "));
    assert!(rest.iter().all(|line| !line.contains("a look failed")), "{rest:#?}");
    assert_eq!(
        run(Command::new("kill").args(["-INT", &watch.child.id().to_string()])).status,
        Some(0)
    );
    assert_eq!(watch.child.wait().unwrap().code(), Some(130));
    assert!(watch.lines.iter().all(|line| !line.contains("failed")));
}

#[test]
fn a_listener_that_is_closed_and_made_anew_begins_again_and_takes_no_overflow_of_others() {
    if not_root() || lacks_tools() {
        return;
    }
    let load = load(&json!({"listeners": [
        {"at": "127.0.0.1", "port": 7701, "backlog": 2, "accept_per_s": 0, "attempts_per_s": 60, "reopen_s": 0.7},
        {"at": "127.0.0.1", "port": 7702, "backlog": 128, "attempts_per_s": 20},
    ]}));
    let options = Options { network: Some(Network::OfProcess(load.pid())), ..Options::default() };
    let before = seen_by_others(load.pid());
    // Joining a namespace moves the thread.
    let watching = thread::spawn(move || {
        let mut watch = Watch::open(&options).unwrap();
        let look = |_| {
            thread::sleep(Duration::from_millis(300));
            watch.look_at_all().unwrap().clone()
        };
        (0..20).map(look).collect::<Vec<State>>()
    });
    let states = watching.join().unwrap();
    let after = seen_by_others(load.pid());
    let counted = after["nstat TcpExtListenOverflows"] - before["nstat TcpExtListenOverflows"];
    let listeners_on = |port: u16| {
        states
            .iter()
            .flat_map(move |state| state.listeners.iter().filter(move |one| one.port == port))
    };
    let inodes: std::collections::BTreeSet<u64> = listeners_on(7701).map(|one| one.inode).collect();
    assert!(inodes.len() > 2, "{inodes:?}");
    let mut overflows = 0.0;
    for state in &states {
        for one in &state.listeners {
            let rates = [one.drops_per_s, one.overflows_per_s];
            for rate in rates.into_iter().flatten() {
                assert!(
                    rate.is_finite() && rate >= 0.0 && rate * state.interval_s <= counted as f64
                );
            }
            assert!(one.drops.is_none_or(|drops| drops <= counted as u64), "{one:?}");
            overflows += one.overflows_per_s.unwrap_or(0.0) * state.interval_s;
        }
    }
    assert!(overflows > 0.0 && overflows <= counted as f64 + 1e-6, "{overflows} of {counted}");
    assert!(listeners_on(7702).all(|one| one.overflows_per_s.is_none_or(|rate| rate == 0.0)));
    load.finish().unwrap();
}

#[test]
fn the_owner_is_shown_where_it_may_be_read_and_absent_elsewhere() {
    if not_root() || lacks_tools() || lacks(&["setpriv"]) {
        return;
    }
    let config = json!({"listeners": [{"at": "127.0.0.1", "backlog": 7}]});
    // Without a user namespace of its own, anybody may be in it.
    let within = ["unshare", "-n", "--", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
    let load = Load::start(&within, &config).unwrap();
    let state = once(load.pid(), &[]);
    assert_eq!(state.listeners[0].process.as_ref().unwrap().pid, load.pid());
    let state = once(load.pid(), &["--no-owners"]);
    assert_eq!(
        (state.listeners[0].process.as_ref(), state.listeners[0].accept_queue_limit),
        (None, 7)
    );
    // Nobody sees the listener and not its process.
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
    let program = tcptoll(&["watch", "--once", "--format", "json", "--interval", "100ms"]);
    let pid = load.pid().to_string();
    let mut command = Command::new("nsenter");
    command.args(["-n", "-t", &pid, "--", "setpriv"]).args(nobody);
    let folder = readable_by_all(&program);
    command.arg(folder.0.path().join("tcptoll")).args(program.get_args());
    let ran = run(&mut command);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""));
    let state: State = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (state.listeners[0].process.as_ref(), state.listeners[0].accept_queue_limit),
        (None, 7)
    );
    // Into the namespace of another user's process it is not let.
    let mut command = Command::new("setpriv");
    command
        .args(nobody)
        .arg(folder.0.path().join("tcptoll"))
        .args(["watch", "--once", "--netns", &pid]);
    let ran = run(&mut command);
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""));
    assert_eq!(
        ran.stderr,
        format!(
            "error: --netns {pid}: this user may not enter the network namespace of that process. Use sudo, \
             or run as the user that started the process or its container\n"
        )
    );
    load.finish().unwrap();
}

#[test]
fn root_without_its_capabilities_is_told_which_one_is_missing_and_not_to_use_sudo() {
    if lacks_tools() {
        return;
    }
    // Root of a user namespace, next to a process outside of it.
    let pid = std::process::id().to_string();
    let within = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-Ur", "--"]).arg(tcptoll(&[]).get_program()).args(args);
        run(&mut command)
    };
    for args in [&["watch", "--once"][..], &["doctor", "--duration", "1s"]] {
        let ran = within(&[args, &["--netns", &pid]].concat());
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""));
        let names = format!("error: --netns {pid}: root has no CAP_SYS_PTRACE over that process");
        assert!(ran.stderr.starts_with(&names) && !ran.stderr.contains("sudo"), "{}", ran.stderr);
    }
    // A listener whose process it may not read.
    let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ran = within(&["watch", "--once", "--interval", "100ms"]);
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("in another PID namespace, or root lacks CAP_SYS_PTRACE"), "{text}");
    let ran = within(&["doctor", "--duration", "1s", "--details"]);
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("root has no CAP_SYS_PTRACE here") && !text.contains("sudo"), "{text}");
}

/// The program in a folder that every user may read, wherever it was built.
fn readable_by_all(program: &Command) -> crate::support::Folder {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = crate::support::Folder::new();
    std::fs::set_permissions(folder.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::copy(program.get_program(), folder.0.path().join("tcptoll")).unwrap();
    folder
}

#[test]
fn drops_of_a_listener_are_those_of_ss_while_a_full_queue_a_scan_and_deferred_accepts_raise_them() {
    if lacks_tools() {
        return;
    }
    let load = load(&json!({"listeners": [
        {"at": "127.0.0.1", "backlog": 4, "accept_per_s": 5, "attempts_per_s": 40},
        {"at": "127.0.0.1", "backlog": 128, "scan_per_s": 40},
        {"at": "127.0.0.1", "backlog": 128, "defer": true, "attempts_per_s": 40, "hold_s": 0.3},
    ]}));
    let addresses = load.addresses().unwrap();
    let before = seen_by_others(load.pid());
    let state = once(load.pid(), &[]);
    let after = seen_by_others(load.pid());
    for address in &addresses {
        let one = at(&state, *address);
        let name = of_listener(*address, one.inode, "drops");
        let drops = one.drops_per_s.unwrap() * state.interval_s;
        assert!(
            drops >= 1.0 && drops <= (after[&name] - before[&name]) as f64 + 1e-6,
            "{name}: {drops}"
        );
    }
    // Neither a scan nor a deferred accept is an overflow.
    let named: Vec<&str> = state
        .diagnoses
        .iter()
        .map(|one| one.id.as_str())
        .filter(|id| id.starts_with("accept"))
        .collect();
    assert_eq!(named, ["accept-queue-full"]);
    assert_eq!(
        state.diagnoses.iter().find(|one| one.id == named[0]).unwrap().subject,
        addresses[0].to_string()
    );
    for address in &addresses[1..] {
        assert!(at(&state, *address).overflows_per_s.is_none_or(|rate| rate == 0.0));
    }
    load.finish().unwrap();
}
