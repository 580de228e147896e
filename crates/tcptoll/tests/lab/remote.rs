//! Hosts over ssh: real processes in namespaces that stand for machines of the user's, and a real sshd.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tcptoll_core::record::{PlaceKind, Summary};

use crate::hosts::{Hosts, MARK, SERVER, marked, script};
use crate::support::{Folder, Ran, checked_summary, counter, lacks, measured, only, run, tcptoll};

/// What the hosts of a test need.
const NEEDED: [&str; 4] = ["unshare", "nsenter", "setpriv", "ip"];

fn summary(ran: &Ran) -> Summary {
    assert!(measured(ran), "{:?}: {}", ran.status, ran.stderr);
    checked_summary(&ran.stdout)
}

#[test]
fn experiments_run_on_hosts_over_ssh_and_both_kernels_confirm_them() {
    if lacks(&NEEDED) {
        return;
    }
    let hosts = Hosts::start();
    let connect = summary(&run(&mut hosts.tcptoll(&["connect", "--count", "200"])));
    let arm = only(&connect);
    assert_eq!((connect.place.kind, arm.attempts, arm.ok), (PlaceKind::Remote, 200, 200));
    let server = arm.server.as_ref().unwrap();
    assert_eq!(counter(&arm.client.counters, "TcpActiveOpens"), 200);
    assert_eq!(counter(&server.counters, "TcpPassiveOpens"), 200);
    assert!(server.passport.is_some() && arm.client.passport.is_some());
    assert!(server.listeners.iter().any(|one| one.address == SERVER), "{:?}", server.listeners);
    assert!(server.listeners.iter().all(|one| one.address == SERVER), "{:?}", server.listeners);
    let path = arm.path.as_ref().unwrap();
    assert_eq!(path.datagrams[0], path.datagrams[1], "no datagram is lost on a veth");
    let route = path.route.as_ref().unwrap();
    assert_eq!((route.device.as_str(), route.gateway.as_ref()), ("c0", None));
    assert_eq!((route.source.as_deref(), route.mtu_bytes), (Some("10.78.0.1"), Some(1_500)));
    assert_eq!(path.hosts, ["ssh://client", "ssh://server"]);
    // One kernel, so one clock.
    let offset = path.clock_offset_us.unwrap().abs();
    assert!(offset <= path.clock_offset_bound_us.unwrap(), "{path:?}");
    assert!(path.clock_bound_us.unwrap() >= path.clock_offset_bound_us.unwrap(), "{path:?}");
    let own_server = ["http", "--serve", "null", "--duration", "300ms"];
    let http = summary(&run(&mut hosts.tcptoll(&own_server)));
    assert!(only(&http).ok > 0 && only(&http).server.is_some());
    let stream = summary(&run(&mut hosts.tcptoll(&["stream", "--bytes", "5MB"])));
    assert!(only(&stream).ok > 0);
    let messages = ["messages", "--message", "64", "--nagle", "on", "--duration", "200ms"];
    let messages = summary(&run(&mut hosts.tcptoll(&messages)));
    assert!(messages.arms.iter().all(|arm| arm.ok > 0));
    let idle = ["keepalive", "--sockets", "20", "--mechanism", "heartbeat", "--fault", "reset"];
    let idle = summary(&run(&mut hosts.tcptoll(&idle)));
    assert_eq!(idle.place.kind, PlaceKind::Remote);
    let queue = ["accept-queue", "--count", "100"];
    assert!(only(&summary(&run(&mut hosts.tcptoll(&queue)))).ok > 0);
}

