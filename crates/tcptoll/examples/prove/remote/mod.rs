//! Hosts of the user's over ssh: in network namespaces of this machine, with a real sshd.

mod alike;
mod cleanup;
mod clocks;
mod logins;

use std::process::Command;

use anyhow::{Context as _, ensure};
use tcptoll_core::record::{Arm, Summary};

use crate::hosts::Hosts;
use crate::support::Folder;

pub(crate) use alike::{lab, traffic};
pub(crate) use cleanup::{bytes, cut, kills};
pub(crate) use clocks::offsets;
pub(crate) use logins::ready;

/// Hosts in network namespaces alone, as root: sshd cannot separate its privileges in a user namespace.
fn of_root() -> anyhow::Result<Hosts> {
    ensure!(tcptoll_kernel::process::uid() == 0, "needs root, for sshd in a namespace");
    Ok(Hosts::start_with(&["--net"], "--net"))
}

/// The summary of a run that measured.
fn summary(command: &mut Command) -> anyhow::Result<Summary> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The only arm of a run.
fn arm(command: &mut Command) -> anyhow::Result<Arm> {
    summary(command)?.arms.into_iter().next().context("the summary has no arm")
}

/// What a login hands on to the command that it runs.
const HANDED_ON: &str = "XDG_CACHE_HOME TMPDIR TCPTOLL_TEST_MARK";

/// Keys and settings of an sshd and of an ssh that trusts it.
struct Sshd {
    folder: Folder,
}

impl Sshd {
    fn new() -> anyhow::Result<Self> {
        let folder = Folder::new();
        let key = folder.path("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &key])
            .status()
            .context("ssh-keygen")?;
        ensure!(made.success(), "ssh-keygen: {made}");
        std::fs::copy(folder.file("key.pub"), folder.file("authorized"))?;
        if tcptoll_kernel::process::uid() == 0 {
            std::fs::create_dir_all("/run/sshd")?;
        }
        let settings = format!(
            "HostKey {key}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\nPort 2222\n\
             AcceptEnv {HANDED_ON}\n",
            folder.path("authorized")
        );
        std::fs::write(folder.file("sshd_config"), settings)?;
        Ok(Self { folder })
    }

    /// An `ssh` with these lines for its hosts.
    fn ssh(&self, hosts: &str) -> anyhow::Result<String> {
        let settings = format!(
            "{hosts}Host *\n  IdentityFile {}\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  \
             UserKnownHostsFile {}\n  LogLevel ERROR\n  SendEnv {HANDED_ON}\n",
            self.folder.path("key"),
            self.folder.path("known")
        );
        std::fs::write(self.folder.file("ssh_config"), settings)?;
        Ok(format!("ssh -F {}", self.folder.path("ssh_config")))
    }

    /// An `ssh` whose logins are answered by an sshd of their own in the hosts' namespaces.
    fn in_namespaces(&self, hosts: &Hosts) -> anyhow::Result<String> {
        let host_entry = |name: &str, pid: &str| {
            format!(
                "Host {name}\n  ProxyCommand nsenter --target {pid} --net /usr/sbin/sshd -i -f {}\n",
                self.folder.path("sshd_config")
            )
        };
        self.ssh(&(host_entry("client", &hosts.client) + &host_entry("server", &hosts.server)))
    }
}
