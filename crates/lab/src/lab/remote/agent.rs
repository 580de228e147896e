//! The agent: what runs on a host of the user's while the parent needs it.
//!
//! ```text
//! tcptoll ── ssh ── sshd ── sh → tcptoll-agent        waits for the one below
//!                                └─ tcptoll-agent     first process of a PID namespace, where it may have one
//!                                   └─ tcptoll-client or tcptoll-server, a new one for each trial
//! ```
//!
//! It ends when its standard input ends, or when the parent shows no sign of life. Then nothing is left of
//! it: the kernel ends a PID namespace with its first process; without one, the agent ends all that descends
//! from it.

use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::Duration;

use tcptoll_kernel::namespace;
use tcptoll_kernel::process::{self, Fork, set_nonblocking, spawn_with};
use tcptoll_kernel::sock_diag::SockDiag;

use super::relay::{Control, Event, Hello, Lost, Part, Relay};
use crate::lab::HOST_COMMAND;
use crate::messages::PROTOCOL;
use crate::passport;

/// The hidden sub-command that makes an agent of the program.
pub const AGENT_COMMAND: &str = "__agent";

/// What an agent sends first, so that what a login shell prints before is told from it.
pub const MAGIC: &[u8; 16] = b"tcptoll-agent-1\n";

/// Becomes an agent; gives the exit status when it ends. `dead_after`: silence of the parent that ends it.
///
/// Must be called while the process has one thread.
pub fn run(dead_after: Duration) -> i32 {
    if process::ignore_stop_signals().is_err() {
        return 1;
    }
    process::set_name("tcptoll-agent");
    let own_processes = match enter_own_processes() {
        Ok(Entered::Inside) => true,
        // The process outside the PID namespace only waits for the one inside.
        Ok(Entered::Outside(inside)) => {
            let mut last = 1;
            while let Some((pid, status)) = process::reap() {
                if pid == inside {
                    last = status;
                }
            }
            return last;
        }
        Err(()) => false,
    };
    let _ = process::adopt_orphans();
    let served = serve(dead_after, own_processes);
    process::end_descendants();
    i32::from(served.is_err_and(|lost| !matches!(lost, Lost::Ended)))
}

enum Entered {
    Inside,
    /// The number of the process inside.
    Outside(i32),
}

/// Enters a PID namespace of its own. Errors: the kernel does not let this user.
fn enter_own_processes() -> Result<Entered, ()> {
    namespace::leave_processes().map_err(drop)?;
    match process::fork() {
        Ok(Fork::Parent(inside)) => Ok(Entered::Outside(inside)),
        Ok(Fork::Child) => {
            let _ = process::die_with_parent();
            // Without it `/proc` shows the machine's processes under the machine's numbers.
            let _ = namespace::mount_proc();
            Ok(Entered::Inside)
        }
        Err(_) => Err(()),
    }
}

/// Carries out what the parent says until it is gone.
fn serve(dead_after: Duration, own_processes: bool) -> Result<(), Lost> {
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    // The shell and the program that ssh began may not be surprised by this: nobody else writes here now.
    output.write_all(MAGIC)?;
    for fd in [input.as_fd(), output.as_fd()] {
        set_nonblocking(fd).map_err(|error| Lost::Io(error.source))?;
    }
    let mut relay = Relay::new(input, output, dead_after);
    relay.tell(&Control::Hello(Box::new(hello(own_processes))))?;
    let mut running: Option<(u32, Child)> = None;
    loop {
        for event in relay.turn(None)? {
            match event {
                Event::Control(Control::Open { host, part }) => {
                    end(&mut running);
                    match begin(part) {
                        Ok((child, stream)) => {
                            running = Some((host, child));
                            relay.join(host, stream)?;
                        }
                        Err(why) => relay.tell(&Control::Failed { host, why })?,
                    }
                }
                Event::Control(Control::Close { host }) | Event::NearEnded(host) => {
                    relay.part_with(host);
                    if running.as_ref().is_some_and(|(number, _)| *number == host) {
                        end(&mut running);
                    }
                    relay.tell(&Control::Closed { host })?;
                }
                Event::Control(_) => {
                    return Err(Lost::Unreadable(
                        "a message that the parent does not send".to_owned(),
                    ));
                }
            }
        }
    }
}

/// Starts the host of a trial.
fn begin(part: Part) -> Result<(Child, UnixStream), String> {
    let failed = |error: std::io::Error| format!("the host's process cannot be started: {error}");
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(HOST_COMMAND).arg(theirs.as_raw_fd().to_string()).arg(match part {
        Part::Client => "client",
        Part::Server => "server",
    });
    // Standard output belongs to the channel alone.
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
    command.stdin(std::process::Stdio::null()).stdout(stderr);
    let child = spawn_with(&mut command, &[theirs.as_fd()]).map_err(failed)?;
    Ok((child, ours))
}

/// Ends the host of a trial and what it began, so that nothing of it disturbs the next.
fn end(running: &mut Option<(u32, Child)>) {
    if let Some((_, mut child)) = running.take() {
        let _ = child.kill();
        process::end_descendants();
        let _ = child.wait();
    }
}

fn hello(own_processes: bool) -> Hello {
    let text = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let no_sock_diag = SockDiag::open().and_then(|mut diag| diag.listeners()).err();
    Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        passport: passport::read(),
        architecture: std::env::consts::ARCH.to_owned(),
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        own_processes,
        address: std::env::var("SSH_CONNECTION").ok().and_then(|text| own_address(&text)),
        no_sock_diag: no_sock_diag.map(|error| error.to_string()),
    }
}

/// Of `SSH_CONNECTION`: the client's address and port, then ours.
fn own_address(text: &str) -> Option<IpAddr> {
    let address = text.split_whitespace().nth(2)?;
    // A scope has no meaning on the other machine.
    address.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_host_is_the_third_word_of_what_ssh_tells() {
        let address = |text| own_address(text).map(|address| address.to_string());
        assert_eq!(address("10.0.0.1 5000 10.0.0.2 22").as_deref(), Some("10.0.0.2"));
        assert_eq!(address("fe80::1%2 5000 fe80::2%3 22").as_deref(), Some("fe80::2"));
        assert_eq!(address("UNKNOWN 65535 UNKNOWN 65535"), None);
        assert_eq!(address(""), None);
    }
}
