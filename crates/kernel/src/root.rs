//! Files as a process sees them: paths are resolved inside its root directory, and no symbolic link
//! leads out of it.
//!
//! A file is looked at before it is opened (`O_PATH`), so that no FIFO waits and no device acts.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::statfs::{PROC_SUPER_MAGIC, SYSFS_MAGIC, fstatfs};

use crate::SysError;

/// The root directory of a process.
#[derive(Debug)]
pub struct Root(File);

impl Root {
    /// Opens a directory as a root: `/`, or `/proc/PID/root` of a process that may be read.
    pub fn open(path: &Path) -> Result<Self, SysError> {
        let named = |error: io::Error| SysError::new("open", path.display().to_string(), error);
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let mut options = fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
        options.read(true).open(path).map(Self).map_err(named)
    }

    /// Whether something of this path is there.
    pub fn has(&self, path: &Path) -> Result<bool, SysError> {
        match self.place(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file of a real file system for reading.
    ///
    /// Errors: also for whatever is no regular file, and for files of `proc` and `sysfs`.
    pub fn file(&self, path: &Path) -> Result<File, SysError> {
        let place = self.place(path)?;
        let named = |error: io::Error| SysError::new("open", path.display().to_string(), error);
        let refused = |why: &str| named(io::Error::new(io::ErrorKind::InvalidInput, why));
        let within = format!("/proc/self/fd/{}", place.as_raw_fd());
        let kind = fs::metadata(&within).map_err(named)?.file_type();
        if !kind.is_file() {
            return Err(refused("not a regular file"));
        }
        let system = fstatfs(&place).map_err(|errno| named(errno.into()))?.filesystem_type();
        if system == PROC_SUPER_MAGIC || system == SYSFS_MAGIC {
            return Err(refused("a file of the kernel's"));
        }
        File::open(&within).map_err(named)
    }

    /// Names in a folder, unsorted, of at most `most` entries; those that are not text are left out.
    pub fn names(&self, path: &Path, most: usize) -> Result<Vec<String>, SysError> {
        let place = self.place(path)?;
        let named = |error: io::Error| SysError::new("readdir", path.display().to_string(), error);
        let within = format!("/proc/self/fd/{}/.", place.as_raw_fd());
        let entries = fs::read_dir(within).map_err(named)?.take(most);
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
    }

    fn place(&self, path: &Path) -> Result<OwnedFd, SysError> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        openat2(&self.0, path, OpenHow::new().flags(flags).resolve(resolve))
            .map_err(|errno| SysError::new("open", path.display().to_string(), errno))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn folder() -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("tcptoll-root-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("etc")).unwrap();
        path
    }

    #[test]
    fn links_stay_inside_the_root_and_only_regular_files_are_opened() {
        let path = folder();
        fs::write(path.join("etc/conf"), b"inside").unwrap();
        for (link, to) in [("absolute", "/etc/conf"), ("up", "../../../../etc/conf")] {
            std::os::unix::fs::symlink(to, path.join("etc").join(link)).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", path.join("etc/out")).unwrap();
        std::os::unix::fs::symlink("loop", path.join("etc/loop")).unwrap();
        nix::unistd::mkfifo(&path.join("etc/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let root = Root::open(&path).unwrap();
        for name in ["/etc/conf", "/etc/absolute", "/etc/up", "/../etc/conf"] {
            let mut text = String::new();
            root.file(Path::new(name)).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "inside", "{name}");
        }
        // The file that the link means outside is there; inside, it is not.
        assert_eq!(root.file(Path::new("/etc/out")).unwrap_err().errno(), Some(libc::ENOENT));
        assert_eq!(root.file(Path::new("/etc/loop")).unwrap_err().errno(), Some(libc::ELOOP));
        for name in ["/etc/fifo", "/etc"] {
            let error = root.file(Path::new(name)).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
        assert!(root.has(Path::new("/etc/conf")).unwrap());
        assert!(!root.has(Path::new("/etc/conf/none")).unwrap());
        let mut names = root.names(Path::new("/etc"), 100).unwrap();
        names.sort();
        assert_eq!(names, ["absolute", "conf", "fifo", "loop", "out", "up"]);
        assert_eq!(root.names(Path::new("/etc"), 2).unwrap().len(), 2);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn devices_and_files_of_the_kernel_are_refused() {
        let root = Root::open(Path::new("/")).unwrap();
        for (name, why) in [
            ("/dev/zero", "not a regular file"),
            ("/proc/version", "a file of the kernel's"),
            ("/proc/self/environ", "a file of the kernel's"),
        ] {
            let error = root.file(Path::new(name)).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
