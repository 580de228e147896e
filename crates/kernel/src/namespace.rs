//! Namespaces without privileges: how a process leaves the machine's own network behind.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    /// One of `user.max_*_namespaces` is reached, or 0.
    MaxNamespaces,
    /// None of these: a container's seccomp filter or security policy.
    Container,
}

impl Refusal {
    /// Reads the settings that are known to be the reason of a refusal with this error.
    pub fn from_errno(errno: Option<i32>) -> Self {
        // Nothing else gives it (`namespaces(7)`), and the limit may be one of a container's.
        if errno == Some(libc::ENOSPC) {
            return Self::MaxNamespaces;
        }
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
        Ok(()) => map_ids((0, 0), uid.as_raw(), gid.as_raw())?,
        // A container's root may be refused user namespaces and yet have CAP_SYS_ADMIN.
        Err(e) if uid.is_root() => unshare(flags.difference(CloneFlags::CLONE_NEWUSER))
            .map_err(|_| SysError::new("unshare", "user namespace", e))?,
        Err(e) => return Err(SysError::new("unshare", "user namespace", e)),
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .map_err(|e| SysError::new("mount", "/ as private", e))
}

/// Leaves the PID and mount namespaces of the machine, and nothing else of it: the caller keeps its network
/// and its user. The PID namespace begins with the next child.
///
/// A user without privileges enters a user namespace in which it is still itself.
///
/// Must be called while the process has one thread.
pub fn leave_processes() -> Result<(), SysError> {
    let flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    if unshare(flags).is_err() {
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        unshare(flags | CloneFlags::CLONE_NEWUSER)
            .map_err(|e| SysError::new("unshare", "PID namespace", e))?;
        map_ids((uid, gid), uid, gid)?;
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
    map_ids((inner, inner), uid.as_raw(), gid.as_raw())
}

/// `inner`: user and group in the new namespace.
fn map_ids(inner: (u32, u32), uid: u32, gid: u32) -> Result<(), SysError> {
    let write = |path: &str, text: String| {
        fs::write(path, text).map_err(|e| SysError::new("write", path, e))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{} {uid} 1", inner.0))?;
    write("/proc/self/gid_map", format!("{} {gid} 1", inner.1))
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

/// A network namespace that exists already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// That of a process, by the PID that `/proc` shows here.
    OfProcess(u32),
    /// A file that stands for one, such as `/run/netns/NAME` of `ip netns`.
    At(PathBuf),
}

impl Network {
    /// Reads `4711` as a PID and everything else as a path. `None`: neither a PID nor an absolute path.
    pub fn parse(text: &str) -> Option<Self> {
        match text.parse::<u32>() {
            Ok(0) => None,
            Ok(pid) => Some(Self::OfProcess(pid)),
            Err(_) => text.starts_with('/').then(|| Self::At(text.into())),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::OfProcess(pid) => format!("/proc/{pid}/ns/net").into(),
            Self::At(path) => path.clone(),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfProcess(pid) => write!(f, "network namespace of process {pid}"),
            Self::At(path) => write!(f, "network namespace {}", path.display()),
        }
    }
}

/// Moves the calling thread into an existing network namespace.
///
/// Who has the privilege joins it directly and keeps every right outside of it, such as to read the
/// owners of sockets. Everyone else joins the user namespace that owns it first, and can do so if
/// they made it: then all rights in it come with it, and those over processes outside of it go. That
/// needs a process with one thread. `/proc/thread-self/net` and `/proc/sys/net` follow the thread;
/// `/proc/PID` does not change, as the PID namespace stays.
///
/// Errors: [`SysError::on`] names the namespace, [`SysError::hint`] the remedy. ENOENT and EACCES of
/// `open`: there is no such process, or it is another user's. EPERM of `setns`: this user may not
/// join. EINVAL of `setns`: the file is no network namespace. The thread's network has not changed then.
///
/// Source: `netns_install()` in `net/core/net_namespace.c` and `userns_install()` in
/// `kernel/user_namespace.c`, Linux 6.18.
pub fn join_network(network: &Network) -> Result<(), SysError> {
    let failed = |op| move |e| SysError::new(op, network.to_string(), io::Error::from(e));
    let path = network.path();
    let wanted = fs::File::open(path).map_err(|e| SysError::new("open", network.to_string(), e))?;
    let own = fs::File::from(current_network()?);
    if same_file(&wanted, &own) {
        return Ok(());
    }
    match setns(&wanted, CloneFlags::CLONE_NEWNET) {
        Ok(()) => return Ok(()),
        Err(nix::errno::Errno::EPERM) => {}
        Err(errno) => return Err(failed("setns")(errno)),
    }
    let owner = owning_user_namespace(&wanted).map_err(|_| {
        // The kernel shows an owner only to those whose namespace it is below.
        failed("setns")(nix::errno::Errno::EPERM)
    })?;
    let here = "/proc/self/ns/user";
    let here = fs::File::open(here).map_err(|e| SysError::new("open", here, e))?;
    if same_file(&owner, &here) {
        return Err(failed("setns")(nix::errno::Errno::EPERM));
    }
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        let reason =
            io::Error::other(format!("{threads} threads, and its user namespace needs one"));
        return Err(SysError::new("setns", network.to_string(), reason));
    }
    setns(&owner, CloneFlags::CLONE_NEWUSER).map_err(failed("setns"))?;
    setns(&wanted, CloneFlags::CLONE_NEWNET).map_err(failed("setns"))
}

fn same_file(one: &fs::File, other: &fs::File) -> bool {
    let id = |file: &fs::File| file.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    id(one).is_some_and(|one| Some(one) == id(other))
}

/// The user namespace whose capabilities rule this namespace.
fn owning_user_namespace(namespace: &fs::File) -> Result<fs::File, SysError> {
    /// `NS_GET_USERNS` of `linux/nsfs.h`, `_IO(0xb7, 1)`.
    const NS_GET_USERNS: libc::c_ulong = 0xb701;
    let owner = SysError::check(
        // SAFETY: the request takes no argument and touches no memory of this process.
        unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS as _) },
        "NS_GET_USERNS",
        "network namespace",
    )?;
    // SAFETY: the kernel made this number just now, and nobody else has it.
    Ok(unsafe { fs::File::from_raw_fd(owner) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_process_and_an_absolute_path_a_file() {
        assert_eq!(Network::parse("4711"), Some(Network::OfProcess(4711)));
        assert_eq!(Network::parse("/run/netns/a"), Some(Network::At("/run/netns/a".into())));
        assert_eq!(["", "0", "-1", "a", "4294967296"].map(Network::parse), [const { None }; 5]);
    }

    #[test]
    fn the_namespace_of_this_process_is_joined_by_staying() {
        let own = Network::OfProcess(std::process::id());
        join_network(&own).unwrap();
        assert_eq!(own.to_string(), format!("network namespace of process {}", std::process::id()));
    }

    #[test]
    fn what_cannot_be_joined_is_named_with_the_reason() {
        let absent = join_network(&Network::OfProcess(u32::MAX)).unwrap_err();
        assert_eq!((absent.op, absent.errno()), ("open", Some(libc::ENOENT)));
        assert!(absent.to_string().ends_with("(there is no such process or file)"), "{absent}");
        let path = std::env::temp_dir().join(format!("tcptoll-netns-{}", std::process::id()));
        fs::write(&path, b"").unwrap();
        let plain = join_network(&Network::At(path.clone()));
        fs::remove_file(&path).unwrap();
        let plain = plain.unwrap_err();
        assert_eq!((plain.op, plain.errno()), ("setns", Some(libc::EINVAL)));
        assert_eq!(plain.hint(), Some("the file is not a network namespace"));
    }
}
