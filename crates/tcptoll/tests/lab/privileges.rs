//! Does the lab work for an ordinary user, with and without /dev/net/tun?

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use tcptoll_core::record::{LinkKind, Summary};

use crate::support::{
    Folder, TOLERANCE, checked_summary, lacks, measured, min_ms, not_root, only, run,
};

const NOBODY: u32 = 65_534;

/// A copy of the binary where everybody can read it.
fn public_copy(folder: &Folder) -> String {
    let copy = folder.file("tcptoll");
    fs::copy(env!("CARGO_BIN_EXE_tcptoll"), &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.0.path(), Permissions::from_mode(0o755)).unwrap();
    copy.display().to_string()
}

fn options() -> Vec<&'static str> {
    let mut words = vec!["connect", "--quiet", "--format", "json", "--out", "/dev/null"];
    words.extend(["--link", "rtt=10ms", "--count", "50", "--link-tolerance", TOLERANCE]);
    words
}

fn works(command: &mut Command) -> Summary {
    let ran = run(command.env("HOME", "/tmp").current_dir("/tmp"));
    assert!(measured(&ran), "{:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (50, 50), "{:?}", arm.errors);
    assert!(min_ms(arm, "connect_us") >= 9.0, "{} ms", min_ms(arm, "connect_us"));
    summary
}

#[test]
fn an_ordinary_user_measures_over_10_ms() {
    if not_root() {
        return;
    }
    let folder = Folder::new();
    let binary = public_copy(&folder);
    let mut command = Command::new(binary);
    let summary = works(command.args(options()).uid(NOBODY).gid(NOBODY));
    assert_eq!(summary.passport.uid, NOBODY);
}

#[test]
fn without_the_tun_device_an_ordinary_user_measures_over_the_relay_and_is_told() {
    if not_root() || lacks(&["unshare", "setpriv", "mount"]) {
        return;
    }
    let folder = Folder::new();
    let binary = public_copy(&folder);
    let hidden = folder.file("hidden");
    fs::write(&hidden, "").unwrap();
    fs::set_permissions(&hidden, Permissions::from_mode(0o000)).unwrap();
    let script = "mount --bind \"$0\" /dev/net/tun && \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&hidden).arg(binary).args(options());
    let summary = works(&mut command);
    assert_eq!(only(&summary).link.as_ref().unwrap().kind, LinkKind::EmulatedPacket);
    assert!(summary.warnings.iter().any(|warning| warning.id == "packet-fallback"));
}
