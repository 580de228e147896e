//! Where the files of a server or a browser are while it runs: configuration, content, profile, log.
//!
//! A tmpfs inside the lab's mount namespace, mounted over an empty folder such as `/mnt`: it goes with the
//! lab's last process, also after `kill -9`, and nobody outside ever sees it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tcptoll_kernel::namespace::mount_memory;

/// Folders of the Filesystem Hierarchy Standard that are there and mostly empty. One that holds
/// something is left alone: a capture might be written there.
const MOSTLY_EMPTY: [&str; 6] = ["/mnt", "/media", "/srv", "/opt", "/var/local", "/usr/games"];

/// A folder of the kernel's that no server and no client looks into.
const NEVER_NEEDED: &str = "/sys/kernel/debug";

/// A folder of one program's own; removed when dropped.
#[derive(Debug)]
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes one: in memory, or among the temporary files where a container refuses the mount.
    pub(crate) fn make() -> Result<Self, String> {
        static MEMORY: OnceLock<Option<PathBuf>> = OnceLock::new();
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = match MEMORY.get_or_init(mounted) {
            Some(root) => root.join(format!("server-{number}")),
            None => return Self::temporary(),
        };
        Self::create(path)
    }

    /// Makes one among the temporary files.
    pub(crate) fn temporary() -> Result<Self, String> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tcptoll-server-{}-{number}", std::process::id());
        Self::create(std::env::temp_dir().join(name))
    }

    fn create(path: PathBuf) -> Result<Self, String> {
        // Not readable by others: the key of the certificate is in it.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// Path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The folder itself.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it and gives its path.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, String> {
        let path = self.file(name);
        fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mounted() -> Option<PathBuf> {
    let is_empty =
        |path: &&str| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    MOSTLY_EMPTY
        .into_iter()
        .filter(is_empty)
        .chain([NEVER_NEEDED])
        .find(|path| mount_memory(Path::new(path)).is_ok())
        .map(PathBuf::from)
}
