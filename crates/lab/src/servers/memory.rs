//! A limit of memory for a server, by a control group of the kernel (cgroup v1 or v2).
//!
//! Unlike everything else of a lab the group has a name that is seen outside, so something must remove it
//! even after `kill -9`: a process of its own, the keeper (`tcptoll-memory` in `ps`), makes it, waits until
//! whoever wanted it is gone, ends what is left inside and removes it. The server host enters the group while
//! it starts the server, whose processes stay in it. So the server host's own memory stays outside. The
//! keeper waits for the end of its input, which comes after `kill -9` too. Measured: 60 workers of 20 MB
//! under 512 MiB, 26 killed by the kernel in 8 s, and the group gone after SIGKILL of the run.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tcptoll_kernel::process;

use crate::control_group::{Home, home};
use crate::messages::MemoryGroup;

/// The hidden sub-command that makes a keeper of the re-executed binary.
pub const KEEP_COMMAND: &str = "__memory";

/// Groups have this name, the number of the process that wanted them, and a number.
const NAME: &str = "tcptoll-";

/// What is killed is gone within this, or the group stays and is said to.
const REMOVE_LIMIT: Duration = Duration::from_secs(10);

/// A group that is there until this is dropped.
#[derive(Debug)]
pub struct KeptGroup {
    /// What the kernel counts of it.
    pub group: MemoryGroup,
    keeper: Child,
}

impl KeptGroup {
    /// Makes a group whose processes have so much memory together, and no swap.
    ///
    /// Errors: a sentence that says why this machine does not give one.
    pub fn make(bytes: u64) -> Result<Self, String> {
        let failed = |error: io::Error| format!("the memory limit cannot be set: {error}");
        // In a process group of its own: what ends the run's group does not end it.
        let mut command = Command::new("/proc/self/exe");
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut keeper = command
            .arg(KEEP_COMMAND)
            .arg(bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = keeper.stdout.take() {
            BufReader::new(output.take(64 << 10)).read_line(&mut line).map_err(failed)?;
        }
        let told: Result<MemoryGroup, String> = serde_json::from_str(&line)
            .map_err(|_| "the process that keeps the memory limit ended".to_owned())?;
        match told {
            Ok(group) => Ok(Self { group, keeper }),
            Err(why) => {
                let _ = keeper.wait();
                Err(why)
            }
        }
    }
}

impl Drop for KeptGroup {
    fn drop(&mut self) {
        // The keeper sees the end of its input.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Processes that the kernel killed because a group's memory was used up.
pub fn kills(group: &MemoryGroup) -> Option<u64> {
    let file = if group.version == 1 { "memory.oom_control" } else { "memory.events" };
    let text = fs::read_to_string(group.folder.join(file)).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
}

/// Moves the calling process into a group, until the result is dropped.
pub(super) fn inside(group: &MemoryGroup) -> Result<Inside<'_>, String> {
    enter(&group.folder)?;
    Ok(Inside(group))
}

/// The calling process is in a group.
pub(super) struct Inside<'a>(&'a MemoryGroup);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let _ = enter(&self.0.home);
    }
}

fn enter(folder: &Path) -> Result<(), String> {
    let file = folder.join("cgroup.procs");
    fs::write(&file, "0").map_err(|error| format!("{}: {error}", file.display()))
}

/// Becomes the keeper of a group with this limit in bytes; gives its exit status when the group is removed.
pub fn keep(bytes: &str) -> i32 {
    process::set_name("tcptoll-memory");
    let _ = process::ignore_stop_signals();
    let Ok(bytes) = bytes.parse() else { return 2 };
    let made = make(bytes);
    let Ok(line) = serde_json::to_string(&made) else { return 1 };
    // Its reader may be gone already: the group is removed nevertheless.
    let _ = io::Write::write_all(&mut io::stdout(), format!("{line}\n").as_bytes());
    let Ok(group) = made else { return 1 };
    let _ = io::stdin().read_to_end(&mut Vec::new());
    i32::from(!remove(&group.folder))
}

/// Ends what is inside and removes the group.
fn remove(folder: &Path) -> bool {
    let begun = Instant::now();
    loop {
        for pid in fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default().lines() {
            pid.parse().into_iter().for_each(process::kill);
        }
        match fs::remove_dir(folder) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            // Until the kernel has ended them all.
            Err(_) if begun.elapsed() < REMOVE_LIMIT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => return false,
        }
    }
}

