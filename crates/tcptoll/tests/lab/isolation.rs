//! What a run does to the machine around it: nothing, also when it is killed.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Folder, connect, no_lab, tcptoll};

/// Environment variable by which a test knows its own processes among all others.
pub(crate) const MARK: &str = "TCPTOLL_TEST_MARK";

/// Processes that this test's run started, and those they started.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|pair| pair == wanted.as_bytes())
        })
        .collect()
}

/// Sysctls and devices of the machine.
fn machine() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for name in [
        "net/ipv4/tcp_syncookies",
        "net/ipv4/ip_local_port_range",
        "net/ipv4/tcp_fin_timeout",
        "net/ipv4/ip_forward",
        "net/ipv4/ip_unprivileged_port_start",
        "net/core/somaxconn",
        "net/ipv6/conf/all/disable_ipv6",
    ] {
        let value = fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
        all.insert(name.to_owned(), value);
    }
    let devices = fs::read_to_string("/proc/net/dev").unwrap();
    let names: Vec<&str> =
        devices.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    all.insert("devices".to_owned(), names.join(" "));
    all
}

/// Waits until no process of a run that ended is left.
///
/// They end within two seconds where a CPU is free. One that nothing ends would stay for minutes.
pub(crate) fn gone_soon(mark: &str) {
    let ended = Instant::now();
    loop {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        assert!(ended.elapsed() < Duration::from_secs(30), "{mark}: {left:?} are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn settings_of_the_hosts_do_not_leave_the_lab() {
    if no_lab() {
        return;
    }
    let before = machine();
    connect(&[
        "--link",
        "direct,metro",
        "--rounds",
        "1",
        "--count",
        "20",
        "--client-sysctl",
        "net.ipv4.ip_local_port_range=40000 50000",
        "--client-sysctl",
        "net.ipv4.tcp_fin_timeout=7",
        "--server-sysctl",
        "net.ipv4.tcp_syncookies=2",
        "--server-sysctl",
        "net.core.somaxconn=99",
    ]);
    assert_eq!(machine(), before);
}

#[test]
fn after_kill_9_nothing_is_left() {
    if no_lab() {
        return;
    }
    let before = machine();
    // From before the lab is there to the middle of the load.
    for after_ms in [2, 40, 150, 600, 2_000] {
        let folder = Folder::new();
        let mark = format!("kill-{}-{after_ms}", std::process::id());
        let mut child = tcptoll(&["connect", "--quiet", "--count", "100000"])
            .args(["--link", "cross-region", "--out", "/dev/null"])
            .current_dir(folder.0.path())
            .env(MARK, &mark)
            .env("TMPDIR", folder.0.path())
            .env("HOME", folder.0.path())
            .env_remove("XDG_DATA_HOME")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        // The namespaces have no name: they go with their last process.
        gone_soon(&mark);
        assert_eq!(machine(), before, "killed after {after_ms} ms");
        let files = fs::read_dir(folder.0.path()).unwrap().count();
        assert_eq!(files, 0, "killed after {after_ms} ms: files were left");
    }
}

#[test]
fn what_a_command_leaves_in_the_background_ends_with_the_lab() {
    if no_lab() {
        return;
    }
    let mark = format!("server-{}", std::process::id());
    let mut command = tcptoll(&["lab", "--quiet", "--", "sh", "-c", "sleep 1000 & exit 3"]);
    let status = command.env(MARK, &mark).status().unwrap();
    assert_eq!(status.code(), Some(3));
    gone_soon(&mark);
}
