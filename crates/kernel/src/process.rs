//! Processes: forking, dying with the parent, handing over sockets, ending what was started.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, Pid};

use crate::SysError;
use crate::cpu;
use crate::namespace;

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug)]
pub enum Fork {
    /// The parent, with the child's PID.
    Parent(i32),
    /// The child.
    Child,
}

/// Forks. The child goes on from here, with its own copy of everything.
///
/// Errors: also if the process has more than one thread, whose locks the child would inherit held.
pub fn fork() -> Result<Fork, SysError> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        let reason = io::Error::other(format!("{threads} threads"));
        return Err(SysError::new("fork", "this process", reason));
    }
    // SAFETY: the process has one thread (checked above), so the child may do whatever this
    // process may.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Parent { child }) => Ok(Fork::Parent(child.as_raw())),
        Ok(ForkResult::Child) => Ok(Fork::Child),
        Err(e) => Err(SysError::new("fork", "this process", e)),
    }
}

/// Asks the kernel to kill this process when the thread that forked it ends.
pub fn die_with_parent() -> Result<(), SysError> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|e| SysError::new("PR_SET_PDEATHSIG", "this process", e))
}

/// Makes this process the parent of what its children leave behind, as a server that goes into the
/// background does, so that its CPU time can be read.
pub fn adopt_orphans() -> Result<(), SysError> {
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(|e| SysError::new("PR_SET_CHILD_SUBREAPER", "this process", e))
}

/// The C library of this process with its version where it tells one: `glibc 2.36`, `musl`.
///
/// None: one that is not known here.
pub fn libc() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it takes nothing, and gives a string that is never freed or changed.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        Some(format!("glibc {}", version.to_string_lossy()))
    }
    #[cfg(target_env = "musl")]
    {
        Some("musl".to_owned())
    }
    #[cfg(not(any(target_env = "gnu", target_env = "musl")))]
    {
        None
    }
}

/// Gives the calling thread a name that `ps` shows, 15 bytes at most.
pub fn set_name(name: &str) {
    if let Ok(text) = std::ffi::CString::new(name) {
        let _ = nix::sys::prctl::set_name(&text);
    }
}

/// Ignores the signals of an interactive stop: the parent decides when its hosts stop.
pub fn ignore_stop_signals() -> Result<(), SysError> {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigIgn) }
            .map_err(|e| SysError::new("signal", signal.as_str(), e))?;
    }
    Ok(())
}