fn make(bytes: u64) -> Result<MemoryGroup, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let place = CgroupPlace::find(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)?;
    let wanted_by = std::os::unix::process::parent_id();
    sweep(&place.under);
    let number = (0..1_000)
        .find(|number| !place.under.join(format!("{NAME}{wanted_by}-{number}")).exists())
        .unwrap_or_default();
    let folder = place.under.join(format!("{NAME}{wanted_by}-{number}"));
    fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let group = MemoryGroup { folder, home: place.home, version: place.version };
    limit(&group, bytes).inspect_err(|_| {
        let _ = fs::remove_dir(&group.folder);
    })?;
    Ok(group)
}

fn limit(group: &MemoryGroup, bytes: u64) -> Result<(), String> {
    let set = |file: &str, value: &str| {
        let path = group.folder.join(file);
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    };
    let bytes = bytes.to_string();
    if group.version == 1 {
        set("memory.limit_in_bytes", &bytes)?;
        // Without accounts of swap (`swapaccount=0`) it is forbidden otherwise.
        return set("memory.memsw.limit_in_bytes", &bytes)
            .or_else(|_| set("memory.swappiness", "0"));
    }
    set("memory.max", &bytes)?;
    // Absent where the kernel has no swap.
    if group.folder.join("memory.swap.max").exists() {
        set("memory.swap.max", "0")?;
    }
    Ok(())
}

/// Removes groups of runs that are gone and whose keeper was killed too. One with processes stays: the
/// kernel removes none that is in use.
fn sweep(under: &Path) {
    for entry in fs::read_dir(under).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next());
        if owner.is_some_and(|pid| pid.parse::<u32>().is_ok() && !exists(pid)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn exists(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

/// Where a group can be made.
#[derive(Debug, PartialEq, Eq)]
struct CgroupPlace {
    version: u8,
    /// The group that this process is in.
    home: PathBuf,
    /// The group in which the new one is to be.
    under: PathBuf,
}

impl CgroupPlace {
    /// From `/proc/self/cgroup` and `/proc/self/mountinfo`.
    fn find(groups: &str, mounts: &str) -> Result<Self, String> {
        let Home { version, folder: home, at } =
            home("memory", groups, mounts).ok_or("no control groups are mounted (cgroup)")?;
        if version == 1 {
            return Ok(Self { version, under: home.clone(), home });
        }
        // A group may limit the memory of those below it where its own file says so.
        let gives = |folder: &&Path| {
            let text = fs::read_to_string(folder.join("cgroup.subtree_control"));
            text.is_ok_and(|text| text.split_whitespace().any(|word| word == "memory"))
        };
        let under = home.ancestors().take_while(|folder| folder.starts_with(&at)).find(gives);
        let under = under.ok_or(
            "no control group above this process enables the memory controller for its children \
             (cgroup.subtree_control)",
        )?;
        Ok(Self { version, under: under.to_owned(), home: home.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_group_of_version_1_is_made_below_the_own_one() {
        let place = CgroupPlace::find("4:memory:/a/b\n3:cpuset:/\n0::/\n", FIRST).unwrap();
        let home = PathBuf::from("/sys/fs/cgroup/memory/a/b");
        assert_eq!(place, CgroupPlace { version: 1, under: home.clone(), home });
    }

    #[test]
    fn without_a_memory_controller_it_says_why() {
        let empty = tempfile::tempdir().unwrap();
        let mounts = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", empty.path().display());
        assert!(CgroupPlace::find("0::/a\n", &mounts).unwrap_err().contains("subtree_control"));
        assert!(CgroupPlace::find("", "").unwrap_err().contains("mounted"));
        fs::create_dir(empty.path().join("a")).unwrap();
        fs::write(empty.path().join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let place = CgroupPlace::find("0::/a\n", &mounts).unwrap();
        assert_eq!((place.under.as_path(), place.version), (empty.path(), 2));
        assert_eq!(place.home, empty.path().join("a"));
    }

    #[test]
    fn kills_are_read_in_either_version() {
        let folder = tempfile::tempdir().unwrap();
        let group = |version| MemoryGroup {
            folder: folder.path().to_owned(),
            home: PathBuf::new(),
            version,
        };
        let first = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        fs::write(folder.path().join("memory.oom_control"), first).unwrap();
        let second = "low 0\nhigh 0\nmax 9\noom 2\noom_kill 4\noom_group_kill 0\n";
        fs::write(folder.path().join("memory.events"), second).unwrap();
        assert_eq!((kills(&group(1)), kills(&group(2))), (Some(3), Some(4)));
    }

    #[test]
    fn only_groups_of_runs_that_are_gone_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "tcptoll-4194999-0".to_owned(),
            format!("tcptoll-{}-0", std::process::id()),
            "tcptoll-x-1".to_owned(),
        ];
        for name in &names {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        sweep(folder.path());
        assert_eq!(names.map(|name| folder.path().join(name).exists()), [false, true, true]);
    }
}
