//! Installs what the tests need from Debian, and starts nothing on the machine it does so on.
//! What they need of Python goes into `target/python` ([`crate::python`]).
//!
//! `xtask/packages.txt` is the only list. What is there already is not touched, and a package
//! whose program is there in another way counts as there: somebody's own nginx stays theirs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::process::{Line, Outcome, on_path};
use crate::python;

const LIST: &str = include_str!("../packages.txt");
/// Where Debian asks whether a daemon may be started; 101 is "no".
const POLICY_PATH: &str = "/usr/sbin/policy-rc.d";
const POLICY: &str = "#!/bin/sh\n\
    # Placed by tcptoll's `cargo xtask setup` while it installs packages, so that none of their\n\
    # daemons is started. It is taken away afterwards; if it is still here, it may be deleted.\n\
    exit 101\n";

/// `cargo xtask setup`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    if !arguments.is_empty() {
        bail!("setup takes no arguments");
    }
    let outcome = debian()?;
    // Through sudo, the files would be root's; whoever typed it comes back here.
    if outcome == Outcome::Passed && std::env::var_os("SUDO_UID").is_none() {
        python::prepare()?;
    }
    Ok(outcome)
}

/// The packages of the list.
fn debian() -> anyhow::Result<Outcome> {
    let needed = packages(LIST)?;
    let missing = missing(&needed);
    if missing.is_empty() {
        println!("setup: nothing to do, all {} packages are installed", needed.len());
        return Ok(Outcome::Passed);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    println!("setup: missing {}", names.join(" "));
    if !on_path("apt-get") {
        println!("this system has no apt-get; install its packages for these. On Debian:");
        println!("  sudo apt-get install -y --no-install-recommends {}", names.join(" "));
        return Ok(Outcome::NotPossible);
    }
    // The owner of our own entry in /proc is our effective user.
    if fs::metadata("/proc/self").context("reading /proc/self")?.uid() != 0 {
        return as_root();
    }
    install(&missing)?;
    let still: Vec<&str> = self::missing(&needed).iter().map(|package| package.name).collect();
    if !still.is_empty() {
        bail!("still missing after the installation: {}", still.join(" "));
    }
    println!("setup: installed {}", names.join(" "));
    Ok(Outcome::Passed)
}

/// One line of the list.
#[derive(Debug, PartialEq)]
struct Package<'a> {
    name: &'a str,
    /// What of it the tests run.
    program: &'a str,
    /// The service it would have started at every boot.
    service: Option<&'a str>,
}

/// Reads the list; a line without a reason is an error.
fn packages(list: &str) -> anyhow::Result<Vec<Package<'_>>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some(name), Some(program), Some(service), Some(_reason)) => {
                    Ok(Package { name, program, service: (service != "-").then_some(service) })
                }
                _ => bail!("packages.txt: {line:?}: write PACKAGE PROGRAM SERVICE REASON"),
            }
        })
        .collect()
}

fn missing<'a>(needed: &'a [Package<'a>]) -> Vec<&'a Package<'a>> {
    let query = Line::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${db:Status-Status}\\n"])
        .args(needed.iter().map(|package| package.name));
    // It complains, and exits with 1, of a package it has never heard of: that one is missing.
    let said = query.command().stderr(Stdio::null()).output();
    let said = said.map(|output| output.stdout).unwrap_or_default();
    let installed = installed(&String::from_utf8_lossy(&said));
    needed
        .iter()
        .filter(|package| !installed.contains(package.name) && !on_path(package.program))
        .collect()
}

/// Names of the packages that `dpkg-query` calls installed; configuration left behind is not.
fn installed(said: &str) -> BTreeSet<String> {
    said.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, status)| *status == "installed")
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Runs this very task through sudo where that asks nothing, else says what to type.
fn as_root() -> anyhow::Result<Outcome> {
    let program = std::env::current_exe().context("finding this program")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?;
    if !Line::new("sudo").args(["-n", "true"]).succeeds() {
        println!("setup needs root; run:");
        println!("  {}", Line::new("sudo").args([program, "setup"]));
        return Ok(Outcome::NotPossible);
    }
    let status = Line::new("sudo")
        .args(["-n", program, "setup"])
        .command()
        .status()
        .context("running sudo")?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::NotPossible })
}

fn install(packages: &[&Package<'_>]) -> anyhow::Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // From here on these end apt-get, if it is in the foreground, and not us: we have to tidy up.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("catching signals")?;
    }
    let policy = StartPolicy::refuse(Path::new(POLICY_PATH))?;
    let names: Vec<&str> = packages.iter().map(|package| package.name).collect();
    let update = apt_get().arg("update");
    // --no-remove: a package in the way is its owner's, so apt-get is to stop.
    let install = apt_get()
        .args(["install", "-y", "--no-install-recommends", "--no-remove"])
        .args(names.clone());
    let mut outcome = install.run()?;
    if outcome != Outcome::Passed && !interrupted.load(Ordering::Relaxed) {
        println!("setup: the package lists of apt-get may be outdated; updating them");
        outcome = if update.run()? == Outcome::Passed { install.run()? } else { outcome };
    }
    policy.restore()?;
    if interrupted.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    if outcome != Outcome::Passed {
        bail!("{install} failed");
    }
    for service in packages.iter().filter_map(|package| package.service) {
        let disable = Line::new("update-rc.d").args([service, "disable"]);
        if on_path("update-rc.d") && !disable.succeeds() {
            println!("warning: {service} will start with the next boot; to avoid that: {disable}");
        }
    }
    Ok(())
}

