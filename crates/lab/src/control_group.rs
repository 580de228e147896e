//! In which control group of the kernel (cgroup v1 or v2) is this process?

use std::path::{Path, PathBuf};

/// The group of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// Of the kernel's interface, 1 or 2.
    pub(crate) version: u8,
    /// The group's folder.
    pub(crate) folder: PathBuf,
    /// Where groups of its kind are mounted.
    pub(crate) at: PathBuf,
}

/// The group of a process under this controller, from its `/proc/PID/cgroup` and `mountinfo`.
///
/// None: no such groups are mounted.
pub(crate) fn home(controller: &str, groups: &str, mounts: &str) -> Option<Home> {
    // `4:memory:/path` of version 1; `0::/path` of version 2.
    let path_of = |wanted: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|one| one == wanted).then_some(path)
        })
    };
    let first = mount(mounts, |kind, options| {
        kind == "cgroup" && options.split(',').any(|option| option == controller)
    });
    let (version, (root, at), path) = match first.zip(path_of(controller)) {
        Some((mount, path)) => (1, mount, path),
        None => (2, mount(mounts, |kind, _| kind == "cgroup2")?, path_of("")?),
    };
    Some(Home { version, folder: folder_of(root, at, path), at: at.to_owned() })
}

/// Root and place of the first mount of this kind: fields 4 and 5 of a line, and those after ` - `.
fn mount(mounts: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<(&str, &Path)> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, at) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        is_it(kind, options).then_some((root, Path::new(at)))
    })
}

/// The folder of a group; the mount shows those below `root`, the whole of which a container has.
fn folder_of(root: &str, at: &Path, path: &str) -> PathBuf {
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    at.join(below.strip_prefix("/").unwrap_or(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_sees_its_own_group_as_the_root_of_the_mount() {
        let mounts = "35 31 0:32 /docker/7f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let home = home("memory", "4:memory:/docker/7f\n", mounts).unwrap();
        assert_eq!((home.version, home.folder), (1, PathBuf::from("/sys/fs/cgroup/memory")));
    }

    #[test]
    fn without_the_controller_in_version_1_the_group_is_that_of_version_2() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let home = |controller| home(controller, "4:memory:/a\n0::/b\n", mounts).unwrap();
        assert_eq!(home("memory").folder, PathBuf::from("/sys/fs/cgroup/memory/a"));
        assert_eq!(home("cpu").folder, PathBuf::from("/sys/fs/cgroup/unified/b"));
        assert_eq!(super::home("cpu", "", ""), None);
    }
}
