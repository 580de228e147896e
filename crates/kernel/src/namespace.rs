//! Namespaces without privileges: how a process leaves the machine's own network behind.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use crate::SysError;

/// Why the kernel does not let this user make namespaces, as far as its settings tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// AppArmor restricts user namespaces (Ubuntu since 23.10).
    AppArmor,
    /// `kernel.unprivileged_userns_clone` is 0 (Debian's and Arch's hardened kernels).
    UsernsClone,
    /// `user.max_user_namespaces` or `user.max_net_namespaces` is 0.
    MaxNamespaces,
    /// None of these: a container's seccomp filter or security policy.
    Container,
}

impl Refusal {
    /// Reads the settings that are known to be the reason.
    pub fn read() -> Self {
        let is = |path: &str, value: &str| {
            fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
        };
        if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
            Self::AppArmor
        } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
            Self::UsernsClone
        } else if is("/proc/sys/user/max_user_namespaces", "0")
            || is("/proc/sys/user/max_net_namespaces", "0")
        {
            Self::MaxNamespaces
        } else {
            Self::Container
        }
    }
}

/// Leaves the user, mount and PID namespaces of the machine; the caller becomes uid 0 of the new
/// user namespace, mapped to itself. The PID namespace begins with the next child.
///
/// Must be called while the process has one thread.
pub fn leave_machine() -> Result<(), SysError> {
    let uid = nix::unistd::getuid();
    let gid = nix::unistd::getgid();
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    match unshare(flags) {
        Ok(()) => map_ids(0, uid.as_raw(), gid.as_raw())?,
        // A container's root may be refused user namespaces and yet have CAP_SYS_ADMIN.
        Err(e) if uid.is_root() => unshare(flags.difference(CloneFlags::CLONE_NEWUSER))
            .map_err(|_| SysError::new("unshare", "user namespace", e))?,
        Err(e) => return Err(SysError::new("unshare", "user namespace", e)),
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .map_err(|e| SysError::new("mount", "/ as private", e))
}

/// Enters a further user namespace as `inner` (not 0), mapped to the caller's own id; real servers
/// refuse to run as a root that cannot change owners.
///
/// Must be called while the process has one thread, as between fork and exec.
pub fn become_ordinary_user(inner: u32) -> Result<(), SysError> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|e| SysError::new("unshare", "user namespace", e))?;
    map_ids(inner, uid.as_raw(), gid.as_raw())
}

fn map_ids(inner: u32, uid: u32, gid: u32) -> Result<(), SysError> {
    let write = |path: &str, text: String| {
        fs::write(path, text).map_err(|e| SysError::new("write", path, e))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{inner} {uid} 1"))?;
    write("/proc/self/gid_map", format!("{inner} {gid} 1"))
}

/// Mounts a `/proc` of the current PID namespace; refused in some containers, which then see the
/// machine's.
pub fn mount_proc() -> Result<(), SysError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)
        .map_err(|e| SysError::new("mount", "/proc", e))
}

/// Mounts an empty folder in memory over this one; nobody outside the mount namespace sees it, and
/// it goes with the namespace.
///
/// Must be called in a mount namespace of the lab's own.
pub fn mount_memory(over: &Path) -> Result<(), SysError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), over, Some("tmpfs"), flags, Some("mode=0700"))
        .map_err(|e| SysError::new("mount", over.display().to_string(), e))
}

/// Makes a network namespace, enters it, and gives a handle to come back.
pub fn new_network() -> Result<OwnedFd, SysError> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|e| SysError::new("unshare", "network namespace", e))?;
    current_network()
}

/// A handle to the network namespace of the calling thread.
pub fn current_network() -> Result<OwnedFd, SysError> {
    let path = "/proc/thread-self/ns/net";
    fs::File::open(path).map(OwnedFd::from).map_err(|e| SysError::new("open", path, e))
}

/// Enters a network namespace.
pub fn enter_network(namespace: impl AsFd) -> Result<(), SysError> {
    setns(namespace, CloneFlags::CLONE_NEWNET)
        .map_err(|e| SysError::new("setns", "network namespace", e))
}
