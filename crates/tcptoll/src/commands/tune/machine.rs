//! What `tune` reads of this machine: which module Apache has, whose files it is, its memory.

use std::fs;
use std::path::Path;

use crate::tune::snippet::Distribution;
use tcptoll_measure::pages::Server;

/// The module that Apache has on this machine, with the file that says so. None: no configuration of Apache is here.
pub(super) fn apache(root: &Path) -> Option<(Server, String)> {
    let enabled = root.join("etc/apache2/mods-enabled");
    let names = fs::read_dir(&enabled).into_iter().flatten().flatten();
    let of_file = |name: &str| Server::of_mpm(name.strip_prefix("mpm_")?.strip_suffix(".load")?);
    let debian = names.filter_map(|entry| {
        let server = of_file(entry.file_name().to_str()?)?;
        Some((server, entry.path().display().to_string()))
    });
    let red_hat = || {
        let path = root.join("etc/httpd/conf.modules.d/00-mpm.conf");
        let text = fs::read_to_string(&path).ok()?;
        let server = text.lines().find_map(|line| {
            let module = line.trim().strip_prefix("LoadModule mpm_")?.split("_module").next()?;
            Server::of_mpm(module)
        })?;
        Some((server, path.display().to_string()))
    };
    debian.min_by(|a, b| a.1.cmp(&b.1)).or_else(red_hat)
}

/// Whose files a configuration on this machine has. None: neither's.
pub(super) fn distribution(root: &Path) -> Option<Distribution> {
    Distribution::of_release(&fs::read_to_string(root.join("etc/os-release")).ok()?)
}

/// Memory of this machine, bytes.
pub(super) fn memory_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:").map(|kib| kib << 10)
}

/// Pages that were written to swap since the machine started.
pub(super) fn swapped() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    field(&text, "pswpout ").unwrap_or_default()
}

fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_of_apache_is_read_where_each_distribution_has_it() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(apache(root.path()), None);
        let red_hat = root.path().join("etc/httpd/conf.modules.d");
        fs::create_dir_all(&red_hat).unwrap();
        let text =
            "#LoadModule mpm_prefork_module modules/a.so\nLoadModule mpm_event_module b.so\n";
        fs::write(red_hat.join("00-mpm.conf"), text).unwrap();
        assert_eq!(apache(root.path()).unwrap().0, Server::ApacheEvent);
        let debian = root.path().join("etc/apache2/mods-enabled");
        fs::create_dir_all(&debian).unwrap();
        for name in ["alias.load", "mpm_worker.conf", "mpm_worker.load"] {
            fs::write(debian.join(name), "").unwrap();
        }
        let (server, file) = apache(root.path()).unwrap();
        assert_eq!(server, Server::ApacheWorker);
        assert!(file.ends_with("mods-enabled/mpm_worker.load"), "{file}");
    }

    #[test]
    fn figures_of_the_kernel_are_found_by_their_names() {
        let text = "MemTotal:       24689512 kB\nMemFree: 1 kB\npswpin 5\npswpout 7\n";
        assert_eq!(field(text, "MemTotal:"), Some(24_689_512));
        assert_eq!(field(text, "pswpout "), Some(7));
        assert_eq!(field(text, "SwapTotal:"), None);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 24));
    }
}