/// Waits for any child to end: its number, and its status as shells tell it, 128 and the signal if one ended it;
/// `None` when there is none left.
pub fn reap() -> Option<(i32, i32)> {
    use nix::sys::wait::WaitStatus;
    loop {
        match nix::sys::wait::wait() {
            Ok(WaitStatus::Exited(pid, status)) => return Some((pid.as_raw(), status)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                return Some((pid.as_raw(), 128 + signal as i32));
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Starts `command` with these sockets open at the same numbers, dying with the calling thread.
pub fn spawn_with(command: &mut Command, keep: &[BorrowedFd<'_>]) -> io::Result<Child> {
    let numbers: Vec<i32> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    let parent = std::process::id();
    // SAFETY: the closure only makes async-signal-safe calls (prctl, getppid, fcntl).
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return Err(io::Error::last_os_error());
            }
            if libc::getppid() != parent as i32 {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            for &number in &numbers {
                if libc::fcntl(number, libc::F_SETFD, 0) == -1 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn()
}

/// Makes `command` run as an ordinary user of a nested user namespace (see
/// [`namespace::become_ordinary_user`]) with default signals, dying with the calling thread.
pub fn as_ordinary_user(command: &mut Command, inner_uid: u32) {
    restore_signals(command);
    // SAFETY: between fork and exec the child has one thread. The calls allocate, and another
    // thread of the parent may have held the allocator's lock: the C library's fork, which std
    // calls, takes and releases that lock around the fork (glibc and musl), so it is free here.
    unsafe {
        command.pre_exec(move || {
            namespace::become_ordinary_user(inner_uid).map_err(|e| e.source)?;
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Gives `command` the default handling of stop signals, which hosts ignore.
pub fn restore_signals(command: &mut Command) {
    // SAFETY: signal(2) is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// Kills a process group: a server that was started as its leader, and what that started.
pub fn kill_group(leader: u32) {
    let _ = nix::sys::signal::killpg(Pid::from_raw(leader as i32), Signal::SIGKILL);
}

/// Kills a process; nothing happens if it is gone.
pub fn kill(pid: u32) {
    let _ = nix::sys::signal::kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
}

/// Waits until no process of a killed group is left: its leader, a child, and what that started, which
/// [`adopt_orphans`] makes children of this process.
///
/// Cost: until the kernel has ended them all; only call it after [`kill_group`].
pub fn reap_group(leader: u32) {
    let group = Pid::from_raw(-(leader as i32));
    loop {
        match nix::sys::wait::waitpid(group, None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// Kills all that this process and its descendants have begun, and waits for those that have become its own
/// children ([`adopt_orphans`]). Does nothing where `/proc` shows the processes of another namespace.
///
/// Cost: a look at each descendant; again, as long as there were some.
pub fn end_descendants() {
    let own = std::process::id();
    if std::fs::read_link("/proc/self")
        .is_ok_and(|link| link.as_os_str() != own.to_string().as_str())
    {
        return;
    }
    loop {
        let living = cpu::descendants();
        for &pid in &living {
            kill(pid);
        }
        while let Ok(
            nix::sys::wait::WaitStatus::Exited(..) | nix::sys::wait::WaitStatus::Signaled(..),
        ) =
            nix::sys::wait::waitpid(Pid::from_raw(-1), Some(nix::sys::wait::WaitPidFlag::WNOHANG))
        {
        }
        if living.is_empty() {
            return;
        }
        // Not for luck: asked again until there is none.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Inodes of the sockets that these processes have open, as far as `/proc` lets this user see them.
pub fn socket_inodes(pids: &[u32]) -> std::collections::BTreeSet<u64> {
    let mut inodes = std::collections::BTreeSet::new();
    for pid in pids {
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let link = std::fs::read_link(entry.path()).unwrap_or_default();
            let text = link.to_string_lossy();
            let number = text.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            inodes.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
    }
    inodes
}

/// Makes reads and writes of a descriptor that was inherited return at once.
pub fn set_nonblocking(fd: impl std::os::fd::AsFd) -> Result<(), SysError> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let fd = fd.as_fd();
    let failed = |e| SysError::new("fcntl", "an inherited descriptor", e);
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL).map_err(failed)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop).map_err(failed)
}

/// Stops a child where it is, and waits until it stands still; its kernel goes on answering for it.
pub fn freeze(pid: u32) -> Result<(), SysError> {
    let child = Pid::from_raw(pid as i32);
    nix::sys::signal::kill(child, Signal::SIGSTOP)
        .map_err(|e| SysError::new("kill", format!("process {pid}"), e))?;
    nix::sys::wait::waitpid(child, Some(nix::sys::wait::WaitPidFlag::WUNTRACED))
        .map_err(|e| SysError::new("waitpid", format!("process {pid}"), e))?;
    Ok(())
}

/// Lets a stopped process go on.
pub fn resume(pid: u32) -> Result<(), SysError> {
    nix::sys::signal::kill(Pid::from_raw(pid as i32), Signal::SIGCONT)
        .map_err(|e| SysError::new("kill", format!("process {pid}"), e))
}

/// A socket handed over at start-up under a number of the command line.
///
/// Errors: if the number is no open socket.
pub fn inherited_socket(number: i32) -> Result<UnixStream, SysError> {
    use std::os::fd::FromRawFd;
    SysError::check(
        // SAFETY: fcntl on any number is harmless; it says whether it is open.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) },
        "fcntl",
        "inherited socket",
    )?;
    // SAFETY: the number is open (checked above) and the caller is the only one to own it.
    Ok(UnixStream::from(unsafe { OwnedFd::from_raw_fd(number) }))
}

/// Effective user id of this process.
pub fn uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}