fn apt_get() -> Line {
    Line::new("apt-get")
        .args(["-q", "-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Use-Pty=0"])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("APT_LISTCHANGES_FRONTEND", "none")
        // needrestart would restart services of the machine's owner.
        .env("NEEDRESTART_SUSPEND", "1")
}

/// While it lives, no daemon is started; dropped, the machine's own answer is back.
///
/// A policy that is there already is moved aside and back, so that its mode, owner and links stay.
/// Every step is a rename: a kill at any point leaves the machine's own policy whole, in its place or
/// beside it, and the next run puts it back first.
struct StartPolicy {
    path: PathBuf,
    /// Where the machine's own policy waits, if it has one.
    aside: Option<PathBuf>,
    over: bool,
}

impl StartPolicy {
    fn refuse(path: &Path) -> anyhow::Result<Self> {
        let aside = with_suffix(path, ".before-tcptoll");
        let fresh = with_suffix(path, ".tcptoll");
        if fs::symlink_metadata(&aside).is_ok() {
            fs::rename(&aside, path).context("putting back a policy that a killed run left")?;
        }
        fs::write(&fresh, POLICY).with_context(|| format!("writing {}", fresh.display()))?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("making {} executable", fresh.display()))?;
        let foreign = fs::symlink_metadata(path).is_ok()
            && fs::read(path).map_or(true, |content| content != POLICY.as_bytes());
        if foreign {
            fs::rename(path, &aside).with_context(|| format!("moving {} aside", path.display()))?;
        }
        let guard = Self { path: path.to_owned(), aside: foreign.then_some(aside), over: false };
        fs::rename(&fresh, path).with_context(|| format!("placing {}", path.display()))?;
        Ok(guard)
    }

    fn restore(mut self) -> anyhow::Result<()> {
        self.undo().with_context(|| format!("restoring {}", self.path.display()))
    }

    fn undo(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.over, true) {
            return Ok(());
        }
        match &self.aside {
            Some(aside) => fs::rename(aside, &self.path),
            None => fs::remove_file(&self.path),
        }
    }
}

impl Drop for StartPolicy {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            eprintln!("warning: {} could not be restored: {error}", self.path.display());
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_list_can_be_read_and_names_each_package_once() {
        let packages = packages(LIST).unwrap();
        let names: BTreeSet<&str> = packages.iter().map(|package| package.name).collect();
        assert!(names.len() == packages.len() && names.contains("nginx-light"), "{names:?}");
    }

    #[test]
    fn a_package_without_a_reason_is_refused() {
        assert!(packages("tcpdump tcpdump -\n").is_err());
    }

    #[test]
    fn a_removed_package_with_configuration_left_is_not_installed() {
        let names =
            installed("tcpdump installed\nnginx-light config-files\niperf3 not-installed\n");
        assert_eq!(names, BTreeSet::from(["tcpdump".to_owned()]));
    }

    #[test]
    fn without_a_policy_before_there_is_none_after() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy-rc.d");
        let guard = StartPolicy::refuse(&path).unwrap();
        assert_eq!(files(folder.path()), ["policy-rc.d"]);
        let status = std::process::Command::new("sh").arg(&path).status().unwrap();
        assert_eq!(status.code(), Some(101));
        guard.restore().unwrap();
        assert!(files(folder.path()).is_empty());
    }

    #[test]
    fn a_policy_that_was_there_is_back_after_a_failure_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy-rc.d");
        fs::write(&path, "exit 0\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&path).unwrap();
        let failed = || -> anyhow::Result<()> {
            let _guard = StartPolicy::refuse(&path)?;
            assert_eq!(fs::read_to_string(&path)?, POLICY);
            bail!("apt-get failed")
        };
        assert!(failed().is_err());
        let after = fs::metadata(&path).unwrap();
        assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
        assert_eq!(files(folder.path()), ["policy-rc.d"]);
    }

    #[test]
    fn what_a_killed_run_left_is_tidied_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy-rc.d");
        std::mem::forget(StartPolicy::refuse(&path).unwrap());
        StartPolicy::refuse(&path).unwrap().restore().unwrap();
        assert!(files(folder.path()).is_empty());

        fs::write(&path, "exit 0\n").unwrap();
        std::mem::forget(StartPolicy::refuse(&path).unwrap());
        StartPolicy::refuse(&path).unwrap().restore().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "exit 0\n");
        assert_eq!(files(folder.path()), ["policy-rc.d"]);
    }
}
