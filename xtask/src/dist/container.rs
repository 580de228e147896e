//! The image in containers with less and less allowed: what works, and what is refused with its remedy.
//!
//! podman runs them, with its own storage below `target`. Docker's filter of system calls differs in one thing that
//! matters here: it forbids namespaces. So that filter is made from podman's.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{Release, answer, text};
use crate::process::{Line, on_path};

/// Where Debian and Ubuntu keep podman's filter of system calls.
const FILTER: &str = "/usr/share/containers/seccomp.json";
/// What Docker's filter forbids and podman's does not.
const NAMESPACES: [&str; 6] = ["unshare", "setns", "mount", "umount2", "pivot_root", "clone3"];
/// Flags of `clone` that make namespaces: `CLONE_NEWNS` to `CLONE_NEWNET`.
const CLONE_NEW: u32 = 0x7e02_0000;
/// podman's word for Docker's `systempaths=unconfined`.
const UNMASKED: &str = "unmask=ALL";

/// One container.
struct Case {
    what: &'static str,
    /// Of the engine.
    options: Vec<String>,
    /// Of tcptoll.
    words: Vec<String>,
    expected: Expected,
}

/// What has to be printed.
enum Expected {
    Works(&'static str),
    Refused(&'static str),
}

/// Each row's name, and `as expected` or what was found instead. Or why there are none.
pub(super) fn rows(
    image: &Path,
    release: &Release,
    folder: &Path,
) -> anyhow::Result<Result<Vec<(String, String)>, String>> {
    if !on_path("podman") || !on_path("crun") {
        return Ok(Err("not tried: apt-get install podman crun".to_owned()));
    }
    let engine = Engine::new(folder)?;
    answer(&engine.podman(&["load", "--quiet", "--input", text(image)?]))?;
    let name = format!("localhost/tcptoll:{}", release.version);
    // A server for what needs no lab. The kernel accepts for it.
    let server = TcpListener::bind("127.0.0.1:0").context("a listener")?;
    let target = server.local_addr().context("its address")?.to_string();
    let filter = folder.join("no-namespaces.json");
    fs::write(&filter, without_namespaces(&fs::read_to_string(FILTER)?)?)?;
    let cases = cases(&target, &format!("seccomp={}", text(&filter)?));
    let run = |case: Case| Ok((case.what.to_owned(), engine.judged(&case, &name)?));
    Ok(Ok(cases.into_iter().map(run).collect::<anyhow::Result<_>>()?))
}

fn cases(target: &str, no_namespaces: &str) -> Vec<Case> {
    use Expected::{Refused, Works};
    let case = |what, options: &[&str], words: &[&str], expected| Case {
        what,
        options: options.iter().map(|&word| word.to_owned()).collect(),
        words: words.iter().map(|&word| word.to_owned()).collect(),
        expected,
    };
    let lab = ["connect", "--count", "100"];
    let link = ["connect", "--count", "20", "--link", "metro"];
    let ring = ["http", "--server", "null", "--requests", "100", "--io", "io-uring"];
    let unmasked = ["--security-opt", UNMASKED];
    let bare = [
        &unmasked[..],
        &["--user=1000", "--cap-drop=ALL", "--read-only", "--read-only-tmpfs=false"],
    ]
    .concat();
    let tun = [&unmasked[..], &["--device", "/dev/net/tun"]].concat();
    let filtered = ["--security-opt", no_namespaces];
    let outside = ["--security-opt", no_namespaces, "--network=host", "--cap-drop=ALL"];
    vec![
        case("lab, /proc/sys read-only", &[], &lab, Refused("systempaths=unconfined")),
        case("lab, /proc/sys its own", &unmasked, &lab, Works("\"connect\"")),
        case("lab, emulated link, no TUN", &unmasked, &link, Works("\"emulated-packet\"")),
        case("lab, emulated link, TUN", &tun, &link, Works("\"emulated-tun\"")),
        case("lab, user 1000, no capability, nothing to write", &bare, &lab, Works("\"connect\"")),
        case("lab, namespaces forbidden", &filtered, &lab, Refused("seccomp=unconfined")),
        case(
            "a server outside, namespaces forbidden",
            &outside,
            &["connect", "--count", "100", "--to", target],
            Works("\"connect\""),
        ),
        case("io_uring forbidden, asked for", &unmasked, &ring, Refused("--io epoll")),
        case(
            "io_uring forbidden, not asked for",
            &unmasked,
            &["http", "--server", "null", "--requests", "100"],
            Works("\"epoll\""),
        ),
    ]
}

/// podman with storage of its own.
struct Engine {
    options: Vec<String>,
    /// Hard limit of this process.
    open_files: String,
}

impl Engine {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let place = |name: &str| -> anyhow::Result<String> {
            let path: PathBuf = folder.join(name);
            fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
            Ok(text(&path)?.to_owned())
        };
        let options = vec![
            "--root".to_owned(),
            place("podman")?,
            "--runroot".to_owned(),
            place("podman-run")?,
            "--storage-driver=vfs".to_owned(),
            "--cgroup-manager=cgroupfs".to_owned(),
        ];
        Ok(Self { options, open_files: answer(&Line::new("sh").args(["-c", "ulimit -Hn"]))? })
    }

    /// In a mount namespace with the second version of cgroups: crun refuses a machine with both.
    fn podman(&self, words: &[&str]) -> Line {
        let script =
            "umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec podman \"$@\"";
        Line::new("unshare")
            .args(["--mount", "sh", "-c", script, "podman"])
            .args(self.options.clone())
            .args(words.to_vec())
    }

    fn judged(&self, case: &Case, image: &str) -> anyhow::Result<String> {
        let line = self
            .podman(&["run", "--rm", "--cgroups=disabled"])
            // podman would ask for more than it may have itself.
            .args(["--ulimit", &format!("nofile={0}:{0}", self.open_files)])
            .args(["--ulimit", "nproc=1000:1000"])
            .args(if case.options.iter().any(|word| word == "--network=host") {
                None
            } else {
                Some("--network=none")
            })
            .args(case.options.clone())
            .arg(image)
            .args(case.words.clone())
            .args(["--quiet", "--format", "json", "--out", "/dev/null"]);
        let output = line.command().output().with_context(|| format!("running {line}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let as_expected = match case.expected {
            Expected::Works(text) => output.status.success() && said.contains(text),
            Expected::Refused(text) => output.status.code() == Some(2) && error.contains(text),
        };
        if as_expected {
            return Ok("as expected".to_owned());
        }
        Ok(format!("{}: {}", output.status, error.lines().last().unwrap_or(&said)))
    }
}

/// The filter without the calls that make namespaces.
fn without_namespaces(filter: &str) -> anyhow::Result<String> {
    let mut filter: Value = serde_json::from_str(filter).context("the filter is not JSON")?;
    let Some(rules) = filter["syscalls"].as_array_mut() else { bail!("the filter has no rules") };
    let forbidden = |name: &Value| {
        name.as_str().is_some_and(|name| name == "clone" || NAMESPACES.contains(&name))
    };
    for rule in rules.iter_mut() {
        if let Some(names) = rule["names"].as_array_mut() {
            names.retain(|name| !forbidden(name));
        }
    }
    rules.retain(|rule| rule["names"].as_array().is_some_and(|names| !names.is_empty()));
    rules.push(json!({
        "names": ["clone"],
        "action": "SCMP_ACT_ALLOW",
        "args": [{"index": 0, "value": CLONE_NEW, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
    }));
    Ok(filter.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_without_namespaces_still_lets_threads_be_made() {
        let filter = r#"{"syscalls": [
            {"names": ["clone", "read", "unshare"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["setns"], "action": "SCMP_ACT_ALLOW"}
        ]}"#;
        let filter: Value = serde_json::from_str(&without_namespaces(filter).unwrap()).unwrap();
        assert_eq!(filter["syscalls"][0]["names"], json!(["read"]));
        assert_eq!(filter["syscalls"][1]["names"], json!(["clone"]));
        assert_eq!(filter["syscalls"][1]["args"][0]["value"], 2_114_060_288);
        assert!(without_namespaces("{}").is_err());
    }
}