#[test]
fn one_login_a_host_serves_a_whole_run_and_the_program_is_copied_once() {
    if lacks(&NEEDED) {
        return;
    }
    let hosts = Hosts::start();
    let arms = ["connect", "--count", "20", "--backlog", "16,4096", "--rounds", "3"];
    let compared = summary(&run(&mut hosts.tcptoll(&arms)));
    assert_eq!(compared.arms.len(), 2);
    let logins = std::fs::read_to_string(hosts.folder.file("log")).unwrap().lines().count();
    assert_eq!(logins, 2, "one for each host");
    let cached = || -> Vec<std::path::PathBuf> {
        let folder = hosts.folder.file("cache").join("tcptoll");
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let [program] = cached().try_into().expect("one copy, and nothing beside it");
    let made = std::fs::metadata(&program).unwrap().modified().unwrap();
    summary(&run(&mut hosts.tcptoll(&["connect", "--count", "20"])));
    assert_eq!(cached(), std::slice::from_ref(&program));
    assert_eq!(std::fs::metadata(program).unwrap().modified().unwrap(), made);
}

#[test]
fn the_server_that_is_measured_is_the_one_that_was_started() {
    if lacks(&["unshare", "nsenter", "setpriv", "ip", "python3"]) {
        return;
    }
    let hosts = Hosts::start();
    let other = "import socket,time\ns=socket.create_server(('',8098))\nprint('up',flush=True)\n\
                 s.settimeout(20)\ntry:\n s.accept()\n print('met',flush=True)\nexcept TimeoutError: pass";
    let mut other =
        hosts.on(&hosts.server, &["python3", "-c", other]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(other.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    let serve = "exec python3 -m http.server 8099";
    let ran = run(&mut hosts.tcptoll(&["connect", "--count", "5", "--serve", serve]));
    let listeners = only(&summary(&ran)).server.as_ref().unwrap().listeners.clone();
    assert!(listeners.iter().any(|one| one.port == 8099), "{listeners:?}");
    assert!(listeners.iter().all(|one| one.port == 8099), "{listeners:?}");
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(lines.next().is_none(), "the other server was connected to");
}

#[test]
fn clocks_that_are_1000_s_apart_are_brought_together_within_the_bound() {
    if lacks(&NEEDED) {
        return;
    }
    let hosts = Hosts::start();
    // Only the server's host is ahead.
    let ssh = script(
        &hosts.folder,
        "ssh-ahead",
        &format!(
            "#!/bin/sh\n[ \"$1\" = client ] || export HOSTS_WITHIN='unshare --time --monotonic 1000'\n\
             exec {} \"$@\"\n",
            hosts.folder.path("ssh")
        ),
    );
    let with_other = |args: &[&str]| summary(&run(&mut hosts.tcptoll_over(&ssh, args)));
    let ran = with_other(&["connect", "--count", "20"]);
    let path = only(&ran).path.clone().unwrap();
    let (offset, bound) = (path.clock_offset_us.unwrap(), path.clock_offset_bound_us.unwrap());
    assert!((offset - 1e9).abs() <= bound, "{offset} µs, at most {bound} µs off");
    // A death is stamped at one host and known at the other.
    let idle = ["keepalive", "--sockets", "20", "--mechanism", "heartbeat", "--fault", "reset"];
    let ran = with_other(&[&idle[..], &["--side", "client"]].concat());
    let arm = only(&ran);
    let deaths = arm.own.keepalive.as_ref().and_then(|own| own.deaths.as_ref()).unwrap();
    assert_eq!((deaths.known, deaths.dead > 0), (deaths.dead, true), "{deaths:?}");
    // Not 1,000 s, nor before it happened.
    let detected = &arm.histograms["detection_us"];
    assert_eq!(detected.count, deaths.known);
    assert!(detected.max.unwrap() < 100e6, "{detected:?}");
}

#[test]
fn what_a_login_prints_is_skipped_and_what_keeps_it_from_working_is_told() {
    if lacks(&NEEDED) {
        return;
    }
    let hosts = Hosts::start();
    let with = |variable: &str, value: &str| {
        let mut command = hosts.tcptoll(&["connect", "--count", "20"]);
        run(command.env(variable, value))
    };
    summary(&with("HOSTS_BEFORE", "echo Welcome; printf tcptoll-agent; echo; printf motd"));
    for (before, sentence) in [
        ("yes", "printed 65536 bytes and no agent spoke"),
        ("exit 3", "ssh ended before the program began there"),
        ("echo This account is closed; exit 1", "it printed: This account is closed"),
        ("exit 255", "ssh could not log in"),
        ("echo tcptoll-boot nowhere; exit 1", "--remote-binary"),
    ] {
        let ran = with("HOSTS_BEFORE", before);
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{before}: {}", ran.stderr);
        assert!(ran.stderr.contains(sentence), "{before}: {}", ran.stderr);
    }
    let no_host = ["connect", "--server", "ssh://nobody", "--quiet", "--out", "/dev/null", "--ssh"];
    let ssh = hosts.folder.path("ssh");
    let ran = run(&mut hosts.with_hosts(tcptoll(&[&no_host[..], &[&ssh]].concat())));
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.contains("ssh could not log in; try:"), "{}", ran.stderr);
}

#[test]
fn a_program_of_another_protocol_is_refused_and_both_versions_are_named() {
    if lacks(&NEEDED) {
        return;
    }
    let hosts = Hosts::start();
    let hello = b"\0{\"hello\":{\"protocol\":900,\"version\":\"9.0.0\",\"to\":\"come\"}}";
    let mut said = b"tcptoll-agent-1\n".to_vec();
    // The framing of tcp-heartbeat.
    said.extend((hello.len() as u32 + 1).to_be_bytes());
    said.extend(hello);
    std::fs::write(hosts.folder.file("said"), said).unwrap();
    let text = format!("#!/bin/sh\ncat '{}'\nexec cat >/dev/null\n", hosts.folder.path("said"));
    let other = script(&hosts.folder, "other", &text);
    let typed = ["connect", "--count", "20", "--remote-binary", &other];
    let ran = run(&mut hosts.tcptoll(&typed));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    let sentence = "it speaks protocol 900 (tcptoll 9.0.0), this program protocol";
    assert!(ran.stderr.contains(sentence), "{}", ran.stderr);
}

/// `HOSTS_WITHIN` of a host whose folders for programs are mounted like this.
fn mounted(hosts: &Hosts, name: &str, options: &str) -> String {
    let text = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mkdir -p \"$XDG_CACHE_HOME\" && for folder in \
         \"$XDG_CACHE_HOME\" /dev/shm /tmp; do mount -t tmpfs -o {options} none $folder || exit; done; \
         exec \"$@\"' sh \"$@\"\n"
    );
    script(&hosts.folder, name, &text)
}

#[test]
fn a_host_where_the_program_cannot_be_put_or_cannot_run_is_refused_with_what_to_do() {
    if lacks(&NEEDED) || lacks(&["setarch"]) {
        return;
    }
    let hosts = Hosts::start();
    let noexec = mounted(&hosts, "noexec", "noexec,mode=1777");
    let full = mounted(&hosts, "full", "size=64k,mode=1777");
    let other = std::env::consts::ARCH == "x86_64";
    let cases = [
        (noexec.as_str(), "no folder of this user's lets programs run", true),
        (full.as_str(), "there is no room for the program in", true),
        ("setarch i686", "its machine is i686, and this program is for x86_64", other),
    ];
    for (within, sentence, _) in cases.into_iter().filter(|(.., applies)| *applies) {
        let mut command = hosts.tcptoll(&["connect", "--count", "20"]);
        let ran = run(command.env("HOSTS_WITHIN", within).env_remove("TMPDIR"));
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{within}: {}", ran.stderr);
        assert!(ran.stderr.contains(sentence), "{within}: {}", ran.stderr);
    }
}

/// Opens and accepts connections on its host's loopback device, without end.
const TRAFFIC: &str = "import socket,time\ns=socket.create_server(('127.0.0.1',0))\nfirst=True\nwhile True:\n \
                       c=socket.create_connection(s.getsockname());a,_=s.accept();c.close();a.close()\n \
                       if first: print('up',flush=True)\n first=False\n time.sleep(1/400)";

#[test]
fn other_traffic_of_a_machine_is_told_and_its_counters_are_left_out() {
    if lacks(&NEEDED) || lacks(&["python3"]) {
        return;
    }
    let hosts = Hosts::start();
    let mut traffic = hosts.on(&hosts.client, &["python3", "-c", TRAFFIC]);
    let mut traffic = traffic.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(traffic.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    let ran = summary(&run(&mut hosts.tcptoll(&["connect", "--count", "300", "--rate", "300"])));
    traffic.kill().unwrap();
    traffic.wait().unwrap();
    let warned: Vec<&str> =
        ran.warnings.iter().filter(|one| one.id == "other-traffic").map(|one| &*one.text).collect();
    assert_eq!(warned.len(), 1, "{:?}", ran.warnings);
    assert!(warned[0].starts_with("the client's machine has other traffic"), "{warned:?}");
    let arm = only(&ran);
    assert_eq!((arm.attempts, arm.ok, arm.histograms["connect_us"].count), (300, 300, 300));
    for name in ["TcpActiveOpens", "TcpPassiveOpens"] {
        assert_eq!(arm.client.counter(name), None, "{name}");
    }
    // The server's machine has none.
    let server = arm.server.as_ref().unwrap();
    assert_eq!(server.counter("TcpPassiveOpens"), Some(300));
}

#[test]
fn a_wait_at_the_server_is_shown_where_the_clocks_of_the_hosts_allow() {
    if lacks(&NEEDED) {
        return;
    }
    let hosts = Hosts::start();
    let slow = ["connect", "--count", "60", "--concurrency", "20", "--accept-delay", "20ms"];
    let ran = summary(&run(&mut hosts.tcptoll(&slow)));
    let arm = only(&ran);
    let bound = arm.path.as_ref().unwrap().clock_bound_us.unwrap();
    let steps = &arm.timeline.as_ref().unwrap().steps;
    let wait = steps.iter().find(|step| step.name == "connect() back → accept() back").unwrap();
    // 20 at once, one each 20 ms: the median waits longer than for one other.
    assert!(wait.p50_us > 20e3 && wait.p50_us >= 3.0 * bound, "{wait:?}, ± {bound} µs");
}

#[test]
fn no_setting_of_a_host_is_changed_and_the_line_to_type_is_printed() {
    if lacks(&NEEDED) {
        return;
    }
    let hosts = Hosts::start();
    let read = || {
        let command = ["cat", "/proc/sys/net/core/somaxconn"];
        run(&mut hosts.on(&hosts.server, &command)).stdout.trim().to_owned()
    };
    let is = read();
    let same = format!("net.core.somaxconn={is}");
    summary(&run(&mut hosts.tcptoll(&["connect", "--count", "9", "--server-sysctl", &same])));
    let other = ["connect", "--count", "9", "--server-sysctl", "net.core.somaxconn=77"];
    let ran = run(&mut hosts.tcptoll(&other));
    assert_eq!(ran.status, Some(2));
    let line = "sudo sysctl -w net.core.somaxconn='77'";
    assert!(ran.stderr.contains(line) && ran.stderr.contains(&is), "{}", ran.stderr);
    assert_eq!(read(), is);
}

/// A run that goes on until it is ended, when its load has begun. `ssh`: how its hosts are reached.
fn long_run(hosts: &Hosts, ssh: &str, mark: &str, more: &[&str]) -> Child {
    let load = ["http", "--serve", "null", "--duration", "60s", "--connections", "4"];
    let mut command = hosts.tcptoll_over(ssh, &[&load[..], more].concat());
    command.env(MARK, mark).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let begun = Instant::now();
    while established(hosts) < 4 {
        assert!(begun.elapsed() < Duration::from_mins(1), "the load did not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// Established connections of the server's host.
fn established(hosts: &Hosts) -> usize {
    let command = ["cat", "/proc/net/tcp"];
    let table = run(&mut hosts.on(&hosts.server, &command)).stdout;
    table.lines().filter(|line| line.split_whitespace().nth(3) == Some("01")).count()
}

/// Waits until no process has this mark and no connection is left; how long that took.
fn gone(hosts: &Hosts, mark: &str) -> Duration {
    let begun = Instant::now();
    loop {
        let left = marked(mark);
        if left.is_empty() && established(hosts) == 0 {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "left: {left:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn nothing_is_left_after_any_of_its_processes_was_killed() {
    if lacks(&NEEDED) {
        return;
    }
    let hosts = Hosts::start();
    for victim in ["controller", "__agent", " client", " server"] {
        let mark = format!("{}-{}", victim.trim(), std::process::id());
        let mut child = long_run(&hosts, &hosts.folder.path("ssh"), &mark, &[]);
        let pid = if victim == "controller" {
            child.id()
        } else {
            let all = marked(&mark);
            // Of the hosts' processes the last word says which end they are.
            let is = |line: &str| match victim.strip_prefix(' ') {
                Some(end) => line.contains("__host") && line.trim_end().ends_with(end),
                None => line.contains(victim),
            };
            let found = all.iter().find(|(_, line)| is(line));
            found.unwrap_or_else(|| panic!("no {victim} among {all:?}")).0
        };
        kill(pid, "-KILL");
        let status = child.wait().unwrap();
        assert_ne!(status.code(), Some(0), "{victim}");
        gone(&hosts, &mark);
    }
}

#[test]
fn a_load_stops_when_the_control_connection_is_cut() {
    if lacks(&NEEDED) {
        return;
    }
    let hosts = Hosts::start();
    // Over two pipes that can be stopped: silent and not closed, as a cut cable.
    let text = format!("#!/bin/sh\ncat | {} \"$@\" | cat\n", hosts.folder.path("ssh"));
    let ssh = script(&hosts.folder, "ssh-pipes", &text);
    let mark = format!("cut-{}", std::process::id());
    let mut child = long_run(&hosts, &ssh, &mark, &["--dead-after", "1s"]);
    let pipes: Vec<u32> = marked(&mark)
        .into_iter()
        .filter(|(_, line)| line.trim() == "cat")
        .map(|(pid, _)| pid)
        .collect();
    assert_eq!(pipes.len(), 4);
    for pipe in &pipes {
        kill(*pipe, "-STOP");
    }
    let begun = Instant::now();
    while established(&hosts) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the load goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = child.wait().unwrap();
    // They hold standard error open.
    for pipe in &pipes {
        kill(*pipe, "-KILL");
    }
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("no sign of life for 1s"), "{said}");
    gone(&hosts, &mark);
}

/// sshd as the command of ssh: no port, no daemon, no root.
fn sshd(folder: &Folder) -> Option<String> {
    let key = folder.path("key");
    let mut made = Command::new("ssh-keygen");
    made.args(["-q", "-t", "ed25519", "-N", "", "-f", &key]);
    assert!(made.status().unwrap().success());
    std::fs::copy(folder.file("key.pub"), folder.file("authorized")).unwrap();
    // Where sshd separates its privileges.
    if tcptoll_kernel::process::uid() == 0 {
        std::fs::create_dir_all("/run/sshd").ok()?;
    }
    let server = format!(
        "HostKey {key}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n",
        folder.path("authorized")
    );
    std::fs::write(folder.file("sshd_config"), server).unwrap();
    let client = format!(
        "Host *\n  ProxyCommand /usr/sbin/sshd -i -f {}\n  IdentityFile {key}\n  IdentitiesOnly yes\n  \
         StrictHostKeyChecking no\n  UserKnownHostsFile {}\n  LogLevel ERROR\n",
        folder.path("sshd_config"),
        folder.path("known")
    );
    std::fs::write(folder.file("ssh_config"), client).unwrap();
    Some(format!("ssh -F {}", folder.path("ssh_config")))
}

#[test]
fn a_run_over_a_real_sshd_measures_and_a_wrong_host_key_is_told_by_ssh() {
    if lacks(&["ssh", "ssh-keygen", "/usr/sbin/sshd"]) {
        return;
    }
    let folder = Folder::new();
    let Some(ssh) = sshd(&folder) else { return };
    let program = env!("CARGO_BIN_EXE_tcptoll");
    let hosts = ["--server", "ssh://here", "--ssh", &ssh, "--remote-binary", program];
    let rest = ["--server-address", "127.0.0.1", "--quiet", "--format", "json", "--out"];
    let record = folder.path("record.jsonl");
    let arms = ["connect", "--count", "20", "--backlog", "16,4096", "--rounds", "5"];
    let all = [&arms[..], &hosts, &rest, &[&record]].concat();
    let ran = summary(&run(&mut tcptoll(&all)));
    assert_eq!(ran.arms.len(), 2);
    assert_eq!(ran.rounds.as_ref().map(|rounds| rounds.done), Some(5));
    // Another key than the one that is known.
    std::fs::write(
        folder.file("known"),
        "here ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
    )
    .unwrap();
    let config = std::fs::read_to_string(folder.file("ssh_config")).unwrap();
    let strict = config.replace("StrictHostKeyChecking no", "StrictHostKeyChecking yes");
    std::fs::write(folder.file("ssh_config"), strict).unwrap();
    let other = folder.path("no.jsonl");
    let all = [&["connect", "--count", "20"][..], &hosts, &rest, &[&other]].concat();
    let ran = run(&mut tcptoll(&all));
    assert_eq!(ran.status, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("ssh could not log in"), "{}", ran.stderr);
}
