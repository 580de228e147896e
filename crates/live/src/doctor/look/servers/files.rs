//! Files of a server's configuration, in the root directory of its process.

use std::io::Read as _;
use std::path::Path;

use crate::doctor::config::Files;
use tcptoll_kernel::SysError;
use tcptoll_kernel::root::Root;

use super::glob;
use crate::watch::reader::is_root;

/// Length of one file, bytes, at most.
const FILE_MAX: u64 = 1 << 20;
/// Entries of a folder that are looked at.
const ENTRIES_MAX: usize = 4_096;
/// Paths that one pattern names, and folders that it is looked for in, at most.
const PATHS_MAX: usize = 257;

/// Reads files inside a root, or none where the root may not be opened.
pub(super) struct Rooted(Result<Root, String>);

impl Rooted {
    pub(super) fn new(root: Result<Root, String>) -> Self {
        Self(root)
    }
}

/// Why a file cannot be read, with the remedy where there is one.
pub(super) fn reason(error: &SysError) -> String {
    match error.source.kind() {
        std::io::ErrorKind::PermissionDenied if is_root() => {
            // Root is refused nothing but by a user namespace, a container or a file system of others.
            "permission denied: root has no CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH over this process here; \
             run tcptoll outside of the container or user namespace"
                .to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "permission denied: run as the owner of the file, or with sudo".to_owned()
        }
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::InvalidInput if error.errno().is_none() => error.source.to_string(),
        _ => error.source.to_string(),
    }
}

impl Files for Rooted {
    fn read(&mut self, path: &str) -> Result<String, String> {
        let root = self.0.as_ref().map_err(Clone::clone)?;
        let file = root.file(Path::new(path)).map_err(|error| reason(&error))?;
        let mut bytes = Vec::new();
        file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > FILE_MAX {
            return Err("longer than 1 MiB".to_owned());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn matching(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let root = self.0.as_ref().map_err(Clone::clone)?;
        let mut paths = vec![String::new()];
        for part in pattern.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if !glob::is_pattern(part) {
                for path in &mut paths {
                    path.push('/');
                    path.push_str(part);
                }
                continue;
            }
            let mut longer = Vec::new();
            for path in &paths {
                let folder = if path.is_empty() { "/" } else { path };
                let mut names = match root.names(Path::new(folder), ENTRIES_MAX) {
                    Ok(names) => names,
                    Err(error) if is_absent(&error) => continue,
                    Err(error) => return Err(reason(&error)),
                };
                names.sort();
                let names = names.iter().filter(|name| glob::matches(part, name));
                longer.extend(names.map(|name| format!("{path}/{name}")));
                longer.truncate(PATHS_MAX);
            }
            paths = longer;
        }
        let mut found = Vec::new();
        for path in paths {
            if root.has(Path::new(&path)).map_err(|error| reason(&error))? {
                found.push(path);
            }
        }
        Ok(found)
    }
}

fn is_absent(error: &SysError) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.source.kind(), NotFound | NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_files_in_order_and_long_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a/2.conf", "a/1.conf", "a/.3.conf", "a/4.bak", "b/5.conf"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        std::fs::write(folder.path().join("long"), vec![b'#'; (1 << 20) + 1]).unwrap();
        let mut files = Rooted::new(Root::open(folder.path()).map_err(|error| reason(&error)));
        assert_eq!(
            files.matching("/*/*.conf"),
            Ok(vec!["/a/1.conf".into(), "/a/2.conf".into(), "/b/5.conf".into()])
        );
        assert_eq!(files.matching("/none/*.conf"), Ok(Vec::new()));
        assert_eq!(files.matching("/a/1.conf"), Ok(vec!["/a/1.conf".into()]));
        assert_eq!(files.matching("/a/none"), Ok(Vec::new()));
        assert_eq!(files.read("/a/2.conf"), Ok("a/2.conf".to_owned()));
        assert_eq!(files.read("/long"), Err("longer than 1 MiB".to_owned()));
        assert_eq!(files.read("/a"), Err("not a regular file".to_owned()));
        assert_eq!(files.read("/none"), Err("no such file".to_owned()));
    }
}
