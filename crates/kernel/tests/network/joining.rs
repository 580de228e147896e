//! Who may join the network namespace of another process, as the kernel has it.
#![expect(unsafe_code, reason = "a child with one thread is between fork and exec")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use tcptoll_kernel::SysError;
use tcptoll_kernel::namespace::{Network, join_network};

/// A user of no machine's list.
const HOLDER: u32 = 64_321;

/// Listens on port 7777 until its standard input ends.
const LISTENING: &str = "import socket,sys\ns=socket.socket()\ns.bind(('0.0.0.0',7777))\ns.listen()\n\
                         print('ready',flush=True)\nsys.stdin.read()";

/// A process with a network namespace of its own.
struct Holder(Child);

impl Holder {
    /// As an ordinary user, who makes a user namespace for that. `None`: the test is skipped.
    fn ordinary() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["-Urn", "--", "python3", "-c", LISTENING]).uid(HOLDER).gid(HOLDER);
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut line = String::new();
        let ready = child.map(|mut child| {
            let _ = BufReader::new(child.stdout.take().unwrap()).read_line(&mut line);
            Self(child)
        });
        match ready {
            Ok(holder) if line == "ready\n" => Some(holder),
            other if std::env::var("LAB").as_deref() == Ok("required") => {
                panic!("lab required but unavailable: {:?}", other.err())
            }
            _ => {
                eprintln!("SKIPPED (lab): no other user, or it makes no namespace");
                None
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `ss` lists once this user has joined the holder's namespace.
fn listed(uid: u32, holder: &Holder) -> std::io::Result<String> {
    let wanted = Network::OfProcess(holder.0.id());
    let mut command = Command::new("ss");
    command.args(["-Hltn"]).uid(uid).gid(uid);
    // SAFETY: between fork and exec the child has one thread, which joining needs. What it allocates
    // is safe there: the C library's fork releases the allocator's lock.
    unsafe {
        command.pre_exec(move || join_network(&wanted).map_err(|SysError { source, .. }| source));
    }
    command.output().map(|output| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn root_and_who_made_it_join_a_namespace_and_another_user_does_not() {
    let Some(holder) = Holder::ordinary() else { return };
    for uid in [0, HOLDER] {
        let list = listed(uid, &holder).unwrap();
        assert!(list.contains("0.0.0.0:7777") && list.lines().count() == 1, "{uid}: {list:?}");
    }
    let refused = listed(HOLDER + 1, &holder).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(13), "EACCES: {refused}");
}
